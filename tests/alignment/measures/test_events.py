"""Errors at true event times: of heads that know the lag of each face, of heads with one lag for all, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from avfusion.alignment.measures.events import at_times, event_error, events_of, lag_error
from avfusion.alignment.measures.lags import mean_lags_ms, peak_lags_ms
from avfusion.data.examples import Example, Examples
from avfusion.data.synthetic import SyntheticDataset
from tests.alignment.planted_attention import Clicks, at, nothing, planted_model, positional

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset() -> SyntheticDataset:
    return SyntheticDataset("val", 16, crop_size=24)


def knows(query_s: Tensor, key_s: Tensor, sound: Tensor) -> Tensor:
    """Attends at the lag in seconds that the test wrote into the first mel bin."""
    return at(query_s + sound[:, :1, 0], key_s)


def knows_half_the_time(query_s: Tensor, key_s: Tensor, sound: Tensor) -> Tensor:
    """The same, and hears nothing in odd frames."""
    return knows(query_s, key_s, sound) * (torch.arange(len(query_s)) % 2 == 0)[:, None]


def telling_the_lag(dataset: SyntheticDataset):
    def change(example: Example, track: int) -> Example:
        log_mel = example.log_mel.clone()
        log_mel[:, 0] = (dataset.tracks[track].lag_ms or 0.0) / 1000
        return replace(example, log_mel=log_mel)

    return change


@pytest.mark.parametrize("kind", ["bursts", "phones"])
def test_planted_heads_on_synthetic_scenes(dataset: SyntheticDataset, kind: str) -> None:
    model, config = planted_model(knows, positional(80), knows_half_the_time, nothing)
    examples = Examples(dataset, config.data)
    change = telling_the_lag(dataset)
    found = event_error(model, examples, config, CPU, kind=kind, change=change, resamples=100)
    assert found is not None
    true_ms = []
    for index, track in enumerate(dataset.tracks):
        events = events_of(dataset.truth(index), track, kind)
        if events is not None:
            true_ms += [track.lag_ms] * len(events.picture_s)
    lags = np.array(true_ms)
    assert found.num_events == len(lags) > 20
    assert found.num_heard[0, 3] == 0
    assert (found.num_heard[0, :3] == len(lags)).all()  # one of two neighbouring frames always hears something

    # At the end of a scene the lag of 80 ms falls between the last key and none: a few events are off by some ms.
    constant = np.abs(80 - lags)
    np.testing.assert_allclose(found.mean.mae_ms[0, 1, 0], constant.mean(), atol=0.1)
    for limit in (20, 40, 100):
        assert found.mean.within[limit][0, 1, 0] == pytest.approx((constant <= limit).mean(), abs=0.02)
        assert found.mean.within[limit][0, 0, 0] == pytest.approx(1.0, abs=0.02)
    assert found.mean.mae_ms[0, 0, 0] < 1.0
    assert found.mean.mae_ms[0, 2, 0] < 1.0
    assert found.peak.mae_ms[0, 0, 0] <= 5.0  # half a key
    assert np.isnan(found.mean.mae_ms[0, 3]).all()

    assert found.best_constant_mae_ms == pytest.approx(np.abs(lags - np.median(lags)).mean())
    assert found.mean.best_mae_ms[0, :3, 0] == pytest.approx(found.best_constant_mae_ms)
    # A head of one lag is no better than the best one.
    expected = found.best_constant_mae_ms - constant.mean()
    assert found.mean.gain_ms[0, 1, 0] == pytest.approx(expected, abs=0.1)
    assert expected <= 0
    value, low, _ = found.mean.gain_ms[0, 0]
    assert value > low > 10


def test_events_are_at_the_picture_s_time(dataset: SyntheticDataset) -> None:
    index = next(i for i, track in enumerate(dataset.tracks) if track.role == "solo")
    track, truth = dataset.tracks[index], dataset.truth(index)
    assert track.lag_ms is not None
    voice = truth.voices[0]
    bursts, phones = events_of(truth, track), events_of(truth, track, "phones")
    assert bursts is not None
    assert phones is not None
    expected = voice.bursts_s - track.lag_ms / 1000
    np.testing.assert_allclose(bursts.picture_s, expected[(expected >= 0) & (expected <= 2.96)])
    assert bursts.lag_ms == track.lag_ms
    assert len(phones.picture_s) > len(bursts.picture_s)
    assert voice.phones_s[0, 0] != 0.0 or phones.picture_s[0] != -track.lag_ms / 1000  # not where the scene begins
    later = events_of(truth, replace(track, start_s=0.4))
    assert later is not None
    np.testing.assert_allclose(later.picture_s, (expected - 0.4)[(expected >= 0.4) & (expected <= 3.36)])
    with pytest.raises(ValueError, match="expected one of bursts, phones"):
        events_of(truth, track, "words")


def test_faces_without_a_voice_in_step_have_no_events(dataset: SyntheticDataset) -> None:
    for index, track in enumerate(dataset.tracks):
        assert (events_of(dataset.truth(index), track) is None) == (track.lag_ms is None)


def test_without_exact_truth_there_is_no_error() -> None:
    model, config = planted_model(positional(0))
    assert event_error(model, Examples(Clicks([0.5]), config.data), config, CPU) is None


def test_errors_worked_by_hand() -> None:
    """Lags 0, 100, 200 and 400 ms where 10, 60, 230 and 400 are true; the head heard nothing at a fifth event."""
    lags = np.array([0.0, 100.0, 200.0, 400.0, np.nan])[:, None, None]
    true = np.array([10.0, 60.0, 230.0, 400.0, 50.0])
    found = lag_error(lags, true, np.array([0, 0, 1, 1, 1]), resamples=100)
    assert found.mae_ms[0, 0, 0] == pytest.approx((10 + 40 + 30 + 0) / 4)
    assert [found.within[limit][0, 0, 0] for limit in (20, 40, 100)] == [0.5, 1.0, 1.0]
    assert found.constant_mae_ms[0, 0, 0] == pytest.approx((140 + 90 + 80 + 250) / 4)  # its median lag is 150
    assert found.gain_ms[0, 0, 0] == pytest.approx(140 - 20)
    np.testing.assert_allclose(found.mae_ms[0, 0, 1:], [15, 25])  # one group or the other


def test_a_head_that_beats_its_own_median_only_gains_nothing() -> None:
    """True lags 0 and 100 ms; the head says 200 or 400, its median is 400: better than that, worse than 50."""
    true, group = np.tile([0.0, 100.0], 20), np.repeat(np.arange(20), 2)
    lags = np.where(np.arange(40) % 5 < 2, 200.0, 400.0)[:, None, None]
    found = lag_error(lags, true, group, resamples=200)
    assert found.constant_mae_ms[0, 0, 0] - found.mae_ms[0, 0, 0] == pytest.approx(80.0)
    assert found.best_mae_ms[0, 0, 0] == pytest.approx(50.0)
    assert found.gain_ms[0, 0, 0] == pytest.approx(50.0 - 270.0)
    assert found.gain_ms[0, 0, 2] < 0


def test_lags_between_frames() -> None:
    lags = np.array([[[0.0, 40.0, np.nan, 80.0, np.nan, np.nan]]])
    query_s = np.arange(6) / 25
    found = at_times(lags, query_s, np.array([0.0, 0.03, 0.05, 0.1, 0.13, 0.19, 0.2]))
    np.testing.assert_allclose(found[0, 0, :5], [0.0, 30.0, 40.0, 80.0, 80.0])
    assert np.isnan(found[0, 0, 5:]).all()
    np.testing.assert_allclose(at_times(lags[..., :1], query_s[:1], np.array([0.0])), 0.0)


def test_lags_of_weights_worked_by_hand() -> None:
    """Frame at 10 h; keys at 0, 10 and 20 ms after it."""
    query_s = np.array([36_000.0])
    key_s = 36_000.0 + np.array([0.0, 0.01, 0.02])
    weights = np.array([[[[0.1, 0.0, 0.3]], [[0.0, 0.0005, 0.0]], [[0.4, 0.4, 0.2]]]], np.float32)
    mean, peak = mean_lags_ms(weights, query_s, key_s), peak_lags_ms(weights, query_s, key_s)
    np.testing.assert_allclose(mean[0, :, 0], [15.0, np.nan, 8.0], atol=1e-4)
    np.testing.assert_allclose(peak[0, :, 0], [20.0, np.nan, 0.0], atol=1e-4)


def test_stretches_of_a_long_track_find_each_event_once(dataset: SyntheticDataset, monkeypatch) -> None:
    from avfusion.alignment.measures import events

    model, config = planted_model(positional(80), knows)
    config.model.temporal.layers = 0
    examples, change = Examples(dataset, config.data), telling_the_lag(dataset)
    whole = event_error(model, examples, config, CPU, change=change, resamples=0)
    align = events.align_tracks
    monkeypatch.setattr(events, "align_tracks", lambda *a, **k: align(*a, **k, chunk_frames=20))
    parts = event_error(model, examples, config, CPU, change=change, resamples=0)
    assert whole is not None
    assert parts is not None
    assert parts.num_events == whole.num_events
    np.testing.assert_allclose(parts.mean.mae_ms[..., 0], whole.mean.mae_ms[..., 0], atol=1.0)
