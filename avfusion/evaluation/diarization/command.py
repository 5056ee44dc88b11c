"""``eval.py --scores=CSV --diarization``: who speaks when, as RTTM and JSON, and DER and JER against a reference.

The reference is RTTM, or AVA labels: then the exact stretches of SPEAKING_AUDIBLE are its turns, one speaker a track,
or a person where a map of identities is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from avfusion.errors import AvfusionError, UsageError, one_line
from avfusion.evaluation.comparison_text import markdown_table
from avfusion.evaluation.diarization.diarize import Speech, diarize, write_speech
from avfusion.evaluation.diarization.identities import read_identities, speakers_by_entity, speakers_by_map
from avfusion.evaluation.diarization.rates import COLLARS_S, Rates, add_rates, error_rates, require_pyannote
from avfusion.evaluation.diarization.reference import (
    Reference,
    faces_of,
    reference_of_labels,
    reference_of_rttm,
    unshared_videos,
)
from avfusion.evaluation.diarization.rttm import refuse_same_names, rttm_file_name, rttm_name, write_rttm
from avfusion.evaluation.diarization.segments import Segmentation
from avfusion.files import whole_text_file
from avfusion.tracks import read_labels, read_scores

HEADER = ("video", "collar s", "DER %", "missed s", "false alarm s", "confusion s", "speech s", "JER %", "speakers")
SCORING = "collar: so much on either side of every reference boundary is not scored; overlapping speech is"

VideoRates = Mapping[float, Rates]  # by collar


def evaluate_diarization(
    scores: Path,
    rules: Segmentation,
    rttm: Path | None = None,
    labels: Path | None = None,
    identities: Path | None = None,
    out: Path | None = None,
) -> None:
    """Segments the scores; writes what was found to ``out``, and prints how it compares with the reference.

    Args:
        scores: a score file, probabilities.
        rules: how scores become stretches of speech.
        rttm: reference turns, a file or a folder.
        labels: AVA labels as the reference instead.
        identities: CSV of video_id,entity_id,speaker, for scores and labels alike.
        out: gets ``rttm/VIDEO.rttm``, ``segments.json`` and, with a reference, ``diarization.json``.

    Raises:
        UsageError: neither a reference nor ``out``, or two references.
        AvfusionError: a file is wrong, no video of the scores is in the reference, or pyannote.metrics is missing.
    """
    if rttm and labels:
        raise UsageError("--rttm and --labels are two references; give one")
    if not (rttm or labels or out):
        raise UsageError(
            "--diarization has nothing to do: give --out=FOLDER for RTTM files, or a reference with --rttm or --labels"
        )
    if rttm or labels:
        require_pyannote()
    found, reference = _found_and_reference(scores, rules, rttm, labels, identities)
    notes = [*reference.notes, *unshared_videos(scores, list(found), reference)] if reference else []
    if out:
        _write_speech(out, found)
    if reference:
        rates = _rates(found, reference)
        total = {collar_s: add_rates(of_video[collar_s] for of_video in rates.values()) for collar_s in COLLARS_S}
        _print_report(rates, total, notes)
        if out:
            inputs = {"scores": str(scores), "reference": str(reference.path), "rules": asdict(rules), "notes": notes}
            _write_report(out / "diarization.json", rates, total, inputs)


def _found_and_reference(
    scores: Path, rules: Segmentation, rttm: Path | None, labels: Path | None, identities: Path | None
) -> tuple[dict[str, list[Speech]], Reference | None]:
    """Who speaks when by the scores, and by the reference where there is one."""
    table = read_scores(scores)
    if not len(table):
        raise AvfusionError(f"{scores}: no score rows, expected some: there is nothing to segment")
    faces = faces_of(table)
    people = read_identities(identities) if identities else None
    speakers = None if people is None else speakers_by_map(faces, people, str(identities))
    reference = None
    if rttm:
        reference = reference_of_rttm(rttm, sorted(set(table.video_id.tolist())))
    elif labels:
        label_table = read_labels(labels)
        reference = reference_of_labels(labels, label_table, faces, people, str(identities))
        speakers = speakers or speakers_by_entity(faces, faces_of(label_table))
    return diarize(table, rules, speakers), reference


def _rates(found: Mapping[str, Sequence[Speech]], reference: Reference) -> dict[str, VideoRates]:
    """The rates of the videos that both sides have."""
    both = [video_id for video_id in found if video_id in reference.turns]
    rates: dict[str, VideoRates] = {}
    for video_id in tqdm(both, desc="DER and JER", disable=None):
        turns = [speech.turn for speech in found[video_id]]
        rates[video_id] = {collar_s: error_rates(reference.turns[video_id], turns, collar_s) for collar_s in COLLARS_S}
    return rates


def _write_speech(out: Path, found: Mapping[str, list[Speech]]) -> None:
    """RTTM of every video, and all stretches as JSON."""
    refuse_same_names(found)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out={out}: cannot be made ({error.strerror}); give another folder") from error
    everything = [speech for stretches in found.values() for speech in stretches]
    for video_id, stretches in found.items():
        write_rttm(out / "rttm" / rttm_file_name(video_id), [speech.turn for speech in stretches])
    write_speech(out / "segments.json", found)
    print(f"{len(everything)} stretches of speech in {len(found)} videos: {out / 'rttm'}, {out / 'segments.json'}")
    names = {name for speech in everything for name in (speech.video_id, speech.speaker)}
    if any(rttm_name(name) != name for name in names):
        print("names in RTTM hold no blanks: each is written as _")


def _print_report(rates: Mapping[str, VideoRates], total: VideoRates, notes: Sequence[str]) -> None:
    named = {one_line(video_id): found for video_id, found in rates.items()} | {f"all {len(rates)} videos": total}
    rows = [_cells(name, collar_s, found[collar_s]) for name, found in named.items() for collar_s in COLLARS_S]
    print(markdown_table(HEADER, rows))
    for note in (SCORING, *notes):
        print(one_line(note))


def _cells(name: str, collar_s: float, rates: Rates) -> list[str]:
    der, jer = ("-" if share is None else f"{100 * share:.2f}" for share in (rates.der, rates.jer))
    seconds = (rates.missed_s, rates.false_alarm_s, rates.confusion_s, rates.speech_s)
    return [name, f"{collar_s:g}", der, *(f"{value:.2f}" for value in seconds), jer, str(rates.num_speakers)]


def _write_report(path: Path, rates: Mapping[str, VideoRates], total: VideoRates, inputs: Mapping[str, Any]) -> None:
    content = {
        **inputs,
        "all": _listed(total),
        "videos": {video_id: _listed(found) for video_id, found in rates.items()},
    }
    with whole_text_file(path) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    print(path)


def _listed(rates: VideoRates) -> list[dict[str, float | None]]:
    return [{"collar_s": collar_s, **found.to_dict()} for collar_s, found in rates.items()]
