"""The page as a file: what the JSON holds, what it weighs, what goes first when it may weigh less."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from PIL import Image

from avfusion.alignment.viewer import encoding
from avfusion.alignment.viewer.encoding import mean_lags_ms, shift_slopes
from avfusion.alignment.viewer.page import HeadView, ViewerFace, ViewerScene, write_viewer
from avfusion.errors import AvfusionError
from tests.alignment.viewer.planted_scenes import FOLLOWS, GATED, LAGS_MS, SPREAD, STAYS, planted_scene, planted_view

MB_OF_A_MINUTE = 14.52  # one face, 8 heads, 11 shifts of two models, two sounds of noise (which FLAC cannot pack)


def page_of(path: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    page: dict[str, Any] = json.loads(found[1])
    return page


def unpacked(packed: dict[str, Any]) -> NDArray[Any]:
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), {"u8": "<u1", "u16": "<u2"}[packed["type"]])
    array = raw.reshape(packed["shape"])
    return np.cumsum(array, axis=-1, dtype=array.dtype) if packed["differences"] else array


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[ViewerScene, Path, int]:
    scene = planted_scene(3, shifts=(-80, 0, 80))
    path = tmp_path_factory.mktemp("page") / "viewer.html"
    return scene, path, write_viewer(path, [scene], title="</script><b>name")


def test_weights_come_back_within_half_a_step_of_the_square_root(small: tuple[ViewerScene, Path, int]) -> None:
    scene, path, written = small
    assert written == path.stat().st_size
    page = page_of(path)
    kept = page["scenes"][0]
    assert page["title"] == "</script><b>name"
    for number, face in enumerate(scene.faces):
        for shift, view in face.views["trained"].items():
            found = kept["faces"][number]["views"]["trained"][str(shift)]
            share = np.sqrt(np.nan_to_num(view.maps).swapaxes(-1, -2) / kept["largest"])
            assert np.abs(unpacked(found["maps"]) / 255 - share).max() <= 0.5 / 255 + 1e-6
            assert np.abs(unpacked(found["null"]) / 255 - view.null_mass).max() <= 0.5 / 255 + 1e-6
            assert np.abs(unpacked(found["scores"]) / 65535 - view.scores).max() < 1e-5
        without = unpacked(kept["faces"][number]["ablated"]["trained"]) / 65535
        assert np.abs(without - face.ablated["trained"]).max() < 1e-5


def test_no_name_opens_a_tag(tmp_path: Path) -> None:
    path = tmp_path / "viewer.html"
    names = ["<!--<script>", "</script>", "/*VIEWER_JS*/ & <b>"]
    write_viewer(path, [planted_scene(1, 1, 1, title=name, shifts=(0,)) for name in names], title=names[0])
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert "<" not in found[1]
    assert [scene["title"] for scene in page_of(path)["scenes"]] == names


def test_sound_and_pictures_are_encoded_once_whatever_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = encoding.encode_media
    monkeypatch.setattr(encoding, "encode_media", lambda scene: calls.append(1) or real(scene))
    scene = planted_scene(1, 1, 1, shifts=(-40, 0, 40))
    with pytest.raises(AvfusionError, match="alone needs"):
        write_viewer(tmp_path / "viewer.html", [scene], max_mb=0.05)
    assert len(calls) == 1


def test_fewer_levels_come_before_fewer_shifts() -> None:
    steps = [(detail.shifted_levels, detail.shift_step, len(detail.shifts_of)) for detail in encoding.DETAILS]
    assert steps == [(255, 1, 3), (63, 1, 3), (31, 1, 3), (31, 2, 3), (31, 2, 1)]


def test_sound_and_pictures_come_back(small: tuple[ViewerScene, Path, int]) -> None:
    scene, path, _ = small
    kept = page_of(path)["scenes"][0]
    heard, rate = soundfile.read(io.BytesIO(base64.b64decode(kept["sounds"]["own"]["flac"])))
    assert rate == 16000
    assert np.abs(heard - scene.sound).max() < 1 / 32768
    face = kept["faces"][0]
    sheets = [Image.open(io.BytesIO(base64.b64decode(sheet))).convert("L") for sheet in face["sheets"]]
    crops = scene.faces[0].crops
    assert crops is not None
    assert [sheet.size for sheet in sheets] == [(48 * 25, 48)] * 3
    found = np.asarray(sheets[1])[:, 48 * 4 : 48 * 5]  # frame 29
    assert np.abs(found.astype(float) - crops[29]).mean() < 8  # of 255; the grain is 5


def test_lag_and_slope_of_planted_heads() -> None:
    speaking = np.ones(100, dtype=bool)
    inside = np.zeros(100, dtype=bool)
    inside[20:80] = True
    lags = {
        shift: mean_lags_ms(planted_view(speaking, 4, shift, "trained", 0, 0, 100), inside)
        for shift in (-120, -40, 0, 40, 120)
    }
    assert lags[0][0, FOLLOWS] == pytest.approx(60, abs=8)
    assert lags[0][0, STAYS] == pytest.approx(-100, abs=8)
    slopes = shift_slopes(lags)
    assert slopes is not None
    assert slopes[0, [FOLLOWS, STAYS, GATED]] == pytest.approx([1, 0, 1], abs=0.02)
    assert shift_slopes({0: lags[0], 40: lags[40]}) is None


def test_a_head_that_hears_nothing_has_no_lag() -> None:
    maps = np.full((1, 1, 4, 3), 0.01, np.float32)
    view = HeadView(maps, np.full((1, 1, 4), 0.97, np.float32), np.zeros(4, np.float32))
    assert np.isnan(mean_lags_ms(view, np.ones(4, dtype=bool))[0, 0])


def test_lag_by_hand() -> None:
    maps = np.array([0.1, 0.2, 0.5], np.float32).reshape(1, 1, 1, 3)  # lags -10, 0, 10 ms
    view = HeadView(maps, np.full((1, 1, 1), 0.2, np.float32), np.zeros(1, np.float32))
    assert mean_lags_ms(view, np.ones(1, dtype=bool))[0, 0] == pytest.approx(10 * (0.5 - 0.1) / 0.8)


@pytest.mark.slow
def test_a_minute_with_eight_heads_and_all_shifts_stays_under_15_mb(tmp_path: Path) -> None:
    path = tmp_path / "viewer.html"
    written = write_viewer(path, [planted_scene(60, heads=8, faces=1)], max_mb=15)
    assert page_of(path)["left_out"] == []
    assert written / 1e6 == pytest.approx(MB_OF_A_MINUTE, rel=0.02)
    assert written < 15e6


def test_what_does_not_fit_is_left_out_and_told(tmp_path: Path) -> None:
    scenes = [planted_scene(1.6, 2, 1, title=name, shifts=(-80, -40, 0, 40, 80)) for name in ("a", "b")]
    path = tmp_path / "viewer.html"
    whole = write_viewer(path, scenes)
    shell = 46_000  # template and script
    smaller = write_viewer(path, scenes, max_mb=(whole - 0.04 * (whole - shell)) / 1e6)
    page = page_of(path)
    assert smaller < whole - 0.04 * (whole - shell)
    assert page["left_out"] == ["fine shades of maps of moved sound"]
    assert page["scenes"][0]["faces"][0]["views"]["trained"]["40"]["levels"] == 63
    write_viewer(path, scenes, max_mb=(shell + 0.44 * (whole - shell)) / 1e6)
    page = page_of(path)
    assert page["left_out"][-1] == "1 of 2 scenes"
    face = page["scenes"][0]["faces"][0]
    assert list(face["views"]["trained"]) == ["-80", "0", "80"]
    assert list(face["views"]["untrained"]) == ["0"]
    assert face["views"]["trained"]["0"]["levels"] == 255
    with pytest.raises(AvfusionError, match=r"the scene a alone needs .* MB, at most 0.06 MB are allowed"):
        write_viewer(path, scenes, max_mb=0.06)


def test_wrong_shapes_are_told() -> None:
    view = planted_view(np.ones(5, dtype=bool), 2, 0, "trained", 0, 0, 5)
    with pytest.raises(ValueError, match="expected T > 0 labels and a trained view at shift 0"):
        ViewerFace("one", np.ones(5, dtype=bool), {"untrained": {0: view}})
    with pytest.raises(ValueError, match="one: trained at 0 ms: expected shapes"):
        ViewerFace("one", np.ones(6, dtype=bool), {"trained": {0: view}})
    face = ViewerFace("one", np.ones(5, dtype=bool), {"trained": {0: view}}, first_frame=1)
    with pytest.raises(ValueError, match="one does not lie inside the scene's 5 frames"):
        ViewerScene("s", np.zeros(3200, np.float32), np.zeros((20, 8), np.float32), [face])
    assert len(LAGS_MS) == view.maps.shape[-1]
    assert SPREAD == 3
