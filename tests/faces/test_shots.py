"""Cuts and dissolves are found where they are; pans, zooms, flashes, lights and people are no cuts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.faces.shots import LOOK_AHEAD, Cut, ShotFinder, find_cuts
from avfusion.faces.thumbnails import thumbnail

Film = list[NDArray[np.uint8]]
HEIGHT, WIDTH = 90, 160


def place(seed: int, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.float64]:
    """A picture with detail of several sizes, like a room or a street."""
    rng = np.random.default_rng(seed)
    picture = np.zeros((height, width))
    for cell, levels in ((40, 35), (15, 25), (5, 12)):
        coarse = rng.normal(0, levels, (height // cell + 3, width // cell + 3))
        rows, columns = np.arange(height) / cell, np.arange(width) / cell
        for axis, at in ((0, rows), (1, columns)):
            whole, part = at.astype(int), at - at.astype(int)
            part = part[:, None] if axis == 0 else part
            coarse = (1 - part) * coarse.take(whole, axis) + part * coarse.take(whole + 1, axis)
        picture += coarse
    return np.clip(120 + picture, 0, 255)


def still(seed: int, count: int) -> Film:
    """Noise of a camera on a picture that stands."""
    rng = np.random.default_rng([seed, 1])
    noisy = place(seed) + rng.normal(0, 3, (count, HEIGHT, WIDTH))
    return list(np.clip(noisy, 0, 255).astype(np.uint8))


def dissolve(one: Film, two: Film) -> Film:
    """One into the other, over all their frames."""
    shares = (np.arange(len(one)) + 1) / (len(one) + 1)
    return [((1 - s) * a + s * b).astype(np.uint8) for s, a, b in zip(shares, one, two, strict=True)]


def lit(film: Film, gains: NDArray[np.float64]) -> Film:
    return [np.clip(frame * gain, 0, 255).astype(np.uint8) for frame, gain in zip(film, gains, strict=True)]


def test_hard_cuts_are_found_at_their_frame() -> None:
    film = still(1, 30) + still(2, 12) + still(3, 40)
    assert list(find_cuts(film)) == [Cut(30, False), Cut(42, False)]


@pytest.mark.parametrize("length", [12, 25])
@pytest.mark.parametrize("seed", [1, 5, 9])
def test_a_dissolve_is_one_cut_near_its_middle(length: int, seed: int) -> None:
    one, two = still(seed, 40 + length), still(seed + 1, 40 + length)
    film = one[:40] + dissolve(one[40:], two[:length]) + two[length:]
    (cut,) = find_cuts(film)
    assert cut.gradual
    assert abs(cut.frame - (40 + length / 2)) <= length / 6


def test_a_fade_through_black_parts_two_shots() -> None:
    out = lit(still(1, 40), np.concatenate([np.ones(30), np.linspace(0.9, 0, 10)]))
    into = lit(still(2, 40), np.concatenate([np.linspace(0, 0.9, 10), np.ones(30)]))
    cuts = list(find_cuts(out + into))
    assert 1 <= len(cuts) <= 2  # out of the first, into the second
    assert all(37 <= cut.frame <= 43 for cut in cuts)


def pan(step_px: int) -> Film:
    wide = place(4, HEIGHT, WIDTH + 60 * step_px).astype(np.uint8)
    return [wide[:, step_px * i : step_px * i + WIDTH] for i in range(60)]


def zoom() -> Film:
    large = place(5, 4 * HEIGHT, 4 * WIDTH).astype(np.uint8)
    film = []
    for i in range(60):
        rows = (2 * HEIGHT + (np.arange(HEIGHT) - HEIGHT / 2) * 3.9 * 0.98**i).astype(int)
        columns = (2 * WIDTH + (np.arange(WIDTH) - WIDTH / 2) * 3.9 * 0.98**i).astype(int)
        film.append(large[rows][:, columns])
    return film


def flash() -> Film:
    gains = np.ones(60)
    gains[29:32] = (1.8, 6.0, 2.5)
    return lit(still(6, 60), gains)


def lights_on() -> Film:
    return lit(still(7, 60), np.where(np.arange(60) < 30, 0.25, 1.0))


def lights_up_slowly() -> Film:
    return lit(still(7, 60), np.clip(np.arange(60) / 40, 0.3, 1.0))


def person_walks_by() -> Film:
    """Somebody who fills half of the width passes in a second."""
    film, person = still(8, 60), place(9)[:, : WIDTH // 2].astype(np.uint8)
    for i, frame in enumerate(film):
        left = 8 * i - WIDTH
        first, last = max(left, 0), min(left + WIDTH // 2, WIDTH)
        if first < last:
            frame[10:, first:last] = person[10:, first - left : last - left]
    return film


@pytest.mark.parametrize(
    "film",
    [lambda: pan(1), lambda: pan(4), lambda: pan(12), zoom, flash, lights_on, lights_up_slowly, person_walks_by],
    ids=["slow pan", "pan", "whip pan", "zoom", "flash", "lights on", "lights up slowly", "person walks by"],
)
def test_what_stays_in_one_place_is_no_cut(film: Callable[[], Film]) -> None:
    assert list(find_cuts(film())) == []


def test_cuts_come_out_soon_in_order_and_none_later_below_what_is_settled() -> None:
    one, two = still(1, 60), still(2, 60)
    film = one[:30] + dissolve(one[30:42], two[:12]) + two[12:40] + still(3, 50)
    finder, settled, found = ShotFinder(), 0, []
    for count, frame in enumerate(film, start=1):
        cuts = list(finder.push(frame))
        assert all(cut.frame >= settled for cut in cuts)
        found += cuts
        assert settled <= finder.settled
        settled = finder.settled
        assert settled >= count - LOOK_AHEAD
    assert found + list(finder.finish()) == sorted(found, key=lambda cut: cut.frame)
    assert [cut.gradual for cut in found] == [True, False]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 30])
def test_short_films_have_no_cut(count: int) -> None:
    assert list(find_cuts(still(1, count))) == []


def test_a_thumbnail_averages_areas_exactly() -> None:
    picture = np.zeros((72, 100, 3), dtype=np.uint8)
    picture[:, 50:, 1] = 200
    columns = thumbnail(picture)[7]
    np.testing.assert_allclose(columns[[0, 31, 32, 63]], [0, 0, 200, 200], atol=1e-3)
    odd = np.zeros((36, 96), dtype=np.uint8)
    odd[:, 1] = 150  # pixel 1 of 1.5 per column: half of it in column 0, half in column 1
    np.testing.assert_allclose(thumbnail(odd)[0, :3], [50, 50, 0], atol=1e-3)
