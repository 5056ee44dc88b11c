"""Every kind of model learns in the one trainer, and its run is scored, reported and loaded again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from avfusion.checkpoint import load_model, save_checkpoint
from avfusion.config import Config
from avfusion.data.batching import Batch, collate
from avfusion.data.examples import Examples, Request
from avfusion.data.open import open_dataset
from avfusion.distributed import ALONE
from avfusion.errors import AvfusionError
from avfusion.models import build_model, imagenet
from avfusion.training.report import report_run
from avfusion.training.step import Stepper
from tests.models.baselines.planted import LIGHT, TALKNET
from tests.models.baselines.planted import LR as LR_STYLE
from tests.training.tiny import tiny_run, trainer_of

RESNET = ["--model.visual.kind=resnet18", "--model.visual.temporal_kernel=3"]
KINDS = {
    "avfusion": [],
    "resnet18": RESNET,
    "talknet_style": [*TALKNET, "--model.audio.channels=[4,8]"],
    "light_style": [*LIGHT, "--model.audio.channels=[4,8]"],
    "lr_style": [*LR_STYLE, "--model.audio.channels=[4,8]"],
}
LR = {"resnet18": 1e-4}


def batch_of(config: Config) -> Batch:
    examples = Examples(open_dataset(config.data, "train"), config.data)
    spoken = [i for i, track in enumerate(examples.dataset.tracks) if track.speaking.any()][:3]
    return collate([examples[Request(i, 0, min(25, examples.dataset.tracks[i].num_frames))] for i in spoken])


@pytest.mark.parametrize("kind", KINDS)
def test_three_steps_on_one_batch_lower_its_loss(kind: str) -> None:
    config = tiny_run("--model.dropout=0", "--train.warmup=0", f"--train.lr={LR.get(kind, 1e-3)}", *KINDS[kind])
    torch.manual_seed(0)
    model = build_model(config.model, config.data.num_mels)
    stepper = Stepper(model, config, torch.device("cpu"), total_steps=1000)
    batch = batch_of(config)
    losses = [stepper([batch], step)["loss"] for step in range(4)]  # each before its step
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.parametrize("kind", ["talknet_style", "light_style", "lr_style"])
def test_a_run_of_a_baseline_is_trained_reported_and_loaded(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_run(*KINDS[kind], "--report.offset_accuracy=true", epochs=1)
    trainer = trainer_of(config, tmp_path / "run")
    best = trainer.fit()
    assert "memory of a step, estimated: about " in capsys.readouterr().err
    report = report_run(best, config, trainer.val_examples, "val", tmp_path / "run", None, [], world=ALONE)
    assert report["model"]["fusion"] == kind
    assert report["all"]["num_rows"] == sum(len(track.speaking) for track in trainer.val_examples.dataset.tracks)
    model, own, _ = load_model(best)
    assert own.model == config.model
    assert model.state_dict().keys() == trainer.model.state_dict().keys()


def test_training_from_imagenet_starts_there_and_a_checkpoint_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.models import resnet18

    torch.manual_seed(4)
    network = resnet18(weights=None)
    config = tiny_run(*RESNET, "--model.visual.weights=imagenet")
    monkeypatch.setattr(imagenet, "fetch_imagenet", network.state_dict)
    trainer = trainer_of(config, tmp_path / "run")
    assert torch.equal(trainer.model.visual.stages[5].convolve2.weight, network.layer3[1].conv2.weight)
    save_checkpoint(tmp_path / "best.pt", trainer.model, config, {"progress": {}})

    def offline() -> None:
        raise AvfusionError("no network")

    monkeypatch.setattr(imagenet, "fetch_imagenet", offline)
    model, _, _ = load_model(tmp_path / "best.pt")
    assert torch.equal(model.visual.stages[5].convolve2.weight, network.layer3[1].conv2.weight)
    with pytest.raises(AvfusionError, match="no network"):
        trainer_of(config, tmp_path / "other")
