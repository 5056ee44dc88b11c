"""Models side by side: equal data, planned face-frames, shares of a dataset, tables of what the files hold alone."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avfusion.config import load_config, to_flat_dict
from avfusion.data.open import open_dataset
from avfusion.data.prepared_tables import TrackRow
from avfusion.errors import AvfusionError, run_command
from benchmarks import models, models_table
from benchmarks.dataset_share import kept_scenes, speaking_tracks, write_share
from benchmarks.models import COMMON, MODELS, Plan, planned, read_frames
from benchmarks.write_up import replace_between

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "models"


def test_all_models_see_the_same_data_in_steps_of_the_same_size() -> None:
    flat = {}
    for name, model in MODELS.items():
        settings = [*COMMON, *model.settings]
        flat[name] = to_flat_dict(load_config(ROOT / "configs" / f"{model.config}.yaml", settings))
    same = [
        key
        for key in flat["small"]
        if key.startswith("data.") and key not in ("data.root", "data.faces", "data.num_mels")
    ]
    same += ["train.precision", "train.ema", "train.patience", "train.accumulate", "data.workers"]
    differing = {(name, key) for name, config in flat.items() for key in same if config[key] != flat["small"][key]} - {
        ("base", "data.workers")
    }
    assert differing == set()
    losses = [key for key in flat["small"] if key.startswith("train.loss.")]
    for name in ("talknet_style_our_losses", "light_style_our_losses", "lr_style_our_losses", "base"):
        assert [flat[name][key] for key in losses] == [flat["small"][key] for key in losses], name
    assert MODELS["small_short"].frames == MODELS["light_style"].frames == MODELS["lr_style"].frames


def test_frames_are_planned_as_a_share_of_one_pass_or_as_whole_passes() -> None:
    assert planned(50_000, 200_000) == Plan(1, 0.25, 50_000)
    assert planned(500_000, 200_000) == Plan(2, 1.0, 400_000)  # 2.5 passes round to the even 2, and no share is above 1
    assert planned(580_000, 200_000) == Plan(3, 0.967, 580_200)
    assert planned(1, 200_000).share == 0.001
    assert read_frames("small=7,base=9")["small"] == 7
    assert read_frames("")["base"] == MODELS["base"].frames


def test_a_pass_counts_clips_and_the_contrastive_epochs_only_who_speaks(small_dataset: Any, tmp_path: Path) -> None:
    root = small_dataset(tmp_path / "d", {"train": 8, "val": 4}, frames=90)  # clips of 60 frames, all of them speak
    assert models.plan_training(root, "light_style", 480) == Plan(1, 1.0, 480)
    assert models.plan_training(root, "small", 480) == Plan(1, 0.5, 480)


def test_scenes_are_kept_whole_and_of_every_role_alike() -> None:
    def rows(video: str, role: str, faces: int = 1) -> list[TrackRow]:
        return [TrackRow("train", video, f"{video}:{n}", 0.0, 30, "c", "a", role) for n in range(faces)]

    all_rows = [row for n in range(8) for row in rows(f"s{n}", "solo")]
    all_rows += [row for n in range(4) for row in rows(f"o{n}", "overlap", 2)] + rows("x", "rare")
    assert kept_scenes(all_rows, 0.5) == {"s0", "s2", "s4", "s6", "o0", "o2", "x"}
    assert kept_scenes(all_rows, 1.0) == {row.video_id for row in all_rows}
    assert kept_scenes(all_rows, 0.001) == {"s0", "o0", "x"}


def test_a_share_is_a_dataset_and_stays_as_it_was_written(small_dataset: Any, tmp_path: Path) -> None:
    root = small_dataset(tmp_path / "d", {"train": 8, "val": 4, "test": 2})
    out = write_share(root, tmp_path / "share", {"train": 0.5, "val": 0.25})
    config = load_config(None, ["--data.format=prepared", f"--data.root={out}"])
    whole = load_config(None, ["--data.format=prepared", f"--data.root={root}"])
    part, all_of_it = open_dataset(config.data, "train"), open_dataset(whole.data, "train")
    names = [track.video_id for track in all_of_it.tracks]
    assert [track.video_id for track in part.tracks] == names[::2]
    for index in range(4):
        np.testing.assert_array_equal(part.read(index).crops, all_of_it.read(2 * index).crops)
        np.testing.assert_array_equal(part.tracks[index].speaking, all_of_it.tracks[2 * index].speaking)
    assert len(open_dataset(config.data, "val").tracks) == 1
    assert json.loads((out / "dataset.json").read_text())["counts"]["train"] == {"tracks": 4, "frames": 120}
    assert {cells["split"] for cells in csv.DictReader((out / "tracks.csv").open())} == {"train", "val"}
    assert speaking_tracks(out, "train") == {(name, f"{name}:1") for name in names[::2]}
    write_share(root, out, {"train": 1.0})
    assert len(open_dataset(config.data, "train").tracks) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models=tiny"], "'tiny' is none of small"),
        (["--frames=tiny=3"], "'tiny' is none of small"),
        (["--frames=small=many"], "expected MODEL=NUMBER with commas between them, found 'small=many'"),
        (["--scale=0"], "--scale=0: expected a number above 0"),
        (["--scale=inf"], "--scale=inf: expected a number above 0"),
        (["--train-only", "--measure-only"], "leave nothing to do"),
        (["--train.epochs=3"], "--train.epochs is chosen for each training"),
        ([], "no prepared dataset"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(arguments, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["models.py", str(tmp_path / "out"), f"--data={tmp_path}", *arguments])
    assert run_command(models.main) in (1, 2)
    said = capsys.readouterr().err
    if arguments:
        assert message in said.splitlines()[-1]
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_split_that_is_not_there_is_told_before_anything_is_trained(
    small_dataset: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = small_dataset(tmp_path / "d", {"train": 8, "val": 4}, frames=30)
    command = ["models.py", str(tmp_path / "out"), f"--data={root}", "--models=lr_style", "--splits=val,tset"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(models, "train", lambda *_: pytest.fail("it trains"))
    assert run_command(models.main) == 2
    assert capsys.readouterr().err.endswith("no tracks of the split 'tset' in tracks.csv; there are train, val\n")
    assert not (tmp_path / "out").exists()


def training(name: str, seed: int, ap: float, **more: Any) -> dict[str, Any]:
    """A file as models.py writes it; the draws of its AP are ``ap`` and noise that all models share."""
    noise = np.random.default_rng(0).normal(0, 0.02, 50)
    part = {"ap": ap, "drawn_ap": list(ap + noise), "auroc": 0.9, "prevalence": 0.3, "frames": 1000, "groups": 9}
    rates = {"shifted sound": ((-240, 0.2), (240, 0.4), (80, 0.9)), models_table.OTHER: ((None, 0.25),)}
    rows = [
        {"condition": f"{family} {severity}", "family": family, "severity": severity, "false_accept_rate": rate}
        for family, of_family in rates.items()
        for severity, rate in of_family
    ]
    return {
        "arm": name, "seed": seed, "config": MODELS[name].config, "dataset": {"name": "d"}, "splits": "test",
        "common_settings": [], "crop_size": 32, "steps": 12, "frames": 7200, "frames_per_s": 1234.5, "minutes": 3.25,
        "commit": "abc", "machine": "m", "parameters": 826_000, "multiply_adds": 4.31e6, "tracks": 5,
        "parts": {name: part for name in ("all", "overlap", "elsewhere")},
        "false_accepts": {"tracks": 4, "rows": rows},
    } | more  # fmt: skip


def kept(folder: Path, *trainings: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for one in trainings:
        (folder / f"{one['arm']}-{one['seed']}.json").write_text(json.dumps(one))
    return folder


def row_of(text: str, model: str, table: int) -> str:
    return [line for line in text.splitlines() if line.startswith(f"| {model} |")][table]


def test_rows_hold_costs_means_and_rates(tmp_path: Path) -> None:
    folder = kept(
        tmp_path / "d",
        *(training("small", seed, 0.60 + 0.01 * seed) for seed in range(3)),
        *(training("light_style", seed, 0.57 + 0.01 * seed) for seed in range(3)),
        training("base", 0, 0.60),
    )
    (tmp_path / "speed.json").write_text(json.dumps([{"name": "small", "inference_ms": 0.2, "training_ms": 0.65}]))
    text = models_table.tables_of(folder)
    assert row_of(text, "small", 0) == ("| small | 0.83 M | 4.3 M | 0.200 | 0.650 | 12 | 7,200 | 1,234 | 3.2 |")
    assert "| - | - |" in row_of(text, "light_style", 0)
    # .61 ± 4.303 * .01 / sqrt(3); false accepts at ±240 ms are the mean of both ways
    assert "| small | 3 | 0.610 ± 0.025 (" in row_of(text, "small", 1)
    assert row_of(text, "small", 1).endswith("| - | 90 ± 0 % | 30 ± 0 % | - | 25 ± 0 % | - |")
    assert "-0.030 ± 0.000 (-0.030..-0.030)" in row_of(text, "light_style", 1)
    assert "- `small` against `light_style`: +0.030 ± 0.000 (+0.030..+0.030): **ahead**" in text
    assert "- `base` against `small`: +0.000 (+0.000..+0.000, one seed): **not told apart**" in text


def test_trainings_on_unlike_data_are_not_tabled_together(tmp_path: Path) -> None:
    folder = kept(tmp_path / "d", training("small", 0, 0.6), training("base", 0, 0.6, crop_size=48))
    with pytest.raises(AvfusionError, match="its crop_size differs from that of the other trainings"):
        models_table.tables_of(folder)


@pytest.mark.parametrize("folder", sorted(KEPT.glob("*/")), ids=lambda folder: folder.name)
def test_the_write_up_holds_exactly_what_the_files_say(folder: Path) -> None:
    path = ROOT / "docs" / "experiments.md"
    content = path.read_text(encoding="utf-8")
    assert replace_between(content, "models", folder.name, models_table.tables_of(folder), path) == content
