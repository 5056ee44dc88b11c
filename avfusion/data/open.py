"""Opens the dataset that a configuration names, once its files have been checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from avfusion.config import DataConfig
from avfusion.data.clips import ClipDataset, Skipped
from avfusion.errors import AvfusionError, UsageError


def open_dataset(data: DataConfig, split: str, kept: Mapping[str, Skipped] | None = None) -> ClipDataset:
    """Opens one split; see :func:`open_splits`."""
    return open_splits(data, [split], kept=kept)[0]


def open_splits(
    data: DataConfig,
    splits: Sequence[str],
    *,
    training: bool = False,
    kept: Mapping[str, Skipped] | None = None,
    skip_option: str = "--data.allow_missing=true",
) -> list[ClipDataset]:
    """Opens splits and checks that what they name is there and can be used.

    The check is the fast one of ``data/verify``. With ``data.allow_missing`` every file is decoded once instead, so
    that all unusable tracks are known before the first batch is planned, and those are left out; what an earlier check
    of the same run found is taken over, and then the fast check suffices.

    Args:
        data: the ``data`` section.
        splits: ``train``, ``val``, ``test``.
        training: refuse tracks without labels.
        kept: by split, what an earlier check of the run left out.
        skip_option: what the command that asks calls ``data.allow_missing``, for messages.

    Returns:
        A dataset for each split. Its ``skipped`` says what was left out.

    Raises:
        UsageError: no dataset is named or none lies there.
        AvfusionError: the dataset is not whole.
    """
    if data.format == "synthetic":
        return [_synthetic(data, split) for split in splits]
    if data.root is None:
        raise UsageError(_NO_ROOT[data.format])
    return _checked(data, data.root, splits, training, kept or {}, skip_option)


_NO_ROOT = {
    "prepared": (
        "data.format=prepared needs the folder of a prepared dataset; give it as --data.root=FOLDER"
        " (python -m data_prep.compose --help makes one)"
    ),
    "talknet": (
        "data.format=talknet needs the folder that holds csv, clips_videos and clips_audios;"
        " give it as --data.root=FOLDER"
    ),
}


def _checked(
    data: DataConfig,
    root: str,
    splits: Sequence[str],
    training: bool,
    kept: Mapping[str, Skipped],
    skip_option: str,
) -> list[ClipDataset]:
    from avfusion.data.prepared import PreparedDataset
    from avfusion.data.talknet.dataset import TalkNetDataset
    from avfusion.data.verify.prepared import verify
    from avfusion.data.verify.result import skipped_tracks
    from avfusion.data.verify.talknet import verify_talknet

    known = data.allow_missing and all(split in kept for split in splits)
    fast = known or not data.allow_missing
    if data.allow_missing and not fast:
        print(f"{skip_option}: every file of {', '.join(dict.fromkeys(splits))} is decoded once", file=sys.stderr)
    if data.format == "prepared":
        verification = verify(root, splits, fast=fast, unlisted=False)
    else:
        verification = verify_talknet(root, splits, fast=fast)
    faults = verification.faults + ([unlabelled] if training and (unlabelled := verification.unlabelled()) else [])
    stopping = [fault for fault in faults if not (data.allow_missing and fault.tracks)]
    if stopping:
        format_option = "" if data.format == "prepared" else f" --format {data.format}"
        hint = f"python -m data_prep.verify {root}{format_option} shows every case"
        if any(fault.tracks for fault in stopping):
            hint += f"; {skip_option} leaves such tracks out"
        raise AvfusionError(f"{root}: {'; '.join(fault.as_line() for fault in stopping)}. {hint}")
    for note in verification.notes:
        print(f"note: {note.as_line()}", file=sys.stderr)
    skipped = {}
    for split in dict.fromkeys(splits):
        found = skipped_tracks(faults, split, verification.listed[split])
        skipped[split] = _merged(split, found, kept[split]) if known else found
        _tell(split, skipped[split])
    if data.format == "talknet":
        return [TalkNetDataset(root, split, skipped[split]) for split in splits]
    return [PreparedDataset(root, split, skipped[split], verification.tables[split]) for split in splits]


def _merged(split: str, found: Skipped, kept: Skipped) -> Skipped:
    """What the run left out from the start, unless more has become unusable since: that would change its batches."""
    new = sorted(found.tracks - kept.tracks)
    if new:
        raise AvfusionError(
            f"{len(new)} tracks of {split} that could be used when the run began cannot be used now, first: "
            f"{new[0][1]!r} of {new[0][0]!r} ({', '.join(found.reasons)}); restore them or begin a new run"
        )
    return replace(kept, orphans=kept.orphans | found.orphans)


def _tell(split: str, skipped: Skipped) -> None:
    if skipped.tracks or skipped.orphans:
        why = ", ".join(f"{count}: {what}" for what, count in skipped.reasons.items())
        print(f"{split}: left out {len(skipped.tracks)} of {skipped.total} tracks ({why})", file=sys.stderr)


def _synthetic(data: DataConfig, split: str) -> ClipDataset:
    from avfusion.data.synthetic import SyntheticDataset

    synthetic = data.synthetic
    scenes = {
        "test": synthetic.test_scenes,
        data.val_split: synthetic.val_scenes,
        data.train_split: synthetic.train_scenes,
    }
    if len(scenes) < 3:
        raise UsageError(
            f"data.train_split={data.train_split}, data.val_split={data.val_split}: expected two different names,"
            " and not 'test', which is the third split of synthetic talkers"
        )
    if split not in scenes:
        raise UsageError(f"synthetic talkers have no split {split!r}; choose one of {', '.join(reversed(scenes))}")
    x1, y1, x2, y2 = data.region
    return SyntheticDataset(
        split,
        scenes[split],
        synthetic.seed,
        crop_size=round(data.crop_size / max(x2 - x1, y2 - y1)),  # the region then has the model's size
        scene_s=synthetic.scene_s,
        espeak=synthetic.espeak,
        roles=synthetic.roles,
        lag_ms=synthetic.lag_ms,
    )
