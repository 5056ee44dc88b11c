"""Facts about ``python -m data_prep.ava``: films and annotations of any corpus become a dataset that is in step."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.data.prepared import PreparedDataset
from avfusion.errors import AvfusionError, run_command
from avfusion.media.audio import read_audio
from avfusion.tracks import FaceTable, read_labels, read_scores
from avfusion.training import report
from tests.data_prep import mini_ava
from tests.data_prep.ava_command import extract
from tests.data_prep.mini_ava import MiniAva

REPOSITORY = Path(__file__).resolve().parents[2]


def mouth_area(crops: NDArray[np.uint8]) -> NDArray[np.float64]:
    """``(T,)`` dark area of the mouth in pixels of the film, from crops of 48 pixels that span 52.8 of them."""
    dark = np.clip(190.0 - crops[:, 26:44, 14:34].astype(float), 0, 160) / 160
    return dark.sum(axis=(1, 2)) * (52.8 / 48) ** 2


def tone_level(audio: NDArray[np.float32], hz: float) -> NDArray[np.float64]:
    """``(T,)`` amplitude of a tone in each video frame's sound."""
    wave = np.exp(-2j * np.pi * hz * np.arange(640) / 16_000)
    return 2 * np.abs(audio.reshape(-1, 640) @ wave) / 640


def test_ids_and_frames_are_those_of_the_annotation(made: Path) -> None:
    with (made / "tracks.csv").open(newline="") as file:
        rows = {row["entity_id"]: row for row in csv.DictReader(file)}
    found = {
        name: (row["split"], row["video_id"], float(row["start_s"]), int(row["num_frames"]))
        for name, row in rows.items()
    }
    assert found == {
        "-x_0000_0060:1": ("train", "-x", 0.0, 70),  # the gap of three rows is filled, that of 25 is not
        "-x_0000_0060:1#2": ("train", "-x", 3.8, 55),
        "-x_0000_0060:2": ("train", "-x", 0.0, 150),
        "-x_0000_0060:3": ("train", "-x", 2.0, 1),
        "007_0900_0930:1": ("val", "007", 900.0, 125),
        "007_0900_0930:2": ("val", "007", 900.0, 125),
        "NA_0000_0060:1": ("val", "NA", 0.0, 150),
        "NA_0000_0060:2": ("val", "NA", 0.0, 150),
    }
    assert not [path for path in made.rglob("*") if ":" in path.name or path.suffix == ".part"]
    assert len({row["crops"] for row in rows.values()}) == 8
    assert len(read_audio(made / rows["007_0900_0930:1"]["audio"])) == 905 * 16_000


@pytest.mark.parametrize("split", ["train", "val"])
def test_mouth_sound_and_label_belong_to_the_same_frame(made: Path, split: str) -> None:
    dataset = PreparedDataset(made, split)
    faces = {face.entity_id: (film, face) for film in mini_ava.FILMS for face in film.faces}
    for index, track in enumerate(dataset.tracks):
        film, face = faces[track.entity_id.partition("#")[0]]
        clip = dataset.read(index)
        is_open = mouth_area(clip.crops) > 44  # closed: 8 x 1 pixel half axes, 25; open: at least 8 x 2.5, 63
        words = np.array([mini_ava.label_of(film, face, t) for t in track.timestamps_s.round(3).tolist()])
        level = tone_level(clip.audio, face.tone_hz)
        # At 29.97 pictures a second the picture shown is up to 17 ms off, so a change may come one frame aside.
        changes = np.flatnonzero(words[1:] != words[:-1])
        settled = np.ones(len(words), dtype=np.bool_)
        if film.video_id == "NA":
            settled[np.concatenate([changes, changes + 1])] = False
        np.testing.assert_array_equal(clip.speaking[settled], words[settled] == "SPEAKING_AUDIBLE")
        np.testing.assert_array_equal(is_open[settled], words[settled] != "NOT_SPEAKING")
        settled[np.concatenate([changes, changes + 1]).astype(int)] = False  # a tone may end within a frame
        assert (level[settled & clip.speaking] > 0.25).all()
        assert (level[settled & ~clip.speaking] < 0.02).all()


def test_rows_are_kept_as_they_were_annotated(made: Path, mini: MiniAva) -> None:
    def rows(path: Path) -> set[tuple[Any, ...]]:
        table = read_labels(path)
        columns = (table.video_id, table.timestamp_ms, table.entity_id, map(tuple, table.boxes_xyxy), table.speaking)
        return set(zip(*columns, strict=True))

    kept = rows(made / "source_labels" / "val.csv")
    assert kept == rows(mini.labels["val"])
    assert len(kept) == 610


def run_here(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs train.py or eval.py inside this process."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    return run_command(module.main)


def _keys(table: FaceTable) -> list[tuple[str, str, int]]:
    return list(zip(table.video_id, table.entity_id, table.timestamp_ms.tolist(), strict=True))


def _texts(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return sorted([*row[:6], row[7]] for row in csv.reader(file) if row and row[0] != "video_id")


def test_verify_train_and_eval_take_the_dataset_unchanged(
    made: Path, mini: MiniAva, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import data_prep.verify as verify

    assert verify.main([str(made)]) == 0, capsys.readouterr().err
    run = tmp_path / "run"
    settings = ["--data.format=prepared", f"--data.root={made}", f"--run.dir={run}", "--wandb.mode=disabled"]
    settings += ["--data.crop_size=24", "--data.num_mels=20", "--data.batch_frames=300", "--model.embed_dim=16"]
    settings += ["--model.visual.channels=[4,8]", "--model.audio.channels=[4]", "--train.epochs=2"]
    settings += ["--report.bootstrap=50", "--report.figures_per_role=0"]
    assert run_here("train", settings, monkeypatch) == 0, capsys.readouterr().err
    (run / "scores" / "val-source.csv").unlink()
    assert run_here("eval", [str(run)], monkeypatch) == 0, capsys.readouterr().err
    figures = json.loads((run / "report.json").read_text())["source_rows"]
    assert (figures["num_rows"], figures["num_videos"], figures["rows_left_out"]) == (610, 2, 0)
    low, high = figures["average_precision_interval"]
    assert 0 < low <= high <= 1
    # Each row has the score of one of the two frames around it.
    source, grid = read_scores(run / "scores" / "val-source.csv"), read_scores(run / "scores" / "val.csv")
    frames = dict(zip(_keys(grid), grid.score, strict=True))
    for (video, entity, time_ms), score in zip(_keys(source), source.score, strict=True):
        assert score in [frames.get((video, entity, 40 * (time_ms // 40 + after))) for after in (0, 1)]
    # The official tool joins rows by the very text of time and entity, and wants boxes equal within 1e-9.
    assert _texts(run / "scores" / "val-source.csv") == _texts(mini.labels["val"])
    # The same figure from the files alone, against the annotation as the user has it.
    capsys.readouterr()
    files = ["--scores", str(run / "scores" / "val-source.csv"), "--labels", str(mini.labels["val"])]
    assert run_here("eval", files, monkeypatch) == 0
    alone = json.loads(capsys.readouterr().out)["average_precision"]
    assert alone == pytest.approx(figures["average_precision"], abs=1e-12)
    assert "The rows as annotated" in (run / "report.md").read_text()

    # A figure over 2 of 3 films says so, and a fault of the rows as annotated costs no report.
    def fails(*_: object, **__: object) -> None:
        raise AvfusionError("rows without a frame")

    part = Path(shutil.copytree(made, tmp_path / "part"))
    info = json.loads((part / "dataset.json").read_text())
    info["left_out"] = {"films that are absent or could not be used": {"of": 3, "names": ["val/x"]}}
    (part / "dataset.json").write_text(json.dumps(info))
    monkeypatch.setattr(report, "score_source_rows", fails)
    assert run_here("eval", [str(run), f"--data.root={part}", f"--out={tmp_path / 'out'}"], monkeypatch) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "the preparation left out 1 of 3, films that are absent or could not be used: val/x" in text
    assert "the rows as annotated were not scored: rows without a frame" in text
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert told["left_out_by_preparation"] == info["left_out"]
    assert told["all"]["average_precision"] > 0


@pytest.mark.parametrize("columns", ["unitalk", "wasd", "asw"])
def test_other_corpora_give_the_same_tracks(mini: MiniAva, made: Path, tmp_path: Path, columns: str) -> None:
    film = mini_ava.FILMS[0]
    rows = mini_ava.rows_of(film)
    if columns == "asw":
        (tmp_path / "-x.json").write_text(json.dumps(as_asw(rows)))
        path = tmp_path / "-x.json"
    else:
        header = [*mini_ava.COLUMNS, "label_id", "instance_id"]
        path = tmp_path / "train_orig.csv"
        path.write_text(mini_ava.csv_text([header, *([*row, "0", f"{row[-1]}:0"] for row in rows)]))
    assert extract(mini, tmp_path / "out", "--columns", columns, train=path) == 0
    ours, theirs = (PreparedDataset(root, "train") for root in (made, tmp_path / "out"))
    assert {track.source for track in theirs.tracks} == {columns}
    for index, (track, other) in enumerate(zip(ours.tracks, theirs.tracks, strict=True)):
        assert other.entity_id == (f"-x:{track.entity_id}" if columns == "asw" else track.entity_id)
        np.testing.assert_array_equal(track.speaking, other.speaking)
        np.testing.assert_array_equal(ours.read(index).crops, theirs.read(index).crops)
    scored = read_labels(tmp_path / "out" / "source_labels" / "train.csv")
    assert len(scored) == (272 if columns == "asw" else 273)


def as_asw(rows: list[list[str]]) -> dict[str, list[dict[str, object]]]:
    """The rows in ASW's form; the first is not scored."""
    tracks: dict[str, list[dict[str, object]]] = {}
    for number, (_, stamp, *box, label, entity) in enumerate(rows):
        row = {"time": float(stamp), "bbox": [float(value) for value in box], "eval": int(number > 0)}
        tracks.setdefault(entity, []).append(row | {"label": int(label == "SPEAKING_AUDIBLE")})
    return tracks
