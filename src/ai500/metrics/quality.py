"""The target quality of a problem class, and which qualities are better than others [D15]."""

from __future__ import annotations

from dataclasses import dataclass

from ai500.metrics.equations import Direction, penalty_coefficient
from ai500.records import Plan
from ai500.workloads.protocol import load_workload


@dataclass(frozen=True, slots=True)
class Target:
    """Target quality of a class, with the exponent of its penalty and the quality's direction."""

    quality: float
    exponent: float
    """n of V3 Eq. 8."""
    direction: Direction
    """`higher` or `lower`: the direction in which quality improves."""

    def better(self, quality: float, other: float) -> bool:
        """Return True if `quality` is better than `other`."""
        return quality > other if self.direction == "higher" else quality < other

    def reached(self, quality: float) -> bool:
        """Return True if `quality` is the target or better."""
        return quality == self.quality or self.better(quality, self.quality)

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
        load_workload(plan.workload).quality_direction,
    )
