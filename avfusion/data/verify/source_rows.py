"""Compares the rows as a corpus annotated them (``source_labels/<split>.csv``) with the tracks of a prepared dataset.

The report scores those rows at the end of a training: each takes the score of its entity's nearest frame, within 25 ms
(``evaluation/source_rows.py``). What would stop it there is told here, before the training.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from avfusion.clock import VIDEO_HZ
from avfusion.data.prepared_tables import JoinedSplit, TrackRow
from avfusion.data.verify.findings import Finding, TrackKey
from avfusion.data.verify.uses import AGAIN
from avfusion.errors import AvfusionError
from avfusion.tracks import LabelTable, read_labels

FARTHEST_MS = 500 // VIDEO_HZ + 5  # half a frame, and half of a stamp's last digit

Key = tuple[str, str]  # video_id, entity_id


def source_row_findings(root: Path, splits: Mapping[str, JoinedSplit]) -> list[Finding]:
    """Annotated rows that no frame can be the score of, that are there twice, or that cannot be read."""
    unreadable: list[str] = []
    without: list[str] = []
    keys: set[TrackKey] = set()
    total = 0
    for split, joined in splits.items():
        path = root / "source_labels" / f"{split}.csv"
        if not path.is_file():
            continue
        try:
            source = read_labels(path)
            rows_of = _rows_of(source)
        except AvfusionError as error:
            unreadable.append(str(error))
            continue
        total += len(source)
        listed = {row.key for row in joined.rows}
        spans_of = _spans_of(joined.rows, rows_of.keys())
        for key, rows in rows_of.items():
            missing = _without_frame(source, rows, spans_of.get(key, []))
            without += [f"{source.row_name(row)} ({split})" for row in missing]
            if missing:
                # Where only a piece of a track is missing its rows are left out, and the pieces that are there stay.
                keys.add((split, key[0], f"{key[1]} (rows without a piece)" if key in listed else key[1]))
    findings = []
    if unreadable:
        what, advice = "files of annotated rows (source_labels) cannot be scored", f"{AGAIN}, or remove such a file"
        findings.append(Finding(what, unreadable, len(splits), advice))
    if without:
        what = "annotated rows (source_labels) have no frame of their track"
        advice = f"{AGAIN}; where a track was taken out on purpose, take its rows out of source_labels too"
        findings.append(Finding(what, without, total, advice, frozenset(keys)))
    return findings


def _rows_of(source: LabelTable) -> dict[Key, list[int]]:
    """The rows of each entity in order of time.

    Raises:
        AvfusionError: a row is there twice.
    """
    rows_of: dict[Key, list[int]] = defaultdict(list)
    for row, key in enumerate(zip(source.video_id, source.entity_id, strict=True)):
        rows_of[key].append(row)
    for key, rows in rows_of.items():
        order = np.array(rows)[np.argsort(source.timestamp_ms[rows], kind="stable")]
        again = np.flatnonzero(np.diff(source.timestamp_ms[order]) == 0)
        if len(again):
            name = source.row_name(int(order[again[0] + 1]))
            raise AvfusionError(f"{source.path}: {name} is there twice; expected one row for each face and time")
        rows_of[key] = order.tolist()
    return rows_of


def _spans_of(tracks: Sequence[TrackRow], entities: Collection[Key]) -> dict[Key, list[TrackRow]]:
    """The tracks of each entity: a long gap splits ``ID`` into ``ID``, ``ID#2`` ..; an id of the corpus is no piece."""
    spans_of: dict[Key, list[TrackRow]] = defaultdict(list)
    for track in tracks:
        whole = track.key if track.key in entities else (track.video_id, re.sub(r"#\d+$", "", track.entity_id))
        spans_of[whole].append(track)
    return spans_of


def _without_frame(source: LabelTable, rows: Sequence[int], tracks: Sequence[TrackRow]) -> list[int]:
    """Those of an entity's rows that lie in none of its tracks, nor within 25 ms of one."""
    times_ms = source.timestamp_ms[rows]
    inside = np.zeros(len(rows), dtype=np.bool_)
    for track in tracks:
        first_ms = 1000 * track.start_s - FARTHEST_MS
        last_ms = 1000 * (track.start_s + (track.num_frames - 1) / VIDEO_HZ) + FARTHEST_MS
        inside |= (times_ms >= first_ms - 1e-6) & (times_ms <= last_ms + 1e-6)
    return [rows[index] for index in np.flatnonzero(~inside).tolist()]
