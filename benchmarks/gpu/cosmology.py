"""Cosmology on one GPU: training speed beside plain PyTorch, and quality of `workstation`.

    PYTHONPATH=src:.:.carry/site python3 -m benchmarks.gpu.cosmology [--parts speed,quality]

`speed`: volumes/s of `full`'s model, 4×128³, batch 16, in mixed BF16: our real loop (store,
bootstrap, augmentation, schedule, events), and `torch.compile` of the same model in a plain loop on
a constant batch, timed before and after ours. `quality`: `workstation` in FP32, three seeds of M
members; ensemble, members' mean, seconds per member. Full numbers: $OUT/cosmology.json.

Predictions before the first run: ours at 0.97 to 1.02 of torch.compile, whose 496 volumes/s were
measured before (lab/gpu_anchor3.py), because ours also mirrors its volumes; `quality` 0.15 to 0.25
for ensembles, 0.01 to 0.02 above that for members' means.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from benchmarks.gpu.beside_compile import (
    DEVICE,
    measure_quality,
    measure_speed,
    plain_step,
    run_parts,
)
from torch import Tensor

from ai500.data.generated import generate
from ai500.workloads.class_data import generate_store
from ai500.workloads.cosmology import CLASSES, WORKLOAD
from ai500.workloads.learnable_volumes import PARAMETERS, LearnableVolumes

PRECISION = "mixed-bf16"


def plain(name: str) -> Callable[[], object]:
    """Return a compiled step of the same model and loss on a constant batch."""
    batch = CLASSES[name].reference.batch_size
    volumes = torch.randn((batch, *CLASSES[name].input_shape), device=DEVICE)
    parameters = torch.rand(batch, len(PARAMETERS), device=DEVICE)

    def loss(outputs: Tensor) -> Tensor:
        return (outputs.float() - parameters).square().mean()

    inputs = volumes.contiguous(memory_format=torch.channels_last_3d)
    return plain_step(WORKLOAD, name, inputs, loss, precision=PRECISION)


def main() -> None:
    """Measure the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="speed,quality")
    parser.add_argument("--speed-class", default="full")
    parser.add_argument("--quality-class", default="workstation")
    parser.add_argument("--steps", type=int, default=40, help="steps of a timed round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def speed() -> None:
            name = options.speed_class
            source = LearnableVolumes(
                seed=1, edge=CLASSES[name].input_shape[1], train=64, validation=16
            )
            store = generate(
                folder / "speed", source, name="speed", splits={"train": 64, "validation": 16}
            )
            measure_speed(
                WORKLOAD, name, store, folder, precision=PRECISION, steps=options.steps,
                plain=partial(plain, name),
            )  # fmt: skip

        def quality() -> None:
            name = options.quality_class
            store = generate_store(WORKLOAD.name, name, path=folder / "quality")
            measure_quality(WORKLOAD, name, store, folder)

        run_parts({"speed": speed, "quality": quality}, options.parts, file="cosmology.json")


if __name__ == "__main__":
    main()
