"""A trained model at work: on a whole video file, and on a stream of pictures and sound as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from avfusion.inference.streaming import FaceScore, Latency, Stream

__all__ = ["FaceScore", "Latency", "Stream"]


def __getattr__(name: str) -> Any:
    """Loads streaming, and torch with it, when it is asked for: ``--help`` and a wrong command line need neither."""
    if name in __all__:
        from avfusion.inference import streaming

        return getattr(streaming, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
