"""The espeak-ng library, set up to hand back sound and the times of its phones instead of playing them.

It is loaded when something is first said, and has one state per process, which a lock guards and a fork renews.
Shapes: ``n`` samples at 22,050 Hz. Source: the interface of espeak-ng 1.51, ``speak_lib.h``.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import locale
import os
import tempfile
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError, UsageError

NATIVE_RATE = 22_050
"""Samples a second of the library: 441 of them are 320 of ours."""

_SYNCHRONOUS, _PHONEME_EVENTS, _DONT_EXIT = 2, 0x1, 0x8000  # no thread of its own speaks: works after a fork
_UTF8, _PHONEME_INPUT = 0x1, 0x100
_LIST_END, _PHONEME_EVENT = 0, 7
_RATE, _VOLUME = 1, 2
_ABSENT = (
    "voices of espeak-ng are asked for but its library is not found, expected libespeak-ng: install it (Debian: apt"
    " install libespeak-ng1; macOS: brew install espeak-ng) or name its file in AVFUSION_ESPEAK"
)


class _Event(ctypes.Structure):
    """``espeak_EVENT``; the union at its end is read as the name of a phone."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position_ms", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)  # samples, how many, events
_lock = threading.Lock()  # the library has one state per process


def _renew_lock() -> None:
    """A forked process must not wait for a thread of its parent."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _load() -> ctypes.CDLL | None:
    """The library, or None if there is none."""
    named = os.environ.get("AVFUSION_ESPEAK")
    for name in (
        [named] if named else ["libespeak-ng.so.1", "libespeak-ng.dylib", ctypes.util.find_library("espeak-ng")]
    ):
        try:
            if name:
                return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def find_espeak() -> bool:
    """Whether the espeak-ng library can be loaded."""
    return _load() is not None


def require_espeak() -> None:
    """Makes sure that the library is there.

    Raises:
        UsageError: it is not.
    """
    if not find_espeak():
        raise UsageError(_ABSENT)


class _Synthesizer:
    """The library, set up to hand back sound and phones instead of playing them."""

    def __init__(self) -> None:
        library = _load()
        if library is None:
            raise UsageError(_ABSENT)
        self._library = library
        locale_before = locale.setlocale(locale.LC_CTYPE)  # the library sets its own
        rate = library.espeak_Initialize(_SYNCHRONOUS, 0, None, _PHONEME_EVENTS | _DONT_EXIT)
        locale.setlocale(locale.LC_CTYPE, locale_before)
        if rate != NATIVE_RATE:
            raise AvfusionError(
                f"espeak-ng starts with {rate}, expected {NATIVE_RATE} Hz: its data are missing or unknown, "
                "install espeak-ng-data"
            )
        library.espeak_Synth.argtypes = [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_uint,
            ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        self._parts: list[NDArray[np.int16]] = []
        self._phones: list[tuple[str, int]] = []
        self._callback = _Callback(self._collect)  # kept alive as long as the library may call it
        library.espeak_SetSynthCallback(self._callback)

    def _collect(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        number = 0
        while events[number].type != _LIST_END:
            if events[number].type == _PHONEME_EVENT:
                self._phones.append((events[number].name.decode("utf-8", "replace"), events[number].sample))
            number += 1
        return 0  # go on

    def say(self, text: str, voice: str, rate: int) -> tuple[NDArray[np.int16], list[tuple[str, int]]]:
        """Speaks one phrase.

        Args:
            text: words, phones in ``[[ ]]``.
            voice: contents of a voice file.
            rate: speed in the library's words a minute.

        Returns:
            ``(n,)`` samples, and the names of the phones with the samples they start at.
        """
        encoded = text.encode()
        self._parts, self._phones = [], []
        with tempfile.TemporaryFile() as file:
            file.write(voice.encode())
            file.flush()
            file.seek(0)
            # The library cuts paths after 59 letters; this one is short wherever the file lies.
            wrong = self._library.espeak_SetVoiceByFile(f"/dev/fd/{file.fileno()}".encode())
        self._library.espeak_SetParameter(_RATE, rate, 0)
        self._library.espeak_SetParameter(_VOLUME, 50, 0)  # louder phrases would reach its limiter, which has a memory
        wrong = wrong or self._library.espeak_Synth(
            encoded, len(encoded) + 1, 0, 0, 0, _UTF8 | _PHONEME_INPUT, None, None
        )
        if wrong or not self._parts or not self._phones:
            raise AvfusionError(
                f"espeak-ng does not say {text!r} (status {wrong}), expected speech: check the library with `espeak-ng "
                "test`, or ask for no voices of it"
            )
        return np.concatenate(self._parts), self._phones


@functools.cache
def _synthesizer() -> _Synthesizer:
    return _Synthesizer()


def say(text: str, voice: str, rate: int) -> tuple[NDArray[np.int16], list[tuple[str, int]]]:
    """Speaks one phrase, with the library to itself; see ``_Synthesizer.say``.

    Raises:
        UsageError: the library is not installed.
        AvfusionError: it does not speak.
    """
    with _lock:
        return _synthesizer().say(text, voice, rate)
