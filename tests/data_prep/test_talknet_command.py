"""Facts about ``python -m data_prep.talknet``, and about one set in both forms: prepared, and in the TalkNet layout.

The set is the made-up AVA of ``mini_ava.py``, extracted from its films. Its layout is made without any of that: the
pictures are cut from the films by PyAV and Pillow, the sound is the one that was drawn.
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
from collections.abc import Iterable
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import avfusion.data.verify.talknet
import data_prep.ava
import data_prep.talknet as command
import train
from avfusion.data.clips import Clip
from avfusion.data.prepared import PreparedDataset
from avfusion.data.talknet.checks import check_talknet
from avfusion.data.talknet.dataset import TalkNetDataset
from avfusion.data.verify.prepared import verify
from avfusion.errors import run_command
from avfusion.media.audio import LogMel, read_audio
from avfusion.tracks import FaceTrack, read_labels
from benchmarks.talknet_layout import LayoutTrack, write_layout
from data_prep import talknet_films
from tests.data_prep.mini_ava import (
    FILMS,
    HEIGHT,
    SPLIT_OF,
    WIDTH,
    Film,
    MiniAva,
    make_mini_ava,
    rows_of,
    sound_blocks,
)

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
def layout(mini: MiniAva, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as annotated, each with the film's picture of its time; tracks of one row have no sound and are left."""
    root = tmp_path_factory.mktemp("layout") / "set"
    tracks: dict[str, list[LayoutTrack]] = {split: [] for split in SPLITS}
    for film in FILMS:
        rows = rows_of(film)
        pictures = film_pictures(mini.films / film.name, film)
        sound = np.concatenate([(block * 32767).astype(np.int16) for block in sound_blocks(film)])
        for face in film.faces:
            own = [row for row in rows if row[7] == face.entity_id]
            if len(own) > 1:
                tracks[SPLIT_OF[film.video_id]].append(layout_track(own, pictures, sound.astype(np.float32) / 32768))
    for split in SPLITS:
        write_layout(root, split, tracks[split], quality=95)
    return root


def film_pictures(path: Path, film: Film) -> dict[float, NDArray[np.uint8]]:
    """The film's pictures by their time, as PyAV alone gives them."""
    with av.open(str(path)) as container:
        times = {f.time: f.to_ndarray(format="rgb24")[:, :, 1] for f in container.decode(video=0)}
    assert len(times) == len(film.picture_times)
    return {time_s: picture for time_s, picture in times.items() if time_s >= film.labels_from_s - 1}


def layout_track(
    rows: list[list[str]], pictures: dict[float, NDArray[np.uint8]], sound: NDArray[np.float32]
) -> LayoutTrack:
    """The square around each box, 1.1 times its longer side, by Pillow; beyond the film's border it is grey."""
    times_s = np.array([float(row[1]) for row in rows])
    boxes = np.array([[float(cell) for cell in row[2:6]] for row in rows])
    crops = []
    for time_s, box in zip(times_s, boxes, strict=True):
        picture = pictures[min(pictures, key=lambda time: abs(time - time_s))]
        x1, y1, x2, y2 = (box * [WIDTH, HEIGHT, WIDTH, HEIGHT]).tolist()
        half = 1.1 * max(x2 - x1, y2 - y1) / 2
        around = Image.fromarray(np.pad(picture, 80, constant_values=110))
        x, y = (x1 + x2) / 2 + 80, (y1 + y2) / 2 + 80
        corners = (x - half, y - half, x + half, y + half)
        crop = around.transform((112, 112), Image.Transform.EXTENT, corners, Image.Resampling.BILINEAR)
        crops.append(np.asarray(crop))
    own_sound = sound[round(100 * times_s[0]) * 160 :]
    columns = (boxes.astype(np.float32), [row[6] for row in rows], crops, own_sound)
    return LayoutTrack(rows[0][0], rows[0][7], times_s, *columns)


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
            frames = np.arange(-(-(begin + 200) // 160) if begin else 0, (end - 200) // 160)
            mel = [log_mel(torch.from_numpy(clip.audio))[frames] for clip in (ours, theirs)]
            assert len(frames) >= 4 * track.num_frames - 10
            if track.video_id == "NA":  # its film has AAC sound: measured 0.04 on average
                assert np.corrcoef(ours.audio[begin:end], theirs.audio[begin:end])[0, 1] > 0.9999
                assert (mel[0] - mel[1]).abs().mean() < 0.06
            else:
                np.testing.assert_array_equal(ours.audio[begin:end], theirs.audio[begin:end])
                torch.testing.assert_close(mel[0], mel[1], atol=1e-6, rtol=0)
            # Crops: of the frames whose nearest row has just that frame's picture. (At 29.97 rows a second with stamps
            # of 10 ms a few rows have a neighbor's; in a gap of some rows the nearest picture stays.)
            rows_s = source.entity.timestamp_ms[source.row] / 1000
            with_row = np.abs(rows_s - track.timestamps_s) < 0.0195
            assert with_row.mean() > 0.85

            def error(shift: int, ours: Clip = ours, theirs: Clip = theirs) -> NDArray[np.float64]:
                difference = np.roll(ours.crops, shift, axis=0).astype(int) - theirs.crops
                return np.abs(difference).mean(axis=(1, 2))

            right = error(0)[with_row]
            assert right.mean() < 1.5  # measured 1.2 .. 1.4: JPEG of quality 95, H.264, another resampling
            assert right.max() < 2.0  # in every frame; measured 1.6
            for shift in (-1, 1):  # a frame off: measured 1.7 .. 3.5
                assert error(shift)[with_row].mean() > right.mean() + 0.3
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
    (out / "audio" / "train" / "film.flac.12345.part").write_bytes(b"of another killed run")
    assert command.main(["convert", str(layout), str(out), "--jobs", "1"]) == 0
    assert not list(out.rglob("*.part"))
    assert contents(out) == contents(converted)


def test_several_processes_make_the_same_dataset(layout: Path, converted: Path, tmp_path: Path) -> None:
    assert command.main(["convert", str(layout), str(tmp_path / "out"), "--jobs", "2"]) == 0
    assert contents(tmp_path / "out") == contents(converted)


def spoil(picture: Path) -> bytes:
    """Cuts a picture in half; returns what it was."""
    whole = picture.read_bytes()
    picture.write_bytes(whole[: len(whole) // 2])
    return whole


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that begins with error."""
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    return line


def test_one_bad_film_is_named_and_the_others_are_done(
    layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avfusion.data.verify.talknet, "SAMPLED_FILES", 0)  # the check before would find it, or not
    root = Path(shutil.copytree(layout, tmp_path / "layout"))
    picture = next((root / "clips_videos/val/NA").rglob("1.00.jpg"))
    whole = spoil(picture)
    arguments = ["convert", str(root), str(tmp_path / "out"), "--jobs", "1"]
    assert command.main(arguments) == 1
    line = told(capsys)
    assert "1 of 3 films could not be converted" in line
    assert "1.00.jpg is no whole JPEG picture" in line
    journal = (tmp_path / "out" / "journal.jsonl").read_text().splitlines()
    assert {json.loads(row)["scene"] for row in journal[1:]} == {"train/-x", "val/007"}
    picture.write_bytes(whole)
    assert command.main(arguments) == 0
    assert command.main(arguments) == 0
    assert "is finished already: 3 films" in capsys.readouterr().out


def test_a_failed_conversion_may_be_repeated_without_the_bad_track(
    layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out is recorded, and its rows are in no table; once it is mended it does not pass for converted."""
    monkeypatch.setattr(avfusion.data.verify.talknet, "SAMPLED_FILES", 0)
    root, out = Path(shutil.copytree(layout, tmp_path / "layout")), tmp_path / "out"
    picture = root / "clips_videos/train/-x/-x_0000_0060:1/4.40.jpg"  # of the second piece, after the gap
    whole = spoil(picture)
    arguments = ["convert", str(root), str(out), "--jobs", "1"]
    assert command.main(arguments) == 1
    assert "--allow-missing" in told(capsys)
    assert command.main([*arguments, "--allow-missing"]) == 0
    assert "left out 1 of 3 tracks of train that could not be used, first: '-x_0000_0060:1#2' of '-x'" in (
        capsys.readouterr().err
    )
    info = json.loads((out / "dataset.json").read_text())
    assert info["left_out"] == {
        "tracks of train that could not be used": {"of": 3, "names": ["'-x_0000_0060:1#2' of '-x'"]}
    }
    assert not verify(out).faults
    # Rows of frames 0 .. 69 but the 3 of the short gap, and the other face's 150; nothing of the piece left out.
    source = read_labels(out / "source_labels" / "train.csv")
    assert len(source) == 67 + 150
    assert source.timestamp_ms[source.entity_id == "-x_0000_0060:1"].max() == 2760
    picture.write_bytes(whole)
    assert command.main(arguments) == 2
    assert "1 tracks that can be used now were left out" in capsys.readouterr().err
    assert command.main([*arguments, "--allow-missing"]) == 0


def test_messages_speak_of_this_command_and_of_pictures(
    layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(layout, tmp_path / "layout"))
    for folder in root.glob("clips_videos/val/*/*"):
        for picture in folder.iterdir():
            picture.write_bytes(picture.read_bytes()[:300])
    assert command.main(["convert", str(root), str(tmp_path / "out"), "--split", "val"]) == 1
    line = told(capsys)
    assert "4 of 4 tracks have a picture or sound that cannot be decoded" in line
    assert "--allow-missing leaves such tracks out" in line
    assert "data.allow_missing" not in line
    assert "crop files" not in line


def test_a_track_that_the_loader_file_leaves_out_is_recorded(layout: Path, tmp_path: Path) -> None:
    root, out = Path(shutil.copytree(layout, tmp_path / "layout")), tmp_path / "out"
    loader = root / "csv" / "val_loader.csv"
    loader.write_text("".join(loader.read_text().splitlines(keepends=True)[:-1]))
    assert command.main(["convert", str(root), str(out), "--split", "val", "--jobs", "1"]) == 0
    (found,) = json.loads((out / "dataset.json").read_text())["left_out"].items()
    assert found[0] == "tracks of val that val_loader.csv does not name"
    assert (found[1]["of"], len(found[1]["names"])) == (4, 1)
    assert not verify(out).faults


def test_sound_is_put_together_in_blocks(
    layout: Path, converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than a block is read or held at a time, and the result does not depend on its length."""
    monkeypatch.setattr(talknet_films, "BLOCK_S", 1)
    lengths = []
    monkeypatch.setattr(
        talknet_films,
        "read_audio",
        lambda path, start, count: lengths.append(count) or read_audio(path, start, count),
    )
    write_blocks = talknet_films.write_audio_blocks

    def noted(path: Path, blocks: Iterable[NDArray[np.float32]]) -> int:
        return write_blocks(path, (lengths.append(len(block)) or block for block in blocks))

    monkeypatch.setattr(talknet_films, "write_audio_blocks", noted)
    assert command.main(["convert", str(layout), str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert max(lengths) == 16_000
    for path in sorted((converted / "audio").rglob("*.flac")):
        found = read_audio(tmp_path / "out" / path.relative_to(converted))
        np.testing.assert_array_equal(found, read_audio(path))


def test_train_runs_on_the_layout_as_it_is(
    layout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--train.epochs=1", "--data.crop_size=16", "--model.embed_dim=16", "--model.visual.channels=[4,4]"]
    tiny += ["--model.audio.channels=[4,4]", "--model.fusion.heads=2", "--model.temporal.heads=2", "--run.threads=1"]
    tiny += ["--report.bootstrap=20", "--report.figures_per_role=0", "--report.offset_accuracy=false"]
    tiny += ["--wandb.mode=disabled", "--run.device=cpu", "--data.format=talknet"]
    run = tmp_path / "run"
    headless = Path(shutil.copytree(layout, tmp_path / "headless"))  # its rows are scored all the same
    table = headless / "csv" / "val_orig.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[1:]))
    arguments = ["train.py", *tiny, f"--data.root={headless}", f"--run.dir={run}"]
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
