"""Encoders that are held still: they do not move, cost no backward pass, and are asked once for each clip."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from avfusion.checkpoint import read_checkpoint
from avfusion.config import AugmentConfig
from avfusion.errors import AvfusionError
from avfusion.training.held_still import RememberedEmbeddings, can_remember, changes_clips
from avfusion.training.replay import replay
from tests.training.tiny import tiny_run, trainer_of

HELD = ["--train.lr_scale.visual=0", "--train.lr_scale.audio=0", "--model.dropout=0"]
PLAIN = [
    f"--data.augment.{key}=0" for key in ("flip", "shift", "zoom", "brightness", "noise", "gain_db", "audio_noise")
]


def test_embeddings_kept_from_the_first_epoch_train_the_same_model(tmp_path: Path) -> None:
    """Clips of two lengths and scenes of two faces, padded beside each other in ever new batches."""
    found, asked = [], []
    for room_gb in (0.0, 1.0):
        config = tiny_run(*HELD, *PLAIN, f"--data.cache_gb={room_gb}", "--data.faces=2", epochs=3)
        trainer = trainer_of(config, tmp_path / str(room_gb))
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        calls = []
        trainer.model.visual.register_forward_hook(lambda *_, calls=calls: calls.append(torch.is_grad_enabled()))
        trainer.fit()
        after = trainer.model.state_dict()
        moved = {name.partition(".")[0] for name in after if not torch.equal(after[name], before[name])}
        assert {"visual", "audio"}.isdisjoint(moved)
        assert {"fusion", "temporal", "head"} <= moved
        assert not any(calls)  # never with a gradient
        found.append(after)
        asked.append(len(calls))
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-4, atol=1e-5, msg=name)
    assert asked[1] < asked[0]


def test_one_encoder_held_still_lets_the_other_learn(tmp_path: Path) -> None:
    trainer = trainer_of(tiny_run("--train.lr_scale.visual=0", epochs=1), tmp_path)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.fit()
    moved = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    assert not any(name.startswith("visual.") for name in moved)
    assert any(name.startswith("audio.") for name in moved)


@pytest.mark.parametrize("key", ["flip", "speed", "drop_audio", "gain_db"])
def test_any_augmentation_forbids_to_remember(key: str) -> None:
    assert can_remember(tiny_run(*HELD, *PLAIN))
    assert not can_remember(tiny_run(*HELD, *PLAIN, f"--data.augment.{key}=0.1"))
    assert not can_remember(tiny_run(*HELD, *PLAIN, "--model.dropout=0.1"))
    assert not can_remember(tiny_run(*HELD[1:], *PLAIN))
    assert changes_clips(AugmentConfig())


def test_room_that_is_full_forgets_nothing_and_keeps_nothing_more(tmp_path: Path) -> None:
    config = tiny_run(*HELD, *PLAIN)
    trainer = trainer_of(config, tmp_path)
    first, second = (trainer.sampler.parts(step, 0)[0] for step in trainer.sampler.steps(0)[:2])
    batches = list(trainer.batches)
    one_clip = 30 * 16 * 4 + 120 * 16 * 4  # 1.2 s of pictures and of sound, 16 features of 4 bytes
    remembered = RememberedEmbeddings(trainer.model.eval(), room_gb=(len(first) + 0.5) * one_clip / 1e9)
    by_plan = {tuple(r.track for r in batch.requests): batch for batch in batches}
    kept, not_kept = (by_plan[tuple(r.track for r in part)] for part in (first, second))
    calls: list[int] = []
    trainer.model.visual.register_forward_hook(lambda *_: calls.append(1))
    seen, heard = remembered(kept, None, None)
    again_seen, again_heard = remembered(kept, None, None)
    assert len(calls) == len(first)  # scene by scene
    assert torch.equal(seen, again_seen)
    assert torch.equal(heard, again_heard)
    remembered(not_kept, None, None)
    remembered(not_kept, None, None)
    assert len(calls) == len(first) + 2 * len(second)


def test_a_run_that_goes_on_without_its_memory_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    """To the last bit, in batches that bring scenes of one and two faces and of two lengths together."""
    roles = "--data.synthetic.roles=[solo,listener,overlap]"
    config = tiny_run(*HELD, *PLAIN, roles, "--data.faces=2", "--train.ema=0.9", epochs=3)
    whole, stopped = (trainer_of(config, tmp_path / name) for name in ("whole", "stopped"))
    whole.fit()
    stopped.epochs = 2  # its plan is that of three
    stopped.fit()
    assert stopped.logger is not None
    stopped.logger.close()
    resumed = trainer_of(config, tmp_path / "stopped", resume=True)
    resumed.fit()
    for model, other in ((whole.model, resumed.model), (whole.stepper.scored_model, resumed.stepper.scored_model)):
        for name, value in model.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_a_replayed_step_is_looked_into_from_the_encoders_on(tmp_path: Path) -> None:
    config = tiny_run(*HELD, *PLAIN, epochs=1)
    trainer = trainer_of(config, tmp_path / "run")
    with torch.no_grad():
        trainer.model.visual.project.bias.fill_(torch.nan)
    with pytest.raises(AvfusionError, match="--replay"):
        trainer.fit()
    path = tmp_path / "run" / "replay" / "step-0.pt"
    content = read_checkpoint(path)
    again = trainer_of(config, tmp_path / "again")
    again.model.load_state_dict(content["model"])
    found = replay(again.stepper, again.examples, content, path)
    assert {clip.first_bad for clip in found.clips} == {"visual.project"}
