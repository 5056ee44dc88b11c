"""benchmarks/scaling.py: a case is what it says, ratios are of one round, and a real run holds what it claims."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from avfusion.errors import UsageError, run_command
from benchmarks import scaling
from benchmarks.scaling import Case, Cost

SMALL = [
    "--data.crop_size=16",
    "--data.num_mels=20",
    "--model.embed_dim=16",
    "--model.visual.channels=[4,8]",
    "--model.audio.channels=[4]",
    "--run.device=cpu",
    "--run.threads=1",
]


def test_minutes_of_a_scene_are_counted_for_every_face() -> None:
    assert Case(3000, 4).face_minutes == 8
    assert [scaling.passes(Case(1500 * minutes, 1)) for minutes in (1, 2, 3, 4, 16)] == [4, 2, 1, 1, 1]


def test_lists_are_numbers_above_zero() -> None:
    assert scaling.numbers("--minutes", "0.5,2,16") == [0.5, 2, 16]
    assert scaling.numbers("--minutes", "") == []
    for wrong in ("1,two", "0", "1,-2", "1,,2", "inf", "nan"):
        with pytest.raises(UsageError, match=f"--faces={wrong}: expected numbers above 0"):
            scaling.numbers("--faces", wrong)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("--faces=0.4", "--faces=0.4: expected whole numbers above 0"),
        ("--faces=1.5", "--faces=1.5: expected whole numbers above 0"),
        ("--minutes=1,0.0001", "--minutes=0.0001: expected minutes of one frame"),
        ("--scene-minutes=nan", "--scene-minutes=nan: expected minutes of one frame"),
        ("--scene-minutes=0", "--scene-minutes=0: expected minutes of one frame"),
        ("--rounds=0", "--rounds=0: expected at least 1"),
    ],
)
def test_scenes_of_nothing_are_one_line(
    argument: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scaling.py", argument])
    assert run_command(scaling.main) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


def test_a_baseline_has_no_attention_between_faces_to_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(scaling.ROOT / "configs" / "light_style.yaml")
    monkeypatch.setattr(sys, "argv", ["scaling.py", path, "--minutes=", "--faces=1,2"])
    assert run_command(scaling.main) == 0
    said = capsys.readouterr().out
    assert "do not know of each other in this model (model.speaker.layers: 0): no second table" in said


def test_the_random_scene_gives_any_stretch_with_its_own_sound() -> None:
    scene = scaling.RandomScene(Case(30, 2), side=8)
    whole, part = scene.read(1), scene.read(1, 10, 5)
    assert [track.entity_id for track in scene.tracks] == ["scene:0", "scene:1"]
    np.testing.assert_array_equal(part.crops, whole.crops[10:15])
    np.testing.assert_array_equal(part.audio, whole.audio[6400:9600])
    assert part.speaking.shape == (5,)
    assert not np.array_equal(whole.crops, scene.read(0).crops)  # two faces
    np.testing.assert_array_equal(whole.audio, scene.read(0).audio)  # and one sound


def test_ratios_are_taken_within_a_round_and_are_of_a_minute() -> None:
    cases = [Case(1500, 1), Case(3000, 1)]
    # The machine was half as fast in the second round: 0.5 s a minute and then 1.0 s, 0.6 s and then 1.2 s.
    costs = [
        [Cost(0.5, 10_000_000, 2e-7, 0.2), Cost(1.0, 10_000_000)],
        [Cost(1.2, 12_000_000, 3e-7, 0.1), Cost(2.4, 12_000_000)],
    ]
    header, _, first, second, says = scaling.report("one face", cases, costs).splitlines()
    assert header == "one face; medians of 2 rounds, (smallest..largest)"
    assert " ".join(first.split()) == "1 1 0.750 s (0.50..1.00) 1.000 (1.00..1.00) 10.0 MB 10.0 MB 1.00 - 2.0e-07"
    found = " ".join(second.split())
    assert found == "2 1 0.900 s (0.60..1.20) 1.200 (1.20..1.20) 12.0 MB 6.0 MB 0.60 2.0 MB 3.0e-07"
    assert says.startswith(
        "time a minute: grows by more than 15 % (1.00 to 1.20 of the first case); memory a minute: falls"
    )


def test_the_verdict_names_growth_flatness_and_fall() -> None:
    assert "flat within 15 %" in scaling.verdict("time", [[1.0], [1.15], [0.86]])
    assert "falls" in scaling.verdict("time", [[1.0], [0.8]])
    assert "grows" in scaling.verdict("time", [[1.0], [0.5], [1.16]])


def test_a_window_over_the_whole_scene_is_said_to_cost_the_square() -> None:
    path = scaling.ROOT / "configs" / "synthetic.yaml"
    _, local = scaling.prepared(path, SMALL, between_faces=False)
    assert "note" not in scaling.about(path, local)
    _, whole = scaling.prepared(path, [*SMALL, "--model.temporal.window_s=null"], between_faces=True)
    assert "attention costs the square of the length" in scaling.about(path, whole)
    assert (local.model.speaker.layers, whole.model.speaker.layers) == (0, 1)


def test_a_small_run_measures_and_compares(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chosen = ["--minutes=0.4,0.8", "--faces=1,2", "--scene-minutes=0.4", "--rounds=1", *SMALL]
    monkeypatch.setattr(sys, "argv", ["scaling.py", *chosen])
    assert run_command(scaling.main) == 0
    about, one, _, short, long, _, several, _, alone, both, says = capsys.readouterr().out.splitlines()
    assert about.startswith("synthetic: crops of 16 pixels, cpu, 1 threads; fusion.window_s 0.5, temporal.window_s 1.0")
    assert (one[:8], several[:5]) == ("one face", "faces")
    assert [row.split()[:2] for row in (short, long, alone, both)] == [
        ["0.4", "1"],
        ["0.8", "1"],
        ["0.4", "1"],
        ["0.4", "2"],
    ]
    for row in (short, long, alone, both):
        assert 0 < float(row.split()[-1]) < 1e-5  # 600 frames and more are chunked
        assert float(row.split()[7]) > 0.5  # the crops alone are 0.15 MB
    assert float(says.rsplit("spread by ", 1)[1].split()[0]) > 0.01
    monkeypatch.setattr(sys, "argv", ["scaling.py", str(tmp_path), "--run.threads=1"])
    assert run_command(scaling.main) == 2
    assert "a run's model is what it is" in capsys.readouterr().err
