"""Opens any media file with PyAV and tells what is in it: streams, sizes, rates, and where its time 0 is.

**Time 0**, the same for picture and sound: the start of the container's presentation timeline, which is what a player
shows at 0:00: the earliest of the first picture and the first sound, edit lists applied. A picture that comes less than
one frame (40 ms) later than the sound is time 0 itself, and what was heard before is cut: a start that is only rounded
shifts no frame. Where the file does not take away the silence that encoders put in front (transport streams do not),
one block of the codec (21 ms of AAC at 48 kHz) counts as such silence on top of that. A picture that starts later is
shown from 0 on; sound that starts later has silence in front. All sound tracks count, whichever is read: the clock
belongs to the file, so labels stay valid for every choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from avfusion.clock import VIDEO_HZ
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.container import codec_name, frame_rate, has_flag, open_source, picture_stream

FRAME_S = Fraction(1, VIDEO_HZ)
_SCAN_S = 10  # how far behind the first picture the first sound is looked for: later sound cannot be the earliest
_PRIMED = (
    "aac",
    "mp3",
    "mp2",
    "ac3",
    "eac3",
    "opus",
    "vorbis",
)  # encoders that put up to one frame of silence in front
_TRANSFERS_OF_HDR = (16, 18)  # PQ and HLG
BROADCAST = ("mpegts", "mpeg")  # streams that may begin anywhere and be joined, with clocks that jump


@dataclass(frozen=True)
class AudioTrack:
    """One sound stream.

    Attributes:
        number: its place among the sound streams, from 0 (the value of ``--audio-track``).
        codec: FFmpeg's name; empty where there is no decoder.
        channels: how many.
        layout: FFmpeg's name of their places (``stereo``, ``5.1``).
        rate_hz: sample rate.
        language: as tagged, or empty.
        default: whether the file flags it as the one to play.
        starts_s: its first sample in seconds on the file's clock; None where it comes long after the first picture.
    """

    number: int
    codec: str
    channels: int
    layout: str
    rate_hz: int
    language: str
    default: bool
    starts_s: float | None


@dataclass(frozen=True)
class SourceFacts:
    """What a file says about itself, and where its time 0 is.

    Attributes:
        container: FFmpeg's name of the format.
        duration_s: as declared, or (see ``declares_length``) as FFmpeg guesses; None where the file does not say.
        origin_s: the stamp inside the file that is time 0 (transport streams seldom start at 0).
        width: of the picture as shown, after rotation; 0 without picture. In stored pixels: see ``pixel_aspect``.
        height: likewise.
        frame_rate: average, as declared; 0 where unknown.
        rotation_degrees: counterclockwise turn that is applied to the stored picture, a multiple of 90.
        pixel_aspect: width of a pixel over its height (1 unless anamorphic); carried over, never applied.
        pixel_format: FFmpeg's name.
        interlaced: whether the first picture is flagged so.
        has_picture: whether there is a film (cover art is none).
        video_codec: FFmpeg's name; empty without picture or decoder.
        picture_starts_s: first picture on the file's clock (0 unless it starts a frame or more after the sound).
        sound_starts_s: first sample of the chosen track on that clock (negative: cut); None as in :class:`AudioTrack`.
        audio_track: number of the chosen track; None without sound.
        audio_tracks: all of them.
        hdr: whether the levels are PQ or HLG; they are not mapped.
    """

    container: str
    duration_s: float | None
    origin_s: Fraction
    width: int
    height: int
    frame_rate: float
    rotation_degrees: int
    pixel_aspect: float
    pixel_format: str
    interlaced: bool
    has_picture: bool
    video_codec: str
    picture_starts_s: float | None
    sound_starts_s: float | None
    audio_track: int | None
    audio_tracks: tuple[AudioTrack, ...]
    hdr: bool

    @property
    def declares_length(self) -> bool:
        """Whether the file says how long it is. Transport streams do not, and joined ones last longer than guessed."""
        return self.container not in BROADCAST


def probe(path: str | Path, audio_track: int | None = None) -> SourceFacts:
    """Tells the facts of a media file; decodes only as far as the first picture and the first sound.

    Args:
        path: the file.
        audio_track: number of the sound track; None takes the one flagged default, else the first.

    Raises:
        AvfusionError: the file is missing, empty, a folder or no media, or has neither picture nor sound.
        UsageError: there is no such sound track.
    """
    path = Path(path)
    with open_source(path) as container:
        picture, sounds = picture_stream(container), list(container.streams.audio)
        if picture is None and not sounds:
            raise AvfusionError(f"{path} has neither a video nor an audio stream")
        starts, primings, frame = _first_frames(path, container, picture, sounds)
        picture_s = None if picture is None else starts.get(picture.index)
        origin_s = timeline_origin(
            picture_s, [(starts[s.index], primings[s.index]) for s in sounds if s.index in starts]
        )
        since = {index: float(start - origin_s) for index, start in starts.items()}
        tracks = tuple(_track(number, stream, since.get(stream.index)) for number, stream in enumerate(sounds))
        chosen = chosen_track(path, tracks, audio_track)
        turned = 0 if frame is None else round(frame.rotation / 90) % 4
        size = (0, 0) if frame is None else (frame.width, frame.height)
        return SourceFacts(
            container=container.format.name,
            duration_s=None if container.duration is None else container.duration / 1e6,
            origin_s=origin_s,
            width=size[turned % 2],
            height=size[1 - turned % 2],
            frame_rate=0.0 if picture is None else float(frame_rate(picture) or 0),
            rotation_degrees=90 * turned,
            pixel_aspect=1.0 if picture is None else float(picture.sample_aspect_ratio or 1),
            pixel_format="" if frame is None else frame.format.name,
            interlaced=frame is not None and bool(frame.interlaced_frame),
            has_picture=picture is not None,
            video_codec="" if picture is None else codec_name(picture),
            picture_starts_s=None if picture is None else since.get(picture.index),
            sound_starts_s=None if chosen is None else tracks[chosen].starts_s,
            audio_track=chosen,
            audio_tracks=tracks,
            hdr=int(getattr(frame, "color_trc", 0) or 0) in _TRANSFERS_OF_HDR,
        )


def timeline_origin(picture_s: Fraction | None, sounds_s: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
    """The stamp that is time 0.

    Args:
        picture_s: stamp of the first picture.
        sounds_s: stamp of the first sample of every track, and how much silence its encoder may have put in front.

    Returns:
        The picture's stamp, unless real sound comes a frame or more before it: then the earliest sound's.
    """
    if not sounds_s:
        return picture_s if picture_s is not None else Fraction(0)
    earliest, priming_s = min(sounds_s, key=lambda sound: sound[0] + sound[1])
    if picture_s is None or picture_s - (earliest + priming_s) >= FRAME_S:
        return earliest
    return picture_s


def chosen_track(path: Path, tracks: Sequence[AudioTrack], number: int | None) -> int | None:
    """Number of the sound track to read: the one asked for, else the one flagged default, else the first.

    Raises:
        UsageError: no such track.
    """
    if number is None:
        return next((t.number for t in tracks if t.default), 0 if tracks else None)
    if not 0 <= number < len(tracks):
        found = ", ".join(f"{t.number}: {t.codec} {t.layout} {t.language}".rstrip() for t in tracks) or "none"
        raise UsageError(f"{path} has no audio track {number}; it has {found}")
    return number


def _first_frames(
    path: Path, container: Any, picture: Any, sounds: list[Any]
) -> tuple[dict[int, Fraction], dict[int, Fraction], Any]:
    """Stamps of the first decoded frame of every stream, seconds of possible encoder silence, and the first picture."""
    import av

    starts: dict[int, Fraction] = {}
    primings: dict[int, Fraction] = {}
    first_stamps: dict[int, int | None] = {}
    first_picture = None
    wanted = {s.index for s in [picture, *sounds] if s is not None and s.codec_context is not None}
    try:
        for packet in container.demux():
            if packet.stream_index not in wanted or packet.stream_index in starts:
                continue
            try:
                frame = next(iter(packet.decode()), None)
            except av.FFmpegError:
                continue
            first_stamps.setdefault(packet.stream_index, packet.pts)
            if frame is not None:
                starts[packet.stream_index] = Fraction(0) if frame.pts is None else frame.pts * frame.time_base
                if picture is not None and packet.stream_index == picture.index:
                    first_picture = frame
                else:
                    # A frame later than its packet: the decoder took the silence away, as the file told it to.
                    primed = codec_name(packet.stream) in _PRIMED and frame.pts == first_stamps[packet.stream_index]
                    primings[packet.stream_index] = (
                        Fraction(frame.samples, frame.sample_rate) if primed else Fraction(0)
                    )
            at_s = None if packet.dts is None else packet.dts * packet.time_base
            if wanted <= starts.keys():
                break
            if first_picture is not None and at_s is not None and at_s > starts[picture.index] + _SCAN_S:
                break
    except av.FFmpegError:
        pass  # told by whoever reads the file; here only the beginning counts
    return starts, primings, first_picture


def _track(number: int, stream: Any, starts_s: float | None) -> AudioTrack:
    context = stream.codec_context
    return AudioTrack(
        number=number,
        codec=codec_name(stream),
        channels=0 if context is None else context.layout.nb_channels,
        layout="" if context is None else context.layout.name,
        rate_hz=0 if context is None else context.sample_rate,
        language=stream.metadata.get("language", ""),
        default=has_flag(stream, "default"),
        starts_s=starts_s,
    )
