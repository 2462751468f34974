"""The configuration as TOML: a commented template, and a resolved one that can be loaded again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any

from ai500.config.sections import Config
from ai500.core.schema import encode


def documented_keys() -> Iterator[tuple[str, Field[Any], Any]]:
    """Yield every key with its declaration and default, in the order of the file."""
    defaults = Config()
    sections = [outer for outer in fields(Config) if is_dataclass(getattr(defaults, outer.name))]
    for outer in fields(Config):
        if outer not in sections:
            yield outer.name, outer, getattr(defaults, outer.name)
    for outer in sections:
        section = getattr(defaults, outer.name)
        for inner in fields(section):
            yield f"{outer.name}.{inner.name}", inner, getattr(section, inner.name)


def to_toml(config: Config) -> str:
    """Write the resolved configuration as TOML that `load` reads back."""
    return "".join(_toml_lines(config, commented=False))


def template() -> str:
    """Write a commented ai500.toml with every key, its meaning and its default."""
    head = (
        "# ai500.toml: every key is optional and shown with its default.\n"
        "# Uncomment and change what you need; `ai500 plan` shows the result.\n\n"
    )
    return head + "".join(_toml_lines(Config(), commented=True))


def _toml_lines(config: Config, *, commented: bool) -> Iterator[str]:
    section = ""
    for key, declaration, _ in documented_keys():
        outer, _, inner = key.rpartition(".")
        value = encode(getattr(getattr(config, outer) if outer else config, inner))
        if outer != section:
            section = outer
            yield f"\n[{section}]\n"
        if commented:
            yield f"# {declaration.metadata['doc']}\n"
            yield f"#{inner} = {_toml(value) if value is not None else ''}".rstrip() + "\n"
        elif value is not None:
            yield f"{inner} = {_toml(value)}\n"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    # Scalars are written as in JSON, which alone allows a raw DEL in a text.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
