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
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from avfusion.data.annotations import COLUMNS
from avfusion.data.journal import begun_settings
from avfusion.data.prepared_writer import PreparedWriter
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from data_prep.film_dataset import add_jobs, add_options, check_options, make_dataset
from data_prep.film_plan import bytes_text, find_films, parse_labels, plan_films, the_film
from data_prep.film_sources import GETTING_STARTED, ava_addresses, names_address, read_names, with_sizes
from data_prep.film_tables import finish_films, missing_films

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
        add_options(command)
    listing.add_argument(
        "--names", help="list of film names: a file or address (default with --sizes: the published one)"
    )
    listing.add_argument(
        "--split",
        choices=("train", "val", "test"),
        help="without --labels: whose films (AVA only; default: test)",
    )
    listing.add_argument("--sizes", action="store_true", help="ask the server for the films' sizes (needs a network)")
    add_jobs(extract, "film")
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
    check_options(options)
    if not options.labels:
        _list_without_labels(options)
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


def _list_without_labels(options: argparse.Namespace) -> None:
    """What is public of a corpus; with ``--names``, ``--sizes`` or ``--films`` the films of the published list."""
    if not (options.names or options.sizes or options.films or options.split):
        print(GETTING_STARTED[options.columns])
        print(f"then: python -m data_prep.ava list --columns {options.columns} --labels SPLIT=PATH --films DIR")
        return
    if options.columns != "ava":
        raise UsageError(f"no list of the films of {options.columns} is published; give --labels SPLIT=PATH")
    split = options.split or "test"  # whose labels nobody has
    names = read_names(options.names or names_address(split))
    found = {} if options.films is None else find_films(options.films)
    absent = []
    for video_id in (name.rsplit(".", 1)[0] for name in names):
        path = the_film(video_id, found[video_id]) if video_id in found else None
        if path is None:
            absent.append(video_id)
        else:
            print(f"{split:6} {video_id}  {path}")
    print(f"{split}: {len(names)} films in the list, {len(absent)} absent")
    _print_downloads(options, split, absent, names)


def _print_downloads(options: argparse.Namespace, split: str, absent: list[str], names: Sequence[str] = ()) -> None:
    """Where the absent films of a split are to be had."""
    if options.columns != "ava":
        print(GETTING_STARTED[options.columns])
        return
    if not names and (options.names or options.sizes):
        names = read_names(options.names or names_address(split))
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
    check_options(options)
    films = plan_films(parse_labels(options.labels), options.columns, options.films, options.max_gap)
    make_dataset(films, options, options.columns, options.films, options.command_line)


def finish_dataset(options: argparse.Namespace) -> None:
    """Writes the tables of a dataset whose films were extracted in shards."""
    settings = begun_settings(options.out)
    if settings.get("corpus") not in CORPORA:
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
    finish_films(writer, "film")


def _shard(text: str) -> tuple[int, int]:
    number, slash, total = text.partition("/")
    if slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return int(number), int(total)
    raise argparse.ArgumentTypeError(f"{text!r}, expected i/n with i from 1 to n, such as 1/8")


if __name__ == "__main__":
    sys.exit(main())
