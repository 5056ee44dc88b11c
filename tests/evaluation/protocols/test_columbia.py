"""F1 per speaker by hand and by an independent rule, thresholds, notes, and what an interval draws."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.protocols.columbia import decision_threshold, evaluate_columbia
from avfusion.evaluation.protocols.columbia_labels import MEAN_OF, read_columbia
from tests.evaluation.protocols.columbia_files import score_table, write_labels

HERE = (0, 0, 100, 100)  # over bell
THERE = (300, 0, 400, 100)  # over boll
AWAY = (500, 200, 560, 260)  # over nobody
# Film frames 0, 6, 12 ... are frames 0, 5, 10 ... at 25 per second.
BELL = [(6 * i, 0, 0, 100, label) for i, label in enumerate([1, 1, 1, 0, 0, 1])]
BOLL = [(0, 300, 0, 100, 1), (6, 300, 0, 100, 0)]
ROWS = [
    *[(5 * i, "a", HERE, score) for i, score in [(0, 0.9), (1, 0.5), (3, 0.8), (4, 0.2), (5, 0.7)]],
    (10, "b", AWAY, 0.99),
    (5, "c", THERE, 0.6),
]


def report(folder, labels, rows, resamples=0):
    return evaluate_columbia(read_columbia(write_labels(folder, labels)), score_table(rows), resamples)


def test_f1_of_two_speakers_by_hand(tmp_path):
    # bell: labels 1 1 1 0 0 1, said 1 0 - 1 0 1: the score 0.5 is not above 0.5, and the third face is not detected.
    # TP 2, FP 1, misses 2: F1 = 4 / (4 + 1 + 2), precision 2 / 3, recall 2 / 4. Always: TP 4, FP 2: 8 / 10.
    # boll: labels 1 0, said - 1: TP 0, FP 1, miss 1: F1 = 0.
    found = report(tmp_path, {"bell": BELL, "boll": BOLL}, ROWS)
    bell, boll = found.speakers
    assert bell.f1 == pytest.approx(4 / 7)
    assert (bell.precision, bell.recall, bell.f1_always) == pytest.approx((2 / 3, 1 / 2, 0.8))
    assert (bell.num_frames, bell.num_speaking, bell.num_matched) == (6, 4, 5)
    assert (boll.f1, boll.precision, boll.recall, boll.matched_share) == (0, 0, 0, 0.5)
    assert found.mean_f1 == pytest.approx((4 / 7 + 0) / 2)
    assert found.notes[0] == "no labels of lieb, long, sick: the mean is not the one that papers report"


def test_an_undetected_speaker_is_missed_and_an_undetected_listener_is_right(tmp_path):
    rows = [row for row in ROWS if row[0] != 0]  # bell's first frame, in which she speaks
    listening = [row for row in ROWS if row[0] != 20]  # the fifth, in which she does not and is not said to
    bell = {"bell": BELL}
    assert report(tmp_path / "a", bell, rows).speakers[0].f1 == pytest.approx(2 / (2 + 1 + 3))
    assert report(tmp_path / "b", bell, listening).speakers[0].f1 == pytest.approx(4 / 7)


def test_a_speaker_outside_the_mean_is_told_and_does_not_move_it(tmp_path):
    with_abbas = report(tmp_path / "a", {"bell": BELL, "abbas": BOLL}, ROWS)
    assert [(row.speaker, row.in_mean) for row in with_abbas.speakers] == [("abbas", False), ("bell", True)]
    assert with_abbas.mean_f1 == pytest.approx(4 / 7)
    with pytest.raises(AvfusionError, match="labels of abbas only, expected some of bell"):
        report(tmp_path / "b", {"abbas": BOLL}, ROWS)


def test_a_small_box_inside_the_annotated_one_counts_by_covered_share_alone(tmp_path):
    rows = [(5 * i, "a", (30, 30, 70, 70), 0.9) for i in range(6)]  # IoU 0.16
    big = [(0, "x", HERE, 0.1)]  # one real match, so that there is something to report
    bell = report(tmp_path, {"bell": BELL}, rows + big).speakers[0]
    assert (bell.f1, bell.num_matched) == (0, 1)
    # At frame 0 the small box lies wholly inside as well: equal shares, the higher score first. TP 4, FP 2.
    assert bell.f1_covered_share == pytest.approx(8 / 10)
    assert bell.matched_covered_share == pytest.approx(1)


def test_all_figures_by_covered_share_equal_a_plain_frame_by_frame_count(tmp_path):
    generator = np.random.default_rng(0)
    lanes = {name: 128 * i for i, name in enumerate(MEAN_OF)}  # annotated faces do not overlap
    labels = {
        name: [(n, left + 10, 50, 100, int(generator.random() < 0.4)) for n in range(0, 700, 1 + lane % 3)]
        for lane, (name, left) in enumerate(lanes.items())
    }
    rows = [
        (frame, name, (left + dx, 50 + dy, left + dx + size, 50 + dy + size), score)
        for frame in range(590)
        for name, left in lanes.items()
        for dx, dy, size, score in [[*generator.integers(-60, 60, 2), generator.integers(60, 140), generator.random()]]
    ]
    found = report(tmp_path, labels, rows)
    by_frame = {frame: [row for row in rows if row[0] == frame] for frame in range(590)}
    for name, figures in zip(sorted(MEAN_OF), found.speakers, strict=True):
        right = wrong = missed = 0
        for n, left, top, side, label in labels[name]:
            best, said = 0.5, 0
            for _, _, (x1, y1, x2, y2), score in by_frame.get(int(n / 29.97 * 25), []):
                across = max(0, min(x2, left + side) - max(x1, left))
                down = max(0, min(y2, top + side) - max(y1, top))
                share = across * down / ((x2 - x1) * (y2 - y1))
                if share > best + 1e-5:
                    best, said = share, int(score > 0.5)
            right, wrong, missed = right + (label and said), wrong + (said and not label), missed + (label and not said)
        assert figures.f1_covered_share == pytest.approx(2 * right / (2 * right + wrong + missed))
        assert 0.2 < figures.f1_covered_share < 0.8


def test_logits_and_their_probabilities_give_the_same_figures(tmp_path):
    logits = [(frame, track, box, 9 * (score - 0.5)) for frame, track, box, score in ROWS]
    probabilities = [(frame, track, box, 1 / (1 + np.exp(-score))) for frame, track, box, score in logits]
    labels = {"bell": BELL, "boll": BOLL}
    one, other = report(tmp_path, labels, logits), report(tmp_path, labels, probabilities)
    assert (one.threshold, other.threshold) == (0, 0.5)
    assert [row.f1 for row in one.speakers] == [row.f1 for row in other.speakers]
    assert "scores outside 0..1: taken as logits, threshold 0" in one.notes


@pytest.mark.parametrize("scores", [[0.2, 7.0], [-0.001, 0.9], [-0.9, 0.95]])
def test_scores_that_are_neither_probabilities_nor_logits_are_refused(scores):
    table = score_table([(i, "a", HERE, score) for i, score in enumerate(scores)])
    with pytest.raises(AvfusionError, match=r"pred\.csv: score .* \(line [12]\) and none below -1, expected prob"):
        decision_threshold(table)


def test_scores_that_meet_no_annotated_face_give_no_zero(tmp_path):
    with pytest.raises(AvfusionError, match="none of 6 annotated faces has a scored one over it"):
        report(tmp_path, {"bell": BELL}, [(0, "a", AWAY, 0.9)])


def test_scores_of_a_part_of_the_film_and_off_the_grid_are_told(tmp_path):
    rows = [row for row in ROWS if row[0] <= 10]
    found = report(tmp_path, {"bell": BELL}, [*rows, (9.75, "d", AWAY, 0.1)])
    assert "3 of 6 annotated faces before the first score or after the last" in found.notes
    assert "1 of 5 score rows lie between 25 fps frames, 0 of them left out" in found.notes


def test_a_speaker_without_speech_has_no_f1_and_leaves_no_mean(tmp_path):
    silent = [(0, 300, 0, 100, 0)]
    found = report(tmp_path, {"bell": BELL, "boll": silent}, [(0, "c", THERE, 0.4), *ROWS])
    assert (found.speakers[1].f1, found.speakers[1].f1_always, found.mean_f1) == (None, None, None)


def stretches(count, said):
    """One speaking frame of bell in each stretch of 30 s; ``said``: those with a score above the threshold."""
    labels = {"bell": [(900 * i, 0, 0, 100, 1) for i in range(count)]}
    return labels, [(900 * i * 2500 // 2997, "a", HERE, 0.9 if i in said else 0.1) for i in range(count)]


def test_intervals_draw_stretches_of_the_film(tmp_path):
    # T of 12 said: F1 = 2 T / (T + 12) = 2 / 3 at T = 6. Drawn T is binomial(12, 1/2), with P(T <= 2) = 1.9 % and
    # P(T <= 3) = 7.3 %: the middle 95 % are T = 3 ... 9, F1 6 / 15 ... 18 / 21.
    found = report(tmp_path, *stretches(12, range(6)), resamples=1000)
    assert found.num_stretches == 12
    assert found.speakers[0].f1 == pytest.approx(2 / 3)
    assert found.speakers[0].f1_interval == pytest.approx((6 / 15, 18 / 21))
    assert found.mean_f1_interval == found.speakers[0].f1_interval


def test_few_stretches_give_no_interval_and_say_so(tmp_path):
    found = report(tmp_path, *stretches(9, range(6)), resamples=1000)
    assert found.mean_f1_interval is None
    assert found.notes[-1] == "9 stretches of 30 s, fewer than 10: no intervals"
