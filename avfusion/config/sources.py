"""Where values come from: YAML files with their ``base:`` chain, and overrides."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any, cast

from avfusion.config.checks import takes_text
from avfusion.config.keys import ConfigError, known_leaves, leaves, nest, sections, show, unknown_key


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


def read_chain(path: Path) -> list[tuple[Path, dict[Any, Any]]]:
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
            raise ConfigError(f"base: expected the path of a YAML file, found {show(base)} (in {path})")
        named_by = f" (base of {path})"
        path = Path(os.path.normpath(path.parent / base))


def parse_override(override: str) -> list[tuple[str, Any]]:
    """``--model.fusion.heads=8`` to keys and values; a section takes a mapping, ``--model.fusion={heads: 8}``."""
    key, equals, text = override.partition("=")
    if not override.startswith("--") or not key.strip("-"):
        raise ConfigError(f"{override}: not understood; expected --section.key=value, for example --train.epochs=20")
    key = key.removeprefix("--")
    if key not in leaves() and key not in sections():
        raise unknown_key(key, "")
    if not equals:
        raise ConfigError(f"{key}: no value; write it with '=', as --{key}=value")
    text = text.strip()
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    value: Any = text
    if quoted or (key in sections()) or not takes_text(leaves()[key].type):
        with contextlib.suppress(ValueError):  # what is no YAML stays text, and is refused by its type
            value = _parse_yaml(f"value: {text}").get("value")
    return [(key, value)] if key in leaves() else list(known_leaves({key: value}, "", f" (from {override})"))


def resolve(values: dict[str, Any]) -> dict[str, Any]:
    """Replaces ``${section.key}`` by the value of that key."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        tree = OmegaConf.to_container(OmegaConf.create(nest(values)), resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = error.full_key or "a value"
        found = f" of {values[key]!r}" if key in values else ""
        raise ConfigError(f"{key}: cannot make sense{found}: {str(error).splitlines()[0]}") from error
    return dict(known_leaves(cast(dict[Any, Any], tree), "", ""))
