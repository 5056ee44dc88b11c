"""Weights to hand out: the same numbers back, the same bytes again, and damage found."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from avfusion.errors import AvfusionError, UsageError
from avfusion.weights import read_weights, write_weights

WEIGHTS = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor(3), "c": torch.ones(4, dtype=torch.float16)}
ABOUT = {"facts": {"licence": "MIT", "talkers": ["é"]}, "number": 0.1}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "some.safetensors"
    write_weights(path, WEIGHTS, ABOUT)
    return path


def test_they_come_back_as_they_were(written: Path) -> None:
    weights, about = read_weights(written)
    assert about == ABOUT
    assert weights.keys() == WEIGHTS.keys()
    assert all(
        torch.equal(weights[name], WEIGHTS[name]) and weights[name].dtype == WEIGHTS[name].dtype for name in "abc"
    )


def test_the_same_weights_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    write_weights(other, dict(reversed(WEIGHTS.items())), dict(reversed(ABOUT.items())))
    assert other.read_bytes() == written.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.safetensors", "some.safetensors"]


def test_a_transposed_tensor_is_written_as_it_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    write_weights(path, {"b": WEIGHTS["b"].T}, {})
    assert torch.equal(read_weights(path)[0]["b"], WEIGHTS["b"].T)


def test_every_flipped_byte_is_found(written: Path) -> None:
    whole = written.read_bytes()
    for place in range(0, len(whole), 7):
        written.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(AvfusionError, match=r"some\.safetensors: (cannot be read as weights|expected weights)"):
            read_weights(written)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_cut_file_is_found(written: Path, kept: int) -> None:
    written.write_bytes(written.read_bytes()[:kept])
    with pytest.raises(AvfusionError, match="damaged or cut short"):
        read_weights(written)


def test_what_is_not_there_and_what_is_not_ours(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(UsageError, match="no file there"):
        read_weights(tmp_path / "none.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "theirs.safetensors")
    with pytest.raises(AvfusionError, match="expected weights of avfusion in format 1, found None"):
        read_weights(tmp_path / "theirs.safetensors")
