"""A film that several faces see and hear, cut into pushes of any size, and small models to stream it through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.config import Config
from avfusion.data.clips import Clip
from avfusion.data.examples import Examples
from avfusion.inference import FaceScore, Stream
from avfusion.inference.streaming import Frame
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.scoring import score_tracks
from avfusion.tracks import FaceTrack

CPU = torch.device("cpu")
SIDE = 24
# Name, first frame, number of frames.
VISITS = {
    "one": [("a", 0, 70)],
    "two": [("a", 0, 90), ("b", 30, 37)],
    # One comes back under its name; two come at once; two leave at once; nobody is there for a while; one frame only.
    "three": [
        ("a", 2, 60), ("b", 10, 20), ("c", 10, 52), ("b", 40, 15), ("b", 75, 60), ("a", 80, 55), ("c", 100, 1),
    ],
}  # fmt: skip


class Film:
    """Random pixels and one sound, seen by several faces."""

    name = "film"

    def __init__(self, visits: list[tuple[str, int, int]], side: int = SIDE) -> None:
        self.visits = visits
        self.num_frames = max(start + count for _, start, count in visits)
        rng = np.random.default_rng(7)
        self.sound = (rng.standard_normal(640 * self.num_frames) * 0.1).astype(np.float32)
        self.crops = [rng.integers(0, 256, (count, side, side), dtype=np.uint8) for _, _, count in visits]
        self.tracks = [
            FaceTrack("v", f"v:{n}", start / 25, np.zeros(count, bool), np.zeros((count, 4), np.float32), "v", "own")
            for n, (_, start, count) in enumerate(visits)
        ]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        _, start, count = self.visits[index]
        last = count if num_frames is None else first_frame + num_frames
        sound = self.sound[640 * (start + first_frame) : 640 * (start + last)]
        return Clip(self.crops[index][first_frame:last], sound, np.zeros(last - first_frame, bool))

    def frames(self) -> list[Frame]:
        """The pictures of each frame, by name."""
        found: list[dict[str, NDArray[np.uint8]]] = [{} for _ in range(self.num_frames)]
        for (name, start, count), crops in zip(self.visits, self.crops, strict=True):
            for n in range(count):
                found[start + n][name] = crops[n]
        return list(found)


def small(lookahead: int | None, **changes: object) -> Config:
    """A small configuration; without a look-ahead it is not causal."""
    config = Config()
    config.data.crop_size, config.data.num_mels, config.data.cache_gb = 16, 20, 0.0
    config.data.region = [0.1, 0.2, 0.9, 1.0]
    model = config.model
    model.embed_dim, model.contrast_dim = 16, 8
    model.visual.channels, model.audio.channels = [4, 8], [4, 4]
    model.fusion.window_s, model.temporal.window_s, model.speaker.layers = 0.2, 0.24, 1
    model.causal, model.lookahead_frames = lookahead is not None, lookahead or 0
    for key, value in changes.items():
        *path, name = key.split("__")
        setattr(getattr(model, path[0]) if path else model, name, value)
    return config


def model_of(config: Config) -> ActiveSpeakerDetector:
    torch.manual_seed(0)
    model = build_model(config.model, config.data.num_mels).eval()
    for parameter in (model.head.weight, *(p for p in model.speaker.parameters() if p.ndim > 1)):
        torch.nn.init.normal_(parameter, std=0.5)  # they start near zero, where nothing would be seen
    return model


def pieces(film: Film, seed: int) -> Iterator[tuple[list[Frame], NDArray[np.float32]]]:
    """Pushes of any size: none, one sample, one frame, up to 3 s; picture and sound come apart."""
    rng = np.random.default_rng(seed)
    frames, sound = film.frames(), film.sound
    while frames or len(sound):
        num_frames = int(rng.choice([0, 1, 4, 20, rng.integers(76)]))
        num_samples = int(rng.choice([0, 1, 639, 700, 5000, rng.integers(48001)]))
        yield frames[:num_frames], sound[:num_samples]
        frames, sound = frames[num_frames:], sound[num_samples:]


def by_visit(film: Film, scores: list[FaceScore]) -> list[NDArray[np.float64]]:
    """The scores of each visit; each frame has one."""
    found = [np.full(count, np.nan) for _, _, count in film.visits]
    for score in scores:
        (visit,) = (
            n
            for n, (name, start, count) in enumerate(film.visits)
            if name == score.face and start <= score.frame < start + count
        )
        place = score.frame - film.visits[visit][1]
        assert np.isnan(found[visit][place]), "scored twice"
        found[visit][place] = score.score
    return found


def streamed(stream: Stream, film: Film, seed: int) -> list[NDArray[np.float64]]:
    scores = []
    for frames, sound in pieces(film, seed):
        scores += stream.push(frames, sound)
    return by_visit(film, scores + stream.finish())


def assert_streams_as_offline(config: Config, visits: list[tuple[str, int, int]], seeds: Iterable[int] = (0,)) -> None:
    """The scores of a film in pushes, drawn anew for each seed, are those of its finished tracks."""
    model, film = model_of(config), Film(visits)
    expected = score_tracks(model, Examples(film, config.data), config, CPU)
    for seed in seeds:
        for one, other in zip(streamed(Stream(model, config, CPU), film, seed), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5, err_msg=str(config.model))
