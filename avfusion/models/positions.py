"""Rotary positions in seconds: streams of different rates meet on one clock.

Shapes: ``x`` is ``(B, H, T, K)`` queries or keys, ``times_s`` is ``(T,)``. Features ``p`` and ``p + K/2`` form one pair
that turns once per period; the periods are geometric from 40 ms (one video frame) to 8 s over the ``K/2`` pairs.
The product of a turned query and a turned key depends on their difference in time alone, whatever the two rates are.

Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, with seconds for indices.
"""

from __future__ import annotations

import math

import torch
from einops import rearrange
from torch import Tensor

SHORTEST_PERIOD_S = 0.04
LONGEST_PERIOD_S = 8.0


def frame_times_s(num_frames: int, hz: float, device: torch.device) -> Tensor:
    """Times of frames that start at 0 s and follow each other at a fixed rate.

    Args:
        num_frames: how many frames, T.
        hz: frames per second.
        device: where the times are wanted; MPS has no float64, so its times stay on the CPU.

    Returns:
        ``(T,)`` float64, in seconds.
    """
    return torch.arange(num_frames, device=_float64_device(device), dtype=torch.float64) / hz


def rotate(x: Tensor, times_s: Tensor) -> Tensor:
    """Turns each pair of features by the angle that its period covers in the given time.

    Angles, sines and cosines are float64 before they are cast, so a frame hours into a track is as exact as the first.

    Args:
        x: ``(B, H, T, K)`` queries or keys.
        times_s: ``(T,)`` time of each frame, in seconds.

    Returns:
        ``(B, H, T, K)`` in the dtype and on the device of ``x``; the length of every vector is kept.

    Raises:
        ValueError: K is odd, or the number of times is not T.
    """
    num_frames, head_dim = x.shape[-2:]
    check_rotary_dim(head_dim)
    if times_s.shape != (num_frames,):
        raise ValueError(f"times_s has shape {tuple(times_s.shape)}, expected ({num_frames},): one time per frame of x")
    times_s = times_s.to(_float64_device(times_s.device)).to(torch.float64)
    angles = 2 * math.pi * times_s[:, None] / _periods_s(head_dim // 2, times_s.device)
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(dtype).to(x.device), angles.sin().to(dtype).to(x.device)
    first, second = rearrange(x.to(dtype), "b h t (two p) -> two b h t p", two=2).unbind(0)
    turned = torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
    return turned.to(x.dtype)


def check_rotary_dim(head_dim: int) -> None:
    """Refuses a width per head that does not split into pairs.

    Raises:
        ValueError: ``head_dim`` is odd.
    """
    if head_dim % 2:
        raise ValueError(f"rotary positions turn pairs of features: the width per head is {head_dim}, expected even")


def _periods_s(num_pairs: int, device: torch.device) -> Tensor:
    """``(num_pairs,)`` float64 periods in seconds; a single pair gets the geometric middle, 0.57 s."""
    low, high = math.log(SHORTEST_PERIOD_S), math.log(LONGEST_PERIOD_S)
    if num_pairs == 1:
        low = high = (low + high) / 2
    return torch.linspace(low, high, num_pairs, device=device, dtype=torch.float64).exp()


def _float64_device(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device
