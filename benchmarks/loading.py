"""How fast and how large: crops as small video files against the field's folders of one JPEG per frame.

    python benchmarks/loading.py OUT [--tracks=64] [--frames=250] [--clips=FOLDER]

The same tracks are written four ways under OUT:

    video          a prepared dataset, crops of 112 x 112 pixels
    jpeg           the TalkNet layout: the face at the size it has in its film, in color; the JPEG quality is that whose
                   mean SSIM, read at 112 x 112, is nearest to the video's ("matched")
    jpeg field     the same with quality 95, which TalkNet's own preparation writes
    jpeg small     the TalkNet layout at its best: pictures of 112 x 112, grey, quality matched

Printed for each: SSIM against the crops that all were made from, bytes on disk, clips read per second (random stretches
of 60 frames, as training reads them; whole tracks), and the time from opening the dataset to its first training batch.
The contestants take turns in one process on one thread. Times are processor time, medians over the turns: files lie in
the page cache. On a cold disk every file costs a seek or a network round trip more, and there the layout with 60 files
a clip falls further behind; that is not measured here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
from avfusion.config import DataConfig
from avfusion.data.batching import ClipLoader, TrainingSampler
from avfusion.data.clips import ClipDataset
from avfusion.data.examples import Examples
from avfusion.data.prepared import PreparedDataset
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord
from avfusion.data.synthetic import SyntheticDataset
from avfusion.data.talknet.dataset import TalkNetDataset
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.tracks import POSITIVE_LABEL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where data_prep and this folder are found
from benchmarks.picture_quality import CROP_SIZE, at_crop_size, matched_quality, ssim_of
from benchmarks.talknet_layout import FIELD_QUALITY, LayoutTrack, tracks_of, write_layout

STRETCH_FRAMES = 60
ROUNDS = 5
SPLIT = "train"


@dataclass
class Contestant:
    """One way to keep the tracks, and what was measured of it."""

    name: str
    folder: Path
    open: Callable[[], ClipDataset]
    ssim: float = 0.0
    quality: int = 0
    times_s: dict[str, list[float]] = field(default_factory=dict)

    def seconds(self, what: str) -> float:
        """Median over the rounds."""
        return statistics.median(self.times_s[what])


def main() -> None:
    """Prepares, measures, prints."""
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("out", type=Path, metavar="OUT", help="an empty folder")
    parser.add_argument("--tracks", type=int, default=64, help="how many (default: 64)")
    parser.add_argument("--frames", type=int, default=250, help="longest track in frames (default: 250)")
    parser.add_argument("--clips", type=Path, help="talking faces as data_prep.compose reads them (default: synthetic)")
    options = parser.parse_args()
    if options.tracks < 2 or options.frames < STRETCH_FRAMES:
        raise UsageError(f"expected at least 2 --tracks and {STRETCH_FRAMES} --frames")
    if options.out.is_dir() and any(options.out.iterdir()):
        raise UsageError(f"{options.out} is not empty; give another folder")
    torch.set_num_threads(1)
    tracks = real_tracks(options) if options.clips else synthetic_tracks(options)
    contestants = prepare(options.out, tracks)
    measure(contestants, [len(track.labels) for track in tracks])
    print(report(contestants, tracks))


def synthetic_tracks(options: argparse.Namespace) -> list[LayoutTrack]:
    """Tracks of the built-in talkers, half as large again as the crops."""
    size = 3 * CROP_SIZE // 2
    dataset = SyntheticDataset("benchmark", options.tracks, crop_size=size, scene_s=options.frames / 25)
    return tracks_of(dataset)[: options.tracks]


def real_tracks(options: argparse.Namespace) -> list[LayoutTrack]:
    """Faces of real talkers at their own size, at most ``--frames`` of each clip, talkers in turn."""
    from avfusion.faces.crop import CROP_SCALE
    from data_prep.source_clips import ClipDecoder, list_clips

    entries, _ = list_clips(options.clips)
    of_talker: dict[str, list] = {}
    for entry in entries:
        of_talker.setdefault(entry.talker, []).append(entry)
    turns = [entry for rank in range(len(entries)) for group in of_talker.values() for entry in group[rank : rank + 1]]
    decoder = ClipDecoder(CROP_SIZE, CROP_SCALE)
    tracks: list[LayoutTrack] = []
    for entry in tqdm(turns, total=None, desc="decode", unit="clip", disable=None):
        x1, y1, x2, y2 = entry.boxes_xyxy_px.T
        decoder.crop_size = round(CROP_SCALE * float(np.median(np.maximum(x2 - x1, y2 - y1))))
        clip = decoder.decode(entry)
        frames = min(len(clip.crops), options.frames)
        if not clip.has_sound or frames < STRETCH_FRAMES:
            continue
        labels = [POSITIVE_LABEL if speaks else "NOT_SPEAKING" for speaks in clip.speaking[:frames]]
        sound = clip.audio[: frames * SAMPLES_PER_VIDEO_FRAME]
        video_id = f"v{len(tracks):04d}"
        columns = (np.arange(frames) / 25, clip.boxes_xyxy[:frames], labels, list(clip.crops[:frames]), sound)
        tracks.append(LayoutTrack(video_id, f"{video_id}:1", *columns))
        if len(tracks) == options.tracks:
            break
    if len(tracks) < 2:
        raise UsageError(f"{options.clips} holds {len(tracks)} clips of {STRETCH_FRAMES} frames with sound")
    return tracks


def prepare(out: Path, tracks: Sequence[LayoutTrack]) -> list[Contestant]:
    """Writes the tracks all ways and compares what is read with what was written."""
    small = [replace(track, crops=list(at_crop_size(track.crops))) for track in tracks]
    video = Contestant("video", out / "prepared", partial(PreparedDataset, out / "prepared", SPLIT))
    write_prepared(video.folder, small)
    video.ssim = ssim_of(video.open(), small)
    contestants = [video]
    for name, source, quality, color in (
        ("jpeg", tracks, matched_quality(tracks, small, video.ssim), True),
        ("jpeg field", tracks, FIELD_QUALITY, True),
        ("jpeg small", small, matched_quality(small, small, video.ssim), False),
    ):
        folder = out / name.replace(" ", "_")
        jpeg = Contestant(name, folder, partial(TalkNetDataset, folder, SPLIT), quality=quality)
        write_layout(folder, SPLIT, source, quality, color=color)
        jpeg.ssim = ssim_of(jpeg.open(), small)
        contestants.append(jpeg)
    return contestants


def write_prepared(root: Path, tracks: Sequence[LayoutTrack]) -> None:
    """Writes the tracks as a prepared dataset; the faces of a scene share its sound."""
    writer = PreparedWriter(root, "loading", "python benchmarks/loading.py", CROP_SIZE)
    for track in tqdm(tracks, desc="video", unit="track", disable=None):
        row = TrackRow(
            split=SPLIT,
            video_id=track.video_id,
            entity_id=track.entity_id,
            start_s=0.0,
            num_frames=len(track.labels),
            crops=writer.crops(SPLIT, track.entity_id, np.stack(track.crops)),
            audio=writer.audio(SPLIT, track.video_id, track.sound),
        )
        speaking = np.array([label == POSITIVE_LABEL for label in track.labels])
        writer.add_scene(track.entity_id, SceneRecord([row], [speaking], [track.boxes_xyxy], {}))
    writer.finish()


def measure(contestants: Sequence[Contestant], lengths: Sequence[int]) -> None:
    """Lets the contestants take turns, after one warm-up turn that does not count."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(lengths))
    starts = [int(rng.integers(0, length - STRETCH_FRAMES + 1)) for length in lengths]
    for turn in tqdm(range(ROUNDS + 1), desc="measure", unit="round", disable=None):
        for contestant in contestants:
            for what, seconds in _timed(contestant, order, starts):
                if turn:
                    contestant.times_s.setdefault(what, []).append(seconds)


def _timed(contestant: Contestant, order: NDArray[np.int64], starts: Sequence[int]) -> Iterator[tuple[str, float]]:
    began = time.process_time()
    dataset = contestant.open()
    config = DataConfig(crop_size=CROP_SIZE, cache_gb=0.0)
    examples = Examples(dataset, config, augment=True)
    lengths = [track.num_frames for track in dataset.tracks]
    loader = ClipLoader(examples, TrainingSampler(lengths, config.clip_frames, config.batch_frames, seed=0), workers=0)
    next(iter(loader))
    yield "first batch", time.process_time() - began
    by_id = {track.entity_id: index for index, track in enumerate(dataset.tracks)}
    chosen = [by_id[entity_id] for entity_id in sorted(by_id)]
    began = time.process_time()
    for index in order:
        dataset.read(chosen[index], starts[index], STRETCH_FRAMES)
    yield "stretches", time.process_time() - began
    began = time.process_time()
    for index in order:
        dataset.read(chosen[index])
    yield "whole", time.process_time() - began


def report(contestants: Sequence[Contestant], tracks: Sequence[LayoutTrack]) -> str:
    """The table: each figure of the video, and of the others as a multiple of it."""
    count, frames = len(tracks), sum(len(track.labels) for track in tracks)

    def row(title: str, values: Sequence[float], digits: int, ratio: bool = True) -> str:
        cells = [f"{values[0]:,.{digits}f}"]
        cells += [f"{v:,.{digits}f}" + (f" ({v / values[0]:.2f}x)" if ratio else "") for v in values[1:]]
        return f"{title:30}" + "".join(f"{cell:>19}" for cell in cells)

    sizes = [_sizes(contestant.folder) for contestant in contestants]
    sides = [track.crops[0].shape[0] for track in tracks]
    lines = [
        f"{count} tracks, {frames} frames, faces of {min(sides)} to {max(sides)} pixels (median"
        f" {statistics.median(sides):g}); in brackets: times the video's figure",
        f"{'':30}" + "".join(f"{contestant.name:>19}" for contestant in contestants),
        f"{'JPEG quality':30}" + "".join(f"{c.quality or '-':>19}" for c in contestants),
        row("mean SSIM of the crops", [contestant.ssim for contestant in contestants], 4, ratio=False),
        row("crops, bytes per frame", [size["crops"] / frames for size in sizes], 0),
        row("all, bytes per frame", [size["all"] / frames for size in sizes], 0),
        row("all, bytes per frame in blocks", [size["blocks"] / frames for size in sizes], 0),
        row("files", [size["files"] for size in sizes], 0),
        row(
            f"clips of {STRETCH_FRAMES} frames a second", [len(tracks) / c.seconds("stretches") for c in contestants], 1
        ),
        row("whole tracks a second", [len(tracks) / c.seconds("whole") for c in contestants], 1),
        row("first batch after, ms", [1000 * c.seconds("first batch") for c in contestants], 0),
    ]
    return "\n".join(lines)


def _sizes(folder: Path) -> dict[str, float]:
    """Bytes of the pictures, of everything, and of the disk's blocks; and the number of files."""
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    pictures = sum(stat.st_size for path, stat in stats.items() if path.suffix in (".mp4", ".jpg"))
    total = sum(stat.st_size for stat in stats.values())
    blocks = sum(512 * getattr(stat, "st_blocks", 0) for stat in stats.values())
    return {"crops": pictures, "all": total, "blocks": blocks, "files": len(stats)}


if __name__ == "__main__":
    raise SystemExit(run_command(main))
