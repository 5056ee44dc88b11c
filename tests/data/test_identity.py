"""A dataset is known again wherever it lies, and another one in its place is not taken for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from avfusion.config import Config, with_overrides
from avfusion.data.identity import data_record, in_words, is_same, read_otherwise
from avfusion.errors import UsageError

Write = Callable[..., Path]


def on(root: Path, *overrides: str) -> Config:
    return with_overrides(Config(), ["--data.format=prepared", f"--data.root={root}", *overrides])


def change_info(root: Path, **changes: object) -> None:
    path = root / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_record_says_where_and_what(tmp_path: Path, small_dataset: Write) -> None:
    root = small_dataset(tmp_path / "data")
    info = json.loads((root / "dataset.json").read_text())
    record = data_record(on(root).data)
    assert record == {
        "format": "prepared", "root": str(root), "name": "small", "scenes": info["scenes"], "settings": None
    }  # fmt: skip
    assert in_words(record) == f"prepared in `{root}`: name small, scenes {info['scenes']}"
    config = with_overrides(Config(), ["--data.synthetic.seed=7", "--data.synthetic.roles=[solo,turns]"])
    made = data_record(config.data)
    assert (made["root"], made["synthetic"]["seed"]) == (None, 7)
    assert {"seed", "scene_s", "roles", "espeak", "val_scenes"} <= made["synthetic"].keys()
    assert "roles [solo, turns]" in in_words(made)


def test_a_copy_elsewhere_is_the_same_and_other_scenes_names_or_settings_are_not(
    tmp_path: Path, small_dataset: Write
) -> None:
    root = small_dataset(tmp_path / "data")
    shutil.copytree(root, tmp_path / "copy")
    own = data_record(on(root).data)
    assert is_same(own, data_record(on(tmp_path / "copy").data))
    for change in ({"name": "large"}, {"scenes": "0123456789"}, {"settings": {"seed": 1}}):
        shutil.copytree(root, tmp_path / "other")
        change_info(tmp_path / "other", **change)
        assert not is_same(own, data_record(on(tmp_path / "other").data)), change
        shutil.rmtree(tmp_path / "other")
    assert not is_same(own, data_record(Config().data))


def test_another_dataset_is_read_otherwise_and_a_moved_one_is_not(tmp_path: Path, small_dataset: Write) -> None:
    root, run = small_dataset(tmp_path / "data"), tmp_path / "run"
    other = small_dataset(tmp_path / "other", {"train": 8, "val": 5})
    run.mkdir()
    own = on(root)
    assert read_otherwise(own, on(other), run) == ["data.root"]
    moved = tmp_path / "moved"
    shutil.copytree(root, moved)
    assert read_otherwise(own, on(moved), run) == []
    (run / "report.json").write_text(json.dumps({"data": data_record(own.data)}))
    shutil.rmtree(root)  # now the run's own report says what it was
    assert read_otherwise(own, on(moved), run) == []
    assert read_otherwise(own, on(other), run) == ["data.root"]
    with pytest.raises(UsageError, match="no prepared dataset"):
        read_otherwise(own, on(root), run)
    other.rename(root)  # another dataset where the run's own was
    assert read_otherwise(own, on(root), run) == ["data.root"]
    (run / "report.json").unlink()  # nothing to lose, and nothing to know it by
    shutil.rmtree(root)
    assert read_otherwise(own, on(moved), run) == []


def test_keys_of_other_clips_are_named(tmp_path: Path, small_dataset: Write) -> None:
    own = Config()
    assert read_otherwise(own, with_overrides(Config(), ["--data.synthetic.seed=7"]), tmp_path) == ["data.synthetic"]
    assert read_otherwise(own, with_overrides(Config(), ["--data.val_split=dev"]), tmp_path) == ["data.val_split"]
    assert read_otherwise(own, on(small_dataset(tmp_path / "d")), tmp_path) == ["data.format"]
    assert read_otherwise(own, own, tmp_path) == []


def test_the_talknet_layout_is_known_by_its_table(tmp_path: Path) -> None:
    for name, text in (("a", "one\n"), ("b", "one\n"), ("c", "two\n")):
        (tmp_path / name / "csv").mkdir(parents=True)
        (tmp_path / name / "csv" / "val_orig.csv").write_text(text)
    a, b, c = (data_record(replace(on(tmp_path / name).data, format="talknet")) for name in "abc")
    assert is_same(a, b)
    assert not is_same(a, c)
    assert [a["name"], c["name"]] == ["a", "c"]
