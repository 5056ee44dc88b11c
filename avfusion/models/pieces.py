"""Long tracks pass the layers in pieces, so that what a layer holds while it works does not grow with the track.

``N`` sequences, ``T`` steps (video or audio frames), ``D`` features, ``B`` scenes of ``S`` faces (``N = B S``). Each
piece has the steps around it that the layer can reach, so what comes out is that of the whole track (to rounding).
Large tensors come from the system as fresh pages each time; without pieces the making of them was a third of the time
of a track of 16 minutes, and a minute of it cost 1.4 times as much as a track of one minute.

A layer says how far it reaches (``past_frames`` and ``ahead_frames``). One that does not, or says None, gets the whole
track at once, and so does every layer where a gradient is wanted or a graph is made.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME as RATIO

CACHED_STEPS = 500  # of all sequences together, that a layer takes at once on a CPU; larger ones leave its cache
DEVICE_STEPS = 16_000  # the same elsewhere, where only memory counts

Part = Callable[[slice, slice], Tensor]  # the layer for some sequences and some of their steps


def encode(encoder: nn.Module, x: Tensor, mask: Tensor | None, piece_steps: int) -> Tensor:
    """Embeds ``x`` ``(N, T, ...)`` (``mask`` ``(N, T)``, True = real) to ``(N, T, D)``, all sequences together.

    In pieces where the track is longer than two of them and the encoder says how far it reaches.
    """
    reach = _reach(encoder)
    if reach is None:
        return _run(encoder, x, mask)
    return _over_steps(_part_of(encoder, x, mask), slice(0, x.shape[0]), x.shape[1], reach, piece_steps)


def over_time(layer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """A layer over time: ``x`` ``(N, T, D)``, ``mask`` ``(N, T)`` -> ``(N, T, D')``."""
    reach = _reach(layer)
    return _run(layer, x, mask) if reach is None else _in_parts(_part_of(layer, x, mask), x, reach)


def fuse(layer: nn.Module, x: Tensor, heard: Tensor, mask: Tensor | None, heard_mask: Tensor | None) -> Tensor:
    """A layer of fusion over faces and the sound of their scenes.

    Args:
        layer: faces, sound and their masks to ``(B S, T, D')``.
        x: ``(B S, T, D)``, the faces.
        heard: ``(B, 4 T, D)``; every face gets a copy of it, one piece at a time.
        mask: ``(B S, T)``, True = real.
        heard_mask: ``(B, 4 T)``.
    """
    faces, reach = x.shape[0] // heard.shape[0], _reach(layer)
    if reach is None:
        own_mask = None if heard_mask is None else repeat(heard_mask, "b a -> (b s) a", s=faces)
        return _run(layer, x, repeat(heard, "b a d -> (b s) a d", s=faces), mask, own_mask)

    def part(rows: slice, steps: slice) -> Tensor:
        scenes = torch.arange(rows.start, rows.stop, device=x.device) // faces
        sound = slice(RATIO * steps.start, RATIO * steps.stop)
        own_mask = None if heard_mask is None else heard_mask[:, sound][scenes]
        return _run(layer, x[rows, steps], heard[:, sound][scenes], _cut(mask, rows, steps), own_mask)

    return _in_parts(part, x, reach)


def between_faces(layer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """A layer between the faces of a scene: ``x`` ``(B, S, T, D)``, ``mask`` ``(B, S, T)`` -> ``(B, S, T, D)``."""
    reach = _reach(layer)
    if reach is None:
        return _run(layer, x, mask)
    x = rearrange(x, "b s t d -> b t s d")
    mask = None if mask is None else rearrange(mask, "b s t -> b t s")

    def part(rows: slice, steps: slice) -> Tensor:
        faces = rearrange(x[rows, steps], "b t s d -> b s t d")
        there = None if mask is None else rearrange(mask[rows, steps], "b t s -> b s t")
        return rearrange(_run(layer, faces, there), "b s t d -> b t s d")

    return rearrange(_in_parts(part, x, reach, x.shape[2]), "b t s d -> b s t d")


def at_each_step(apply: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What mixes no steps: ``x`` ``(N, T, D)`` -> ``(N, T, D')``."""
    return _in_parts(lambda rows, steps: apply(x[rows, steps]), x, (0, 0)) if _allowed() else apply(x)


def _in_parts(part: Part, x: Tensor, reach: tuple[int, int], sequences: int = 1) -> Tensor:
    """``part`` of all of ``x`` ``(N, T, ...)``; each row holds so many sequences."""
    rows, length = x.shape[:2]
    most = (CACHED_STEPS if x.device.type == "cpu" else DEVICE_STEPS) // sequences
    # Twice as much at once is cheaper than steps seen twice; and so are pieces longer than what is around them.
    if rows * length <= 2 * most:
        return part(slice(0, rows), slice(0, length))
    steps, together = max(most, 2 * sum(reach), 1), max(1, most // length)
    starts = range(0, rows, together)
    groups = (slice(first, min(first + together, rows)) for first in starts)
    return _joined([_over_steps(part, group, length, reach, steps) for group in groups], dim=0)


def _over_steps(part: Part, rows: slice, length: int, reach: tuple[int, int], piece_steps: int) -> Tensor:
    """``part`` of some rows, one piece of their steps after the other."""
    if length <= 2 * piece_steps:
        return part(rows, slice(0, length))
    past, ahead = reach
    pieces = []
    for first in range(0, length, piece_steps):
        last = min(first + piece_steps, length)
        begin = max(first - past, 0)
        seen = part(rows, slice(begin, min(last + ahead, length)))
        pieces.append(seen[:, first - begin : last - begin])
    return _joined(pieces, dim=1)


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def _part_of(layer: nn.Module, x: Tensor, mask: Tensor | None) -> Part:
    return lambda rows, steps: _run(layer, x[rows, steps], _cut(mask, rows, steps))


def _cut(mask: Tensor | None, rows: slice, steps: slice) -> Tensor | None:
    return None if mask is None else mask[rows, steps]


def _reach(layer: nn.Module) -> tuple[int, int] | None:
    """Steps before and after a step that the layer uses for it; None where it gets all at once."""
    if not _allowed():  # asked first: a graph cannot hold how far a window reaches
        return None
    past, ahead = getattr(layer, "past_frames", None), getattr(layer, "ahead_frames", None)
    return None if past is None or ahead is None else (past, max(ahead, 0))


def _allowed() -> bool:
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling())


def _run(layer: nn.Module, *inputs: Tensor | None) -> Tensor:
    out: Tensor = layer(*inputs)
    return out
