"""Compares the tables, pictures and sounds of the TalkNet layout before training does, without decoding them.

Every row needs its picture (as many, in the same order, named by the row's time), every track a sound that reaches from
its first row to its last at the pace of the rows. Stamps tell time, never the number of pictures: a track whose sound
lasts longer or shorter than its rows was annotated at another rate than it claims, and nothing can be trained on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tqdm import tqdm

from avfusion.clock import SAMPLE_RATE
from avfusion.data.annotations import Annotation
from avfusion.data.talknet.dataset import SAMPLES_PER_MS, TalkNetDataset, key_of, timed_pictures
from avfusion.data.talknet.tables import LoaderRow, rate_of
from avfusion.data.verify.files import sound_header
from avfusion.data.verify.findings import Finding

STAMP_ERROR_MS = 11  # names and stamps have two digits; the wav is cut at the stamp
LONGER_MS = 200  # a wav may go on a little after the last row
RATE_ERROR = 0.1  # share; rates of the loader file are rough where a track has gaps
THREADS = 8  # looking into folders waits for the disk, often a network's
_OTHER_PICTURES = (".png", ".bmp", ".webp", ".tif", ".tiff")
PICTURES, SOUNDS, TABLES = "pictures", "sounds", "tables"

_ADVICE = {
    PICTURES: "make clips_videos again, or copy it whole",
    SOUNDS: "make clips_audios again, or copy it whole",
    TABLES: "make the loader file again: move it away, then python -m data_prep.talknet loader ROOT",
}

Fault = tuple[str, str, str]  # which part is wrong, what is wrong, the case


def check_talknet(dataset: TalkNetDataset) -> list[Finding]:
    """Looks at every track of a dataset: names of pictures and headers of sounds.

    Returns:
        One finding per kind of fault, with every case and the tracks it makes unusable, then notes.
    """
    faults: dict[tuple[str, str], list[tuple[str, Annotation]]] = defaultdict(list)
    entities = dataset.entities
    with ThreadPoolExecutor(THREADS) as pool:
        looked = pool.map(lambda entity: _look(dataset, entity), entities)
        progress = tqdm(looked, total=len(entities), desc=f"check {dataset.split}", unit="track", disable=None)
        first_of: dict[Path, Annotation] = {}
        for entity, (paths, found) in zip(entities, progress, strict=True):
            for part, what, case in [*found, *_shared(dataset, entity, paths, first_of)]:
                faults[part, what].append((case, entity))
    unknown = []
    paired: set[tuple[str, str]] = set()
    for row, member in _loader_pairs(dataset):
        if member is not None and key_of(member) in paired:
            faults[TABLES, "have two lines in the loader file"].append((f"{row.entity_id} (line {row.line})", member))
            continue
        if member is not None:
            paired.add(key_of(member))
        if member is None:
            unknown.append(f"{row.entity_id} (line {row.line})")
            continue
        for what, case in _loader_faults(row, member):
            faults[TABLES, what].append((case, member))
    findings = [
        Finding(
            what=f"tracks {what}",
            cases=[case for case, _ in cases],
            total=len(entities),
            advice=_ADVICE[part],
            tracks=frozenset((dataset.split, *key_of(entity)) for _, entity in cases),
        )
        for (part, what), cases in sorted(faults.items())
    ]
    if unknown and dataset.loader is not None:
        what = f"lines of {dataset.split}_loader.csv name a track that {dataset.split}_orig.csv has not"
        findings.append(Finding(what, unknown, len(dataset.loader), _ADVICE[TABLES]))
    return [*findings, *_notes(dataset)]


def _look(dataset: TalkNetDataset, entity: Annotation) -> tuple[dict[str, Path], list[Fault]]:
    """Where a track's pictures and sound are, and what is wrong with them."""
    paths = {PICTURES: dataset.picture_folder(entity), SOUNDS: dataset.sound_path(entity)}
    folder, sound = (path.relative_to(dataset.root).as_posix() for path in paths.values())
    faults = [*_picture_faults(paths[PICTURES], folder, entity), *_sound_faults(paths[SOUNDS], sound, entity)]
    return paths, faults


def _picture_faults(folder: Path, name: str, entity: Annotation) -> Iterator[Fault]:
    rows = len(entity.timestamp_ms)
    times_s = np.array([time_s for time_s, _ in timed_pictures(folder)])
    others = _other_pictures(folder) if len(times_s) < rows else []
    if others:
        yield PICTURES, "have pictures that are no JPEG", f"{name} ({len(others)} such as {others[0]}, expected .jpg)"
    elif len(times_s) == 0:
        state = "empty" if folder.is_dir() else "missing"
        yield PICTURES, "have no pictures", f"{name} ({state}, {rows} rows)"
    elif np.isnan(times_s).any():
        count = int(np.isnan(times_s).sum())
        yield PICTURES, "have pictures whose name is no time in seconds", f"{name} ({count} of {len(times_s)})"
    elif len(times_s) < rows:
        yield PICTURES, "have fewer pictures than rows", f"{name} ({len(times_s)} pictures, {rows} rows)"
    elif len(times_s) > rows:
        yield PICTURES, "have more pictures than rows", f"{name} ({len(times_s)} pictures, {rows} rows)"
    else:
        error_ms = np.abs(1000 * times_s - entity.timestamp_ms)
        if error_ms.max() > STAMP_ERROR_MS:
            index = int((error_ms > STAMP_ERROR_MS).argmax())
            found = f"picture {times_s[index]:.2f}, row {entity.timestamp_ms[index] / 1000:.2f} s"
            yield PICTURES, "have pictures of other times than their rows", f"{name} ({found})"


def _other_pictures(folder: Path) -> list[str]:
    files = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.name for path in files if path.suffix.lower() in _OTHER_PICTURES and path.name[0] != ".")


def _sound_faults(path: Path, name: str, entity: Annotation) -> Iterator[Fault]:
    header = sound_header(path)
    span_ms = int(entity.timestamp_ms[-1] - entity.timestamp_ms[0])
    lasts_ms = header.num_samples_16k / SAMPLES_PER_MS
    lengths = f"{name} ({lasts_ms / 1000:.2f} s of sound, {span_ms / 1000:.2f} s from first row to last)"
    if header.state == "missing":
        yield SOUNDS, "have no sound file", name
    elif header.state:
        yield SOUNDS, "have a sound file that is cut short or damaged", f"{name} ({header.reason})"
    elif header.num_samples == 0:
        yield SOUNDS, "have an empty sound file (as one-row tracks do)", f"{name} ({len(entity.timestamp_ms)} rows)"
    elif lasts_ms < span_ms - STAMP_ERROR_MS:
        yield SOUNDS, "have less sound than rows", lengths
    elif lasts_ms > span_ms + LONGER_MS:
        yield SOUNDS, "have more sound than rows", lengths


def _shared(
    dataset: TalkNetDataset, entity: Annotation, paths: dict[str, Path], first_of: dict[Path, Annotation]
) -> Iterator[Fault]:
    """Tracks whose ids differ and whose pictures or sound are the same, as ``a:1`` and ``a_1`` may be on some disks."""
    for part, path in paths.items():
        first = first_of.setdefault(path, entity)
        if first is not entity:
            case = f"{path.relative_to(dataset.root).as_posix()} ({first.entity_id} and {entity.entity_id})"
            yield part, f"share their {part} with another track", case


def _loader_pairs(dataset: TalkNetDataset) -> Iterator[tuple[LoaderRow, Annotation | None]]:
    """Each line of the loader file with its track; ids that films share are taken in the order of the films."""
    of_id: dict[str, list[Annotation]] = defaultdict(list)
    for entity in dataset.entities:
        of_id[entity.entity_id].append(entity)
    for row in dataset.loader or []:
        members = of_id[row.entity_id]
        yield row, (members.pop(0) if len(members) > 1 else members[0] if members else None)


def _loader_faults(row: LoaderRow, entity: Annotation) -> Iterator[tuple[str, str]]:
    rows, where = len(entity.timestamp_ms), f"{row.entity_id} (line {row.line}: "
    if row.num_frames != rows or len(row.speaking) != rows:
        found = f"{row.num_frames} frames, {len(row.speaking)} labels, {rows} rows)"
        yield "have another number of frames in the loader file than rows", where + found
    elif entity.speaking is not None and (row.speaking != entity.speaking).any():
        found = f"{int((row.speaking != entity.speaking).sum())} of {rows})"
        yield "have other labels in the loader file than in their rows", where + found
    if rows > 1:
        span_s = float(entity.timestamp_ms[-1] - entity.timestamp_ms[0]) / 1000
        rates_hz = (rate_of([entity]) or row.rate_hz, (rows - 1) / span_s)
        if all(abs(row.rate_hz / rate_hz - 1) > RATE_ERROR + 0.02 / span_s for rate_hz in rates_hz):
            found = f"{row.rate_hz:g} fps, rows stand at {rates_hz[0]:.2f})"
            yield "have another rate in the loader file than their rows", where + found


def _notes(dataset: TalkNetDataset) -> Iterator[Finding]:
    if dataset.not_in_loader:
        what = f"tracks of {dataset.split}_orig.csv are not in {dataset.split}_loader.csv and are left out"
        advice = "nothing, if that file is meant to choose the tracks"
        total = len(dataset.entities) + len(dataset.not_in_loader)
        yield Finding(what, dataset.not_in_loader, total, advice, is_note=True)
    if all(track.speaking.all() for track in dataset.tracks):
        what = "tracks speak in every frame: AVA's test rows look so, whose labels are not public"
        advice = "an AP over these labels means nothing"
        names = [track.entity_id for track in dataset.tracks]
        yield Finding(what, names, len(dataset.tracks), advice, is_note=True)
    other_rate = [
        f"{path.relative_to(dataset.root).as_posix()} ({header.sample_rate} Hz)"
        for path in (dataset.sound_path(entity) for entity in dataset.entities[:1])
        if (header := sound_header(path)).sample_rate not in (0, SAMPLE_RATE)
    ]
    if other_rate:
        what, advice = "sounds are not at 16 kHz", "nothing: they are resampled at every read, which takes time"
        yield Finding(what, other_rate, 1, advice, is_note=True)
