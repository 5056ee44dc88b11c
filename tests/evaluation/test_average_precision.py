"""AP against hand-worked numbers and against a loop that follows the definition word by word."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.ranking import Ranking

# The eleven rows of the test case "plain", sorted by score.
PLAIN_SCORES = np.array([0.95, 0.9, 0.8, 0.75, 0.7, 0.65, 0.6, 0.3, 0.2, 0.1, 0.05])
PLAIN_LABELS = np.array([1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0], bool)


def slow_average_precision(labels, scores):
    """VOC all-point AP with one threshold per distinct score, in loops."""
    points = []
    for threshold in sorted(set(scores.tolist()), reverse=True):
        accepted = [bool(label) for label, score in zip(labels, scores, strict=True) if score >= threshold]
        points.append((sum(accepted) / sum(labels), sum(accepted) / len(accepted)))
    total, recall_before = 0.0, 0.0
    for k, (recall, _) in enumerate(points):
        total += (recall - recall_before) * max(precision for _, precision in points[k:])
        recall_before = recall
    return total


def test_plain_case_by_hand():
    # Positives at ranks 1, 2, 5, 6, 9: precisions 1, 1, 3/5, 4/6, 5/9. From the right: 1, 1, 4/6, 4/6, 5/9.
    # (1 + 1 + 2/3 + 2/3 + 5/9) / 5 = 0.7777777778. Without the maximum: (1 + 1 + 3/5 + 2/3 + 5/9) / 5 = 0.7644444444.
    assert average_precision(PLAIN_LABELS, PLAIN_SCORES) == pytest.approx(7 / 9, abs=1e-12)


def test_all_tied_is_the_prevalence_in_any_row_order():
    assert average_precision(PLAIN_LABELS, np.full(11, 0.5)) == pytest.approx(5 / 11, abs=1e-12)
    assert average_precision(np.sort(PLAIN_LABELS), np.full(11, 0.5)) == pytest.approx(5 / 11, abs=1e-12)


def test_a_tie_in_the_middle_by_hand():
    # Scores 3 | 2 2 2 | 1 with labels P | N P N | P: thresholds (recall, precision) = (1/3, 1), (2/3, 2/4), (1, 3/5).
    # Envelope: 1, 3/5, 3/5. AP = 1/3 + 1/3 * 3/5 + 1/3 * 3/5 = 11/15.
    labels = np.array([True, False, True, False, True])
    assert average_precision(labels, np.array([3.0, 2, 2, 2, 1])) == pytest.approx(11 / 15, abs=1e-12)


def test_perfect_and_worst_order():
    labels = np.array([True, True, False, False])
    assert average_precision(labels, np.array([4.0, 3, 2, 1])) == pytest.approx(1.0)
    # Positives at ranks 3 and 4: precisions 1/3, 2/4; envelope 1/2, 1/2.
    assert average_precision(labels, np.array([1.0, 2, 3, 4])) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_slow_loop_with_ties_and_shuffled_rows(seed):
    generator = np.random.default_rng(seed)
    labels = generator.random(60) < generator.uniform(0.1, 0.9)
    labels[0] = True
    scores = np.round(generator.normal(size=60) + labels, 1)  # one digit: many ties
    expected = slow_average_precision(labels, scores)
    shuffled = generator.permutation(60)
    assert average_precision(labels, scores) == pytest.approx(expected, abs=1e-12)
    assert average_precision(labels[shuffled], scores[shuffled]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_weights_equal_repeated_rows(seed):
    generator = np.random.default_rng(seed)
    labels = generator.random(40) < 0.4
    labels[:2] = True, False
    scores = np.round(generator.normal(size=40), 1)
    times = generator.integers(0, 4, 40)
    times[:2] = 1
    repeated = Ranking(np.repeat(labels, times), np.repeat(scores, times))
    weighted = Ranking(labels, scores)
    weights = times.astype(np.float64)
    assert weighted.average_precision(weights) == pytest.approx(repeated.average_precision(), abs=1e-12)
    assert weighted.auroc(weights) == pytest.approx(repeated.auroc(), abs=1e-12)


def test_weights_without_positives_have_no_ap():
    ranking = Ranking(np.array([True, False]), np.array([1.0, 0.0]))
    assert np.isnan(ranking.average_precision(np.array([0.0, 3.0])))
    assert np.isnan(ranking.auroc(np.array([3.0, 0.0])))


def test_increasing_transforms_change_nothing():
    logits = np.log(PLAIN_SCORES / (1 - PLAIN_SCORES))
    assert average_precision(PLAIN_LABELS, logits) == average_precision(PLAIN_LABELS, PLAIN_SCORES)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_give_no_figure(wrong):
    with pytest.raises(AvfusionError, match="in row 1 of 3, expected finite"):
        average_precision(np.array([True, False, True]), np.array([0.5, wrong, 0.4]))


def test_no_positives_no_figure():
    with pytest.raises(AvfusionError, match="none of 3 rows is SPEAKING_AUDIBLE"):
        average_precision(np.zeros(3, bool), np.arange(3.0))


def test_labels_have_to_be_bool_and_as_many_as_scores():
    with pytest.raises(ValueError, match="expected bool"):
        average_precision(np.array([1, 0]), np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="expected one shape"):
        average_precision(np.array([True, False]), np.array([1.0]))


def official_average_precision(labels, scores):
    """What the official AVA tool does, told anew: sorted rows, running counts, sentinels, envelope, steps of recall."""
    rows = sorted(zip(scores.tolist(), labels.tolist(), strict=True), key=lambda row: -row[0])
    true_positives = false_positives = 0
    precision, recall = [0.0], [0.0]
    for _, positive in rows:
        true_positives, false_positives = true_positives + positive, false_positives + (not positive)
        precision.append(true_positives / (true_positives + false_positives))
        recall.append(true_positives / int(labels.sum()))
    precision, recall = [*precision, 0.0], [*recall, 1.0]
    for index in range(len(precision) - 2, -1, -1):
        precision[index] = max(precision[index], precision[index + 1])
    return sum((recall[k] - recall[k - 1]) * precision[k] for k in range(1, len(recall)) if recall[k] != recall[k - 1])


@pytest.mark.parametrize("seed", range(200))
def test_equals_the_official_tool_on_rows_without_ties(seed):
    generator = np.random.default_rng([7, seed])
    count = int(generator.integers(2, 400))
    labels = generator.random(count) < generator.uniform(0.02, 0.98)
    labels[generator.integers(count)] = True
    scores = generator.permutation(count) + generator.uniform(0, 0.5, count) + generator.uniform(0, 2) * count * labels
    assert len(set(scores.tolist())) == count
    expected = official_average_precision(labels, scores)
    assert average_precision(labels, scores) == pytest.approx(expected, rel=0, abs=1e-12)


def test_ties_where_the_official_tool_looks_at_row_order():
    # Its figure for P and N of one score is 1 or 1/2, as the rows lie; here they are one threshold, 1/2 either way.
    tied = np.array([0.5, 0.5])
    for labels, official in (([True, False], 1.0), ([False, True], 0.5)):
        assert official_average_precision(np.array(labels), tied) == official
        assert average_precision(np.array(labels), tied) == 0.5
