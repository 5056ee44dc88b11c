"""Failures a user can cause, each told in one line: what was found, what was expected, where, and the next step.

Commands run their body through :func:`run_command`: an :class:`AvfusionError` becomes its one line on stderr and its
exit code (2 for usage and configuration, 1 for failed work); ``AVFUSION_DEBUG=1`` shows the traceback instead.
They read their arguments inside that body with a :class:`CommandParser`, so that a wrong command line is no exception.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
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
    except KeyboardInterrupt:
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        print("stopped by Ctrl-C", file=sys.stderr)
        return 130
    return 0
