"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real clips and known faults, kept beside the repository (or named by AVFUSION_SHARED)."""
    folder = Path(os.environ.get("AVFUSION_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "cases").is_dir():
        message = f"no shared test data at {folder}: set AVFUSION_SHARED to the folder that holds cases/ and clips/"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder
