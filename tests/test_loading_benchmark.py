"""Facts about the loading benchmark: its measure of quality, and that it compares like with like."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from avfusion.errors import run_command
from benchmarks import loading, picture_quality


def test_ssim_of_equal_pictures_is_one_and_of_flat_ones_is_the_luminance_term() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (3, 40, 40), dtype=np.uint8)
    np.testing.assert_allclose(picture_quality.ssim(pictures, pictures), 1, atol=1e-5)
    flat = [np.full((1, 32, 32), level, np.uint8) for level in (100, 150)]
    expected = (2 * 100 * 150 + 2.55**2) / (100**2 + 150**2 + 2.55**2)  # no contrast: the other factor is 1
    np.testing.assert_allclose(picture_quality.ssim(*flat), expected, rtol=1e-4)


def test_ssim_falls_with_noise() -> None:
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:48, :48]
    picture = (100 + 40 * np.sin(rows / 5) * np.cos(columns / 7))[None]
    values = []
    for deviation in (2, 8, 20):
        noisy = picture + deviation * rng.standard_normal(picture.shape)
        values.append(float(picture_quality.ssim(picture.astype(np.uint8), noisy.clip(0, 255).astype(np.uint8))[0]))
    assert 1 > values[0] > values[1] > values[2] > 0


def test_all_contestants_hold_the_same_tracks_at_the_same_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "ROUNDS", 1)
    monkeypatch.setattr(sys, "argv", ["loading.py", str(tmp_path / "out"), "--tracks=2", "--frames=60"])
    assert run_command(loading.main) == 0
    table = capsys.readouterr().out
    (line,) = (line for line in table.splitlines() if line.startswith("mean SSIM"))
    video, jpeg, field, small = (float(value) for value in re.findall(r"\d\.\d+", line))
    assert video > 0.97
    assert abs(jpeg - video) < 0.01
    assert abs(small - video) < 0.01
    assert field > 0.97
    assert "2 tracks, 120 frames, faces of 168 to 168 pixels" in table
    assert len(list((tmp_path / "out").rglob("*.jpg"))) == 3 * 120
    assert run_command(loading.main) == 2  # the folder is not empty any more
    assert "is not empty; give another folder" in capsys.readouterr().err
