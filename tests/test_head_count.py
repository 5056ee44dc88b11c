"""The experiment on heads: its arms, its command line, and tables that hold nothing but what the JSON files hold."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avfusion.config import load_config, to_flat_dict
from avfusion.errors import AvfusionError, UsageError, run_command
from avfusion.models import build_model
from benchmarks import head_count, head_count_table
from benchmarks.head_count import ARMS, DEFAULT_CONFIG
from benchmarks.write_up import replace_between

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "head_count"


def test_arms_differ_from_the_reference_in_what_they_are_named_for_and_hardly_in_size() -> None:
    settings = {arm: to_flat_dict(load_config(DEFAULT_CONFIG, given)) for arm, given in ARMS.items()}
    reference = settings["heads_4"]
    changed = {arm: {key for key in found if found[key] != reference[key]} for arm, found in settings.items()}
    assert changed.pop("heads_4") == set()
    assert {arm: keys for arm, keys in changed.items() if len(keys) != 1} == {}
    sizes = {
        arm: sum(p.numel() for p in build_model(load_config(DEFAULT_CONFIG, given).model, 64).parameters())
        for arm, given in ARMS.items()
        if arm.startswith("heads_")
    }
    assert max(sizes.values()) - min(sizes.values()) <= 40  # a scale and a bias for each head
    assert max(sizes.values()) > 500_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms=heads_3"], "'heads_3' is none of heads_1"),
        (["--train-only", "--measure-only"], "leave nothing to do"),
        (["--seeds=a"], "'a' is no seed"),
        (["--train.epochs=3"], "--train.epochs is chosen for each training"),
        (["--train.epoks=3"], "no such key. Did you mean 'epochs'?"),
        ([], "no prepared dataset at nowhere"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(arguments, message, tmp_path, monkeypatch, capsys) -> None:
    command = ["head_count.py", str(tmp_path / "out"), "--data=nowhere", *arguments]
    monkeypatch.setattr(sys, "argv", command)
    assert run_command(head_count.main) == 2
    said = capsys.readouterr().err
    assert message in said.splitlines()[-1]
    assert said.count("error") == 1
    assert not (tmp_path / "out").exists()


def training(arm: str, seed: int, ap: float, **attention: Any) -> dict[str, Any]:
    """A file as head_count.py writes it; the draws of its AP are ``ap`` and noise that all arms share."""
    noise = np.random.default_rng(0).normal(0, 0.02, 50)
    part = {"auroc": 0.5, "prevalence": 0.3, "frames": 100, "groups": 9}
    parts = {name: {"ap": ap, "drawn_ap": list(ap + noise), **part} for name in ("overlap", "elsewhere", "all")}
    found = {"arm": arm, "seed": seed, "dataset": {"name": "d"}, "epochs": {"encoders": 6, "arm": 3}, "steps": 7}
    found |= {"common_settings": [], "minutes": 2.0, "commit": "abc", "parameters": 9, "tracks": 5, "parts": parts}
    found |= {"machine": "m", "splits": "test"}
    if attention:
        found["attention"] = {"none": -0.4, "zero": [-0.1, -0.2], "divergence_nats": [0.25], **attention}
    return found


def kept(folder: Path, *trainings: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for one in trainings:
        (folder / f"{one['arm']}-{one['seed']}.json").write_text(json.dumps(one))
    return folder


def test_differences_are_paired_by_seed_and_by_draw(tmp_path: Path) -> None:
    folder = kept(
        tmp_path / "d",
        *(training("heads_1", seed, 0.60 + 0.01 * seed) for seed in range(3)),
        *(training("heads_4", seed, 0.64 + 0.01 * seed) for seed in range(3)),
        *(training("heads_8", seed, 0.60 + 0.03 * (seed - 1)) for seed in range(3)),
    )
    text = head_count_table.tables(head_count_table.read_trainings(folder))
    # Seeds differ by the same in both arms, and so do the draws: the difference is exact.
    assert "`heads_4` against `heads_1`, two voices: +0.040 ± 0.000 (+0.040..+0.040): **better**" in text
    # Mean .600 - .610 over three seeds; the differences -.03, -.01, .01 spread by .02: 4.303 * .02 / sqrt(3) = .050.
    assert "`heads_8` against `heads_1`, two voices: -0.010 ± 0.050 (-0.010..-0.010): **not told apart**" in text
    # .61 ± 4.303 * .01 / sqrt(3)
    assert "| heads_1 | 3 | 9 | 0.610 ± 0.025 |" in text


def test_what_heads_carry_is_less_what_the_picture_tells(tmp_path: Path) -> None:
    probes = {
        "r2_own": [0.5, 0.1], "foreign_own": [0.2, -0.3], "r2_other": [0.1, 0.3], "foreign_other": [0.0, 0.1],
        "layer": {"r2_own": 0.6, "foreign_own": -0.1, "r2_other": 0.4, "foreign_other": 0.1},
        "lag_ms": [20.0, 65.0],
    }  # fmt: skip
    folder = kept(tmp_path / "d", training("heads_2", 0, 0.6, **probes))
    row = head_count_table.tables(head_count_table.read_trainings(folder)).splitlines()[-1]
    # own .5 - .2 and .1 - 0; other .1 - 0 and .3 - .1; layer .6 - 0 and .4 - .1; own - other .2 and -.1: .3 apart
    assert row == "| heads_2 | 0.30 | 0.20 | 0.60 | 0.30 | 0.30 | 0.25 | 45 | -0.200 | -0.400 |"


def test_trainings_of_unlike_length_are_not_tabled_together(tmp_path: Path) -> None:
    folder = kept(tmp_path / "d", training("heads_1", 0, 0.6), {**training("heads_4", 0, 0.6), "steps": 8})
    with pytest.raises(AvfusionError, match="its steps differs from that of the other trainings"):
        head_count_table.read_trainings(folder)
    with pytest.raises(UsageError, match="no JSON files there"):
        head_count_table.read_trainings(tmp_path / "empty")


@pytest.mark.parametrize("folder", sorted(KEPT.glob("*/")), ids=lambda folder: folder.name)
def test_the_write_up_holds_exactly_what_the_files_say(folder: Path) -> None:
    path = ROOT / "docs" / "experiments.md"
    content = path.read_text(encoding="utf-8")
    text = head_count_table.tables(head_count_table.read_trainings(folder))
    assert replace_between(content, "head_count", folder.name, text, path) == content
