"""avfusion: audio-visual cross-attention fusion for active speaker detection."""

__version__ = "0.1.0"
