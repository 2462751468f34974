"""One line of the list, from a submission's own records; what breaks a rule is rejected.

Nothing a submission claims of its score is believed: it is recomputed from the raw events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ai500.metrics.quality import quality_ratio
from ai500.records import Score
from ai500.records.findings import Judgement, LayerVerdict
from ai500.report.run_data import RunData
from ai500.submission.manifest import Info
from ai500.workloads.protocol import load_workload

LARGEST = 1e30
"""No figure of a list is larger, or smaller than its inverse: what is comes of no measurement."""
ID_LENGTH = 16
"""Hexadecimal digits of a file's SHA-256 that name its entry."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A ranked result: one row of the list, and of the data that the pages load."""

    id: str
    system: str
    organization: str
    name: str
    edition: str
    level: str
    signed: bool
    workload: str
    problem_class: str
    vflops: float
    flops: float
    time_to_quality_seconds: float
    time_to_target_seconds: float | None
    vflops_per_watt: float | None
    flops_per_watt: float | None
    power_coverage: str | None
    quality_name: str
    quality: float
    target_quality: float
    quality_ratio: float
    """At least 1: the target is met, whether high or low is better [D15]."""
    ensemble_size: int
    parallel_degree: int
    system_scale: int
    nodes: int
    accelerator: str
    precision: str
    framework: str
    trials: int
    score_variation: float | None

    @property
    def list_key(self) -> tuple[str, str, str]:
        """Results compare within one workload, class and level."""
        return self.workload, self.problem_class, self.level

    @property
    def system_key(self) -> tuple[str, str]:
        """The same system in several editions: by name, of one organization."""
        return self.organization.strip().casefold(), self.system.strip().casefold()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A valid submission: its row, its page without the places, its layers."""

    entry: Entry
    body: str
    layers: Sequence[LayerVerdict]


@dataclass(frozen=True, slots=True)
class Origin:
    """The file a submission came in."""

    file: str
    """Its path below the folder of submissions."""
    sha256: str
    signed: bool
    signature: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A submission that is not ranked, with every reason."""

    file: str
    system: str
    organization: str
    edition: str
    reasons: tuple[str, ...]


def reasons_against(score: Score, judgement: Judgement) -> list[str]:
    """Why the run is no valid result; empty: it is one."""
    broken = [one for one in judgement.findings if one.severity == "violation"]
    return [f"{one.message} ({one.source})" for one in broken] or _impossible(score)


def _impossible(score: Score) -> list[str]:
    """A rate of nothing, of a window that did not last, or beyond all machines ranks nothing."""
    shown = {"VFLOPS": score.vflops, "FLOPS": score.flops, "time to quality": score.seconds}
    return [
        f"{name} is {value:g}: not a plausible positive number"
        for name, value in shown.items()
        if not 1 / LARGEST <= value <= LARGEST
    ]


def implausible(entry: Entry) -> list[str]:
    """Figures that can't be drawn, sorted or written, and that no machine reaches."""
    figures = {field.name: getattr(entry, field.name) for field in dataclasses.fields(Entry)}
    return [
        f"{name} is {value:g}: not a plausible number"
        for name, value in figures.items()
        if isinstance(value, float) and not abs(value) <= LARGEST
    ]


def make_entry(contents: RunData, info: Info, *, sha256: str, signed: bool) -> Entry:
    """The row of a valid submission."""
    score, plan = contents.score, contents.plan
    record = next(iter(contents.members.values()))
    direction = load_workload(plan.workload).quality_direction
    return Entry(
        id=sha256[:ID_LENGTH],
        system=info.system_name,
        organization=info.organization,
        name=info.name,
        edition=info.edition,
        level=info.level,
        signed=signed,
        workload=plan.workload,
        problem_class=plan.problem_class,
        vflops=score.vflops,
        flops=score.flops,
        time_to_quality_seconds=score.time_to_quality_seconds,
        time_to_target_seconds=score.time_to_target_seconds,
        vflops_per_watt=score.vflops_per_watt,
        flops_per_watt=score.flops_per_watt,
        power_coverage=score.power_coverage,
        quality_name=score.quality_name,
        quality=score.ensemble_quality,
        target_quality=score.target_quality,
        quality_ratio=quality_ratio(
            score.ensemble_quality, target=score.target_quality, direction=direction
        ),
        ensemble_size=score.ensemble_size,
        parallel_degree=score.parallel_degree,
        system_scale=score.system_scale,
        nodes=len(plan.nodes),
        accelerator=accelerator(contents),
        precision=plan.hyperparameters.precision,
        framework=f"torch {record.versions['torch']}" if "torch" in record.versions else "unknown",
        trials=len(score.trials),
        score_variation=score.score_variation,
    )


def accelerator(contents: RunData) -> str:
    """What the members say they trained on; without accelerators, the CPU."""
    if contents.plan.device == "cpu":
        return f"CPU: {contents.system.cpu}"
    names = dict.fromkeys(record.device_name for record in contents.members.values())
    return ", ".join(names)
