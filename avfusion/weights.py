"""Weights in one safetensors file: tensors, and in its header whatever rebuilds and explains the model.

No code in such a file can run, which is why weights are handed out as one. The header holds one text under
``avfusion``: JSON with the format, what is told about the weights, and the SHA-256 of all of it, which the format
itself does not have; so a flipped bit is found here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from avfusion.errors import AvfusionError, UsageError
from avfusion.files import whole_file

SUFFIX = ".safetensors"
FORMAT = 1
_HEADER = "avfusion"


def write_weights(path: Path, weights: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Writes weights; the same ones give the same bytes.

    Args:
        path: ends in ``.safetensors``.
        weights: by name, on any device.
        about: what JSON can hold.
    """
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    text = json.dumps(about, sort_keys=True, allow_nan=False)
    header = {"format": FORMAT, "sha256": _digest(plain, text), "about": json.loads(text)}
    content = save(plain, metadata={_HEADER: json.dumps(header, sort_keys=True)})
    with whole_file(path) as part:
        part.write_bytes(content)


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads weights and what is told about them.

    Raises:
        UsageError: there is no such file.
        AvfusionError: it is damaged, or no weights of this package.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UsageError(f"{path}: no file there; expected weights ({SUFFIX})")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_HEADER)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = None if text is None else json.loads(text)
    except (SafetensorError, ValueError) as error:
        raise AvfusionError(f"{path}: cannot be read as weights ({_told(error)}: damaged or cut short)") from error
    except OSError as error:
        raise AvfusionError(f"{path}: cannot be opened ({error.strerror or error})") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise AvfusionError(f"{path}: expected weights of avfusion in format {FORMAT}, found {found!r} in its header")
    about = header.get("about")
    if not isinstance(about, dict) or header.get("sha256") != _digest(weights, json.dumps(about, sort_keys=True)):
        raise AvfusionError(f"{path}: cannot be read as weights (its checksum is another: damaged)")
    return weights, about


def _told(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _digest(weights: Mapping[str, Tensor], about: str) -> str:
    """The SHA-256 of names, types, shapes and values, and of the text."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
