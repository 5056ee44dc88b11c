"""Sound moves by exactly what it says, ratios are met where the sound is active, and voices are never one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from avfusion.data.augment.mixing import active_power
from avfusion.data.clips import Clip
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import write_audio
from avfusion.robustness.conditions import NEEDS_VOICES, NOISES, SNRS_DB, all_conditions
from avfusion.robustness.sounds import FolderMusic, OtherSound, Shifted, Voices, silenced
from tests.robustness.planted import Planted, a_track


def a_clip(frames: int = 50) -> Clip:
    audio = np.arange(1, 640 * frames + 1, dtype=np.float32) / 1e5
    return Clip(np.zeros((frames, 24, 24), np.uint8), audio, np.ones(frames, bool))


@pytest.mark.parametrize("shift_ms", [-400, -80, 0, 80, 400, 12.5])
def test_a_shift_moves_every_sample(shift_ms: float) -> None:
    clip = a_clip()
    by = round(16 * shift_ms)
    moved = Shifted(shift_ms)(clip, 0).audio
    for sample in range(0, len(moved), 7):
        source = sample - by
        assert moved[sample] == (clip.audio[source] if 0 <= source < len(moved) else 0.0)


@pytest.mark.parametrize(
    ("shift_ms", "first", "last"), [(0, 0, 50), (80, 2, 50), (-80, 0, 48), (100, 3, 50), (1600, 40, 50), (2000, 0, 0)]
)
def test_frames_count_whose_sound_comes_from_inside(shift_ms: float, first: int, last: int) -> None:
    hears = Shifted(shift_ms).hears(50)
    assert np.flatnonzero(hears).tolist() == list(range(first, last))
    heard = Shifted(shift_ms)(a_clip(), 0).audio.reshape(50, 640)
    assert np.array_equal(hears, (heard != 0).all(axis=1))


def test_a_shift_longer_than_the_track_leaves_silence() -> None:
    for shift_ms in (2000, 2400, -2000, -9999):
        assert not Shifted(shift_ms)(a_clip(), 0).audio.any()


def test_silence_is_silent() -> None:
    assert not silenced(a_clip(), 0).audio.any()


@pytest.mark.parametrize("family", NOISES)
def test_ratios_are_met_in_the_active_part(family: str) -> None:
    clips = Planted(8)
    audio = clips.clips[1].audio.copy()
    audio[10 * 640 : 50 * 640] = 0  # a pause, which must not count
    clip = replace(clips.clips[1], audio=audio)
    power = active_power(audio)
    assert power == pytest.approx(np.mean(np.square(audio[audio != 0], dtype=np.float64)), rel=0.02)
    added = []
    for condition in all_conditions(clips):
        if condition.family == family:
            noise = condition.change(clip, 1).audio.astype(np.float64) - audio
            assert 10 * np.log10(power / active_power(noise.astype(np.float32))) == pytest.approx(
                condition.severity, abs=0.1
            )
            added.append(noise / np.sqrt(np.mean(noise**2)))
    assert len(added) == len(SNRS_DB) == 5
    for noise in added[1:]:  # the same sound at every ratio
        assert np.abs(noise - added[0]).max() < 1e-3


def test_a_silent_track_stays_silent_since_there_is_no_ratio_to_hold() -> None:
    clips = Planted(8)
    clip = replace(clips.clips[1], audio=np.zeros_like(clips.clips[1].audio))
    for condition in all_conditions(clips):
        if condition.family in NOISES:
            assert not condition.change(clip, 1).audio.any()


def test_another_sound_is_that_of_a_speaker_of_another_video_and_group() -> None:
    clips = Planted(8)
    speaking = clips.tracks[0].speaking
    clips.tracks = [a_track(f"v{i}", track.speaking, group=f"g{i // 2}") for i, track in enumerate(clips.tracks)]
    sounds = [clip.audio.tobytes() for clip in clips.clips]
    other = OtherSound(Voices(clips), clips.tracks)
    for track in range(8):
        heard = sounds.index(other(clips.clips[track], track).audio.tobytes())
        assert heard // 2 != track // 2
        assert heard % 4 != 3  # never speaks
    assert speaking.any()


def test_babble_is_three_to_seven_voices_of_equal_power() -> None:
    clips = Planted(8)
    voices = Voices(clips)
    counts = set()
    for seed in range(40):
        babble = voices.babble(0, 60 * 640, np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        count = int(rng.integers(3, 8))
        again = sum(v / np.sqrt(active_power(v)) for v in (voices(0, 60 * 640, rng) for _ in range(count)))
        assert np.allclose(babble, again, atol=1e-5)
        counts.add(count)
    assert counts == {3, 4, 5, 6, 7}


def test_without_other_speakers_what_needs_them_is_left_out() -> None:
    alone = Planted(1)
    assert Voices(alone).num_alone == 1
    families = {condition.family for condition in all_conditions(alone)}
    assert not families & set(NEEDS_VOICES)
    assert {"clean", "white noise", "music", "shifted sound", "occlusion"} <= families
    with pytest.raises(AvfusionError, match="track 0: nobody speaks in another video, sound and group"):
        Voices(alone)(0, 640, np.random.default_rng(0))


def test_music_comes_from_the_folder_that_is_named(tmp_path: Path) -> None:
    tone = (0.1 * np.sin(np.arange(16000) / 5)).astype(np.float32)
    write_audio(tmp_path / "tone.flac", tone)
    found = FolderMusic(str(tmp_path))(0, 8000, np.random.default_rng(0))
    spectrum = np.abs(np.fft.rfft(found))
    assert int(spectrum.argmax()) * 2 == pytest.approx(16000 / 5 / (2 * np.pi), abs=2)
    with pytest.raises(UsageError, match=r"data\.augment\.music_folder: .* does not exist"):
        all_conditions(Planted(4), str(tmp_path / "nowhere"))
