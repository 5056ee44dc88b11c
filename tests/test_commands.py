"""The two commands as a user types them: what they make, and what they say when something is wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from avfusion.data.synthetic import SyntheticDataset
from avfusion.errors import run_command
from tests.training.wandb_file import read_wandb

REPOSITORY = Path(__file__).resolve().parents[1]
TINY = [
    "--data.crop_size=24",
    "--data.num_mels=20",
    "--data.synthetic.train_scenes=10",
    "--data.synthetic.test_scenes=8",
    "--data.synthetic.val_scenes=10",
    "--data.synthetic.scene_s=3.0",
    "--data.batch_frames=300",
    "--model.embed_dim=16",
    "--model.visual.channels=[4,8]",
    "--model.audio.channels=[4]",
    "--train.epochs=1",
    "--report.bootstrap=50",
    "--report.inspect=false",  # tests/alignment/test_inspect_command.py has it
]


def run_here(command: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs train.py or eval.py inside this process and returns its exit code."""
    spec = importlib.util.spec_from_file_location(command, REPOSITORY / f"{command}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", [f"{command}.py", *arguments])
    return run_command(module.main)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run made by ``python train.py`` without a W&B login, a home, a terminal or a display."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB") and k != "DISPLAY"}
    environment |= {"HOME": "/nonexistent", "MPLBACKEND": "TkAgg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", f"--run.dir={folder}", *TINY]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    return folder, done


def test_training_leaves_a_whole_run_folder(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = trained
    assert done.returncode == 0, done.stderr
    for name in (
        "config.yaml",
        "log.jsonl",
        "checkpoints/best.pt",
        "checkpoints/last.pt",
        "scores/val.csv",
        "report.md",
    ):
        assert (folder / name).is_file(), name
    assert str(folder / "report.md") in done.stdout
    tracks = SyntheticDataset("val", 10, crop_size=24).tracks
    roles = {track.role for track in tracks}
    drawn = [path.name for path in (folder / "alignment").glob("*.png") if not path.name.startswith("overview")]
    assert len(drawn) == len(roles) > 4  # one of each synthetic role
    assert len(list((folder / "alignment").glob("overview*.png"))) == -(-len(roles) // 3)
    report = json.loads((folder / "report.json").read_text())
    assert {row["role"] for row in report["roles"]} == roles
    solo = [track for track in tracks if track.role == "solo" and track.speaking.any()]
    assert report["offset_accuracy"][-1]["num_clips"] == len(solo) > 0
    assert "Traceback" not in done.stderr


def test_wandb_goes_offline_and_says_so_once(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = trained
    assert done.stderr.count("W&B: offline") == 1
    assert len(list((folder / "wandb").glob("offline-run-*/*.wandb"))) == 1
    assert "less than the current step" not in done.stderr + done.stdout


def test_every_logged_number_is_in_the_wandb_file(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = trained
    history = read_wandb(folder).rows
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert sorted(history) == list(range(len(logged)))
    for index, row in enumerate(logged):
        assert row.items() <= history[index].items()
    assert "alignment/val.filenames" in history[len(logged) - 1]


def test_scores_judged_from_the_file_give_the_reported_ap(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from avfusion.tracks import write_labels

    folder, _ = trained
    write_labels(tmp_path / "gt.csv", SyntheticDataset("val", 10, crop_size=24).tracks)
    assert (
        run_here("eval", ["--scores", f"{folder}/scores/val.csv", "--labels", f"{tmp_path}/gt.csv"], monkeypatch) == 0
    )
    by_file = json.loads(capsys.readouterr().out)["average_precision"]
    assert by_file == pytest.approx(
        json.loads((folder / "report.json").read_text())["all"]["average_precision"], abs=1e-12
    )


def test_eval_repeats_the_report_of_training(
    trained: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = trained
    assert run_here("eval", [str(folder), f"--out={tmp_path}/again", "--wandb.mode=disabled"], monkeypatch) == 0
    first, again = (json.loads((path / "report.json").read_text()) for path in (folder, tmp_path / "again"))
    for key in ("all", "roles", "sources", "offset_accuracy"):
        assert first[key] == again[key]
    assert (folder / "scores/val.csv").read_bytes() == (tmp_path / "again/scores/val.csv").read_bytes()


def test_weights_alone_score_as_their_run_does(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from avfusion.checkpoint import load_model
    from avfusion.released.export import write

    folder, _ = trained
    weights = tmp_path / "small.safetensors"
    write(weights, *load_model(folder / "checkpoints" / "best.pt"), {"name": "tiny"})
    assert run_here("eval", [str(weights), f"--out={tmp_path}/out", "--wandb.mode=disabled"], monkeypatch) == 0
    assert (folder / "scores/val.csv").read_bytes() == (tmp_path / "out/scores/val.csv").read_bytes()
    first, again = (json.loads((path / "report.json").read_text()) for path in (folder, tmp_path / "out"))
    assert first["all"] == again["all"]
    assert first["checkpoint"]["epoch"] == again["checkpoint"]["epoch"]
    capsys.readouterr()
    assert run_here("eval", [str(weights)], monkeypatch) == 2
    assert "a file and no run folder, so nothing can be written there: give --out=FOLDER" in capsys.readouterr().err


def test_an_existing_run_is_refused_unless_resumed(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, _ = trained
    before = (folder / "checkpoints/best.pt").read_bytes()
    assert run_here("train", [f"--run.dir={folder}", *TINY], monkeypatch) == 2
    assert f"--resume {folder}" in capsys.readouterr().err
    assert (folder / "checkpoints/best.pt").read_bytes() == before


def test_resuming_a_finished_run_trains_nothing_more(
    trained: tuple[Path, subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = trained
    rows = (folder / "log.jsonl").read_text().count('"train/loss"')
    assert run_here("train", ["--resume", str(folder), "--wandb.mode=disabled"], monkeypatch) == 0
    assert (folder / "log.jsonl").read_text().count('"train/loss"') == rows


@pytest.mark.parametrize(
    ("command", "arguments", "code", "said"),
    [
        (
            "train",
            ["--model.fusion.haeds=2"],
            2,
            "config error: model.fusion.haeds: no such key. Did you mean 'heads'?",
        ),
        ("train", ["--train.epochs=many"], 2, "train.epochs: expected a whole number, found 'many'"),
        ("train", ["--model.embed_dim=20"], 2, "config error: model.fusion.heads: 4 heads of model.embed_dim 20"),
        ("train", ["--run.seed=-1"], 2, "config error: run.seed: expected a number from 0"),
        ("train", ["--model.temporal.kernel=4"], 2, "config error: model.temporal.kernel: expected an odd number"),
        ("train", ["configs/nothing.yaml"], 2, "nothing.yaml"),
        ("train", ["model.fusion.heads=2"], 2, "a setting is written --section.key=value"),
        ("train", ["--resume", "runs/never"], 2, "--resume runs/never: no config.yaml there"),
        ("train", ["--data.format=prepared"], 2, "data.format=prepared needs the folder of a prepared dataset"),
        ("train", ["--data.format=prepared", "--data.root=nowhere"], 2, "nowhere"),
        ("eval", ["runs/never"], 2, "runs/never: no config.yaml there"),
        ("eval", [], 2, "expected the folder of a run"),
        ("eval", ["--scores", "a.csv"], 2, "--scores needs --labels, or --diarization"),
        ("eval", ["--labels", "a.csv"], 2, "--labels belongs to a score file; give that with --scores=CSV"),
        ("eval", ["--scores", "a.csv", "--labels", "b.csv", "--split=val"], 2, "--scores goes without the folder"),
        ("eval", ["--scores", "a.csv", "--labels", "b.csv", "--train.lr=1"], 2, "--train.lr=1: a score file is judged"),
        ("eval", ["--scores", "a.csv", "--labels", "b.csv", "--rttm", "c"], 2, "only with --diarization; add it"),
        ("eval", ["--scores", "a.csv", "--diarization", "--against", "c.csv"], 2, "--diarization goes with"),
        ("eval", ["--scores", "a", "--labels", "b", "--protocol=asw", "--against=c"], 2, "go with --protocol=ava"),
        ("eval", ["runs/a", "runs/b", "--suite=robustness"], 2, "leave out --suite and --checkpoint"),
        ("eval", ["runs/never", "--checkpoint=foo"], 2, "--checkpoint"),
        ("train", ["--resume"], 2, "--resume"),
        ("eval", ["--scores", "a.csv", "--labels", "b.csv"], 1, "b.csv"),
    ],
)
def test_what_a_user_gets_wrong_is_told_in_one_line(
    command: str,
    arguments: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_here(command, arguments, monkeypatch) == code
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_a_run_stopped_before_its_first_checkpoint_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from avfusion.training.loop import Trainer

    folder = tmp_path / "run"
    arguments = [f"--run.dir={folder}", "--wandb.mode=disabled", *TINY]
    with monkeypatch.context() as stopped:

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        stopped.setattr(Trainer, "_train_epoch", stop)
        assert run_here("train", arguments, stopped) == 130
    assert f"--resume {folder}" in capsys.readouterr().err
    assert run_here("train", ["--resume", str(folder), "--report.figures_per_role=0"], monkeypatch) == 0
    assert (folder / "report.md").is_file()


def test_eval_leaves_the_own_report_of_a_run_alone(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, _ = trained
    before = (folder / "report.json").read_bytes()
    for arguments, said in (
        (["--checkpoint=last"], "give --out=FOLDER"),
        (["--data.synthetic.val_scenes=20"], "give --out=FOLDER"),
        (["--model.fusion.heads=2"], "model: fixed by the checkpoint"),
        (["--data.crop_size=48"], "data.crop_size: fixed by the checkpoint"),
        (["--data.root=elsewhere"], "add --data.format=prepared"),
        (["--split=vla"], "synthetic talkers have no split 'vla'"),
        ([f"--out={folder}/report.json"], "cannot be made"),
    ):
        assert run_here("eval", [str(folder), "--wandb.mode=disabled", *arguments], monkeypatch) == 2
        error = capsys.readouterr().err.strip().splitlines()
        assert said in error[-1]
        assert len(error) == 1
    assert (folder / "report.json").read_bytes() == before
    other = [str(folder), "--split=test", f"--out={tmp_path}", "--wandb.mode=disabled"]
    assert run_here("eval", other, monkeypatch) == 0
    assert (tmp_path / "report-test.json").is_file()


@pytest.mark.parametrize("content", ["", "data: {crop_size: 48, num_mels: 20}", "model: {fusion: {kind: concat}}"])
def test_eval_refuses_a_configuration_that_is_not_the_checkpoints(
    content: str,
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, _ = trained
    shutil.copytree(folder / "checkpoints", tmp_path / "checkpoints")
    (tmp_path / "config.yaml").write_text(content)
    assert run_here("eval", [str(tmp_path), "--wandb.mode=disabled"], monkeypatch) == 2
    assert "fixed by the checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "scores").exists()


def test_values_may_hold_spaces_and_letters_of_any_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "вид 人脸 [x] & é"
    overrides = [f"--run.dir={folder}", "--wandb.name=my run", "--model.fusion={heads: 8}"]
    assert run_here("train", ["--print-config", *overrides], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "name: my run" in shown
    assert "heads: 8" in shown


def test_resuming_keeps_the_settings_it_was_resumed_with(
    trained: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    more = ["--resume", str(folder), "--train.epochs=2", "--wandb.mode=disabled", "--report.figures_per_role=0"]
    assert run_here("train", more, monkeypatch) == 0
    assert "epochs: 2" in (folder / "config.yaml").read_text()
    assert run_here("eval", [str(folder), "--wandb.mode=disabled"], monkeypatch) == 0


def test_a_run_without_checkpoint_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("{}")
    assert run_here("eval", [str(tmp_path)], monkeypatch) == 2
    assert "no checkpoint there" in capsys.readouterr().err


def test_print_config_shows_overrides_and_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_here("train", ["--print-config", "--model.fusion.heads=2"], monkeypatch) == 0
    assert "heads: 2" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def prepared_dataset(root: Path) -> Path:
    """A small prepared dataset of synthetic talkers, ten scenes in either split."""
    from data_prep import synthesize

    asked = ["--scenes=20", "--splits=train=0.5,val=0.5", "--scene-s=1.2", "--seed=3"]
    assert synthesize.main([str(root), *asked]) == 0
    return root


def test_a_prepared_dataset_trains_and_a_missing_sound_stops_it_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = prepared_dataset(tmp_path / "data")
    choose = ["--data.format=prepared", f"--data.root={root}", "--wandb.mode=disabled", *TINY]
    assert run_here("train", [*choose, f"--run.dir={tmp_path}/run"], monkeypatch) == 0
    assert (tmp_path / "run" / "report.md").is_file()
    capsys.readouterr()

    lost = sorted((root / "audio" / "train").glob("*.flac"))[3]
    lost.unlink()
    assert run_here("train", [*choose, f"--run.dir={tmp_path}/second"], monkeypatch) == 1
    error = capsys.readouterr().err.strip()
    assert "1 of 20 sound files are missing" in error
    assert lost.name in error
    assert "\n" not in error
    assert not (tmp_path / "second").exists()


def test_every_score_file_of_the_known_faults_is_judged_as_it_should(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared / "cases" / "csv"
    expected = json.loads((folder / "expected.json").read_text())
    names = [path.name for path in sorted(folder.iterdir()) if path.is_dir()]
    assert len(names) == 16
    for name in names:
        files = ["--scores", f"{folder}/{name}/pred.csv", "--labels", f"{folder}/{name}/gt.csv"]
        code = run_here("eval", files, monkeypatch)
        shown = capsys.readouterr()
        if "ap" in expected[name]:
            assert code == 0, (name, shown.err)
            assert json.loads(shown.out)["average_precision"] == pytest.approx(expected[name]["ap"], abs=1e-9), name
        else:
            assert code == 1, name
            assert len(shown.err.strip().splitlines()) == 1, name
