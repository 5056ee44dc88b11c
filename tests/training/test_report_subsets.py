"""The subsets of a run's report: measured over the groups of its tracks, and shown where they tell rows apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avfusion.data.identity import data_record
from avfusion.evaluation.average_precision import average_precision
from avfusion.tracks import FaceTrack
from avfusion.training.report import _draw_curve, _figures
from avfusion.training.report_text import as_markdown, as_text
from tests.training.tiny import tiny_run


def make_track(number: int, frames: int, width: float, video: str, labelled: bool = True) -> FaceTrack:
    boxes = np.tile(np.array([0.1, 0.1, 0.1 + width, 0.3], np.float32), (frames, 1))
    speaking = (np.arange(frames) % 3 == number % 3) & labelled
    return FaceTrack(
        video, f"{video}:{number}", 0.0, speaking, boxes, video, role="solo", group=f"g{number % 3}", labelled=labelled
    )


def report_of(tracks: list[FaceTrack]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    scores = [generator.random(track.num_frames).astype(np.float32) for track in tracks]
    config = tiny_run("--report.bootstrap=20")
    return {
        "dataset": "made",
        "root": None,
        "data": data_record(config.data),
        "encoders": None,
        "split": "val",
        "device": "cpu",
        "checkpoint": {"path": "best.pt", "sha256": "0" * 64, "epoch": 3},
        "command": "train.py",
        "seed": 7,
        "versions": {"avfusion": "1"},
        "model": {"parameters": 10, "modality": "audio", "losses": {"speaking": 1.0}},
        "left_out": {},
        "left_out_by_preparation": {},
        **_figures(tracks, scores, config),
    }


def test_a_report_holds_subsets_over_groups_and_shows_those_that_tell_rows_apart() -> None:
    tracks = [make_track(n, 30, 0.02 + 0.05 * (n % 2), f"v{n}") for n in range(6)]
    report = report_of(tracks)
    rows = {(row["kind"], row["name"]): row for row in report["subsets"]}
    assert {kind for kind, _ in rows} == {"face width", "faces in frame", "track length"}
    # Boxes of 0.02 and 0.07 of the picture are 26 and 90 of 1280 px; each face is alone in its video, 1.16 s long.
    assert (rows["face width", "below 64 px"]["num_rows"], rows["face width", "64 to 128 px"]["num_rows"]) == (90, 90)
    assert (rows["face width", "below 64 px"]["num_videos"], rows["face width", "below 64 px"]["num_groups"]) == (3, 3)
    assert rows["faces in frame", "1"]["num_rows"] == rows["track length", "1 to 3 s"]["num_rows"] == 180
    generator = np.random.default_rng(0)
    scores = np.concatenate([generator.random(30).astype(np.float32) for _ in range(6)]).astype(np.float64)
    small = np.repeat(np.arange(6) % 2 == 0, 30)
    labels = np.concatenate([track.speaking for track in tracks])
    expected = average_precision(labels[small], scores[small])
    assert rows["face width", "below 64 px"]["average_precision"] == pytest.approx(expected, abs=1e-12)
    for text in (as_text(report), as_markdown(report, [])):
        assert "below 64 px" in text
        assert "above 128 px" not in text  # empty
        assert "faces in frame" not in text  # all alone: the same rows as the whole
        assert "1 to 3 s" not in text
    told = as_markdown(report, [])
    for part in (
        "180 face boxes of which 60 speak",
        "20 resamples, seed 0",
        "`" + "0" * 64 + "`",
        "seed 7, device cpu",
    ):
        assert part in told
    assert report["intervals"]["num_drawn"] == 3


def test_tracks_without_labels_leave_no_subsets_and_no_curve(tmp_path: Path) -> None:
    tracks = [make_track(0, 10, 0.1, "v", labelled=False)]
    report = report_of(tracks)
    assert (report["subsets"], report["all"]) == ([], None)
    assert "Subsets" not in as_text(report) + as_markdown(report, [])
    assert _draw_curve(tmp_path / "curve.png", tracks, [np.zeros(10, np.float32)], None, "made / val") == []
    assert list(tmp_path.iterdir()) == []


def test_the_curve_is_drawn_with_its_dataset_and_ap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k)))
    tracks = [make_track(n, 30, 0.1, f"v{n}") for n in range(2)]
    path = tmp_path / "precision_recall.png"
    whole = {"average_precision": 0.61234, "average_precision_interval": [0.5, 0.7]}
    scores = [np.linspace(0, 1, 30, dtype=np.float32)] * 2
    assert _draw_curve(path, tracks, scores, whole, "made_$x$ / val") == [path]
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = figures[0].axes
    assert axes.get_title() == "made_$x$ / val"
    assert axes.get_legend().get_texts()[0].get_text() == "AP 0.6123 (0.500..0.700)"
    assert axes.get_legend().get_title().get_text() == "AP takes the envelope of the curve"


def test_corpora_and_offsets_have_their_intervals() -> None:
    tracks = [replace(make_track(n, 30, 0.1, f"v{n}"), source="ab"[n % 2]) for n in range(6)]
    offsets = {"accuracy": 0.5, "accuracy_interval": [0.25, 0.75], "chance": 0.18, "median_error_ms": 40.0}
    report = report_of(tracks) | {"offset_accuracy": [{"source": "all", "num_clips": 8, **offsets}]}
    page = as_markdown(report, [])
    assert "| all | 50.0 % | 25.0..75.0 % | 18 % | 40 ms | 8 |" in page
    for row in report["sources"]:
        low, high = row["average_precision_interval"]
        assert low <= row["average_precision"] <= high
        assert f"| {row['source']} | {row['average_precision']:.4f} | {low:.3f}..{high:.3f} |" in page
