"""Films to crops and sound: one film at a time in a process of its own, many films side by side.

A film is decoded once, in order, for its faces, and once more for its sound. Files that are there already are kept, so
a killed run loses at most the films it was at. A film that cannot be used is named, and the others go on.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.prepared import TrackRow
from avfusion.data.prepared_writer import SceneRecord, audio_path, crops_path
from avfusion.errors import AvfusionError
from avfusion.faces.extract import extract_tracks
from avfusion.media.audio import num_samples_of, write_audio_blocks
from avfusion.media.decode import iterate_sound
from avfusion.media.source import probe
from avfusion.media.write import write_crops
from avfusion.tracks import GridTrack

HEADER_TOLERANCE_S = 1.0  # a header's length may be rounded; what is nearer is told by decoding
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
    _write_sound(task, task.root / sound)
    # A film's tracks have ids of their own; the film's id keeps those of two films apart.
    crops_of = {t.entity_id: crops_path(task.split, f"{task.video_id}/{t.entity_id}") for t in task.tracks}
    absent = [track for track in task.tracks if not (task.root / crops_of[track.entity_id]).is_file()]
    if absent:
        for track, crops in extract_tracks(task.path, absent, task.crop_size):
            write_crops(task.root / crops_of[track.entity_id], crops)
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
    return SceneRecord(rows, silent, [track.boxes_xyxy for track in task.tracks], {})


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
                on_done(task, record)
            bar.update()
    return failures


def _check_length(task: FilmTask) -> None:
    """Refuses a film whose header tells already that it is too short, before hours of it are decoded."""
    duration_s = probe(task.path).duration_s
    last = max(task.tracks, key=lambda track: track.end_frame)
    if duration_s is not None and last.end_frame / VIDEO_HZ > duration_s + HEADER_TOLERANCE_S:
        raise AvfusionError(
            f"{task.path}: face {last.entity_id!r} is annotated until {(last.end_frame - 1) / VIDEO_HZ:.2f} s, but the "
            f"film lasts {duration_s:.2f} s: it is another cut of the film, or its download was cut short"
        )


def _write_sound(task: FilmTask, path: Path) -> None:
    """The sound of the whole film from time 0, at least until the last annotated frame."""
    if path.is_file():
        _check_sound_end(task, num_samples_of(path))
    else:
        write_audio_blocks(path, _whole_sound(task))


def _whole_sound(task: FilmTask) -> Iterator[NDArray[np.float32]]:
    """The film's sound in blocks; silence fills a short rest until the last annotated frame."""
    num_samples = 0
    for block in iterate_sound(task.path):
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
        )


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
        return (
            None,
            f"{task.path}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}",
        )


def _side_by_side(tasks: Sequence[FilmTask], jobs: int) -> Iterator[tuple[FilmTask, SceneRecord | None, str]]:
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(jobs, context, _begin_process) as executor:
        try:
            futures = {executor.submit(_attempt, task): task for task in tasks}
            for future in as_completed(futures):
                yield futures[future], *future.result()
        except BrokenExecutor as error:
            raise AvfusionError(
                "a process that was at a film was killed from outside (often: no memory left); run the same command "
                "again with a smaller --jobs; finished films are kept"
            ) from error
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            raise


def _begin_process() -> None:
    """In a film's process: Ctrl-C is the parent's business, and without the parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started inside use one thread for numpy's products: the films are the parallelism."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
