"""Several runs side by side, from the reports and scores in their folders; no model is run."""

from avfusion.training.side_by_side.command import compare_runs

__all__ = ["compare_runs"]
