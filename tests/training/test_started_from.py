"""Training from the encoders of another run: checkpoints keep which file they were, and a resumed run still knows."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import pytest

from avfusion.checkpoint import read_checkpoint, save_checkpoint
from avfusion.distributed import ALONE
from avfusion.errors import AvfusionError
from avfusion.models import build_model
from avfusion.training.report import report_run
from tests.training.tiny import ROOT, tiny_run, trainer_of


@pytest.fixture
def encoders(tmp_path: Path) -> Path:
    config = tiny_run("--data.crop_size=28")
    path = tmp_path / "pre" / "best.pt"
    save_checkpoint(path, build_model(config.model, config.data.num_mels), config, {"progress": {}})
    return path


def test_checkpoints_and_reports_keep_the_hash_of_what_was_read(encoders: Path, tmp_path: Path) -> None:
    config = tiny_run(f"--train.encoders={encoders}", epochs=1)
    expected = {"path": str(encoders), "sha256": hashlib.sha256(encoders.read_bytes()).hexdigest()}
    trainer = trainer_of(config, tmp_path / "run")
    best = trainer.fit()
    encoders.write_bytes(b"another by now")
    assert read_checkpoint(best)["encoders"] == expected
    config.train.epochs = 2
    resumed = trainer_of(config, tmp_path / "run", resume=True)
    best = resumed.fit()
    assert read_checkpoint(best)["encoders"] == read_checkpoint(best.with_name("last.pt"))["encoders"] == expected
    out = tmp_path / "out"
    report_run(best, config, resumed.val_examples, "val", out, None, ["train.py", "a b"])
    report = json.loads((out / "report.json").read_text())
    assert report["encoders"] == expected
    assert report["command"] == "python train.py 'a b'"
    assert report["data"]["synthetic"]["seed"] == config.data.synthetic.seed
    page = (out / "report.md").read_text()
    assert f"sha256 `{expected['sha256']}`" in page
    assert "synthetic talkers: train_scenes 10, val_scenes 10" in page


def test_what_the_encoders_saw_otherwise_is_noted_before_training(
    encoders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("train_command", ROOT / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = tiny_run(f"--train.encoders={encoders}")
    module.open_data(config, None, ALONE)
    assert capsys.readouterr().err.splitlines() == [
        f"note: {encoders}: its encoders were trained with data.crop_size 28, here it is 24"
    ]
    config.data.num_mels = 24
    with pytest.raises(AvfusionError, match=r"its encoders hear 20 mel bands, data\.num_mels is 24; give"):
        module.open_data(config, None, ALONE)
