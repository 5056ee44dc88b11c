"""A few fixed clips that are looked at again and again while a model learns, and what its heads do on them in numbers.

``H`` heads, ``T`` video frames. The clips are chosen from the tracks alone, so every epoch, every resumed run and every
run on the same dataset looks at the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from avfusion.alignment.capture import pick_examples
from avfusion.alignment.pictures.clip import ClipAlignment
from avfusion.alignment.reach import KeyReach
from avfusion.alignment.statistics import alignment_statistics, median_over
from avfusion.tracks import FaceTrack

NUM_PROBES = 3


def pick_probes(tracks: Sequence[FaceTrack], count: int = NUM_PROBES) -> list[int]:
    """Chooses clips that show a head at work: one face that speaks and pauses, one that is silent, then other roles.

    Only labelled tracks of at least a second are taken; each next clip has another role where there is one.

    Returns:
        Indices into the tracks, ``count`` of them or as many as there are.
    """
    labelled = [index for index, track in enumerate(tracks) if track.labelled]
    candidates = [labelled[i] for i in pick_examples([tracks[i] for i in labelled], count)]
    chosen: list[int] = []
    while len(chosen) < count and (left := [i for i in candidates if i not in chosen]):
        roles = {tracks[i].role for i in chosen}
        silent = len(chosen) == 1  # the second one
        # False sorts first. The sort is stable: what is equal stays in the order of roles and tracks.
        chosen.append(
            min(
                left,
                key=lambda i: (
                    bool(tracks[i].speaking.any()) == silent,
                    tracks[i].role in roles,
                    not 0.2 < tracks[i].speaking.mean() < 0.8,
                ),
            )
        )
    return chosen


def probe_numbers(clips: Sequence[ClipAlignment], reach: KeyReach, *, null_key: bool = True) -> dict[str, float]:
    """What each head of the layer does, over the frames of all clips together.

    Args:
        clips: alignments of one model.
        reach: of the model, with which the entropy is compared.
        null_key: the model has one; without one there are no null masses.

    Returns:
        For head ``k`` from 1: ``head<k>_lag_ms``, ``_width_ms`` and ``_entropy``, medians over the speaking frames that
        hear something; ``_null_mass`` and ``_null_mass_silent``, means over the speaking and the other frames. What has
        no frame is left out.
    """
    if not clips:
        return {}
    described = [alignment_statistics(clip.weights, reach=reach) for clip in clips]
    speaking = np.concatenate([clip.speaking for clip in clips])
    null_mass = np.concatenate([one.null_mass for one in described], axis=1)
    found = {
        name: median_over(np.concatenate([getattr(one, name) for one in described], axis=1), speaking)
        for name in ("lag_ms", "width_ms", "entropy")
    }
    for name, frames in (("null_mass", speaking), ("null_mass_silent", ~speaking)) if null_key else ():
        found[name] = null_mass[:, frames].mean(axis=1) if frames.any() else np.full(len(null_mass), np.nan)
    return {
        f"head{head + 1}_{name}": float(values[head])
        for head in range(len(null_mass))
        for name, values in found.items()
        if np.isfinite(values[head])
    }
