"""Operation counts of a stream of operators, by one of the three conventions."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from ai500.core.errors import InputError
from ai500.core.schema import nearest
from ai500.operations.graph import UNKNOWN, Op, Trace
from ai500.operations.rules import CONVENTIONS, Convention
from ai500.records import Operations


@dataclass(frozen=True, slots=True)
class KindCount:
    """Sum over the operators of one kind or one module, for the whole batch."""

    forward: int = 0
    backward: int = 0
    """Operations of the gradients, and in `aiperf` the parameter update (AIPerf Table II)."""
    update: int = 0
    """Operations of the parameter update, included in `backward`."""
    operators: int = 0
    parameters: int = 0
    activation_bytes: int = 0

    @property
    def total(self) -> int:
        return self.forward + self.backward

    def __add__(self, other: KindCount) -> KindCount:
        return KindCount(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class OperationCount:
    """Operations of one training step of a model on a batch (Computation(f(x)) of V3 Eq. 3, 4)."""

    convention: str
    batch: int
    parameters: int
    forward: int
    """Operations of the forward pass on the whole batch; a validation pass has no others."""
    backward: int
    """Operations of the gradients on the batch, and in `aiperf` one update [D12]."""
    update: int
    """Operations of one parameter update, included in `backward`; independent of the batch."""
    by_kind: dict[str, KindCount] = field(repr=False)
    by_module: dict[str, KindCount] = field(repr=False)
    """Module path → operators of the module itself, without those of its children."""
    unknown: dict[str, int]
    """Operator without a rule → number of occurrences; they are not counted."""

    @property
    def total(self) -> int:
        """Operations of one optimizer step on this batch: forward, backward, update."""
        return self.forward + self.backward

    @property
    def gradients(self) -> int:
        """Operations of the backward pass without the parameter update."""
        return self.backward - self.update

    @property
    def forward_per_sample(self) -> int:
        """Operations of the forward pass per image, rounded down where a batch shares work."""
        return self.forward // self.batch

    @property
    def backward_per_sample(self) -> int:
        """Operations of the gradients per image, without the update, which is per step [D12]."""
        return self.gradients // self.batch

    @property
    def activation_bytes(self) -> int:
        return sum(kind.activation_bytes for kind in self.by_kind.values())

    def as_record(self) -> Operations:
        """Return the count per image and per optimizer step."""
        return Operations(
            convention=self.convention,
            forward_per_sample=self.forward_per_sample,
            backward_per_sample=self.backward_per_sample,
            update_per_step=self.update,
            parameters=self.parameters,
            uncounted=self.unknown,
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain data, for `--json`."""
        derived = ("total", "forward_per_sample", "backward_per_sample", "activation_bytes")
        return {name: getattr(self, name) for name in derived} | asdict(self)


def convention_named(name: str) -> Convention:
    """Return the convention called `name`."""
    if name in CONVENTIONS:
        return CONVENTIONS[name]
    raise InputError(
        f"unknown convention {name!r};",
        key="convention",
        value=name,
        remedy=nearest(name, list(CONVENTIONS)),
    )


def count_op(op: Op, convention: Convention) -> KindCount:
    """Count an operator; without a rule it counts 0 and the caller reports it."""
    rule = convention.rules.get(op.kind)
    attributes = op.attributes
    update = convention.update * attributes.get("updated", 0)
    gradients = attributes.get("gradients", 0)
    repeats = attributes.get("repeats", 1)
    return KindCount(
        forward=repeats * rule.forward(op) if rule else 0,
        backward=(repeats * gradients * rule.gradient(op) if rule and gradients else 0) + update,
        update=update,
        operators=repeats,
        parameters=attributes.get("parameters", 0),
        activation_bytes=attributes.get("activation_bytes", 0),
    )


def count_trace(trace: Trace, *, convention: str) -> OperationCount:
    """Count a traced model."""
    rules = convention_named(convention)
    by_kind: dict[str, KindCount] = {}
    by_module: dict[str, KindCount] = {}
    unknown: Counter[str] = Counter()
    total = KindCount()
    for op in trace.ops:
        count = count_op(op, rules)
        if op.kind == UNKNOWN or op.kind not in rules.rules:
            unknown[op.operator or op.kind] += op.attributes.get("repeats", 1)
        by_kind[op.kind] = by_kind.get(op.kind, KindCount()) + count
        by_module[op.module] = by_module.get(op.module, KindCount()) + count
        total += count
    return OperationCount(
        convention=convention,
        batch=trace.batch,
        parameters=trace.parameters,
        forward=total.forward,
        backward=total.backward,
        update=total.update,
        by_kind=by_kind,
        by_module=by_module,
        unknown=dict(unknown.most_common()),
    )
