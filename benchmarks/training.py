"""Where the time of a training step goes, and whether the loader keeps up with it.

    python benchmarks/training.py [configs/NAME.yaml] [--steps=20] [--section.key=value ...]
                                  [--compare channels_last,bfloat16,compile,accumulate] [--operators=15]

Without a file it takes configs/synthetic.yaml. Printed, all from one run on one machine:

    parts       a step in the training's own process: reading, augmentation, log-mel, collating; transfer; forward by
                part, backward, optimiser; milliseconds and shares, which add up to the step
    rates       clips and frames a second of the loader alone (with ``data.workers``) against those of the step alone,
                in turns, medians, and how many workers keep a step of this speed fed
    compared    the step with an option turned against the step as configured, on the same batches in turns
    operators   torch's own profile of the step

Only as many tracks as the steps need are used. Synthetic talkers are made before, and so are in memory, as in every
epoch but the first; with ``--data.cache_gb=0`` nothing is kept, and reading includes rendering or decoding.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from avfusion.config import Config, load_config
from avfusion.data.batching import Batch, ClipLoader, TrainingSampler
from avfusion.data.examples import Examples, Request
from avfusion.data.open import open_dataset
from avfusion.data.synthetic import SyntheticDataset
from avfusion.data.synthetic.parallel import read_many
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from avfusion.models import build_model
from avfusion.scoring import pick_device
from avfusion.training.step import Stepper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from benchmarks.step_clock import EXPLAINED, LOADER, OTHER, STEP, ClockedExamples, StepClock, watch_loader, watched_step

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 3  # steps of every measurement that do not count
ROUNDS = 5
SPEED_UPS = (1, 10, 100)
COMPARED: dict[str, Callable[[Config], dict[str, object]]] = {
    "channels_last": lambda config: {"channels_last": not config.train.channels_last},
    "bfloat16": lambda config: {"precision": "float32" if config.train.precision == "bfloat16" else "bfloat16"},
    "compile": lambda config: {"compile": not config.train.compile},
    "accumulate": lambda config: {"accumulate": 2 * config.train.accumulate},
}


@dataclass
class Bench:
    """What is measured: a configuration on the tracks that its steps need."""

    config: Config
    steps: int
    examples: ClockedExamples
    unwatched: Examples  # the same, for worker processes
    device: torch.device

    def requests(self) -> Iterator[list[Request]]:
        """Parts of steps, epoch after epoch without end."""
        data = self.config.data
        tracks = self.examples.dataset.tracks[: tracks_needed(self.config, self.steps)]
        lengths = [track.num_frames for track in tracks]
        accumulate = self.config.train.accumulate
        sampler = TrainingSampler(lengths, data.clip_frames, data.batch_frames, 0, accumulate=accumulate)
        for epoch in count():
            sampler.set_epoch(epoch)
            yield from sampler

    def stepper(self, config: Config | None = None) -> Stepper:
        """A stepper with fresh weights, the same every time."""
        config = config or self.config
        torch.manual_seed(config.run.seed)
        model = build_model(config.model, config.data.num_mels).to(self.device).train()
        return Stepper(model, config, self.device, total_steps=1000)

    def clock(self) -> StepClock:
        """A clock of the device's work."""
        return StepClock(self.device)


def main() -> None:
    """Measures and prints."""
    overrides, rest = split_overrides(sys.argv[1:])
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("config", type=Path, nargs="?", default=ROOT / "configs" / "synthetic.yaml")
    parser.add_argument("--steps", type=int, default=20, help="of each measurement (default: 20)")
    parser.add_argument("--compare", default="", metavar="OPTION,...", help=f"out of {', '.join(COMPARED)}")
    parser.add_argument("--operators", type=int, default=0, metavar="N", help="show the N costliest operators")
    options = parser.parse_args(rest)
    compared = [name for name in options.compare.split(",") if name]
    if unknown := sorted(set(compared) - set(COMPARED)):
        raise UsageError(f"--compare: no option {', '.join(unknown)}; expected names out of {', '.join(COMPARED)}")
    if options.steps < 1 or options.operators < 0:
        raise UsageError("expected --steps of at least 1 and --operators of at least 0")
    bench = prepare(load_config(options.config, overrides), options.steps)
    print(headline(bench, options.config.stem))
    print(parts_table(*measure_parts(bench)))
    print(rates_text(bench, *measure_rates(bench)))
    for name in compared:
        print(compared_text(bench, name))
    if options.operators:
        print(operators_table(bench, options.operators))


def prepare(config: Config, steps: int) -> Bench:
    """Opens the data and makes synthetic talkers ahead."""
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    dataset = open_dataset(config.data, config.data.train_split)
    examples = ClockedExamples(dataset, config.data, augment=True, seed=config.run.seed)
    unwatched = Examples(dataset, config.data, augment=True, seed=config.run.seed)
    if isinstance(dataset, SyntheticDataset) and config.data.cache_gb:
        clips = list(read_many(dataset, range(min(len(examples), tracks_needed(config, steps)))))
        examples.preload(clips)
        unwatched.preload(clips)
    return Bench(config, steps, examples, unwatched, pick_device(config.run.device))


def tracks_needed(config: Config, steps: int) -> int:
    """Tracks that fill the steps with clips of full length."""
    return steps * config.train.accumulate * max(1, config.data.batch_frames // config.data.clip_frames)


def headline(bench: Bench, name: str) -> str:
    """What was measured, and on what."""
    config, parameters = bench.config, sum(p.numel() for p in bench.stepper().model.parameters())
    data, threads = config.data, torch.get_num_threads()
    return (
        f"{name}: {parameters / 1e6:.2f} M parameters, crops of {data.crop_size} x {data.crop_size},"
        f" data.batch_frames={data.batch_frames}, train.accumulate={config.train.accumulate}, {config.train.precision},"
        f" data.workers={data.workers}; {bench.device}, torch {torch.__version__}, {threads}"
        f" thread{'s' * (threads > 1)}; means of {bench.steps} steps after {WARM_UP}"
    )


def measure_parts(bench: Bench) -> tuple[Counter[str], float]:
    """Milliseconds of a step by part, and of the whole by one clock around it; means over the steps."""
    clock, accumulate = bench.clock(), bench.config.train.accumulate
    loader = ClipLoader(bench.examples.watched_by(clock), _Requests(bench.requests()), workers=0)
    watch_loader(clock, loader)
    batches = iter(loader)
    whole_s = 0.0
    with watched_step(clock, bench.stepper()) as step:
        for number in range(WARM_UP + bench.steps):
            if number == WARM_UP:
                clock.spent.clear()
                whole_s = 0.0
            began = clock.now()
            with clock.part("loader"):
                loaded = list(islice(batches, accumulate))
            with clock.part("transfer"):
                parts = [batch.to(bench.device) for batch in loaded]
            step(parts, number)
            whole_s += clock.now() - began
    return Counter({part: 1000 * s / bench.steps for part, s in clock.spent.items()}), 1000 * whole_s / bench.steps


def parts_table(spent_ms: Counter[str], whole_ms: float) -> str:
    """A line for each part, then the sums."""

    def line(name: str, ms: float, note: str = "") -> str:
        return f"  {name:12}{ms:10.1f}{100 * ms / whole_ms:8.1f} %  {note}".rstrip()

    def block(title: str, parts: Sequence[str]) -> list[str]:
        shown = [line(part, spent_ms[part], EXPLAINED.get(part, "")) for part in parts if part in spent_ms]
        return [f"{title:14}{sum(spent_ms[part] for part in parts):10.1f} ms", *shown]

    lines = ["", *block("loader", LOADER), *block("step", [*STEP, OTHER])]
    return "\n".join([*lines, line("together", spent_ms.total(), f"of {whole_ms:.1f} ms by one clock around it all")])


@dataclass(frozen=True)
class Rates:
    """Clips and frames a second."""

    clips: float
    frames: float


def measure_rates(bench: Bench) -> tuple[Rates, Rates, Rates]:
    """Loader with workers as configured, loader in one process, step: each alone, in turns, medians of the rounds."""
    accumulate, workers = bench.config.train.accumulate, bench.config.data.workers
    # A round is long enough for every worker to have its turn twice.
    size = max(math.ceil(bench.steps / ROUNDS), math.ceil(2 * workers / accumulate)) * accumulate
    source, planned, stepper, clock = bench.requests(), [], bench.stepper(), bench.clock()
    one = ClipLoader(bench.unwatched, planned, workers=0)
    configured = ClipLoader(bench.unwatched, planned, workers) if workers else one
    loader_rates: list[Rates] = []
    one_rates: list[Rates] = []
    step_rates: list[Rates] = []
    for number in range(1 + ROUNDS):
        planned[:] = islice(source, size)
        began = time.perf_counter()
        batches = list(one)
        one_s = time.perf_counter() - began
        if workers:
            began = time.perf_counter()
            batches = list(configured)
        loader_s = time.perf_counter() - began if workers else one_s
        began = clock.now()
        for first in range(0, size, accumulate):
            parts = [batch.to(bench.device) for batch in batches[first : first + accumulate]]
            stepper(parts, number)
        step_s = clock.now() - began
        clips = sum(len(batch.requests) for batch in batches)
        frames = sum(int(batch.frame_mask.sum()) for batch in batches)
        if number:
            for rates, seconds in ((loader_rates, loader_s), (one_rates, one_s), (step_rates, step_s)):
                rates.append(Rates(clips / seconds, frames / seconds))
    return tuple(
        Rates(statistics.median(r.clips for r in rates), statistics.median(r.frames for r in rates))
        for rates in (loader_rates, one_rates, step_rates)
    )


def rates_text(bench: Bench, loader: Rates, one: Rates, step: Rates) -> str:
    """The rates, and what follows from them."""
    workers = bench.config.data.workers

    def line(name: str, rates: Rates) -> str:
        return f"{name:32}{rates.clips:10.1f} clips/s{rates.frames:10.0f} frames/s"

    lines = ["", line("step alone", step)]
    if workers:
        lines.append(line(f"loader alone, {workers} workers", loader))
    lines.append(line("loader alone, in one process", one))
    needed = [workers_needed(one.clips, step.clips * times) for times in SPEED_UPS]
    fed = ", ".join(f"{n} for one {times} times as fast" for n, times in zip(needed[1:], SPEED_UPS[1:], strict=True))
    waiting = 100 * step.clips / (step.clips + one.clips)
    if not workers:
        now = f"Without workers the step waits for data {waiting:.1f} % of the time"
    elif loader.clips >= step.clips:
        now = f"{workers} workers keep this step fed ({loader.clips / step.clips:.1f} times what it takes)"
    else:
        now = f"{workers} workers do not keep this step fed ({loader.clips / step.clips:.2f} of what it takes)"
    lines.append(f"{now}; workers on cores of their own that keep a step of this speed fed: {needed[0]}; {fed}.")
    return "\n".join(lines)


def workers_needed(loader_clips: float, step_clips: float) -> int:
    """Workers that make at least as many clips a second as the step takes."""
    return math.ceil(step_clips / loader_clips)


def compared_text(bench: Bench, name: str) -> str:
    """The step with one option turned, as a multiple of its time as configured."""
    turned = COMPARED[name](bench.config)
    other = replace(bench.config, train=replace(bench.config.train, **turned))
    steppers = [bench.stepper(), bench.stepper(other)]
    accumulate, clock = bench.config.train.accumulate, bench.clock()
    batches = iter(ClipLoader(bench.unwatched, _Requests(bench.requests()), workers=0))
    times_s: list[list[float]] = []
    for number in range(WARM_UP + bench.steps):
        parts = [batch.to(bench.device) for batch in islice(batches, accumulate)]
        forms = [parts, [half for part in parts for half in halves(part)] if name == "accumulate" else parts]
        row = []
        for stepper, form in zip(steppers, forms, strict=True):
            began = clock.now()
            stepper(form, number)
            row.append(clock.now() - began)
        times_s.append(row)
    counted = times_s[WARM_UP:]
    ratio = statistics.median(new / old for old, new in counted)
    before, after = (1000 * statistics.median(column) for column in zip(*counted, strict=True))
    option = ", ".join(f"train.{key}={value}" for key, value in turned.items())
    frames = " at equal frames" if name == "accumulate" else ""
    return f"{option}{frames}: {ratio:.2f} times the step's time ({after:.1f} ms against {before:.1f} ms)"


def halves(part: Batch) -> list[Batch]:
    """A part of a step as two, clip by clip in turn."""
    if len(part.requests) < 2:
        return [part]

    def every_other(first: int) -> Batch:
        tensors = {name: value[first::2] for name, value in vars(part).items() if isinstance(value, Tensor)}
        return replace(part, **tensors, requests=part.requests[first::2])

    return [every_other(0), every_other(1)]


def operators_table(bench: Bench, shown: int) -> str:
    """The costliest operators of the step, by torch's profiler."""
    batches = iter(ClipLoader(bench.unwatched, _Requests(bench.requests()), workers=0))
    stepper, cuda = bench.stepper(), bench.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    profiler = partial(profile, activities=activities)
    for counted in (False, True):
        steps = [list(islice(batches, bench.config.train.accumulate)) for _ in range(min(WARM_UP, bench.steps))]
        with profiler() if counted else nullcontext() as found:
            for number, loaded in enumerate(steps):
                stepper([batch.to(bench.device) for batch in loaded], number)
    order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    return str(found.key_averages().table(sort_by=order, row_limit=shown, max_name_column_width=50))


class _Requests:
    """Lets a loader draw from an endless source."""

    def __init__(self, source: Iterator[list[Request]]) -> None:
        self._source = source

    def __iter__(self) -> Iterator[list[Request]]:
        return self._source


if __name__ == "__main__":
    raise SystemExit(run_command(main))
