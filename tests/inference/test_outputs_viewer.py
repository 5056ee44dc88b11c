"""The page of heads on a film's own faces: which seconds it shows, and that it shows what the model did there."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from avfusion.alignment.viewer.page import ViewerScene
from avfusion.config import Config, load_config
from avfusion.data.examples import Examples
from avfusion.data.prepared import PreparedDataset
from avfusion.inference.outputs import viewer, write_outputs
from avfusion.inference.outputs.speech import SpeechRules, find_speech
from avfusion.inference.outputs.stretches import Stretch, telling_stretches
from avfusion.inference.result import Result
from avfusion.models import build_model
from avfusion.scoring import score_tracks
from tests.conftest import REPOSITORY
from tests.inference.results import face, ingested_result, result_of, write_crops_of
from tests.media.conftest import Film
from tests.training.tiny import tiny_run

CPU = torch.device("cpu")
RULES = SpeechRules.at(0.5)


def chosen(result: Result, count: int, longest_s: float = 2.0) -> list[Stretch]:
    return telling_stretches(result, find_speech(result, RULES), count, longest_s)


def talk(frames: int, *stretches: tuple[int, int]) -> np.ndarray:
    scores = np.full(frames, 0.1)
    for first, end in stretches:
        scores[first:end] = 0.9
    return scores


def test_company_and_a_change_of_speaker_come_first() -> None:
    faces = [
        face("alone", 0, talk(100, (10, 30), (60, 80))),  # speaks and pauses, alone
        face("left", 200, talk(200, (0, 60))),  # two together: the speaker changes at 260
        face("right", 200, talk(200, (60, 120))),
        face("silent", 500, talk(100)),
    ]
    result = result_of(faces, num_frames=700)
    (best,) = chosen(result, 1)
    assert best.face in (1, 2)
    assert best.first < 260 < best.end
    assert best.end - best.first == 50
    two = chosen(result, 2)
    assert best in two
    assert {faces[one.face].track.entity_id for one in chosen(result, 9)} == {"alone", "left", "right", "silent"}


def test_stretches_do_not_overlap_and_lie_inside_their_tracks() -> None:
    rng = np.random.default_rng(0)
    faces = [face(f"face{n}", int(rng.integers(0, 900)), rng.random(int(rng.integers(1, 400)))) for n in range(20)]
    result = result_of(faces, num_frames=1300)
    found = chosen(result, 8)
    assert len(found) == 8
    assert all(one.end <= other.first for one, other in pairwise(found))
    for one in found:
        track = faces[one.face].track
        assert track.start_frame <= one.first < one.end <= track.start_frame + track.num_frames


def test_a_face_of_one_frame_is_shown_only_where_there_is_nothing_else() -> None:
    brief = face("brief", 0, [0.9])
    assert chosen(result_of([brief]), 2) == [Stretch(0, 0, 1)]
    (first, *_) = chosen(result_of([brief, face("long", 10, talk(30))]), 1)
    assert first.face == 1


@pytest.fixture(scope="module")
def config() -> Config:
    """A model that sees half a second around a frame, whose faces know of each other."""
    return tiny_run("--model.fusion.window_s=0.2", "--model.temporal.window_s=0.2", "--model.speaker.layers=1")


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """Two faces that are seen together for a while, and the crops they are scored from."""
    folder = tmp_path_factory.mktemp("film")
    rng = np.random.default_rng(2)
    tracks = [{"samples": rng.normal(0, 0.1, (1, 48_000 * 7)).clip(-0.9, 0.9)}]
    source = Film().write(folder / "talk.mkv", duration_s=7.0, tracks=tracks)
    faces = [
        face("face0", 0, talk(160, (0, 80)), (4, 4, 44, 60)),
        face("face1", 40, talk(135, (45, 90)), (90, 4, 130, 60)),
    ]
    result = ingested_result(source, folder / "media", faces)
    return result, write_crops_of(result, folder / "dataset", crop_px=24)


def test_the_page_shows_the_scores_of_the_whole_film(
    film: tuple[Result, Path], config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the model did on a stretch with the frames around it is what it did on the film."""
    result, root = film
    torch.manual_seed(0)
    model = build_model(config.model, config.data.num_mels)
    monkeypatch.setattr(viewer, "SCENE_S", 1.6)
    shown: list[ViewerScene] = []
    monkeypatch.setattr(viewer, "write_viewer", lambda path, scenes, title: shown.extend(scenes))
    speech = find_speech(result, RULES)
    (note,) = viewer.write_film_viewer(tmp_path / "viewer.html", result, speech, model, config, CPU, root)
    assert note == "viewer.html shows 1 stretch of the film, 2 of its 7 s"
    examples = Examples(PreparedDataset(root, "own"), config.data)
    scores = dict(
        zip((t.entity_id for t in examples.dataset.tracks), score_tracks(model, examples, config, CPU), strict=True)
    )
    (scene,) = shown
    begin, end = (round(25 * float(text)) for text in re.findall(r"(\d+\.\d+) to (\d+\.\d+) s", scene.title)[0])
    assert end - begin == scene.num_frames == 40
    assert begin > 40  # both are there, and it is not the film's beginning
    assert {one.name for one in scene.faces} == {"face0", "face1"}
    for one in scene.faces:
        start = next(f.track.start_frame for f in result.faces if f.track.entity_id == one.name)
        first = begin + one.first_frame - start
        expected = scores[one.name][first : first + len(one.speaking)]
        np.testing.assert_allclose(one.views["trained"][0].scores, expected, atol=1e-5)
        assert expected.std() > 1e-4
        assert not one.labelled
        assert sorted(one.views["trained"]) == list(viewer.SHIFTS_MS)
        assert sorted(one.views["untrained"]) == [0]
    np.testing.assert_array_equal(
        scene.sound, examples.sound_of(0, begin - round(25 * examples.dataset.tracks[0].start_s), 40)
    )


def test_a_lag_is_taken_out_of_the_page_s_sound_and_told(
    film: tuple[Result, Path], config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, root = film
    model = build_model(config.model, config.data.num_mels)
    monkeypatch.setattr(viewer, "SCENE_S", 1.6)
    shown: list[ViewerScene] = []
    monkeypatch.setattr(viewer, "write_viewer", lambda path, scenes, title: shown.extend(scenes))
    for lag_frames in (0, -2, 3):
        late = replace(result, sound_lag_frames=lag_frames)
        viewer.write_film_viewer(tmp_path / "v.html", late, find_speech(result, RULES), model, config, CPU, root)
    as_it_is, early, late = shown
    end = as_it_is.title
    assert end.endswith("s · 2 faces")
    assert [scene.unmoved for scene in shown] == ["as recorded", "lag taken out", "lag taken out"]
    assert early.title == f"{end} · a lag of -80 ms taken out of the sound"
    assert late.title == f"{end} · a lag of 120 ms taken out of the sound"
    np.testing.assert_array_equal(late.sound[: -3 * 640], as_it_is.sound[3 * 640 :])
    np.testing.assert_array_equal(early.sound[2 * 640 :], as_it_is.sound[: -2 * 640])


def test_all_files_are_written_and_those_of_an_earlier_run_do_not_stay(
    film: tuple[Result, Path], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, root = film
    monkeypatch.setattr(viewer, "SCENE_S", 1.0)
    model = build_model(config.model, config.data.num_mels).train()
    paths, notes = write_outputs(result, tmp_path / "out", model, config, CPU, dataset_root=root)
    names = ["scores.csv", "segments.json", "speakers.rttm", "overlay.mp4", "viewer.html"]
    assert [path.name for path in paths] == names
    assert notes == ["viewer.html shows 1 stretch of the film, 1 of its 7 s"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert model.training
    page = (tmp_path / "out" / "viewer.html").read_text(encoding="utf-8")
    assert re.search(r'"title":"talk \\u00b7 \d+\.\d\d to \d+\.\d\d s \\u00b7 2 faces"', page)
    before = {name: (tmp_path / "out" / name).read_bytes() for name in names[:3]}
    write_outputs(result, tmp_path / "out", model, config, CPU, dataset_root=root, overlay=False, viewer=False)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names[:3])
    assert before["scores.csv"] == (tmp_path / "out" / "scores.csv").read_bytes()


@pytest.mark.parametrize("what", ["--model.fusion.kind=concat", "--model.modality=video", "lr_style.yaml"])
def test_a_model_without_attention_has_no_page_and_says_so(
    film: tuple[Result, Path], tmp_path: Path, what: str
) -> None:
    result, root = film
    config = tiny_run(what) if what.startswith("--") else load_config(REPOSITORY / "configs" / what, [])
    model = build_model(config.model, config.data.num_mels)
    paths, notes = write_outputs(result, tmp_path, model, config, CPU, dataset_root=root, overlay=False)
    assert "viewer.html" not in {path.name for path in paths}
    assert any("viewer.html was left out: this model has no attention" in note for note in notes)
    assert "no attention" in (tmp_path / "segments.json").read_text()


def test_a_film_without_a_face_has_no_page(tmp_path: Path, config: Config) -> None:
    model = build_model(config.model, config.data.num_mels)
    paths, _ = write_outputs(result_of([]), tmp_path, model, config, CPU, dataset_root=tmp_path, overlay=False)
    assert [path.name for path in paths] == ["scores.csv", "segments.json", "speakers.rttm"]
    assert "no face" in (tmp_path / "segments.json").read_text()
