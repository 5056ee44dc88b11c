"""Facts about scores at the annotated stamps: each row takes its entity's nearest frame, whatever piece holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.source_rows import score_source_rows
from avfusion.tracks import LabelTable, ScoreTable, read_labels, write_scores


def columns(rows: list[tuple[str, int, str]]) -> dict[str, np.ndarray]:
    return {
        "video_id": np.array([row[0] for row in rows], dtype=object),
        "timestamp_ms": np.array([row[1] for row in rows], dtype=np.int64),
        "boxes_xyxy": np.zeros((len(rows), 4), dtype=np.float32),
        "entity_id": np.array([row[2] for row in rows], dtype=object),
        "line": np.zeros(len(rows), dtype=np.int64),
    }


def labels(rows: list[tuple[str, int, str]]) -> LabelTable:
    return LabelTable(**columns(rows), speaking=np.zeros(len(rows), dtype=np.bool_))


def scores(rows: list[tuple[str, int, str, float]]) -> ScoreTable:
    return ScoreTable(**columns([row[:3] for row in rows]), score=np.array([row[3] for row in rows]))


def test_rows_take_the_nearest_frame_of_any_piece_in_any_order() -> None:
    # Frames 0, 40, 80 and, after a gap, 2000, 2040; rows at 29.97 per second, rounded to 10 ms and shuffled.
    frames = [("v", 40 * i, "a", 0.1 * i) for i in range(3)] + [("v", 2000, "a#2", 0.8), ("v", 2040, "a#2", 0.9)]
    frames += [("w", 0, "a", 0.55), ("v", 0, "b", 0.77)]
    _, found = score_source_rows(
        labels([("v", 2030, "a"), ("v", 70, "a"), ("v", 0, "b"), ("v", 30, "a"), ("w", 10, "a"), ("v", 1990, "a")]),
        scores(frames),
    )
    np.testing.assert_allclose(found.score, [0.9, 0.2, 0.77, 0.1, 0.55, 0.8])
    assert found.timestamp_ms.tolist() == [2030, 70, 0, 30, 10, 1990]


def test_an_entity_whose_own_id_ends_like_a_piece_keeps_its_scores() -> None:
    frames = scores([("v", 0, "a", 0.1), ("v", 0, "a#2", 0.9), ("v", 200, "a#2#2", 0.7)])
    _, found = score_source_rows(labels([("v", 0, "a"), ("v", 0, "a#2"), ("v", 200, "a#2")]), frames)
    np.testing.assert_allclose(found.score, [0.1, 0.9, 0.7])


@pytest.mark.parametrize("row", [("v", 66, "a"), ("v", 0, "c"), ("w", 0, "a")])
def test_a_row_without_a_near_frame_is_named(row: tuple[str, int, str]) -> None:
    with pytest.raises(AvfusionError, match=f"1 of 2 annotated rows have no frame within 25 ms, first '{row[0]}'"):
        score_source_rows(labels([("v", 64, "a"), row]), scores([("v", 0, "a", 0.1), ("v", 40, "a", 0.2)]))


def test_rows_of_tracks_that_were_left_out_are_left_out_on_demand() -> None:
    source = labels([("v", 5, "a"), ("v", 0, "c")])
    kept, found = score_source_rows(source, scores([("v", 0, "a", 0.1)]), partial=True)
    assert kept.entity_id.tolist() == found.entity_id.tolist() == ["a"]
    assert found.score.tolist() == [0.1]
    with pytest.raises(AvfusionError, match="2 of 2 annotated rows"):
        score_source_rows(source, scores([("w", 0, "a", 0.1)]), partial=True)


def test_the_official_tool_finds_every_row_in_the_score_file(tmp_path: Path) -> None:
    """It joins rows by the text of the time and the entity, and wants boxes equal within 1e-9."""
    rows = [["v", f"{n / 29.97:.6f}", f"{0.1 + n / 7:.9f}", "0.0277778", f"{0.2 + n / 7:.9f}", "0.7"] for n in range(4)]
    text = "".join(",".join([*row, "NOT_SPEAKING", "a"]) + "\n" for row in rows)
    (tmp_path / "val.csv").write_text(text)
    source = read_labels(tmp_path / "val.csv", keep_texts=True)
    _, found = score_source_rows(source, scores([("v", 40 * n, "a", 0.1 * n) for n in range(4)]))
    write_scores(tmp_path / "scores.csv", found)
    written = [line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()[1:]]
    assert [row[:6] for row in written] == rows
    # Rows that are left out take their texts along.
    kept, _ = score_source_rows(source, scores([("v", 100, "a", 0.1)]), partial=True)
    assert kept.texts is not None
    assert kept.texts.tolist() == [",".join(rows[3][1:])]
    assert replace(kept, texts=None).timestamp_ms.tolist() == [100]
