"""The films and annotations of a small AVA, and the dataset that is made of them, once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data_prep import mini_ava
from tests.data_prep.ava_command import extract
from tests.data_prep.mini_ava import MiniAva


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> MiniAva:
    return mini_ava.make_mini_ava(tmp_path_factory.mktemp("mini"))


@pytest.fixture(scope="session")
def made(mini: MiniAva, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "dataset"
    assert extract(mini, out) == 0
    return out
