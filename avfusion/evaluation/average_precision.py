"""AVA's average precision ("mAP" in the field): VOC all-point interpolated AP over all face boxes of a split, pooled.

Rows are sorted by falling score; rows of one score are one threshold. With precision ``p_k`` and recall ``r_k`` after
threshold ``k``, and recall counted over all positives of the ground truth,

    AP = sum over k of (r_k - r_(k-1)) * max(p_j for j >= k)

This is what the official AVA tool computes. The step sum ``sum (r_k - r_(k-1)) * p_k`` (scikit-learn's
``average_precision_score``) leaves the maximum out and is never higher: on the eleven rows of the test case ``plain``
it gives 0.7644444444 where the VOC figure is 0.7777777778.

Source: Everingham et al., The Pascal Visual Object Classes Challenge (2010); Roth et al., AVA-ActiveSpeaker (2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.ranking import Ranking


def average_precision(labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]]) -> float:
    """VOC all-point interpolated AP, in 0..1.

    Args:
        labels: ``(N,)`` bool, True = speaking audibly.
        scores: ``(N,)`` finite numbers, higher = more likely speaking; probabilities or logits, only the order counts.

    Raises:
        ValueError: labels and scores differ in shape, or the labels are not bool.
        AvfusionError: no row is positive, or a score is NaN or infinite.
    """
    ranking = Ranking(labels, scores)
    if not np.any(labels):
        raise AvfusionError(
            f"none of {len(labels)} rows is SPEAKING_AUDIBLE, expected some: average precision needs positives, check "
            "the label file or choose another split"
        )
    return ranking.average_precision()
