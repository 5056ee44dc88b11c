"""Training: it learns, stops when told, and logs plain numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from avfusion.checkpoint import load_model, read_checkpoint
from avfusion.errors import AvfusionError, UsageError
from avfusion.training.replay import replay
from avfusion.training.run_folder import hold_run_folder
from tests.training.tiny import rows_of, run_script, tiny_run, trainer_of


def test_loss_falls_on_what_it_is_shown(tmp_path: Path) -> None:
    config = tiny_run(epochs=40)
    config.model.dropout, config.train.lr, config.data.batch_frames = 0.0, 5e-3, 150
    config.train.loss.contrastive = 0.0
    trainer_of(config, tmp_path / "run").fit()
    losses = [row["train/loss_speaking"] for row in rows_of(tmp_path / "run")]
    assert losses[0] == pytest.approx(math.log(2), abs=0.1)  # heads start undecided
    assert losses[-1] < 0.75 * losses[0]


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
    trainer._train_epoch(0.0)
    after = trainer.model.state_dict()
    assert torch.equal(before["head.bias"], after["head.bias"])
    assert not torch.equal(before["video_contrast.weight"], after["video_contrast.weight"])
    assert sorted(trainer.sampler.speaking) == [
        i for i, t in enumerate(trainer.examples.dataset.tracks) if t.speaking.any()
    ]


def test_a_loss_that_is_not_finite_stops_and_can_be_replayed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trainer = trainer_of(tiny_run("--train.accumulate=2", "--model.dropout=0.5"), run)
    with torch.no_grad():
        trainer.model.temporal[0].feed_forward[1].bias.fill_(math.inf)
    step = trainer.sampler.steps(0)[0]
    with pytest.raises(AvfusionError, match=r"not finite \(speaking nan\) at step 0, in a batch of train_.*--replay"):
        trainer.fit()
    assert not (run / "checkpoints" / "last.pt").exists()
    kept = json.loads((run / "replay" / "step-0.json").read_text())
    assert [clip["track"] for part in kept["parts"] for clip in part["clips"]] == [
        request.track for number in range(2) for request in step[number::2]
    ]
    assert {part["loss"] for part in kept["parts"]} == {"nan"}
    found = run_script("train.py", "--replay", str(run / "replay" / "step-0.pt"))
    assert found.returncode == 0, found.stderr
    assert "speaking nan" in found.stdout
    assert found.stdout.count("first in temporal.0.feed_forward.1") == len(step)


def test_a_gradient_that_is_not_finite_stops_too(tmp_path: Path) -> None:
    trainer = trainer_of(tiny_run(), tmp_path / "run")
    trainer.model.head.weight.register_hook(lambda gradient: gradient * math.nan)
    before = trainer.model.head.weight.detach().clone()
    with pytest.raises(AvfusionError, match=r"the gradient's norm is nan at step 0"):
        trainer.fit()
    assert torch.equal(trainer.model.head.weight, before)


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


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains(tmp_path: Path, precision: str) -> None:
    trainer = trainer_of(tiny_run(f"--train.precision={precision}", "--train.channels_last=true", epochs=1), tmp_path)
    trainer.fit()
    row = rows_of(tmp_path)[0]
    assert ("train/loss_scale" in row) == (precision == "float16")
    assert math.isfinite(row["train/loss"])
    assert row["train/loss_speaking"] == pytest.approx(math.log(2), abs=0.1)


def test_half_precision_that_overflows_at_any_scale_stops(tmp_path: Path) -> None:
    """A scaler halves its scale at every overflow; a gradient that is never finite must not go on so for ever."""
    trainer = trainer_of(tiny_run("--train.precision=float16", "--train.log_steps=1", epochs=20), tmp_path)
    trainer.model.head.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(AvfusionError, match=r"the gradient's norm is (nan|inf) at step 1[67]"):
        trainer.fit()
    rows = rows_of(tmp_path)
    assert all("train_step/grad_norm" not in row for row in rows)
    assert [row["train_step/overflow"] for row in rows if "train_step/overflow" in row] == [1.0] * 16


def test_means_are_over_the_steps_that_have_a_figure(tmp_path: Path) -> None:
    """A loss that is on for the first step only keeps that step's value as its mean."""
    options = ["--train.loss.guided=1", "--train.loss.guided_steps=1", "--train.log_steps=1", "--data.batch_frames=60"]
    trainer_of(tiny_run(*options, epochs=1), tmp_path).fit()
    first, *_, epoch = rows_of(tmp_path)
    assert epoch["train/loss_guided"] == pytest.approx(first["train_step/loss_guided"])


def test_a_replayed_step_draws_the_masks_it_drew(tmp_path: Path) -> None:
    """Two parts with dropout, of which the first is not finite: the terms of the step come out as they were."""
    config = tiny_run("--train.accumulate=2", "--model.dropout=0.5", "--data.batch_frames=60")
    trainer = trainer_of(config, tmp_path)
    batches = iter(trainer.batches)
    parts = [next(batches), next(batches)]
    parts[0].log_mel[0, 0, 0] = math.nan
    clip, frame = parts[0].requests[0], trainer.examples
    read = type(frame).__getitem__

    def spoilt(self: object, request: object) -> object:
        example = read(self, request)  # type: ignore[arg-type]
        if request == clip:
            example.log_mel[0, 0] = math.nan
        return example

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(frame), "__getitem__", spoilt)
        with pytest.raises(AvfusionError, match="--replay"):
            trainer.fit()
        path = tmp_path / "replay" / "step-0.pt"
        content = read_checkpoint(path)
        again = trainer_of(config, tmp_path / "again")
        found = replay(again.stepper, again.examples, content, path)
    recorded = content["replay"]["terms"]
    assert {key: str(value) for key, value in found.terms.items()} == recorded
    assert sum(math.isfinite(value) for value in found.terms.values()) >= 1
    assert found.clips[0].first_bad == "its log-mel"


def test_it_stops_when_validation_no_longer_gains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights that never move give the same AP in every epoch: the first is the best, two more bring nothing."""
    config = tiny_run("--train.patience=2", "--train.contrastive_epochs=1", epochs=9)
    for part in ("visual", "audio", "fusion", "temporal", "heads"):
        setattr(config.train.lr_scale, part, 0.0)
    trainer_of(config, tmp_path).fit()
    assert [row["epoch"] for row in rows_of(tmp_path)] == [1, 2, 3, 4]
    assert "stopped early: no better validation AP for 2 epochs" in capsys.readouterr().err
    trainer_of(config, tmp_path, resume=True).fit()
    assert len(rows_of(tmp_path)) == 4


def test_the_averaged_weights_are_scored_and_kept(tmp_path: Path) -> None:
    """An average that hardly moves stays near the weights it began with, and that is the checkpoint's model."""
    config = tiny_run("--train.ema=0.5", "--train.lr=0.05", epochs=1)
    trainer = trainer_of(config, tmp_path)
    trainer.fit()
    content = read_checkpoint(tmp_path / "checkpoints" / "best.pt")
    model, _, _ = load_model(tmp_path / "checkpoints" / "best.pt")
    average = trainer.stepper.ema
    assert average is not None
    for name, value in model.state_dict().items():
        assert torch.equal(value, average.model.state_dict()[name]), name
        assert torch.equal(value, content["ema"][name]), name
    assert not torch.equal(content["ema"]["head.weight"], content["model"]["head.weight"])


def test_rows_between_epochs_are_means_of_their_own_steps(tmp_path: Path) -> None:
    config = tiny_run("--train.log_steps=2", "--data.batch_frames=60", epochs=1)
    trainer = trainer_of(config, tmp_path)
    said: list[float] = []
    step = trainer.stepper

    def listen(*arguments: object) -> dict[str, float]:
        numbers = step(*arguments)  # type: ignore[arg-type]
        said.append(numbers["loss"])
        return numbers

    trainer.stepper = listen  # type: ignore[assignment]
    listen.scored_model, listen.ema, listen.state = step.scored_model, None, step.state  # type: ignore[attr-defined]
    trainer.fit()
    *between, epoch = rows_of(tmp_path)
    assert len(said) > 4
    assert [row["step"] for row in between] == list(range(2, len(said) + 1, 2))
    for row in between:
        assert row["train_step/loss"] == pytest.approx(sum(said[row["step"] - 2 : row["step"]]) / 2)
    assert epoch["train/loss"] == pytest.approx(sum(said) / len(said))


def test_an_epoch_tells_its_speed_its_waiting_and_its_memory(tmp_path: Path) -> None:
    trainer_of(tiny_run(epochs=1), tmp_path).fit()
    (row,) = rows_of(tmp_path)
    assert row["train/frames_per_s"] > 0
    assert 0 < row["train/data_wait_percent"] < 100
    assert 50 < row["train/peak_memory_mb"] < 20_000
    assert row["train/param_norm"] > 0


def test_a_run_folder_is_held_by_one_process(tmp_path: Path) -> None:
    with hold_run_folder(tmp_path):
        second = hold_run_folder(tmp_path)
        with pytest.raises(UsageError, match="another process is training there"):
            second.__enter__()
    with hold_run_folder(tmp_path):
        pass
