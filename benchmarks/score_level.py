"""Where the level of a model's scores should be: the scale and offset of the logit that fit a labelled score file best.

python benchmarks/score_level.py SCORES.csv LABELS.csv

SCORES.csv is what eval.py writes, LABELS.csv the dataset's (``labels/<split>.csv``). A model orders faces and voices
unlike those it learnt from better than it judges their level: they may all score below 0.1. Fitted is
p = sigmoid(scale * logit + offset) by logistic regression (Platt 1999), speaking and other frames weighing alike as
classes. Both numbers go into the facts of released weights (``level`` in configs/released.json), whose export moves the
last layer by them; order, and so AP, AUROC and false accepts at a given miss, stay as they are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.evaluation.join import join
from avfusion.tracks import read_labels, read_scores

LEAST = 1e-7  # scores beyond are as good as 0 or 1
STEPS = 100
ENOUGH = 1e-10  # a step that moves neither number by more is the last


def main() -> None:
    """Reads the command line, fits, prints."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("scores", type=Path, metavar="SCORES.csv", help="scores/<split>.csv of eval.py")
    parser.add_argument("labels", type=Path, metavar="LABELS.csv", help="labels/<split>.csv of the dataset")
    options = parser.parse_args()
    rows = join(read_labels(options.labels), read_scores(options.scores))
    speaking = rows.speaking
    if not 0 < speaking.sum() < len(speaking):
        raise UsageError(f"{options.scores}: {speaking.sum()} of {len(speaking)} rows speak; expected some and not all")
    logits = logits_of(rows.score)
    scale, offset = fit(logits, speaking)
    for title, moved in (("as they are", logits), ("moved", scale * logits + offset)):
        accepted = moved >= 0
        shares = (
            f"{accepted[speaking].mean():.2f} of the speaking, {accepted[~speaking].mean():.2f} of the other frames"
        )
        print(f"{title}: {shares} score 0.5 or more")
    print(f"scale {scale:.3f}, offset {offset:.3f}: what is 0.5 now was {1 / (1 + np.exp(offset / scale)):.4f}")


def logits_of(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """``(N,)`` of scores 0..1."""
    kept = np.clip(scores.astype(np.float64), LEAST, 1 - LEAST)
    logits: NDArray[np.float64] = np.log(kept / (1 - kept))
    return logits


def fit(logits: NDArray[np.float64], speaking: NDArray[np.bool_]) -> tuple[float, float]:
    """Scale and offset, by Newton's method; a step that makes the fit worse is halved.

    Args:
        logits: ``(N,)``.
        speaking: ``(N,)``, both kinds present.
    """
    weights = np.where(speaking, 0.5 / speaking.sum(), 0.5 / (~speaking).sum())
    design = np.stack([logits, np.ones_like(logits)], axis=1)
    found = np.array([1.0, 0.0])

    def loss(numbers: NDArray[np.float64]) -> float:
        moved = design @ numbers
        return float(weights @ (np.logaddexp(0, moved) - speaking * moved))

    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-np.clip(design @ found, -30, 30)))
        slope = design.T @ (weights * (chances - speaking))
        bend = design.T @ (design * (weights * chances * (1 - chances))[:, None]) + 1e-12 * np.eye(2)
        step = np.linalg.solve(bend, slope)
        while loss(found - step) > loss(found) and np.abs(step).max() > ENOUGH:
            step = step / 2
        found = found - step
        if np.abs(step).max() <= ENOUGH:
            break
    return float(found[0]), float(found[1])


if __name__ == "__main__":
    sys.exit(run_command(main))
