"""What it costs to be able to look at the attention: nothing while nobody looks, and how much when somebody does.

    python benchmarks/capture.py [configs/NAME.yaml] [--steps=60] [--section.key=value ...]

Without a file it takes configs/synthetic.yaml. Printed, all from one run on one machine, ratios of medians taken step
by step in turns (each batch twice, who goes first alternates):

    unused      a training step of the model as it is, nothing captured or edited, against the same step of the same
                model whose attention modules cannot be listened to or edited: their forward is written out without it
    captured    a batch through the model in evaluation with every head's weights, value norms and outputs kept,
                against the batch alone
    counted     the same and its heads counted by HeadStatistics, intervals not included

On a CPU the seconds are those of this process alone, so that other programs do not count.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import torch
from einops import rearrange
from torch import Tensor

from avfusion.alignment.capture import align_tracks
from avfusion.alignment.heads.collect import HeadStatistics
from avfusion.alignment.listening import listen_to_heads
from avfusion.alignment.reach import KeyReach
from avfusion.config import load_config
from avfusion.data.batching import Batch, ClipLoader
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.attention import MultiHeadCrossAttention, MultiHeadSelfAttention, attend
from avfusion.models.attention_parts import over_keys, rotate_both
from avfusion.models.fusion import CrossAttentionFusion

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from benchmarks.training import ROOT, WARM_UP, Bench, headline, prepare

ROUNDS = 7


class PlainCrossAttention(MultiHeadCrossAttention):
    """The same computation, which nobody can listen to or edit."""

    def forward(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As the module it stands for."""
        query = rearrange(self.query(x), "b t (h k) -> b h t k", h=self.num_heads, k=self.head_dim)
        key, value = rearrange(
            self.key_value(context), "b t (two h k) -> two b h t k", two=2, h=self.num_heads, k=self.head_dim
        ).unbind(0)
        if self.norm is not None:
            query, key = self.norm(query, key)
        null_key, null_query = self._null(query)
        if self.rotary:
            query, key = rotate_both(query, key, self.rates_hz)
        output, weights = attend(
            query,
            key,
            value,
            over_keys(context_mask, context),
            null_key=null_key,
            null_query=null_query,
            window=self.window,
            need_weights=need_weights,
            dropout=self.dropout if self.training else 0.0,
        )
        out = self.out(rearrange(output, "b h t k -> b t (h k)"))
        return out if weights is None else (out, weights)


class PlainSelfAttention(MultiHeadSelfAttention):
    """The same computation, which nobody can listen to."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As the module it stands for."""
        query, key, value = rearrange(
            self.qkv(x), "b t (three h k) -> three b h t k", three=3, h=self.num_heads, k=self.head_dim
        ).unbind(0)
        if self.norm is not None:
            query, key = self.norm(query, key)
        if self.rotary:
            query, key = rotate_both(query, key, self.rates_hz)
        output, weights = attend(
            query,
            key,
            value,
            over_keys(mask, x),
            window=self.window,
            need_weights=need_weights,
            dropout=self.dropout if self.training else 0.0,
        )
        out = self.out(rearrange(output, "b h t k -> b t (h k)"))
        return out if weights is None else (out, weights)


PLAIN = {MultiHeadCrossAttention: PlainCrossAttention, MultiHeadSelfAttention: PlainSelfAttention}


@contextmanager
def plain_attention(model: ActiveSpeakerDetector) -> Iterator[None]:
    """Turns the attention modules of the model into plain ones while the context lasts; their weights stay."""
    turned = [module for module in model.modules() if type(module) in PLAIN]
    try:
        for module in turned:
            module.__class__ = PLAIN[type(module)]
        yield
    finally:
        for module in turned:
            module.__class__ = type(module).__bases__[0]


def main() -> None:
    """Measures and prints."""
    overrides, rest = split_overrides(sys.argv[1:])
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("config", type=Path, nargs="?", default=ROOT / "configs" / "synthetic.yaml")
    parser.add_argument("--steps", type=int, default=60, help="pairs of training steps (default: 60)")
    options = parser.parse_args(rest)
    if options.steps < 1:
        raise UsageError(f"--steps={options.steps}: expected 1 or more")
    bench = prepare(load_config(options.config, overrides), options.steps)
    if not any(isinstance(layer, CrossAttentionFusion) for layer in bench.stepper().model.fusion):
        raise UsageError(f"{options.config}: the model has no cross-attention to look at; choose another file")
    print(headline(bench, options.config.stem))
    ratio, spread = unused_ratio(bench)
    pairs = f"{options.steps} pairs, quartiles ±{spread:.3f}"
    print(f"unused:   {ratio:.4f} times a step that cannot be listened to ({pairs})")
    captured, counted = capture_ratios(bench)
    print(f"captured: {captured:.2f} times a batch that nobody listens to, counted: {counted:.2f} times")


def seconds_of(bench: Bench, work: Callable[[], object]) -> float:
    """Seconds of this process on a CPU, of one clock otherwise."""
    now = time.process_time if bench.device.type == "cpu" else bench.clock().now
    began = now()
    work()
    return now() - began


def unused_ratio(bench: Bench) -> tuple[float, float]:
    """Median over steps of (as it is / plain), and half the distance of its quartiles."""
    stepper = bench.stepper()
    accumulate, pairs = bench.config.train.accumulate, WARM_UP + bench.steps
    batches = iter(ClipLoader(bench.unwatched, list(islice(bench.requests(), pairs * accumulate)), workers=0))
    ratios = []
    for number in range(pairs):
        parts = [batch.to(bench.device) for batch in islice(batches, accumulate)]
        if not number:
            check_equal(stepper.model, parts[0])  # and so it has been listened to before the steps that count

        def step(parts: list[Batch] = parts, number: int = number) -> None:
            stepper(parts, number)

        def plain(step: Callable[[], None] = step) -> None:
            with plain_attention(stepper.model):
                step()

        order = (step, plain) if number % 2 else (plain, step)
        took = {work: seconds_of(bench, work) for work in order}
        ratios.append(took[step] / took[plain])
    low, middle, high = statistics.quantiles(ratios[WARM_UP:], n=4) if bench.steps > 1 else ratios[-1:] * 3
    return middle, (high - low) / 2


@torch.inference_mode()
def check_equal(model: ActiveSpeakerDetector, batch: Batch) -> None:
    """The plain model computes the same, bit for bit, and so does one that is listened to.

    Raises:
        RuntimeError: it does not, so that there is nothing to compare.
    """
    was_training = model.training
    model.eval()
    run = (batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)
    found = model(*run).logits
    with plain_attention(model):
        plain = model(*run).logits
    with listen_to_heads(model, head_outputs=True):
        listened = model(*run).logits
    model.train(was_training)
    if not (torch.equal(found, plain) and torch.equal(found, listened)):
        raise RuntimeError("expected the same scores with and without hooks: the plain modules are out of date")


def capture_ratios(bench: Bench) -> tuple[float, float]:
    """Capturing, and capturing and counting, as multiples of scoring the same tracks; medians of rounds."""
    config, model = bench.config, bench.stepper().model.eval()
    tracks = range(min(len(bench.unwatched), max(1, 2000 // config.data.clip_frames)))
    window_s = config.model.fusion.window_s
    faces = bench.unwatched.dataset.tracks
    examples = type(bench.unwatched)(bench.unwatched.dataset, config.data)
    clips = list(align_tracks(model, examples, config, bench.device, tracks, head_outputs=True, label="reading"))
    loader = ClipLoader(examples, list(islice(bench.requests(), 2)), workers=0)
    batches = [batch.to(bench.device) for batch in loader]
    frames_of_batches = sum(int(batch.frame_mask.sum()) for batch in batches)
    frames_of_clips = sum(len(clip.speaking) for clip in clips)

    @torch.inference_mode()
    def score() -> None:
        for batch in batches:
            model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)

    def listen() -> None:
        with listen_to_heads(model, head_outputs=True):
            score()

    def count() -> None:
        heads = HeadStatistics(KeyReach.within(window_s))
        for clip in clips:
            heads.add(clip, faces[clip.track].video_id, faces[clip.track].role)

    rows = [[seconds_of(bench, work) for work in (score, listen, count)] for _ in range(1 + ROUNDS)][1:]
    captured = statistics.median(listened / scored for scored, listened, _ in rows)
    per_frame = frames_of_batches / frames_of_clips
    return captured, captured + statistics.median(counted / scored * per_frame for scored, _, counted in rows)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
