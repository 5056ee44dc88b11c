"""Films of the TalkNet layout, converted one by one: crops as video, and one sound put together from the tracks' wavs.

The layout has a wav for each track, each at its own time in the film. They are laid over each other in blocks of
``BLOCK_S``, so memory does not grow with the film's length; where no track is seen it is silent, and nothing reads it.
A film is a unit of work: one that a killed run was at is made anew, for its pictures may have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_AUDIO_FRAME, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import SceneRecord, audio_path, crops_path
from avfusion.data.talknet.dataset import SAMPLES_PER_MS, TalkNetDataset
from avfusion.errors import AvfusionError
from avfusion.media.audio import num_samples_of, read_audio, write_audio_blocks
from avfusion.media.write import write_crops
from avfusion.processes import process_pool

BLOCK_S = 30
OTHER_SOUND = 0.25  # share of the level by which overlapping sounds may differ before they count as two sounds


@dataclass(frozen=True)
class Film:
    """What one process converts: the tracks of one film, and where they go."""

    scene_id: str
    dataset: TalkNetDataset
    out: Path


@dataclass(frozen=True)
class Voice:
    """The wav of one entity; it is heard from ``start`` to before ``end``, in samples of the film."""

    entity_id: str
    path: Path
    start: int
    end: int


def films_of(dataset: TalkNetDataset, out: Path) -> Iterator[Film]:
    """The films of a split, in the order of its tracks."""
    of_film: dict[str, list[int]] = {}
    for index, track in enumerate(dataset.tracks):
        of_film.setdefault(track.video_id, []).append(index)
    for video_id, indices in of_film.items():
        yield Film(f"{dataset.split}/{video_id}", dataset.subset(indices), out)


def convert_films(films: Sequence[Film], jobs: int, on_done: Callable[[Film, SceneRecord], None]) -> list[str]:
    """Converts films, in processes of their own where there are several.

    Args:
        films: which.
        jobs: processes; 1 works in this one.
        on_done: called in this process for each film, in the order in which they are done.

    Returns:
        For each film that could not be converted, the reason.

    Raises:
        AvfusionError: a process was killed from outside.
    """
    failed: list[str] = []
    with tqdm(total=len(films), desc="films", unit="film", disable=None) as progress:
        for film, outcome in _outcomes(films, min(jobs, len(films))):
            if isinstance(outcome, str):
                failed.append(outcome)
            else:
                on_done(film, outcome)
            progress.update()
    return failed


def _outcomes(films: Sequence[Film], jobs: int) -> Iterator[tuple[Film, SceneRecord | str]]:
    if jobs < 2:
        for film in films:
            yield film, _outcome(film)
        return
    with process_pool(jobs, "run the same command again with a smaller --jobs; finished films are kept") as pool:
        of_future = {pool.submit(_outcome, film): film for film in films}
        for future in as_completed(of_future):
            yield of_future[future], future.result()


def _outcome(film: Film) -> SceneRecord | str:
    try:
        return convert_film(film)
    except AvfusionError as error:
        return str(error)


def convert_film(film: Film) -> SceneRecord:
    """Writes crops and sound of one film.

    Raises:
        AvfusionError: a picture or sound cannot be read.
    """
    dataset = film.dataset
    sounds = write_sounds(film)
    rows = []
    for index, (track, source) in enumerate(zip(dataset.tracks, dataset.sources, strict=True)):
        crops = crops_path(dataset.split, f"{track.video_id}/{track.entity_id}")
        write_crops(film.out / crops, dataset.read(index).crops)
        rows.append(
            TrackRow(
                split=dataset.split,
                video_id=track.video_id,
                entity_id=track.entity_id,
                start_s=track.start_s,
                num_frames=track.num_frames,
                crops=crops,
                audio=sounds[source.entity.entity_id],
            )
        )
    tracks = dataset.tracks
    return SceneRecord(rows, [track.speaking for track in tracks], [track.boxes_xyxy for track in tracks], {})


def write_sounds(film: Film) -> dict[str, str]:
    """Writes the sound of a film; returns the file that each entity hears.

    Tracks seen at the same time have the same sound, each in a wav of its own. Where they do not (someone made each
    wav as loud as the others), a track that differs gets a file of its own, silent before the track.
    """
    dataset = film.dataset
    length = max(
        round(track.start_s * SAMPLE_RATE) + SAMPLES_PER_VIDEO_FRAME * track.num_frames for track in dataset.tracks
    )
    video_id = dataset.tracks[0].video_id
    shared: list[Voice] = []
    file_of: dict[str, str] = {}
    for voice in _voices(dataset, length):
        if _differs(voice, [other for other in shared if other.end > voice.start]):
            file_of[voice.entity_id] = audio_path(dataset.split, f"{video_id}/{voice.entity_id}")
            write_audio_blocks(film.out / file_of[voice.entity_id], _blocks([voice], length))
        else:
            file_of[voice.entity_id] = audio_path(dataset.split, video_id)
            shared.append(voice)
    write_audio_blocks(film.out / audio_path(dataset.split, video_id), _blocks(shared, length))
    return file_of


def _voices(dataset: TalkNetDataset, length: int) -> list[Voice]:
    """The wavs of a film in order of time."""
    voices = {}
    for source in dataset.sources:
        entity = source.entity
        if entity.entity_id not in voices:
            path, start = dataset.sound_path(entity), SAMPLES_PER_MS * int(entity.timestamp_ms[0])
            voices[entity.entity_id] = Voice(entity.entity_id, path, start, min(start + num_samples_of(path), length))
    return sorted(voices.values(), key=lambda voice: (voice.start, voice.entity_id))


def _blocks(voices: Sequence[Voice], length: int) -> Iterator[NDArray[np.float32]]:
    """The sounds laid over each other, from time 0 on."""
    for start in range(0, length, BLOCK_S * SAMPLE_RATE):
        yield _mixed(voices, start, min(start + BLOCK_S * SAMPLE_RATE, length))[0]


def _mixed(voices: Sequence[Voice], start: int, end: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """What is heard from ``start`` to before ``end``, and where anything is; of two sounds that of the first voice."""
    sound, is_heard = np.zeros(end - start, np.float32), np.zeros(end - start, np.bool_)
    for voice in voices:
        first, last = max(voice.start, start), min(voice.end, end)
        stretch = slice(first - start, last - start)
        if first < last and not is_heard[stretch].all():
            part = read_audio(voice.path, first - voice.start, last - first)
            sound[stretch] = np.where(is_heard[stretch], sound[stretch], part)
            is_heard[stretch] = True
    return sound, is_heard


def _differs(voice: Voice, others: Sequence[Voice]) -> bool:
    """Whether a voice is another sound than the others at the same time.

    Levels of 10 ms are compared, for samples may be one off.
    """
    differences, levels, count = 0.0, np.zeros(2), 0
    for start in range(voice.start, voice.end, BLOCK_S * SAMPLE_RATE):
        end = min(start + BLOCK_S * SAMPLE_RATE, voice.end)
        heard, is_heard = _mixed(others, start, end)
        if is_heard.any():
            own = read_audio(voice.path, start - voice.start, end - start)
            whole = (end - start) // SAMPLES_PER_AUDIO_FRAME
            steps = [x[: whole * SAMPLES_PER_AUDIO_FRAME].reshape(whole, -1) for x in (heard, own, is_heard)]
            both = [np.sqrt((x[steps[2].all(axis=1)] ** 2).mean(axis=1)) for x in steps[:2]]
            differences += float(np.abs(both[0] - both[1]).sum())
            levels += [float(level.sum()) for level in both]
            count += len(both[0])
    return differences > OTHER_SOUND * float(levels.max()) + 1e-4 * count if count else False
