"""What training minimises, as totals over counts that add up over the parts of a batch.

Speaking losses on three logits (``speaking``), a contrast between sound and picture (``contrast``), sound in time
against shifted sound (``sync``), and losses on the alignment itself (``attention``); ``terms`` has them by name.
"""

from avfusion.models.losses.targets import Everyone, Targets
from avfusion.models.losses.terms import (
    TERMS,
    loss_counts,
    loss_terms,
    loss_totals,
    needs_alignment,
    needs_audio_100hz,
    term_value,
    terms_on,
)

__all__ = [
    "TERMS",
    "Everyone",
    "Targets",
    "loss_counts",
    "loss_terms",
    "loss_totals",
    "needs_alignment",
    "needs_audio_100hz",
    "term_value",
    "terms_on",
]
