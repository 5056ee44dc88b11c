"""The prepared dataset on disk, as training and evaluation read it. ``data/verify`` checks it before either starts.

    <root>/dataset.json          format version, name, command, fps, crop size, sample rate, counts per split
    <root>/tracks.csv            one row per face track: its ids, times and files (columns of ``TrackRow``)
    <root>/crops/..mp4           (T, H, W) grey crops at 25 fps; several tracks may share a file
    <root>/audio/..flac          16 kHz mono sound of a whole scene from video time 0; tracks of a scene share it
    <root>/labels/<split>.csv    the AVA-ActiveSpeaker columns without a header
    <root>/boxes/<split>.csv     the same without the label, of tracks that nobody labelled
    <root>/source_labels/..csv   optional: the rows as a corpus annotated them, at its own stamps; scored too

Frame ``i`` of a track owns the sound samples ``start_s * 16000 + 640 i .. + 640``.
Written by ``data/prepared_writer.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.clips import Clip, Skipped
from avfusion.data.prepared_tables import JoinedSplit, TrackRow, read_info, read_split
from avfusion.errors import AvfusionError
from avfusion.media.audio import fit_to_frames, num_samples_of, read_audio
from avfusion.media.crops import read_crops
from avfusion.tracks import FaceTrack


class PreparedDataset:
    """The tracks of one split, and any stretch of them with its sound.

    Args:
        root: the folder that holds ``dataset.json``.
        split: ``train``, ``val``, ``test`` or whatever the tables name.
        skipped: tracks to leave out, as if the tables did not name them.
        joined: the split's tables where they have been read already.

    Raises:
        AvfusionError: no such dataset or split, tables that contradict each other, or no track left.
    """

    def __init__(
        self, root: str | Path, split: str, skipped: Skipped | None = None, joined: JoinedSplit | None = None
    ) -> None:
        self.root = Path(root)
        self.split = split
        info = read_info(self.root)
        self.name = info["name"]
        self.left_out: Mapping[str, Any] = info.get("left_out", {})  # by the preparation: what, {"of", "names"}
        self.skipped = skipped or Skipped()
        joined = joined or read_split(self.root, split)
        for fault in joined.faults:
            if fault.key not in self.skipped.tracks | self.skipped.orphans:
                raise AvfusionError(f"{fault.text}; prepare the dataset again")
        kept = [
            (row, track)
            for row, track in zip(joined.rows, joined.tracks, strict=True)
            if track is not None and row.key not in self.skipped.tracks
        ]
        if not kept:
            raise AvfusionError(f"{self.root}: none of the {len(joined.rows)} tracks of split {split!r} can be used")
        self.rows = [row for row, _ in kept]
        self.tracks: Sequence[FaceTrack] = [track for _, track in kept]
        self.source_labels = self.root / "source_labels" / f"{split}.csv"  # may be absent

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Reads frames ``first_frame ..`` of track ``index`` with the sound of exactly those frames.

        Args:
            index: which track.
            first_frame: first frame within the track.
            num_frames: how many; None reads to the track's end.

        Returns:
            Crops ``(T, H, W)``, sound ``(640 T,)`` and labels ``(T,)``.

        Raises:
            AvfusionError: the stretch lies outside the track, or a file is missing or damaged.
        """
        row, track = self.rows[index], self.tracks[index]
        count = row.num_frames - first_frame if num_frames is None else num_frames
        if first_frame < 0 or count < 1 or first_frame + count > row.num_frames:
            asked = f"frames {first_frame} .. {first_frame + count - 1}"
            raise AvfusionError(
                f"asked for {asked} of track {row.entity_id} in {self.root}, which has {row.num_frames}"
            )
        try:
            crops = read_crops(self.root / row.crops, first_frame, count)
            audio = self._read_sound(row, first_frame, count)
        except AvfusionError as error:
            raise AvfusionError(
                f"{error}; python -m data_prep.verify {self.root} finds every such file,"
                " and training goes on without them by train.py --resume RUN --allow-missing"
            ) from error
        return Clip(crops, audio, track.speaking[first_frame : first_frame + count])

    def _read_sound(self, row: TrackRow, first_frame: int, count: int) -> NDArray[np.float32]:
        """The ``(640 T,)`` samples of ``count`` frames of a track."""
        audio_path = self.root / row.audio
        start = round(row.start_s * SAMPLE_RATE) + SAMPLES_PER_VIDEO_FRAME * first_frame
        # The last frame's sound may be cut short by the source's end; a longer shortage is refused by verify().
        available = min(count * SAMPLES_PER_VIDEO_FRAME, max(num_samples_of(audio_path) - start, 0))
        if available <= (count - 1) * SAMPLES_PER_VIDEO_FRAME:
            available = count * SAMPLES_PER_VIDEO_FRAME  # lets read_audio name what is asked and what is there
        return fit_to_frames(read_audio(audio_path, start, available), count)
