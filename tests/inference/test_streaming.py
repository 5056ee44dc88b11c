"""Streaming: cut however, scores are those of the finished tracks; the look-ahead is what it says; memory stays."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.data.examples import Examples
from avfusion.errors import AvfusionError
from avfusion.inference import Stream
from avfusion.scoring import score_tracks
from tests.inference.streams import CPU, SIDE, VISITS, Film, by_visit, model_of, small, streamed


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
        ([{"a": crop.tolist()}], nothing, r"face 'a' is int64 of shape \(24, 24\), expected uint8"),
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


@pytest.mark.parametrize("shape", [(0, 0), (24, 0)])
def test_a_crop_without_a_pixel_is_refused_as_the_first_one_too(shape: tuple[int, int]) -> None:
    config = small(3)
    stream = Stream(model_of(config), config, CPU)
    sound = np.zeros(640 * 9, np.float32)
    with pytest.raises(
        AvfusionError, match=r"the crop of face 'a' is uint8 of shape .*, expected uint8 of \(Y, X\) with"
    ):
        stream.push([{"a": np.zeros(shape, np.uint8)}] * 9, sound)
    crop = np.ones((SIDE, SIDE), np.uint8)
    scores = stream.push([{"a": crop}] * 9, sound) + stream.finish()
    assert [score.frame for score in scores] == list(range(9))  # nothing of what was refused was taken
