"""The report of a diarization: what was made of which files by which rules, and DER and JER with their intervals.

Seconds and speakers of the videos add up, so a resample of videos is a weighted sum of theirs. Collars in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import one_line
from avfusion.evaluation.bootstrap import percentile_interval, times_drawn
from avfusion.evaluation.diarization.rates import COLLARS_S, Rates, add_rates
from avfusion.evaluation.record import record_lines
from avfusion.evaluation.tables import Table, bullets, interval, markdown_table, text_table

SEED = 0  # of the bootstrap
SCORING = "collar: seconds on either side of every reference boundary that are not scored; overlapping speech is scored"
_SECONDS = ("missed s", "false alarm s", "confusion s", "speech s")

VideoRates = Mapping[float, Rates]  # by collar


def rate_figures(rates: Mapping[str, VideoRates], resamples: int) -> dict[str, Any]:
    """All that the rates of some videos come to.

    Args:
        rates: by video, at least one.
        resamples: bootstrap resamples of the videos; 0 leaves the intervals out.

    Returns:
        ``all``: the rates of all videos at each collar with 95 % intervals, ``videos``: those of each.
    """
    whole = []
    for collar_s in COLLARS_S:
        of_videos = [of_video[collar_s] for of_video in rates.values()]
        found: dict[str, Any] = {"collar_s": collar_s, **add_rates(of_videos).to_dict()}
        der, jer = _drawn_rates(of_videos, resamples)
        whole.append(found | {"der_interval": percentile_interval(der), "jer_interval": percentile_interval(jer)})
    return {
        "all": whole,
        "videos": {
            video_id: [{"collar_s": collar_s, **found.to_dict()} for collar_s, found in of_video.items()]
            for video_id, of_video in rates.items()
        },
    }


def _drawn_rates(rates: Sequence[Rates], resamples: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``(R,)`` DER and ``(R,)`` JER of resamples of the videos; NaN where nobody speaks in the drawn ones."""
    if len(rates) < 2 or not resamples:
        return np.empty(0), np.empty(0)
    parts = np.array([astuple(of_video) for of_video in rates])
    drawn = np.array(list(times_drawn(len(rates), resamples, SEED))) @ parts
    missed_s, false_alarm_s, confusion_s, speech_s, speakers, errors = drawn.T
    with np.errstate(divide="ignore", invalid="ignore"):
        der = np.where(speech_s > 0, (missed_s + false_alarm_s + confusion_s) / speech_s, np.nan)
        jer = np.where(speakers > 0, errors / speakers, np.nan)
    return der, jer


def as_text(report: Mapping[str, Any]) -> str:
    """The tables for the terminal."""
    scoring = [SCORING] if "all" in report else []
    head = "\n".join(one_line(line) for line in (_title(report), _counts(report), *scoring, *report["notes"]))
    return "\n\n".join([f"\n{head}", *(text_table(table) for table in _tables(report))]) + "\n"


def as_markdown(report: Mapping[str, Any]) -> str:
    """The whole of ``report.md``."""
    lines = [*record_lines(report), _counts(report), _rules(report["rules"])]
    if "intervals" in report:
        drawn = report["intervals"]
        lines += [
            SCORING,
            f"intervals: {100 * drawn['level']:.0f} %, {drawn['kind']}, {drawn['num_drawn']} {drawn['drawn']} drawn"
            f" with replacement, {drawn['resamples']} resamples, seed {drawn['seed']}",
        ]
    lines += ["who speaks when: `segments.json`, and RTTM of each video in `rttm/`", *report["notes"]]
    return "\n\n".join([f"# {one_line(_title(report))}", bullets(lines), *map(markdown_table, _tables(report))]) + "\n"


def _title(report: Mapping[str, Any]) -> str:
    files = report["files"]
    reference = files.get("rttm") or files.get("labels")
    against = f" against {reference['path']}" if reference else ""
    return f"Who speaks when: {files['scores']['path']}{against}"


def _counts(report: Mapping[str, Any]) -> str:
    return (
        f"{report['num_stretches']} stretches of speech from {report['num_rows']} score rows of {report['num_tracks']}"
        f" tracks in {report['num_videos']} videos"
    )


def _rules(rules: Mapping[str, float]) -> str:
    return "rules: " + ", ".join(f"{name} {value:g}" for name, value in rules.items())


def _tables(report: Mapping[str, Any]) -> list[Table]:
    if "all" not in report:
        return []
    header = ["collar s", "DER %", "95 %", *_SECONDS, "JER %", "95 %", "speakers", "videos"]
    whole = []
    for found in report["all"]:
        cells = _cells(found)
        der, jer = (_percents(found[name]) for name in ("der_interval", "jer_interval"))
        whole.append([*cells[:2], der, *cells[2:-1], jer, cells[-1], str(len(report["videos"]))])
    videos = [[video_id, *_cells(found)] for video_id, rates in report["videos"].items() for found in rates]
    each = ("Each video", ["video", "collar s", "DER %", *_SECONDS, "JER %", "speakers"], videos)
    return [("All videos that both sides have", header, whole), each]


def _cells(found: Mapping[str, Any]) -> list[str]:
    der, jer = ("-" if found[name] is None else f"{100 * found[name]:.2f}" for name in ("der", "jer"))
    seconds = (found[name] for name in ("missed_s", "false_alarm_s", "confusion_s", "speech_s"))
    return [f"{found['collar_s']:g}", der, *(f"{value:.2f}" for value in seconds), jer, str(found["num_speakers"])]


def _percents(low_high: Sequence[float] | None) -> str:
    return interval(low_high) if low_high is None else f"{100 * low_high[0]:.2f}..{100 * low_high[1]:.2f}"
