"""Facts about the training benchmark: the parts are the whole, and what is slow shows up where it is."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.data.synthetic import SyntheticDataset
from avfusion.errors import run_command
from avfusion.models.fusion import CrossAttentionFusion
from avfusion.training.optim import AveragedWeights
from benchmarks import training
from benchmarks.step_clock import LOADER, OTHER, STEP, StepClock
from tests.training.tiny import SETTINGS, tiny_run

NAP_S = 0.05
CLIPS = 5  # of 30 frames in the 150 of a step


def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(NAP_S)
        return function(*args, **kwargs)

    return slow


def parts_ms(*overrides: str) -> tuple[dict[str, float], float]:
    bench = training.prepare(tiny_run("--train.ema=0.9", *overrides), steps=2)
    spent, whole = training.measure_parts(bench)
    return dict(spent), whole


def test_time_belongs_to_the_innermost_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 3.0, 6.0])
    clock = StepClock(torch.device("cpu"))
    monkeypatch.setattr(clock, "now", lambda: next(now))
    with clock.part("outer"), clock.part("inner"):
        pass
    assert clock.spent == {"outer": 1.0 + 3.0, "inner": 2.0}


def test_the_parts_add_up_to_the_step() -> None:
    spent, whole = parts_ms()
    assert set(spent) == {*LOADER, *STEP, OTHER}
    assert all(ms > 0 for ms in spent.values())
    assert sum(spent.values()) == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize(
    ("owner", "method", "part", "naps"),
    [
        (SyntheticDataset, "read", "read", CLIPS),
        (CrossAttentionFusion, "forward", "fusion", 1),
        (AveragedWeights, "update", "ema", 1),
        (torch.Tensor, "backward", "backward", 1),
    ],
)
def test_what_is_slow_shows_up_where_it_is(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, part: str, naps: int
) -> None:
    memory = "--data.cache_gb=0" if part == "read" else "--data.cache_gb=1"  # kept in memory, tracks are read but once
    before, _ = parts_ms(memory)
    monkeypatch.setattr(owner, method, slowed(getattr(owner, method)))
    after, _ = parts_ms(memory)
    grown = {name: after[name] - before[name] for name in after}
    assert max(grown, key=lambda name: grown[name]) == part
    # A nap may last a little longer than asked; reading itself varies with what else the machine does.
    assert grown[part] == pytest.approx(1000 * NAP_S * naps, rel=0.5)


def test_workers_that_keep_a_step_fed() -> None:
    assert training.workers_needed(loader_clips=100.0, step_clips=30.0) == 1
    assert training.workers_needed(loader_clips=100.0, step_clips=100.0) == 1
    assert training.workers_needed(loader_clips=100.0, step_clips=250.0) == 3


def test_halves_are_the_clips_of_the_whole() -> None:
    bench = training.prepare(tiny_run(), steps=1)
    (batch, *_) = training.ClipLoader(bench.unwatched, [next(bench.requests())], workers=0)
    first, second = training.halves(batch)
    assert first.requests + second.requests == batch.requests[::2] + batch.requests[1::2]
    torch.testing.assert_close(torch.cat([first.crops, second.crops]), torch.cat([batch.crops[::2], batch.crops[1::2]]))
    torch.testing.assert_close(first.audio_mask, batch.audio_mask[::2])


def test_the_command_prints_parts_rates_and_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Path(__file__).resolve().parent.parent / "configs" / "synthetic.yaml"
    small = [*SETTINGS, "--data.batch_frames=60", "--data.region=[0,0,1,1]"]
    options = ["--steps=1", "--compare=accumulate,channels_last", "--operators=3"]
    monkeypatch.setattr(sys, "argv", ["training.py", str(config), *small, *options])
    assert run_command(training.main) == 0
    printed = capsys.readouterr().out
    shares = [float(share) for share in re.findall(r"([\d.]+) %", printed.partition("together")[0])]
    assert sum(shares) == pytest.approx(100, abs=3)
    step, loader = (float(rate) for rate in re.findall(r"([\d.]+) clips/s", printed))
    waits = float(re.findall(r"waits for data ([\d.]+) %", printed)[0])
    assert waits == pytest.approx(100 * step / (step + loader), abs=0.2)
    assert re.search(r"train.accumulate=2 at equal frames: [\d.]+ times the step's time", printed)
    assert re.search(r"train.channels_last=True: [\d.]+ times the step's time", printed)
    assert "Self CPU" in printed
    monkeypatch.setattr(sys, "argv", ["training.py", str(config), "--compare=colour"])
    assert run_command(training.main) == 2
    assert "no option colour; expected names out of channels_last" in capsys.readouterr().err
