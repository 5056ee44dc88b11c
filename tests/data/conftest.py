"""Fixtures of the data tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from avfusion.config import AugmentConfig


@pytest.fixture
def only() -> Callable[..., AugmentConfig]:
    """Makes settings in which nothing is on but what is given."""
    off = {"flip": 0, "shift": 0, "zoom": 0, "brightness": 0, "noise": 0, "gain_db": 0, "eq_db": 0, "audio_noise": 0}

    def make(**strengths: object) -> AugmentConfig:
        return AugmentConfig(**(off | strengths))  # type: ignore[arg-type]

    return make
