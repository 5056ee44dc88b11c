"""The TalkNet folder layout (csv, clips_videos, clips_audios): builds what it lacks, or converts it.

    python -m data_prep.talknet loader ROOT             csv/<split>_loader.csv from csv/<split>_orig.csv, where missing
    python -m data_prep.talknet convert ROOT OUT        to a prepared dataset, about a tenth of the size

Training reads the layout as it is, too: ``--data.format=talknet --data.root=ROOT``. A killed conversion goes on where
it stopped, film by film (``talknet_films.py``); one that failed may be repeated with ``--allow-missing``.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from avfusion.clock import FRAME_MS
from avfusion.config import DataConfig
from avfusion.data.annotations import Annotation, read_annotations, write_source_labels
from avfusion.data.frame_grid import to_grid
from avfusion.data.open import open_splits
from avfusion.data.prepared_writer import LeftOut, PreparedWriter
from avfusion.data.talknet.dataset import CROP_SIZE, TalkNetDataset, key_of
from avfusion.data.talknet.tables import loader_text
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.files import whole_text_file
from avfusion.processes import available_cores
from avfusion.tracks import LabelTable, read_labels
from data_prep.talknet_films import Film, convert_films, films_of

HALF_MS = FRAME_MS // 2  # every row lies so near to a frame of its piece


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
    conversion.add_argument("--jobs", type=int, default=available_cores(), help="processes (default: one for each CPU)")
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
        with whole_text_file(target) as file:
            file.write(loader_text(ordered))
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


def convert(options: argparse.Namespace, command: str) -> None:
    """Writes the prepared dataset, or what an earlier run has not written of it."""
    if options.jobs < 1:
        raise UsageError(f"--jobs={options.jobs}: expected at least 1")
    splits = _splits(options.root, options.split)
    settings = {
        "layout": "talknet",
        "splits": splits,
        "crop_size": CROP_SIZE,
        "tables": _digest(path for split in splits for path in sorted((options.root / "csv").glob(f"{split}_*.csv"))),
    }
    data = DataConfig(format="talknet", root=str(options.root), allow_missing=options.allow_missing)
    opened = open_splits(data, splits, skip_option="--allow-missing")
    datasets = [dataset for dataset in opened if isinstance(dataset, TalkNetDataset)]
    writer = PreparedWriter(options.out, options.root.resolve().name, command, CROP_SIZE, settings)
    films = [film for dataset in datasets for film in films_of(dataset, options.out)]
    if not options.allow_missing:
        _refuse_earlier_gaps(films, writer)
    todo = [film for film in films if film.scene_id not in writer.scenes]
    if not todo and writer.is_finished:
        print(f"{options.out} is finished already: {len(writer.scenes)} films")
        return
    failed = convert_films(todo, options.jobs, lambda film, record: writer.add_scene(film.scene_id, record))
    if failed:
        raise AvfusionError(
            f"{len(failed)} of {len(films)} films could not be converted, first: {failed[0]}; the others are done: make"
            " its files again and repeat the command, or add --allow-missing to leave such tracks out"
        )
    taken = _tracks_in(writer)
    for dataset in datasets:
        path = options.out / "source_labels" / f"{dataset.split}.csv"
        write_source_labels(path, _rows_of(dataset, taken[dataset.split]))
    left_out = dict(found for dataset in datasets for found in _left_out(dataset, taken[dataset.split]))
    writer.finish(left_out)
    for what, some in left_out.items():
        print(f"left out {len(some.names)} of {some.total} {what}, first: {some.names[0]}", file=sys.stderr)
    tracks = sum(len(record.rows) for record in writer.scenes.values())
    print(f"wrote {len(writer.scenes)} films, {tracks} tracks to {options.out}")


def _tracks_in(writer: PreparedWriter) -> dict[str, set[tuple[str, str]]]:
    """By split, (video_id, entity_id) of the tracks that were converted."""
    taken: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for record in writer.scenes.values():
        for row in record.rows:
            taken[row.split].add(row.key)
    return taken


def _refuse_earlier_gaps(films: Sequence[Film], writer: PreparedWriter) -> None:
    """A film that is done without a track stays so; that must not pass for a whole dataset."""
    taken = _tracks_in(writer)
    absent = [
        f"{track.entity_id!r} of {track.video_id!r}"
        for film in films
        if film.scene_id in writer.scenes
        for track in film.dataset.tracks
        if (track.video_id, track.entity_id) not in taken[film.dataset.split]
    ]
    if absent:
        raise UsageError(
            f"{writer.root} was begun with --allow-missing: {len(absent)} tracks that can be used now were left out of"
            f" films that are done, first: {absent[0]}; give another folder to have them, or --allow-missing again"
        )


def _rows_of(dataset: TalkNetDataset, taken: Collection[tuple[str, str]]) -> Iterator[Annotation]:
    """The rows as annotated, those of converted tracks alone: any other has no frame that could be its score."""
    for entity in dataset.entities:
        pieces = [piece for piece in to_grid(entity) if (entity.video_id, piece.entity_id) in taken]
        spans_ms = [(FRAME_MS * p.start_frame - HALF_MS, FRAME_MS * (p.end_frame - 1) + HALF_MS) for p in pieces]
        if spans_ms:
            times_ms = entity.timestamp_ms
            near = [(times_ms >= first) & (times_ms <= last) for first, last in spans_ms]
            yield replace(entity, scored=np.any(near, axis=0))


def _left_out(dataset: TalkNetDataset, taken: Collection[tuple[str, str]]) -> Iterator[tuple[str, LeftOut]]:
    """What of a split is not in the dataset, for ``dataset.json``."""
    wanted = {(track.video_id, track.entity_id) for track in dataset.tracks} | dataset.skipped.tracks
    unusable = [f"{entity_id!r} of {video_id!r}" for video_id, entity_id in sorted(wanted - set(taken))]
    if unusable:
        yield f"tracks of {dataset.split} that could not be used", LeftOut(unusable, len(wanted | set(taken)))
    for what, some in dataset.left_out.items():
        yield what, LeftOut(some["names"], some["of"])


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


if __name__ == "__main__":
    sys.exit(main())
