"""The papers' numbers for these experiments, shown beside ours.

V3 gives no numbers for its figures except in its text; these are all.
"""

from __future__ import annotations

from typing import NamedTuple

#: V3 Fig. 5: penalty coefficient at all scales, 1 to 8 jobs of 8 GPUs.
V3_PENALTY = {"image_classification": 0.96, "extreme_weather": 0.44}

#: V3 §4.4.1, Fig. 7 (Image Classification, 64 GPUs): M and P_degree, from slow to fast.
V3_TRADEOFF = ((8, 8), (4, 16), (1, 64))
#: The same: what M = 1 loses against M = 8, "about 3 %".
V3_TRADEOFF_LOSS = 0.03


class Speedup(NamedTuple):
    """FLOPS of an optimization over the original's."""

    optimization: str
    ratio: float
    source: str


#: Workload → speedups of V3 Fig. 8 and V2 §7.
SPEEDUPS = {
    "image_classification": (
        Speedup("mixed precision", 2.0, "V3 Fig. 8, “about 2x”"),
        Speedup("mixed precision", 2.16, "V2 §7.5, 16 GPUs"),
        Speedup("compression", 1.0, "V3 Fig. 8, “barely … any speed up”"),
        Speedup("compression", 414 / 345, "V2 §7.4.1, 64 GPUs, FP32"),
    ),
    "extreme_weather": (Speedup("compression", 1.2, "V3 Fig. 8, “about 1.2x”"),),
}

#: V2 Fig. 4, right: nodes of 8 GPUs → accuracy that mixed precision costs ResNet-50.
V2_PRECISION_LOSS = {1: 0.0012, 8: 0.01}

#: V2 Table 8: GPUs → accuracy that Image Classification gains without batch norm's decay, and
#: the ratio of VFLOPS.
V2_TABLE_8 = {16: (0.0045, 1.03), 32: (0.0045, 1.03), 64: (0.0138, 1.10)}

#: V2 Fig. 7b, batch size 8192: top-1 without linear scaling and warm-up, and with both.
V2_POLICY_QUALITY = (0.6148, 0.7634)

#: V2 §7.4, data parallelism: nodes of 8 GPUs → FLOPS / (nodes × FLOPS of one node).
V2_EFFICIENCY = {
    "image_classification": {2: 0.91, 4: 0.85, 8: 0.71},
    "extreme_weather": {2: 0.50, 4: 0.37, 8: 0.36},
}

#: Workload → its nearest row of V2 Table 2.
V2_TABLE_2_ROW = {
    "image_classification": "Image Classification",
    "extreme_weather": "Object Detection",
}
