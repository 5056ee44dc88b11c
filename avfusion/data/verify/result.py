"""The outcome of a check of a dataset: what was found, what there is, and which tracks cannot be used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from avfusion.clock import VIDEO_HZ
from avfusion.data.clips import Skipped
from avfusion.data.prepared_tables import JoinedSplit
from avfusion.data.verify.findings import Finding, TrackKey, plain_table
from avfusion.data.verify.uses import Use
from avfusion.tracks import FaceTrack


@dataclass(frozen=True)
class SplitSummary:
    """What there is in a split.

    Attributes:
        split: its name.
        num_tracks: face tracks.
        num_unlabelled: of these, tracks without labels.
        num_videos: videos or scenes.
        num_frames: face boxes.
        speaking: share of the labelled boxes that speak; None where none is labelled.
        levels_db: levels in dB re full scale of the speaking frames of each track that was looked at.
    """

    split: str
    num_tracks: int
    num_unlabelled: int
    num_videos: int
    num_frames: int
    speaking: float | None
    levels_db: Sequence[float]


@dataclass(frozen=True)
class Verification:
    """The outcome of a check of some splits.

    Attributes:
        findings: faults and notes.
        summaries: what there is, split by split.
        listed: (video_id, entity_id) of the tracks of each split.
        without_labels: the tracks that nobody has labelled.
        tables: of a prepared dataset the tables of each split, which need not be read twice.
    """

    findings: Sequence[Finding]
    summaries: Sequence[SplitSummary]
    listed: Mapping[str, frozenset[tuple[str, str]]]
    without_labels: Sequence[TrackKey] = ()
    tables: Mapping[str, JoinedSplit] = field(default_factory=dict)

    @property
    def faults(self) -> list[Finding]:
        """What must not be trained on."""
        return [finding for finding in self.findings if not finding.is_note]

    @property
    def notes(self) -> list[Finding]:
        """What is worth knowing."""
        return [finding for finding in self.findings if finding.is_note]

    def unlabelled(self) -> Finding | None:
        """The finding about tracks without labels, which can be scored but not trained on."""
        if not self.without_labels:
            return None
        names = [f"{entity_id!r} of {video_id!r} ({split})" for split, video_id, entity_id in self.without_labels]
        what, advice = "tracks have no labels", "they can be scored (eval.py), not trained on; choose labelled splits"
        total = sum(found.num_tracks for found in self.summaries)
        return Finding(what, names, total, advice, frozenset(self.without_labels))


def skipped_tracks(faults: Sequence[Finding], split: str, listed: frozenset[tuple[str, str]]) -> Skipped:
    """The tracks of a split that faults make unusable.

    Args:
        faults: of any splits.
        split: the one in question.
        listed: (video_id, entity_id) of its tracks.
    """
    keys_of = {fault.what: frozenset(key[1:] for key in fault.tracks if key[0] == split) for fault in faults}
    keys = frozenset[tuple[str, str]]().union(*keys_of.values())
    return Skipped(keys & listed, len(listed), {what: len(k) for what, k in keys_of.items() if k}, keys - listed)


def summary_table(summaries: Sequence[SplitSummary], fast: bool) -> str:
    """Tracks, hours, speaking share and sound levels of each split."""
    looked = "few files" if fast else "all files"
    header = ["split", "tracks", "unlabelled", "videos", "face hours", "speaking", f"speech level ({looked})"]
    rows = []
    for found in summaries:
        levels = "-"
        if found.levels_db:
            low, middle, high = np.percentile(found.levels_db, [5, 50, 95])
            levels = f"{middle:.0f} dB ({low:.0f} .. {high:.0f})"
        share = "-" if found.speaking is None else f"{found.speaking:.1%}"
        counts = [str(found.num_tracks), str(found.num_unlabelled), str(found.num_videos)]
        rows.append([found.split, *counts, f"{found.num_frames / VIDEO_HZ / 3600:.3f}", share, levels])
    return plain_table(header, rows)


def summarize(uses: Sequence[Use], levels_db: Mapping[str, Sequence[float]]) -> list[SplitSummary]:
    """Counts of each split, in the order of the tracks."""
    of_split: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        of_split[use.split].append(use)
    return [
        SplitSummary(
            split=split,
            num_tracks=len(own),
            num_unlabelled=sum(not use.row.labelled for use in own),
            num_videos=len({use.row.video_id for use in own}),
            num_frames=sum(use.row.num_frames for use in own),
            speaking=speaking_share([use.track for use in own if use.track is not None]),
            levels_db=levels_db.get(split, []),
        )
        for split, own in of_split.items()
    ]


def speaking_share(tracks: Sequence[FaceTrack]) -> float | None:
    """Share of the labelled frames that speak; None where nothing is labelled."""
    labelled = [track.speaking for track in tracks if track.labelled]
    return float(np.concatenate(labelled).mean()) if labelled else None
