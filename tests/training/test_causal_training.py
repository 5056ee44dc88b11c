"""A causal model trains, and what it has learnt is causal: no gradient and no score knows what comes later."""

from __future__ import annotations

from pathlib import Path

import torch

from avfusion.config import load_config
from avfusion.data.batching import collate
from avfusion.data.examples import Examples, Request
from avfusion.data.open import open_dataset
from avfusion.models import build_model
from avfusion.training.step import Stepper
from tests.training.tiny import tiny_run

LOOKAHEAD = 3


def test_a_causal_model_learns_and_stays_causal() -> None:
    config = tiny_run(
        "--model.causal=true", f"--model.lookahead_frames={LOOKAHEAD}", "--model.dropout=0", "--train.warmup=0"
    )
    torch.manual_seed(0)
    model = build_model(config.model, config.data.num_mels)
    stepper = Stepper(model, config, torch.device("cpu"), total_steps=1000)
    examples = Examples(open_dataset(config.data, "train"), config.data)
    batch = collate([examples[Request(track, 0, 28)] for track in range(8)])
    losses = [stepper([batch], number)["loss"] for number in range(12)]
    assert losses[-1] < 0.95 * losses[0]

    model.eval()
    crops, log_mel = batch.crops.requires_grad_(), batch.log_mel.requires_grad_()
    loss = torch.nn.functional.softplus(model(crops, log_mel).logits)[:, 0, :13].sum()
    seen, heard = torch.autograd.grad(loss, [crops, log_mel])
    assert not seen[:, :, 13 + LOOKAHEAD :].any()
    assert seen[:, :, 12 + LOOKAHEAD].any()
    # The last of a frame's four spectra holds 2.5 ms of the next frame, so it is not heard.
    assert not heard[:, 4 * (13 + LOOKAHEAD) - 1 :].any()
    assert heard[:, 4 * (13 + LOOKAHEAD) - 2].any()

    later = batch.log_mel.detach().clone()
    later[:, 4 * (13 + LOOKAHEAD) - 1 :] = 5.0
    with torch.inference_mode():
        before, after = model(crops, log_mel).logits, model(crops, later).logits
    torch.testing.assert_close(after[:, :, :13], before[:, :, :13], rtol=0, atol=1e-6)
    assert (after - before)[:, :, 13:].abs().max() > 1e-4


def test_the_streaming_configuration_is_causal() -> None:
    model = load_config(Path(__file__).resolve().parents[2] / "configs" / "streaming.yaml").model
    assert model.causal
    assert model.lookahead_frames == 5
