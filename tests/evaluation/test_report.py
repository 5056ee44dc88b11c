"""The report of a split: the figures of its parts, and None with a reason where there is none."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import percentile_interval, times_drawn
from avfusion.evaluation.join import Joined
from avfusion.evaluation.report import evaluate
from avfusion.evaluation.roc import equal_error_rate, expected_calibration_error, false_positive_rate_at


def make_joined(labels, scores, videos=None, entities=None):
    count = len(labels)
    return Joined(
        video_id=np.array(videos or ["v"] * count, dtype=object),
        entity_id=np.array(entities or ["e"] * count, dtype=object),
        timestamp_ms=np.arange(count) * 40,
        boxes_xyxy=np.zeros((count, 4), np.float32),
        speaking=np.array(labels, bool),
        score=np.array(scores, np.float64),
    )


PLAIN = ([1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0], [0.95, 0.9, 0.8, 0.75, 0.7, 0.65, 0.6, 0.3, 0.2, 0.1, 0.05])


def test_plain_case_by_hand():
    report = evaluate(make_joined(*PLAIN, videos=["a"] * 6 + ["b"] * 5, entities=[*"xxxyyyzzzzz"]), resamples=100)
    assert report.average_precision == pytest.approx(7 / 9, abs=1e-12)
    assert report.auroc == pytest.approx(22 / 30, abs=1e-12)
    assert report.equal_error_rate == pytest.approx(1 / 3, abs=1e-12)
    assert report.fpr_at_95_tpr == pytest.approx(4 / 6, abs=1e-12)
    assert (report.num_rows, report.num_positive, report.num_tracks, report.num_videos) == (11, 5, 3, 2)
    assert report.prevalence == pytest.approx(5 / 11, abs=1e-12)
    # Only bin 9 of 15 (0.6 to 0.667) holds two rows, 0.65 P and 0.6 N: |1 - 1.25|. Every other row stands alone, with
    # a gap of 1 - score for P and of the score for N. From 0.95 down:
    gaps = [0.05, 0.1, 0.8, 0.75, 0.3, 0.25, 0.3, 0.8, 0.1, 0.05]
    assert report.expected_calibration_error == pytest.approx(sum(gaps) / 11, abs=1e-12)
    assert report.notes == ("2 videos: an interval over so few says little",)


def test_intervals_hold_the_extremes_of_two_videos():
    # Video a ranks perfectly, b the wrong way round: of the resamples aa, ab and bb the interval spans aa to bb.
    joined = make_joined([1, 0, 1, 0], [0.9, 0.1, 0.2, 0.8], videos=[*"aabb"])
    report = evaluate(joined, resamples=400)
    assert report.average_precision_interval == pytest.approx((0.5, 1.0))
    assert report.auroc_interval == pytest.approx((0.0, 1.0))


def test_intervals_are_over_groups_where_they_are_known():
    # The two videos of the case above four times over. As eight videos the extremes are never drawn; as two groups they
    # are. An empty group stands for the video.
    videos = [f"{kind}{n}" for kind in "ab" for n in range(4) for _ in range(2)]
    joined = make_joined([1, 0] * 8, [0.9, 0.1] * 4 + [0.2, 0.8] * 4, videos=videos)
    keys = {(video, "e") for video in videos}
    by_video = evaluate(joined, 400, 0, dict.fromkeys(keys, ""))
    assert replace(by_video, notes=()) == replace(evaluate(joined, 400), notes=())
    assert (by_video.num_videos, by_video.num_groups) == (8, 8)
    low, high = by_video.auroc_interval
    assert low > 0.0
    assert high < 1.0
    by_group = evaluate(joined, 400, 0, {key: key[0][0] for key in keys})
    assert (by_group.num_videos, by_group.num_groups) == (8, 2)
    assert by_group.auroc == by_video.auroc
    assert by_group.auroc_interval == pytest.approx((0.0, 1.0))
    assert by_group.average_precision_interval == pytest.approx((0.5, 1.0))


def test_one_group_has_no_interval_and_a_track_without_group_is_an_error():
    joined = make_joined([1, 0, 1, 0], [0.9, 0.1, 0.2, 0.8], videos=[*"aabb"])
    report = evaluate(joined, 10, 0, {("a", "e"): "x", ("b", "e"): "x"})
    assert report.auroc_interval is None
    assert report.notes == ("one group: no interval",)
    with pytest.raises(AvfusionError, match="no group for 1 of 2 tracks, first 'e' in 'b'"):
        evaluate(joined, 10, 0, {("a", "e"): "x"})


def test_one_video_has_no_interval_and_says_so():
    report = evaluate(make_joined(*PLAIN))
    assert report.average_precision_interval is None
    assert report.auroc_interval is None
    assert "one video: no interval" in report.notes


def test_logits_have_no_calibration_error_and_the_same_ap():
    report = evaluate(make_joined(PLAIN[0], np.log(np.array(PLAIN[1]))), resamples=0)
    assert report.average_precision == pytest.approx(7 / 9, abs=1e-12)
    assert report.expected_calibration_error is None
    assert "scores outside 0..1: no calibration error" in report.notes


def test_all_speaking_has_ap_one_and_no_roc():
    report = evaluate(make_joined([1, 1], [0.5, 0.6]))
    assert report.average_precision == 1.0
    assert (report.auroc, report.equal_error_rate, report.fpr_at_95_tpr) == (None, None, None)
    assert "every row speaks: no AUROC, EER, FPR" in report.notes


def test_nobody_speaking_is_an_error():
    with pytest.raises(AvfusionError, match="none of 2 label rows is SPEAKING_AUDIBLE"):
        evaluate(make_joined([0, 0], [0.5, 0.6]))


def test_the_dictionary_survives_json():
    report = evaluate(make_joined(*PLAIN, videos=["a"] * 6 + ["b"] * 5), resamples=20)
    figures = report.to_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert figures["average_precision_interval"] == list(report.average_precision_interval)


def test_draws_without_negatives_do_not_flatter_the_whole_split_either():
    # Video b has one perfect positive and no negative; of aa, ab and bb only the first two have an AUROC.
    labels, scores = [0, 0, 1, 1], [0.9, 0.8, 0.7, 1.0]
    report = evaluate(make_joined(labels, scores, videos=[*"aaab"]), resamples=300)
    assert report.average_precision_interval == pytest.approx((1 / 3, 3 / 4))


def test_every_figure_has_its_interval_from_the_same_draws():
    rng = np.random.default_rng(2)
    labels = rng.random(200) < 0.4
    scores = np.round(1 / (1 + np.exp(-rng.normal(size=200) - 2 * labels)), 2)
    videos = np.repeat([f"v{n}" for n in range(10)], 20)
    report = evaluate(make_joined(labels, scores, videos=list(videos)), resamples=120, seed=3)
    assert report.notes == ()
    found = []
    for drawn in times_drawn(10, 120, 3):
        counts = np.repeat(drawn, 20)
        repeated = np.repeat(labels, counts), np.repeat(scores, counts)
        found.append([equal_error_rate(*repeated), false_positive_rate_at(*repeated)])
        found[-1].append(expected_calibration_error(*repeated))
    for values, name in zip(
        np.transpose(found), ("equal_error_rate", "fpr_at_95_tpr", "expected_calibration_error"), strict=True
    ):
        assert getattr(report, f"{name}_interval") == pytest.approx(percentile_interval(values), abs=1e-12), name


def test_few_videos_are_told_beside_the_interval():
    for count, said in ((9, ("9 videos: an interval over so few says little",)), (10, ())):
        videos = [f"v{n}" for n in range(count) for _ in range(2)]
        joined = make_joined([1, 0] * count, [0.9, 0.1] * count, videos=videos)
        assert evaluate(joined, 100).notes == said
        assert evaluate(joined, 0).notes == ()
