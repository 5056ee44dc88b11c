"""DER and JER of three timelines worked by hand, against a count on a grid, and of real reference turns."""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.diarization.rates import COLLARS_S, Rates, add_rates, error_rates
from avfusion.evaluation.diarization.rttm import Turn, read_rttm

pytest.importorskip("pyannote.metrics")
pytestmark = pytest.mark.filterwarnings("error:'uem' was approximated")


def turns(**speakers: list[tuple[float, float]]) -> list[Turn]:
    return [Turn("v", start_s, end_s, name) for name, spans in speakers.items() for start_s, end_s in spans]


def check(found: Rates, missed: float, false_alarm: float, confusion: float, speech: float, jer: float) -> None:
    assert (found.missed_s, found.false_alarm_s, found.confusion_s, found.speech_s) == pytest.approx(
        (missed, false_alarm, confusion, speech), abs=1e-9
    )
    assert found.der == pytest.approx((missed + false_alarm + confusion) / speech)
    assert found.jer == pytest.approx(jer)


# One after the other: A speaks 0..10, B 10..20; the change is found 2 s late.
CHANGE = (turns(A=[(0, 10)], B=[(10, 20)]), turns(x=[(0, 12)], y=[(12, 20)]))
# Overlap: A 0..10, B 8..14; found as x 0..8, y 8..14.
OVERLAP = (turns(A=[(0, 10)], B=[(8, 14)]), turns(x=[(0, 8)], y=[(8, 14)]))
# Everything: A 1..5, B 4..9, C 11..12; found as x 0..6, y 6..9, z 13..15.
MIXED = (turns(A=[(1, 5)], B=[(4, 9)], C=[(11, 12)]), turns(x=[(0, 6)], y=[(6, 9)], z=[(13, 15)]))


def test_a_late_change_of_speaker() -> None:
    # 10..12 is B, called x: 2 s of confusion in 20 s.
    # A: x covers 12 s, of which 10 are A's, 1 - 10/12 = 1/6. B: y covers 8 of 10 s, 1/5.
    check(error_rates(*CHANGE, 0.0), 0, 0, 2, 20, (1 / 6 + 1 / 5) / 2)
    # Left out: 0..0.25, 9.75..10.25, 19.75..20. 9.5 s of each are left, confused are 10.25..12 (1.75 s).
    # A: x has 9.5 + 1.75, 1 - 9.5/11.25. B: y has 7.75 of 9.5.
    check(error_rates(*CHANGE, 0.25), 0, 0, 1.75, 19, (1.75 / 11.25 + 1.75 / 9.5) / 2)


def test_overlap_is_scored() -> None:
    # 8..10 is A and B, one is found: 2 s missed in 10 + 6 s. A: 8 of 10 s. B: all.
    check(error_rates(*OVERLAP, 0.0), 2, 0, 0, 16, (2 / 10 + 0) / 2)
    # Scored: 0.25..7.75 A, 8.25..9.75 A and B, 10.25..13.75 B: 9 + 5 s, missed 1.5. A: 7.5 of 9 s.
    check(error_rates(*OVERLAP, 0.25), 1.5, 0, 0, 14, (1.5 / 9 + 0) / 2)
    # The other way round, the second speaker of 8..10 is a false alarm: 2 s in 8 + 6.
    check(error_rates(OVERLAP[1], OVERLAP[0], 0.0), 0, 2, 0, 14, (2 / 10 + 0) / 2)


def test_misses_false_alarms_and_confusion_together() -> None:
    # x is A (4 s together), y is B (3 s), nobody is C.
    # 0..1 false alarm · 4..5 A and B, one found: missed 1 · 5..6 B called x: confused 1 · 11..12 C missed 1
    # · 13..15 false alarm 2. Speech 4 + 5 + 1.
    # A: 4 of 0..6, 1/3. B: 3 of 5, 2/5. C: 1.
    check(error_rates(*MIXED, 0.0), 2, 3, 1, 10, (1 / 3 + 2 / 5 + 1) / 3)
    # Scored: 0..0.75 · 1.25..3.75 A · 4.25..4.75 A and B · 5.25..8.75 B · 9.25..10.75 · 11.25..11.75 C · 12.25..15.
    # Speech 3 + 4 + 0.5; missed 0.5 + 0.5; false alarm 0.75 + 2; confused 5.25..6.
    # A: x has 0.75 + 2.5 + 0.5 + 0.75 = 4.5 s, 3 of them A's: 1/3. B: y has 6..8.75 of 4 s: 1.25/4. C: 1.
    check(error_rates(*MIXED, 0.25), 1, 2.75, 0.75, 7.5, (1 / 3 + 1.25 / 4 + 1) / 3)


def test_videos_add_up_by_seconds_and_by_speakers() -> None:
    total = add_rates(error_rates(*pair, 0.0) for pair in (CHANGE, OVERLAP, MIXED))
    # Seconds 2 + 2 + 6 of 20 + 16 + 10. Jaccard errors 11/30 + 1/5 + 26/15 of 2 + 2 + 3 speakers.
    check(total, 4, 3, 3, 46, (11 / 30 + 1 / 5 + 26 / 15) / 7)
    assert total.num_speakers == 7


def test_silence_has_no_rate_and_its_false_alarms_count() -> None:
    silent = error_rates([], turns(x=[(3, 5)]), 0.0)
    assert (silent.der, silent.jer, silent.false_alarm_s) == (None, None, 2.0)
    assert add_rates([silent, error_rates(*CHANGE, 0.0)]).der == pytest.approx(4 / 20)
    both = error_rates([], [], 0.25)
    assert (both.der, both.jer, both.false_alarm_s, both.num_speakers) == (None, None, 0.0, 0)
    nothing_found = error_rates(CHANGE[0], [], 0.0)
    assert (nothing_found.der, nothing_found.jer) == (1.0, 1.0)
    # A turn of 0.4 s lies within its own collars: its speaker is not asked for.
    short = error_rates(turns(A=[(0, 10)], B=[(12, 12.4)]), turns(x=[(0, 10)]), 0.25)
    assert (short.der, short.jer, short.num_speakers) == (0.0, 0.0, 1)


def test_turns_of_one_speaker_that_overlap_or_touch_are_one() -> None:
    split = turns(A=[(0, 4), (3, 7), (7, 10), (0, 4)], B=[(10, 20)])
    for collar_s in COLLARS_S:
        assert error_rates(split, CHANGE[1], collar_s) == error_rates(*CHANGE, collar_s)
        assert error_rates(CHANGE[1], split, collar_s) == error_rates(CHANGE[1], CHANGE[0], collar_s)


def test_names_and_order_mean_nothing() -> None:
    reference, hypothesis = MIXED
    renamed = [Turn("v", t.start_s, t.end_s, {"x": "C", "y": "A", "z": "B"}[t.speaker]) for t in hypothesis[::-1]]
    for collar_s in COLLARS_S:
        assert error_rates(reference[::-1], renamed, collar_s) == error_rates(reference, hypothesis, collar_s)


STEP_S = 0.05


def on_grid(found: list[Turn], frames: int) -> dict[str, np.ndarray]:
    grid: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(frames, bool))
    for turn in found:
        grid[turn.speaker][round(turn.start_s / STEP_S) : round(turn.end_s / STEP_S)] = True
    return grid


def counted(reference: list[Turn], hypothesis: list[Turn], collar_frames: int) -> tuple[list[float], list[float]]:
    """Missed, false alarm, confusion and speech by counting frames, and the JER of every best mapping."""
    frames = 400
    r, h = on_grid(reference, frames), on_grid(hypothesis, frames)
    scored = np.ones(frames, bool)
    for speaking in r.values():
        for edge in np.flatnonzero(np.diff(np.concatenate([[False], speaking, [False]]).astype(int))):
            scored[max(0, edge - collar_frames) : edge + collar_frames] = False
    r = {name: s & scored for name, s in r.items() if (s & scored).any()}
    h = {name: s & scored for name, s in h.items()}
    names = [*h, *[None] * len(r)]
    mappings = {m for m in permutations(names, len(r))}
    together = {m: sum(int((r[a] & h[b]).sum()) for a, b in zip(r, m, strict=True) if b is not None) for m in mappings}
    correct = max(together.values(), default=0)
    num_r, num_h = (np.sum(list(g.values()) or [np.zeros(frames, int)], axis=0).astype(int) for g in (r, h))
    missed, false_alarm = np.maximum(num_r - num_h, 0).sum(), np.maximum(num_h - num_r, 0).sum()
    confusion = np.minimum(num_r, num_h).sum() - correct
    jers = []
    for mapping in (m for m, seconds in together.items() if seconds == correct):
        errors = [
            1 - (r[a] & h[b]).sum() / (r[a] | h[b]).sum() if b is not None and (r[a] & h[b]).any() else 1.0
            for a, b in zip(r, mapping, strict=True)
        ]
        jers.append(float(np.mean(errors)) if errors else float("nan"))
    return [STEP_S * float(x) for x in (missed, false_alarm, confusion, num_r.sum())], jers


@pytest.mark.parametrize("collar_s", COLLARS_S)
def test_equals_a_count_on_a_grid(collar_s: float) -> None:
    rng = np.random.default_rng(7)

    def draw(names: str) -> list[Turn]:
        spans = [np.sort(rng.choice(400, 2, replace=False)) * STEP_S for _ in range(6)]
        return [Turn("v", float(a), float(b), str(rng.choice(list(names)))) for a, b in spans]

    for _ in range(25):
        reference, hypothesis = draw("ABC"), draw("xyz")
        found = error_rates(reference, hypothesis, collar_s)
        seconds, jers = counted(reference, hypothesis, round(collar_s / STEP_S))
        assert [found.missed_s, found.false_alarm_s, found.confusion_s, found.speech_s] == pytest.approx(
            seconds, abs=1e-6
        )
        assert any(found.jer == pytest.approx(jer, abs=1e-6) for jer in jers)


@pytest.mark.parametrize("name", ["debug.train", "debug.development", "sample"])
def test_real_meetings_score_zero_against_themselves(shared: Path, name: str) -> None:
    path = shared / "speech" / "ami" / f"{name}.rttm"
    found = read_rttm(path)
    assert len(found) == len([line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()])
    for video_id in {turn.video_id for turn in found}:
        of_video = [turn for turn in found if turn.video_id == video_id]
        for collar_s in COLLARS_S:
            rates = error_rates(of_video, of_video, collar_s)
            assert rates.speech_s > 0.1
            assert (rates.der, rates.jer) == (0.0, 0.0)
        # Not because nothing counts: one turn less is missed, for as long as its speaker says nothing else.
        rates = error_rates(of_video, of_video[1:], 0.0)
        assert 0 < rates.missed_s <= of_video[0].end_s - of_video[0].start_s + 1e-6
        assert rates.der == pytest.approx(rates.missed_s / rates.speech_s)


def test_without_pyannote_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyannote.metrics", None)
    with pytest.raises(AvfusionError, match=r"pip install pyannote\.metrics$") as caught:
        error_rates(*CHANGE, 0.0)
    assert "\n" not in str(caught.value)
