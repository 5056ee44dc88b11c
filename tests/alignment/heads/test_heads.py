"""Heads with planted attention get exactly the figures that were planted."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.alignment.capture import AlignedClip, align_tracks
from avfusion.alignment.heads.collect import HeadStatistics, collect_heads
from avfusion.alignment.reach import KeyReach
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.ranking import Ranking
from tests.alignment.test_capture import CPU, setup, small

WINDOW_S = 0.5
AROUND = np.arange(-50, 51)  # lags in the window, 10 ms each
RIDGE = {60: 0.25, 80: 0.5, 100: 0.25}  # ms: lag 80 ms, variance (400 + 400) / 4 = 200 ms²
Floats = NDArray[np.float64]


def head(shares: dict[int, float]) -> Floats:
    """``(101,)`` a head that puts these shares on these lags in ms."""
    weights = np.zeros(len(AROUND))
    for lag_ms, share in shares.items():
        weights[lag_ms // 10 + 50] = share
    return weights


UNIFORM = np.full(101, 1 / 101)


def planted(
    heads: list[Floats],
    heard: list[float],
    speaking: list[bool],
    *,
    norms: Floats | None = None,
    first_frame: int = 0,
    track: int = 0,
) -> AlignedClip:
    """One layer whose heads put ``heard[t]`` of frame t's attention on the sound, at the same lags in all frames.

    Frames stand inside a longer sound, so every frame reaches its whole window.
    """
    frames, keys = len(speaking), 4 * len(speaking) + 100
    weights = np.zeros((1, len(heads), frames, keys), np.float32)
    for t in range(frames):
        for h, shares in enumerate(heads):
            weights[0, h, t, 4 * t : 4 * t + 101] = heard[t] * shares
    return AlignedClip(
        track=track,
        first_frame=first_frame,
        weights=weights,
        value_norms=np.ones((1, len(heads), keys), np.float32) if norms is None else norms.astype(np.float32),
        head_outputs=None,
        scores=np.zeros(frames, np.float32),
        speaking=np.array(speaking),
        query_s=(first_frame + np.arange(frames)) / 25,
        key_s=(first_frame * 4 + np.arange(keys) - 50) / 100,
    )


def statistics(*clips: AlignedClip, window_s: float | None = WINDOW_S) -> HeadStatistics:
    collected = HeadStatistics(KeyReach.within(window_s))
    for number, clip in enumerate(clips):
        collected.add(clip, f"g{number:03}", "solo")
    return collected


def test_known_lag_width_null_mass_and_entropy_come_back() -> None:
    figures = statistics(planted([head(RIDGE)], [0.7] * 20 + [0.4] * 10, [True] * 20 + [False] * 10)).figures(0)
    spoken, silent = figures.speaking, figures.silent
    assert spoken is not None
    assert silent is not None
    assert (spoken.num_frames, silent.num_frames, spoken.num_groups) == (20, 10, 1)
    assert spoken.lag_ms[0, 0, 0] == pytest.approx(80.0, abs=1e-4)
    assert spoken.lag_iqr_ms[0, 0, 0] == pytest.approx(0.0, abs=1e-4)
    assert spoken.width_ms[0, 0, 0] == pytest.approx(np.sqrt(200.0), abs=1e-4)
    assert spoken.entropy[0, 0, 0] == pytest.approx(1.5 * np.log(2) / np.log(101), abs=1e-6)
    assert spoken.null_mass[0, 0, 0] == pytest.approx(0.3, abs=1e-6)
    assert silent.null_mass[0, 0, 0] == pytest.approx(0.6, abs=1e-6)
    assert spoken.heard[0, 0, 0] == 1.0
    # Of the lags within ±20 ms of 80: 60, 70 .. 100, five of 101 in the window; nine and 21 further out.
    for within, keys in ((20, 5), (40, 9), (100, 21)):
        assert spoken.mass_within[within][0, 0, 0] == pytest.approx(1.0)
        assert spoken.lift[within][0, 0, 0] == pytest.approx(101 / keys)
    assert np.isnan(spoken.lag_ms[0, 0, 1:]).all()  # one group gives no interval


def test_the_median_is_over_speaking_frames_and_mass_lies_around_it() -> None:
    # Lags of 0, 40 and 200 ms in 1, 3 and 2 speaking frames: the median is 40, quartiles 40 and 160.
    clips = [planted([head({lag: 1.0})], [1.0] * n, [True] * n) for lag, n in ((0, 1), (40, 3), (200, 2))]
    clips.append(planted([head({-300: 1.0})], [1.0] * 50, [False] * 50))
    spoken = statistics(*clips).figures(0).speaking
    assert spoken is not None
    assert spoken.lag_ms[0, 0, 0] == pytest.approx(40.0)
    assert spoken.lag_iqr_ms[0, 0, 0] == pytest.approx(120.0)
    assert spoken.mass_within[20][0, 0, 0] == pytest.approx(3 / 6)
    assert spoken.mass_within[40][0, 0, 0] == pytest.approx(4 / 6)
    assert spoken.lift[40][0, 0, 0] == pytest.approx(4 / 6 * 101 / 9)
    assert spoken.width_ms[0, 0, 0] == 0.0


def test_a_uniform_head_has_lift_1_and_entropy_1_at_the_edges_too() -> None:
    frames = 60
    lag_s = np.arange(4 * frames)[None] / 100 - np.arange(frames)[:, None] / 25
    reach = np.abs(lag_s) <= WINDOW_S + 0.001
    weights = (reach / reach.sum(axis=1, keepdims=True)).astype(np.float32)[None, None] * np.float32(0.5)
    clip = AlignedClip(
        0, 0, weights, np.ones((1, 1, 4 * frames), np.float32), None, np.zeros(frames, np.float32),
        np.ones(frames, bool), np.arange(frames) / 25, np.arange(4 * frames) / 100,
    )  # fmt: skip
    spoken = statistics(clip).figures(0).speaking
    assert spoken is not None
    assert spoken.entropy[0, 0, 0] == pytest.approx(1.0)
    for within in (20, 40, 100):
        assert spoken.lift[within][0, 0, 0] == pytest.approx(1.0)
        assert spoken.value_lift[within][0, 0, 0] == pytest.approx(1.0)
    assert spoken.width_ms[0, 0, 0] == pytest.approx(1000 * np.sqrt((101**2 - 1) / 12) / 100, rel=1e-3)


def test_equal_heads_diverge_by_0_and_disjoint_heads_by_ln_2() -> None:
    heads = [head(RIDGE), head(RIDGE), head({-200: 1.0}), head({80: 0.5, -200: 0.5})]
    figures = statistics(planted(heads, [0.6, 1.0], [True, False])).figures(0)
    js = figures.redundancy[0, :, :, 0]
    np.testing.assert_allclose(np.diag(js), 0.0)
    np.testing.assert_allclose(js, js.T)
    assert js[0, 1] == pytest.approx(0.0, abs=1e-7)
    assert js[0, 2] == pytest.approx(np.log(2))
    # P all on one key, Q half on it: M is 3/4 and 1/4, so H(M) - H(Q) / 2 = 2 ln 2 - 3/4 ln 3 - ln 2 / 2.
    assert js[2, 3] == pytest.approx(1.5 * np.log(2) - 0.75 * np.log(3))
    np.testing.assert_allclose(figures.nearest_head[0, :, 0], [0.0, 0.0, js[2, 3], min(js[3, :3])], atol=1e-7)


def test_a_head_alone_has_no_nearest_head() -> None:
    figures = statistics(planted([UNIFORM], [1.0], [True])).figures(0)
    assert np.isnan(figures.nearest_head).all()


def test_null_auroc_by_hand() -> None:
    # Null mass of the silent frames .9 .5 .2, of the speaking ones .5 .1: of six pairs four and a tie are in order.
    heard = [0.1, 0.5, 0.8, 0.5, 0.9]
    figures = statistics(planted([UNIFORM], heard, [False, False, False, True, True])).figures(0)
    assert figures.null_auroc[0, 0, 0] == pytest.approx(4.5 / 6)
    assert np.isnan(statistics(planted([UNIFORM], heard, [True] * 5)).figures(0).null_auroc).all()


def test_selectivity_by_hand() -> None:
    # Window of 40 ms: nine keys a frame. Frames 1 and 2 of six speak, so keys 4..11 are speech.
    frames = 6
    lag_s = np.arange(4 * frames)[None] / 100 - np.arange(frames)[:, None] / 25
    reach = np.abs(lag_s) < 0.045
    speech = np.zeros(4 * frames, bool)
    speech[4:12] = True
    weights = np.where(speech, 0.1, 0.02) * reach
    clip = AlignedClip(
        0, 0, weights[None, None].astype(np.float32), np.ones((1, 1, 24), np.float32), None, np.zeros(6, np.float32),
        speech[::4], np.arange(6) / 25, np.arange(24) / 100,
    )  # fmt: skip
    figures = statistics(clip, window_s=0.04).figures(0)
    assert figures.selectivity[0, 0, 0] == pytest.approx(np.log(5.0))
    # A head that attends evenly where it does selects nothing, however much it leaves to the null key.
    even = planted([UNIFORM], [0.5] * 40, [False] * 10 + [True] * 20 + [False] * 10)
    assert statistics(even).figures(0).selectivity[0, 0, 0] == pytest.approx(0.0, abs=1e-6)


def test_value_weighting_by_hand() -> None:
    # Half of the attention at 0 ms on a value three times as long as that of the other half at 100 ms: 3/4 and 1/4.
    norms = np.zeros((1, 2, 104))
    norms[0, 0, 50], norms[0, 0, 60] = 3.0, 1.0  # head 1 hears nothing that adds to the output
    spoken = statistics(planted([head({0: 0.5, 100: 0.5})] * 2, [0.8], [True], norms=norms)).figures(0).speaking
    assert spoken is not None
    np.testing.assert_allclose(spoken.lag_ms[0, :, 0], 50.0)
    np.testing.assert_allclose(spoken.width_ms[0, :, 0], 50.0)
    assert spoken.value_lag_ms[0, 0, 0] == pytest.approx(25.0)
    assert spoken.value_width_ms[0, 0, 0] == pytest.approx(np.sqrt(3 / 4 * 25**2 + 1 / 4 * 75**2))
    assert spoken.mass_within[40][0, 0, 0] == 0.0
    assert spoken.value_mass_within[40][0, 0, 0] == pytest.approx(0.75)  # -15..65 ms
    assert spoken.value_lift[40][0, 0, 0] == pytest.approx(0.75 * 101 / 8)
    assert spoken.value_mass_within[100][0, 0, 0] == pytest.approx(1.0)
    assert np.isnan(spoken.value_lag_ms[0, 1]).all()


def test_a_frame_that_hears_nothing_counts_for_the_null_mass_only() -> None:
    clip = planted([head(RIDGE)], [1.0, 0.0, 0.0005], [True] * 3)
    spoken = statistics(clip).figures(0).speaking
    assert spoken is not None
    assert spoken.heard[0, 0, 0] == pytest.approx(1 / 3)
    assert spoken.null_mass[0, 0, 0] == pytest.approx((0 + 1 + 0.9995) / 3)
    assert spoken.lag_ms[0, 0, 0] == pytest.approx(80.0, abs=1e-4)
    assert spoken.mass_within[20][0, 0, 0] == pytest.approx(1.0)
    assert spoken.lift[20][0, 0, 0] == pytest.approx(101 / 5)
    assert spoken.entropy[0, 0, 0] == pytest.approx(1.5 * np.log(2) / np.log(101), abs=1e-6)
    deaf = statistics(planted([head(RIDGE)], [0.0], [True])).figures(10)
    assert deaf.speaking is not None
    assert np.isnan(deaf.speaking.lag_ms).all()
    assert np.isnan(deaf.speaking.lift[20]).all()
    assert deaf.speaking.null_mass[0, 0, 0] == 1.0


def test_maps_are_means_of_the_attention_at_each_lag() -> None:
    figures = statistics(planted([head(RIDGE)], [0.8] * 4 + [0.2] * 4, [True] * 4 + [False] * 4)).figures(0)
    np.testing.assert_allclose(figures.map_lag_ms, AROUND * 10)
    np.testing.assert_allclose(figures.map_speaking[0, 0], 0.8 * head(RIDGE), atol=1e-7)
    np.testing.assert_allclose(figures.map_silent[0, 0], 0.2 * head(RIDGE), atol=1e-7)


def test_roles_and_off_screen_frames_are_kept_apart() -> None:
    collected = HeadStatistics(KeyReach.within(WINDOW_S))
    collected.add(planted([head(RIDGE)], [0.9] * 4, [True] * 4), "a", "solo")
    collected.add(planted([head({0: 1.0})], [0.5] * 4, [True, True, False, False]), "a", "turns")
    collected.add(planted([head({0: 1.0})], [0.1] * 4, [False] * 4), "b", "off_screen")
    collected.add(planted([head({0: 1.0})], [0.3] * 4, [False] * 4), "b", "still_face")
    figures = collected.figures(0)
    assert sorted(figures.roles) == ["off_screen", "solo", "still_face", "turns"]
    assert figures.roles["solo"].speaking.lag_ms[0, 0, 0] == pytest.approx(80.0, abs=1e-4)
    assert figures.roles["turns"].speaking.lag_ms[0, 0, 0] == pytest.approx(0.0, abs=1e-4)
    assert figures.roles["off_screen"].speaking is None
    assert figures.roles["off_screen"].silent.null_mass[0, 0, 0] == pytest.approx(0.9)
    assert figures.null_off_screen[0, 0, 0] == pytest.approx((0.9 + 0.7) / 2)
    assert figures.silent.null_mass[0, 0, 0] == pytest.approx((2 * 0.5 + 4 * 0.9 + 4 * 0.7) / 10)
    assert figures.measures()["lag_ms"][0, 0, 0] == pytest.approx(80.0, abs=1e-4)  # 4 frames at 80 ms, 2 at 0


def random_clips(seed: int, count: int, frames: int = 30) -> list[AlignedClip]:
    rng = np.random.default_rng(seed)
    clips = []
    for track in range(count):
        ridge = np.exp(-((AROUND * 10 - rng.normal(60, 40)) ** 2) / 2 / 50**2)
        heard, speaking = rng.random(frames), rng.random(frames) < 0.5
        norms = rng.random((1, 2, 4 * frames + 100))
        clips.append(planted([ridge / ridge.sum(), UNIFORM], list(heard), list(speaking), norms=norms, track=track))
    return clips


def test_intervals_are_those_of_a_bootstrap_frame_by_frame() -> None:
    clips = random_clips(0, 12)
    spoken = statistics(*clips).figures(1000)
    assert spoken.speaking is not None
    group = np.repeat(np.arange(12), 30)
    speaking = np.concatenate([clip.speaking for clip in clips])
    null = 1 - np.concatenate([clip.weights[0, 0].sum(-1) for clip in clips]).astype(float)

    def mean_null(weights: Floats) -> float:
        return float(np.average(null[speaking], weights=weights))

    def auroc(weights: Floats) -> float:
        return Ranking(~speaking, null).auroc(weights)

    lags = np.concatenate([(c.weights[0, 0] / c.weights[0, 0].sum(-1, keepdims=True)) @ c.key_s for c in clips])
    lags = 1000 * (lags - np.concatenate([clip.query_s for clip in clips]))[speaking]

    def median(weights: Floats) -> float:
        return float(np.median(np.repeat(lags, weights.astype(int))))

    for found, rows, statistic, slack in (
        (spoken.speaking.null_mass, speaking, mean_null, 1e-6),
        (spoken.null_auroc, np.ones(360, bool), auroc, 2e-3),
        (spoken.speaking.lag_ms, speaking, median, 2.0),
    ):
        value, low, high = found[0, 0]
        assert value == pytest.approx(statistic(np.ones(rows.sum())), abs=1e-4)
        assert (low, high) == pytest.approx(bootstrap_interval(group[rows], statistic, 1000), abs=slack)
        assert high - low > 3 * slack


def same(one: object, other: object, tolerance: float = 1e-6) -> None:
    for name, value in vars(one).items():
        against = vars(other)[name]
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(value, against, rtol=1e-5, atol=tolerance, err_msg=name)
        elif isinstance(value, dict):
            assert value.keys() == against.keys()
            same(*(type("Entries", (), {})() if not d else _entries(d) for d in (value, against)), tolerance)
        elif hasattr(value, "__dict__"):
            same(value, against, tolerance)
        else:
            assert value == against, name


class _entries:  # noqa: N801
    def __init__(self, entries: dict[object, object]) -> None:
        vars(self).update({str(key): value for key, value in entries.items()})


def test_order_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clips = random_clips(1, 6)
    figures = statistics(*clips).figures(50)
    monkeypatch.setattr("avfusion.alignment.heads.lag_frames.BLOCK_WEIGHTS", 7 * 2 * 101)
    collected = HeadStatistics(KeyReach.within(WINDOW_S))
    for number in (3, 0, 5, 1, 4, 2):
        collected.add(clips[number], f"g{number:03}", "solo")
    same(figures, collected.figures(50), 1e-4)


@pytest.mark.parametrize("window_s", [0.2, None])
def test_stretches_and_company_give_the_figures_of_the_whole(window_s: float | None) -> None:
    config = small()
    config.model.fusion.window_s = window_s
    model, examples, config = setup([100, 31, 60], config)
    together = collect_heads(model, examples, config, CPU).figures(20)
    apart = HeadStatistics(KeyReach.within(window_s))
    for track in range(3):  # each alone in its batch, the long ones in stretches
        for clip in align_tracks(model, examples, config, CPU, [track], chunk_frames=32):
            apart.add(clip, f"v{track}", "own_sound")
    same(together, apart.figures(20), 2e-3)
    assert together.speaking is not None
    assert together.speaking.num_frames == 34 + 11 + 20


def test_tracks_without_labels_are_left_out() -> None:
    model, examples, config = setup([20, 20])
    examples.dataset.tracks[1] = replace(examples.dataset.tracks[1], labelled=False)
    figures = collect_heads(model, examples, config, CPU).figures(0)
    assert figures.speaking.num_frames + figures.silent.num_frames == 20


def test_memory_does_not_hold_the_clips() -> None:
    collected, clips = HeadStatistics(KeyReach.within(WINDOW_S)), random_clips(2, 4, frames=100)
    for clip in clips:
        collected.add(clip, f"g{clip.track}", "solo")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            for clip in clips:
                collected.add(clip, f"g{clip.track}", "solo")
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    numbers = 24 * 10 * 4 * 100 * 2  # six float32 for each of the frames and two heads
    assert numbers <= grown < 1.3 * numbers
    assert grown < 10 * sum(clip.weights.nbytes for clip in clips) / 50


def test_wrong_clips_are_named() -> None:
    with pytest.raises(ValueError, match="no clip was added"):
        HeadStatistics(KeyReach.within(WINDOW_S)).figures()
    collected = statistics(planted([UNIFORM], [1.0], [True]))
    with pytest.raises(ValueError, match=r"\(1, 2\), expected \(1, 1\)"):
        collected.add(planted([UNIFORM, UNIFORM], [1.0], [True]), "a", "solo")
    with pytest.raises(ValueError, match=r"lies beyond -0\.2\.\.0\.2 s"):
        HeadStatistics(KeyReach.within(0.2)).add(planted([UNIFORM], [1.0], [True]), "a", "solo")


def test_without_a_window_masses_beyond_the_kept_lags_are_not_known() -> None:
    late = planted([head({450: 1.0}), head({80: 1.0})], [1.0] * 5, [True] * 5)
    spoken = statistics(late, window_s=None).figures(0).speaking
    assert spoken is not None
    np.testing.assert_allclose(spoken.lag_ms[0, :, 0], [450.0, 80.0], atol=1e-3)
    assert spoken.mass_within[40][0, 0, 0] == pytest.approx(1.0)
    assert np.isnan(spoken.mass_within[100][0, 0, 0])  # 350..550 ms
    assert spoken.mass_within[100][0, 1, 0] == pytest.approx(1.0)


def test_all_figures_of_520_scenes_and_their_intervals_take_seconds() -> None:
    collected = HeadStatistics(KeyReach.within(WINDOW_S))
    rng = np.random.default_rng(0)
    heads = [head(RIDGE), UNIFORM, head({-40: 0.6, 0: 0.4}), head({300: 1.0})]
    for number in range(520):
        speaking = list(rng.random(75) < 0.3)
        collected.add(planted(heads, list(rng.random(75)), speaking), f"g{number}", f"r{number % 15}")
    began = time.process_time()  # of this process: other programs do not count
    figures = collected.figures(1000)
    assert time.process_time() - began < 15  # about 3 s
    assert np.isfinite(figures.speaking.lag_ms[0, 0]).all()


@pytest.mark.parametrize("window_s", [0.125, 0.128, 0.206, 0.255, 0.336])
def test_equal_weights_have_lift_one_in_windows_off_the_grid(window_s: float) -> None:
    each_side = int((window_s + 1e-6) * 100)  # what the model keeps
    equal = np.where(np.abs(AROUND) <= each_side, 1 / (2 * each_side + 1), 0.0)
    found = statistics(planted([equal], [1.0] * 5, [True] * 5), window_s=window_s).figures(0).speaking
    assert found is not None
    assert found.entropy[0, 0, 0] == pytest.approx(1.0)
    assert found.lift[100][0, 0, 0] == pytest.approx(1.0)


def test_a_model_without_a_null_key_has_no_figures_of_it() -> None:
    collected = HeadStatistics(KeyReach.within(WINDOW_S), null_key=False)
    for group in ("a", "b"):
        collected.add(planted([head(RIDGE)], [1 - 1e-7, 1.0] * 5, [True, False] * 5), group, "off_screen")
    found = collected.figures(50)
    measures = found.measures()
    for name in ("null_speaking", "null_silent", "null_off_screen", "null_auroc"):
        assert np.isnan(measures[name]).all(), name
    of_role = found.roles["off_screen"]
    assert of_role.speaking is not None
    assert np.isnan(of_role.speaking.null_mass).all()
    assert np.isnan(of_role.null_auroc).all()
    assert measures["lag_ms"][0, 0, 0] == pytest.approx(80.0, abs=1e-4)
