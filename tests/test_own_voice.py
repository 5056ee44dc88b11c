"""The bar on real clips: which frames count, and that a rule that listens passes it where one that looks cannot."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from avfusion.checkpoint import save_checkpoint
from avfusion.config import Config, DataConfig
from avfusion.errors import run_command
from avfusion.files import sha256_of
from avfusion.models import ActiveSpeakerDetector, build_model
from benchmarks import own_voice
from benchmarks.real_clips import LEFT_OUT_TALKERS, Asked, seen_talkers, wanted_clips
from data_prep.clips_in_memory import Scenes
from tests.data_prep.test_compose_command import ALIGN, write_clip
from tests.inference.test_film_lag import Reader, film
from tests.made_clips import Rule, a_clip

CLIPS = [a_clip(f"c{number}", f"made/t{number % 5}", ("train", "val", "test")[number % 3]) for number in range(15)]


def test_active_frames_are_within_20_db_of_the_loudest() -> None:
    levels = np.array([1.0, 0.1001, 0.0999, 0.0, 0.5])
    sound = np.repeat(levels, 640).astype(np.float32) * np.tile([1, -1], 5 * 320).astype(np.float32)
    np.testing.assert_array_equal(own_voice.active(sound), [True, True, False, False, True])
    assert not own_voice.active(np.zeros(640 * 3, np.float32)).any()


def test_what_is_heard_and_which_frames_count() -> None:
    clip = CLIPS[0]
    heard = own_voice.heard_with(clip, CLIPS)
    own = clip.decoded.speaking  # loud wherever it speaks, silent elsewhere
    np.testing.assert_array_equal(heard["own"][1], own)
    assert not heard["silence"][0].any()
    assert heard["silence"][1].all()
    late, counts = heard["rolled"]
    np.testing.assert_allclose(late[15 * 640 + 80 : -80], clip.decoded.audio[80 : -15 * 640 - 80])
    np.testing.assert_array_equal(counts, own & np.roll(own, 15))
    foreign, active = heard["other voice"]
    rms = [np.sqrt(np.mean(sound.reshape(-1, 640)[frames] ** 2)) for sound, frames in ((foreign, active), heard["own"])]
    assert rms[0] == pytest.approx(rms[1], rel=1e-5)


def test_the_other_voice_is_another_talkers_and_does_not_depend_on_order() -> None:
    talkers = set()
    for clip in CLIPS:
        voice = own_voice.other_voice(clip, CLIPS)
        np.testing.assert_array_equal(voice, own_voice.other_voice(clip, CLIPS[::-1]))
        fits = [
            other.talker
            for other in CLIPS
            if np.corrcoef(voice, np.resize(other.decoded.audio, len(voice)))[0, 1] > 0.999
        ]
        assert len(fits) == 1
        assert fits[0] != clip.talker
        talkers.add(fits[0])
    assert len(talkers) > 2


def test_who_listens_passes_and_who_looks_does_not() -> None:
    listening = own_voice.figures(Rule(), CLIPS, set(), 100)["sets"]["all"]
    looking = own_voice.figures(Rule(listens=False), CLIPS, set(), 100)["sets"]["all"]
    assert (listening["talkers"], listening["clips"]) == (5, 15)
    for what in own_voice.COMPARISONS:
        heard, seen = listening["comparisons"][what], looking["comparisons"][what]
        assert heard["average_precision"] > 0.99
        assert heard["false_accept_rate"] < 0.1
        assert seen["average_precision"] < 0.75
        low, high = seen["average_precision_interval"]
        assert low <= seen["average_precision"] <= high
    frames = sum(clip.num_frames for clip in CLIPS)
    own = sum(int(clip.decoded.speaking.sum()) for clip in CLIPS)
    assert listening["comparisons"]["silence"]["prevalence"] == pytest.approx(own / (own + frames))
    assert looking["comparisons"]["rolled"]["false_accept_rate"] > 0.9


def test_sets_leave_out_whom_the_model_has_seen() -> None:
    facts = {"talkers": {"trained_on": ["made/t0"], "chosen_on": ["made/t1"]}}
    asked = Rule(facts=facts)
    seen = seen_talkers(asked, CLIPS, None)
    assert seen == {"made/t0", "made/t1"}
    report = own_voice.figures(asked, CLIPS, seen, 0)
    assert report["sets"]["not seen"]["talkers"] == 3
    assert report["sets"]["split test"]["clips"] == 5
    assert report["seen"] == ["made/t0", "made/t1"]
    assert set(report["talkers"]) == {f"made/t{number}" for number in range(5)}
    assert seen_talkers(Rule(), CLIPS, None) == {clip.talker for clip in CLIPS if clip.split != "test"}
    assert seen_talkers(asked, CLIPS, "made/t3, made/t4") == {"made/t3", "made/t4"}
    assert seen_talkers(asked, CLIPS, "none") == set()


def test_a_clip_that_says_nothing_counts_everywhere_but_among_those_who_speak() -> None:
    quiet = replace(CLIPS[0], decoded=replace(CLIPS[0].decoded, speaking=np.zeros(CLIPS[0].num_frames, bool)))
    sets = own_voice.figures(Rule(), [quiet, *CLIPS[1:]], set(), 0)["sets"]
    assert sets["all"]["clips"] == sets["not seen"]["clips"] == len(CLIPS)
    assert sets["not seen, who speak"]["clips"] == len(CLIPS) - 1


def test_the_table_has_the_published_figures_beside_ours() -> None:
    text = own_voice.as_text(own_voice.figures(Rule(), CLIPS, set(), 100))
    assert "| LR-ASD weights, trained on AVA, all | .975 | .714 | .862 | .000 | .670 | .940 |" in text
    assert "| all: 5 talkers, 15 clips | 1.000" in text
    assert "note: 5 talkers: an interval over so few says little" in text


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of three talkers with word times and boxes, one that is left out by name, one that never speaks."""
    folder = tmp_path_factory.mktemp("clips")
    rows, boxes = ["path,corpus,talker,split"], ["path,frame,x1,y1,x2,y2"]
    named = {"ann": "train", "ben": "val", "eve": "test", "mute": "test", "s1": "train"}
    for seed, (talker, split) in enumerate(named.items()):
        path, corpus = f"{talker}/take.mkv", "grid" if talker == "s1" else "made"
        write_clip(folder / path, 10 * seed, level=0 if talker == "mute" else 3000)
        (folder / path).with_suffix(".align").write_text(ALIGN)
        rows.append(f"{path},{corpus},{talker},{split}")
        boxes += [f"{path},{frame},30,10,70,50" for frame in range(0, 50, 5)]
    (folder / "clips.csv").write_text("\n".join(rows) + "\n")
    (folder / "boxes.csv").write_text("\n".join(boxes) + "\n")
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Config()
    config.model.embed_dim, config.model.visual.channels, config.model.audio.channels = 16, [4, 8], [4]
    config.data.crop_size, config.data.num_mels = 24, 20
    path = tmp_path_factory.mktemp("run") / "best.pt"
    save_checkpoint(path, build_model(config.model, 20), config, {"progress": {"epoch": 1, "step": 1}})
    return path


def test_the_command_scores_films(
    films: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures.json"
    given = [str(films), f"--checkpoint={checkpoint}", f"--out={out}", "--resamples=100"]
    monkeypatch.setattr(sys, "argv", ["own_voice.py", *given])
    assert run_command(own_voice.main) == 0
    report = json.loads(out.read_text())
    assert set(report["talkers"]) == {"made/ann", "made/ben", "made/eve"}
    assert report["seen"] == ["made/ann", "made/ben"]
    assert len(report["checkpoint"]["sha256"]) == 64
    assert report["lags_taken_out"] is None
    assert "| all: 3 talkers, 3 clips |" in capsys.readouterr().out


def test_lags_are_those_of_a_table_or_of_each_clip(
    films: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "figures.json", tmp_path / "lags.csv"
    table.write_text("talker,lag_ms\n" + "".join(f"made/{name},40\n" for name in ("ann", "ben", "eve", "mute")))
    for lags, taken in ((table, sha256_of(table)), (Path("each"), None)):
        given = [str(films), f"--checkpoint={checkpoint}", f"--out={out}", "--resamples=0", f"--lags={lags}"]
        monkeypatch.setattr(sys, "argv", ["own_voice.py", *given])
        assert run_command(own_voice.main) == 0
        assert json.loads(out.read_text())["lags_taken_out"] == {"table": taken}
        assert "trained on AVA, all, clips as they are |" in capsys.readouterr().out
    table.write_text("talker,lag_ms\nann,40\n")
    monkeypatch.setattr(sys, "argv", ["own_voice.py", str(films), f"--checkpoint={checkpoint}", f"--lags={table}"])
    assert run_command(own_voice.main) == 2
    assert "no row for talker made/ann (and 3 more)" in capsys.readouterr().err


def test_each_scene_s_own_lag_is_taken_out_for_all_of_its_faces() -> None:
    """Two faces of one scene whose sound comes two frames late, and one of another that is a frame early."""
    config = Config(data=DataConfig(crop_size=32))
    asked = Asked(cast(ActiveSpeakerDetector, Reader()), config, Path("reader"), {})
    scenes = Scenes("scenes")
    films = {"late": film(2, 110), "early": film(-1, 110)}
    for name in ("late", "early", "late"):
        clip = films[name].read(0)
        scenes.add(name, clip.crops, films[name].tracks[0].boxes_xyxy, clip.audio, clip.speaking)
    moved = asked.lags_taken_out(scenes)
    assert [track.video_id for track in moved.tracks] == ["late", "early", "late"]
    for index, track in enumerate(moved.tracks):
        sound, frames = films[track.video_id].sound(), {"late": 2, "early": -1}[track.video_id]
        wanted = np.concatenate([np.zeros(640, np.float32), sound, np.zeros(1280, np.float32)])[640 * (1 + frames) :]
        np.testing.assert_array_equal(moved.read(index).audio, wanted[: len(sound)])


def test_nobody_to_compare_with_is_one_line(
    films: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(films / "ann"), f"--checkpoint={checkpoint}"]
    monkeypatch.setattr(sys, "argv", ["own_voice.py", *given])
    assert run_command(own_voice.main) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_of_the_shared_clips_76_of_21_talkers_count(shared: Path) -> None:
    entries = wanted_clips(shared / "clips")
    silent = [entry for entry in entries if entry.path.stem == "expressions_silent"]
    assert (len(entries) - len(silent), len({entry.talker for entry in entries} - {e.talker for e in silent})) == (
        76,
        21,
    )
    assert not {entry.talker for entry in entries} & set(LEFT_OUT_TALKERS)
