"""The sound of a synthetic talker: source and filter, 16 kHz mono, from a script with exact times.

Glottal pulses and aspiration go through the formants of their own instant (``vocal_tract``). Friction is made of grains
of noise with the phone's spectrum, every burst is placed on the sample of its release. An :class:`Utterance` holds the
plan, so that truth needs no sound.

Shapes: ``G`` control steps of 2 ms, ``F`` frames that start 5 ms apart, ``A`` audio frames of 10 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import AUDIO_HZ, SAMPLE_RATE
from avfusion.data.synthetic.phones import COLUMN, PHONES
from avfusion.data.synthetic.script import CONTROL_HZ, Script, control_times_s, control_tracks, random_script, smooth
from avfusion.data.synthetic.vocal_tract import FRAME, HOP, SPAN, TractShape, noise_bands, through_tract

Track = NDArray[np.float64]

_MARGIN_S = 0.12  # control tracks reach this far past the stretch rendered, so that no smoothing meets an edge
_BREATH_LEVEL = np.float32(0.35)  # sets aspiration off against pulses of strength one
_ENOUGH_VOICE_S = 0.6  # tells how loud an utterance is
_BURST_DECAY_S, _BURST_SAMPLES, _BURST_LEAD = 0.006, 640, 32


@dataclass(frozen=True)
class Voice:
    """One person's voice.

    Attributes:
        pitch_hz: mean fundamental frequency, 90..260.
        tract_scale: formants are multiplied by this, 0.85..1.2 (larger = shorter vocal tract).
        tilt_hz: corner of the glottal spectrum; higher sounds sharper.
        breath: level of breath noise beside the pulses.
        melody: size of the pitch movements, in octaves.
        syllable_hz: pace, 3..6 syllables per second.
        jitter: how irregular the glottal pulses are, as a share of their distance.
    """

    pitch_hz: float
    tract_scale: float
    tilt_hz: float
    breath: float
    melody: float
    syllable_hz: float
    jitter: float


@dataclass(frozen=True)
class Utterance:
    """Something said by a voice, planned but not rendered.

    Attributes:
        script: what is said, and when.
        voice: who says it.
        start_s: where the utterance starts on the script's clock.
        end_s: where it ends.
        pitch_hz: ``(G,)`` fundamental frequency every 2 ms from ``start_s`` on, through pauses as well.
        sound: ``(n,)`` sound from ``start_s`` on if it comes from elsewhere, None to make it here.
    """

    script: Script
    voice: Voice
    start_s: float
    end_s: float
    pitch_hz: Track
    sound: NDArray[np.float32] | None = None


def random_voice(rng: np.random.Generator) -> Voice:
    """Draws a voice; high voices tend to have short vocal tracts."""
    height = rng.random()
    return Voice(
        pitch_hz=90.0 * (260.0 / 90.0) ** height,
        tract_scale=float(np.clip(0.87 + 0.26 * height + rng.normal(0.0, 0.04), 0.85, 1.2)),
        tilt_hz=rng.uniform(120.0, 400.0),
        breath=rng.uniform(0.01, 0.05),
        melody=rng.uniform(0.08, 0.22),
        syllable_hz=rng.uniform(3.0, 6.0),
        jitter=rng.uniform(0.003, 0.012),
    )


def make_utterance(
    rng: np.random.Generator, voice: Voice, start_s: float, end_s: float, phrases_s: Track | None = None
) -> Utterance:
    """Makes up what a voice says and how its pitch moves.

    Args:
        rng: source of all chance.
        voice: who speaks.
        start_s: start of the utterance, seconds.
        end_s: its end.
        phrases_s: ``(P, 2)`` speak in exactly these stretches, instead of drawing some.
    """
    script = random_script(rng, start_s, end_s, voice.syllable_hz, phrases_s)
    return Utterance(script, voice, start_s, end_s, _pitch_contour_hz(rng, script, voice, start_s, end_s))


def _pitch_contour_hz(rng: np.random.Generator, script: Script, voice: Voice, start_s: float, end_s: float) -> Track:
    """``(G,)`` pitch: falls along each phrase (one in five rises at its end), accents on syllables, a slow wander."""
    times_s = control_times_s(start_s, end_s)
    octaves = np.zeros(len(times_s))
    for phrase_start_s, phrase_end_s in script.phrases_s:
        inside = slice(*np.searchsorted(times_s, (phrase_start_s, phrase_end_s)))
        octaves[inside] += voice.melody * (0.5 - (times_s[inside] - phrase_start_s) / (phrase_end_s - phrase_start_s))
        if rng.random() < 0.2:
            octaves[inside] += 2 * voice.melody * np.clip((times_s[inside] - phrase_end_s) / 0.3 + 1, 0.0, 1.0)
    if len(script.syllables_s):
        accents = rng.uniform(-0.2, 1.0, len(script.syllables_s)) * voice.melody
        syllable = np.searchsorted(script.syllables_s[:, 0], times_s, side="right") - 1
        octaves += accents[np.maximum(syllable, 0)] - 0.4 * voice.melody  # accents raise the pitch by that on average
    octaves = smooth(octaves[:, None], 0.08)[:, 0]
    wander = np.sin(2 * np.pi * (rng.uniform(0.5, 3.0, 2) * times_s[:, None] + rng.random(2))).sum(axis=1)
    contour: Track = voice.pitch_hz * 2.0 ** (octaves + 0.01 * wander)
    return contour


def pitch_track(utterance: Utterance, num_frames: int, at_s: float = 0.0) -> Track:
    """Fundamental frequency as spoken.

    Args:
        utterance: what is said.
        num_frames: frames of 10 ms wanted.
        at_s: time of the first of them on the utterance's clock.

    Returns:
        ``(A,)`` in Hz, 0 where the phone is not voiced.
    """
    times_s = at_s + np.arange(num_frames) / AUDIO_HZ
    control_s = utterance.start_s + np.arange(len(utterance.pitch_hz)) / CONTROL_HZ
    script = utterance.script
    voiced = script.targets()[:, COLUMN["voice"]][script.segments_at(times_s)] > 0
    return np.where(voiced, np.interp(times_s, control_s, utterance.pitch_hz), 0.0)


@dataclass(frozen=True)
class _Controls:
    """Smoothed control tracks, each ``(G,)`` unless noted."""

    times_s: Track
    formants_hz: Track  # (G, 3)
    voicing: Track
    murmur: Track
    aspiration: Track
    friction: Track
    friction_hz: Track
    friction_width_hz: Track


def _fade(script: Script, times_s: Track) -> Track:
    """``(G,)`` gain of the voice: it sets in over 20 ms and dies away over the last 70 ms of each phrase."""
    gain = np.zeros(len(times_s))
    for start_s, end_s in script.phrases_s:
        inside = slice(*np.searchsorted(times_s, (start_s, end_s)))
        gain[inside] = np.clip(np.minimum((times_s[inside] - start_s) / 0.02, (end_s - times_s[inside]) / 0.07), 0, 1)
    return gain


def _controls(script: Script, start_s: float, end_s: float) -> _Controls:
    times_s, targets = control_tracks(script, start_s, end_s)
    bursting = np.array([phone.endswith("+") for phone in script.phones])[script.segments_at(times_s)]
    outside = (times_s < script.edges_s[0]) | (times_s >= script.edges_s[-1])
    stress = targets[:, -1] * _fade(script, times_s)
    fast = np.column_stack([targets[:, COLUMN["voice"]] * stress, targets[:, COLUMN["aspiration"]] * stress])
    voicing, aspiration = smooth(fast, 0.014).T
    friction = np.where(bursting | outside, 0.0, targets[:, COLUMN["noise"]])  # bursts are placed one by one
    return _Controls(
        times_s=times_s,
        formants_hz=smooth(targets[:, 0:3], 0.06, targets[:, COLUMN["tract_hold"]]),
        voicing=voicing,
        murmur=smooth(targets[:, [COLUMN["murmur"]]], 0.02)[:, 0],
        aspiration=aspiration,
        friction=smooth(friction[:, None], 0.01)[:, 0],
        friction_hz=targets[:, COLUMN["noise_hz"]],
        friction_width_hz=targets[:, COLUMN["noise_width_hz"]],
    )


def _pulses(
    rng: np.random.Generator, utterance: Utterance, controls: _Controls, first_s: float, num_samples: int
) -> NDArray[np.float32]:
    """``(num_samples,)`` glottal pulses from ``first_s`` on, each as strong as the voicing at its instant."""
    control_s = utterance.start_s + np.arange(len(utterance.pitch_hz)) / CONTROL_HZ
    cycles = np.cumsum(utterance.pitch_hz) / CONTROL_HZ
    low, high = np.interp([first_s, first_s + num_samples / SAMPLE_RATE], control_s, cycles)
    numbers = np.arange(np.ceil(low), np.ceil(high))
    pulse_s = np.interp(numbers, cycles, control_s)
    pulse_s += rng.normal(0.0, utterance.voice.jitter, len(numbers)) / np.interp(pulse_s, control_s, utterance.pitch_hz)
    strength = np.interp(pulse_s, controls.times_s, controls.voicing) * rng.normal(1.0, 0.03, len(numbers))  # shimmer
    place = (pulse_s - first_s) * SAMPLE_RATE
    left = np.floor(place).astype(np.intp)
    kept = (left >= 0) & (left < num_samples - 1) & (strength > 1e-3)
    left, place, strength = left[kept], place[kept], strength[kept]
    train = np.bincount(left, strength * (left + 1 - place), num_samples)
    train += np.bincount(left + 1, strength * (place - left), num_samples)
    return train.astype(np.float32)


def _glottis(
    rng: np.random.Generator, utterance: Utterance, controls: _Controls, first_s: float, num_samples: int
) -> NDArray[np.float32]:
    """``(num_samples,)`` pulses, breath and aspiration from ``first_s`` on."""
    voice = utterance.voice
    pulses = _pulses(rng, utterance, controls, first_s, num_samples)
    sample_s = first_s + np.arange(num_samples) / SAMPLE_RATE
    level = np.interp(sample_s, controls.times_s, voice.breath * controls.voicing + controls.aspiration)
    white = rng.standard_normal(num_samples + 2, dtype=np.float32)
    corner = np.float32(np.exp(-2 * np.pi * voice.tilt_hz / SAMPLE_RATE))
    breath = white[2:] - 2 * corner * white[1:-1] + corner**2 * white[:-2]  # undoes the tilt, which is for pulses only
    excitation: NDArray[np.float32] = pulses + _BREATH_LEVEL * level.astype(np.float32) * breath
    return excitation


def _tract_shape(controls: _Controls, voice: Voice, center_s: Track) -> TractShape:
    """The tract at the centers of the frames."""
    tracks = (*controls.formants_hz.T, controls.murmur, controls.aspiration)
    first, second, third, murmur, open_glottis = (np.interp(center_s, controls.times_s, track) for track in tracks)
    formants_hz = voice.tract_scale * np.stack([first, second, third], axis=1)
    return TractShape(formants_hz, murmur, open_glottis, voice.tilt_hz, voice.tract_scale)


def _friction(rng: np.random.Generator, controls: _Controls, first_s: float, num_hops: int) -> NDArray[np.float32]:
    """``(80 num_hops,)`` samples of hiss, its rms the friction track."""
    center_s = first_s + np.arange(num_hops + 1) * HOP / SAMPLE_RATE
    strength = np.interp(center_s, controls.times_s, controls.friction)
    active = np.flatnonzero(strength > 0)
    center_hz, width_hz = (
        np.interp(center_s[active], controls.times_s, track)
        for track in (controls.friction_hz, controls.friction_width_hz)
    )
    spectra = np.fft.rfft(rng.standard_normal((len(active), FRAME), dtype=np.float32), axis=1)
    shape = np.sin(np.pi * (np.arange(FRAME) + 0.5) / FRAME)  # squared windows add up to one
    grains = np.zeros((num_hops + 1, FRAME), dtype=np.float32)
    grains[active] = np.fft.irfft(spectra * noise_bands(FRAME, center_hz, width_hz), FRAME, axis=1)
    grains *= (strength[:, None] * shape).astype(np.float32)
    return (grains[1:, :HOP] + grains[:-1, HOP:]).reshape(-1)


def _add_bursts(
    rng: np.random.Generator, sound: NDArray[np.float32], script: Script, first_s: float, velar_hz: Track
) -> None:
    """Adds the burst of every release to a sound that starts at ``first_s``, sharp to the sample, in place.

    Args:
        rng: source of the noise.
        sound: ``(n,)``, changed.
        script: gives the releases.
        first_s: time of the first sample.
        velar_hz: ``(B,)`` second formant at each release: the burst of ``k`` and ``g`` sounds in the vowel's cavity.
    """
    names, times_s = script.bursts()
    phones = [PHONES[f"{name}+"] for name in names]
    center_hz = np.array([phone.noise_hz for phone in phones])
    center_hz = np.where([name in ("k", "g") for name in names], 1.1 * velar_hz, center_hz)
    width_hz = np.array([phone.noise_width_hz for phone in phones])
    level = np.array([phone.noise for phone in phones])
    time_s = (np.arange(_BURST_SAMPLES) - _BURST_LEAD) / SAMPLE_RATE
    decay = np.where(time_s >= 0, np.exp(-np.maximum(time_s, 0.0) / _BURST_DECAY_S), 0.0)
    noise = rng.standard_normal((len(names), _BURST_SAMPLES), dtype=np.float32) * decay.astype(np.float32)
    bursts = np.fft.irfft(np.fft.rfft(noise, axis=1) * noise_bands(_BURST_SAMPLES, center_hz, width_hz), axis=1)
    starts = np.round((times_s - first_s) * SAMPLE_RATE).astype(int) - _BURST_LEAD
    for burst, start, strength in zip(bursts, starts.tolist(), level.tolist(), strict=True):
        low, high = max(0, -start), min(_BURST_SAMPLES, len(sound) - start)
        if low < high:
            sound[start + low : start + high] += (strength * burst[low:high]).astype(np.float32)


def _voiced_rms(sound: NDArray[np.float32], utterance: Utterance, at_s: float) -> float:
    """Root mean square of a stretch of an utterance over its vowels and other well voiced phones.

    A stretch with little of them, such as the tail of a phrase, may be much softer than the utterance is: the strengths
    of the phones then say by how much, and what the whole would measure is returned.

    Args:
        sound: ``(n,)`` from ``at_s`` on.
        utterance: the whole.
        at_s: where the stretch starts.

    Returns:
        1 if the stretch holds no such phone.
    """
    script = utterance.script
    strength = script.targets()[:, COLUMN["voice"]] * script.stress
    strong = np.flatnonzero(strength > 0.3)
    edges = np.round((script.edges_s - at_s) * SAMPLE_RATE).astype(int).clip(0, len(sound)).tolist()
    parts = [sound[edges[number] : edges[number + 1]] for number in strong]
    heard = np.array([len(part) for part in parts], dtype=np.float64)
    total = sum(float(np.dot(part, part)) for part in parts)
    if total <= 0:
        return 1.0
    if heard.sum() >= _ENOUGH_VOICE_S * SAMPLE_RATE:
        return float(np.sqrt(total / heard.sum()))
    power, lasting_s = strength[strong] ** 2, np.diff(script.edges_s)[strong]
    louder = np.average(power, weights=heard) / np.average(power, weights=lasting_s)
    return float(np.sqrt(total / heard.sum() / louder))


def render_utterance(
    rng: np.random.Generator, utterance: Utterance, num_samples: int, at_s: float = 0.0
) -> NDArray[np.float32]:
    """Speaks an utterance.

    Args:
        rng: source of breath, friction, jitter and shimmer.
        utterance: what is said and by whom.
        num_samples: length wanted.
        at_s: time of the first sample on the utterance's clock.

    Returns:
        ``(num_samples,)`` float32 with unit rms over the voiced phones; zeros in pauses and outside the utterance.
    """
    if utterance.sound is not None:
        sound, skip = np.zeros(num_samples, dtype=np.float32), round((at_s - utterance.start_s) * SAMPLE_RATE)
        low, high = max(0, -skip), min(num_samples, len(utterance.sound) - skip)
        if low < high:
            sound[low:high] = utterance.sound[low + skip : high + skip]
        return sound / np.float32(_voiced_rms(sound, utterance, at_s))

    lead = SPAN // HOP + 1  # hops before the stretch that still ring into it
    num_hops = lead + -(-num_samples // HOP) + 1
    first_s = at_s - lead * HOP / SAMPLE_RATE
    script = utterance.script
    controls = _controls(script, first_s - _MARGIN_S, first_s + num_hops * HOP / SAMPLE_RATE + _MARGIN_S)
    shape = _tract_shape(controls, utterance.voice, first_s + np.arange(1, num_hops) * HOP / SAMPLE_RATE)
    stretch = slice(lead * HOP, lead * HOP + num_samples)
    sound = through_tract(_glottis(rng, utterance, controls, first_s, num_hops * HOP), shape)[stretch]
    sound /= np.float32(_voiced_rms(sound, utterance, at_s))
    sound += _friction(rng, controls, first_s, num_hops)[stretch]
    second_formant_hz = np.interp(script.bursts()[1], controls.times_s, controls.formants_hz[:, 1])
    _add_bursts(rng, sound, script, at_s, utterance.voice.tract_scale * second_formant_hz)
    return sound
