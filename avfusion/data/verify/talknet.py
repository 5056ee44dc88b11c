"""Checks the TalkNet layout before it is trained on: tables and files, and what the pictures and sounds hold.

Names of pictures and headers of sounds are compared by ``data/talknet/checks.py``. Content is read as training reads
it: every track, or for the fast check a stretch of a few tracks drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from avfusion.data.prepared_tables import TrackRow
from avfusion.data.talknet.checks import check_talknet
from avfusion.data.talknet.dataset import TalkNetDataset
from avfusion.data.verify.content import CROP_STRETCH_FRAMES, SAMPLED_FILES, Looked
from avfusion.data.verify.content_findings import crop_findings, sound_findings, speech_levels_db
from avfusion.data.verify.files import CropContent, SoundContent, look_at_pictures, look_at_samples
from avfusion.data.verify.findings import Finding
from avfusion.data.verify.headers import Headers
from avfusion.data.verify.result import Verification, summarize
from avfusion.data.verify.tables import box_findings, leak_findings, silent_splits
from avfusion.data.verify.uses import Use, of_files
from avfusion.errors import AvfusionError


def verify_talknet(
    root: str | Path, splits: Sequence[str] | None = None, *, fast: bool = False, bar: bool = True, seed: int = 0
) -> Verification:
    """Checks splits of a dataset in the TalkNet layout.

    Args:
        root: the folder that holds ``csv``, ``clips_videos`` and ``clips_audios``.
        splits: which; None for all that have a ``csv/<split>_orig.csv``.
        fast: read stretches of a few tracks only.
        bar: show progress.
        seed: of the draw of those tracks.

    Raises:
        UsageError: there is no such layout or split.
        AvfusionError: a table is wrong.
    """
    root = Path(root)
    if splits is None:
        splits = sorted(path.name.removesuffix("_orig.csv") for path in root.glob("csv/*_orig.csv")) or ["train"]
    findings: list[Finding] = []
    uses: list[Use] = []
    listed = {}
    sound: Looked[SoundContent] = Looked()
    crops: Looked[CropContent] = Looked()
    broken: dict[str, str] = {}
    for split in dict.fromkeys(splits):
        dataset = TalkNetDataset(root, split)
        found = check_talknet(dataset)
        findings += found
        own = [_use(split, dataset, index) for index in range(len(dataset.tracks))]
        uses += own
        entities = {(entity.video_id, entity.entity_id) for entity in dataset.entities}
        listed[split] = frozenset(entities | {use.row.key for use in own})
        faulty = {key for finding in found if not finding.is_note for key in finding.tracks}
        whole = [index for index, use in enumerate(own) if not {use.key, _entity_key(split, dataset, index)} & faulty]
        if fast:
            whole = np.random.default_rng(seed).permutation(whole)[:SAMPLED_FILES].tolist()
        shown = tqdm(whole, desc=f"tracks of {split}", unit="track", leave=False, disable=None if bar else True)
        _look(dataset, own, shown, fast, sound, crops, broken)
    headers = Headers({}, {}, {use.row.audio: [use] for use in uses}, {use.row.crops: [use] for use in uses})
    findings += box_findings(uses) + leak_findings(uses) + silent_splits(uses)
    what, advice = "tracks have a picture or sound that cannot be decoded", "make its files again, or copy them whole"
    findings += of_files(what, broken, len(broken) + len(crops.content), headers.crop_uses, advice)
    findings += sound_findings(headers, sound) + crop_findings(headers, crops, "picture folders")
    return Verification(findings, summarize(uses, speech_levels_db(headers, sound)), listed)


def _use(split: str, dataset: TalkNetDataset, index: int) -> Use:
    """A track with names for its pictures and its sound that are its own: pieces of one face share both."""
    track = dataset.tracks[index]
    name = f"{split}/{track.video_id}/{track.entity_id}"
    files = (f"clips_videos/{name}", f"clips_audios/{name}.wav")
    row = TrackRow(split, track.video_id, track.entity_id, track.start_s, track.num_frames, *files, group=track.group)
    return Use(split, row, track)


def _entity_key(split: str, dataset: TalkNetDataset, index: int) -> tuple[str, str, str]:
    entity = dataset.sources[index].entity
    return split, entity.video_id, entity.entity_id


def _look(
    dataset: TalkNetDataset,
    uses: Sequence[Use],
    indices: Iterable[int],
    fast: bool,
    sound: Looked[SoundContent],
    crops: Looked[CropContent],
    broken: dict[str, str],
) -> None:
    """Reads tracks and keeps what they hold, or why they cannot be read."""
    for index in indices:
        track, row = dataset.tracks[index], uses[index].row
        first, count = 0, track.num_frames
        if fast:
            first = max(0, min(int(track.speaking.argmax()), count - CROP_STRETCH_FRAMES))
            count = min(count - first, CROP_STRETCH_FRAMES)
        try:
            clip = dataset.read(index, first, count)
        except AvfusionError as error:
            broken[row.crops] = str(error)
            continue
        # Up to a frame and a half at the end is padding by the layout's own rule, which is no lost sound.
        sound.content[row.audio] = look_at_samples(clip.audio)
        sound.first_frame[row.audio] = round(track.start_s * 25) + first
        crops.content[row.crops] = look_at_pictures(clip.crops)
        crops.first_frame[row.crops] = first
