"""Diarization error rate (DER) and Jaccard error rate (JER) by pyannote.metrics.

DER = (missed + false alarm + confusion) / reference speech, in seconds of speakers: where two people talk at once, a
second counts twice. JER = mean over the reference speakers of 1 - intersection / union with the speaker mapped to them.
Overlap is always scored. The evaluated region is given explicitly: from 0 to the end of the last turn of reference and
hypothesis. A collar of ``c`` leaves out the ``c`` seconds on *either* side of every boundary of the reference, as the
field's (NIST md-eval) 0.25 does; pyannote's own argument is the total width, so it is given ``2 c``.

Source: Fiscus et al. 2006 (DER); Ryant et al., DIHARD II evaluation plan (JER); H. Bredin, pyannote.metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from avfusion.errors import AvfusionError
from avfusion.evaluation.diarization.rttm import Turn

if TYPE_CHECKING:
    from pyannote.core import Annotation

COLLARS_S = (0.0, 0.25)


@dataclass(frozen=True)
class Rates:
    """What is counted in one video, or added up over several.

    Attributes:
        missed_s: reference speech that nobody of the hypothesis covers.
        false_alarm_s: hypothesis speech where the reference has fewer speakers.
        confusion_s: speech given to the wrong speaker.
        speech_s: reference speech, which the three are divided by.
        num_speakers: reference speakers who are left outside the collars.
        jaccard_errors: sum of their Jaccard errors.
    """

    missed_s: float
    false_alarm_s: float
    confusion_s: float
    speech_s: float
    num_speakers: int
    jaccard_errors: float

    @property
    def der(self) -> float | None:
        """A share, which may exceed 1; None where the reference has no speech."""
        wrong_s = self.missed_s + self.false_alarm_s + self.confusion_s
        return wrong_s / self.speech_s if self.speech_s > 0 else None

    @property
    def jer(self) -> float | None:
        """A share in 0..1; None where the reference has no speaker."""
        return self.jaccard_errors / self.num_speakers if self.num_speakers else None

    def to_dict(self) -> dict[str, float | None]:
        """DER, JER and what they are made of, as JSON takes them."""
        return {
            "der": self.der,
            "missed_s": round(self.missed_s, 6),
            "false_alarm_s": round(self.false_alarm_s, 6),
            "confusion_s": round(self.confusion_s, 6),
            "speech_s": round(self.speech_s, 6),
            "jer": self.jer,
            "num_speakers": self.num_speakers,
        }


def add_rates(rates: Iterable[Rates]) -> Rates:
    """All videos together: seconds are added for DER, speakers and their errors for JER."""
    found = list(rates)
    return Rates(
        missed_s=sum(r.missed_s for r in found),
        false_alarm_s=sum(r.false_alarm_s for r in found),
        confusion_s=sum(r.confusion_s for r in found),
        speech_s=sum(r.speech_s for r in found),
        num_speakers=sum(r.num_speakers for r in found),
        jaccard_errors=sum(r.jaccard_errors for r in found),
    )


def error_rates(reference: Sequence[Turn], hypothesis: Sequence[Turn], collar_s: float) -> Rates:
    """Compares the turns of one video. Turns of one speaker that overlap or touch count as one.

    Args:
        reference: who spoke when.
        hypothesis: who is said to have; its speakers may have any names.
        collar_s: seconds left out on either side of every boundary of the reference.

    Raises:
        AvfusionError: pyannote.metrics is not installed.
    """
    metrics = require_pyannote()
    from pyannote.core import Segment, Timeline

    end_s = max((turn.end_s for turn in (*reference, *hypothesis)), default=0.0)
    region = Timeline([Segment(0.0, end_s)])
    pair = (_annotation(reference), _annotation(hypothesis))
    settings = {"collar": 2 * collar_s, "skip_overlap": False}
    seconds = metrics.DiarizationErrorRate(**settings)(*pair, uem=region, detailed=True)
    speakers = metrics.JaccardErrorRate(**settings)(*pair, uem=region, detailed=True)
    return Rates(
        missed_s=seconds["missed detection"],
        false_alarm_s=seconds["false alarm"],
        confusion_s=seconds["confusion"],
        speech_s=seconds["total"],
        num_speakers=round(speakers["speaker count"]),
        jaccard_errors=speakers["speaker error"],
    )


def require_pyannote() -> Any:
    """The module of pyannote's diarization metrics.

    Raises:
        AvfusionError: it is not installed.
    """
    try:
        from pyannote.metrics import diarization
    except ImportError as error:
        raise AvfusionError(
            f"DER and JER are computed by pyannote.metrics, which cannot be imported ({error}): pip install"
            " 'avfusion[diarization]' or pip install pyannote.metrics"
        ) from error
    return diarization


def _annotation(turns: Sequence[Turn]) -> Annotation:
    """The turns as pyannote has them; ``support`` joins those of one speaker that overlap or touch."""
    from pyannote.core import Annotation, Segment

    annotation = Annotation()
    for number, turn in enumerate(turns):
        annotation[Segment(turn.start_s, turn.end_s), number] = turn.speaker
    return annotation.support()
