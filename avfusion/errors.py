"""Failures a user can cause, each told in one line: what was found, what was expected, where, and the next step.

Commands run their body through :func:`run_command`: an :class:`AvfusionError` becomes its one line on stderr and its
exit code (2 for usage and configuration, 1 for failed work); ``AVFUSION_DEBUG=1`` shows the traceback instead.
They read their arguments inside that body with a :class:`CommandParser`, so that a wrong command line is no exception.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn


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


def run_command(body: Callable[[], None]) -> int:
    """Runs a command and returns its exit code.

    Args:
        body: the command; it raises :class:`AvfusionError` when the user has to act.

    Returns:
        0, or the error's exit code (130 after Ctrl-C) with its one line printed to stderr.
    """
    try:
        body()
    except AvfusionError as error:
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        print(f"{error.prefix}{error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever read the output has gone (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (
        OSError,
        UnicodeError,
    ) as error:  # a full disk, a folder that may not be written, a name the terminal cannot show
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
        print(f"error: {where}{reason}; AVFUSION_DEBUG=1 shows where it happened", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        print("stopped by Ctrl-C", file=sys.stderr)
        return 130
    return 0
