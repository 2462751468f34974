"""Planned code of the user's own (free level, V2 §3.1): names are checked, nothing is imported."""

from __future__ import annotations

import re

from ai500.config import Config
from ai500.core.errors import ConfigError, setting_error
from ai500.records import OwnCode

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def own_code(config: Config) -> OwnCode:
    """Return the code that the configuration names; an error says what does not fit with it."""
    free = config.free_level
    code = OwnCode(model=free.model, optimizer=free.optimizer, loss=free.loss, folder=free.folder)
    if not code.parts:
        return OwnCode()
    for part in code.parts:
        _check_name(part, getattr(code, part))
    first = f"free_level.{code.parts[0]}"
    if config.framework.kind != "pytorch":
        raise ConfigError(
            f"{first} has no effect with framework.kind = {config.framework.kind!r}: it replaces "
            "parts of an ensemble's PyTorch training.",
            key=first,
            value=getattr(code, code.parts[0]),
            remedy="Leave [free_level] out.",
        )
    if code.model is not None and (config.parallel.mode != "data" or config.parallel.sharded):
        raise ConfigError(
            "free_level.model: how the model is divided is known of the class's own model only.",
            key="parallel.sharded" if config.parallel.sharded else "parallel.mode",
            value=config.parallel.sharded or config.parallel.mode,
            remedy='Set parallel.mode = "data" and parallel.sharded = false.',
        )
    return code


def _check_name(part: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise setting_error(
            f"free_level.{part}",
            name,
            "not the name of a function:",
            "Write module:function, such as my_models:wide_resnet.",
        )
