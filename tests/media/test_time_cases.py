"""The known faults of sound and picture timing (class TIME), each with the value that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from avfusion.errors import AvfusionError
from avfusion.media.audio import LogMel, fit_to_frames, read_audio
from avfusion.media.decode import read_retimed
from avfusion.media.ingest import ingest
from avfusion.media.video import VideoReader, read_frames

FRAME_S = 0.04


@pytest.fixture
def media(shared: Path) -> Path:
    return shared / "cases" / "media"


@pytest.mark.parametrize("name", ["late_audio_0_5s.mkv", "late_audio_0_5s.mp4"])
def test_t01_sound_that_starts_half_a_second_late_stays_late(media: Path, tmp_path: Path, film: Any, name: str) -> None:
    result = ingest(media / name, tmp_path)
    audio = read_audio(result.audio)
    flashes = film.flashes_s(read_frames(result.video, 0, result.num_frames))
    np.testing.assert_allclose(flashes, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(film.beeps_s(audio), flashes, atol=FRAME_S)
    assert not audio[:6000].any()
    assert any("sound starts at" in note for note in result.notes)


def test_t04_a_variable_frame_rate_is_followed_by_its_stamps(media: Path, film: Any) -> None:
    video = read_retimed(media / "vfr.mp4")
    np.testing.assert_allclose(film.flashes_s(video.frames), [1.0, 2.0, 3.0], atol=FRAME_S + 1e-6)
    np.testing.assert_allclose(film.beeps_s(video.audio), [1.0, 2.0, 3.0], atol=0.002)
    numbers = film.numbers(video.frames)
    assert len(numbers) == 100
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("name", "fps"),
    [("fps_12_5", 12.5), ("fps_23_976", 24 / 1.001), ("fps_29_97", 30 / 1.001), ("fps_30", 30.0), ("fps_60", 60.0)],
)
def test_t06_every_frame_rate_is_retimed_to_25_within_half_a_frame(
    media: Path, film: Any, name: str, fps: float
) -> None:
    video = read_retimed(media / f"{name}.mp4")
    assert len(video.frames) == 100
    assert film.numbers(video.frames) == video.source_index.tolist()
    late_s = video.source_index / fps - np.arange(100) / 25
    assert late_s[:-1].max() <= 0.02 + 1e-3  # never earlier than half a frame
    assert -late_s[:-1].min() <= max(0.5 / fps, 1 / fps - 0.02) + 1e-3
    np.testing.assert_allclose(film.flashes_s(video.frames), [1.0, 2.0, 3.0], atol=FRAME_S)
    np.testing.assert_allclose(film.beeps_s(video.audio), [1.0, 2.0, 3.0], atol=0.002)


def test_t08_longer_sound_is_cut_and_shorter_sound_is_padded_and_told(media: Path, tmp_path: Path) -> None:
    longer = ingest(media / "long_audio.mp4", tmp_path / "long")
    assert (longer.num_frames, longer.sound_ends_frame) == (75, 75)
    assert len(read_audio(longer.audio)) == 75 * 640
    assert any("3.00 s of sound behind the last picture were cut" in note for note in longer.notes)
    shorter = ingest(media / "short_audio.mp4", tmp_path / "short")
    assert (shorter.num_frames, shorter.sound_ends_frame) == (100, 38)  # 1.5 s are 37.5 frames
    audio = read_audio(shorter.audio)
    assert len(audio) == 100 * 640
    assert not audio[38 * 640 :].any()
    assert [note for note in shorter.notes if "no sound in the last 62 frames" in note]


def test_t09_four_sound_frames_for_every_picture_at_every_length() -> None:
    features = LogMel(num_mels=4)
    sound = torch.randn(300 * 640 + 1, generator=torch.Generator().manual_seed(0))
    whole = features(sound)
    for count in range(1, 301):
        for off in (-1, 0, 1) if count % 50 == 1 else (0,):
            frames = features(fit_to_frames(sound[: 640 * count + off], count))
            assert len(frames) == 4 * count
            torch.testing.assert_close(frames[:-2], whole[: 4 * count - 2])  # the front does not move


def test_t10_an_edit_list_hides_what_it_hides(media: Path, film: Any) -> None:
    video = read_retimed(media / "edit_list_cut.mp4")
    assert film.numbers(video.frames) == list(range(43, 145))
    np.testing.assert_allclose(film.flashes_s(video.frames), [0.28, 1.28, 2.28, 3.28])
    np.testing.assert_allclose(film.beeps_s(video.audio), [0.28, 1.28, 2.28, 3.28], atol=FRAME_S)
    with pytest.raises(AvfusionError, match=r"edit_list_cut\.mp4 hides its first 1\.72 s .*media\.ingest"):
        VideoReader(media / "edit_list_cut.mp4").read(0, 1)


def test_t12_a_stamp_outside_the_file_is_an_error_and_a_cut_is_the_slice_of_the_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = rng.uniform(-0.5, 0.5, 16_000 * 10).astype(np.float32)
    soundfile.write(tmp_path / "film.wav", whole, 16_000)
    soundfile.write(tmp_path / "second.wav", whole[64_000:80_000], 16_000)
    np.testing.assert_array_equal(
        read_audio(tmp_path / "film.wav", 64_000, 16_000), read_audio(tmp_path / "second.wav")
    )
    with pytest.raises(AvfusionError, match=r"902\.000 \.\. 903\.000 s of .*second\.wav, which lasts 1\.000 s"):
        read_audio(tmp_path / "second.wav", 902 * 16_000, 16_000)
