"""A detector whose heads do what a test tells them, and tracks with one click each at a known time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from avfusion.config import Config
from avfusion.data.clips import Clip, Skipped
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.models.attention import MultiHeadCrossAttention
from avfusion.tracks import FaceTrack

MELS = 16

# Takes the times of the frames (T,), those of the keys (A,) and the log-mel (B, A, M); gives weights (B, T, A).
Head = Callable[[Tensor, Tensor, Tensor], Tensor]


class PlantedAttention(MultiHeadCrossAttention):
    """Heads that weigh as told; what they attend to are log-mel frames."""

    def __init__(self, heads: Sequence[Head]) -> None:
        super().__init__(MELS * len(heads), len(heads))
        self.heads = heads

    def forward(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        query_s, key_s = torch.arange(x.shape[1]) / 25, torch.arange(context.shape[1]) / 100
        sound = context[..., :MELS]
        weights = torch.stack([head(query_s, key_s, sound) for head in self.heads], dim=1)
        output = (weights @ sound[:, None]).transpose(1, 2).flatten(2)
        return self._answer(self.out(output), weights, need_weights)


class AsHeard(nn.Module):
    """An audio encoder that hands the log-mel on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.nn.functional.pad(log_mel, (0, self.width - log_mel.shape[-1]))


def planted_model(*heads: Head, window_s: float | None = 0.5) -> tuple[ActiveSpeakerDetector, Config]:
    config = Config()
    config.data.crop_size, config.data.num_mels = 16, MELS
    config.model.embed_dim, config.model.contrast_dim = MELS * len(heads), 8
    config.model.fusion.heads, config.model.fusion.window_s = len(heads), window_s
    config.model.visual.channels, config.model.audio.channels = [4, 8], [4]
    config.model.temporal.layers = 0
    torch.manual_seed(0)
    model = build_model(config.model, MELS)
    model.audio = AsHeard(MELS * len(heads))
    model.fusion[0].video_from_audio = PlantedAttention(heads)
    return model.eval(), config


def at(times_s: Tensor, key_s: Tensor) -> Tensor:
    """Weights ``(..., A)`` whose mean is at the given times ``(...)``: on the key there, or shared by two beside."""
    weights = (1 - (key_s - times_s[..., None]).abs() * 100).clamp(min=0)
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def positional(lag_ms: float) -> Head:
    """Attends to a fixed lag, whatever is heard there."""
    return lambda query_s, key_s, sound: at(query_s + lag_ms / 1000, key_s).expand(len(sound), -1, -1)


def content(query_s: Tensor, key_s: Tensor, sound: Tensor) -> Tensor:
    """Attends to the loudest sound, wherever it is."""
    loudest = key_s[sound.sum(dim=-1).argmax(dim=1)]
    return at(loudest[:, None].expand(-1, len(query_s)), key_s)


def undecided(query_s: Tensor, key_s: Tensor, sound: Tensor) -> Tensor:
    """A quarter of its attention on the loudest sound, three quarters at no lag."""
    return 0.25 * content(query_s, key_s, sound) + 0.75 * positional(0.0)(query_s, key_s, sound)


def nothing(query_s: Tensor, key_s: Tensor, sound: Tensor) -> Tensor:
    """All on the null key."""
    return torch.zeros(len(sound), len(query_s), len(key_s))


class Clicks:
    """Tracks that speak all the time, each with one click at ``clicks_s`` and a faint hiss."""

    name = "clicks"
    skipped = Skipped()

    def __init__(self, clicks_s: Sequence[float], num_frames: int = 60, hiss: float = 1e-4) -> None:
        self.clicks_s, self.num_frames, self.hiss = clicks_s, num_frames, hiss
        boxes = np.zeros((num_frames, 4), np.float32)
        self.tracks = [
            FaceTrack(f"v{k}", f"v{k}:0", 0.0, np.ones(num_frames, bool), boxes, f"v{k}", "solo")
            for k in range(len(clicks_s))
        ]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        count = self.num_frames - first_frame if num_frames is None else num_frames
        rng = np.random.default_rng(index)
        sound = self.hiss * rng.standard_normal(640 * self.num_frames).astype(np.float32)
        sound[round(16000 * self.clicks_s[index])] += 0.5
        crops = rng.integers(0, 256, (self.num_frames, 16, 16), dtype=np.uint8)
        frames, samples = (slice(n * first_frame, n * (first_frame + count)) for n in (1, 640))
        return Clip(crops[frames], sound[samples], self.tracks[index].speaking[frames])
