"""What is reported after each epoch: the figures of report.json, on fixed clips, in bounded space."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.data.open import open_dataset
from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.join import join
from avfusion.evaluation.roc import auroc
from avfusion.evaluation.roles import per_role, track_roles
from avfusion.models import build_model
from avfusion.offsets import IN_SYNC_ROLES
from avfusion.scoring import score_tracks
from avfusion.tracks import FaceTrack, LabelTable, ScoreTable
from avfusion.training.epoch_report import EpochReport
from avfusion.training.logger import RunLogger
from avfusion.training.predictions import COLUMNS, prediction_rows
from tests.training.tiny import tiny_run

CPU = torch.device("cpu")


class Shown(RunLogger):
    """Counts what it is given to show."""

    def __init__(self) -> None:
        self.images: list[tuple[str, str]] = []
        self.curves: list[tuple[str, int]] = []

    def log_images(self, images: Any, key: str, step: int) -> None:
        self.images += [(key, path.name) for path in images]

    def log_curve(self, key: str, axes: Any, points: Any, step: int, title: str) -> None:
        self.curves.append((key, len(points)))


def prepared(config: Config) -> tuple[Examples, Any]:
    torch.manual_seed(0)
    examples = Examples(open_dataset(config.data, "val"), config.data)
    return examples, build_model(config.model, config.data.num_mels)


def test_figures_are_those_of_the_final_report(tmp_path: Path) -> None:
    config = tiny_run()
    examples, model = prepared(config)
    tracks = examples.dataset.tracks
    rng = np.random.default_rng(0)
    scores = [rng.random(track.num_frames).astype(np.float32) for track in tracks]
    numbers = EpochReport(config, examples, CPU)(model, scores, Shown(), 1, 1, tmp_path)
    speaking, pooled = np.concatenate([track.speaking for track in tracks]), np.concatenate(scores)
    assert numbers["val/ap"] == average_precision(speaking, pooled)
    assert numbers["val/auroc"] == auroc(speaking, pooled)
    joined = join(LabelTable.from_tracks(tracks), ScoreTable.from_tracks(tracks, scores))
    rows = per_role(joined, track_roles(tracks), IN_SYNC_ROLES, resamples=0)
    assert len(rows) > 5
    expected = {f"val_role/ap_{row.role}": row.average_precision for row in rows}
    assert {key: value for key, value in numbers.items() if key.startswith("val_role/")} == expected
    names = {f"align/head{head}_{name}" for head in (1, 2, 3, 4) for name in ("lag_ms", "width_ms", "entropy")}
    names |= {f"align/head{head}_{name}" for head in (1, 2, 3, 4) for name in ("null_mass", "null_mass_silent")}
    assert {key for key in numbers if key.startswith("align/")} == names


def test_tracks_without_labels_count_nowhere(tmp_path: Path) -> None:
    config = tiny_run()
    examples, model = prepared(config)
    tracks = list(examples.dataset.tracks)
    first = tracks[0]
    tracks[0] = FaceTrack(
        first.video_id, first.entity_id, first.start_s, np.zeros_like(first.speaking), first.boxes_xyxy, first.audio_id,
        first.role, labelled=False,
    )  # fmt: skip
    examples.dataset.tracks = tracks
    scores = [np.linspace(0, 1, track.num_frames, dtype=np.float32) for track in tracks]
    numbers = EpochReport(config, examples, CPU)(model, scores, Shown(), 1, 1, tmp_path)
    expected = average_precision(np.concatenate([t.speaking for t in tracks[1:]]), np.concatenate(scores[1:]))
    assert numbers["val/ap"] == expected


def test_looking_changes_no_random_state_and_no_mode(tmp_path: Path) -> None:
    """A run that is looked at trains on exactly like one that is not."""
    config = tiny_run()
    examples, model = prepared(config)
    report = EpochReport(config, examples, CPU)
    scores = score_tracks(model, examples, config, CPU)
    model.train()
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]
    report(model, scores, Shown(), 1, 1, tmp_path)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert model.training


@pytest.mark.parametrize("setting", ["concat", "video"])
def test_a_model_without_cross_attention_has_no_alignment(tmp_path: Path, setting: str) -> None:
    config = tiny_run("--report.epoch_figures=20")
    if setting == "concat":
        config.model.fusion.kind = "concat"
    else:
        config.model.modality = "video"
    examples, model = prepared(config)
    shown = Shown()
    scores = score_tracks(model, examples, config, CPU)
    numbers = EpochReport(config, examples, CPU)(model, scores, shown, 1, 2, tmp_path)
    assert not [key for key in numbers if key.startswith("align/")]
    assert "val/ap" in numbers
    assert shown.images == []
    assert len(shown.curves) == 1
    assert not any(tmp_path.iterdir())


def test_a_long_run_draws_a_bounded_number_of_pictures(tmp_path: Path) -> None:
    config = tiny_run(epochs=9)
    config.report.epoch_figures = 3
    examples, model = prepared(config)
    report, shown = EpochReport(config, examples, CPU), Shown()
    scores = score_tracks(model, examples, config, CPU)
    for epoch in range(1, 10):
        report(model, scores, shown, epoch, epoch, tmp_path)
    expected = ["epoch-0003.png", "epoch-0006.png", "epoch-0009.png"]
    assert shown.images == [("align/probe_clips", name) for name in expected]
    assert [key for key, _ in shown.curves] == ["val/pr_curve"] * 3
    assert all(count <= 200 for _, count in shown.curves)
    assert sorted(path.name for path in tmp_path.iterdir()) == expected
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()

    config.report.epoch_figures = 0
    EpochReport(config, examples, CPU)(model, scores, shown, 9, 9, tmp_path)
    assert len(shown.images) == 3


def predicted(frames: list[int]) -> tuple[list[FaceTrack], list[np.ndarray]]:
    tracks, scores = [], []
    for number, count in enumerate(frames):
        speaking = np.arange(count) % 2 == 0
        boxes = np.zeros((count, 4), np.float32)
        tracks.append(FaceTrack(f"v{number}", f"e{number}", 1.0, speaking, boxes, "a", "solo"))
        scores.append((np.arange(count) / 1000 + number).astype(np.float32))
    return tracks, scores


def test_the_table_of_predictions_is_bounded_and_the_same_each_time() -> None:
    tracks, scores = predicted([40, 30, 30])
    rows = prediction_rows(tracks, scores, 25)
    assert len(rows) == 25 == len(set(rows))
    assert rows == prediction_rows(tracks, scores, 25)
    for row in rows:
        video, entity, time_s, role, label, score = row
        assert len(row) == len(COLUMNS)
        track = int(video[1:])
        frame = round((time_s - 1.0) * 25)
        assert (entity, role, label) == (f"e{track}", "solo", int(frame % 2 == 0))
        assert score == pytest.approx(track + frame / 1000)
    assert {video for video, *_ in rows} == {"v0", "v1", "v2"}


def test_a_small_split_is_shown_whole() -> None:
    tracks, scores = predicted([2, 1])
    assert prediction_rows(tracks, scores, 500) == [
        ("v0", "e0", 1.0, "solo", 1, 0.0),
        ("v0", "e0", 1.04, "solo", 0, pytest.approx(0.001)),
        ("v1", "e1", 1.0, "solo", 1, 1.0),
    ]
    assert prediction_rows(tracks, scores, 0) == []
    assert prediction_rows([], [], 5) == []
