"""The model card's tables: from the weights and the files of figures of these weights only; the rest is left alone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.config import Config
from avfusion.errors import run_command
from avfusion.files import sha256_of
from avfusion.models import build_model
from avfusion.released.export import write
from benchmarks import model_card, own_voice, side_by_side
from tests.made_clips import Rule, a_clip

CARD = Path(__file__).resolve().parents[1] / "docs" / "model_card.md"
FACTS = Path(__file__).resolve().parents[1] / "configs" / "released.json"
CLIPS = [a_clip(f"c{number}", f"made/t{number}") for number in range(3)]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Config()
    config.model.embed_dim, config.model.visual.channels, config.model.audio.channels = 16, [4, 8], [4]
    config.data.crop_size, config.data.num_mels = 24, 20
    facts = json.loads(FACTS.read_text()) | {
        "commit": "abc123", "parameters": 1234567, "multiply_adds_per_face_frame": 11.46e6, "averaged_weights": True,
        "epoch": 7, "seed": 0, "checkpoint_sha256": "c" * 64,
        "validation": {
            "dataset": {"name": "d"}, "split": "val",
            "average_precision": 0.5, "average_precision_interval": [0.4, 0.6],
        },
    }  # fmt: skip
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    content = {"progress": {"epoch": 7, "step": 9}}
    torch.manual_seed(0)
    write(path, build_model(config.model, 20).eval(), config, content, facts)
    return path


@pytest.fixture
def figures(tmp_path: Path, weights: Path) -> Path:
    """A folder of figures: two of the weights, two of the checkpoint they were written from."""
    folder = tmp_path / "figures"
    folder.mkdir()
    ours = {"checkpoint": {"sha256": sha256_of(weights)}, "command": "python measure.py"}
    theirs = ours | {"checkpoint": {"sha256": "c" * 64}, "dataset": "clips", "split": "test"}
    source = {
        "source": "grid",
        "average_precision": 0.9,
        "average_precision_interval": None,
        "chance": 0.3,
        "auroc": None,
    }
    whole = {"average_precision": 0.8, "average_precision_interval": [0.7, 0.9], "num_positive": 1, "num_rows": 4}
    moved = {
        "condition": "shifted sound, +80 ms", "false_accept_rate": None, "false_accept_rate_interval": None,
        "own_sound_rate": None, "num_tracks": 0,
    }  # fmt: skip
    contents: dict[str, dict[str, Any]] = {
        "own_voice": ours | own_voice.figures(Rule(), CLIPS, set(), 0),
        "own_voice_each": ours | {"lags_taken_out": {"table": None}} | own_voice.figures(Rule(), CLIPS, set(), 0),
        "own_voice_lags": ours | {"lags_taken_out": {"table": "e" * 64}} | own_voice.figures(Rule(), CLIPS, set(), 0),
        "side_by_side": ours | {"lags_taken_out": {"table": "e" * 64}} | side_by_side.figures(Rule(), CLIPS, 5, 0),
        "report": theirs | {"all": whole, "sources": [source]},
        "robustness": theirs | {"desync": {"rows": [moved, moved | {"condition": "x", "false_accept_rate": 0.125}]}},
    }
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *given: str) -> int:
    monkeypatch.setattr(sys, "argv", ["model_card.py", *given])
    return run_command(model_card.main)


def test_all_tables_of_the_card_are_filled_and_nothing_else_changes(
    figures: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = tmp_path / "card.md"
    card.write_text(CARD.read_text(encoding="utf-8"), encoding="utf-8")
    assert run(monkeypatch, str(figures), f"--weights={weights}", f"--into={card}") == 0
    text = card.read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    for expected in (
        "1,234,567 parameters, 11.5 M multiply-adds a face-frame",
        "commit `abc123`, seed 0, epoch 7",
        "| AP in validation | .500 (.400-.600) (d / val) |",
        "| LibriSpeech | CC BY 4.0 |",
        "| all: 3 talkers, 3 clips |",
        f"| {side_by_side.BOTH} | 3 |",
        "| all | .800 (.700-.900) | .250 | - |",
        "| grid | .900 | .300 | - |",
        "| shifted sound, +80 ms | - | - | 0 |",
        "| x | .125 | - | 0 |",
        "`python measure.py`",
    ):
        assert expected in text, expected
    assert outside(text) == outside(CARD.read_text(encoding="utf-8"))
    assert run(monkeypatch, str(figures), f"--weights={weights}", f"--into={card}") == 0
    assert card.read_text(encoding="utf-8") == text


def outside(text: str) -> str:
    """The card without what stands between its markers."""
    return re.sub(r"(<!-- card: \w+ -->\n).*?(<!-- card: end -->)", r"\1\2", text, flags=re.DOTALL)


def test_what_is_not_measured_is_left_and_named(
    figures: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card = tmp_path / "card.md"
    card.write_text(CARD.read_text(encoding="utf-8"), encoding="utf-8")
    (figures / "own_voice.json").unlink()
    assert run(monkeypatch, str(figures), f"--weights={weights}", f"--into={card}") == 0
    assert "own_voice: left as it is" in capsys.readouterr().err
    assert card.read_text(encoding="utf-8").count("Not measured yet") == CARD.read_text(encoding="utf-8").count(
        "`python benchmarks/own_voice.py CLIPS --out="
    )


def test_figures_of_other_weights_are_refused(
    figures: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = figures / "report.json"
    path.write_text(path.read_text().replace("c" * 64, "d" * 64))
    assert run(monkeypatch, str(figures), f"--weights={weights}") == 1
    assert "report.json: figures of other weights than" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["own_voice_each", "own_voice_lags", "side_by_side"])
def test_figures_of_clips_as_they_are_do_not_stand_where_lags_were_taken_out(
    figures: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = figures / f"{name}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lags_taken_out": None}))
    assert run(monkeypatch, str(figures), f"--weights={weights}") == 1
    assert f"{name}.json: no lags were taken out; see --help" in capsys.readouterr().err


def test_other_files_and_damage_are_one_line(
    figures: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(tmp_path / "none"), f"--weights={weights}") == 2
    (figures / "robustness.json").write_text(json.dumps({"checkpoint": {"sha256": "c" * 64}, "command": "x"}))
    assert run(monkeypatch, str(figures), f"--weights={weights}") == 1
    (figures / "robustness.json").write_text("{")
    assert run(monkeypatch, str(figures), f"--weights={weights}") == 1
    plain = tmp_path / "card.md"
    plain.write_text("no markers\n")
    (figures / "robustness.json").unlink()
    assert run(monkeypatch, str(figures), f"--weights={weights}", f"--into={plain}") == 2
    said = capsys.readouterr().err
    assert "not the figures that desync takes (KeyError('dataset'))" in said or "KeyError('desync')" in said
    assert "expected the lines <!-- card: facts --> and <!-- card: end -->" in said
    assert plain.read_text() == "no markers\n"


def test_commands_are_shown_without_the_folders_of_a_machine() -> None:
    told = "python benchmarks/own_voice.py /data/clips --out=/home/me/figures/own_voice.json --pairs=3 a/b"
    assert model_card.without_folders(told) == (
        "python benchmarks/own_voice.py clips --out=own_voice.json --pairs=3 a/b"
    )
