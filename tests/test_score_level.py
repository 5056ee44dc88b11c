"""Scale and offset of scores, against numbers drawn from a known curve, and against hand-worked ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from avfusion.tracks import FaceTrack, ScoreTable, read_labels, write_labels, write_scores
from benchmarks.score_level import fit, logits_of

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_curve_that_labels_were_drawn_from_is_found() -> None:
    rng = np.random.default_rng(0)
    speaking = np.arange(40_000) % 2 == 0
    logits = np.where(speaking, -3.0, -6.0) + rng.normal(0, 1.5, 40_000)  # two equal Gaussians: scale = gap / variance
    scale, offset = fit(logits, speaking)
    assert scale == pytest.approx(3.0 / 1.5**2, rel=0.03)
    assert offset == pytest.approx(4.5 * 3.0 / 1.5**2, rel=0.03)  # even chances half way


def test_the_rarer_kind_weighs_as_much() -> None:
    """Two places of the logit, each with both kinds; of 2 speaking rows 1 in each, so 3 in 4 others at -1 decide."""
    logits = np.array([-1.0, 1.0, -1.0, -1.0, -1.0, 1.0])
    speaking = np.array([True, True, False, False, False, False])
    scale, offset = fit(logits, speaking)
    # By class: at -1 half of the speaking against 3/4 of the others, at 1 half against 1/4.
    assert -scale + offset == pytest.approx(np.log(0.5 / 0.75), abs=1e-6)
    assert scale + offset == pytest.approx(np.log(0.5 / 0.25), abs=1e-6)


def test_kinds_that_do_not_overlap_end_at_finite_numbers() -> None:
    scale, offset = fit(np.array([-9.0, -8.0, -2.0, -1.0]), np.array([False, False, True, True]))
    assert np.isfinite([scale, offset]).all()
    assert scale * -8 + offset < 0 < scale * -2 + offset


def test_scores_of_0_and_1_have_a_logit() -> None:
    assert np.isfinite(logits_of(np.array([0.0, 1.0]))).all()
    np.testing.assert_allclose(logits_of(np.array([0.5, 0.1])), [0.0, np.log(1 / 9)], atol=1e-12)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Labels of 40 frames, the second half speaking; scores of 0.001 to 0.05 that mostly know."""
    speaking = np.arange(40) >= 20
    boxes = np.tile(np.array([0.1, 0.1, 0.5, 0.5], dtype=np.float32), (40, 1))
    write_labels(tmp_path / "labels.csv", [FaceTrack("film", "film:0", 0.0, speaking, boxes, "film")])
    table = read_labels(tmp_path / "labels.csv")
    score = np.where(speaking, 0.05, 0.001)
    score[[5, 30]] = 0.05, 0.001
    names = {name: getattr(table, name) for name in ("video_id", "entity_id", "timestamp_ms", "boxes_xyxy", "line")}
    write_scores(tmp_path / "scores.csv", ScoreTable(**names, score=score))
    return tmp_path / "scores.csv", tmp_path / "labels.csv"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "benchmarks" / "score_level.py", *arguments]
    return subprocess.run([str(one) for one in command], capture_output=True, text=True)


def test_the_command_tells_what_it_does_to_the_scores(files: tuple[Path, Path]) -> None:
    found = run(*files)
    assert found.returncode == 0, found.stderr
    assert "as they are: 0.00 of the speaking, 0.00 of the other frames score 0.5 or more" in found.stdout
    assert "moved: 0.95 of the speaking, 0.05 of the other frames score 0.5 or more" in found.stdout


def test_labels_of_one_kind_are_refused_in_one_line(files: tuple[Path, Path]) -> None:
    scores, labels = files
    text = labels.read_text().replace("NOT_SPEAKING", "SPEAKING_AUDIBLE")
    labels.write_text(text)
    found = run(scores, labels)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert "40 of 40 rows speak; expected some and not all" in found.stderr
