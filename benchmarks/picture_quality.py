"""How alike pictures are (SSIM), and which JPEG quality is as good as another encoding.

SSIM: Wang, Bovik, Sheikh, Simoncelli 2004, gaussian window of 11 pixels with a deviation of 1.5.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image

from avfusion.data.clips import ClipDataset
from benchmarks.talknet_layout import LayoutTrack

CROP_SIZE = 112


def at_crop_size(crops: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Pictures of one size, resized as ``avfusion/media/jpeg.py`` does."""
    pictures = torch.from_numpy(np.stack(crops))[:, None]
    if pictures.shape[2:] != (CROP_SIZE, CROP_SIZE):
        pictures = F.interpolate(pictures, (CROP_SIZE, CROP_SIZE), mode="bilinear", antialias=True)
    resized: NDArray[np.uint8] = pictures[:, 0].numpy()
    return resized


def matched_quality(sources: Sequence[LayoutTrack], small: Sequence[LayoutTrack], target: float) -> int:
    """The JPEG quality whose mean SSIM over every tenth frame, read at the crops' size, is nearest to ``target``."""

    def at(quality: int) -> float:
        values = []
        for source, reference in zip(sources, small, strict=True):
            decoded = [_through_jpeg(crop, quality) for crop in source.crops[::10]]
            values.append(ssim(np.stack(reference.crops[::10]), at_crop_size(decoded)))
        return float(np.concatenate(values).mean())

    low, high = 1, 100
    while high - low > 1:  # SSIM grows with quality
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) < target else (low, middle)
    return min((low, high), key=lambda quality: abs(at(quality) - target))


def _through_jpeg(grey: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def ssim_of(dataset: ClipDataset, tracks: Sequence[LayoutTrack]) -> float:
    """Mean over all frames of the dataset against the original crops."""
    index_of = {track.entity_id: index for index, track in enumerate(dataset.tracks)}
    values = []
    for track in tracks:
        read = dataset.read(index_of[track.entity_id]).crops
        values.append(ssim(np.stack(track.crops), read))
    return float(np.concatenate(values).mean())


def ssim(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Structural similarity of each pair of pictures.

    Args:
        first: ``(T, H, W)``.
        second: ``(T, H, W)``.

    Returns:
        ``(T,)``, 1 where two pictures are the same.
    """
    steps = torch.arange(-5, 6, dtype=torch.float32)
    line = torch.exp(-0.5 * (steps / 1.5) ** 2)
    window = torch.outer(line, line)[None, None] / line.sum() ** 2
    x, y = (torch.from_numpy(pictures).float()[:, None] for pictures in (first, second))
    mean_x, mean_y = F.conv2d(x, window), F.conv2d(y, window)
    var_x, var_y = F.conv2d(x * x, window) - mean_x**2, F.conv2d(y * y, window) - mean_y**2
    covariance = F.conv2d(x * y, window) - mean_x * mean_y
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    similarity = similarity / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
    result: NDArray[np.float32] = similarity.mean(dim=(1, 2, 3)).numpy()
    return result
