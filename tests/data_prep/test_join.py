"""Facts about ``python -m data_prep.join``: what training reads of a joined dataset is what its parts hold."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import data_prep.join as command
from avfusion.config import DataConfig
from avfusion.data.open import open_splits
from avfusion.data.prepared import PreparedDataset
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord
from avfusion.data.verify.prepared import verify

WriteDataset = Callable[..., Path]


@pytest.fixture
def parts(tmp_path: Path, small_dataset: WriteDataset) -> tuple[Path, Path]:
    """Two datasets whose ids are the same."""
    return (
        small_dataset(tmp_path / "sets" / "one", {"train": 3, "val": 2}),
        small_dataset(tmp_path / "sets" / "two", {"train": 2, "val": 1}, frames=20),
    )


def test_it_reads_as_its_parts_do_and_copies_nothing(parts: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "joined"
    assert command.main([str(out), *map(str, parts)]) == 0
    for split, counts in (("train", (3, 2)), ("val", (2, 1))):
        joined, own = PreparedDataset(out, split), [PreparedDataset(part, split) for part in parts]
        theirs = [
            (part.name, dataset, i)
            for part, dataset in zip(parts, own, strict=True)
            for i in range(len(dataset.tracks))
        ]
        assert len(joined.tracks) == sum(counts)
        for index, (name, dataset, number) in enumerate(theirs):
            clip, same = joined.read(index, 3, 10), dataset.read(number, 3, 10)
            np.testing.assert_array_equal(clip.crops, same.crops)
            np.testing.assert_array_equal(clip.audio, same.audio)
            np.testing.assert_array_equal(clip.speaking, same.speaking)
            track, their_track = joined.tracks[index], dataset.tracks[number]
            assert track.entity_id == f"{name}/{their_track.entity_id}"
            assert track.video_id == f"{name}/{their_track.video_id}"
            assert (track.source, track.group) == (name, "")
            np.testing.assert_allclose(track.boxes_xyxy, their_track.boxes_xyxy, atol=1e-6)
    assert not list(out.rglob("*.mp4")) + list(out.rglob("*.flac"))
    assert not [finding for finding in verify(out, bar=False).faults]
    assert [
        len(dataset.tracks) for dataset in open_splits(DataConfig(format="prepared", root=str(out)), ["train", "val"])
    ] == [5, 3]


def test_of_some_parts_training_alone_is_taken(parts: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "joined"
    assert command.main([str(out), str(parts[0]), "--train-only", str(parts[1])]) == 0
    assert {track.source for track in PreparedDataset(out, "train").tracks} == {"one", "two"}
    assert {track.source for track in PreparedDataset(out, "val").tracks} == {"one"}


def test_parts_and_whole_can_be_moved_together(parts: tuple[Path, Path], tmp_path: Path) -> None:
    command.main([str(tmp_path / "sets" / "joined"), *map(str, parts)])
    shutil.move(tmp_path / "sets", tmp_path / "elsewhere")
    assert len(PreparedDataset(tmp_path / "elsewhere" / "joined", "train").read(4).crops) == 20


def test_a_broken_run_continues_to_the_same_tables(
    parts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert command.main([str(whole), *map(str, parts)]) == 0
    calls = 0

    class Failing(PreparedWriter):
        def add_scene(self, scene_id: str, record: SceneRecord) -> None:
            nonlocal calls
            calls += 1
            if calls == 5:
                raise KeyboardInterrupt
            super().add_scene(scene_id, record)

    with monkeypatch.context() as patched:
        patched.setattr(command, "PreparedWriter", Failing)
        assert command.main([str(broken), *map(str, parts)]) == 130
    assert not (broken / "dataset.json").exists()
    assert command.main([str(broken), *map(str, parts)]) == 0
    for name in ("tracks.csv", "labels/train.csv", "labels/val.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    capsys.readouterr()
    assert command.main([str(broken), *map(str, parts)]) == 0
    assert "finished already: 8 scenes" in capsys.readouterr().out


def test_a_part_that_has_changed_is_noticed(
    parts: tuple[Path, Path], tmp_path: Path, small_dataset: WriteDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main([str(tmp_path / "joined"), *map(str, parts)])
    shutil.rmtree(parts[1])
    small_dataset(parts[1], {"train": 3})
    capsys.readouterr()
    assert command.main([str(tmp_path / "joined"), *map(str, parts)]) == 2
    assert "was begun with other settings (joined: " in capsys.readouterr().err


def test_wrong_use_is_one_line_and_writes_nothing(
    parts: tuple[Path, Path], tmp_path: Path, small_dataset: WriteDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "joined"
    twin = small_dataset(tmp_path / "twins" / "one", {"val": 2})
    (tmp_path / "none").mkdir()
    cases = [
        ([str(parts[0]), str(twin)], "are both called one"),
        ([str(parts[0]), str(tmp_path / "none")], "no prepared dataset at"),
        ([str(parts[1]), "--train-only", str(twin)], "has no split 'train'; its splits are val"),
        ([], "DATASET"),
    ]
    for given, message in cases:
        assert command.main([str(out), *given]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert command.main([str(parts[0]), str(parts[0])]) == 2
    assert "joined into itself" in capsys.readouterr().err
    assert not out.exists()


def test_crops_of_two_sizes_are_refused(
    parts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = parts[1] / "dataset.json"
    info.write_text(info.read_text().replace('"crop_size": 32', '"crop_size": 48'))
    assert command.main([str(tmp_path / "joined"), *map(str, parts)]) == 2
    assert "expected crops of one size, found one 32, two 48" in capsys.readouterr().err


def test_tables_that_contradict_each_other_are_named(
    parts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = parts[0] / "labels" / "train.csv"
    labels.write_text("\n".join(labels.read_text().splitlines()[1:]) + "\n")
    assert command.main([str(tmp_path / "joined"), *map(str, parts)]) == 1
    said = capsys.readouterr().err
    assert "has 29 rows for track 'train0:1'" in said
    assert "data_prep.verify" in said
    assert not (tmp_path / "joined" / "dataset.json").exists()
