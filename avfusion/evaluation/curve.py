"""The precision-recall curve, thinned to as many points as a chart needs.

Shapes: ``(N,)`` bool labels, True = speaking audibly; ``(N,)`` finite scores, higher = more likely speaking.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.ranking import Ranking


def precision_recall(
    labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]], max_points: int = 200
) -> list[tuple[float, float]]:
    """Recall and precision at thresholds spread evenly over the recall, from the highest threshold to full recall.

    Precision is what each threshold really has; the envelope that AVA's AP takes is not applied.

    Args:
        labels: ``(N,)`` bool.
        scores: ``(N,)``.
        max_points: how many points at most.

    Returns:
        (recall, precision), recall rising.

    Raises:
        AvfusionError: no row is positive, or a score is not finite.
    """
    true_positives, false_positives = Ranking(labels, scores).counts()
    if not len(true_positives) or true_positives[-1] == 0:
        raise AvfusionError(f"none of {len(labels)} rows is SPEAKING_AUDIBLE, expected some: recall needs positives")
    recall = true_positives / true_positives[-1]
    # The first threshold that reaches each recall: lower ones of the same recall only lose precision.
    asked = np.append(recall[0], np.linspace(0.0, 1.0, max_points)[1:])
    chosen = np.unique(np.searchsorted(recall, asked - 1e-12))
    precision = true_positives / (true_positives + false_positives)
    return [(float(recall[i]), float(precision[i])) for i in chosen]
