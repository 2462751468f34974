"""What a study is made of: points from the machine and the configuration, a view of the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ai500.automl.program import SEARCH
from ai500.config import Config
from ai500.core.errors import InputError
from ai500.core.schema import decode, encode
from ai500.pipeline import planning
from ai500.pipeline.programs import program_of
from ai500.records import Cluster, Plan, System
from ai500.report.section import Figure, Table
from ai500.study.records import PointResult, StudyResult


@dataclass(frozen=True)
class Point:
    """Settings by dotted keys, under a name and in words."""

    name: str
    label: str
    overrides: Mapping[str, Any]
    optional: bool = False
    """A machine may lack it: then the report says why instead of the study failing."""


@dataclass(frozen=True)
class Choices:
    """What the person chose besides the configuration."""

    max_members: int | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class Ground:
    """The configuration and the machine that a study stands on."""

    config: Config
    machine: System
    cluster: Cluster | None
    plan: Plan
    """Of the configuration as it is."""

    @property
    def accelerators(self) -> int:
        """Sys_scale of the whole system."""
        return self.plan.system_scale

    @property
    def per_node(self) -> int:
        """Accelerators of a node."""
        return len(self.plan.nodes[0].slots)

    @property
    def degree(self) -> int:
        """P_degree that leaves room for an ensemble: a node's, or on one node 1, unless stated."""
        if self.config.parallel.degree is not None:
            return self.config.parallel.degree
        return self.per_node if self.accelerators > self.per_node else 1

    def configured(self, overrides: Mapping[str, Any]) -> Config:
        """The configuration with these settings over it."""
        changed = reduce(_changed, overrides.items(), self.config)
        return decode(Config, encode(changed))

    def planned(self, overrides: Mapping[str, Any]) -> Plan:
        """The plan of a point."""
        return planning.make_plan(self.configured(overrides), self.machine, self.cluster)


def _changed(config: Config, setting: tuple[str, Any]) -> Config:
    section, _, name = setting[0].rpartition(".")
    if not section:
        return dataclasses.replace(config, **{name: setting[1]})
    part = dataclasses.replace(getattr(config, section), **{name: setting[1]})
    return dataclasses.replace(config, **{section: part})


@dataclass(frozen=True)
class View:
    """What a study's report says and shows."""

    sentences: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[tuple[str, str, Table]] = ()
    """Title, note, table."""


@dataclass(frozen=True)
class Study:
    """One experiment of the papers."""

    name: str
    title: str
    source: str
    varies: tuple[str, ...]
    """Keys that the points set, or need as they are: a value of the person's has no place."""
    points: Callable[[Ground, Choices], Sequence[Point]]
    view: Callable[[StudyResult], View]
    of_searches: bool = False
    """Whether it says something of a workload that searches (AIPerf), too."""


def check_workload(study: Study, ground: Ground) -> None:
    """Refuse a search where the study is about ensembles."""
    if program_of(ground.plan) is SEARCH and not study.of_searches:
        raise InputError(
            f"--workload {ground.config.workload}: `ai500 study {study.name}` is about ensembles, "
            "and this one searches architectures. Of a search there are `ai500 study scaling` and "
            "`ai500 study repeatability`."
        )


def check_free(study: Study, config: Config) -> None:
    """Refuse a value for what the study sets: who sets it believes that it has an effect."""
    default = Config()
    for key in study.varies:
        section, _, name = key.rpartition(".")
        ours, theirs = getattr(config, section), getattr(default, section)
        if getattr(ours, name) != getattr(theirs, name):
            raise InputError(
                f"{key} = {getattr(ours, name)}: `ai500 study {study.name}` sets it itself. "
                "Leave it out of the configuration and of --set."
            )


def doubling(most: int, *, each_up_to: int = 8) -> list[int]:
    """1, 2, 3, … as far as that is few, then doubled, and always the last."""
    sizes = list(range(1, min(most, each_up_to) + 1))
    while sizes[-1] * 2 < most:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == most else [*sizes, most]


def by_name(result: StudyResult) -> dict[str, PointResult]:
    """Its points."""
    return {point.name: point for point in result.points}
