"""A step does not depend on how its clips are dealt out: to parts here, to processes in test_torchrun."""

from __future__ import annotations

import pytest
import torch

from avfusion.config import Config
from avfusion.data.batching import Batch, TrainingSampler, collate
from avfusion.data.examples import Examples
from avfusion.data.open import open_dataset
from avfusion.models import build_model
from avfusion.training.step import Stepper
from avfusion.training.step_loss import leaves_weights_unused, loss_weights
from tests.training.tiny import tiny_run

EVERYTHING = (
    "--train.loss.sync=0.5",
    "--train.loss.null=0.5",
    "--train.loss.guided=0.5",
    "--train.loss.negatives=clip",
)


def stepper_of(config: Config) -> Stepper:
    torch.manual_seed(0)
    return Stepper(build_model(config.model, config.data.num_mels), config, torch.device("cpu"), total_steps=10)


def batches_of(config: Config, accumulate: int) -> list[list[Batch]]:
    """The parts of the first steps of an epoch, for one process."""
    examples = Examples(open_dataset(config.data, "train"), config.data, augment=True)
    lengths = [track.num_frames for track in examples.dataset.tracks]
    frames = config.data.batch_frames // accumulate
    sampler = TrainingSampler(lengths, config.data.clip_frames, frames, 0, accumulate=accumulate)
    sizes = (config.data.crop_size, config.data.num_mels)
    return [
        [collate([examples[request] for request in part], *sizes) for part in sampler.parts(step, 0)]
        for step in sampler.steps(0)
    ]


@pytest.mark.parametrize("accumulate", [2, 3])
def test_parts_that_add_up_take_the_steps_of_the_whole(accumulate: int) -> None:
    """Every term on; the last step is a single clip, so its other parts are empty."""
    config = tiny_run(*EVERYTHING, "--model.dropout=0", "--data.batch_frames=150")
    whole, parted = stepper_of(config), stepper_of(config)
    steps = batches_of(config, 1), batches_of(config, accumulate)
    assert len(steps[0]) == len(steps[1])
    assert [part.requests for step in steps[1] for part in step].count([]) == accumulate - 1
    for number, (one, several) in enumerate(zip(*steps, strict=True)):
        first, second = whole(one, number), parted(several, number)
        assert first.keys() == second.keys()
        assert {"loss_sync", "loss_null", "loss_guided"} <= first.keys()
        for key, value in first.items():
            assert second[key] == pytest.approx(value, rel=2e-5, abs=1e-6), key
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(parted.model.state_dict()[name], value, rtol=0, atol=2e-4)


def test_a_share_of_nothing_adds_nothing() -> None:
    config = tiny_run(*EVERYTHING, "--model.dropout=0", "--train.lr=0")
    (one, *_), *_ = batches_of(config, 1)
    alone = stepper_of(config)([one], 0)
    beside = stepper_of(config)([one, collate([], config.data.crop_size, config.data.num_mels)], 0)
    assert beside == pytest.approx(alone, rel=1e-6)


def test_which_terms_count() -> None:
    config = tiny_run("--train.loss.guided=0.1", "--train.loss.guided_steps=3", "--train.loss.audio=0")
    assert loss_weights(config, 2) == {"speaking": 1.0, "video": 0.2, "contrastive": 0.5, "guided": 0.1}
    assert loss_weights(config, 3) == {"speaking": 1.0, "video": 0.2, "contrastive": 0.5}
    assert loss_weights(config, 0, contrast_only=True) == {"contrastive": 1.0}
    assert loss_weights(tiny_run("--model.modality=video"), 0) == {"speaking": 1.0}


@pytest.mark.parametrize(
    ("overrides", "unused"),
    [
        ([], False),
        (["--train.loss.audio=0"], True),
        (["--train.loss.contrastive=0"], True),
        (["--train.contrastive_epochs=1"], True),
        (["--model.modality=audio"], True),
        (["--model.speaker.layers=1"], True),  # faces that are alone pass the attention between faces by
    ],
)
def test_weights_left_without_a_gradient_are_known_beforehand(overrides: list[str], unused: bool) -> None:
    config = tiny_run(*overrides)
    assert leaves_weights_unused(config) == unused
    stepper = stepper_of(config)
    (parts, *_) = batches_of(config, 1)
    stepper(parts, 0, contrast_only=config.train.contrastive_epochs > 0)
    assert any(parameter.grad is None for parameter in stepper.model.parameters()) == unused
