"""ResNet-18 as torchvision learnt it on ImageNet, to start the picture's encoder from.

Grey has three equal colours: the stem's kernels are summed over them, into the frame itself; the frames before and
after begin at zero. So at first each frame is seen as torchvision's network would see it. The statistics of its batch
norms come along and stay. What comes after the convolutions is torchvision's own and left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from http.client import HTTPException
from pickle import UnpicklingError
from urllib.error import URLError

import torch
from torch import Tensor, nn

from avfusion.errors import AvfusionError, one_line
from avfusion.models.visual_resnet import STEM_FRAMES, ResNetEncoder

TRUNK = ("stem.", "stages.")
# No network, a download cut short, a wrong checksum (RuntimeError), a file put there that is something else.
FAULTS = (OSError, HTTPException, RuntimeError, EOFError, UnpicklingError, ValueError, AttributeError)


def load_imagenet(model: nn.Module) -> None:
    """Gives the ResNet encoder in ``model``, with fixed statistics, the weights of ImageNet; all else stays.

    Raises:
        AvfusionError: they cannot be fetched; says from where, where to put them by hand, and how to go on without.
    """
    weights = fetch_imagenet()
    for module in model.modules():
        if isinstance(module, ResNetEncoder):
            kept = {key: value for key, value in module.state_dict().items() if not key.startswith(TRUNK)}
            module.load_state_dict(kept | from_torchvision(weights, STEM_FRAMES - 1 - module.stem_ahead))


def fetch_imagenet() -> dict[str, Tensor]:
    """Torchvision's ResNet-18, from torch's cache of downloads or the network.

    Raises:
        AvfusionError: as :func:`load_imagenet`.
    """
    from torchvision.models import ResNet18_Weights

    url = ResNet18_Weights.IMAGENET1K_V1.url
    try:
        found: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            url, map_location="cpu", check_hash=True, weights_only=True
        )
        lacks = _trunk() - from_torchvision(found).keys()
        if lacks:
            raise ValueError(f"it lacks {min(lacks)}")
    except FAULTS as error:
        folder = os.path.join(torch.hub.get_dir(), "checkpoints")
        reason = error.reason if isinstance(error, URLError) else one_line(str(error))
        raise AvfusionError(
            f"model.visual.weights=imagenet: {url} cannot be had ({reason}); put that file into {folder} by hand, or"
            " start without: --model.visual.weights=null"
        ) from error
    return found


def _trunk() -> set[str]:
    """The names that are filled."""
    with torch.device("meta"):
        return {key for key in ResNetEncoder(8, fixed_statistics=True).state_dict() if key.startswith(TRUNK)}


def from_torchvision(weights: Mapping[str, Tensor], own: int = STEM_FRAMES // 2) -> dict[str, Tensor]:
    """Torchvision's names and shapes to those of :class:`ResNetEncoder`; ``own``: which of the stem's is the frame."""
    ours = {}
    for key, value in weights.items():
        if key.startswith("fc.") or key.endswith("num_batches_tracked"):
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
