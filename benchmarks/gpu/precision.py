"""Effect of each training precision on speed and loss, side by side in one run.

    PYTHONPATH=src python -m benchmarks.gpu.precision [--steps 300] [--batch 128] [--only fp32 int8]

ResNet-50 at 64×64 on learnable images, with the same batches, weights and learning rates for every
precision; FP32 is the reference. Where a precision is not available, the reason is printed. Speed
is that of plain eager training steps after the first fifth of them.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from benchmarks.gpu.energy import Usage, measure_energy
from torch import Tensor

from ai500.core.errors import EnvironmentLacksError
from ai500.train import precision
from ai500.train.learning_rate import cosine
from ai500.workloads.image_classification import CHANNEL_DEVIATION, CHANNEL_MEAN
from ai500.workloads.image_inputs import normalized
from ai500.workloads.learnable_images import SMOKE
from ai500.workloads.models.resnet import resnet50

IMAGES = dataclasses.replace(SMOKE, height=64, width=64)
# Fraction of the steps, at the end, whose mean loss is compared.
TAIL = 0.1


@dataclass
class Outcome:
    """Training in one precision."""

    losses: list[float]
    images: int
    """Images of the timed steps."""
    usage: Usage
    description: dict[str, object]

    @property
    def samples_per_second(self) -> float:
        """Return images per second of the timed steps."""
        return self.images / self.usage.seconds

    @property
    def final_loss(self) -> float:
        """Return the mean loss of the last steps."""
        return float(np.mean(self.losses[-max(1, round(TAIL * len(self.losses))) :]))


def train(
    name: str, *, images: Tensor, labels: Tensor, steps: int, batch: int, peak: float, seed: int
) -> Outcome:
    """Train for `steps` from one seed."""
    device = images.device
    numerics = precision.make(name, device=device)
    torch.manual_seed(seed)
    model = resnet50(classes=IMAGES.classes).to(device, memory_format=torch.channels_last)
    model = numerics.model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=peak, momentum=0.9, weight_decay=1e-4)
    order = torch.Generator().manual_seed(seed)
    losses: list[Tensor] = []

    def run_step(step: int) -> None:
        rows = torch.randint(len(images), (batch,), generator=order).to(device)
        inputs = normalized(images[rows], mean=CHANNEL_MEAN, deviation=CHANNEL_DEVIATION)
        rate = cosine(step, peak=peak, total_steps=steps, warmup_steps=steps // 10)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        with numerics.forward():
            loss = torch.nn.functional.cross_entropy(model(inputs), labels[rows])
        numerics.scale(loss).backward()
        numerics.step(optimizer)
        losses.append(loss.detach())

    first = steps // 5
    for step in range(first):
        run_step(step)
    with measure_energy() as usage:
        for step in range(first, steps):
            run_step(step)
    trained = batch * (steps - first)
    return Outcome([float(loss) for loss in losses], trained, usage, numerics.describe())


def main() -> None:
    """Train in every precision, FP32 first."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--peak", type=float, default=0.004, help="of the learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(precision.PRECISIONS))
    options = parser.parse_args()
    accelerated = torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if accelerated else torch.device("cpu")
    assert device is not None
    device = torch.device(device.type, 0 if accelerated else None)
    pictures, classes = IMAGES.draw("train", 0, 4_000).values()
    images, labels = torch.from_numpy(pictures).to(device), torch.from_numpy(classes).to(device)
    device_name = torch.get_device_module(device).get_device_name(device) if accelerated else "CPU"
    print(f"{device_name}, torch {torch.__version__}, ResNet-50 at 64×64, batch {options.batch}")
    print("precision   images/s  × fp32     W   img/J   loss  − fp32  largest gap  skipped")
    reference: Outcome | None = None
    for precision_name in options.only:
        try:
            outcome = train(
                precision_name,
                images=images,
                labels=labels,
                steps=options.steps,
                batch=options.batch,
                peak=options.peak,
                seed=options.seed,
            )
        except EnvironmentLacksError as error:
            print(f"{precision_name:<11} {error}")
            continue
        reference = reference or outcome
        gap = np.abs(_smooth(outcome.losses) - _smooth(reference.losses)).max()
        scaling = outcome.description.get("loss_scaling")
        skipped = scaling["skipped_steps"] if isinstance(scaling, dict) else "none"
        power = outcome.usage.power(outcome.images)
        power_text = "    –       –"
        if power:
            power_text = f"{power['watts']:5.0f} {power['images_per_joule']:7.2f}"
        print(
            f"{precision_name:<11} {outcome.samples_per_second:8.0f} "
            f"{outcome.samples_per_second / reference.samples_per_second:7.2f} {power_text} "
            f"{outcome.final_loss:6.3f} {outcome.final_loss - reference.final_loss:+7.3f} "
            f"{gap:12.3f}  {skipped}",
            flush=True,
        )
        curve = _smooth(outcome.losses)[:: max(1, options.steps // 12)]
        print("    losses:", " ".join(f"{loss:.3f}" for loss in curve))


def _smooth(losses: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a moving mean over a tenth of the steps."""
    width = max(1, len(losses) // 10)
    return np.convolve(np.array(losses), np.ones(width) / width, mode="valid")


if __name__ == "__main__":
    main()
