"""Facts about JPEG pictures: levels, colors, sizes, and files that are not whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from avfusion.errors import AvfusionError
from avfusion.media.jpeg import read_pictures
from avfusion.media.video import to_grey


def write(path: Path, picture: NDArray[np.uint8], **options: object) -> None:
    Image.fromarray(picture).save(path, "JPEG", quality=95, **options)


def read(path: Path, size: int) -> NDArray[np.uint8]:
    return read_pictures([path], size)[0]


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 2}])
def test_flat_levels_come_back(tmp_path: Path, mode: str, options: dict[str, object]) -> None:
    for level in (0, 16, 77, 128, 235, 255):
        picture = Image.new("L", (48, 40), level).convert("RGB").convert(mode)
        picture.save(tmp_path / "a.jpg", "JPEG", quality=95, **options)
        found = read(tmp_path / "a.jpg", 112)
        assert np.abs(found.astype(int) - level).max() <= (0 if mode != "CMYK" else 1)


def test_color_becomes_grey_as_in_a_video(tmp_path: Path) -> None:
    rows, columns = np.mgrid[:64, :64].astype(np.float32)
    rgb = np.stack([60 + 2 * columns, 190 - 2 * rows, 90 + columns + rows / 2]).astype(np.uint8)
    write(tmp_path / "c.jpg", np.ascontiguousarray(rgb.transpose(1, 2, 0)))
    decoded = np.asarray(Image.open(tmp_path / "c.jpg"))
    difference = read(tmp_path / "c.jpg", 64).astype(int) - to_grey(decoded)
    assert difference.min() >= -1
    assert difference.max() <= 2
    assert 0 <= difference.mean() < 0.8  # to_grey rounds down


def test_a_box_of_any_shape_is_stretched_to_the_square(tmp_path: Path) -> None:
    picture = np.full((90, 60), 40, np.uint8)
    picture[:, 30:] = 200  # the right half stays the right half, top to bottom
    write(tmp_path / "a.jpg", picture)
    found = read(tmp_path / "a.jpg", 112)
    assert np.abs(found[:, :54].astype(int) - 40).max() <= 3
    assert np.abs(found[:, 58:].astype(int) - 200).max() <= 3


def test_pictures_of_different_sizes_make_one_array(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for number, path in enumerate(paths):
        write(path, np.full((20 + 9 * number, 30), 50 * number, np.uint8))
    found = read_pictures([paths[0], paths[2], paths[2], paths[1]], 16)
    assert found[:, 5, 5].tolist() == [0, 100, 100, 50]


@pytest.mark.parametrize("keep", [0, 200, -1000, -40, -2])
def test_a_file_that_is_not_whole_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.jpg"
    write(path, np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(AvfusionError, match=r"cut\.jpg is no whole JPEG picture"):
        read(path, 64)
    with pytest.raises(AvfusionError, match=r"gone\.jpg cannot be read"):
        read(tmp_path / "gone.jpg", 64)
