"""Writes synthetic talkers as a prepared dataset, with the exact truth of every scene.

    python -m data_prep.synthesize OUT --scenes=N --seed=K

Each split has its own people. ``OUT/truth/<split>/<scene>.json`` holds labels, lags, phone intervals, burst times, the
envelope and pitch of every voice by itself, and the role; ``OUT/truth/<split>.csv`` a line a scene. A killed run goes
on where it stopped.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord, safe_name
from avfusion.data.scene_truth import write_truth
from avfusion.data.synthetic import SceneTruth, SyntheticDataset
from avfusion.data.synthetic.draft import LAG_MS
from avfusion.data.synthetic.scenes import ROLES
from avfusion.errors import CommandParser, UsageError, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    def body() -> None:
        options = parse_arguments(arguments)
        given = sys.argv[1:] if arguments is None else arguments
        synthesize(options, shlex.join(["python", "-m", "data_prep.synthesize", *given]))

    return run_command(body)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python -m data_prep.synthesize", description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the dataset; a begun one is continued")
    parser.add_argument("--scenes", type=int, default=1000, help="scenes in all (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    parser.add_argument(
        "--splits",
        default="train=0.7,val=0.1,test=0.2",
        help="splits and their shares of the scenes (default: train=0.7,val=0.1,test=0.2)",
    )
    parser.add_argument("--crop-size", type=int, default=112, help="height and width of the crops (default: 112)")
    parser.add_argument("--scene-s", type=float, default=3.0, help="length of a scene in seconds (default: 3)")
    parser.add_argument(
        "--espeak", type=float, default=0.0, help="share of the voices made by the espeak-ng library (default: 0)"
    )
    parser.add_argument(
        "--roles",
        type=_words,
        default=(),
        help="kinds of scene, with commas, as often as named (default: a mixture)",
    )
    parser.add_argument(
        "--lag-ms",
        type=_numbers,
        default=LAG_MS,
        metavar="FROM,TO",
        help="the sound comes so much after its mouth, drawn for every face (default: -40,200, what is natural)",
    )
    return parser.parse_args(arguments)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def scenes_of_splits(text: str, scenes: int) -> dict[str, int]:
    """How many scenes each split gets: shares of the whole, rounded, at least one each, ``scenes`` in all.

    Raises:
        UsageError: the text is not ``name=share,..`` with plain small names, or the shares do not add up to 1.
    """
    wrong = UsageError(
        f"--splits={text}: expected plain small names and shares that add up to 1, as in train=0.8,val=0.2"
    )
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, share = part.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            raise wrong from None
        if not equals or safe_name(name.strip()) != name.strip() or not 0 < shares[name.strip()] <= 1:
            raise wrong
    if abs(sum(shares.values()) - 1) > 1e-6 or len(shares) != len(text.split(",")):
        raise wrong
    if scenes < len(shares):
        raise UsageError(f"--scenes={scenes}: expected at least one for each of {len(shares)} splits")
    counts = {name: max(1, int(share * scenes)) for name, share in shares.items()}
    while (missing := scenes - sum(counts.values())) != 0:  # to or from the split that is furthest from its share
        step = 1 if missing > 0 else -1
        able = [name for name in counts if counts[name] + step >= 1]
        counts[max(able, key=lambda name: step * (shares[name] * scenes - counts[name]))] += step
    return counts


def synthesize(options: argparse.Namespace, command: str) -> None:
    if options.crop_size < 24 or options.crop_size % 2:
        raise UsageError(f"--crop-size={options.crop_size}: expected an even number from 24")
    if unknown := [role for role in options.roles if role not in ROLES]:
        what = repr(unknown[0]) + " is no role" if unknown[0] else "a name is empty"
        raise UsageError(f"--roles={','.join(options.roles)}: {what}; expected some of {', '.join(ROLES)}, with commas")
    scenes = scenes_of_splits(options.splits, options.scenes)
    settings: dict[str, Any] = {
        "scenes": scenes,
        "seed": options.seed,
        "crop_size": options.crop_size,
        "scene_s": options.scene_s,
        "espeak": options.espeak,
    }
    if options.roles:
        settings["roles"] = sorted(options.roles, key=ROLES.index)
    if tuple(options.lag_ms) != LAG_MS:
        settings["lag_ms"] = list(options.lag_ms)
    datasets = {
        split: SyntheticDataset(
            split,
            count,
            options.seed,
            crop_size=options.crop_size,
            scene_s=options.scene_s,
            espeak=options.espeak,
            roles=options.roles,
            lag_ms=options.lag_ms,
        )
        for split, count in scenes.items()
    }
    writer = PreparedWriter(options.out, options.out.resolve().name, command, options.crop_size, settings)
    if writer.is_finished:
        print(f"{options.out} is finished already: {len(writer.scenes)} scenes")
        return
    with tqdm(total=sum(scenes.values()), desc="scenes", unit="scene", disable=None) as progress:
        for split, dataset in datasets.items():
            _write_split(writer, split, dataset, progress)
    writer.finish()
    frames = sum(track.num_frames for dataset in datasets.values() for track in dataset.tracks)
    print(f"wrote {len(writer.scenes)} scenes, {frames / 25 / 60:.1f} minutes of faces, to {options.out}")


def _write_split(writer: PreparedWriter, split: str, dataset: SyntheticDataset, progress: Any) -> None:
    tracks_of_scene: dict[str, list[int]] = {}
    for index, track in enumerate(dataset.tracks):
        tracks_of_scene.setdefault(track.video_id, []).append(index)
    for video_id, indices in tracks_of_scene.items():
        if video_id not in writer.scenes:
            writer.add_scene(video_id, _write_scene(writer, split, dataset, video_id, indices))
        progress.update()


def _write_scene(
    writer: PreparedWriter, split: str, dataset: SyntheticDataset, video_id: str, indices: Sequence[int]
) -> SceneRecord:
    """Writes the media and the truth of one scene; its line in the journal comes after."""
    rows, tracks = [], [dataset.tracks[index] for index in indices]
    audio = ""
    for index, track in zip(indices, tracks, strict=True):
        clip = dataset.read(index)
        audio = audio or writer.audio(split, video_id, clip.audio)
        rows.append(
            TrackRow(
                split=split,
                video_id=video_id,
                entity_id=track.entity_id,
                start_s=0.0,
                num_frames=track.num_frames,
                crops=writer.crops(split, track.entity_id, clip.crops),
                audio=audio,
                role=track.role,
                source=track.source,
                lag_ms=None if track.lag_ms is None else round(track.lag_ms, 3),
            )
        )
    truth = dataset.truth(indices[0])
    write_truth(writer.root, split, truth)
    return SceneRecord(rows, [t.speaking for t in tracks], [t.boxes_xyxy for t in tracks], _truth_row(truth))


def _truth_row(truth: SceneTruth) -> dict[str, str | float]:
    return {
        "video_id": truth.video_id,
        "role": truth.role,
        "voices": len(truth.voices),
        "heard_faces": ";".join(voice.entity_id for voice in truth.voices if voice.entity_id),
        "motions": ";".join(face.motion for face in truth.faces),
        "lags_ms": ";".join("" if face.lag_ms is None else f"{face.lag_ms:.1f}" for face in truth.faces),
        "background": truth.background,
        "snr_db": "" if truth.snr_db != truth.snr_db else round(truth.snr_db, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
