"""Equations of the HPC-AI roofline as functions of numbers (V2 §6).

    COI           communication operation intensity: FLOPs / CT (V2 §6.2, §6.3)
    CT            communication traffic: bytes that all accelerators together send
    ceiling       FLOPS of all accelerators together: a peak (Eq. 3, 5) or measured (Eq. 4, 6)
    channel       links of one class, with the bytes per second of all of them together

Eq. 3 and 4 (single node) and Eq. 5 and 6 (distributed) are one formula with different numbers:
links among the accelerators of a node and that node's FLOPS, or the network and all nodes' FLOPS. A
run that uses both classes of links is under both roofs; the lowest one limits it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Bound = Literal["computation", "communication"]
# Bytes of a gradient on the wire by communication precision; int8 has one scale per 1,024 values.
WIRE_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0 + 4 / 1024}


@dataclass(frozen=True, slots=True)
class Channel:
    """One class of links, and the operations a workload does per byte sent over it."""

    name: str
    bytes_per_second: float
    """Bandwidth of all links of this class together."""
    coi: float
    """FLOP per byte; infinite where nothing is sent."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Position of a workload under a ceiling and its channels."""

    ceiling_flops: float
    channels: tuple[Channel, ...]

    @property
    def attainable_flops(self) -> float:
        """Return min(ceiling, bandwidth × COI) over each class of links in use (V2 Eq. 3–6)."""
        roofs = (channel.bytes_per_second * channel.coi for channel in self.channels)
        return min([self.ceiling_flops, *roofs])

    @property
    def bound(self) -> Bound:
        """Return `communication` under the slanted part of the roof, else `computation`."""
        return "communication" if self.attainable_flops < self.ceiling_flops else "computation"

    @property
    def limit(self) -> str:
        """Return the lowest roof's name: `computation`, or the channel's."""
        if self.bound == "computation":
            return "computation"
        return min(self.channels, key=lambda channel: channel.bytes_per_second * channel.coi).name

    def with_coi_times(self, factor: float) -> Standing:
        """Return the position with less traffic per operation: compression, a larger batch."""
        return replace(
            self,
            channels=tuple(replace(channel, coi=channel.coi * factor) for channel in self.channels),
        )

    def under(self, ceiling_flops: float) -> Standing:
        """Return the position under another ceiling: another precision."""
        return replace(self, ceiling_flops=ceiling_flops)


def coi(operations: float, *, traffic_bytes: float) -> float:
    """Return COI = FLOPs / CT (V2 §6.2); infinite for one accelerator, which sends nothing."""
    return operations / traffic_bytes if traffic_bytes else math.inf


def gain_at_roof(before: Standing, after: Standing) -> float:
    """Return the largest gain of a run at its roof: the roof after over the roof before.

    A run below its roof gains this if it reaches the same share of it after the change, and more
    where the change removes what kept it below (see `gain_limit`).
    """
    return after.attainable_flops / before.attainable_flops


def gain_limit(attained_flops: float, after: Standing) -> float:
    """Return the upper bound of any run's gain: the roof after over the attained FLOPS."""
    return after.attainable_flops / attained_flops


def traffic_factor(precision: str) -> float:
    """Return bytes on the wire relative to FP32: 1/2 for 16 bits (V2 §7.5.2)."""
    return WIRE_BYTES[precision] / WIRE_BYTES["fp32"]
