"""The tables of a dataset made from films: the rows as annotated, what is still missing, and the end of the work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from avfusion.data.annotations import Annotation, read_annotations, write_source_labels
from avfusion.data.prepared_writer import LeftOut, PreparedWriter
from avfusion.errors import AvfusionError
from data_prep.film_plan import Film


def keep_source_labels(root: Path, films: Sequence[Film]) -> None:
    """Writes ``source_labels/<split>.csv``: the rows that count, at their own stamps; equal in every shard."""
    by_split: dict[str, list[Annotation]] = defaultdict(list)
    for film in films:
        by_split[film.split] += film.annotations
    for split, entities in by_split.items():
        write_source_labels(source_labels(root, split), entities)


def source_labels(root: Path, split: str) -> Path:
    """Where the rows of a split are kept as they were annotated."""
    return root / "source_labels" / f"{split}.csv"


def missing_films(writer: PreparedWriter) -> list[str]:
    """The films that the kept annotations name and no journal holds, as ``split/id``."""
    needed = set()
    for path in sorted((writer.root / "source_labels").glob("*.csv")):
        needed |= {f"{path.stem}/{annotation.video_id}" for annotation in read_annotations(path)}
    return sorted(needed - writer.scenes.keys())


def finish_films(writer: PreparedWriter, films_left_out: int, left_out: Mapping[str, LeftOut] | None = None) -> None:
    """Writes the tables and prints what the dataset holds.

    Args:
        writer: whose journals hold every film to be told.
        films_left_out: how many films the annotations name beside them.
        left_out: for ``dataset.json``, what is not in the dataset and why.

    Raises:
        AvfusionError: there is no film at all.
    """
    if not writer.scenes:
        raise AvfusionError(f"{writer.root}: no film was extracted, expected at least one: no tables are written")
    if films_left_out:
        _leave_out(writer)
        print(f"left out {films_left_out} films: their rows are neither in labels/ nor in source_labels/")
    for part in writer.root.rglob("*.part"):  # what killed runs left behind
        part.unlink(missing_ok=True)
    writer.finish(left_out)
    print(_table(writer))
    print(f"wrote {len(writer.scenes)} films to {writer.root}; check them: python -m data_prep.verify {writer.root}")


def _leave_out(writer: PreparedWriter) -> None:
    """Keeps of the source labels the rows of the films that are there."""
    for path in sorted((writer.root / "source_labels").glob("*.csv")):
        kept = [a for a in read_annotations(path) if f"{path.stem}/{a.video_id}" in writer.scenes]
        if kept:
            write_source_labels(path, kept)
        else:
            path.unlink()


def _table(writer: PreparedWriter) -> str:
    """Films, tracks, hours and share of speech per split."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for record in writer.scenes.values():
        counts[record.rows[0].split][0] += 1
        for row, speaking in zip(record.rows, record.speaking, strict=True):
            for index, value in enumerate((1, row.num_frames, int(speaking.sum())), start=1):
                counts[row.split][index] += value
    lines = [f"{'split':6} {'films':>6} {'tracks':>8} {'frames':>9} {'hours':>7} {'speaking':>9}"]
    for split, (films, tracks, frames, positive) in sorted(counts.items()):
        hours = frames / 25 / 3600
        lines.append(f"{split:6} {films:6d} {tracks:8d} {frames:9d} {hours:7.2f} {positive / frames:9.1%}")
    return "\n".join(lines)
