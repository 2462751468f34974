"""V2's own numbers as data with their section, and its verdicts.

8 nodes × 8 NVIDIA V100, NVLink inside, 10 Gb/s Ethernet between (V2 §6.4, §7). The paper's numbers
are not all consistent: Table 9 has a mixed peak of 7,680 TFLOPS where §6.4.2 has 8,320.
"""

from __future__ import annotations

from dataclasses import dataclass

from ai500.roofline.model import Channel, Standing

NODES, GPUS_PER_NODE = 8, 8
TERA, GIGA = 1e12, 1e9


@dataclass(frozen=True, slots=True)
class PublishedRoofline:
    """One roofline of V2 Fig. 9."""

    source: str
    ceilings: dict[str, float]
    """Name → FLOPS."""
    bandwidths: dict[str, float]
    """Name → bytes per second; the first is the model's own, the second its best case."""


SINGLE_NODE = PublishedRoofline(
    source="V2 §6.4.1, Fig. 9a",
    ceilings={
        "peak mixed (theoretical)": 1040 * TERA,
        "GEMM mixed": 636 * TERA,
        "CONV mixed": 176 * TERA,
        "GEMM FP32": 115 * TERA,
        "CONV FP32": 112 * TERA,
    },
    bandwidths={"NVLink": 300 * GIGA, "memory": 1134 * GIGA},
)
DISTRIBUTED = PublishedRoofline(
    source="V2 §6.4.2, Fig. 9b",
    ceilings={
        "peak mixed (theoretical)": 8320 * TERA,
        "GEMM mixed": 5091 * TERA,
        "CONV mixed": 2376 * TERA,
        "CONV FP32": 976 * TERA,
        "GEMM FP32": 920 * TERA,
    },
    bandwidths={"Ethernet": 1.2 * GIGA, "NVLink": 300 * GIGA},
)

# V2 Table 5: operations of a step of one GPU (batch 128, and 1) over the parameters it
# communicates.
FLOP_PER_PARAMETER = {"Image Classification": 117.76e3, "EWA": 16.85e3}


@dataclass(frozen=True, slots=True)
class Verdict:
    """V2's statement on a workload at a scale, and its measurement."""

    source: str
    workload: str
    gpus: int
    bound: str
    precision: str
    flops: float | None
    """None: V2 does not state it."""
    with_compression: float | None
    mixed_speedup: float | None = None


VERDICTS = (
    Verdict("V2 §7.5", "EWA", 16, "communication", "FP32", 25.99 * TERA, 36.97 * TERA),
    Verdict("V2 §7.5", "Image Classification", 16, "computation", "FP32", None, None, 2.16),
    Verdict("V2 §7.4.1", "Image Classification", 32, "computation", "FP32", None, None),
    Verdict("V2 §7.4.1", "Image Classification", 64, "communication", "FP32", 345 * TERA,
            414 * TERA),
    Verdict("V2 §7.4.1", "Image Classification", 64, "communication", "mixed", 718 * TERA,
            939 * TERA),
    Verdict("V2 §7.4.2", "EWA", 64, "communication", "FP32", None, 109 * TERA),
)  # fmt: skip


def standing(workload: str, *, gpus: int, precision: str = "FP32") -> Standing:
    """Compute the position of V2's workloads: gradients of 4 bytes in a ring through all nodes.

    Each GPU sends 2 (n−1)/n of its gradients; in a ring through N nodes, N GPUs send to another
    node. The network is N links of 1.2 GB/s, and a ceiling is V2's share of these GPUs. In mixed
    precision V2 doubles the batch (§7.5.2), and with it the COI.
    """
    nodes = gpus // GPUS_PER_NODE
    bytes_per_parameter = 4 * 2 * (gpus - 1) / gpus
    coi = FLOP_PER_PARAMETER[workload] / bytes_per_parameter
    batch_factor = 2 if precision == "mixed" else 1
    between = Channel(
        "network",
        bytes_per_second=nodes * DISTRIBUTED.bandwidths["Ethernet"],
        coi=batch_factor * coi * gpus / nodes,
    )
    inside = Channel(
        "NVLink",
        bytes_per_second=nodes * DISTRIBUTED.bandwidths["NVLink"],
        coi=batch_factor * coi * gpus / (gpus - nodes),
    )
    ceiling = DISTRIBUTED.ceilings[f"CONV {precision}"] * nodes / NODES
    return Standing(ceiling, (between, inside))
