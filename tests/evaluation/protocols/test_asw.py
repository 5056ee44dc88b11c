"""ASW's figures by hand, over its evaluated rows alone."""

from __future__ import annotations

import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.protocols.asw import evaluate_asw
from avfusion.evaluation.protocols.asw_labels import read_asw
from tests.evaluation.protocols.asw_files import asw_row, score_table, write_videos

# By falling score: P N P N N over two videos; rows with eval 0 have the best and the worst scores the wrong way round.
VIDEOS = {
    "a": {"t0": [asw_row(0.2, 0, 0), asw_row(0.4, 1), asw_row(0.6, 0)], "t1": [asw_row(0.4, 1), asw_row(0.6, 1, 0)]},
    "b": {"t0": [asw_row(0.2, 0), asw_row(0.4, 0)]},
}
SCORES = [
    *[("a", 0.2, "t0", 0.99), ("a", 0.4, "t0", 0.9), ("a", 0.6, "t0", 0.8)],
    *[("a", 0.4, "t1", 0.7), ("a", 0.6, "t1", 0.01)],
    *[("b", 0.2, "t0", 0.6), ("b", 0.4, "t0", 0.5)],
]


def report(folder, scores=SCORES, videos=VIDEOS, resamples=0):
    return evaluate_asw(read_asw(write_videos(folder, videos)), score_table(scores), resamples)


def test_figures_by_hand(tmp_path):
    # P N P N N: precision 1 at the first P, 2 / 3 at the second: AP = (1 + 2 / 3) / 2.
    # AUROC: pairs won 3 + 2 of 6. EER: two rows accepted miss 1 of 2 and falsely accept 1 of 3, three rows miss none
    # and falsely accept 1 of 3: on the way from the one to the other misses pass 1/3.
    found = report(tmp_path)
    assert found.average_precision == pytest.approx(5 / 6)
    assert found.auroc == pytest.approx(5 / 6)
    assert found.equal_error_rate == pytest.approx(1 / 3)
    assert found.prevalence == pytest.approx(2 / 5)
    assert (found.num_rows, found.num_positive, found.num_tracks, found.num_videos) == (5, 2, 3, 2)


def test_rows_with_eval_0_and_scores_between_rows_are_counted_and_change_nothing(tmp_path):
    more = [("a", 0.24, "t0", 1.0), ("a", 5.0, "t0", 1.0), ("a", 0.4, "t7", 1.0), ("c", 0.4, "t0", 1.0)]
    found, plain = report(tmp_path, SCORES + more), report(tmp_path)
    assert found.average_precision == plain.average_precision
    assert (plain.num_not_evaluated, plain.num_scores_ignored) == (2, 2)
    assert found.num_scores_ignored == 2 + 4


def test_names_with_the_video_before_them_and_pieces_of_a_track_are_found(tmp_path):
    names = {("a", 0.6, "t0"): "a:t0#2"}
    renamed = [(v, s, names.get((v, s, t), f"{v}:{t}"), score) for v, s, t, score in SCORES]
    assert report(tmp_path, renamed[::-1]).average_precision == pytest.approx(5 / 6)


def test_each_row_takes_the_nearest_frame(tmp_path):
    # 25 fps frames around each row, worse by 40 ms: 0.36 and 0.44 have the opposite score.
    around = [(v, s + d, t, 1 - score) for v, s, t, score in SCORES for d in (-0.04, 0.04)]
    assert report(tmp_path, SCORES + around).average_precision == pytest.approx(5 / 6)
    shifted = [(v, s + 0.02, t, score) for v, s, t, score in SCORES]
    assert report(tmp_path, shifted).average_precision == pytest.approx(5 / 6)


def test_an_evaluated_row_without_a_score_is_an_error_that_names_it(tmp_path):
    missing = r"no score for 1 of 5 evaluated rows, first 'b' at 0\.400 s, 'b:t0' \(nearest score 200 ms away\)"
    with pytest.raises(AvfusionError, match=missing):
        report(tmp_path, SCORES[:-1])
    without_track = [row for row in SCORES if row[2] != "t1"]
    with pytest.raises(AvfusionError, match=r"first 'a' at 0\.400 s, 'a:t1' \(no score of that track at all\)"):
        report(tmp_path, without_track)
    late = [(v, s + 0.03, t, score) for v, s, t, score in SCORES]
    with pytest.raises(AvfusionError, match=r"no score for 5 of 5 .*nearest score 30 ms away"):
        report(tmp_path, late)


def test_a_video_without_any_score_is_left_out_and_named(tmp_path):
    found = report(tmp_path, [row for row in SCORES if row[0] == "a"])
    # P N P are left: AP (1 + 2 / 3) / 2
    assert (found.average_precision, found.num_rows) == (pytest.approx(5 / 6), 3)
    assert found.videos_without_scores == ["b"]
    assert found.notes == ["one video: no intervals", "1 of 2 labelled videos have no scores, left out: b"]
    with pytest.raises(AvfusionError, match=r"no score of any of the 2 labelled videos, first 'a'; .*of 'z'"):
        report(tmp_path, [("z", *row[1:]) for row in SCORES[:5]])


def test_a_score_that_is_there_twice_is_refused_under_either_name(tmp_path):
    with pytest.raises(AvfusionError, match=r"1 duplicate rows.*'a:t0' \(line 8\)"):
        report(tmp_path, [*SCORES, ("a", 0.4, "a:t0", 0.3)])


def test_rows_of_one_kind_give_no_figure(tmp_path):
    videos = {"a": {"t0": [asw_row(0.2, 0), asw_row(0.4, 0)]}}
    with pytest.raises(AvfusionError, match=r"asw: no row speaks among the 2 evaluated rows"):
        report(tmp_path / "asw", [("a", 0.2, "t0", 0.1), ("a", 0.4, "t0", 0.2)], videos)


def test_intervals_draw_videos(tmp_path):
    # Two videos, one perfect (EER 0), one upside down: the three mixtures that can be drawn are perfect (1/4),
    # upside down (1/4) and both (1/2), so 95 % reach from the one to the other.
    rows = [asw_row(0.2, 1), asw_row(0.4, 0)]
    scores = [("a", 0.2, "t", 0.9), ("a", 0.4, "t", 0.1), ("b", 0.2, "t", 0.2), ("b", 0.4, "t", 0.8)]
    found = report(tmp_path, scores, {"a": {"t": rows}, "b": {"t": rows}}, resamples=200)
    assert found.auroc_interval == (0, 1)
    assert found.equal_error_rate_interval == (0, 1)
    assert found.average_precision_interval == (0.5, 1)
