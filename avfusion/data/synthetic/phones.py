"""The phones a synthetic talker is made of: acoustic targets for ``voice``, lip targets for ``mouth``.

A stop is two phones: its closure (``p``) and its release (``p+``), whose start is the acoustic onset of the burst.
Formants are textbook averages of adult speakers (Peterson and Barney, 1952), rounded; a voice scales them.

How firmly a phone insists on a target is its *hold*: neighbors blend in proportion to their holds, so the lips of ``t``
are those of the vowel beside it and ``w`` rounds everything near.
Source of that idea: M. Cohen and D. Massaro, "Modeling coarticulation in synthetic visual speech" (1993).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Phone(NamedTuple):
    """Sound and mouth targets of a phone.

    Attributes:
        f1_hz, f2_hz, f3_hz: formants of a vocal tract of scale 1.
        tract_hold: how firmly the phone holds its formants; velar stops take those of the vowel beside them.
        voice: strength of the glottal pulses, 0..1.3; open vowels sound louder than close ones at the same strength.
        murmur: 0..1, sound leaves through the nose or the closed mouth: one low resonance, little above it.
        noise: strength of friction noise, of a burst in a release, 0..1.
        noise_hz: center of that noise.
        noise_width_hz: its standard deviation in frequency.
        aspiration: strength of noise from the glottis, heard through the formants.
        opening: height between the lips, 1 = wide open.
        ceiling: the lips are never further apart than this while the phone lasts; 0 shuts them, above 1 means free.
        opening_hold: how firmly the phone holds its opening.
        width: 0 = round, 1 = spread.
        rounding: 0..1, lips pushed forward.
        teeth: 0..1, how much of the upper teeth shows.
        shape_hold: how firmly it holds width, rounding and teeth.
    """

    f1_hz: float
    f2_hz: float
    f3_hz: float
    tract_hold: float
    voice: float
    murmur: float
    noise: float
    noise_hz: float
    noise_width_hz: float
    aspiration: float
    opening: float
    ceiling: float
    opening_hold: float
    width: float
    rounding: float
    teeth: float
    shape_hold: float


# fmt: off
PHONES: dict[str, Phone] = {
    #              F1    F2    F3 hold  voice mur noise  Hz width  asp   open ceil hold width round teeth hold
    "rest": Phone(500, 1500, 2500, .05, 0.0,  0, 0.0, 2000, 1000, 0.0, 0.00, 2.0, 0.9, 0.50, 0.0, 0.1, 0.4),
    # vowels
    "a":  Phone(750, 1200, 2500, 1.0, 0.85,  0, 0.0, 2000, 1000, 0.0, 1.00, 2.0, 1.0, 0.55, 0.0, 0.4, 0.7),
    "e":  Phone(540, 1850, 2500, 1.0, 0.9,  0, 0.0, 2000, 1000, 0.0, 0.62, 2.0, 1.0, 0.80, 0.0, 0.6, 0.9),
    "i":  Phone(290, 2250, 3000, 1.0, 1.3,  0, 0.0, 2000, 1000, 0.0, 0.35, 2.0, 1.0, 1.05, 0.0, 0.8, 1.1),
    "o":  Phone(460,  850, 2450, 1.0, 0.85, 0, 0.0, 2000, 1000, 0.0, 0.60, 2.0, 1.0, 0.12, 0.7, 0.0, 1.2),
    "u":  Phone(310,  750, 2300, 1.0, 1.15,  0, 0.0, 2000, 1000, 0.0, 0.30, 2.0, 1.2, 0.00, 1.0, 0.0, 1.4),
    "@":  Phone(560, 1450, 2450, 0.7, 0.8,  0, 0.0, 2000, 1000, 0.0, 0.50, 2.0, 0.7, 0.50, 0.0, 0.3, 0.3),
    # stops: a closure, then its release
    "p":  Phone(250,  800, 2200, 0.8, 0.0,  1, 0.0,  900,  900, 0.0, -.10, 0.0, 2.0, 0.45, 0.1, 0.1, 0.1),
    "p+": Phone(400,  900, 2300, 0.5, 0.0,  0, 0.5,  900,  900, 0.3, 0.30, 2.0, 0.1, 0.45, 0.1, 0.1, 0.05),
    "b":  Phone(220,  800, 2200, 0.8, 0.3,  1, 0.0,  900,  900, 0.0, -.10, 0.0, 2.0, 0.45, 0.1, 0.1, 0.1),
    "b+": Phone(350,  900, 2300, 0.5, 0.5,  0, 0.3,  900,  900, 0.0, 0.30, 2.0, 0.1, 0.45, 0.1, 0.1, 0.05),
    "t":  Phone(250, 1750, 2600, 0.9, 0.0,  1, 0.0, 4200, 1200, 0.0, 0.10, .40, 0.4, 0.65, 0.0, 0.6, 0.15),
    "t+": Phone(400, 1750, 2600, 0.6, 0.0,  0, 0.6, 4200, 1200, 0.3, 0.25, .50, 0.2, 0.65, 0.0, 0.6, 0.1),
    "d":  Phone(220, 1750, 2600, 0.9, 0.3,  1, 0.0, 4000, 1200, 0.0, 0.10, .40, 0.4, 0.65, 0.0, 0.6, 0.15),
    "d+": Phone(350, 1750, 2600, 0.6, 0.5,  0, 0.4, 4000, 1200, 0.0, 0.25, .50, 0.2, 0.65, 0.0, 0.6, 0.1),
    "k":  Phone(250, 1900, 2300, .03, 0.0,  1, 0.0, 2200,  500, 0.0, 0.30, 2.0, 0.2, 0.50, 0.0, 0.3, 0.05),
    "k+": Phone(400, 1900, 2300, .01, 0.0,  0, 0.6, 2200,  500, 0.3, 0.30, 2.0, 0.1, 0.50, 0.0, 0.3, 0.05),
    "g":  Phone(220, 1900, 2300, .03, 0.3,  1, 0.0, 2000,  500, 0.0, 0.30, 2.0, 0.2, 0.50, 0.0, 0.3, 0.05),
    "g+": Phone(350, 1900, 2300, .01, 0.5,  0, 0.4, 2000,  500, 0.0, 0.30, 2.0, 0.1, 0.50, 0.0, 0.3, 0.05),
    # nasals
    "m":  Phone(260, 1000, 2200, 0.8, 0.6,  1, 0.0, 1000,  500, 0.0, -.10, 0.0, 2.0, 0.50, 0.0, 0.1, 0.1),
    "n":  Phone(260, 1600, 2500, 0.9, 0.6,  1, 0.0, 1000,  500, 0.0, 0.15, .45, 0.4, 0.60, 0.0, 0.5, 0.15),
    # glides and liquids
    "l":  Phone(360, 1200, 2700, 1.0, 0.55, 0, 0.0, 1000,  500, 0.0, 0.30, .60, 0.4, 0.55, 0.0, 0.4, 0.15),
    "r":  Phone(330, 1100, 1600, 1.0, 0.5,  0, 0.0, 1000,  500, 0.0, 0.25, .50, 0.6, 0.30, 0.4, 0.3, 0.6),
    "w":  Phone(300,  650, 2200, 1.2, 0.5,  0, 0.0, 1000,  500, 0.0, 0.10, .22, 1.5, -.10, 1.0, 0.0, 1.8),
    "j":  Phone(280, 2250, 3000, 1.2, 0.5,  0, 0.0, 3000,  800, 0.0, 0.25, .45, 0.8, 0.90, 0.0, 0.7, 0.7),
    # fricatives
    "f":  Phone(350, 1100, 2300, 0.7, 0.0,  0, .16, 5000, 2500, 0.0, 0.06, .12, 1.5, 0.55, 0.0, 1.0, 0.9),
    "v":  Phone(300, 1100, 2300, 0.7, 0.4,  0, .07, 5000, 2500, 0.0, 0.06, .12, 1.5, 0.55, 0.0, 1.0, 0.9),
    "s":  Phone(350, 1700, 2600, 0.9, 0.0,  0, .32, 6000,  900, 0.0, 0.12, .24, 0.9, 0.75, 0.0, 1.0, 0.5),
    "z":  Phone(300, 1700, 2600, 0.9, 0.4,  0, .16, 6000,  900, 0.0, 0.12, .24, 0.9, 0.75, 0.0, 1.0, 0.5),
    "S":  Phone(350, 1700, 2500, 0.9, 0.0,  0, .36, 3200,  800, 0.0, 0.20, .32, 0.9, 0.10, 0.8, 0.8, 1.2),
    "h":  Phone(500, 1500, 2500, .01, 0.0,  0, 0.0, 2000, 1000, 0.5, 0.50, 2.0, .05, 0.50, 0.0, 0.3, 0.05),
}
# fmt: on

PHONE_NAMES = tuple(PHONES)
PHONE_TARGETS: NDArray[np.float64] = np.array(list(PHONES.values()), dtype=np.float64)  # (phones, fields of Phone)
PHONE_NUMBER = {name: number for number, name in enumerate(PHONE_NAMES)}
COLUMN = {field: column for column, field in enumerate(Phone._fields)}
"""Where a field of :class:`Phone` stands in :data:`PHONE_TARGETS` and in control tracks."""
