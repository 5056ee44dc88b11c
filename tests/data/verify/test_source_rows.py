"""Annotated rows that the report could not score are told before the training, by the same rule."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from avfusion.config import DataConfig
from avfusion.data.open import open_dataset
from avfusion.data.prepared import PreparedDataset
from avfusion.data.verify.prepared import verify
from avfusion.data.verify.result import skipped_tracks
from avfusion.errors import AvfusionError
from avfusion.evaluation.source_rows import score_source_rows
from avfusion.tracks import ScoreTable, read_labels

FAULT = "annotated rows (source_labels) have no frame of their track"


@pytest.fixture
def root(tmp_path: Path, small_dataset: Callable[..., Path]) -> Path:
    """Four tracks of 30 frames from 0 s, whose rows as annotated are the frames."""
    root = small_dataset(tmp_path / "d", {"train": 4})
    (root / "source_labels").mkdir()
    shutil.copy(root / "labels" / "train.csv", source(root))
    assert verify(root, fast=True, bar=False).findings == []
    return root


def source(root: Path) -> Path:
    return root / "source_labels" / "train.csv"


def take_out(root: Path, video_id: str) -> None:
    """A track goes from both tables, as a user may cut it."""
    for path, start in ((root / "tracks.csv", f"train,{video_id},"), (root / "labels/train.csv", f"{video_id},")):
        path.write_text("".join(x for x in path.read_text().splitlines(keepends=True) if not x.startswith(start)))


def scored(root: Path, partial: bool) -> int:
    """How many rows the report would score."""
    tracks = PreparedDataset(root, "train").tracks
    table = ScoreTable.from_tracks(tracks, [np.zeros(track.num_frames) for track in tracks])
    return len(score_source_rows(read_labels(source(root)), table, partial)[0])


@pytest.mark.parametrize("fast", [True, False])
def test_rows_of_a_track_that_was_taken_out_are_a_fault_before_training(root: Path, fast: bool) -> None:
    take_out(root, "train2")
    verification = verify(root, fast=fast, bar=False)
    (fault,) = verification.faults
    assert (fault.what, len(fault.cases), fault.total) == (FAULT, 30, 120)
    assert fault.cases[0].startswith("'train2' at 0.000 s, 'train2:1'")
    with pytest.raises(AvfusionError, match="30 of 120 annotated rows"):
        scored(root, partial=False)
    skipped = skipped_tracks(verification.faults, "train", verification.listed["train"])
    assert (skipped.tracks, skipped.orphans) == (frozenset(), {("train2", "train2:1")})


def test_training_stops_or_goes_on_with_the_tracks_that_are_there(root: Path) -> None:
    take_out(root, "train2")
    data = DataConfig(format="prepared", root=str(root))
    with pytest.raises(AvfusionError, match=r"30 of 120 annotated rows.*data\.allow_missing=true"):
        open_dataset(data, "train")
    dataset = open_dataset(DataConfig(format="prepared", root=str(root), allow_missing=True), "train")
    assert len(dataset.tracks) == 3
    assert dataset.skipped.orphans == {("train2", "train2:1")}
    assert scored(root, partial=True) == 90


def test_a_piece_that_is_missing_leaves_the_other_pieces_in(root: Path) -> None:
    """Rows after a gap belong to the piece ``train1:1#2``, which no table names."""
    late = "".join(f"train1,{5 + n / 25:.2f},0.1,0.2,0.3,0.4,NOT_SPEAKING,train1:1\n" for n in range(7))
    source(root).write_text(source(root).read_text() + late)
    verification = verify(root, fast=True, bar=False)
    (fault,) = verification.faults
    assert (len(fault.cases), fault.total) == (7, 127)
    skipped = skipped_tracks(verification.faults, "train", verification.listed["train"])
    assert not skipped.tracks
    assert len(skipped.orphans) == 1
    for table in (root / "tracks.csv", root / "labels" / "train.csv"):
        text = table.read_text()
        mine = "".join(x for x in text.splitlines(keepends=True) if "train3:1" in x)
        table.write_text(text + mine.replace("train3", "train1").replace("train1:1", "train1:1#2"))
    rows = (root / "tracks.csv").read_text().splitlines()
    cells = rows[-1].split(",")
    cells[3] = "5.0"
    (root / "tracks.csv").write_text("\n".join([*rows[:-1], ",".join(cells)]) + "\n")
    labels = (root / "labels" / "train.csv").read_text().splitlines()
    moved = [line.split(",") for line in labels[-30:]]
    (root / "labels" / "train.csv").write_text(
        "\n".join([*labels[:-30], *(",".join([c[0], f"{float(c[1]) + 5:.3f}", *c[2:]]) for c in moved)]) + "\n"
    )
    assert not [fault for fault in verify(root, fast=True, bar=False).faults if fault.what == FAULT]


@pytest.mark.parametrize(("time_ms", "is_near"), [(1160 + 25, True), (1160 + 26, False)])
def test_the_rule_is_that_of_the_report(root: Path, time_ms: int, is_near: bool) -> None:
    row = f"train1,{time_ms / 1000:.3f},0.1,0.2,0.3,0.4,NOT_SPEAKING,train1:1\n"
    source(root).write_text(source(root).read_text() + row)
    assert (scored(root, partial=True) == 121) == is_near
    assert (not verify(root, fast=True, bar=False).faults) == is_near


@pytest.mark.parametrize(
    ("text", "told"),
    [("train1,0.000,0.1\n", "3 columns"), ("train1,0.000,0.1,0.2,0.3,0.4,NOT_SPEAKING,train1:1\n", "is there twice")],
)
def test_a_file_that_the_report_could_not_use_is_a_fault(root: Path, text: str, told: str) -> None:
    source(root).write_text(source(root).read_text() + text)
    (fault,) = verify(root, fast=True, bar=False).faults
    assert fault.what == "files of annotated rows (source_labels) cannot be scored"
    assert told in fault.cases[0]
    assert not fault.tracks
