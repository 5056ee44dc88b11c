"""Small grey pictures of a film, and whether two of them show the same place.

They are compared block by block: a block matches if it is found nearby in the other picture, brightness and contrast
aside. So a moving camera, a moving person and a change of light keep most or some of their blocks; another shot keeps
few.

Shapes: thumbnails ``(36, 64)`` float32 in 0..255.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 36, 64
FLAT_LEVELS = 1.5  # standard deviation below which a block or picture shows nothing
_BLOCK_HEIGHT, _BLOCK_WIDTH = 12, 16
_REACH_DOWN, _REACH_RIGHT = 6, 8  # how far a block is looked for: an eighth of the picture and more
_BLOCK_CORRELATION = 0.75  # of a block that is found
_MOTION_LEAVES = 0.5  # of the difference; measured 0.2-0.45 for zooms, 0.6-1.0 for dissolves
_SAME_SHARE = 0.35  # of the blocks: a person may fill more than half of a picture, and move


def thumbnail(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The picture at 64x36, each value the mean of the area it covers; of the three colors green, the most of luma.

    Args:
        picture: ``(H, W)`` grey or ``(H, W, 3)`` RGB.
    """
    grey = picture if picture.ndim == 2 else picture[..., 1]
    rows, columns = _area_means(grey.shape[0], HEIGHT), _area_means(grey.shape[1], WIDTH)
    small: NDArray[np.float32] = rows @ grey.astype(np.float32) @ columns.T
    return small


def correlation(one: NDArray[np.float32], two: NDArray[np.float32]) -> float:
    """Of the values at the same places, in -1..1; 0 where one of the pictures is flat."""
    one, two = one - one.mean(), two - two.mean()
    spread = float(np.sqrt((one**2).mean() * (two**2).mean()))
    return float((one * two).mean()) / spread if spread > FLAT_LEVELS**2 else 0.0


def same_place(one: NDArray[np.float32], two: NDArray[np.float32]) -> bool:
    """Whether both may belong to one shot. Two pictures that show nothing do; of those, brightness is not looked at."""
    if correlation(one, two) > 0.95:
        return True
    textured_one, textured_two = _block_spread(one) > FLAT_LEVELS, _block_spread(two) > FLAT_LEVELS
    counted = textured_one | textured_two
    if not counted.any():
        return True
    matched = (_block_matches(one, two) > _BLOCK_CORRELATION) & textured_one
    return bool(matched[counted].mean() >= _SAME_SHARE)


def explained_by_motion(one: NDArray[np.float32], two: NDArray[np.float32]) -> bool:
    """Whether most of what differs between two pictures goes when each block may move, as with a pan or a zoom."""
    textured = _block_spread(one) > FLAT_LEVELS
    if not textured.any():
        return False
    still = (1 - _block_correlations(one, two))[textured].sum()
    moved = (1 - _block_matches(one, two))[textured].sum()
    return bool(moved < _MOTION_LEAVES * still)


def _block_correlations(one: NDArray[np.float32], two: NDArray[np.float32]) -> NDArray[np.float64]:
    """For each block the correlation with the same place in the second picture."""
    blocks_one, blocks_two = _blocks(one), _blocks(two)
    product = (blocks_one * blocks_two).mean(axis=(1, 3)) - blocks_one.mean(axis=(1, 3)) * blocks_two.mean(axis=(1, 3))
    spread = np.maximum(_block_spread(one), FLAT_LEVELS) * np.maximum(_block_spread(two), FLAT_LEVELS)
    result: NDArray[np.float64] = product / spread
    return result


def _block_matches(one: NDArray[np.float32], two: NDArray[np.float32]) -> NDArray[np.float64]:
    """For each of the 12 blocks of the first picture the highest correlation with any place nearby in the second."""
    padded = np.pad(two, ((_REACH_DOWN, _REACH_DOWN), (_REACH_RIGHT, _REACH_RIGHT)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (_BLOCK_HEIGHT, _BLOCK_WIDTH))
    best = np.zeros((HEIGHT // _BLOCK_HEIGHT, WIDTH // _BLOCK_WIDTH))
    for row, column in np.ndindex(best.shape):
        top, left = row * _BLOCK_HEIGHT, column * _BLOCK_WIDTH
        block = one[top : top + _BLOCK_HEIGHT, left : left + _BLOCK_WIDTH].ravel()
        nearby = windows[top : top + 2 * _REACH_DOWN + 1, left : left + 2 * _REACH_RIGHT + 1]
        flat = nearby.reshape(-1, block.size)
        block = block - block.mean()
        spread = np.sqrt(np.maximum(np.einsum("ij,ij->i", flat, flat) / block.size - flat.mean(axis=1) ** 2, 0.0))
        spread = np.maximum(spread, FLAT_LEVELS) * max(float(block.std()), FLAT_LEVELS)
        best[row, column] = (flat @ block / block.size / spread).max()
    return best


def _block_spread(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    spread: NDArray[np.float32] = _blocks(picture).std(axis=(1, 3))
    return spread


def _blocks(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    blocks: NDArray[np.float32] = picture.reshape(
        HEIGHT // _BLOCK_HEIGHT, _BLOCK_HEIGHT, WIDTH // _BLOCK_WIDTH, _BLOCK_WIDTH
    )
    return blocks


@lru_cache(maxsize=8)
def _area_means(extent: int, count: int) -> NDArray[np.float32]:
    """``(count, extent)`` weights: row ``i`` averages the pixels of the ``i``-th of ``count`` equal parts."""
    edges = np.arange(count + 1) * extent / count
    pixels = np.arange(extent)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = np.maximum(covered, 0.0)
    means: NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return means
