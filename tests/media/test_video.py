"""Facts about crops written and read: levels, order, errors, processes."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.media.video import VideoReader, read_frames, to_grey
from avfusion.media.write import write_crops


def textured_ramp(num_frames: int = 40) -> NDArray[np.uint8]:
    """Every grey level from black to white, with a texture that moves."""
    across = np.linspace(0, 255, 112)[None, None, :]
    texture = 8 * np.sin(np.arange(112) / 3)[None, :, None] * np.sin(np.arange(num_frames) / 5)[:, None, None]
    return np.clip(np.rint(across + texture), 0, 255).astype(np.uint8)


def numbered(num_frames: int) -> NDArray[np.uint8]:
    """Frame ``k`` shows ``k`` as eight bright or dark columns."""
    bits = (np.arange(num_frames)[:, None] >> np.arange(8)) & 1
    return np.repeat(np.repeat((40 + 180 * bits).astype(np.uint8)[:, None, :], 64, axis=1), 8, axis=2)


def numbers_of(frames: NDArray[np.uint8]) -> list[int]:
    bits = frames.reshape(len(frames), 64, 8, 8).mean(axis=(1, 3)) > 128
    return [int(value) for value in bits @ (1 << np.arange(8))]


@pytest.fixture(scope="module")
def numbered_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("video") / "numbered.mp4"
    write_crops(path, numbered(130))
    return path


def test_levels_come_back_within_one_grey_level_on_average(tmp_path: Path) -> None:
    frames = textured_ramp()
    write_crops(tmp_path / "ramp.mp4", frames)
    difference = read_frames(tmp_path / "ramp.mp4", 0, len(frames)).astype(int) - frames
    assert np.abs(difference).mean() < 1.0
    assert np.abs(difference.mean(axis=(0, 1))).max() < 2.5  # at no level a stretch or an offset
    assert [path.name for path in tmp_path.iterdir()] == ["ramp.mp4"]


@pytest.mark.parametrize("size", [8, 16, 24, 48, 50, 72, 96])
def test_every_even_size_comes_back(tmp_path: Path, size: int) -> None:
    frames = np.full((3, size, size), 60, dtype=np.uint8)
    frames[:, : size // 2, size // 2 :] = 180
    write_crops(tmp_path / "small.mp4", frames)
    read = read_frames(tmp_path / "small.mp4", 0, 3)
    assert read.shape == frames.shape
    assert np.abs(read.astype(int) - frames).mean() < 2.0


def test_frame_k_is_frame_k_from_any_start(numbered_file: Path) -> None:
    assert len(VideoReader(numbered_file)) == 130
    assert numbers_of(read_frames(numbered_file, 0, 130)) == list(range(130))
    reader = VideoReader(numbered_file)
    for start in (101, 3, 60, 24, 25, 26, 129):
        count = min(7, 130 - start)
        assert numbers_of(reader.read(start, count)) == list(range(start, start + count))


def test_frames_in_color_have_three_channels_of_the_same_grey(numbered_file: Path) -> None:
    color = read_frames(numbered_file, 5, 2, color=True)
    assert color.shape == (2, 64, 64, 3)
    np.testing.assert_array_equal(to_grey(color), read_frames(numbered_file, 5, 2))


def test_grey_is_luma_and_exact_where_channels_agree() -> None:
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(to_grey(np.stack([levels] * 3, axis=-1)), levels)
    np.testing.assert_array_equal(to_grey(np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)), [76, 149, 28])


@pytest.mark.parametrize(("start", "count"), [(130, 1), (120, 11), (-1, 2), (0, 0)])
def test_frames_outside_the_file_are_an_error_with_its_length(numbered_file: Path, start: int, count: int) -> None:
    with pytest.raises(AvfusionError, match=r"numbered\.mp4, which has 130"):
        read_frames(numbered_file, start, count)


def test_files_that_are_no_video_are_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video\n" * 100)
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "folder.mp4").mkdir()
    for name in ("text.mp4", "empty.mp4", "folder.mp4", "absent.mp4"):
        with pytest.raises(AvfusionError, match=name) as caught:
            read_frames(tmp_path / name, 0, 1)
        assert "\n" not in str(caught.value)


def test_without_decord_the_same_pixels_are_read_and_the_forks_named(
    numbered_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {numbered_file: [(0, 130), (101, 7), (24, 3), (129, 1)], tmp_path / "ramp.mp4": [(0, 30), (13, 12)]}
    write_crops(tmp_path / "ramp.mp4", textured_ramp(30))
    for size in (8, 16, 24, 48, 50, 72):
        files[tmp_path / f"{size}.mp4"] = [(0, 5)]
        noise = np.random.default_rng(size).integers(0, 256, (5, size, size)).astype(np.uint8)
        write_crops(tmp_path / f"{size}.mp4", noise)
    asked = [(path, start, count) for path, stretches in files.items() for start, count in stretches]
    with_decord = [read_frames(*one, color=True) for one in asked]
    monkeypatch.setitem(sys.modules, "decord", None)
    with pytest.warns(UserWarning, match=r"decord is not installed.*eva-decord.*decord2"):
        first = read_frames(*asked[0], color=True)
    np.testing.assert_array_equal(first, with_decord[0])
    monkeypatch.setattr("warnings.warn", lambda *_, **__: None)
    for one, expected in zip(asked, with_decord, strict=True):
        np.testing.assert_array_equal(read_frames(*one, color=True), expected)
    assert len(VideoReader(numbered_file)) == 130
    with pytest.raises(AvfusionError, match=r"numbered\.mp4, which has 130"):
        read_frames(numbered_file, 130, 1)


def test_without_decord_the_whole_package_imports_and_reads_crops(tmp_path: Path) -> None:
    """In a process of its own, where importing decord fails from the start."""
    code = (
        "import sys; sys.modules['decord'] = None\n"
        "import pkgutil, importlib, avfusion\n"
        "for module in pkgutil.walk_packages(avfusion.__path__, 'avfusion.'): importlib.import_module(module.name)\n"
        "import numpy as np\n"
        "from avfusion.media.video import read_frames\n"
        "from avfusion.media.write import write_crops\n"
        "write_crops('x.mp4', np.full((3, 48, 48), 90, np.uint8)); print(read_frames('x.mp4', 0, 3).mean())\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert finished.returncode == 0, finished.stderr
    assert abs(float(finished.stdout) - 90) <= 1
    assert finished.stderr.count("decord is not installed") == 1


def test_an_open_reader_can_be_pickled(numbered_file: Path) -> None:
    reader = VideoReader(numbered_file)
    reader.read(0, 1)
    assert numbers_of(pickle.loads(pickle.dumps(reader)).read(7, 2)) == [7, 8]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files by /proc, which this system lacks")
@pytest.mark.parametrize("hidden", [False, True])
def test_a_closed_reader_holds_no_file_and_reads_again(
    numbered_file: Path, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hidden:
        monkeypatch.setitem(sys.modules, "decord", None)
        monkeypatch.setattr("warnings.warn", lambda *_, **__: None)

    def times_open() -> int:
        links = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                links.append(link.resolve())
        return links.count(numbered_file.resolve())

    before = times_open()
    reader = VideoReader(numbered_file)
    reader.read(0, 1)
    assert times_open() == before + 1
    reader.close()
    assert times_open() == before
    assert numbers_of(reader.read(7, 2)) == [7, 8]


def _read_in_child(reader: VideoReader, queue: multiprocessing.Queue[list[int]]) -> None:
    queue.put(numbers_of(reader.read(50, 3)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
def test_a_reader_opened_before_a_fork_reads_in_the_child(numbered_file: Path) -> None:
    reader = VideoReader(numbered_file)
    reader.read(0, 1)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(reader, queue), daemon=True)
    child.start()
    try:
        assert queue.get(timeout=30) == [50, 51, 52]
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("shape", [(0, 64, 64), (2, 63, 64), (2, 64, 64, 3)])
def test_frames_that_cannot_be_written_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        write_crops(tmp_path / "x.mp4", np.zeros(shape, dtype=np.uint8))
    assert list(tmp_path.iterdir()) == []
