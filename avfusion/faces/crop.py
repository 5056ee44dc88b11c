"""The one rule by which a face box becomes a crop, for every corpus and for the user's own video.

A square around the box's center, its side ``scale`` times the longer side of the box, resampled to ``size`` x ``size``
grey. Boxes are smoothed over time first, so that the detector's jitter does not look like a moving mouth. Sampling is
sub-pixel and anti-aliased: one small matrix per axis, ``rows (S, H) @ picture (H, W) @ columns (W, S)``. What lies
outside the picture is mid-grey; the aspect ratio is always kept.

Shapes: pictures ``(T, H, W)`` or ``(T, H, W, 3)`` uint8, boxes ``(T, 4)`` as x1, y1, x2, y2 in pixels, crops
``(T, S, S)`` uint8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.media.video import to_grey

CROP_SCALE = 1.1  # a box from forehead to chin, and room for the chin of an open mouth
OUTSIDE_GREY = 110.0
MEDIAN_FRAMES = 13  # half a second at 25 fps
SMOOTHING_FRAMES = 2.0  # standard deviation of the gaussian that follows the median


def crop_faces(
    frames: NDArray[np.uint8], boxes_xyxy_px: NDArray[np.float64], size: int = 112, scale: float = CROP_SCALE
) -> NDArray[np.uint8]:
    """Cuts one face out of consecutive frames.

    Args:
        frames: ``(T, H, W)`` grey or ``(T, H, W, 3)`` RGB uint8, in any memory order (flipped views are fine).
        boxes_xyxy_px: ``(T, 4)`` boxes of that face; they may reach beyond the picture.
        size: height and width ``S`` of the crops.
        scale: side of the square in units of the box's longer side.

    Returns:
        ``(T, S, S)`` uint8 grey.

    Raises:
        ValueError: other shapes, or a box without area.
    """
    if frames.ndim not in (3, 4) or boxes_xyxy_px.shape != (len(frames), 4):
        raise ValueError(f"expected (T, H, W[, 3]) frames and (T, 4) boxes, found {frames.shape} {boxes_xyxy_px.shape}")
    squares = face_squares(boxes_xyxy_px, scale)
    crops = np.empty((len(frames), size, size), dtype=np.uint8)
    for index, (frame, square) in enumerate(zip(frames, squares, strict=True)):
        crops[index] = crop_square(frame, square, size)
    return crops


def face_squares(boxes_xyxy_px: NDArray[np.float64], scale: float = CROP_SCALE) -> NDArray[np.float64]:
    """The smoothed squares that are cut out.

    Args:
        boxes_xyxy_px: ``(T, 4)``.
        scale: side of the square in units of the box's longer side.

    Returns:
        ``(T, 3)``: center x, center y, side, in pixels.

    Raises:
        ValueError: a box without area, or with coordinates that are not finite.
    """
    x1, y1, x2, y2 = np.asarray(boxes_xyxy_px, dtype=np.float64).T
    longer = np.maximum(x2 - x1, y2 - y1)
    valid = np.isfinite(boxes_xyxy_px).all(axis=1) & (x2 > x1) & (y2 > y1)
    if not valid.all():
        index = int(np.argmin(valid))
        raise ValueError(f"box {index} is {boxes_xyxy_px[index].tolist()}, expected finite x1 < x2 and y1 < y2")
    squares = np.stack([(x1 + x2) / 2, (y1 + y2) / 2, scale * longer], axis=1)
    return smooth_over_time(squares)


def smooth_over_time(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A median, which drops single wrong boxes, then a gaussian; edges are continued by their last value.

    Args:
        values: ``(T, C)``.

    Returns:
        ``(T, C)``.
    """
    half = MEDIAN_FRAMES // 2
    windows = np.lib.stride_tricks.sliding_window_view(_continue_edges(values, half), MEDIAN_FRAMES, axis=0)
    median: NDArray[np.float64] = np.median(windows, axis=-1)
    reach = int(3 * SMOOTHING_FRAMES)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SMOOTHING_FRAMES) ** 2)
    windows = np.lib.stride_tricks.sliding_window_view(_continue_edges(median, reach), len(kernel), axis=0)
    smooth: NDArray[np.float64] = windows @ (kernel / kernel.sum())
    return smooth


def crop_square(frame: NDArray[np.uint8], square: NDArray[np.float64], size: int) -> NDArray[np.uint8]:
    """Resamples one square of a picture.

    Args:
        frame: ``(H, W)`` grey or ``(H, W, 3)`` RGB.
        square: ``(3,)`` center x, center y, side, in pixels.
        size: height and width ``S`` of the result.

    Returns:
        ``(S, S)`` uint8 grey.
    """
    center_x, center_y, side = square
    rows, top, bottom = _sampling_matrix(center_y - side / 2, side, size, frame.shape[0])
    columns, left, right = _sampling_matrix(center_x - side / 2, side, size, frame.shape[1])
    region = frame[top:bottom, left:right]
    grey = region if region.ndim == 2 else to_grey(region)
    sampled = OUTSIDE_GREY + rows @ (grey.astype(np.float32) - np.float32(OUTSIDE_GREY)) @ columns.T
    crop: NDArray[np.uint8] = np.clip(np.rint(sampled), 0, 255).astype(np.uint8)
    return crop


def _sampling_matrix(start: float, side: float, size: int, extent: int) -> tuple[NDArray[np.float32], int, int]:
    """Anti-aliased linear interpolation along one axis.

    Returns:
        ``(size, last - first)`` weights, and the range ``first .. last`` of pixels inside the picture that they use.
        Weights of pixels outside are left out, so a row sums to less than 1 there.
    """
    step = side / size
    reach = max(step, 1.0)  # half width of the triangle: one output pixel, at least one input pixel
    centers = start + (np.arange(size) + 0.5) * step - 0.5  # in input pixel indices
    pixels = np.arange(np.floor(centers[0] - reach), np.ceil(centers[-1] + reach) + 1)
    weights = np.maximum(1.0 - np.abs(pixels - centers[:, None]) / reach, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    inside = (pixels >= 0) & (pixels < extent)
    first = int(np.clip(pixels[0], 0, extent))
    return weights[:, inside].astype(np.float32), first, first + int(inside.sum())


def _continue_edges(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    return np.pad(values, [(count, count), (0, 0)], mode="edge")
