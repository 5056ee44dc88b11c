"""``segments.json``: who speaks from when to when, how long each face talks, and what there is to know of the film.

Its segments have the names that ``eval.py --diarization`` gives them: speaker, start_s, end_s, mean_score.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from avfusion.clock import VIDEO_HZ
from avfusion.faces.track_records import DETECTED
from avfusion.files import whole_text_file
from avfusion.inference.outputs.speech import Speech, SpeechRules
from avfusion.inference.result import Result

FORMAT_VERSION = 1


def write_segments(
    path: Path, result: Result, rules: SpeechRules, speech: Sequence[Speech], notes: Sequence[str] = ()
) -> None:
    """Writes the file, whole or not at all.

    Args:
        path: of the file.
        result: the film and its faces.
        rules: by which the stretches were found.
        speech: the stretches, in order of time.
        notes: what was met while the outputs were made, beside the result's own.

    Raises:
        ValueError: the result's facts hold NaN or infinity, which JSON cannot.
    """
    content = {
        "format_version": FORMAT_VERSION,
        "film": _film(result),
        "rules": asdict(rules),
        "notes": [*result.notes, *notes],
        "faces": [_face(result, index, speech) for index in range(len(result.faces))],
        "segments": [
            {
                "speaker": result.faces[one.face].track.entity_id,
                "start_s": one.start_s,
                "end_s": one.end_s,
                "mean_score": round(one.mean_score, 6),
            }
            for one in speech
        ],
        "facts": result.facts,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    with whole_text_file(path) as file:
        file.write(text + "\n")


def _film(result: Result) -> dict[str, Any]:
    return {
        "video_id": result.video_id,
        "source": result.source.name.encode("utf-8", "backslashreplace").decode(),  # a name may be no text
        "width": result.width,
        "height": result.height,
        "fps": VIDEO_HZ,
        "num_frames": result.num_frames,
        "duration_s": result.num_frames / VIDEO_HZ,
    }


def _face(result: Result, index: int, speech: Sequence[Speech]) -> dict[str, Any]:
    face = result.faces[index]
    own = [one for one in speech if one.face == index]
    track = face.track
    return {
        "speaker": track.entity_id,
        "shot": track.shot,
        "start_s": track.start_frame / VIDEO_HZ,
        "end_s": (track.start_frame + track.num_frames) / VIDEO_HZ,
        "talking_s": sum(one.end - one.first for one in own) / VIDEO_HZ,
        "num_segments": len(own),
        "mean_score": round(float(face.scores.mean(dtype=np.float64)), 6),
        "detected_share": round(float((track.seen == DETECTED).mean()), 4),
    }
