"""Every kind of model streams as it scores offline, or is refused in a line that says why."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from avfusion.config import load_config
from avfusion.errors import UsageError
from avfusion.inference import Stream
from tests.inference.streams import CPU, VISITS, assert_streams_as_offline, model_of, small
from tests.models.baselines.planted import tiny_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
VARIANTS: dict[str, dict[str, object]] = {
    "faces that do not know of each other": {"speaker__layers": 0},
    "two layers": {"fusion__layers": 2, "temporal__layers": 2, "speaker__layers": 2},
    "keys at 25 Hz": {"fusion__key_hz": 25},
    "no attention": {"fusion__kind": "concat"},
    "nothing over time": {"temporal__layers": 0},
    "sound only": {"modality": "audio"},
    "picture only": {"modality": "video"},
    "convolution first": {"temporal__order": "convolution_first", "temporal__kernel": 9},
    "wide encoders": {"audio__channels": [4, 4, 4], "audio__temporal_kernel": 15},
    "narrow encoders": {"audio__temporal_kernel": 1, "visual__temporal_kernel": 1},
    "one head": {"fusion__heads": 1, "temporal__heads": 1, "speaker__heads": 1},
    "sound around the attention": {"fusion__audio_bypass": True},
    "keys at 25 Hz in a window that ends between two": {"fusion__key_hz": 25, "fusion__window_s": 0.13},
    "no positions, no null key, no norm": {
        "fusion__positions": False, "fusion__null_key": False, "fusion__qk_norm": False, "temporal__positions": False,
    },
    "sum of both": {"fusion__kind": "sum"},
    "contrast by the attention": {"contrast": "attention"},
    "a window within a frame": {"fusion__window_s": 0.02, "temporal__window_s": 0.02, "temporal__kernel": 1},
}  # fmt: skip


@pytest.mark.parametrize("lookahead", [1, None])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_every_kind_of_model_streams(changes: dict[str, object], lookahead: int | None) -> None:
    assert_streams_as_offline(small(lookahead, **changes), VISITS["three"], seeds=[5])


@pytest.mark.parametrize("lookahead", [1, None])
def test_a_resnet_streams(lookahead: int | None) -> None:
    config = small(lookahead, visual__kind="resnet18", visual__temporal_kernel=3)
    assert_streams_as_offline(config, [("a", 0, 26), ("b", 9, 8)])


@pytest.mark.parametrize("name", ["small", "streaming"])
def test_the_shipped_models_stream_at_their_size(name: str) -> None:
    """Faces come, go and come back under their name, within what the model looks back on."""
    config = load_config(CONFIGS / f"{name}.yaml", ["--data.cache_gb=0"])
    assert_streams_as_offline(config, [("a", 0, 60), ("b", 20, 75), ("a", 70, 40)], seeds=[0, 1])


def drawn(seed: int) -> tuple[int | None, dict[str, object], list[tuple[str, int, int]]]:
    """A look-ahead, a model and who is seen when: any of what the configuration allows."""
    draw = random.Random(seed)
    changes = {
        "modality": draw.choice(["audio_visual", "audio_visual", "audio_visual", "audio", "video"]),
        "fusion__kind": draw.choice(["cross_attention", "cross_attention", "concat", "sum"]),
        "fusion__layers": draw.choice([1, 2, 3]),
        "fusion__heads": draw.choice([1, 2, 4]),
        "fusion__key_hz": draw.choice([25, 100]),
        "fusion__window_s": draw.choice([0.02, 0.04, 0.1, 0.13, 0.2, 0.23, 0.5]),
        "fusion__audio_bypass": draw.random() < 0.3,
        "fusion__null_key": draw.random() < 0.6,
        "temporal__layers": draw.choice([0, 1, 2]),
        "temporal__window_s": draw.choice([0.04, 0.1, 0.24, 0.3]),
        "temporal__kernel": draw.choice([1, 3, 5, 9]),
        "temporal__order": draw.choice(["attention_first", "convolution_first"]),
        "speaker__layers": draw.choice([0, 1, 2]),
        "audio__channels": draw.choice([[4], [4, 4], [4, 4, 4]]),
        "audio__temporal_kernel": draw.choice([1, 3, 7, 15]),
        "visual__temporal_kernel": draw.choice([1, 3, 5]),
    }
    gone: dict[str, int] = {}  # one name is one face at a time, and a frame without it parts two visits
    visits = []
    for _ in range(draw.choice([1, 3, 6])):
        name = draw.choice("abcd")
        start, count = max(draw.randrange(110), gone.get(name, 0)), draw.choice([1, 2, 5, 17, 40, 80])
        visits.append((name, start, count))
        gone[name] = start + count + 1
    return draw.choice([None, None, 0, 1, 2, 3, 5, 9, 12, 25]), changes, visits


@pytest.mark.parametrize("seed", range(12))
def test_drawn_models_stream(seed: int) -> None:
    lookahead, changes, visits = drawn(seed)
    assert_streams_as_offline(small(lookahead, **changes), visits, seeds=[seed])


@pytest.mark.parametrize("section", ["fusion", "temporal"])
def test_a_window_over_the_whole_track_cannot_stream(section: str) -> None:
    config = small(None, **{f"{section}__window_s": None})
    with pytest.raises(UsageError) as caught:
        Stream(model_of(config), config, CPU)
    assert str(caught.value) == (
        f"model.{section}.window_s is null: the model looks over whole tracks, so none of its scores is final before"
        " the end of a stream; expected one trained with a window in seconds"
    )


@pytest.mark.parametrize("modality", ["audio_visual", "video", "audio"])
@pytest.mark.parametrize("kind", ["talknet_style", "light_style", "lr_style"])
def test_a_model_of_the_field_cannot_stream(kind: str, modality: str) -> None:
    config = tiny_config(kind, f"--model.modality={modality}")
    with pytest.raises(UsageError) as caught:
        Stream(model_of(config), config, CPU)
    assert str(caught.value) == (
        f"model.kind {kind} looks over whole tracks, so none of its scores is final before the end of a stream;"
        " expected avfusion, with windows in seconds"
    )


@pytest.mark.parametrize("modality", ["audio", "video"])
def test_a_window_that_nothing_uses_may_be_the_whole_track(modality: str) -> None:
    """Of one stream there is no attention to sound, and without temporal layers none over time."""
    config = small(None, modality=modality, temporal__layers=0, fusion__window_s=None, temporal__window_s=None)
    assert_streams_as_offline(config, VISITS["two"])
