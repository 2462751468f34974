"""From a stream of operators to operation counts, under one of the three conventions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from ai500.core.errors import InputError
from ai500.core.schema import nearest
from ai500.operations.graph import UNKNOWN, Op, Trace
from ai500.operations.rules import CONVENTIONS, Convention


@dataclass(frozen=True, slots=True)
class KindCount:
    """What the operators of one kind, or of one module, amount to for the whole batch."""

    forward: int = 0
    backward: int = 0
    """As AIPerf Table II: the gradients, and in `aiperf` the parameter update."""
    update: int = 0
    """The part of `backward` that is the parameter update."""
    operators: int = 0
    parameters: int = 0
    activation_bytes: int = 0

    @property
    def total(self) -> int:
        return self.forward + self.backward

    def __add__(self, other: KindCount) -> KindCount:
        return KindCount(
            forward=self.forward + other.forward,
            backward=self.backward + other.backward,
            update=self.update + other.update,
            operators=self.operators + other.operators,
            parameters=self.parameters + other.parameters,
            activation_bytes=self.activation_bytes + other.activation_bytes,
        )


@dataclass(frozen=True, slots=True)
class OperationCount:
    """Operations of one training step of a model on a batch (Computation(f(x)) of V3 Eq. 3, 4)."""

    convention: str
    batch: int
    parameters: int
    forward: int
    """Of the whole batch. A validation pass costs this and nothing else."""
    backward: int
    """Of the whole batch: gradients, and in `aiperf` the update once (SPEC §4, [D12])."""
    update: int
    """The part of `backward` that happens once per optimizer step, however large the batch."""
    by_kind: dict[str, KindCount] = field(repr=False)
    by_module: dict[str, KindCount] = field(repr=False)
    """Module path → the operators that run in that module itself, not in its children."""
    unknown: dict[str, int]
    """Operators no rule knows, and how many: their work is not in the count."""

    @property
    def total(self) -> int:
        """One optimizer step on this batch: forward, backward, update."""
        return self.forward + self.backward

    @property
    def gradients(self) -> int:
        """The backward pass without the parameter update."""
        return self.backward - self.update

    @property
    def forward_per_image(self) -> int:
        """Exact where work grows with the batch; work that does not is shared, rounded down."""
        return self.forward // self.batch

    @property
    def backward_per_image(self) -> int:
        """Gradients of one image; the update belongs to the step, not to the image [D12]."""
        return self.gradients // self.batch

    @property
    def activation_bytes(self) -> int:
        return sum(kind.activation_bytes for kind in self.by_kind.values())

    def as_json(self) -> dict[str, Any]:
        """Plain data, for `--json` and for records."""
        return {
            "convention": self.convention,
            "batch": self.batch,
            "parameters": self.parameters,
            "forward": self.forward,
            "backward": self.backward,
            "update": self.update,
            "total": self.total,
            "forward_per_image": self.forward_per_image,
            "backward_per_image": self.backward_per_image,
            "activation_bytes": self.activation_bytes,
            "by_kind": {kind: asdict(count) for kind, count in self.by_kind.items()},
            "by_module": {path: asdict(count) for path, count in self.by_module.items()},
            "unknown": dict(self.unknown),
        }


def convention_named(name: str) -> Convention:
    """The convention of that name, or an error with the nearest one."""
    if name in CONVENTIONS:
        return CONVENTIONS[name]
    raise InputError(f"unknown convention {name!r}; {nearest(name, list(CONVENTIONS))}")


def count_op(op: Op, convention: Convention) -> KindCount:
    """Count one operator; one without a rule counts nothing and is reported by its caller."""
    rule = convention.rules.get(op.kind)
    attributes = op.attributes
    update = convention.update * attributes.get("updated", 0)
    gradients = attributes.get("gradients", 0)
    return KindCount(
        forward=rule.forward(op) if rule else 0,
        backward=(gradients * rule.gradient(op) if rule and gradients else 0) + update,
        update=update,
        operators=1,
        parameters=attributes.get("parameters", 0),
        activation_bytes=attributes.get("activation_bytes", 0),
    )


def count_ops(ops: Iterable[Op], *, convention: str, batch: int, parameters: int) -> OperationCount:
    """Count a stream of operators traced at a batch of that size."""
    rules = convention_named(convention)
    by_kind: dict[str, KindCount] = {}
    by_module: dict[str, KindCount] = {}
    unknown: Counter[str] = Counter()
    total = KindCount()
    for op in ops:
        one = count_op(op, rules)
        if op.kind == UNKNOWN or op.kind not in rules.rules:
            unknown[op.operator or op.kind] += 1
        by_kind[op.kind] = by_kind.get(op.kind, KindCount()) + one
        by_module[op.module] = by_module.get(op.module, KindCount()) + one
        total += one
    return OperationCount(
        convention=convention,
        batch=batch,
        parameters=parameters,
        forward=total.forward,
        backward=total.backward,
        update=total.update,
        by_kind=by_kind,
        by_module=by_module,
        unknown=dict(unknown.most_common()),
    )


def count_trace(trace: Trace, *, convention: str) -> OperationCount:
    """Count a traced model."""
    return count_ops(
        trace.ops, convention=convention, batch=trace.batch, parameters=trace.parameters
    )
