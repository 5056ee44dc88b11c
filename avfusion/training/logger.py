"""Where the numbers of a run go: ``log.jsonl``, and Weights & Biases with the same rows.

One row of ``log.jsonl`` is one row at W&B, and W&B's own step is always the row's index in the file, however often a
run is resumed, made longer or evaluated. The training step is a number in the row (``step``) and the x axis. Pictures,
curves and tables ride on the row that follows them.

A W&B file written offline may lack its end after a kill, so a run that goes on offline sends all rows of the log again:
the last W&B file is complete by itself, and a server that gets both drops the steps it has.
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
from avfusion.training.log_rows import cut_back, same, same_but_for_clocks
from avfusion.training.wandb_run import ARTIFACT_S, start_wandb

Number = float | int
Cell = float | int | str | None


class RunLogger:
    """Writes rows of plain numbers, and pictures, curves, tables and artifacts to W&B.

    Args:
        config: of the run.
        run_dir: holds ``log.jsonl`` and ``wandb/``.
        wandb_id: of the W&B run to go on with, when resuming.
        log_bytes: on resume, the length of ``log.jsonl`` at the checkpoint: what came after it is cut off and written
            again, see :func:`cut_back`. None keeps every whole line.
        eval_of: name of the run that is evaluated into another folder: W&B shows that as a run of its own, grouped
            under this name, and without the checkpoint, which the run itself has given.
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
        kept, self._cut = cut_back(path, log_bytes)
        self._config, self._known_id, self._eval_of = config, wandb_id, eval_of
        self._last = kept[-1] if kept else None
        self._index = self._resumed_at = len(kept)  # of the next row
        self._file = path.open("a", encoding="utf-8")
        self._wandb = start_wandb(config, run_dir, wandb_id, eval_of)
        # What the server lacks begins here: at 0 for a run that is new to it, and offline, where nobody knows.
        self._lacks = 0 if self._wandb is None else self._wandb.next_step
        self._goes_on_alike = True
        if eval_of is None:  # an evaluation elsewhere is a new W&B run: rows of others before it are not its own
            for index, row in enumerate(kept):
                self._send_row(index, row)
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
        row = _row(numbers, step)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())  # a checkpoint that says how long this file is must not outlive it
        if self._index < self._lacks:
            self._compare(row)
        self._send_row(self._index, row)
        self._last = row
        self._index += 1

    def has(self, numbers: Mapping[str, Number], step: int) -> bool:
        """Whether the last row is this one already: a report made once more has no row of its own.

        Not so for an evaluation elsewhere, whose W&B run is new each time.
        """
        return self._eval_of is None and self._last is not None and same(self._last, _row(numbers, step))

    def log_images(self, images: Sequence[Path], key: str, step: int) -> None:
        """Gives W&B PNG files, captioned with their names, to go with the next row."""

        def make(wandb: Any) -> Any:
            return [wandb.Image(str(path), caption=path.stem) for path in images]

        if images:
            self._send_with_next_row(key, make, step)

    def log_table(self, key: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        """Gives W&B a table to go with the next row; its cells are numbers and text, None for nothing."""

        def make(wandb: Any) -> Any:
            return wandb.Table(columns=list(columns), data=[list(row) for row in rows])

        if rows:
            self._send_with_next_row(key, make, step)

    def log_page(self, page: Path, key: str, step: int) -> None:
        """Gives W&B an HTML page to go with the next row; it needs nothing beside it."""

        def make(wandb: Any) -> Any:
            return wandb.Html(str(page), inject=False)  # else W&B adds a style sheet from its server

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
        if self._config.wandb.log_model and self._eval_of is None:
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

    def _compare(self, row: dict[str, Any]) -> None:
        """Says once when the server keeps a row of before the kill that the training now gives otherwise."""
        place = self._index - self._resumed_at
        if not self._goes_on_alike or place >= len(self._cut) or same_but_for_clocks(self._cut[place], row):
            return
        self._goes_on_alike = False
        print(
            f"W&B keeps its earlier rows up to its step {self._lacks - 1}, though the training goes on differently from"
            f" step {self._index}; log.jsonl has the new ones",
            file=sys.stderr,
        )

    def _send_row(self, index: int, row: dict[str, Any]) -> None:
        if self._wandb is not None and index >= self._lacks:
            self._wandb.tell(lambda run: run.log(row, step=index, commit=True))

    def _send_with_next_row(self, key: str, make: Callable[[Any], Any], step: int) -> None:
        def send(run: Any) -> None:
            import wandb

            run.log({"step": step, key: make(wandb)}, step=self._index)

        if self._wandb is not None and self._index >= self._lacks:
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


def _row(numbers: Mapping[str, Number], step: int) -> dict[str, Number]:
    return {"step": step, **{key: _plain(value) for key, value in numbers.items()}}


def _plain(value: Any) -> Number:
    """A number that holds on to nothing: no tensor with its graph, no array."""
    if hasattr(value, "item"):
        value = value.item()
    return int(value) if isinstance(value, abstract.Integral) else float(value)
