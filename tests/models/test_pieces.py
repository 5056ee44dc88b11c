"""An encoder that takes a long track in pieces gives what it gives for the whole, at every seam and for every reach."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from avfusion.models.audio import AudioEncoder
from avfusion.models.pieces import encode
from avfusion.models.visual import VisualEncoder
from avfusion.models.visual_resnet import ResNetEncoder


class Counted(nn.Module):
    """Passes on to an encoder and notes how many steps it is given."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.steps = encoder, []
        self.past_frames, self.ahead_frames = encoder.past_frames, encoder.ahead_frames

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        self.steps.append(x.shape[1])
        out: Tensor = self.encoder(x, mask)
        return out


def encoder_and_input(kind: str, ahead: int | None, steps: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if kind == "audio":
        return AudioEncoder(16, 20, [4, 4], 5, ahead_frames=ahead).eval(), torch.randn(2, steps, 20)
    crops = torch.rand(2, steps, 16, 16)
    if kind == "visual":
        return VisualEncoder(16, [4, 4], 1, 5, ahead_frames=ahead).eval(), crops
    return ResNetEncoder(16, 3, ahead_frames=ahead).eval(), crops


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("kind", "ahead", "steps", "piece"),
    [
        ("visual", None, 41, 10),
        ("visual", 0, 41, 10),
        ("visual", 1, 40, 10),
        ("visual", None, 23, 1),
        ("audio", None, 97, 20),
        ("audio", -1, 97, 20),
        ("audio", 2, 80, 3),
        ("resnet18", None, 14, 4),
        ("resnet18", 0, 14, 4),
    ],
)
def test_pieces_give_the_embeddings_of_the_whole(
    kind: str, ahead: int | None, steps: int, piece: int, masked: bool
) -> None:
    encoder, x = encoder_and_input(kind, ahead, steps)
    mask = torch.rand(2, steps) > 0.2 if masked else None
    counted = Counted(encoder)
    with torch.no_grad():
        whole, in_pieces = encoder(x, mask), encode(counted, x, mask, piece)
    torch.testing.assert_close(in_pieces, whole, rtol=0, atol=1e-5)
    assert whole.std() > 0.1
    assert len(counted.steps) == -(-steps // piece)
    assert max(counted.steps) <= piece + encoder.past_frames + max(encoder.ahead_frames, 0)


def test_training_and_short_clips_and_encoders_of_unknown_reach_take_all_at_once() -> None:
    encoder, x = encoder_and_input("visual", None, 21)
    counted = Counted(encoder)
    encode(counted, x, None, 5)  # with gradient
    with torch.no_grad():
        encode(counted, x[:, :20], None, 10)
        counted.past_frames = None
        encode(counted, x, None, 5)
    assert counted.steps == [21, 20, 21]
