"""The suite with rules in place of a model: what it finds is what the rules hear and see, broken off or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.config import Config
from avfusion.robustness import suite
from avfusion.robustness.conditions import FAMILIES, SHIFTS_MS, all_conditions
from avfusion.robustness.suite import Results, fingerprint, run_suite
from tests.robustness.planted import Planted, Scorer, agreement, sight


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, scorer: Scorer, identity: Any = None, every: int = 1) -> Results:
    monkeypatch.setattr(suite, "score_tracks", scorer)
    config = Config()
    config.report.bootstrap = 20
    clips = Planted()
    model: Any = None
    conditions = all_conditions(clips)[::every]
    return run_suite(
        model, clips, conditions, config, torch.device("cpu"), folder / "partial.json", identity or {"of": "this"}
    )


def test_a_rule_that_compares_sound_and_picture_accepts_nothing_out_of_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = run(monkeypatch, tmp_path, Scorer(agreement))
    assert found.clean["average_precision"] == pytest.approx(1, abs=0.02)
    assert found.threshold == pytest.approx(1, abs=1e-3)
    by_name = {row["condition"]: row for row in found.false_accepts}
    assert by_name["missing sound"]["false_accept_rate"] == 0
    assert by_name["another clip's sound"]["false_accept_rate"] < 0.05  # equal by chance
    assert max(row["false_accept_rate"] for row in found.false_accepts) < 0.05
    occluded = {row["severity"]: row for row in found.rows if row["family"] == "occlusion"}
    assert occluded[100]["average_precision"] < occluded[25]["average_precision"] < 1
    # These pictures are of one grey level each, so fewer pixels take nothing away.
    assert all(row["change"] == 0 for row in found.rows if row["family"] in ("pixelation", "low resolution"))


def test_a_rule_that_does_not_listen_accepts_any_sound_and_bears_any_noise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = run(monkeypatch, tmp_path, Scorer(sight))
    for row in found.false_accepts:
        assert row["false_accept_rate"] == row["own_sound_rate"], row["condition"]
    sounds = {family.name for family in FAMILIES if family.stream == "sound"}
    assert len([row for row in found.rows if row["family"] in sounds]) == 26
    assert all(row["change"] == 0 for row in found.rows if row["family"] in sounds)
    no_picture = next(row for row in found.rows if row["family"] == "missing picture")
    assert no_picture["average_precision"] == pytest.approx(found.counts["prevalence"])


def test_rows_come_in_order_and_count_what_they_are_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scorer = Scorer(sight)
    found = run(monkeypatch, tmp_path, scorer)
    shifts = [row["severity"] for row in found.false_accepts[:-2]]
    assert shifts == sorted([*SHIFTS_MS, *(-ms for ms in SHIFTS_MS)])
    assert [row["condition"] for row in found.false_accepts[-2:]] == ["another clip's sound", "missing sound"]
    # Six of eight tracks speak from frame 5 on, of 60; a shift of 40 frames leaves the last 20, or the first,
    # and the five nearest to the seam do not count.
    assert found.counts == {
        "tracks": 8, "frames": 480, "speaking_frames": 330, "prevalence": 330 / 480, "groups": 8,
        "in_sync_tracks": 6, "in_sync_groups": 6, "in_sync_speaking_frames": 330,
    }  # fmt: skip
    frames = {row["severity"]: row["num_frames"] for row in found.false_accepts[:-2]}
    assert (frames[1600], frames[-1600], frames[80], frames[-80]) == (6 * 15, 6 * 10, 6 * 53, 6 * 48)
    assert [row["condition"] for row in found.rows][:5] == [f"white noise, {db} dB SNR" for db in (10, 5, 0, -5, -10)]
    assert len(scorer.labels) == len(set(scorer.labels)) == 14 + len(found.rows)  # each once; silence is in both


@pytest.mark.parametrize("stop_after", [0, 1, 3, 9])
def test_broken_off_and_resumed_equals_unbroken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stop_after: int
) -> None:
    at_once = Scorer(agreement)
    whole = run(monkeypatch, tmp_path / "whole", at_once, every=5)
    (tmp_path / "broken").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, tmp_path / "broken", Scorer(agreement, stop_after), every=5)
    again = Scorer(agreement)
    assert run(monkeypatch, tmp_path / "broken", again, every=5) == whole
    finished = max(stop_after - 1, 0)  # the clean clips are scored again, since the rest is compared with them
    assert len(again.labels) == len(at_once.labels) - finished > 0


@pytest.mark.parametrize("damage", ["another", "cut", "text"])
def test_what_is_of_anything_else_or_damaged_is_done_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, tmp_path, Scorer(sight, 5), every=5)
    path = tmp_path / "partial.json"
    if damage == "cut":
        path.write_text(path.read_text()[:-20])
    elif damage == "text":
        path.write_text('"no such thing"')
    scorer = Scorer(agreement)
    run(monkeypatch, tmp_path, scorer, identity={"of": "that"} if damage == "another" else None, every=5)
    assert len(scorer.labels) == len(all_conditions(Planted())[::5])


def test_the_fingerprint_tells_labels_ids_groups_and_order() -> None:
    tracks = list(Planted().tracks)
    other = list(Planted(8, role="own_sound").tracks)
    prints = {fingerprint(one) for one in (tracks, tracks[:-1], tracks[::-1], other, list(Planted(8, 61).tracks))}
    assert len(prints) == 5
    assert fingerprint(tracks) == fingerprint(list(Planted().tracks))
