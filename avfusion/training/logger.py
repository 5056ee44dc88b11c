"""Where the numbers of a run go: Weights & Biases, and ``log.jsonl`` with the same numbers.

W&B counts its own steps; the training step is logged as a number of its own (``step``) and made the x axis, so nothing
is ever dropped for a step that goes backwards. Training goes on when W&B fails.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from avfusion.config import Config, to_flat_dict

Number = float | int


class RunLogger:
    """Writes scalars and pictures of one run.

    Args:
        config: of the run.
        run_dir: holds ``log.jsonl`` and ``wandb/``.
        wandb_id: of the W&B run to go on with, when resuming.
    """

    def __init__(self, config: Config, run_dir: Path, wandb_id: str | None = None) -> None:
        self._file = (run_dir / "log.jsonl").open("a", encoding="utf-8")
        self._run = _start_wandb(config, run_dir, wandb_id)

    @property
    def wandb_id(self) -> str | None:
        """The id of the W&B run; None when W&B is off."""
        return None if self._run is None else str(self._run.id)

    def log(self, numbers: Mapping[str, Number], step: int) -> None:
        """Logs plain numbers at a training step."""
        row = {
            "step": step,
            **{key: float(value) if isinstance(value, float) else value for key, value in numbers.items()},
        }
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        self._tell_wandb(lambda run: run.log(row))

    def log_images(self, images: Sequence[Path], key: str, step: int) -> None:
        """Logs PNG files, captioned with their names."""

        def send(run: Any) -> None:
            import wandb

            run.log({"step": step, key: [wandb.Image(str(path), caption=path.stem) for path in images]})

        if images:
            self._tell_wandb(send)

    def summarize(self, numbers: Mapping[str, Number]) -> None:
        """Puts the run's headline figures where W&B's run table shows them."""
        self._tell_wandb(lambda run: run.summary.update(dict(numbers)))

    def close(self) -> None:
        """Ends the W&B run and closes the file."""
        self._file.close()
        self._tell_wandb(lambda run: run.finish())
        self._run = None

    def _tell_wandb(self, tell: Callable[[Any], Any]) -> None:
        """W&B must never end a training: when it fails, that is said once, and log.jsonl has the numbers."""
        if self._run is None:
            return
        try:
            tell(self._run)
        except Exception as error:
            print(f"W&B failed ({error}); going on with log.jsonl alone", file=sys.stderr)
            self._run = None


def _start_wandb(config: Config, run_dir: Path, wandb_id: str | None) -> Any:
    """Starts W&B as the configuration says, and says once where the numbers go; None when it is off."""
    mode = config.wandb.mode
    if os.environ.get("WANDB_MODE") == "disabled":
        mode = "disabled"
    if mode == "disabled":
        print("W&B: off; the numbers are in log.jsonl", file=sys.stderr)
        return None
    try:
        import wandb  # noqa: F401
    except ImportError:
        print("W&B: not installed; the numbers are in log.jsonl (pip install wandb)", file=sys.stderr)
        return None
    if mode == "auto":
        mode = os.environ.get("WANDB_MODE") or "online"
    why = ""
    try:
        if mode == "online" and not _logged_in():
            mode, why = "offline", " (not logged in: wandb login)"  # online would ask for a key
        try:
            run = _init(config, run_dir, wandb_id, mode)
        except Exception as error:
            if mode != "online":
                raise
            mode, why = "offline", f" ({_first_line(error)})"
            run = _init(config, run_dir, wandb_id, mode)
    except Exception as error:  # a broken installation, a full disk: the run itself goes on
        print(f"W&B: cannot start ({_first_line(error)}); the numbers are in log.jsonl", file=sys.stderr)
        return None
    if mode == "offline":
        print(f"W&B: offline{why}; later: wandb sync {run_dir}/wandb/offline-run-*", file=sys.stderr)
    else:
        print(f"W&B: {run.url}", file=sys.stderr)
    return run


def _init(config: Config, run_dir: Path, wandb_id: str | None, mode: str) -> Any:
    import wandb

    run = wandb.init(
        project=config.wandb.project,
        entity=config.wandb.entity,
        name=config.wandb.name or run_dir.name,
        tags=config.wandb.tags,
        dir=str(run_dir),
        id=wandb_id,
        resume="allow" if wandb_id else None,
        mode=mode,  # type: ignore[arg-type]
        config=to_flat_dict(config),
        settings=wandb.Settings(silent=True, init_timeout=20),
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return run


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _logged_in() -> bool:
    """Whether W&B has an API key, found without asking for one."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    import netrc
    from urllib.parse import urlsplit

    import wandb

    host = urlsplit(str(wandb.setup().settings.base_url)).hostname or ""  # a server of one's own, if one is set
    for name in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        try:
            if name and netrc.netrc(os.path.expanduser(name)).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False
