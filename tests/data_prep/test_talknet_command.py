"""Facts about ``python -m data_prep.talknet``, and about one set in both forms: prepared, and in the TalkNet layout.

The set is the made-up AVA of ``mini_ava.py``, extracted from its films; its layout holds the extracted crops as JPEG.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import data_prep.ava
import data_prep.talknet as command
import train
from avfusion.data.prepared import PreparedDataset
from avfusion.data.talknet.checks import check_talknet
from avfusion.data.talknet.dataset import TalkNetDataset
from avfusion.data.verify.prepared import verify
from avfusion.errors import run_command
from avfusion.media.audio import LogMel, read_audio
from avfusion.tracks import FaceTrack, read_labels
from benchmarks.talknet_layout import LayoutTrack, write_layout
from tests.data_prep.mini_ava import MiniAva, make_mini_ava

SPLITS = ("train", "val")


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> MiniAva:
    return make_mini_ava(tmp_path_factory.mktemp("mini"))


@pytest.fixture(scope="module")
def prepared(mini: MiniAva, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "dataset"
    labels = [f"{split}={path}" for split, path in mini.labels.items()]
    arguments = ["extract", str(out), "--labels", *labels, "--films", str(mini.films), "--crop-size", "112"]
    assert data_prep.ava.main([*arguments, "--jobs", "1"]) == 0
    return out


@pytest.fixture(scope="module")
def layout(mini: MiniAva, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as annotated, each with the extracted crop of its time; tracks of one row have no sound and are left."""
    root = tmp_path_factory.mktemp("layout") / "set"
    for split in SPLITS:
        dataset = PreparedDataset(prepared, split)
        files = sorted(mini.labels[split].glob("*.csv")) if mini.labels[split].is_dir() else [mini.labels[split]]
        rows = [row for file in files for row in csv.reader(file.open(encoding="utf-8-sig")) if row[0] != "video_id"]
        tracks = []
        for entity_id in sorted({row[7] for row in rows}):
            own = sorted((row for row in rows if row[7] == entity_id), key=lambda row: float(row[1]))
            if len(own) > 1:
                tracks.append(layout_track(dataset, prepared, own))
        write_layout(root, split, tracks, quality=95)
    return root


def layout_track(dataset: PreparedDataset, prepared: Path, rows: list[list[str]]) -> LayoutTrack:
    video_id, entity_id = rows[0][0], rows[0][7]
    crop_of: dict[int, NDArray[np.uint8]] = {}
    for index, track in enumerate(dataset.tracks):
        if track.video_id == video_id and track.entity_id.split("#")[0] == entity_id:
            first = round(25 * track.start_s)
            crop_of |= {first + number: crop for number, crop in enumerate(dataset.read(index).crops)}
            film = read_audio(prepared / track.audio_id)
    times_s = np.array([float(row[1]) for row in rows])
    crops = [crop_of[min(crop_of, key=lambda frame: abs(frame / 25 - time_s))] for time_s in times_s]
    boxes = np.array([[float(cell) for cell in row[2:6]] for row in rows], np.float32)
    sound = film[int(round(100 * times_s[0]) * 160) :]
    return LayoutTrack(video_id, entity_id, times_s, boxes, [row[6] for row in rows], crops, sound)


def same_track(tracks: list[FaceTrack], track: FaceTrack) -> int:
    (index,) = (n for n, t in enumerate(tracks) if (t.video_id, t.entity_id) == (track.video_id, track.entity_id))
    return index


def test_both_forms_give_the_same_labels_sound_and_crops(prepared: Path, layout: Path) -> None:
    log_mel = LogMel(64)
    compared = 0
    for split in SPLITS:
        films, folders = PreparedDataset(prepared, split), TalkNetDataset(layout, split)
        assert not [finding for finding in check_talknet(folders) if not finding.is_note]
        for index, track in enumerate(folders.tracks):
            other = same_track(list(films.tracks), track)
            assert films.tracks[other].start_s == track.start_s
            np.testing.assert_array_equal(films.tracks[other].speaking, track.speaking)
            np.testing.assert_allclose(films.tracks[other].boxes_xyxy, track.boxes_xyxy, atol=1e-5)
            ours, theirs = folders.read(index), films.read(other)
            source = folders.sources[index]
            # Sound: from the first row to the last the very same samples; the features where their window lies inside.
            begin = max(-source.first_sample, 0)
            wav = len(read_audio(folders.sound_path(source.entity)))
            end = min(len(ours.audio), wav - source.first_sample)
            np.testing.assert_array_equal(ours.audio[begin:end], theirs.audio[begin:end])
            frames = np.arange(-(-(begin + 200) // 160) if begin else 0, (end - 200) // 160)
            mel = [log_mel(torch.from_numpy(clip.audio))[frames] for clip in (ours, theirs)]
            torch.testing.assert_close(mel[0], mel[1], atol=1e-6, rtol=0)
            assert len(frames) >= 4 * track.num_frames - 10
            # Crops: of the frames whose nearest row was written with just that frame's crop. (At 29.97 rows a second
            # with stamps of 10 ms a few rows have a neighbor's; in a gap of some rows the nearest picture stays.)
            rows_s = source.entity.timestamp_ms[source.row] / 1000
            with_row = np.abs(rows_s - track.timestamps_s) < 0.0195
            assert with_row.mean() > 0.85
            error = np.abs(ours.crops[with_row].astype(int) - theirs.crops[with_row])
            assert error.mean() < 1.0  # measured 0.3 .. 0.5: JPEG of quality 95
            assert np.quantile(error, 0.999) <= 12
            compared += int(with_row.sum())
    assert compared > 700


def test_the_layout_is_the_field_s(layout: Path) -> None:
    """A few names and lines, by hand."""
    lines = (layout / "csv" / "train_orig.csv").read_text().splitlines()
    assert lines[0] == (
        "video_id,frame_timestamp,entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id,"
        "label_id,instance_id"
    )
    assert lines[1].startswith("-x,0.00,0.1")
    assert lines[1].endswith(",NOT_SPEAKING,-x_0000_0060:1,0,-x_0000_0060:1:0")
    assert (layout / "clips_videos/val/007/007_0900_0930:1/900.04.jpg").is_file()
    assert (layout / "clips_audios/val/007/007_0900_0930:1.wav").is_file()


ORIG = """\
video_id,frame_timestamp,entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id,label_id,instance_id
HV0H6oc4Kvs,960.00,0.1,0.1,0.2,0.2,NOT_SPEAKING,HV0H6oc4Kvs_0960_1020:1,0,HV0H6oc4Kvs_0960_1020:1:0
HV0H6oc4Kvs,960.04,0.1,0.1,0.2,0.2,SPEAKING_AUDIBLE,HV0H6oc4Kvs_0960_1020:1,1,HV0H6oc4Kvs_0960_1020:1:1
HV0H6oc4Kvs,960.08,0.1,0.1,0.2,0.2,SPEAKING_NOT_AUDIBLE,HV0H6oc4Kvs_0960_1020:1,2,HV0H6oc4Kvs_0960_1020:1:2
007,12.00,0.1,0.1,0.2,0.2,SPEAKING_AUDIBLE,007:2,1,007:2:0
007,12.03,0.1,0.1,0.2,0.2,SPEAKING_AUDIBLE,007:2,1,007:2:0
007,12.07,0.1,0.1,0.2,0.2,NOT_SPEAKING,007:2,0,007:2:1
007,12.10,0.1,0.1,0.2,0.2,NOT_SPEAKING,007:2,0,007:2:1
007,12.20,0.1,0.1,0.2,0.2,NOT_SPEAKING,007:2,0,007:2:1
"""
# The last column is any number of the track's own.
LOADER = "HV0H6oc4Kvs_0960_1020:1\t3\t25.0\t[0, 1, 0]\t{}\n007:2\t5\t30.0\t[1, 1, 0, 0, 0]\t{}\n"


def test_a_missing_loader_file_is_built_as_the_field_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "csv" / "val_orig.csv"
    table.parent.mkdir()
    table.write_text(ORIG)
    assert command.main(["loader", str(tmp_path)]) == 0
    written = (tmp_path / "csv" / "val_loader.csv").read_text()
    numbers = [line.rsplit("\t", 1)[1] for line in written.splitlines()]
    assert sorted(numbers) == ["0", "1"]
    assert written == LOADER.format(*numbers)
    assert "2 tracks, 8 frames" in capsys.readouterr().out
    assert command.main(["loader", str(tmp_path)]) == 0  # what is there stays
    assert "is there already: left as it is" in capsys.readouterr().out
    assert command.main(["loader", str(tmp_path), "--split", "val"]) == 2
    assert "val_loader.csv is there already; move it away" in capsys.readouterr().err
    assert (tmp_path / "csv" / "val_loader.csv").read_text() == written
    assert sorted(path.name for path in table.parent.iterdir()) == ["val_loader.csv", "val_orig.csv"]


def test_rows_out_of_order_are_noted_for_the_field_s_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "csv").mkdir()
    header, *rows = ORIG.splitlines()
    (tmp_path / "csv" / "train_orig.csv").write_text("\n".join([header, rows[3], *rows[:3], *rows[4:]]))
    assert command.main(["loader", str(tmp_path)]) == 0
    assert "not grouped by track and in order of time" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["loader"], ["convert", "OUT"]])
def test_a_wrong_folder_is_a_usage_error(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([arguments[0], str(tmp_path), *arguments[1:]]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected csv/train_orig.csv" in line


@pytest.fixture(scope="module")
def converted(layout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("converted") / "dataset"
    assert command.main(["convert", str(layout), str(out), "--jobs", "1"]) == 0
    return out


def contents(root: Path) -> dict[str, bytes]:
    """Every table and sound, and the decoded crops."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    skipped = {"dataset.json", "journal.jsonl"}
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in files if p.name not in skipped}
    for split in SPLITS:
        dataset = PreparedDataset(root, split)
        for index, row in enumerate(dataset.rows):
            found[row.crops] = dataset.read(index).crops.tobytes()
    return found


def test_the_conversion_reads_like_the_layout(layout: Path, converted: Path) -> None:
    assert not verify(converted).faults
    for split in SPLITS:
        folders, dataset = TalkNetDataset(layout, split), PreparedDataset(converted, split)
        assert len(folders.tracks) == len(dataset.tracks)
        for index, track in enumerate(folders.tracks):
            other = same_track(list(dataset.tracks), track)
            assert dataset.tracks[other].start_s == track.start_s
            ours, theirs = folders.read(index), dataset.read(other)
            np.testing.assert_array_equal(ours.speaking, theirs.speaking)
            assert np.abs(ours.crops.astype(int) - theirs.crops).mean() < 1.5
            wav = len(read_audio(folders.sound_path(folders.sources[index].entity)))
            begin = max(-folders.sources[index].first_sample, 0)
            end = min(len(ours.audio), wav - folders.sources[index].first_sample)
            np.testing.assert_array_equal(ours.audio[begin:end], theirs.audio[begin:end])
        audio = {track.video_id: track.audio_id for track in dataset.tracks}
        assert {(t.video_id, t.audio_id) for t in dataset.tracks} == set(
            audio.items()
        )  # a film's faces share its sound
        source, rows = read_labels(converted / "source_labels" / f"{split}.csv"), folders.entities
        assert len(source) == sum(len(entity.timestamp_ms) for entity in rows)
        assert set(source.timestamp_ms) == {int(time) for entity in rows for time in entity.timestamp_ms}


def test_tracks_whose_sounds_differ_keep_their_own(layout: Path, tmp_path: Path) -> None:
    import soundfile

    root = Path(shutil.copytree(layout, tmp_path / "layout"))
    path = root / "clips_audios/val/007/007_0900_0930:2.wav"
    sound, rate = soundfile.read(path, dtype="int16")
    soundfile.write(path, sound // 4, rate, subtype="PCM_16")
    assert command.main(["convert", str(root), str(tmp_path / "out"), "--split", "val", "--jobs", "1"]) == 0
    folders, dataset = TalkNetDataset(root, "val"), PreparedDataset(tmp_path / "out", "val")
    for index, track in enumerate(folders.tracks):
        other = same_track(list(dataset.tracks), track)
        ours, theirs = folders.read(index).audio[640:-1280], dataset.read(other).audio[640:-1280]
        np.testing.assert_array_equal(ours, theirs)
    assert len({track.audio_id for track in dataset.tracks if track.video_id == "007"}) == 2


def convert_in_a_process(layout: str, out: str) -> None:
    sys.exit(command.main(["convert", layout, out, "--jobs", "1"]))


def test_a_killed_conversion_ends_with_the_same_dataset(layout: Path, converted: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    process = multiprocessing.get_context("fork").Process(target=convert_in_a_process, args=(str(layout), str(out)))
    process.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(out.glob("crops/*/*.mp4"))) < 2:
        time.sleep(0.005)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (out / "dataset.json").exists()
    assert command.main(["convert", str(layout), str(out), "--jobs", "1"]) == 0
    left = {path for path in out.rglob("*.part")}
    for path in left:
        path.unlink()
    assert contents(out) == contents(converted)


def test_several_processes_make_the_same_dataset(layout: Path, converted: Path, tmp_path: Path) -> None:
    assert command.main(["convert", str(layout), str(tmp_path / "out"), "--jobs", "2"]) == 0
    assert contents(tmp_path / "out") == contents(converted)


def test_one_bad_film_is_named_and_the_others_are_done(
    layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(layout, tmp_path / "layout"))
    picture = next((root / "clips_videos/val/NA").rglob("1.00.jpg"))
    whole = picture.read_bytes()
    picture.write_bytes(whole[: len(whole) // 2])
    arguments = ["convert", str(root), str(tmp_path / "out"), "--jobs", "1"]
    assert command.main(arguments) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "1.00.jpg is no whole JPEG picture" in line
    if "1 of 3 films" in line:  # the check before the work looks into some tracks only, and may find it already
        journal = (tmp_path / "out" / "journal.jsonl").read_text().splitlines()
        assert {json.loads(row)["scene"] for row in journal[1:]} == {"train/-x", "val/007"}
    picture.write_bytes(whole)
    assert command.main(arguments) == 0


def test_train_runs_on_the_layout_as_it_is(
    layout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--train.epochs=1", "--data.crop_size=16", "--model.embed_dim=16", "--model.visual.channels=[4,4]"]
    tiny += ["--model.audio.channels=[4,4]", "--model.fusion.heads=2", "--model.temporal.heads=2", "--run.threads=1"]
    tiny += ["--report.bootstrap=20", "--report.figures_per_role=0", "--report.offset_accuracy=false"]
    tiny += ["--wandb.mode=disabled", "--run.device=cpu", "--data.format=talknet"]
    run = tmp_path / "run"
    arguments = ["train.py", *tiny, f"--data.root={layout}", f"--run.dir={run}"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert run_command(train.main) == 0
    report = json.loads((run / "report.json").read_text())
    assert report["source_rows"]["num_rows"] == len(read_labels(layout / "csv" / "val_orig.csv"))
    assert (run / "scores" / "val-source.csv").is_file()
    with (run / "scores" / "val.csv").open() as file:
        scored = {(row["video_id"], row["entity_id"]) for row in csv.DictReader(file)}
    assert scored == {(track.video_id, track.entity_id) for track in TalkNetDataset(layout, "val").tracks}

    broken = Path(shutil.copytree(layout, tmp_path / "broken"))
    shutil.rmtree(broken / "clips_audios" / "val" / "007")
    arguments = ["train.py", *tiny, f"--data.root={broken}", f"--run.dir={tmp_path / 'second'}"]
    monkeypatch.setattr(sys, "argv", arguments)
    capsys.readouterr()
    assert run_command(train.main) == 1
    assert (
        "2 of 4 tracks have no sound file, first: clips_audios/val/007/007_0900_0930:1.wav" in capsys.readouterr().err
    )
    assert not (tmp_path / "second").exists()
