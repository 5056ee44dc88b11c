"""The dataclasses of the schema as a flat table of dotted keys, and what is said about a key that is not in it."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast, get_type_hints

from avfusion.config.schema import Config
from avfusion.errors import UsageError


class ConfigError(UsageError):
    """A wrong key, type or value in the configuration; the message begins with ``config error:``."""

    prefix = ""

    def __str__(self) -> str:
        return f"config error: {super().__str__()}"


def show(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, Mapping):
        return f"the keys {', '.join(map(str, value))}"
    return (
        {True: "true", False: "false", None: "null"}[value]
        if value is None or value is True or value is False
        else repr(value)
    )


@dataclass(frozen=True)
class Leaf:
    """One key that holds a value: its type, and the limits that its field states."""

    type: Any
    limits: Mapping[str, Any]


@functools.cache
def leaves(section: type = Config, prefix: str = "") -> dict[str, Leaf]:
    """Every dotted key that holds a value."""
    found: dict[str, Leaf] = {}
    hints = get_type_hints(section)
    for entry in fields(section):
        key, kind = prefix + entry.name, hints[entry.name]
        if is_dataclass(kind):
            found |= leaves(cast(type, kind), f"{key}.")
        else:
            found[key] = Leaf(kind, entry.metadata)
    return found


@functools.cache
def sections() -> dict[str, list[str]]:
    """Every section (``""`` is the root) with the names directly inside it."""
    found: dict[str, list[str]] = {}
    for key in leaves():
        parts = key.split(".")
        for depth, part in enumerate(parts):
            names = found.setdefault(".".join(parts[:depth]), [])
            if part not in names:
                names.append(part)
    return found


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a configuration."""
    for entry in fields(config):
        value = getattr(config, entry.name)
        if is_dataclass(value):
            yield from flatten(value, f"{prefix}{entry.name}.")
        else:
            yield prefix + entry.name, value


def flat_defaults() -> dict[str, Any]:
    """Every dotted key with its default."""
    return dict(flatten(Config()))


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *path, name = key.split(".")
        node = tree
        for name_of_section in path:
            node = node.setdefault(name_of_section, {})
        node[name] = value
    return tree


def known_leaves(tree: Mapping[Any, Any], prefix: str, where: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a nested mapping; an unknown key raises. An empty section states nothing."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if key in leaves():
            yield key, value
        elif key not in sections():
            raise unknown_key(key, where)
        elif isinstance(value, Mapping):
            yield from known_leaves(value, f"{key}.", where)
        elif value is not None:
            known = ", ".join(sections()[key])
            raise ConfigError(f"{key}: expected a section with the keys {known}; found {show(value)}{where}")


def unknown_key(key: str, where: str) -> ConfigError:
    """Says which key the user may have meant: the same name elsewhere, else a similar one in the same section."""
    section = ""
    for part in key.split("."):
        deeper = f"{section}.{part}".lstrip(".")
        if deeper not in sections():
            break
        section = deeper
    elsewhere = [known for known in leaves() if known.rpartition(".")[2] == key.rpartition(".")[2]]
    elsewhere = [known for known in elsewhere if known.partition(".")[0] == key.partition(".")[0]] or elsewhere
    meant = difflib.get_close_matches(part, sections()[section], n=1) or elsewhere[:3]
    if not meant:
        names = [known.rpartition(".")[2] for known in leaves()]
        similar = difflib.get_close_matches(key.rpartition(".")[2], names, n=1, cutoff=0.75)
        meant = [known for known in leaves() if known.rpartition(".")[2] in similar][:3]
    if meant:
        hint = f"Did you mean {' or '.join(repr(name) for name in meant)}?"
    else:
        hint = f"The keys {f'of {section}' if section else 'at the top'} are {', '.join(sections()[section])}."
    return ConfigError(f"{key}: no such key{where}. {hint}")
