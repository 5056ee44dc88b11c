"""The released weights: written from a checkpoint, read as a model that scores alike, and never quietly absent."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import avfusion.released
from avfusion.checkpoint import load_model, save_checkpoint
from avfusion.config import Config
from avfusion.errors import AvfusionError, run_command
from avfusion.models import build_model
from avfusion.models.export_form import SceneSizes
from avfusion.released import export, load_released
from avfusion.weights import write_weights

FACTS = {
    "name": "small",
    "licence": "CC BY 4.0",
    "data": [{"name": "GRID", "licence": "CC BY 4.0", "source": "x", "use": "faces"}],
    "talkers": {"trained_on": ["grid/s1"], "chosen_on": ["grid/s4"]},
}


def small() -> Config:
    config = Config()
    config.model.embed_dim, config.model.visual.channels, config.model.audio.channels = 16, [4, 8], [4]
    config.data.crop_size, config.data.num_mels = 24, 20
    config.data.format, config.data.root, config.run.dir = "prepared", "/home/me/data", "/home/me/runs/x"
    config.data.augment.noise_folder = "/home/me/noise"
    return config


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder: its checkpoint holds averaged weights beside the last ones."""
    last, averaged = (build_model(small().model, 20) for _ in range(2))
    with torch.no_grad():
        for parameter in averaged.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)), alpha=0.1)
    state = {"progress": {"epoch": 7, "step": 90}, "ema": averaged.state_dict()}
    save_checkpoint(tmp_path / "run" / "checkpoints" / "best.pt", last, small(), state)
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    return tmp_path / "run"


def exported(run: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    given = [str(run / "checkpoints" / "best.pt"), f"--facts={run.parent / 'facts.json'}", "--commit=abc123", *more]
    monkeypatch.setattr(sys, "argv", ["export", *given])
    return run_command(export.main)


def test_the_level_of_the_speaking_score_alone_is_moved(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = FACTS | {"level": {"scale": 0.5, "offset": 2.0, "set_on": "clips"}}
    (run.parent / "facts.json").write_text(json.dumps(facts))
    out = run.parent / "small.safetensors"
    assert exported(run, monkeypatch, f"--out={out}") == 0
    assert "level moved by 0.5 * logit + 2" in capsys.readouterr().out
    monkeypatch.setattr(avfusion.released, "RELEASED", out)
    model, config, told = load_released()
    assert told["level"] == facts["level"]
    before, _, _ = load_model(run / "checkpoints" / "best.pt")
    inputs = SceneSizes(1, 2, 12).inputs(config.data.crop_size, config.data.num_mels)
    with torch.inference_mode():
        moved, as_it_was = model.eval()(*inputs), before.eval()(*inputs)
    torch.testing.assert_close(moved.logits, 0.5 * as_it_was.logits + 2.0, atol=1e-5, rtol=0)
    torch.testing.assert_close(moved.audio_logits, as_it_was.audio_logits, atol=0, rtol=0)
    torch.testing.assert_close(moved.video_logits, as_it_was.video_logits, atol=0, rtol=0)


@pytest.mark.parametrize(
    "level",
    [
        {"scale": 0.0, "offset": 1.0, "set_on": "x"},
        {"scale": 1.0, "set_on": "x"},
        [1.0, 2.0],
        {"scale": "1", "offset": 0, "set_on": "x"},
        {"scale": 1.0, "offset": 1.0},
    ],
)
def test_a_level_that_is_none_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: object
) -> None:
    (run.parent / "facts.json").write_text(json.dumps(FACTS | {"level": level}))
    assert exported(run, monkeypatch, f"--out={run.parent / 'x.safetensors'}") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "level: expected an object with a scale above 0, an offset, and set_on" in said


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"talkers": {"chosen_on": ["grid/s4"]}}, "talkers: expected trained_on, a list of corpus/talker"),
        (
            {"data": [{"name": "GRID", "licence": "CC BY 4.0"}]},
            "data: expected objects with name, licence, source, use",
        ),
        ({"data": ["GRID"]}, "data: expected objects with name, licence, source, use"),
        ({"talkers": {}}, "expected 'talkers', a dict with something in it"),
    ],
)
def test_facts_that_a_card_could_not_be_filled_from_are_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], part: dict[str, object], said: str
) -> None:
    (run.parent / "facts.json").write_text(json.dumps(FACTS | part))
    assert exported(run, monkeypatch, f"--out={run.parent / 'x.safetensors'}") == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert said in told
    assert not (run.parent / "x.safetensors").exists()


def test_the_released_model_scores_as_the_averaged_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run.parent / "small.safetensors"
    assert exported(run, monkeypatch, f"--out={out}") == 0
    monkeypatch.setattr(avfusion.released, "RELEASED", out)
    model, config, facts = load_released()
    averaged, own, _ = load_model(run / "checkpoints" / "best.pt")
    assert export.difference_of(model, averaged, config) == 0.0
    assert not model.training
    assert (config.model, config.data.crop_size, config.data.num_mels) == (own.model, 24, 20)
    assert facts["talkers"] == FACTS["talkers"]
    assert (facts["commit"], facts["epoch"], facts["averaged_weights"]) == ("abc123", 7, True)
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert b"/home/me" not in out.read_bytes()
    assert sorted(path.name for path in run.parent.iterdir()) == ["facts.json", "run", "small.safetensors"]


def test_it_serves_as_a_checkpoint(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run.parent / "small.safetensors"
    exported(run, monkeypatch, f"--out={out}")
    model, _, content = load_model(out)
    assert content["progress"] == {"epoch": 7, "step": 90}
    averaged, _, _ = load_model(run / "checkpoints" / "best.pt")
    assert all(
        torch.equal(a, b) for a, b in zip(averaged.state_dict().values(), model.state_dict().values(), strict=True)
    )


def test_figures_of_the_run_come_along(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"average_precision": 0.5, "average_precision_interval": [0.4, 0.6]}
    report = {"data": {"name": "d", "root": "/home/me/d"}, "split": "val", "all": figures}
    (run / "report.json").write_text(json.dumps(report))
    out = run.parent / "small.safetensors"
    assert exported(run, monkeypatch, f"--out={out}") == 0
    assert load_model(out)[2]["facts"]["validation"] == {"dataset": {"name": "d"}, "split": "val", **figures}
    (run / "report.json").write_text("{}")
    assert exported(run, monkeypatch, f"--out={run.parent / 'other.safetensors'}") == 1


def test_what_scores_otherwise_is_not_written(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rounded(path: Path, weights: dict[str, torch.Tensor], about: dict[str, object]) -> None:
        write_weights(path, {name: value.half().float() for name, value in weights.items()}, about)

    monkeypatch.setattr(export, "write_weights", rounded)
    assert exported(run, monkeypatch, f"--out={run.parent / 'small.safetensors'}") == 1
    assert "not written: what was read back scores otherwise" in capsys.readouterr().err
    assert sorted(path.name for path in run.parent.iterdir()) == ["facts.json", "run"]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("[]", "expected a JSON object, found a list"),
        ("{", "cannot be read as JSON"),
        (json.dumps(FACTS | {"data": []}), "expected 'data', a list with something in it"),
        (json.dumps({k: v for k, v in FACTS.items() if k != "talkers"}), "expected 'talkers', a dict"),
    ],
)
def test_facts_are_asked_for(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], facts: str, message: str
) -> None:
    (run.parent / "facts.json").write_text(facts)
    assert exported(run, monkeypatch, f"--out={run.parent / 'x.safetensors'}") == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (run.parent / "x.safetensors").exists()


def test_absent_and_damaged_weights_are_told_in_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "small.safetensors"
    monkeypatch.setattr(avfusion.released, "RELEASED", out)
    with pytest.raises(AvfusionError, match=r"no released checkpoint .*--checkpoint=RUN/checkpoints/best\.pt"):
        load_released()
    exported(run, monkeypatch, f"--out={out}")
    content = bytearray(out.read_bytes())
    content[-3] ^= 4
    out.write_bytes(content)
    with pytest.raises(AvfusionError, match=r"its checksum is another: damaged\); install avfusion again"):
        load_released()


def test_weights_that_rebuild_no_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    write_weights(path, {"a": torch.zeros(1)}, {"config": {}})
    with pytest.raises(AvfusionError, match="their header lacks progress, facts"):
        load_model(path)
