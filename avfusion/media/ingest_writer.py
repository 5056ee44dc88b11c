"""One conversion of ``media/ingest.py``: decoded pictures and sound in, ``*.part`` files and notes out.

Both streams are taken in the order they come from the file; nothing is held but a few pictures and blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.errors import one_line
from avfusion.media.damage import ReadReport
from avfusion.media.decode import PictureLine, check_samples, push_sound
from avfusion.media.demux import Decoded, read_frames_once
from avfusion.media.picture import even_yuv420p
from avfusion.media.sound_clock import SoundClock
from avfusion.media.source import SourceFacts
from avfusion.media.written import check_sound_end

FILES = ("video.mp4", "audio.flac")
PARTS = ("video.mp4.part", "audio.flac.part", "audio.flac.cut.part", "ingest.json.part")
_FLAC = {"format": "FLAC", "subtype": "PCM_16"}
_ENCODER_OPTIONS = {
    **{"crf": "16", "preset": "veryfast", "bf": "0", "g": str(VIDEO_HZ)},
    "x264-params": "cpu-independent=1",  # else the same pictures give other files (see media/write.py)
}


class IngestWriter:
    """One conversion: both files grow under the names ``*.part``.

    Args:
        source: the file.
        folder: where the parts go.
        facts: of the file.
        salvage: go on over damage and a missing end.
        threads: of decoding and encoding; 0 lets FFmpeg choose.
    """

    def __init__(self, source: Path, folder: Path, facts: SourceFacts, salvage: bool, threads: int) -> None:
        self.source, self.folder, self.facts = source, folder, facts
        self.salvage, self.threads = salvage, threads
        self.report = ReadReport()
        self.pictures = PictureLine(source, salvage)
        self.clock = SoundClock()
        self.video_part, self.audio_part = folder / "video.mp4.part", folder / "audio.flac.part"
        self.encoder: Any = None
        self.container: Any = None
        self.sound_samples = 0  # of the source, before it is cut or padded to the picture
        self.sound_file: Any = None

    def run(self) -> None:
        """Reads the whole file and writes both parts whole.

        Raises:
            AvfusionError: the file cannot be decoded, is damaged, or has no picture.
        """
        import av
        import soundfile
        from tqdm import tqdm

        events = read_frames_once(
            self.source,
            self.facts,
            sound=self.facts.audio_track is not None,
            salvage=self.salvage,
            threads=self.threads,
            report=self.report,
        )
        total = None if self.facts.duration_s is None else round(self.facts.duration_s * VIDEO_HZ)
        with (
            self.video_part.open("wb") as video_file,  # opened here: any name is possible
            av.open(video_file, "w", format="mp4") as self.container,
            soundfile.SoundFile(os.fsencode(self.audio_part), "w", SAMPLE_RATE, 1, **_FLAC) as self.sound_file,
            tqdm(total=total, unit="frame", desc=one_line(self.source.name[:40]), disable=None) as bar,
        ):
            for event in events:
                before = self.pictures.retimer.emitted
                self._take(event)
                bar.update(self.pictures.retimer.emitted - before)
            for picture in self.pictures.finish():
                self._write_picture(picture.frame)
            for block in self.clock.finish():
                self._write_sound(block)
            self.container.mux(self.encoder.encode(None))
            check_samples(self.source, self.clock, self.salvage)
            self.sound_samples = self.clock.position
            self._pad_sound()
        check_sound_end(self.audio_part, max(self.sound_samples, self.num_samples))
        if self.sound_samples > self.num_samples:
            self._cut_sound()
            check_sound_end(self.audio_part, self.num_samples)

    @property
    def num_frames(self) -> int:
        """Pictures written so far."""
        return self.pictures.retimer.emitted

    @property
    def num_samples(self) -> int:
        """Samples that belong to them."""
        return self.num_frames * SAMPLES_PER_VIDEO_FRAME

    def remove_parts(self) -> None:
        """Takes away what was written, after a failure."""
        for name in PARTS:
            with suppress(OSError):
                (self.folder / name).unlink()

    def commit(self) -> dict[str, Any]:
        """Gives both files their names and returns what ``ingest.json`` shall say."""
        self.video_part.replace(self.folder / "video.mp4")
        self.audio_part.replace(self.folder / "audio.flac")
        return self._details()

    def _take(self, event: Decoded) -> None:
        if event.kind == "picture":
            for picture in self.pictures.push(event):
                self._write_picture(picture.frame)
        else:
            for block in push_sound(self.clock, event):
                self._write_sound(block)

    def _write_picture(self, source_frame: Any) -> None:
        assert self.pictures.size is not None
        frame = even_yuv420p(source_frame, round(source_frame.rotation / 90), self.pictures.size)
        if self.encoder is None:
            self._open_encoder(frame, source_frame)
        elif (frame.width, frame.height) != (self.encoder.width, self.encoder.height):  # turned halfway through
            frame = frame.reformat(width=self.encoder.width, height=self.encoder.height)
        frame.pts, frame.time_base = self.num_frames - 1, Fraction(1, VIDEO_HZ)
        frame.pict_type = 0  # the source's key frames are none of ours
        self.container.mux(self.encoder.encode(frame))

    def _open_encoder(self, frame: Any, source_frame: Any) -> None:
        self.encoder = self.container.add_stream("libx264", rate=VIDEO_HZ, options=_ENCODER_OPTIONS)
        self.encoder.width, self.encoder.height, self.encoder.pix_fmt = frame.width, frame.height, "yuv420p"
        context = self.encoder.codec_context
        context.thread_count = self.threads
        context.color_range = 1  # limited, as yuv420p always is here
        # Only labels: luma is written as it came. RGB (0) was converted, to what unlabelled files are taken for (2).
        context.colorspace = source_frame.colorspace or 2
        context.color_primaries = getattr(source_frame, "color_primaries", 2)
        context.color_trc = getattr(source_frame, "color_trc", 2)
        aspect = Fraction(self.facts.pixel_aspect).limit_denominator(255)
        if aspect > 0 and self.facts.rotation_degrees % 180:
            aspect = 1 / aspect
        if aspect > 0:
            context.sample_aspect_ratio = aspect

    def _write_sound(self, block: NDArray[np.float32]) -> None:
        self.sound_file.write(np.clip(block, -1.0, 1.0))

    def _pad_sound(self) -> None:
        missing = self.num_samples - self.sound_samples
        while missing > 0:
            count = min(missing, SAMPLE_RATE)
            self.sound_file.write(np.zeros(count, dtype=np.float32))
            missing -= count

    def _cut_sound(self) -> None:
        """Copies the part that belongs to the picture: a FLAC file cannot be shortened in place."""
        import soundfile

        cut = self.folder / "audio.flac.cut.part"
        with (
            soundfile.SoundFile(os.fsencode(self.audio_part)) as whole,
            soundfile.SoundFile(os.fsencode(cut), "w", SAMPLE_RATE, 1, **_FLAC) as file,
        ):
            left = self.num_samples
            while left > 0:
                block = whole.read(min(left, SAMPLE_RATE), dtype="int16")
                file.write(block)
                left -= len(block)
        cut.replace(self.audio_part)

    def _details(self) -> dict[str, Any]:
        ends = min(-(-self.sound_samples // SAMPLES_PER_VIDEO_FRAME), self.num_frames)
        facts = {**asdict(self.facts), "origin_s": float(self.facts.origin_s), "sound_starts_s": self.clock.starts_s}
        return {
            "num_frames": self.num_frames,
            "width": self.encoder.width,
            "height": self.encoder.height,
            "source_pictures": self.pictures.num_source,
            "sound_starts_frame": min(self.clock.starts_frame, self.num_frames),
            "sound_ends_frame": ends,
            "has_sound": self.facts.audio_track is not None,
            "sound_peak": self.clock.peak,
            "sound_gaps_s": self.clock.gaps_s,
            "cut_short": self.report.cut_short,
            "damage": self.report.damage,
            "notes": [*self.report.notes, *self.pictures.notes(self.facts), *self._notes(ends)],
            "source": facts,
            "bytes": {name: (self.folder / name).stat().st_size for name in FILES},
        }

    def _notes(self, ends: int) -> Iterator[str]:
        """What a user should know about the result, beside what was met in the file."""
        facts = self.facts
        if facts.audio_track is None:
            yield "no audio stream: the sound is zeros"
        else:
            yield from self._sound_notes(ends)
        size = self.pictures.size or (0, 0)
        upright = size[:: -1 if facts.rotation_degrees % 180 else 1]
        width, height = self.encoder.width, self.encoder.height
        if (width, height) != upright:
            yield f"{upright[0]}x{upright[1]} became {width}x{height}: the last row or column is repeated"
        if abs(facts.pixel_aspect - 1) > 1e-3:
            yield f"pixels are {facts.pixel_aspect:.3f} times as wide as high; kept so, and said in the file"
        if facts.hdr:
            yield "the picture is HDR (PQ or HLG); its levels were not mapped"
        if len(facts.audio_tracks) > 1:
            count = len(facts.audio_tracks)
            yield f"sound track {facts.audio_track} of 0 .. {count - 1} was taken; --audio-track=N takes another"

    def _sound_notes(self, ends: int) -> Iterator[str]:
        yield from self.clock.notes()
        if self.clock.starts_s is None:
            yield "the audio stream is empty: the sound is zeros"
        if ends < self.num_frames:
            lacking = self.num_frames - ends
            last = "last frame" if lacking == 1 else f"last {lacking} frames"
            yield f"no sound in the {last} (from frame {ends} on): padded with zeros"
        beyond_s = (self.sound_samples - self.num_samples) / SAMPLE_RATE
        if beyond_s >= 1 / VIDEO_HZ:
            yield f"{beyond_s:.2f} s of sound behind the last picture were cut"
