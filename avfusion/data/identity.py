"""Which dataset figures are of: enough to know it again wherever it lies, as every report records it.

A prepared dataset is known by its name, its scenes and its settings, whatever its folder; one in the TalkNet layout by
its table; synthetic talkers by their recipe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from avfusion.config import Config, DataConfig
from avfusion.data.prepared_tables import read_info
from avfusion.errors import AvfusionError
from avfusion.files import sha256_of

_KNOWN_BY = {"prepared": ("name", "scenes", "settings"), "talknet": ("table",), "synthetic": ("synthetic",)}


def data_record(data: DataConfig) -> dict[str, Any]:
    """What a report says of its dataset, as JSON has it.

    Args:
        data: format and folder, or the recipe of the synthetic talkers.

    Returns:
        ``format``, ``root`` as it was given (None for synthetic talkers), and what the dataset is known by: digests of
        ten hex digits, None where the dataset does not have one.

    Raises:
        UsageError: there is no such dataset.
        AvfusionError: it is damaged.
    """
    if data.format == "synthetic":
        return {"format": data.format, "root": None, "synthetic": asdict(data.synthetic)}
    root = Path(data.root or "")
    record: dict[str, Any] = {"format": data.format, "root": data.root}
    if data.format == "talknet":
        table = root / "csv" / f"{data.val_split}_orig.csv"
        return record | {"name": root.resolve().name, "table": sha256_of(table)[:10] if table.is_file() else None}
    info = read_info(root)
    settings = info.get("settings")
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10] if settings else None
    return record | {"name": info["name"], "scenes": info.get("scenes"), "settings": digest}


def is_same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two records are of one dataset; where it lies does not matter."""
    if ours["format"] != theirs.get("format"):
        return False
    return all(ours[key] == theirs.get(key) for key in _KNOWN_BY[ours["format"]])


def read_otherwise(own: Config, config: Config, run_dir: Path) -> list[str]:
    """Keys by which other clips would be scored than the run's own; a dataset that was moved is the same.

    Args:
        own: the configuration of the run's checkpoint.
        config: what is asked for.
        run_dir: the run; its report says which dataset it was made on, and where there is none, there is none to lose.

    Raises:
        UsageError: the dataset that is asked for is not there.
        AvfusionError: it is damaged.
    """
    ours, theirs = own.data, config.data
    keys = [f"data.{key}" for key in ("format", "val_split") if getattr(ours, key) != getattr(theirs, key)]
    if "data.format" in keys:
        return keys
    if theirs.format == "synthetic":
        return keys + ["data.synthetic"] * (ours.synthetic != theirs.synthetic)
    if theirs.root is None:
        return keys  # opening it says what is missing
    trained = _of_report(run_dir) or _of_folder(ours)
    return keys + ["data.root"] * (trained is not None and not is_same(data_record(theirs), trained))


def in_words(record: Mapping[str, Any]) -> str:
    """A record in one line."""
    if record["format"] == "synthetic":
        settings = record["synthetic"]
        return "synthetic talkers: " + ", ".join(f"{key} {_value(value)}" for key, value in settings.items())
    known = [f"{key} {record[key]}" for key in _KNOWN_BY[record["format"]] if record.get(key) is not None]
    return f"{record['format']} in `{record['root']}`: " + ", ".join(known)


def _of_report(run_dir: Path) -> dict[str, Any] | None:
    """What the run's own report was made on; None where it has none that says so."""
    try:
        record = json.loads((run_dir / "report.json").read_bytes())["data"]
        return record if isinstance(record, dict) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _of_folder(data: DataConfig) -> dict[str, Any] | None:
    """What lies where the run's dataset lay; None where that is nothing."""
    try:
        return data_record(data)
    except AvfusionError:
        return None


def _value(value: Any) -> str:
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)
