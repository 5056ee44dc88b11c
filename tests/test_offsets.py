"""Which tracks are in sync, and offset accuracy from similarities made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from avfusion import offsets
from avfusion.config import Config
from avfusion.offsets import in_sync, offset_rows
from avfusion.scoring import OffsetTrial
from tests.robustness.planted import Planted, a_track


def test_in_sync_goes_by_the_role_or_else_by_speaking_mostly() -> None:
    half, most, never = (np.arange(10) < count for count in (5, 6, 0))
    assert [in_sync(a_track("a", most, role)) for role in ("", "solo", "own_sound", "shifted")] == [
        True,
        True,
        True,
        False,
    ]
    assert not in_sync(a_track("a", half))
    assert in_sync(a_track("a", half, "solo"))
    assert not in_sync(a_track("a", never, "solo"))


def matrix(offset: int) -> np.ndarray:
    """Highest where the sound is ``offset`` frames later."""
    frames = np.arange(50)
    return (-np.abs(frames[None] - frames[:, None] - offset)).astype(np.float32)


def test_rows_by_corpus_and_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(8)
    planted.tracks = [
        replace(track, source="" if index < 3 else "b", group="g" if index < 2 else "")
        for index, track in enumerate(planted.tracks)
    ]
    asked: list[int] = []

    def trials(model: Any, dataset: Any, tracks: Sequence[int], *others: Any, **more: Any) -> list[OffsetTrial]:
        asked.extend(tracks)
        errors = dict(zip(tracks, (0, 1, 2, -1, 5), strict=True))
        return [OffsetTrial(track, 3, matrix(3 + error)) for track, error in errors.items()]

    monkeypatch.setattr(offsets, "offset_trials", trials)
    model: Any = None
    rows = offset_rows(model, planted, Config(), torch.device("cpu"))
    assert asked == [0, 2, 4, 5, 6]  # those that speak, the first of the group
    assert [(row["source"], row["accuracy"], row["num_clips"]) for row in rows] == [
        ("unknown", 1.0, 2),
        ("b", pytest.approx(1 / 3), 3),
        ("all", pytest.approx(3 / 5), 5),
    ]
    assert [row["median_error_ms"] for row in rows] == [20.0, 80.0, 40.0]
    assert rows[0]["accuracy_interval"] == (1.0, 1.0)
    low, high = rows[2]["accuracy_interval"]
    assert 0 <= low < 0.6 < high <= 1
    assert rows[0]["chance"] == pytest.approx(3 / 17)


def test_no_clip_long_enough_gives_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "offset_trials", lambda *a, **k: [])
    model: Any = None
    assert offset_rows(model, Planted(4), Config(), torch.device("cpu")) == []
