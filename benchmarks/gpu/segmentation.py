"""Climate segmentation on one GPU: training speed beside plain PyTorch, quality of `workstation`.

    PYTHONPATH=src:.:.carry/site python3 -m benchmarks.gpu.segmentation [--parts speed,quality]

`speed`: frames/s of `workstation`'s model and batch in FP32 and mixed BF16: our real loop (store,
bootstrap, schedule, events), and `torch.compile` of the same model in a plain loop on a constant
batch, timed before and after ours. `quality`: `workstation` in FP32, three seeds of M members;
ensemble, members' mean, seconds per member. Full numbers: $OUT/segmentation.json.

Predictions before the first run: ours at 1.0 or more of torch.compile, since our step is one CUDA
graph; `quality` 0.5 to 0.7 for ensembles, 0.01 to 0.04 below that for members' means; 90 to 170
seconds for all of it.
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

from ai500.workloads.class_data import generate_store
from ai500.workloads.climate.segmented_tensors import weighted_cross_entropy
from ai500.workloads.climate_segmentation import CLASSES, WEIGHTS, WORKLOAD

PRECISIONS = ("fp32", "mixed-bf16")


def plain(name: str, precision: str) -> Callable[[], object]:
    """Return a compiled step of the same model and loss on a constant batch."""
    shape = (CLASSES[name].reference.batch_size, *CLASSES[name].input_shape)
    inputs = torch.randn(shape, device=DEVICE).contiguous(memory_format=torch.channels_last)
    masks = torch.randint(3, (shape[0], *shape[2:]), device=DEVICE, dtype=torch.uint8)
    loss = partial(weighted_cross_entropy, masks=masks, weights=WEIGHTS)
    return plain_step(WORKLOAD, name, inputs, loss, precision=precision)


def main() -> None:
    """Measure the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="speed,quality")
    parser.add_argument("--class", dest="problem_class", default="workstation")
    parser.add_argument("--steps", type=int, default=40, help="steps of a timed round")
    options = parser.parse_args()
    name = options.problem_class
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = generate_store(WORKLOAD.name, name, path=folder / "store")

        def speed() -> None:
            for precision in PRECISIONS:
                measure_speed(
                    WORKLOAD, name, store, folder, precision=precision, steps=options.steps,
                    plain=partial(plain, name, precision),
                )  # fmt: skip

        quality = partial(measure_quality, WORKLOAD, name, store, folder)
        run_parts({"speed": speed, "quality": quality}, options.parts, file="segmentation.json")


if __name__ == "__main__":
    main()
