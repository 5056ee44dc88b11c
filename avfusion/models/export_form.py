"""The detector as one graph of plain tensors, for every number of scenes, faces and frames.

``B`` scenes, ``S`` face tracks, ``T`` video frames, ``A = 4 T`` audio frames, ``M`` mel bins, ``L`` fusion layers,
``H`` heads. Masks are boolean, True = real. ``B``, ``S`` and ``T`` of the graph are free, from 1 on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.models.detector import ActiveSpeakerDetector

INPUTS = ("crops", "log_mel", "frame_mask", "audio_mask")
OUTPUTS = ("scores", "logits", "audio_logits", "video_logits")
ALIGNMENT = "alignment"


class ExportForm(nn.Module):
    """A detector that takes and gives tensors only.

    Args:
        model: put into evaluation mode.
        alignment: also give the weights of every fusion layer.
    """

    def __init__(self, model: ActiveSpeakerDetector, alignment: bool = False) -> None:
        super().__init__()
        self.model = model.eval()
        self.alignment = alignment

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what :meth:`forward` gives, in order."""
        return (*OUTPUTS, ALIGNMENT) if self.alignment else OUTPUTS

    def forward(self, crops: Tensor, log_mel: Tensor, frame_mask: Tensor, audio_mask: Tensor) -> tuple[Tensor, ...]:
        """Scores scenes.

        Args:
            crops: ``(B, S, T, Y, X)`` grey, uint8.
            log_mel: ``(B, A, M)``.
            frame_mask: ``(B, S, T)``.
            audio_mask: ``(B, A)``.

        Returns:
            Scores 0..1, logits, logits of the sound alone and of the picture alone, each ``(B, S, T)``; with
            ``alignment`` also ``(B, S, L, H, T, A)``.
        """
        # Said once for all, or the exporter asks wherever two of them meet.
        for tensor in (log_mel, frame_mask, audio_mask):
            torch._check(tensor.shape[0] == crops.shape[0])
        torch._check(frame_mask.shape[1] == crops.shape[1])
        torch._check(frame_mask.shape[2] == crops.shape[2])
        found = self.model(crops, log_mel, frame_mask, audio_mask, need_alignment=self.alignment)
        outputs = (found.logits.sigmoid(), found.logits, found.audio_logits, found.video_logits)
        return (*outputs, found.alignment) if self.alignment else outputs


@dataclass(frozen=True)
class SceneSizes:
    """Sizes of random scenes; with ``masked`` a fifth of the frames and sounds are not real."""

    scenes: int
    faces: int
    frames: int
    masked: bool = False

    def inputs(self, crop_size: int, num_mels: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Random scenes of these sizes as :meth:`ExportForm.forward` takes them; the same every time."""
        draws = torch.Generator().manual_seed(self.frames)
        pictures = (self.scenes, self.faces, self.frames)
        sounds = (self.scenes, self.frames * AUDIO_FRAMES_PER_VIDEO_FRAME)
        share = 0.2 if self.masked else 0.0
        return (
            torch.randint(0, 256, (*pictures, crop_size, crop_size), dtype=torch.uint8, generator=draws),
            torch.randn(*sounds, num_mels, generator=draws),
            torch.rand(pictures, generator=draws) >= share,
            torch.rand(sounds, generator=draws) >= share,
        )


def export_program(form: ExportForm, crop_size: int, num_mels: int) -> ExportedProgram:
    """The graph, free in ``B``, ``S`` and ``T``.

    Args:
        form: what to export.
        crop_size: ``Y`` and ``X``.
        num_mels: ``M``.
    """
    scenes, faces, frames = Dim("scenes"), Dim("faces"), Dim("frames")
    sounds = AUDIO_FRAMES_PER_VIDEO_FRAME * frames
    free = ({0: scenes, 1: faces, 2: frames}, {0: scenes, 1: sounds}, {0: scenes, 1: faces, 2: frames})
    example = SceneSizes(2, 3, 40).inputs(crop_size, num_mels)
    return torch.export.export(form, example, dynamic_shapes=(*free, {0: scenes, 1: sounds}))


def largest_difference(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], frame_mask: Tensor) -> float:
    """The largest absolute difference in any real frame ``(B, S, T)``; infinite where a number is missing."""
    largest = 0.0
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            return float("inf")
        # (B, S, T) as it is, (B, S, L, H, T, A) with its time beside faces.
        by_frame = [t if t.dim() == 3 else t.movedim(4, 2) for t in (one, other)]
        difference = (by_frame[0] - by_frame[1])[frame_mask].abs()
        worst = float(difference.max()) if difference.numel() else 0.0
        largest = max(largest, worst if worst == worst else float("inf"))
    return largest
