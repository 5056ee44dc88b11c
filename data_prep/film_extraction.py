"""Films to crops and sound: one film at a time in a process of its own, many films side by side.

A film is decoded once, in order, for its faces, and once more for its sound. Files that are there already are kept, so
a killed run loses at most the films it was at; ``<root>/sources`` tells from which file they come, and what comes from
another is removed first. A film that cannot be used is named, and the others go on.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import SceneRecord, audio_path, crops_path, safe_name
from avfusion.errors import AvfusionError
from avfusion.faces.extract import extract_tracks
from avfusion.files import whole_text_file
from avfusion.media.audio import write_audio_blocks
from avfusion.media.damage import ReadReport
from avfusion.media.decode import iterate_sound
from avfusion.media.source import probe
from avfusion.media.write import CropWriter
from avfusion.processes import process_pool
from avfusion.tracks import GridTrack

HEADER_TOLERANCE_S = 1.0  # a header's length may be rounded; what is nearer is told by decoding
NO_LENGTH = ("mpegts", "mpeg")  # formats whose header tells no length: it is reckoned from stamps, which may jump
OTHER_UNITS = 5  # times as long as the film: no cut is; 25 or 1000 times are frame numbers or milliseconds
LONGEST_SILENT_END_S = 0.5  # sound may end so much before the last annotated frame; it is filled with silence


@dataclass(frozen=True)
class FilmTask:
    """One film to extract.

    Attributes:
        path: the film.
        split: its split.
        video_id: its name in the tables.
        tracks: its faces.
        root: the dataset's folder.
        crop_size: height and width of the crops.
        source: the corpus, for the tables.
    """

    path: Path
    split: str
    video_id: str
    tracks: Sequence[GridTrack]
    root: Path
    crop_size: int
    source: str

    @property
    def scene_id(self) -> str:
        """Names the film in the journal."""
        return f"{self.split}/{self.video_id}"

    @property
    def end_frame(self) -> int:
        """One past the last annotated frame."""
        return max(track.end_frame for track in self.tracks)


def extract_film(task: FilmTask) -> SceneRecord:
    """Writes the crops and the sound of one film, as far as they are not there yet.

    Returns:
        What the tables need to know; rows in the order of the task's tracks.

    Raises:
        AvfusionError: the film cannot be decoded, has no sound, or ends before its annotation does.
    """
    _check_length(task)
    sound = audio_path(task.split, task.video_id)
    # A film's tracks have ids of their own; the film's id keeps those of two films apart.
    crops_of = {t.entity_id: crops_path(task.split, f"{task.video_id}/{t.entity_id}") for t in task.tracks}
    mark = _mark_of(task.root, task.scene_id)
    told: dict[str, Any] = {"file": _file_facts(task.path)}
    before = _read_mark(mark)
    if before.get("file") == told["file"]:
        told = before
    else:  # another film, or none
        for path in (sound, *crops_of.values()):
            (task.root / path).unlink(missing_ok=True)
        _write_mark(mark, told)
    if "sound_notes" not in told or not (task.root / sound).is_file():
        told["sound_notes"] = _write_sound(task, task.root / sound)
        _write_mark(mark, told)
    absent = [track for track in task.tracks if not (task.root / crops_of[track.entity_id]).is_file()]
    if absent or "picture_notes" not in told:
        told["picture_notes"] = _write_crops(task, absent or task.tracks, crops_of)
        _write_mark(mark, told)
    rows = [
        TrackRow(
            split=task.split,
            video_id=task.video_id,
            entity_id=track.entity_id,
            start_s=track.start_s,
            num_frames=track.num_frames,
            crops=crops_of[track.entity_id],
            audio=sound,
            source=task.source,
            labelled=track.speaking is not None,
        )
        for track in task.tracks
    ]
    silent = [np.zeros(t.num_frames, dtype=np.bool_) if t.speaking is None else t.speaking for t in task.tracks]
    notes = list(dict.fromkeys([*told["picture_notes"], *told["sound_notes"]]))  # of both: what concerns the file
    return SceneRecord(rows, silent, [track.boxes_xyxy for track in task.tracks], {}, notes)


def is_changed(root: Path, scene_id: str, path: Path) -> bool:
    """Whether a film is not the file that its crops and sound were made from."""
    return bool(_read_mark(_mark_of(root, scene_id)).get("file") != _file_facts(path))


def extract_films(
    tasks: Sequence[FilmTask], jobs: int, on_done: Callable[[FilmTask, SceneRecord], None]
) -> dict[str, str]:
    """Extracts films side by side.

    Args:
        tasks: the films.
        jobs: how many at a time; 1 works in this process.
        on_done: called in this process for each film, in the order in which they are done.

    Returns:
        For each film that could not be used (by its scene id) the reason.

    Raises:
        AvfusionError: the disk is full, or a process was killed from outside.
    """
    failures: dict[str, str] = {}
    results = ((task, *_attempt(task)) for task in tasks) if jobs == 1 else _side_by_side(tasks, jobs)
    with tqdm(total=len(tasks), desc="films", unit="film", disable=None) as bar:
        for task, record, reason in results:
            if record is None:
                failures[task.scene_id] = reason
                bar.write(f"{task.scene_id}: {reason}", file=sys.stderr)
            else:
                for note in record.notes:
                    bar.write(f"{task.scene_id}: note: {note}", file=sys.stderr)
                on_done(task, record)
            bar.update()
    return failures


def _check_length(task: FilmTask) -> None:
    """Refuses a film whose header tells already that it is too short, before hours of it are decoded."""
    facts = probe(task.path)
    duration_s = None if facts.container in NO_LENGTH else facts.duration_s
    last = max(task.tracks, key=lambda track: track.end_frame)
    if duration_s is not None and last.end_frame / VIDEO_HZ > duration_s + HEADER_TOLERANCE_S:
        raise AvfusionError(
            f"{task.path}: face {last.entity_id!r} is annotated until {(last.end_frame - 1) / VIDEO_HZ:.2f} s, but the "
            f"film lasts {duration_s:.2f} s: it is another cut of the film, or its download was cut short"
            f"{_or_other_units(last.end_frame / VIDEO_HZ, duration_s)}"
        )


def _mark_of(root: Path, scene_id: str) -> Path:
    split, _, video_id = scene_id.partition("/")
    return root / "sources" / safe_name(split) / f"{safe_name(video_id)}.json"


def _file_facts(path: Path) -> dict[str, Any]:
    """What tells a film from another that takes its place."""
    facts = path.stat()
    return {"name": path.name, "bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns}


def _read_mark(mark: Path) -> dict[str, Any]:
    return json.loads(mark.read_text(encoding="utf-8")) if mark.is_file() else {}


def _write_mark(mark: Path, told: dict[str, Any]) -> None:
    with whole_text_file(mark) as file:
        file.write(json.dumps(told) + "\n")


def _write_crops(task: FilmTask, tracks: Sequence[GridTrack], crops_of: dict[str, str]) -> list[str]:
    """Cuts tracks out of the film, each into its file; returns what was odd about the picture."""
    report = ReadReport()
    writers: dict[str, CropWriter] = {}
    try:
        for track, frame, crop in extract_tracks(task.path, tracks, task.crop_size, report=report):
            if frame == 0:
                place = task.root / crops_of[track.entity_id]
                writers[track.entity_id] = CropWriter(place, (task.crop_size, task.crop_size))
            writers[track.entity_id].add(crop)
            if frame + 1 == track.num_frames:
                writers.pop(track.entity_id).close()
    finally:
        for writer in writers.values():
            writer.discard()
    return list(report.notes)


def _write_sound(task: FilmTask, path: Path) -> list[str]:
    """The sound of the whole film from time 0, at least until the last annotated frame; returns what was odd."""
    report = ReadReport()
    write_audio_blocks(path, _whole_sound(task, report))
    return list(report.notes)


def _whole_sound(task: FilmTask, report: ReadReport) -> Iterator[NDArray[np.float32]]:
    """The film's sound in blocks; silence fills a short rest until the last annotated frame."""
    num_samples = 0
    for block in iterate_sound(task.path, report=report):
        num_samples += len(block)
        yield block
    _check_sound_end(task, num_samples)
    yield np.zeros(max(task.end_frame * SAMPLES_PER_VIDEO_FRAME - num_samples, 0), dtype=np.float32)


def _check_sound_end(task: FilmTask, num_samples: int) -> None:
    if task.end_frame * SAMPLES_PER_VIDEO_FRAME - num_samples > LONGEST_SILENT_END_S * SAMPLE_RATE:
        last = max(task.tracks, key=lambda track: track.end_frame)
        raise AvfusionError(
            f"{task.path}: the sound ends at {num_samples / SAMPLE_RATE:.2f} s, but face {last.entity_id!r} is "
            f"annotated until {last.end_frame / VIDEO_HZ:.2f} s: its download may have been cut short"
            f"{_or_other_units(last.end_frame / VIDEO_HZ, num_samples / SAMPLE_RATE)}"
        )


def _or_other_units(annotated_s: float, lasts_s: float) -> str:
    return ", or the stamps are not in seconds" if annotated_s > OTHER_UNITS * lasts_s else ""


def _attempt(task: FilmTask) -> tuple[SceneRecord | None, str]:
    """One film's record, or the reason why there is none."""
    try:
        return extract_film(task), ""
    except AvfusionError as error:
        return None, str(error)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        return None, f"{task.path}: {error.strerror or error}"
    except Exception as error:  # whatever a damaged film does to a decoder, the other films go on
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        reason = (str(error).splitlines() or ["no message"])[0]
        return None, f"{task.path}: {type(error).__name__}: {reason}; AVFUSION_DEBUG=1 shows where it happened"


def _side_by_side(tasks: Sequence[FilmTask], jobs: int) -> Iterator[tuple[FilmTask, SceneRecord | None, str]]:
    with process_pool(jobs, "run the same command again with a smaller --jobs; finished films are kept") as pool:
        futures = {pool.submit(_attempt, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], *future.result()
