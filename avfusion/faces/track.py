"""Face tracks of a film, streaming: cuts are found, faces looked for every few frames, looks linked to tracks.

No track crosses a cut. Every frame of a track has a box; where nobody looked, or the face was missed for a moment, it
is interpolated, and ``seen`` says which. Tracks come out when they end. Memory: the last second or two of small
pictures, and of the tracks on screen only what was detected.

Shapes: pictures ``(H, W, 3)`` RGB uint8, boxes ``(T, 4)`` as x1, y1, x2, y2 in pixels,
``seen`` and confidence ``(T,)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.detect import Detector
from avfusion.faces.linking import Linker, OpenTrack
from avfusion.faces.looks import Allowance, Look, fill_between, look_at
from avfusion.faces.shots import Cut, ShotFinder
from avfusion.faces.track_records import BETWEEN, DETECTED, MISSED, DetectedTrack, TrackReport, TrackSettings
from avfusion.media.damage import ReadReport
from avfusion.media.decode import iterate_retimed
from avfusion.media.source import probe


def find_tracks(
    path: str | Path,
    detector: Detector,
    settings: TrackSettings | None = None,
    report: TrackReport | None = None,
    read_report: ReadReport | None = None,
    on_picture: Callable[[], object] | None = None,
) -> Iterator[DetectedTrack]:
    """The face tracks of a video file, in the order in which they end.

    Args:
        path: the file, at any frame rate; frame ``n`` is what it shows at ``n / 25`` s.
        detector: see :mod:`avfusion.faces.detect`.
        settings: None for the usual ones.
        report: filled on the way.
        read_report: filled with what was met while decoding.
        on_picture: called after each picture of the film, for a progress bar: tracks come out late, or never.

    Yields:
        Tracks; boxes in pixels of the picture as shown. No face, no track.

    Raises:
        AvfusionError: the file cannot be decoded.
    """
    facts = probe(path)
    small = iterate_retimed(path, True, longest_side_px=detector.longest_side_px, report=read_report)
    factor: NDArray[np.float32] | None = None

    def pictures() -> Iterator[NDArray[np.uint8]]:
        nonlocal factor
        for _, picture in small:
            if factor is None:
                factor = np.array(
                    [facts.width / picture.shape[1], facts.height / picture.shape[0]] * 2, dtype=np.float32
                )
            yield picture
            if on_picture is not None:
                on_picture()

    for track in track_faces(pictures(), detector, settings, report):
        assert factor is not None  # there was a picture
        yield replace(track, boxes_xyxy_px=track.boxes_xyxy_px * factor)


def track_faces(
    pictures: Iterable[NDArray[np.uint8]],
    detector: Detector,
    settings: TrackSettings | None = None,
    report: TrackReport | None = None,
) -> Iterator[DetectedTrack]:
    """The face tracks of a film's pictures, in the order in which they end.

    Args:
        pictures: all frames in order, ``(H, W, 3)`` RGB uint8, of one size.
        detector: see :mod:`avfusion.faces.detect`.
        settings: None for the usual ones.
        report: filled on the way.

    Yields:
        Tracks; boxes in pixels of these pictures.
    """
    tracker = _Tracker(detector, settings or TrackSettings(), report if report is not None else TrackReport())
    finder = ShotFinder()
    for picture in pictures:
        tracker.see(picture)
        tracker.cuts.extend(finder.push(picture))
        yield from tracker.run(finder.settled)
    tracker.cuts.extend(finder.finish())
    yield from tracker.run(finder.settled)
    yield from tracker.end()


class _Tracker:
    """Walks along the frames behind the shot finder."""

    def __init__(self, detector: Detector, settings: TrackSettings, report: TrackReport) -> None:
        self.detector, self.settings, self.report = detector, settings, report
        report.shortest_frames, report.mean_confidence = settings.shortest_frames, settings.mean_confidence
        self.cuts: list[Cut] = []
        self._pictures: dict[int, NDArray[np.uint8]] = {}
        self._next = 0  # the next frame to be decided on
        self._start = 0  # of the present shot
        self._last: Look | None = None
        self._allowance = Allowance(settings.further_looks, settings.every_frames)
        self._linker = self._new_linker()

    def see(self, picture: NDArray[np.uint8]) -> None:
        """Takes the next picture."""
        self._pictures[self.report.frames] = picture
        self.report.frames += 1

    def run(self, settled: int) -> Iterator[DetectedTrack]:
        """Handles the frames of which it is known whether a shot begins there, and at the next one."""
        while self._next + 1 < settled:
            frame = self._next
            ends = bool(self.cuts) and self.cuts[0].frame == frame + 1
            yield from self._handle(frame, ends)
            if ends:
                yield from self._end_shot(frame + 1)
                self.report.cuts.append(self.cuts.pop(0))
            self._next += 1

    def end(self) -> Iterator[DetectedTrack]:
        """Handles the last frame."""
        if self._next < self.report.frames:
            yield from self._handle(self.report.frames - 1, True)
        yield from self._end_shot(self.report.frames)

    def _handle(self, frame: int, is_last: bool) -> Iterator[DetectedTrack]:
        if (frame - self._start) % self.settings.every_frames and not is_last:
            return
        look = self._look(frame)
        self._allowance.earn()
        looks = [look]
        if self._last is not None:
            further = fill_between(self._last, look, self._look, self._allowance, self.settings.start_confidence)
            self.report.further_looks += len(further)
            looks = [*further, look]
        for each in looks:
            for track in self._linker.add(each):
                yield from self._give_out(track)
        self._last = look
        for old in range(min(self._pictures), frame):
            del self._pictures[old]

    def _look(self, frame: int) -> Look:
        self.report.looks += 1
        return look_at(frame, self._pictures[frame], self.detector)

    def _end_shot(self, next_start: int) -> Iterator[DetectedTrack]:
        for track in self._linker.tracks:
            yield from self._give_out(track)
        self.report.split += self._linker.split
        self.report.uncertain += self._linker.unlinked
        self._linker, self._last, self._start = self._new_linker(), None, next_start

    def _new_linker(self) -> Linker:
        return Linker(self.settings.start_confidence, self.settings.longest_gap_frames)

    def _give_out(self, track: OpenTrack) -> Iterator[DetectedTrack]:
        num_frames = track.frames[-1] - track.frames[0] + 1
        if num_frames < self.settings.shortest_frames:
            self.report.short += 1
            self.report.short_frames += num_frames
            return
        if np.mean([box[4] for box in track.boxes]) < self.settings.mean_confidence:
            self.report.weak += 1
            self.report.weak_frames += num_frames
            return
        made = every_frame(track, f"face{self.report.tracks}", len(self.report.cuts))
        self.report.tracks += 1
        self.report.track_frames += num_frames
        self.report.missed_frames += int((made.seen == MISSED).sum())
        yield made


def every_frame(track: OpenTrack, entity_id: str, shot: int) -> DetectedTrack:
    """A track with a box in every frame from the first to the last detection, on straight lines between them."""
    at = np.array(track.frames)
    frames = np.arange(at[0], at[-1] + 1)
    values = np.stack(track.boxes)
    columns = [np.interp(frames, at, values[:, column]) for column in range(5)]
    seen = np.full(len(frames), BETWEEN, dtype=np.uint8)
    for before, after, missed in zip(at[:-1], at[1:], track.after_miss[1:], strict=True):
        if missed:
            seen[before + 1 - at[0] : after - at[0]] = MISSED
    seen[at - at[0]] = DETECTED
    boxes = np.stack(columns[:4], axis=1).astype(np.float32)
    return DetectedTrack(entity_id, shot, int(at[0]), boxes, seen, columns[4].astype(np.float32))
