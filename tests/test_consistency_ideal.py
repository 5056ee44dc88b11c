"""The temporal block alone on a voice over a minute: what it is told, how far it looks, and that it can learn it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from avfusion.errors import run_command
from benchmarks import consistency_ideal
from benchmarks.consistency import ARMS
from benchmarks.consistency_ideal import Listener, Tracks, Voices, learn, ready, scores_of
from benchmarks.returning_frames import Frames


def mask(text: str) -> np.ndarray:
    """``01..`` each character for five frames."""
    return np.repeat([character == "1" for character in text], 5)


class Plain:
    """Voices that are the features themselves."""

    def of(self, features: np.ndarray, heard: np.ndarray) -> np.ndarray:
        return np.where(heard[:, None], features, 0).reshape(-1, 5, features.shape[1]).mean(axis=1).astype(np.float32)


def tokens_by_hand(person: bool, of_voice: str = "") -> np.ndarray:
    """Six tokens: own in view, other in view, own hidden, other hidden, hidden and silent, silent in view."""
    own, other = mask("101000"), mask("010100")
    frames = Frames(person, mask("001110"), own, other, near=own)
    dataset = SimpleNamespace(tracks=[SimpleNamespace(speaking=own & person)])
    heard = np.where(own, 5.0, 7.0)[:, None]
    return ready(dataset, [frames], [heard], Plain(), of_voice).tokens[0]  # type: ignore[arg-type]


def test_a_token_is_told_what_can_be_seen_and_heard() -> None:
    np.testing.assert_array_equal(
        tokens_by_hand(True),
        # seen, hidden, audible, voice
        [[1, 0, 1, 5], [-1, 0, 1, 7], [0, 1, 1, 5], [0, 1, 1, 7], [0, 1, 0, 0], [0, 0, 0, 0]],
    )
    # The face that stays is in view all the time, and never talks.
    np.testing.assert_array_equal(
        tokens_by_hand(False),
        [[-1, 0, 1, 5], [-1, 0, 1, 7], [-1, 0, 1, 5], [-1, 0, 1, 7], [0, 0, 0, 0], [0, 0, 0, 0]],
    )
    # Silenced in view, there is no voice to remember.
    np.testing.assert_array_equal(tokens_by_hand(True, "silenced")[:2], 0)
    np.testing.assert_array_equal(tokens_by_hand(True, "silenced")[2:4, 3], [5, 7])


def test_voices_are_means_over_the_heard_frames_in_units_of_their_spread() -> None:
    rng = np.random.default_rng(0)
    own, other = np.zeros(500, dtype=bool), np.zeros(500, dtype=bool)
    own[:200], other[250:450] = True, True
    frames = Frames(True, np.zeros(500, dtype=bool), own, other, own)
    features = [rng.normal(size=(500, 20)) + 3.0 * own[:, None] * (np.arange(20) < 2) for _ in range(10)]
    voices = Voices(features, [frames] * 10)
    found = voices.of(features[0], frames.heard)
    assert found.shape == (100, 16)
    assert (found[40:50] == 0).all()
    assert (found[90:] == 0).all()
    whole = np.concatenate([voices.of(of, frames.heard)[np.r_[:40, 50:90]] for of in features])
    assert np.abs(whole.mean(axis=0)).max() < 1e-5
    apart = found[:40, 0].mean() - found[50:90, 0].mean()
    assert abs(apart) > 1.5  # the first direction is the one in which the two differ: near two spreads
    cut = frames.heard.copy()
    cut[2:5] = False  # of the first token two frames are left
    of_each = voices.of(np.repeat(features[0][:2], 5, axis=0), np.ones(10, dtype=bool))
    np.testing.assert_allclose(voices.of(features[0], cut)[0], of_each.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("arm", ["half_attention", "half_convolution", "whole_attention", "whole_no_positions", "none"])
def test_an_arm_sees_as_far_as_its_window(arm: str) -> None:
    torch.manual_seed(0)
    model = Listener(19, ARMS[arm]).eval()
    tokens = torch.randn(1, 100, 19, requires_grad=True)
    model(tokens)[0, 50].backward()
    assert tokens.grad is not None
    touched = torch.nonzero(tokens.grad[0].abs().sum(dim=1))[:, 0]
    reach = {"half": 2 + 2, "none": 0, "whole": 50}[arm.split("_")[0]]  # 0.5 s are 2 tokens of 0.2 s, the kernel 2 more
    assert touched[0] == 50 - reach
    assert touched[-1] == min(50 + reach, 99)


def toy_tracks(scenes: int, seed: int) -> Tracks:
    """Two voices a scene: in view a token says whose each is, in the second half, hidden, only the voice does."""
    rng = np.random.default_rng(seed)
    tokens, speaking, frames = [], [], []
    for _ in range(scenes):
        own = rng.random(40) < 0.5
        hidden = np.arange(40) >= 20
        voices = rng.normal(size=(2, 8))
        said = voices[own.astype(int)] + 0.1 * rng.normal(size=(40, 8))
        seen = np.where(hidden, 0.0, np.where(own, 1.0, -1.0))
        tokens.append(np.concatenate([np.stack([seen, hidden], axis=1), said], axis=1).astype(np.float32))
        speaking.append(own.astype(np.float32))
        everything = np.repeat(own, 5)
        frames.append(Frames(True, np.repeat(hidden, 5), everything, ~everything, everything))
    return Tracks(None, frames, tokens, speaking)


def test_a_wide_window_remembers_a_voice_and_a_narrow_one_cannot() -> None:
    train, test = toy_tracks(200, 0), toy_tracks(40, 1)
    right = {}
    for arm in ("whole_no_positions", "none"):
        model = learn(arm, 0, 400, train)
        found = np.concatenate(scores_of(model, test)) > 0.5
        own, hidden = (np.concatenate([getattr(f, name) for f in test.frames]) for name in ("own", "hidden"))
        right[arm] = (found == own)[hidden].mean()
        assert (found == own)[~hidden].mean() > 0.99
    assert right["whole_no_positions"] > 0.8
    assert abs(right["none"] - 0.5) < 0.1


def test_wrong_arguments_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: str) -> str:
        given = ["x", str(tmp_path / "out"), f"--data={tmp_path}", f"--encoders={tmp_path / 'no.pt'}", *arguments]
        monkeypatch.setattr(sys, "argv", given)
        assert run_command(consistency_ideal.main) == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert "'often' is none of" in told("--arms=often")
    assert "--steps and --threads: expected 1 or more" in told("--steps=0")
    assert "dataset.json" in told()
    (tmp_path / "dataset.json").write_text(json.dumps({}), encoding="utf-8")
    assert not (tmp_path / "out").exists()
