"""Facts about reading crop files: the right picture, the right level, and damage told."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.media.crops import read_crops
from avfusion.media.video import read_frames
from avfusion.media.write import write_crops


def numbered(count: int, size: int = 48) -> NDArray[np.uint8]:
    """Picture ``i`` is flat grey ``2 i``, with a texture of two levels so that pictures are not empty."""
    texture = (np.indices((size, size)).sum(axis=0) % 8 < 4).astype(np.uint8) * 8
    return (2 * np.arange(count, dtype=np.uint8)[:, None, None] + texture).astype(np.uint8)


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 120), (24, 3), (25, 10), (26, 60), (119, 1), (61, 59)])
def test_frame_k_is_frame_k(tmp_path: Path, start: int, count: int) -> None:
    write_crops(tmp_path / "n.mp4", numbered(120))
    read = read_crops(tmp_path / "n.mp4", start, count)
    np.testing.assert_array_equal(np.rint(read.mean(axis=(1, 2)) / 2), np.arange(start, start + count) + 2)


@pytest.mark.parametrize("size", [16, 48, 56, 112])
def test_what_is_read_is_what_was_written_within_half_a_level(tmp_path: Path, size: int) -> None:
    rows, columns = np.mgrid[:size, :size]
    frames = np.stack([(2 * columns + rows + 3 * n) % 256 // 2 + 60 for n in range(30)]).astype(np.uint8)
    frames[0, 0, 0], frames[0, 0, 1] = 0, 255
    write_crops(tmp_path / "c.mp4", frames)
    error = read_crops(tmp_path / "c.mp4", 0, 30).astype(int) - frames
    assert np.abs(error).mean() < 1.5
    assert abs(error.mean()) < 0.3  # no level is favored: black stays black, white stays white


def test_black_and_white_keep_their_levels(tmp_path: Path) -> None:
    levels = np.array([0, 1, 16, 128, 235, 254, 255], dtype=np.uint8)
    write_crops(tmp_path / "l.mp4", np.tile(levels[:, None, None], (1, 32, 32)))
    read = read_crops(tmp_path / "l.mp4", 0, len(levels))
    assert np.abs(read.astype(int) - levels[:, None, None]).max() <= 1


def test_files_of_another_pixel_format_go_through_the_general_reader(tmp_path: Path) -> None:
    path = tmp_path / "rgb.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": "10", "bf": "0"})
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv444p"
        for level in range(20, 50):
            picture = np.full((64, 64, 3), 3 * level, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    np.testing.assert_array_equal(read_crops(path, 7, 5), read_frames(path, 7, 5))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_crops(tmp_path / "n.mp4", numbered(30))
    with pytest.raises(AvfusionError, match=r"frames 20 \.\. 39 of .*n\.mp4, which ends after 30"):
        read_crops(tmp_path / "n.mp4", 20, 20)
    with pytest.raises(AvfusionError, match=r"no video file at .*gone\.mp4"):
        read_crops(tmp_path / "gone.mp4", 0, 1)
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(AvfusionError, match=r"text\.mp4 cannot be read as video"):
        read_crops(tmp_path / "text.mp4", 0, 1)
    content = bytearray((tmp_path / "n.mp4").read_bytes())
    write_crops(tmp_path / "noise.mp4", np.random.default_rng(0).integers(0, 255, (60, 48, 48), np.uint8))
    content = bytearray((tmp_path / "noise.mp4").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4000] = bytes(4000)
    (tmp_path / "hole.mp4").write_bytes(content)
    with pytest.raises(AvfusionError, match=r"hole\.mp4"):
        read_crops(tmp_path / "hole.mp4", 0, 60)
