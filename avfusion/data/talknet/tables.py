r"""The CSV files of the TalkNet layout, read and written.

    csv/<split>_orig.csv      the AVA columns and label_id, instance_id, with a header: one row per annotated face box
    csv/<split>_loader.csv    no header, tab-separated: entity_id, number of frames, frames per second, labels, index
                              ``HV0H6oc4Kvs_0960_1020:1\t3\t25.0\t[0, 1, 1]\t2715``

``N`` rows of one track, in order of time. A label of the loader file is 1 where the face speaks audibly, else 0; its
last column is any number of the track's own, by which TalkNet's loader mixes tracks of equal length.

Source: github.com/TaoRuijie/TalkNet-ASD (dataLoader.py, utils/tools.py, issues 10, 11 and 30; commit 7bc54bc);
Light-ASD and LoCoNet_ASD (dataLoader_multiperson.py) read the same files, UniTalk-ASD ships ``*_orig.csv`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.data.annotations import Annotation
from avfusion.errors import AvfusionError


@dataclass(frozen=True)
class LoaderRow:
    """One line of ``*_loader.csv``; ``speaking`` is ``(N,)`` bool, ``line`` counts from 1."""

    entity_id: str
    num_frames: int
    rate_hz: float
    speaking: NDArray[np.bool_]
    line: int


def rate_of(entities: Iterable[Annotation]) -> float | None:
    """Frames per second at which entities are annotated, gaps left out; None where no entity has two rows.

    Stamps of two digits are 10 ms coarse, so the mean over many steps counts, never a single step.
    """
    steps = [np.diff(entity.timestamp_ms) for entity in entities]
    joined = np.concatenate(steps) if steps else np.empty(0, np.int64)
    joined = joined[joined > 0]
    if len(joined) == 0:
        return None
    regular = joined[joined < 1.6 * np.median(joined)]  # 29.97 fps: 30 and 40 ms; from 60 ms on a row is missing
    return float(1000 / regular.mean())


def read_loader(path: Path) -> list[LoaderRow]:
    """Reads ``*_loader.csv``. A header, a BOM, CRLF and blank lines are fine.

    Raises:
        AvfusionError: the file cannot be read, or a line is wrong; the message names it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AvfusionError(f"{path}: cannot be read as text ({error}), expected a tab-separated file") from error
    rows: list[LoaderRow] = []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        is_header = not rows and len(cells) >= 4 and not cells[1].strip().isdigit() and "[" not in line
        if line.strip() and not is_header:
            rows.append(_loader_row(path, number, cells))
    return rows


def _loader_row(path: Path, number: int, cells: Sequence[str]) -> LoaderRow:
    try:
        if len(cells) < 4 or not cells[0]:
            raise ValueError
        words = cells[3].strip().removeprefix("[").removesuffix("]").split(",")
        labels = np.array([int(word) for word in words], dtype=np.int64)
        row = LoaderRow(cells[0], int(cells[1]), float(cells[2]), labels == 1, number)
        if not 0 < row.rate_hz < 1000 or not np.isin(labels, (0, 1, 2)).all():
            raise ValueError
    except ValueError:
        found = "\t".join(cells)[:60]
        expected = "entity_id, frames, frames per second, [labels 0 or 1], index, with tabs between them"
        raise AvfusionError(f"{path} line {number}: found {found!r}, expected {expected}") from None
    return row


def loader_text(entities: Sequence[Annotation]) -> str:
    """The content of ``*_loader.csv`` for entities, in their order.

    TalkNet gives a prediction its row of ``*_orig.csv`` by position: the order must be that of the file. The rate is
    that of the entity's film, to two digits; a film whose entities have one row each counts as 25 fps.
    """
    of_film: dict[str, list[Annotation]] = {}
    for entity in entities:
        of_film.setdefault(entity.video_id, []).append(entity)
    rates = {video_id: round(rate_of(members) or 25.0, 2) for video_id, members in of_film.items()}
    order = np.random.default_rng(0).permutation(len(entities)).tolist()
    lines = []
    for entity, index in zip(entities, order, strict=True):
        labels = [] if entity.speaking is None else entity.speaking.tolist()
        text = str([int(value) for value in labels])
        cells = (entity.entity_id, str(len(labels)), str(rates[entity.video_id]), text, str(index))
        lines.append("\t".join(cells) + "\n")
    return "".join(lines)
