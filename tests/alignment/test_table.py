"""Rows for every model, layer and head, with the figures they were made from, in every form that goes out."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

from avfusion.alignment.columns import COLUMNS, measured
from avfusion.alignment.table import as_csv, as_json, as_markdown, head_rows, tables, wandb_columns, wandb_rows
from tests.alignment.planted_heads import planted_measures


def test_rows_are_models_times_layers_times_heads_in_order() -> None:
    rows = head_rows(planted_measures(layers=2))
    assert len(rows) == 3 * 2 * 4
    assert [(r.model, r.layer, r.head) for r in rows[3:6]] == [("trained", 1, 4), ("trained", 2, 1), ("trained", 2, 2)]
    assert rows[0].words.startswith("follows the sound (slope 0.97")
    assert rows[-1].words == "control: null 85 %"
    assert rows[1]["lag_ms"].value == 80.0
    assert (rows[1]["lag_ms"].low, rows[1]["lag_ms"].high) == (79.0, 81.0)
    assert math.isnan(rows[1]["entropy"].value)  # not measured
    assert sum("follows" in r.words for r in rows) == 2  # the first head of both layers, trained


def test_without_an_untrained_model_no_head_follows() -> None:
    measures = planted_measures()
    del measures["untrained"]
    assert not any("follows" in row.words for row in head_rows(measures))


def test_csv_holds_every_figure_with_its_interval() -> None:
    rows = head_rows(planted_measures())
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert len(read) == 12
    assert len(read[0]) == 4 + 3 * len(COLUMNS)
    assert read[0]["words"] == rows[0].words
    assert (float(read[0]["slope"]), float(read[0]["slope_low"]), float(read[0]["slope_high"])) == (0.97, 0.95, 0.99)
    assert read[0]["entropy"] == read[8]["slope"] == ""


def test_json_gives_back_what_the_tables_need() -> None:
    rows = head_rows(planted_measures())
    plain = json.loads(json.dumps(as_json(rows), allow_nan=False))
    assert plain[0]["slope"] == [0.97, 0.95, 0.99]
    assert "entropy" not in plain[0]
    (main, header, body), (_, models, controls) = tables(plain)
    assert main.startswith("Attention heads")
    assert len(header) == len(body[0]) == 11
    assert len(body) == 8  # trained and untrained; the control stands in the second table
    assert body[0][3:] == [
        "0.97 (0.95..0.99)", "0.99", "−0.080 (−0.100..−0.060)", "24 ms (best constant lag 66)", "+62 ms", "45 ms",
        "10 %", "80 %",
    ]  # fmt: skip
    assert body[4][6] == "-"
    assert models == ["head", "trained", "untrained", "other sound"]
    assert controls[0] == ["1", "+62 ms, 45 ms, 10 %", "+2 ms, 280 ms, 1 %", "+5 ms, 250 ms, 85 %"]
    assert tables([]) == []


def test_heads_of_several_layers_are_named_with_their_layer() -> None:
    (_, _, body), _ = tables(as_json(head_rows(planted_measures(layers=2))))
    assert [cells[1] for cells in body[:5]] == ["1.1", "1.2", "1.3", "1.4", "2.1"]


def test_markdown_has_one_cell_for_each_column() -> None:
    lines = [line for line in as_markdown(head_rows(planted_measures())).splitlines() if line.startswith("|")]
    assert len(lines) == (2 + 8) + (2 + 4)
    assert {line.count("|") for line in lines[:10]} == {12}
    assert {line.count("|") for line in lines[10:]} == {5}


def test_remarks_stand_below_the_tables() -> None:
    rows = head_rows(planted_measures())
    assert as_markdown(rows, ["one", "two"]) == as_markdown(rows) + "\n- one\n- two\n"


def test_wandb_rows_fit_their_columns_and_keep_numbers() -> None:
    rows, columns = wandb_rows(head_rows(planted_measures())), wandb_columns()
    assert {len(row) for row in rows} == {len(columns)}
    first = dict(zip(columns, rows[0], strict=True))
    assert first["slope"] == 0.97
    assert first["slope 95 %"] == "0.95..0.99"
    assert first["entropy"] is None  # nothing stands in a cell without a figure
    assert first["words"].startswith("follows")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown \\['sloppe'\\]"):
        head_rows({"trained": {"sloppe": np.zeros((1, 4, 3))}})
    with pytest.raises(ValueError, match="one shape"):
        head_rows({"trained": {"slope": np.zeros((1, 4, 3)), "lag_ms": np.zeros((1, 2, 3))}})


def test_intervals_join_their_values() -> None:
    value = np.array([[1.0, 2.0]])
    joined = measured(value, np.stack([value - 1, value + 1]))
    np.testing.assert_array_equal(joined, [[[1, 0, 2], [2, 1, 3]]])
    np.testing.assert_array_equal(measured(value)[..., 1:], np.full((1, 2, 2), np.nan))
