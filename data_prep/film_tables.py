"""The tables of a dataset made from films: the rows as annotated, what is still missing, and the end of the work.

<root>/films.json                 every film that the annotations name, as split/id
<root>/source_labels/S.all        the rows that count, as annotated, of all films; gone when all films are there
<root>/source_labels/S.csv        the same of the films that are in the tables
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from avfusion.data.annotations import Annotation, read_annotations, write_source_labels
from avfusion.data.prepared_writer import LeftOut, PreparedWriter
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file
from data_prep.film_plan import AnnotatedFilm


def keep_plan(root: Path, films: Sequence[AnnotatedFilm]) -> None:
    """Keeps what the end of the work needs of the annotations; equal in every shard. The tables stay as they are."""
    by_split: dict[str, list[Annotation]] = defaultdict(list)
    for film in films:
        by_split[film.split] += [a for a in film.annotations if _counts(a)]
    for split, entities in by_split.items():
        if entities:
            write_source_labels(root / "source_labels" / f"{split}.all", entities)
    with whole_text_file(root / "films.json") as file:
        file.write(json.dumps(sorted(film.scene_id for film in films), indent=0) + "\n")


def missing_films(writer: PreparedWriter) -> list[str]:
    """The films that the annotations name and no journal holds, as ``split/id``.

    Raises:
        AvfusionError: the list of films is not there.
    """
    path = writer.root / "films.json"
    if not path.is_file():
        raise AvfusionError(f"{path}: not there, expected the list of films; run extract, or one of its shards, again")
    return sorted(set(json.loads(path.read_text(encoding="utf-8"))) - writer.scenes.keys())


def finish_films(writer: PreparedWriter, noun: str, left_out: Mapping[str, LeftOut] | None = None) -> None:
    """Writes the tables and prints what the dataset holds.

    Args:
        writer: whose journals hold every film to be told.
        noun: what a film is called.
        left_out: for ``dataset.json``, what is not in the dataset and why, beside films that are missing.

    Raises:
        AvfusionError: there is no film at all.
    """
    if not writer.scenes:
        raise AvfusionError(f"{writer.root}: no {noun} was extracted, expected at least one: no tables are written")
    missing = missing_films(writer)
    left_out = dict(left_out or {})
    if missing:
        left_out[f"{noun}s that are absent or could not be used"] = LeftOut(missing, len(missing) + len(writer.scenes))
        print(f"left out {len(missing)} {noun}s: their rows are neither in labels/ nor in source_labels/")
    (writer.root / "dataset.json").unlink(missing_ok=True)  # from here on the folder is unfinished
    for path in sorted((writer.root / "source_labels").glob("*.all")):
        kept = [a for a in read_annotations(path) if f"{path.stem}/{a.video_id}" in writer.scenes]
        if kept:
            write_source_labels(path.with_suffix(".csv"), kept)
        else:
            path.with_suffix(".csv").unlink(missing_ok=True)
        if not missing:
            path.unlink()
    writer.finish(left_out)
    print(_table(writer, noun))
    print(f"wrote {len(writer.scenes)} {noun}s to {writer.root}; check them: python -m data_prep.verify {writer.root}")


def _counts(annotation: Annotation) -> bool:
    """Whether an entity has rows that are scored."""
    return annotation.speaking is not None and (annotation.scored is None or bool(annotation.scored.any()))


def _table(writer: PreparedWriter, noun: str) -> str:
    """Films, tracks, hours and share of speech per split."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for record in writer.scenes.values():
        counts[record.rows[0].split][0] += 1
        for row, speaking in zip(record.rows, record.speaking, strict=True):
            for index, value in enumerate((1, row.num_frames, int(speaking.sum())), start=1):
                counts[row.split][index] += value
    lines = [f"{'split':6} {noun + 's':>6} {'tracks':>8} {'frames':>9} {'hours':>7} {'speaking':>9}"]
    for split, (films, tracks, frames, positive) in sorted(counts.items()):
        hours = frames / 25 / 3600
        lines.append(f"{split:6} {films:6d} {tracks:8d} {frames:9d} {hours:7.2f} {positive / frames:9.1%}")
    return "\n".join(lines)
