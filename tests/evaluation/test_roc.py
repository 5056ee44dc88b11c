"""AUROC, EER, FPR at 95 % TPR and calibration by hand and against loops."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.roc import auroc, equal_error_rate, expected_calibration_error, false_positive_rate_at

# The case "plain": 5 positives and 6 negatives, sorted by falling score.
SCORES = np.array([0.95, 0.9, 0.8, 0.75, 0.7, 0.65, 0.6, 0.3, 0.2, 0.1, 0.05])
LABELS = np.array([1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0], bool)


def test_auroc_by_hand():
    # Negatives below each positive: 6, 6, 4, 4, 2 of 6. 22 of 30 pairs are won.
    assert auroc(LABELS, SCORES) == pytest.approx(22 / 30, abs=1e-12)


def test_auroc_of_ties_is_half():
    assert auroc(LABELS, np.zeros(11)) == pytest.approx(0.5, abs=1e-12)
    # P at 2; N at 2 and 1: one tie (half) and one win of two pairs.
    assert auroc(np.array([True, False, False]), np.array([2.0, 2, 1])) == pytest.approx(0.75, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_auroc_equals_the_count_of_pairs(seed):
    generator = np.random.default_rng(seed)
    labels = generator.random(50) < 0.3
    labels[:2] = True, False
    scores = np.round(generator.normal(size=50) + labels, 1)
    wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p in scores[labels] for n in scores[~labels]]
    assert auroc(labels, scores) == pytest.approx(np.mean(wins), abs=1e-12)
    assert auroc(labels, -scores) == pytest.approx(1 - np.mean(wins), abs=1e-12)


def test_eer_by_hand():
    # After rank 5: misses 2/5, false accepts 2/6. After rank 6: misses 1/5, false accepts 2/6. On the line between them
    # false accepts stay 1/3 while misses pass 1/3.
    assert equal_error_rate(LABELS, SCORES) == pytest.approx(1 / 3, abs=1e-12)


def test_eer_on_a_slanted_side():
    # One threshold for all: the side from (FPR 0, miss 1) to (1, 0) crosses at one half.
    assert equal_error_rate(LABELS, np.zeros(11)) == pytest.approx(0.5, abs=1e-12)
    # P | P N | N: (0, miss 1/2) to (1/2, miss 0): miss - FPR goes from 1/2 to -1/2, half way is FPR 1/4.
    labels = np.array([True, True, False, False])
    assert equal_error_rate(labels, np.array([3.0, 2, 2, 1])) == pytest.approx(0.25, abs=1e-12)


def test_eer_of_perfect_and_reversed_scores():
    labels = np.array([True, True, False, False, False])
    assert equal_error_rate(labels, np.array([5.0, 4, 3, 2, 1])) == 0.0
    assert equal_error_rate(labels, np.array([1.0, 2, 3, 4, 5])) == 1.0


def test_fpr_at_95_tpr_by_hand():
    # 95 % of 5 positives takes all 5, down to score 0.2: 4 of 6 negatives score more.
    assert false_positive_rate_at(LABELS, SCORES) == pytest.approx(4 / 6, abs=1e-12)
    # At 80 % four positives do, down to 0.65: 2 of 6.
    assert false_positive_rate_at(LABELS, SCORES, 0.8) == pytest.approx(2 / 6, abs=1e-12)


def test_nineteen_of_twenty_are_95_percent():
    # Positives 20..1; negatives 1.5 and 0: the threshold 2 accepts 19 of 20 positives and no negative.
    labels = np.array([True] * 20 + [False] * 2)
    scores = np.concatenate([np.arange(20.0, 0.0, -1.0), [1.5, 0.0]])
    assert false_positive_rate_at(labels, scores) == 0.0


@pytest.mark.parametrize("figure", [auroc, equal_error_rate, false_positive_rate_at])
@pytest.mark.parametrize("only", [True, False])
def test_rows_of_one_kind_have_no_roc(figure, only):
    with pytest.raises(AvfusionError, match="of 3 rows are SPEAKING_AUDIBLE, expected rows of both kinds"):
        figure(np.full(3, only), np.arange(3.0))


def test_calibration_by_hand():
    # 15 bins of 1/15. Bin 0 (0.01, 0.05): mean score 0.03, share speaking 1/2: gap 0.47, 2 rows.
    # Bin 7 (0.5): gap 0.5, 1 row. Bin 14 (0.95 and 1): mean 0.975, share 1/2: gap 0.475, 2 rows.
    probabilities = np.array([0.01, 0.05, 0.5, 0.95, 1.0])
    labels = np.array([False, True, False, True, False])
    expected = (2 * 0.47 + 1 * 0.5 + 2 * 0.475) / 5
    assert expected_calibration_error(labels, probabilities) == pytest.approx(expected, abs=1e-12)


def test_calibrated_scores_have_no_error():
    # 10 rows at 0.3, 3 of them speaking.
    assert expected_calibration_error(np.arange(10) < 3, np.full(10, 0.3)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("scores", [[1.2, 0.5], [-0.1, 0.5], [np.nan, 0.5], []])
def test_calibration_refuses_what_is_no_probability(scores):
    with pytest.raises(ValueError, match=r"probabilities in 0\.\.1"):
        expected_calibration_error(np.zeros(len(scores), bool), np.array(scores))
