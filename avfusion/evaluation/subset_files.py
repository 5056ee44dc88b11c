"""Files that say more about a split: what is heard when (AVA-Speech), and which categories a video belongs to.

AVA-Speech: ``video_id,start_s,end_s,label`` without a header, one stretch a row, labels NO_SPEECH, CLEAN_SPEECH,
SPEECH_WITH_MUSIC and SPEECH_WITH_NOISE. Categories: ``video_id,category``, several rows for a video of several. A
header, a BOM, CRLF and any order of the rows are fine; ids are text whatever they look like.

Source: Chaudhuri et al., AVA-Speech: A Densely Labeled Dataset of Speech Activity in Movies (2018).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.csv_rows import Columns, read_columns, shortened
from avfusion.errors import AvfusionError
from avfusion.evaluation.groups import group_index
from avfusion.tracks import milliseconds

CONDITIONS = ("NO_SPEECH", "CLEAN_SPEECH", "SPEECH_WITH_MUSIC", "SPEECH_WITH_NOISE")
STRETCH_COLUMNS = ("video_id", "start_s", "end_s", "label")
CATEGORY_COLUMNS = ("video_id", "category")
_LATEST_S = 1e12  # keeps milliseconds within int64
_ALIASES = {"label_start_timestamp_seconds": "start_s", "label_end_timestamp_seconds": "end_s"}


@dataclass(frozen=True, eq=False)
class Stretches:
    """Labelled stretches of time, for each video in order and without overlap.

    Attributes:
        of_video: video_id to ``(K,)`` starts in ms, ``(K,)`` ends in ms, which are outside, and ``(K,)`` labels.
        path: the file they came from.
    """

    of_video: dict[str, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.object_]]]
    path: str = ""

    def labels_at(self, video_id: NDArray[np.object_], time_ms: NDArray[np.int64]) -> NDArray[np.object_]:
        """The label of the stretch that holds each time.

        Args:
            video_id: ``(N,)``.
            time_ms: ``(N,)`` whole milliseconds in the video.

        Returns:
            ``(N,)`` str objects, empty where no stretch holds the time.

        Raises:
            AvfusionError: not one of the videos is among the stretches.
        """
        video, videos = group_index(video_id)
        _need_a_common_video(self.path, [name for (name,) in videos], set(self.of_video))
        labels = np.full(len(time_ms), "", dtype=np.object_)
        order = np.argsort(video, kind="stable")
        ends = np.cumsum(np.bincount(video, minlength=len(videos)))
        for (name,), rows in zip(videos, np.split(order, ends[:-1]), strict=True):
            if name in self.of_video:
                starts_ms, ends_ms, stretch_labels = self.of_video[name]
                stretch = np.searchsorted(starts_ms, time_ms[rows], side="right") - 1
                held = (stretch >= 0) & (time_ms[rows] < ends_ms[stretch])
                labels[rows[held]] = stretch_labels[stretch[held]]
        return labels


def read_stretches(path: str | os.PathLike[str]) -> Stretches:
    """Reads labels of AVA-Speech.

    Raises:
        AvfusionError: the file cannot be read, a row is wrong, or two stretches of a video overlap; the message names
            the line.
    """
    chunks = [_checked(path, line, columns) for line, columns in read_columns(path, STRETCH_COLUMNS, _ALIASES)]
    if not chunks:
        raise AvfusionError(f"{os.fspath(path)}: no rows, expected {','.join(STRETCH_COLUMNS)}")
    video_id, start_ms, end_ms, label, line = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    video, videos = group_index(video_id)
    order = np.lexsort((end_ms, start_ms, video))
    same = video[order][1:] == video[order][:-1]
    early = np.flatnonzero(same & (start_ms[order][1:] < end_ms[order][:-1]))
    if len(early):
        first, second = line[order[early[0] : early[0] + 2]]
        raise AvfusionError(
            f"{os.fspath(path)} line {second}: the stretch overlaps the one of line {first}, expected one label for "
            "each time: correct these rows"
        )
    rows_of = np.split(order, np.cumsum(np.bincount(video))[:-1])
    stretches = {
        name: (start_ms[rows], end_ms[rows], label[rows]) for (name,), rows in zip(videos, rows_of, strict=True)
    }
    return Stretches(stretches, os.fspath(path))


def _checked(
    path: str | os.PathLike[str], line: NDArray[np.int64], columns: Columns
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Video, start and end in ms, label and line of some rows, all of them right."""
    video_id, label = columns.texts("video_id"), columns.texts("label")
    start_s, end_s = columns.numbers("start_s"), columns.numbers("end_s")
    _refuse(path, line, video_id == "", video_id, "video_id", "text")
    for name, seconds in (("start_s", start_s), ("end_s", end_s)):
        wrong = ~((seconds >= 0) & (seconds < _LATEST_S))
        _refuse(path, line, wrong, columns.texts(name), name, "seconds from 0")
    _refuse(path, line, end_s < start_s, columns.texts("end_s"), "end_s", "start_s or later")
    known = np.logical_or.reduce([label == text for text in CONDITIONS])
    _refuse(path, line, ~known, label, "label", f"one of {', '.join(CONDITIONS)}")
    return video_id, milliseconds(start_s), milliseconds(end_s), label, line


def read_categories(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Reads which categories each video belongs to, in the order of the file.

    Raises:
        AvfusionError: the file cannot be read, has no rows, or a row lacks its video or category.
    """
    found: dict[str, dict[str, None]] = {}
    for line, columns in read_columns(path, CATEGORY_COLUMNS):
        videos, categories = columns.texts("video_id"), columns.texts("category")
        for name, texts in (("video_id", videos), ("category", categories)):
            empty = np.array([not text.strip() for text in texts])
            _refuse(path, line, empty, texts, name, "text")
        for video, category in zip(videos, categories, strict=True):
            found.setdefault(video, {})[category.strip()] = None
    if not found:
        raise AvfusionError(f"{os.fspath(path)}: no rows, expected {','.join(CATEGORY_COLUMNS)}")
    return {video: tuple(categories) for video, categories in found.items()}


def need_categories(path: str | os.PathLike[str], categories: dict[str, tuple[str, ...]], videos: list[str]) -> None:
    """Refuses a file that knows none of the videos.

    Raises:
        AvfusionError: there is no common video.
    """
    _need_a_common_video(os.fspath(path), videos, set(categories))


def _need_a_common_video(path: str, videos: list[str], known: set[str]) -> None:
    if not known.intersection(videos):
        raise AvfusionError(
            f"{path}: none of its {len(known)} videos (first {next(iter(sorted(known)), '')!r}) is among the "
            f"{len(videos)} labelled ones (first {videos[0]!r}): give the file of these videos, with the same ids"
        )


def _refuse(
    path: str | os.PathLike[str],
    line: NDArray[np.int64],
    wrong: NDArray[np.bool_],
    texts: NDArray[np.object_],
    name: str,
    expected: str,
) -> None:
    if wrong.any():
        index = int(wrong.argmax())
        raise AvfusionError(
            f"{os.fspath(path)} line {line[index]}: {name} is {shortened(texts[index])}, expected {expected}: "
            "correct this row"
        )
