"""A long scene: somebody talks in view, is then hidden while they or somebody else is heard, and comes back.

While a board hides the face, or the head is turned away, the picture tells nothing. Whether that person is the one
heard can only be known by the voice, from the time when it was seen to be theirs. Stretches of 5..9 s, the first
longer:

    open, own        the person talks in view (first and last, and now and then)
    hidden, own      their voice is heard while they are hidden
    hidden, other    somebody else is heard instead, who is never seen
    open, other      somebody else is heard while the person keeps still in view

A second face stays in view, still, all the time. Hidden stretches are of either kind as often, in random order, behind
a board or turned away by the toss of a coin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from avfusion.data.synthetic.camera import COVERS, TRAVEL_S, Occluder
from avfusion.data.synthetic.draft import Draft
from avfusion.errors import UsageError

SHORTEST_S = 30.0
INTRODUCTION_S = (7.0, 10.0)
STRETCH_S = (5.0, 9.0)
MARGIN_S = 2 * TRAVEL_S  # between the edges of a cover and what is heard: then it is in place, whatever the lips' lag
KINDS = ("hidden_own", "hidden_other", "open_own", "open_other")
BOARD_SIZE = 1.8  # half its width in view units: it covers the whole crop, wherever it comes from
HEAD_SIZE = 1.0  # the same of a head from behind: wider than any face, crown in the picture


@dataclass(frozen=True)
class Stretch:
    """A part of the scene, ``start_s <= t < end_s``; ``kind`` is one of ``KINDS``."""

    kind: str
    start_s: float
    end_s: float

    @property
    def hidden(self) -> bool:
        """Whether the mouth cannot be seen."""
        return self.kind.startswith("hidden")

    @property
    def own(self) -> bool:
        """Whether the person themselves is heard."""
        return self.kind.endswith("own")


def returning(draft: Draft) -> None:
    """Draws such a scene.

    Raises:
        UsageError: the scene is too short for it.
    """
    stretches = plan_stretches(draft.rng, draft.times_s[-1] + draft.times_s[1])
    person, other, listener = (draft.person(told_when=True) for _ in range(3))
    phrases_s = draft.short_phrases()
    voice = draft.hear(person, _within(phrases_s, [stretch for stretch in stretches if stretch.own]))
    draft.hear(other, _within(phrases_s, [stretch for stretch in stretches if not stretch.own]))
    draft.show_talking(person, voice)
    shown = draft.faces[-1]
    hair = shown.face.hair
    covers = tuple(_cover(draft.rng, stretch, hair) for stretch in stretches if stretch.hidden)
    draft.faces[-1] = replace(shown, camera=replace(shown.camera, occluder=None, covers=covers))
    draft.show_quiet(listener)


def plan_stretches(rng: np.random.Generator, scene_s: float) -> list[Stretch]:
    """The stretches of a scene, which fill it.

    Raises:
        UsageError: it is shorter than 30 s.
    """
    if scene_s < SHORTEST_S:
        raise UsageError(
            f"synthetic talkers: role returning in scenes of {scene_s:g} s, expected {SHORTEST_S:g} s or more; give"
            " data.synthetic.scene_s=60"
        )
    edges_s = [0.0, rng.uniform(*INTRODUCTION_S)]
    while edges_s[-1] + 2 * STRETCH_S[0] < scene_s:
        edges_s.append(min(edges_s[-1] + rng.uniform(*STRETCH_S), scene_s - STRETCH_S[0]))
    edges_s.append(scene_s)
    between = len(edges_s) - 3
    kinds: list[str] = []
    while len(kinds) < between:  # all kinds before any comes again
        kinds += [KINDS[number] for number in rng.permutation(len(KINDS))]
    named = ["open_own", *kinds[:between], "open_own"]
    return [Stretch(kind, start, end) for kind, start, end in zip(named, edges_s[:-1], edges_s[1:], strict=True)]


def _within(phrases_s: NDArray[np.float64], stretches: list[Stretch]) -> NDArray[np.float64]:
    """The phrases that lie inside one of the stretches, with the margin on either side."""
    kept = [
        (start, end)
        for start, end in phrases_s
        if any(stretch.start_s + MARGIN_S <= start and end <= stretch.end_s - MARGIN_S for stretch in stretches)
    ]
    return np.array(kept).reshape(-1, 2)


def _cover(rng: np.random.Generator, stretch: Stretch, hair: float) -> Occluder:
    """A board or the back of the head, in place before anything is heard in the stretch, and until after the last."""
    kind = str(rng.choice(COVERS))
    side, grey = float(rng.choice([-1.0, 1.0])), float(rng.uniform(25.0, 235.0))
    size = BOARD_SIZE if kind == "board" else HEAD_SIZE
    place = {"u": 0.0, "v": 0.0, "from_u": side * (1.1 + size), "from_v": 0.0}
    return Occluder(
        kind, stretch.start_s, stretch.end_s, **place, size=size, tilt=0.0, grey=grey if kind == "board" else hair
    )
