"""The detector and its parts. Importing this room needs torch and einops only (and the plain config dataclasses)."""

from avfusion.models.detector import ActiveSpeakerDetector, Detection, build_model, context_frames

__all__ = ["ActiveSpeakerDetector", "Detection", "build_model", "context_frames"]
