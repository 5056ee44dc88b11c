"""The speaking loss against hand-worked numbers."""

from __future__ import annotations

import math

import pytest
import torch

from avfusion.config import LossConfig
from avfusion.models.losses import loss_counts, loss_terms
from tests.models.losses.examples import detection_of, targets_of, unit


@pytest.mark.parametrize(
    ("name", "key"), [("speaking", "logits"), ("audio", "audio_logits"), ("video", "video_logits")]
)
def test_it_is_the_mean_over_real_frames_of_its_own_logits(name: str, key: str) -> None:
    logits = {key: torch.tensor([[[0.0, 2.0, -50.0]]])}
    mask = torch.tensor([[[True, True, False]]])
    targets = targets_of(torch.tensor([[[True, False, True]]]), mask)
    detection = detection_of(unit(1, 1, 3, 4), unit(1, 3, 4), **logits)
    expected = (math.log(2) + math.log(1 + math.exp(2))) / 2
    assert math.isclose(loss_terms(detection, targets, LossConfig(), [name])[name].item(), expected, rel_tol=1e-6)
    assert loss_counts(targets, LossConfig(), [name])[name].tolist() == [2]


def test_nothing_real_is_zero() -> None:
    nothing = torch.zeros(1, 1, 3, dtype=torch.bool)
    detection = detection_of(unit(1, 1, 3, 4), unit(1, 3, 4))
    assert loss_terms(detection, targets_of(nothing, nothing), LossConfig(), ["speaking"])["speaking"].item() == 0


def test_a_name_that_is_no_term_is_told() -> None:
    targets = targets_of(torch.ones(1, 1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="no loss is called speakin; expected names out of speaking, audio"):
        loss_counts(targets, LossConfig(), ["speakin"])
