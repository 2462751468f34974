"""Division of the detector among accelerators. Imports no torch, so `plan` runs anywhere."""

from __future__ import annotations

from ai500.records import ParallelPlan, Split
from ai500.workloads.models.resnet_plan import Block, residual_splits


def detector_plan(
    block: Block, depths: tuple[int, ...], *, width: int, pyramid_channels: int, hidden: int
) -> ParallelPlan:
    """Split every large layer; the two predictions of the box head stay whole.

    Pipeline stages end between residual blocks (`FasterRCNN.forward_unit`).
    """
    blocks = [f"pyramid.stages.{i}.{j}" for i, depth in enumerate(depths) for j in range(depth)]
    return ParallelPlan(
        splits=(
            *residual_splits(block, len(depths), width=width, prefix="pyramid."),
            Split("pyramid.lateral.*", "columns_gathered", pyramid_channels),
            Split("pyramid.smooth.*", "columns_gathered", pyramid_channels),
            Split("proposing.shared", "columns", pyramid_channels),
            Split("proposing.predict", "rows", pyramid_channels),
            Split("head.first", "columns", hidden),
            Split("head.second", "rows", hidden),
        ),
        # The layers after the residual stages need all of them and the labels: one unit.
        stages=(
            ("pyramid.stem",),
            *((block,) for block in blocks),
            ("pyramid.lateral", "pyramid.smooth", "proposing", "head"),
        ),
        units=("pyramid.stem", *blocks, "proposing", "head"),
    )
