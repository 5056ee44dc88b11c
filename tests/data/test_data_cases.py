"""The known faults of class DATA (shared/cases/README.md), each by its id, with what is right."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from avfusion.data.prepared import PreparedDataset
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord
from avfusion.errors import run_command
from avfusion.evaluation.join import join
from avfusion.evaluation.report import evaluate
from avfusion.media.write import write_crops
from avfusion.tracks import read_labels, read_scores

REPOSITORY = Path(__file__).resolve().parents[2]
TINY = [
    "--data.format=prepared",
    "--data.crop_size=24",
    "--data.num_mels=20",
    "--data.clip_frames=30",
    "--data.batch_frames=60",
    "--model.embed_dim=16",
    "--model.visual.channels=[4,8]",
    "--model.audio.channels=[4]",
    "--train.epochs=2",
    "--report.bootstrap=0",
    "--report.figures_per_role=0",
    "--report.offset_accuracy=false",
    "--wandb.mode=disabled",
]


class Command:
    """Runs train.py or eval.py in this process, as a user would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, name: str, *arguments: str) -> tuple[int, str]:
        spec = importlib.util.spec_from_file_location(name, REPOSITORY / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        self.capsys.readouterr()
        code = run_command(module.main)
        return code, self.capsys.readouterr().err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def root(tmp_path: Path, small_dataset: Callable[..., Path]) -> Path:
    """8 training tracks and 4 to validate on, of 30 frames each."""
    return small_dataset(tmp_path / "data")


def train(command: Command, root: Path, run: str, *more: str) -> tuple[int, str]:
    return command("train", *TINY, f"--data.root={root}", f"--run.dir={root.parent / run}", *more)


def crops_of(root: Path, number: int) -> Path:
    return next((root / "crops" / "train").glob(f"train{number}_1-*.mp4"))


def rows_of_log(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [row for row in rows if "train/loss" in row]


def test_d01_a_wrong_sound_folder_stops_training_before_it_begins(root: Path, command: Command) -> None:
    (root / "audio").rename(root / "sounds")
    code, error = train(command, root, "run")
    assert code == 1
    assert "12 of 12 sound files are missing, first: audio/train/train0.flac" in error
    assert "\n" not in error.strip()
    assert not (root.parent / "run").exists()
    code, error = train(command, root, "run", "--allow-missing")  # nothing is left to train on
    assert code == 1
    assert "none of the 8 tracks of split 'train' can be used" in error
    assert not (root.parent / "run").exists()


def test_d01_one_of_eight_sounds_missing_stops_training_or_is_left_out_on_demand(root: Path, command: Command) -> None:
    (root / "audio" / "train" / "train3.flac").unlink()
    code, error = train(command, root, "run")
    assert code == 1
    assert "1 of 12 sound files are missing, first: audio/train/train3.flac" in error
    assert "--data.allow_missing=true leaves such tracks out" in error
    assert "\n" not in error.strip()
    assert not (root.parent / "run").exists()

    code, error = train(command, root, "run", "--allow-missing")
    assert code == 0, error
    assert error.count("train: left out 1 of 8 tracks (1: sound files are missing)") == 1
    assert "7 training tracks, 4 validation tracks" in error
    report = json.loads((root.parent / "run" / "report.json").read_text())
    assert report["left_out"] == {"train": {"tracks": 1, "of": 8, "reasons": {"sound files are missing": 1}}}
    kept = json.loads((root.parent / "run" / "skipped.json").read_text())
    assert kept["splits"]["train"]["tracks"] == [["train3", "train3:1"]]


def test_d01_silence_in_place_of_sound_stops_training(root: Path, command: Command) -> None:
    from avfusion.media.audio import write_audio

    for path in (root / "audio" / "train").iterdir():
        path.unlink()
        write_audio(path, np.zeros(640 * 30, np.float32))
    code, error = train(command, root, "run")
    assert code == 1
    assert "8 of 12 tracks are labelled as speaking over silent or constant sound" in error
    assert not (root.parent / "run").exists()


def test_d02_tracks_of_30_rows_and_25_crops_are_told_before_training(root: Path, command: Command) -> None:
    for number in (2, 5):
        path = crops_of(root, number)
        path.unlink()
        write_crops(path, np.random.default_rng(0).integers(0, 255, (25, 32, 32), dtype=np.uint8))
    code, error = train(command, root, "run")
    assert code == 1
    assert f"2 of 12 crop files are shorter than their tracks, first: crops/train/{crops_of(root, 2).name}" in error
    assert "(25 frames of 30)" in error
    assert not (root.parent / "run").exists()


ODD_IDS = ("NA", "null", "007", "1e5", "-x")


def test_d04_ids_that_look_like_numbers_or_like_nothing_stay_text(shared: Path, tmp_path: Path) -> None:
    folder = shared / "cases" / "csv" / "odd_video_ids"
    labels = read_labels(folder / "gt.csv")
    assert all(isinstance(video_id, str) for video_id in labels.video_id)
    assert {"NA", "null", "007", "1e5", "-x"} & set(labels.video_id)
    joined = join(labels, read_scores(folder / "pred.csv"))
    assert evaluate(joined, 0).average_precision == pytest.approx(0.7555555556, abs=1e-9)
    root = write_tracks(tmp_path / "d", [(video_id, f"{video_id}:0") for video_id in ODD_IDS])
    tracks = PreparedDataset(root, "train").tracks
    assert {(track.video_id, track.entity_id) for track in tracks} == {(v, f"{v}:0") for v in ODD_IDS}


def test_d05_header_line_crlf_bom_and_shuffled_rows_change_nothing(shared: Path, root: Path) -> None:
    for name in ("header_rows", "crlf_bom", "shuffled"):
        folder = shared / "cases" / "csv" / name
        joined = join(read_labels(folder / "gt.csv"), read_scores(folder / "pred.csv"))
        assert evaluate(joined, 0).average_precision == pytest.approx(0.7777777778, abs=1e-9), name
    plain = PreparedDataset(root, "train").tracks
    path = root / "labels" / "train.csv"
    rows = path.read_text().splitlines()
    np.random.default_rng(0).shuffle(rows)
    header = "video_id,frame_timestamp,entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"{row}\r\n" for row in [header, *rows]).encode())
    for track, expected in zip(PreparedDataset(root, "train").tracks, plain, strict=True):
        np.testing.assert_array_equal(track.speaking, expected.speaking)
        np.testing.assert_array_equal(track.boxes_xyxy, expected.boxes_xyxy)


def test_d06_ids_that_differ_in_a_colon_have_files_of_their_own_without_a_colon(tmp_path: Path) -> None:
    ids = [("v_0900", "v_0900:1"), ("v_0900", "v_0900_1")]
    root = write_tracks(tmp_path / "d", ids)
    assert not [path for path in root.rglob("*") if ":" in path.name]
    assert len(list((root / "crops").rglob("*.mp4"))) == 2
    dataset = PreparedDataset(root, "train")
    assert [(track.video_id, track.entity_id) for track in dataset.tracks] == ids
    # Each has its own pictures: track k is of the grey level 40 + 40 k.
    assert [round(float(dataset.read(k).crops.mean()), -1) for k in range(2)] == [40, 80]
    with (root / "tracks.csv").open(newline="") as file:
        assert [row["entity_id"] for row in csv.DictReader(file)] == ["v_0900:1", "v_0900_1"]


def write_tracks(root: Path, ids: list[tuple[str, str]]) -> Path:
    writer = PreparedWriter(root, "ids", "python -m test", crop_size=16, settings={})
    for number, (video_id, entity_id) in enumerate(ids):
        crops = np.full((10, 16, 16), 40 + 40 * number, np.uint8)
        row = TrackRow(
            "train",
            video_id,
            entity_id,
            0.0,
            10,
            writer.crops("train", entity_id, crops),
            writer.audio("train", video_id, np.zeros(6400, np.float32)),
        )
        boxes = np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (10, 1))
        writer.add_scene(f"{number}", SceneRecord([row], [np.arange(10) > 4], [boxes], {}))
    writer.finish()
    return root


def test_d08_an_empty_clip_stops_training_by_name_or_is_left_out(shared: Path, root: Path, command: Command) -> None:
    path = crops_of(root, 6)
    shutil.copyfile(shared / "cases" / "media" / "zero_byte.mp4", path)
    code, error = train(command, root, "run")
    assert code == 1
    assert f"1 of 12 crop files cannot be read, first: crops/train/{path.name} (empty file)" in error
    assert "\n" not in error.strip()
    code, error = train(command, root, "run", "--allow-missing", "--data.workers=1")
    assert code == 0, error
    # 7 tracks of 30 frames in batches of 60 frames: 4 steps an epoch, two epochs.
    assert "7 training tracks, 4 validation tracks, 2 epochs, 8 steps" in error
    assert [row["step"] for row in rows_of_log(root.parent / "run")] == [4, 8]


def break_in_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    start, end = content.index(b"mdat"), content.index(b"moov")
    content[start + 900 : end] = bytes(end - start - 900)
    path.write_bytes(content)


@pytest.mark.parametrize("workers", [0, 1])
def test_d08_a_clip_that_breaks_in_the_middle_is_named_in_one_line_or_left_out(
    root: Path, command: Command, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast check looks into few files: here into none, so that training meets the damage."""
    from avfusion.data.verify import content

    monkeypatch.setattr(content, "SAMPLED_FILES", 0)
    monkeypatch.setattr(content, "MOST_SUSPECTS", 0)
    path = crops_of(root, 6)
    break_in_the_middle(path)
    code, error = train(command, root, "run", f"--data.workers={workers}")
    assert code == 1
    last = error.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert path.name in last
    assert "train.py --resume RUN --allow-missing" in last
    assert "Traceback" not in error
    code, error = command("train", "--resume", str(root.parent / "run"), "--allow-missing")
    assert code == 0, error
    assert "train: left out 1 of 8 tracks (1: crop files stop decoding before their end)" in error
    assert [row["step"] for row in rows_of_log(root.parent / "run")] == [4, 8]


def test_d08_a_resumed_run_leaves_out_the_same_tracks_without_decoding_all_again(root: Path, command: Command) -> None:
    break_in_the_middle(crops_of(root, 6))
    assert train(command, root, "run", "--allow-missing")[0] == 0
    run = root.parent / "run"
    code, error = command("train", "--resume", str(run), "--train.epochs=3")
    assert code == 0, error
    assert "every file" not in error
    assert "train: left out 1 of 8 tracks" in error
    assert [row["step"] for row in rows_of_log(run)] == [4, 8, 12]
    # A track that is lost between the two would change the batches: that is refused by name.
    (root / "audio" / "train" / "train2.flac").unlink()
    code, error = command("train", "--resume", str(run), "--train.epochs=4")
    assert code == 1
    assert "1 tracks of train that could be used when the run began cannot be used now, first: 'train2:1'" in error


def test_unlabelled_tracks_are_refused_by_training_and_scored_by_eval(
    root: Path, command: Command, small_dataset: Callable[..., Path]
) -> None:
    assert train(command, root, "run")[0] == 0
    own = small_dataset(root.parent / "own", {"train": 3, "own": 3}, labelled=False)
    code, error = train(command, own, "second", "--data.val_split=own")
    assert code == 1
    assert "6 of 6 tracks have no labels" in error
    assert "\n" not in error.strip()
    run, out = root.parent / "run", root.parent / "scored"
    code, error = command("eval", str(run), f"--data.root={own}", "--split=own", f"--out={out}")
    assert code == 0, error
    with (out / "scores" / "own.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 30
    assert all(0 < float(row["score"]) < 1 for row in rows)
    report = json.loads((out / "report-own.json").read_text())
    assert (report["all"], report["roles"], report["unlabelled_tracks"]) == (None, [], 3)
    text = (out / "report-own.md").read_text()
    assert "3 tracks have scores but no labels: no figures" in text
    assert "| AP |" not in text
