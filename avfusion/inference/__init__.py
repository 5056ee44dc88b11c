"""A trained model at work: on a stream of pictures and sound as they come."""

from avfusion.inference.streaming import FaceScore, Latency, Stream

__all__ = ["FaceScore", "Latency", "Stream"]
