"""What models cost a processor, side by side: parameters, multiply-adds, and time per face-frame.

    python benchmarks/speed.py [configs/NAME.yaml ...] [--threads=1] [--rounds=7] [--clips=2] [--json=FILE]
                               [--batch-norm=light_style,lr_style] [--section.key=value ...]

Without files it takes small, talknet_style, light_style and lr_style. A key given as --section.key=value holds for
all of them. Weights are untrained, pictures and sound random. The models take turns in one run; what is printed:

    inference   milliseconds of the processor per face-frame, a track of 10 s scored whole (the model alone: log-mel and
                decoding are the same for all)
    training    the same of a step: forward, losses, backward, clipping, optimiser, with as many clips as ``--clips``
                says; and frames a second by the clock
    times       each as a multiple of the first model's, the median of the rounds' ratios

``--batch-norm`` gives models a second row with batch norm in the place of their group norms, which is what the
published ones have and costs less; left out, it does so for light_style and lr_style. Other work on the machine changes
the milliseconds; compare within a run only.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config, load_config
from avfusion.data.batching import Batch
from avfusion.data.examples import Request
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.models.cost import measure_cost
from avfusion.training.step import Stepper

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ("small", "talknet_style", "light_style", "lr_style")
BATCH_NORMED = ("light_style", "lr_style")
TRACK_FRAMES = 10 * VIDEO_HZ


@dataclass(frozen=True)
class Took:
    """One piece of work, per face-frame.

    Attributes:
        processor_ms: of the process, all its threads.
        clock_ms: by the wall clock.
    """

    processor_ms: float
    clock_ms: float


@dataclass(frozen=True)
class Row:
    """A model's figures; times are medians of the rounds, ``*_times`` multiples of the first model's."""

    name: str
    parameters: int
    multiply_adds: float
    inference_ms: float
    inference_times: float
    training_ms: float
    training_times: float
    training_frames_per_s: float


@dataclass(frozen=True)
class Contender:
    """A model, and the two pieces of work that are timed."""

    name: str
    parameters: int
    multiply_adds: float
    infer: Callable[[], Took]
    train: Callable[[], Took]


def main() -> None:
    """Measures and prints."""
    overrides, rest = split_overrides(sys.argv[1:])
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument(
        "configs", type=Path, nargs="*", default=[ROOT / "configs" / f"{name}.yaml" for name in DEFAULT]
    )
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: 1)")
    parser.add_argument("--rounds", type=int, default=7, help="that count, after one that does not (default: 7)")
    parser.add_argument("--clips", type=int, default=2, help="of a training step (default: 2)")
    parser.add_argument("--batch-norm", metavar="NAME,...", help="models with a second row; '' for none")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    options = parser.parse_args(rest)
    if min(options.threads, options.rounds, options.clips) < 1:
        raise UsageError("expected --threads, --rounds and --clips of at least 1")
    normed = BATCH_NORMED if options.batch_norm is None else tuple(filter(None, options.batch_norm.split(",")))
    names = [path.stem for path in options.configs]
    if options.batch_norm is not None and (unknown := sorted(set(normed) - set(names))):
        raise UsageError(f"--batch-norm: {', '.join(unknown)} not measured; expected names out of {', '.join(names)}")
    torch.set_num_threads(options.threads)
    contenders = []
    for path in options.configs:
        config = load_config(path, overrides)
        contenders.append(contender(path.stem, config, options.clips))
        if path.stem in normed:
            contenders.append(contender(f"{path.stem}, batch norm", config, options.clips, batch_norm=True))
    rows = table_rows(contenders, *take_turns(contenders, options.rounds))
    print(
        f"torch {torch.__version__}, {options.threads} thread(s), {options.rounds} rounds, {options.clips} clips a step"
    )
    print(table_text(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def contender(name: str, config: Config, clips: int, batch_norm: bool = False) -> Contender:
    """A model of untrained weights, ready to be timed."""
    torch.manual_seed(config.run.seed)
    model = build_model(config.model, config.data.num_mels)
    if batch_norm:
        batch_normed(model)
    side, mels = config.data.crop_size, config.data.num_mels
    crops = torch.randint(0, 256, (1, 1, TRACK_FRAMES, side, side), dtype=torch.uint8)
    log_mel = torch.randn(1, TRACK_FRAMES * AUDIO_FRAMES_PER_VIDEO_FRAME, mels)
    batch = random_batch(config, clips)
    stepper = Stepper(model, config, torch.device("cpu"), total_steps=1000)

    @torch.inference_mode()
    def score() -> None:
        model(crops, log_mel)

    def infer() -> Took:
        model.eval()
        return timed(score, TRACK_FRAMES)

    def train() -> Took:
        model.train()
        return timed(lambda: stepper([batch], 0), batch.speaking.numel())

    cost = measure_cost(config)
    return Contender(name, sum(p.numel() for p in model.parameters()), cost.multiply_adds, infer, train)


def batch_normed(model: ActiveSpeakerDetector) -> None:
    """Puts batch norm in the place of every group norm of the model."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.GroupNorm):
                setattr(parent, name, nn.BatchNorm2d(child.num_channels))


def random_batch(config: Config, clips: int) -> Batch:
    """Clips of full length, a second of speech and a second of silence in turn."""
    frames, side = config.data.clip_frames, config.data.crop_size
    heard = frames * AUDIO_FRAMES_PER_VIDEO_FRAME
    return Batch(
        crops=torch.rand(clips, 1, frames, side, side),
        log_mel=torch.randn(clips, heard, config.data.num_mels),
        speaking=(torch.arange(frames) // VIDEO_HZ % 2 == 0).expand(clips, 1, frames).contiguous(),
        frame_mask=torch.ones(clips, 1, frames, dtype=torch.bool),
        audio_mask=torch.ones(clips, heard, dtype=torch.bool),
        audio_id=torch.arange(clips),
        matched=torch.ones(clips, dtype=torch.bool),
        requests=[Request(clip, 0, frames) for clip in range(clips)],
    )


def timed(work: Callable[[], object], frames: int) -> Took:
    """What one call takes per face-frame."""
    began, began_processor = time.perf_counter(), time.process_time()
    work()
    processor, clock = time.process_time() - began_processor, time.perf_counter() - began
    return Took(1000 * processor / frames, 1000 * clock / frames)


def take_turns(contenders: Sequence[Contender], rounds: int) -> tuple[list[list[Took]], list[list[Took]]]:
    """Inference and training of each contender in each counted round: ``[contender][round]``.

    Whoever comes first in one round comes last in the next. The first round warms up and is thrown away.
    """
    inference: list[list[Took]] = [[] for _ in contenders]
    training: list[list[Took]] = [[] for _ in contenders]
    for number in range(1 + rounds):
        for place in range(len(contenders)):
            index = (place + number) % len(contenders)
            infer, train = contenders[index].infer(), contenders[index].train()
            if number:
                inference[index].append(infer)
                training[index].append(train)
    return inference, training


def table_rows(
    contenders: Sequence[Contender], inference: Sequence[Sequence[Took]], training: Sequence[Sequence[Took]]
) -> list[Row]:
    """The figures of each contender, from what every round took."""
    rows = []
    for index, entry in enumerate(contenders):
        inferred, trained = inference[index], training[index]
        rows.append(
            Row(
                entry.name,
                entry.parameters,
                entry.multiply_adds,
                inference_ms=statistics.median(took.processor_ms for took in inferred),
                inference_times=median_ratio(inferred, inference[0]),
                training_ms=statistics.median(took.processor_ms for took in trained),
                training_times=median_ratio(trained, training[0]),
                training_frames_per_s=1000 / statistics.median(took.clock_ms for took in trained),
            )
        )
    return rows


def median_ratio(own: Sequence[Took], first: Sequence[Took]) -> float:
    """The median of the rounds' ratios of processor time."""
    return statistics.median(a.processor_ms / b.processor_ms for a, b in zip(own, first, strict=True))


def table_text(rows: Sequence[Row]) -> str:
    """A line for each model; multiply-adds too as a multiple of the first model's."""
    width = max(len("model"), *(len(row.name) for row in rows))
    lines = [
        f"{'model':{width}}{'parameters':>12}{'multiply-adds':>15}{'times':>7}{'inference':>12}{'times':>7}"
        f"{'training':>12}{'times':>7}{'frames/s':>10}"
    ]
    for row in rows:
        lines.append(
            f"{row.name:{width}}{row.parameters / 1e6:10.3f} M{row.multiply_adds / 1e6:13.1f} M"
            f"{row.multiply_adds / rows[0].multiply_adds:7.2f}{row.inference_ms:9.3f} ms{row.inference_times:7.2f}"
            f"{row.training_ms:9.3f} ms{row.training_times:7.2f}{row.training_frames_per_s:10.0f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
