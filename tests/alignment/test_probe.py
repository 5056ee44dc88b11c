"""Which clips are looked at every epoch, what is said about their heads, and the picture of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from avfusion.alignment.pictures.clip import ClipAlignment, save_figure
from avfusion.alignment.pictures.overview import DPI, overview_figure
from avfusion.alignment.probe import pick_probes, probe_numbers
from avfusion.alignment.reach import EVERYWHERE, KeyReach
from avfusion.tracks import FaceTrack


def track(role: str, speaks: float, frames: int = 50, labelled: bool = True) -> FaceTrack:
    speaking = np.arange(frames) < round(speaks * frames)
    return FaceTrack(
        "v", f"{role}{speaks}", 0.0, speaking, np.zeros((frames, 4), np.float32), "a", role, "", "", None, labelled
    )


def clip(weights: np.ndarray, speaking: np.ndarray, role: str = "solo") -> ClipAlignment:
    frames = len(speaking)
    return ClipAlignment(
        "clip", role, np.full((frames, 8, 8), 90, np.uint8), np.zeros((4 * frames, 5), np.float32), speaking,
        np.linspace(0, 1, frames, dtype=np.float32), weights.astype(np.float32),
    )  # fmt: skip


def one_lag(frames: int, lag: int, null: float) -> np.ndarray:
    """One head that hears one sound only, ``lag`` audio frames after each frame where there is one."""
    weights = np.zeros((1, frames, 4 * frames))
    for t in range(frames):
        if 0 <= 4 * t + lag < 4 * frames:
            weights[0, t, 4 * t + lag] = 1 - null
    return weights


def test_a_talker_then_a_silent_face_then_another_role() -> None:
    tracks = [
        track("a", 1.0), track("a", 0.5), track("b", 0.0), track("c", 0.6), track("d", 0.5, frames=10),
        track("e", 0.5, labelled=False),
    ]  # fmt: skip
    assert pick_probes(tracks) == [1, 2, 3]
    assert pick_probes(tracks) == pick_probes(tracks)


def test_without_roles_three_tracks_are_found() -> None:
    tracks = [track("", 0.0), track("", 0.5), track("", 1.0), track("", 0.4)]
    assert sorted(pick_probes(tracks)) == [0, 1, 3]
    assert pick_probes([track("", 0.5)]) == [0]
    assert pick_probes([]) == []


def test_numbers_of_heads_worked_by_hand() -> None:
    """Frames that speak hear 3 audio frames (30 ms) later with null mass 0.25; the others have null mass 0.75."""
    frames = 20
    speaking = np.arange(frames) < 10
    loud, quiet = one_lag(frames, 3, 0.25), one_lag(frames, -8, 0.75)
    weights = np.where(speaking[None, :, None], loud, quiet)
    numbers = probe_numbers([clip(weights, speaking), clip(weights, speaking)], KeyReach.within(0.5))
    assert numbers == pytest.approx(
        {
            "head1_lag_ms": 30.0,
            "head1_width_ms": 0.0,
            "head1_entropy": 0.0,
            "head1_null_mass": 0.25,
            "head1_null_mass_silent": 0.75,
        },
        abs=1e-4,
    )


def test_what_has_no_frame_is_left_out() -> None:
    numbers = probe_numbers([clip(one_lag(10, 0, 0.5), np.zeros(10, bool))], EVERYWHERE)
    assert numbers == pytest.approx({"head1_null_mass_silent": 0.5})
    assert probe_numbers([], EVERYWHERE) == {}


def test_without_a_null_key_there_is_no_null_mass() -> None:
    clips = [clip(one_lag(10, 0, 0.5), np.arange(10) < 5)]
    names = probe_numbers(clips, KeyReach.within(0.5), null_key=False)
    assert "head1_lag_ms" in names
    assert not any("null" in name for name in names)
    assert any("null" in name for name in probe_numbers(clips, KeyReach.within(0.5)))


def test_the_picture_is_small_and_shows_each_clip_and_head(tmp_path: Path) -> None:
    frames = 30
    speaking = np.arange(frames) < 15
    weights = np.concatenate([one_lag(frames, lag, 0.1) for lag in (0, 10, -10, 20)])
    figure = overview_figure([clip(weights, speaking, role) for role in ("solo", "shifted", "cost $5$")], "epoch 3")
    assert len(figure.axes) == 3 * (1 + 4)
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["solo", "shifted", "cost $5$"]
    save_figure(figure, tmp_path / "a.png", dpi=DPI)
    save_figure(overview_figure([clip(weights, speaking)] * 3, "epoch 3"), tmp_path / "b.png", dpi=DPI)
    assert (tmp_path / "a.png").stat().st_size < 100_000
    from matplotlib.image import imread

    height, width = imread(tmp_path / "a.png").shape[:2]
    assert width <= 700
    assert height <= 500
    image = figure.axes[1].images[0].get_array()
    assert image is not None
    assert np.nanargmax(image[:, 15]) == 50  # head 1 of the first clip: lag 0 is the middle row of 101
    with pytest.raises(ValueError, match="expected clips of one number of heads"):
        overview_figure([clip(weights, speaking), clip(weights[:1], speaking)], "")
