"""Every condition scored and figured, in a row that may be broken off: what is finished is kept and not done again.

Finished conditions lie in ``partial.json`` beside the results to come, together with what they are the figures of: the
checkpoint's hash, the tracks with their labels, the settings. If any of that is another one, all is done anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from avfusion.config import Config
from avfusion.data.clips import ClipDataset
from avfusion.data.examples import Examples
from avfusion.errors import one_line
from avfusion.files import whole_text_file
from avfusion.models import ActiveSpeakerDetector
from avfusion.offsets import in_sync
from avfusion.robustness.clips import ChangedClips
from avfusion.robustness.conditions import CLEAN, MOVED, SHIFTED, SILENCE, Condition
from avfusion.robustness.false_accepts import FalseAccepts
from avfusion.robustness.precision import PairedPrecision, Scores
from avfusion.robustness.sounds import Shifted
from avfusion.scoring import score_tracks
from avfusion.tracks import FaceTrack

Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """What the suite found.

    Attributes:
        counts: of tracks and frames.
        clean: AP with nothing changed.
        rows: AP under each condition.
        threshold: of the false accepts.
        false_accepts: rates, of the shifts from the most negative on, then of another sound and of none.
    """

    counts: Row
    clean: Row
    rows: list[Row]
    threshold: float
    false_accepts: list[Row]


def run_suite(
    model: ActiveSpeakerDetector,
    clips: ClipDataset,
    conditions: Sequence[Condition],
    config: Config,
    device: torch.device,
    partial: Path,
    identity: dict[str, Any],
) -> Results:
    """Scores a split under every condition.

    Args:
        model: on the device.
        clips: its labelled tracks; some of them are in sync and speak.
        conditions: the first is the clean one.
        config: of the model.
        device: where to run.
        partial: where to keep finished conditions.
        identity: what the figures depend on.
    """
    tracks = clips.tracks
    everything, sync = range(len(tracks)), [index for index, track in enumerate(tracks) if in_sync(track)]

    def scores_of(condition: Condition) -> Scores:
        chosen = sync if condition.family in MOVED and condition.family != SILENCE else everything
        examples = Examples(ChangedClips(clips, condition.change, chosen), replace(config.data, cache_gb=0.0))
        return score_tracks(model, examples, config, device, label=condition.name)

    done, why_not = read_partial(partial, identity)
    if why_not:
        print(f"note: {one_line(why_not)}", file=sys.stderr)
    bar = tqdm(conditions, desc="conditions", initial=len(done), total=len(conditions), disable=None)
    with bar:
        clean = scores_of(conditions[0])
        precision = PairedPrecision(tracks, clean, config.report.bootstrap)
        accepts = FalseAccepts([tracks[i] for i in sync], [clean[i] for i in sync], config.report.bootstrap)
        for condition in conditions:
            if condition.name in done:
                continue
            scores = clean if condition.family == CLEAN else scores_of(condition)
            done[condition.name] = figures(condition, scores, sync, precision, accepts, tracks)
            write_partial(partial, identity, done)
            bar.update()
    counts = {
        "tracks": len(tracks),
        "frames": sum(track.num_frames for track in tracks),
        "speaking_frames": sum(int(track.speaking.sum()) for track in tracks),
        "prevalence": precision.prevalence,
        "groups": precision.num_groups,
        "in_sync_tracks": len(sync),
        "in_sync_groups": accepts.num_groups,
        "in_sync_speaking_frames": accepts.num_frames,
    }
    found = [done[condition.name] for condition in conditions]
    return Results(
        counts,
        precision.clean(),
        [one["precision"] for one in found if one["precision"]],
        accepts.threshold,
        [one["false_accepts"] for one in found if one["false_accepts"]],
    )


def figures(
    condition: Condition,
    scores: Scores,
    sync: Sequence[int],
    precision: PairedPrecision,
    accepts: FalseAccepts,
    tracks: Sequence[FaceTrack],
) -> Row:
    """The figures of one condition: AP where labels stay true, false accepts where the face is not the one heard."""
    head = {"condition": condition.name, "family": condition.family, "severity": condition.severity}
    row: Row = {"precision": None, "false_accepts": None}
    if condition.family not in (CLEAN, SHIFTED) and (condition.family == SILENCE or condition.family not in MOVED):
        row["precision"] = head | precision.row(scores)
    if condition.family in MOVED:
        counting = None
        if isinstance(condition.change, Shifted):
            counting = [condition.change.counts(tracks[index].num_frames) for index in sync]
        of_sync = [scores[index] for index in sync] if condition.family == SILENCE else scores
        row["false_accepts"] = head | accepts.row(of_sync, counting)
    return row


def fingerprint(tracks: Sequence[FaceTrack]) -> str:
    """Tells whether tracks and their labels are the same."""
    digest = hashlib.sha256()
    for track in tracks:
        digest.update(json.dumps([track.video_id, track.entity_id, track.group, track.role]).encode())
        digest.update(track.speaking.tobytes())
    return digest.hexdigest()


def read_partial(path: Path, identity: dict[str, Any]) -> tuple[dict[str, Row], str]:
    """Finished conditions of a suite that was broken off; none where they are of anything else, or damaged.

    Returns:
        Name to figures, and why what lies there is not used; empty where it is, or where nothing lies there.
    """
    if not path.is_file():
        return {}, ""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        done, of = dict(content["done"]), dict(content["of"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}, f"{path} is damaged: all is measured anew"
    other = [key for key in (identity | of) if of.get(key) != identity.get(key)]
    if other:
        return {}, f"{path}: {len(done)} finished conditions are of another {', '.join(other)}: all is measured anew"
    return done, ""


def write_partial(path: Path, identity: Mapping[str, Any], done: Mapping[str, Row]) -> None:
    """Keeps finished conditions."""
    with whole_text_file(path) as file:
        file.write(json.dumps({"of": identity, "done": done}, allow_nan=False) + "\n")
