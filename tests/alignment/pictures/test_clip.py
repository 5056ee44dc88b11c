"""The clip figure shows the numbers it was given, legibly, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from avfusion.alignment.pictures import clip as plots
from avfusion.alignment.pictures.clip import BYPASS_WARNING, SUBTITLE, ClipAlignment, alignment_figure, save_figure
from avfusion.alignment.statistics import lag_image
from avfusion.errors import UsageError

REPOSITORY = Path(__file__).resolve().parents[3]


def clip(heads: int = 1, frames: int = 25, **changes: object) -> ClipAlignment:
    """Speaking in the middle; head 1 puts 0.8 on the sound 60 ms later, the others spread 0.5 over their window."""
    t, a = np.arange(frames)[:, None], np.arange(4 * frames)[None, :]
    window = np.abs(a - 4 * t) <= 50
    weights = np.repeat((0.5 * window / window.sum(axis=1, keepdims=True))[None], heads, axis=0)
    weights[0] = 0.8 * (a - 4 * t == 6)
    speaking = np.zeros(frames, dtype=bool)
    speaking[frames // 4 : frames // 2] = True
    values: dict[str, object] = {
        "title": "video_7:1",
        "role": "own_sound",
        "crops": np.arange(frames, dtype=np.uint8)[:, None, None] * np.ones((1, 16, 16), dtype=np.uint8),
        "log_mel": np.random.default_rng(0).normal(size=(4 * frames, 64)).astype(np.float32),
        "speaking": speaking,
        "scores": np.where(speaking, 0.9, 0.1).astype(np.float32),
        "weights": weights.astype(np.float32),
    }
    return ClipAlignment(**{**values, **changes})  # type: ignore[arg-type]


def panels(figure: Figure) -> list[Axes]:
    """Crops, sound, score, then a map and a null strip per head; the color bar comes last and is left out."""
    return figure.axes[:-1]


def maps(figure: Figure) -> list[Axes]:
    return panels(figure)[3::2]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_each_map_holds_its_heads_weights_in_one_color_scale() -> None:
    example = clip(heads=3)
    figure = alignment_figure(example)
    assert len(maps(figure)) == 3
    images = [axes.images[0] for axes in maps(figure)]
    for image, weights in zip(images, example.weights, strict=True):
        shown = np.ma.filled(image.get_array().astype(float), np.nan)
        np.testing.assert_array_equal(shown, lag_image(weights))
        assert image.norm is images[0].norm
        left, right, bottom, top = image.get_extent()
        np.testing.assert_allclose([left, right, bottom, top], [-0.02, 0.98, -0.505, 0.505])


def test_all_panels_share_the_time_axis() -> None:
    figure = alignment_figure(clip(frames=50))
    assert {tuple(np.round(axes.get_xlim(), 9)) for axes in panels(figure)} == {(-0.02, 1.98)}


def test_figures_beside_the_heads_are_those_of_the_speaking_frames() -> None:
    example = clip(heads=2, frames=50)
    example.weights[:, ~example.speaking] = 0.0  # what silence does must not count
    shown = texts(alignment_figure(example))
    at = shown.index("head 1")
    assert shown[at : at + 3] == ["head 1", "lag +60 ms", "width 0 ms · null 20 %"]
    at = shown.index("head 2")
    # Frames 13..24 see all of ±0.5 s, 101 keys: mean 0, deviation sqrt((101² − 1) / 12) · 10 ms = 292 ms.
    assert shown[at : at + 3] == ["head 2", "lag +0 ms", "width 292 ms · null 50 %"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("heard", [0.0, 0.08, 0.19])
def test_a_head_that_mostly_hears_nothing_has_no_lag(heard: float) -> None:
    example = clip(heads=2)
    example.weights[0] *= heard / 0.8
    figure = alignment_figure(example)
    shown = texts(figure)
    at = shown.index("head 1")
    assert shown[at : at + 3] == ["head 1", "hears little", f"null {100 - 100 * heard:.0f} %"]
    assert shown[shown.index("head 2") + 1].startswith("lag ")
    first, second = maps(figure)
    assert [line for line in first.lines if line.get_marker() in ("<", ">")] == []
    assert len([line for line in second.lines if line.get_marker() in ("<", ">")]) == 2


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            "follows the sound (slope 0.97, R² 0.99), 62 ms after the picture, ΔAP −0.08",
            "follows the sound (slope 0.97)",
        ),
        ("positional (slope 0.02), ΔAP −0.01, not told from 0", "positional (slope 0.02)"),
        ("idle (ΔAP 0.000), positional (slope 0.02)", "idle (ΔAP 0.000)"),
        ("moves with the sound (slope 0.97, R² 0.99), but so does the untrained head", "moves with the sound, but …"),
        ("mostly null (93 % in speech), ΔAP −0.08", "mostly null (93 % in speech)"),
        ("slope not measured, ΔAP −0.08", "slope not measured"),
        ("does not move with the sound (slope 0.12, R² 0.1), no fixed lag", "does not move with the sound"),
    ],
)
def test_the_first_claim_of_the_words_stands_beside_the_map(words: str, shown: str) -> None:
    figure = alignment_figure(clip(heads=2, words=[words, ""]))
    assert shown in texts(figure)


def test_a_head_that_hears_a_fifth_has_a_lag() -> None:
    example = clip()
    example.weights[0] *= 0.21 / 0.8
    assert "lag +60 ms" in texts(alignment_figure(example))


def test_attention_outside_the_picture_is_counted() -> None:
    example = clip(heads=1, frames=50)
    example.weights[:] = 0.0
    example.weights[0, :, 0] = 1.0  # every frame listens to the first sound: frames 12..24 are 0.48 to 0.96 s later
    assert "beyond ±0.5 s: 92 %" in texts(alignment_figure(example))  # only frame 12 of the 13 has it in view


def test_median_lag_is_marked_at_both_ends() -> None:
    axes = maps(alignment_figure(clip()))[0]
    marks = [line.get_ydata()[0] for line in axes.lines if line.get_marker() in ("<", ">")]
    np.testing.assert_allclose(marks, [0.06, 0.06])


def test_titles_name_clip_role_label_and_scores() -> None:
    first, second, *_ = texts(alignment_figure(clip(frames=100)))
    assert first == "video_7:1 · own_sound"
    assert second == f"label: speaking in 25 % of frames · mean score 0.30 (0.90 speaking, 0.10 not) · {SUBTITLE}"


def test_the_bypass_is_said_where_there_is_one() -> None:
    assert not any(BYPASS_WARNING in text for text in texts(alignment_figure(clip())))
    assert any(BYPASS_WARNING in text for text in texts(alignment_figure(clip(audio_bypass=True))))


def test_what_the_model_was_trained_with_is_said_and_losses_on_the_attention_are_a_warning() -> None:
    plain = texts(alignment_figure(clip(losses={"speaking": 1.0, "contrastive": 0.5})))
    assert "losses: speaking 1, contrastive 0.5" in plain
    assert not any("taught" in text for text in plain)
    taught = texts(alignment_figure(clip(audio_bypass=True, losses={"speaking": 1.0, "null": 0.1, "guided": 2.0})))
    assert any("the null and guided loss taught the attention" in text for text in taught)
    assert any(BYPASS_WARNING in text for text in taught)


def test_crops_stand_at_their_times() -> None:
    figure = alignment_figure(clip(frames=100))
    pictures = panels(figure)[0].images
    assert len(pictures) == 12
    for picture in pictures[1:-1]:  # the first and last may be moved in from the border
        index = int(picture.get_array()[0, 0])  # each frame of the example is filled with its own number
        left, right, *_ = picture.get_extent()
        assert (left + right) / 2 == pytest.approx(index / 25)
    assert [int(picture.get_array()[0, 0]) for picture in pictures] == [4, 12, 20, 29, 37, 45, 54, 62, 70, 79, 87, 95]


def test_score_and_label_are_drawn_as_given() -> None:
    example = clip(frames=40)
    axes = panels(alignment_figure(example))[2]
    curve = max(axes.lines, key=lambda line: len(line.get_xdata()))
    np.testing.assert_allclose(curve.get_xdata(), np.arange(40) / 25)
    np.testing.assert_allclose(curve.get_ydata(), example.scores)
    bands = [band.get_paths()[0].get_extents() for band in axes.collections]
    np.testing.assert_allclose([(band.x0, band.x1) for band in bands], [(0.38, 0.78)])  # frames 10..19, cell to cell


@pytest.mark.parametrize("hz", [20.0, 1000.0, 8000.0])
def test_mel_rows_follow_the_htk_scale(hz: float) -> None:
    centers_hz = 700 * (10 ** (np.linspace(31.748, 2840.023, 66) / 2595) - 1)  # corners of 64 filters, 20..8000 Hz
    expected = np.interp(hz, centers_hz, np.arange(-1, 65))
    assert plots._mel_bin(hz, 64) == pytest.approx(expected, abs=0.02)


def test_names_and_lags_of_heads_are_legible_in_a_panel_600_pixels_wide() -> None:
    figure = alignment_figure(clip(heads=4))
    shrunk = 600 / (figure.get_figwidth() * 72)  # pixels of the panel for each point
    large = [text for text in figure.texts if text.get_text().startswith(("head ", "lag +"))]
    assert len(large) == 8
    assert min(text.get_fontsize() for text in large) * shrunk > 9.5


@pytest.mark.parametrize(("heads", "frames"), [(2, 25), (4, 75), (8, 500), (1, 1)])
def test_text_is_large_enough_inside_the_picture_and_apart(heads: int, frames: int) -> None:
    words = ["follows the sound (slope −0.97, R² 0.99), 162 ms after the picture, ΔAP −0.08"] * heads
    example = clip(heads=heads, frames=frames, title="long_" * 40, audio_bypass=True, words=words)
    example.weights[-1] = 1 / (4 * frames) if frames > 60 else 0.0  # the longest lines: far outside the picture
    figure = alignment_figure(example)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    seen = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    seen = [text for text in seen if not _hidden_tick(text, figure)]
    boxes = {text.get_text() + f"@{index}": text.get_window_extent(renderer) for index, text in enumerate(seen)}
    width, height = figure.canvas.get_width_height()
    assert min(text.get_fontsize() for text in seen) >= 8
    for name, box in boxes.items():
        assert box.x0 >= 0, name
        assert box.y0 >= 0, name
        assert box.x1 <= width, name
        assert box.y1 <= height, name
    overlapping = [(a, b) for a, b in combinations(boxes, 2) if boxes[a].shrunk(0.9, 0.8).overlaps(boxes[b])]
    assert overlapping == []


def _hidden_tick(text: Text, figure: Figure) -> bool:
    """Tick labels that matplotlib keeps and does not draw: off the axis, or switched off."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in [*axis.majorTicks, *axis.minorTicks]:
                if text in (tick.label1, tick.label2):
                    low, high = sorted(axis.get_view_interval())
                    on = tick.label1.get_visible() if text is tick.label1 else tick.label2.get_visible()
                    return not on or not low <= tick.get_loc() <= high
    return False


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("video_$1$^{", "video_$1$^{"),
        (r"\frac{", r"\frac{"),
        ("détection ± Ελλάδα Москва", "détection ± Ελλάδα Москва"),
        ("人脸 speaks <b>", r"\u4eba\u8138 speaks <b>"),
        ("한 \U00020000\n\udc80", r"\ud55c \U00020000\n\udc80"),  # no glyphs, a new line, half a letter
    ],
)
@pytest.mark.filterwarnings("error")
def test_names_are_text_that_can_be_drawn_and_no_formula(tmp_path: Path, name: str, shown: str) -> None:
    figure = alignment_figure(clip(title=name, role=name))
    for suffix in ("png", "svg", "pdf"):
        save_figure(figure, tmp_path / f"clip.{suffix}")
    assert texts(figure)[0] == f"{shown} · {shown}"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("speaks", [True, False])
def test_silent_blank_and_one_frame_clips_draw_without_a_warning(tmp_path: Path, speaks: bool) -> None:
    for frames in (1, 30):
        example = clip(
            frames=frames,
            crops=np.zeros((frames, 20, 10), dtype=np.uint8),
            log_mel=np.zeros((4 * frames, 40), dtype=np.float32),
            speaking=np.full(frames, speaks),
        )
        save_figure(alignment_figure(example), tmp_path / f"{frames}.png")
        with Image.open(tmp_path / f"{frames}.png") as picture:
            assert picture.size[0] == 1320
            assert picture.info.keys() <= {"dpi"}


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_files_are_whole_repeatable_and_alone(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / "new" / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        save_figure(alignment_figure(clip()), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")
    assert sorted((tmp_path / "new").iterdir()) == paths


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clip.png"
    path.write_bytes(b"old")
    figure = alignment_figure(clip())

    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(figure, "savefig", full_disk)
    with pytest.raises(OSError, match="no space left"):
        save_figure(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UsageError, match="change the suffix"):
        save_figure(figure, tmp_path / "clip.gif")


def test_no_window_system_and_no_pyplot(tmp_path: Path) -> None:
    probe = (
        "import sys; sys.path[:0] = sys.argv[1:3]; from pathlib import Path; import test_clip as t; "
        "t.save_figure(t.alignment_figure(t.clip()), Path(sys.argv[3])); sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command = [sys.executable, "-c", probe, str(Path(__file__).parent), str(REPOSITORY), str(tmp_path / "x.png")]
    done = subprocess.run(command, env={**environment, "MPLBACKEND": "TkAgg"}, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_a_figure_is_freed_after_its_last_use(tmp_path: Path) -> None:
    figure = alignment_figure(clip())
    save_figure(figure, tmp_path / "clip.png")
    alive = weakref.ref(figure)
    del figure
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("name", "shape"), [("crops", (24, 8, 8)), ("log_mel", (25, 64)), ("weights", (25, 100)), ("weights", (0, 25, 100))]
)
def test_parts_that_do_not_fit_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="4 T log-mel frames"):
        clip(**{name: np.zeros(shape, dtype=np.uint8 if name == "crops" else np.float32)})
