"""Sound: 16 kHz mono float32 in -1..1, read, written, mixed, and turned into log-mel frames on the video's clock.

Shapes: ``N`` samples, ``T`` video frames (``N = 640 T``), ``A = N // 160`` audio frames (``A = 4 T``), ``M`` mel bins.
Audio frame ``j`` is centred on ``j / 100`` seconds, so audio frame ``4 i`` and video frame ``i`` share an instant.

Files are read with soundfile; ``torchaudio.load`` needs an extra decoder in recent releases and is not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_AUDIO_FRAME, SAMPLES_PER_VIDEO_FRAME
from avfusion.errors import AvfusionError
from avfusion.files import whole_file
from avfusion.media.written import check_sound_end, telling_why

FFT_SIZE = 400  # 25 ms
LOG_FLOOR = 1e-6  # about the power of rounding noise of 16-bit sound; keeps digital silence finite
LOG_MEAN = -5.0  # mean and spread of log-mel speech at ordinary levels, so that the network sees about unit scale
LOG_SPREAD = 4.0
PIECE_FRAMES = 2000  # whose spectra are made at once: those of a long track would be large, and slow as fresh memory is
PIECE_MARGIN = 2  # frames around them whose samples are in the first and last windows


class LogMel(nn.Module):
    """Log-mel spectrogram at exactly 100 frames a second, scaled to about zero mean and unit spread over speech.

    The sound is padded with zeros, never reflected, so any length works, and silence gives a finite constant.

    Args:
        num_mels: number of mel bins ``M`` between 20 and 8000 Hz, at most 80.

    Raises:
        ValueError: for a number of bins outside 1..80.
    """

    def __init__(self, num_mels: int = 64) -> None:
        super().__init__()
        if not 1 <= num_mels <= 80:
            raise ValueError(f"num_mels={num_mels}, expected 1..80: narrower bins would fall between two FFT bins")
        from torchaudio.transforms import MelSpectrogram

        self.num_mels = num_mels
        self.mel = MelSpectrogram(
            SAMPLE_RATE,
            n_fft=FFT_SIZE,
            hop_length=SAMPLES_PER_AUDIO_FRAME,
            f_min=20.0,
            f_max=SAMPLE_RATE / 2,
            n_mels=num_mels,
            pad_mode="constant",
        )

    def forward(self, audio: Tensor) -> Tensor:
        """Computes log-mel frames.

        Args:
            audio: ``(N,)`` or ``(B, N)`` float32 sound at 16 kHz.

        Returns:
            ``(..., N // 160, M)`` float32.
        """
        num_frames = audio.shape[-1] // SAMPLES_PER_AUDIO_FRAME
        if num_frames == 0:
            return audio.new_zeros((*audio.shape[:-1], 0, self.num_mels), dtype=torch.float32)
        if num_frames <= 2 * PIECE_FRAMES:
            return self._at_once(audio, num_frames)
        pieces = []
        for first in range(0, num_frames, PIECE_FRAMES):
            begin, last = max(first - PIECE_MARGIN, 0), min(first + PIECE_FRAMES, num_frames)
            # The last piece also has the samples that make no whole frame.
            end = None if last == num_frames else (last + PIECE_MARGIN) * SAMPLES_PER_AUDIO_FRAME
            part = self._at_once(audio[..., begin * SAMPLES_PER_AUDIO_FRAME : end], last - begin)
            pieces.append(part[..., first - begin :, :])
        return torch.cat(pieces, dim=-2)

    def _at_once(self, audio: Tensor, num_frames: int) -> Tensor:
        """The first frames of a sound."""
        with torch.autocast(audio.device.type, enabled=False):  # a float16 spectrum overflows
            # A centred spectrogram has one frame more than there are steps: it goes, so that the front never shifts.
            power = self.mel(audio.float())[..., :num_frames]
            scaled: Tensor = (torch.log(power + LOG_FLOOR) - LOG_MEAN) / LOG_SPREAD
            return scaled.transpose(-2, -1).contiguous()


@overload
def fit_to_frames(audio: Tensor, num_video_frames: int) -> Tensor: ...
@overload
def fit_to_frames(audio: NDArray[np.float32], num_video_frames: int) -> NDArray[np.float32]: ...
def fit_to_frames(audio: Tensor | NDArray[np.float32], num_video_frames: int) -> Tensor | NDArray[np.float32]:
    """Cuts or zero-pads the end of a sound, so that it lasts exactly as long as its video frames.

    The front never moves: what was heard at a frame stays at that frame.

    Args:
        audio: ``(..., N)`` sound at 16 kHz.
        num_video_frames: ``T``.

    Returns:
        ``(..., 640 T)``.
    """
    num_samples = num_video_frames * SAMPLES_PER_VIDEO_FRAME
    missing = num_samples - audio.shape[-1]
    if missing <= 0:
        return audio[..., :num_samples]
    if isinstance(audio, Tensor):
        return F.pad(audio, (0, missing))
    return np.pad(audio, [(0, 0)] * (audio.ndim - 1) + [(0, missing)])


def read_audio(path: str | Path, start_sample: int = 0, num_samples: int | None = None) -> NDArray[np.float32]:
    """Reads sound as 16 kHz mono. Files of another rate are resampled along time, stereo is averaged.

    Args:
        path: any file soundfile reads (wav, flac, ogg, mp3).
        start_sample: first sample, counted at 16 kHz.
        num_samples: how many samples at 16 kHz; None reads to the end.

    Returns:
        ``(N,)`` float32 in -1..1.

    Raises:
        AvfusionError: the file is missing or is no sound file, or the stretch lies outside it.
    """
    import soundfile

    path = Path(path)
    if not path.is_file():
        raise AvfusionError(f"no sound file at {path}")
    try:
        with soundfile.SoundFile(os.fsencode(path)) as file:
            rate = int(file.samplerate)
            if rate != SAMPLE_RATE:
                audio = resample(_mono(file.read(dtype="float32", always_2d=True)), rate)
                return _stretch(audio, path, start_sample, num_samples)
            count = file.frames - start_sample if num_samples is None else num_samples
            _check_stretch(path, start_sample, count, file.frames)
            file.seek(start_sample)
            audio = _mono(file.read(count, dtype="float32", always_2d=True))
    except soundfile.LibsndfileError as error:
        raise AvfusionError(f"{path} cannot be read as sound ({error}); expected wav, flac, ogg or mp3") from error
    if len(audio) != count:
        raise AvfusionError(f"{path} is damaged: {len(audio)} samples came where its header promises {count}")
    return audio


def num_samples_of(path: str | Path) -> int:
    """Length of a sound file in samples at 16 kHz, from its header.

    Raises:
        AvfusionError: the file cannot be read as sound.
    """
    import soundfile

    try:
        info = soundfile.info(os.fsencode(path))
    except (soundfile.LibsndfileError, OSError) as error:
        raise AvfusionError(f"{path} cannot be read as sound ({error}); expected wav, flac, ogg or mp3") from error
    return round(int(info.frames) * SAMPLE_RATE / int(info.samplerate))


def resample(audio: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """Resamples mono sound to 16 kHz.

    Args:
        audio: ``(N,)`` sound at ``rate_hz``.
        rate_hz: its sample rate.

    Returns:
        ``(ceil(N * 16000 / rate_hz),)`` float32.
    """
    if rate_hz == SAMPLE_RATE or len(audio) == 0:
        return audio.astype(np.float32)
    from torchaudio.functional import resample as resample_tensor

    result: NDArray[np.float32] = resample_tensor(torch.from_numpy(audio.copy()), rate_hz, SAMPLE_RATE).numpy()
    return result


def write_audio(path: str | Path, audio: NDArray[np.float32]) -> None:
    """Writes 16-bit mono 16 kHz FLAC; the file appears under its name only when it is whole.

    Args:
        path: where to; folders are made.
        audio: ``(N,)`` sound; samples beyond -1..1 are clipped.

    Raises:
        ValueError: the sound is not one-dimensional or not finite.
        OSError: the file cannot be written, as on a full disk.
    """
    write_audio_blocks(path, [audio])


def write_audio_blocks(path: str | Path, blocks: Iterable[NDArray[np.float32]]) -> int:
    """Writes sound that comes block by block, as :func:`write_audio` does; memory holds one block.

    Args:
        path: where to; folders are made.
        blocks: ``(N,)`` each.

    Returns:
        The number of samples.

    Raises:
        ValueError: a block is not one-dimensional or not finite.
        OSError: the file cannot be written, as on a full disk.
    """
    import soundfile

    path = Path(path)
    num_samples = 0
    with whole_file(path) as part:
        with (
            telling_why(path),
            soundfile.SoundFile(os.fsencode(part), "w", SAMPLE_RATE, 1, format="FLAC", subtype="PCM_16") as file,
        ):
            for audio in blocks:
                if audio.ndim != 1 or not np.isfinite(audio).all():
                    raise ValueError(
                        f"expected (N,) finite samples, found shape {audio.shape} with NaN or infinity or channels"
                    )
                file.write(np.clip(audio, -1.0, 1.0))
                num_samples += len(audio)
        check_sound_end(part, num_samples)
    return num_samples


@dataclass(frozen=True)
class Mix:
    """A target sound with an interferer: ``audio = target_gain * target + interferer_gain * interferer``.

    Attributes:
        audio: ``(N,)`` float32 within -1..1.
        target_gain: 1 unless the sum had to be scaled down to stay within -1..1.
        interferer_gain: what the interferer was multiplied by.
    """

    audio: NDArray[np.float32]
    target_gain: float
    interferer_gain: float


def mix_at_snr(
    target: NDArray[np.float32],
    interferer: NDArray[np.float32],
    snr_db: float,
    active: NDArray[np.bool_] | None = None,
) -> Mix:
    """Adds an interferer at a signal-to-noise ratio measured where the target speaks.

    Args:
        target: ``(N,)`` sound.
        interferer: ``(N',)`` sound, repeated or cut to ``N``.
        snr_db: power of the target over power of the interferer, both over the active samples, in dB. Where the
            interferer pauses there (20 dB below its own average), its average counts, lest a pause be blown up.
        active: ``(N,)`` True where the target speaks; None counts every sample.

    Returns:
        The mix, scaled down as a whole only when it would leave -1..1.

    Raises:
        ValueError: one of the two is silent, so that no ratio exists.
    """
    looped = np.resize(interferer, target.shape).astype(np.float64)
    chosen = np.ones(target.shape, dtype=np.bool_) if active is None else active
    target_power = _power(target.astype(np.float64)[chosen])
    average_power = _power(looped)
    interferer_power = _power(looped[chosen])
    if interferer_power < 0.01 * average_power:
        interferer_power = average_power
    if target_power == 0.0 or interferer_power == 0.0:
        raise ValueError(f"no ratio of {snr_db} dB exists: the target or the interferer is silent")
    interferer_gain = float(np.sqrt(target_power / interferer_power / 10.0 ** (snr_db / 10.0)))
    mixed = target + interferer_gain * looped
    peak = float(np.abs(mixed).max())
    scale = 1.0 / peak if peak > 1.0 else 1.0
    return Mix((scale * mixed).astype(np.float32), scale, scale * interferer_gain)


def _power(samples: NDArray[np.float64]) -> float:
    return float(np.mean(np.square(samples))) if samples.size else 0.0


def _mono(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Averages the channels of ``(N, channels)``."""
    if samples.shape[1] == 1:
        return samples[:, 0]
    mono: NDArray[np.float32] = samples.mean(axis=1, dtype=np.float32)
    return mono


def _stretch(audio: NDArray[np.float32], path: Path, start_sample: int, num_samples: int | None) -> NDArray[np.float32]:
    count = len(audio) - start_sample if num_samples is None else num_samples
    _check_stretch(path, start_sample, count, len(audio))
    return audio[start_sample : start_sample + count]


def _check_stretch(path: Path, start_sample: int, num_samples: int, available: int) -> None:
    if start_sample < 0 or num_samples < 0 or start_sample + num_samples > available:
        asked = f"{start_sample / SAMPLE_RATE:.3f} .. {(start_sample + num_samples) / SAMPLE_RATE:.3f} s"
        raise AvfusionError(f"asked for {asked} of {path}, which lasts {available / SAMPLE_RATE:.3f} s")
