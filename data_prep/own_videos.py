"""A folder of your own videos, with the faces you know, to a prepared dataset.

    python -m data_prep.own_videos VIDEOS OUT --labels LABELS [--val-share 0.2]     to train on, and to be measured
    python -m data_prep.own_videos VIDEOS OUT --boxes BOXES                         to be scored only

LABELS: a CSV or a folder of them, columns video_id,frame_timestamp,x1,y1,x2,y2,label,entity_id as AVA has them; BOXES
the same without the label. video_id is the video's file name without its ending, the time is the video's own in
seconds, boxes are fractions of the picture. A killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from avfusion.data.annotations import Annotation, read_annotations
from avfusion.data.frame_grid import film_on_grid
from avfusion.data.prepared_writer import LeftOut
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.media.container import VIDEO_ENDINGS
from data_prep.film_dataset import add_jobs, add_options, check_options, make_dataset
from data_prep.film_plan import AnnotatedFilm, find_films, the_film

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
    add_options(parser)
    add_jobs(parser, "video")
    parser.add_argument("--allow-missing", action="store_true", help="leave out videos that cannot be used")
    return parser.parse_args(arguments)


def prepare(options: argparse.Namespace, command: str) -> None:
    _check_options(options)
    videos, unnamed = plan_videos(options)
    left_out = {}
    if unnamed:
        names = ", ".join(unnamed[:3]) + (", .." if len(unnamed) > 3 else "")
        print(f"left out {len(unnamed)} videos that no table names a face in: {names}", file=sys.stderr)
        left_out["videos without a face in the tables"] = LeftOut(unnamed, len(videos) + len(unnamed))
    drawn = {"val_share": options.val_share, "seed": options.seed if options.val_share else None}
    settings = {"split": options.split, **drawn}
    make_dataset(videos, options, SOURCE, options.videos, command, "video", left_out, settings)


def plan_videos(options: argparse.Namespace) -> tuple[list[AnnotatedFilm], list[str]]:
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
        AnnotatedFilm(
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


def _check_options(options: argparse.Namespace) -> None:
    if options.labels is None and options.boxes is None:
        raise UsageError(
            "the faces' places are needed: give --labels, or --boxes to have them scored; faces are not looked for "
            "here, a face detector's boxes will do"
        )
    check_options(options)
    if not 0 <= options.val_share < 1:
        raise UsageError(f"--val-share={options.val_share:g}: expected a share from 0 to below 1, such as 0.2")
    if options.val_share and options.labels is None:
        raise UsageError("--val-share divides labelled videos; give --labels")
    if options.val_share and options.split in ("train", "val"):
        raise UsageError(f"--split={options.split}: that split is drawn by --val-share; choose another name")


if __name__ == "__main__":
    sys.exit(main())
