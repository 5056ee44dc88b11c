"""Two faces side by side: is it told which of them is heard, when one talks, the other, both, or neither?

python benchmarks/side_by_side.py CLIPS [--checkpoint=FILE] [--talkers=test|unseen] [--out=JSON] [--seen=...]

From every two clips of two talkers (of the split test, or of all that the model has neither trained nor been chosen
on) a scene of each case is composed: with the sound of both at one level, and scored as a prepared scene is, all faces
of it together. Where nobody who is seen is heard, the voice is a third talker's. AP is over all frames of both faces.
In the cases without a heard face, their frames are set against the heard frames of "one talks, the other keeps still";
false accepts are at the threshold that misses 5 % of those frames, in every case. Labels are voice activity as
composed datasets have it. Intervals draw talkers, a scene counting as often as both of its talkers were drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
from avfusion.data.compose import Scene, SourceClip, compose_scene, still_order, to_reference_level
from avfusion.data.compose_plan import ClipFacts, Recipe
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.files import whole_text_file
from benchmarks.real_clips import Asked, TalkingClip, ask, draws_of, read_talking, seen_talkers
from benchmarks.weighted_figures import Frames, compared, in_words, together
from data_prep.clips_in_memory import Scenes

SECONDS = 6.0
STILL, MOVES, BOTH = "one talks, the other keeps still", "one talks, the other moves unheard", "both talk"
NEITHER_STILL, NEITHER_MOVES = "neither: both keep still, a third is heard", "neither: both move, a third is heard"
CASES = (STILL, MOVES, BOTH, NEITHER_STILL, NEITHER_MOVES)
VARIANTS = {  # of the role two_faces
    STILL: ("left_heard_other_still", "right_heard_other_still"),
    MOVES: ("left_heard_other_moves", "right_heard_other_moves"),
    BOTH: ("both",),
}
ALONE = {NEITHER_STILL: "still_face", NEITHER_MOVES: "other_clip"}  # roles of one face under somebody else's voice


@dataclass(frozen=True)
class Face:
    """One face of a scored scene: which case, who of both, when heard ``(T,)``, and both talkers' numbers."""

    case: str
    speaking: NDArray[np.bool_]
    talkers: tuple[int, int]


def main() -> None:
    """Reads the command line, composes, scores, prints and writes."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("clips", type=Path, metavar="CLIPS", help="folder with clips.csv and boxes.csv")
    parser.add_argument("--checkpoint", type=Path, help="of a run, or released weights (default: the package's)")
    parser.add_argument("--talkers", choices=["test", "unseen"], default="test", help="whose clips (default: test)")
    parser.add_argument("--seen", help="talkers it was trained or chosen on, corpus/talker with commas; none")
    parser.add_argument("--lags", type=Path, metavar="CSV", help="lags to take out first (data_prep.find_lags)")
    parser.add_argument("--pairs", type=int, default=120, help="at most this many pairs of clips (default: 120)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="where to write the figures")
    parser.add_argument("--resamples", type=int, default=1000, help="of the intervals (default: 1000)")
    options = parser.parse_args()
    if options.pairs < 1:
        raise UsageError(f"--pairs={options.pairs}: expected at least 1")
    asked = ask(options.checkpoint)
    read = read_talking(
        options.clips, SECONDS, splits=("test",) if options.talkers == "test" else (), lags=options.lags
    )
    clips = [clip for clip in read if clip.decoded.speaking.any()]
    seen = seen_talkers(asked, clips, options.seen)
    if options.talkers == "unseen":
        clips = [clip for clip in clips if clip.talker not in seen]
    report = asked.record(options.lags) | {"talkers": options.talkers}
    report |= figures(asked, clips, options.pairs, options.resamples)
    print(as_text(report))
    if options.out is not None:
        with whole_text_file(options.out) as file:
            file.write(json.dumps(report, indent=2, allow_nan=False) + "\n")
        print(f"  {options.out}")


def source_clip(clip: TalkingClip) -> SourceClip:
    """A clip as ``data/compose.py`` takes it; its crops are named, not written."""
    decoded = clip.decoded
    still = still_order(decoded.speaking)
    active = np.repeat(decoded.speaking, SAMPLES_PER_VIDEO_FRAME)
    facts = ClipFacts(
        clip_id=clip.clip_id, corpus=clip.corpus, talker=clip.talker, split=clip.split, num_frames=clip.num_frames,
        speech_start=int(decoded.speaking.argmax()), has_still=len(still) > 0,
    )  # fmt: skip
    return SourceClip(
        facts=facts, audio=to_reference_level(decoded.audio, active), speaking=decoded.speaking,
        boxes_xyxy=decoded.boxes_xyxy, crops=clip.clip_id, still_frames=still, still_crops=f"{clip.clip_id}?still",
    )  # fmt: skip


def scenes_of(pair: tuple[str, str], third: str, sources: Mapping[str, SourceClip]) -> dict[str, list[Scene]]:
    """The scenes of two clips in every case that they allow: keeping still takes a pause of some length.

    Args:
        pair: ids of the two clips.
        third: the clip whose voice is heard where neither is.
        sources: all clips by id.
    """
    split = sources[pair[0]].facts.split
    made: dict[str, list[Scene]] = {}

    def composed(role: str, faces: tuple[str, ...], variant: str = "", sound: str = "") -> Scene:
        return compose_scene(Recipe("x", split, role, variant, faces, sound=sound), sources, _no_file)

    for case, variants in VARIANTS.items():
        for variant in variants:
            other = pair[1] if variant.startswith("left") else pair[0]
            if not variant.endswith("still") or sources[other].facts.has_still:
                made.setdefault(case, []).append(composed("two_faces", pair, variant))
    for case, role in ALONE.items():
        if role != "still_face" or all(sources[clip_id].facts.has_still for clip_id in pair):
            one, two = (composed(role, (clip_id,), sound=third) for clip_id in pair)
            shorter = min((one, two), key=lambda scene: len(scene.audio))
            made[case] = [Scene(shorter.audio, (*one.tracks, *two.tracks))]
    return made


def _no_file(path: str) -> NDArray[np.float32]:
    raise AssertionError(f"{path}: every sound here is a clip's")


def pairs_of(clips: Sequence[TalkingClip], most: int) -> list[tuple[str, str]]:
    """Every two clips of two talkers, or ``most`` of them, drawn with as many of each two talkers as there are.

    Raises:
        UsageError: there are not three talkers, which the cases take.
    """
    talkers = {clip.talker for clip in clips}
    if len(talkers) < 3:
        raise UsageError(f"{len(talkers)} talkers; expected three or more: two who are seen, a third who is heard")
    of_talkers: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for one, two in combinations(sorted(clips, key=lambda clip: clip.clip_id), 2):
        if one.talker != two.talker:
            names = (min(one.talker, two.talker), max(one.talker, two.talker))
            of_talkers.setdefault(names, []).append((one.clip_id, two.clip_id))
    rows = [[pairs[i] for i in draws_of(*names).permutation(len(pairs))] for names, pairs in sorted(of_talkers.items())]
    turns = [row[turn] for turn in range(max(map(len, rows))) for row in rows if turn < len(row)]
    if len(turns) <= most:
        return turns
    if most >= len(rows):
        return turns[:most]
    return [turns[i] for i in sorted(draws_of("pairs").permutation(len(rows))[:most])]


def figures(asked: Asked, clips: Sequence[TalkingClip], most: int, resamples: int) -> dict[str, Any]:
    """Composes and scores all scenes."""
    sources = {clip.clip_id: source_clip(clip) for clip in clips}
    crops = {clip.clip_id: clip.decoded.crops for clip in clips}
    crops |= {f"{name}?still": crops[name][source.still_frames] for name, source in sources.items()}
    numbers = {talker: number for number, talker in enumerate(sorted({clip.talker for clip in clips}))}
    dataset, faces = Scenes("side by side"), []
    pairs = pairs_of(clips, most)
    count: dict[str, int] = dict.fromkeys(CASES, 0)
    for pair in pairs:
        seen = [sources[clip_id].facts.talker for clip_id in pair]
        others = sorted(name for name, source in sources.items() if source.facts.talker not in seen)
        third = others[draws_of(*pair).integers(len(others))]
        talkers = (numbers[seen[0]], numbers[seen[1]])
        for case, scenes in scenes_of(pair, third, sources).items():
            for number, scene in enumerate(scenes):
                count[case] += 1
                frames = len(scene.audio) // SAMPLES_PER_VIDEO_FRAME
                for track in scene.tracks:
                    speaking = track.speaking[:frames]
                    name = f"{pair[0]}|{pair[1]}|{case}|{number}"
                    dataset.add(name, crops[track.crops][:frames], track.boxes_xyxy[:frames], scene.audio, speaking)
                    faces.append(Face(case, speaking, talkers))
    scores = asked.scores(dataset, "scenes")
    heard, unheard = ({case: _frames(faces, scores, case, value) for case in CASES} for value in (True, False))
    reference = heard[STILL] or heard[MOVES]
    if reference is None:
        raise UsageError(f"{len(pairs)} pairs of clips give no scene in which a face is heard; give other clips")
    rows = {}
    for case in CASES:
        refused = unheard[case]
        if refused is None:
            continue
        row = compared(heard[case] or reference, refused, resamples)
        against = compared(reference, refused, resamples)
        row |= {name: against[name] for name in ("false_accept_rate", "false_accept_rate_interval", "threshold")}
        rows[case] = row | {"scenes": count[case], "against_one_talks": heard[case] is None}
    return {
        "who": sorted(numbers), "clips": len(clips), "pairs": len(pairs), "resamples": resamples, "cases": rows,
    }  # fmt: skip


def _frames(faces: Sequence[Face], scores: Sequence[NDArray[np.float32]], case: str, value: bool) -> Frames | None:
    """The frames of a case that are heard, or not; None where there are none."""
    parts = [
        (score[face.speaking == value], face.talkers)
        for face, score in zip(faces, scores, strict=True)
        if face.case == case
    ]
    found = together(parts) if parts else None
    return found if found is not None and len(found) else None


def as_text(report: dict[str, Any]) -> str:
    """The table."""
    lines = [
        "| case | scenes | AP | chance | AUROC | unheard frames accepted at 5 % miss |",
        "|---|---|---|---|---|---|",
    ]
    for case, row in report["cases"].items():
        star = " *" if row["against_one_talks"] else ""
        precision = in_words(row["average_precision"], row["average_precision_interval"])
        accepted = in_words(row["false_accept_rate"], row["false_accept_rate_interval"])
        lines.append(
            f"| {case}{star} | {row['scenes']} | {precision} | {in_words(row['prevalence'], None)} |"
            f" {in_words(row['auroc'], None)} | {accepted} |"
        )
    few = {row["note"] for row in report["cases"].values() if row["note"]}
    lines.append(f'\n\\* against the heard frames of "{STILL}"; {report["pairs"]} pairs of {report["clips"]} clips')
    return "\n".join([*lines, *(f"note: {note}" for note in sorted(few))])


if __name__ == "__main__":
    sys.exit(run_command(main))
