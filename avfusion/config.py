"""The configuration: typed dataclasses, read from YAML with dotted overrides.

Every key of the YAML files and of ``--section.key=value`` is a field below; nothing else is accepted. A YAML file may
name another in ``base:`` (a path relative to itself) and then states only what differs. ``${model.embed_dim}`` in a
value stands for the value of that key. Whatever is wrong is said in one line, with the file or override it came from.

Order of precedence: the defaults below, the base files, the file itself, the overrides from left to right.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

from avfusion.errors import UsageError


def _choice(default: str, *choices: str) -> Any:
    """A text field limited to the given words."""
    return field(default=default, metadata={"choices": (default, *choices)})


def _number(default: float, *, low: float | None = None, high: float | None = None) -> Any:
    """A number field limited to ``low..high`` (both included)."""
    return field(default=default, metadata={"min": low, "max": high})


@dataclass
class RunConfig:
    """Where the run lives and what it runs on."""

    dir: str | None = None  # default runs/<config>-<date>
    seed: int = 0
    device: str = _choice("auto", "cpu", "cuda", "mps")
    threads: int = _number(0, low=0)  # CPU threads of torch; 0 leaves torch's own choice


@dataclass
class SyntheticConfig:
    """The built-in synthetic talkers (data.format: synthetic)."""

    train_scenes: int = _number(600, low=1)
    val_scenes: int = _number(150, low=1)
    scene_s: float = _number(3.0, low=1.0)
    seed: int = 0


@dataclass
class AugmentConfig:
    """What training does to a clip. Each figure is a strength; 0 turns it off."""

    flip: float = _number(0.5, low=0, high=1)  # probability of a mirrored face
    shift: float = _number(0.06, low=0, high=0.5)  # crop jitter, share of the picture side
    zoom: float = _number(0.1, low=0, high=0.5)  # crop scale jitter
    brightness: float = _number(0.2, low=0, high=1)  # gain and offset jitter
    noise: float = _number(0.02, low=0, high=1)  # standard deviation of picture noise, full scale 1
    gain_db: float = _number(6.0, low=0)  # level jitter of the sound
    audio_noise: float = _number(0.3, low=0, high=1)  # probability of white or pink noise in the sound
    audio_noise_snr_db: list[float] = field(default_factory=lambda: [5.0, 30.0])


@dataclass
class DataConfig:
    """Which face tracks, and how they become batches."""

    format: str = _choice("synthetic", "prepared")
    root: str | None = None  # folder of the prepared dataset
    train_split: str = "train"
    val_split: str = "val"
    crop_size: int = _number(48, low=16)  # side of the picture the model sees
    region: list[float] = field(default_factory=lambda: [0.0, 0.0, 1.0, 1.0])  # x1, y1, x2, y2 of the stored crop, 0..1
    num_mels: int = _number(64, low=8)
    clip_frames: int = _number(60, low=8)  # longest training clip; longer tracks give a random stretch
    batch_frames: int = _number(900, low=8)  # video frames in a batch, padding included
    workers: int = _number(0, low=0)
    cache_gb: float = _number(4.0, low=0)  # decoded clips kept in memory, so that epochs after the first read nothing
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)


@dataclass
class VisualConfig:
    """Face pictures to embeddings: 2D convolutions per frame, then a short convolution over time."""

    channels: list[int] = field(
        default_factory=lambda: [16, 32, 64, 96]
    )  # one stage each, every stage halves the picture
    blocks: int = _number(1, low=1)  # residual blocks per stage
    temporal_kernel: int = _number(5, low=1, high=5)  # frames; with the stem at most ±3 (120 ms)


@dataclass
class AudioConfig:
    """Log-mel to embeddings at 100 Hz: convolutions that stride in frequency only."""

    channels: list[int] = field(default_factory=lambda: [16, 32, 48])
    temporal_kernel: int = _number(11, low=1, high=15)  # audio frames; with the rest at most ±120 ms


@dataclass
class FusionConfig:
    """How sound meets picture."""

    kind: str = _choice("cross_attention", "concat")
    layers: int = _number(1, low=1)
    heads: int = _number(4, low=1)
    window_s: float | None = 0.5  # each frame hears ± this many seconds; null: the whole scene
    positions: bool = True  # rotary positions in seconds
    null_key: bool = True
    qk_norm: bool = True
    audio_bypass: bool = False  # also add the sound around the attention, as the published models do


@dataclass
class TemporalConfig:
    """Self-attention and convolution over time, after fusion."""

    layers: int = _number(1, low=0)
    heads: int = _number(4, low=1)
    window_s: float | None = 1.0
    kernel: int = _number(5, low=1)  # frames of the depthwise convolution
    order: str = _choice("attention_first", "convolution_first")


@dataclass
class ModelConfig:
    """The active-speaker detector."""

    modality: str = _choice("audio_visual", "video", "audio")  # the last two are baselines
    embed_dim: int = _number(128, low=8)
    dropout: float = _number(0.1, low=0, high=0.9)
    contrast_dim: int = _number(64, low=8)  # width of the space in which sound and picture are compared
    visual: VisualConfig = field(default_factory=VisualConfig)
    audio: AudioConfig = field(default_factory=AudioConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    temporal: TemporalConfig = field(default_factory=TemporalConfig)


@dataclass
class LossConfig:
    """Weights of the terms of the loss; the audio-visual speaking loss has weight 1."""

    audio: float = _number(0.2, low=0)
    video: float = _number(0.2, low=0)
    contrastive: float = _number(0.5, low=0)
    temperature: float = _number(0.07, low=0.001)


@dataclass
class TrainConfig:
    """Optimisation."""

    epochs: int = _number(10, low=1)
    contrastive_epochs: int = _number(0, low=0)  # epochs of contrastive loss alone before them
    lr: float = _number(2e-3, low=0)
    weight_decay: float = _number(0.01, low=0)
    warmup: float = _number(0.1, low=0, high=1)  # share of all steps
    grad_clip: float = _number(1.0, low=0)  # largest gradient norm; 0 turns clipping off
    precision: str = _choice("float32", "bfloat16")
    loss: LossConfig = field(default_factory=LossConfig)


@dataclass
class ReportConfig:
    """What is made once training ends."""

    figures_per_role: int = _number(1, low=0)
    bootstrap: int = _number(1000, low=0)
    offset_accuracy: bool = True


@dataclass
class WandbConfig:
    """Weights & Biases. ``auto`` is online when logged in, else offline."""

    mode: str = _choice("auto", "online", "offline", "disabled")
    project: str = "avfusion"
    entity: str | None = None
    name: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Config:
    """Everything a run depends on."""

    run: RunConfig = field(default_factory=RunConfig)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)


Scalar = bool | int | float | str | None


class ConfigError(UsageError):
    """A wrong key, type or value in the configuration; the message begins with ``config error:``."""

    prefix = ""

    def __str__(self) -> str:
        return f"config error: {super().__str__()}"


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Reads a YAML file and its ``base:`` chain, then applies overrides.

    Args:
        path: the YAML file; None takes the defaults.
        overrides: ``--section.key=value``, as typed or as a W&B sweep emits them: ``True``, ``None``, ``[96,96]`` and
            ``3e-4`` are understood; a text key takes its value as it stands, with or without quotes.

    Raises:
        ConfigError: a file that cannot be read, an unknown key, a wrong type, or a value that is not allowed.
    """
    values = _flat_defaults()
    origins: dict[str, str] = {}
    for file, tree in _read_chain(path) if path is not None else []:
        for key, value in _leaves(tree, "", f" in {file}"):
            values[key], origins[key] = value, f"in {file}"
    for override in overrides:
        for key, value in _parse_override(override):
            values[key], origins[key] = value, f"from {override}"
    return _checked(_resolve(values), origins)


def config_from_dict(tree: Mapping[str, Any], where: str) -> Config:
    """The configuration from nested or dotted plain values, such as ``dataclasses.asdict`` gives; checked like a file.

    Args:
        tree: keys that are absent keep their defaults.
        where: names the source in error messages, for example a checkpoint's path.

    Raises:
        ConfigError: an unknown key, a wrong type, or a value that is not allowed.
    """
    values = _flat_defaults()
    given = dict(_leaves(tree, "", f" in {where}"))
    return _checked(values | given, dict.fromkeys(given, f"in {where}"))


def to_flat_dict(config: Config) -> dict[str, Scalar]:
    """Dotted keys with plain values, as W&B shows them; a list becomes its text, ``[16, 32]``."""
    return {key: str(value) if isinstance(value, list) else value for key, value in _flatten(config)}


def to_yaml(config: Config) -> str:
    """The whole configuration as YAML; :func:`load_config` reads it back to an equal one."""
    from omegaconf import OmegaConf

    literal = {k: v.replace("${", r"\${") if isinstance(v, str) else v for k, v in _flatten(config)}
    return OmegaConf.to_yaml(OmegaConf.create(_nest(literal)))


# Keys: the dataclasses above as a flat table of dotted keys.


@dataclass(frozen=True)
class _Leaf:
    """One key that holds a value: its type, and the limits that its field states."""

    type: Any
    limits: Mapping[str, Any]


@functools.cache
def _schema(section: type = Config, prefix: str = "") -> dict[str, _Leaf]:
    leaves: dict[str, _Leaf] = {}
    hints = get_type_hints(section)
    for entry in fields(section):
        key, kind = prefix + entry.name, hints[entry.name]
        if is_dataclass(kind):
            leaves |= _schema(cast(type, kind), f"{key}.")
        else:
            leaves[key] = _Leaf(kind, entry.metadata)
    return leaves


@functools.cache
def _sections() -> dict[str, list[str]]:
    """Every section (``""`` is the root) with the names directly inside it."""
    sections: dict[str, list[str]] = {}
    for key in _schema():
        parts = key.split(".")
        for depth, part in enumerate(parts):
            names = sections.setdefault(".".join(parts[:depth]), [])
            if part not in names:
                names.append(part)
    return sections


def _flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for entry in fields(config):
        value = getattr(config, entry.name)
        if is_dataclass(value):
            yield from _flatten(value, f"{prefix}{entry.name}.")
        else:
            yield prefix + entry.name, value


def _flat_defaults() -> dict[str, Any]:
    return dict(_flatten(Config()))


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return tree


def _leaves(tree: Mapping[Any, Any], prefix: str, where: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a nested mapping; an unknown key raises. An empty section states nothing."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if key in _schema():
            yield key, value
        elif key not in _sections():
            raise _unknown_key(key, where)
        elif isinstance(value, Mapping):
            yield from _leaves(value, f"{key}.", where)
        elif value is not None:
            known = ", ".join(_sections()[key])
            raise ConfigError(f"{key}: expected a section with the keys {known}; found {_show(value)}{where}")


def _unknown_key(key: str, where: str) -> ConfigError:
    """Says which key the user may have meant: the same name elsewhere, else a similar one in the same section."""
    section = ""
    for part in key.split("."):
        deeper = f"{section}.{part}".lstrip(".")
        if deeper not in _sections():
            break
        section = deeper
    elsewhere = [known for known in _schema() if known.rpartition(".")[2] == key.rpartition(".")[2]]
    meant = difflib.get_close_matches(part, _sections()[section], n=1) or elsewhere[:3]
    if not meant:
        names = [known.rpartition(".")[2] for known in _schema()]
        similar = difflib.get_close_matches(key.rpartition(".")[2], names, n=1, cutoff=0.75)
        meant = [known for known in _schema() if known.rpartition(".")[2] in similar][:3]
    if meant:
        hint = f"Did you mean {' or '.join(repr(name) for name in meant)}?"
    else:
        hint = f"The keys {f'of {section}' if section else 'at the top'} are {', '.join(_sections()[section])}."
    return ConfigError(f"{key}: no such key{where}. {hint}")


# Sources: YAML files and overrides.


def _parse_yaml(text: str) -> Any:
    """Plain Python values of a YAML text (``3e-4`` is a number; ``${...}`` stays text). Raises ValueError, one line."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_container(OmegaConf.load(io.StringIO(text)))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem}") from error
    except (OmegaConfBaseException, yaml.YAMLError, OSError) as error:  # OSError: the file holds a bare value
        raise ValueError(str(error).splitlines()[0]) from error


def _read_yaml(path: Path, named_by: str) -> dict[Any, Any]:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        beside = sorted(file.name for file in path.parent.glob("*.y*ml") if file.is_file())
        listed = f"YAML files there: {', '.join(beside)}" if beside else f"there are no YAML files in {path.parent}"
        raise ConfigError(f"{path}: {what}{named_by}; expected a YAML file; {listed}")
    try:
        tree = _parse_yaml(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file in UTF-8{named_by}; expected a YAML file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read{named_by}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected keys and values (section: {{key: value}}), found a {type(tree).__name__}")
    return tree


def _read_chain(path: Path) -> list[tuple[Path, dict[Any, Any]]]:
    """The file and everything it is based on, the most basic first, without their ``base`` keys."""
    chain: list[tuple[Path, dict[Any, Any]]] = []
    seen: list[Path] = []
    named_by = ""
    while True:
        if path.resolve() in seen:
            circle = " -> ".join(str(file) for file, _ in reversed(chain))
            raise ConfigError(f"{path}: base files go in a circle: {circle} -> {path}; remove one base:")
        seen.append(path.resolve())
        tree = _read_yaml(path, named_by)
        base = tree.pop("base", None)
        chain.insert(0, (path, tree))
        if base is None:
            return chain
        if not isinstance(base, str):
            raise ConfigError(f"base: expected the path of a YAML file, found {_show(base)} (in {path})")
        named_by = f" (base of {path})"
        path = Path(os.path.normpath(path.parent / base))


def _parse_override(override: str) -> list[tuple[str, Any]]:
    """``--model.fusion.heads=8`` to keys and values; a section takes a mapping, ``--model.fusion={heads: 8}``."""
    key, equals, text = override.partition("=")
    if not override.startswith("--") or not key.strip("-"):
        raise ConfigError(f"{override}: not understood; expected --section.key=value, for example --train.epochs=20")
    key = key.removeprefix("--")
    if key not in _schema() and key not in _sections():
        raise _unknown_key(key, "")
    if not equals:
        raise ConfigError(f"{key}: no value; write it with '=', as --{key}=value")
    text = text.strip()
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    value: Any = text
    if quoted or (key in _sections()) or not _takes_text(_schema()[key].type):
        with contextlib.suppress(ValueError):  # what is no YAML stays text, and is refused by its type
            value = _parse_yaml(f"value: {text}").get("value")
    return [(key, value)] if key in _schema() else list(_leaves({key: value}, "", f" (from {override})"))


def _resolve(values: dict[str, Any]) -> dict[str, Any]:
    """Replaces ``${section.key}`` by the value of that key."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        tree = OmegaConf.to_container(OmegaConf.create(_nest(values)), resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = error.full_key or "a value"
        found = f" of {values[key]!r}" if key in values else ""
        raise ConfigError(f"{key}: cannot make sense{found}: {str(error).splitlines()[0]}") from error
    return dict(_leaves(cast(dict[Any, Any], tree), "", ""))


# Checks: types, limits, and figures that must agree.


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _takes_text(kind: Any) -> bool:
    return str in (kind, *get_args(kind)) and get_origin(kind) is not list


def _describe(kind: Any) -> str:
    if get_origin(kind) is list:
        return f"a list of {_WORDS[get_args(kind)[0]].removeprefix('a ').replace('number', 'numbers')}"
    if type(None) in get_args(kind):
        return " or ".join("null" if part is type(None) else _describe(part) for part in get_args(kind))
    return _WORDS[kind]


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"the keys {', '.join(map(str, value))}"
    return (
        {True: "true", False: "false", None: "null"}[value]
        if value is None or value is True or value is False
        else repr(value)
    )


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


def _checked(values: Mapping[str, Any], origins: Mapping[str, str]) -> Config:
    """Every value in its type and within its limits, as a Config."""
    checked: dict[str, Any] = {}
    for key, leaf in _schema().items():
        origin = f" ({origins[key]})" if key in origins else ""
        choices = leaf.limits.get("choices")
        try:
            value = checked[key] = _convert(values[key], leaf.type)
        except ValueError:
            expected = f"one of {', '.join(choices)}" if choices else _describe(leaf.type)
            hint = "; put it in quotes" if expected == "text" and not isinstance(values[key], list | dict) else ""
            raise ConfigError(f"{key}: expected {expected}, found {_show(values[key])}{hint}{origin}") from None
        if choices and value not in choices:
            near = difflib.get_close_matches(value, choices, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{key}: expected one of {', '.join(choices)}, found {value!r}{origin}{hint}")
        _check_range(key, value, leaf.limits, origin)
    config: Config = _construct(Config, "", checked)
    _check_agreement(config)
    return config


def _check_range(key: str, value: Any, limits: Mapping[str, Any], origin: str) -> None:
    low, high = limits.get("min"), limits.get("max")
    if value is None or ((low is None or value >= low) and (high is None or value <= high)):
        return
    if low is not None and high is not None:
        expected = f"a number from {low:g} to {high:g}"
    else:
        expected = f"at least {low:g}" if low is not None else f"at most {high:g}"
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
    width = config.model.embed_dim
    for key, heads in (("fusion", config.model.fusion.heads), ("temporal", config.model.temporal.heads)):
        if width % heads:
            fitting = ", ".join(str(count) for count in range(1, min(width, 16) + 1) if width % count == 0)
            raise ConfigError(
                f"model.{key}.heads: {heads} heads do not divide model.embed_dim {width}; expected one of {fitting}"
            )
    for key, window in (("fusion", config.model.fusion.window_s), ("temporal", config.model.temporal.window_s)):
        if window is not None and window <= 0:
            raise ConfigError(f"model.{key}.window_s: expected seconds above 0, or null for no limit, found {window}")
    for key, channels in (("visual", config.model.visual.channels), ("audio", config.model.audio.channels)):
        if not channels or min(channels) < 1:
            raise ConfigError(f"model.{key}.channels: expected one width of at least 1 per stage, found {channels}")
    region = config.data.region
    if len(region) != 4 or not (0 <= region[0] < region[2] <= 1 and 0 <= region[1] < region[3] <= 1):
        raise ConfigError(f"data.region: expected x1, y1, x2, y2 from 0 to 1 with x1 < x2 and y1 < y2, found {region}")
    snr_db = config.data.augment.audio_noise_snr_db
    if len(snr_db) != 2 or snr_db[0] > snr_db[1]:
        raise ConfigError(f"data.augment.audio_noise_snr_db: expected the lowest and the highest dB, found {snr_db}")
