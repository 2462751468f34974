"""All studies by name."""

from __future__ import annotations

from ai500.core.errors import RunFolderError
from ai500.core.schema import nearest
from ai500.study import (
    data_parallel,
    frameworks,
    optimizations,
    repeatability,
    scaling,
    sharing,
    tradeoff,
)
from ai500.study.definition import Study

STUDIES: dict[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (
        scaling, tradeoff, optimizations, data_parallel, repeatability, sharing, frameworks,
    )
}  # fmt: skip


def study_named(name: str) -> Study:
    """Return the study of this name in a study.json."""
    if name not in STUDIES:
        raise RunFolderError(
            f"study {name!r}: no such study; {nearest(name, list(STUDIES))}",
            key="study",
            value=name,
        )
    return STUDIES[name]
