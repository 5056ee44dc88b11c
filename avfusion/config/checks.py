"""Checks: types, limits, and figures that must agree."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast, get_args, get_origin, get_type_hints

from avfusion.config.keys import ConfigError, leaves, show
from avfusion.config.schema import Config, DataConfig, LossConfig, ModelConfig

MAX_AUDIO_REACH = 10  # audio frames of 10 ms
MIN_REGION_SIDE = 0.1  # share of the picture; a thinner strip of a small crop rounds to no pixel at all

MAX_LAG_FRAMES = 25

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def takes_text(kind: Any) -> bool:
    """Whether a field of this type holds text."""
    return str in (kind, *get_args(kind)) and get_origin(kind) is not list


def _describe(kind: Any) -> str:
    if get_origin(kind) is list:
        return f"a list of {_WORDS[get_args(kind)[0]].removeprefix('a ').replace('number', 'numbers')}"
    if type(None) in get_args(kind):
        return " or ".join("null" if part is type(None) else _describe(part) for part in get_args(kind))
    return _WORDS[kind]


def _convert(value: Any, kind: Any) -> Any:
    """The value in its field's type, where nothing is lost (64.0 is a whole number). Raises ValueError otherwise."""
    if type(None) in get_args(kind):
        if value is None or value in ("None", "null", ""):
            return None
        return _convert(value, next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is list and isinstance(value, list):
        return [_convert(item, get_args(kind)[0]) for item in value]
    if kind in (bool, str) and type(value) is kind:
        return value
    if kind in (int, float) and type(value) in (int, float) and math.isfinite(value) and value == kind(value):
        return kind(value)
    raise ValueError


def checked_config(values: Mapping[str, Any], origins: Mapping[str, str]) -> Config:
    """Every value in its type and within its limits, as a Config."""
    checked: dict[str, Any] = {}
    for key, leaf in leaves().items():
        origin = f" ({origins[key]})" if key in origins else ""
        choices = leaf.limits.get("choices")
        try:
            value = checked[key] = _convert(values[key], leaf.type)
        except (ValueError, OverflowError):  # a whole number of 400 digits fits no float
            expected = f"one of {', '.join(choices)}" if choices else _describe(leaf.type)
            hint = "; put it in quotes" if expected == "text" and not isinstance(values[key], list | dict) else ""
            raise ConfigError(f"{key}: expected {expected}, found {show(values[key])}{hint}{origin}") from None
        if choices and value not in choices:
            near = difflib.get_close_matches(value, choices, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{key}: expected one of {', '.join(choices)}, found {value!r}{origin}{hint}")
        _check_range(key, value, leaf.limits, origin)
    config: Config = _construct(Config, "", checked)
    _check_agreement(config)
    return config


def _check_range(key: str, value: Any, limits: Mapping[str, Any], origin: str) -> None:
    low, high, odd = limits.get("min"), limits.get("max"), limits.get("odd", False)
    if value is None or (
        (low is None or value >= low) and (high is None or value <= high) and not (odd and value % 2 == 0)
    ):
        return
    kind = "an odd number" if odd else "a number"
    if low is not None and high is not None:
        expected = f"{kind} from {low} to {high}"
    else:
        expected = f"at least {low}" if low is not None else f"at most {high}"
        expected = f"{kind} of {expected}" if odd else expected
    raise ConfigError(f"{key}: expected {expected}, found {value}{origin}")


def _construct(section: type, prefix: str, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(section)
    return section(
        **{
            name: _construct(cast(type, kind), f"{prefix}{name}.", values)
            if is_dataclass(kind)
            else values[prefix + name]
            for name, kind in hints.items()
        }
    )


def _check_agreement(config: Config) -> None:
    """Figures that are right one by one and wrong together. Raises ConfigError."""
    _check_heads(config.model)
    _check_reach(config.model)
    _check_data(config.data)
    _check_loss(config.train.loss)


def _check_heads(model: ModelConfig) -> None:
    """Heads share the width evenly; where positions are rotary they turn pairs, so each head's width is even."""
    width = model.embed_dim
    attends = model.modality == "audio_visual" and model.fusion.kind == "cross_attention"
    streams = (
        ("fusion", model.fusion.heads, attends and model.fusion.positions),
        ("temporal", model.temporal.heads, model.temporal.layers > 0),
    )
    for key, heads, rotary in streams:
        unit = 2 if rotary else 1
        if width % heads == 0 and width // heads % unit == 0:
            continue
        fitting = [str(count) for count in range(1, min(width, 16) + 1) if width % (count * unit) == 0]
        expected = f"expected one of {', '.join(fitting)}" if fitting else "make model.embed_dim even"
        if width % heads:
            found = f"{heads} heads do not divide model.embed_dim {width}"
        else:
            found = f"{heads} heads of model.embed_dim {width} are {width // heads} wide, rotary positions need even"
        raise ConfigError(f"model.{key}.heads: {found}; {expected}")


def _check_reach(model: ModelConfig) -> None:
    """Windows, and what the encoders see on either side of their frame."""
    for key, window in (("fusion", model.fusion.window_s), ("temporal", model.temporal.window_s)):
        if window is not None and window <= 0:
            raise ConfigError(f"model.{key}.window_s: expected seconds above 0, or null for no limit, found {window}")
    for key, channels in (("visual", model.visual.channels), ("audio", model.audio.channels)):
        if not channels or min(channels) < 1:
            raise ConfigError(f"model.{key}.channels: expected one width of at least 1 per stage, found {channels}")
    stages, kernel = len(model.audio.channels), model.audio.temporal_kernel
    reach = stages + kernel // 2
    if reach > MAX_AUDIO_REACH:
        raise ConfigError(
            f"model.audio.channels: {stages} stages see {stages} audio frames on either side and temporal_kernel "
            f"{kernel} sees {kernel // 2}, together {reach}; expected at most {MAX_AUDIO_REACH}, so that with the "
            "12.5 ms of the spectrogram's window the reach stays within 120 ms"
        )


def _check_data(data: DataConfig) -> None:
    if data.format == "synthetic" and data.root is not None:
        raise ConfigError(
            f"data.root: {data.root!r} would not be read, since data.format is synthetic; add --data.format=prepared"
            " (or talknet), or leave data.root out"
        )
    region = data.region
    if len(region) != 4 or not (0 <= region[0] < region[2] <= 1 and 0 <= region[1] < region[3] <= 1):
        raise ConfigError(f"data.region: expected x1, y1, x2, y2 from 0 to 1 with x1 < x2 and y1 < y2, found {region}")
    # Rounding slack: 0.6 - 0.5 is a little less than 0.1.
    if min(region[2] - region[0], region[3] - region[1]) < MIN_REGION_SIDE - 1e-9:
        raise ConfigError(
            f"data.region: expected at least {MIN_REGION_SIDE} of the picture on each side, found {region}"
        )
    snr_db = data.augment.audio_noise_snr_db
    if len(snr_db) != 2 or snr_db[0] > snr_db[1]:
        raise ConfigError(f"data.augment.audio_noise_snr_db: expected the lowest and the highest dB, found {snr_db}")


def _check_loss(loss: LossConfig) -> None:
    lags = loss.lag_frames
    if len(lags) != 2 or not -MAX_LAG_FRAMES <= lags[0] <= lags[1] <= MAX_LAG_FRAMES:
        raise ConfigError(
            f"train.loss.lag_frames: expected the earliest and the latest video frame, within ±{MAX_LAG_FRAMES} (1 s), "
            f"that a sound may come after its picture, found {lags}"
        )
