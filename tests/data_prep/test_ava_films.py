"""``python -m data_prep.ava`` over films and rows that have something wrong: each is named, the others go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import av
import numpy as np
import pytest

import data_prep.ava as command
from avfusion.data.prepared import PreparedDataset
from avfusion.errors import UsageError
from avfusion.tracks import read_labels
from data_prep.film_plan import find_films, the_film
from tests.data_prep import mini_ava
from tests.data_prep.ava_command import extract, labels_of
from tests.data_prep.mini_ava import MiniAva


def test_bad_films_are_named_and_the_others_go_on(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = tmp_path / "films"
    shutil.copytree(mini.films, films)
    shutil.move(films / "NA.mp4", tmp_path / "NA.mp4")
    whole = (films / "-x.mkv").read_bytes()
    (films / "-x.mkv").write_bytes(whole[: len(whole) // 2])
    (films / "-x.srt").write_text("subtitles of the same name are no film")
    out = tmp_path / "dataset"
    assert extract(mini, out, films=films) == 1
    error = capsys.readouterr().err
    assert "2 of 3 films could not be extracted (train/-x, val/NA)" in error
    assert "val/NA: no film named NA.*" in error
    assert "Traceback" not in error
    assert not (out / "dataset.json").exists()

    assert extract(mini, out, "--allow-missing", films=films) == 0
    assert {track.video_id for track in PreparedDataset(out, "val").tracks} == {"007"}
    assert set(read_labels(out / "source_labels" / "val.csv").video_id) == {"007"}
    assert not (out / "source_labels" / "train.csv").exists()
    told = json.loads((out / "dataset.json").read_text())["left_out"]
    assert told == {"films that are absent or could not be used": {"of": 3, "names": ["train/-x", "val/NA"]}}

    (films / "-x.mkv").write_bytes(whole)
    (films / "deeper").mkdir()
    shutil.move(tmp_path / "NA.mp4", films / "deeper" / "NA.MP4")
    assert extract(mini, out, films=films) == 0
    assert len(PreparedDataset(out, "val").tracks) == 4
    assert len(read_labels(out / "source_labels" / "train.csv")) == 273
    assert "left_out" not in json.loads((out / "dataset.json").read_text())


def test_a_joined_transport_stream_is_as_long_as_its_parts(mini: MiniAva, tmp_path: Path) -> None:
    films = tmp_path / "films"
    films.mkdir()
    mini_ava.write_film(tmp_path / "-x.mkv", mini_ava.FILMS[0])
    part = tmp_path / "part.ts"
    with av.open(str(tmp_path / "-x.mkv")) as source, av.open(str(part), "w") as target:
        video = target.add_stream_from_template(source.streams.video[0])
        sound = target.add_stream("aac", rate=16_000, layout="mono")
        for packet in source.demux():
            if packet.dts is None:
                continue
            if packet.stream.type == "video":
                packet.stream = video
                target.mux(packet)
            else:
                for frame in packet.decode():
                    target.mux(sound.encode(frame))
        target.mux(sound.encode(None))
    (films / "joined.ts").write_bytes(2 * part.read_bytes())  # its header says half of its length
    rows = labels_of(tmp_path / "rows.csv", "joined,11.40,0.1,0.2,0.4,0.8,NOT_SPEAKING,joined:1")
    out = tmp_path / "out"
    assert extract(mini, out, films=films, val=rows) == 0
    (track,) = PreparedDataset(out, "val").tracks
    assert track.start_s == 11.4
    (notes,) = json.loads((out / "dataset.json").read_text())["notes"].values()
    assert any("the parts were joined" in note for note in notes)


def test_a_film_without_a_scored_row_is_missed_too(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, out = tmp_path / "labels", tmp_path / "out"
    labels.mkdir()
    row: dict[str, object] = {"bbox": [0.1, 0.2, 0.4, 0.8], "label": 0}
    for name, counts in (("-x", 1), ("NA", 0)):
        rows = [row | {"time": 0.2 * n, "eval": counts} for n in range(1, 4)]
        (labels / f"{name}.json").write_text(json.dumps({"t": rows}))
    for number in ("1/2", "2/2"):
        assert extract(mini, out, "--columns", "asw", "--shard", number, val=labels) == 0
        if number == "1/2":
            capsys.readouterr()
            assert command.main(["finish", str(out)]) == 1
            assert "1 of 2 films are not extracted yet" in capsys.readouterr().err
    assert command.main(["finish", str(out)]) == 0
    assert set(read_labels(out / "source_labels" / "val.csv").video_id) == {"-x"}
    assert len(PreparedDataset(out, "val").tracks) == 2


def test_a_box_without_area_stops_nothing_and_is_told(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import data_prep.verify as verify

    boxes = ["-0.7,0.2,0.4,0.8", "0.1,0.2,0.1,0.8", "-0.7,0.2,0.4,0.8"]
    lines = [f"NA,1.{4 * n:02d},{box},NOT_SPEAKING,NA:1" for n, box in enumerate(boxes)]
    lines += [f"NA,{n / 25:.2f},0.1,0.1,0.5,0.9,SPEAKING_AUDIBLE,b" for n in range(9)]
    rows = labels_of(tmp_path / "rows.csv", *lines)
    assert extract(mini, tmp_path / "out", val=rows) == 0
    assert "1 annotated boxes have no area" in capsys.readouterr().err
    table = read_labels(tmp_path / "out" / "labels" / "val.csv")
    np.testing.assert_allclose(table.boxes_xyxy[table.entity_id == "NA:1", 0], -0.7, rtol=1e-6)
    verify.main([str(tmp_path / "out"), "--fast"])
    assert "boxes" not in capsys.readouterr().out  # what extract takes is no fault to verify


def test_annotation_beyond_the_films_end_names_the_face_and_the_length(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = labels_of(
        tmp_path / "late.csv",
        *(f"NA,{t:.2f},0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:1" for t in (1.0, 1.04)),
        *(f"NA,{t:.2f},0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:late" for t in (900.0, 900.04)),
    )
    assert extract(mini, tmp_path / "out", val=late) == 1
    error = capsys.readouterr().err
    assert "'NA:late' is annotated until 900.04 s" in error
    assert "but the film lasts 6.0" in error
    assert "or the stamps are not in seconds" in error  # 150 times as long is no other cut
    late = labels_of(tmp_path / "late.csv", "NA,10.00,0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:late")
    assert extract(mini, tmp_path / "other", val=late) == 1
    error = capsys.readouterr().err
    assert "another cut of the film" in error
    assert "not in seconds" not in error


@pytest.mark.parametrize("ending", [".ogv", ".vob", ".m2ts", ".mts", ".MPG", ".3gp", ".mkv"])
def test_a_second_film_of_any_ending_is_a_conflict(mini: MiniAva, tmp_path: Path, ending: str) -> None:
    (tmp_path / "v.mp4").touch()
    (tmp_path / f"v{ending}").touch()
    with pytest.raises(UsageError, match=r"film 'v' is there as .*, expected one of them"):
        the_film("v", find_films(tmp_path)["v"])


def test_a_film_whose_name_differs_in_case_is_pointed_at(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = tmp_path / "films"
    films.mkdir()
    (films / "Talk.mp4").touch()
    labels = labels_of(tmp_path / "val.csv", "talk,1.00,0.1,0.2,0.4,0.8,NOT_SPEAKING,a")
    assert extract(mini, tmp_path / "out", films=films, val=labels) == 1
    assert "no film named talk.*" in (error := capsys.readouterr().err)
    assert "(Talk.mp4 differs in case: rename it)" in error


def test_a_film_without_sound_is_refused(mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    films = tmp_path / "films"
    films.mkdir()
    with av.open(str(films / "mute.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 90, dtype=np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    rows = labels_of(tmp_path / "rows.csv", "mute,0.08,0.1,0.2,0.4,0.8,NOT_SPEAKING,mute:1")
    assert extract(mini, tmp_path / "out", films=films, val=rows) == 1
    error = capsys.readouterr().err
    assert "mute.mp4" in error
    assert "no audio stream" in error
    assert not list((tmp_path / "out").rglob("*.flac"))
