"""Joins prepared datasets into one that training can be pointed at; no sound or picture is copied.

    python -m data_prep.join OUT DATASET [DATASET ...] [--train-only DATASET] ...

The tables of OUT name the media where they lie, by paths relative to OUT: OUT and its parts are moved together. Ids and
groups begin with the part's name (``grid/own_sound-s1-...``), so they never meet those of another. Of a part given with
``--train-only`` the split ``train`` alone is taken: what is validated and tested then is that of the others. Truth of
synthetic scenes and rows as their corpus annotated them (``truth``, ``source_labels``) stay with the parts. Scenes of a
part that is prepared anew are read again when OUT is made anew.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from avfusion.data.prepared_tables import TrackRow, read_info, read_split, read_track_rows
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.tracks import FaceTrack

TRAIN = "train"


@dataclass(frozen=True)
class Part:
    """One dataset that is joined.

    Attributes:
        root: its folder.
        name: its folder's name, and the beginning of its ids.
        info: its ``dataset.json``.
        splits: which of its splits are taken.
    """

    root: Path
    name: str
    info: dict[str, Any]
    splits: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    def body() -> None:
        options = parse_arguments(arguments)
        given = sys.argv[1:] if arguments is None else arguments
        join_datasets(options, shlex.join(["python", "-m", "data_prep.join", *given]))

    return run_command(body)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python -m data_prep.join", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the joined dataset")
    parser.add_argument("parts", type=Path, nargs="+", metavar="DATASET", help="a prepared dataset, all splits of it")
    parser.add_argument(
        "--train-only",
        type=Path,
        action="append",
        default=[],
        metavar="DATASET",
        help="a prepared dataset of which the split train alone is taken; may be given again",
    )
    return parser.parse_args(arguments)


def join_datasets(options: argparse.Namespace, command: str) -> None:
    parts = read_parts(options.out, options.parts, options.train_only)
    settings = {
        part.name: {"scenes": part.info.get("scenes"), "settings": part.info.get("settings"), "splits": [*part.splits]}
        for part in parts
    }
    size = crop_size_of(parts)
    writer = PreparedWriter(options.out, options.out.resolve().name, command, size, {"joined": settings})
    if writer.is_finished:
        print(f"{options.out} is finished already: {len(writer.scenes)} scenes")
        return
    for part in parts:
        for scene_id, record in scenes_of(part, options.out):
            writer.add_scene(scene_id, record)
    writer.finish()
    for part in parts:
        kept = [record for scene_id, record in writer.scenes.items() if scene_id.startswith(f"{part.name}/")]
        tracks = sum(len(record.rows) for record in kept)
        print(f"{part.name}: {len(kept)} scenes, {tracks} tracks of {', '.join(part.splits)}")
        for folder in ("truth", "source_labels"):
            if (part.root / folder).is_dir():
                print(f"note: {part.root / folder} stays where it is, and is no part of {options.out}", file=sys.stderr)
    print(f"wrote {len(writer.scenes)} scenes to {options.out}, without copying sound or pictures")


def read_parts(out: Path, whole: Sequence[Path], train_only: Sequence[Path]) -> list[Part]:
    """Looks at the datasets before anything is written.

    Raises:
        UsageError: one is none, lacks the split, shares its name with another, or is OUT itself.
    """
    parts: dict[str, Part] = {}
    for root in [*whole, *train_only]:
        info, found = read_info(root), tuple(dict.fromkeys(row.split for row in read_track_rows(root)))
        name = root.resolve().name
        if root.resolve() == out.resolve():
            raise UsageError(f"{root} would be joined into itself; choose another OUT")
        if name in parts:
            other = parts[name].root
            raise UsageError(f"{root} and {other} are both called {name}, and ids begin with that; rename one of them")
        if root in train_only and TRAIN not in found:
            raise UsageError(f"--train-only {root}: has no split {TRAIN!r}; its splits are {', '.join(found)}")
        parts[name] = Part(root, name, info, (TRAIN,) if root in train_only else found)
    return list(parts.values())


def crop_size_of(parts: Sequence[Part]) -> int:
    """The size that all crops have.

    Raises:
        UsageError: they have several.
    """
    sizes = {part.name: part.info.get("crop_size") for part in parts}
    if len(set(sizes.values())) > 1 or not isinstance(sizes[parts[0].name], int):
        found = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise UsageError(f"expected crops of one size, found {found}; prepare one of them again with --crop-size")
    return int(sizes[parts[0].name])


def scenes_of(part: Part, out: Path) -> Iterator[tuple[str, SceneRecord]]:
    """Every video of a part with its new ids and paths.

    Yields:
        The scene's id in OUT, and what is known of it.

    Raises:
        AvfusionError: the part's tables contradict each other.
    """
    there = media_prefix(part.root, out)
    all_rows = read_track_rows(part.root)
    for split in part.splits:
        joined = read_split(part.root, split, all_rows)
        if joined.faults:
            raise AvfusionError(
                f"{part.root}: {joined.faults[0].text}; python -m data_prep.verify {part.root} shows every case"
            )
        of_video: dict[str, list[tuple[TrackRow, FaceTrack]]] = defaultdict(list)
        for row, track in zip(joined.rows, joined.tracks, strict=True):
            assert track is not None  # there is no fault
            of_video[row.video_id].append((row, track))
        for video_id, found in of_video.items():
            rows = [renamed(row, part, there) for row, _ in found]
            speaking, boxes = [track.speaking for _, track in found], [track.boxes_xyxy for _, track in found]
            yield f"{part.name}/{split}/{video_id}", SceneRecord(rows, speaking, boxes, {})


def media_prefix(root: Path, out: Path) -> str:
    """How the media of a part are reached from OUT, with forward slashes."""
    try:
        return Path(os.path.relpath(root.resolve(), out.resolve())).as_posix()
    except ValueError as error:  # Windows: no way leads from one drive to another
        raise UsageError(f"{root} and {out} lie on different drives; put OUT on that of its parts") from error


def renamed(row: TrackRow, part: Part, there: str) -> TrackRow:
    """A row as OUT has it. A track without a group or a corpus is told by its video and by its part."""
    return replace(
        row,
        video_id=f"{part.name}/{row.video_id}",
        entity_id=f"{part.name}/{row.entity_id}",
        crops=f"{there}/{row.crops}",
        audio=f"{there}/{row.audio}",
        source=row.source or part.name,
        group=f"{part.name}/{row.group}" if row.group else "",
    )


if __name__ == "__main__":
    sys.exit(main())
