"""The target quality of a problem class, and which qualities are better than others [D15]."""

from __future__ import annotations

from dataclasses import dataclass

from ai500.metrics.equations import Direction, penalty_coefficient
from ai500.records import Plan
from ai500.workloads.protocol import class_workload


def is_better(quality: float, other: float, *, direction: Direction) -> bool:
    """Return True if `quality` is better than `other`."""
    return quality > other if direction == "higher" else quality < other


def improvement(quality: float, *, over: float, direction: Direction) -> float:
    """Return by how much `quality` is better than `over`; negative: worse."""
    return quality - over if direction == "higher" else over - quality


def quality_ratio(quality: float, *, target: float, direction: Direction) -> float:
    """Return quality / target, inverted where lower is better, so that more is better [D15]."""
    above, below = (quality, target) if direction == "higher" else (target, quality)
    return above / below if below else 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """Target quality of a class, with the exponent of its penalty and the quality's direction."""

    quality: float
    exponent: float
    """Exponent n of the penalty coefficient (V3 Eq. 8)."""
    direction: Direction
    """`higher` or `lower`: the direction in which quality improves."""

    def reached(self, quality: float) -> bool:
        """Return True if `quality` is the target or better."""
        return quality == self.quality or is_better(quality, self.quality, direction=self.direction)

    def penalty(self, quality: float) -> float:
        """Compute the penalty coefficient of an achieved quality: V3 Eq. 8."""
        return penalty_coefficient(
            quality,
            target_quality=self.quality,
            exponent=self.exponent,
            direction=self.direction,
        )


def target_of(plan: Plan) -> Target:
    """Return the target of a plan's class, in the direction of its workload's quality."""
    definition = plan.definition
    return Target(
        definition.target_quality,
        definition.penalty_exponent,
        class_workload(plan.workload, definition).quality_direction,
    )
