"""Draws the synthetic talkers: a contact sheet of faces, and one scene with everything that is known about it.

    python -m data_prep.draw_talkers docs

writes ``docs/synthetic_faces.png`` and ``docs/synthetic_scene.png``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from avfusion.clock import AUDIO_HZ, SAMPLE_RATE, VIDEO_HZ
from avfusion.data.clips import Clip
from avfusion.data.synthetic import ROLES, SyntheticDataset, VoiceTruth
from avfusion.data.synthetic.truth import FaceTruth, SceneTruth
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.tracks import runs_of_true

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CROP_SIZE = 112
SHEET_ROWS, SHEET_COLUMNS = 4, 6
SHOWN_CROPS = 8  # as many as are about square
SEEN, HEARD, BURST = "#0072B2", "#D55E00", "#009E73"  # of the Okabe-Ito palette, which the colour-blind can tell apart


def main(arguments: Sequence[str] | None = None) -> int:
    def body() -> None:
        parser = CommandParser(prog="python -m data_prep.draw_talkers", description=__doc__.split("\n\n")[0])
        parser.add_argument("out", type=Path, metavar="OUT", help="folder for the two pictures")
        parser.add_argument("--seed", type=int, default=0, help="of the people (default: 0)")
        parser.add_argument("--role", default="solo", choices=ROLES, help="of the scene that is drawn (default: solo)")
        draw(parser.parse_args(arguments))

    return run_command(body)


def draw(options: argparse.Namespace) -> None:
    dataset = SyntheticDataset("test", 60, options.seed, crop_size=CROP_SIZE)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{options.out}: cannot be made ({error.strerror}); give another folder") from error
    index = telling_track(dataset, options.role)
    for name, figure in (("faces", contact_sheet(dataset)), ("scene", scene_figure(dataset, index))):
        path = options.out / f"synthetic_{name}.png"
        figure.savefig(path, dpi=110)
        print(path)


def telling_track(dataset: SyntheticDataset, role: str) -> int:
    """The track of a role that shows most: without background where there is one, a large face, many phones."""

    def shows(index: int) -> tuple[bool, bool, int]:
        truth = dataset.truth(index)
        face = truth.faces[dataset.scene_of_track[index][1]]
        return not truth.background, face.face_px >= 64, len(face.said)

    return max((i for i, track in enumerate(dataset.tracks) if track.role == role), key=shows)


def contact_sheet(dataset: SyntheticDataset) -> Figure:
    """The first faces of a dataset, each in the middle of its scene, as cameras of 24 to 112 pixels see them."""
    figure = Figure(figsize=(9.6, 7.0), layout="constrained")
    axes = figure.subplots(SHEET_ROWS, SHEET_COLUMNS)
    for index, axis in enumerate(axes.flat):
        track, truth = dataset.tracks[index], dataset.truth(index)
        face = truth.faces[dataset.scene_of_track[index][1]]
        axis.imshow(dataset.read(index).crops[track.num_frames // 2], cmap="gray", vmin=0, vmax=255)
        axis.set_title(f"{track.role.replace('_', ' ')}, {face.face_px:.0f} px", fontsize=7.5, pad=2)
        axis.set_axis_off()
    return figure


def scene_figure(dataset: SyntheticDataset, index: int) -> Figure:
    """One track: face, mouth, sound, phones, bursts, pitch, labels, on one clock."""
    clip, truth = dataset.read(index), dataset.truth(index)
    face = truth.faces[dataset.scene_of_track[index][1]]
    figure = Figure(figsize=(12, 8.6), layout="constrained")
    axes = figure.subplots(5, 1, sharex=True, height_ratios=(1.05, 1.3, 0.8, 1.7, 1.0))
    _draw_face(axes[0], clip)
    _draw_mouth(axes[1], face)
    _draw_wave(axes[2], clip, face)
    _draw_spectrum(axes[3], clip, truth, face)
    _draw_voices(axes[4], truth)
    axes[0].set_title(_title(truth, face), fontsize=10, loc="left")
    axes[-1].set_xlim(0, len(clip.crops) / VIDEO_HZ)
    axes[-1].set_xlabel("time in s")
    return figure


def _title(truth: SceneTruth, face: FaceTruth) -> str:
    lag = "not heard" if face.lag_ms is None else f"sound {face.lag_ms:+.0f} ms after the mouth"
    if face.shift_ms is not None:
        lag = f"its own words {face.shift_ms:+.0f} ms out of step"
    background = f", over {truth.background}" if truth.background else ""
    if truth.background and truth.voices:
        background += f" (voice {truth.snr_db:+.0f} dB)"
    return (
        f"{truth.video_id}: {truth.role.replace('_', ' ')}, mouth: {face.motion.replace('_', ' ')}, {lag}{background}"
    )


def _draw_face(axis: Axes, clip: Clip) -> None:
    wide = len(clip.crops) / SHOWN_CROPS / VIDEO_HZ
    for number in range(SHOWN_CROPS):
        crop = clip.crops[int((number + 0.5) * wide * VIDEO_HZ)]  # the one in the middle of its place
        extent = (number * wide, (number + 1) * wide, 0.0, 1.0)
        axis.imshow(crop, cmap="gray", vmin=0, vmax=255, extent=extent, aspect="auto")
    axis.set_yticks([])
    axis.set_ylabel("face")


def _draw_mouth(axis: Axes, face: FaceTruth) -> None:
    times_s = np.arange(len(face.mouth_opening)) / VIDEO_HZ
    axis.plot(times_s, face.mouth_opening, color=SEEN, label="opening")
    axis.plot(times_s, face.mouth_width, color=SEEN, linestyle=":", label="width")
    for phone, (start_s, end_s) in zip(face.said, face.said_s, strict=True):
        axis.axvline(start_s, color="0.85", linewidth=0.6, zorder=0)
        if end_s - start_s > 0.03:
            axis.text((start_s + end_s) / 2, 1.28, phone, ha="center", va="center", fontsize=7, color=SEEN)
    axis.set_ylim(-0.25, 1.4)
    axis.set_ylabel("mouth\n(phones as seen)")
    axis.legend(loc="upper left", fontsize=7, bbox_to_anchor=(1.0, 1.0))


def _draw_wave(axis: Axes, clip: Clip, face: FaceTruth) -> None:
    axis.plot(np.arange(len(clip.audio)) / SAMPLE_RATE, clip.audio, color="0.35", linewidth=0.4)
    peak = float(np.abs(clip.audio).max()) * 1.1 + 1e-6
    for first, end in runs_of_true(face.speaking):
        axis.axvspan(first / VIDEO_HZ, end / VIDEO_HZ, color=HEARD, alpha=0.15, linewidth=0)
    axis.set_ylim(-peak, peak)
    axis.set_ylabel("sound\n(shaded: label)")


def _draw_spectrum(axis: Axes, clip: Clip, truth: SceneTruth, face: FaceTruth) -> None:
    size, step = 256, 40
    padded = np.pad(clip.audio, size // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::step] * np.hanning(size)
    level_db = 20 * np.log10(np.abs(np.fft.rfft(frames, axis=1)) + 1e-5)
    axis.imshow(
        level_db.T,
        origin="lower",
        aspect="auto",
        cmap="magma",
        vmin=float(level_db.max()) - 65,
        extent=(0, len(frames) * step / SAMPLE_RATE, 0, SAMPLE_RATE / 2000),
    )
    shown = face.voice or 0  # the face's own voice, or else the first that is heard
    for voice in truth.voices[shown : shown + 1]:
        for phone, (start_s, end_s) in zip(voice.phones, voice.phones_s, strict=True):
            axis.axvline(start_s, color="white", linewidth=0.35, alpha=0.6)
            if end_s - start_s > 0.03:
                axis.text((start_s + end_s) / 2, 7.4, phone, ha="center", va="center", fontsize=7, color="white")
        axis.vlines(voice.bursts_s, 5.6, 6.6, color=BURST, linewidth=1.8, label="bursts")
        axis.legend(loc="upper left", fontsize=7, bbox_to_anchor=(1.0, 1.0))
    axis.set_ylabel(f"kHz\n(phones, bursts\nof voice {shown})")


def _draw_voices(axis: Axes, truth: SceneTruth) -> None:
    pitch = axis.twinx()
    for number, voice in enumerate(truth.voices):
        times_s = np.arange(len(voice.envelope)) / AUDIO_HZ
        color = (HEARD, "#56B4E9", "#CC79A7")[number % 3]
        axis.plot(times_s, voice.envelope, color=color, label=_who(voice, number))
        voiced = np.where(voice.f0_hz > 0, voice.f0_hz, np.nan)
        pitch.plot(times_s, voiced, color=color, linestyle=":", linewidth=1.6)
    axis.set_ylabel("envelope")
    axis.set_ylim(bottom=0)
    pitch.set_ylabel("pitch in Hz (dotted)")
    if truth.voices:
        axis.legend(loc="upper left", fontsize=7, bbox_to_anchor=(1.07, 1.0))
    else:
        axis.text(0.5, 0.5, "no voice", transform=axis.transAxes, ha="center", va="center")


def _who(voice: VoiceTruth, number: int) -> str:
    return f"voice {number}" + (
        f" of face {voice.entity_id.rsplit(':', 1)[1]}" if voice.entity_id else ", not seen to say this"
    )


if __name__ == "__main__":
    sys.exit(main())
