"""The tracks of a dataset under check, and which of its files each of them uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.prepared_tables import JoinedSplit, TrackRow
from avfusion.data.verify.findings import Finding, TrackKey
from avfusion.tracks import FaceTrack

AGAIN = "prepare the dataset again"


@dataclass(frozen=True)
class Use:
    """A track that uses media files: its split, its row and, where its tables agree, its labels."""

    split: str
    row: TrackRow
    track: FaceTrack | None

    @property
    def key(self) -> TrackKey:
        """(split, video_id, entity_id)."""
        return self.split, *self.row.key

    @property
    def name(self) -> str:
        """For a message."""
        return f"{self.row.entity_id!r} of {self.row.video_id!r} ({self.split})"

    @property
    def end_sample(self) -> int:
        """Where its sound ends, in samples of its sound file."""
        return round(self.row.start_s * SAMPLE_RATE) + SAMPLES_PER_VIDEO_FRAME * self.row.num_frames

    @property
    def num_speaking(self) -> int:
        """How many frames are labelled as speaking."""
        return 0 if self.track is None else int(self.track.speaking.sum())

    @property
    def speaks(self) -> bool:
        """Whether a frame is labelled as speaking."""
        return self.num_speaking > 0


def uses_of(splits: Mapping[str, JoinedSplit]) -> list[Use]:
    """Every track of the splits."""
    return [
        Use(split, row, track)
        for split, joined in splits.items()
        for row, track in zip(joined.rows, joined.tracks, strict=True)
    ]


def of_files(
    what: str,
    cases: Mapping[str, str],
    total: int,
    uses: Mapping[str, Sequence[Use]],
    advice: str = AGAIN,
    is_note: bool = False,
) -> list[Finding]:
    """The finding about some files, or none; the tracks that use them are the ones to blame.

    Args:
        what: continues "3 of 10 ..".
        cases: by path, the text of each case.
        total: files that were looked at.
        uses: by path, the tracks that use a file; none of them where no track is to blame.
        advice: what to do.
        is_note: whether it stops nothing.
    """
    if not cases:
        return []
    keys: frozenset[TrackKey] = frozenset(use.key for path in cases for use in uses.get(path, ()))
    return [Finding(what, [cases[path] for path in sorted(cases)], total, advice, keys, is_note)]


def shared(what: str, splits_of: Mapping[str, set[str]], advice: str) -> list[Finding]:
    """The finding about things that several splits hold, or none."""
    cases = [f"{name!r}: {', '.join(sorted(splits))}" for name, splits in sorted(splits_of.items()) if len(splits) > 1]
    return [Finding(what, cases, len(splits_of), advice)] if cases else []
