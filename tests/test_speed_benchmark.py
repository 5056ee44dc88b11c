"""benchmarks/speed.py: turns, ratios within a round, and batch norm in the place of every group norm."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from avfusion.errors import UsageError
from tests.models.baselines.planted import tiny_config, tiny_model

PATH = Path(__file__).resolve().parent.parent / "benchmarks" / "speed.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("speed_benchmark", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_turns_rotate_and_the_first_round_does_not_count(benchmark: ModuleType) -> None:
    calls: list[str] = []

    def planted(name: str) -> object:
        def work(kind: str) -> object:
            calls.append(name + kind)
            return benchmark.Took(float(len(calls)), 0.0)

        return benchmark.Contender(name, 0, 0.0, lambda: work("i"), lambda: work("t"))

    inference, training = benchmark.take_turns([planted("a"), planted("b")], rounds=2)
    assert calls == ["ai", "at", "bi", "bt", "bi", "bt", "ai", "at", "ai", "at", "bi", "bt"]
    assert [[took.processor_ms for took in of_one] for of_one in inference] == [[7, 9], [5, 11]]
    assert [[took.processor_ms for took in of_one] for of_one in training] == [[8, 10], [6, 12]]


def test_a_ratio_is_taken_within_each_round(benchmark: ModuleType) -> None:
    """Round 2 was three times as slow for both: the ratio of the medians would be another."""
    took = benchmark.Took
    entries = [benchmark.Contender(name, 1_000_000, adds, None, None) for name, adds in (("a", 1e6), ("bb", 4e6))]
    inference = [[took(1.0, 1), took(6.0, 6), took(2.0, 2)], [took(4.0, 4), took(18.0, 18), took(2.0, 2)]]
    training = [[took(10.0, 5.0)] * 3, [took(20.0, 8.0)] * 3]
    rows = benchmark.table_rows(entries, inference, training)
    assert [row.inference_ms for row in rows] == [2.0, 4.0]
    assert [row.inference_times for row in rows] == [1.0, 3.0]
    assert [row.training_times for row in rows] == [1.0, 2.0]
    assert [row.training_frames_per_s for row in rows] == [200.0, 125.0]
    line = benchmark.table_text(rows).splitlines()[2].split()
    assert line == ["bb", "1.000", "M", "4.0", "M", "4.00", "4.000", "ms", "3.00", "20.000", "ms", "2.00", "125"]


def test_batch_norm_replaces_every_group_norm_at_equal_parameters(benchmark: ModuleType) -> None:
    model = tiny_model("lr_style")
    before = sum(p.numel() for p in model.parameters())
    benchmark.batch_normed(model)
    kinds = [type(module) for module in model.modules()]
    assert not any(issubclass(kind, torch.nn.GroupNorm) for kind in kinds)
    assert kinds.count(torch.nn.BatchNorm2d) == 2 * 2 * 4
    assert sum(p.numel() for p in model.parameters()) == before


@pytest.mark.parametrize("kind", ["avfusion", "lr_style"])
def test_a_contender_scores_and_learns(benchmark: ModuleType, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "TRACK_FRAMES", 12)
    entry = benchmark.contender(kind, tiny_config(kind), 2, batch_norm=kind == "lr_style")
    assert entry.parameters > 0
    assert entry.multiply_adds > 0
    for took in (entry.infer(), entry.train()):
        assert took.processor_ms > 0
        assert took.clock_ms > 0


def test_the_command_prints_and_writes_its_rows(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "TRACK_FRAMES", 8)
    monkeypatch.setattr(benchmark.torch, "set_num_threads", lambda _: None)
    config = tmp_path / "tiny.yaml"
    config.write_text("model: {embed_dim: 16, visual: {channels: [4, 4]}}\ndata: {crop_size: 24, clip_frames: 16}\n")
    command = ["speed.py", str(config), "--rounds=1", "--clips=1", f"--json={tmp_path / 'rows.json'}"]
    monkeypatch.setattr(sys, "argv", command)
    benchmark.main()
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["name"] == "tiny"
    assert row["inference_times"] == row["training_times"] == 1.0
    assert "tiny" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*command, "--rounds=0"])
    with pytest.raises(UsageError, match="at least 1"):
        benchmark.main()
    monkeypatch.setattr(sys, "argv", [*command, "--batch-norm=tiny,huge"])
    with pytest.raises(UsageError, match="--batch-norm: huge not measured; expected names out of tiny"):
        benchmark.main()
