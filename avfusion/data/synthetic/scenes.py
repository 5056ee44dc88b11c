"""Roles: who is seen, who is heard, and whose mouth makes which sound, a short recipe each.

In every role in which a mouth speaks without being heard, mouth and sound are drawn exactly as in the roles in which it
is heard: what differs is only whether they belong together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from avfusion.data.synthetic.draft import BACKGROUNDS, LAG_MS, OVERLAP_DB, Draft, Scene
from avfusion.data.synthetic.returning import returning


def _solo(draft: Draft) -> None:
    person = draft.person()
    draft.show_talking(person, draft.hear(person))


def _listener(draft: Draft) -> None:
    """Two people, of whom one talks and the other listens."""
    talker, listener = draft.person(), draft.person()
    voice = draft.hear(talker)
    if draft.coin():
        draft.show_talking(talker, voice)
        draft.show_quiet(listener)
    else:
        draft.show_quiet(listener)
        draft.show_talking(talker, voice)


def _off_screen(draft: Draft) -> None:
    """A still face, and a voice from elsewhere."""
    draft.hear(draft.person())
    draft.show_quiet(draft.person())


def _busy_mouth(motion: str) -> Callable[[Draft], None]:
    """A mouth that moves without speaking; every other time somebody is heard from elsewhere."""

    def recipe(draft: Draft) -> None:
        if draft.turn % 2:
            draft.hear(draft.person())
        draft.show_quiet(draft.person(), motion)

    return recipe


def _surrogate(draft: Draft) -> None:
    """The hard negative: the same person's mouth from another utterance, with phrases and pauses at the same times."""
    person = draft.person()
    voice = draft.hear(person)
    draft.show_saying_else(person, draft.voices[voice].utterance.script.phrases_s)


def _shifted(draft: Draft) -> None:
    draft.show_out_of_step(draft.person())


def _other_voice(draft: Draft) -> None:
    """A talking mouth under somebody else's voice, each with its own words, pace and pauses."""
    draft.hear(draft.person())
    draft.show_saying_else(draft.person())


def _turns(draft: Draft) -> None:
    """Two people who take turns."""
    people = draft.person(told_when=True), draft.person(told_when=True)
    phrases_s = draft.short_phrases()
    first = int(draft.coin())
    for number, person in enumerate(people):
        draft.show_talking(person, draft.hear(person, phrases_s[(number + first) % 2 :: 2]))


def _overlap(draft: Draft) -> None:
    """Two voices at once, two mouths that move with them; over four scenes each mouth says what is heard in two."""
    relative_db = draft.rng.uniform(*OVERLAP_DB)
    _overlapping(draft, 0.0, heard=draft.turn % 4 in (0, 1))
    _overlapping(draft, relative_db, heard=draft.turn % 4 in (0, 2))


def _overlap_off_screen(draft: Draft) -> None:
    """Two voices at once, of which one has a mouth to it; every other time that mouth says what is heard."""
    _overlapping(draft, 0.0, heard=draft.turn % 2 == 0)
    draft.hear(draft.person(), level_db=draft.rng.uniform(*OVERLAP_DB))


def _overlapping(draft: Draft, level_db: float, *, heard: bool) -> None:
    """A voice, and a mouth that says it, or else other words in the same phrases."""
    person = draft.person()
    voice = draft.hear(person, level_db=level_db)
    if heard:
        draft.show_talking(person, voice)
    else:
        draft.show_saying_else(person, draft.voices[voice].utterance.script.phrases_s)


def _change(draft: Draft) -> None:
    """The speaker changes in the middle: from the face that is seen to somebody else, or the other way round."""
    seen, other = draft.person(told_when=True), draft.person(told_when=True)
    phrases_s = draft.short_phrases()
    early = phrases_s[:, 0] < draft.times_s[-1] / 2
    own, others = (early, ~early) if draft.turn % 2 else (~early, early)
    voice = draft.hear(seen, phrases_s[own])
    draft.hear(other, phrases_s[others])
    draft.show_talking(seen, voice)


def _background(draft: Draft) -> None:
    """A talking mouth over music, noise or babble: no voice that could be its own."""
    draft.background = BACKGROUNDS[int(draft.rng.integers(len(BACKGROUNDS)))]
    draft.show_saying_else(draft.person())


def _silence(draft: Draft) -> None:
    """A talking mouth without sound."""
    draft.show_saying_else(draft.person())


RECIPES: dict[str, Callable[[Draft], None]] = {
    "solo": _solo,
    "listener": _listener,
    "turns": _turns,
    "change": _change,
    "overlap": _overlap,
    "overlap_off_screen": _overlap_off_screen,
    "surrogate": _surrogate,
    "shifted": _shifted,
    "other_voice": _other_voice,
    "off_screen": _off_screen,
    "chewing": _busy_mouth("chewing"),
    "smiling": _busy_mouth("smiling"),
    "yawning": _busy_mouth("yawning"),
    "background": _background,
    "silence": _silence,
    "returning": returning,
}

ROLES = tuple(RECIPES)
HARD_ROLES = ("surrogate", "shifted", "other_voice", "overlap", "overlap_off_screen")
"""Roles in which a mouth speaks and a voice is heard whether or not they belong together."""

SCENES_PER_BLOCK: dict[str, int] = {
    "solo": 6,
    "listener": 1,
    "turns": 1,
    "change": 1,
    "overlap": 2,
    "overlap_off_screen": 2,
    "surrogate": 3,
    "shifted": 2,
    "other_voice": 2,
    "off_screen": 1,
    "chewing": 1,
    "smiling": 1,
    "yawning": 1,
    "background": 1,
    "silence": 1,
}
"""How often each role comes in every 26 scenes; ``returning`` needs long ones and comes only where it is named."""


def plan_scene(
    rng: np.random.Generator,
    role: str,
    num_frames: int,
    turn: int = 0,
    espeak: float = 0.0,
    lag_ms: tuple[float, float] = LAG_MS,
) -> Scene:
    """Draws everything about a scene but the noise of its rendering.

    Args:
        rng: source of all chance.
        role: a key of :data:`RECIPES`.
        num_frames: ``T``.
        turn: the how-manieth scene of its role; labels are balanced over every four of them.
        espeak: share of the voices that come from the espeak-ng library.
        lag_ms: the sound comes so much after its mouth, from and to, within :data:`LAG_MS`.
    """
    draft = Draft(rng, num_frames, turn, espeak, lag_ms)
    RECIPES[role](draft)
    return draft.finish(role)
