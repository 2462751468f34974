"""Training speed of climate segmentation on one GPU, beside plain PyTorch.

    PYTHONPATH=src:.:.carry/site python3 -m benchmarks.gpu.segmentation [--class workstation]

Frames/s of `workstation`'s model and batch in FP32 and mixed BF16: our real loop (store, bootstrap,
schedule, events), and `torch.compile` of the same model in a plain loop on a constant batch, timed
before and after ours. Full numbers: $OUT/segmentation.json.

Prediction before the first run: 1.0 or more of torch.compile, since our step is one CUDA graph.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from benchmarks.gpu.beside_compile import DEVICE, measure_speed, plain_step, write_results

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
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="problem_class", default="workstation")
    parser.add_argument("--steps", type=int, default=40, help="steps of a timed round")
    options = parser.parse_args()
    name = options.problem_class
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = generate_store(WORKLOAD.name, name, path=folder / "store")
        for precision in PRECISIONS:
            measure_speed(
                WORKLOAD, name, store, folder, precision=precision, steps=options.steps,
                plain=partial(plain, name, precision),
            )  # fmt: skip
    write_results("segmentation.json")


if __name__ == "__main__":
    main()
