"""Facts about ``python -m data_prep.compose``: from clips on disk to a dataset, broken runs and wrong input too."""

from __future__ import annotations

import csv
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

import data_prep.compose as command
from avfusion.data.compose import compose_scene
from avfusion.data.prepared import PreparedDataset
from avfusion.data.scene_truth import face_of, read_truth
from avfusion.data.verify.prepared import verify
from data_prep import find_lags
from data_prep.clip_tables import read_lags
from data_prep.source_clips import moved_back
from tests.inference.painted import save_untrained

TALKERS = {"ann": "train", "ben": "train", "cat": "val", "dan": "val", "eve": "test", "fay": "test"}
ALIGN = "0 15000 sil\n15000 30000 bin\n30000 35000 blue\n35000 50000 sil\n"  # speech from 0.6 to 1.4 s


def write_clip(path: Path, seed: int, level: float = 3000, with_sound: bool = True) -> None:
    """Two seconds: a bright square that moves over a dark picture, with noise for sound."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        audio = container.add_stream("pcm_s16le", rate=16_000, layout="mono") if with_sound else None
        for index in range(50):
            picture = np.full((64, 96, 3), 30 + seed, dtype=np.uint8)
            picture[20 + index % 5 : 40, 40:60] = 200
            container.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(video.encode(None))
        if audio is None:
            return
        samples = (level * rng.standard_normal((1, 32_000))).astype(np.int16)
        sound = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        sound.sample_rate, sound.pts = 16_000, 0
        container.mux(audio.encode(sound))
        container.mux(audio.encode(None))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of six talkers with word times and boxes, and voices of six more speakers."""
    folder = tmp_path_factory.mktemp("sources")
    rows, boxes = ["path,corpus,talker,split"], ["path,frame,x1,y1,x2,y2"]
    for seed, (talker, split) in enumerate(TALKERS.items()):
        for take in range(2):
            path = f"{talker}/take{take}.mkv"
            write_clip(folder / "clips" / path, 10 * seed + take)
            (folder / "clips" / path).with_suffix(".align").write_text(ALIGN)
            rows.append(f"{path},made,{talker},{split}")
            boxes += [f"{path},{frame},30,10,70,50" for frame in range(0, 50, 5)]
    (folder / "clips" / "clips.csv").write_text("\n".join(rows) + "\n")
    (folder / "clips" / "boxes.csv").write_text("\n".join(boxes) + "\n")
    (folder / "speech").mkdir()
    for speaker in range(6):
        voice = 0.1 * np.random.default_rng(100 + speaker).standard_normal(32_000)
        soundfile.write(folder / "speech" / f"{speaker}-0-0.flac", voice, 16_000)
    return folder


def run(sources: Path, out: Path, *more: str) -> int:
    inputs = ["--clips", str(sources / "clips"), "--speech", str(sources / "speech"), "--crop-size", "32"]
    return command.main([str(out), *inputs, *more])


@pytest.fixture(scope="module")
def made(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "dataset"
    assert run(sources, out) == 0
    return out


def contents(root: Path) -> dict[str, bytes]:
    """Every file's content but for what may differ: the command line, the order of work, the encoder's very bytes."""
    skipped = {"dataset.json", "journal.jsonl"}
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name not in skipped)
    return {path.relative_to(root).as_posix(): b"" if path.suffix == ".mp4" else path.read_bytes() for path in files}


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_the_dataset_is_whole_and_its_labels_follow_the_words(made: Path, split: str) -> None:
    dataset = PreparedDataset(made, split)
    roles = {track.role for track in dataset.tracks}
    assert {"own_sound", "own_noisy", "other_clip", "other_voice", "shifted", "still_face", "two_faces"} <= roles
    for track in dataset.tracks:
        if track.role in ("own_sound", "own_noisy"):
            np.testing.assert_array_equal(np.flatnonzero(track.speaking), np.arange(15, 35))
        elif track.role != "two_faces":
            assert not track.speaking.any()
        if track.role != "two_faces":
            assert track.video_id.startswith(f"{track.role}-{track.group}-")
        assert f"{track.group.replace('/', '_')}" in dataset.rows[dataset.tracks.index(track)].crops
    talkers = {name for name, of in TALKERS.items() if of == split}
    with (made / "truth" / f"{split}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert {clip.split("/")[0] for clip in row["clips"].split(";")} <= talkers


def test_the_crop_shows_the_box_and_is_written_once_for_all_scenes(made: Path) -> None:
    dataset = PreparedDataset(made, "train")
    own = [index for index, row in enumerate(dataset.rows) if row.role == "own_sound"]
    crops = dataset.read(own[0]).crops
    # The square spans x 40..60 of a crop that is 44 pixels wide around x = 50, so 32 / 44 of 12..32.
    assert crops[0, 16, 10:22].min() > 150
    assert crops[0, 16, :6].max() < 90
    files = {path.relative_to(made).as_posix() for path in (made / "crops" / "train").iterdir()}
    assert len(files) == 8  # four clips and their still stretches
    assert {row.crops for row in dataset.rows} <= files


def test_a_broken_run_continues_to_the_same_files(
    sources: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def fails_at_the_twentieth(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise KeyboardInterrupt
        return compose_scene(*arguments)

    monkeypatch.setattr(command, "compose_scene", fails_at_the_twentieth)
    assert run(sources, tmp_path / "dataset") == 130
    assert not (tmp_path / "dataset" / "dataset.json").exists()
    assert run(sources, tmp_path / "dataset") == 0
    assert contents(tmp_path / "dataset") == contents(made)
    before = calls
    assert run(sources, tmp_path / "dataset") == 0  # finished: nothing is done again
    assert calls == before


def test_talkers_of_val_can_be_learnt_from_in_a_last_training(sources: Path, tmp_path: Path) -> None:
    assert run(sources, tmp_path / "dataset", "--val-to-train") == 0
    talkers = {
        split: {track.group.split("/")[0] for track in PreparedDataset(tmp_path / "dataset", split).tracks}
        for split in ("train", "test")
    }
    assert talkers == {"train": {"ann", "ben", "cat", "dan"}, "test": {"eve", "fay"}}
    assert not (tmp_path / "dataset" / "labels" / "val.csv").exists()


def test_clips_without_a_sound_stream_are_named_and_left_out(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "sources"
    shutil.copytree(sources, copy)
    for name in ("ann/take0", "ben/take1"):  # nobody knows whether these talk
        write_clip(copy / "clips" / f"{name}.mkv", 0, with_sound=False)
    write_clip(copy / "clips" / "ben/take0.mkv", 0, level=0)  # this one is known to be silent
    for message in ("left out 2 of 12 clips without a sound stream: ", "is finished already"):
        assert run(copy, tmp_path / "out") == 0
        output = capsys.readouterr()
        assert message in output.err + output.out
        if "left out" in message:
            (line,) = (line for line in output.err.splitlines() if "left out" in line)
            assert line.endswith(f"{copy / 'clips' / 'ann' / 'take0.mkv'}, {copy / 'clips' / 'ben' / 'take1.mkv'}")
            last = output.out.splitlines()[-1]
            assert last.endswith("left out 2 clips without a sound stream, first: ann/take0")
    note = next(note for note in verify(tmp_path / "out", fast=True, bar=False).notes if "left out" in note.what)
    assert note.what == "clips without a sound stream were left out by the preparation"
    assert (list(note.cases), note.total) == (["ann/take0", "ben/take1"], 12)
    roles = defaultdict(set)
    for track in PreparedDataset(tmp_path / "out", "train").tracks:
        roles[track.group].add(track.role)
        assert track.group == "ann/take1" or not track.speaking.any()
    assert roles.keys() == {"ann/take1", "ben/take0"}
    assert roles["ben/take0"] == {"moving_face"}
    assert "own_sound" in roles["ann/take1"]


def test_clips_all_without_sound_make_no_dataset(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(sources, tmp_path / "sources")
    for path in (tmp_path / "sources" / "clips").rglob("*.mkv"):
        write_clip(path, 0, with_sound=False)
    assert run(tmp_path / "sources", tmp_path / "out") == 1
    assert "none of 12 clips has a sound stream" in capsys.readouterr().err


def test_other_settings_in_the_same_folder_are_refused(
    sources: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(sources, made, "--seed", "1") == 2
    assert "begun with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "arguments", "message"),
    [
        ("boxes.csv", (), "no boxes.csv in"),
        ("", ("--corpora", "grid"), "'grid', which no clip has; expected some of made"),
        ("", ("--crop-size", "33"), "--crop-size=33"),
        ("clips", (), "no folder of clips at"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    sources: Path,
    tmp_path: Path,
    spoil: str,
    arguments: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "sources"
    shutil.copytree(sources, copy)
    if spoil == "clips":
        shutil.rmtree(copy / "clips")
    elif spoil:
        (copy / "clips" / spoil).unlink()
    assert run(copy, tmp_path / "out", *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_a_talker_in_two_splits_is_refused(sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(sources, tmp_path / "sources")
    table = tmp_path / "sources" / "clips" / "clips.csv"
    table.write_text(table.read_text().replace("ann/take1.mkv,made,ann,train", "ann/take1.mkv,made,ann,test"))
    assert run(tmp_path / "sources", tmp_path / "out") == 2
    assert "made/ann into two splits" in capsys.readouterr().err


def test_clips_without_word_times_need_the_voice_detector_and_say_so(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(sources, tmp_path / "sources")
    for path in (tmp_path / "sources" / "clips").rglob("*.align"):
        path.unlink()
    monkeypatch.setitem(sys.modules, "silero_vad", None)
    assert run(tmp_path / "sources", tmp_path / "out") == 1
    assert "pip install 'avfusion[prep]'" in capsys.readouterr().err


def test_a_folder_per_talker_is_split_by_talker(sources: Path, tmp_path: Path) -> None:
    shutil.copytree(sources, tmp_path / "sources")
    (tmp_path / "sources" / "clips" / "clips.csv").unlink()
    boxes = tmp_path / "sources" / "clips" / "boxes.csv"
    boxes.write_text("".join(line for line in boxes.open() if not line.startswith("ann/take1")))
    entries, faceless = command.list_clips(tmp_path / "sources" / "clips")
    assert faceless == ["ann/take1.mkv"]
    assert len(entries) == 11
    assert {entry.talker for entry in entries} == {f"own/{name}" for name in TALKERS}
    assert len({(entry.talker, entry.split) for entry in entries}) == len(TALKERS)


def test_real_clips_become_a_dataset(shared: Path, tmp_path: Path) -> None:
    arguments = ["--clips", str(shared / "clips"), "--speech", str(shared / "speech" / "librispeech")]
    arguments += ["--noise", str(shared / "speech" / "noise"), "--corpora", "grid", "--limit", "1"]
    assert command.main([str(tmp_path / "out"), *arguments]) == 0
    dataset = PreparedDataset(tmp_path / "out", "test")
    assert {track.source for track in dataset.tracks} == {"grid"}
    own = [index for index, track in enumerate(dataset.tracks) if track.role == "own_sound"]
    for index in own:
        clip = dataset.read(index)
        loudness = np.sqrt(np.mean(clip.audio.reshape(75, 640) ** 2, axis=1))
        assert 0.3 < clip.speaking.mean() < 0.8
        # Sound is loud where the label says speech, and the lower face moves more there than elsewhere.
        assert loudness[clip.speaking].mean() > 3 * loudness[~clip.speaking].mean()
        mouth = np.abs(np.diff(clip.crops[:, 60:100, 30:82].astype(int), axis=0)).mean(axis=(1, 2))
        assert mouth[clip.speaking[1:]].mean() > 1.2 * mouth[~clip.speaking[1:]].mean()


def test_overlaps_are_told_with_the_truth_of_both_voices(sources: Path, tmp_path: Path) -> None:
    assert run(sources, tmp_path / "few", "--overlaps", "1", "--limit", "1") == 2  # nobody to dub a face with
    out = tmp_path / "overlaps"
    assert run(sources, out, "--overlaps", "1") == 0
    dataset = PreparedDataset(out, "train")
    indices = [i for i, track in enumerate(dataset.tracks) if track.role == "overlap"]
    assert indices
    for index in indices:
        truth, track = read_truth(dataset, index), dataset.tracks[index]
        assert truth is not None
        face = face_of(truth, track.entity_id)
        assert face is not None
        np.testing.assert_array_equal(face.speaking, track.speaking)
        assert (face.voice is not None) == track.speaking.any()
        # The mixture is the two voices: their powers add up, on average over a second of noise.
        audio = dataset.read(index).audio[:32_000].astype(np.float64)
        power = sum(np.square(voice.envelope).mean() for voice in truth.voices)
        np.testing.assert_allclose(np.mean(audio**2), power, rtol=0.05)
    assert run(sources, out) == 2  # begun with other settings
    assert not verify(out).faults


ANN_LATE = "".join(f"made/{talker},{80 if talker == 'ann' else 0}\n" for talker in TALKERS)


def test_the_lag_of_a_talkers_sound_is_taken_out_with_what_is_said(sources: Path, made: Path, tmp_path: Path) -> None:
    """Speech from 0.6 to 1.4 s that comes 80 ms late belongs to frames 13 to 32 of the picture, not 15 to 34."""
    table = tmp_path / "lags.csv"
    table.write_text(f"talker,lag_ms\n{ANN_LATE}made/nobody,40\n")
    assert run(sources, tmp_path / "dataset", "--lags", str(table)) == 0
    plain, moved = PreparedDataset(made, "train"), PreparedDataset(tmp_path / "dataset", "train")
    own = {track.group: index for index, track in enumerate(plain.tracks) if track.role == "own_sound"}
    late = {track.group: index for index, track in enumerate(moved.tracks) if track.role == "own_sound"}
    for group, frames in (("ann/take0", np.arange(13, 33)), ("ben/take0", np.arange(15, 35))):
        clip = moved.read(late[group])
        np.testing.assert_array_equal(np.flatnonzero(clip.speaking), frames)
        before = plain.read(own[group])
        np.testing.assert_array_equal(clip.crops, before.crops)
        by = 1280 if group.startswith("ann") else 0
        level = np.linalg.norm(clip.audio[: 32_000 - by]) / np.linalg.norm(before.audio[by:])
        np.testing.assert_allclose(clip.audio[: 32_000 - by], level * before.audio[by:], atol=1e-3)
        assert not clip.audio[32_000 - by :].any()


def test_a_dataset_begun_without_lags_is_not_continued_with_them(
    sources: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "lags.csv"
    table.write_text(f"talker,lag_ms\n{ANN_LATE}")
    assert run(sources, made, "--lags", str(table)) == 2
    assert "settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("made/ann,soon", "line 2: lag_ms is 'soon', expected whole milliseconds"),
        ("made/ann,2000", "line 2: lag_ms is 2000, expected at most 1000 either way"),
        ("made/ann,40\nmade/ann,80", "line 3: a second lag of talker made/ann, expected one"),
        ("made/ann", "line 2: 1 cells"),
        ("made/ann,40\nmade/Ben,80", "no row for talker made/ben (and 4 more), expected one for each, 0 where"),
    ],
)
def test_a_wrong_table_of_lags_is_told_with_its_line(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, said: str
) -> None:
    (tmp_path / "lags.csv").write_text(f"talker,lag_ms\n{rows}\n")
    assert run(sources, tmp_path / "dataset", "--lags", str(tmp_path / "lags.csv")) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "dataset").exists()


def test_lags_are_looked_for_talker_by_talker(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two clips of two seconds are no evidence; the table is whole all the same, and compose takes it."""
    run_folder = save_untrained(tmp_path / "run" / "checkpoints" / "best.pt").parent.parent
    out = tmp_path / "lags.csv"
    assert find_lags.main([str(sources / "clips"), f"--out={out}", f"--checkpoint={run_folder}"]) == 0
    assert "made/ann" in capsys.readouterr().out
    assert read_lags(out) == {f"made/{talker}": 0 for talker in TALKERS}
    assert find_lags.main([str(sources / "clips"), f"--out={tmp_path / 'no' / 'lags.csv'}"]) == 2
    assert find_lags.main([str(sources / "clips"), f"--out={out}", "--corpora=other"]) == 2
    assert "which no clip has; expected some of made" in capsys.readouterr().err


@pytest.mark.parametrize("lag_ms", [-80, 0, 40])
def test_a_sound_is_moved_back_by_its_lag(lag_ms: int) -> None:
    audio = np.arange(1, 6401, dtype=np.float32)
    moved, late = moved_back(audio, lag_ms), 16 * lag_ms
    for sample in (0, 100, 2000, 6399):
        wanted = audio[sample + late] if 0 <= sample + late < 6400 else 0.0
        assert moved[sample] == wanted
