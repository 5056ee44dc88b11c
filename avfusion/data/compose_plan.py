"""Which scenes to make from talking faces, voices and noises: every random choice of a composed dataset.

From each source clip one set of scenes is drawn (several sets where a talker has few clips), so that neither sound nor
picture alone can decide: a moving mouth is about as often unheard as heard, the same voices and the same mixtures occur
with and without their face. A :class:`Recipe` holds all that was drawn for a scene; ``data/compose.py`` makes it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from avfusion.clock import VIDEO_HZ

_T = TypeVar("_T")

SNR_RANGE_DB = (-5.0, 10.0)
MIN_SHIFT_S, MAX_SHIFT_S = 0.3, 1.5
LEVEL_RANGE_DB = (-5.0, 5.0)  # of the first voice over the second, where two people talk
SETS_PER_TALKER = 12  # a talker with fewer clips gets up to 4 sets per clip
MAX_SETS_PER_CLIP = 4
MIN_HEARD_FRAMES = 12
SPLIT_SHARES = (("train", 0.7), ("val", 0.15), ("test", 0.15))

OVERLAP_VARIANTS = ("own_own", "own_other", "other_own", "other_other")

_FOREIGN = ("other_clip", "other_voice", "still_face", "moving_face")  # roles heard with somebody else's voice


@dataclass(frozen=True)
class ClipFacts:
    """What planning needs to know of a source clip.

    Attributes:
        clip_id: names it.
        corpus: where it comes from.
        talker: who is seen; talkers never change their split.
        split: train, val or test.
        num_frames: its length ``T``.
        speech_start: its first speaking frame, or None for a face that moves but never speaks.
        has_still: whether it has a stretch without speech that can be played to any length.
    """

    clip_id: str
    corpus: str
    talker: str
    split: str
    num_frames: int
    speech_start: int | None
    has_still: bool

    @property
    def speaks(self) -> bool:
        """Whether it is ever heard."""
        return self.speech_start is not None


@dataclass(frozen=True)
class Recipe:
    """One scene, with everything that was drawn for it.

    Attributes:
        scene_id: names it.
        split: train, val or test.
        role: ``own_sound``, ``own_noisy``, ``other_clip``, ``other_voice``, ``still_face``, ``moving_face`` (of a clip
            that never speaks), ``shifted``, ``silence``, ``two_faces`` or ``overlap`` (two moving faces, two voices).
        variant: of ``two_faces``: who is heard and what the other does; of ``overlap``: whether each voice is its
            face's ``own`` or an ``other`` (``own_other`` ...); of ``silence``: ``digital`` or ``room``.
        faces: clip ids of the faces seen, one or two.
        sound: clip id or voice file whose sound replaces the face's own; empty where the face's own counts.
        voices: of ``overlap``: the clip ids of both voices.
        interferer: voice or noise file mixed in; empty where none is.
        snr_db: of the sound over the interferer; of two faces: of the first voice over the second.
        shift_s: by which the own sound is turned, in seconds; positive: later. It is turned in a circle: in a clip of
            ``L`` seconds the part that came round is off by ``shift_s - L`` (``shift_s + L`` for a negative shift).
        seed: for where in a file the sound starts.
    """

    scene_id: str
    split: str
    role: str
    variant: str
    faces: tuple[str, ...]
    sound: str = ""
    interferer: str = ""
    snr_db: float = 0.0
    shift_s: float = 0.0
    seed: int = 0
    voices: tuple[str, ...] = ()


def split_names(names: Sequence[str]) -> dict[str, list[str]]:
    """Shares out names (speakers, noise files) over the splits, 70/15/15: none is in two, none empty from three on.

    Names are put in the order of their hash, so the shares do not depend on how the files are listed.

    Args:
        names: distinct names.

    Returns:
        The sorted names of each split.
    """
    ordered = sorted(set(names), key=lambda name: hashlib.sha1(name.encode()).hexdigest())
    shares: dict[str, list[str]] = {}
    for split, share in reversed(SPLIT_SHARES):
        count = (
            len(ordered) if split == "train" else max(round(share * len(set(names))), 1 if len(set(names)) >= 3 else 0)
        )
        shares[split], ordered = sorted(ordered[:count]), ordered[count:]
    return shares


def plan_scenes(
    clips: Sequence[ClipFacts],
    voices: Mapping[str, Sequence[str]],
    noises: Mapping[str, Sequence[str]],
    seed: int,
    overlaps: int = 0,
) -> list[Recipe]:
    """Draws the scenes of all source clips.

    Args:
        clips: the source clips of all splits.
        voices: for each split the voice files without a picture; at least one for every split in use.
        noises: for each split the noise files; may be empty.
        seed: of all draws. The scenes of a clip depend on its id, the seed and its split only.
        overlaps: rounds of four scenes of two voices at once for each set; in one both faces are heard, in two one of
            them is, in one neither.

    Returns:
        The recipes, in the order of the clips.
    """
    by_split: dict[str, list[ClipFacts]] = defaultdict(list)
    for clip in sorted(clips, key=lambda clip: clip.clip_id):
        by_split[clip.split].append(clip)
    recipes = []
    for split, members in by_split.items():
        planner = _Planner(members, voices.get(split, []), noises.get(split, []))
        for clip in members:
            count = sum(other.talker == clip.talker for other in members)
            sets = int(np.clip(round(SETS_PER_TALKER / count), 1, MAX_SETS_PER_CLIP))
            digest = hashlib.sha1(clip.clip_id.encode()).digest()
            rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
            for number in range(sets):
                recipes += planner.scenes_of(clip, number, rng)
            rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "little"), 1])
            for number in range(sets * overlaps):
                recipes += planner.overlaps(clip, number, rng)
    return recipes


class _Planner:
    """Draws scenes from the clips, voices and noises of one split."""

    def __init__(self, clips: Sequence[ClipFacts], voices: Sequence[str], noises: Sequence[str]) -> None:
        self.talking = [clip for clip in clips if clip.speaks]
        self.voices, self.noises = voices, noises

    def scenes_of(self, clip: ClipFacts, number: int, rng: np.random.Generator) -> list[Recipe]:
        """One set of scenes of one clip."""
        roles = ["own_sound", "own_noisy", "other_clip", "other_voice", "shifted"]
        roles += ["own_sound" if rng.random() < 0.5 else "own_noisy"]  # as often clean as the unheard faces are
        roles += ["silence"] if rng.random() < 0.6 else []
        roles += ["still_face"] if clip.has_still else []
        roles += ["two_faces"]
        if not clip.speaks:
            roles = ["moving_face", "moving_face"]
        recipes = [self._scene(role, clip, f"{number}-{index}", rng) for index, role in enumerate(roles)]
        return [recipe for recipe in recipes if recipe is not None]

    def _scene(self, role: str, clip: ClipFacts, number: str, rng: np.random.Generator) -> Recipe | None:
        scene_id = f"{role}-{clip.clip_id}-{number}"
        if role == "two_faces":
            return self._two_faces(scene_id, clip, rng)
        sound, variant, shift_s = "", "", 0.0
        if role == "other_clip":
            sound = self._other_clip(clip, rng)
        elif role == "other_voice":
            sound = _choose(self.voices, rng)
        elif role in ("still_face", "moving_face"):
            sound = self._other_clip(clip, rng) if rng.random() < 0.5 else _choose(self.voices, rng)
        elif role == "shifted":
            shift_s = _shift_s(clip, rng)
        elif role == "silence":
            variant = "digital" if rng.random() < 0.4 else "room"
        if (role in _FOREIGN and not sound) or (role == "shifted" and shift_s == 0.0):
            return None
        interferer, snr_db = "", 0.0
        mixed = role == "own_noisy" or (role in (*_FOREIGN, "shifted") and rng.random() < 0.5)
        if mixed:
            interferer = self._interferer(sound, rng)
            snr_db = round(float(rng.uniform(*SNR_RANGE_DB)), 2)
        elif variant == "room" and self.noises:
            interferer = _choose(self.noises, rng)
        seed = int(rng.integers(2**31))
        return Recipe(scene_id, clip.split, role, variant, (clip.clip_id,), sound, interferer, snr_db, shift_s, seed)

    def _two_faces(self, scene_id: str, clip: ClipFacts, rng: np.random.Generator) -> Recipe | None:
        """Two people side by side: both heard, or one heard while the other keeps still or moves to unheard speech."""
        pair = self._pair(clip, rng)
        if pair is None:
            return None
        variant = "both"
        if rng.random() < 0.6:
            heard = int(rng.integers(2))
            still = pair[1 - heard].has_still and rng.random() < 0.5
            variant = f"{('left', 'right')[heard]}_heard_other_{'still' if still else 'moves'}"
        level_db = round(float(rng.uniform(*LEVEL_RANGE_DB)), 2)
        seed = int(rng.integers(2**31))
        faces = (pair[0].clip_id, pair[1].clip_id)
        return Recipe(scene_id, clip.split, "two_faces", variant, faces, snr_db=level_db, seed=seed)

    def overlaps(self, clip: ClipFacts, number: int, rng: np.random.Generator) -> list[Recipe]:
        """A round of two people who talk under two voices, in all variants; nothing where one cannot be had."""
        drawn = [self._overlap(clip, number, variant, rng) for variant in OVERLAP_VARIANTS]
        recipes = [recipe for recipe in drawn if recipe is not None]
        return recipes if len(recipes) == len(drawn) else []

    def _overlap(self, clip: ClipFacts, number: int, variant: str, rng: np.random.Generator) -> Recipe | None:
        """Two people talk, two voices are heard: of each face its own, or what somebody says in another clip."""
        pair = self._pair(clip, rng) if clip.speaks else None
        if pair is None:
            return None
        end = min(face.num_frames for face in pair)  # where the scene is cut
        voices: list[str] = []
        for face, kind in zip(pair, variant.split("_"), strict=True):
            unlike = {*(each.clip_id for each in pair), *voices}
            voices.append(face.clip_id if kind == "own" else self._other_clip(face, rng, unlike, end))
        if not all(voices):
            return None
        level_db = round(float(rng.uniform(*LEVEL_RANGE_DB)), 2)
        scene_id, seed = f"overlap-{clip.clip_id}-{number}-{variant}", int(rng.integers(2**31))
        faces = (pair[0].clip_id, pair[1].clip_id)
        return Recipe(scene_id, clip.split, "overlap", variant, faces, snr_db=level_db, seed=seed, voices=tuple(voices))

    def _pair(self, clip: ClipFacts, rng: np.random.Generator) -> tuple[ClipFacts, ClipFacts] | None:
        """A clip and one of another talker, in any order; None where nobody else talks in time."""
        partners = [other for other in self.talking if other.talker != clip.talker and _both_are_heard(clip, other)]
        if not partners:
            return None
        talker = _choose(sorted({other.talker for other in partners}), rng)
        partner = _choose([other for other in partners if other.talker == talker], rng)
        return (clip, partner) if rng.random() < 0.5 else (partner, clip)

    def _other_clip(
        self, clip: ClipFacts, rng: np.random.Generator, unlike: Collection[str] = (), end: int | None = None
    ) -> str:
        """Another clip's sound: of the same talker where there is one, else of the corpus, else of anybody.

        With ``end`` only a clip whose speech begins well before that frame.
        """
        others = [
            other
            for other in self.talking
            if other.clip_id != clip.clip_id
            and other.clip_id not in unlike
            and (end is None or _is_heard_before(other, end))
        ]
        same_talker = [other for other in others if other.talker == clip.talker]
        same_corpus = [other for other in others if other.corpus == clip.corpus]
        candidates = same_talker or same_corpus or others
        return _choose(candidates, rng).clip_id if candidates else ""

    def _interferer(self, sound: str, rng: np.random.Generator) -> str:
        """A voice or a noise file, but not the one that is heard already; empty where there is no other."""
        others = [voice for voice in self.voices if voice != sound]
        if self.noises and (rng.random() < 0.5 or not others):
            return _choose(self.noises, rng)
        return _choose(others, rng) if others else ""


def _shift_s(clip: ClipFacts, rng: np.random.Generator) -> float:
    """A shift to either side that is a shift both ways round the circle; 0 where the clip is too short for one."""
    length_s = clip.num_frames / VIDEO_HZ
    if length_s < 2 * MIN_SHIFT_S:
        return 0.0
    # A shift of almost the whole length would bring the sound back into step.
    largest_s = max(MIN_SHIFT_S, min(MAX_SHIFT_S, length_s - MIN_SHIFT_S))
    return round(float(rng.uniform(MIN_SHIFT_S, largest_s) * rng.choice([-1, 1])), 3)


def _both_are_heard(first: ClipFacts, second: ClipFacts) -> bool:
    """Whether both begin to speak well before the shorter one ends, where a scene of the two is cut."""
    end = min(first.num_frames, second.num_frames)
    return _is_heard_before(first, end) and _is_heard_before(second, end)


def _is_heard_before(clip: ClipFacts, end: int) -> bool:
    """Whether a clip's speech begins well before a frame."""
    return clip.speech_start is not None and clip.speech_start + MIN_HEARD_FRAMES < end


def _choose(options: Sequence[_T], rng: np.random.Generator) -> _T:
    return options[int(rng.integers(len(options)))]
