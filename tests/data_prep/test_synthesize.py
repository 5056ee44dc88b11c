"""``python -m data_prep.synthesize``: on disk is what is made in memory, with its truth, however often it is killed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from avfusion.data.prepared import PreparedDataset
from avfusion.data.prepared_writer import PreparedWriter
from avfusion.data.synthetic import SyntheticDataset
from data_prep import draw_talkers, synthesize

ASKED = ["--scenes=10", "--splits=train=0.6,val=0.4", "--scene-s=1.2", "--seed=5", "--crop-size=48"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "talkers"
    assert synthesize.main([str(root), *ASKED]) == 0
    return root


def test_what_is_read_from_disk_is_what_is_made_in_memory(made: Path):
    for split, scenes in (("train", 6), ("val", 4)):
        stored, memory = PreparedDataset(made, split), SyntheticDataset(split, scenes, 5, crop_size=48, scene_s=1.2)
        assert len(stored.tracks) == len(memory.tracks) >= scenes
        for index, (one, other) in enumerate(zip(stored.tracks, memory.tracks, strict=True)):
            assert (one.video_id, one.entity_id, one.role) == (other.video_id, other.entity_id, other.role)
            assert one.lag_ms == (None if other.lag_ms is None else pytest.approx(other.lag_ms, abs=1e-3))
            np.testing.assert_array_equal(one.speaking, other.speaking)
            np.testing.assert_allclose(one.boxes_xyxy, other.boxes_xyxy, atol=1e-4)
            clip, expected = stored.read(index), memory.read(index)
            np.testing.assert_array_equal(clip.audio, expected.audio)  # 16-bit steps in memory too
            assert np.abs(clip.crops.astype(int) - expected.crops).mean() < 3  # H.264


def test_every_scene_has_its_truth(made: Path):
    memory = SyntheticDataset("val", 4, 5, crop_size=48, scene_s=1.2)
    for index, track in enumerate(memory.tracks):
        told = json.loads((made / "truth" / "val" / f"{track.video_id}.json").read_text())
        assert told == json.loads(json.dumps(memory.truth(index).to_json()))
    rows = (made / "truth" / "val.csv").read_text().splitlines()
    assert rows[0].startswith("video_id,role,voices,heard_faces")
    assert len(rows) == 1 + 4


def test_a_killed_run_goes_on_to_the_same_dataset(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    add = PreparedWriter.add_scene

    def add_four(self: PreparedWriter, *scene: object) -> None:
        if len(self.scenes) == 4:
            raise KeyboardInterrupt
        add(self, *scene)  # type: ignore[arg-type]

    root = tmp_path / "talkers"
    monkeypatch.setattr(PreparedWriter, "add_scene", add_four)
    assert synthesize.main([str(root), *ASKED]) != 0
    monkeypatch.undo()
    assert not (root / "dataset.json").exists()
    assert synthesize.main([str(root), *ASKED]) == 0
    files = [sorted(p.relative_to(r) for p in r.rglob("*") if p.is_file()) for r in (made, root)]
    assert files[0] == files[1]
    for name in files[0]:
        if name.name != "dataset.json":  # holds the command line
            assert (made / name).read_bytes() == (root / name).read_bytes(), name
    capsys.readouterr()
    assert synthesize.main([str(root), *ASKED]) == 0
    assert "finished already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scenes=0"], "expected at least one for each of 3 splits"),
        (["--splits=train"], "names and shares that add up to 1"),
        (["--splits=train=0.5,val=x"], "names and shares that add up to 1"),
        (["--splits=train=0.5,val=0.6"], "names and shares that add up to 1"),
        (["--splits=train=0.5,train=0.5"], "names and shares that add up to 1"),
        (["--splits=../x=0.5,val=0.5"], "plain small names"),
        (["--splits=TRAIN=0.5,train=0.5"], "plain small names"),
        (["--scene-s=inf"], "scene_s is inf"),
        (["--scene-s=1e9"], "expected at most 600"),
        (["--crop-size=33"], "expected an even number from 24"),
        (["--scene-s=0.1"], "scene_s is 0.1"),
        (["--espeak=2"], "espeak is 2.0"),
        (["--seed=-1"], "seed is -1"),
        (["--seed=x"], "invalid int value"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
):
    try:
        code = synthesize.main([str(tmp_path / "out"), *arguments])
    except SystemExit as error:  # argparse
        code = int(error.code or 0)
    error_lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(error_lines) == 1
    assert words in error_lines[0]
    assert not (tmp_path / "out").exists()


def test_a_place_where_nothing_can_be_written_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("x")
    assert synthesize.main([str(tmp_path / "file"), *ASKED]) == 2
    error = capsys.readouterr().err.strip()
    assert error.endswith("cannot be written to (File exists); give another folder")
    assert "\n" not in error


def test_a_folder_of_other_settings_is_refused(made: Path, capsys: pytest.CaptureFixture[str]):
    assert synthesize.main([str(made), *ASKED[:-2], "--seed=6"]) == 2
    assert "begun with other settings" in capsys.readouterr().err


def test_pictures_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert draw_talkers.main([str(tmp_path / "docs"), "--role=overlap"]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in paths] == ["synthetic_faces.png", "synthetic_scene.png"]
    assert all(path.stat().st_size > 50_000 for path in paths)


@pytest.mark.parametrize("scenes", [3, 4, 5, 7, 10, 99])
def test_scenes_in_all_are_as_many_as_asked_for(scenes: int):
    counts = synthesize.scenes_of_splits("train=0.7,val=0.1,test=0.2", scenes)
    assert sum(counts.values()) == scenes
    assert min(counts.values()) >= 1
    assert all(
        abs(counts[name] - share * scenes) < 2 for name, share in {"train": 0.7, "val": 0.1, "test": 0.2}.items()
    )


def test_the_order_of_roles_makes_no_other_dataset_and_empty_names_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    asked = ["--scenes=2", "--splits=train=0.5,val=0.5", "--scene-s=1", "--crop-size=24"]
    assert synthesize.main([str(tmp_path / "d"), *asked, "--roles=turns,solo"]) == 0
    before = (tmp_path / "d" / "tracks.csv").read_bytes()
    assert synthesize.main([str(tmp_path / "d"), *asked, "--roles=solo,turns"]) == 0
    assert "is finished already" in capsys.readouterr().out
    assert (tmp_path / "d" / "tracks.csv").read_bytes() == before
    for roles, said in (("solo,", "a name is empty"), ("", "a name is empty"), ("slo", "'slo' is no role")):
        assert synthesize.main([str(tmp_path / "new"), *asked, f"--roles={roles}"]) == 2
        error = capsys.readouterr().err
        assert f"error: --roles={roles}: {said}; expected some of solo, " in error
        assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()
