"""Names the reason when a media file cannot be written: a full disk is not the fault of the film being converted.

libsndfile tells no more than "System error", and nothing where its last bytes found no room; PyAV at times only that
its callback failed. The system is asked again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROBE_BYTES = 1 << 20  # more than what the libraries write at a time


@contextmanager
def telling_why(path: Path) -> Iterator[None]:
    """Writes a file inside; to be left before what was written so far is removed, else the disk is full no more.

    Args:
        path: the file, whose folder is there.

    Raises:
        OSError: it cannot be written; with the system's number and the file's name.
    """
    import av
    import soundfile

    try:
        yield
    except (OSError, soundfile.SoundFileRuntimeError, av.error.PyAVCallbackError) as error:
        if isinstance(error, OSError) and error.errno in errno.errorcode:
            if error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise _asked_again(path, str(error)) from error


def check_sound_end(path: Path, num_samples: int) -> None:
    """Reads the last sample of a file just closed: its last bytes may have found no room without a word.

    Raises:
        OSError: it is not there.
    """
    import soundfile

    if num_samples == 0:
        return
    try:
        with soundfile.SoundFile(os.fsencode(path)) as file:
            file.seek(num_samples - 1)
            whole = len(file) == num_samples and len(file.read(1)) == 1
    except soundfile.SoundFileRuntimeError:
        whole = False
    if not whole:
        raise _asked_again(path, "its end is missing")


def _asked_again(path: Path, told: str) -> OSError:
    """What the system says when a little more is written beside the file."""
    probe = path.with_name(f"{path.name}.probe.part")
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
    except OSError as error:
        return OSError(error.errno, error.strerror, str(path))
    finally:
        probe.unlink(missing_ok=True)
    return OSError(errno.EIO, f"cannot be written ({told})", str(path))
