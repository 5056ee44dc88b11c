"""The TalkNet folder layout (csv, clips_videos, clips_audios): builds what it lacks, or converts it.

    python -m data_prep.talknet loader ROOT             csv/<split>_loader.csv from csv/<split>_orig.csv, where missing
    python -m data_prep.talknet convert ROOT OUT        to a prepared dataset, about a tenth of the size

Training reads the layout as it is, too: ``--data.format=talknet --data.root=ROOT``. A killed conversion goes on where
it stopped. The sound of a film is put together from those of its tracks, each at its time in the film; where no track
is seen it is silent, and nothing reads it there.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_AUDIO_FRAME, SAMPLES_PER_VIDEO_FRAME
from avfusion.config import DataConfig
from avfusion.data.annotations import Annotation, read_annotations, write_source_labels
from avfusion.data.open import open_splits
from avfusion.data.prepared import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord, audio_path, crops_path
from avfusion.data.talknet.dataset import CROP_SIZE, SAMPLES_PER_MS, TalkNetDataset, key_of
from avfusion.data.talknet.tables import loader_text
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.media.audio import read_audio, write_audio
from avfusion.media.write import write_crops
from avfusion.tracks import LabelTable, read_labels

OTHER_SOUND = 0.25  # share of the level by which overlapping sounds may differ before they count as two sounds


def main(arguments: Sequence[str] | None = None) -> int:
    def body() -> None:
        options = parse_arguments(arguments)
        given = sys.argv[1:] if arguments is None else arguments
        if options.command == "loader":
            build_loaders(options.root, options.split)
        else:
            convert(options, shlex.join(["python", "-m", "data_prep.talknet", *given]))

    return run_command(body)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python -m data_prep.talknet", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="loader|convert")
    loader = commands.add_parser("loader", help="build missing csv/<split>_loader.csv from csv/<split>_orig.csv")
    loader.add_argument("root", type=Path, metavar="ROOT", help="folder that holds csv")
    loader.add_argument("--split", action="append", help="train, val or test; may be repeated (default: all found)")
    conversion = commands.add_parser("convert", help="write a prepared dataset; a begun one is continued")
    conversion.add_argument("root", type=Path, metavar="ROOT", help="folder that holds csv, clips_videos, clips_audios")
    conversion.add_argument("out", type=Path, metavar="OUT", help="folder of the prepared dataset")
    conversion.add_argument("--split", action="append", help="as above")
    conversion.add_argument("--jobs", type=int, default=_usable_cpus(), help="processes (default: one for each CPU)")
    conversion.add_argument("--allow-missing", action="store_true", help="leave out tracks that cannot be used")
    return parser.parse_args(arguments)


def build_loaders(root: Path, splits: Sequence[str] | None) -> None:
    """Writes the missing loader files; one that is there stays as it is."""
    written = 0
    for split in _splits(root, splits):
        target = root / "csv" / f"{split}_loader.csv"
        if target.exists():
            if splits:
                raise UsageError(f"{target} is there already; move it away to have it built again")
            print(f"{target} is there already: left as it is")
            continue
        source = root / "csv" / f"{split}_orig.csv"
        of_key = {key_of(entity): entity for entity in read_annotations(source, "unitalk")}
        table = read_labels(source, more_columns=2)
        ordered = [of_key[key] for key in dict.fromkeys(zip(table.video_id, table.entity_id, strict=True))]
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        part.write_text(loader_text(ordered), encoding="utf-8")
        part.replace(target)
        written += 1
        print(f"wrote {target}: {len(ordered)} tracks, {len(table)} frames")
        _warn_of_order(source, table, ordered)
    if not written:
        print("nothing to build")


def _warn_of_order(source: Path, table: LabelTable, ordered: Sequence[Annotation]) -> None:
    """TalkNet's own programs give scores to rows by position, and tell tracks by entity_id alone."""
    by_row = np.concatenate([entity.timestamp_ms for entity in ordered])
    entity_ids = np.concatenate([[entity.entity_id] * len(entity.timestamp_ms) for entity in ordered])
    if (by_row != table.timestamp_ms).any() or (entity_ids != table.entity_id).any():
        found = "its rows are not grouped by track and in order of time"
        print(
            f"note: {source}: {found}; TalkNet's evaluation takes them by position, so sort them for it",
            file=sys.stderr,
        )
    shared = [key for key, count in Counter(entity.entity_id for entity in ordered).items() if count > 1]
    if shared:
        found = f"{len(shared)} entity ids are in several films, first: {shared[0]}"
        print(f"note: {source}: {found}; the loader file cannot tell them apart", file=sys.stderr)


@dataclass(frozen=True)
class Film:
    """What one process converts: the tracks of one film, and where they go."""

    scene_id: str
    dataset: TalkNetDataset
    out: Path


def convert(options: argparse.Namespace, command: str) -> None:
    if options.jobs < 1:
        raise UsageError(f"--jobs={options.jobs}: expected at least 1")
    splits = _splits(options.root, options.split)
    settings = {
        "layout": "talknet",
        "splits": splits,
        "crop_size": CROP_SIZE,
        "tables": _digest(path for split in splits for path in sorted((options.root / "csv").glob(f"{split}_*.csv"))),
        "allow_missing": options.allow_missing,
    }
    data = DataConfig(format="talknet", root=str(options.root), allow_missing=options.allow_missing)
    datasets = [dataset for dataset in open_splits(data, splits) if isinstance(dataset, TalkNetDataset)]
    writer = PreparedWriter(options.out, options.root.resolve().name, command, CROP_SIZE, settings)
    if writer.is_finished:
        print(f"{options.out} is finished already: {len(writer.scenes)} films")
        return
    films = [film for dataset in datasets for film in _films(dataset, options.out)]
    failed = _convert_films([film for film in films if film.scene_id not in writer.scenes], writer, options.jobs)
    if failed:
        raise AvfusionError(
            f"{len(failed)} of {len(films)} films could not be converted, first: {failed[0]}; the others are done: make"
            " its files again and repeat the command"
        )
    for dataset in datasets:
        kept = {key_of(source.entity): source.entity for source in dataset.sources}
        write_source_labels(options.out / "source_labels" / f"{dataset.split}.csv", kept.values())
    writer.finish()
    tracks = sum(len(record.rows) for record in writer.scenes.values())
    print(f"wrote {len(writer.scenes)} films, {tracks} tracks to {options.out}")


def _films(dataset: TalkNetDataset, out: Path) -> Iterator[Film]:
    of_film: dict[str, list[int]] = {}
    for index, track in enumerate(dataset.tracks):
        of_film.setdefault(track.video_id, []).append(index)
    for video_id, indices in of_film.items():
        yield Film(f"{dataset.split}/{video_id}", dataset.subset(indices), out)


def _convert_films(films: Sequence[Film], writer: PreparedWriter, jobs: int) -> list[str]:
    """Converts films, in processes of their own where there are several; returns what could not be converted."""
    failed: list[str] = []
    with tqdm(total=len(films), desc="films", unit="film", disable=None) as progress:
        if jobs == 1 or len(films) < 2:
            outcomes: Iterator[SceneRecord | str] = map(_outcome, films)
            for film, outcome in zip(films, outcomes, strict=True):
                _note(film, outcome, writer, failed)
                progress.update()
            return failed
        context = multiprocessing.get_context("spawn")  # a forked decoder's threads would be missing
        pool = ProcessPoolExecutor(min(jobs, len(films)), mp_context=context)
        try:
            of_future = {pool.submit(_outcome, film): film for film in films}
            for future in as_completed(of_future):
                _note(of_future[future], future.result(), writer, failed)
                progress.update()
        finally:
            pool.shutdown(cancel_futures=True)
    return failed


def _note(film: Film, outcome: SceneRecord | str, writer: PreparedWriter, failed: list[str]) -> None:
    if isinstance(outcome, str):
        failed.append(outcome)
    else:
        writer.add_scene(film.scene_id, outcome)


def _outcome(film: Film) -> SceneRecord | str:
    try:
        return convert_film(film)
    except AvfusionError as error:
        return str(error)


def convert_film(film: Film) -> SceneRecord:
    """Writes crops and sound of one film; what an earlier run has written is kept.

    Raises:
        AvfusionError: a picture or sound cannot be read.
    """
    dataset = film.dataset
    sounds = _write_sounds(film)
    rows = []
    for index, (track, source) in enumerate(zip(dataset.tracks, dataset.sources, strict=True)):
        crops = crops_path(dataset.split, f"{track.video_id}/{track.entity_id}")
        if not (film.out / crops).is_file():
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


def _write_sounds(film: Film) -> dict[str, str]:
    """Writes the sound of a film; returns the file that each entity hears.

    Tracks seen at the same time have the same sound, each in a wav of its own. Where they do not (someone made each
    wav as loud as the others), a track that differs gets a file of its own, silent before the track.
    """
    dataset, split = film.dataset, film.dataset.split
    ends = [round(track.start_s * SAMPLE_RATE) + SAMPLES_PER_VIDEO_FRAME * track.num_frames for track in dataset.tracks]
    whole = np.zeros(max(ends), dtype=np.float32)
    filled = np.zeros(len(whole), dtype=np.bool_)
    video_id = dataset.tracks[0].video_id
    shared = audio_path(split, video_id)
    file_of: dict[str, str] = {}
    for source in dataset.sources:
        entity = source.entity
        if entity.entity_id in file_of:
            continue
        start = SAMPLES_PER_MS * int(entity.timestamp_ms[0])
        sound = read_audio(dataset.sound_path(entity))[: len(whole) - start]
        stretch = slice(start, start + len(sound))
        heard = filled[stretch]
        if _differ(whole[stretch][heard], sound[heard]):
            file_of[entity.entity_id] = audio_path(split, f"{video_id}/{entity.entity_id}")
            alone = np.zeros_like(whole)
            alone[stretch] = sound
            write_audio(film.out / file_of[entity.entity_id], alone)
            continue
        file_of[entity.entity_id] = shared
        whole[stretch] = np.where(heard, whole[stretch], sound)
        filled[stretch] = True
    write_audio(film.out / shared, whole)
    return file_of


def _differ(first: NDArray[np.float32], second: NDArray[np.float32]) -> bool:
    """Whether two takes of the same time are different sounds: levels of 10 ms are compared, samples may be one off."""
    length = len(first) // SAMPLES_PER_AUDIO_FRAME * SAMPLES_PER_AUDIO_FRAME
    if length == 0:
        return False
    levels = [np.sqrt((x[:length].reshape(-1, SAMPLES_PER_AUDIO_FRAME) ** 2).mean(axis=1)) for x in (first, second)]
    return bool(np.abs(levels[0] - levels[1]).mean() > OTHER_SOUND * max(levels[0].mean(), levels[1].mean()) + 1e-4)


def _splits(root: Path, chosen: Sequence[str] | None) -> list[str]:
    """The splits asked for, or all that have an ``_orig.csv``."""
    found = sorted(path.name.removesuffix("_orig.csv") for path in root.glob("csv/*_orig.csv"))
    if not found:
        raise UsageError(f"no csv/*_orig.csv in {root}; expected csv/train_orig.csv: give the folder that holds csv")
    for split in chosen or ():
        if split not in found:
            raise UsageError(
                f"{root} has no split {split!r}: csv/{split}_orig.csv is missing; found {', '.join(found)}"
            )
    return list(dict.fromkeys(chosen)) if chosen else found


def _digest(paths: Iterator[Path]) -> str:
    digest = hashlib.sha1()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + hashlib.sha1(path.read_bytes()).digest())
    return digest.hexdigest()[:10]


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
