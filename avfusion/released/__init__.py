"""The weights that come with the package: ``small.safetensors``, read with its configuration and what is known of it.

What it was trained on, what it is worth and what it must not be used for: ``docs/model_card.md``.
Written by ``python -m avfusion.released.export``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from avfusion.errors import AvfusionError

if TYPE_CHECKING:
    from avfusion.config import Config
    from avfusion.models import ActiveSpeakerDetector

RELEASED = Path(__file__).parent / "small.safetensors"


def load_released() -> tuple[ActiveSpeakerDetector, Config, dict[str, Any]]:
    """Rebuilds the released model, in evaluation mode, on the CPU.

    Returns:
        The model, its configuration, and the facts about it: data, licences, talkers, commit, figures.

    Raises:
        AvfusionError: this installation has no such file, or it is damaged.
    """
    from avfusion.checkpoint import load_model

    path = require_released()
    try:
        model, config, content = load_model(path)
    except AvfusionError as error:
        raise AvfusionError(
            f"{error}; install avfusion again, or name another model: --checkpoint=RUN/checkpoints/best.pt"
        ) from error
    return model, config, content["facts"]


def require_released() -> Path:
    """The file of the released weights.

    Raises:
        AvfusionError: this installation has none.
    """
    if not RELEASED.is_file():
        raise AvfusionError(
            f"this installation has no released checkpoint (expected {RELEASED}); name a"
            " model of your own: --checkpoint=RUN/checkpoints/best.pt"
        )
    return RELEASED
