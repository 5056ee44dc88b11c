"""Heads of every kind of model are asked the same: causal ones, coarse keys, several faces, and models of the field."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from avfusion.alignment import __main__ as command
from avfusion.alignment.capture import align_tracks, capture_clip
from avfusion.alignment.heads.collect import collect_heads
from avfusion.alignment.measures.ablation import score_edited
from avfusion.alignment.measures.slope import shift_slope, within_reach
from avfusion.alignment.reach import KeyReach
from avfusion.alignment.statistics import alignment_statistics
from avfusion.config import Config
from avfusion.data.batching import collate
from avfusion.data.examples import Examples
from avfusion.data.open import open_dataset
from avfusion.errors import AvfusionError, run_command
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.models.head_edit import edit_heads
from avfusion.models.window import Window
from avfusion.scoring import in_scene, plan_scenes, score_tracks
from avfusion.training import report
from avfusion.training.run_folder import keep_config
from tests.models.baselines.planted import LIGHT, TALKNET
from tests.training.tiny import tiny_run, trainer_of

CPU = torch.device("cpu")
CAUSAL = ["--model.causal=true", "--model.lookahead_frames=3"]
COARSE = ["--model.fusion.key_hz=25"]
FACES = ["--model.speaker.layers=1", "--data.faces=3"]
SCENES = ["--data.synthetic.val_scenes=6", "--data.synthetic.train_scenes=4", "--model.fusion.heads=2"]
SEVERAL = [f"--data.synthetic.roles={['solo', 'listener', 'overlap']}".replace("'", "")]
KINDS = {
    "causal": CAUSAL,
    "coarse": COARSE,
    "causal and coarse": [*CAUSAL, *COARSE],
    "several faces": [*FACES, *SEVERAL],
    "everything": [*CAUSAL, *FACES, *SEVERAL, "--model.fusion.layers=2", "--model.fusion.window_s=null"],
    "talknet_style": [*TALKNET, "--model.audio.channels=[4,8]"],
}


def untrained_model(*overrides: str) -> tuple[ActiveSpeakerDetector, Examples, Config]:
    config = tiny_run(*SCENES, *overrides)
    torch.manual_seed(0)
    model = build_model(config.model, config.data.num_mels).eval()
    for weight in (model.head.weight, *(p for p in model.speaker.parameters() if p.ndim > 1)):
        torch.nn.init.normal_(weight, std=0.5)  # they start near zero, where nothing would be seen
    return model, Examples(open_dataset(config.data, "val"), config.data), config


@pytest.mark.parametrize("key_hz", [100, 25])
@pytest.mark.parametrize(("before_s", "after_s"), [(0.5, 0.5), (0.5, 0.15), (0.2, 0.03), (0.5, 0.07), (0.1, 0.0)])
def test_keys_in_reach_are_those_the_model_may_attend_to(before_s: float, after_s: float, key_hz: int) -> None:
    frames, coarseness = 40, 100 // key_hz
    of_model = Window(before_s, 25, key_hz, after_s).dense_mask(frames, frames * key_hz // 25)
    expected = of_model.repeat_interleave(coarseness, dim=1).numpy()
    lag_s = np.arange(4 * frames) / 100 - np.arange(frames)[:, None] / 25
    reach = KeyReach(before_s, after_s, key_hz)
    np.testing.assert_array_equal(reach.holds(lag_s), expected)
    middle = np.flatnonzero(expected[20])
    assert (80 - middle[0], middle[-1] - 80) == (reach.keys_before, reach.keys_after)
    weights = expected / expected.sum(axis=1, keepdims=True)
    entropy = alignment_statistics(weights[None], reach=reach).entropy[0]
    np.testing.assert_allclose(entropy[expected.sum(axis=1) > 1], 1.0)


def test_a_causal_model_reaches_as_far_ahead_as_its_fusion_window() -> None:
    config = tiny_run(*CAUSAL)  # one stage of sound and a kernel of 11 frames: one of the three frames is the encoder's
    assert KeyReach.of(config.model) == KeyReach(0.5, 0.11, 100)
    assert str(KeyReach.of(config.model)) == "-0.5..0.11 s"
    assert within_reach([-600, -200, 0, 110, 120], config) == [-200, 0, 110]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_weights_on_all_that_is_in_reach_have_full_entropy_and_no_lift(kind: str) -> None:
    model, examples, config = untrained_model(*KINDS[kind])
    with ExitStack() as edits:
        for layer in range(config.model.fusion.layers):
            edits.enter_context(edit_heads(model, layer, uniform=[0, 1]))
        figures = collect_heads(model, examples, config, CPU).figures(resamples=0)  # raises for attention out of reach
    assert figures.speaking is not None
    reach = KeyReach.of(config.model)
    if reach.farthest is not None:
        unreached = ~reach.holds(figures.map_lag_ms / 1000)
        assert np.isnan(figures.map_speaking[..., unreached]).all()
        assert np.isfinite(figures.map_speaking[..., ~unreached]).all()
    np.testing.assert_allclose(figures.speaking.entropy[..., 0], 1.0, atol=1e-6)
    np.testing.assert_allclose(figures.speaking.lift[100][..., 0], 1.0, atol=1e-6)


def test_scores_beside_an_alignment_are_those_of_the_scene() -> None:
    model, examples, config = untrained_model(*FACES, *SEVERAL)
    scores = score_tracks(model, examples, config, CPU)
    together = [index for index, track in enumerate(examples.dataset.tracks) if track.role != "solo"]
    assert max(request.num_faces for request in plan_scenes(examples, config)) > 1
    alone = tiny_run(*SCENES, *SEVERAL)
    for clip in align_tracks(model, examples, config, CPU, together):
        np.testing.assert_allclose(clip.scores, scores[clip.track], atol=1e-5)
    edited = score_edited(model, examples, config, CPU, together)
    for index, base in zip(edited.tracks, edited.base, strict=True):
        np.testing.assert_allclose(base, scores[index], atol=1e-5)
    np.testing.assert_allclose(
        capture_clip(model, examples, together[0], config, CPU).scores, scores[together[0]], atol=1e-5
    )
    # The faces do change each other's scores, or all of this would say nothing.
    by_itself = next(iter(align_tracks(model, examples, alone, CPU, [together[-1]])))
    assert np.abs(by_itself.scores - scores[together[-1]]).max() > 1e-3


def test_the_map_is_that_of_the_own_face() -> None:
    model, examples, config = untrained_model(*FACES, *SEVERAL)
    track = next(i for i, one in enumerate(examples.dataset.tracks) if one.role == "overlap")
    clip = next(iter(align_tracks(model, examples, config, CPU, [track])))
    request = in_scene(next(iter(plan_scenes(examples, tiny_run(*SCENES, *SEVERAL)))), examples, config)
    assert request.num_faces >= 1
    own = in_scene(type(request)(track, 0, len(clip.scores)), examples, config)
    batch = collate([examples[own]])
    with torch.no_grad():
        found = model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask, need_alignment=True).alignment
    assert found is not None
    np.testing.assert_allclose(clip.weights, found[0, 0].numpy(), atol=1e-6)
    assert (found[0, 0] - found[0, 1]).abs().max() > 1e-4


def test_sound_is_not_moved_further_than_a_model_hears() -> None:
    model, examples, config = untrained_model(*CAUSAL, "--data.synthetic.scene_s=2.4", "--model.fusion.window_s=0.2")
    fit = shift_slope(model, examples, config, CPU, shifts_ms=[-240, -80, 0, 80, 120], resamples=0)
    assert fit.shifts_ms.tolist() == [-80, 0, 80]
    assert fit.num_frames > 0
    with pytest.raises(AvfusionError, match=r"fewer than two shifts lie within what the model hears, -0\.2\.\.0\.11 s"):
        shift_slope(model, examples, config, CPU, shifts_ms=[80, 120, 160], resamples=0)


def run_of(folder: Path, *overrides: str) -> Config:
    config = tiny_run(*SCENES, *overrides, epochs=1)
    trainer = trainer_of(config, folder)
    trainer.fit()
    assert trainer.logger is not None
    trainer.logger.close()
    keep_config(config, folder)
    return config


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["causal", "several faces", "talknet_style", "everything"])
def test_a_run_of_every_kind_is_inspected(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = run_of(tmp_path, "--data.synthetic.scene_s=2.4", "--model.fusion.window_s=0.2", *KINDS[kind])
    arguments = [str(tmp_path), "--shifts=-80,0,80", "--report.bootstrap=0", "--tracks=4"]
    monkeypatch.setattr(sys, "argv", ["python -m avfusion.alignment", *arguments])
    assert run_command(command.main) == 0, capsys.readouterr().err
    folder = tmp_path / "alignment"
    for name in ("heads.csv", "heads.md", "viewer.html", "summary.png", "slopes.png", "ablation.png"):
        assert (folder / name).stat().st_size > 300, name
    found = json.loads((folder / "heads.json").read_text())
    assert len(found["rows"]) == 6 * config.model.fusion.layers * 2
    assert not [note for note in found["notes"] if not note.startswith(("overlapping voices:", "intervals:", "roles "))]
    bypass = any("reaches the classifier around" in warning or "bypass" in warning for warning in found["warnings"])
    assert bypass == (kind == "talknet_style")

    config.report.inspect, config.report.inspect_tracks = True, 2
    examples = Examples(open_dataset(config.data, "val"), config.data)
    out = tmp_path / "report"
    out.mkdir()
    report.report_run(tmp_path / "checkpoints" / "best.pt", config, examples, "val", out, None, ["test"])
    assert "heads" in json.loads((out / "report.json").read_text())
    assert (out / "alignment" / "viewer.html").stat().st_size > 300


def test_a_light_model_is_refused_in_one_line_and_reported_without_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = run_of(tmp_path, *LIGHT, "--model.audio.channels=[4,8]", "--report.inspect=true")
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["python -m avfusion.alignment", str(tmp_path)])
    assert run_command(command.main) == 2
    said = capsys.readouterr().err
    assert "this model has no cross-attention, so it has no heads to look into; train one with --model.kind=avf" in said
    assert said.count("\n") == 1
    examples = Examples(open_dataset(config.data, "val"), config.data)
    out = tmp_path / "report"
    out.mkdir()
    report.report_run(tmp_path / "checkpoints" / "best.pt", config, examples, "val", out, None, ["test"])
    assert "heads" not in json.loads((out / "report.json").read_text())
