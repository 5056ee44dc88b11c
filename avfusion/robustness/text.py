"""What the suite found as tables: for the terminal, and as ``robustness.md``, which needs no other file beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from avfusion.checkpoint import encoders_in_words
from avfusion.data.identity import in_words

Report = Mapping[str, Any]
Table = tuple[str, list[str], list[list[str]]]

HOW_TO_READ = """\
Damage is done to the stored face crop and to the sound of the whole track, and drawn from the track's ids: every model
sees the same. A ratio (SNR) is of active power, pauses left out. Change and its interval are paired: condition and
clean clips are compared on the same draws of groups; robustness.png has that interval as bars. Labels are those of the
clean clips in every row of the first table; without sound they say who spoke before it was lost. A face whose sound is
moved or another clip's has no true label, so there is no AP for it: the second table gives the share of speaking frames
that are still accepted.

False accepts: at the threshold that misses 5 % of the speaking frames of the tracks in sync, with their own sound; the
intervals find the threshold again in every draw. In sync are tracks whose role says so, or, without roles, those that
speak for more than half of their frames. Shifted sound is turned in a circle: what leaves a track at one end comes in
at the other, so all that is heard is sound of the track, and out of time. Frames count whose own sound is moved by just
the shift, 200 ms or more from the seam where the ends meet (they fade there, 5 ms each); a track too short to be out of
time on both sides of the seam (by the shift, or by 800 ms) does not count at that shift. Beside each rate stands how
many of the same frames are accepted with their own sound. A model that does not listen accepts as many frames with any
sound."""


def as_text(report: Report) -> str:
    """The tables for the terminal."""
    parts = [f"\n{title_of(report)}: clean AP {_with_interval(report['clean'])}"]
    for title, header, rows in tables(report):
        cells = [header, *rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        parts.append("\n".join([title, *lines]))
    parts.extend(f"note: {note}" for note in report["notes"])
    return "\n\n".join(parts) + "\n"


def as_markdown(report: Report, pictures: Sequence[str]) -> str:
    """The whole of ``robustness.md``.

    Args:
        report: content of ``robustness.json``.
        pictures: file names beside it.
    """
    parts = [f"# Robustness: {title_of(report)}", _provenance(report)]
    for title, header, rows in tables(report):
        lines = [f"## {title}", "", _line(header), _line(["---"] * len(header)), *(_line(row) for row in rows)]
        parts.append("\n".join(lines))
    parts += [f"![{name}]({name})" for name in pictures]
    parts.append(f"## How to read it\n\n{HOW_TO_READ}")
    return "\n\n".join(parts) + "\n"


def title_of(report: Report) -> str:
    """Names data and model."""
    model = report["model"]
    kind = model["modality"] if model["modality"] != "audio_visual" else model["fusion"]
    if "heads" in model:
        kind += f", {model['heads']} head{'s' if model['heads'] != 1 else ''}, keys at {model['key_hz']} Hz"
    return f"{report['dataset']} / {report['split']}: {kind}, {model['parameters'] / 1e6:.2f} M parameters"


def tables(report: Report) -> list[Table]:
    """Title, header and rows of each table."""
    desync = report["desync"]
    found: list[Table] = [
        (
            "AP with sound or picture changed, clean AP beside it",
            ["condition", "AP", "95 %", "clean AP", "change", "95 %, paired", "of clean"],
            [
                [
                    row["condition"],
                    f"{row['average_precision']:.4f}",
                    _interval(row["average_precision_interval"]),
                    f"{row['clean_average_precision']:.4f}",
                    f"{row['change']:+.4f}",
                    _interval(row["change_interval"], "+.3f"),
                    f"{100 * row['share_of_clean']:.1f} %",
                ]
                for row in report["rows"]
            ],
        ),
        (
            f"False accepts with sound that is not the face's own, at threshold {desync['threshold']:.4f}",
            ["sound", "accepted", "95 %", "same frames, own sound", "frames", "tracks", "sources"],
            [
                [
                    "own, in sync",
                    f"{100 * (1 - desync['miss_rate']):.1f} %",
                    "by choice",
                    "-",
                    *_in_sync(report["counts"]),
                ],
                *(
                    [
                        row["condition"],
                        "-" if row["false_accept_rate"] is None else f"{100 * row['false_accept_rate']:.1f} %",
                        _interval(row["false_accept_rate_interval"], ".1f", 100),
                        "-" if row["own_sound_rate"] is None else f"{100 * row['own_sound_rate']:.1f} %",
                        str(row["num_frames"]),
                        str(row["num_tracks"]),
                        str(row["num_groups"]),
                    ]
                    for row in desync["rows"]
                ),
            ],
        ),
    ]
    if report["offset_accuracy"]:
        found.append(
            (
                "Offset accuracy: sound moved by -8..8 frames found again within ±1 frame, searched over ±12",
                ["corpus", "accuracy", "95 %", "always 0", "median error", "clips"],
                [
                    [
                        row["source"],
                        f"{100 * row['accuracy']:.1f} %",
                        _interval(row["accuracy_interval"], ".1f", 100),
                        f"{100 * row['chance']:.0f} %",
                        f"{row['median_error_ms']:.0f} ms",
                        str(row["num_clips"]),
                    ]
                    for row in report["offset_accuracy"]
                ],
            )
        )
    return found


def _provenance(report: Report) -> str:
    checkpoint, counts, versions = report["checkpoint"], report["counts"], report["versions"]
    return "\n".join(
        [
            f"- clean AP {_with_interval(report['clean'])}; a constant score has {counts['prevalence']:.4f}",
            f"- {counts['tracks']} labelled tracks, {counts['frames']} frames, {counts['speaking_frames']} speaking,"
            f" {counts['groups']} independent sources; in sync: {counts['in_sync_tracks']} tracks,"
            f" {counts['in_sync_speaking_frames']} speaking frames, {counts['in_sync_groups']} sources",
            "- AP: VOC all-point interpolation over all face boxes, as AVA defines it; intervals: 95 %, bootstrap over"
            f" the sources, {report['resamples']} draws",
            f"- dataset: {report['dataset']}, {report['split']}; {in_words(report['data'])}",
            f"- command: `{report['command']}`",
            f"- checkpoint: `{checkpoint['path']}`, epoch {checkpoint['epoch']}, sha256 `{checkpoint['sha256']}`",
            *([f"- {encoders_in_words(report['encoders'])}"] if report["encoders"] else []),
            f"- seeds: training {report['seeds']['training']}, bootstrap {report['seeds']['bootstrap']}, offsets"
            f" {report['seeds']['offsets']}, damage the tracks' ids; on {report['device']}; "
            + ", ".join(f"{name} {version}" for name, version in versions.items()),
            f"- music: {report['music']}",
            *(f"- {note}" for note in report["notes"]),
        ]
    )


def _in_sync(counts: Mapping[str, Any]) -> list[str]:
    return [str(counts[name]) for name in ("in_sync_speaking_frames", "in_sync_tracks", "in_sync_groups")]


def _with_interval(clean: Mapping[str, Any]) -> str:
    return f"{clean['average_precision']:.4f} ({_interval(clean['average_precision_interval'])})"


def _interval(ends: Sequence[float] | None, form: str = ".3f", scale: float = 1.0) -> str:
    return "-" if ends is None else f"{scale * ends[0]:{form}}..{scale * ends[1]:{form}}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
