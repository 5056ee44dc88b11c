"""Whose face a track shows: a CSV of ``video_id,entity_id,speaker``, one line a track. Ids and names are text.

Several tracks may be one speaker, within a video and across them. Where an entity of a corpus had a gap, its prepared
tracks are ``ID``, ``ID#2``, ``ID#3`` ...; the later ones are whoever ``ID`` is, unless they have an entry of their own.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterable, Mapping

from avfusion.errors import AvfusionError
from avfusion.evaluation.groups import FaceKey

COLUMNS = ["video_id", "entity_id", "speaker"]


def read_identities(path: str | os.PathLike[str]) -> dict[FaceKey, str]:
    """Reads (video_id, entity_id) to speaker. The header line may be missing.

    Raises:
        AvfusionError: the file cannot be read, a line is wrong, or gives a track another speaker than a line before.
    """
    speakers: dict[FaceKey, str] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for row in reader:
                if not any(row) or (not speakers and [cell.strip().lower() for cell in row] == COLUMNS):
                    continue
                if len(row) != 3 or not all(cell.strip() for cell in row) or set(row) == set(COLUMNS):
                    raise AvfusionError(
                        f"{path} line {reader.line_num}: found {','.join(row)!r}, expected {','.join(COLUMNS)}"
                    )
                face, speaker = (row[0], row[1]), row[2]
                if speakers.setdefault(face, speaker) != speaker:
                    raise AvfusionError(
                        f"{path} line {reader.line_num}: {face[1]!r} of {face[0]!r} is {speaker!r}, and was"
                        f" {speakers[face]!r} before, expected one speaker a track"
                    )
    except OSError as error:
        raise AvfusionError(f"{path}: cannot be read ({error.strerror}), expected a CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise AvfusionError(f"{path}: not readable as CSV ({error})") from error
    if not speakers:
        raise AvfusionError(f"{path}: no line of {','.join(COLUMNS)}, expected one for each track")
    return speakers


def entry_of(face: FaceKey, known: Collection[FaceKey]) -> FaceKey | None:
    """The entry that stands for a track: its own, or that of the entity it is a later piece of (``ID#2``); or None."""
    if face in known:
        return face
    whole = (face[0], re.sub(r"#\d+$", "", face[1]))
    return whole if whole in known else None


def speakers_by_map(faces: Iterable[FaceKey], speakers: Mapping[FaceKey, str], path: str) -> dict[FaceKey, str]:
    """The speaker of every track, from the map.

    Raises:
        AvfusionError: a track is not in the map.
    """
    faces = list(faces)
    entries = {face: entry_of(face, speakers) for face in faces}
    absent = [face for face, entry in entries.items() if entry is None]
    if absent:
        video_id, entity_id = absent[0]
        raise AvfusionError(
            f"{path}: no speaker for {len(absent)} of {len(entries)} tracks, first {entity_id!r} of {video_id!r};"
            f" expected a line {video_id},{entity_id},SPEAKER"
        )
    return {face: speakers[entry] for face, entry in entries.items() if entry is not None}


def speakers_by_entity(faces: Iterable[FaceKey], entities: Iterable[FaceKey]) -> dict[FaceKey, str]:
    """Every track its own speaker, except that a later piece is the labelled entity it belongs to."""
    known = set(entities)
    return {face: (entry_of(face, known) or face)[1] for face in faces}
