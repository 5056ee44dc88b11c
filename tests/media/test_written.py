"""Facts about writing where no room is left: never a half file, and always an error that names the file and why.

A limit of the file size stands for the full disk: like it, it stops a write at any byte.
"""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avfusion.files import whole_text_file
from avfusion.media.audio import write_audio
from avfusion.media.ingest import ingest, main, read_ingested
from avfusion.media.write import write_crops

resource = pytest.importorskip("resource", reason="needs limits of the file size")


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """No file grows beyond this inside."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def limits(size: int) -> list[int]:
    """Sizes at which writing stops: the last bytes, which are written on closing, each by itself."""
    return [0, 1, 100, size // 2, *range(size - 5000, size - 100, 500), *range(size - 100, size, 7), size - 1]


def test_sound_that_finds_no_room_is_an_error_with_the_files_name_at_whatever_byte(tmp_path: Path) -> None:
    # libsndfile says nothing where the last bytes are missing.
    noise = np.random.default_rng(0).uniform(-1, 1, 20_000).astype(np.float32)
    write_audio(tmp_path / "whole.flac", noise)
    size = (tmp_path / "whole.flac").stat().st_size
    for limit in limits(size):
        with room_for(limit), pytest.raises(OSError, match="File too large") as caught:
            write_audio(tmp_path / "out" / "x.flac", noise)
        assert caught.value.errno == errno.EFBIG
        assert "x.flac" in caught.value.filename
        assert list((tmp_path / "out").iterdir()) == []
    with room_for(size):
        write_audio(tmp_path / "out" / "x.flac", noise)
    assert (tmp_path / "out" / "x.flac").read_bytes() == (tmp_path / "whole.flac").read_bytes()


def test_crops_that_find_no_room_are_an_error_with_the_files_name(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (12, 48, 48)).astype(np.uint8)
    write_crops(tmp_path / "whole.mp4", noise)
    size = (tmp_path / "whole.mp4").stat().st_size
    for limit in limits(size)[::4]:
        with room_for(limit), pytest.raises(OSError, match="File too large") as caught:
            write_crops(tmp_path / "out" / "x.mp4", noise)
        sent = pickle.loads(pickle.dumps(caught.value))  # from a process of a pool
        assert (sent.errno, "x.mp4" in sent.filename) == (errno.EFBIG, True)
        assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.9, 0.99, 0.999])
def test_a_conversion_without_room_stops_the_batch_and_leaves_nothing(tmp_path: Path, film: Any, share: float) -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (1, 32_000))
    for name in ("x.mkv", "y.mkv"):
        film.write(tmp_path / name, tracks=[{"rate_hz": 16_000, "samples": noise}], duration_s=2.0)
    for part in ("audio.flac", "video.mp4"):
        if not (tmp_path / "whole").exists():
            ingest(tmp_path / "x.mkv", tmp_path / "whole")
        limit = int(share * (tmp_path / "whole" / part).stat().st_size)
        with room_for(limit), pytest.raises(OSError, match="File too large") as caught:
            main([str(tmp_path / "x.mkv"), str(tmp_path / "y.mkv"), str(tmp_path / "out")])
        assert caught.value.errno == errno.EFBIG
        assert str(tmp_path / "out" / "x.mkv") in caught.value.filename
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["x.mkv"]  # y was not begun
        assert list((tmp_path / "out" / "x.mkv").iterdir()) == []
        assert read_ingested(tmp_path / "out" / "x.mkv") is None


def test_a_text_file_that_finds_no_room_is_named(tmp_path: Path) -> None:
    with room_for(10), pytest.raises(OSError, match="File too large") as caught, whole_text_file(tmp_path / "x") as f:
        f.write("more than ten letters")
    assert caught.value.filename == str(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
