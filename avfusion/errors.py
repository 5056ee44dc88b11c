"""Failures a user can cause, each told in one line: what was found, what was expected, where, and the next step.

Commands run their body through :func:`run_command`: an :class:`AvfusionError` becomes its one line on stderr and its
exit code (2 for usage and configuration, 1 for failed work); ``AVFUSION_DEBUG=1`` shows the traceback instead.
They read their arguments inside that body with a :class:`CommandParser`, so that a wrong command line is no exception.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class AvfusionError(Exception):
    """Work that failed for a reason the user can act on. The message is the whole explanation.

    Attributes:
        exit_code: what the command returns to the shell.
        prefix: what stands before the message when a command prints it.
    """

    exit_code = 1
    prefix = "error: "


class UsageError(AvfusionError):
    """A wrong command line, path or configuration."""

    exit_code = 2


class CommandParser(argparse.ArgumentParser):
    """An argument parser that tells a wrong command line in one line, without the usage text before it."""

    def error(self, message: str) -> NoReturn:
        """Called by argparse for whatever it does not understand.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{' '.join(message.split())}; see --help")


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Takes ``--section.key=value`` out of a command line, since argparse stumbles over spaces in values.

    Returns:
        The overrides, and everything else.
    """
    overrides = [a for a in arguments if a.startswith("--") and "." in a.partition("=")[0]]
    return overrides, [a for a in arguments if a not in overrides]


def one_line(text: str) -> str:
    """The text with whatever is no visible letter or space (line ends, escape sequences) written as its number."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def run_command(body: Callable[[], None]) -> int:
    """Runs a command and returns its exit code.

    Args:
        body: the command; it raises :class:`AvfusionError` when the user has to act.

    Returns:
        0, or the error's exit code (130 after Ctrl-C) with its one line printed to stderr.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show ends nothing
            stream.reconfigure(errors="backslashreplace")
    try:
        body()
    except AvfusionError as error:
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        print(f"{error.prefix}{one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever read the output has gone (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, UnicodeError) as error:  # a full disk, a folder that may not be written, a name in no known bytes
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            print(f"error: {one_line(_disk_full(error))}", file=sys.stderr)
            return 1
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
        print(f"error: {one_line(where + reason)}; AVFUSION_DEBUG=1 shows where it happened", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        print("stopped by Ctrl-C", file=sys.stderr)
        return 130
    return 0


def _disk_full(error: OSError) -> str:
    """Where there was no room for what, and how much there is now that the half-written file is gone."""
    if error.filename is None:
        return "disk full; make room and run the same command again"
    path = Path(os.fsdecode(error.filename)).absolute()
    there = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(there).free
    quota = " (a quota)" if error.errno == errno.EDQUOT else ""
    return f"disk full at {path}{quota}, {free} bytes free; make room and run the same command again"
