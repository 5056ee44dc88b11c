"""How long it takes to judge a large score file: reading, joining, the figures, and what the intervals cost.

    python benchmarks/scoring.py [--rows=1000000] [--videos=100] [--resamples=20]

Makes labels and scores in a temporary folder (times on AVA's clock, boxes of six digits, scores of full precision),
reads and judges them as ``eval.py --scores`` does, and prints the seconds of each part, of the processor and by the
clock, with the peak of memory. The intervals are timed on a few resamples and told for 1000: their time is linear.
The whole command without intervals is timed too, in a process of its own, with the rows track by track and shuffled.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.evaluation.join import join
from avfusion.evaluation.report import evaluate
from avfusion.evaluation.subsets import subset_rows, subsets
from avfusion.tracks import read_labels, read_scores


def main() -> None:
    """Makes the files, judges them and prints the table."""
    parser = CommandParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=1_000_000, help="face boxes (default: 1000000)")
    parser.add_argument("--videos", type=int, default=100, help="videos (default: 100)")
    parser.add_argument("--resamples", type=int, default=20, help="resamples that are timed (default: 20)")
    options: argparse.Namespace = parser.parse_args()
    for name in ("rows", "videos", "resamples"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name}={getattr(options, name)}: expected at least 1")
    with tempfile.TemporaryDirectory() as folder:
        labels, scores = Path(folder) / "labels.csv", Path(folder) / "scores.csv"
        write_files(labels, scores, options.rows, options.videos)
        any_order = [Path(folder) / "labels_shuffled.csv", Path(folder) / "scores_shuffled.csv"]
        for seed, (path, shuffled) in enumerate(zip((labels, scores), any_order, strict=True)):
            shuffle(path, shuffled, seed)
        # Before anything is read here: a child counts what its parent held when it began.
        commands = [whole_command(labels, scores, "tracks in order"), whole_command(*any_order, "rows shuffled")]
        clock = Clock()
        truth = read_labels(labels)
        clock.lap("read labels")
        predicted = read_scores(scores)
        clock.lap("read scores")
    joined = join(truth, predicted)
    clock.lap("join")
    evaluate(joined, resamples=0)
    clock.lap("headline figures")
    chosen = subsets(joined)
    subset_rows(joined, chosen, resamples=0)
    clock.lap("subsets")
    clock.total(f"{options.rows} rows without intervals")
    evaluate(joined, options.resamples)
    clock.lap("headline intervals", 1000 / options.resamples)
    subset_rows(joined, chosen, resamples=options.resamples)
    clock.lap("subset intervals", 1000 / options.resamples)
    print("\n".join(commands))


def whole_command(labels: Path, scores: Path, order: str) -> str:
    """Runs ``eval.py`` on the files and tells its processor time, imports included, and its peak of memory."""
    evaluate_py = Path(__file__).resolve().parent.parent / "eval.py"
    arguments = [f"--scores={scores}", f"--labels={labels}", "--report.bootstrap=0"]
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, str(evaluate_py), *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise AvfusionError(f"eval.py ended with {os.waitstatus_to_exitcode(status)}, expected 0")
    spent = (used.ru_utime + used.ru_stime, time.perf_counter() - began)
    return f"{'eval.py, ' + order:28}{spent[0]:8.2f} s{spent[1]:8.2f} s{megabytes(used.ru_maxrss):11.0f} MB"


def shuffle(path: Path, shuffled: Path, seed: int) -> None:
    """Writes the rows of a file in any order, in a process of its own: their memory would count as ours."""
    program = "import random, sys; rows = open(sys.argv[1]).readlines(); random.Random(int(sys.argv[3])).shuffle(rows)"
    program += "; open(sys.argv[2], 'w').writelines(rows)"
    subprocess.run([sys.executable, "-c", program, str(path), str(shuffled), str(seed)], check=True)


def megabytes(peak: int) -> float:
    """Of what ``getrusage`` counts: bytes on macOS, kilobytes elsewhere."""
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def write_files(labels: Path, scores: Path, rows: int, videos: int) -> None:
    """Tracks of 10 to 250 frames, one to three at a time, a quarter of the boxes speaking."""
    generator = np.random.default_rng(0)
    with labels.open("w") as label_file, scores.open("w") as score_file:
        for video in range(videos):
            left, start_s, entity = rows // videos + (video < rows % videos), 900.0, 0
            while left:
                length = int(generator.integers(10, 250))
                for _ in range(int(generator.integers(1, 4))):
                    frames, entity = min(length, left), entity + 1
                    left -= frames
                    speaking = generator.random(frames) < 0.25
                    score = 1 / (1 + np.exp(-generator.normal(size=frames) - 2 * speaking))
                    x1 = generator.uniform(0, 0.7)
                    x2 = x1 + generator.uniform(0.02, 0.25)
                    for frame in range(frames):
                        row = f"video{video:05d},{start_s + frame / 25:.2f},{x1:.6f},0.1,{x2:.6f},0.5"
                        label = "SPEAKING_AUDIBLE" if speaking[frame] else "NOT_SPEAKING"
                        label_file.write(f"{row},{label},video{video:05d}:{entity}\n")
                        score_file.write(f"{row},SPEAKING_AUDIBLE,video{video:05d}:{entity},{float(score[frame])!r}\n")
                start_s += length / 25


class Clock:
    """Prints the time of each part since the one before."""

    def __init__(self) -> None:
        self._began: tuple[float, ...] = (time.process_time(), time.perf_counter())
        self._last = self._began
        print(f"{'':28}{'processor':>10}{'clock':>10}{'peak memory':>14}")

    def lap(self, part: str, times: float = 1.0) -> None:
        """Prints a part.

        Args:
            part: its name.
            times: how many times as long it really takes; above 1 the name says for 1000 resamples.
        """
        now = (time.process_time(), time.perf_counter())
        spent = [times * (new - old) for new, old in zip(now, self._last, strict=True)]
        self._print(part if times == 1.0 else f"{part}, 1000", spent)
        self._last = now

    def total(self, part: str) -> None:
        """Prints all since the beginning."""
        self._print(part, [new - old for new, old in zip(self._last, self._began, strict=True)])

    def _print(self, part: str, spent: list[float]) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{part:28}{spent[0]:8.2f} s{spent[1]:8.2f} s{megabytes(peak):11.0f} MB")


if __name__ == "__main__":
    raise SystemExit(run_command(main))
