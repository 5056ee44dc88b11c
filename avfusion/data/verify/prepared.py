"""Checks a prepared dataset before it is trained on: tables, files, and what the files hold.

The whole check decodes everything. The fast one, run before every training, reads tables, headers and the end of each
sound, and looks into a few files; it takes seconds for ten thousand tracks. Nothing is written, so it may be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from avfusion.data.prepared_tables import JoinedSplit, TrackRow, read_info, read_split, read_track_rows
from avfusion.data.verify.content import look_into_all, look_into_some
from avfusion.data.verify.content_findings import crop_findings, same_content, sound_findings, speech_levels_db
from avfusion.data.verify.findings import Finding
from avfusion.data.verify.headers import crop_header_findings, read_headers, sound_header_findings
from avfusion.data.verify.result import Verification, summarize
from avfusion.data.verify.source_rows import source_row_findings
from avfusion.data.verify.tables import (
    box_findings,
    count_findings,
    label_findings,
    leak_findings,
    left_out_findings,
    silent_splits,
    unlisted_files,
)
from avfusion.data.verify.uses import AGAIN, uses_of
from avfusion.errors import AvfusionError, UsageError


def verify(
    root: str | Path,
    splits: Sequence[str] | None = None,
    *,
    fast: bool = False,
    jobs: int | None = None,
    unlisted: bool = True,
    bar: bool = True,
    seed: int = 0,
) -> Verification:
    """Checks splits of a prepared dataset.

    Args:
        root: the folder that holds ``dataset.json``.
        splits: which; None for all that ``tracks.csv`` names.
        fast: look into a few files only.
        jobs: processes that decode; None for what the machine and the work suggest.
        unlisted: also tell files that no row names, and what the preparation left out.
        bar: show progress.
        seed: of the draw of the files that the fast check looks into.

    Raises:
        UsageError: there is no such dataset or split.
        AvfusionError: ``dataset.json`` or ``tracks.csv`` cannot be read.
    """
    root = Path(root)
    info, rows = read_info(root), read_track_rows(root)
    joined, findings = _read_splits(root, rows, splits)
    uses = uses_of(joined)
    findings += label_findings(joined) + box_findings(uses) + leak_findings(uses) + silent_splits(uses)
    findings += source_row_findings(root, joined)
    findings += count_findings(joined, info) + (left_out_findings(info) if unlisted else [])
    headers = read_headers(root, uses, bar)
    findings += sound_header_findings(headers) + crop_header_findings(headers, _crop_size(info))
    if fast:
        sound, crops = look_into_some(root, headers, seed)
    else:
        sound, crops = look_into_all(root, headers, jobs, bar)
        findings += same_content(headers, sound, crops)
    findings += sound_findings(headers, sound) + crop_findings(headers, crops)
    if unlisted:
        findings += unlisted_files(root, rows)
    levels = speech_levels_db(headers, sound)
    listed = {split: frozenset(row.key for row in tables.rows) for split, tables in joined.items()}
    without_labels = [use.key for use in uses if not use.row.labelled]
    return Verification(findings, summarize(uses, levels), listed, without_labels, joined)


def _read_splits(
    root: Path, rows: Sequence[TrackRow], splits: Sequence[str] | None
) -> tuple[dict[str, JoinedSplit], list[Finding]]:
    """The tables of each split; one whose labels cannot be read is a finding."""
    names = list(dict.fromkeys(row.split for row in rows)) if splits is None else list(dict.fromkeys(splits))
    if not names:
        raise AvfusionError(f"{root / 'tracks.csv'} lists no track; {AGAIN}")
    joined, unreadable = {}, []
    for name in names:
        try:
            joined[name] = read_split(root, name, rows)
        except UsageError:
            raise
        except AvfusionError as error:
            unreadable.append(str(error))
    what = "label files cannot be read"
    return joined, [Finding(what, unreadable, len(names), AGAIN)] if unreadable else []


def _crop_size(info: Mapping[str, Any]) -> int | None:
    size = info.get("crop_size")
    return size if isinstance(size, int) else None
