"""Facts about the capture benchmark: it compares equals, and would show a cost if there was one."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import pytest
import torch

from avfusion.errors import run_command
from avfusion.models.attention import MultiHeadCrossAttention, capture_attention
from avfusion.models.attention_parts import AttentionModule
from benchmarks import capture, training
from tests.training.tiny import SETTINGS, tiny_run


def test_plain_modules_cannot_be_listened_to_and_come_back() -> None:
    model = training.prepare(tiny_run(), steps=1).stepper().model.eval()
    kinds = [type(module) for module in model.modules()]
    attention, x, sound = model.fusion[0].video_from_audio, torch.randn(1, 3, 16), torch.randn(1, 12, 16)
    with capture.plain_attention(model), capture_attention(attention) as maps:
        output, weights = attention(x, sound, need_weights=True)
    assert maps == {}
    with pytest.raises(KeyError), capture.plain_attention(model):
        raise KeyError
    assert [type(module) for module in model.modules()] == kinds
    with capture_attention(attention) as maps:
        assert torch.equal(attention(x, sound), output)
    assert torch.equal(maps[""], weights)


def test_a_cost_of_unused_hooks_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = training.prepare(tiny_run(), steps=4)
    honest = AttentionModule._answer

    def slow(*args: Any) -> Any:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        return honest(*args)

    monkeypatch.setattr(AttentionModule, "_answer", slow)
    assert capture.unused_ratio(bench)[0] > 1.3


def test_modules_out_of_date_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = training.prepare(tiny_run(), steps=1)
    honest = MultiHeadCrossAttention.forward
    monkeypatch.setattr(MultiHeadCrossAttention, "forward", lambda *a, **k: 1.01 * honest(*a, **k))
    with pytest.raises(RuntimeError, match="out of date"):
        capture.unused_ratio(bench)


def test_the_command_prints_three_ratios(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["capture.py", *SETTINGS, "--data.batch_frames=60", "--steps=2"])
    assert run_command(capture.main) == 0
    printed = capsys.readouterr().out
    unused, captured, counted = (float(n) for n in re.findall(r"([\d.]+) times", printed))
    assert 0.5 < unused < 2.0
    assert counted > captured > 0.5
    monkeypatch.setattr(sys, "argv", ["capture.py", *SETTINGS, "--model.fusion.kind=concat"])
    assert run_command(capture.main) == 2
    assert "no cross-attention" in capsys.readouterr().err
