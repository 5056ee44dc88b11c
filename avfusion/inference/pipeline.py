"""From one video file to scores and outputs, stage by stage.

    ingest    any file to 25 pictures a second and 16 kHz mono sound on one clock         FOLDER/media
    faces     where which face is, a box in every frame                                   FOLDER/faces.npz
    crops     the faces cut out by the rule of training, as a prepared dataset            FOLDER/dataset
    scores    how likely each face is the one being heard                                 FOLDER/scores.npz
    outputs   the scores smoothed over time, as tables, segments, film and page           FOLDER

Each stage leaves files and is not done twice (``work_folder.py``). No stage holds the film; what grows with it are the
tables: some hundred bytes for each face in each frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from avfusion.clock import FRAME_MS
from avfusion.errors import UsageError
from avfusion.faces.detect import Detector
from avfusion.faces.track_records import DetectedTrack
from avfusion.inference.crops import stored_crop_px, write_dataset
from avfusion.inference.found_faces import find_faces, load_tracks, save_tracks
from avfusion.inference.report import Report, write_report
from avfusion.inference.result import Result, ScoredFace
from avfusion.inference.scores import Scored, load_scores, save_scores, score_faces
from avfusion.inference.settings import Settings
from avfusion.inference.smoothing import only_where_heard, smoothed, window_frames
from avfusion.inference.trained import TrainedModel
from avfusion.inference.work_folder import REPORT, WorkFolder, open_work_folder
from avfusion.media.ingest import Ingested, ingest, read_ingested
from avfusion.media.sound_clock import SILENT_PEAK

MEDIA, FACES, DATASET, SCORES = "media", "faces.npz", "dataset", "scores.npz"


@dataclass(frozen=True)
class FaceFinder:
    """A face detector and what it is known by: another one means other faces.

    Attributes:
        detector: see :mod:`avfusion.faces.detect`.
        weights_sha256: of its weights, where it reads them from a file.
    """

    detector: Detector
    weights_sha256: str = ""

    def facts(self) -> dict[str, Any]:
        """What the report says of it, ready for JSON."""
        return {
            "detector": self.detector.name,
            "longest_side_px": self.detector.longest_side_px,
            "min_confidence": self.detector.min_confidence,
            "weights_sha256": self.weights_sha256,
        }


def run_video(
    source: Path, folder: Path, trained: TrainedModel, finder: FaceFinder, settings: Settings, name: str | None = None
) -> Report:
    """Takes one video from the file to the outputs, or goes on where an earlier run stopped.

    Args:
        source: any file with a picture.
        folder: for everything; of this video alone.
        trained: the model.
        finder: the face detector.
        settings: what the user decided.
        name: of the video in the tables; None takes the folder's name.

    Raises:
        AvfusionError: the file cannot be read or has no picture, or a score is no number.
        UsageError: there is no such file or sound track, or the folder holds something else.
        OSError: something cannot be written, as on a full disk.
    """
    if not source.exists() and not source.is_symlink():
        raise UsageError(f"no video file at {source}")
    name = (name or folder.resolve().name).encode("utf-8", "backslashreplace").decode()
    with open_work_folder(folder, source) as work:
        return _Run(source, work, trained, finder, settings, name).run()


class _Run:
    """One video on its way."""

    def __init__(
        self,
        source: Path,
        work: WorkFolder,
        trained: TrainedModel,
        finder: FaceFinder,
        settings: Settings,
        name: str,
    ) -> None:
        self.source, self.work, self.name = source, work, name
        self.trained, self.finder, self.settings = trained, finder, settings
        self.folder = work.folder

    def run(self) -> Report:
        film = self._ingest()
        faces = self._find_faces(film)
        crops = self._cut(film)
        scores = self._score(film)
        tracks = load_tracks(self.folder / FACES)
        facts = {
            "source": film.details["source"] | {"file": self.source.name.encode("utf-8", "backslashreplace").decode()},
            "model": self.trained.facts(),
            "faces_found": faces | self.finder.facts(),
            "settings": asdict(self.settings) | {"smooth_frames": window_frames(self.settings.smooth_s)},
            "crops": crops,
            "sound_lag": scores["sound_lag"],
        }
        del facts["settings"]["threads"]  # how fast, not what
        notes = (*film.notes, *self._notes(film, tracks, faces), *scores["notes"])
        result = self._result(film, tracks, notes, facts)
        outputs, notes_of_outputs = self._write_outputs(result)
        report = Report(
            name=self.name,
            num_frames=film.num_frames,
            num_faces=len(tracks),
            stages=self.work.stages,
            notes=(*notes, *notes_of_outputs),
            outputs=(*outputs, self.folder / REPORT),
        )
        write_report(self.folder, report, facts)
        return report

    def _ingest(self) -> Ingested:
        def convert() -> tuple[dict[str, Any], list[Path]]:
            film = ingest(
                self.source,
                self.folder / MEDIA,
                audio_track=self.settings.audio_track,
                salvage=self.settings.salvage,
                allow_silent=True,
                threads=self.settings.threads,
            )
            return {}, [film.video, film.audio, film.folder / "ingest.json"]

        wanted = {"audio_track": self.settings.audio_track, "salvage": self.settings.salvage}
        self.work.do("ingest", wanted, convert, (MEDIA,))
        film = read_ingested(self.folder / MEDIA)
        assert film is not None  # the stage has just written it, or it was found whole
        return film

    def _find_faces(self, film: Ingested) -> dict[str, Any]:
        def find() -> tuple[dict[str, Any], list[Path]]:
            shortest = self.settings.shortest_frames
            tracks, report = find_faces(film.video, film.num_frames, self.finder.detector, shortest)
            save_tracks(self.folder / FACES, tracks)
            counts = {key: value for key, value in vars(report).items() if key != "cuts"}
            cuts = [cut.frame for cut in report.cuts]
            return {**counts, "cuts": cuts, "told": list(report.lines())}, [self.folder / FACES]

        wanted = self.finder.facts() | {"shortest_frames": self.settings.shortest_frames}
        return self.work.do("faces", wanted, find, (FACES,))

    def _cut(self, film: Ingested) -> dict[str, Any]:
        crop_px = stored_crop_px(self.trained.config.data)

        def cut() -> tuple[dict[str, Any], list[Path]]:
            tracks = load_tracks(self.folder / FACES)
            command = f"python -m avfusion.inference {self.name}"
            return {"crop_size": crop_px}, write_dataset(
                self.folder / DATASET, film, tracks, self.name, crop_px, command
            )

        return self.work.do("crops", {"crop_size": crop_px, "video_id": self.name}, cut, (DATASET,))

    def _score(self, film: Ingested) -> dict[str, Any]:
        start, end = _heard(film)
        lag_ms = self.settings.sound_lag_ms if start < end else 0  # where nothing is heard nothing comes late

        def score() -> tuple[dict[str, Any], list[Path]]:
            scored = Scored({}, None, ())
            if load_tracks(self.folder / FACES):
                model, config, device = self.trained.model, self.trained.config, self.trained.device
                scored = score_faces(self.folder / DATASET, film.audio, model, config, device, lag_ms)
            save_scores(self.folder / SCORES, scored.of)
            lag = {"ms": lag_ms or 0, "found": False} if scored.lag is None else scored.lag.facts()
            return {"notes": scored.notes, "sound_lag": lag}, [self.folder / SCORES]

        wanted = {"model": self.trained.sha256, "device": self.trained.device.type, "sound_lag_ms": lag_ms}
        return self.work.do("scores", wanted, score, (SCORES,))

    def _notes(self, film: Ingested, tracks: Sequence[DetectedTrack], faces: dict[str, Any]) -> list[str]:
        """What a user should know beside what ingest tells."""
        notes = []
        told = faces["told"][1:]  # the first counts faces and frames
        if not tracks:
            dropped = any(line.startswith("dropped") for line in told)
            notes.append(f"no face was {'kept' if dropped else 'found'}, so the tables are empty")
        notes += told
        start, end = _heard(film)
        if tracks and (start > 0 or end < film.num_frames):
            notes.append("scores are 0 in frames without sound: nobody is heard there")
        return notes

    def _result(
        self, film: Ingested, tracks: Sequence[DetectedTrack], notes: tuple[str, ...], facts: dict[str, Any]
    ) -> Result:
        raw = load_scores(self.folder / SCORES)
        lag_frames = facts["sound_lag"]["ms"] // FRAME_MS
        start, end = (frame - lag_frames for frame in _heard(film))  # what is seen when the sound was made
        faces = tuple(
            ScoredFace(
                track,
                raw[track.entity_id],
                only_where_heard(smoothed(raw[track.entity_id], self.settings.smooth_s), track.start_frame, start, end),
            )
            for track in tracks
        )
        return Result(
            video_id=self.name,
            source=self.source,
            video=film.video,
            audio=film.audio,
            sound_lag_frames=lag_frames,
            width=film.details["width"],
            height=film.details["height"],
            num_frames=film.num_frames,
            faces=faces,
            threshold=self.settings.threshold,
            notes=notes,
            facts=facts,
        )

    def _write_outputs(self, result: Result) -> tuple[list[Path], list[str]]:
        from avfusion.inference.outputs import OUTPUTS, write_outputs

        chosen = self.settings

        def write() -> tuple[dict[str, Any], list[Path]]:
            files, notes = write_outputs(
                result,
                self.folder,
                self.trained.model,
                self.trained.config,
                self.trained.device,
                dataset_root=self.folder / DATASET,
                overlay=chosen.overlay,
                viewer=chosen.viewer,
            )
            names = [file.relative_to(self.folder).as_posix() for file in files]
            return {"files": names, "notes": notes}, files

        wanted = {
            "smooth_s": chosen.smooth_s,
            "threshold": chosen.threshold,
            "overlay": chosen.overlay,
            "viewer": chosen.viewer,
        }
        found = self.work.do("outputs", wanted, write, (*OUTPUTS, REPORT))
        return [self.folder / file for file in found["files"]], found["notes"]


def _heard(film: Ingested) -> tuple[int, int]:
    """The first frame with sound, and the first behind it; equal where nothing is heard from start to end."""
    if not film.has_sound or film.details["sound_peak"] < SILENT_PEAK:
        return 0, 0
    return film.sound_starts_frame, film.sound_ends_frame
