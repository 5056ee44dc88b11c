"""From a file to scores: whose they are, whether the model's own, and what becomes of films with little in them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from avfusion.config import Config
from avfusion.data.examples import fit_crops
from avfusion.data.verify.prepared import verify
from avfusion.errors import UsageError
from avfusion.inference import scores as scores_stage
from avfusion.inference.crops import stored_crop_px
from avfusion.inference.film_lag import FilmLag
from avfusion.inference.found_faces import load_tracks
from avfusion.inference.pipeline import run_video
from avfusion.inference.report import Report
from avfusion.inference.scores import load_scores
from avfusion.inference.settings import Settings
from avfusion.inference.trained import TrainedModel
from avfusion.media.audio import LogMel, read_audio
from avfusion.media.crops import read_crops
from tests.inference.painted import CPU, PAINTED, Face, Listener, Watcher, planted, small, untrained, write_film

PLAIN = Settings(smooth_s=0.0, overlay=False, viewer=False)

BASELINE = small(kind="light_style", embed_dim=128, fusion__kind="sum", temporal__window_s=None)


def run(film: Path, out: Path, trained: TrainedModel | None = None, settings: Settings = PLAIN) -> Report:
    return run_video(film, out, trained or untrained(), PAINTED, settings)


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "scores.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def report_of(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return content


def test_each_face_has_the_scores_of_its_own_pictures_and_times(tmp_path: Path) -> None:
    faces = [Face(100, first=6, flashes=lambda n: 20 <= n < 30), Face(10, flashes=lambda n: 8 <= n < 12)]
    run(write_film(tmp_path / "two.mp4", faces), tmp_path / "two", planted(Watcher()))
    found: dict[str, list[float]] = {}
    for row in rows_of(tmp_path / "two"):
        if float(row["score"]) > 0.5:
            found.setdefault(row["entity_id"], []).append(float(row["frame_timestamp"]))
    assert found["face0"] == pytest.approx([n / 25 for n in range(8, 12)])  # on screen first
    assert found["face1"] == pytest.approx([n / 25 for n in range(20, 30)])
    first, second = load_tracks(tmp_path / "two" / "faces.npz")
    assert abs(float(first.boxes_xyxy_px[0, 0]) - 10) < 2
    assert abs(float(second.boxes_xyxy_px[0, 0]) - 100) < 2
    assert first.num_frames == 40
    assert abs(second.start_frame - 6) <= 6  # looked for every sixth frame


def test_scores_are_what_the_model_says_of_the_scene(tmp_path: Path) -> None:
    """Faces that know of each other, scored by hand from the files: crops, sound, the model called once."""
    trained = untrained(small(speaker__layers=1, data__region=[0.1, 0.2, 0.9, 1.0]))
    film = write_film(tmp_path / "scene.mp4", [Face(10, flashes=lambda n: n % 7 < 3), Face(100)], tone=(10, 25))
    out = tmp_path / "scene"
    run(film, out, trained)
    data = trained.config.data
    crops = [
        fit_crops(
            torch.from_numpy(read_crops(out / f"dataset/crops/own/face{n}.mp4", 0, 40)), data.region, data.crop_size
        )
        for n in range(2)
    ]
    sound = LogMel(data.num_mels)(torch.from_numpy(read_audio(out / "media/audio.flac")))
    with torch.inference_mode():
        logits = trained.model(torch.stack(crops)[None].float() / 255, sound[None]).logits[0]
    scores = load_scores(out / "scores.npz")
    for n in range(2):
        np.testing.assert_allclose(scores[f"face{n}"], logits[n].sigmoid().numpy(), atol=1e-5)
    assert np.ptp(scores["face0"]) > 0.01
    assert np.abs(scores["face0"] - scores["face1"]).max() > 0.01


def test_chunks_equal_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = untrained(small(speaker__layers=1))
    film = write_film(tmp_path / "film.mp4", [Face(10), Face(100, first=12)], num_frames=60)
    run(film, tmp_path / "whole", trained)
    from avfusion.scoring import score_tracks

    monkeypatch.setattr(
        scores_stage, "score_tracks", lambda *args, **kwargs: score_tracks(*args, **kwargs, chunk_frames=13)
    )
    run(film, tmp_path / "chunks", trained)
    whole, chunks = load_scores(tmp_path / "whole/scores.npz"), load_scores(tmp_path / "chunks/scores.npz")
    assert whole.keys() == chunks.keys() == {"face0", "face1"}
    for name, values in whole.items():
        np.testing.assert_allclose(chunks[name], values, atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        BASELINE,
        small(causal=True, lookahead_frames=2),
        small(fusion__kind="concat"),
        small(modality="video"),
        small(data__crop_size=40, data__num_mels=32, data__region=[0.25, 0.25, 0.75, 0.75]),
    ],
    ids=["baseline", "causal", "concat", "video", "sizes"],
)
def test_the_checkpoint_decides_how_it_is_fed(tmp_path: Path, config: Config) -> None:
    report = run(write_film(tmp_path / "film.mp4", [Face(60)], num_frames=20), tmp_path / "out", untrained(config))
    (values,) = load_scores(tmp_path / "out/scores.npz").values()
    assert report.num_faces == 1
    assert len(values) == 20
    assert np.isfinite(values).all()


def test_crops_are_stored_as_for_training_or_as_large_as_the_region_needs() -> None:
    assert stored_crop_px(small(data__crop_size=48).data) == 112
    assert stored_crop_px(small(data__crop_size=112).data) == 112
    assert stored_crop_px(small(data__crop_size=112, data__region=[0.0, 0.2, 0.8, 1.0]).data) == 140
    assert stored_crop_px(small(data__crop_size=101, data__region=[0.0, 0.5, 0.5, 1.0]).data) == 202


def test_the_crops_are_a_dataset_that_verify_takes(tmp_path: Path) -> None:
    film = write_film(tmp_path / "Großes, Video: 1.mp4", [Face(10), Face(100)], num_frames=20)
    run(film, tmp_path / "out")
    verification = verify(tmp_path / "out/dataset", ["own"])
    assert not verification.faults
    assert len(verification.tables["own"].rows) == 2


def test_a_whole_track_model_sees_pieces_cut_at_the_same_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = write_film(tmp_path / "film.mp4", [Face(10), Face(100, first=12)], num_frames=60)
    data, trained = BASELINE.data, untrained(BASELINE)
    run(film, tmp_path / "whole", trained)
    monkeypatch.setattr(scores_stage, "LONGEST_S", 1.0)
    report = run(film, tmp_path / "cut", trained)
    assert any("looks over whole tracks" in note for note in report.notes)
    whole, cut = load_scores(tmp_path / "whole/scores.npz"), load_scores(tmp_path / "cut/scores.npz")
    sound = LogMel(data.num_mels)(torch.from_numpy(read_audio(tmp_path / "cut/media/audio.flac", 25 * 640, 25 * 640)))
    start = load_tracks(tmp_path / "cut/faces.npz")[1].start_frame
    crops = torch.from_numpy(read_crops(tmp_path / "cut/dataset/crops/own/face1.mp4", 25 - start, 25))
    fitted = fit_crops(crops, data.region, data.crop_size)[None, None].float() / 255
    with torch.inference_mode():
        middle = trained.model(fitted, sound[None]).logits[0, 0].sigmoid().numpy()
    assert [len(cut[name]) for name in cut] == [len(whole[name]) for name in whole]
    assert any(np.abs(cut[name] - whole[name]).max() > 1e-4 for name in cut)
    np.testing.assert_allclose(cut["face1"][25 - start : 50 - start], middle, atol=1e-4)


def test_a_film_without_a_face_gives_an_empty_table_and_a_note(tmp_path: Path) -> None:
    report = run(write_film(tmp_path / "none.mp4", [], num_frames=15), tmp_path / "none")
    assert report.num_faces == 0
    assert "no face was found, so the tables are empty" in report.notes
    assert rows_of(tmp_path / "none") == []
    assert report_of(tmp_path / "none")["faces"] == 0


def test_a_film_without_sound_has_no_speaker_and_says_so(tmp_path: Path) -> None:
    film = write_film(tmp_path / "mute.mp4", [Face(60, flashes=lambda n: True)], num_frames=15, sound_s=0)
    report = run(film, tmp_path / "mute", planted(Watcher()))
    assert [float(row["score"]) for row in rows_of(tmp_path / "mute")] == [0.0] * 15
    assert {row["raw_score"] for row in rows_of(tmp_path / "mute")} != {"0.0"}
    assert "no audio stream: the sound is zeros" in report.notes
    assert "scores are 0 in frames without sound: nobody is heard there" in report.notes


def test_sound_that_ends_early_leaves_no_speaker_behind_its_end(tmp_path: Path) -> None:
    film = write_film(tmp_path / "short.mp4", [Face(60, flashes=lambda n: True)], num_frames=50, sound_s=1.0)
    report = run(film, tmp_path / "short", planted(Watcher()))
    scores = np.array([float(row["score"]) for row in rows_of(tmp_path / "short")])
    heard = np.flatnonzero(scores > 0.5)
    assert heard[0] == 0
    assert 25 <= heard[-1] + 1 <= 28  # AAC pads its last block of 64 ms
    assert (scores[heard[-1] + 1 :] == 0).all()
    assert sum("padded with zeros" in note for note in report.notes) == 1


def test_one_frame_is_a_film(tmp_path: Path) -> None:
    report = run(write_film(tmp_path / "one.mp4", [Face(60)], num_frames=1), tmp_path / "one", planted(Watcher()))
    assert report.num_faces == 1
    (row,) = rows_of(tmp_path / "one")
    assert float(row["frame_timestamp"]) == 0.0


def test_a_face_of_two_frames_is_told_or_kept_on_demand(tmp_path: Path) -> None:
    film = write_film(tmp_path / "brief.mp4", [Face(60, first=18, last=20)], num_frames=40)
    report = run(film, tmp_path / "brief")
    assert report.num_faces == 0
    assert any(note.startswith("dropped 1 track shorter than 10 frames") for note in report.notes)
    assert "no face was kept, so the tables are empty" in report.notes
    settings = Settings(smooth_s=0.4, shortest_frames=0, overlay=False, viewer=False)
    report = run(film, tmp_path / "brief", planted(Watcher()), settings)
    assert report.num_faces == 1
    assert 1 <= len(rows_of(tmp_path / "brief")) <= 2


def test_scores_follow_the_sound_of_the_film(tmp_path: Path) -> None:
    film = write_film(tmp_path / "tone.mp4", [Face(60)], num_frames=50, tone=(20, 30))
    run(film, tmp_path / "tone", planted(Listener()))
    loud = np.flatnonzero([float(row["score"]) > 0.5 for row in rows_of(tmp_path / "tone")])
    assert abs(loud[0] - 20) <= 1
    assert abs(loud[-1] - 29) <= 1


def test_the_rate_of_the_film_does_not_move_its_scores(tmp_path: Path) -> None:
    """T06: the same happenings at 25, 30 and 60 pictures a second have the same scores by time."""
    scores = {}
    for rate in (25, 30, 60):
        face = Face(60, flashes=lambda n: n % 25 < 10)
        film = write_film(tmp_path / f"{rate}.mp4", [face], num_frames=75, tone=(30, 50), rate=rate)
        assert run(film, tmp_path / f"out{rate}").num_frames == 75
        (scores[rate],) = load_scores(tmp_path / f"out{rate}/scores.npz").values()
    assert np.ptp(scores[25]) > 0.1
    for rate in (30, 60):
        assert np.corrcoef(scores[25], scores[rate])[0, 1] > 0.95


def test_smoothing_is_told_and_the_raw_scores_stay(tmp_path: Path) -> None:
    film = write_film(tmp_path / "film.mp4", [Face(60, flashes=lambda n: n == 10)], num_frames=20)
    run(film, tmp_path / "out", planted(Watcher()), Settings(smooth_s=0.2, overlay=False, viewer=False))
    rows = rows_of(tmp_path / "out")
    assert [row["frame"] for row in rows if float(row["raw_score"]) > 0.5] == ["10"]
    low, high = (1 / (1 + np.exp(logit)) for logit in (4.0, -4.0))
    assert float(rows[10]["score"]) == pytest.approx((high + 4 * low) / 5, abs=1e-6)
    assert float(rows[12]["score"]) == pytest.approx((high + 4 * low) / 5, abs=1e-6)
    assert float(rows[13]["score"]) == pytest.approx(low, abs=1e-6)
    assert report_of(tmp_path / "out")["settings"]["smooth_frames"] == 5


def test_the_report_says_what_each_stage_took(tmp_path: Path) -> None:
    report = run(write_film(tmp_path / "film.mp4", [Face(60)], num_frames=20), tmp_path / "out")
    content = report_of(tmp_path / "out")
    assert [stage["stage"] for stage in content["stages"]] == ["ingest", "faces", "crops", "scores", "outputs"]
    assert sum(stage["share"] for stage in content["stages"]) == pytest.approx(1, abs=1e-3)
    assert content["film_seconds_a_second"] == pytest.approx(0.8 / report.seconds, abs=1e-3)
    assert content["model"]["crop_size"] == 24
    assert content["faces_found"]["detector"] == "painted"
    assert content["outputs"][-1] == "report.json"
    assert all((tmp_path / "out" / name).is_file() for name in content["outputs"])
    assert CPU.type == content["model"]["device"]


def test_a_given_lag_of_the_sound_is_taken_out_of_the_scores(tmp_path: Path) -> None:
    """A tone that comes two frames late belongs to what is seen two frames before."""
    film = write_film(tmp_path / "late.mp4", [Face(60, first=5, last=35)], tone=(18, 26))
    loud = {}
    for lag_ms in (0, 80, -80):
        out = tmp_path / f"out {lag_ms}"
        report = run(film, out, planted(Listener()), replace(PLAIN, sound_lag_ms=lag_ms))
        loud[lag_ms] = [round(25 * float(row["frame_timestamp"])) for row in rows_of(out) if float(row["score"]) > 0.5]
        assert report_of(out)["sound_lag"] == {"ms": lag_ms, "found": False}
        assert not any("--sound-lag" in note for note in report.notes)
        assert not any("frames without sound" in note for note in report.notes)
    assert loud[0][0] - loud[80][0] == loud[-80][0] - loud[0][0] == 2
    assert loud[0][-1] - loud[80][-1] == loud[-80][-1] - loud[0][-1] == 2


def test_no_speaker_is_where_the_moved_sound_is_not(tmp_path: Path) -> None:
    """Of a sound that ends early and is two frames late, the last two frames belong to nothing that is heard."""
    film = write_film(tmp_path / "part.mp4", [Face(60, flashes=lambda n: True)], num_frames=50, sound_s=1.0)
    heard = {}
    for lag_ms in (-80, 0, 80):
        out = tmp_path / f"out {lag_ms}"
        run(film, out, planted(Watcher()), replace(PLAIN, sound_lag_ms=lag_ms))
        frames = np.flatnonzero([float(row["score"]) > 0 for row in rows_of(out)])
        heard[lag_ms] = (int(frames[0]), int(frames[-1]))
    first, last = heard[0]
    assert first == 0
    assert heard == {-80: (2, last + 2), 0: (0, last), 80: (0, last - 2)}


def test_a_film_whose_lag_is_not_found_or_none_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = write_film(tmp_path / "film.mp4", [Face(60)], num_frames=30, tone=(10, 20))
    report = run(film, tmp_path / "auto", planted(Listener()), replace(PLAIN, sound_lag_ms=None))
    assert any(note.startswith("too little tells by how much the sound comes late") for note in report.notes)
    lag = FilmLag(0, found=True, stretches=1, evidence=1.0, similarity=(0.5,) * 25)
    monkeypatch.setattr("avfusion.inference.scores.find_lag", lambda *_: lag)
    report = run(film, tmp_path / "in step", planted(Listener()), replace(PLAIN, sound_lag_ms=None))
    assert "the sound is in step with the picture, as the model finds in 1 stretch" in report.notes
    assert list(report_of(tmp_path / "in step")["sound_lag"]["similarity_by_ms"])[:2] == ["-480", "-440"]
    mute = write_film(tmp_path / "mute.mp4", [Face(60)], num_frames=30, sound_s=0)
    report = run(mute, tmp_path / "mute", planted(Listener()), replace(PLAIN, sound_lag_ms=None))
    assert not any("--sound-lag" in note for note in report.notes)
    assert report_of(tmp_path / "mute")["sound_lag"] == {"ms": 0, "found": False}


def test_a_lag_that_the_model_finds_is_taken_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = write_film(tmp_path / "late.mp4", [Face(60, first=5, last=35)], tone=(18, 26))
    run(film, tmp_path / "given", planted(Listener()), replace(PLAIN, sound_lag_ms=-80))
    found = FilmLag(-2, found=True, stretches=9, evidence=5.25, similarity=(0.5,) * 25)
    monkeypatch.setattr("avfusion.inference.scores.find_lag", lambda *_: found)
    report = run(film, tmp_path / "found", planted(Listener()))
    assert [row["score"] for row in rows_of(tmp_path / "found")] == [
        row["score"] for row in rows_of(tmp_path / "given")
    ]
    told = "the sound comes about 80 ms before the picture, as the model finds in 9 stretches, and was moved back"
    assert any(told in note for note in report.notes)
    assert report_of(tmp_path / "found")["sound_lag"] == found.facts()
    again = run(film, tmp_path / "found", planted(Listener()), replace(PLAIN, sound_lag_ms=0))
    assert [name for name, stage in again.stages.items() if stage.kept] == ["ingest", "faces", "crops"]
    assert report_of(tmp_path / "found")["sound_lag"] == {"ms": 0, "found": False}


@pytest.mark.parametrize("lag_ms", [50, 1040, -1040])
def test_a_lag_is_whole_frames_of_at_most_a_second(lag_ms: int) -> None:
    with pytest.raises(UsageError, match=rf"--sound-lag={lag_ms}: expected a multiple of 40 ms"):
        Settings(sound_lag_ms=lag_ms)
