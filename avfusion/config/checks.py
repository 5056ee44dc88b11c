"""Checks: types, limits, and figures that must agree."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, cast, get_args, get_origin, get_type_hints

from avfusion.config.keys import ConfigError, leaves, show
from avfusion.config.schema import AugmentConfig, Config, DataConfig, DiarizationConfig, LossConfig, ModelConfig

MAX_AUDIO_REACH = 10  # audio frames of 10 ms
MIN_REGION_SIDE = 0.1  # share of the picture; a thinner strip of a small crop rounds to no pixel at all

LEAST_RESYNC_MS = 320  # data/augment/timing.py

MAX_LAG_FRAMES = 25
SYNC_FRAMES = 14  # of a clip: 8 that a shift is judged by and 3 at either end, which are left out

# What a model of the field is built of, and the measures of attention take from the configuration.
FIXED_BY_KIND: dict[str, dict[str, Any]] = {
    "talknet_style": {
        "fusion.kind": "cross_attention", "fusion.layers": 1, "fusion.window_s": None, "fusion.key_hz": 25,
        "fusion.positions": False, "fusion.null_key": False, "fusion.qk_norm": False, "fusion.audio_bypass": True,
        "speaker.layers": 0, "temporal.window_s": None,
    },
    "light_style": {
        "visual.kind": "small", "fusion.kind": "sum", "fusion.layers": 1, "speaker.layers": 0,
        "temporal.window_s": None,
    },
    "lr_style": {
        "visual.kind": "small", "fusion.kind": "concat", "fusion.layers": 1, "speaker.layers": 0,
        "temporal.window_s": None,
    },
}  # fmt: skip
MAX_VISUAL_REACH = 3  # video frames
STEM_REACH = {"small": 1, "resnet18": 2}

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


def _listed(choices: Sequence[str | int | None]) -> str:
    return ", ".join("null" if choice is None else str(choice) for choice in choices)


def checked_config(values: Mapping[str, Any], origins: Mapping[str, str]) -> Config:
    """Every value in its type and within its limits, as a Config."""
    checked: dict[str, Any] = {}
    for key, leaf in leaves().items():
        origin = f" ({origins[key]})" if key in origins else ""
        choices = leaf.limits.get("choices")
        try:
            value = checked[key] = _convert(values[key], leaf.type)
        except (ValueError, OverflowError):  # a whole number of 400 digits fits no float
            expected = f"one of {_listed(choices)}" if choices else _describe(leaf.type)
            hint = "; put it in quotes" if expected == "text" and not isinstance(values[key], list | dict) else ""
            raise ConfigError(f"{key}: expected {expected}, found {show(values[key])}{hint}{origin}") from None
        if choices and value not in choices:
            words = [choice for choice in choices if isinstance(choice, str)]
            near = difflib.get_close_matches(value, words, n=1) if isinstance(value, str) else []
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{key}: expected one of {_listed(choices)}, found {value!r}{origin}{hint}")
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
    _check_kind(config.model)
    _check_heads(config.model)
    _check_reach(config.model)
    _check_causal(config.model)
    _check_data(config.data)
    _check_loss(config.train.loss)
    _check_attention_losses(config.train.loss, config.model)
    _check_sync(config)
    _check_diarization(config.diarization)


def _check_kind(model: ModelConfig) -> None:
    """The models of the field are what they are; weights of ImageNet fit a ResNet."""
    visual = model.visual
    if visual.weights is not None and visual.kind != "resnet18":
        raise ConfigError(
            f"model.visual.weights: {visual.weights} has weights for resnet18, but model.visual.kind is {visual.kind};"
            " set it to null, or add --model.visual.kind=resnet18"
        )
    if model.kind not in FIXED_BY_KIND:
        return
    differs = []
    for key, expected in FIXED_BY_KIND[model.kind].items():
        section, name = key.split(".")
        if getattr(getattr(model, section), name) != expected:
            differs.append(f"--model.{key}={str(expected).lower() if isinstance(expected, bool) else expected}")
    if differs:
        raise ConfigError(
            f"model.kind: {model.kind} is built otherwise; begin with configs/{model.kind}.yaml, or add"
            f" {' '.join(differs)}".replace("=None", "=null")
        )
    if model.causal:
        raise ConfigError(f"model.causal: {model.kind} looks over whole tracks and cannot be causal; set it to false")
    if model.temporal.layers < 1:
        raise ConfigError(f"model.temporal.layers: {model.kind} needs at least 1, found {model.temporal.layers}")
    if len(model.audio.channels) < 2:
        raise ConfigError(
            f"model.audio.channels: {model.kind} halves time in its first two stages, found {model.audio.channels}"
        )


def _check_heads(model: ModelConfig) -> None:
    """Heads share the width evenly; where positions are rotary they turn pairs, so each head's width is even."""
    width = model.embed_dim
    attends = model.modality == "audio_visual" and model.fusion.kind == "cross_attention"
    streams = (
        ("fusion", model.fusion.heads, attends and model.fusion.positions),
        ("temporal", model.temporal.heads, model.temporal.layers > 0 and model.temporal.positions),
        ("speaker", model.speaker.heads, False),
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
    stem, beside = STEM_REACH[model.visual.kind], model.visual.temporal_kernel // 2
    if stem + beside > MAX_VISUAL_REACH:
        raise ConfigError(
            f"model.visual.temporal_kernel: the stem of {model.visual.kind} sees {stem} frames on either side and a"
            f" kernel of {model.visual.temporal_kernel} sees {beside}, together {stem + beside}; expected at most"
            f" {MAX_VISUAL_REACH} (120 ms): --model.visual.temporal_kernel={2 * (MAX_VISUAL_REACH - stem) + 1}"
        )
    stages, kernel = len(model.audio.channels), model.audio.temporal_kernel
    reach = stages + kernel // 2
    if reach > MAX_AUDIO_REACH:
        raise ConfigError(
            f"model.audio.channels: {stages} stages see {stages} audio frames on either side and temporal_kernel "
            f"{kernel} sees {kernel // 2}, together {reach}; expected at most {MAX_AUDIO_REACH}, so that with the "
            "12.5 ms of the spectrogram's window the reach stays within 120 ms"
        )


def _check_causal(model: ModelConfig) -> None:
    if model.lookahead_frames and not model.causal:
        raise ConfigError(
            f"model.lookahead_frames: {model.lookahead_frames} is for a causal model, but model.causal is false, and"
            " the model looks ahead as far as its windows reach; set model.causal=true, or this to 0"
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
    _check_augment(data.augment, data.crop_size)


def _check_augment(augment: AugmentConfig, crop_size: int) -> None:
    """Ranges are two numbers in order, and what is asked for can be done."""
    inf = math.inf
    for key, what, low, high in (
        ("audio_noise_snr_db", "dB", -inf, inf),
        ("interferer_snr_db", "dB", -inf, inf),
        ("folder_snr_db", "dB", -inf, inf),
        ("occlusion_area", "share of the picture", 0.001, 0.9),
        ("blur_sigma", "number of pixels", 0.1, crop_size / 4 if augment.blur else inf),
        ("low_resolution_side", "number of pixels", 4, crop_size if augment.low_resolution else inf),
    ):
        found = getattr(augment, key)
        if len(found) != 2 or not low <= found[0] <= found[1] <= high:
            within = f", from {low} on" if low > -inf else ""
            if -inf < low < high < inf:
                size = f" (a picture has data.crop_size {crop_size})" if what == "number of pixels" else ""
                within = f", from {low} to {high:g}{size}"
            raise ConfigError(f"data.augment.{key}: expected the lowest and the highest {what}{within}, found {found}")
    if augment.folder_noise and not (augment.noise_folder or augment.music_folder or augment.babble_folder):
        raise ConfigError(
            f"data.augment.folder_noise: {augment.folder_noise} asks for sound from a folder and none is given; set"
            " data.augment.noise_folder, music_folder or babble_folder"
        )
    if augment.drop_audio + augment.drop_video > 1:
        raise ConfigError(
            f"data.augment.drop_audio: {augment.drop_audio} and drop_video {augment.drop_video} are more than 1"
            " together; no clip loses both"
        )
    if 0 < augment.speed < 0.01:
        raise ConfigError(f"data.augment.speed: expected 0 or at least 0.01 (whole percents), found {augment.speed}")
    if augment.resync and augment.audio_shift_ms >= LEAST_RESYNC_MS:
        raise ConfigError(
            f"data.augment.audio_shift_ms: sound moved by {augment.audio_shift_ms} ms would keep its label, while"
            f" resync calls sound {LEAST_RESYNC_MS} ms off not speaking; expected less, or data.augment.resync=0"
        )


def _check_loss(loss: LossConfig) -> None:
    lags = loss.lag_frames
    if len(lags) != 2 or not -MAX_LAG_FRAMES <= lags[0] <= lags[1] <= MAX_LAG_FRAMES:
        raise ConfigError(
            f"train.loss.lag_frames: expected the earliest and the latest video frame, within ±{MAX_LAG_FRAMES} (1 s), "
            f"that a sound may come after its picture, found {lags}"
        )


def _check_sync(config: Config) -> None:
    """The synchronisation loss needs both streams, and clips that hold a true and a false shift."""
    weight, (first, last) = config.train.loss.sync, config.train.loss.lag_frames
    if weight and config.model.modality != "audio_visual":
        raise ConfigError(
            f"train.loss.sync: {weight} weighs a loss on sound and picture, but model.modality is"
            f" {config.model.modality}; set it to 0"
        )
    needed = min(abs(first - 9), abs(last + 9)) + SYNC_FRAMES
    if weight and config.data.clip_frames < needed:
        raise ConfigError(
            f"data.clip_frames: the loss train.loss.sync compares shifts in clips of at least {needed} frames, found"
            f" {config.data.clip_frames}"
        )


def _check_attention_losses(loss: LossConfig, model: ModelConfig) -> None:
    """Losses on the alignment need an attention from picture to sound, and that on the null key needs one."""
    fusion = model.fusion
    for key, weight in (("null", loss.null), ("guided", loss.guided)):
        if weight == 0:
            continue
        lacks = ""
        if model.modality != "audio_visual":
            lacks = f"model.modality {model.modality} has no attention to sound"
        elif fusion.kind != "cross_attention":
            lacks = f"model.fusion.kind {fusion.kind} has no attention"
        elif key == "null" and not fusion.null_key:
            lacks = "model.fusion.null_key is false"
        if lacks:
            raise ConfigError(f"train.loss.{key}: {weight} weighs a loss on the attention, but {lacks}; set it to 0")
    if loss.guided > 0 and loss.guided_heads > fusion.heads:
        raise ConfigError(
            f"train.loss.guided_heads: expected at most model.fusion.heads {fusion.heads}, found {loss.guided_heads}"
        )


def _check_diarization(rules: DiarizationConfig) -> None:
    """Speech that has started goes on at least as easily as it starts."""
    if rules.offset > rules.onset:
        raise ConfigError(f"diarization.offset: expected at most diarization.onset {rules.onset}, found {rules.offset}")
