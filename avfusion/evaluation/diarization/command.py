"""``eval.py --scores=CSV --diarization``: who speaks when, as RTTM and JSON, and DER and JER against a reference.

The reference is RTTM, or AVA labels: then the exact stretches of SPEAKING_AUDIBLE are its turns, one speaker a track,
or a person where a map of identities is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from avfusion.errors import AvfusionError, UsageError
from avfusion.evaluation.bootstrap import enough_resamples, few_groups
from avfusion.evaluation.diarization.diarize import Speech, diarize, write_speech
from avfusion.evaluation.diarization.identities import read_identities, speakers_by_entity, speakers_by_map
from avfusion.evaluation.diarization.rates import COLLARS_S, error_rates, require_pyannote
from avfusion.evaluation.diarization.reference import (
    Reference,
    faces_of,
    reference_of_labels,
    reference_of_rttm,
    unshared_videos,
)
from avfusion.evaluation.diarization.report import SCORING, SEED, VideoRates, as_markdown, as_text, rate_figures
from avfusion.evaluation.diarization.rttm import refuse_same_names, rttm_file_name, rttm_files, rttm_name, write_rttm
from avfusion.evaluation.diarization.segments import Segmentation
from avfusion.evaluation.record import check_out, file_record, made_by
from avfusion.evaluation.table_files import read_label_files, read_score_files, table_record
from avfusion.files import whole_text_file
from avfusion.tracks import ScoreTable

MODE = "diarization"
RTTM, SEGMENTS, JSON, MARKDOWN = "rttm", "segments.json", "report.json", "report.md"


def evaluate_diarization(
    scores: Path,
    rules: Segmentation,
    rttm: Path | None = None,
    labels: Path | None = None,
    identities: Path | None = None,
    out: Path | None = None,
    resamples: int = 1000,
    command: Sequence[str] = (),
) -> None:
    """Segments the scores; writes what was found to ``out``, and prints how it compares with the reference.

    Args:
        scores: a score file, probabilities.
        rules: how scores become stretches of speech.
        rttm: reference turns, a file or a folder.
        labels: AVA labels as the reference instead.
        identities: CSV of video_id,entity_id,speaker, for scores and labels alike.
        out: gets ``rttm/VIDEO.rttm``, ``segments.json``, ``report.json`` and ``report.md``.
        resamples: bootstrap resamples of the videos; 0 leaves the intervals out.
        command: the command line, for the record.

    Raises:
        UsageError: neither a reference nor ``out``, two references, or an ``out`` that cannot be used.
        AvfusionError: a file is wrong, no video of the scores is in the reference, or pyannote.metrics is missing.
    """
    _check_usage(rttm, labels, out)
    if rttm or labels:
        require_pyannote()
    table = read_score_files(scores)
    if not len(table):
        raise AvfusionError(f"{scores}: no score rows, expected some: there is nothing to segment")
    found, reference = _found_and_reference(table, rules, rttm, labels, identities)
    resamples, notes = enough_resamples(resamples)
    report = {
        "mode": MODE,
        "files": _files(scores, rttm, labels, identities),
        "rules": asdict(rules),
        "num_rows": len(table),
        "num_tracks": len(faces_of(table)),
        "num_videos": len(found),
        "num_stretches": sum(map(len, found.values())),
        "notes": [],
    }
    if reference:
        report["notes"] = [*reference.notes, *unshared_videos(scores, list(found), reference), *notes]
        _add_rates(report, found, reference, resamples)
    report |= made_by(command)
    if out:
        _write(out, found, report)
    if reference:
        print(as_text(report), end="")


def _check_usage(rttm: Path | None, labels: Path | None, out: Path | None) -> None:
    if rttm and labels:
        raise UsageError("--rttm and --labels are two references; give one")
    if not (rttm or labels or out):
        raise UsageError(
            "--diarization has nothing to do: give --out=FOLDER for RTTM files, or a reference with --rttm or --labels"
        )
    check_out(out, (SEGMENTS, JSON, MARKDOWN))
    if out and rttm and (out / RTTM).resolve() in (rttm.resolve(), rttm.resolve().parent):
        raise UsageError(
            f"--rttm={rttm}: in {out / RTTM}, which --out={out} would write over; give another folder for --out"
        )


def _files(scores: Path, rttm: Path | None, labels: Path | None, identities: Path | None) -> dict[str, Any]:
    """The inputs with their hashes."""
    files = {"scores": table_record(scores)}
    if rttm:
        files["rttm"] = file_record(rttm, rttm_files(rttm) if rttm.is_dir() else None)
    if labels:
        files["labels"] = table_record(labels)
    if identities:
        files["identities"] = file_record(identities)
    return files


def _found_and_reference(
    table: ScoreTable, rules: Segmentation, rttm: Path | None, labels: Path | None, identities: Path | None
) -> tuple[dict[str, list[Speech]], Reference | None]:
    """Who speaks when by the scores, and by the reference where there is one."""
    faces = faces_of(table)
    people = read_identities(identities) if identities else None
    speakers = None if people is None else speakers_by_map(faces, people, str(identities))
    reference = None
    if rttm:
        reference = reference_of_rttm(rttm, sorted(set(table.video_id.tolist())))
    elif labels:
        label_table = read_label_files(labels)
        reference = reference_of_labels(labels, label_table, faces, people, str(identities))
        speakers = speakers or speakers_by_entity(faces, faces_of(label_table))
    return diarize(table, rules, speakers), reference


def _add_rates(
    report: dict[str, Any], found: Mapping[str, Sequence[Speech]], reference: Reference, resamples: int
) -> None:
    """Adds the rates of the videos that both sides have."""
    both = [video_id for video_id in found if video_id in reference.turns]
    rates: dict[str, VideoRates] = {}
    for video_id in tqdm(both, desc="DER and JER", disable=None):
        turns = [speech.turn for speech in found[video_id]]
        rates[video_id] = {collar_s: error_rates(reference.turns[video_id], turns, collar_s) for collar_s in COLLARS_S}
    report |= rate_figures(rates, resamples)
    report["scoring"] = SCORING
    report["intervals"] = {
        "kind": "percentile bootstrap",
        "level": 0.95,
        "drawn": "videos",
        "num_drawn": len(both),
        "resamples": resamples,
        "seed": SEED,
    }
    few = ("one video: no intervals" if len(both) == 1 else few_groups(len(both))) if resamples else ""
    report["notes"] += [few] if few else []


def _write(out: Path, found: Mapping[str, list[Speech]], report: dict[str, Any]) -> None:
    """RTTM of every video, all stretches as JSON, and the report. RTTM files of the run before are removed."""
    refuse_same_names(found)
    names = [f"{RTTM}/{rttm_file_name(video_id)}" for video_id in found]
    for name in set(_written_before(out)) - set(names):
        (out / name).unlink(missing_ok=True)
    for name, stretches in zip(names, found.values(), strict=True):
        write_rttm(out / name, [speech.turn for speech in stretches])
    write_speech(out / SEGMENTS, found)
    report["rttm"] = names
    content = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, text in ((MARKDOWN, as_markdown(report)), (JSON, content)):
        with whole_text_file(out / name) as file:
            file.write(text)
    print(f"{report['num_stretches']} stretches of speech in {len(found)} videos")
    print("\n".join(f"  {out / name}" for name in (RTTM, SEGMENTS, JSON, MARKDOWN)))
    spoken = {name for stretches in found.values() for s in stretches for name in (s.video_id, s.speaker)}
    if any(rttm_name(name) != name for name in spoken):
        print("names in RTTM hold no blanks: each is written as _")


def _written_before(out: Path) -> list[str]:
    """The RTTM files that a run before wrote to the folder, as its report lists them; others are not ours."""
    try:
        before = json.loads((out / JSON).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    listed = before.get("rttm") if isinstance(before, dict) and before.get("mode") == MODE else None
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return [name for name in names if re.fullmatch(RTTM + r"/[^/\\]+\.rttm", name)]
