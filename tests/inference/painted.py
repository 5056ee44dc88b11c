"""Films of painted faces, a detector that finds them, and models whose scores can be worked out by hand.

A face is a red square before a textured wall; it may flash. Sound is a quiet noise with a tone where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from avfusion.checkpoint import save_checkpoint
from avfusion.config import Config
from avfusion.faces.detect import Detector
from avfusion.faces.track_records import DETECTED, DetectedTrack, TrackReport
from avfusion.inference.pipeline import FaceFinder
from avfusion.inference.trained import TrainedModel
from avfusion.media.source import probe
from avfusion.models import build_model
from avfusion.tracks import runs_of_true

HEIGHT, WIDTH, SIDE = 96, 160, 32
RED, FLASHING = (200, 40, 40), (250, 120, 120)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Face:
    """A painted face.

    Attributes:
        left: edge in pixels.
        first: frame.
        last: one past the last frame; None to the film's end.
        flashes: whether it is bright in a frame.
    """

    left: int
    first: int = 0
    last: int | None = None
    flashes: Callable[[int], bool] = lambda frame: False


def write_film(
    path: Path,
    faces: Sequence[Face],
    num_frames: int = 40,
    sound_s: float | None = None,
    tone: tuple[int, int] = (0, 0),
    rate: int = 25,
) -> Path:
    """Writes a film; what happens in it is told in frames of 25 a second, whatever its rate.

    Args:
        path: an ``.mp4``.
        faces: who is in it.
        num_frames: its length.
        sound_s: length of the sound; None: as long as the picture, 0: no sound stream.
        tone: first frame, and first behind, of a loud tone.
        rate: pictures a second.
    """
    import av

    wall = np.kron(np.random.default_rng(0).integers(60, 180, (HEIGHT // 16, WIDTH // 16, 1)), np.ones((16, 16, 1)))
    wall = np.repeat(wall, 3, axis=2).astype(np.uint8)
    length_s = num_frames / 25 if sound_s is None else sound_s
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=rate, options={"crf": "10", "preset": "ultrafast"})
        video.height, video.width, video.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        audio = container.add_stream("aac", rate=16_000, layout="mono") if length_s else None
        for index in range(num_frames * rate // 25):
            number, picture = index * 25 // rate, wall.copy()
            for face in faces:
                if face.first <= number < (num_frames if face.last is None else face.last):
                    color = FLASHING if face.flashes(number) else RED
                    picture[32 : 32 + SIDE, face.left : face.left + SIDE] = color
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, rate)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is not None:
            samples = _sound(round(16_000 * length_s), tone)
            for first in range(0, len(samples), 1024):
                block = av.AudioFrame.from_ndarray(samples[None, first : first + 1024], format="fltp", layout="mono")
                block.sample_rate, block.pts, block.time_base = 16_000, first, Fraction(1, 16_000)
                container.mux(audio.encode(block))
            container.mux(audio.encode(None))
    return path


def _sound(count: int, tone: tuple[int, int]) -> NDArray[np.float32]:
    times = np.arange(count)
    loud = (times >= 640 * tone[0]) & (times < 640 * tone[1])
    noise = 0.01 * np.random.default_rng(1).standard_normal(count)
    return (noise + np.where(loud, 0.4 * np.sin(2 * np.pi * 1000 / 16_000 * times), 0.0)).astype(np.float32)


class RedDetector:
    """Finds painted faces, each column of red a face."""

    name = "painted"
    longest_side_px = 480
    min_confidence = 0.4

    def __call__(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        red, green, blue = picture_rgb.astype(int).transpose(2, 0, 1)
        painted = (red > 150) & (red - green > 80) & (red - blue > 80)
        boxes = []
        for left, right in runs_of_true(painted.sum(axis=0) > SIDE // 2):
            rows = np.flatnonzero(painted[:, left:right].any(axis=1))
            boxes.append([left, rows[0], right, rows[-1] + 1, 0.9])
        return np.array(boxes, dtype=np.float32).reshape(-1, 5)


def one_face_throughout(
    video: Path, num_frames: int, detector: Detector, shortest_frames: int
) -> tuple[list[DetectedTrack], TrackReport]:
    """In place of finding faces: one in the lower half of every picture, where the films of the cases flash."""
    facts = probe(video)
    x, y, half = 0.5 * facts.width, 0.75 * facts.height, 0.15 * facts.height
    boxes = np.tile(np.array([x - half, y - half, x + half, y + half], dtype=np.float32), (num_frames, 1))
    seen = np.full(num_frames, DETECTED, dtype=np.uint8)
    track = DetectedTrack("face0", 0, 0, boxes, seen, np.ones(num_frames, dtype=np.float32))
    return [track], TrackReport(frames=num_frames, tracks=1, track_frames=num_frames)


PAINTED = FaceFinder(RedDetector())


class Watcher(nn.Module):
    """Says 'speaking' (logit 4) where a face is bright, else 'not' (-4)."""

    def forward(self, crops: Tensor, log_mel: Tensor, frame_mask: Tensor, audio_mask: Tensor) -> Any:
        bright = crops.mean(dim=(-1, -2)) > 0.5
        return _out(8.0 * bright.float() - 4.0)


class Listener(nn.Module):
    """Says 'speaking' where it is loud, for every face alike."""

    def forward(self, crops: Tensor, log_mel: Tensor, frame_mask: Tensor, audio_mask: Tensor) -> Any:
        level = log_mel.mean(dim=-1).unflatten(1, (-1, 4)).mean(dim=-1)  # of video frames
        loud = level > (level.amin(dim=1, keepdim=True) + level.amax(dim=1, keepdim=True)) / 2
        return _out((8.0 * loud.float() - 4.0)[:, None].expand(crops.shape[:3]))


def _out(logits: Tensor) -> Any:
    """Logits ``(B, F, T)``, and embeddings of which no sound is nearer to a picture than another."""
    return SimpleNamespace(
        logits=logits, video_embedding=torch.zeros(*logits.shape, 1), audio_embedding=torch.zeros(*logits.shape[::2], 1)
    )


def planted(model: nn.Module) -> TrainedModel:
    """A model of this file as the pipeline takes it."""
    return TrainedModel(model, small(), CPU, type(model).__name__, type(model).__name__)  # type: ignore[arg-type]


def small(**changes: object) -> Config:
    """A configuration of a model that scores in no time; changes as ``section__key`` of the model or of ``data``."""
    config = Config()
    config.data.crop_size, config.data.num_mels = 24, 20
    model = config.model
    model.embed_dim, model.contrast_dim = 16, 8
    model.visual.channels, model.audio.channels = [4, 8], [4, 4]
    model.fusion.window_s = model.temporal.window_s = 0.2
    for key, value in changes.items():
        *path, name = key.split("__")
        part: Any = config.data if path == ["data"] else model
        for step in path:
            part = part if step == "data" else getattr(part, step)
        setattr(part, name, value)
    return config


def untrained(config: Config | None = None) -> TrainedModel:
    """A model that has learnt nothing, with weights that make its scores differ."""
    config = config or small()
    torch.manual_seed(0)
    model = build_model(config.model, config.data.num_mels).eval()
    for parameter in (model.head.weight, *(p for p in model.speaker.parameters() if p.ndim > 1)):
        nn.init.normal_(parameter, std=0.5)  # they start near zero, where nothing would be seen
    return TrainedModel(model, config, CPU, "untrained", f"untrained {config}")


def save_untrained(path: Path, config: Config | None = None) -> Path:
    """The same as a checkpoint of train.py."""
    trained = untrained(config)
    save_checkpoint(path, trained.model, trained.config, {"progress": {"epoch": 1, "step": 1}})
    return path
