"""Probes find what was planted in a head's output, on scenes they have not seen, and nothing where nothing is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from avfusion.alignment.measures import envelope_probe as module
from avfusion.alignment.measures.envelope_probe import FLOOR_DB, envelope_probe, loudness_db, loudness_of, probe
from avfusion.data.examples import Example, Examples
from avfusion.data.synthetic import SyntheticDataset
from tests.alignment.planted_attention import Clicks, planted_model, positional

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset() -> SyntheticDataset:
    return SyntheticDataset("val", 52, crop_size=24)


def planted(seed: int = 0, scenes: int = 12, frames: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heads: own voice, other voice, own voice in noise of its own size, noise, nothing; width 6."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(scenes), frames)
    told = rng.normal(-30, 8, (len(group), 2))
    mixing = rng.normal(size=(2, 6))
    noise = rng.normal(size=(len(group), 5, 6))
    outputs = 1e-3 * noise
    outputs[:, 0] += told[:, :1] * mixing[0]
    outputs[:, 1] += told[:, 1:] * mixing[1]
    outputs[:, 2, 0] = told[:, 0] + 8 * noise[:, 2, 0]
    outputs[:, 3] = noise[:, 3]
    outputs[:, 4] = 0.25
    return outputs[:, None], told, group


def test_planted_heads() -> None:
    found = probe(*planted(), num_tracks=12, resamples=200)
    np.testing.assert_allclose(found.target[0, :, 0], [1.0, 0.0, 0.5, 0.0, 0.0], atol=0.08)
    np.testing.assert_allclose(found.interferer[0, :, 0], [0.0, 1.0, 0.0, 0.0, 0.0], atol=0.08)
    np.testing.assert_allclose(found.difference[..., 0], found.target[..., 0] - found.interferer[..., 0])
    assert found.target[0, 0, 0] > 0.999
    assert found.difference[0, 0, 1] > 0.9 > 0 > found.difference[0, 1, 2]
    value, low, high = found.difference[0, 3]
    assert low < 0 < high or abs(value) < 0.03
    np.testing.assert_allclose(found.layer_target[0, 0], 1.0, atol=0.01)
    np.testing.assert_allclose(found.layer_interferer[0, 0], 1.0, atol=0.01)
    assert (found.num_frames, found.num_tracks, found.num_groups) == (480, 12, 12)
    again = probe(*planted(), num_tracks=12, resamples=200)
    np.testing.assert_array_equal(found.target, again.target)


def test_knowing_the_scene_is_not_knowing_the_voice() -> None:
    """Loudness is one number per scene, and the head names the scene: with its frames on both sides R² would be 1."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(10), 30)
    told = rng.normal(-30, 8, (10, 2))[group]
    outputs = np.eye(10)[group][:, None, None]
    found = probe(outputs, told, group, num_tracks=10, resamples=0)
    assert found.target[0, 0, 0] < 0.05
    assert np.isnan(found.target[0, 0, 1:]).all()


def test_the_regression_is_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """One penalty, three scenes: errors equal those of the normal equations on standardized inputs, written out."""
    monkeypatch.setattr(module, "PENALTIES", np.array([0.3]))
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(3), [9, 12, 11])
    inputs = rng.normal(3, [1, 5, 0.2], (32, 3))
    told = inputs @ rng.normal(size=(3, 2)) + rng.normal(0, 2, (32, 2)) - 30
    errors, spread = module._held_out(inputs, told, group)
    for held in range(3):
        rest, here = group != held, group == held
        mean, scale = inputs[rest].mean(0), inputs[rest].std(0)
        x, y_mean = (inputs[rest] - mean) / scale, told[rest].mean(0)
        weights = np.linalg.solve(x.T @ x / len(x) + 0.3 * np.eye(3), x.T @ (told[rest] - y_mean) / len(x))
        expected = told[here] - y_mean - (inputs[here] - mean) / scale @ weights
        np.testing.assert_allclose(errors[here], expected**2, rtol=1e-8)
        np.testing.assert_allclose(spread[here], (told[here] - y_mean) ** 2, rtol=1e-8)


def test_the_penalty_is_chosen_where_it_helps() -> None:
    """Forty inputs of noise beside one that counts, and few frames: hardly any penalty would fit the noise."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(5), 12)
    told = rng.normal(0, 1, (60, 2))
    inputs = np.concatenate([told[:, :1] + rng.normal(0, 1, (60, 1)), rng.normal(0, 1, (60, 40))], axis=1)
    errors, spread = module._held_out(inputs, told, group)
    chosen = 1 - errors.sum(0) / spread.sum(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PENALTIES", np.array([1e-4]))
        errors, spread = module._held_out(inputs, told, group)
    assert (chosen > 1 - errors.sum(0) / spread.sum(0) + 0.2).all()
    assert chosen[1] > -0.3


def test_loudness_of_steps_worked_by_hand() -> None:
    """Power 1 for 0.1 s, then 0: around 0.1 s half of the 40 ms are loud."""
    power = np.repeat([1.0, 0.0], 10)
    found = loudness_db(power, np.array([0.01, 0.02, 0.09, 0.1, 0.15, 0.19]))
    np.testing.assert_allclose(found[1:5], [0.0, 10 * np.log10(0.75), 10 * np.log10(0.5), FLOOR_DB], atol=1e-9)
    assert np.isnan(found[[0, 5]]).all()  # reach beyond the scene


def test_own_voice_and_others_of_a_scene(dataset: SyntheticDataset) -> None:
    heard = [i for i, t in enumerate(dataset.tracks) if t.role in module.OVERLAP_ROLES and t.lag_ms is not None]
    index = heard[0]
    track, truth = dataset.tracks[index], dataset.truth(index)
    face = next(face for face in truth.faces if face.entity_id == track.entity_id)
    found = loudness_of(truth, track)
    assert found is not None
    assert found.shape == (75, 2)
    assert face.voice is not None
    power = truth.voices[face.voice].envelope ** 2
    # in step by a whole number of key frames the loudness is that of four of them
    on_grid = loudness_of(replace(truth, faces=tuple(replace(f, lag_ms=60.0) for f in truth.faces if f is face)), track)
    assert on_grid is not None
    frame = 30  # 1.2 s, its sound at 1.26 s: keys from 1.24 to 1.28 s
    assert on_grid[frame, 0] == pytest.approx(10 * np.log10(max(power[124:128].mean(), 1e-6)), abs=1e-6)
    rest = sum(voice.envelope**2 for number, voice in enumerate(truth.voices) if number != face.voice)
    assert on_grid[frame, 1] == pytest.approx(10 * np.log10(max(rest[124:128].mean(), 1e-6)), abs=1e-6)
    others = [i for i, t in enumerate(dataset.tracks) if t.lag_ms is None]
    assert loudness_of(dataset.truth(others[0]), dataset.tracks[others[0]]) is None
    solo = next(i for i, t in enumerate(dataset.tracks) if t.role == "solo")
    assert loudness_of(dataset.truth(solo), dataset.tracks[solo]) is None  # nobody else


def test_heads_that_carry_one_of_two_voices(dataset: SyntheticDataset) -> None:
    """A change writes the loudness of both voices into the sound that planted heads hand on."""
    model, config = planted_model(positional(0))
    truths = {i: loudness_of(dataset.truth(i), t) for i, t in enumerate(dataset.tracks) if t.role.startswith("overlap")}

    def own_only(example: Example, track: int) -> Example:
        told = truths[track]
        assert told is not None
        log_mel = torch.zeros_like(example.log_mel)
        log_mel[:, :1] = torch.from_numpy(np.nan_to_num(told[:, :1])).float().repeat_interleave(4, dim=0)
        return replace(example, log_mel=log_mel)

    examples = Examples(dataset, config.data)
    found = envelope_probe(model, examples, config, CPU, change=own_only, resamples=50)
    assert found is not None
    assert found.num_tracks == sum(told is not None for told in truths.values())
    assert found.target[0, 0, 0] > 0.999
    assert found.interferer[0, 0, 0] < 0.6
    assert found.target.shape == (1, 1, 3)
    assert found.layer_target.shape == (1, 3)


def test_without_overlapping_voices_or_truth_there_is_no_probe(dataset: SyntheticDataset) -> None:
    model, config = planted_model(positional(0))
    assert envelope_probe(model, Examples(Clicks([0.5] * 4), config.data), config, CPU) is None
    solo = [i for i, t in enumerate(dataset.tracks) if t.role == "solo"]
    assert envelope_probe(model, Examples(dataset, config.data), config, CPU, solo) is None
