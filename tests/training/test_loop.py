"""Training: it learns, it resumes where it stopped, and it logs plain numbers."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.config import Config
from avfusion.data.open import open_dataset
from avfusion.errors import AvfusionError
from avfusion.training.checkpoint import read_checkpoint, save_checkpoint
from avfusion.training.loop import Trainer
from avfusion.training.optim import build_optimizer, learning_rate_factor


def tiny_run(epochs: int = 2) -> Config:
    config = Config()
    config.run.device, config.wandb.mode = "cpu", "disabled"
    config.data.crop_size, config.data.num_mels = 24, 20
    config.data.synthetic.train_scenes, config.data.synthetic.val_scenes, config.data.synthetic.scene_s = 10, 10, 1.2
    config.data.batch_frames = 150
    config.model.embed_dim, config.model.contrast_dim = 16, 8
    config.model.visual.channels, config.model.audio.channels = [4, 8], [4]
    config.train.epochs = epochs
    return config


def trainer_of(config: Config, folder: Path, resume: bool = False) -> Trainer:
    folder.mkdir(exist_ok=True)
    return Trainer(config, folder, open_dataset(config.data, "train"), open_dataset(config.data, "val"), resume=resume)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_loss_falls_on_what_it_is_shown(tmp_path: Path) -> None:
    config = tiny_run(epochs=40)
    config.model.dropout, config.train.lr, config.data.batch_frames = 0.0, 5e-3, 150
    config.train.loss.contrastive = 0.0
    trainer_of(config, tmp_path / "run").fit()
    losses = [row["train/loss_speaking"] for row in rows_of(tmp_path / "run")]
    assert losses[0] == pytest.approx(math.log(2), abs=0.1)  # heads start undecided
    assert losses[-1] < 0.75 * losses[0]


def test_resumed_equals_unbroken(tmp_path: Path) -> None:
    """Weights, learning rates and best score after 1 + 2 epochs are those of 3 epochs in one go."""
    config = tiny_run(epochs=3)
    config.train.contrastive_epochs = 1
    trainer_of(config, tmp_path / "whole").fit()

    class StopError(Exception):
        pass

    broken = trainer_of(config, tmp_path / "parts")
    save = broken._save

    def save_then_stop(is_best: bool) -> None:
        save(is_best)
        if broken.progress.epoch == 2:
            raise StopError

    broken._save = save_then_stop  # type: ignore[method-assign]
    with pytest.raises(StopError):
        broken.fit()
    torch.manual_seed(12345)  # whatever happened in between must not matter
    trainer_of(config, tmp_path / "parts", resume=True).fit()

    whole, parts = (read_checkpoint(tmp_path / name / "checkpoints" / "last.pt") for name in ("whole", "parts"))
    for key, value in whole["model"].items():
        assert torch.equal(value, parts["model"][key]), key
    assert whole["progress"]["step"] == parts["progress"]["step"]
    assert whole["progress"]["best_ap"] == parts["progress"]["best_ap"]
    keys = ("train/lr", "train/loss", "val/ap", "step")
    assert [[r[k] for k in keys] for r in rows_of(tmp_path / "whole")] == [
        [r[k] for k in keys] for r in rows_of(tmp_path / "parts")
    ]


def test_log_holds_plain_numbers_and_rising_steps(tmp_path: Path) -> None:
    trainer_of(tiny_run(), tmp_path / "run").fit()
    rows = rows_of(tmp_path / "run")
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
    assert all(isinstance(value, int | float) for row in rows for value in row.values())
    assert {"val/ap", "train/loss", "train/loss_contrastive", "train/lr", "train/grad_norm"} <= rows[0].keys()


def test_a_contrastive_epoch_touches_no_speaking_head(tmp_path: Path) -> None:
    config = tiny_run(epochs=1)
    config.train.contrastive_epochs = 1
    trainer = trainer_of(config, tmp_path / "run")
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    trainer._train_epoch(0, contrast_only=True)
    after = trainer.model.state_dict()
    assert torch.equal(before["head.bias"], after["head.bias"])
    assert not torch.equal(before["video_contrast.weight"], after["video_contrast.weight"])
    assert sorted(trainer.sampler.speaking) == [
        i for i, t in enumerate(trainer.examples.dataset.tracks) if t.speaking.any()
    ]


def test_a_loss_that_is_not_finite_stops_and_names_its_clips(tmp_path: Path) -> None:
    trainer = trainer_of(tiny_run(), tmp_path / "run")
    with torch.no_grad():
        trainer.model.head.bias.fill_(math.nan)
    with pytest.raises(AvfusionError, match=r"the loss is nan at step 0, in a batch of train_"):
        trainer.fit()
    assert not (tmp_path / "run" / "checkpoints" / "last.pt").exists()


@pytest.mark.parametrize(("modality", "other"), [("video", "audio"), ("audio", "visual")])
def test_baselines_learn_nothing_from_the_other_stream(tmp_path: Path, modality: str, other: str) -> None:
    config = tiny_run(epochs=1)
    config.model.modality, config.train.contrastive_epochs, config.train.weight_decay = modality, 1, 0.0
    trainer = trainer_of(config, tmp_path / "run")
    before = {key: value.clone() for key, value in trainer.model.state_dict().items() if key.startswith(f"{other}.")}
    trainer.fit()
    after = trainer.model.state_dict()
    assert before
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    (row,) = rows_of(tmp_path / "run")  # no contrastive epoch
    assert "train/loss_contrastive" not in row
    assert 0 < row["val/ap"] <= 1


def test_killed_between_its_two_checkpoints_a_run_still_ends_with_a_best_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from avfusion.training import loop

    written: list[str] = []

    def write_one_then_die(path: Path, *arguments: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(path.name)
        save_checkpoint(path, *arguments)

    monkeypatch.setattr(loop, "save_checkpoint", write_one_then_die)
    with pytest.raises(KeyboardInterrupt):
        trainer_of(tiny_run(), tmp_path / "run").fit()
    monkeypatch.undo()
    best = trainer_of(tiny_run(), tmp_path / "run", resume=True).fit()
    assert best.is_file()
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "last.pt")["progress"]["epoch"] == 2


def test_half_precision_trains(tmp_path: Path) -> None:
    config = tiny_run(epochs=1)
    config.train.precision = "bfloat16"
    trainer_of(config, tmp_path / "run").fit()
    row = rows_of(tmp_path / "run")[0]
    assert math.isfinite(row["train/loss"])
    assert row["train/loss_speaking"] == pytest.approx(math.log(2), abs=0.1)


def test_learning_rate_warms_up_and_falls() -> None:
    factors = [learning_rate_factor(step, 100, 0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert factors[9] == max(factors)
    assert all(a > b for a, b in pairwise(factors[10:]))
    assert factors[-1] == pytest.approx(0.01, abs=0.002)
    assert factors[55] == pytest.approx(0.01 + 0.99 * 0.5, abs=1e-9)


def test_only_matrices_decay() -> None:
    config = tiny_run()
    from avfusion.models import build_model

    model = build_model(config.model, 20)
    decay, keep = build_optimizer(model, config.train).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for p in decay["params"]} | {names[id(p)] for p in keep["params"]} == set(names.values())
    kept = {names[id(p)] for p in keep["params"]}
    assert "fusion.0.video_from_audio.null_key" in kept
    assert "fusion.0.video_from_audio.norm.scale" in kept
    assert "head.bias" in kept
    assert keep["weight_decay"] == 0
