"""Checkpoints: whole, safe to load, and never quietly wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from avfusion.checkpoint import (
    encoders_in_words,
    encoders_record,
    load_encoders,
    load_model,
    load_weights,
    read_checkpoint,
    save_checkpoint,
)
from avfusion.config import Config
from avfusion.errors import AvfusionError, UsageError
from avfusion.models import build_model


def small() -> Config:
    config = Config()
    config.model.embed_dim, config.model.visual.channels, config.model.audio.channels = 16, [4, 8], [4]
    config.model.visual.temporal_kernel = 3
    config.data.root = None
    return config


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    model = build_model(small().model, 64)
    path = tmp_path / "checkpoints" / "last.pt"
    save_checkpoint(path, model, small(), {"progress": {"epoch": 3}, "optimizer": {}})
    return path, model


def test_it_rebuilds_its_model_alone(saved: tuple[Path, torch.nn.Module]) -> None:
    path, model = saved
    rebuilt, config, content = load_model(path)
    assert config == small()
    assert content["progress"] == {"epoch": 3}
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), rebuilt.state_dict().values(), strict=True)
    )
    assert not rebuilt.training


def test_it_loads_with_weights_only(saved: tuple[Path, torch.nn.Module]) -> None:
    assert torch.load(saved[0], weights_only=True)["format"] == 2


def test_writing_leaves_no_draft_and_failing_leaves_the_old_file(saved: tuple[Path, torch.nn.Module]) -> None:
    path, model = saved
    before = path.read_bytes()
    with pytest.raises(Exception, match=r"pickle|lambda"):
        save_checkpoint(path, model, small(), {"bad": lambda: None})  # type: ignore[arg-type]
    assert path.read_bytes() == before
    save_checkpoint(path, model, small(), {})
    assert [p.name for p in path.parent.iterdir()] == ["last.pt"]


def test_a_data_parallel_prefix_is_taken_off(saved: tuple[Path, torch.nn.Module]) -> None:
    path, model = saved
    other = build_model(small().model, 64)
    load_weights(other, {f"module.{key}": value for key, value in model.state_dict().items()}, path)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_missing_unknown_and_misshapen_weights_are_listed(saved: tuple[Path, torch.nn.Module]) -> None:
    path, model = saved
    weights = dict(model.state_dict())
    del weights["head.weight"]
    weights["tail.weight"] = torch.zeros(1)
    weights["head.bias"] = torch.zeros(2)
    with pytest.raises(AvfusionError) as error:
        load_weights(build_model(small().model, 64), weights, path)
    assert "missing head.weight" in str(error.value)
    assert "unknown tail.weight" in str(error.value)
    assert "head.bias is (2,), expected (1,)" in str(error.value)


def test_damage_is_named(saved: tuple[Path, torch.nn.Module]) -> None:
    path, _ = saved
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(AvfusionError, match=r"last\.pt: cannot be read as a checkpoint"):
        read_checkpoint(path)


def test_another_file_is_no_checkpoint(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "other.pt")
    with pytest.raises(AvfusionError, match="expected an avfusion checkpoint of format 2, found None"):
        read_checkpoint(tmp_path / "other.pt")
    with pytest.raises(UsageError, match="no checkpoint there"):
        read_checkpoint(tmp_path / "none.pt")


def test_a_checkpoint_that_lacks_a_part_is_told(saved: tuple[Path, torch.nn.Module]) -> None:
    path, _ = saved
    content = torch.load(path, weights_only=True)
    del content["progress"]
    torch.save(content, path)
    with pytest.raises(AvfusionError, match="it lacks progress"):
        read_checkpoint(path)


def test_a_full_disk_is_told_and_leaves_the_old_checkpoint(
    saved: tuple[Path, torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = saved
    before = path.read_bytes()

    def fails(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(AvfusionError, match="is the disk full"):
        save_checkpoint(path, model, small(), {})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["last.pt"]


def test_encoders_alone_are_taken_over(saved: tuple[Path, torch.nn.Module]) -> None:
    path, model = saved
    config = small()
    config.model.fusion.kind = "concat"
    torch.manual_seed(1)
    other = build_model(config.model, 64)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    assert load_encoders(other, path, config.data) == []
    theirs = model.state_dict()
    for key, value in other.state_dict().items():
        assert torch.equal(value, theirs[key] if key.startswith(("visual.", "audio.")) else before[key])
    assert any(not torch.equal(before[key], other.state_dict()[key]) for key in before)
    config.model.visual.channels = [4, 12]
    with pytest.raises(AvfusionError, match=r"weights do not fit the model: visual\..* expected"):
        load_encoders(build_model(config.model, 64), path, config.data)


def test_encoders_of_data_parallel_training_are_taken_over(saved: tuple[Path, torch.nn.Module]) -> None:
    path, model = saved
    content = read_checkpoint(path)
    content["model"] = {f"module.{key}": value for key, value in content["model"].items()}
    torch.save(content, path)
    torch.manual_seed(1)
    other = build_model(small().model, 64)
    load_encoders(other, path, small().data)
    theirs = model.state_dict()
    for key, value in other.state_dict().items():
        assert torch.equal(value, theirs[key]) or not key.startswith(("visual.", "audio.")), key


def test_encoders_that_saw_other_pictures_are_noted_and_other_sound_is_refused(
    saved: tuple[Path, torch.nn.Module],
) -> None:
    path, _ = saved
    data = small().data
    data.crop_size, data.region = 64, [0.1, 0.1, 0.9, 0.9]
    notes = load_encoders(build_model(small().model, 64), path, data)
    assert notes == [
        f"{path}: its encoders were trained with data.crop_size 48, here it is 64",
        f"{path}: its encoders were trained with data.region [0.0, 0.0, 1.0, 1.0], here it is [0.1, 0.1, 0.9, 0.9]",
    ]
    data.num_mels = 40
    with pytest.raises(AvfusionError, match=r"hear 64 mel bands, data\.num_mels is 40; give --data\.num_mels=64"):
        load_encoders(build_model(small().model, 40), path, data)


def test_the_record_of_the_encoders_is_what_the_training_read() -> None:
    config = small()
    assert encoders_record({}, config) is None
    assert encoders_in_words(None) == ""
    config.train.encoders = "a/best.pt"
    kept = {"path": "a/best.pt", "sha256": "12ab"}
    assert encoders_record({"encoders": kept}, config) == kept
    assert encoders_in_words(kept) == "encoders trained on from `a/best.pt`, sha256 `12ab`"
    assert encoders_record({}, config) == {"path": "a/best.pt", "sha256": None}


@pytest.mark.parametrize(
    "value",
    [
        "text",
        None,
        1.5,
        torch.zeros(1).to_sparse(),
        torch.zeros(1, device="meta"),
        torch.zeros(1, dtype=torch.complex64),
    ],
    ids=["text", "none", "number", "sparse", "meta", "complex"],
)
def test_weights_that_are_no_numbers_are_told_in_one_line(value: object) -> None:
    model = build_model(small().model, 64)
    weights = dict(model.state_dict()) | {"head.bias": value}
    with pytest.raises(AvfusionError, match=r"x\.pt: weights are damaged: 'head.bias' is no tensor of numbers"):
        load_weights(model, weights, Path("x.pt"))
    with pytest.raises(AvfusionError, match="weights are damaged: 3 is no tensor of numbers"):
        load_weights(model, {**model.state_dict(), 3: torch.zeros(1)}, Path("x.pt"))  # type: ignore[dict-item]


@pytest.mark.parametrize("averaged", ["text", [1.0], 3])
def test_averaged_weights_that_are_none_are_told(saved: tuple[Path, torch.nn.Module], averaged: object) -> None:
    path, _ = saved
    torch.save(torch.load(path, weights_only=True) | {"ema": averaged}, path)
    with pytest.raises(AvfusionError, match=r"not a whole checkpoint of train\.py: it lacks weights under 'ema'"):
        read_checkpoint(path)
