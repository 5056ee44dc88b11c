"""One run of Weights & Biases that may fail at any moment without the training noticing more than a line.

Everything that W&B is told runs on one thread of its own, and whoever tells it waits for a limited time only: a service
process that was killed, that hangs, or a network that is gone costs the run its W&B page and nothing else. The numbers
are in ``log.jsonl`` in any case.
"""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from avfusion.config import Config, to_flat_dict

START_S = 120.0  # W&B's own limit for going online is 20 s; then it starts again, offline
TELL_S = 60.0  # a row is handed over in milliseconds
ARTIFACT_S = 900.0  # files are hashed and copied first
GIVE_UP_S = 3.0

# What WANDB_MODE may say, older names among them. Not `shared`: it takes no step, and rows would come twice.
MODES = {"online": "online", "offline": "offline", "disabled": "disabled", "run": "online", "dryrun": "offline"}

_Result = TypeVar("_Result")


class NoAnswerError(Exception):
    """W&B has not done within its time what it was told."""


class WandbRun:
    """A W&B run that has been started.

    Args:
        run: what ``wandb.init`` gave.
        thread: where it was started; all that follows happens there too.
        where: the folder pattern that ``wandb sync`` takes.

    Attributes:
        id: names the run at W&B.
        next_step: W&B's own step from which on the server has no row yet; 0 for a new run and offline.
    """

    def __init__(self, run: Any, thread: _Thread, where: str) -> None:
        self._run: Any = run
        self._thread, self._where = thread, where
        self.id = str(run.id)
        self.next_step = int(getattr(run, "starting_step", 0) or 0)

    def tell(self, what: Callable[[Any], Any], limit_s: float | None = None, optional: str = "") -> None:
        """Does something with the run, unless W&B has failed before.

        Args:
            what: takes the run of ``wandb.init``.
            limit_s: after this time W&B counts as failed; default 60 s.
            optional: names what may fail by itself, without W&B being given up.
        """
        if self._run is None:
            return
        run = self._run
        try:
            self._thread.do(lambda: what(run), TELL_S if limit_s is None else limit_s)
        except Exception as error:
            if optional and not isinstance(error, (NoAnswerError, ConnectionError)):
                print(f"W&B: no {optional} ({_first_line(error)})", file=sys.stderr)
                return
            print(f"W&B failed ({_first_line(error)}); going on with log.jsonl alone", file=sys.stderr)
            self._give_up()
        except BaseException:  # Ctrl-C while waiting: the end of the program shall not wait for W&B again
            self._give_up()
            raise

    def close(self, limit_s: float) -> None:
        """Ends the run: waits until W&B has taken everything, at most this long.

        Called while an exception is on its way (in a ``finally``), it ends as a run that failed.
        """
        if self._run is None:
            return
        run, failed = self._run, sys.exc_info()[0] is not None
        try:
            self._thread.do(lambda: run.finish(exit_code=int(failed)), limit_s)
        except NoAnswerError:
            print(
                f"W&B has not taken everything within {limit_s:.0f} s (wandb.wait_s); later: wandb sync {self._where}",
                file=sys.stderr,
            )
            self._give_up()
        except Exception as error:
            print(f"W&B failed ({_first_line(error)}); the numbers are in log.jsonl", file=sys.stderr)
            self._give_up()
        except BaseException:
            self._give_up()
            raise
        self._run = None
        self._thread.end()

    def _give_up(self) -> None:
        """Lets go of W&B.

        Its hook at the interpreter's end would stumble over a service that is gone, with a traceback, or wait for one
        that hangs. Taking W&B down removes the hook first and fails or hangs after that, here on a thread that nobody
        waits for.
        """
        self._run = None
        self._thread.end()
        _shut_down_wandb()


class _Thread:
    """A thread that does one thing after the other; whoever asks waits for the result, but not for ever."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        Thread(target=self._work, name="W&B", daemon=True).start()

    def do(self, job: Callable[[], _Result], limit_s: float) -> _Result:
        """Runs the job after those before it.

        Raises:
            NoAnswerError: it is not done after this time; it may still be done later.
            Exception: whatever the job raises.
        """
        done: Future[_Result] = Future()

        def run() -> None:
            try:
                done.set_result(job())
            except BaseException as error:  # SystemExit too: W&B calls sys.exit here and there
                done.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

        self._jobs.put(run)
        if not wait([done], limit_s).done:
            raise NoAnswerError(f"no answer for {limit_s:.0f} s")
        return done.result()

    def end(self) -> None:
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def start_wandb(config: Config, run_dir: Path, wandb_id: str | None, eval_of: str | None) -> WandbRun | None:
    """Starts W&B as the configuration says, and says once where the numbers go; None when it is off.

    Args:
        config: its ``wandb`` section says how; the whole of it is shown at W&B, flat.
        run_dir: W&B's files go to ``wandb/`` in it, and the run is called like it.
        wandb_id: of the run to go on with.
        eval_of: name of the run that is evaluated by a run of its own.
    """
    asked = os.environ.get("WANDB_MODE")
    mode = "disabled" if asked == "disabled" else config.wandb.mode
    if mode == "disabled":
        print("W&B: off; the numbers are in log.jsonl", file=sys.stderr)
        return None
    if asked and asked not in MODES:
        print(
            f"W&B: off, for WANDB_MODE={asked} is no mode (expected online, offline or disabled); the numbers are in"
            " log.jsonl",
            file=sys.stderr,
        )
        return None
    try:
        import wandb  # noqa: F401
    except ImportError:
        print("W&B: not installed; the numbers are in log.jsonl (pip install wandb)", file=sys.stderr)
        return None
    if mode == "auto":
        mode = MODES[asked] if asked else "online"
    why = ""
    thread = _Thread()
    try:
        if mode == "online" and not _logged_in():
            mode, why = "offline", " (not logged in: wandb login)"  # online would ask for a key
        try:
            run = thread.do(lambda: _init(config, run_dir, wandb_id, eval_of, mode), START_S)
        except Exception as error:
            if mode != "online" or isinstance(error, NoAnswerError):
                raise
            mode, why = "offline", f" ({_first_line(error)})"
            run = thread.do(lambda: _init(config, run_dir, wandb_id, eval_of, mode), START_S)
    except Exception as error:  # a broken installation, a full disk: the run itself goes on
        thread.end()
        _shut_down_wandb()
        print(f"W&B: cannot start ({_first_line(error)}); the numbers are in log.jsonl", file=sys.stderr)
        return None
    where = f"{run_dir}/wandb/{'offline-' if mode == 'offline' else ''}run-*"
    if mode == "offline":
        print(f"W&B: offline{why}; later: wandb sync {where}", file=sys.stderr)
    else:
        print(f"W&B: {run.url}", file=sys.stderr)
    return WandbRun(run, thread, where)


def _init(config: Config, run_dir: Path, wandb_id: str | None, eval_of: str | None, mode: str) -> Any:
    import wandb

    # What an artifact takes up waits inside the run folder, so that `wandb sync` works wherever the folder is moved.
    os.environ.setdefault("WANDB_DATA_DIR", str(run_dir.resolve() / "wandb"))
    run = wandb.init(
        project=config.wandb.project,
        entity=config.wandb.entity,
        name=(config.wandb.name if eval_of is None else None) or run_dir.resolve().name,
        tags=config.wandb.tags,
        job_type="train" if eval_of is None else "eval",
        group=eval_of,
        dir=str(run_dir),
        id=wandb_id,
        resume="allow" if wandb_id and mode == "online" else None,  # offline, the same id does it
        mode=mode,  # type: ignore[arg-type]
        config=to_flat_dict(config),
        settings=wandb.Settings(silent=True, init_timeout=20),
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return run


def _shut_down_wandb() -> None:
    """Takes W&B's service connection down, as far as that goes in a few seconds."""

    def shut_down() -> None:
        try:
            import wandb

            wandb.teardown()
        except BaseException:  # the service is gone: that is why it is shut down
            pass

    thread = Thread(target=shut_down, daemon=True)
    thread.start()
    thread.join(GIVE_UP_S)


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
