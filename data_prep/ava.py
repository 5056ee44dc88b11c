"""AVA-ActiveSpeaker and corpora like it: from annotations and a folder of films to a prepared dataset.

    python -m data_prep.ava list --labels train=LABELS val=LABELS --films DIR [--sizes]
    python -m data_prep.ava extract OUT --films DIR --labels train=LABELS val=LABELS [--jobs N] [--shard i/n]
    python -m data_prep.ava finish OUT

LABELS is one annotation file or a folder of them. Every film is decoded once, in order; its faces become crops on the
25 fps grid, its whole sound a FLAC from the film's time 0. A killed run goes on where it stopped. With ``--shard i/n``
n runs fill the same OUT, and ``finish`` writes the tables. The rows as annotated are kept in ``OUT/source_labels``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from avfusion.data.annotations import COLUMNS
from avfusion.data.frame_grid import MAX_GAP_S
from avfusion.data.prepared_writer import PreparedWriter, begun_settings
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.faces.crop import CROP_SCALE
from data_prep.film_extraction import FilmTask, extract_films
from data_prep.film_plan import Film, bytes_text, digest, parse_labels, plan_films
from data_prep.film_sources import BUCKET, GETTING_STARTED, ava_addresses, read_names, with_sizes
from data_prep.film_tables import finish_films, keep_source_labels, missing_films

CORPORA = tuple(name for name in COLUMNS if name != "boxes")


def main(arguments: Sequence[str] | None = None) -> int:
    def body() -> None:
        options = parse_arguments(arguments)
        given = sys.argv[1:] if arguments is None else arguments
        options.command_line = shlex.join(["python", "-m", "data_prep.ava", *given])
        options.run(options)

    return run_command(body)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python -m data_prep.ava", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True, metavar="list | extract | finish")
    listing = commands.add_parser("list", help="what is needed, what is there, from where, and how large")
    extract = commands.add_parser("extract", help="films and annotations to crops and sound")
    finish = commands.add_parser("finish", help="the tables of a dataset that several shards have extracted")
    extract.add_argument("out", type=Path, metavar="OUT", help="folder of the dataset; a begun one is continued")
    finish.add_argument("out", type=Path, metavar="OUT", help="folder of the dataset")
    for command in (listing, extract):
        command.add_argument(
            "--labels",
            nargs="+",
            metavar="SPLIT=PATH",
            required=command is extract,
            help="annotations of each split: a file, or a folder of files",
        )
        command.add_argument(
            "--films", type=Path, required=command is extract, help="folder of films named by their ids, any ending"
        )
        command.add_argument("--columns", choices=CORPORA, default="ava", help="form of the annotations (default: ava)")
        command.add_argument("--crop-size", type=int, default=112, help="height and width of the crops (default: 112)")
        command.add_argument(
            "--max-gap",
            type=float,
            default=MAX_GAP_S,
            help=f"rows of a face farther apart, in seconds, begin a new track (default: {MAX_GAP_S})",
        )
    listing.add_argument(
        "--names", help="list of film names: a file or address (default with --sizes: the published one)"
    )
    listing.add_argument("--sizes", action="store_true", help="ask the server for the films' sizes (needs a network)")
    extract.add_argument("--jobs", type=int, default=_cores(), help="films at a time (default: one a core)")
    extract.add_argument("--shard", type=_shard, default=None, metavar="i/n", help="only the i-th of n parts, i from 1")
    for command in (extract, finish):
        command.add_argument(
            "--allow-missing", action="store_true", help="leave out films that are absent or cannot be used"
        )
    listing.set_defaults(run=list_films)
    extract.set_defaults(run=extract_dataset)
    finish.set_defaults(run=finish_dataset)
    return parser.parse_args(arguments)


def list_films(options: argparse.Namespace) -> None:
    """Prints what the annotations need and what is there."""
    _check_numbers(options)
    if not options.labels:
        print(GETTING_STARTED[options.columns])
        print(f"then: python -m data_prep.ava list --columns {options.columns} --labels SPLIT=PATH --films DIR")
        return
    films = plan_films(parse_labels(options.labels), options.columns, options.films, options.max_gap)
    width = max(len(film.video_id) for film in films)
    print(f"{'split':6} {'film':{width}} {'annotated':>19} {'tracks':>7} {'boxes':>8} {'crops':>8} {'sound':>8}  file")
    for film in films:
        start_s, end_s = film.span_s
        sizes = f"{bytes_text(film.crop_bytes(options.crop_size)):>8} {bytes_text(film.sound_bytes()):>8}"
        counts = f"{len(film.tracks):7d} {film.num_rows:8d}"
        span = f"{start_s:8.2f}..{end_s:7.2f} s"
        print(f"{film.split:6} {film.video_id:{width}} {span:>19} {counts} {sizes}  {film.path or 'absent'}")
    for split in sorted({film.split for film in films}):
        chosen = [film for film in films if film.split == split]
        absent = [film for film in chosen if film.path is None]
        hours = sum(film.num_frames for film in chosen) / 25 / 3600
        crops, sound = sum(f.crop_bytes(options.crop_size) for f in chosen), sum(f.sound_bytes() for f in chosen)
        print(
            f"{split}: {len(chosen)} films, {len(absent)} absent; {sum(len(f.tracks) for f in chosen)} tracks, "
            f"{sum(f.num_rows for f in chosen)} boxes, {hours:.2f} face hours; extracted about {bytes_text(crops)} "
            f"crops and {bytes_text(sound)} sound"
        )
        if absent:
            _print_downloads(options, split, [film.video_id for film in absent])


def _print_downloads(options: argparse.Namespace, split: str, absent: list[str]) -> None:
    """Where the absent films of a split are to be had."""
    if options.columns != "ava":
        print(GETTING_STARTED[options.columns])
        return
    names: list[str] = []
    if options.names or options.sizes:
        listed = "ava_file_names_test_v2.1.txt" if split == "test" else "ava_speech_file_names_v1.txt"
        names = read_names(options.names or f"{BUCKET}/annotations/{listed}")
    downloads = ava_addresses(absent, split, names)
    if options.sizes:
        downloads = with_sizes(downloads)
    for download in downloads:
        size = "size unknown" if download.num_bytes is None else bytes_text(download.num_bytes)
        print(f"  {size:>12}  {download.address}")
    known = [download.num_bytes for download in downloads if download.num_bytes is not None]
    unknown = f" and {len(downloads) - len(known)} of unknown size" if len(known) < len(downloads) else ""
    print(f"  to download: {bytes_text(sum(known))}{unknown}")
    if not names:
        print(
            "  .* is the film's own ending (mp4, mkv, webm): --names FILE or --sizes takes it from the published list"
        )


def extract_dataset(options: argparse.Namespace) -> None:
    """Extracts all films, or those of one shard; without shards it writes the tables too."""
    _check_numbers(options)
    if options.jobs < 1:
        raise UsageError(f"--jobs={options.jobs}: expected at least 1")
    films = plan_films(parse_labels(options.labels), options.columns, options.films, options.max_gap)
    settings = {
        "corpus": options.columns,
        "crop_size": options.crop_size,
        "crop_scale": CROP_SCALE,
        "max_gap_s": options.max_gap,
        "labels": digest(films),
    }
    journal = "journal.jsonl" if options.shard is None else "journal-{}-of-{}.jsonl".format(*options.shard)
    out: Path = options.out
    writer = PreparedWriter(out, out.resolve().name, options.command_line, options.crop_size, settings, journal)
    todo = [film for film in _of_shard(films, options.shard) if film.scene_id not in writer.scenes]
    if not todo and writer.is_finished and len(writer.scenes) == len(films):
        print(f"{out} is finished already: {len(writer.scenes)} films")
        return
    extends = writer.is_finished  # finished without some films: it stays whole until it is finished again
    if not extends:
        keep_source_labels(out, films)
    absent = [film for film in todo if film.path is None]
    tasks = [_task(film, film.path, options) for film in todo if film.path is not None]
    _check_disk(out, [film for film in todo if film.path is not None], options)
    failures = {film.scene_id: f"no film named {film.video_id}.* in {options.films}" for film in absent}
    for scene_id, reason in failures.items():
        print(f"{scene_id}: {reason}", file=sys.stderr)
    jobs = min(options.jobs, max(len(tasks), 1))
    failures |= extract_films(tasks, jobs, lambda task, record: writer.add_scene(task.scene_id, record))
    if failures and not options.allow_missing:
        raise AvfusionError(
            f"{len(failures)} of {len(todo)} films could not be extracted ({', '.join(sorted(failures))}); the others "
            "are done and kept. Get or mend those films and run the same command again, or add --allow-missing"
        )
    if extends:
        keep_source_labels(out, films)
    if options.shard is None:
        finish_films(writer, films_left_out=len(failures))
    else:
        number, total = options.shard
        print(f"shard {number} of {total} is done; when all are: python -m data_prep.ava finish {out}")


def finish_dataset(options: argparse.Namespace) -> None:
    """Writes the tables of a dataset whose films were extracted in shards."""
    settings = begun_settings(options.out)
    if "corpus" not in settings:
        raise UsageError(f"{options.out} was not begun by python -m data_prep.ava extract; check the path")
    name = options.out.resolve().name
    # Nothing is extracted here: the journal of an unsharded run is read, or begun empty.
    writer = PreparedWriter(options.out, name, options.command_line, settings["crop_size"], settings)
    missing = missing_films(writer)
    if missing and not options.allow_missing:
        raise AvfusionError(
            f"{options.out}: {len(missing)} of {len(missing) + len(writer.scenes)} films are not extracted yet "
            f"({', '.join(missing[:20])}{', ...' if len(missing) > 20 else ''}); run their shards again, or add "
            "--allow-missing to leave them out"
        )
    finish_films(writer, films_left_out=len(missing))


def _task(film: Film, path: Path, options: argparse.Namespace) -> FilmTask:
    return FilmTask(path, film.split, film.video_id, film.tracks, options.out, options.crop_size, options.columns)


def _of_shard(films: Sequence[Film], shard: tuple[int, int] | None) -> list[Film]:
    """Every n-th film in order of size, so that shards have about the same work."""
    if shard is None:
        return list(films)
    by_work = sorted(films, key=lambda film: (-film.span_s[1], film.scene_id))
    return by_work[shard[0] - 1 :: shard[1]]


def _check_disk(out: Path, films: Sequence[Film], options: argparse.Namespace) -> None:
    crops, sound = sum(film.crop_bytes(options.crop_size) for film in films), sum(film.sound_bytes() for film in films)
    free = shutil.disk_usage(out).free
    frames, rows = sum(film.num_frames for film in films), sum(film.num_rows for film in films)
    print(
        f"{len(films)} films to extract, {rows} annotated boxes, {frames} frames: about {bytes_text(crops)} crops and "
        f"{bytes_text(sound)} sound; free in {out}: {bytes_text(free)}"
    )
    if crops + sound > free:
        raise UsageError(
            f"{out} has {bytes_text(free)} free, the films left to extract need about {bytes_text(crops + sound)}: "
            "make room, choose another folder, or a smaller --crop-size"
        )


def _check_numbers(options: argparse.Namespace) -> None:
    if options.crop_size < 16 or options.crop_size % 2:
        raise UsageError(f"--crop-size={options.crop_size}: expected an even number from 16")
    if not 0 <= options.max_gap <= 60:
        raise UsageError(f"--max-gap={options.max_gap:g}: expected seconds from 0 to 60")


def _shard(text: str) -> tuple[int, int]:
    number, slash, total = text.partition("/")
    if slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return int(number), int(total)
    raise argparse.ArgumentTypeError(f"{text!r}, expected i/n with i from 1 to n, such as 1/8")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
