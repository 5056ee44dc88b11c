"""Labels meet scores by key: any order, any format of time, and never a row too few, too many or twice."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.join import join
from avfusion.tracks import LabelTable, ScoreTable


def columns(keys):
    videos, times_ms, entities = zip(*keys, strict=True) if keys else ((), (), ())
    return {
        "video_id": np.array(videos, dtype=object),
        "timestamp_ms": np.array(times_ms, dtype=np.int64),
        "boxes_xyxy": np.zeros((len(keys), 4), np.float32),
        "entity_id": np.array(entities, dtype=object),
        "line": np.arange(1, len(keys) + 1),
    }


def label_table(keys):
    return LabelTable(**columns(keys), speaking=np.arange(len(keys)) % 2 == 0, path="gt.csv")


def score_table(keys):
    return ScoreTable(**columns(keys), score=np.arange(len(keys), dtype=np.float64), path="pred.csv")


KEYS = [("a", 0, "a:1"), ("a", 40, "a:1"), ("a", 0, "a:2"), ("b", 0, "b:1"), ("b", 40, "b:1")]


def test_scores_follow_their_rows_and_labels_keep_their_order():
    order = [3, 0, 4, 2, 1]
    joined = join(label_table(KEYS), score_table([KEYS[index] for index in order]))
    assert joined.score.tolist() == [1, 4, 3, 0, 2]  # the place of each label row in the shuffled scores
    assert joined.speaking.tolist() == [True, False, True, False, True]
    assert list(zip(joined.video_id, joined.timestamp_ms, joined.entity_id, strict=True)) == KEYS


def test_an_entity_of_another_video_is_another_face():
    # The same entity name in two videos; the scores of the second come first.
    keys = [("a", 0, "1"), ("b", 0, "1")]
    assert join(label_table(keys), score_table(keys[::-1])).score.tolist() == [1, 0]


@pytest.mark.parametrize("shift_ms", [-5, -3, 0, 3, 5])
def test_times_rounded_to_two_digits_match(shift_ms):
    shifted = [(video, time + 1000 + shift_ms, entity) for video, time, entity in KEYS]
    labels = label_table([(video, time + 1000, entity) for video, time, entity in KEYS])
    assert join(labels, score_table(shifted)).score.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shift_ms", [-20, -6, 6, 20])
def test_half_a_frame_off_is_an_error_that_says_how_far(shift_ms):
    labels = label_table([(video, time + 1000, entity) for video, time, entity in KEYS])
    shifted = [(video, time + 1000 + shift_ms, entity) for video, time, entity in KEYS]
    with pytest.raises(AvfusionError) as caught:
        join(labels, score_table(shifted))
    message = str(caught.value)
    assert "pred.csv: no score for 5 of 5 label rows: 'a' at 1.000 s, 'a:1' (line 1), " in message
    assert f"nearest score of the first is {abs(shift_ms)} ms away" in message
    assert "5 of 5 score rows without a label" in message
    assert "\n" not in message


def test_a_missing_row_is_named():
    with pytest.raises(AvfusionError) as caught:
        join(label_table(KEYS), score_table(KEYS[:2] + KEYS[3:]))
    assert "no score for 1 of 5 label rows: 'a' at 0.000 s, 'a:2' (line 3) (no score of that face at all)" in str(
        caught.value
    )
    assert "without a label" not in str(caught.value)


def test_an_extra_row_is_named():
    with pytest.raises(AvfusionError) as caught:
        join(label_table(KEYS[:4]), score_table([KEYS[4], *KEYS[:4]]))
    assert "pred.csv: 1 of 5 score rows without a label: 'b' at 0.040 s, 'b:1' (line 1); expected" in str(caught.value)
    assert "no score" not in str(caught.value)


def test_missing_in_one_place_and_extra_in_another():
    # As many rows on both sides: a count alone would not notice.
    with pytest.raises(AvfusionError) as caught:
        join(label_table(KEYS), score_table([*KEYS[:4], ("b", 80, "b:1")]))
    assert "no score for 1 of 5 label rows: 'b' at 0.040 s" in str(caught.value)
    assert "1 of 5 score rows without a label: 'b' at 0.080 s" in str(caught.value)


def test_only_the_first_rows_are_named():
    keys = [("a", 40 * index, "a:1") for index in range(50)]
    with pytest.raises(AvfusionError) as caught:
        join(label_table(keys), score_table(keys[:10]))
    message = str(caught.value)
    assert "no score for 40 of 50 label rows: 'a' at 0.400 s" in message
    assert message.count("'a:1'") == 3


def test_duplicates_are_named_with_their_line():
    with pytest.raises(AvfusionError, match=r"pred.csv: 1 duplicate rows.*'a' at 0.040 s, 'a:1' \(line 6\)"):
        join(label_table(KEYS), score_table([*KEYS, KEYS[1]]))
    with pytest.raises(AvfusionError, match=r"gt.csv: 1 duplicate rows.*'a' at 0.040 s, 'a:1' \(line 6\)"):
        join(label_table([*KEYS, KEYS[1]]), score_table(KEYS))


def test_no_labels_is_an_error_and_no_scores_are_all_missing():
    with pytest.raises(AvfusionError, match="no label rows"):
        join(label_table([]), score_table([]))
    with pytest.raises(AvfusionError, match="no score for 5 of 5 label rows"):
        join(label_table(KEYS), score_table([]))


@pytest.mark.parametrize("seed", range(10))
def test_names_exactly_the_rows_that_differ(seed):
    generator = np.random.default_rng(seed)
    every = [(f"v{video}", 33 * frame, f"e{face}") for video in range(3) for face in range(2) for frame in range(12)]
    kept = generator.random((2, len(every))) < 0.9
    kept[:, :2] = [[True, False], [False, True]]
    noise = generator.integers(-5, 6, len(every))
    labels = label_table([key for key, keep in zip(every, kept[0], strict=True) if keep])
    moved = [(video, max(0, time + int(shift)), face) for (video, time, face), shift in zip(every, noise, strict=True)]
    scores = score_table([key for key, keep in zip(moved, kept[1], strict=True) if keep])
    with pytest.raises(AvfusionError) as caught:
        join(labels, scores)
    missing, extra = int((kept[0] & ~kept[1]).sum()), int((kept[1] & ~kept[0]).sum())
    assert f"no score for {missing} of {len(labels)} label rows" in str(caught.value)
    assert f"{extra} of {len(scores)} score rows without a label" in str(caught.value)
