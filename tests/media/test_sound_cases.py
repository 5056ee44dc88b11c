"""The known faults of sound formats (class SOUND), each with the value that is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

import avfusion
from avfusion.media.audio import LogMel, read_audio
from avfusion.media.decode import read_retimed, read_sound
from avfusion.media.ingest import ingest

SAME_SPEECH = ("mono_8k.mp4", "stereo_44k1.mp4", "mono_96k_f32.mkv", "mono_u8_11k.avi")


@pytest.fixture
def media(shared: Path) -> Path:
    return shared / "cases" / "media"


def loudness(audio: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.square(audio, dtype=np.float64).mean()))


def test_s01_every_rate_gives_the_same_sound_frames(media: Path) -> None:
    features = [LogMel()(torch.from_numpy(read_retimed(media / name).audio)) for name in SAME_SPEECH]
    assert [len(one) for one in features] == [400] * 4
    below_4_khz = [one[:, :44].flatten().numpy() for one in features]
    for one in below_4_khz[1:]:
        assert np.corrcoef(below_4_khz[0], one)[0, 1] > 0.9


@pytest.mark.parametrize("name", ["stereo_44k1.mp4", "stereo_left_only.mp4"])
def test_s02_every_read_is_finite_within_range_and_the_same(media: Path, name: str) -> None:
    first, second = read_sound(media / name), read_sound(media / name)
    assert first is not None
    assert second is not None
    assert np.isfinite(first).all()
    assert 0.1 < np.abs(first).max() <= 1.0
    np.testing.assert_array_equal(first, second)


def test_s02_sound_is_never_read_with_decord() -> None:
    for file in Path(avfusion.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "AudioReader" not in text
        assert "AVReader" not in text


def test_s03_speech_in_the_center_of_surround_sound_is_kept(media: Path) -> None:
    surround, stereo = read_sound(media / "surround_5_1.mp4"), read_sound(media / "stereo_44k1.mp4")
    assert surround is not None
    assert stereo is not None
    assert abs(20 * np.log10(loudness(surround) / loudness(stereo))) < 6
    count = min(len(surround), len(stereo))
    assert np.corrcoef(surround[:count], stereo[:count])[0, 1] > 0.9


def test_s05_stereo_is_resampled_along_time(tmp_path: Path) -> None:
    seconds = np.arange(48_000) / 48_000
    stereo = np.stack([0.4 * np.sin(2 * np.pi * 440 * seconds), 0.2 * np.sin(2 * np.pi * 440 * seconds)], axis=1)
    soundfile.write(tmp_path / "stereo.wav", stereo, 48_000)
    expected = 0.3 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    for audio in (read_sound(tmp_path / "stereo.wav"), read_audio(tmp_path / "stereo.wav")):
        assert audio is not None
        assert audio.ndim == 1
        assert abs(len(audio) - 16_000) <= 1
        np.testing.assert_allclose(audio[500:15_500], expected[500:15_500], atol=2e-3)


@pytest.mark.parametrize(("name", "frames"), [("sound_10ms.mkv", 5), ("clip_0_2s.mp4", 5), ("one_frame.mp4", 1)])
def test_s06_clips_shorter_than_the_window_get_the_right_number_of_sound_frames(
    media: Path, tmp_path: Path, name: str, frames: int
) -> None:
    result = ingest(media / name, tmp_path, allow_silent=True)
    features = LogMel()(torch.from_numpy(read_audio(result.audio)))
    assert result.num_frames == frames
    assert features.shape == (4 * frames, 64)
    assert features.isfinite().all()


@pytest.mark.parametrize("count", [0, 1, 100, 200, 201, 399, 400])
def test_s06_any_number_of_samples_gives_finite_features(count: int) -> None:
    features = LogMel()(torch.full((count,), 0.5))
    assert features.shape == (count // 160, 64)
    assert features.isfinite().all()


def test_s07_digital_silence_is_finite_and_told(media: Path, tmp_path: Path) -> None:
    result = ingest(media / "digital_silence.mp4", tmp_path)
    audio = read_audio(result.audio)
    assert not audio.any()
    assert LogMel()(torch.from_numpy(audio)).isfinite().all()
    assert "the sound is digital silence from start to end" in result.notes
