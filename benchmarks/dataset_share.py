"""A part of a prepared dataset as a dataset of its own: tables of some scenes beside links to all the files.

Scenes are kept or left out whole, of every role the same share, spread evenly over the dataset's order. What is kept
depends on the tables and the shares alone.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from avfusion.data.prepared_tables import TrackRow, read_info, read_track_rows
from avfusion.files import whole_text_file

LINKED = ("crops", "audio", "truth")
TABLES = ("labels", "boxes")


def write_share(root: Path, out: Path, shares: Mapping[str, float]) -> Path:
    """Writes a share of some splits of ``root`` to ``out``; what is there already stays.

    Args:
        root: a prepared dataset.
        out: folder to make.
        shares: by split, 0..1; other splits are left out.

    Returns:
        ``out``.
    """
    if (out / "dataset.json").is_file():
        return out
    info, rows = read_info(root), read_track_rows(root)
    kept = {split: kept_scenes([row for row in rows if row.split == split], share) for split, share in shares.items()}
    of_shares = [row for row in rows if row.video_id in kept.get(row.split, ())]
    out.mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        if (root / name).is_dir() and not (out / name).is_symlink():
            (out / name).symlink_to((root / name).resolve(), target_is_directory=True)
    _copy_rows(root / "tracks.csv", out / "tracks.csv", kept)
    for folder in TABLES:
        for split, scenes in kept.items():
            if (root / folder / f"{split}.csv").is_file():
                (out / folder).mkdir(exist_ok=True)
                _copy_labels(root / folder / f"{split}.csv", out / folder / f"{split}.csv", scenes)
    counts = {split: {"tracks": 0, "frames": 0} for split in shares}
    for row in of_shares:
        counts[row.split]["tracks"] += 1
        counts[row.split]["frames"] += row.num_frames
    with whole_text_file(out / "dataset.json") as file:
        file.write(json.dumps({**info, "counts": counts, "shares": dict(shares)}, indent=2) + "\n")
    return out


def kept_scenes(rows: list[TrackRow], share: float) -> set[str]:
    """The scenes (videos) that a share of them keeps; one of every role at least."""
    by_role: dict[str, list[str]] = defaultdict(list)
    role_of: dict[str, str] = {}
    for row in rows:
        role_of.setdefault(row.video_id, row.role)
    for video_id, role in role_of.items():
        by_role[role].append(video_id)
    kept: set[str] = set()
    for scenes in by_role.values():
        count = max(1, round(share * len(scenes)))
        kept.update(scenes[place * len(scenes) // count] for place in range(count))
    return kept


def speaking_tracks(root: Path, split: str) -> set[tuple[str, str]]:
    """(video_id, entity_id) of the tracks in which somebody speaks."""
    with (root / "labels" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
        return {(cells[0], cells[7]) for cells in csv.reader(file) if cells[6] == "SPEAKING_AUDIBLE"}


def _copy_rows(source: Path, target: Path, kept: Mapping[str, set[str]]) -> None:
    with source.open(encoding="utf-8-sig", newline="") as file, whole_text_file(target) as copy:
        reader = csv.DictReader(file)
        writer = csv.DictWriter(copy, reader.fieldnames or [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(cells for cells in reader if cells["video_id"] in kept.get(cells["split"], ()))


def _copy_labels(source: Path, target: Path, scenes: set[str]) -> None:
    with source.open(encoding="utf-8", newline="") as file, whole_text_file(target) as copy:
        csv.writer(copy, lineterminator="\n").writerows(cells for cells in csv.reader(file) if cells[0] in scenes)
