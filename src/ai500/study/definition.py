"""Parts of a study: its context, its points, and the view of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai500.automl.program import SEARCH
from ai500.config import Config
from ai500.core.errors import InputError
from ai500.core.schema import decode, encode
from ai500.pipeline import planning
from ai500.pipeline.programs import program_of
from ai500.records import Cluster, Plan, System
from ai500.report.charts.dot_chart import DotRow, DotRows
from ai500.report.section import Figure, Section
from ai500.study.records import PointResult, StudyResult


@dataclass(frozen=True)
class Point:
    """Settings by dotted keys, with a name and a label."""

    name: str
    label: str
    overrides: Mapping[str, Any]
    optional: bool = False
    """True: if the machine lacks it, the report gives the reason and the study continues."""


@dataclass(frozen=True)
class StudyOptions:
    """Options of the command besides the configuration."""

    max_members: int | None = None
    seeds: int | None = None
    scales: tuple[int, ...] = ()
    """Numbers of accelerators of a study over scales; empty: the whole system only."""


@dataclass(frozen=True)
class StudyContext:
    """Configuration and machine of a study."""

    config: Config
    machine: System
    cluster: Cluster | None
    plan: Plan
    """Plan of the configuration without overrides."""

    @property
    def accelerators(self) -> int:
        """Return Sys_scale of the whole system."""
        return self.plan.system_scale

    @property
    def per_node(self) -> int:
        """Return the accelerators of a node."""
        return len(self.plan.nodes[0].slots)

    @property
    def degree(self) -> int:
        """Return P_degree; default: a node's accelerators, or 1 on a single node."""
        if self.config.parallel.degree is not None:
            return self.config.parallel.degree
        return self.per_node if self.accelerators > self.per_node else 1

    def config_for(self, overrides: Mapping[str, Any]) -> Config:
        """Return the configuration with these overrides."""
        plain = encode(self.config)
        for key, value in overrides.items():
            section, _, name = key.rpartition(".")
            (plain[section] if section else plain)[name] = value
        return decode(Config, plain)

    def plan_for(self, overrides: Mapping[str, Any]) -> Plan:
        """Return the plan with these overrides."""
        return planning.make_plan(self.config_for(overrides), self.machine, self.cluster)


@dataclass(frozen=True)
class View:
    """Sentences, figures and sections of a study's report."""

    sentences: Sequence[str]
    figures: Sequence[Figure]
    sections: Sequence[Section] = ()


@dataclass(frozen=True)
class Study:
    """One experiment of the papers."""

    name: str
    title: str
    source: str
    controls: tuple[str, ...]
    """Keys that the study sets, or needs at their default; a user's value is an error."""
    points: Callable[[StudyContext, StudyOptions], Sequence[Point]]
    view: Callable[[StudyResult], View]
    supports_search: bool = False
    """True: the study also applies to workloads that search architectures (AIPerf)."""
    measures_sharing: bool = False
    """True: members that share an accelerator are its subject, no reason to doubt a speed."""


def check_workload(study: Study, context: StudyContext) -> None:
    """Raise InputError for a search if the study is about ensembles, and for a script."""
    if context.plan.framework.kind == "script":
        raise InputError(
            f"`ai500 study {study.name}` compares runs of ai500's own workers, not of a script.",
            key="framework.kind",
            value="script",
            remedy="Compare runs of a script with `ai500 compare`.",
        )
    if program_of(context.plan) is SEARCH and not study.supports_search:
        raise InputError(
            f"`ai500 study {study.name}` is about ensembles, but the workload "
            f"{context.config.workload} searches architectures.",
            key="workload",
            value=context.config.workload,
            remedy="For a search use `ai500 study scaling` or `ai500 study repeatability`.",
        )


def check_not_set(study: Study, config: Config) -> None:
    """Raise InputError if the user set a key that the study controls: it would have no effect."""
    default = Config()
    for key in study.controls:
        section, _, name = key.rpartition(".")
        configured, defaults = getattr(config, section), getattr(default, section)
        if getattr(configured, name) != getattr(defaults, name):
            raise InputError(
                f"{key} = {getattr(configured, name)}: `ai500 study {study.name}` sets it itself.",
                key=key,
                value=getattr(configured, name),
                remedy="Leave it out of the configuration and of --set.",
            )


def hollow_note(points: Iterable[PointResult]) -> str:
    """Explain hollow dots; empty if the timing of every point is valid."""
    valid = all(point.timing_valid for point in points)
    return "" if valid else "Hollow: the speed is not meaningful."


def vflops_figure(points: Sequence[PointResult]) -> Figure:
    """Plot the VFLOPS of each point."""
    title = "VFLOPS of each"
    best = max((point.vflops for point in points), default=0.0)
    if best == 0:
        return Figure(title, None, "None has valid speed: VFLOPS are 0 where nothing was learned.")
    rows = [
        DotRow(point.label, [point.vflops / best], trusted=point.timing_valid) for point in points
    ]
    chart = DotRows(rows, x_title="VFLOPS / the highest", reference=1.0)
    return Figure(title, chart, "VFLOPS weigh speed by quality (V3 Eq. 7 and 8).")
