"""A made-up AVA-ActiveSpeaker set: three films with drawn faces, and label files as they are found in the wild.

    <folder>/films/-x.mkv     25 fps, 6 s        two faces that take turns, one that is seen in one row only
    <folder>/films/NA.mp4     29.97 fps, 6 s     two faces, one of them reaching over the picture's left border
    <folder>/films/007.mkv    variable rate, 905 s: a picture a second up to 899 s, then 25 fps; two faces from 900 s on
    <folder>/labels/train/-x-activespeaker.csv   one file a film, no header, rows in order
    <folder>/labels/val.csv                      both films of the split, header, BOM, CRLF, rows shuffled

A mouth is open exactly while its tone sounds: frame and sound belong together by construction. Stamps have two digits,
as AVA's. Row gaps: ``-x_0000_0060:1`` lacks 3 frames (160 ms between its rows) and later 25 (more than a second).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 160, 120
SPLIT_OF = {"-x": "train", "NA": "val", "007": "val"}
LONG_FILM_S = 900  # labels of film 007 start here
SHORT_GAP = (30, 33)  # source frames of -x_0000_0060:1 without a row: 3 missing, 4/25 s from row to row
LONG_GAP = (70, 95)
COLUMNS = ("video_id", "frame_timestamp", "entity_box_x1", "entity_box_y1", "entity_box_x2", "entity_box_y2")
COLUMNS += ("label", "entity_id")


@dataclass(frozen=True)
class Face:
    """One drawn face.

    Attributes:
        entity_id: its track.
        center: of the face in pixels at the start, x and y.
        drift_px_s: how far it moves to the right in a second.
        tone_hz: pitch of its voice.
        bursts_s: when it speaks, in seconds after the film's first label; start and end.
        mute_s: when its mouth moves without a sound (SPEAKING_NOT_AUDIBLE).
        rows: first and one past the last source frame with a row, counted from the first label; None: all.
    """

    entity_id: str
    center: tuple[float, float]
    drift_px_s: float
    tone_hz: float
    bursts_s: tuple[tuple[float, float], ...]
    mute_s: tuple[float, float] = (0.0, 0.0)
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class Film:
    """One film: its file name, the exact time of each source picture, and who is in it."""

    name: str
    picture_times: tuple[Fraction, ...]
    labels_from_s: int
    duration_s: int
    faces: tuple[Face, ...]

    @property
    def video_id(self) -> str:
        """The name without its ending."""
        return self.name.rsplit(".", 1)[0]


@dataclass(frozen=True)
class MiniAva:
    """Where the set lies: the folder of films, and a label file or folder per split."""

    films: Path
    labels: dict[str, Path]


FACE_SIZE = (36.0, 48.0)  # width and height of a face box in pixels
_BEFORE = tuple(Fraction(second) for second in range(LONG_FILM_S - 1))
_TALK = tuple(LONG_FILM_S - 1 + Fraction(n, 25) for n in range(150))
FILMS = (
    Film(
        name="-x.mkv",
        picture_times=tuple(Fraction(n, 25) for n in range(150)),
        labels_from_s=0,
        duration_s=6,
        faces=(
            Face("-x_0000_0060:1", (45, 60), 2.0, 300, ((0.6, 1.6), (4.0, 5.2))),
            Face("-x_0000_0060:2", (115, 55), -2.0, 600, ((2.0, 3.0), (5.4, 5.8)), mute_s=(1.0, 1.4)),
            Face("-x_0000_0060:3", (80, 90), 0.0, 900, (), rows=(50, 51)),
        ),
    ),
    Film(
        name="NA.mp4",
        picture_times=tuple(n * Fraction(1001, 30000) for n in range(180)),
        labels_from_s=0,
        duration_s=6,
        faces=(
            Face("NA_0000_0060:1", (12, 60), 1.0, 350, ((0.5, 1.5), (3.5, 4.5))),  # its box starts left of the picture
            Face("NA_0000_0060:2", (110, 60), 0.0, 700, ((2.0, 3.2),)),
        ),
    ),
    Film(
        name="007.mkv",
        picture_times=_BEFORE + _TALK,
        labels_from_s=LONG_FILM_S,
        duration_s=LONG_FILM_S + 5,
        faces=(
            Face("007_0900_0930:1", (45, 60), 0.0, 320, ((0.4, 1.6), (3.0, 3.8))),
            Face("007_0900_0930:2", (110, 60), 1.0, 640, ((1.8, 2.8),)),
        ),
    ),
)


def make_mini_ava(folder: Path) -> MiniAva:
    """Writes films and labels under ``folder`` (about two seconds on one core).

    Returns:
        Where they are.
    """
    films, labels = folder / "films", folder / "labels"
    films.mkdir(parents=True)
    (labels / "train").mkdir(parents=True)
    for film in FILMS:
        write_film(films / film.name, film)
    first, *rest = FILMS
    (labels / "train" / "-x-activespeaker.csv").write_text(csv_text(rows_of(first)))
    mixed = [row for film in rest for row in rows_of(film)]
    order = np.random.default_rng(0).permutation(len(mixed))
    text = csv_text([list(COLUMNS), *(mixed[index] for index in order)], line_end="\r\n")
    (labels / "val.csv").write_bytes(text.encode("utf-8-sig"))
    return MiniAva(films, {"train": labels / "train", "val": labels / "val.csv"})


def rows_of(film: Film) -> list[list[str]]:
    """The label rows of a film as AVA writes them: entity after entity, stamps with two digits."""
    labeled = [time for time in film.picture_times if time >= film.labels_from_s]
    rows = []
    for face in film.faces:
        first, last = face.rows or (0, len(labeled))
        for number, time in enumerate(labeled):
            missing = face is FILMS[0].faces[0] and any(a <= number < b for a, b in (SHORT_GAP, LONG_GAP))
            if not first <= number < last or missing:
                continue
            box = [f"{value:.4f}" for value in box_of(film, face, float(time))]
            rows.append([film.video_id, f"{float(time):.2f}", *box, label_of(film, face, float(time)), face.entity_id])
    return rows


def box_of(film: Film, face: Face, time_s: float) -> tuple[float, float, float, float]:
    """The box as fractions of the picture; it may reach beyond it."""
    x = face.center[0] + face.drift_px_s * (time_s - film.labels_from_s)
    half_w, half_h = FACE_SIZE[0] / 2, FACE_SIZE[1] / 2
    left, right = (x - half_w) / WIDTH, (x + half_w) / WIDTH
    return left, (face.center[1] - half_h) / HEIGHT, right, (face.center[1] + half_h) / HEIGHT


def label_of(film: Film, face: Face, time_s: float) -> str:
    """AVA's word for what a face does at a time of the film."""
    since_s = time_s - film.labels_from_s
    if any(start <= since_s < end for start, end in face.bursts_s):
        return "SPEAKING_AUDIBLE"
    return "SPEAKING_NOT_AUDIBLE" if face.mute_s[0] <= since_s < face.mute_s[1] else "NOT_SPEAKING"


def csv_text(rows: list[list[str]], line_end: str = "\n") -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows(rows)
    return text.getvalue()


def write_film(path: Path, film: Film) -> None:
    """Encodes a film: H.264 pictures at their own times and 16 kHz sound, FLAC in mkv and AAC in mp4."""
    time_base = Fraction(1, 90_000)
    with av.open(str(path), "w") as container:
        options = {"preset": "ultrafast", "crf": "10", "bf": "0", "threads": "1", "g": "50"}
        video = container.add_stream("libx264", rate=25, options=options)
        video.width, video.height, video.pix_fmt, video.time_base = WIDTH, HEIGHT, "yuv420p", time_base
        video.codec_context.time_base = time_base
        long_frames = {"frame_size": "16000", "strict": "-2"}  # a second each: fifteen minutes are quickly read
        codec, settings = ("flac", long_frames) if path.suffix == ".mkv" else ("aac", {})
        audio = container.add_stream(codec, rate=16_000, layout="mono", options=settings)
        sound = iter(sound_blocks(film))
        heard_until = Fraction(0)
        for time, picture in zip(film.picture_times, pictures(film), strict=True):
            while heard_until <= time and (block := next(sound, None)) is not None:
                _mux_sound(container, audio, block, round(heard_until * 16_000))
                heard_until += Fraction(len(block), 16_000)
            frame = av.VideoFrame.from_ndarray(picture, format="gray").reformat(format="yuv420p")
            frame.pts, frame.time_base = round(time / time_base), time_base
            container.mux(video.encode(frame))
        for block in sound:
            _mux_sound(container, audio, block, round(heard_until * 16_000))
            heard_until += Fraction(len(block), 16_000)
        for stream in (video, audio):
            container.mux(stream.encode(None))


def _mux_sound(
    container: av.container.OutputContainer, stream: av.AudioStream, block: NDArray[np.float32], at: int
) -> None:
    frame = av.AudioFrame.from_ndarray((block[None] * 32767).astype(np.int16), format="s16", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = 16_000, at, Fraction(1, 16_000)
    container.mux(stream.encode(frame))


def sound_blocks(film: Film) -> Iterator[NDArray[np.float32]]:
    """The whole sound in blocks of one second: faint noise where faces are seen, and a tone while somebody speaks."""
    rng = np.random.default_rng(len(film.picture_times))
    for second in range(film.duration_s):
        time_s = second + np.arange(16_000) / 16_000
        block = 1e-3 * rng.standard_normal(16_000) * (second >= film.labels_from_s - 1)
        for face in film.faces:
            for start, end in face.bursts_s:
                since_s = time_s - film.labels_from_s
                block += 0.3 * np.sin(2 * np.pi * face.tone_hz * time_s) * ((since_s >= start) & (since_s < end))
        yield block.astype(np.float32)


def pictures(film: Film) -> Iterator[NDArray[np.uint8]]:
    """The pictures ``(HEIGHT, WIDTH)`` in order; before the first label an empty stage."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    stage = (90 + 30 * np.sin(columns / 9) * np.sin(rows / 7)).astype(np.uint8)
    for time in map(float, film.picture_times):
        picture = stage.copy()
        if time >= film.labels_from_s:
            for face in film.faces:
                _draw(picture, rows, columns, box_of(film, face, time), label_of(film, face, time), time)
        yield picture


def _draw(
    picture: NDArray[np.uint8],
    rows: NDArray[np.float32],
    columns: NDArray[np.float32],
    box: tuple[float, float, float, float],
    label: str,
    time_s: float,
) -> None:
    """A bright oval with two eyes and a mouth: a line, or a dark oval that opens and closes while it talks."""
    x, y = (box[0] + box[2]) / 2 * WIDTH, (box[1] + box[3]) / 2 * HEIGHT

    def oval(center_x: float, center_y: float, half_w: float, half_h: float) -> NDArray[np.bool_]:
        return ((columns - center_x) / half_w) ** 2 + ((rows - center_y) / half_h) ** 2 <= 1

    picture[oval(x, y, FACE_SIZE[0] / 2, FACE_SIZE[1] / 2)] = 190
    for side in (-8, 8):
        picture[oval(x + side, y - 8, 3, 3)] = 40
    open_px = 1.0 if label == "NOT_SPEAKING" else 5 + 2.5 * np.sin(2 * np.pi * 5 * time_s)
    picture[oval(x, y + 12, 8, open_px)] = 30
