"""Training speed of cosmology on one GPU, beside plain PyTorch.

    PYTHONPATH=src:.:.carry/site python3 -m benchmarks.gpu.cosmology [--class full] [--steps 40]

Volumes/s of `full`'s model, 4×128³, batch 16, in mixed BF16: our real loop (store, bootstrap,
mirroring, schedule, events), and `torch.compile` of the same model in a plain loop on a constant
batch, timed before and after ours. Full numbers: $OUT/cosmology.json.

Predictions: before the first run 0.97 to 1.02 of torch.compile, whose 496 volumes/s were measured
before (lab/gpu_anchor3.py); it was 0.66. With mirroring and pooling fused, from the times of single
kernels: 560 to 600 volumes/s.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from benchmarks.gpu.beside_compile import DEVICE, measure_speed, plain_step, write_results
from torch import Tensor

from ai500.data.generated import generate
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
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="problem_class", default="full")
    parser.add_argument("--steps", type=int, default=40, help="steps of a timed round")
    options = parser.parse_args()
    name = options.problem_class
    # Twenty steps an epoch: at the end of each, the loop stops to write a checkpoint.
    splits = {"train": 320, "validation": 16}
    source = LearnableVolumes(seed=1, edge=CLASSES[name].input_shape[1], **splits)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = generate(folder / "speed", source, name="speed", splits=splits)
        measure_speed(
            WORKLOAD, name, store, folder, precision=PRECISION, steps=options.steps,
            plain=partial(plain, name),
        )  # fmt: skip
    write_results("cosmology.json")


if __name__ == "__main__":
    main()
