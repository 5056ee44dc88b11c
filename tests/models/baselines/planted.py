"""Tiny models of every kind, and clips for them."""

from __future__ import annotations

import torch
from torch import Tensor

from avfusion.config import Config, load_config
from avfusion.models import ActiveSpeakerDetector, build_model

MELS = 24
TALKNET = [
    "--model.kind=talknet_style", "--model.fusion.window_s=null", "--model.fusion.key_hz=25",
    "--model.fusion.positions=false", "--model.fusion.null_key=false", "--model.fusion.qk_norm=false",
    "--model.fusion.audio_bypass=true", "--model.temporal.window_s=null",
]  # fmt: skip
LIGHT = ["--model.kind=light_style", "--model.fusion.kind=sum", "--model.temporal.window_s=null"]
LR = ["--model.kind=lr_style", "--model.fusion.kind=concat", "--model.temporal.window_s=null"]
KINDS = {"avfusion": [], "talknet_style": TALKNET, "light_style": LIGHT, "lr_style": LR}
TINY = [
    "--model.embed_dim=16", "--model.contrast_dim=8", "--model.visual.channels=[4,8]", "--model.audio.channels=[4,8]",
    f"--data.num_mels={MELS}", "--model.dropout=0", "--data.crop_size=24",
]  # fmt: skip


def tiny_config(kind: str, *overrides: str) -> Config:
    return load_config(None, [*TINY, *KINDS[kind], *overrides])


def tiny_model(kind: str, *overrides: str) -> ActiveSpeakerDetector:
    """With heads that do not start near zero, so that a difference shows."""
    torch.manual_seed(0)
    model = build_model(tiny_config(kind, *overrides).model, MELS)
    for head in (model.head, model.audio_head, model.video_head):
        torch.nn.init.normal_(head.weight)
    return model.eval()


def clip(frames: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.rand(1, 1, frames, 24, 24, generator=generator),
        torch.randn(1, 4 * frames, MELS, generator=generator),
    )
