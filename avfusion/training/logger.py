"""Where the numbers of a run go: ``log.jsonl``, and Weights & Biases with the same rows.

One row of ``log.jsonl`` is one row at W&B: W&B's own step is the row's index, given with it, so nothing is ever dropped
for a step that goes backwards, however often a run is resumed. The training step is a number in the row (``step``) and
the x axis. Pictures, curves and tables ride on the row that follows them.
"""

from __future__ import annotations

import json
import numbers as abstract
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from avfusion.config import Config
from avfusion.training.artifacts import Artifact, dataset_artifact, model_artifact
from avfusion.training.wandb_run import ARTIFACT_S, start_wandb

Number = float | int
Cell = float | int | str
FINAL = "final/"  # keys of the figures that end a run


class RunLogger:
    """Writes rows of plain numbers, and pictures, curves, tables and artifacts to W&B.

    Args:
        config: of the run.
        run_dir: holds ``log.jsonl`` and ``wandb/``.
        wandb_id: of the W&B run to go on with, when resuming.
        log_bytes: on resume, ``log.jsonl`` is cut back to this many bytes: what came after the checkpoint is written
            again. None keeps every whole line.
        eval_of: name of the run that is evaluated into another folder: W&B shows that as a run of its own, grouped
            under this name.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        wandb_id: str | None = None,
        log_bytes: int | None = None,
        *,
        eval_of: str | None = None,
    ) -> None:
        path = run_dir / "log.jsonl"
        kept, cut = _cut_back(path, log_bytes)
        self._config, self._known_id = config, wandb_id
        self._index = len(kept)  # of the next row
        self._file = path.open("a", encoding="utf-8")
        self._wandb = start_wandb(config, run_dir, wandb_id, eval_of)
        self._skip_until, self._ahead = 0, 0
        if self._wandb is not None and wandb_id is not None:
            self._meet_wandb(kept, cut, self._wandb.next_step)
        if config.wandb.log_dataset and self._wandb is not None and wandb_id is None:
            self._log_artifact(lambda _: dataset_artifact(config.data, run_dir), "dataset artifact")

    @property
    def wandb_id(self) -> str | None:
        """The id of the W&B run, kept while W&B is off; None where there has been none."""
        return self._known_id if self._wandb is None else self._wandb.id

    @property
    def log_bytes(self) -> int:
        """Size of ``log.jsonl`` now, in bytes: a checkpoint keeps it."""
        return self._file.tell()

    def log(self, numbers: Mapping[str, Number], step: int) -> None:
        """Logs a row of plain numbers at a training step."""
        row = {"step": step, **{key: _plain(value) for key, value in numbers.items()}}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())  # a checkpoint that says how long this file is must not outlive it
        self._send_row(self._index, row)
        self._index += 1

    def log_images(self, images: Sequence[Path], key: str, step: int) -> None:
        """Gives W&B PNG files, captioned with their names, to go with the next row."""

        def make(wandb: Any) -> Any:
            return [wandb.Image(str(path), caption=path.stem) for path in images]

        if images:
            self._send_with_next_row(key, make, step)

    def log_table(self, key: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        """Gives W&B a table to go with the next row; its cells are numbers and text."""

        def make(wandb: Any) -> Any:
            return wandb.Table(columns=list(columns), data=[list(row) for row in rows])

        if rows:
            self._send_with_next_row(key, make, step)

    def log_curve(
        self, key: str, axes: tuple[str, str], points: Sequence[tuple[float, float]], step: int, title: str
    ) -> None:
        """Gives W&B a line chart to go with the next row.

        Args:
            key: names the chart.
            axes: names of x and y.
            points: x and y of each point.
            step: the training step.
            title: stands above the chart.
        """

        def make(wandb: Any) -> Any:
            table = wandb.Table(columns=list(axes), data=[list(point) for point in points])
            return wandb.plot.line(table, *axes, title=title)

        if points:
            self._send_with_next_row(key, make, step)

    def log_model(self, checkpoint: Path, facts: Mapping[str, Number | str]) -> None:
        """Gives W&B a checkpoint as an artifact, where ``wandb.log_model`` asks for it."""
        if self._config.wandb.log_model:
            self._log_artifact(lambda run: model_artifact(checkpoint, str(run.id), facts), "model artifact")

    def summarize(self, numbers: Mapping[str, Number]) -> None:
        """Puts the run's headline figures where W&B's run table shows them."""
        plain = {key: _plain(value) for key, value in numbers.items()}
        if self._wandb is not None:
            self._wandb.tell(lambda run: run.summary.update(plain))

    def close(self) -> None:
        """Ends the W&B run and closes the file."""
        self._file.close()
        if self._wandb is not None:
            self._wandb.close(self._config.wandb.wait_s)

    def _meet_wandb(self, kept: list[dict[str, Any]], cut: list[dict[str, Any]], next_step: int) -> None:
        """Finds where the rows to come stand at W&B, which may have fewer or more of them than ``log.jsonl``.

        Args:
            kept: the rows of ``log.jsonl``.
            cut: the rows after the checkpoint, which W&B may have.
            next_step: what the server lacks begins here; 0 offline, where nobody knows.
        """
        ended = any(key.startswith(FINAL) for row in cut for key in row)
        if self._index < next_step <= self._index + len(cut) and not ended:
            self._skip_until = next_step  # the same training gives the same rows: W&B has them
        elif next_step > self._index:
            self._ahead = next_step - self._index  # the run had ended and is made longer: its rows follow the old ones
        elif ended:
            self._ahead = len(cut)
        elif 0 < next_step < self._index or (next_step == 0 and self._is_online()):
            for index in range(next_step, self._index):  # rows from a time when W&B was out of reach
                self._send_row(index, kept[index])

    def _is_online(self) -> bool:
        online: list[bool] = []
        if self._wandb is not None:
            self._wandb.tell(lambda run: online.append(not getattr(run, "offline", True)))
        return any(online)

    def _send_row(self, index: int, row: dict[str, Any]) -> None:
        if self._wandb is not None and index >= self._skip_until:
            self._wandb.tell(lambda run: run.log(row, step=index + self._ahead, commit=True))

    def _send_with_next_row(self, key: str, make: Callable[[Any], Any], step: int) -> None:
        def send(run: Any) -> None:
            import wandb

            run.log({"step": step, key: make(wandb)}, step=self._index + self._ahead)

        if self._wandb is not None and self._index >= self._skip_until:
            self._wandb.tell(send)

    def _log_artifact(self, describe: Callable[[Any], Artifact], what: str) -> None:
        def send(run: Any) -> None:
            import wandb

            described = describe(run)
            artifact = wandb.Artifact(described.name, type=described.kind, metadata=dict(described.facts))
            for name, path in described.files.items():
                artifact.add_file(str(path), name=name)
            for name, text in described.texts.items():
                with artifact.new_file(name, encoding="utf-8") as file:
                    file.write(text)
            run.log_artifact(artifact, aliases=list(described.aliases))

        if self._wandb is not None:
            self._wandb.tell(send, ARTIFACT_S, optional=what)


def _cut_back(path: Path, log_bytes: int | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Cuts ``log.jsonl`` back to a length, or to its last whole line; returns its rows and the rows cut off."""
    content = path.read_bytes() if path.is_file() else b""
    if log_bytes is not None and log_bytes > len(content):
        print(
            f"{path}: {len(content)} bytes, but the checkpoint was saved when it had {log_bytes}: rows are lost",
            file=sys.stderr,
        )
    end = content.rfind(b"\n", 0, len(content) if log_bytes is None else log_bytes) + 1
    if end < len(content):
        os.truncate(path, end)
    return _rows(content[:end]), _rows(content[end:])


def _rows(content: bytes) -> list[dict[str, Any]]:
    """The whole rows; a line that is no row (cut short by a crash) counts as an empty one, so that indices stay."""
    rows = []
    for line in content.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            row = {}
        rows.append(row if isinstance(row, dict) else {})
    return rows


def _plain(value: Any) -> Number:
    """A number that holds on to nothing: no tensor with its graph, no array."""
    if hasattr(value, "item"):
        value = value.item()
    return int(value) if isinstance(value, abstract.Integral) else float(value)
