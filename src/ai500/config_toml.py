"""A configuration written as TOML: a run's own, resolved, or a template with every key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ai500.config import Config, documented_keys
from ai500.core.schema import encode


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML that `load` reads back."""
    return "".join(_lines(config, commented=False))


def template() -> str:
    """A commented ai500.toml with every key, its meaning and its default."""
    head = (
        "# ai500.toml: every key is optional and shown with its default.\n"
        "# Uncomment and change what you need; `ai500 plan` shows what follows from it.\n\n"
    )
    return head + "".join(_lines(Config(), commented=True))


def _lines(config: Config, *, commented: bool) -> Iterator[str]:
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
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(
            f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c
            for c in value.replace("\\", "\\\\").replace('"', '\\"')
        )
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return repr(value)
