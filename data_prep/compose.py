"""Composes labeled scenes for active speaker detection from talking faces, voices without a picture, and noises.

    python -m data_prep.compose OUT --clips CLIPS --speech VOICES [--noise NOISES]

Each source clip is cropped once; several scenes share its crops: its own sound, clean and with interferers; sound of
another clip or another voice; its own sound shifted; none; a still face under somebody's voice; two faces side by side.
With ``--overlaps`` also two faces that talk at once, where each of two voices is a face's own or from another clip.
A clip that never speaks is seen under somebody's voice; one without a sound stream is left out, because nobody can tell
when it speaks. A killed run goes on where it stopped. ``OUT/truth/<split>.csv`` tells how every scene was made.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
from avfusion.data.compose import Scene, SourceClip, compose_scene, still_order, to_reference_level
from avfusion.data.compose_plan import ClipFacts, Recipe, plan_scenes, split_names
from avfusion.data.compose_truth import scene_truth
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import LeftOut, PreparedWriter, SceneRecord, crops_path, safe_name
from avfusion.data.scene_truth import write_truth
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.faces.crop import CROP_SCALE
from avfusion.files import whole_file
from avfusion.media.audio import num_samples_of, read_audio
from data_prep.clip_tables import read_lags
from data_prep.source_clips import ClipDecoder, ClipEntry, list_clips

SOUND_SUFFIXES = (".flac", ".wav", ".ogg", ".mp3")
MIN_VOICE_S = 1.0
MIN_NOISE_S = 3.0  # shorter files are room responses or single events
# One to three frames out of step (docs/experiments.md), and no licence was found: for experiments, by name only.
NOT_BY_DEFAULT = ("lrw_ar",)


def main(arguments: Sequence[str] | None = None) -> int:
    def body() -> None:
        options = parse_arguments(arguments)
        given = sys.argv[1:] if arguments is None else arguments
        compose_dataset(options, shlex.join(["python", "-m", "data_prep.compose", *given]))

    return run_command(body)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python -m data_prep.compose", description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the dataset; a begun one is continued")
    parser.add_argument(
        "--clips",
        type=Path,
        required=True,
        help="talking faces: clips.csv and boxes.csv, or a folder per talker and boxes.csv",
    )
    parser.add_argument(
        "--speech",
        type=Path,
        required=True,
        help="voices without a picture, named SPEAKER-ANYTHING.flac or SPEAKER/ANYTHING.flac",
    )
    parser.add_argument("--noise", type=Path, help=f"noises of at least {MIN_NOISE_S:g} s (shorter files are left out)")
    parser.add_argument("--corpora", help=f"comma-separated (default: all but {', '.join(NOT_BY_DEFAULT)})")
    parser.add_argument(
        "--overlaps", type=int, default=0, help="rounds of four scenes of two voices at once per set (default: 0)"
    )
    parser.add_argument(
        "--lags", type=Path, metavar="CSV", help="lags of the talkers' sound, to be taken out (data_prep.find_lags)"
    )
    parser.add_argument(
        "--val-to-train",
        action="store_true",
        help="talkers of val are learnt from as well: for a last training, whose settings were chosen on them before",
    )
    parser.add_argument("--limit", type=int, help="at most this many clips of each talker")
    parser.add_argument("--crop-size", type=int, default=112, help="height and width of the crops (default: 112)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    return parser.parse_args(arguments)


def compose_dataset(options: argparse.Namespace, command: str) -> None:
    if options.crop_size < 16 or options.crop_size % 2:
        raise UsageError(f"--crop-size={options.crop_size}: expected an even number from 16")
    if options.limit is not None and options.limit < 1:
        raise UsageError(f"--limit={options.limit}: expected at least 1 clip of each talker")
    if options.overlaps < 0:
        raise UsageError(f"--overlaps={options.overlaps}: expected 0 or more")
    listed, faceless = list_clips(options.clips)
    if faceless:
        print(f"left out {len(faceless)} clips without a face in boxes.csv, first: {faceless[0]}", file=sys.stderr)
    entries = _chosen(listed, options.corpora, options.limit)
    if options.val_to_train:
        entries = [replace(entry, split="train" if entry.split == "val" else entry.split) for entry in entries]
    lags_ms = read_lags(options.lags, {e.talker for e in entries}) if options.lags is not None else {}
    voices = _split_voices(options.speech)
    noises = _split_noises(options.noise)
    settings = {
        "seed": options.seed,
        "crop_size": options.crop_size,
        "crop_scale": CROP_SCALE,
        "clips": _digest([f"{entry.clip_id} {entry.split}" for entry in entries]),
        "sounds": _digest([str(sorted(voices.items())), str(sorted(noises.items()))]),
        **({"overlaps": options.overlaps} if options.overlaps else {}),
        **({"lags": _digest([f"{talker} {lag}" for talker, lag in sorted(lags_ms.items())])} if lags_ms else {}),
    }
    writer = PreparedWriter(options.out, options.out.resolve().name, command, options.crop_size, settings)
    if writer.is_finished:
        print(f"{options.out} is finished already: {len(writer.scenes)} scenes")
        return
    decoder = ClipDecoder(options.crop_size, CROP_SCALE, lags_ms)
    clips, soundless = _source_clips(entries, writer, decoder)
    recipes = plan_scenes([clip.facts for clip in clips.values()], voices, noises, options.seed, options.overlaps)
    if options.overlaps and not any(recipe.role == "overlap" for recipe in recipes):
        raise UsageError(
            f"--overlaps={options.overlaps}: each split needs two talkers, and two more clips to dub them with; leave"
            " it out or give more --clips"
        )
    sounds = {"speech": options.speech, "noise": options.noise}

    @lru_cache(maxsize=256)
    def load_sound(path: str) -> NDArray[np.float32]:
        folder, _, rest = path.partition("/")
        return read_audio(sounds[folder] / rest)

    for recipe in tqdm(
        [recipe for recipe in recipes if recipe.scene_id not in writer.scenes],
        desc="scenes",
        unit="scene",
        disable=None,
    ):
        scene = compose_scene(recipe, clips, load_sound)
        writer.add_scene(recipe.scene_id, _record(recipe, scene, writer))
    left_out = {"clips without a sound stream": soundless, "clips without a face in boxes.csv": faceless}
    writer.finish({what: LeftOut(names, len(listed) + len(faceless)) for what, names in left_out.items() if names})
    shutil.rmtree(options.out / "sources", ignore_errors=True)
    print(_table(writer))
    lost = "".join(f"; left out {len(names)} {what}, first: {names[0]}" for what, names in left_out.items() if names)
    print(f"wrote {len(writer.scenes)} scenes to {options.out}{lost}")


def _chosen(entries: list[ClipEntry], corpora: str | None, limit: int | None) -> list[ClipEntry]:
    """Keeps the corpora asked for and at most ``limit`` clips of each talker."""
    known = sorted({entry.corpus for entry in entries})
    wanted = corpora.split(",") if corpora else [corpus for corpus in known if corpus not in NOT_BY_DEFAULT]
    for corpus in wanted:
        if corpus not in known:
            raise UsageError(f"--corpora names {corpus!r}, which no clip has; expected some of {', '.join(known)}")
    kept, counts = [], dict.fromkeys((entry.talker for entry in entries), 0)
    for entry in entries:
        if entry.corpus in wanted and (limit is None or counts[entry.talker] < limit):
            counts[entry.talker] += 1
            kept.append(entry)
    return kept


def _split_voices(folder: Path) -> dict[str, list[str]]:
    """The voice files of each split; no speaker is in two splits."""
    speaker_of = {}
    for path in _sound_files(folder, "voices", MIN_VOICE_S):
        relative = path.relative_to(folder)
        speaker_of[relative.as_posix()] = relative.parts[0] if len(relative.parts) > 1 else relative.stem.split("-")[0]
    speakers = split_names(list(speaker_of.values()))
    if len(speakers["train"]) < 2 or not speakers["test"]:
        raise UsageError(
            f"{folder} holds {len(set(speaker_of.values()))} speakers; expected at least 4, for three splits"
        )
    files = {
        split: sorted(f"speech/{path}" for path, speaker in speaker_of.items() if speaker in set(names))
        for split, names in speakers.items()
    }
    return files


def _split_noises(folder: Path | None) -> dict[str, list[str]]:
    if folder is None:
        return {}
    names = [path.relative_to(folder).as_posix() for path in _sound_files(folder, "noises", MIN_NOISE_S)]
    return {split: [f"noise/{name}" for name in chosen] for split, chosen in split_names(names).items()}


def _sound_files(folder: Path, what: str, min_s: float) -> list[Path]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SOUND_SUFFIXES)
    long_enough = [path for path in paths if num_samples_of(path) >= min_s * 16_000]
    if not long_enough:
        raise UsageError(f"no {what} of at least {min_s:g} s in {folder}; expected {', '.join(SOUND_SUFFIXES)} files")
    return long_enough


def _source_clips(
    entries: Sequence[ClipEntry], writer: PreparedWriter, decoder: ClipDecoder
) -> tuple[dict[str, SourceClip], list[str]]:
    """Crops every clip that has a sound stream, or takes up what an earlier run has cropped.

    Returns:
        The clips by id, and the ids of those without a sound stream.
    """
    clips: dict[str, SourceClip] = {}
    soundless = []
    for entry in tqdm(entries, desc="clips", unit="clip", disable=None):
        store = writer.root / "sources" / f"{safe_name(entry.clip_id)}.npz"
        if not store.is_file():
            _prepare_clip(entry, decoder, writer, store)
        clip = _stored_clip(entry, writer, store)
        if clip is None:
            soundless.append(entry)
        else:
            clips[entry.clip_id] = clip
    if not clips:
        raise AvfusionError(
            f"none of {len(entries)} clips has a sound stream, expected talking faces: {soundless[0].path}"
        )
    if soundless:
        names = ", ".join(str(entry.path) for entry in soundless[:3]) + (" ..." if len(soundless) > 3 else "")
        print(f"left out {len(soundless)} of {len(entries)} clips without a sound stream: {names}", file=sys.stderr)
    return clips, [entry.clip_id for entry in soundless]


def _prepare_clip(entry: ClipEntry, decoder: ClipDecoder, writer: PreparedWriter, store: Path) -> None:
    """Writes the crops of a clip and of its still stretch, then, as the mark that all is there, sound and labels."""
    decoded = decoder.decode(entry)
    speaks = bool(decoded.speaking.any())
    still = still_order(decoded.speaking) if speaks else np.zeros(0, dtype=np.int64)
    if decoded.has_sound:
        writer.crops(entry.split, entry.clip_id, decoded.crops)
    if len(still):
        writer.crops(entry.split, f"{entry.clip_id}-still", decoded.crops[still])
    active = np.repeat(decoded.speaking, SAMPLES_PER_VIDEO_FRAME)
    audio = to_reference_level(decoded.audio, active) if speaks else np.zeros_like(decoded.audio)
    with whole_file(store) as part, part.open("wb") as file:
        np.savez(
            file,
            audio=audio,
            speaking=decoded.speaking,
            boxes_xyxy=decoded.boxes_xyxy,
            still=still,
            has_sound=np.array(decoded.has_sound),
        )


def _stored_clip(entry: ClipEntry, writer: PreparedWriter, store: Path) -> SourceClip | None:
    """What :func:`_prepare_clip` stored; None for a clip without a sound stream."""
    with np.load(store) as arrays:
        if not arrays["has_sound"]:
            return None
        audio, speaking, boxes, still = (arrays[name] for name in ("audio", "speaking", "boxes_xyxy", "still"))
    speaks = bool(speaking.any())
    facts = ClipFacts(
        clip_id=entry.clip_id,
        corpus=entry.corpus,
        talker=entry.talker,
        split=entry.split,
        num_frames=len(speaking),
        speech_start=int(speaking.argmax()) if speaks else None,
        has_still=len(still) > 0,
    )
    return SourceClip(
        facts=facts,
        audio=audio,
        speaking=speaking,
        boxes_xyxy=boxes,
        crops=crops_path(entry.split, entry.clip_id),
        still_frames=still,
        still_crops=crops_path(entry.split, f"{entry.clip_id}-still") if len(still) else "",
    )


def _record(recipe: Recipe, scene: Scene, writer: PreparedWriter) -> SceneRecord:
    """Writes the sound of a scene and describes it for the tables."""
    audio = writer.audio(recipe.split, recipe.scene_id, scene.audio)
    rows = [
        TrackRow(
            split=recipe.split,
            video_id=recipe.scene_id,
            entity_id=f"{recipe.scene_id}:{number}",
            start_s=0.0,
            num_frames=len(track.speaking),
            crops=track.crops,
            audio=audio,
            role=recipe.role,
            source=track.source,
            group=track.clip_id,
        )
        for number, track in enumerate(scene.tracks)
    ]
    if scene.voices:
        write_truth(writer.root, recipe.split, scene_truth(recipe, scene))
    truth = {
        "video_id": recipe.scene_id,
        "role": recipe.role,
        "variant": recipe.variant,
        "clips": ";".join(recipe.faces),
        "sound": recipe.sound or ";".join(recipe.voices),
        "interferer": recipe.interferer,
        "snr_db": recipe.snr_db if recipe.interferer or recipe.variant == "both" or scene.voices else "",
        "shift_s": recipe.shift_s,
    }
    tracks = scene.tracks
    return SceneRecord(rows, [track.speaking for track in tracks], [track.boxes_xyxy for track in tracks], truth)


def _table(writer: PreparedWriter) -> str:
    """Counts per split and role."""
    counts: dict[tuple[str, str], list[int]] = {}
    for record in writer.scenes.values():
        for row, speaking in zip(record.rows, record.speaking, strict=True):
            count = counts.setdefault((row.split, row.role), [0, 0, 0])
            for index, value in enumerate((1, row.num_frames, int(speaking.sum()))):
                count[index] += value
    lines = [f"{'split':6} {'role':12} {'tracks':>7} {'frames':>8} {'speaking':>9}"]
    for (split, role), (tracks, frames, positive) in sorted(counts.items()):
        lines.append(f"{split:6} {role:12} {tracks:7d} {frames:8d} {positive / frames:9.1%}")
    return "\n".join(lines)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha1("\n".join(texts).encode()).hexdigest()[:10]


if __name__ == "__main__":
    sys.exit(main())
