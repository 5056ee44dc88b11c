"""Reads the ``.wandb`` files that W&B writes into a run folder, so that tests see what it will show.

A file is a 7-byte header, then blocks of 32,768 bytes of LevelDB's log format (the header counts as part of the first):
a record has a 4-byte checksum, a 2-byte length and a type: whole, first, middle or last part. A record is a protobuf
``Record`` of ``wandb.proto``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK, FILE_HEADER, RECORD_HEADER = 32_768, 7, 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class Logged:
    """What one or more ``.wandb`` files of a run hold.

    Attributes:
        config: as W&B shows it, without its own ``_wandb`` section.
        rows: the history by W&B's step, values decoded.
        order: the steps in the order in which they stand in the files.
        summary: the latest value of each key.
        run: ``run_id``, ``display_name``, ``job_type``, ``run_group``.
        artifacts: name to its record.
        metrics: name to the metric that is its x axis.
    """

    config: dict[str, Any] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)


def records(path: Path) -> Iterator[bytes]:
    """The records of a file; a last one that was cut short is left out."""
    content = path.read_bytes()
    assert content[:4] == b":W&B", f"{path} begins with {content[:4]!r}"
    at, parts = FILE_HEADER, []
    while at + RECORD_HEADER <= len(content):
        if BLOCK - at % BLOCK < RECORD_HEADER:  # no header fits: filled up with zeros
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        part = content[at + RECORD_HEADER : at + RECORD_HEADER + length]
        at += RECORD_HEADER + length
        if kind == 0 or len(part) < length:
            return
        parts = [part] if kind in (WHOLE, FIRST) else [*parts, part]
        if kind in (WHOLE, LAST):
            yield b"".join(parts)


def read_wandb(run_dir: Path, *, last_only: bool = False) -> Logged:
    """Everything that the offline runs in a run folder hold, in the order in which they began; or the last alone."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # W&B's process writes on for a moment after the end of a run; this waits for it
    logged = Logged()
    files = sorted(run_dir.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.parent.name)
    assert files, f"no .wandb file in {run_dir}"
    for path in files[-1:] if last_only else files:
        for content in records(path):
            record = Record()
            record.ParseFromString(content)
            _take(logged, record)
    return logged


def _take(logged: Logged, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        names = ("run_id", "display_name", "job_type", "run_group")
        logged.run = {name: getattr(record.run, name) for name in names}
        _update(logged.config, record.run.config.update)
    elif kind == "config":
        _update(logged.config, record.config.update)
    elif kind == "history":
        row: dict[str, Any] = {}
        _update(row, record.history.item)
        step = record.history.step.num if record.history.HasField("step") else row["_step"]
        logged.rows.setdefault(step, {}).update(row)
        logged.order.append(step)
    elif kind == "summary":
        _update(logged.summary, record.summary.update)
    elif kind == "artifact":
        logged.artifacts[record.artifact.name] = record.artifact
    elif kind == "metric":
        logged.metrics[record.metric.name or record.metric.glob_name] = record.metric.step_metric


def _update(target: dict[str, Any], items: Any) -> None:
    for item in items:
        key = item.key or ".".join(item.nested_key)
        if not key.startswith("_wandb"):
            target[key] = json.loads(item.value_json)
