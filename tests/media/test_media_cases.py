"""The known faults of files, codecs and names (class MEDIA), each with the value that is right."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from avfusion.errors import AvfusionError, run_command
from avfusion.media.decode import iterate_retimed, read_retimed
from avfusion.media.ingest import ingest, main, read_ingested
from avfusion.media.video import VideoReader, read_frames


@pytest.fixture
def media(shared: Path) -> Path:
    return shared / "cases" / "media"


def run_ingest(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "avfusion.media.ingest", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        encoding="utf-8",
        errors="surrogateescape",
    )


def ingest_here(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """The command in this process: its exit code and what it wrote to stderr."""
    status = run_command(lambda: main([str(argument) for argument in arguments]))
    return status, capsys.readouterr().err


def assert_one_line(error: BaseException, *words: str) -> None:
    text = str(error)
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < 400
    for word in words:
        assert word in text


def test_m01_a_film_without_sound_is_named_and_the_others_go_on(media: Path, shared: Path, tmp_path: Path) -> None:
    silent = [media / "no_audio.mp4", shared / "cases" / "faces" / "two_faces_no_audio.mp4"]
    good = [media / "fps_25.mp4", media / "clip_0_2s.mp4", media / "ref_pcm.mkv"]
    finished = run_ingest(good[0], silent[0], good[1], silent[1], good[2], tmp_path)
    assert finished.returncode == 1
    errors = [line for line in finished.stderr.splitlines() if line.startswith("error: ")]
    assert [line.split(":")[1] for line in errors[:2]] == [f" no audio stream in {path}" for path in silent]
    assert errors[2:] == ["error: 2 of 5 files failed; see above"]
    assert "Traceback" not in finished.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if read_ingested(path)) == sorted(p.name for p in good)
    assert not (tmp_path / "no_audio.mp4").exists()
    taken = ingest(silent[0], tmp_path / "taken", allow_silent=True)
    assert (taken.num_frames, taken.has_sound, taken.sound_ends_frame) == (75, False, 0)
    assert "no audio stream: the sound is zeros" in taken.notes


def test_m02_a_file_without_picture_is_named(media: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, stderr = ingest_here(capsys, media / "audio_only.mp4", tmp_path / "out")
    assert status == 1
    assert stderr.startswith(f"error: {media / 'audio_only.mp4'} has no video stream")
    assert stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["truncated_faststart.mp4", "truncated_no_moov.mp4"])
def test_m04_a_truncated_file_is_an_error_and_leaves_nothing(
    media: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, stderr = ingest_here(capsys, media / name, tmp_path / "out")
    assert status == 1
    assert stderr.splitlines()[-1].startswith(f"error: {media / name} ")
    assert list((tmp_path / "out").glob("*")) == []
    with pytest.raises(AvfusionError, match=name):
        read_retimed(media / name)


def test_m04_salvage_keeps_what_can_be_decoded_and_says_how_much(media: Path, tmp_path: Path, film: Any) -> None:
    result = ingest(media / "truncated_faststart.mp4", tmp_path, salvage=True)
    frames = read_frames(result.video, 0, result.num_frames)
    assert film.numbers(frames) == list(range(145))
    assert any("cut short: its picture ends at" in note and "of 12.00 s" in note for note in result.notes)
    assert result.details["source_pictures"] == 145
    for threads in (1, 2, 4):  # however many threads decode
        shown = list(iterate_retimed(media / "truncated_faststart.mp4", salvage=True, threads=threads))
        assert [number for number, _ in shown] == list(range(145))


def test_m05_what_is_no_media_file_gets_one_line_each(media: Path, tmp_path: Path) -> None:
    (tmp_path / "directory.mp4").mkdir()
    (tmp_path / "dangling_link.mp4").symlink_to(tmp_path / "gone.mp4")
    files = {
        media / "zero_byte.mp4": "is empty (0 bytes)",
        media / "text_named.mp4": "cannot be opened",
        tmp_path / "directory.mp4": "is a folder",
        tmp_path / "dangling_link.mp4": f"is a link to {tmp_path / 'gone.mp4'}, which does not exist",
    }
    for path, reason in files.items():
        for read in (
            lambda p: ingest(p, tmp_path / "x"),
            lambda p: list(iterate_retimed(p)),
            lambda p: read_frames(p, 0, 1),
        ):
            with pytest.raises(AvfusionError) as caught:
                read(path)
            assert_one_line(caught.value, str(path), reason)
    with pytest.raises(AvfusionError, match="4 of 5 files failed"):
        main([*map(str, files), str(media / "fps_25.mp4"), str(tmp_path / "out")])
    assert read_ingested(tmp_path / "out" / "fps_25.mp4") is not None


def test_m07_av1_is_read_by_ingest_and_named_by_the_reader_that_cannot(media: Path, tmp_path: Path) -> None:
    result = ingest(media / "av1.mp4", tmp_path)
    assert (result.num_frames, result.details["source"]["video_codec"]) == (25, "av1")
    source = read_retimed(media / "av1.mp4").frames
    assert np.abs(read_frames(result.video, 0, 25).astype(int) - source).mean() < 2
    with pytest.raises(AvfusionError, match=r"codec av1 of .*not supported by decord; re-encode it") as caught:
        read_frames(media / "av1.mp4", 0, 1)
    assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("name", "stored", "written"),
    [
        ("tiny_16x16.mp4", (16, 16), (16, 16)),
        ("odd_dims_444.mp4", (321, 241), (322, 242)),
        ("odd_dims_vp9.webm", (321, 241), (322, 242)),
        ("portrait.mp4", (240, 426), (240, 426)),
    ],
)
def test_m09_small_and_odd_pictures_keep_width_and_height(
    media: Path, tmp_path: Path, film: Any, name: str, stored: tuple[int, int], written: tuple[int, int]
) -> None:
    result = ingest(media / name, tmp_path)
    frames = read_frames(result.video, 0, result.num_frames)
    source = read_retimed(media / name).frames
    assert (source.shape[2], source.shape[1]) == stored
    assert (frames.shape[2], frames.shape[1]) == written
    inside = frames[:, : source.shape[1], : source.shape[2]].astype(int)
    assert np.abs(inside - source).mean() < 3
    repeated = stored[0] % 2 == 1
    assert any("last row or column is repeated" in note for note in result.notes) == repeated
    if repeated:
        assert np.abs(frames[:, -1].astype(int) - frames[:, -2]).mean() < 3
    if name != "tiny_16x16.mp4":
        assert film.numbers(source) == list(range(len(source)))
    assert VideoReader(media / name).read(0, 1).shape[1:] == source.shape[1:]


def test_m10_a_phone_video_is_turned_once(media: Path, shared: Path, tmp_path: Path, film: Any) -> None:
    upright = read_retimed(shared / "cases" / "faces" / "one_face_speaks.mp4").frames[:20]
    turned = read_retimed(shared / "cases" / "faces" / "phone_rotated.mp4").frames[:20]
    result = ingest(shared / "cases" / "faces" / "phone_rotated.mp4", tmp_path / "phone")
    written = read_frames(result.video, 0, 20)
    for frames in (turned, written):
        assert frames.shape == (20, 360, 480) == upright.shape
        face = np.s_[:, 120:216, 190:286]
        assert np.abs(frames[face].astype(int) - upright[face]).mean() < 6
        assert np.abs(frames[face].astype(int) - upright[:, ::-1, ::-1][face]).mean() > 15
    result = ingest(media / "rotated_90.mp4", tmp_path / "marks")
    frames = read_frames(result.video, 0, 100)
    assert frames.shape == (100, 320, 240)
    assert film.numbers(np.rot90(frames, -1, axes=(1, 2))) == list(range(100))
    assert np.abs(frames.astype(int) - read_retimed(media / "rotated_90.mp4").frames).mean() < 3


@pytest.mark.parametrize("name", ["long_gop_bframes.mp4", "webm_vp8_vorbis.webm", "avi_mjpeg_pcm.avi"])
def test_m11_frame_k_shows_k_in_any_order(media: Path, film: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = VideoReader(media / name)
    order = np.random.default_rng(0).permutation(len(reader))[:25]
    assert [film.numbers(reader.read(int(k), 1))[0] for k in order] == order.tolist()
    retimed = read_retimed(media / name)
    assert film.numbers(retimed.frames) == list(range(len(reader)))
    monkeypatch.setitem(sys.modules, "decord", None)
    fallback = VideoReader(media / name)
    with pytest.warns(UserWarning, match="decord is not installed"):
        fallback.read(0, 1)
    assert [film.numbers(fallback.read(int(k), 1))[0] for k in order[:8]] == order[:8].tolist()


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures memory by /proc, which this system lacks")
@pytest.mark.parametrize("hidden", [False, True])
def test_m13_opening_and_reading_again_and_again_does_not_grow(
    media: Path, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hidden:
        monkeypatch.setitem(sys.modules, "decord", None)
    monkeypatch.setattr("warnings.warn", lambda *_, **__: None)
    for _ in range(20):
        read_frames(media / "fps_25.mp4", 0, 12)
    before = resident_mb()
    for _ in range(80):
        read_frames(media / "fps_25.mp4", 0, 12)
    assert resident_mb() - before < 12  # 950 opens may cost 150 MB


class _Clips(Dataset[torch.Tensor]):
    """Reads through one reader that was opened before the workers were forked."""

    def __init__(self, path: Path) -> None:
        self.reader = VideoReader(path)
        self.reader.read(0, 1)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.reader.read(12 * index, 5)).float().mean()


def test_m14_workers_read_what_the_main_process_reads_and_none_hangs(media: Path) -> None:
    sums = {}
    for workers in (0, 1, 4):
        loader = DataLoader(_Clips(media / "fps_25.mp4"), num_workers=workers, timeout=100 if workers else 0)
        sums[workers] = [float(value) for value in loader]
    assert sums[0] == sums[1] == sums[4]
    assert len(set(sums[0])) > 1


def test_m15_any_file_name_gives_the_same_result(media: Path, tmp_path: Path) -> None:
    bytes_of_film = (media / "fps_25.mp4").read_bytes()
    names = [media / "with space & (paren) [x].mp4", media / "人脸 détection é.mp4"]
    for name in ("-x.mp4", "12:30 a:b.mp4", "100%d.mp4", "quote'\".mp4", os.fsdecode(b"latin\xe9.mp4")):
        (tmp_path / name).write_bytes(bytes_of_film)
        names.append(tmp_path / name)
    expected = read_frames(ingest(media / "fps_25.mp4", tmp_path / "expected").video, 0, 100)
    finished = run_ingest(*names, tmp_path / "out", LC_ALL="C")
    assert finished.returncode == 0, finished.stderr
    for name in names:
        result = read_ingested(tmp_path / "out" / name.name)
        assert result is not None
        # decord takes no name that is not UTF-8: it is read under another one
        (tmp_path / "plain.mp4").write_bytes(result.video.read_bytes())
        np.testing.assert_array_equal(read_frames(tmp_path / "plain.mp4", 0, 100), expected)


@pytest.mark.slow  # 45 000 frames: half a minute on one core
def test_m17_half_an_hour_is_converted_in_bounded_memory_with_progress(media: Path, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    # Not ru_maxrss: a child begins with what its parent held, and pytest may hold more than the limit below.
    status = Path("/proc/self/status")
    if not status.is_file():
        pytest.skip("no /proc here to tell the memory of the child alone")
    code = (
        "import resource, sys; from pathlib import Path; from avfusion.media.ingest import main; "
        "resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30)); main(sys.argv[1:]); "
        f"print('peak', int(Path('{status}').read_text().split('VmHWM:')[1].split()[0]) // 1024)"
    )
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 100, 0, 0))  # a terminal 100 characters wide
    command = [sys.executable, "-c", code, str(media / "long_silent_30min.mp4"), str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not block:
            break
        shown += block
    assert process.stdout is not None
    told = process.stdout.read()
    assert process.wait() == 0, shown[-2000:]
    assert int(told.rsplit("peak ", 1)[1]) < 1500  # MB; most of it is the import of torch
    assert b"%|" in shown
    result = read_ingested(tmp_path / "out")
    assert result is not None
    assert result.num_frames == 45_000
