"""Facts about the prepared dataset: what is written is read, what is missing is told, what was begun is finished."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from avfusion.data.clips import Skipped
from avfusion.data.prepared import PreparedDataset
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord, crops_path, safe_name
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import write_audio

NUM_FRAMES = 12
VIDEO_IDS = ("v_0900", "007", "NA", "1e5")


def levels(scene: int) -> NDArray[np.uint8]:
    """Frame ``i`` of scene ``s`` is flat grey ``20 + 40 s + 3 i``."""
    values = 20 + 40 * scene + 3 * np.arange(NUM_FRAMES)
    return np.tile(values.astype(np.uint8)[:, None, None], (1, 16, 16))


def staircase(start_s: float, num_frames: int) -> NDArray[np.float32]:
    """A sound whose samples tell the video frame they belong to: frame ``i`` of the track holds ``(i + 1) / 64``."""
    steps = np.repeat((np.arange(num_frames, dtype=np.float32) + 1) / 64, 640)
    return np.concatenate([np.zeros(round(16_000 * start_s), dtype=np.float32), steps])


def speaking_of(scene: int) -> NDArray[np.bool_]:
    return np.arange(NUM_FRAMES) % (scene + 2) == 0


def add_scene(writer: PreparedWriter, scene: int, start_s: float = 0.0) -> None:
    video_id = VIDEO_IDS[scene]
    row = TrackRow(
        split="train",
        video_id=video_id,
        entity_id=f"{video_id}:1",
        start_s=start_s,
        num_frames=NUM_FRAMES,
        crops=writer.crops("train", f"{video_id}:1", levels(scene)),
        audio=writer.audio("train", video_id, staircase(start_s, NUM_FRAMES)),
        role="own_sound",
        source="test",
        group=f"clip {scene}",
    )
    boxes = np.tile(np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32) + np.float32(0.1 * scene), (NUM_FRAMES, 1))
    writer.add_scene(
        video_id, SceneRecord([row], [speaking_of(scene)], [boxes], {"video_id": video_id, "snr_db": scene})
    )


def write_dataset(root: Path, start_s: float = 0.0) -> Path:
    writer = PreparedWriter(root, "tiny", "python -m test", crop_size=16, settings={"seed": 0})
    for scene in range(len(VIDEO_IDS)):
        add_scene(writer, scene, start_s)
    writer.finish()
    return root


def all_files(root: Path) -> dict[str, bytes]:
    """Every file's content; of videos only the name, because the encoder does not promise the same bytes twice."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): b"" if path.suffix == ".mp4" else path.read_bytes() for path in files}


@pytest.mark.parametrize("start_s", [0.0, 902.04])
def test_what_is_read_is_what_was_written(tmp_path: Path, start_s: float) -> None:
    dataset = PreparedDataset(write_dataset(tmp_path / "d", start_s), "train")
    assert dataset.name == "tiny"
    by_video = {track.video_id: index for index, track in enumerate(dataset.tracks)}
    assert set(by_video) == set(VIDEO_IDS)  # ids that look like numbers or like nothing stay text
    for scene, video_id in enumerate(VIDEO_IDS):
        track = dataset.tracks[by_video[video_id]]
        assert (track.entity_id, track.role, track.source) == (f"{video_id}:1", "own_sound", "test")
        assert track.group == f"clip {scene}"
        np.testing.assert_array_equal(track.speaking, speaking_of(scene))
        np.testing.assert_allclose(track.boxes_xyxy[5], np.array([0.1, 0.2, 0.3, 0.4]) + 0.1 * scene, atol=1e-6)
        assert track.timestamps_s[3] == pytest.approx(start_s + 0.12)
        clip = dataset.read(by_video[video_id], 4, 5)
        np.testing.assert_allclose(clip.crops[:, 8, 8], levels(scene)[4:9, 8, 8], atol=2)
        np.testing.assert_allclose(clip.audio, np.repeat(np.arange(5, 10) / 64, 640), atol=1e-4)
        np.testing.assert_array_equal(clip.speaking, speaking_of(scene)[4:9])


@pytest.mark.parametrize(("columns", "role", "source"), [(9, "own_sound", "test"), (7, "", "")])
def test_older_tables_without_the_last_columns_are_read(tmp_path: Path, columns: int, role: str, source: str) -> None:
    root = write_dataset(tmp_path / "d")
    table = root / "tracks.csv"
    assert table.read_text().splitlines()[0].endswith(",audio,role,source,group,lag_ms,labelled")
    table.write_text("".join(",".join(line.split(",")[:columns]) + "\n" for line in table.read_text().splitlines()))
    tracks = PreparedDataset(root, "train").tracks
    assert {(track.role, track.source, track.group, track.lag_ms) for track in tracks} == {(role, source, "", None)}


def test_a_stretch_is_a_part_of_the_unbroken_track(tmp_path: Path) -> None:
    dataset = PreparedDataset(write_dataset(tmp_path / "d"), "train")
    whole, part = dataset.read(1), dataset.read(1, 3, 7)
    np.testing.assert_array_equal(part.crops, whole.crops[3:10])
    np.testing.assert_array_equal(part.audio, whole.audio[3 * 640 : 10 * 640])
    with pytest.raises(AvfusionError, match=r"frames 8 \.\. 12 .* which has 12"):
        dataset.read(1, 8, 5)


def test_the_counts_and_truth_are_those_of_the_scenes(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "d")
    info = json.loads((root / "dataset.json").read_text())
    speaking = sum(int(speaking_of(scene).sum()) for scene in range(4))
    assert info["counts"] == {"train": {"tracks": 4, "frames": 48, "speaking_frames": speaking}}
    with (root / "truth" / "train.csv").open(newline="") as file:
        assert {row["video_id"]: float(row["snr_db"]) for row in csv.DictReader(file)} == dict(
            zip(VIDEO_IDS, (0.0, 1.0, 2.0, 3.0), strict=True)
        )


class _Sums(Dataset[torch.Tensor]):
    """What a training run takes from a dataset, one number per track."""

    def __init__(self, dataset: PreparedDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset.tracks)

    def __getitem__(self, index: int) -> torch.Tensor:
        clip = self.dataset.read(index, 2, 6)
        return torch.tensor([clip.crops.sum(), clip.audio.sum(), clip.speaking.sum()], dtype=torch.float64)


def test_workers_read_what_the_main_process_reads_even_after_it_has_read(tmp_path: Path) -> None:
    sums = _Sums(PreparedDataset(write_dataset(tmp_path / "d"), "train"))
    here = torch.stack(list(DataLoader(sums, batch_size=None, num_workers=0)))
    workers = torch.stack(list(DataLoader(sums, batch_size=None, num_workers=2, timeout=60)))
    torch.testing.assert_close(workers, here, rtol=0, atol=0)


def test_sound_that_ends_within_the_last_frame_is_padded(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "d")
    sound = sorted((root / "audio" / "train").iterdir())[0]
    sound.unlink()
    write_audio(sound, staircase(0.0, NUM_FRAMES)[:-100])
    dataset = PreparedDataset(root, "train")
    index = next(i for i, row in enumerate(dataset.rows) if row.audio.endswith(sound.name))
    audio = dataset.read(index).audio
    assert len(audio) == 640 * NUM_FRAMES
    assert not audio[-100:].any()
    assert audio[-101] == pytest.approx(12 / 64, abs=1e-4)


def test_tracks_that_are_skipped_are_as_if_the_tables_did_not_name_them(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "d")
    _remove_last_row(root / "labels" / "train.csv")
    _add_unknown_track(root / "labels" / "train.csv")
    broken = (VIDEO_IDS[0], f"{VIDEO_IDS[0]}:1")  # scenes are written in order of their ids: v_0900 comes last
    skipped = Skipped(frozenset({broken}), 4, {"too few rows": 1}, orphans=frozenset({("ghost", "ghost:1")}))
    dataset = PreparedDataset(root, "train", skipped)
    assert [track.video_id for track in dataset.tracks] == ["007", "1e5", "NA"]
    assert len(dataset.rows) == 3
    np.testing.assert_allclose(dataset.read(1).crops[:, 8, 8], levels(3)[:, 8, 8], atol=2)  # 1e5 is scene 3
    every = frozenset((video_id, f"{video_id}:1") for video_id in VIDEO_IDS)
    with pytest.raises(AvfusionError, match="none of the 4 tracks of split 'train' can be used"):
        PreparedDataset(root, "train", Skipped(every, 4, {}, skipped.orphans))


def test_unlabelled_tracks_are_marked_and_whatever_their_rows_say_does_not_count(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "d")
    path = root / "tracks.csv"
    lines = path.read_text().splitlines()
    assert lines[1].startswith("train,007,")
    path.write_text("\n".join([lines[0], lines[1] + "no", *lines[2:]]) + "\n")
    tracks = {track.video_id: track for track in PreparedDataset(root, "train").tracks}
    assert [track.labelled for track in tracks.values()] == [False, True, True, True]
    assert not tracks["007"].speaking.any()
    assert tracks["NA"].speaking.any()


def _remove_last_row(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def _add_unknown_track(path: Path) -> None:
    path.write_text(path.read_text() + "ghost,0.000,0,0,1,1,NOT_SPEAKING,ghost:1\n")


def _shift_a_time(path: Path) -> None:
    path.write_text(path.read_text().replace(",0.440,", ",0.480,", 1))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_remove_last_row, "11 rows for track .* tracks.csv says 12"),
        (_add_unknown_track, "1 of 5 tracks are not in tracks.csv, first: 'ghost'"),
        (_shift_a_time, "is no frame of its track"),
        (Path.unlink, "train.csv: cannot be read"),
    ],
)
def test_labels_that_contradict_the_tracks_are_refused(
    tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    root = write_dataset(tmp_path / "d")
    spoil(root / "labels" / "train.csv")
    with pytest.raises(AvfusionError, match=message):
        PreparedDataset(root, "train")


def test_a_folder_that_is_no_dataset_an_unfinished_one_and_an_unknown_split_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(AvfusionError, match="does not exist"):
        PreparedDataset(tmp_path / "absent", "train")
    add_scene(PreparedWriter(tmp_path / "begun", "tiny", "c", 16), 0)
    with pytest.raises(AvfusionError, match="unfinished"):
        PreparedDataset(tmp_path / "begun", "train")
    with pytest.raises(AvfusionError, match=r"no split 'val'.*train"):
        PreparedDataset(write_dataset(tmp_path / "d"), "val")


def test_a_killed_run_continues_to_the_same_files(tmp_path: Path) -> None:
    whole = write_dataset(tmp_path / "whole")
    broken = tmp_path / "broken"
    writer = PreparedWriter(broken, "tiny", "python -m test", crop_size=16, settings={"seed": 0})
    add_scene(writer, 0)
    add_scene(writer, 1)
    # The kill: a torn line of the journal, a half-written crop file, and a scene whose media lie there unrecorded.
    with (broken / "journal.jsonl").open("a") as file:
        file.write('{"scene": "NA", "rows": [{"spl')
    half = broken / crops_path("train", "NA:1")
    half.with_name(half.name + ".123.part").write_bytes(b"half")
    writer.audio("train", "NA", staircase(0.0, NUM_FRAMES))
    del writer

    resumed = PreparedWriter(broken, "tiny", "python -m test", crop_size=16, settings={"seed": 0})
    assert sorted(resumed.scenes) == sorted(VIDEO_IDS[:2])
    assert not resumed.is_finished
    for scene in range(len(VIDEO_IDS)):
        add_scene(resumed, scene)
    resumed.finish()
    assert all_files(broken) == all_files(whole)


def test_a_folder_begun_with_other_settings_or_holding_other_files_is_refused(tmp_path: Path) -> None:
    PreparedWriter(tmp_path / "d", "tiny", "c", 16, settings={"seed": 0})
    with pytest.raises(UsageError, match="other settings"):
        PreparedWriter(tmp_path / "d", "tiny", "c", 16, settings={"seed": 1})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "holiday.mp4").touch()
    with pytest.raises(UsageError, match="choose an empty folder"):
        PreparedWriter(tmp_path / "other", "tiny", "c", 16)


def test_file_names_are_free_of_colons_and_never_collide() -> None:
    ids = [
        "v_0900:1",
        "v_0900_1",
        "v_0900/1",
        "V_0900_1",
        "con",
        "CON",
        "aux.x",
        "lpt1",
        ".",
        "..",
        "",
        "é",
        "x" * 300,
        "x" * 301,
    ]
    names = [safe_name(text) for text in ids]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") for name in names)
    assert all(0 < len(name) <= 120 for name in names)
    assert {"con", "lpt1"}.isdisjoint(name.lower() for name in names)
    assert [safe_name(text) for text in ("v_0900_1", "val")] == ["v_0900_1", "val"]
