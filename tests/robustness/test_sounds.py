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


@pytest.mark.parametrize("shift_ms", [-1600, -400, -80, 80, 400, 12.5, 1600])
@pytest.mark.parametrize("frames", [42, 59, 60, 75])
def test_all_that_is_heard_is_of_the_track_and_out_of_time(shift_ms: float, frames: int) -> None:
    clip = a_clip(frames)
    length, by = 640 * frames, round(16 * shift_ms)
    moved = Shifted(shift_ms)(clip, 0).audio
    places = np.arange(length)
    seam = np.minimum((places - by) % length, (by - 1 - places) % length) < 80  # 5 ms on both sides, faded
    source = np.round(moved.astype(np.float64) * 1e5).astype(int) - 1  # each sample of the clip says where it is from
    assert np.array_equal(source[~seam], ((places - by) % length)[~seam])
    assert seam.sum() == 160
    counting = np.flatnonzero(Shifted(shift_ms).counts(frames))
    off_by_s = np.abs(places - source)[~seam] / 16000
    if len(counting):  # then no frame of the track hears anything in time, wherever it listens
        assert off_by_s.min() >= min(abs(shift_ms) / 1000, 0.8) - 1e-9
    else:
        assert off_by_s.min() < 0.8
    own = (places.reshape(frames, 640) - source.reshape(frames, 640))[counting]
    assert (own == by).all()
    assert not seam.reshape(frames, 640)[counting].any()


@pytest.mark.parametrize(
    ("shift_ms", "frames", "counting"),
    [
        (0, 50, range(50)),
        (80, 50, range(7, 50)),  # two frames come in from the other end, and five are near the seam
        (-80, 50, range(43)),
        (100, 50, range(8, 50)),
        (800, 40, range(25, 40)),  # 800 ms on either side of the seam
        (800, 39, range(0)),
        (1600, 75, range(45, 75)),
        (1600, 60, range(45, 60)),
        (-1600, 60, range(15)),
        (1600, 59, range(0)),  # the other side is off by 760 ms
        (2000, 50, range(0)),
        (-9999, 50, range(0)),
    ],
)
def test_frames_count_by_hand(shift_ms: float, frames: int, counting: range) -> None:
    assert np.flatnonzero(Shifted(shift_ms).counts(frames)).tolist() == list(counting)


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
