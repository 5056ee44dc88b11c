"""Face tracks, label tables and score tables: the words that every room shares, and their CSV files.

A :class:`FaceTrack` is one person's boxes over ``T`` consecutive frames at 25 per second, a :class:`GridTrack` the same
before crops and sound are cut. A table holds ``N`` face boxes of many tracks as columns, each row named by (video_id,
time in ms, entity_id); row order means nothing. The files are those of AVA-ActiveSpeaker (Roth et al. 2020): 8 columns
of labels, a ninth for a prediction's score.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.csv_rows import Columns, read_columns, shortened
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file

LABELS = ("NOT_SPEAKING", "SPEAKING_AUDIBLE", "SPEAKING_NOT_AUDIBLE")
POSITIVE_LABEL = "SPEAKING_AUDIBLE"

_BOX_COLUMNS = ("entity_box_x1", "entity_box_y1", "entity_box_x2", "entity_box_y2")
LABEL_COLUMNS = ("video_id", "frame_timestamp", *_BOX_COLUMNS, "label", "entity_id")
UNLABELED_COLUMNS = ("video_id", "frame_timestamp", *_BOX_COLUMNS, "entity_id")
SCORE_COLUMNS = (*LABEL_COLUMNS, "score")
_HEADER_ALIASES = dict(zip(("x1", "y1", "x2", "y2"), _BOX_COLUMNS, strict=True))
_NUMERIC = ("frame_timestamp", *_BOX_COLUMNS)
_LARGEST = 1e12  # beyond any time, box or score: keeps milliseconds within int64


@dataclass(frozen=True)
class FaceTrack:
    """One face over ``T`` consecutive video frames of one shot.

    Attributes:
        video_id: the video or scene the face is seen in.
        entity_id: names the track; unique within the dataset.
        start_s: time of the first frame in the video, in seconds.
        speaking: ``(T,)`` bool, True where the label is SPEAKING_AUDIBLE.
        boxes_xyxy: ``(T, 4)`` float32, x1, y1, x2, y2 as fractions of picture width and height.
        audio_id: names the sound that is heard; tracks of one scene share it.
        role: what kind of example it is (``own_sound``, ``shifted`` ...); empty where unknown.
        source: the corpus it comes from; empty where unknown.
        group: what the track was made from (a source clip); tracks of one group are not independent of each other.
            Empty: the video_id counts.
        lag_ms: where it is known exactly, how much later than the mouth movement its sound comes; None elsewhere.
        labelled: False where nobody has said when the face speaks: ``speaking`` is all False then and means nothing.
    """

    video_id: str
    entity_id: str
    start_s: float
    speaking: NDArray[np.bool_]
    boxes_xyxy: NDArray[np.float32]
    audio_id: str
    role: str = ""
    source: str = ""
    group: str = ""
    lag_ms: float | None = None
    labelled: bool = True

    @property
    def num_frames(self) -> int:
        """``T``."""
        return len(self.speaking)

    @property
    def timestamps_s(self) -> NDArray[np.float64]:
        """``(T,)`` times of the frames in the video, in seconds."""
        return self.start_s + np.arange(self.num_frames) / VIDEO_HZ


@dataclass(frozen=True, eq=False)
class GridTrack:
    """One face over ``T`` consecutive frames of a film's 25 fps grid: frame ``n`` stands at ``n / 25`` s of the film.

    Attributes:
        entity_id: names the track; unique within the film.
        start_frame: first frame.
        boxes_xyxy: ``(T, 4)`` float32 fractions of the picture; they may reach beyond it.
        speaking: ``(T,)`` bool; None where nobody labeled the track.
    """

    entity_id: str
    start_frame: int
    boxes_xyxy: NDArray[np.float32]
    speaking: NDArray[np.bool_] | None = None

    @property
    def num_frames(self) -> int:
        """``T``."""
        return len(self.boxes_xyxy)

    @property
    def end_frame(self) -> int:
        """One past the last frame."""
        return self.start_frame + self.num_frames

    @property
    def start_s(self) -> float:
        """Time of the first frame in seconds."""
        return self.start_frame / VIDEO_HZ


@dataclass(frozen=True, eq=False, kw_only=True)
class FaceTable:
    """``N`` face boxes, one a row, as columns. Ids are text whatever they look like (``007``, ``NA``, ``1e5``).

    Attributes:
        video_id: ``(N,)`` str objects.
        timestamp_ms: ``(N,)`` int64, the frame's time in the video in whole milliseconds.
        boxes_xyxy: ``(N, 4)`` float32, x1, y1, x2, y2 as fractions of picture width and height.
        entity_id: ``(N,)`` str objects.
        line: ``(N,)`` int64 line of the file (from 1), or 0 where the row was never in a file.
        path: the file the rows came from; empty for a table made in memory.
        texts: ``(N,)`` str objects, the texts of time and box as the file has them, joined by commas; None where they
            were not kept. Written again as they are: the official tool finds rows by their very time, and wants boxes
            equal within 1e-9.
        file: ``(N,)`` str objects, the file of each row where ``path`` is a folder; None elsewhere.
    """

    video_id: NDArray[np.object_]
    timestamp_ms: NDArray[np.int64]
    boxes_xyxy: NDArray[np.float32]
    entity_id: NDArray[np.object_]
    line: NDArray[np.int64]
    path: str = ""
    texts: NDArray[np.object_] | None = None
    file: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.timestamp_ms)

    def row_name(self, index: int) -> str:
        """Names one row for a message: video, time in seconds, entity, and the line where there is one."""
        file = "" if self.file is None else f"{self.file[index]} "
        where = f" ({file}line {self.line[index]})" if self.line[index] else ""
        time = _seconds_text(int(self.timestamp_ms[index]))
        return f"{self.video_id[index]!r} at {time} s, {self.entity_id[index]!r}{where}"


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelTable(FaceTable):
    """The ground truth: ``speaking`` is ``(N,)`` bool, True where the label is SPEAKING_AUDIBLE."""

    speaking: NDArray[np.bool_]

    @classmethod
    def from_tracks(cls, tracks: Iterable[FaceTrack]) -> LabelTable:
        """The labels of all frames of the tracks, track after track."""
        tracks = list(tracks)
        return cls(**_columns_of_tracks(tracks), speaking=_joined([t.speaking for t in tracks], np.bool_))


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreTable(FaceTable):
    """What a model says: ``score`` is ``(N,)`` float64, finite, higher where the face is more likely the speaker.

    avfusion writes probabilities in 0..1; any other increasing scale (logits) gives the same AP and AUROC. Boxes are
    NaN where the file has none: figures by AVA's rules take those of the labels.
    """

    score: NDArray[np.float64]

    @classmethod
    def from_tracks(cls, tracks: Iterable[FaceTrack], scores: Sequence[NDArray[np.floating[Any]]]) -> ScoreTable:
        """Pairs each track with its scores.

        Args:
            tracks: the face tracks.
            scores: for each track ``(T,)`` scores of its frames.

        Raises:
            ValueError: a track and its scores differ in length.
            AvfusionError: a score is NaN or infinite.
        """
        tracks = list(tracks)
        if len(tracks) != len(scores):
            raise ValueError(f"{len(scores)} score arrays for {len(tracks)} tracks")
        for track, values in zip(tracks, scores, strict=True):
            if np.shape(values) != (track.num_frames,):
                raise ValueError(f"scores {np.shape(values)} for the {track.num_frames} frames of {track.entity_id!r}")
            if not np.isfinite(values).all():
                frame = int(np.argmin(np.isfinite(values)))
                raise AvfusionError(
                    f"score {values[frame]} at frame {frame} of {track.entity_id!r} in {track.video_id!r}, expected a "
                    "finite number: the model's numbers have overflowed"
                )
        return cls(**_columns_of_tracks(tracks), score=_joined(list(scores), np.float64))


def read_labels(path: str | os.PathLike[str], *, more_columns: int = 0, keep_texts: bool = False) -> LabelTable:
    """Reads an AVA-ActiveSpeaker label file.

    Columns ``video_id, frame_timestamp, x1, y1, x2, y2, label, entity_id``. A header line is found by its words, names
    the columns then and may name more (TalkNet's ``*_orig.csv``). BOM, CRLF, blank lines and any row order are fine.

    Args:
        path: the file.
        more_columns: so many columns may follow in a file without a header; they are not looked at.
        keep_texts: fill ``texts``.

    Raises:
        AvfusionError: the file cannot be read, or a row is wrong; the message names file, line and what was found.
    """
    chunks = []
    numeric = () if keep_texts else _NUMERIC
    for line, columns in read_columns(path, LABEL_COLUMNS, _HEADER_ALIASES, more_columns, numeric=numeric):
        chunk = _face_columns(path, line, columns, keep_texts)
        label = columns.texts("label")
        known = np.logical_or.reduce([label == text for text in LABELS])
        if not known.all():
            index = int(known.argmin())
            raise _row_error(path, line[index], "label", label[index], f"one of {', '.join(LABELS)}")
        chunk["speaking"] = label == POSITIVE_LABEL
        _refuse_inverted_boxes(path, line, columns, chunk["boxes_xyxy"])
        chunks.append(chunk)
    return LabelTable(path=os.fspath(path), speaking=_column(chunks, "speaking", np.bool_), **_face_arrays(chunks))


def read_unlabeled(path: str | os.PathLike[str]) -> FaceTable:
    """Reads face boxes that nobody labeled: the AVA columns without ``label``; otherwise as :func:`read_labels`.

    Raises:
        AvfusionError: the file cannot be read, or a row is wrong.
    """
    chunks = []
    for line, columns in read_columns(path, UNLABELED_COLUMNS, _HEADER_ALIASES, numeric=_NUMERIC):
        chunk = _face_columns(path, line, columns)
        _refuse_inverted_boxes(path, line, columns, chunk["boxes_xyxy"])
        chunks.append(chunk)
    return FaceTable(path=os.fspath(path), **_face_arrays(chunks))


def read_scores(path: str | os.PathLike[str]) -> ScoreTable:
    """Reads a score file: the AVA columns and a ninth, ``score``.

    The label column is not looked at: guessed labels, or SPEAKING_AUDIBLE in every row as the official tool wants it,
    do not count. Headers and line ends as in :func:`read_labels`. Where a header names the columns, label and boxes
    may be left out; boxes are NaN then.

    Raises:
        AvfusionError: the file cannot be read, or a row is wrong (a NaN, infinite, blank or text score among them).
    """
    chunks = []
    numeric = (*_NUMERIC, "score")
    optional = (("label",), _BOX_COLUMNS)
    for line, columns in read_columns(path, SCORE_COLUMNS, _HEADER_ALIASES, numeric=numeric, optional=optional):
        chunk = _face_columns(path, line, columns)
        chunk["score"] = _numbers(path, line, columns, "score", "a finite number")
        chunks.append(chunk)
    return ScoreTable(path=os.fspath(path), score=_column(chunks, "score", np.float64), **_face_arrays(chunks))


def write_labels(path: str | os.PathLike[str], tracks: Iterable[FaceTrack]) -> None:
    """Writes the labels of all frames in AVA's columns, without a header; atomic.

    Times carry three digits, so the millisecond survives. Frames that do not speak audibly become NOT_SPEAKING.
    """
    table = LabelTable.from_tracks(tracks)
    labels = [POSITIVE_LABEL if speaking else "NOT_SPEAKING" for speaking in table.speaking.tolist()]
    with whole_text_file(path) as file:
        csv.writer(file, lineterminator="\n").writerows(_text_rows(table, labels))


def write_unlabeled(path: str | os.PathLike[str], tracks: Iterable[FaceTrack]) -> None:
    """Writes the boxes of all frames as :func:`write_labels` does, without the label column."""
    table = LabelTable.from_tracks(tracks)
    with whole_text_file(path) as file:
        rows = _text_rows(table, [""] * len(table))
        csv.writer(file, lineterminator="\n").writerows((*row[:6], row[7]) for row in rows)


def write_scores(path: str | os.PathLike[str], scores: ScoreTable) -> None:
    """Writes a score table with a header line; atomic. Scores keep every digit: the file ranks exactly like the table.

    The label column holds SPEAKING_AUDIBLE in every row: the score is the score of that label (official tool).
    """
    labels = [POSITIVE_LABEL] * len(scores)
    with whole_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(SCORE_COLUMNS)
        rows = zip(_text_rows(scores, labels), scores.score.tolist(), strict=True)
        writer.writerows((*row, repr(score)) for row, score in rows)


def milliseconds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Times as whole milliseconds, the precision at which rows are keyed."""
    return np.rint(seconds * 1000).astype(np.int64)


def runs_of_true(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The stretches of True in ``(T,)`` flags, such as where a face speaks.

    Returns:
        First and one past the last index of each, in order.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


# --- reading ---------------------------------------------------------------------------------------------------------


def _face_columns(
    path: str | os.PathLike[str], line: NDArray[np.int64], columns: Columns, keep_texts: bool = False
) -> dict[str, NDArray[Any]]:
    """The columns of :class:`FaceTable`, checked."""
    ids = {name: columns.texts(name) for name in ("video_id", "entity_id")}
    for name, texts in ids.items():
        empty = texts == ""
        if empty.any():
            raise _row_error(path, line[empty.argmax()], name, "", "text")
    seconds = _numbers(path, line, columns, "frame_timestamp", "seconds from 0", low=0.0)
    if columns.has(_BOX_COLUMNS[0]):
        boxes = [_numbers(path, line, columns, name, "a fraction of the picture") for name in _BOX_COLUMNS]
    else:
        boxes = [np.full(len(line), np.nan)] * 4
    kept = {}
    if keep_texts:
        rows = zip(*(columns.texts(name) for name in ("frame_timestamp", *_BOX_COLUMNS)), strict=True)
        kept["texts"] = np.array([",".join(row) for row in rows], dtype=np.object_)
    return {
        **ids,
        **kept,
        "timestamp_ms": milliseconds(seconds),
        "boxes_xyxy": np.stack(boxes, axis=1).astype(np.float32),
        "line": line,
    }


def _numbers(
    path: str | os.PathLike[str],
    line: NDArray[np.int64],
    columns: Columns,
    name: str,
    expected: str,
    low: float = -_LARGEST,
) -> NDArray[np.float64]:
    """A column of finite numbers, or the error that names the first row that is none."""
    values = columns.numbers(name)
    wrong = ~((values >= low) & (values <= _LARGEST))  # true for NaN as well
    if wrong.any():
        index = int(wrong.argmax())
        if np.isfinite(values[index]) and abs(values[index]) > _LARGEST:
            expected = "a number up to 1e12"
        raise _row_error(path, line[index], name, columns.texts(name)[index], expected)
    return values


def _refuse_inverted_boxes(
    path: str | os.PathLike[str], line: NDArray[np.int64], columns: Columns, boxes: NDArray[np.float32]
) -> None:
    inverted = (boxes[:, 2:] < boxes[:, :2]).any(axis=1)
    if inverted.any():
        index = int(inverted.argmax())
        text = ",".join(columns.texts(name)[index] for name in _BOX_COLUMNS)
        raise _row_error(path, line[index], "box", text, "x1,y1,x2,y2 with x1 <= x2 and y1 <= y2")


def _row_error(path: str | os.PathLike[str], line: np.int64, name: str, found: str, expected: str) -> AvfusionError:
    return AvfusionError(f"{path} line {line}: {name} is {shortened(found)}, expected {expected}: correct this row")


def _column(chunks: list[dict[str, NDArray[Any]]], name: str, dtype: type[np.generic]) -> NDArray[Any]:
    return _joined([chunk[name] for chunk in chunks], dtype)


def _face_arrays(chunks: list[dict[str, NDArray[Any]]]) -> dict[str, Any]:
    boxes = _column(chunks, "boxes_xyxy", np.float32)
    kept = {"texts": _column(chunks, "texts", np.object_)} if chunks and "texts" in chunks[0] else {}
    return kept | {
        "video_id": _column(chunks, "video_id", np.object_),
        "timestamp_ms": _column(chunks, "timestamp_ms", np.int64),
        "boxes_xyxy": boxes.reshape(-1, 4),
        "entity_id": _column(chunks, "entity_id", np.object_),
        "line": _column(chunks, "line", np.int64),
    }


def _joined(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """The parts one after the other; a table of no parts is an empty table."""
    return np.concatenate(parts).astype(dtype, copy=False) if len(parts) else np.empty(0, dtype)


# --- writing ---------------------------------------------------------------------------------------------------------


def _columns_of_tracks(tracks: list[FaceTrack]) -> dict[str, Any]:
    lengths = [track.num_frames for track in tracks]
    videos = np.array([track.video_id for track in tracks], dtype=np.object_)
    entities = np.array([track.entity_id for track in tracks], dtype=np.object_)
    return {
        "video_id": np.repeat(videos, lengths),
        "timestamp_ms": milliseconds(_joined([track.timestamps_s for track in tracks], np.float64)),
        "boxes_xyxy": _joined([track.boxes_xyxy for track in tracks], np.float32).reshape(-1, 4),
        "entity_id": np.repeat(entities, lengths),
        "line": np.zeros(sum(lengths), np.int64),
    }


def _text_rows(table: FaceTable, labels: list[str]) -> Iterator[tuple[str, ...]]:
    """The eight AVA columns as text."""
    if table.texts is not None:
        for video_id, text, label, entity_id in zip(table.video_id, table.texts, labels, table.entity_id, strict=True):
            yield (video_id, *text.split(","), label, entity_id)
        return
    times, boxes = table.timestamp_ms.tolist(), table.boxes_xyxy.tolist()
    rows = zip(table.video_id, times, boxes, labels, table.entity_id, strict=True)
    for video_id, time_ms, (x1, y1, x2, y2), label, entity_id in rows:
        box = (f"{x1:.6f}", f"{y1:.6f}", f"{x2:.6f}", f"{y2:.6f}")
        yield (video_id, _seconds_text(time_ms), *box, label, entity_id)


def _seconds_text(time_ms: int) -> str:
    return f"{time_ms / 1000:.3f}"
