"""The truth of a scene is the same from memory and from a prepared dataset, to the rounding of its file."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from avfusion.data.prepared import PreparedDataset
from avfusion.data.scene_truth import face_of, read_truth, truth_from_json
from avfusion.data.synthetic import SyntheticDataset
from avfusion.errors import AvfusionError


def assert_same(found: object, expected: object) -> None:
    for field in fields(expected):  # type: ignore[arg-type]
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(other, np.ndarray):
            assert one.shape == other.shape, field.name
            assert one.dtype == other.dtype, field.name
            np.testing.assert_allclose(one, other, atol=6e-6, err_msg=field.name)
        elif isinstance(other, float):
            assert one == pytest.approx(other, abs=6e-6, nan_ok=True), field.name
        elif field.name not in ("voices", "faces"):
            assert one == other, field.name


def test_truth_survives_its_file() -> None:
    """Over all roles: scenes without voices, without bursts, without lags."""
    dataset = SyntheticDataset("truth", 26, scene_s=1.2)
    for track in range(len(dataset.tracks)):
        truth = dataset.truth(track)
        back = truth_from_json(json.loads(json.dumps(truth.to_json())))
        assert_same(back, truth)
        for kind in ("voices", "faces"):
            assert len(getattr(back, kind)) == len(getattr(truth, kind))
            for one, other in zip(getattr(back, kind), getattr(truth, kind), strict=True):
                assert_same(one, other)


def test_a_prepared_dataset_gives_the_truth_it_was_made_with(small_dataset, tmp_path: Path) -> None:
    prepared = PreparedDataset(small_dataset(tmp_path / "d"), "val")
    assert read_truth(prepared, 0) is None
    synthetic = SyntheticDataset("val", 3, scene_s=1.2)
    truth = synthetic.truth(0)
    assert read_truth(synthetic, 0) is not None
    path = tmp_path / "d" / "truth" / "val" / f"{prepared.tracks[2].video_id}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(truth.to_json()))
    found = read_truth(prepared, 2)
    assert found is not None
    assert_same(found, truth)
    assert face_of(found, truth.faces[0].entity_id) is found.faces[0]
    assert face_of(found, "nobody") is None
    assert read_truth(prepared, 0) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"video_id": "x"}'])
def test_a_damaged_file_is_named(small_dataset, tmp_path: Path, content: str) -> None:
    prepared = PreparedDataset(small_dataset(tmp_path / "d"), "val")
    path = tmp_path / "d" / "truth" / "val" / "val0.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(AvfusionError, match=r"val0.json: expected the truth of a scene"):
        read_truth(prepared, 0)
