"""Facts about sound: the clock of log-mel frames, reading, writing, mixing."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

import avfusion
from avfusion.errors import AvfusionError
from avfusion.media import audio
from avfusion.media.audio import LogMel, fit_to_frames, mix_at_snr, num_samples_of, read_audio, write_audio


def tone(num_samples: int, frequency_hz: float = 440.0, rate_hz: int = 16_000) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * frequency_hz * np.arange(num_samples) / rate_hz)).astype(np.float32)


def test_every_length_gives_four_audio_frames_a_video_frame_and_the_front_stays() -> None:
    features = LogMel(num_mels=8)
    long = torch.randn(640 * 301, generator=torch.Generator().manual_seed(0))
    reference = features(long)
    for num_frames in range(1, 301):
        for error in (-1, 0, 1):
            fitted = fit_to_frames(long[: 640 * num_frames + error], num_frames)
            result = features(fitted)
            assert result.shape == (4 * num_frames, 8)
        # Only the last two frames see the zeros behind the end.
        torch.testing.assert_close(result[:-2], reference[: 4 * num_frames - 2])


def test_fit_to_frames_pads_and_cuts_at_the_end_only() -> None:
    audio = np.arange(1, 1281, dtype=np.float32)
    np.testing.assert_array_equal(fit_to_frames(audio, 1), audio[:640])
    padded = fit_to_frames(audio[:-1], 2)
    np.testing.assert_array_equal(padded, [*audio[:-1], 0.0])
    assert fit_to_frames(torch.from_numpy(audio)[None], 3)[0, 1280:].tolist() == [0.0] * 640


@pytest.mark.parametrize("frame", [0, 1, 37, 99])
def test_audio_frame_j_is_centered_on_j_hundredths_of_a_second(frame: int) -> None:
    audio = torch.zeros(16_000)
    audio[160 * frame] = 1.0
    assert LogMel()(audio).sum(dim=1).argmax().item() == frame


def test_equals_the_spectrogram_written_out() -> None:
    """One frame by numpy: Hann window of 25 ms around its instant, power, triangles on the HTK mel scale, logarithm."""
    audio = np.random.default_rng(1).standard_normal(6400).astype(np.float32)
    mels = np.linspace(*(2595 * np.log10(1 + hz / 700) for hz in (20.0, 8000.0)), 66)
    corners_hz = 700 * (10 ** (mels / 2595) - 1)
    bins_hz = np.arange(201) * 40.0
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    for frame in (0, 5, 39):
        stretch = np.pad(audio, 200)[160 * frame : 160 * frame + 400]
        power = np.abs(np.fft.rfft(stretch * window)) ** 2
        for band in (0, 20, 63):
            left, peak, right = corners_hz[band : band + 3]
            triangle = np.maximum(0, np.minimum((bins_hz - left) / (peak - left), (right - bins_hz) / (right - peak)))
            expected = (np.log(power @ triangle + 1e-6) + 5.0) / 4.0
            assert LogMel()(torch.from_numpy(audio))[frame, band].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("num_samples", [160 * 8 + 1, 160 * 10, 160 * 11 + 159, 160 * 12])
def test_long_sound_in_pieces_has_the_spectra_of_the_whole(num_samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features, sound = LogMel(num_mels=8), torch.randn(2, num_samples, generator=torch.Generator().manual_seed(0))
    whole = features(sound)
    monkeypatch.setattr(audio, "PIECE_FRAMES", 3)
    in_pieces = features(sound)
    assert in_pieces.shape == whole.shape == (2, num_samples // 160, 8)
    torch.testing.assert_close(in_pieces, whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("num_samples", [0, 1, 100, 159, 160, 200, 201, 399, 400])
def test_sound_shorter_than_the_window_is_padded(num_samples: int) -> None:
    result = LogMel()(torch.ones(num_samples))
    assert result.shape == (num_samples // 160, 64)
    assert result.isfinite().all()


def test_digital_silence_is_finite_and_so_is_its_gradient() -> None:
    audio = torch.zeros(1, 3200, requires_grad=True)
    result = LogMel()(audio)
    result.sum().backward()
    torch.testing.assert_close(result, torch.full_like(result, (np.log(1e-6) + 5.0) / 4.0))
    assert audio.grad is not None
    assert audio.grad.isfinite().all()


def test_autocast_does_not_touch_the_spectrum() -> None:
    audio = torch.from_numpy(tone(3200)) * 2.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = LogMel()(audio)
    torch.testing.assert_close(inside, LogMel()(audio))


@pytest.mark.parametrize("num_mels", [0, 81])
def test_more_bins_than_the_fft_resolves_are_refused(num_mels: int) -> None:
    with pytest.raises(ValueError, match=f"num_mels={num_mels}"):
        LogMel(num_mels)


def test_no_mel_bin_is_blind() -> None:
    assert (LogMel(80).mel.mel_scale.fb.sum(dim=0) > 0).all()


def test_stereo_of_another_rate_becomes_mono_16_khz_along_time(tmp_path: Path) -> None:
    left, right = tone(48_000, 440.0, 48_000), tone(48_000, 880.0, 48_000)
    soundfile.write(tmp_path / "x.wav", np.stack([left, right], axis=1), 48_000)
    audio = read_audio(tmp_path / "x.wav")
    assert audio.dtype == np.float32
    assert abs(len(audio) - 16_000) <= 1
    expected = 0.5 * (tone(16_000, 440.0) + tone(16_000, 880.0))
    np.testing.assert_allclose(audio[500:15_500], expected[500:15_500], atol=2e-3)
    assert num_samples_of(tmp_path / "x.wav") == 16_000


def test_a_stretch_is_the_slice_of_the_whole(tmp_path: Path) -> None:
    write_audio(tmp_path / "x.flac", tone(16_000))
    whole = read_audio(tmp_path / "x.flac")
    np.testing.assert_array_equal(read_audio(tmp_path / "x.flac", 1000, 640), whole[1000:1640])
    np.testing.assert_array_equal(read_audio(tmp_path / "x.flac", 15_000), whole[15_000:])


@pytest.mark.parametrize(("start", "count"), [(15_000, 1001), (-1, 10), (16_001, None)])
def test_a_stretch_outside_the_file_names_both(tmp_path: Path, start: int, count: int | None) -> None:
    write_audio(tmp_path / "x.flac", tone(16_000))
    with pytest.raises(AvfusionError, match=rf"{start / 16_000:.3f} .*x\.flac, which lasts 1\.000 s"):
        read_audio(tmp_path / "x.flac", start, count)


def test_a_missing_file_and_a_text_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    for name in ("absent.wav", "text.wav"):
        with pytest.raises(AvfusionError, match=name) as caught:
            read_audio(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_written_sound_comes_back_within_half_a_step_and_leaves_no_part(tmp_path: Path) -> None:
    audio = np.concatenate([tone(8000), np.array([1.7, -1.7], dtype=np.float32)])
    write_audio(tmp_path / "deep" / "x.flac", audio)
    read = read_audio(tmp_path / "deep" / "x.flac")
    np.testing.assert_allclose(read, np.clip(audio, -1, 1), atol=1.01 / 32_768)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.flac"]
    with pytest.raises(ValueError, match="finite"):
        write_audio(tmp_path / "nan.flac", np.array([np.nan], dtype=np.float32))
    assert not (tmp_path / "nan.flac").exists()


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 10.0])
def test_the_mix_has_the_ratio_asked_for_on_active_samples(snr_db: float) -> None:
    rng = np.random.default_rng(0)
    target = np.concatenate([np.zeros(8000), 0.1 * rng.standard_normal(8000)]).astype(np.float32)
    noise = (0.3 * rng.standard_normal(5000)).astype(np.float32)  # shorter: repeated
    active = np.arange(16_000) >= 8000
    mix = mix_at_snr(target, noise, snr_db, active)
    heard_noise = (mix.audio - mix.target_gain * target)[active]
    measured_db = 10 * np.log10(np.mean((mix.target_gain * target[active]) ** 2) / np.mean(heard_noise**2))
    assert abs(measured_db - snr_db) < 0.1


def test_the_mix_is_scaled_as_a_whole_only_when_it_would_clip() -> None:
    loud = mix_at_snr(2 * tone(1600), tone(1600, 200.0), 0.0)
    assert loud.target_gain < 1.0
    assert np.abs(loud.audio).max() == pytest.approx(1.0, abs=1e-6)
    quiet = mix_at_snr(0.1 * tone(1600), tone(1600, 200.0), 0.0)
    assert quiet.target_gain == 1.0


def test_a_pause_of_the_interferer_is_not_blown_up() -> None:
    interferer = np.concatenate([np.zeros(8000), tone(8000)]).astype(np.float32)
    active = np.arange(16_000) < 8000
    mix = mix_at_snr(0.1 * tone(16_000), 0.1 * interferer, 0.0, active)
    assert mix.interferer_gain == pytest.approx(np.sqrt(2.0), rel=1e-3)  # its average power is half its power


def test_a_ratio_to_silence_does_not_exist() -> None:
    with pytest.raises(ValueError, match="silent"):
        mix_at_snr(np.zeros(100, dtype=np.float32), tone(100), 0.0)


def test_sound_is_never_read_with_torchaudio() -> None:
    """``torchaudio.load``, ``info`` and ``save`` are gone, or want a decoder that few have."""
    for file in Path(avfusion.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torchaudio":
                assert node.attr not in ("load", "info", "save"), file
