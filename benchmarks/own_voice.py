"""Does a face that hears its own voice score higher than one that hears nothing, somebody else, or itself too late?

python benchmarks/own_voice.py CLIPS [--checkpoint=FILE] [--out=JSON] [--seen=corpus/talker,...|none] [--lags=CSV|each]

The bar: what the published LR-ASD weights reach on the same 76 clips of 21 talkers (CLIPS/clips.csv but for lrw_ar,
grid/s1 and what never speaks; the first 4 s). Each clip is scored four times: with its own sound, with silence, with
the voice of another talker (brought to the level of its own), with its own turned by 0.6 s. A frame is active where
the level of a sound is at most 20 dB below that of the loudest frame. To accept: active frames with the own sound. To
refuse: all frames under silence; frames in which the other voice is active; frames in which the turned voice is active
and the mouth speaks (the own sound is active) as well. These counts give the prevalences of the published figures (.33,
.44, .62). One threshold for all three: it misses 5 % of the frames to accept. Intervals draw talkers.

Figures are given for all talkers, for those that the model has not seen (neither trained nor chosen on: released
weights say so themselves, for others ``--seen`` or the splits of clips.csv), for those of them who say something in
these seconds (silero-vad or word times: one clip holds only the noise of its room, all of which counts as active), and
for the split test.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.compose import turn
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.files import whole_text_file
from benchmarks.real_clips import (
    EACH,
    Asked,
    TalkingClip,
    ask,
    draws_of,
    read_talking,
    seen_talkers,
)
from benchmarks.weighted_figures import compared, in_words, together
from data_prep.clips_in_memory import Scenes

SECONDS = 4.0
ROLL_S = 0.6
ACTIVE_SHARE = 0.1  # of the loudest frame's level: 20 dB
COMPARISONS = ("silence", "other voice", "rolled")
# Average precision and false accepts at 5 % miss, as the published weights gave them on these clips.
PUBLISHED = {
    "LR-ASD weights, trained on AVA": {"silence": (0.975, 0.00), "other voice": (0.714, 0.67), "rolled": (0.862, 0.94)},
    "LR-ASD weights, trained on TalkSet": {
        "silence": (0.694, 0.28), "other voice": (0.589, 0.71), "rolled": (0.645, 0.94),
    },
}  # fmt: skip

Bools = NDArray[np.bool_]
Sound = NDArray[np.float32]


def main() -> None:
    """Reads the command line, scores, prints and writes."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("clips", type=Path, metavar="CLIPS", help="folder with clips.csv and boxes.csv")
    parser.add_argument("--checkpoint", type=Path, help="of a run, or released weights (default: the package's)")
    parser.add_argument("--seen", help="talkers it was trained or chosen on, corpus/talker with commas; none")
    parser.add_argument(
        "--lags",
        type=Path,
        metavar="CSV",
        help="lags of the talkers to take out first (data_prep.find_lags), or: each, to find and take out the lag of"
        " every clip under every sound by itself, as inference does with a film",
    )
    parser.add_argument("--out", type=Path, metavar="JSON", help="where to write the figures")
    parser.add_argument("--resamples", type=int, default=1000, help="of the intervals (default: 1000)")
    options = parser.parse_args()
    asked = ask(options.checkpoint)
    clips = read_talking(options.clips, SECONDS, lags=options.lags)
    seen = seen_talkers(asked, clips, options.seen)
    report = asked.record(options.lags) | figures(asked, clips, seen, options.resamples, options.lags == EACH)
    print(as_text(report))
    if options.out is not None:
        with whole_text_file(options.out) as file:
            file.write(json.dumps(report, indent=2, allow_nan=False) + "\n")
        print(f"  {options.out}")


def active(audio: Sound) -> Bools:
    """``(T,)``: the frames whose level is within 20 dB of the loudest one's; none where there is no sound.

    Args:
        audio: ``(640 T,)``.
    """
    rms = np.sqrt(np.mean(audio.reshape(-1, SAMPLES_PER_VIDEO_FRAME).astype(np.float64) ** 2, axis=1))
    found: Bools = (rms >= ACTIVE_SHARE * rms.max()) & (rms > 0)
    return found


def other_voice(clip: TalkingClip, clips: Sequence[TalkingClip]) -> Sound:
    """``(640 T,)`` of another talker's clip, each talker as likely; repeated where too short, at the clip's level."""
    draws = draws_of(clip.clip_id)
    talkers = sorted({other.talker for other in clips} - {clip.talker})
    talker = talkers[draws.integers(len(talkers))]
    of_talker = sorted((other for other in clips if other.talker == talker), key=lambda other: other.clip_id)
    voice = of_talker[draws.integers(len(of_talker))].decoded.audio
    resized = np.resize(voice, len(clip.decoded.audio))
    return (resized * (_level(clip.decoded.audio) / _level(resized))).astype(np.float32)


def _level(audio: Sound) -> float:
    """The root mean square of the active frames."""
    blocks = audio.reshape(-1, SAMPLES_PER_VIDEO_FRAME)[active(audio)]
    return float(np.sqrt(np.mean(blocks.astype(np.float64) ** 2)))


def heard_with(clip: TalkingClip, clips: Sequence[TalkingClip]) -> dict[str, tuple[Sound, Bools]]:
    """For the own sound and each comparison: what is heard ``(640 T,)``, and the frames that count ``(T,)``."""
    audio = clip.decoded.audio
    own, foreign, late = active(audio), other_voice(clip, clips), turn(audio, round(ROLL_S * SAMPLE_RATE))
    both = own & np.roll(own, round(ROLL_S * VIDEO_HZ))
    return {
        "own": (audio, own),
        "silence": (np.zeros_like(audio), np.ones_like(own)),
        "other voice": (foreign, active(foreign)),
        "rolled": (late, both),
    }


def figures(
    asked: Asked, clips: Sequence[TalkingClip], seen: set[str], resamples: int, each_lag: bool = False
) -> dict[str, Any]:
    """Scores all clips four times; ``each_lag``: with the lag of each of the four taken out, whatever it seems to be.

    Raises:
        UsageError: no clips, or no two talkers.
    """
    scenes, counting = Scenes("own voice"), []
    for clip in clips:
        decoded = clip.decoded
        for what, (audio, counts) in heard_with(clip, clips).items():
            scenes.add(f"{clip.clip_id}/{what}", decoded.crops, decoded.boxes_xyxy, audio, counts)
            counting.append((clip, what, counts))
    scores = asked.scores(asked.lags_taken_out(scenes) if each_lag else scenes, "clips")
    kept: dict[str, dict[str, NDArray[np.float32]]] = {clip.clip_id: {} for clip in clips}
    for (clip, what, counts), score in zip(counting, scores, strict=True):
        kept[clip.clip_id][what] = score[counts]
    sets = {
        "all": list(clips),
        "not seen": [clip for clip in clips if clip.talker not in seen],
        "not seen, who speak": [clip for clip in clips if clip.talker not in seen and clip.decoded.speaking.any()],
        "split test": [clip for clip in clips if clip.split == "test"],
    }
    return {
        "protocol": {"seconds": SECONDS, "roll_s": ROLL_S, "active_share_of_loudest": ACTIVE_SHARE, "miss_rate": 0.05},
        "seen": sorted(seen & {clip.talker for clip in clips}),
        "resamples": resamples,
        "sets": {name: figures_of(some, kept, resamples) for name, some in sets.items() if some},
        "talkers": {
            talker: figures_of([clip for clip in clips if clip.talker == talker], kept, 0)
            for talker in sorted({clip.talker for clip in clips})
        },
        "published": {
            name: {what: {"average_precision": ap, "false_accept_rate": rate} for what, (ap, rate) in rows.items()}
            for name, rows in PUBLISHED.items()
        },
    }


def figures_of(
    clips: Sequence[TalkingClip], kept: dict[str, dict[str, NDArray[np.float32]]], resamples: int
) -> dict[str, Any]:
    """The three comparisons over some clips."""
    numbers = {talker: number for number, talker in enumerate(sorted({clip.talker for clip in clips}))}

    def frames_of(what: str) -> Any:
        return together([(kept[clip.clip_id][what], [numbers[clip.talker]]) for clip in clips])

    own = frames_of("own")
    if not len(own):
        raise UsageError(f"no frame of {len(clips)} clips is active; expected clips with a voice")
    rows = {what: compared(own, frames_of(what), resamples) for what in COMPARISONS if len(frames_of(what))}
    return {"clips": len(clips), "talkers": len(numbers), "comparisons": rows}


def as_text(report: dict[str, Any]) -> str:
    """The table."""
    head = [f"{what}: AP at prevalence" for what in COMPARISONS] + [f"{what}: false accepts" for what in COMPARISONS]
    lines = ["| talkers | " + " | ".join(head) + " |", "|" + "---|" * (1 + len(head))]
    for name, found in report["sets"].items():
        rows = [found["comparisons"].get(what) for what in COMPARISONS]
        cells = [
            "-"
            if row is None
            else f"{in_words(row['average_precision'], row['average_precision_interval'])} at {row['prevalence']:.2f}"
            for row in rows
        ]
        cells += [
            "-" if row is None else in_words(row["false_accept_rate"], row["false_accept_rate_interval"])
            for row in rows
        ]
        lines.append(f"| {name}: {found['talkers']} talkers, {found['clips']} clips | " + " | ".join(cells) + " |")
    as_they_are = "" if report.get("lags_taken_out") is None else ", clips as they are"
    for name, rows in report["published"].items():
        cells = [in_words(rows[what]["average_precision"], None) for what in COMPARISONS]
        cells += [in_words(rows[what]["false_accept_rate"], None) for what in COMPARISONS]
        lines.append(f"| {name}, all{as_they_are} | " + " | ".join(cells) + " |")
    few = {row["note"] for found in report["sets"].values() for row in found["comparisons"].values() if row["note"]}
    notes = [f"note: {note}" for note in sorted(few)]
    return "\n".join([*lines, *(["", *notes] if notes else [])])  # a line right behind a table would be a row of it


if __name__ == "__main__":
    sys.exit(run_command(main))
