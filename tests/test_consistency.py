"""The experiment on a voice over a minute: its arms, its frames, its other sounds, and tables that hold the files."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avfusion.clock import AUDIO_HZ, SAMPLE_RATE, VIDEO_HZ
from avfusion.config import load_config, to_flat_dict
from avfusion.data.synthetic import SyntheticDataset
from avfusion.errors import run_command
from avfusion.models import build_model, context_frames
from avfusion.training.held_still import can_remember
from benchmarks import consistency, consistency_table
from benchmarks.consistency import ARMS, DEFAULT_CONFIG
from benchmarks.returning_frames import Frames, all_frames, frames_of, near, parts_of, within
from benchmarks.returning_sounds import changed_sound
from benchmarks.voice_templates import template_scores, true_pitch, voice_map
from benchmarks.write_up import replace_between

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "consistency"


def test_arms_differ_in_the_temporal_block_alone_and_have_the_same_parameters() -> None:
    configs = {arm: load_config(DEFAULT_CONFIG, given) for arm, given in ARMS.items()}
    settings = {arm: to_flat_dict(config) for arm, config in configs.items()}
    reference = settings["half_attention"]
    for found in settings.values():
        assert {key for key in found if found[key] != reference[key]} <= {
            f"model.temporal.{key}" for key in ("window_s", "order", "positions", "layers")
        }
    sizes = {arm: sum(p.numel() for p in build_model(c.model, 64).parameters()) for arm, c in configs.items()}
    assert sizes.pop("none") < min(sizes.values())
    assert len(set(sizes.values())) == 1
    assert len(sizes) == 12


def test_the_window_reaches_as_far_as_an_arm_is_named_for() -> None:
    """Beside the window: 0.5 s of fusion, 3 frames of either encoder, 2 of the convolution, at 25 frames a second."""
    reach = {arm: context_frames(load_config(DEFAULT_CONFIG, given).model) for arm, given in ARMS.items()}
    assert reach["half_attention"] == 25 + 6 + 2
    assert reach["four_convolution"] == 113 + 6 + 2  # 4.5 s are 112.5 frames
    assert reach["whole_no_positions"] is None


def test_the_encoders_are_embedded_once_and_a_clip_is_a_whole_scene() -> None:
    config = load_config(DEFAULT_CONFIG, [])
    assert can_remember(config)
    assert config.data.clip_frames == 60 * VIDEO_HZ


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms=heads_3"], "'heads_3' is none of half_attention"),
        (["--train-only", "--measure-only"], "leave nothing to do"),
        (["--data.root=x"], "--data.root is chosen for each training"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(arguments, message, tmp_path, monkeypatch, capsys) -> None:
    command = ["consistency.py", str(tmp_path / "out"), "--short=nowhere", "--data=nowhere", *arguments]
    monkeypatch.setattr(sys, "argv", command)
    assert run_command(consistency.main) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--split=tset", "no tracks of the split 'tset' in tracks.csv; there are train, val"),
        ("--epochs=0", "train.epochs: expected at least 1, found 0"),
        ("--train.lr=fast", "train.lr: expected a number, found 'fast'"),
        ("--short=nowhere", "no prepared dataset at nowhere"),
    ],
)
def test_what_only_an_arm_or_the_measuring_needs_is_checked_before_the_encoders_train(
    argument, message, small_dataset, tmp_path, monkeypatch, capsys
) -> None:
    root = small_dataset(tmp_path / "d", {"train": 8, "val": 4}, frames=30)
    command = ["consistency.py", str(tmp_path / "out"), f"--short={root}", f"--data={root}", "--split=val", argument]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(consistency, "train", lambda *_: pytest.fail("it trains"))
    assert run_command(consistency.main) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def scenes() -> SyntheticDataset:
    made = SyntheticDataset("test", 2, seed=1, crop_size=24, scene_s=60.0, roles=("returning",))
    made.truth = functools.cache(made.truth)  # it renders the voices at every call
    return made


def test_frames_are_those_of_the_truth(scenes: SyntheticDataset) -> None:
    person, still = frames_of(scenes, 0), frames_of(scenes, 1)
    assert person is not None
    assert still is not None
    assert (person.person, still.person) == (True, False)
    assert np.array_equal(person.own, scenes.tracks[0].speaking)
    assert not (person.own & person.other).any()
    boards = scenes.scene(0).faces[0].camera.covers
    assert person.hidden.sum() == pytest.approx(sum(b.end_s - b.start_s for b in boards) * VIDEO_HZ, abs=len(boards))
    assert np.array_equal(person.hidden, still.hidden)
    assert (person.hidden & person.own).any()
    assert (person.hidden & person.other).any()


def test_other_roles_have_no_such_frames() -> None:
    assert frames_of(SyntheticDataset("test", 1, crop_size=24, scene_s=1.0, roles=("solo",)), 0) is None


def test_parts_by_hand() -> None:
    """Six frames of the person, hidden in the last four; a face that stays in the same frames."""
    hidden = np.array([0, 0, 1, 1, 1, 1], dtype=bool)
    own, other = np.array([1, 0, 1, 0, 0, 0], dtype=bool), np.array([0, 1, 0, 1, 0, 1], dtype=bool)
    close = np.array([1, 1, 1, 0, 0, 0], dtype=bool)
    parts = parts_of([Frames(True, hidden, own, other, close), Frames(False, hidden, own, other, close)])
    expected = {
        "hidden": "001101 000000", "hidden_near": "001000 000000", "hidden_far": "000101 000000",
        "visible": "110000 000000", "staying": "001101 001101", "all": "111111 111111",
    }  # fmt: skip
    for name, frames in expected.items():
        assert "".join(str(int(there)) for there in parts[name]) == frames.replace(" ", ""), name


def test_near_and_within_by_hand() -> None:
    assert list(within(np.array([[0.1, 0.3]]), np.array([0.0, 0.1, 0.2, 0.3]))) == [False, True, True, False]
    assert not within(np.zeros((0, 2)), np.arange(3.0)).any()
    mask = np.zeros(20, dtype=bool)
    mask[10] = True
    assert list(np.flatnonzero(near(mask, 0.08))) == [8, 9, 10, 11, 12]


def pitch_of(sound: np.ndarray, start_s: float, end_s: float) -> float:
    """Hz by the highest autocorrelation of periods from 80 to 280 Hz."""
    part = sound[int(start_s * SAMPLE_RATE) : int(end_s * SAMPLE_RATE)].astype(np.float64)
    spectrum = np.fft.rfft(part, 2 * len(part))
    lags = np.arange(SAMPLE_RATE // 280, SAMPLE_RATE // 80)
    return float(SAMPLE_RATE / lags[np.argmax(np.fft.irfft(np.abs(spectrum) ** 2)[lags])])


def test_other_sound_changes_the_voices_where_it_says(scenes: SyntheticDataset) -> None:
    number = 1
    index = next(i for i, place in enumerate(scenes.scene_of_track) if place == (number, 0))
    frames = frames_of(scenes, index)
    assert frames is not None
    as_read = scenes.read(index).audio
    samples = np.repeat(frames.hidden, SAMPLE_RATE // VIDEO_HZ)
    loud = {change: changed_sound(scenes, number, change) for change in (None, "silenced", "strangers", "exchanged")}
    assert np.array_equal(loud[None], as_read)

    def moved(change: str, where: np.ndarray) -> float:
        return float(np.sqrt(np.mean((loud[change] - as_read)[where] ** 2)) / np.sqrt(np.mean(as_read[where] ** 2)))

    edges = np.convolve(samples, np.ones(2 * SAMPLE_RATE // VIDEO_HZ), "same")  # boards begin between two frames
    hidden, open_ = edges == 2 * SAMPLE_RATE // VIDEO_HZ, edges == 0
    # The mixture is made to fit after the change, which may scale it a little.
    assert moved("silenced", hidden) < 0.1 < 0.5 < moved("silenced", open_)
    assert moved("strangers", hidden) < 0.1 < 0.5 < moved("strangers", open_)
    assert moved("exchanged", open_) < 0.1 < 0.5 < moved("exchanged", hidden)


def test_exchanged_words_have_the_other_voices_pitch(scenes: SyntheticDataset) -> None:
    number = 0
    scene = scenes.scene(number)
    own, other = (heard.utterance for heard in scene.voices)
    sound = changed_sound(scenes, number, "exchanged")
    boards = [(board.start_s, board.end_s) for board in scene.faces[0].camera.covers]
    ratios = []
    for said, voice in ((own, other.voice), (other, own.voice)):
        for start_s, end_s in said.script.phrases_s:
            if any(first < start_s and end_s < last for first, last in boards):
                ratios.append(pitch_of(sound, start_s, end_s) / voice.pitch_hz)
    assert len(ratios) > 5
    assert abs(np.log2(np.median(ratios))) < 0.2


def test_the_true_pitch_tells_the_voices_and_no_feature_tells_nothing(scenes: SyntheticDataset) -> None:
    frames = all_frames(scenes)
    indices = range(len(scenes.tracks))
    told = consistency.precisions(
        scenes, frames, template_scores([true_pitch(scenes, i) for i in indices], frames), ("hidden",)
    )
    noise = [np.random.default_rng(i).normal(size=(track.num_frames, 1)) for i, track in enumerate(scenes.tracks)]
    untold = consistency.precisions(scenes, frames, template_scores(noise, frames), ("hidden",))
    assert told["hidden"]["auroc"] > 0.9
    assert 0.25 < untold["hidden"]["auroc"] < 0.75
    truth = scenes.truth(0)
    middle = int(truth.voices[0].active_s[0].mean() * AUDIO_HZ) // 4
    near_by = 2 ** true_pitch(scenes, 0)[middle - 8 : middle + 8]
    assert np.nanmedian(near_by) == pytest.approx(truth.voices[0].pitch_hz, rel=0.35)


def test_the_map_finds_what_tells_voices_among_what_does_not() -> None:
    """Two features vary a lot within every voice; a sum of them hardly does, but differs from voice to voice."""
    rng = np.random.default_rng(0)
    heard = np.arange(400) % 100 >= 25  # pauses between
    own = heard & (np.arange(400) < 200)
    frames = [Frames(True, np.zeros(400, dtype=bool), own, heard & ~own, heard) for _ in range(20)]
    features = []
    for _ in frames:
        voice = np.where(np.arange(400) < 200, *rng.normal(0, 0.2, 2))
        loud = np.cumsum(rng.normal(0, 0.3, 400))
        features.append(np.stack([loud + voice, -loud], axis=1))
    (first,), (second,) = voice_map(features, frames, dims=1, ridge=1e-6)
    assert first / second == pytest.approx(1.0, abs=0.1)


def training(arm: str, seed: int, hidden: float, exchanged: float = 0.5) -> dict[str, Any]:
    """A file as consistency.py writes it; the draws of all figures share their noise."""
    noise = np.random.default_rng(0).normal(0, 0.01, 50)

    def part(value: float) -> dict[str, Any]:
        drawn = list(value + noise)
        found = {"ap": value, "auroc": value, "drawn_ap": drawn, "drawn_auroc": drawn}
        return {**found, "prevalence": 0.5, "frames": 100, "groups": 9}

    parts = {name: part(hidden) for name in ("hidden", "hidden_near", "hidden_far", "visible", "staying", "all")}
    found = {"arm": arm, "seed": seed, "dataset": {"name": "d"}, "short": {}, "epochs": {"encoders": 6, "arm": 3}}
    found |= {"steps": 7, "common_settings": [], "minutes": 2.0, "commit": "abc", "parameters": 9, "tracks": 5}
    changed = {"silenced": part(0.5), "strangers": part(0.5), "exchanged": part(exchanged)}
    return found | {"machine": "m", "splits": "test", "parts": parts, "changed": changed}


def test_a_voice_is_remembered_only_where_exchanging_it_turns_the_score(tmp_path: Path) -> None:
    for seed in range(3):
        for one in (
            training("half_attention", seed, 0.5),
            training("whole_attention", seed, 0.7, exchanged=0.3),
            training("whole_convolution", seed, 0.7, exchanged=0.7),  # from something else than the voice
            training("whole_no_positions", seed, 0.7 + 0.1 * (seed - 1), exchanged=0.3),  # ± 0.25 over seeds
        ):
            (tmp_path / f"{one['arm']}-{seed}.json").write_text(json.dumps(one))
    (tmp_path / "encoders-0.json").write_text(json.dumps({**training("encoders", 0, 0.8), "steps": 3}))
    oracles = {name: training("o", 0, 0.9)["parts"]["hidden"] for name in ("pitch", "log_mel")}
    (tmp_path / "oracles.json").write_text(json.dumps({"oracles": oracles}))
    text = consistency_table.tables(
        consistency_table.read_trainings(tmp_path), consistency_table.read_oracles(tmp_path)
    )
    verdict = {line.split(" | ")[0][2:]: line.split(" | ")[-1][:-2] for line in text.splitlines()[-4:]}
    assert verdict == {
        "half_attention": "not shown",
        "whole_attention": "holds",
        "whole_convolution": "not shown",
        "whole_no_positions": "not shown",
    }
    assert "`whole_attention` against `half_attention`, AUROC while hidden: +0.200 ± 0.000" in text
    assert "**better**" in text
    assert "| the true pitch | 0.900 (" in text
    assert "| the encoders' embeddings | 0.800 (" in text


@pytest.mark.slow
def test_the_whole_experiment_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenes of half a minute and a model of nothing: every figure is there, and a second call changes no file."""
    from data_prep.synthesize import main as synthesize

    shares = "train=0.5,val=0.25,test=0.25"
    made = {"short": ("24", "1.6", "solo,listener"), "long": ("8", "30", "returning")}
    for name, (scenes, scene_s, roles) in made.items():
        asked = [f"--scenes={scenes}", f"--scene-s={scene_s}", f"--roles={roles}", f"--splits={shares}"]
        assert synthesize([str(tmp_path / name), "--crop-size=24", *asked]) == 0
    command = ["consistency.py", str(tmp_path / "out"), f"--short={tmp_path / 'short'}", f"--data={tmp_path / 'long'}"]
    command += ["--seeds=3", "--arms=whole_convolution,none", "--start=1", "--epochs=2", "--run.threads=1"]
    command += ["--model.embed_dim=16", "--model.visual.channels=[4,8]", "--model.audio.channels=[4]"]
    command += ["--data.num_mels=20", "--data.crop_size=16", "--run.device=cpu"]
    monkeypatch.setattr(sys, "argv", command)
    assert run_command(consistency.main) == 0
    files = sorted((tmp_path / "out").glob("*.json"))
    assert [path.name for path in files] == [
        "encoders-3.json",
        "none-3.json",
        "oracles.json",
        "whole_convolution-3.json",
    ]
    content = [path.read_text() for path in files]
    arm = json.loads(content[3])
    assert arm["tracks"] == 4
    assert arm["parts"]["all"]["frames"] == 4 * 750
    assert set(arm["changed"]) == {"silenced", "strangers", "exchanged"}
    assert arm["changed"]["exchanged"]["frames"] == arm["parts"]["hidden"]["frames"]
    assert arm["changed"]["exchanged"]["auroc"] != arm["parts"]["hidden"]["auroc"]
    assert json.loads(content[2])["oracles"]["pitch"]["auroc"] > 0.8
    text = consistency_table.tables(
        consistency_table.read_trainings(tmp_path / "out"), consistency_table.read_oracles(tmp_path / "out")
    )
    assert text.count("\n| whole_convolution | ") == 2
    assert run_command(consistency.main) == 0
    assert [path.read_text() for path in files] == content


@pytest.mark.parametrize("folder", sorted(KEPT.glob("*/")), ids=lambda folder: folder.name)
def test_the_write_up_holds_exactly_what_the_files_say(folder: Path) -> None:
    path = ROOT / "docs" / "experiments.md"
    content = path.read_text(encoding="utf-8")
    text = consistency_table.tables(consistency_table.read_trainings(folder), consistency_table.read_oracles(folder))
    assert replace_between(content, "consistency", folder.name, text, path) == content
