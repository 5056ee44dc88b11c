"""What a longer track, and one more face, cost when a scene is scored whole: time and memory a minute, and the scores.

    python benchmarks/scaling.py [RUN or configs/NAME.yaml] [--minutes=1,2,4,8,16] [--faces=1,2,4,8,16] [--rounds=3]
                                 [--section.key=value ...]

Without a name it takes configs/synthetic.yaml; a file is measured with untrained weights, a run with its best. Tracks
are random pictures and noise. Two tables: one face for so many minutes, and a minute of so many faces that know of each
other (``model.speaker.layers``, 1 where a file says 0; a run without it and a baseline, which has none, get no such
table). Each case has a process of its own, and the cases take turns:

    peak        what scoring the track whole, once, adds to the process, the track itself included
    processor   seconds of the processor to score it once more, the median of up to four times
    ratio       a minute (of a face) as a multiple of that of the first case in the same round; the median of the rounds
    more        memory for each minute (of a face) beyond the case before: without what is needed for any length
    apart       the largest difference between a score of the whole track and of chunks of 500 frames

A window of null reaches over the whole scene: attention there costs the square of the length, and no chunk is exact.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from avfusion.checkpoint import load_model
from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config, load_config
from avfusion.data.clips import Clip, Skipped
from avfusion.data.examples import Examples
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from avfusion.models import ActiveSpeakerDetector, build_model, context_frames
from avfusion.processes import process_pool
from avfusion.scoring import CHUNK_FRAMES, pick_device, score_tracks
from avfusion.tracks import FaceTrack

ROOT = Path(__file__).resolve().parent.parent
MINUTE_FRAMES = 60 * VIDEO_HZ
WARM_UP_FRAMES = 2 * VIDEO_HZ  # what is loaded once is there then, and memory that grows with the track is not
FLAT = 0.15
TIMED_MINUTES, MOST_PASSES = 4, 4  # short tracks are timed several times


@dataclass(frozen=True)
class Case:
    """A scene of so many frames and faces."""

    frames: int
    faces: int

    @property
    def face_minutes(self) -> float:
        """Minutes of all faces together."""
        return self.frames * self.faces / MINUTE_FRAMES


@dataclass(frozen=True)
class Cost:
    """What a case cost in one round.

    Attributes:
        processor_s: seconds of the processor.
        peak_bytes: added to what the process had.
        apart: largest difference of a score in chunks; None where that was not looked at.
        spread: standard deviation of the scores.
    """

    processor_s: float
    peak_bytes: int
    apart: float | None = None
    spread: float = 0.0


class RandomScene:
    """One scene of random pictures and noise, in memory.

    Args:
        case: its frames and faces.
        side: of its crops in pixels.
    """

    name, skipped = "random", Skipped(frozenset(), 0)

    def __init__(self, case: Case, side: int) -> None:
        rng = np.random.default_rng(0)
        shape = (case.faces, case.frames, side, side)
        self._crops = rng.integers(0, 256, shape, dtype=np.uint8)
        self._sound = rng.standard_normal(case.frames * SAMPLES_PER_VIDEO_FRAME, dtype=np.float32)
        self._sound *= 0.1
        silent, boxes = np.zeros(case.frames, bool), np.zeros((case.frames, 4), np.float32)
        self.tracks = [FaceTrack("scene", f"scene:{n}", 0.0, silent, boxes, "scene") for n in range(case.faces)]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """As of any dataset."""
        track = self.tracks[index]
        last = track.num_frames if num_frames is None else first_frame + num_frames
        sound = self._sound[first_frame * SAMPLES_PER_VIDEO_FRAME : last * SAMPLES_PER_VIDEO_FRAME]
        return Clip(self._crops[index, first_frame:last], sound, track.speaking[first_frame:last])


def main() -> None:
    """Measures and prints."""
    overrides, rest = split_overrides(sys.argv[1:])
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("model", type=Path, nargs="?", default=ROOT / "configs" / "synthetic.yaml")
    parser.add_argument(
        "--minutes", default="1,2,4,8,16", help="lengths of one track; empty: none (default: %(default)s)"
    )
    parser.add_argument("--faces", default="1,2,4,8,16", help="faces of a scene; empty: none (default: %(default)s)")
    parser.add_argument("--scene-minutes", type=float, default=1.0, help="length of the scene (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every case (default: 3)")
    options: argparse.Namespace = parser.parse_args(rest)
    if options.rounds < 1:
        raise UsageError(f"--rounds={options.rounds}: expected at least 1")
    lengths = [Case(frames_of("--minutes", minutes), 1) for minutes in numbers("--minutes", options.minutes)]
    scene_frames = frames_of("--scene-minutes", options.scene_minutes)
    scenes = [Case(scene_frames, int(faces)) for faces in numbers("--faces", options.faces, whole=True)]
    _, config = prepared(options.model, overrides, between_faces=False)
    print(about(options.model, config))
    if lengths:
        costs = rounds_of(lengths, options.model, overrides, options.rounds, between_faces=False)
        print(report("one face", lengths, costs))
    fixed = options.model.is_dir() or config.model.kind != "avfusion"
    if scenes and fixed and not config.model.speaker.layers:
        print("the faces of a scene do not know of each other in this model (model.speaker.layers: 0): no second table")
    elif scenes:
        costs = rounds_of(scenes, options.model, overrides, options.rounds, between_faces=True)
        print(report("faces that know of each other", scenes, costs))


def numbers(option: str, text: str, *, whole: bool = False) -> list[float]:
    """Numbers above 0 from a list with commas, perhaps whole ones only; an empty one holds none.

    Raises:
        UsageError: for anything else.
    """
    try:
        found = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        found = [0.0]
    if any(not 0 < number < float("inf") or (whole and number % 1) for number in found):
        kind = "whole numbers" if whole else "numbers"
        raise UsageError(f"{option}={text}: expected {kind} above 0 with commas between them, such as 1,2,4")
    return found


def frames_of(option: str, minutes: float) -> int:
    """Video frames of so many minutes.

    Raises:
        UsageError: they are none.
    """
    if not 0.5 < minutes * MINUTE_FRAMES < float("inf"):
        raise UsageError(f"{option}={minutes:g}: expected minutes of one frame (40 ms) at least")
    return round(minutes * MINUTE_FRAMES)


def prepared(path: Path, overrides: Sequence[str], between_faces: bool) -> tuple[ActiveSpeakerDetector, Config]:
    """The best model of a run, or an untrained one of a configuration, and how its data are read here."""
    if path.is_dir():
        if overrides:
            raise UsageError(f"{overrides[0]}: a run's model is what it is; give a YAML file to change keys")
        model, config, _ = load_model(path / "checkpoints" / "best.pt")
    else:
        config = load_config(path, overrides)
        if between_faces and not config.model.speaker.layers:
            config.model.speaker.layers = 1
        torch.manual_seed(config.run.seed)
        model = build_model(config.model, config.data.num_mels)
        # An untrained head says 0.5 to everything, and then no two scores could differ.
        torch.nn.init.normal_(model.head.weight, std=model.head.in_features**-0.5)
    config.data.region, config.data.cache_gb, config.data.workers = [0.0, 0.0, 1.0, 1.0], 0.0, 0
    return model, config


def about(path: Path, config: Config) -> str:
    """What is measured."""
    model, threads = config.model, config.run.threads or torch.get_num_threads()
    told = (
        f"{path.stem}: crops of {config.data.crop_size} pixels, {pick_device(config.run.device)}, {threads} threads;"
        f" fusion.window_s {model.fusion.window_s}, temporal.window_s {model.temporal.window_s}"
    )
    if context_frames(model) is None:
        told += "\nnote: a window reaches over the whole scene (null): its attention costs the square of the length"
    return told


def rounds_of(
    cases: Sequence[Case], path: Path, overrides: Sequence[str], rounds: int, between_faces: bool
) -> list[list[Cost]]:
    """The costs of every case, one a round; the cases take turns, every other time from the last to the first."""
    costs: list[list[Cost]] = [[] for _ in cases]
    for turn in tqdm(range(rounds), desc="rounds", leave=False, disable=None):
        order = range(len(cases)) if turn % 2 == 0 else reversed(range(len(cases)))
        for index in order:
            with process_pool(1, "leave out the longest case") as pool:
                job = pool.submit(measure, cases[index], path, list(overrides), between_faces, turn == 0)
                costs[index].append(job.result())
    return costs


def measure(case: Case, path: Path, overrides: Sequence[str], between_faces: bool, compare: bool) -> Cost:
    """Scores a case whole, in a process that has done nothing else; then, if wanted, in chunks."""
    model, config = prepared(path, overrides, between_faces)
    device = pick_device(config.run.device)
    torch.set_num_threads(config.run.threads or torch.get_num_threads())

    def scored(scene: RandomScene, chunk_frames: int) -> np.ndarray:
        examples = Examples(scene, config.data)
        return np.stack(score_tracks(model, examples, config, device, chunk_frames=chunk_frames))

    scored(RandomScene(replace(case, frames=WARM_UP_FRAMES), config.data.crop_size), WARM_UP_FRAMES)
    before = memory_bytes("VmRSS")
    scene = RandomScene(case, config.data.crop_size)
    whole = scored(scene, case.frames)
    peak_bytes = memory_bytes("VmHWM") - before
    took_s = []
    for _ in range(passes(case)):
        began = time.process_time()
        scored(scene, case.frames)
        took_s.append(time.process_time() - began)
    apart = None
    if compare and context_frames(config.model) is not None and case.frames > CHUNK_FRAMES:
        apart = float(np.abs(scored(scene, CHUNK_FRAMES) - whole).max())
    return Cost(statistics.median(took_s), peak_bytes, apart, float(whole.std()))


def passes(case: Case) -> int:
    """How many times a case is timed."""
    return max(1, min(MOST_PASSES, int(TIMED_MINUTES / case.face_minutes)))


def memory_bytes(field: str) -> int:
    """What this process has now (``VmRSS``) or had at most (``VmHWM``); the latter for both outside of Linux.

    The system's own count of the peak (``ru_maxrss``) begins with that of the process that started this one.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    lines = (line.split() for line in status.read_text(encoding="utf-8").splitlines())
    return next(1024 * int(line[1]) for line in lines if line[0] == f"{field}:")


def report(title: str, cases: Sequence[Case], costs: Sequence[Sequence[Cost]]) -> str:
    """The table of one kind of case, and in a line below it what it says."""
    each_s, each_bytes = (
        [
            [getattr(cost, name) / case.face_minutes for cost in of_case]
            for case, of_case in zip(cases, costs, strict=True)
        ]
        for name in ("processor_s", "peak_bytes")
    )
    times, memories = ratios(each_s), ratios(each_bytes)
    peaks = [statistics.median(cost.peak_bytes for cost in of_case) / 1e6 for of_case in costs]
    lines = [
        f"{title}; medians of {len(costs[0])} rounds, (smallest..largest)",
        f"{'minutes':>8} {'faces':>6} {'processor, a minute':>22} {'ratio':>18}"
        f" {'peak':>10} {'a minute':>10} {'ratio':>6} {'more':>10} {'apart':>8}",
    ]
    for index, (case, of_case) in enumerate(zip(cases, costs, strict=True)):
        peak_mb = peaks[index]
        apart = max((cost.apart for cost in of_case if cost.apart is not None), default=None)
        lines.append(
            f"{case.frames / MINUTE_FRAMES:8g} {case.faces:6}"
            f" {_middle(each_s[index], ' s'):>22} {_middle(times[index]):>18}"
            f" {peak_mb:7.1f} MB {peak_mb / case.face_minutes:7.1f} MB {statistics.median(memories[index]):6.2f}"
            f" {'-' if index == 0 else f'{more(cases, peaks, index):.1f} MB':>10}"
            f" {'-' if apart is None else f'{apart:.1e}':>8}"
        )
    spreads = [cost.spread for of_case in costs for cost in of_case]
    lines.append(
        f"{verdict('time', times)}; {verdict('memory', memories)}; scores spread by {min(spreads):.3f} and more"
    )
    return "\n".join(lines)


def more(cases: Sequence[Case], peaks: Sequence[float], index: int) -> float:
    """What each minute (of a face) adds that a case has beyond the one before it; the fixed part is in neither."""
    minutes = cases[index].face_minutes - cases[index - 1].face_minutes
    return (peaks[index] - peaks[index - 1]) / minutes if minutes else 0.0


def ratios(each: Sequence[Sequence[float]]) -> list[list[float]]:
    """Each case as a multiple of the first one, round by round."""
    return [[value / first for value, first in zip(of_case, each[0], strict=True)] for of_case in each]


def verdict(what: str, of_cases: Sequence[Sequence[float]]) -> str:
    """Whether the medians stay near 1, or under it: what is fixed is shared by more minutes, or the sound by faces."""
    medians = [statistics.median(of_case) for of_case in of_cases]
    low, high = min(medians), max(medians)
    limit = f"{100 * FLAT:.0f} %"
    word = f"grows by more than {limit}" if high > 1 + FLAT else f"flat within {limit}" if low >= 1 - FLAT else "falls"
    return f"{what} a minute: {word} ({low:.2f} to {high:.2f} of the first case)"


def _middle(values: Sequence[float], unit: str = "") -> str:
    return f"{statistics.median(values):.3f}{unit} ({min(values):.2f}..{max(values):.2f})"


if __name__ == "__main__":
    raise SystemExit(run_command(main))
