"""ResNet-18 as torchvision learnt it on ImageNet, to start the picture's encoder from.

Grey has three equal colours: the stem's kernels are summed over them, into the frame itself; the frames before and
after begin at zero. So at first each frame is seen as torchvision's network would see it. The statistics of its batch
norms come along and stay. What comes after the convolutions is torchvision's own and left out.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from urllib.error import URLError

import torch
from torch import Tensor, nn

from avfusion.errors import AvfusionError, one_line
from avfusion.models.visual_resnet import STEM_FRAMES, ResNetEncoder

TRUNK = ("stem.", "stages.")
# No network, no room, a download cut short or of a wrong checksum (RuntimeError).
FETCH_FAULTS = (OSError, HTTPException, RuntimeError, ValueError)
LOOKED_AT_BYTES = 512


def load_imagenet(model: nn.Module) -> None:
    """Gives the ResNet encoder in ``model``, with fixed statistics, the weights of ImageNet; all else stays.

    Raises:
        AvfusionError: as :func:`fetch_imagenet`.
    """
    weights = fetch_imagenet()
    for module in model.modules():
        if isinstance(module, ResNetEncoder):
            kept = {key: value for key, value in module.state_dict().items() if not key.startswith(TRUNK)}
            module.load_state_dict(kept | from_torchvision(weights, STEM_FRAMES - 1 - module.stem_ahead))


def fetch_imagenet() -> dict[str, Tensor]:
    """Torchvision's ResNet-18 up to its classifier, from torch's cache of downloads or the network.

    Raises:
        AvfusionError: they cannot be fetched, or what lies in the cache is something else; says from where, where to
            put them by hand, and how to go on without.
    """
    from torchvision.models import ResNet18_Weights

    url = ResNet18_Weights.IMAGENET1K_V1.url
    path = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    without = "or start without: --model.visual.weights=null"
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(path), hash_prefix=path.stem.rpartition("-")[2])
        except FETCH_FAULTS as error:
            reason = error.reason if isinstance(error, URLError) else one_line(str(error))
            raise AvfusionError(
                f"model.visual.weights=imagenet: {url} cannot be had ({reason}); put that file into {path.parent} by"
                f" hand, {without}"
            ) from error
    try:
        return _checked(_read(path))
    except ValueError as error:
        raise AvfusionError(
            f"model.visual.weights=imagenet: {path} {one_line(str(error))}, expected torchvision's ResNet-18; take it"
            f" away and it is fetched from {url}, {without}"
        ) from error


def _read(path: Path) -> Any:
    """What torch finds in a file; no code in it is run.

    Raises:
        ValueError: it is no such file; says what it is.
    """
    if path.is_dir():
        raise ValueError("is a folder")
    try:
        with path.open("rb") as file:
            head = file.read(LOOKED_AT_BYTES)
        if not head:
            raise ValueError("is empty")
        is_archive = zipfile.is_zipfile(path)
        if is_archive:  # as torch writes it: with a checksum of every tensor
            with zipfile.ZipFile(path) as archive:
                if archive.testzip() is not None:
                    raise zipfile.BadZipFile
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own guesses at what a foreign file might be
            return torch.load(path, map_location="cpu", weights_only=True)
    except ValueError:
        raise
    except OSError as error:
        raise ValueError(f"cannot be opened ({error.strerror or error})") from error
    except Exception as error:  # torch and zipfile raise many kinds for a foreign or damaged file
        if head.startswith(b"PK"):
            whole = is_archive and isinstance(error, UnpicklingError)
            raise ValueError("holds other objects than tensors" if whole else "is damaged or cut short") from error
        raise ValueError(f"is {'text' if _is_text(head) else 'no file of weights, or cut short'}") from error


def _is_text(head: bytes) -> bool:
    return all(byte >= 32 or byte in b"\t\r\n\f" for byte in head)


def _checked(found: Any) -> dict[str, Tensor]:
    """What is taken of torchvision's ResNet-18.

    Raises:
        ValueError: it is something else; names the first weight that differs.
    """
    from torchvision.models import resnet18

    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"holds {type(found).__name__} and not weights by name")
    with torch.device("meta"):
        expected = {key: tuple(value.shape) for key, value in resnet18().state_dict().items() if _is_taken(key)}
    weights = {key: value for key, value in found.items() if _is_taken(key)}
    for key in sorted(expected.keys() - weights.keys()):
        raise ValueError(f"lacks {key}")
    for key in sorted(weights.keys() - expected.keys()):
        raise ValueError(f"holds {key}, which is no weight of it")
    for key, value in weights.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or not value.is_floating_point():
            raise ValueError(f"holds {key} that is no tensor of decimal numbers")
        if tuple(value.shape) != expected[key]:
            raise ValueError(f"holds {key} of shape {tuple(value.shape)} instead of {expected[key]}")
        if value.is_meta or not value.isfinite().all():
            raise ValueError(f"holds {key} with numbers that are missing or infinite")
    return weights


def _is_taken(key: str) -> bool:
    """Torchvision's classifier, and how many batches its norms have seen, are left where they are."""
    return not (key.startswith("fc.") or key.endswith("num_batches_tracked"))


def from_torchvision(weights: Mapping[str, Tensor], own: int = STEM_FRAMES // 2) -> dict[str, Tensor]:
    """Torchvision's names and shapes to those of :class:`ResNetEncoder`; ``own``: which of the stem's is the frame."""
    ours = {}
    for key, value in weights.items():
        if not _is_taken(key):
            continue
        if key == "conv1.weight":
            stem = value.new_zeros(len(value), STEM_FRAMES, *value.shape[2:])
            stem[:, own] = value.sum(dim=1)
            ours["stem.0.weight"] = stem
            continue
        key = re.sub(r"^bn1\.", "stem.1.", key)
        key = re.sub(r"^layer(\d)\.(\d)\.", lambda m: f"stages.{2 * int(m[1]) - 2 + int(m[2])}.", key)
        key = re.sub(r"\.conv(\d)\.", r".convolve\1.", key)
        key = re.sub(r"\.bn(\d)\.", r".norm\1.", key)
        ours[key.replace(".downsample.", ".skip.")] = value
    return ours
