"""``skipped.json`` in a run folder: the tracks that a run leaves out because they cannot be used.

A resumed run trains on the same ones, and whatever measures the run leaves out the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from avfusion.config import DataConfig
from avfusion.data.clips import Skipped
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file

SKIPPED = "skipped.json"


def keep_skipped(folder: Path, data: DataConfig, skipped: Mapping[str, Skipped]) -> None:
    """Writes ``skipped.json``: which tracks a run leaves out, so that a resumed run trains on the same ones."""
    splits = {
        split: {
            "total": left_out.total,
            "reasons": dict(left_out.reasons),
            "tracks": sorted(map(list, left_out.tracks)),
            "orphans": sorted(map(list, left_out.orphans)),
        }
        for split, left_out in skipped.items()
    }
    with whole_text_file(folder / SKIPPED) as file:
        file.write(json.dumps({"data": _source(data), "splits": splits}, indent=1) + "\n")


def read_skipped(folder: Path, data: DataConfig) -> dict[str, Skipped]:
    """Reads what :func:`keep_skipped` wrote; nothing where the run was on other data or left nothing out.

    Raises:
        AvfusionError: the file is damaged.
    """
    path = folder / SKIPPED
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["data"] != _source(data):
            return {}
        return {
            split: Skipped(
                tracks=frozenset((video_id, entity_id) for video_id, entity_id in left_out["tracks"]),
                total=left_out["total"],
                reasons=left_out["reasons"],
                orphans=frozenset((video_id, entity_id) for video_id, entity_id in left_out["orphans"]),
            )
            for split, left_out in content["splits"].items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise AvfusionError(f"{path} is damaged ({error!r}); remove it, and the dataset is checked again") from error


def _source(data: DataConfig) -> dict[str, str]:
    return {"format": data.format, "root": str(Path(data.root or "").resolve())}
