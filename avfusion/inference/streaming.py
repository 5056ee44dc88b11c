"""Scores while pictures and sound are still coming: those of the whole film, once enough of what follows is known.

A score is final when it comes, ``ahead_frames`` after its picture: the look-ahead of a causal model, the reach of any
other. It equals what ``avfusion.scoring`` says of the finished face track, however the stream is cut into pushes.
Memory does not grow: frames are embedded once, and as many embeddings are kept as the model looks back.

Pictures are 25 a second, each with any faces by name; sound is 16 kHz mono. Both begin at the same instant, and either
may come before the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config, ModelConfig
from avfusion.data.examples import fit_crops
from avfusion.errors import AvfusionError, UsageError
from avfusion.inference.encoding import Rows
from avfusion.inference.scene import Encoders, Face, Scene
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.reach import decision_reach

RUN_FRAMES = 50  # most that is worked on at once
MAX_APART_S = 30.0  # picture and sound; the earlier one is kept until the other has come
TIMED_PUSHES = 1500

Frame = Mapping[str, NDArray[np.uint8]]


@dataclass(frozen=True)
class FaceScore:
    """A face in a frame, counted from the start of the stream, and the probability that it is the audible speaker."""

    face: str
    frame: int
    score: float


@dataclass(frozen=True)
class Latency:
    """What the latest pushes took, and how far behind its picture a score is however fast they are.

    Attributes:
        pushes: how many of the latest pushes count.
        mean_ms: of a push, by the wall clock.
        p95_ms: 95 % of them took at most this.
        look_ahead_ms: what has to come after a frame before it can be scored.
    """

    pushes: int
    mean_ms: float
    p95_ms: float
    look_ahead_ms: int


class Stream:
    """Scores the faces of a stream as it comes.

    Args:
        model: causal or not; put into evaluation mode and on the device.
        config: its configuration.
        device: where to run.
        max_faces: most faces of a frame; with the model's reach it bounds the memory.

    Attributes:
        ahead_frames: frames that have to follow a frame before it is scored.

    Raises:
        UsageError: the model looks over the whole track, so no score is final before the end.
    """

    def __init__(
        self, model: ActiveSpeakerDetector, config: Config, device: torch.device, *, max_faces: int = 16
    ) -> None:
        reach = decision_reach(config.model)
        if reach is None:
            raise UsageError(_why_never_final(config.model))
        self._past, self._future = reach
        self._model, self._config, self._device = model.eval().to(device), config, device
        self._encoders = Encoders(model, config.data.num_mels, device)
        # Pictures of a causal model reach ahead in their encoder alone.
        visual_future = 0 if config.model.causal else self._future
        self.ahead_frames = max(self._encoders.visual_ahead + visual_future, self._encoders.sound_ahead + self._future)
        self._max_faces, self._between_faces = max_faces, config.model.speaker.layers > 0
        self._pictures: deque[Frame] = deque()
        self._sound = np.zeros(0, np.float32)
        self._crop_shape: tuple[int, ...] | None = None
        self._samples = Rows(0, torch.zeros(0, SAMPLES_PER_VIDEO_FRAME, device=device))
        self._present: dict[str, Face] = {}
        self._scenes: list[Scene] = []  # oldest first
        self._took_s: deque[float] = deque(maxlen=TIMED_PUSHES)
        self._finished = False

    @torch.inference_mode()
    def push(self, frames: Sequence[Frame], sound: NDArray[np.int16] | NDArray[np.float32]) -> list[FaceScore]:
        """Takes what has come.

        Args:
            frames: pictures that follow the last one: of each frame the faces that are seen by name, ``(Y, X)`` uint8
                crops as datasets hold them. A face that is missing in a frame is gone; under its name another begins.
            sound: ``(N,)`` samples that follow the last one, any number, int16 or float in -1..1.

        Returns:
            The scores that are final now, by frame.

        Raises:
            AvfusionError: more faces than ``max_faces``, crops that are none or of another size than before, sound that
                is not finite, picture and sound too far apart, a stream that was finished. Nothing is taken then.
        """
        began = time.perf_counter()
        if self._finished:
            raise AvfusionError("this stream was finished and takes nothing more; begin a new Stream")
        heard = _as_float(sound)
        shape = self._checked_shape(frames)
        self._check_apart(len(self._pictures) + len(frames), len(self._sound) + len(heard))
        self._crop_shape = shape
        self._pictures.extend(frames)
        self._sound = np.concatenate([self._sound, heard])
        scores = self._work(min(len(self._pictures), len(self._sound) // SAMPLES_PER_VIDEO_FRAME))
        self._took_s.append(time.perf_counter() - began)
        return scores

    @torch.inference_mode()
    def finish(self) -> list[FaceScore]:
        """Ends the stream with its last picture; sound that is missing to it is silence, as at the end of a film.

        Returns:
            The scores that were still open.
        """
        missing = len(self._pictures) * SAMPLES_PER_VIDEO_FRAME - len(self._sound)
        self._sound = np.pad(self._sound, (0, max(0, missing)))
        scores = self._work(len(self._pictures)) + self._leave(list(self._present.values()))
        self._finished = True
        return _by_frame(scores)

    def latency(self) -> Latency:
        """Of the latest 1,500 pushes at most."""
        took_ms = 1000 * np.array(self._took_s or [0.0])
        ahead_ms = 1000 * self.ahead_frames // VIDEO_HZ
        return Latency(len(self._took_s), float(took_ms.mean()), float(np.percentile(took_ms, 95)), ahead_ms)

    @property
    def num_bytes(self) -> int:
        """Memory of everything kept between pushes, the model aside."""
        kept = {id(self._samples): self._samples}
        for scene in self._scenes:
            for source in (scene.sound, *scene.seen.values()):
                kept.update({id(rows): rows for rows in source.kept()})
        waiting = sum(crop.nbytes for frame in self._pictures for crop in frame.values())
        return waiting + self._sound.nbytes + sum(rows.rows.nbytes for rows in kept.values())

    def _work(self, count: int) -> list[FaceScore]:
        """Goes through the next frames, in runs in which the same faces are there."""
        frames = [self._pictures.popleft() for _ in range(count)]
        samples = torch.from_numpy(self._sound[: count * SAMPLES_PER_VIDEO_FRAME]).to(self._device)
        self._sound = self._sound[count * SAMPLES_PER_VIDEO_FRAME :].copy()
        of_frames = samples.view(count, SAMPLES_PER_VIDEO_FRAME)
        scores: list[FaceScore] = []
        at = 0
        for _, grouped in groupby(frames, key=frozenset):
            alike = list(grouped)
            for first in range(0, len(alike), RUN_FRAMES):
                run = alike[first : first + RUN_FRAMES]
                scores += self._run(run, of_frames[at : at + len(run)])
                at += len(run)
        return _by_frame(scores)

    def _run(self, frames: Sequence[Frame], samples: torch.Tensor) -> list[FaceScore]:
        """Frames with the same faces, and their sound ``(n, 640)``."""
        scores = self._leave([face for name, face in self._present.items() if name not in frames[0]])
        self._arrive([name for name in frames[0] if name not in self._present])
        data = self._config.data
        for name, face in self._present.items():
            crops = torch.from_numpy(np.stack([frame[name] for frame in frames]))
            face.crops.append(fit_crops(crops, data.region, data.crop_size).to(self._device))
        self._samples.append(samples)
        if not self._scenes:
            self._samples.forget(self._samples.last)
        for scene in self._scenes:
            scene.advance()
        last = self._samples.last - self.ahead_frames
        for scene in self._scenes:
            scores += self._decide(scene, scene.members, last, ended=False)
            scene.decided = max(scene.decided, last)
        self._join(last)
        for scene in self._scenes:
            scene.forget(last - self._past)
        return scores

    def _arrive(self, names: Sequence[str]) -> None:
        """Faces come: they begin a scene, and are seen in the others."""
        if not names:
            return
        start = self._samples.last
        faces = [Face(name, start, self._encoders, self._config.data.crop_size) for name in names]
        oldest = self._scenes[0].sound if self._scenes else None
        scene = Scene(start, self._encoders.sound(self._samples, start, oldest), faces)
        if self._between_faces:
            for other in self._scenes:
                other.seen.update({face: face.seen for face in faces})
            for face in self._present.values():
                scene.seen[face] = self._encoders.pictures(face.crops, start, face.seen)
        self._scenes.append(scene)
        self._present.update({face.name: face for face in faces})

    def _leave(self, faces: Sequence[Face]) -> list[FaceScore]:
        """Faces are gone: what is left of them is scored in scenes that end here."""
        last = self._samples.last
        scores = []
        for scene in self._scenes:
            scores += self._decide(scene, [face for face in scene.members if face in faces], last, ended=True)
        for face in faces:
            face.end = last
            del self._present[face.name]
            for scene in self._scenes:
                scene.leave(face)
        self._scenes = [scene for scene in self._scenes if scene.members]
        return scores

    def _decide(self, scene: Scene, members: Sequence[Face], last: int, ended: bool) -> list[FaceScore]:
        """Scores faces of a scene in the frames up to ``last``."""
        if not members or last <= scene.decided:
            return []
        first = max(scene.start, scene.decided - self._past)
        seen, heard, there, faces = scene.window(first, last if ended else last + self._future, ended)
        logits = self._model.decide(seen, heard, there).logits[0, :, scene.decided - first : last - first]
        of_faces = logits.float().sigmoid().cpu().numpy()
        return [
            FaceScore(face.name, scene.decided + n, float(score))
            for face in members
            for n, score in enumerate(of_faces[faces.index(face)])
        ]

    def _join(self, last: int) -> None:
        """Scenes whose start is out of sight are the oldest one by now."""
        if not self._scenes:
            return
        oldest, *younger = self._scenes
        self._scenes = [oldest]
        for scene in younger:
            if scene.start + self._encoders.past + self._past > last:
                self._scenes.append(scene)
                continue
            oldest.members += scene.members
            oldest.seen.update({face: face.seen for face in scene.members})

    def _checked_shape(self, frames: Sequence[Frame]) -> tuple[int, ...] | None:
        """The shape that all crops have."""
        shape = self._crop_shape
        for frame in frames:
            if len(frame) > self._max_faces:
                raise AvfusionError(f"a frame with {len(frame)} faces, expected at most max_faces {self._max_faces}")
            for name, given in frame.items():
                crop = np.asarray(given)
                if crop.dtype != np.uint8 or crop.ndim != 2 or not crop.size or crop.shape != (shape or crop.shape):
                    expected = "(Y, X) with pixels" if shape is None else f"{shape} as before"
                    raise AvfusionError(
                        f"the crop of face {name!r} is {crop.dtype} of shape {crop.shape}, expected uint8 of {expected}"
                    )
                shape = crop.shape
        return shape

    def _check_apart(self, num_pictures: int, num_samples: int) -> None:
        apart_s = num_samples / (VIDEO_HZ * SAMPLES_PER_VIDEO_FRAME) - num_pictures / VIDEO_HZ
        if abs(apart_s) > MAX_APART_S:
            early, late = ("sound", "pictures") if apart_s > 0 else ("pictures", "sound")
            raise AvfusionError(
                f"{early} {abs(apart_s):.1f} s ahead of the {late}, expected at most {MAX_APART_S:.0f} s; push both as"
                " they come, and frames without faces as empty ones"
            )


def _why_never_final(config: ModelConfig) -> str:
    """Of a model that looks over whole tracks: what of it does, and which would stream."""
    never = "looks over whole tracks, so none of its scores is final before the end of a stream; expected"
    if config.kind != "avfusion":
        return f"model.kind {config.kind} {never} avfusion, with windows in seconds"
    key = "temporal" if config.temporal.layers and config.temporal.window_s is None else "fusion"
    return f"model.{key}.window_s is null: the model {never} one trained with a window in seconds"


def _as_float(sound: NDArray[np.int16] | NDArray[np.float32]) -> NDArray[np.float32]:
    """Samples as float32 in -1..1."""
    found = np.asarray(sound)
    if found.ndim != 1 or not (found.dtype == np.int16 or np.issubdtype(found.dtype, np.floating)):
        raise AvfusionError(f"sound is {found.dtype} of shape {found.shape}, expected int16 or float of shape (N,)")
    if found.dtype == np.int16:
        whole: NDArray[np.float32] = np.divide(found, 32768, dtype=np.float32)
        return whole
    if not np.isfinite(found).all():
        raise AvfusionError("sound holds NaN or infinity, expected samples in -1..1")
    heard: NDArray[np.float32] = found.astype(np.float32)
    return heard


def _by_frame(scores: Iterable[FaceScore]) -> list[FaceScore]:
    return sorted(scores, key=lambda score: score.frame)
