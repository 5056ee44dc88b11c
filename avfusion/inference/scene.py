"""The scenes of a stream: who is seen since when, embedded by the two encoders of a model as the frames come.

A face is scored, as offline, in the scene of its own frames: with the sound since it came, and what is seen of others
since then. So faces that come at different times have scenes of their own, until that is too long ago to matter.

``S`` faces, ``T`` video frames, ``D`` features. Frames are counted from the start of the stream.
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, SAMPLES_PER_AUDIO_FRAME, SAMPLES_PER_VIDEO_FRAME
from avfusion.inference.encoding import Encoded, Rows
from avfusion.media.audio import FFT_SIZE, LogMel
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.audio import AudioEncoder
from avfusion.models.visual import VisualEncoder
from avfusion.models.visual_resnet import ResNetEncoder


class Encoders:
    """The encoders of a model, for streams.

    Attributes:
        past: video frames before a frame that its embeddings depend on.
        visual_ahead: frames after it that the picture's embedding depends on.
        sound_ahead: and the sound's.
    """

    def __init__(self, model: ActiveSpeakerDetector, num_mels: int, device: torch.device) -> None:
        assert isinstance(model.visual, VisualEncoder | ResNetEncoder)
        assert isinstance(model.audio, AudioEncoder)
        self.visual, self.audio, self.log_mel = model.visual, model.audio, LogMel(num_mels).to(device)
        self.like = torch.zeros(0, model.embed_dim, device=device)
        self.sees, self.hears = model.modality != "audio", model.modality != "video"
        self.sound_past, self.sound_ahead = _sound_reach(self.audio) if self.hears else (0, 0)
        self.visual_ahead = self.visual.ahead_frames if self.sees else 0
        self.past = max(self.sound_past, self.visual.past_frames if self.sees else 0)

    def pictures(self, crops: Rows, start: int, earlier: Encoded | None = None) -> Encoded:
        """Embeddings ``(n, D)`` of a face from a frame on; ``earlier`` those of the same face since it came."""
        if not self.sees:
            return Encoded(crops, self._nothing, 0, 0, start, self.like)
        stem_past, stem_ahead = self.visual.stem_past, self.visual.stem_ahead
        past, ahead = self.visual.past_frames, self.visual.ahead_frames
        before = earlier.source if earlier is not None else None
        frames = Encoded(
            crops,
            self._look,
            stem_past,
            stem_ahead,
            start,
            self.like,
            (before, stem_past) if isinstance(before, Encoded) else None,
        )
        together = None if earlier is None else (earlier, past)
        return Encoded(frames, self._place, past - stem_past, ahead - stem_ahead, start, self.like, together)

    def sound(self, samples: Rows, start: int, earlier: Encoded | None = None) -> Encoded:
        """Embeddings ``(n, 4, D)`` of the sound from a frame on."""
        like = self.like[:, None].expand(-1, AUDIO_FRAMES_PER_VIDEO_FRAME, -1)
        together = None if earlier is None else (earlier, self.sound_past)
        stage = self._listen if self.hears else self._nothing_heard
        return Encoded(samples, stage, self.sound_past, self.sound_ahead, start, like, together)

    def _look(self, crops: Tensor, first: int, last: int) -> Tensor:
        return self.visual.before_time(crops[None], first, last)[0]

    def _place(self, embedded: Tensor, first: int, last: int) -> Tensor:
        embeddings: Tensor = self.visual.over_time(embedded[None])
        return embeddings[0, first:last]

    def _listen(self, samples: Tensor, first: int, last: int) -> Tensor:
        heard: Tensor = self.audio(self.log_mel(samples.flatten()[None]))
        return rearrange(heard[0], "(n r) d -> n r d", r=AUDIO_FRAMES_PER_VIDEO_FRAME)[first:last]

    def _nothing(self, rows: Tensor, first: int, last: int) -> Tensor:
        return self.like.new_zeros(last - first, self.like.shape[1])

    def _nothing_heard(self, rows: Tensor, first: int, last: int) -> Tensor:
        return self.like.new_zeros(last - first, AUDIO_FRAMES_PER_VIDEO_FRAME, self.like.shape[1])


def _sound_reach(audio: AudioEncoder) -> tuple[int, int]:
    """Video frames of sound before and after a frame on which the embeddings of its four audio frames depend."""
    before = audio.past_frames * SAMPLES_PER_AUDIO_FRAME + FFT_SIZE // 2
    last = (AUDIO_FRAMES_PER_VIDEO_FRAME - 1 + audio.ahead_frames) * SAMPLES_PER_AUDIO_FRAME + FFT_SIZE // 2 - 1
    return -(-before // SAMPLES_PER_VIDEO_FRAME), last // SAMPLES_PER_VIDEO_FRAME


class Face:
    """One visit of a face.

    Attributes:
        name: as the user calls it.
        start: frame in which it came.
        end: frame in which it was gone; None while it is there.
        crops: its latest pictures.
        seen: their embeddings.
    """

    def __init__(self, name: str, start: int, encoders: Encoders, side: int) -> None:
        self.name, self.start = name, start
        self.end: int | None = None
        self.crops = Rows(start, torch.zeros(0, side, side, dtype=torch.uint8, device=encoders.like.device))
        self.seen = encoders.pictures(self.crops, start)


class Scene:
    """What is seen and heard from a frame on, for the faces that came then.

    Attributes:
        start: frame.
        decided: the frame whose scores come next.
        members: faces that are scored in this scene.
        seen: every face that is seen in it, since its start.
    """

    def __init__(self, start: int, sound: Encoded, members: list[Face]) -> None:
        self.start, self.decided, self.sound, self.members = start, start, sound, members
        self.seen = {face: face.seen for face in members}

    def advance(self) -> None:
        """Embeds what has come."""
        self.sound.advance()
        for seen in self.seen.values():
            seen.advance()

    def leave(self, face: Face) -> None:
        """A face is gone, and no more of it will come."""
        self.members = [member for member in self.members if member is not face]
        if face in self.seen:
            self.seen[face].advance(ended=True)

    def forget(self, before: int) -> None:
        """Drops what was before the given frame."""
        self.sound.forget(before)
        self.seen = {face: seen for face, seen in self.seen.items() if face.end is None or face.end > before}
        for seen in self.seen.values():
            seen.forget(before)

    def window(self, first: int, last: int, ended: bool) -> tuple[Tensor, Tensor, Tensor, list[Face]]:
        """Frames ``first .. last`` as the model takes them; with ``ended`` as if nothing were to come after them.

        Pictures whose embedding is not known yet are left at zero: a causal model does not look at them.

        Returns:
            ``(S, T, D)`` pictures, ``(1, 4 T, D)`` sound, ``(1, S, T)`` True where a face is there, the ``S`` faces.
        """
        heard = rearrange(self.sound.between(first, last, ended), "t r d -> 1 (t r) d")
        faces = [face for face, seen in self.seen.items() if seen.start < last and not _gone(face, first)]
        seen = heard.new_zeros(len(faces), last - first, heard.shape[-1])
        there = torch.zeros(1, len(faces), last - first, dtype=torch.bool, device=heard.device)
        for row, face in enumerate(faces):
            begin = max(first, self.seen[face].start)
            end = last if face.end is None else min(last, face.end)
            known = self.seen[face].between(begin, end, ended)
            seen[row, begin - first : begin - first + len(known)] = known
            there[0, row, begin - first : end - first] = True
        return seen, heard, there, faces


def _gone(face: Face, frame: int) -> bool:
    return face.end is not None and face.end <= frame
