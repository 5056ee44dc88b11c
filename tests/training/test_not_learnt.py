"""Attention between faces that no training scene can teach is said at the start of a training, and in the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from avfusion.tracks import FaceTrack
from avfusion.training.not_learnt import between_faces_not_learnt
from avfusion.training.report import report_run
from tests.training.tiny import tiny_run, trainer_of

ALONE = (
    "model.speaker.layers=1 with data.faces=1: scenes of one face, so the attention between faces learns nothing, but"
    " scoring uses it as it began; add --data.faces=3, or --model.speaker.layers=0"
)
BETWEEN = "--model.speaker.layers=1"


def track(number: int, start_s: float, video: str = "v") -> FaceTrack:
    boxes = np.zeros((50, 4), np.float32)
    return FaceTrack(video, f"{video}:{number}", start_s, np.zeros(50, bool), boxes, video, "own")


def test_it_is_told_where_scenes_hold_one_face() -> None:
    assert between_faces_not_learnt(tiny_run(BETWEEN, "--data.faces=1")) == ALONE
    assert between_faces_not_learnt(tiny_run("--model.speaker.layers=0", "--data.faces=1")) is None
    assert between_faces_not_learnt(tiny_run(BETWEEN, "--data.faces=2")) is None


def test_it_is_told_where_no_two_faces_share_a_frame() -> None:
    """Tracks of 2 s: the second begins as the first ends, or one frame before that; the third is another video."""
    config = tiny_run(BETWEEN, "--data.faces=2")
    apart = [track(1, 0.0), track(2, 2.0), track(3, 0.0, "w")]
    assert between_faces_not_learnt(config, apart) == (
        "model.speaker.layers=1: no two of the 3 training tracks are seen together, so the attention between faces"
        " learns nothing, but scoring uses it as it began; train on scenes of several faces, or add"
        " --model.speaker.layers=0"
    )
    assert between_faces_not_learnt(config, [track(1, 0.0), track(2, 1.96)]) is None


def test_training_and_report_say_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_run(BETWEEN, "--data.faces=1", epochs=1)
    trainer = trainer_of(config, tmp_path / "run")
    before = {key: value.clone() for key, value in trainer.model.speaker.state_dict().items()}
    best = trainer.fit()
    assert capsys.readouterr().err.count(f"warning: {ALONE}\n") == 1
    # The line is true: decay aside nothing moves, and a key that has no gradient has no decay either.
    after = trainer.model.speaker.state_dict()
    assert all(np.array_equal(value.numpy(), after[key].numpy()) for key, value in before.items())
    report_run(best, config, trainer.val_examples, "val", tmp_path / "run", None, command=["train.py"])
    assert capsys.readouterr().out.count(ALONE) == 1
    assert (tmp_path / "run" / "report.md").read_text().count(f"- {ALONE}\n") == 1
    assert json.loads((tmp_path / "run" / "report.json").read_text())["model"]["not_learnt"] == ALONE
