"""Entries of the list, made from the records of submissions; invalid submissions are rejected.

The score of an entry is recomputed from the submission's raw events.
"""

from __future__ import annotations

from dataclasses import dataclass

from ai500.core.errors import RuleError
from ai500.frameworks.protocol import OTHER_FRAMEWORKS
from ai500.metrics.quality import quality_ratio
from ai500.records import TrainRecord, require
from ai500.records.findings import LayerVerdict
from ai500.report.run_data import RunData
from ai500.report.summary import trial_range
from ai500.submission.manifest import Info
from ai500.workloads.protocol import load_workload

# Hexadecimal digits of a file's SHA-256 that name its entry.
ID_LENGTH = 16
# Characters of the names of an entry's devices and framework in the list; each member and node of a
# submission may name another.
MAX_SHOWN = 200
# Packages of the frameworks that train members, as records name their versions.
FRAMEWORK_PACKAGES = ("torch", *OTHER_FRAMEWORKS)


@dataclass(frozen=True, slots=True)
class Entry:
    """Valid result: one row of the list, and of the data that the pages load."""

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
    """Quality relative to the target, where more is better; at least 1: target met [D15]."""
    ensemble_size: int
    parallel_degree: int
    system_scale: int
    nodes: int
    accelerator: str
    precision: str
    framework: str
    trials: int
    score_variation: float | None
    regulated_score: float | None = None
    """−ln(error) × FLOPS of a search (AIPerf Eq. 3); None: the entry is an ensemble."""
    lowest_vflops: float | None = None
    """VFLOPS of the slowest complete trial; None: there is one trial."""
    highest_vflops: float | None = None
    """VFLOPS of the fastest complete trial; None: there is one trial."""
    penalty_exponent: float = 0.0
    """Exponent n of the quality factor (V3 Eq. 8)."""
    proven: str = "events"
    """Kinds of proof (`proofs.MEANINGS`), joined by " + "."""

    @property
    def list_key(self) -> tuple[str, str, str]:
        """Workload, class and level: results are comparable within one list."""
        return self.workload, self.problem_class, self.level

    @property
    def trial_range(self) -> tuple[float, float]:
        """Lowest and highest VFLOPS of the trials; of a single trial its own."""
        low = self.vflops if self.lowest_vflops is None else self.lowest_vflops
        high = self.vflops if self.highest_vflops is None else self.highest_vflops
        return min(low, self.vflops), max(high, self.vflops)

    @property
    def watts(self) -> float | None:
        """Mean power of the part that the meters cover."""
        return None if not self.vflops_per_watt else self.vflops / self.vflops_per_watt

    @property
    def full_name(self) -> str:
        """System and organization, as far as the submitter gave them."""
        return ", ".join(filter(None, (self.system, self.organization)))

    @property
    def system_key(self) -> tuple[str, str]:
        """Organization and name, which identify a system over editions."""
        return self.organization.strip().casefold(), self.system.strip().casefold()


@dataclass(frozen=True, slots=True)
class MemberWork:
    """Identity of one member's training."""

    trial: int
    member: int
    weights_sha256: str | None
    marks: tuple[int, ...]
    """Sample of the digests of its events' intervals (`identity.marks`)."""
    sequence: str = ""
    """Digest of the kinds and epochs of its events, in the order of `intervals`."""
    intervals: tuple[int, ...] = ()
    """Microseconds before each event, kind by kind (`identity.rhythm`)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """File of a valid submission, its signer, and the identity of its run."""

    file: str
    """Path below the folder of submissions."""
    sha256: str
    fingerprint: str | None = None
    """SHA-256 of the public key that signed; None: not signed."""
    work: tuple[MemberWork, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawing:
    """Chart, ready for a page."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """Valid submission."""

    entry: Entry
    body: str
    """HTML of the entry's page that does not depend on other entries."""
    layers: tuple[LayerVerdict, ...]
    claim: Claim
    rooflines: tuple[Drawing, ...] = ()
    """The run under its rooflines, where the submission contains ceilings."""


@dataclass(frozen=True, slots=True)
class Origin:
    """File of a submission."""

    file: str
    """Path below the folder of submissions."""
    sha256: str
    signed: bool
    signature: str
    """Sentence about the signature."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Submission that is not ranked, with every reason."""

    file: str
    system: str
    organization: str
    edition: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """Judgement of one file."""

    ranked: Ranked | None = None
    rejected: Rejected | None = None
    sha256: str = ""
    """SHA-256 of the file; empty: it could not be read."""

    @property
    def result(self) -> Ranked | Rejected:
        """The one of the two that there is."""
        result = self.ranked or self.rejected
        if result is None:
            raise RuleError("a judgement has neither an entry nor reasons against one.")
        return result


def make_entry(data: RunData, info: Info, *, sha256: str, signed: bool) -> Entry:
    """Make the entry of a valid submission."""
    score, plan = data.score, data.plan
    record = next(iter(data.members.values()))
    direction = load_workload(plan.workload).quality_direction
    quality = require(score.ensemble_quality, "ensemble_quality")
    spread = trial_range(score)
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
        vflops=require(score.vflops, "vflops"),
        flops=require(score.flops, "flops"),
        time_to_quality_seconds=score.time_to_quality_seconds,
        time_to_target_seconds=score.time_to_target_seconds,
        vflops_per_watt=score.vflops_per_watt,
        flops_per_watt=score.flops_per_watt,
        power_coverage=score.power_coverage,
        quality_name=score.quality_name,
        quality=quality,
        target_quality=score.target_quality,
        quality_ratio=quality_ratio(quality, target=score.target_quality, direction=direction),
        ensemble_size=score.ensemble_size,
        parallel_degree=score.parallel_degree,
        system_scale=score.system_scale,
        nodes=len(plan.nodes),
        accelerator=accelerator(data),
        precision=plan.hyperparameters.precision,
        framework=framework(record),
        trials=len(score.trials),
        score_variation=score.score_variation,
        regulated_score=None if score.search is None else score.search.regulated_score,
        lowest_vflops=None if spread is None else spread[0],
        highest_vflops=None if spread is None else spread[1],
        penalty_exponent=plan.definition.penalty_exponent,
    )


def framework(record: TrainRecord) -> str:
    """Return the framework that trained the members, with its version."""
    names = (name for name in FRAMEWORK_PACKAGES if name in record.versions)
    return _short(next((f"{name} {record.versions[name]}" for name in names), "unknown"))


def accelerator(data: RunData) -> str:
    """Return the accelerators that the members recorded, or the CPUs if there are none.

    The nodes describe their own CPUs; system.json may be of a login node.
    """
    if data.plan.device == "cpu":
        models = dict.fromkeys(node.processors.model for node in data.nodes)
        return _short(f"CPU: {', '.join(filter(None, models)) or data.system.cpu}")
    names = dict.fromkeys(record.device_name for record in data.members.values())
    return _short(", ".join(names))


def _short(text: str) -> str:
    """Cut a text that everybody's list shows; the entry's page has it whole."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
