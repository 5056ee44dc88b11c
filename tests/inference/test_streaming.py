"""Streaming: cut however, scores are those of the finished tracks; the look-ahead is what it says; memory stays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from avfusion.config import Config
from avfusion.data.clips import Clip
from avfusion.data.examples import Examples
from avfusion.errors import AvfusionError, UsageError
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
        num_frames = int(rng.choice([0, 1, 4, 20, 75]))
        num_samples = int(rng.choice([0, 1, 639, 700, 5000, 20000, 48000]))
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


@pytest.mark.parametrize("visits", VISITS.values(), ids=VISITS.keys())
@pytest.mark.parametrize("lookahead", [0, 3, 8, None])
def test_streamed_scores_are_those_of_the_finished_tracks(
    lookahead: int | None, visits: list[tuple[str, int, int]]
) -> None:
    config, film = small(lookahead), Film(visits)
    model = model_of(config)
    expected = score_tracks(model, Examples(film, config.data), config, CPU)
    assert np.ptp(expected[0]) > 0.05
    for seed in range(2):
        found = streamed(Stream(model, config, CPU), film, seed)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


VARIANTS: dict[str, dict[str, object]] = {
    "faces that do not know of each other": {"speaker__layers": 0},
    "two layers": {"fusion__layers": 2, "temporal__layers": 2, "speaker__layers": 2},
    "keys at 25 Hz": {"fusion__key_hz": 25},
    "no attention": {"fusion__kind": "concat"},
    "nothing over time": {"temporal__layers": 0},
    "sound only": {"modality": "audio"},
    "picture only": {"modality": "video"},
    "convolution first": {"temporal__order": "convolution_first", "temporal__kernel": 9},
    "wide encoders": {"audio__channels": [4, 4, 4], "audio__temporal_kernel": 15},
    "narrow encoders": {"audio__temporal_kernel": 1, "visual__temporal_kernel": 1},
}


@pytest.mark.parametrize("lookahead", [1, None])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_every_kind_of_model_streams(changes: dict[str, object], lookahead: int | None) -> None:
    config, film = small(lookahead, **changes), Film(VISITS["three"])
    model = model_of(config)
    expected = score_tracks(model, Examples(film, config.data), config, CPU)
    for one, other in zip(streamed(Stream(model, config, CPU), film, seed=5), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("lookahead", [0, 2, 5, 9, None])
def test_a_score_comes_as_many_frames_later_as_is_told(lookahead: int | None) -> None:
    """Frame by frame with its sound: the score of a frame comes with the frame so many later, and not before."""
    config, film = small(lookahead, fusion__window_s=0.5), Film([("a", 0, 40)])
    stream = Stream(model_of(config), config, CPU)
    came = {}
    for n, frame in enumerate(film.frames()):
        came.update({score.frame: n for score in stream.push([frame], film.sound[640 * n : 640 * (n + 1)])})
    assert came == {frame: frame + stream.ahead_frames for frame in range(40 - stream.ahead_frames)}
    if lookahead is not None:
        assert stream.ahead_frames == lookahead
    assert stream.latency().look_ahead_ms == 40 * stream.ahead_frames
    assert [score.frame for score in stream.finish()] == list(range(40 - stream.ahead_frames, 40))


def test_a_look_ahead_that_the_window_cannot_use_is_not_waited_for() -> None:
    config = small(25, fusion__window_s=0.2)
    assert Stream(model_of(config), config, CPU).ahead_frames < 10


def test_memory_stays_and_every_push_is_timed() -> None:
    """Faces change every 3 s; after the first nine seconds nothing grows."""
    config = small(3)
    stream = Stream(model_of(config), config, CPU)
    rng = np.random.default_rng(0)
    most = []
    for n in range(90):
        names = {0: ("a", "b"), 1: ("b", "c"), 2: ()}[n // 15 % 3]
        frames = [{name: rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8) for name in names} for _ in range(5)]
        stream.push(frames, rng.integers(-999, 999, 5 * 640).astype(np.int16))
        most.append(stream.num_bytes)
    assert max(most[45:]) <= max(most[:45])
    assert max(most) < 300_000
    assert len(stream._samples.rows) < 20
    latency = stream.latency()
    assert latency.pushes == 90
    assert 0 < latency.mean_ms < 1000
    assert latency.p95_ms > 0


def test_whole_numbers_are_the_same_sound() -> None:
    config, film = small(3), Film(VISITS["one"])
    model = model_of(config)
    whole = np.round(film.sound * 32768).astype(np.int16)
    scores = []
    for sound in (whole, whole.astype(np.float32) / 32768):
        stream = Stream(model, config, CPU)
        scores.append(by_visit(film, stream.push(film.frames(), sound) + stream.finish())[0])
    assert np.array_equal(*scores)


def test_sound_that_is_missing_at_the_end_is_silence() -> None:
    config, film = small(3), Film(VISITS["one"])
    model = model_of(config)
    film.sound[640 * 60 - 100 :] = 0
    expected = score_tracks(model, Examples(film, config.data), config, CPU)[0]
    stream = Stream(model, config, CPU)
    scores = stream.push(film.frames(), film.sound[: 640 * 60 - 100]) + stream.finish()
    np.testing.assert_allclose(by_visit(film, scores)[0], expected, rtol=0, atol=1e-5)


def test_what_cannot_be_taken_is_told_and_changes_nothing() -> None:
    config, film = small(3), Film(VISITS["two"])
    stream = Stream(model_of(config), config, CPU, max_faces=2)
    frames, sound = film.frames(), film.sound
    crop = frames[0]["a"]
    nothing = np.zeros(0, np.float32)
    scores = stream.push(frames[:40], sound[:20000])
    for bad_frames, bad_sound, message in (
        ([{"a": crop, "b": crop, "c": crop}], nothing, "a frame with 3 faces, expected at most max_faces 2"),
        ([{"a": crop[:9]}], nothing, r"face 'a' is uint8 of shape \(9, 24\), expected uint8 of \(24, 24\) as before"),
        ([{"a": crop / 255}], nothing, r"face 'a' is float64 of shape \(24, 24\), expected uint8"),
        ([], np.array([0.1, np.nan]), "sound holds NaN or infinity"),
        ([], np.zeros((2, 5)), r"sound is float64 of shape \(2, 5\), expected int16 or float of shape \(N,\)"),
        ([], np.zeros(640 * 790, np.float32), "sound 31.2 s ahead of the pictures, expected at most 30 s"),
    ):
        with pytest.raises(AvfusionError, match=message):
            stream.push(bad_frames, bad_sound)
    scores += stream.push(frames[40:], sound[20000:]) + stream.finish()
    expected = score_tracks(stream._model, Examples(film, config.data), config, CPU)
    for one, other in zip(by_visit(film, scores), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    with pytest.raises(AvfusionError, match="this stream was finished"):
        stream.push([], nothing)


@pytest.mark.parametrize("section", ["fusion", "temporal"])
def test_a_model_that_looks_over_whole_tracks_cannot_stream(section: str) -> None:
    config = small(None, **{f"{section}__window_s": None})
    with pytest.raises(UsageError, match="none of its scores is final before the end of a stream"):
        Stream(model_of(config), config, CPU)
