"""``speakers.rttm``: who speaks when, as programs for diarization read it. One speaker for each face track.

``SPEAKER video 1 start_s duration_s <NA> <NA> speaker <NA> <NA>``; fields are separated by blanks, so that a blank in a
name is written as ``_``. Source: NIST, Rich Transcription evaluation plan RT-09, appendix A.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from avfusion.files import whole_text_file
from avfusion.inference.outputs.speech import Speech
from avfusion.inference.result import Result


def write_rttm(path: Path, result: Result, speech: Sequence[Speech]) -> None:
    """Writes the stretches in order of time; a file without a line where nobody speaks."""
    video = _without_blanks(result.video_id)
    names = speaker_names([face.track.entity_id for face in result.faces])
    with whole_text_file(path) as file:
        for one in speech:
            duration_s = one.end_s - one.start_s
            file.write(f"SPEAKER {video} 1 {one.start_s:.3f} {duration_s:.3f} <NA> <NA> {names[one.face]} <NA> <NA>\n")


def speaker_names(entity_ids: Sequence[str]) -> list[str]:
    """For each id a name without blanks; ids that differ in their blanks alone stay apart by underscores at the end."""
    names: list[str] = []
    for entity_id in entity_ids:
        name = _without_blanks(entity_id)
        while name in names:
            name += "_"
        names.append(name)
    return names


def _without_blanks(text: str) -> str:
    return re.sub(r"\s", "_", text)
