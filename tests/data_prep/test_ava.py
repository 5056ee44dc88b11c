"""Facts about ``python -m data_prep.ava``: films and annotations become a dataset that is in step, whatever happens."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import http.server
import importlib.util
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

import data_prep.ava as command
import data_prep.film_dataset as film_dataset
import data_prep.film_sources as sources
from avfusion.data.prepared import PreparedDataset
from avfusion.errors import AvfusionError, UsageError, run_command
from avfusion.media.audio import read_audio
from avfusion.media.video import read_frames
from avfusion.tracks import FaceTable, read_labels, read_scores
from avfusion.training import report
from data_prep.film_plan import find_films, the_film
from tests.data_prep import mini_ava
from tests.data_prep.mini_ava import MiniAva

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> MiniAva:
    return mini_ava.make_mini_ava(tmp_path_factory.mktemp("mini"))


def extract(mini: MiniAva, out: Path, *more: str, films: Path | None = None, **labels: Path) -> int:
    """Runs ``extract`` here, on all splits or those given, with small crops."""
    given = [f"{split}={path}" for split, path in (labels or mini.labels).items()]
    folder = str(films or mini.films)
    options = ["--crop-size", "48", *([] if "--jobs" in more else ["--jobs", "1"]), *more]
    return command.main(["extract", str(out), "--labels", *given, "--films", folder, *options])


@pytest.fixture(scope="module")
def made(mini: MiniAva, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "dataset"
    assert extract(mini, out) == 0
    return out


def contents(root: Path) -> dict[str, str]:
    """A hash of every table's bytes and of every media file's decoded content; not the record of the work."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_dir() or path.name == "dataset.json" or path.name.startswith("journal"):
            continue
        if path.suffix == ".mp4":
            with av.open(str(path)) as container:
                content = read_frames(path, 0, container.streams.video[0].frames).tobytes()
        else:
            content = read_audio(path).tobytes() if path.suffix == ".flac" else path.read_bytes()
        found[path.relative_to(root).as_posix()] = hashlib.sha1(content).hexdigest()
    return found


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


@pytest.fixture(scope="module")
def short(mini: MiniAva, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """Labels of the two films that are quickly decoded, and their dataset made without a break."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "val.csv").write_text(mini_ava.csv_text(mini_ava.rows_of(mini_ava.FILMS[1])))
    labels = {"train": mini.labels["train"], "val": folder / "val.csv"}
    assert extract(mini, folder / "dataset", **labels) == 0
    return labels, folder / "dataset"


@pytest.mark.parametrize(
    "more", [("--jobs", "1"), ("--jobs", "2"), ("--shard", "1/1")], ids=["alone", "workers", "shard"]
)
def test_three_kills_at_random_and_a_rerun_give_the_same_dataset(
    short: tuple[dict[str, Path], Path], mini: MiniAva, tmp_path: Path, more: tuple[str, str]
) -> None:
    labels, whole = short
    out = tmp_path / "dataset"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["data_prep.ava"])
    rng = random.Random(7)
    interrupted = 0
    for files in sorted(rng.sample(range(4, 12), 3)):
        process = context.Process(target=_extract_in_child, args=(mini, out, labels, *more))
        process.start()
        while process.is_alive() and (not out.is_dir() or sum(p.is_file() for p in out.rglob("*")) < files):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        interrupted += not (out / "dataset.json").exists()
        _wait_for_workers(out)
    assert interrupted == 3
    assert extract(mini, out, *more, **labels) == 0
    if more[0] == "--shard":
        assert command.main(["finish", str(out)]) == 0
    assert contents(out) == contents(whole)


def _extract_in_child(mini: MiniAva, out: Path, labels: dict[str, Path], *more: str) -> None:
    extract(mini, out, *more, **labels)


def _wait_for_workers(out: Path) -> None:
    """Workers end when their parent does: after a moment nothing changes any more."""
    before, deadline = None, time.monotonic() + 60
    while before != (now := sorted((path, path.stat().st_size) for path in out.rglob("*.part"))) or now:
        assert time.monotonic() < deadline
        if before == now:
            return  # parts that nobody writes
        before = now
        time.sleep(0.5)


def test_shards_and_finish_make_the_unsharded_dataset(
    made: Path, mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "dataset"
    assert extract(mini, out, "--shard", "1/2") == 0
    assert not (out / "dataset.json").exists()
    capsys.readouterr()
    assert command.main(["finish", str(out)]) == 1
    assert "1 of 3 films are not extracted yet (val/NA)" in capsys.readouterr().err
    assert extract(mini, out, "--shard", "2/2") == 0
    assert command.main(["finish", str(out)]) == 0
    assert contents(out) == contents(made)
    capsys.readouterr()
    assert extract(mini, out) == 0
    assert "is finished already: 3 films" in capsys.readouterr().out


def test_bad_films_are_named_and_the_others_go_on(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = tmp_path / "films"
    shutil.copytree(mini.films, films)
    shutil.move(films / "NA.mp4", tmp_path / "NA.mp4")
    whole = (films / "-x.mkv").read_bytes()
    (films / "-x.mkv").write_bytes(whole[: len(whole) // 2])
    (films / "-x.srt").write_text("subtitles of the same name are no film")
    out = tmp_path / "dataset"
    assert extract(mini, out, films=films) == 1
    error = capsys.readouterr().err
    assert "2 of 3 films could not be extracted (train/-x, val/NA)" in error
    assert "val/NA: no film named NA.*" in error
    assert "Traceback" not in error
    assert not (out / "dataset.json").exists()

    assert extract(mini, out, "--allow-missing", films=films) == 0
    assert {track.video_id for track in PreparedDataset(out, "val").tracks} == {"007"}
    assert set(read_labels(out / "source_labels" / "val.csv").video_id) == {"007"}
    assert not (out / "source_labels" / "train.csv").exists()
    told = json.loads((out / "dataset.json").read_text())["left_out"]
    assert told == {"films that are absent or could not be used": {"of": 3, "names": ["train/-x", "val/NA"]}}

    (films / "-x.mkv").write_bytes(whole)
    (films / "deeper").mkdir()
    shutil.move(tmp_path / "NA.mp4", films / "deeper" / "NA.MP4")
    assert extract(mini, out, films=films) == 0
    assert len(PreparedDataset(out, "val").tracks) == 4
    assert len(read_labels(out / "source_labels" / "train.csv")) == 273
    assert "left_out" not in json.loads((out / "dataset.json").read_text())


def test_a_film_added_later_is_in_the_tables_even_if_the_run_stops_just_before_they_are_written(
    mini: MiniAva, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    films, out = Path(shutil.copytree(mini.films, tmp_path / "films")), tmp_path / "dataset"
    shutil.move(films / "NA.mp4", tmp_path / "NA.mp4")
    assert extract(mini, out, "--allow-missing", films=films) == 0
    before = contents(out)
    shutil.move(tmp_path / "NA.mp4", films / "NA.mp4")

    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(film_dataset, "finish_films", stops)
        assert extract(mini, out, films=films) == 130
    added = {name for name in contents(out) if "/NA" in name} - {"sources/val/NA-1.json"}
    assert {name: text for name, text in contents(out).items() if name in before} == before  # still whole, and usable
    assert added
    capsys.readouterr()
    assert extract(mini, out, films=films) == 0
    assert "finished already" not in capsys.readouterr().out
    assert contents(out) == contents(made)


def test_a_film_that_takes_the_place_of_another_leaves_nothing_of_it(
    mini: MiniAva, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films, out = Path(shutil.copytree(mini.films, tmp_path / "films")), tmp_path / "dataset"
    first = mini_ava.FILMS[0]
    short = dataclasses.replace(
        first,
        picture_times=first.picture_times[:130],
        faces=tuple(dataclasses.replace(f, tone_hz=999) for f in first.faces),
    )
    mini_ava.write_film(films / "-x.mkv", short)  # another cut: 5.2 s of picture, other sound
    assert extract(mini, out, films=films) == 1
    assert "it is another cut of the film" in capsys.readouterr().err
    assert list(out.glob("audio/train/*.flac"))  # begun with the wrong film ...
    shutil.copy2(mini.films / "-x.mkv", films / "-x.mkv")
    assert extract(mini, out, films=films) == 0
    assert contents(out) == contents(made)  # ... and nothing is left of it

    os.utime(films / "-x.mkv", (1, 1))
    capsys.readouterr()
    assert extract(mini, out, films=films) == 0
    assert "1 films are other files than those extracted before (train/-x)" in capsys.readouterr().err


def test_a_joined_transport_stream_is_as_long_as_its_parts(mini: MiniAva, tmp_path: Path) -> None:
    films = tmp_path / "films"
    films.mkdir()
    mini_ava.write_film(tmp_path / "-x.mkv", mini_ava.FILMS[0])
    part = tmp_path / "part.ts"
    with av.open(str(tmp_path / "-x.mkv")) as source, av.open(str(part), "w") as target:
        video = target.add_stream_from_template(source.streams.video[0])
        sound = target.add_stream("aac", rate=16_000, layout="mono")
        for packet in source.demux():
            if packet.dts is None:
                continue
            if packet.stream.type == "video":
                packet.stream = video
                target.mux(packet)
            else:
                for frame in packet.decode():
                    target.mux(sound.encode(frame))
        target.mux(sound.encode(None))
    (films / "joined.ts").write_bytes(2 * part.read_bytes())  # its header says half of its length
    rows = labels_of(tmp_path / "rows.csv", "joined,11.40,0.1,0.2,0.4,0.8,NOT_SPEAKING,joined:1")
    out = tmp_path / "out"
    assert extract(mini, out, films=films, val=rows) == 0
    (track,) = PreparedDataset(out, "val").tracks
    assert track.start_s == 11.4
    (notes,) = json.loads((out / "dataset.json").read_text())["notes"].values()
    assert any("the parts were joined" in note for note in notes)


def test_a_film_without_a_scored_row_is_missed_too(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, out = tmp_path / "labels", tmp_path / "out"
    labels.mkdir()
    row: dict[str, object] = {"bbox": [0.1, 0.2, 0.4, 0.8], "label": 0}
    for name, counts in (("-x", 1), ("NA", 0)):
        rows = [row | {"time": 0.2 * n, "eval": counts} for n in range(1, 4)]
        (labels / f"{name}.json").write_text(json.dumps({"t": rows}))
    for number in ("1/2", "2/2"):
        assert extract(mini, out, "--columns", "asw", "--shard", number, val=labels) == 0
        if number == "1/2":
            capsys.readouterr()
            assert command.main(["finish", str(out)]) == 1
            assert "1 of 2 films are not extracted yet" in capsys.readouterr().err
    assert command.main(["finish", str(out)]) == 0
    assert set(read_labels(out / "source_labels" / "val.csv").video_id) == {"-x"}
    assert len(PreparedDataset(out, "val").tracks) == 2


def test_a_box_without_area_stops_nothing_and_is_told(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import data_prep.verify as verify

    boxes = ["-0.7,0.2,0.4,0.8", "0.1,0.2,0.1,0.8", "-0.7,0.2,0.4,0.8"]
    lines = [f"NA,1.{4 * n:02d},{box},NOT_SPEAKING,NA:1" for n, box in enumerate(boxes)]
    lines += [f"NA,{n / 25:.2f},0.1,0.1,0.5,0.9,SPEAKING_AUDIBLE,b" for n in range(9)]
    rows = labels_of(tmp_path / "rows.csv", *lines)
    assert extract(mini, tmp_path / "out", val=rows) == 0
    assert "1 annotated boxes have no area" in capsys.readouterr().err
    table = read_labels(tmp_path / "out" / "labels" / "val.csv")
    np.testing.assert_allclose(table.boxes_xyxy[table.entity_id == "NA:1", 0], -0.7, rtol=1e-6)
    verify.main([str(tmp_path / "out"), "--fast"])
    assert "boxes" not in capsys.readouterr().out  # what extract takes is no fault to verify


def labels_of(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_annotation_beyond_the_films_end_names_the_face_and_the_length(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = labels_of(
        tmp_path / "late.csv",
        *(f"NA,{t:.2f},0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:1" for t in (1.0, 1.04)),
        *(f"NA,{t:.2f},0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:late" for t in (900.0, 900.04)),
    )
    assert extract(mini, tmp_path / "out", val=late) == 1
    error = capsys.readouterr().err
    assert "'NA:late' is annotated until 900.04 s" in error
    assert "but the film lasts 6.0" in error
    assert "or the stamps are not in seconds" in error  # 150 times as long is no other cut
    late = labels_of(tmp_path / "late.csv", "NA,10.00,0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:late")
    assert extract(mini, tmp_path / "other", val=late) == 1
    error = capsys.readouterr().err
    assert "another cut of the film" in error
    assert "not in seconds" not in error


@pytest.mark.parametrize("ending", [".ogv", ".vob", ".m2ts", ".mts", ".MPG", ".3gp", ".mkv"])
def test_a_second_film_of_any_ending_is_a_conflict(mini: MiniAva, tmp_path: Path, ending: str) -> None:
    (tmp_path / "v.mp4").touch()
    (tmp_path / f"v{ending}").touch()
    with pytest.raises(UsageError, match=r"film 'v' is there as .*, expected one of them"):
        the_film("v", find_films(tmp_path)["v"])


def test_a_film_whose_name_differs_in_case_is_pointed_at(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = tmp_path / "films"
    films.mkdir()
    (films / "Talk.mp4").touch()
    labels = labels_of(tmp_path / "val.csv", "talk,1.00,0.1,0.2,0.4,0.8,NOT_SPEAKING,a")
    assert extract(mini, tmp_path / "out", films=films, val=labels) == 1
    assert "no film named talk.*" in (error := capsys.readouterr().err)
    assert "(Talk.mp4 differs in case: rename it)" in error


@pytest.mark.parametrize("name", ["list", "extract"])
def test_labels_without_a_row_and_labels_at_a_low_rate_are_refused(
    mini: MiniAva, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [str(tmp_path / "out")] if name == "extract" else []
    empty = labels_of(tmp_path / "empty.csv", "video_id,frame_timestamp,x1,y1,x2,y2,label,entity_id")
    slow = labels_of(tmp_path / "slow.csv", *(f"NA,{n / 2},0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:1" for n in range(11)))
    for labels, code, message in (
        (empty, 1, "holds no row"),
        (slow, 2, "rows of a face stand 0.50 s apart;"),
    ):
        assert command.main([name, *out, f"--films={mini.films}", "--labels", f"val={labels}"]) == code
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_film_without_sound_is_refused(mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    films = tmp_path / "films"
    films.mkdir()
    with av.open(str(films / "mute.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 90, dtype=np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    rows = labels_of(tmp_path / "rows.csv", "mute,0.08,0.1,0.2,0.4,0.8,NOT_SPEAKING,mute:1")
    assert extract(mini, tmp_path / "out", films=films, val=rows) == 1
    error = capsys.readouterr().err
    assert "mute.mp4" in error
    assert "no audio stream" in error
    assert not list((tmp_path / "out").rglob("*.flac"))


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


def test_the_disk_budget_is_told_and_refused_before_work(
    mini: MiniAva, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    assert extract(mini, tmp_path / "out") == 2
    output = capsys.readouterr()
    assert "3 films to extract, 883 annotated boxes, 8 tracks, 826 frames" in output.out
    assert "has 1 MB free, the films left to extract need about 18" in output.err
    assert len(output.err.splitlines()) == 1
    assert not list((tmp_path / "out").rglob("*.mp4"))


def test_list_tells_what_is_there_and_where_the_rest_is(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = tmp_path / "films"
    films.mkdir()
    shutil.copy(mini.films / "NA.mp4", films)
    (tmp_path / "names.txt").write_text("NA.mp4\n007.webm\n")
    labels = ["--labels", f"train={mini.labels['train']}", f"val={mini.labels['val']}"]
    assert command.main(["list", *labels, "--films", str(films), "--names", str(tmp_path / "names.txt")]) == 0
    out = capsys.readouterr().out
    assert "train: 1 films, 1 absent; 4 tracks, 273 boxes" in out
    assert "val: 2 films, 1 absent; 4 tracks, 610 boxes" in out
    assert "size unknown  https://s3.amazonaws.com/ava-dataset/trainval/007.webm" in out
    assert "size unknown  https://s3.amazonaws.com/ava-dataset/trainval/-x.*" in out
    assert "NA.mp4" in out
    assert command.main(["list"]) == 0
    out = capsys.readouterr().out
    assert "ava_activespeaker_train_v1.0.tar.bz2" in out
    assert "test   not published" in out


class _Bucket(http.server.BaseHTTPRequestHandler):
    """A server that has two films of 1 and 2 MB and the list of their names."""

    def do_HEAD(self) -> None:
        sizes = {"/trainval/-x.mkv": 1_000_000, "/trainval/007.mkv": 2_000_000, "/test/_a.mp4": 3_000_000}
        size = sizes.get(self.path)
        self.send_response(200 if size else 404)
        self.send_header("Content-Length", str(size or 0))
        self.end_headers()

    def do_GET(self) -> None:
        names = {"ava_speech_file_names_v1.txt": b"-x.mkv\n007.mkv\nNA.mp4\n"}
        names["ava_file_names_test_v2.1.txt"] = b"_a.mp4\n_b.mkv\n"
        text = names.get(self.path.rsplit("/", 1)[1], b"")
        self.send_response(200 if text else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def test_list_asks_the_server_for_sizes(
    mini: MiniAva, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setattr(sources, "BUCKET", f"http://127.0.0.1:{server.server_port}")
        labels = [f"{split}={path}" for split, path in mini.labels.items()]
        assert command.main(["list", "--labels", *labels, "--sizes"]) == 0
        out = capsys.readouterr().out
        assert "1 MB  http://127.0.0.1" in out
        assert "to download: 2 MB and 1 of unknown size" in out
        # Nobody has labels of the test films: the published list names them.
        (tmp_path / "_b.mkv").touch()
        assert command.main(["list", "--sizes", "--films", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert "test: 2 films in the list, 1 absent" in out
        assert f"_b  {tmp_path / '_b.mkv'}" in out
        assert f"3 MB  http://127.0.0.1:{server.server_port}/test/_a.mp4" in out
        assert "to download: 3 MB\n" in out
    finally:
        server.shutdown()
        server.server_close()
    assert command.main(["list", "--labels", *labels, "--sizes"]) == 1
    error = capsys.readouterr().err
    assert "the list of film names cannot be read" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "0/2"], "expected i/n with i from 1 to n"),
        (["--shard", "3/2"], "expected i/n with i from 1 to n"),
        (["--jobs", "0"], "--jobs=0"),
        (["--crop-size", "47"], "--crop-size=47"),
        (["--max-gap", "-1"], "--max-gap=-1"),
        (["--max-gap", "0"], "--max-gap=0: expected seconds from 0.05 to 60"),
        (["--columns", "lrs"], "invalid choice: 'lrs'"),
        (["--labels", "labels.csv"], "expected SPLIT=FILE_OR_FOLDER"),
        (["--labels", "val=nowhere.csv"], "nothing at nowhere.csv"),
        (["--films", "nowhere"], "no folder of films at nowhere"),
        (["--labels", "train={val}", "val={val}"], "is in the splits 'train' and 'val'"),
    ],
)
def test_wrong_usage_is_one_line(
    mini: MiniAva, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(**mini.labels) for argument in arguments]
    assert extract(mini, tmp_path / "out", *given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_other_settings_and_other_folders_are_refused(
    mini: MiniAva, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract(mini, made, "--max-gap", "2") == 2
    assert "was begun with other settings (max_gap_s: 0.2, now 2.0); choose" in capsys.readouterr().err
    assert command.main(["finish", str(tmp_path)]) == 2
    assert "no dataset was begun there" in capsys.readouterr().err
