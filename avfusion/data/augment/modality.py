"""Whole streams left out: digital silence, or a grey picture, through the whole clip. By option, off by default.

Labels stay as they are: a clip without sound still says when its face spoke, one without picture when somebody whose
mouth is not seen did. What that teaches is told in docs/augmentation.md.
"""

from __future__ import annotations

from avfusion.config import AugmentConfig
from avfusion.data.augment.draws import Draws

NO_PICTURE_LEVEL = 0.5  # between black and white


def dropped_stream(config: AugmentConfig, draws: Draws) -> str | None:
    """Draws which stream of a clip is left out, never both: one number decides.

    Args:
        config: its ``drop_audio`` and ``drop_video`` are probabilities and add up to at most 1.
        draws: source of the draw; with both at 0 nothing is drawn.

    Returns:
        ``audio``, ``video`` or None.
    """
    if not (config.drop_audio or config.drop_video):
        return None
    number = draws.of("drop").random()
    if number < config.drop_audio:
        return "audio"
    return "video" if number < config.drop_audio + config.drop_video else None
