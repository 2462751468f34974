"""The rooflines of V2's system in docs/roofline.md, from its recorded numbers, by our own code.

    python docs/images/draw_roofline.py

V2 Fig. 9a and 9b as recorded, and its 16 GPUs (Fig. 15) with COIs computed from V2 Table 5.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' record of V2
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.support import v2_roofline as v2

from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope
from ai500.report.page import standalone_svg

FOLDER = Path(__file__).parent
SCALE = 16 / (v2.NODES * v2.GPUS_PER_NODE)


def pictures() -> dict[str, str]:
    """File name → picture."""
    return {
        "roofline_v2_single_node.svg": recorded(v2.SINGLE_NODE, "V2 Fig. 9a: one node"),
        "roofline_v2_distributed.svg": recorded(v2.DISTRIBUTED, "V2 Fig. 9b: eight nodes"),
        "roofline_v2_16_gpus.svg": sixteen_gpus(),
    }


def recorded(numbers: v2.PublishedRoofline, title: str) -> str:
    """Return the roofs of one part of Fig. 9."""
    slopes = [Slope(name, rate) for name, rate in numbers.bandwidths.items()]
    return standalone_svg(RooflineChart(roofs(numbers, share=1), slopes, []).svg(title))


def roofs(numbers: v2.PublishedRoofline, *, share: float) -> list[Roof]:
    """Its ceilings, of a share of its GPUs."""
    return [
        Roof(name.removesuffix(" (theoretical)"), flops * share, "theoretical" in name)
        for name, flops in numbers.ceilings.items()
    ]


def sixteen_gpus() -> str:
    """EWA as it is and compressed; Image Classification's COI, under its roof."""
    ewa = v2.standing("EWA", gpus=16).channels[0]
    images = v2.standing("Image Classification", gpus=16).channels[0]
    verdict = next(one for one in v2.VERDICTS if one.workload == "EWA" and one.gpus == 16)
    assert verdict.flops is not None
    assert verdict.with_compression is not None
    marks = [
        Mark("EWA", ewa.coi, verdict.flops),
        Mark("EWA, FP16 sent", 2 * ewa.coi, verdict.with_compression),
        # V2 states no FLOPS: a node's 58 (Table 11) × 2 × the efficiency of §7.4.1.
        Mark("Image Class.", images.coi, 58e12 * 2 * 0.91),
    ]
    slopes = [Slope("2 × Ethernet", ewa.bytes_per_second)]
    title = "V2 at 16 GPUs, as in its Fig. 15"
    chart = RooflineChart(roofs(v2.DISTRIBUTED, share=SCALE), slopes, marks)
    return standalone_svg(chart.svg(title))


if __name__ == "__main__":
    for name, picture in pictures().items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
        print(f"wrote {FOLDER / name}")
