"""The configuration, read from YAML with dotted overrides.

Every key of the YAML files and of ``--section.key=value`` is a field of the schema; nothing else is accepted. A YAML
file may name another in ``base:`` (a path relative to itself) and then states only what differs. ``${model.embed_dim}``
in a value stands for the value of that key. Whatever is wrong is said in one line, with the file or override it came
from. Order of precedence: the defaults of the schema, the base files, the file itself, overrides from left to right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from avfusion.config.checks import checked_config
from avfusion.config.keys import flat_defaults, flatten, known_leaves, nest
from avfusion.config.schema import Config
from avfusion.config.sources import parse_override, read_chain, resolve

Scalar = bool | int | float | str | None


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Reads a YAML file and its ``base:`` chain, then applies overrides.

    Args:
        path: the YAML file; None takes the defaults.
        overrides: ``--section.key=value``, as typed or as a W&B sweep emits them: ``True``, ``None``, ``[96,96]`` and
            ``3e-4`` are understood; a text key takes its value as it stands, with or without quotes.

    Raises:
        ConfigError: a file that cannot be read, an unknown key, a wrong type, or a value that is not allowed.
    """
    values = flat_defaults()
    origins: dict[str, str] = {}
    for file, tree in read_chain(path) if path is not None else []:
        for key, value in known_leaves(tree, "", f" in {file}"):
            values[key], origins[key] = value, f"in {file}"
    for override in overrides:
        for key, value in parse_override(override):
            values[key], origins[key] = value, f"from {override}"
    return checked_config(resolve(values), origins)


def config_from_dict(tree: Mapping[str, Any], where: str) -> Config:
    """The configuration from nested or dotted plain values, such as ``dataclasses.asdict`` gives; checked like a file.

    Args:
        tree: keys that are absent keep their defaults.
        where: names the source in error messages, for example a checkpoint's path.

    Raises:
        ConfigError: an unknown key, a wrong type, or a value that is not allowed.
    """
    values = flat_defaults()
    given = dict(known_leaves(tree, "", f" in {where}"))
    return checked_config(values | given, dict.fromkeys(given, f"in {where}"))


def with_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """A configuration with some settings changed, as ``--section.key=value`` says; checked like a file.

    Raises:
        ConfigError: as :func:`load_config`.
    """
    values, origins = dict(flatten(config)), {}
    for override in overrides:
        for key, value in parse_override(override):
            values[key], origins[key] = value, f"from {override}"
    return checked_config(resolve(values), origins)


def to_flat_dict(config: Config) -> dict[str, Scalar]:
    """Dotted keys with plain values, as W&B shows them; a list becomes its text, ``[16, 32]``."""
    return {key: str(value) if isinstance(value, list) else value for key, value in flatten(config)}


def to_yaml(config: Config) -> str:
    """The whole configuration as YAML; :func:`load_config` reads it back to an equal one."""
    from omegaconf import OmegaConf

    literal = {k: v.replace("${", r"\${") if isinstance(v, str) else v for k, v in flatten(config)}
    return OmegaConf.to_yaml(OmegaConf.create(nest(literal)))
