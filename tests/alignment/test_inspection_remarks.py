"""What was not measured is said with its reason, and what to beware of stands beside the figures."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from avfusion.alignment.inspect import inspect_run
from avfusion.alignment.inspection_files import write_inspection
from avfusion.alignment.pictures.clip import BYPASS_WARNING
from avfusion.data.examples import Examples
from avfusion.models import build_model
from avfusion.training.report_text import _heads_note
from tests.alignment.planted_attention import Clicks
from tests.training.tiny import tiny_run

SIZE = ["--model.fusion.layers=2", "--model.fusion.heads=2", "--model.fusion.window_s=0.2"]


@pytest.mark.parametrize("overrides", [["--model.fusion.audio_bypass=true", "--model.fusion.null_key=false"]])
def test_what_was_not_measured_and_what_to_beware_of_is_said(tmp_path: Path, overrides: list[str]) -> None:
    """Clips too short for the shifts, of three groups, whose voices nobody knows exactly."""
    config = tiny_run(*SIZE, *overrides)
    model = build_model(config.model, config.data.num_mels)
    dataset = Clicks([0.2, 0.3, 0.4], 18)
    config.data.crop_size = 16
    found = inspect_run(model, Examples(dataset, config.data), config, torch.device("cpu"), resamples=20)
    said = " | ".join(found.notes)
    assert "trained: sound moved: no speaking frame is 0.4 s away from both ends" in said
    assert "true times: of no voice of these tracks is it known exactly" in said
    assert "overlapping voices: fewer than 3 groups" in said
    assert "intervals: 3 groups of tracks, claims need 10; take more tracks" in said
    assert found.warnings == [BYPASS_WARNING]
    write_inspection(found, tmp_path, "clicks")
    text = (tmp_path / "heads.md").read_text()
    for line in [*(f"- not measured: {note}" for note in found.notes), f"- ! {BYPASS_WARNING}"]:
        assert line in text
    assert "- trained, slope: 0 frames of 0 tracks, 0 groups" in text
    for row in csv.DictReader((tmp_path / "heads.csv").open(encoding="utf-8")):
        assert row["null_speaking"] == row["null_silent"] == row["null_auroc"] == ""
        assert {cell for name, cell in row.items() if name.endswith(("_low", "_high"))} == {""}
    assert _heads_note(found.summary()).count("not measured:") == len(found.notes)
    assert f"- ! {BYPASS_WARNING}" in _heads_note(found.summary())
