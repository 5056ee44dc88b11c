"""Long scenes in which somebody is hidden and heard: what is hidden tells nothing, and both kinds are alike."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from avfusion.data.synthetic import SyntheticDataset
from avfusion.data.synthetic.camera import TRAVEL_S
from avfusion.data.synthetic.face import HeadMovement
from avfusion.data.synthetic.mouth import keep_still
from avfusion.data.synthetic.picture import render_face
from avfusion.data.synthetic.returning import KINDS, plan_stretches
from avfusion.errors import UsageError


@pytest.fixture(scope="module")
def dataset() -> SyntheticDataset:
    return SyntheticDataset("train", 8, scene_s=60, crop_size=24, roles=["returning"])


def test_stretches_fill_the_scene_and_come_in_turn() -> None:
    rng = np.random.default_rng(0)
    counts = dict.fromkeys(KINDS, 0)
    for _ in range(300):
        scene_s = rng.uniform(30, 90)
        stretches = plan_stretches(rng, scene_s)
        assert stretches[0].start_s == 0
        assert stretches[-1].end_s == scene_s
        assert all(a.end_s == b.start_s for a, b in itertools.pairwise(stretches))
        assert min(stretch.end_s - stretch.start_s for stretch in stretches) > 3.9
        assert (stretches[0].kind, stretches[-1].kind) == ("open_own", "open_own")
        for stretch in stretches[1:-1]:
            counts[stretch.kind] += 1
    shares = np.array(list(counts.values())) / sum(counts.values())
    assert np.abs(shares - 0.25).max() < 0.03
    with pytest.raises(UsageError, match="returning in scenes of 20 s, expected 30 s or more"):
        plan_stretches(rng, 20.0)


def test_behind_the_board_either_is_heard_and_nobody_at_its_edges(dataset: SyntheticDataset) -> None:
    own = other = 0
    for number in range(8):
        truth, track = dataset.truth(2 * number), dataset.tracks[2 * number]
        face, listener = truth.faces
        assert face.voice == 0
        assert listener.voice is None
        for start, end in face.occluded_s:
            inside = [((a >= start) & (b <= end)).sum() for a, b in (v.active_s.T for v in truth.voices)]
            assert min(inside) == 0 < max(inside)  # one of the two is heard in a stretch, never both
            own, other = own + (inside[0] > 0), other + (inside[1] > 0)
            hidden = track.speaking[int(start * 25) : int(end * 25)]
            assert hidden.any() == (inside[0] > 0)
            for voice in truth.voices:
                begin, until = voice.active_s.T
                crossing = (begin < end) & (until > start) & ((begin < start + TRAVEL_S) | (until > end - TRAVEL_S))
                assert not crossing.any()
    assert own > 3
    assert other > 3


def test_behind_the_board_the_picture_does_not_know_what_the_mouth_does(dataset: SyntheticDataset) -> None:
    shown = dataset.scene(0).faces[0]
    camera = replace(shown.camera, grain=0.0)
    times_s = np.arange(dataset.num_frames) / 25
    talking, silent = (
        render_face(np.random.default_rng(0), shown.face, shown.head, mouth, camera, 24)
        for mouth in (shown.mouth, keep_still(times_s))
    )
    assert isinstance(shown.head, HeadMovement)
    behind = np.zeros(len(times_s), dtype=bool)
    for board in camera.covers:
        behind |= (times_s >= board.start_s + TRAVEL_S) & (times_s <= board.end_s - TRAVEL_S)
    assert behind.any()
    np.testing.assert_array_equal(talking[behind], silent[behind])
    speaking = dataset.tracks[0].speaking & ~behind
    assert (talking[speaking] != silent[speaking]).any(axis=(1, 2)).mean() > 0.9
