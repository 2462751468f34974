"""The equations of the HPC-AI roofline as functions of numbers (V2 §6).

    COI           communication operation intensity: FLOPs / CT (V2 §6.2, §6.3)
    CT            communication traffic: bytes that all accelerators together send
    ceiling       FLOPS of all accelerators together: a peak (Eq. 3, 5) or measured (Eq. 4, 6)
    channel       links of one class, with what all of them together carry per second

Eq. 3 and 4 (single node) and Eq. 5 and 6 (distributed) are one formula with other numbers: links
among the accelerators of a node and that node's FLOPS, or the network and all nodes' FLOPS. A run
that uses both classes of links is under both roofs: the lowest counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Bound = Literal["computation", "communication"]


@dataclass(frozen=True, slots=True)
class Channel:
    """One class of links, and how many operations a workload does for each byte over it."""

    name: str
    bytes_per_second: float
    """Of all links of this class together."""
    coi: float
    """FLOP per byte; infinite where nothing is sent."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a workload stands under a ceiling and some channels."""

    ceiling_flops: float
    channels: tuple[Channel, ...]

    @property
    def attainable_flops(self) -> float:
        """The lowest of the roofs."""
        return attainable_flops(self.ceiling_flops, self.channels)

    @property
    def bound(self) -> Bound:
        """What the lowest roof is made of."""
        return bound(self.ceiling_flops, self.channels)

    @property
    def limit(self) -> str:
        """The lowest roof's name: `computation`, or the channel's."""
        if self.bound == "computation":
            return "computation"
        return min(self.channels, key=lambda one: one.bytes_per_second * one.coi).name

    def with_coi_times(self, factor: float) -> Standing:
        """The same work with less traffic: compression, a larger batch."""
        return replace(
            self, channels=tuple(replace(one, coi=one.coi * factor) for one in self.channels)
        )

    def under(self, ceiling_flops: float) -> Standing:
        """The same work under another ceiling: another precision."""
        return replace(self, ceiling_flops=ceiling_flops)


def coi(operations: float, *, traffic_bytes: float) -> float:
    """V2 §6.2: COI = FLOPs / CT; infinite for one accelerator, which talks to nobody."""
    return operations / traffic_bytes if traffic_bytes else math.inf


def attainable_flops(ceiling_flops: float, channels: Sequence[Channel]) -> float:
    """V2 Eq. 3–6: min(ceiling, bandwidth × COI), over each class of links that is used."""
    return min([ceiling_flops, *(one.bytes_per_second * one.coi for one in channels)])


def bound(ceiling_flops: float, channels: Sequence[Channel]) -> Bound:
    """Under the slanted part of the roof communication bounds, else computation (V2 §6.4.1)."""
    reached = attainable_flops(ceiling_flops, channels)
    return "communication" if reached < ceiling_flops else "computation"


def ridge_coi(ceiling_flops: float, *, bytes_per_second: float) -> float:
    """COI at which the slanted part meets the flat one."""
    return ceiling_flops / bytes_per_second


def at_most(before: Standing, after: Standing) -> float:
    """What a change can do at most to a run at its roof: the roof after over the roof before.

    A run below its roof gains this if it reaches the same share of it after; more, where the
    change takes away what kept it below (see `never_more`).
    """
    return after.attainable_flops / before.attainable_flops


def never_more(attained_flops: float, after: Standing) -> float:
    """What no run can gain, however far it is below its roof: the roof after over what it has."""
    return after.attainable_flops / attained_flops


def traffic_factor(precision: str) -> float:
    """Bytes on the wire for each value of 4 bytes, as a share: 1/2 for 16 bits (V2 §7.5.2)."""
    return WIRE_BYTES[precision] / WIRE_BYTES["fp32"]


WIRE_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0 + 4 / 1024}
"""Bytes of a gradient on the wire by communication precision; int8 has a scale for 1,024."""
