"""One page that shows scenes with everything a model's heads did in them; opens from disk, asks for no network.

Python writes JSON, one script draws (``viewer.js`` and its parts). ``encoding.py`` makes the JSON small.

Shapes: ``L`` fusion layers, ``H`` heads, ``T`` video frames (25 a second), ``A`` audio frames (100 a second), ``M`` mel
bins, ``N`` sound samples (16 kHz mono), ``G`` lags from minus to plus ``half_width_s`` in steps of 10 ms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file

HALF_WIDTH_S = 0.5
# In the order in which the page offers them.
VARIANTS = {"trained": "Trained", "untrained": "Untrained", "other_sound": "Other clip’s sound"}
MAX_MB = 15.0
SCRIPTS = ("data.js", "draw.js", "sound.js", "viewer.js")  # one function on the page


@dataclass(frozen=True)
class HeadView:
    """What the heads did on one face, for one model and one sound.

    Attributes:
        maps: ``(L, H, T, G)`` weights in lag coordinates; NaN where a lag lies outside the sound.
        null_mass: ``(L, H, T)`` share of the attention on the null key.
        scores: ``(T,)`` probabilities 0..1.
    """

    maps: NDArray[np.float32]
    null_mass: NDArray[np.float32]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class ViewerFace:
    """One face of a scene.

    Attributes:
        name: of the track.
        speaking: ``(T,)`` bool labels.
        views: for each of :data:`VARIANTS` that was run, what was seen with the sound moved by so many milliseconds;
            0 is always there. Positive: the sound comes later.
        ablated: for a variant (sound not moved), ``(L, H, T)`` scores without that head.
        crops: ``(T, height, width)`` uint8 grey pictures; None: none are shown.
        region: x1, y1, x2, y2 of what the model sees of a crop, as fractions.
        first_frame: frame of the scene at which the track starts.
        role: what kind of example it is; empty where unknown.
        labelled: False where nobody has said when the face speaks.
    """

    name: str
    speaking: NDArray[np.bool_]
    views: Mapping[str, Mapping[int, HeadView]]
    ablated: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    crops: NDArray[np.uint8] | None = None
    region: Sequence[float] = (0.0, 0.0, 1.0, 1.0)
    first_frame: int = 0
    role: str = ""
    labelled: bool = True

    def __post_init__(self) -> None:
        frames = len(self.speaking)
        first = self.views.get("trained", {}).get(0)
        if first is None or frames == 0 or first.maps.ndim != 4:
            raise ValueError(f"{self.name}: expected T > 0 labels and a trained view at shift 0 with maps (L, H, T, G)")
        layers, heads, _, lags = first.maps.shape
        if lags % 2 == 0:
            raise ValueError(f"{self.name}: expected an odd number of lags with 0 in the middle, found {lags}")
        for variant, shifts in self.views.items():
            if variant not in VARIANTS or 0 not in shifts:
                raise ValueError(f"{self.name}: {variant}: expected one of {', '.join(VARIANTS)} with shift 0")
            for shift, view in shifts.items():
                found = (view.maps.shape, view.null_mass.shape, view.scores.shape)
                expected = ((layers, heads, frames, lags), (layers, heads, frames), (frames,))
                if found != expected:
                    raise ValueError(f"{self.name}: {variant} at {shift} ms: expected shapes {expected}, found {found}")
        for variant, scores in self.ablated.items():
            if scores.shape != (layers, heads, frames):
                raise ValueError(f"{self.name}: {variant}: expected ablated scores (L, H, T), found {scores.shape}")
        if self.crops is not None and len(self.crops) != frames:
            raise ValueError(f"{self.name}: expected {frames} crops, found {len(self.crops)}")


@dataclass(frozen=True)
class ViewerScene:
    """One stretch of sound with the faces seen in it.

    Attributes:
        title: names the scene.
        sound: ``(640 T,)`` float32 in -1..1, 16 kHz.
        log_mel: ``(A, M)``, ``A = 4 T``.
        faces: one or more; tracks may start later and end earlier than the scene.
        other_sound: what ``other_sound`` heard instead, as long as ``sound``.
        other_log_mel: its log-mel.
        words: for each layer and head, what the figures over the whole dataset say of it; empty: nothing is said.
        warnings: what to know before anything is read out of the maps.
        fps: video frames a second.
        unmoved: what the page says of the sound at shift 0.
    """

    title: str
    sound: NDArray[np.float32]
    log_mel: NDArray[np.float32]
    faces: Sequence[ViewerFace]
    other_sound: NDArray[np.float32] | None = None
    other_log_mel: NDArray[np.float32] | None = None
    words: Sequence[Sequence[str]] = ()
    warnings: Sequence[str] = ()
    fps: int = VIDEO_HZ
    unmoved: str = "as recorded"

    def __post_init__(self) -> None:
        frames = self.num_frames
        if not self.faces or frames == 0 or len(self.log_mel) != frames * AUDIO_FRAMES_PER_VIDEO_FRAME:
            raise ValueError(
                f"{self.title}: expected faces and 4 log-mel frames per 640 samples; found {len(self.faces)} faces, "
                f"{len(self.sound)} samples and {len(self.log_mel)} log-mel frames"
            )
        shapes = [face.views["trained"][0].maps.shape for face in self.faces]
        if len({(layers, heads, lags) for layers, heads, _, lags in shapes}) != 1:
            raise ValueError(f"{self.title}: expected faces of one model, found maps (L, H, T, G) of {shapes}")
        for face in self.faces:
            if face.first_frame < 0 or face.first_frame + len(face.speaking) > frames:
                raise ValueError(f"{self.title}: {face.name} does not lie inside the scene's {frames} frames")

    @property
    def num_frames(self) -> int:
        """``T`` of the scene."""
        return len(self.sound) // SAMPLES_PER_VIDEO_FRAME

    @property
    def half_width_s(self) -> float:
        """Largest lag that the maps show."""
        return float(self.faces[0].views["trained"][0].maps.shape[-1] // 2) / AUDIO_HZ


def write_viewer(path: Path, scenes: Sequence[ViewerScene], *, title: str = "", max_mb: float = MAX_MB) -> int:
    """Writes the page, whole or not at all.

    Where everything would be larger than ``max_mb``, detail goes first and scenes last: maps of moved sound in fewer
    grey levels, in fewer still, then every second shift, then moved sound for all but the trained model, then scenes
    from the end.
    The page says what was left out.

    Args:
        path: an ``.html`` file; replaced if it is there.
        scenes: one or more, of one model.
        title: what was inspected, the run's name for example.
        max_mb: largest size of the page in MB (10^6 bytes).

    Returns:
        The number of bytes written.

    Raises:
        ValueError: no scene.
        AvfusionError: the first scene alone is larger than that.
    """
    from avfusion.alignment.viewer.encoding import DETAILS, SceneMedia, color_table, encode_media, encode_scene

    if not scenes:
        raise ValueError("expected at least one scene")
    folder = Path(__file__).parent
    template = (folder / "viewer.html").read_text(encoding="utf-8")
    parts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = "\n".join(['"use strict";', "(() => {", *parts, "})();"])
    page: dict[str, Any] = {"title": title, "colors": color_table(), "variants": VARIANTS}
    room = max_mb * 1e6 - len(template.encode()) - len(script.encode()) - len(_as_json(page)) - 1000
    media: list[SceneMedia] = []  # the same at every detail
    for detail in DETAILS:
        encoded = []
        used = 0
        for number, scene in enumerate(scenes):
            if number == len(media):
                media.append(encode_media(scene))
            text = _as_json(encode_scene(scene, detail, media[number]))
            used += len(text.encode()) + 1
            if used > room:
                break
            encoded.append(text)
        if len(encoded) == len(scenes) or (detail is DETAILS[-1] and encoded):
            break
    else:
        raise AvfusionError(
            f"{path}: the scene {scenes[0].title} alone needs {used / 1e6:.1f} MB, at most {max_mb:g} MB are allowed; "
            "give a shorter scene or a larger size"
        )
    page["left_out"] = detail.left_out + (
        [f"{len(scenes) - len(encoded)} of {len(scenes)} scenes"] if len(encoded) < len(scenes) else []
    )
    data = f'{_as_json(page)[:-1]},"scenes":[{",".join(encoded)}]}}'
    html = template.replace("/*VIEWER_JS*/", script).replace("/*VIEWER_DATA*/", data)
    with whole_text_file(path) as file:
        file.write(html)
    return len(html.encode())


def _as_json(content: dict[str, Any]) -> str:
    """JSON in which no tag can begin: a name such as ``<!--<script>`` would end the page's data elsewhere."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
