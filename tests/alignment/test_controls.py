"""Controls change one thing about a clip, always the same way, and it is the thing that they name."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from avfusion.alignment.controls import CONTROLS, OtherSound, shifted, untrained
from avfusion.config import Config
from avfusion.data.examples import Example, Examples, Request
from avfusion.errors import AvfusionError
from avfusion.media.audio import LogMel
from tests.alignment.planted_attention import MELS, Clicks


def examples_of(dataset: Clicks, cache_gb: float = 1.0) -> Examples:
    config = Config()
    config.data.crop_size, config.data.num_mels, config.data.cache_gb = 16, MELS, cache_gb
    return Examples(dataset, config.data)


def log_mel(sound: np.ndarray) -> torch.Tensor:
    return LogMel(MELS)(torch.from_numpy(np.ascontiguousarray(sound)))


@pytest.fixture
def examples() -> Examples:
    return examples_of(Clicks([0.5, 1.0, 1.5], hiss=0.05))


REQUEST = Request(0, 20, 25)


def same_but_sound(changed: Example, example: Example) -> bool:
    return torch.equal(changed.crops, example.crops) and torch.equal(changed.speaking, example.speaking)


def test_silence_is_digital_silence(examples: Examples) -> None:
    example = examples[REQUEST]
    changed = CONTROLS["silence"](examples)(example, 0)
    assert torch.equal(changed.log_mel, log_mel(np.zeros(25 * 640, np.float32)))
    assert same_but_sound(changed, example)


def test_reversed_sound_is_the_stretch_backwards(examples: Examples) -> None:
    example, sound = examples[REQUEST], examples.dataset.read(0, 20, 25).audio
    changed = CONTROLS["reversed_sound"](examples)(example, 0)
    assert torch.equal(changed.log_mel, log_mel(sound[::-1]))
    assert not torch.equal(changed.log_mel, example.log_mel)
    assert same_but_sound(changed, example)


def test_the_frozen_picture_is_the_middle_frame(examples: Examples) -> None:
    example = examples[REQUEST]
    changed = CONTROLS["frozen_picture"](examples)(example, 0)
    assert torch.equal(changed.log_mel, example.log_mel)
    for crop in changed.crops:
        assert torch.equal(crop, example.crops[12])
    assert not torch.equal(example.crops[0], example.crops[12])


@pytest.mark.parametrize("shift_ms", [-200, -40, -37, 0, 10, 120.5, 200])
@pytest.mark.parametrize("cache_gb", [0.0, 1.0])
def test_moved_sound_is_the_track_s_own_from_beyond_the_stretch(shift_ms: float, cache_gb: float) -> None:
    examples = examples_of(Clicks([0.5], hiss=0.05), cache_gb)
    whole = examples.dataset.read(0).audio
    first = 20 * 640 - round(16 * shift_ms)
    changed = shifted(examples, shift_ms)(examples[REQUEST], 0)
    assert torch.equal(changed.log_mel, log_mel(whole[first : first + 25 * 640]))


def test_beyond_the_track_there_is_silence(examples: Examples) -> None:
    whole, silence = examples.dataset.read(0).audio, np.zeros(160 * 5, np.float32)
    example = examples[Request(0, 0, 60)]
    late, early = shifted(examples, 50)(example, 0), shifted(examples, -50)(example, 0)
    assert torch.equal(late.log_mel, log_mel(np.concatenate([silence, whole[: -160 * 5]])))
    assert torch.equal(early.log_mel, log_mel(np.concatenate([whole[160 * 5 :], silence])))
    assert torch.equal(shifted(examples, 5000)(example, 0).log_mel, log_mel(np.zeros_like(whole)))
    # the click of 0.5 s is heard at 0.55 and 0.45 s: positive shifts come later
    assert [int(one.log_mel.sum(dim=1).argmax()) for one in (late, early)] == [55, 45]


def test_other_sound_is_another_track_s_looped_to_the_same_length() -> None:
    dataset = Clicks([0.5, 1.0], num_frames=60, hiss=0.05)
    examples = examples_of(dataset)
    other = dataset.read(1).audio
    changed = OtherSound(examples)(examples[REQUEST], 0)
    assert torch.equal(changed.log_mel, log_mel(other[20 * 640 : 45 * 640]))
    assert same_but_sound(changed, examples[REQUEST])
    dataset.tracks[1] = replace(dataset.tracks[1], speaking=np.ones(10, bool))  # now it lasts 0.4 s
    again = OtherSound(examples_of(dataset))(examples[REQUEST], 0)
    assert again.log_mel.shape == (100, MELS)
    assert (again.log_mel.std(dim=1) > 0).all()  # sound all along, not silence where the other ends


def test_whose_sound_it_is_is_always_the_same_and_of_another_group_that_speaks() -> None:
    dataset = Clicks([0.5] * 40)
    for index in [*range(20), *range(30, 34)]:  # these are cut from one film; the first thirty never speak
        dataset.tracks[index] = replace(dataset.tracks[index], group="film")
    for index in range(30):
        dataset.tracks[index] = replace(dataset.tracks[index], speaking=np.zeros(60, bool))
    change = OtherSound(examples_of(dataset))
    partners = [change.partner(track) for track in range(40)]
    assert partners == [OtherSound(examples_of(dataset)).partner(track) for track in range(40)]
    assert all(30 <= partner < 40 for partner in partners)
    assert all(partner != track for track, partner in enumerate(partners))
    assert all(partners[index] >= 34 for index in [*range(20), *range(30, 34)])
    assert set(partners[20:30]) & set(range(30, 34))
    assert len(set(partners)) > 4


def test_one_video_has_no_other_sound() -> None:
    with pytest.raises(AvfusionError, match="v0:0: no track of another video and group"):
        OtherSound(examples_of(Clicks([0.5]))).partner(0)


def test_workers_can_take_changes_with_them(examples: Examples) -> None:
    for make in CONTROLS.values():
        change = make(examples)
        there = pickle.loads(pickle.dumps(change))
        assert torch.equal(there(examples[REQUEST], 0).log_mel, change(examples[REQUEST], 0).log_mel)


def test_an_untrained_model_is_the_same_for_the_same_seed_and_draws_from_nobody() -> None:
    config = Config()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = untrained(config), untrained(config), untrained(config, seed=1)
    assert torch.equal(torch.rand(3), expected)
    weights = [model.fusion[0].video_from_audio.query.weight for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not first.training
