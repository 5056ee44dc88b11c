"""The overlay: picture n shows box n, flash and beep stay together, and browsers have what they need to play it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.faces.track_records import DETECTED, MISSED
from avfusion.inference.outputs.overlay import shown_size, write_overlay
from avfusion.inference.outputs.painter import Painter, ShownFace
from avfusion.inference.outputs.score_colors import score_color, score_colors
from avfusion.inference.outputs.speech import SpeechRules, find_speech, speaking_frames
from avfusion.inference.result import Result
from tests.alignment.viewer.browser import browser
from tests.inference.results import face, ingested_result
from tests.media.conftest import Film

FILM = Film()
SCALE = 4  # films of 160x64 are shown at 640x256
STRIP_PX = Painter(640, 256, 0.5).strip_px


def draw(result: Result, path: Path) -> list[str]:
    speech = find_speech(result, SpeechRules.at(result.threshold))
    return write_overlay(path, result, speaking_frames(result, speech))


def pictures(path: Path) -> NDArray[np.uint8]:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def sound(path: Path) -> tuple[NDArray[np.float32], int]:
    """``(C, N)`` as a player hears it, from time 0, and its rate."""
    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    blocks = [frame.to_ndarray() for frame in frames]
    first = round(float(frames[0].pts * frames[0].time_base) * frames[0].sample_rate)
    assert first == 0
    return np.concatenate(blocks, axis=1), frames[0].sample_rate


def beeps_s(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float64]:
    loud = np.flatnonzero(np.abs(samples) > 0.2)  # half the beep: AAC lets a little be heard before it
    return loud[np.concatenate([[True], np.diff(loud) > 0.2 * rate_hz])] / rate_hz


def moving_face(num_frames: int, start: int = 0) -> Any:
    left = 4.0 + np.arange(num_frames)  # a pixel further in each frame
    boxes = np.stack([left, np.full(num_frames, 8), left + 24, np.full(num_frames, 40)], axis=1)
    return face("face0", start, np.full(num_frames, 0.95), boxes)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A numbered film of 4 s with flashes and stereo beeps at 1, 2 and 3 s; a face that moves a pixel in each frame."""
    folder = tmp_path_factory.mktemp("overlay")
    tracks = [{"codec": "aac", "format": "fltp", "layout": "stereo", "rate_hz": 44_100}]
    source = FILM.write(folder / "talk.mp4", tracks=tracks)
    result = ingested_result(source, folder / "media", [moving_face(90, start=5)])
    assert draw(result, folder / "overlay.mp4") == []
    return result, folder / "overlay.mp4"


def test_picture_n_is_picture_n_with_box_n(drawn: tuple[Result, Path]) -> None:
    result, path = drawn
    shown = pictures(path)
    assert len(shown) == result.num_frames == 100
    bare = shown[:, : 64 * SCALE].mean(axis=-1).astype(np.uint8)
    numbers = FILM.numbers(bare)
    face_free = [n for n in range(100) if not 5 <= n < 95]
    assert [numbers[n] for n in face_free] == face_free
    amber = np.array([255, 176, 0])
    for number in (5, 30, 60, 94):
        row = shown[number, 24 * SCALE].astype(int)  # across the middle of the box
        left = np.flatnonzero(np.abs(row - amber).sum(axis=-1) < 120)
        assert left[0] == pytest.approx(SCALE * (4 + number - 5), abs=1)
        assert left[-1] == pytest.approx(SCALE * (28 + number - 5) - 1, abs=1)
    for number in (4, 95):
        assert (np.abs(shown[number, 24 * SCALE].astype(int) - amber).sum(axis=-1) > 120).all()


def test_flash_and_beep_stay_together_and_the_sound_is_the_sources_own(drawn: tuple[Result, Path]) -> None:
    _, path = drawn
    grey = pictures(path)[:, : 64 * SCALE].mean(axis=-1)
    np.testing.assert_allclose(FILM.flashes_s(grey), [1, 2, 3], atol=1e-9)
    heard, rate_hz = sound(path)
    assert rate_hz == 44_100
    assert len(heard) == 2
    for channel in heard:
        np.testing.assert_allclose(beeps_s(channel, rate_hz), [1, 2, 3], atol=0.004)
    assert heard.shape[1] == pytest.approx(4 * 44_100, abs=1024)
    assert np.abs(heard).max() == pytest.approx(0.4, abs=0.1)


def test_browsers_have_what_they_need(drawn: tuple[Result, Path]) -> None:
    _, path = drawn
    with av.open(str(path)) as container:
        picture, heard = container.streams.video[0], container.streams.audio[0]
        assert (picture.codec_context.name, picture.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert picture.codec_context.profile in ("High", "Main", "Constrained Baseline")
        assert (heard.codec_context.name, heard.codec_context.profile) == ("aac", "LC")
        assert picture.width % 2 == picture.height % 2 == 0
        assert picture.average_rate == 25
        keys = [packet.pts * packet.time_base for packet in container.demux(picture) if packet.is_keyframe]
    assert max(np.diff([float(key) for key in keys])) <= 2  # so that seeking is quick
    content = path.read_bytes()
    assert content[4:8] == b"ftyp"
    assert 0 < content.index(b"moov") < content.index(b"mdat")  # the index comes before the media


def test_late_sound_and_other_rates_are_on_the_films_clock(tmp_path: Path) -> None:
    """The beeps are those of the film's own time, though the first second has no sound, and the file 30 pictures."""
    times_s = [n / 30 for n in range(120)]
    tracks = [{"codec": "pcm_s16le", "rate_hz": 8_000, "parts": [(1.5, 4.0)]}]
    source = FILM.write(tmp_path / "late.mkv", times_s=times_s, rate=30, tracks=tracks)
    result = ingested_result(source, tmp_path / "media", [])
    assert draw(result, tmp_path / "overlay.mp4") == []
    heard, rate_hz = sound(tmp_path / "overlay.mp4")
    assert (len(heard), rate_hz) == (1, 8_000)
    np.testing.assert_allclose(beeps_s(heard[0], rate_hz), [2, 3], atol=0.005)
    flashes = FILM.flashes_s(pictures(tmp_path / "overlay.mp4")[:, : 64 * SCALE].mean(axis=-1))
    np.testing.assert_allclose(flashes, [1, 2, 3], atol=0.021)


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_without_the_source_the_ingested_sound_is_heard_and_said(tmp_path: Path, what: str) -> None:
    source = FILM.write(tmp_path / "talk.mp4", duration_s=1.6, tracks=[{"codec": "aac", "format": "fltp"}])
    result = ingested_result(source, tmp_path / "media", [moving_face(40)])
    if what == "gone":
        source.unlink()
    else:
        source.write_bytes(b"another film")
    (note,) = draw(result, tmp_path / "overlay.mp4")
    assert "talk.mp4" in note
    assert "16 kHz" in note
    heard, rate_hz = sound(tmp_path / "overlay.mp4")
    assert rate_hz == 16_000
    np.testing.assert_allclose(beeps_s(heard[0], rate_hz), [1], atol=0.005)


def test_sound_that_breaks_off_halfway_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from avfusion.errors import AvfusionError
    from avfusion.inference.outputs import film_sound

    source = FILM.write(tmp_path / "talk.mp4", duration_s=1.6, tracks=[{"codec": "aac", "format": "fltp"}])
    result = ingested_result(source, tmp_path / "media", [])
    whole = film_sound.read_frames_once

    def breaks(*args: Any, **options: Any) -> Any:
        for number, event in enumerate(whole(*args, **options)):
            if number == 20:
                raise AvfusionError("talk.mp4 is damaged at 0.43 s")
            yield event

    monkeypatch.setattr(film_sound, "read_frames_once", breaks)
    (note,) = draw(result, tmp_path / "overlay.mp4")
    assert "damaged at 0.43 s" in note
    heard, rate_hz = sound(tmp_path / "overlay.mp4")
    np.testing.assert_allclose(beeps_s(heard[0], rate_hz), [1], atol=0.005)
    assert not list(tmp_path.glob("*.part"))


def test_a_film_without_sound_has_no_sound_track(tmp_path: Path) -> None:
    source = FILM.write(tmp_path / "mute.mp4", duration_s=0.4, tracks=[])
    result = ingested_result(source, tmp_path / "media", [moving_face(10)], allow_silent=True)
    assert draw(result, tmp_path / "overlay.mp4") == []
    with av.open(str(tmp_path / "overlay.mp4")) as container:
        assert [stream.type for stream in container.streams] == ["video"]


def test_many_faces_faces_of_one_frame_and_boxes_beyond_the_picture(tmp_path: Path) -> None:
    source = FILM.write(tmp_path / "crowd.mp4", duration_s=0.4)
    boxes = [(-500, -500, -400, -400), (-30, -30, 500, 300), (150, 50, 400, 90), (20, 20, 20, 20), (1e6, 0, 2e6, 9)]
    faces = [face(f"odd{n}", 0, [0.9] * 10, box) for n, box in enumerate(boxes)]
    faces += [face(f"brief{n}", n, [1.0], (10 * n, 0, 10 * n + 30, 30)) for n in range(10)]
    faces += [face(f"face{n}", 2, [n / 20] * 6, (8 * n, 10, 8 * n + 30, 50)) for n in range(20)]
    result = ingested_result(source, tmp_path / "media", faces)
    draw(result, tmp_path / "overlay.mp4")
    assert len(pictures(tmp_path / "overlay.mp4")) == 10


def test_names_of_files_that_are_addresses_or_no_text(tmp_path: Path) -> None:
    source = FILM.write(tmp_path / "talk.mp4", duration_s=0.2)
    result = ingested_result(source, tmp_path / "media", [])
    for name in ("12:30", "100%d", b"n\xffn".decode("utf-8", "surrogateescape")):
        folder = tmp_path / name
        try:
            folder.mkdir()
        except OSError:
            continue  # not on this file system
        draw(result, folder / "overlay.mp4")
        assert [path.name for path in folder.iterdir()] == ["overlay.mp4"]
        assert (folder / "overlay.mp4").read_bytes()[4:8] == b"ftyp"


def test_sizes_are_even_bounded_and_of_square_pixels() -> None:
    assert shown_size(640, 360) == (640, 360)
    assert shown_size(3840, 2160) == (1280, 720)
    assert shown_size(1080, 1920) == (720, 1280)
    assert shown_size(160, 64) == (640, 256)
    assert shown_size(720, 576, 64 / 45) == (1024, 576)  # PAL wide screen
    assert shown_size(854, 480) == (854, 480)
    assert all(side % 2 == 0 for side in shown_size(1001, 333))


def test_colors_keep_the_films_own(tmp_path: Path) -> None:
    """A film labelled as of HDTV comes out with the same label and the same luma and chroma."""
    source = FILM.write(
        tmp_path / "hd.mp4",
        pictures=[np.broadcast_to(np.array([200, 90, 40], np.uint8), (64, 640, 3)).copy()] * 5,
        duration_s=0.2,
        options={"x264-params": "colormatrix=bt709:colorprim=bt709:transfer=bt709", "crf": "4"},
    )
    result = ingested_result(source, tmp_path / "media", [])
    draw(result, tmp_path / "overlay.mp4")
    planes = []
    for path in (result.video, tmp_path / "overlay.mp4"):
        with av.open(str(path)) as container:
            frame = next(container.decode(video=0))
            planes.append([int(np.frombuffer(p, np.uint8)[p.line_size * 8 + 8]) for p in frame.planes])
            assert frame.colorspace == 1
    assert np.abs(np.array(planes[0]) - planes[1]).max() <= 2


def test_what_speaks_is_thick_and_what_was_missed_is_dashed() -> None:
    painter = Painter(640, 360, 0.5)
    box = np.array([100.0, 100, 200, 200])
    drawn = {}
    for speaking in (False, True):
        for missed in (False, True):
            picture = np.full((360, 640, 3), 128, np.uint8)
            painter.paint(picture, 0, [ShownFace("face0", box, 0.9, speaking, missed)])
            on_side = (picture[110:190, 100] == score_color(0.9)).all(axis=-1)
            across = (picture[150 if on_side[40] else 110 + int(on_side.argmax()), 100:120] == score_color(0.9)).all(-1)
            drawn[speaking, missed] = (on_side.mean(), int(across.sum()))
    assert drawn[True, False] == (1.0, 2 * drawn[False, False][1])
    assert drawn[False, False][0] == 1.0
    assert 0.4 < drawn[False, True][0] < 0.8
    assert 0.4 < drawn[True, True][0] < 0.8


def test_labels_do_not_cover_each_other_while_there_is_room() -> None:
    painter = Painter(640, 360, 0.5)
    taken: list[tuple[int, int, int, int]] = []
    picture = np.zeros((360, 640, 3), np.uint8)
    for number in range(4):  # one on top of the other
        painter._label(picture, ShownFace(f"face{number}", np.array([100.0, 100, 260, 260]), 0.5, False, False), taken)
    for first, one in enumerate(taken):
        for other in taken[first + 1 :]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_colors_rise_from_blue_to_amber() -> None:
    assert score_color(0.0).tolist() == [62, 124, 230]
    assert score_color(1.0).tolist() == [255, 176, 0]
    colors = score_colors(np.linspace(0, 1, 101)).astype(int)
    # Blue against yellow is what people who mix up red and green still see: it only ever falls.
    assert (np.diff(colors[:, 2] - colors[:, :2].mean(axis=1)) < 0).all()


def test_an_interrupted_overlay_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FILM.write(tmp_path / "talk.mp4", duration_s=0.8)
    result = ingested_result(source, tmp_path / "media", [moving_face(20)])

    def stop(self: Painter, picture: Any, frame: int, faces: Any) -> Any:
        if frame == 10:
            raise KeyboardInterrupt
        return np.concatenate([picture, self._strip(frame, faces)])

    monkeypatch.setattr(Painter, "paint", stop)
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        draw(result, tmp_path / "out" / "overlay.mp4")
    assert not list((tmp_path / "out").iterdir())


def test_a_missed_face_is_told_from_a_detected_one(tmp_path: Path) -> None:
    """The dashes come from the track's own marks, frame by frame."""
    source = FILM.write(tmp_path / "talk.mp4", duration_s=0.4)
    seen = [DETECTED] * 5 + [MISSED] * 5
    one = face("face0", 0, [0.95] * 10, (20, 8, 120, 56), seen)
    draw(ingested_result(source, tmp_path / "media", [one]), tmp_path / "overlay.mp4")
    shown = pictures(tmp_path / "overlay.mp4").astype(int)
    amber = (np.abs(shown[:, 10 * SCALE : 54 * SCALE, 20 * SCALE + 1] - [255, 176, 0]).sum(axis=-1) < 150).mean(axis=1)
    assert (amber[:5] > 0.95).all()
    assert (amber[5:] < 0.85).all()


def test_a_browser_plays_it(drawn: tuple[Result, Path], tmp_path: Path) -> None:
    _, path = drawn
    page_path = tmp_path / "page.html"
    page_path.write_text(f'<video id="v" src="{path.as_uri()}" preload="auto" muted></video>', encoding="utf-8")
    with browser() as chromium:
        page = chromium.new_page()
        page.goto(page_path.as_uri())
        if not page.evaluate("""v.canPlayType('video/mp4; codecs="avc1.64001f, mp4a.40.2"')"""):
            pytest.skip("this browser was built without H.264")
        page.wait_for_function("v.readyState === 4 || v.error")
        assert page.evaluate("v.error && v.error.message") is None
        assert page.evaluate("[v.duration, v.videoWidth, v.videoHeight]") == [4.0, 640, 256 + STRIP_PX]
        page.evaluate("() => new Promise(done => { v.onseeked = done; v.currentTime = 3; })")
        page.evaluate("() => v.play()")
        page.wait_for_function("v.ended")
        assert page.evaluate("v.webkitVideoDecodedByteCount > 0 && v.webkitAudioDecodedByteCount > 0")
