"""Annotated films to a prepared dataset: what ``data_prep.ava`` and ``data_prep.own_videos`` have in common."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from avfusion.data.frame_grid import MAX_GAP_S
from avfusion.data.prepared_writer import LeftOut, PreparedWriter
from avfusion.errors import AvfusionError, UsageError
from avfusion.faces.crop import CROP_SCALE
from avfusion.processes import available_cores
from data_prep.film_extraction import FilmTask, extract_films, is_changed
from data_prep.film_plan import AnnotatedFilm, bytes_text, digest, digest_of, name_in_other_case
from data_prep.film_tables import finish_films, keep_plan

MIN_GAP_S = 0.05  # rows at 25 a second, stamps of two digits: with less, every row would be a track of its own


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that decide how crops are made."""
    parser.add_argument("--crop-size", type=int, default=112, help="height and width of the crops (default: 112)")
    parser.add_argument(
        "--max-gap",
        type=float,
        default=MAX_GAP_S,
        help=f"rows of a face farther apart, in seconds, begin a new track (default: {MAX_GAP_S})",
    )


def add_jobs(parser: argparse.ArgumentParser, noun: str) -> None:
    """The option that decides how many films are worked at."""
    parser.add_argument("--jobs", type=int, default=available_cores(), help=f"{noun}s at a time (default: one a core)")


def check_options(options: argparse.Namespace) -> None:
    """Refuses numbers that are out of range.

    Raises:
        UsageError: one is.
    """
    if options.crop_size < 16 or options.crop_size % 2:
        raise UsageError(f"--crop-size={options.crop_size}: expected an even number from 16")
    if not MIN_GAP_S <= options.max_gap <= 60:
        raise UsageError(f"--max-gap={options.max_gap:g}: expected seconds from {MIN_GAP_S} to 60")
    if getattr(options, "jobs", 1) < 1:
        raise UsageError(f"--jobs={options.jobs}: expected at least 1")


def make_dataset(
    films: Sequence[AnnotatedFilm],
    options: argparse.Namespace,
    source: str,
    folder: Path,
    command: str,
    noun: str = "film",
    left_out: Mapping[str, LeftOut] | None = None,
    more_settings: Mapping[str, Any] | None = None,
) -> None:
    """Extracts films, going on where an earlier run stopped, and writes the tables; shards leave these to ``finish``.

    Args:
        films: all of the dataset.
        options: out, crop_size, max_gap, jobs, allow_missing, and for array jobs shard.
        source: the corpus.
        folder: where the films were looked for.
        command: the command line, for the record.
        noun: what a film is called.
        left_out: for ``dataset.json``, what was left out before.
        more_settings: of the command, beside those of all.

    Raises:
        UsageError: the folder is another dataset's, or has no room.
        AvfusionError: a film could not be used.
    """
    settings = {
        "corpus": source,
        "crop_size": options.crop_size,
        "crop_scale": CROP_SCALE,
        "max_gap_s": options.max_gap,
        "annotated_rows": digest(films),
        "splits": digest_of(film.scene_id for film in films),
    }
    settings |= more_settings or {}
    out: Path = options.out
    shard: tuple[int, int] | None = getattr(options, "shard", None)
    journal = "journal.jsonl" if shard is None else "journal-{}-of-{}.jsonl".format(*shard)
    writer = PreparedWriter(out, out.resolve().name, command, options.crop_size, settings, journal)
    todo = [film for film in _of_shard(films, shard) if film.scene_id not in writer.scenes]
    _tell_changed(out, [film for film in films if film.scene_id in writer.scenes], noun)
    if not todo and writer.is_finished and len(writer.scenes) == len(films):
        print(f"{out} is finished already: {len(writer.scenes)} {noun}s")
        return
    there = [film for film in todo if film.path is not None]
    _check_room(out, there, options.crop_size, noun)
    keep_plan(out, films)
    absent = [film for film in todo if film.path is None]
    names = name_in_other_case(folder) if absent else {}
    failures = {}
    for film in absent:
        hint = f" ({names[key]} differs in case: rename it)" if (key := film.video_id.casefold()) in names else ""
        failures[film.scene_id] = f"no {noun} named {film.video_id}.* in {folder}{hint}"
    for scene_id, reason in failures.items():
        print(f"{scene_id}: {reason}", file=sys.stderr)
    tasks = [
        FilmTask(film.path, film.split, film.video_id, film.tracks, out, options.crop_size, source)
        for film in there
        if film.path is not None
    ]
    jobs = min(options.jobs, max(len(tasks), 1))
    failures |= extract_films(tasks, jobs, lambda task, record: writer.add_scene(task.scene_id, record))
    if failures and not options.allow_missing:
        raise AvfusionError(
            f"{len(failures)} of {len(todo)} {noun}s could not be extracted ({', '.join(sorted(failures))}); the "
            f"others are done and kept. Get or mend those {noun}s and run the same command again, or add "
            "--allow-missing to finish without"
        )
    if shard is None:
        finish_films(writer, noun, left_out)
    else:
        print(f"shard {shard[0]} of {shard[1]} is done; when all are: python -m data_prep.ava finish {out}")


def _of_shard(films: Sequence[AnnotatedFilm], shard: tuple[int, int] | None) -> list[AnnotatedFilm]:
    """Every n-th film in order of size, so that shards have about the same work."""
    if shard is None:
        return list(films)
    by_work = sorted(films, key=lambda film: (-film.span_s[1], film.scene_id))
    return by_work[shard[0] - 1 :: shard[1]]


def _tell_changed(out: Path, done: Sequence[AnnotatedFilm], noun: str) -> None:
    changed = [f.scene_id for f in done if f.path is not None and is_changed(out, f.scene_id, f.path)]
    if changed:
        names = ", ".join(changed[:3]) + (", .." if len(changed) > 3 else "")
        print(
            f"{len(changed)} {noun}s are other files than those extracted before ({names}): what was extracted "
            "is kept; to extract them again choose another OUT",
            file=sys.stderr,
        )


def _check_room(out: Path, films: Sequence[AnnotatedFilm], crop_size: int, noun: str) -> None:
    """Says what will be done and what room it takes, and refuses what has no room."""
    crops, sound = sum(film.crop_bytes(crop_size) for film in films), sum(film.sound_bytes() for film in films)
    free = shutil.disk_usage(out).free
    rows, frames = sum(film.num_rows for film in films), sum(film.num_frames for film in films)
    tracks = sum(len(film.tracks) for film in films)
    print(
        f"{len(films)} {noun}s to extract, {rows} annotated boxes, {tracks} tracks, {frames} frames: about "
        f"{bytes_text(crops)} crops and {bytes_text(sound)} sound; free in {out}: {bytes_text(free)}"
    )
    if flat := sum(film.num_without_area for film in films):
        print(f"{flat} annotated boxes have no area: the boxes around them take their place", file=sys.stderr)
    if crops + sound > free:
        raise UsageError(
            f"{out} has {bytes_text(free)} free, the {noun}s left to extract need about {bytes_text(crops + sound)}: "
            "make room, choose another folder, or a smaller --crop-size"
        )
