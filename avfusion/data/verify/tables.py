"""What the tables of a prepared dataset tell about its faults, before any media file is opened.

Tracks and label rows that contradict each other, boxes that are no fractions, splits that share what they must not
share, splits in which nobody speaks, counts that no longer hold, and files that no row names.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from avfusion.data.box_rule import EXPECTED, far_outside, without_area
from avfusion.data.prepared_tables import JoinedSplit, TrackRow
from avfusion.data.verify.findings import Finding
from avfusion.data.verify.uses import AGAIN, Use, shared

_FAULTS = {
    "listed_twice": ("tracks are listed twice in tracks.csv", "give each track of a video an entity_id of its own"),
    "not_listed": ("labelled tracks have no row in tracks.csv (labels without crops)", AGAIN),
    "row_count": ("tracks have more or fewer label rows than frames", AGAIN),
    "stamps": ("tracks have label rows that are no frames of 25 fps from their start_s", AGAIN),
}


def label_findings(splits: Mapping[str, JoinedSplit]) -> list[Finding]:
    """Tracks and label rows that contradict each other."""
    total = sum(len(joined.rows) for joined in splits.values())
    findings = []
    for kind, (what, advice) in _FAULTS.items():
        faults = [(split, f) for split, joined in splits.items() for f in joined.faults if f.kind == kind]
        if faults:
            cases = [
                f"{fault.key[1]!r} of {fault.key[0]!r} ({split}): {_reason(fault.text)}" for split, fault in faults
            ]
            # A track that is listed twice is told from its twin by nothing: skipping it would skip both.
            keys = frozenset((split, *fault.key) for split, fault in faults) if kind != "listed_twice" else frozenset()
            findings.append(Finding(what, cases, max(total, len(cases)), advice, keys))
    return findings


def _reason(text: str) -> str:
    """The part of a fault's text that follows the file's name."""
    return text.split(": ", 1)[-1]


def box_findings(uses: Sequence[Use]) -> list[Finding]:
    """Boxes that are no fractions of the picture, or have no area."""
    far, empty, looked = [], [], 0
    for use in uses:
        if use.track is None:
            continue
        looked += 1
        boxes = use.track.boxes_xyxy
        if far_outside(boxes).any():
            far.append((use, f"{use.name}: {boxes.min():g} .. {boxes.max():g}"))
        elif without_area(boxes).any():
            empty.append((use, f"{use.name}: frame {int(without_area(boxes).argmax())}"))
    findings = []
    if far:
        what = "tracks have boxes far outside the picture"
        advice = f"expected {EXPECTED}; divide pixels by the picture's width and height"
        findings.append(Finding(what, [case for _, case in far], looked, advice, frozenset(u.key for u, _ in far)))
    if empty:
        what, advice = "tracks have boxes without area", "crops may show nothing there; correct the boxes"
        findings.append(Finding(what, [case for _, case in empty], looked, advice, is_note=True))
    return findings


def leak_findings(uses: Sequence[Use]) -> list[Finding]:
    """What two splits share although a score on one would then tell nothing about the other."""
    advice = "a track of one split gives the other away; move all of it to one split"
    kinds: list[tuple[str, Callable[[TrackRow], str]]] = [
        ("videos are in more than one split", lambda row: row.video_id),
        ("groups (source clips) are in more than one split", lambda row: row.group),
        ("sound files are used by more than one split", lambda row: row.audio),
        ("crop files are used by more than one split", lambda row: row.crops),
    ]
    findings = []
    for what, value_of in kinds:
        splits_of: dict[str, set[str]] = defaultdict(set)
        for use in uses:
            if value := value_of(use.row):
                splits_of[value].add(use.split)
        findings += shared(what, splits_of, advice)
    return findings


def silent_splits(uses: Sequence[Use]) -> list[Finding]:
    """Splits with labels in which nobody ever speaks."""
    labelled = dict.fromkeys(use.split for use in uses if use.track is not None and use.row.labelled)
    speaks = {use.split for use in uses if use.speaks}
    silent = [split for split in labelled if split not in speaks]
    advice = "no AP and no training come from it; look for lost SPEAKING_AUDIBLE labels, or mark tracks labelled=no"
    return [Finding("splits have no frame that is labelled as speaking", silent, len(labelled), advice)][: len(silent)]


def count_findings(splits: Mapping[str, JoinedSplit], info: Mapping[str, Any]) -> list[Finding]:
    """Counts of ``dataset.json`` that its tables no longer hold."""
    wrong = []
    for split, joined in splits.items():
        told = info.get("counts", {}).get(split, {})
        found = {"tracks": len(joined.rows), "frames": sum(row.num_frames for row in joined.rows)}
        wrong += [f"{split}: {found[k]} {k}, told {told[k]}" for k in found if k in told and told[k] != found[k]]
    what = "counts of dataset.json are not those of tracks.csv"
    advice = "nothing to do if the tables were changed on purpose"
    return [Finding(what, wrong, 2 * len(splits), advice, is_note=True)] if wrong else []


def left_out_findings(info: Mapping[str, Any]) -> list[Finding]:
    """What the preparation left out, as ``dataset.json`` records it."""
    advice = "they are not in the dataset; mend them and prepare again if they should be"
    return [
        Finding(f"{what} were left out by the preparation", found["names"], found["of"], advice, is_note=True)
        for what, found in info.get("left_out", {}).items()
    ]


def unlisted_files(root: Path, rows: Sequence[TrackRow]) -> list[Finding]:
    """Files under ``crops/`` and ``audio/`` that no row of ``tracks.csv`` names."""
    listed = {os.path.normpath(path) for row in rows for path in (row.crops, row.audio)}
    extra, total, num_bytes = [], 0, 0
    for folder in ("crops", "audio"):
        for place, _, names in os.walk(root / folder):
            for name in names:
                total += 1
                path = os.path.join(place, name)
                relative = os.path.relpath(path, root)
                if relative not in listed:
                    extra.append(Path(relative).as_posix())
                    num_bytes += os.path.getsize(path)
    advice = f"{num_bytes / 1e6:.1f} MB; left by a stopped run or by rows taken out of tracks.csv: may be removed"
    what = "files are named by no row of tracks.csv"
    return [Finding(what, sorted(extra), total, advice, is_note=True)] if extra else []
