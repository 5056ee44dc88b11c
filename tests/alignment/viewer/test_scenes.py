"""Scenes from a model and a dataset: what the page shows is what the model did, face by face on one clock."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from avfusion.alignment.capture import AlignedClip, align_tracks, model_warnings
from avfusion.alignment.controls import OtherSound, shifted
from avfusion.alignment.measures.ablation import score_edited
from avfusion.alignment.viewer.scenes import build_scenes, faces_beside, joined, lag_maps, pick_scenes
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.data.open import open_dataset
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.tracks import FaceTrack
from tests.training.tiny import tiny_run

CPU = torch.device("cpu")


def track(name: str, video: str, start_s: float, frames: int, role: str = "", speaks: bool = True) -> FaceTrack:
    speaking = np.zeros(frames, dtype=bool)
    speaking[: frames // 2] = speaks
    return FaceTrack(video, name, start_s, speaking, np.zeros((frames, 4), np.float32), audio_id=video, role=role)


@pytest.fixture(scope="module")
def model_and_examples() -> tuple[ActiveSpeakerDetector, Examples, Config]:
    config = tiny_run()
    torch.manual_seed(5)
    model = build_model(config.model, config.data.num_mels)
    return model, Examples(open_dataset(config.data, "val"), config.data), config


def test_lag_maps_by_hand() -> None:
    weights = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4) / 10  # frames at 0 and 20 ms, keys at 0 .. 30 ms
    maps = lag_maps(weights, np.array([7.0, 7.02]), 7 + np.arange(4) / 100, half_width_s=0.02)
    nan = np.nan
    expected = [[nan, nan, 0.1, 0.2, 0.3], [0.5, 0.6, 0.7, 0.8, nan]]
    np.testing.assert_allclose(maps[0, 0], expected, atol=1e-7)


def test_stretches_are_joined_in_order() -> None:
    def clip(first: int) -> AlignedClip:
        weights = np.full((1, 1, 2, 8), 0.1, np.float32)
        query_s = np.arange(first, first + 2) / 25
        return AlignedClip(
            0, first, weights, np.ones((1, 1, 8), np.float32), None, np.full(2, first / 10, np.float32),
            np.ones(2, bool), query_s, np.arange(4 * first, 4 * first + 8) / 100,
        )  # fmt: skip

    view = joined([clip(2), clip(0)])
    np.testing.assert_allclose(view.scores, [0, 0, 0.2, 0.2], atol=1e-7)
    np.testing.assert_allclose(view.null_mass, np.full((1, 1, 4), 0.2), atol=1e-6)
    assert view.maps.shape == (1, 1, 4, 101)


def test_faces_of_a_video_come_on_the_clock_of_the_first() -> None:
    tracks = [
        track("lead", "v", 10.0, 100),
        track("later", "v", 11.0, 200),
        track("earlier", "v", 8.0, 75),
        track("gone", "v", 20.0, 50),
        track("elsewhere", "w", 10.0, 100),
    ]
    assert faces_beside(tracks, 0, 60) == {0: (0, 0, 100), 1: (0, 25, 75), 2: (50, 0, 25)}
    assert faces_beside(tracks, 0, 2) == {0: (0, 0, 50), 1: (0, 25, 25), 2: (50, 0, 25)}


def test_a_scene_may_begin_later_and_keep_the_faces_seen_longest() -> None:
    tracks = [
        track("lead", "v", 10.0, 100),
        track("brief", "v", 11.8, 10),
        track("long", "v", 9.0, 200),
        track("over", "v", 8.0, 60),
    ]
    assert faces_beside(tracks, 0, 2, 25) == {0: (25, 0, 50), 1: (0, 20, 10), 2: (50, 0, 50)}
    assert faces_beside(tracks, 0, 2, 25, most_faces=2) == {0: (25, 0, 50), 2: (50, 0, 50)}
    assert faces_beside(tracks, 0, 60, 90, most_faces=1) == {0: (90, 0, 10)}


def test_scenes_are_of_different_videos_and_prefer_several_faces() -> None:
    tracks = [track(f"a{n}", f"v{n}", 0, 50, "solo") for n in range(4)]
    tracks += [track("b0", "w", 0, 50, "two"), track("b1", "w", 0, 50, "two", speaks=False)]
    chosen = [tracks[i].video_id for i in pick_scenes(tracks, 3)]
    assert len(set(chosen)) == 3
    assert "w" in chosen[:2]


def test_the_page_shows_what_the_model_did(
    model_and_examples: tuple[ActiveSpeakerDetector, Examples, Config],
) -> None:
    model, examples, config = model_and_examples
    tracks = examples.dataset.tracks
    chosen = next(i for i, t in enumerate(tracks) if sum(o.video_id == t.video_id for o in tracks) > 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    (scene,) = build_scenes(model, examples, config, CPU, [chosen], words=[["a"] * 4], shifts_ms=(-40, 40))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    indices = list(faces_beside(tracks, chosen, 60))
    assert [face.name for face in scene.faces] == [tracks[i].entity_id for i in indices]
    assert len(scene.faces) > 1
    np.testing.assert_array_equal(scene.sound, examples.dataset.read(chosen).audio)
    for shift in (-40, 0, 40):
        change = shifted(examples, shift) if shift else None
        for clip in align_tracks(model, examples, config, CPU, indices, change=change):
            face = scene.faces[indices.index(clip.track)]
            view = face.views["trained"][shift]
            np.testing.assert_allclose(view.scores, clip.scores, atol=1e-6)
            np.testing.assert_allclose(view.null_mass, 1 - clip.weights.sum(-1), atol=1e-5)
            frame, key = 10, 43  # 30 ms later
            np.testing.assert_allclose(view.maps[:, :, frame, 53], clip.weights[:, :, frame, key], atol=1e-6)
    edited = score_edited(model, examples, config, CPU, indices)
    for number, face in enumerate(scene.faces):
        np.testing.assert_allclose(face.ablated["trained"], edited.edited[number][0], atol=1e-6)
        np.testing.assert_array_equal(face.speaking, tracks[indices[number]].speaking)
        assert np.abs(face.views["untrained"][0].maps - face.views["trained"][0].maps)[:, :, 20, 50].max() > 1e-4
    partner = OtherSound(examples).partner(chosen)
    np.testing.assert_array_equal(scene.other_sound, examples.dataset.read(partner).audio)
    spread = [np.abs(f.views["other_sound"][0].scores - f.views["trained"][0].scores).max() for f in scene.faces]
    assert min(spread) > 1e-6


def test_a_face_that_comes_later_hears_the_other_sound_at_the_scenes_time(
    model_and_examples: tuple[ActiveSpeakerDetector, Examples, Config],
) -> None:
    from avfusion.alignment.viewer.scenes import _OneOtherSound
    from avfusion.data.examples import Request

    _, examples, _ = model_and_examples
    change = _OneOtherSound(OtherSound(examples), {0: (0, 0), 1: (0, 5)})
    whole = change(examples[Request(0, 0, 30)], 0)
    later = change(examples[Request(1, 0, 20)], 1)  # stands 5 frames later in the scene
    assert later.request == Request(1, 0, 20)
    # Its first and last log-mel frames see the cut.
    np.testing.assert_allclose(later.log_mel[2:-2], whole.log_mel[22:98], atol=1e-4)


def test_warnings_of_a_model() -> None:
    assert model_warnings(tiny_run()) == []
    bypass = model_warnings(tiny_run("--model.fusion.audio_bypass=true"))
    assert bypass == ["sound also reaches the classifier around the attention: these maps need not explain the score"]
    taught = model_warnings(tiny_run("--train.loss.null=0.1"))
    assert taught[0].startswith("the null loss taught the attention where to look")
