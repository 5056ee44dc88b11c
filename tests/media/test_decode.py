"""Facts about files of any frame rate and start time: picture and sound meet where they met in the source."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.media.damage import ReadReport
from avfusion.media.decode import iterate_retimed, read_retimed, read_sound

FLASH_S = 1.0


def write_flash_and_beep(path: Path, times_ms: list[int], sound_start_ms: int | None, rate_hz: int = 48_000) -> None:
    """A picture bright from 1 s on, at the given times, and a stereo tone from 1 s on; the sound may start late."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=1000, options={"bf": "0", "preset": "ultrafast"})
        video.width, video.height, video.pix_fmt = 32, 16, "yuv420p"
        video.time_base = Fraction(1, 1000)
        audio = None if sound_start_ms is None else container.add_stream("pcm_s16le", rate=rate_hz, layout="stereo")
        for time_ms in times_ms:
            level = 220 if time_ms >= 1000 * FLASH_S else 30
            frame = av.VideoFrame.from_ndarray(np.full((16, 32, 3), level, dtype=np.uint8), format="rgb24")
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is not None and sound_start_ms is not None:
            seconds = np.arange(sound_start_ms * rate_hz // 1000, 2 * rate_hz) / rate_hz
            tone = np.where(seconds >= FLASH_S, 10_000 * np.sin(2 * np.pi * 1000 * seconds), 0).astype(np.int16)
            sound = av.AudioFrame.from_ndarray(np.repeat(tone, 2)[None], format="s16", layout="stereo")
            sound.sample_rate, sound.time_base = rate_hz, Fraction(1, rate_hz)
            sound.pts = sound_start_ms * rate_hz // 1000
            container.mux(audio.encode(sound))
            container.mux(audio.encode(None))


def onset_s(audio: NDArray[np.float32]) -> float:
    return float(np.argmax(np.abs(audio) > 0.05)) / 16_000


def times_at(fps: float, duration_s: float = 2.0) -> list[int]:
    return [round(1000 * index / fps) for index in range(round(duration_s * fps))]


@pytest.mark.parametrize("fps", [12.5, 23.976, 25.0, 29.97, 60.0])
@pytest.mark.parametrize("sound_start_ms", [0, 500])
def test_flash_and_beep_meet_at_every_frame_rate_and_late_sound(
    tmp_path: Path, fps: float, sound_start_ms: int
) -> None:
    write_flash_and_beep(tmp_path / "x.mkv", times_at(fps), sound_start_ms)
    video = read_retimed(tmp_path / "x.mkv")
    assert abs(len(video.frames) - 50) <= 1
    assert video.audio.shape == (640 * len(video.frames),)
    flash = int(np.argmax(video.frames.mean(axis=(1, 2)) > 128)) / 25
    assert abs(flash - FLASH_S) <= 0.5 / fps + 0.001
    assert abs(onset_s(video.audio) - FLASH_S) < 0.005


def test_a_variable_frame_rate_keeps_its_own_times(tmp_path: Path) -> None:
    times_ms = [*range(0, 800, 100), *range(800, 1200, 20), *range(1200, 2000, 40)]
    write_flash_and_beep(tmp_path / "x.mkv", times_ms, 0)
    video = read_retimed(tmp_path / "x.mkv")
    assert len(video.frames) == 50
    assert int(np.argmax(video.frames.mean(axis=(1, 2)) > 128)) == 25
    early_ms = np.array(times_ms)[video.source_index] - 40 * np.arange(50)
    assert early_ms.max() <= 20
    assert early_ms.min() >= -80  # pictures 100 ms apart
    assert np.abs(early_ms[20:30]).max() == 0  # pictures 20 ms apart


def test_a_picture_that_starts_late_shows_its_first_one_from_time_zero(tmp_path: Path) -> None:
    write_flash_and_beep(tmp_path / "x.mkv", [400 + time for time in times_at(25.0, 1.6)], 0)
    video = read_retimed(tmp_path / "x.mkv")
    assert len(video.frames) == 50
    assert video.source_index[:12].tolist() == [0] * 11 + [1]
    assert int(np.argmax(video.frames.mean(axis=(1, 2)) > 128)) == 25
    assert abs(onset_s(video.audio) - FLASH_S) < 0.005


def test_a_file_without_sound_is_silent_and_says_so(tmp_path: Path) -> None:
    write_flash_and_beep(tmp_path / "x.mkv", times_at(25.0), None)
    video = read_retimed(tmp_path / "x.mkv")
    assert not video.has_audio
    assert video.audio.shape == (32_000,)
    assert not video.audio.any()
    assert read_sound(tmp_path / "x.mkv") is None


def test_color_frames_agree_with_grey(tmp_path: Path) -> None:
    write_flash_and_beep(tmp_path / "x.mkv", times_at(25.0, 0.2), None)
    grey = [frame for _, frame in iterate_retimed(tmp_path / "x.mkv")]
    color = [frame for _, frame in iterate_retimed(tmp_path / "x.mkv", color=True)]
    assert color[0].shape == (16, 32, 3)
    np.testing.assert_allclose(np.stack(color).mean(axis=-1), np.stack(grey), atol=2)


def test_what_is_no_video_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("nothing")
    for name in ("text.mp4", "absent.mp4"):
        with pytest.raises(AvfusionError, match=name) as caught:
            read_retimed(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_stamp_that_would_hold_one_picture_for_over_ten_minutes_is_refused_unless_salvaged(tmp_path: Path) -> None:
    path = tmp_path / "x.mkv"
    write_flash_and_beep(path, [0, 40, 700_040, 700_080], None)
    said = r"x\.mkv jumps from 0\.04 s to 700\.04 s at picture 2: one picture would stand still for 700 s"
    with pytest.raises(AvfusionError, match=said):
        list(iterate_retimed(path))
    report = ReadReport()
    shown = [number for number, _ in iterate_retimed(path, salvage=True, report=report)]
    assert (shown[:3], shown[-2:], len(shown)) == ([0, 1, 1], [2, 3], 17_503)
    assert "the picture stands still for 700.00 s from 0.04 s on: no other comes in between" in report.notes
    write_flash_and_beep(path, [0, 40, 600_000, 600_040], None)
    assert len(list(iterate_retimed(path))) == 15_002


def test_a_last_picture_that_is_said_to_last_over_ten_minutes_is_refused_unless_salvaged(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "x.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        frames = [av.VideoFrame.from_ndarray(np.zeros((16, 32, 3), np.uint8), format="rgb24") for _ in range(2)]
        packets = [packet for frame in [*frames, None] for packet in stream.encode(frame)]
        packets[-1].duration = round(700 / packets[-1].time_base)
        for packet in packets:
            container.mux(packet)
    with pytest.raises(AvfusionError, match=r"x\.mp4 jumps from 0\.04 s to 700\.04 s at the file's end"):
        list(iterate_retimed(tmp_path / "x.mp4"))
    assert len(list(iterate_retimed(tmp_path / "x.mp4", salvage=True))) == 17_501


def test_pictures_are_scaled_down_to_a_bound_and_turned_upright(shared: Path) -> None:
    film = shared / "cases" / "faces" / "phone_rotated.mp4"
    _, whole = next(iterate_retimed(film, color=True))
    _, small = next(iterate_retimed(film, color=True, longest_side_px=max(whole.shape) // 2))
    assert small.shape == (whole.shape[0] // 2, whole.shape[1] // 2, 3)
    means = whole[: 2 * small.shape[0], : 2 * small.shape[1]].reshape(small.shape[0], 2, small.shape[1], 2, 3)
    assert np.abs(means.mean(axis=(1, 3)) - small).mean() < 3
    _, same = next(iterate_retimed(film, color=True, longest_side_px=10_000))
    np.testing.assert_array_equal(same, whole)
