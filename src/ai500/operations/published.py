"""Operation counts that the papers print for ResNet-50, for comparison only."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """One printed row; `recorded` names the figures that contradict the paper's own weights."""

    forward: float
    backward: float
    recorded: frozenset[str] = frozenset()


#: AIPerf Table III, ResNet-50 v1, one image of 3×224×224, batch size 1.
AIPERF_TABLE_III: dict[str, Published] = {
    "convolution": Published(7.71e9, 1.52e10),
    "dense": Published(4.10e6, 1.23e7),
    "batch_norm": Published(7.41e7, 1.91e3, frozenset({"backward"})),
    "relu": Published(9.08e6, 0),
    "max_pool": Published(1.81e6, 0),
    "average_pool": Published(1.00e5, 0, frozenset({"forward"})),
    "add": Published(5.52e6, 0),
    "softmax": Published(2.10e4, 0, frozenset({"forward"})),
    "total": Published(7.81e9, 1.52e10),
}

#: V3 Table 4 and V2 Table 6: measured by a profiler, per image of training.
PROFILED_OPERATIONS_PER_IMAGE = {"image_classification": 23e9, "extreme_weather": 691e9}
