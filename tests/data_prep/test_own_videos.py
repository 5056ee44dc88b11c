"""Facts about ``python -m data_prep.own_videos``: labelled videos become splits to train on, others tracks to score."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

import data_prep.film_dataset
import data_prep.own_videos as command
from avfusion.data.prepared import PreparedDataset
from avfusion.data.verify.prepared import verify
from avfusion.errors import UsageError
from avfusion.media.video import read_frames
from avfusion.tracks import read_unlabeled
from data_prep.film_extraction import FilmTask, extract_films
from tests.data_prep import mini_ava

VIDEOS = tuple(
    mini_ava.Film(
        name=name,
        picture_times=tuple(n * step for n in range(count)),
        labels_from_s=0,
        duration_s=2,
        faces=(
            mini_ava.Face(f"{name[:-4]}:left", (45, 60), 0.0, 300, ((0.4, 1.2),)),
            mini_ava.Face(f"{name[:-4]}:right", (115, 60), 0.0, 600, ((1.4, 1.8),)),
        ),
    )
    for name, step, count in (
        ("007.mkv", Fraction(1, 25), 50),
        ("my talk.mp4", Fraction(1001, 30000), 60),
        ("NA.mkv", Fraction(1, 25), 50),
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos of two faces, with their tables of labels and of boxes alone."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "videos" / "more").mkdir(parents=True)
    (folder / "labels").mkdir()
    for video in VIDEOS:
        place = folder / "videos" / ("more" if video.name == "NA.mkv" else "")
        mini_ava.write_film(place / video.name, video)
        rows = mini_ava.rows_of(video)
        (folder / "labels" / f"{video.video_id}.csv").write_text(mini_ava.csv_text(rows))
    boxes = [row[:6] + row[7:] for video in VIDEOS for row in mini_ava.rows_of(video)]
    header = ["video_id", "frame_timestamp", "x1", "y1", "x2", "y2", "entity_id"]
    (folder / "boxes.csv").write_text(mini_ava.csv_text([header, *boxes]))
    return folder


def run(folder: Path, out: Path, *more: str) -> int:
    return command.main([str(folder / "videos"), str(out), "--crop-size=48", "--jobs=1", *more])


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "dataset"
    assert run(folder, out, f"--labels={folder / 'labels'}", "--val-share=0.3") == 0
    return out


def contents(root: Path) -> dict[str, bytes]:
    """Every file; of crops what they show, because an encoder promises no bytes; not the record of the work."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != "dataset.json" and not path.name.startswith("journal"):
            is_video = path.suffix == ".mp4"
            name = path.relative_to(root).as_posix()
            found[name] = read_frames(path, 0, frames_of(path)).tobytes() if is_video else path.read_bytes()
    return found


def frames_of(path: Path) -> int:
    with av.open(str(path)) as container:
        return int(container.streams.video[0].frames)


def test_labels_and_sound_stand_at_the_videos_own_times(made: Path) -> None:
    tracks = {}
    for split in ("train", "val"):
        dataset = PreparedDataset(made, split)
        tracks |= {track.entity_id: (track, dataset.read(index)) for index, track in enumerate(dataset.tracks)}
    assert len(tracks) == 6
    for video in VIDEOS:
        for face in video.faces:
            track, clip = tracks[face.entity_id]
            assert track.video_id == video.video_id
            assert (track.start_s, track.num_frames, track.labelled) == (0.0, 50, True)
            (start_s, end_s) = face.bursts_s[0]
            expected = (track.timestamps_s >= start_s) & (track.timestamps_s < end_s)
            assert int((track.speaking != expected).sum()) <= 1  # 29.97 fps: a border may fall between two frames
            wave = np.exp(-2j * np.pi * face.tone_hz * np.arange(640) / 16_000)
            heard = 2 * np.abs(clip.audio.reshape(-1, 640) @ wave) / 640 > 0.15
            assert int((heard != expected).sum()) <= 1


def test_whole_videos_are_drawn_into_train_and_val_and_the_dataset_has_no_fault(made: Path) -> None:
    video_ids = {split: {t.video_id for t in PreparedDataset(made, split).tracks} for split in ("train", "val")}
    assert {split: len(ids) for split, ids in video_ids.items()} == {"train": 2, "val": 1}
    assert not video_ids["train"] & video_ids["val"]
    verification = verify(made, bar=False)
    assert [finding.as_line() for finding in verification.findings] == []
    with (made / "source_labels" / "train.csv").open(newline="") as file:
        assert {row[0] for row in csv.reader(file)} == video_ids["train"]


def test_the_draw_leaves_no_split_empty_and_does_not_depend_on_the_order() -> None:
    ids = [f"v{number}" for number in range(10)]
    drawn = command.draw_splits(ids, 0.2, seed=0)
    assert sorted(drawn) == ids
    assert list(drawn.values()).count("val") == 2
    assert command.draw_splits(ids[::-1], 0.2, seed=0) == drawn
    assert command.draw_splits(ids, 0.2, seed=1) != drawn
    assert list(command.draw_splits(ids, 0.01, 0).values()).count("val") == 1
    assert list(command.draw_splits(ids, 0.99, 0).values()).count("train") == 1
    assert command.draw_splits(ids, 0.0, 0) == {}
    with pytest.raises(UsageError, match="at least 2 labelled videos, found 1"):
        command.draw_splits(["v0"], 0.5, 0)


def test_boxes_without_labels_become_unlabelled_tracks(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    assert run(folder, out, f"--boxes={folder / 'boxes.csv'}") == 0
    tracks = PreparedDataset(out, "own").tracks
    assert len(tracks) == 6
    assert not any(track.labelled or track.speaking.any() for track in tracks)
    assert not (out / "source_labels").exists()
    assert not (out / "labels").exists()  # as negatives they would be counted against a score
    assert len(read_unlabeled(out / "boxes" / "own.csv")) == 300
    verification = verify(out, bar=False)
    assert verification.faults == []
    assert verification.summaries[0].num_unlabelled == 6
    with (out / "tracks.csv").open(newline="") as file:
        assert {row["labelled"] for row in csv.DictReader(file)} == {"no"}


def without_sound(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for _ in range(50):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((120, 160, 3), np.uint8), format="rgb24")))
        container.mux(stream.encode(None))


def test_videos_that_cannot_be_used_are_named_and_the_others_go_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "own"))
    (copy / "videos" / "my talk.mp4").write_bytes(b"")
    (copy / "videos" / "more" / "NA.mkv").unlink()
    without_sound(copy / "videos" / "mute.mp4")
    without_sound(copy / "videos" / "nobody.mp4")
    rows = [["mute", f"{n / 25:.2f}", "0.1", "0.1", "0.5", "0.6", "NOT_SPEAKING", "mute:1"] for n in range(50)]
    (copy / "labels" / "mute.csv").write_text(mini_ava.csv_text(rows))
    out, labels = tmp_path / "dataset", f"--labels={copy / 'labels'}"
    assert run(copy, out, labels) == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert any("own/NA: no video named NA.*" in line for line in error)
    assert any("own/mute" in line and ("sound" in line or "audio" in line) for line in error[:-1])
    assert any("my talk.mp4" in line for line in error[:-1])
    assert any("left out 1 videos that no table names a face in: nobody" in line for line in error)
    assert error[-1].startswith(
        "error: 3 of 4 videos could not be extracted (own/NA, own/mute, own/my talk); the others"
    )
    assert not (out / "dataset.json").exists()

    assert run(copy, out, labels, "--allow-missing") == 0
    assert {track.video_id for track in PreparedDataset(out, "own").tracks} == {"007"}
    notes = {note.what: note for note in verify(out, bar=False).notes}
    unused = notes["videos that are absent or could not be used were left out by the preparation"]
    assert (list(unused.cases), unused.total) == (["own/NA", "own/mute", "own/my talk"], 4)
    assert list(notes["videos without a face in the tables were left out by the preparation"].cases) == ["nobody"]


def test_a_stopped_run_goes_on_to_the_same_dataset(
    folder: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = tmp_path / "dataset", [f"--labels={folder / 'labels'}", "--val-share=0.3"]
    done: list[object] = []

    def stops_after_one(tasks: list[FilmTask], jobs: int, on_done: Callable[..., None]) -> dict[str, str]:
        def then_stop(*result: object) -> None:
            on_done(*result)
            done.append(result)
            raise KeyboardInterrupt

        return extract_films(tasks, jobs, then_stop)

    with monkeypatch.context() as stopping:
        stopping.setattr(data_prep.film_dataset, "extract_films", stops_after_one)
        assert run(folder, out, *asked) == 130
    assert len(done) == 1
    assert not (out / "dataset.json").exists()
    assert run(folder, out, *asked) == 0
    assert contents(out) == contents(made)
    before = json.loads((out / "dataset.json").read_text())
    assert run(folder, out, *asked) == 0  # finished: nothing is done again
    assert json.loads((out / "dataset.json").read_text()) == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"--val-share": "0.4"}, "(val_share: 0.3, now 0.4)"),  # the same draw: one of three videos
        ({"--seed": "5"}, "(seed: 0, now 5"),
        ({"--crop-size": "64"}, "(crop_size: 48, now 64)"),
        ({"--max-gap": "0.5"}, "(max_gap_s: 0.2, now 0.5)"),
    ],
)
def test_a_changed_setting_on_a_begun_folder_is_named(
    folder: Path, made: Path, changed: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"--labels": str(folder / "labels"), "--val-share": "0.3", **changed}
    assert run(folder, made, *(f"{name}={value}" for name, value in given.items())) == 2
    error = capsys.readouterr().err
    assert f"{made} was begun with other settings {said}" in error
    assert "annotated_rows" not in error


def test_videos_without_a_share_for_val_are_split_own_and_training_says_so(folder: Path, tmp_path: Path) -> None:
    assert run(folder, tmp_path / "out", f"--labels={folder / 'labels'}") == 0
    assert len(PreparedDataset(tmp_path / "out", "own").tracks) == 6
    with pytest.raises(UsageError, match=r"no split 'train'; its tracks.csv names: own\. Name one of .*--val-share"):
        PreparedDataset(tmp_path / "out", "train")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the faces' places are needed: give --labels, or --boxes to have them scored"),
        (["--boxes=BOXES", "--labels=LABELS"], "video '007' is in --labels and in --boxes"),
        (["--boxes=BOXES", "--val-share=0.2"], "--val-share divides labelled videos; give --labels"),
        (["--labels=LABELS", "--val-share=1"], "--val-share=1: expected a share"),
        (["--labels=LABELS", "--val-share=0.3", "--split=train"], "that split is drawn by --val-share"),
        (["--labels=LABELS", "--crop-size=15"], "--crop-size=15: expected an even number"),
        (["--labels=nowhere"], "nowhere"),
        (["--labels=EMPTY"], "holds no row"),
        (["--boxes=EMPTY"], "empty.csv: "),
        (["--labels=SLOW"], "rows of a face stand 0.50 s apart; more than --max-gap 0.2 begins a new track"),
        (["--labels=STRANGERS"], "the tables name none of the 3 videos in"),
    ],
)
def test_what_a_user_gets_wrong_is_told_in_one_line(
    folder: Path, tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    strangers = tmp_path / "strangers.csv"
    strangers.write_text("someone,0.00,0.1,0.1,0.2,0.2,NOT_SPEAKING,someone:1\n")
    empty, slow = tmp_path / "empty.csv", tmp_path / "slow.csv"
    empty.write_text("video_id,frame_timestamp,x1,y1,x2,y2,label,entity_id\n")
    slow.write_text("".join(f"007,{n / 2},0.1,0.1,0.2,0.2,NOT_SPEAKING,a\n" for n in range(11)))
    names = {
        "EMPTY": empty,
        "SLOW": slow,
        "BOXES": folder / "boxes.csv",
        "LABELS": folder / "labels",
        "STRANGERS": strangers,
    }
    given = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        given.append(f"{name}={names.get(value, value)}")
    code = command.main([str(folder / "videos"), str(tmp_path / "out"), *given])
    error = capsys.readouterr().err.strip()
    assert code in (1, 2)
    assert said in error
    assert "\n" not in error
    assert not (tmp_path / "out").exists()
