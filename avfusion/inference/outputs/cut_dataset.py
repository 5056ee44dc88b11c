"""Stretches of a film's dataset as a dataset of their own: each is a little film, with all who are seen in it.

So a model runs over seconds and not over hours. With as many frames around each stretch as a frame's score depends on,
what a model does within the stretch is what it did on the whole film.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from avfusion.clock import VIDEO_HZ
from avfusion.data.clips import Clip, ClipDataset, Skipped
from avfusion.inference.outputs.stretches import Stretch
from avfusion.tracks import FaceTrack


@dataclass(frozen=True)
class _Cut:
    """A stretch of a track of the whole dataset: which track, its first frame, and how many."""

    track: int
    first: int
    count: int


class CutDataset:
    """The stretches of one film, each under a ``video_id`` of its own.

    Args:
        whole: the film's dataset.
        stretches: in frames of the film.
        index_of: for each of the result's faces its track in the dataset.
        margin: frames kept before and after each stretch, where they are.

    Attributes:
        leads: for each stretch, the track of its face here.
        first_frames: for each stretch, the frame of that track with which it begins.
    """

    def __init__(
        self, whole: ClipDataset, stretches: Sequence[Stretch], index_of: Mapping[int, int], margin: int
    ) -> None:
        self.name = whole.name
        self.skipped = Skipped()
        self._whole = whole
        self._cuts: list[_Cut] = []
        tracks: list[FaceTrack] = []
        self.leads: list[int] = []
        self.first_frames: list[int] = []
        for number, stretch in enumerate(stretches):
            first, end = stretch.first - margin, stretch.end + margin
            for index, track in enumerate(whole.tracks):
                start = round(track.start_s * VIDEO_HZ)
                begin, last = max(first, start), min(end, start + track.num_frames)
                if begin >= last:
                    continue
                if index == index_of[stretch.face]:
                    self.leads.append(len(tracks))
                    self.first_frames.append(stretch.first - begin)
                cut = _Cut(index, begin - start, last - begin)
                self._cuts.append(cut)
                tracks.append(_cut_track(track, cut, f"{track.video_id} {number}"))
        self.tracks: Sequence[FaceTrack] = tracks

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Reads frames ``first_frame ..`` of track ``index`` with the sound of exactly those frames."""
        cut = self._cuts[index]
        count = cut.count - first_frame if num_frames is None else num_frames
        return self._whole.read(cut.track, cut.first + first_frame, count)


def _cut_track(track: FaceTrack, cut: _Cut, name: str) -> FaceTrack:
    kept = slice(cut.first, cut.first + cut.count)
    return replace(
        track,
        video_id=name,
        audio_id=name,
        group=name,
        start_s=track.start_s + cut.first / VIDEO_HZ,
        speaking=track.speaking[kept],
        boxes_xyxy=track.boxes_xyxy[kept],
        role="",
    )
