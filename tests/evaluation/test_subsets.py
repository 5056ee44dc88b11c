"""Subsets, each against rows chosen by hand, and their figures against those of the rows alone."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.join import Joined
from avfusion.evaluation.report import evaluate
from avfusion.evaluation.subset_files import read_categories, read_stretches
from avfusion.evaluation.subsets import faces_in_frame, subset_rows, subsets, track_lengths_s


def make_joined(rows, widths=None):
    """Rows of video, entity, time in ms, label, score; widths are fractions of the picture."""
    videos, entities, times_ms, labels, scores = zip(*rows, strict=True)
    boxes = np.zeros((len(rows), 4), np.float32)
    boxes[:, 0] = 0.3
    boxes[:, 2] = 0.3 + np.array(widths if widths is not None else [0.1] * len(rows))
    return Joined(
        video_id=np.array(videos, dtype=object),
        entity_id=np.array(entities, dtype=object),
        timestamp_ms=np.array(times_ms, np.int64),
        boxes_xyxy=boxes,
        speaking=np.array(labels, bool),
        score=np.array(scores, np.float64),
    )


def random_joined(seed=0, videos=6, rows=300):
    generator = np.random.default_rng(seed)
    table = []
    for _ in range(rows):
        video, entity = int(generator.integers(videos)), int(generator.integers(4))
        label = bool(generator.random() < 0.4)
        table.append((f"v{video}", f"v{video}:{entity}", 40 * len(table), label, generator.normal() + label))
    return make_joined(table, generator.uniform(0.01, 0.2, rows))


def kept(joined, kind, **options):
    return {s.name: np.flatnonzero(s.kept).tolist() for s in subsets(joined, **options) if s.kind == kind}


def test_face_widths_are_those_of_the_picture_and_64_and_128_are_in_the_middle():
    widths_px = np.array([63.9, 64.0, 64.1, 128.0, 128.1, 0.0])
    rows = [("v", f"e{n}", 0, n == 0, 0.5) for n in range(6)]
    for picture_width_px in (640, 1280, 1920):
        joined = make_joined(rows, widths_px / picture_width_px)
        found = kept(joined, "face width", picture_width_px=picture_width_px)
        assert found == {"below 64 px": [0, 5], "64 to 128 px": [1, 2, 3], "above 128 px": [4]}
    assert kept(make_joined(rows, widths_px / 640), "face width") == {
        "below 64 px": [5],
        "64 to 128 px": [0, 1],
        "above 128 px": [2, 3, 4],
    }


def test_faces_are_counted_in_the_frame_of_their_video_within_5_ms():
    rows = [("a", "a:1", 0), ("b", "b:1", 3), ("a", "a:2", 5), ("a", "a:3", 40), ("a", "a:1", 46), ("b", "b:2", 0)]
    rows += [("a", f"a:{n}", 80) for n in range(4)] + [("a", "a:1", 1000)]
    joined = make_joined([(*row, True, 0.5) for row in rows])
    assert faces_in_frame(joined).tolist() == [2, 2, 2, 1, 1, 2, 4, 4, 4, 4, 1]
    assert kept(joined, "faces in frame") == {"1": [3, 4, 10], "2": [0, 1, 2, 5], "3 or more": [6, 7, 8, 9]}
    shuffled = np.random.default_rng(0).permutation(len(rows))
    again = make_joined([(*rows[index], True, 0.5) for index in shuffled])
    assert faces_in_frame(again).tolist() == faces_in_frame(joined)[shuffled].tolist()


def test_a_track_is_as_long_as_from_its_first_to_its_last_row():
    rows = [("a", "x", 5000), ("a", "y", 0), ("b", "x", 0), ("a", "x", 4000), ("a", "y", 1001), ("b", "x", 6040)]
    rows += [("b", "z", 700), ("c", "x", 0), ("c", "x", 3000), ("c", "y", 0), ("c", "y", 6000)]
    joined = make_joined([(*row, True, 0.5) for row in rows])
    assert track_lengths_s(joined).tolist() == [1.0, 1.001, 6.04, 1.0, 1.001, 6.04, 0.0, 3.0, 3.0, 6.0, 6.0]
    assert kept(joined, "track length") == {
        "up to 1 s": [0, 3, 6],
        "1 to 3 s": [1, 4, 7, 8],
        "3 to 6 s": [9, 10],
        "above 6 s": [2, 5],
    }


def test_a_frame_has_the_sound_of_the_stretch_that_holds_its_time(tmp_path):
    path = tmp_path / "speech.csv"
    path.write_text(
        "007,2.00,3.00,NO_SPEECH\nNA,0,9,SPEECH_WITH_MUSIC\n007,1.00,2.00,CLEAN_SPEECH\n007,4,5,NO_SPEECH\n"
    )
    times_ms = [999, 1000, 1999, 2000, 2999, 3000, 4500, 5000]
    rows = [*(("007", "e", time) for time in times_ms), ("x", "e", 0), ("NA", "e", 8999)]
    joined = make_joined([(*row, True, 0.5) for row in rows])
    assert kept(joined, "sound", sound=read_stretches(path)) == {
        "CLEAN_SPEECH": [1, 2],
        "NO_SPEECH": [3, 4, 6],
        "SPEECH_WITH_MUSIC": [9],
        "not annotated": [0, 5, 7, 8],
    }
    with pytest.raises(AvfusionError, match=r"speech.csv: none of its 2 videos \(first '007'\) .*\(first 'y'\)"):
        subsets(make_joined([("y", "e", 0, True, 0.5)]), sound=read_stretches(path))


def test_a_video_may_be_of_several_categories_or_of_none(tmp_path):
    path = tmp_path / "categories.csv"
    path.write_bytes("\ufeffvideo_id,category\r\n1e5,loud\r\n007,crowd\r\n1e5,crowd\r\n1e5,loud\r\n".encode())
    joined = make_joined([(video, "e", 0, True, 0.5) for video in ("007", "1e5", "7", "100000.0")])
    assert read_categories(path) == {"1e5": ("loud", "crowd"), "007": ("crowd",)}
    assert kept(joined, "category", categories=read_categories(path)) == {"crowd": [0, 1], "loud": [1]}


def test_figures_of_a_subset_are_those_of_its_rows_alone():
    joined = random_joined()
    chosen = subsets(joined)
    rows = subset_rows(joined, chosen, resamples=60, seed=5)
    held = 0
    for subset, row in zip(chosen, rows, strict=True):
        columns = (joined.video_id, joined.entity_id, joined.timestamp_ms, joined.boxes_xyxy, joined.speaking)
        alone = Joined(*(column[subset.kept] for column in columns), joined.score[subset.kept])
        assert row.num_rows == len(alone)
        if not row.num_rows:
            assert (row.average_precision, row.auroc, row.prevalence, row.reason) == (None, None, None, "no rows")
            continue
        held += 1
        few = f"{row.num_groups} sources: an interval over so few says little"
        assert row.reason == (few if row.num_groups > 1 else "one source: no interval")
        whole = evaluate(alone, 60, 5)
        for name in ("average_precision", "average_precision_interval", "auroc", "auroc_interval", "prevalence"):
            assert getattr(row, name) == pytest.approx(getattr(whole, name), abs=1e-12), (row.name, name)
        for name in ("num_positive", "num_tracks", "num_videos", "num_groups"):
            assert getattr(row, name) == getattr(whole, name), (row.name, name)
    assert held >= 5
    for kind in ("face width", "faces in frame", "track length"):
        assert sum(row.num_rows for row in rows if row.kind == kind) == len(joined)


def test_a_subset_where_nobody_or_everybody_speaks_says_so():
    rows = [
        ("v", "a", 0, False, 0.1),
        ("v", "a", 40, False, 0.2),
        ("w", "b", 0, True, 0.3),
        ("w", "b", 2000, True, 0.4),
    ]
    found = {row.name: row for row in subset_rows(make_joined(rows), subsets(make_joined(rows)), resamples=10)}
    silent, loud = found["up to 1 s"], found["1 to 3 s"]
    assert (silent.average_precision, silent.auroc, silent.prevalence, silent.reason) == (
        None,
        None,
        0,
        "no row speaks",
    )
    assert (loud.average_precision, loud.auroc, loud.prevalence, loud.reason) == (1.0, None, 1, "every row speaks")
    assert silent.average_precision_interval is loud.average_precision_interval is None


def test_drawn_videos_without_negatives_do_not_flatter_a_subset():
    # Video b has one perfect positive and no negative. Of a's rows P N N by falling score from below: AP 1/3.
    rows = [("a", "a", 0, False, 0.9), ("a", "a", 40, False, 0.8), ("a", "a", 80, True, 0.7), ("b", "b", 0, True, 1.0)]
    joined = make_joined(rows)
    (row,) = [
        r for r in subset_rows(joined, subsets(joined), resamples=300) if r.num_rows == 4 and r.kind == "face width"
    ]
    assert row.average_precision == pytest.approx((1 + 1 / 2) / 2)
    # aa gives 1/3, ab 3/4; bb would give 1 and is left out.
    assert row.average_precision_interval == pytest.approx((1 / 3, 3 / 4))


def test_subsets_draw_the_groups_that_are_known():
    joined = random_joined(1)
    keys = set(zip(joined.video_id, joined.entity_id, strict=True))
    chosen = subsets(joined)
    by_video = subset_rows(joined, chosen, resamples=20, group_of_entity=dict.fromkeys(keys, ""))
    assert by_video == subset_rows(joined, chosen, resamples=20)
    halves = {(video, entity): "x" if video in ("v0", "v1") else "y" for video, entity in keys}
    by_group = subset_rows(joined, chosen, resamples=20, group_of_entity=halves)
    assert {row.num_groups for row in by_group if row.num_rows} == {2}
    with pytest.raises(AvfusionError, match="no group for 1 of"):
        subset_rows(joined, chosen, group_of_entity=dict.fromkeys(list(keys)[1:], ""))
