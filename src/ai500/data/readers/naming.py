"""Names of arrays, columns and keys: which become fields, in which role and split.

`inputs…` and `targets…` become fields: `inputs` and `inputs_volume` are inputs called `inputs` and
`volume`. A prefix says the split: `validation_inputs`, or a group or folder `validation`. Where no
input (or no target) has such a name, `images` and `labels` (or `image` and `label`, `x` and `y`,
Keras' `x_train` …) are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ai500.data.readers.protocol import TRAIN, VALIDATION
from ai500.data.store import data_error

Role = Literal["input", "target"]

_SPLIT = r"(?:(?P<split>train|validation|val|test)[_/.-])?"
_NAMED = re.compile(_SPLIT + r"(?P<role>inputs?|targets?)(?P<rest>[_/]?\w*)")
_USUAL = re.compile(
    _SPLIT + r"(?P<name>images?|labels?|[xy])(?:_(?P<after>train|validation|val|test))?",
    re.I,
)
_USUAL_FIELDS: dict[str, tuple[Role, str]] = {
    "image": ("input", "images"),
    "x": ("input", "images"),
    "label": ("target", "labels"),
    "y": ("target", "labels"),
}
EXPECTED_NAMES = (
    "Call the arrays inputs… and targets…, or name them: --input NAME --target NAME "
    "(or FIELD=NAME)."
)


@dataclass(frozen=True)
class Choice:
    """Which columns become fields, as the user says; empty: by their names."""

    inputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    ragged: frozenset[str] = frozenset()
    """Fields whose samples differ in length, although the first ones do not."""
    size: int = 256
    """Side of decoded images, in pixels."""


@dataclass(frozen=True)
class NamedColumn:
    """A field by its name, and the column that it is read from."""

    split: str | None
    """None: the name says no split."""
    role: Role
    name: str
    column: str


def split_of(text: str | None) -> str | None:
    """Return the split of a name's prefix."""
    return VALIDATION if text in ("val", "validation") else text


def by_convention(columns: Sequence[str]) -> list[NamedColumn]:
    """Return the fields that the names of columns say."""
    named: list[NamedColumn] = []
    for column in columns:
        if match := _NAMED.fullmatch(column):
            rest = match["rest"].lstrip("_/")
            name = rest if rest.isidentifier() else match["role"] + rest
            role: Role = "input" if match["role"].startswith("input") else "target"
            named.append(NamedColumn(split_of(match["split"]), role, name, column))
    known = {column.role for column in named}
    for column in columns:
        if match := _USUAL.fullmatch(column):
            role, name = _USUAL_FIELDS[match["name"].lower().removesuffix("s")]
            split = split_of(match["split"] or match["after"])
            if role not in known:
                named.append(NamedColumn(split, role, name, column))
    return named


def by_choice(columns: Iterable[str], choice: Choice, *, path: Path | str) -> list[NamedColumn]:
    """Return the fields that the user chose: `NAME`, or `FIELD=NAME`."""
    named: list[NamedColumn] = []
    known = list(columns)
    for role, options in (("input", choice.inputs), ("target", choice.targets)):
        for option in options:
            name, _, column = option.rpartition("=")
            splits: dict[str | None, str] = {None: column} if column in known else {}
            for split in (TRAIN, VALIDATION, "val", "test"):
                for text in (f"{split}_{column}", f"{split}/{column}"):
                    if text in known:
                        splits[split] = text
            if not splits:
                raise data_error(
                    path,
                    f"no array {column!r}; there are {listed(known)}.",
                    "Name one of them.",
                    value=column,
                )
            field_name = name or re.sub(r"\W", "_", column)
            named += [
                NamedColumn(split_of(split), role, field_name, text)  # type: ignore[arg-type]
                for split, text in splits.items()
            ]
    return named


def listed(names: Sequence[str]) -> str:
    """Return the first names for a message, and the number of the others."""
    shown = ", ".join(names[:8]) or "none"
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
