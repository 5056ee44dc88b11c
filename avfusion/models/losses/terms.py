"""The terms of the loss by name, each as a total over a count.

A term's value is the mean over its ``P`` parts of ``total / max(count, 1)``; ``P`` is 2 for the contrast, whose two
directions have different counts, and 1 for the others. Totals and counts add up over parts of a batch. The value of
the whole is then that of the sums, except that a contrast with ``negatives: batch`` sees the frames of its own part
alone, unless it is given everyone's.

A part in which nothing counts has the total 0 and gradients of zero.
"""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from avfusion.clock import AUDIO_HZ
from avfusion.config import LossConfig
from avfusion.models.detector import Detection
from avfusion.models.losses.attention import guided_count, guided_total, null_count, null_total
from avfusion.models.losses.contrast import contrast_counts, contrast_totals
from avfusion.models.losses.speaking import speaking_count, speaking_total
from avfusion.models.losses.sync import sync_count, sync_total
from avfusion.models.losses.targets import Everyone, Targets

TERMS = ("speaking", "audio", "video", "contrastive", "sync", "null", "guided")
ON_ALIGNMENT = ("null", "guided")


def terms_on(config: LossConfig) -> dict[str, float]:
    """The terms that a configuration turns on, with their weights, in the order of ``TERMS``; ``speaking`` has 1."""
    return {name: weight for name in TERMS if (weight := getattr(config, name, 1.0)) > 0}


def needs_alignment(wanted: Collection[str]) -> bool:
    """Whether the detector must return its alignment (``need_alignment``) for the wanted terms."""
    return any(name in wanted for name in ON_ALIGNMENT)


def needs_audio_100hz(wanted: Collection[str], config: LossConfig) -> bool:
    """Whether the detector must return its sound at 100 Hz (``need_audio_100hz``) for the wanted terms."""
    return "contrastive" in wanted and config.contrast_hz == AUDIO_HZ


def loss_counts(targets: Targets, config: LossConfig, wanted: Collection[str]) -> dict[str, Tensor]:
    """What the totals of the wanted terms are divided by; known before the model runs.

    Args:
        targets: labels and masks of one part of a batch.
        config: of the losses.
        wanted: names out of ``TERMS``.

    Returns:
        Name to ``(P,)`` float, in the order of ``TERMS``.

    Raises:
        ValueError: a name that is none of ``TERMS``.
    """
    return {name: _count(name, _seen_by(name, targets), config) for name in _ordered(wanted)}


def loss_totals(
    detection: Detection,
    targets: Targets,
    config: LossConfig,
    wanted: Collection[str],
    everyone: Everyone | None = None,
) -> dict[str, Tensor]:
    """The sums of the wanted terms, unweighted, with gradient.

    Args:
        detection: what the detector says about this part of a batch.
        targets: labels and masks of this part.
        config: of the losses.
        wanted: names out of ``TERMS``; what is not wanted is not computed.
        everyone: the processes that share the batch, for the contrast; all of them must call with the same ``wanted``.

    Returns:
        Name to ``(P,)``, in the order of ``TERMS``.

    Raises:
        ValueError: a name that is none of ``TERMS``, or a detection without what a term needs.
    """
    return {name: _total(name, detection, _seen_by(name, targets), config, everyone) for name in _ordered(wanted)}


def loss_terms(
    detection: Detection,
    targets: Targets,
    config: LossConfig,
    wanted: Collection[str],
    everyone: Everyone | None = None,
) -> dict[str, Tensor]:
    """The values of the wanted terms, unweighted scalars, for a batch in one part; as :func:`loss_totals` otherwise."""
    totals = loss_totals(detection, targets, config, wanted, everyone)
    counts = loss_counts(targets, config, wanted)
    return {name: term_value(total, counts[name]) for name, total in totals.items()}


def term_value(total: Tensor, count: Tensor) -> Tensor:
    """The scalar value of a term from its ``(P,)`` total and count, each summed over all parts of a batch."""
    return (total / count.clamp_min(1)).mean()


def _ordered(wanted: Collection[str]) -> list[str]:
    """The wanted names in one order, so that every process gathers for the same term."""
    unknown = sorted(set(wanted) - set(TERMS))
    if unknown:
        raise ValueError(f"no loss is called {', '.join(unknown)}; expected names out of {', '.join(TERMS)}")
    return [name for name in TERMS if name in wanted]


def _seen_by(name: str, targets: Targets) -> Targets:
    """Without sound or picture a face may still be scored; what goes with what can be learnt from both only."""
    return targets if name == "speaking" else targets.where_matched()


def _count(name: str, targets: Targets, config: LossConfig) -> Tensor:
    if name == "contrastive":
        return contrast_counts(targets, config)
    if name == "sync":
        return sync_count(targets, config)
    if name == "null":
        return null_count(targets, config)
    if name == "guided":
        return guided_count(targets)
    return speaking_count(targets)


def _total(name: str, detection: Detection, targets: Targets, config: LossConfig, everyone: Everyone | None) -> Tensor:
    if name == "contrastive":
        return contrast_totals(detection, targets, config, everyone)
    if name == "sync":
        return sync_total(detection, targets, config)
    if name == "null":
        return null_total(_alignment(detection, name), targets, config)
    if name == "guided":
        return guided_total(_alignment(detection, name), targets, config)
    logits = {"speaking": detection.logits, "audio": detection.audio_logits, "video": detection.video_logits}
    return speaking_total(logits[name], targets)


def _alignment(detection: Detection, name: str) -> Tensor:
    if detection.alignment is None:
        raise ValueError(
            f"the loss {name} is on the alignment, and the detection has none: call a detector with cross-attention"
            " fusion with need_alignment=True (needs_alignment tells when)"
        )
    return detection.alignment
