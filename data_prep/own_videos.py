"""A folder of your own videos, with the faces you know, to a prepared dataset.

    python -m data_prep.own_videos VIDEOS OUT --labels LABELS [--val-share 0.2]     to train on, and to be measured
    python -m data_prep.own_videos VIDEOS OUT --boxes BOXES                         to be scored only

LABELS: a CSV or a folder of them, columns video_id,frame_timestamp,x1,y1,x2,y2,label,entity_id as AVA has them; BOXES
the same without the label. video_id is the video's file name without its ending, the time is the video's own in
seconds, boxes are fractions of the picture. A killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from avfusion.data.annotations import Annotation, read_annotations
from avfusion.data.frame_grid import MAX_GAP_S, film_on_grid
from avfusion.data.prepared_writer import LeftOut, PreparedWriter
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.faces.crop import CROP_SCALE
from data_prep.film_extraction import FilmTask, extract_films
from data_prep.film_plan import VIDEO_ENDINGS, Film, bytes_text, digest, find_films, the_film
from data_prep.film_tables import finish_films, keep_source_labels

COLUMNS = "video_id,frame_timestamp,x1,y1,x2,y2"
SOURCE = "own"


def main(arguments: Sequence[str] | None = None) -> int:
    def body() -> None:
        options = parse_arguments(arguments)
        given = sys.argv[1:] if arguments is None else arguments
        prepare(options, shlex.join(["python", "-m", "data_prep.own_videos", *given]))

    return run_command(body)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="python -m data_prep.own_videos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("videos", type=Path, metavar="VIDEOS", help="folder of videos, subfolders included")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the dataset; a begun one is continued")
    parser.add_argument("--labels", type=Path, help=f"CSV or folder of CSVs: {COLUMNS},label,entity_id")
    parser.add_argument("--boxes", type=Path, help=f"CSV or folder of CSVs: {COLUMNS},entity_id")
    parser.add_argument("--split", default="own", help="split of the videos (default: own)")
    parser.add_argument(
        "--val-share",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="labelled videos become train and val, this share of them val, drawn over whole videos (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of that draw (default: 0)")
    parser.add_argument("--crop-size", type=int, default=112, help="height and width of the crops (default: 112)")
    parser.add_argument(
        "--max-gap",
        type=float,
        default=MAX_GAP_S,
        help=f"rows of a face farther apart, in seconds, begin a new track (default: {MAX_GAP_S})",
    )
    parser.add_argument("--jobs", type=int, default=_cores(), help="videos at a time (default: one a core)")
    parser.add_argument("--allow-missing", action="store_true", help="leave out videos that cannot be used")
    return parser.parse_args(arguments)


def prepare(options: argparse.Namespace, command: str) -> None:
    _check_options(options)
    videos, unnamed = plan_videos(options)
    settings = {
        "videos": SOURCE,
        "crop_size": options.crop_size,
        "crop_scale": CROP_SCALE,
        "max_gap_s": options.max_gap,
        "labels": digest(videos),
    }
    out: Path = options.out
    writer = PreparedWriter(out, out.resolve().name, command, options.crop_size, settings)
    todo = [video for video in videos if video.scene_id not in writer.scenes]
    if not todo and writer.is_finished:
        print(f"{out} is finished already: {len(writer.scenes)} videos")
        return
    _tell_plan(out, todo, unnamed, options)
    keep_source_labels(out, [video for video in videos if _is_labelled(video)])
    failures = {v.scene_id: f"no video named {v.video_id}.* in {options.videos}" for v in todo if v.path is None}
    for scene_id, reason in failures.items():
        print(f"{scene_id}: {reason}", file=sys.stderr)
    tasks = [
        FilmTask(video.path, video.split, video.video_id, video.tracks, out, options.crop_size, SOURCE)
        for video in todo
        if video.path is not None
    ]
    jobs = min(options.jobs, max(len(tasks), 1))
    failures |= extract_films(tasks, jobs, lambda task, record: writer.add_scene(task.scene_id, record))
    if failures and not options.allow_missing:
        raise AvfusionError(
            f"{len(failures)} of {len(videos)} videos could not be used ({', '.join(sorted(failures))}); the others "
            "are done and kept. Mend those and run the same command again, or add --allow-missing to finish without"
        )
    left_out = {}
    if failures:
        left_out["videos that could not be used"] = LeftOut(sorted(failures), len(videos))
    if unnamed:
        left_out["videos without a face in the tables"] = LeftOut(unnamed, len(videos) + len(unnamed))
    finish_films(writer, len(failures), left_out)


def plan_videos(options: argparse.Namespace) -> tuple[list[Film], list[str]]:
    """Reads the tables, looks for the videos they name and draws their splits.

    Returns:
        The videos of the tables in order of split and id, and the names of videos that no table names.

    Raises:
        UsageError: no folder or no video, or a video is in both tables.
        AvfusionError: a table is wrong.
    """
    files = find_films(options.videos)
    faces: dict[str, list[Annotation]] = defaultdict(list)
    labelled = read_annotations(options.labels, "ava") if options.labels else []
    unlabelled = read_annotations(options.boxes, "boxes") if options.boxes else []
    for annotation in [*labelled, *unlabelled]:
        faces[annotation.video_id].append(annotation)
    with_labels = sorted({annotation.video_id for annotation in labelled})
    both = sorted(set(with_labels) & {annotation.video_id for annotation in unlabelled})
    if both:
        raise UsageError(f"video {both[0]!r} is in --labels and in --boxes; expected each video in one of them")
    split_of = dict.fromkeys(faces, options.split) | draw_splits(with_labels, options.val_share, options.seed)
    videos = [
        Film(
            split_of[video_id],
            video_id,
            annotations,
            film_on_grid(annotations, options.max_gap),
            the_film(video_id, files[video_id]) if video_id in files else None,
        )
        for video_id, annotations in faces.items()
    ]
    there = {name for name, paths in files.items() if any(path.suffix.lower() in VIDEO_ENDINGS for path in paths)}
    if not there:
        raise UsageError(f"no video in {options.videos}; expected files ending in {', '.join(VIDEO_ENDINGS)}")
    if all(video.path is None for video in videos):
        raise UsageError(
            f"the tables name none of the {len(there)} videos in {options.videos}: they name {min(faces)!r} .., the "
            f"folder holds {min(there)!r} ..; expected video_id to be the file's name without its ending"
        )
    return sorted(videos, key=lambda video: (video.split, video.video_id)), sorted(there - faces.keys())


def draw_splits(video_ids: Sequence[str], val_share: float, seed: int) -> dict[str, str]:
    """Draws train and val over whole videos, at least one each; nothing where no share is asked for.

    Raises:
        UsageError: fewer than two videos.
    """
    if val_share == 0:
        return {}
    if len(video_ids) < 2:
        raise UsageError(
            f"--val-share={val_share:g} needs at least 2 labelled videos, found {len(video_ids)}: tracks of one video "
            "are never divided, since a score on one would tell nothing about the others"
        )
    count = min(max(round(val_share * len(video_ids)), 1), len(video_ids) - 1)
    order = np.random.default_rng(seed).permutation(sorted(video_ids)).tolist()
    return {video_id: "val" if place < count else "train" for place, video_id in enumerate(order)}


def _tell_plan(out: Path, todo: Sequence[Film], unnamed: Sequence[str], options: argparse.Namespace) -> None:
    """Says what will be done and what room it takes, and refuses what has no room."""
    if unnamed:
        names = ", ".join(unnamed[:3]) + (", .." if len(unnamed) > 3 else "")
        print(f"left out {len(unnamed)} videos that no table names a face in: {names}", file=sys.stderr)
    needed = sum(video.crop_bytes(options.crop_size) + video.sound_bytes() for video in todo)
    free = shutil.disk_usage(out).free
    tracks, frames = sum(len(video.tracks) for video in todo), sum(video.num_frames for video in todo)
    print(
        f"{len(todo)} videos to extract: {tracks} tracks, {frames} frames, about {bytes_text(needed)}; free in {out}: "
        f"{bytes_text(free)}"
    )
    if needed > free:
        raise UsageError(f"{out} has {bytes_text(free)} free, {bytes_text(needed)} are needed; choose another folder")


def _check_options(options: argparse.Namespace) -> None:
    if options.labels is None and options.boxes is None:
        raise UsageError(
            "the faces' places are needed: give --labels, or --boxes to have them scored; finding faces comes with "
            "python -m avfusion.inference, which is not there yet"
        )
    if options.crop_size < 16 or options.crop_size % 2:
        raise UsageError(f"--crop-size={options.crop_size}: expected an even number from 16")
    if not 0 <= options.max_gap <= 60:
        raise UsageError(f"--max-gap={options.max_gap:g}: expected seconds from 0 to 60")
    if not 0 <= options.val_share < 1:
        raise UsageError(f"--val-share={options.val_share:g}: expected a share from 0 to below 1, such as 0.2")
    if options.val_share and options.labels is None:
        raise UsageError("--val-share divides labelled videos; give --labels")
    if options.val_share and options.split in ("train", "val"):
        raise UsageError(f"--split={options.split}: that split is drawn by --val-share; choose another name")
    if options.jobs < 1:
        raise UsageError(f"--jobs={options.jobs}: expected at least 1")


def _is_labelled(video: Film) -> bool:
    return all(annotation.speaking is not None for annotation in video.annotations)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
