"""What scoring costs as tracks grow longer and scenes fuller: time and memory for each minute and face.

    python benchmarks/scaling.py [CONFIG] [--minutes=1,2,4,8,16] [--faces=1,2,4,8,16] [--rounds=2]
                                 [--section.key=value ...]

Scores one face over so many minutes, then so many faces over one minute, with an untrained model of CONFIG (default:
configs/synthetic.yaml; scenes of several faces with a layer of attention between them) and noise for pictures and
sound. Every size has a process of its own, with one thread. Each track is scored whole, as one stretch: the seconds of
the processor (the fewest of the rounds), and how far the peak of memory rises above that of scoring 15 seconds, for
each minute beyond these; the decoded track itself is left out. Then it is scored in chunks, as usual, and the scores
are compared. Ratios are to the smallest size; a cost that grows linearly has 1.00 everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config, load_config
from avfusion.data.clips import Clip, Skipped
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command, split_overrides
from avfusion.tracks import FaceTrack

ROOT = Path(__file__).resolve().parent.parent
FLAT = 0.15
FRAMES_A_MINUTE = 60 * VIDEO_HZ
WARM_UP_FRAMES = 15 * VIDEO_HZ  # enough to fill the buffers whose size does not grow


def main() -> None:
    """Measures every size and prints both tables."""
    overrides, rest = split_overrides(sys.argv[1:])
    parser = CommandParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, nargs="?", default=ROOT / "configs" / "synthetic.yaml")
    parser.add_argument("--minutes", type=counts, default=[1, 2, 4, 8, 16], metavar="N,N,...")
    parser.add_argument("--faces", type=counts, default=[1, 2, 4, 8, 16], metavar="N,N,...")
    parser.add_argument("--rounds", type=int, default=2, help="of which the fastest counts (default: 2)")
    parser.add_argument("--one", nargs=2, type=int, metavar=("MINUTES", "FACES"), help="measure this size, print JSON")
    options = parser.parse_args(rest)
    if options.rounds < 1:
        raise UsageError(f"--rounds={options.rounds}: expected at least 1")
    config = load_config(options.config, overrides)
    if options.one:
        print(json.dumps(vars(measure(config, *options.one, options.rounds))))
        return
    command = [sys.executable, __file__, str(options.config), f"--rounds={options.rounds}", *overrides]
    print(f"{options.config.stem}: crops of {config.data.crop_size} x {config.data.crop_size}, 1 thread", flush=True)
    table("minutes", options.minutes, [of_process([*command, "--one", str(n), "1"]) for n in options.minutes])
    faces = [*command, f"--model.speaker.layers={max(1, config.model.speaker.layers)}"]
    table("faces", options.faces, [of_process([*faces, "--one", "1", str(n)]) for n in options.faces])


def counts(text: str) -> list[int]:
    """Numbers from 1 on, with commas between them."""
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError
    return numbers


@dataclass(frozen=True)
class Size:
    """What one size took: of the processor, of memory at the rate of what grows, and how far chunked scores are off."""

    seconds: float
    chunked_seconds: float
    megabytes: float
    difference: float


def of_process(command: Sequence[str]) -> Size:
    """Measures in a fresh process."""
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, env={**os.environ, **one_thread, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise AvfusionError(
            f"{' '.join(command[-2:])} (minutes, faces): the process ended with {done.returncode}: {last}"
        )
    return Size(**json.loads(done.stdout.splitlines()[-1]))


class NoiseTracks:
    """Faces that are seen together from the first frame to the last, all noise.

    Args:
        frames: of every track.
        faces: how many tracks.
        side: of the pictures.
    """

    name = "noise"
    skipped = Skipped()

    def __init__(self, frames: int, faces: int, side: int) -> None:
        draws = np.random.default_rng(0)
        self._crops = draws.integers(0, 256, (faces, frames, side, side), dtype=np.uint8)
        self._audio = draws.standard_normal(frames * SAMPLES_PER_VIDEO_FRAME, dtype=np.float32) * np.float32(0.1)
        silent, boxes = np.zeros(frames, dtype=np.bool_), np.zeros((frames, 4), dtype=np.float32)
        self.tracks = [FaceTrack("noise", f"noise:{face}", 0.0, silent, boxes, "noise") for face in range(faces)]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Frames ``first_frame ..`` of a track."""
        last = self._crops.shape[1] if num_frames is None else first_frame + num_frames
        sound = self._audio[first_frame * SAMPLES_PER_VIDEO_FRAME : last * SAMPLES_PER_VIDEO_FRAME]
        return Clip(self._crops[index, first_frame:last], sound, np.zeros(last - first_frame, dtype=np.bool_))


def measure(config: Config, minutes: int, faces: int, rounds: int) -> Size:
    """Scores so many minutes of so many faces, whole and in chunks."""
    import torch

    from avfusion.data.examples import Examples
    from avfusion.models import build_model
    from avfusion.scoring import score_tracks

    torch.set_num_threads(1)
    torch.manual_seed(config.run.seed)
    config = replace(config, data=replace(config.data, cache_gb=0.0, workers=0, region=[0.0, 0.0, 1.0, 1.0]))
    model = build_model(config.model, config.data.num_mels)
    torch.nn.init.normal_(model.head.weight)  # heads start near zero: scores that differ would not show it

    def score(frames: int, chunk_frames: int, tracks: NoiseTracks) -> tuple[float, np.ndarray]:
        examples = Examples(tracks, config.data)
        began = time.process_time()
        found = score_tracks(model, examples, config, torch.device("cpu"), chunk_frames=chunk_frames, label=str(frames))
        return time.process_time() - began, np.stack(found)

    frames = minutes * FRAMES_A_MINUTE
    tracks = NoiseTracks(frames, faces, config.data.crop_size)
    score(WARM_UP_FRAMES, WARM_UP_FRAMES, NoiseTracks(WARM_UP_FRAMES, faces, config.data.crop_size))
    before = peak_megabytes()
    whole = [score(frames, frames, tracks) for _ in range(rounds)]
    after = peak_megabytes()
    chunked = [score(frames, 500, tracks) for _ in range(rounds)]
    return Size(
        min(seconds for seconds, _ in whole),
        min(seconds for seconds, _ in chunked),
        (after - before) * frames / (frames - WARM_UP_FRAMES),
        float(np.abs(whole[0][1] - chunked[0][1]).max()),
    )


def peak_megabytes() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def table(unit: str, numbers: Sequence[int], sizes: Sequence[Size]) -> None:
    """Prints a line for each size, then whether the costs are flat."""
    print(f"\n{unit:>8}{'processor':>12}{'for each':>11}{'ratio':>7}{'memory':>12}{'for each':>12}{'ratio':>7}", end="")
    print(f"{'in chunks':>12}{'difference':>12}")
    costs = np.array([[size.seconds / n, size.megabytes / n] for n, size in zip(numbers, sizes, strict=True)])
    ratios = costs / costs[0]
    for n, size, (seconds, megabytes), (slower, larger) in zip(numbers, sizes, costs, ratios, strict=True):
        print(
            f"{n:8}{size.seconds:10.2f} s{seconds:9.2f} s{slower:7.2f}{size.megabytes:9.0f} MB{megabytes:9.1f} MB"
            f"{larger:7.2f}{size.chunked_seconds:10.2f} s{size.difference:12.1e}"
        )
    for name, column in zip(("time", "memory"), ratios.T, strict=True):
        within = "within" if np.abs(column - 1).max() <= FLAT else "NOT within"
        print(f"{name} for each of {unit}: {within} {FLAT:.0%} of the smallest size's", flush=True)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
