"""The benchmark's command line: which trainings it plans, and what it refuses."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from avfusion.config import load_config
from avfusion.errors import AvfusionError, UsageError, run_command

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "correspondence.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("correspondence", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["correspondence"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["correspondence"]


def test_every_model_gets_every_seed(benchmark):
    runs = benchmark.plan_runs(Path("out"), "full,audio", "0,7")
    assert [str(run.folder) for run in runs] == ["out/full-0", "out/audio-0", "out/full-7", "out/audio-7"]


def test_each_variant_is_a_valid_configuration_that_differs_from_the_full_model(benchmark):
    models = {name: load_config(benchmark.DEFAULT_CONFIG, given).model for name, given in benchmark.MODELS.items()}
    assert models["concat"].fusion.kind == "concat"
    assert models["one_head"].fusion.heads == 1
    assert (models["video"].modality, models["audio"].modality) == ("video", "audio")
    assert models["full"] == load_config(benchmark.DEFAULT_CONFIG).model
    assert sum(models[name] == models["full"] for name in models) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models=full,foo"], "'foo' is none of full, concat"),
        (["--seeds=0,-1"], "'-1' is no seed"),
        (["--seeds=1,1"], "named twice"),
        (["--run.seed=3"], "--run.seed is chosen for each training"),
        (["--train.epoks=3"], "no such key. Did you mean 'epochs'?"),
        (["--table-only"], "no finished training"),
        (["--table-only", "--train.epochs=1"], "leave out --train.epochs=1"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(benchmark, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["correspondence.py", str(tmp_path / "out"), *arguments])
    assert run_command(benchmark.main) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_finished_training_with_other_settings_is_not_mixed_in(benchmark, tmp_path):
    from avfusion.config import to_yaml

    (run,) = benchmark.plan_runs(tmp_path, "full", "0")
    run.folder.mkdir()
    there = load_config(benchmark.DEFAULT_CONFIG, ["--train.epochs=2", "--run.dir=elsewhere"])
    (run.folder / "config.yaml").write_text(to_yaml(there), encoding="utf-8")
    (run.folder / "report.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"other settings is there \(train.epochs: 2, now 3\)"):
        benchmark.train(run, benchmark.DEFAULT_CONFIG, [], load_config(benchmark.DEFAULT_CONFIG, ["--train.epochs=3"]))
    benchmark.train(run, benchmark.DEFAULT_CONFIG, [], load_config(benchmark.DEFAULT_CONFIG, ["--train.epochs=2"]))
    assert not (run.folder / "minutes.json").exists()  # kept as it is, nothing was run


def test_a_damaged_file_is_named(benchmark, tmp_path):
    (run,) = benchmark.plan_runs(tmp_path, "full", "0")
    run.folder.mkdir()
    assert benchmark.read_minutes(run) == 0.0
    (run.folder / "minutes.json").write_text('{"minutes": 3', encoding="utf-8")
    with pytest.raises(AvfusionError, match=r"minutes.json: damaged"):
        benchmark.read_minutes(run)
