"""Faster R-CNN of this project beside torchvision's on one GPU, alternating, in four precisions.

    PYTHONPATH=src python -m benchmarks.gpu.detection [--only tf32-4] [--compile] [--profile]
        [--json FILE]

Both: ResNet-50 FPN, 16 channels, 768×1152, the same images and boxes, channels-last weights,
trainable batch norm, fused SGD, the same autocast. A step is forward, loss, backward, optimizer.
First our NMS and RoI align are compared with torchvision's kernels, in result and in time, and one
step runs with synchronization forbidden.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
import torchvision
from benchmarks.gpu.energy import Usage, measure_energy
from torch import Tensor, nn
from torchvision.models.detection import fasterrcnn_resnet50_fpn
from torchvision.ops import MultiScaleRoIAlign, batched_nms, nms
from torchvision.ops import roi_align as torchvision_roi_align

from ai500.operations import count
from ai500.parallel.cuda_graph import GradientGraph
from ai500.train import precision
from ai500.workloads.detection.faster_rcnn import RESNET50_FPN, FasterRCNN
from ai500.workloads.detection.losses import detection_loss
from ai500.workloads.detection.nms import nms_mask
from ai500.workloads.detection.roi_align import roi_align

CHANNELS, HEIGHT, WIDTH = 16, 768, 1152
CASES = {
    "fp32-2": ("fp32", 2),
    "tf32-4": ("tf32", 4),
    "bf16-4": ("mixed-bf16", 4),
    "bf16-16": ("mixed-bf16", 16),
}
ROUNDS, STEPS, WARM_UP = 4, 8, 4
DEVICE = torch.device("cuda", 0)
Step = Callable[[], None]


def make_frames(batch: int) -> tuple[Tensor, Tensor]:
    """Return noise, and three randomly shifted boxes per frame."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    images = torch.randn(batch, CHANNELS, HEIGHT, WIDTH, device=DEVICE, generator=generator)
    labels = torch.full((batch, 15, 5), -1.0, device=DEVICE)
    rows = [[100, 100, 260, 300, 0], [200, 500, 420, 640, 1], [400, 20, 520, 700, 3]]
    labels[:, :3] = torch.tensor(rows, dtype=torch.float32, device=DEVICE)
    shifts = torch.randint(-20, 21, (batch, 3, 2), device=DEVICE, generator=generator)
    labels[:, :3, :4] += shifts.repeat(1, 1, 2)
    return images, labels


Launch = Literal["launched", "compiled", "recorded"]


def our_step(launch: Launch, name: str, images: Tensor, labels: Tensor) -> Step:
    """Return our training step, from images as a store returns them.

    `launched` kernel by kernel, `compiled`, or `recorded`: gradients captured in a CUDA graph, as
    for a member that has a GPU to itself.
    """
    numerics = precision.make(name, device=DEVICE)
    model = FasterRCNN().to(DEVICE, memory_format=torch.channels_last)
    model = numerics.model(model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    forward = torch.compile(model) if launch == "compiled" else model

    def gradients(inputs: Tensor, labels: Tensor) -> Tensor:
        with numerics.forward():
            loss = detection_loss(forward(inputs, labels))
        numerics.scale(loss).backward()
        return loss.detach()

    run: Callable[[Tensor, Tensor], Tensor] = gradients
    if launch == "recorded":
        run = GradientGraph(gradients, list(model.parameters()), batch_size=len(images))

    def step() -> None:
        inputs = images.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        run(inputs, labels)
        numerics.step(optimizer)

    return step


def stock_step(name: str, images: Tensor, labels: Tensor) -> Step:
    """Return torchvision's training step, as in its documentation."""
    numerics = precision.make(name, device=DEVICE)
    model = fasterrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=5,
        trainable_backbone_layers=5,
        min_size=HEIGHT,
        max_size=WIDTH,
        image_mean=[0.0] * CHANNELS,
        image_std=[1.0] * CHANNELS,
    )
    model.backbone.body.conv1 = nn.Conv2d(CHANNELS, 64, 7, 2, 3, bias=False)
    model = model.to(DEVICE, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    targets = [
        {"boxes": rows[:3, [1, 0, 3, 2]].contiguous(), "labels": rows[:3, 4].long() + 1}
        for rows in labels
    ]

    def step() -> None:
        with numerics.forward():
            loss = sum(model(list(images), targets).values())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        numerics.step(optimizer)

    return step


def time_steps(step: Step) -> Usage:
    """Measure a few steps."""
    with measure_energy() as usage:
        for _ in range(STEPS):
            step()
    return usage


def compare(case: str, *, operations: float, launched: Launch) -> dict[str, Any]:
    """Measure the models alternately, so that clock and temperature affect all alike."""
    name, batch = CASES[case]
    images, labels = make_frames(batch)
    steps = {
        "stock": stock_step(name, images, labels),
        launched: our_step(launched, name, images, labels),
        "ours": our_step("recorded", name, images, labels),
    }
    usages: dict[str, list[Usage]] = {version: [] for version in steps}
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
    for _ in range(ROUNDS):
        for version, step in steps.items():
            usages[version].append(time_steps(step))
    result: dict[str, Any] = {"case": case, "batch": batch, "precision": name}
    for version in steps:
        seconds = [usage.seconds / STEPS for usage in usages[version]]
        watts = [usage.watts for usage in usages[version] if usage.watts is not None]
        result[version] = {
            "samples_per_second": round(batch / statistics.median(seconds), 1),
            "spread": round(max(seconds) / min(seconds) - 1, 3),
            "watts": round(statistics.median(watts)) if watts else None,
        }
    for version in (launched, "ours"):
        speed = result[version]["samples_per_second"]
        result[version]["tflops"] = round(speed * operations / 1e12, 1)
        result[version]["ratio"] = round(speed / result["stock"]["samples_per_second"], 3)
    return result


def milliseconds(call: Callable[[], Any], *, times: int = 10) -> float:
    """Return the time of a call by the host's clock, which includes waiting for the GPU."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times * 1000


def check_nms(batch: int) -> None:
    """Compare with torchvision's NMS: five levels of a thousand candidates per image."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    rows, number = batch * 5, 1000
    corner = torch.rand(rows, number, 2, device=DEVICE, generator=generator) * 300
    size = 20 + torch.rand(rows, number, 2, device=DEVICE, generator=generator) * 60
    boxes = torch.cat([corner, corner + size], dim=2)
    scores = torch.arange(number, 0, -1, device=DEVICE).float()
    eligible = torch.ones(rows, number, dtype=torch.bool, device=DEVICE)
    kept = nms_mask(boxes, eligible, threshold=0.7)
    different = sum(
        set(nms(row, scores, 0.7).tolist()) != set(own_mask.nonzero().flatten().tolist())
        for row, own_mask in zip(boxes, kept, strict=True)
    )
    level = torch.arange(5, device=DEVICE).repeat_interleave(number)

    def torchvision_nms() -> None:
        for image in boxes.view(batch, 5 * number, 4):
            batched_nms(image, scores.repeat(5), level, 0.7)

    own_ms = milliseconds(lambda: nms_mask(boxes, eligible, threshold=0.7))
    print(
        f"nms, batch {batch}: {different} of {rows} sets differ; "
        f"ours {own_ms:.2f} ms, torchvision {milliseconds(torchvision_nms):.2f} ms"
    )


def check_roi_align(batch: int, dtype: torch.dtype) -> None:
    """Compare features with torchvision's, and time forward and backward."""
    generator = torch.Generator(DEVICE).manual_seed(2)
    strides = RESNET50_FPN.strides[:-1]
    pyramid = [
        torch.randn(batch, 256, HEIGHT // s, WIDTH // s, device=DEVICE, generator=generator)
        .to(dtype, memory_format=torch.channels_last)
        .requires_grad_()
        for s in strides
    ]
    corner = torch.rand(batch, 512, 2, device=DEVICE, generator=generator) * 600
    size = 8 + torch.rand(batch, 512, 2, device=DEVICE, generator=generator) ** 2 * 500
    boxes = torch.cat([corner, corner + size], dim=2)
    as_xy = [image[:, [1, 0, 3, 2]].contiguous() for image in boxes]
    pooler = MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2)

    def own_features() -> Tensor:
        return roi_align(pyramid, boxes, strides=strides, first_size=56.0, bins=7)

    def torchvision_features() -> Tensor:
        named = {str(number): level for number, level in enumerate(pyramid)}
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype != torch.float32):
            return pooler(named, as_xy, [(HEIGHT, WIDTH)] * batch)

    def backward(forward: Callable[[], Tensor]) -> None:
        out = forward()
        torch.autograd.grad(out, pyramid, torch.ones_like(out))

    one_level = pyramid[1].detach().float()
    result = roi_align([one_level], boxes, strides=(8,), first_size=1e9, bins=7)
    reference = torchvision_roi_align(one_level, as_xy, 7, 1 / 8, 2, aligned=True)
    error = (result.flatten(0, 1).transpose(1, 2) - reference.flatten(2)).abs().max().item()
    print(
        f"roi align, batch {batch}, {dtype}: largest difference {error:.1e}; with backward "
        f"ours {milliseconds(lambda: backward(own_features)):.2f} ms, "
        f"torchvision {milliseconds(lambda: backward(torchvision_features)):.2f} ms"
    )


def check_no_synchronization() -> None:
    """Run one step in which any synchronization with the GPU raises."""
    images, labels = make_frames(2)
    step = our_step("launched", "fp32", images, labels)
    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    except RuntimeError as error:
        print(f"synchronization: {str(error).splitlines()[0]}")
    else:
        print("synchronization: none in a training step")
    finally:
        torch.cuda.set_sync_debug_mode("default")


def profile(case: str, launch: Launch) -> None:
    """Print the time of a step by kernel."""
    name, batch = CASES[case]
    step = our_step(launch, name, *make_frames(batch))
    for _ in range(WARM_UP):
        step()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        step()
        torch.cuda.synchronize()
    table = recorded.key_averages()
    print(table.table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(CASES), nargs="+", default=list(CASES))
    parser.add_argument("--compile", action="store_true", help="launched through torch.compile")
    parser.add_argument("--profile", action="store_true", help="and where the last case's time is")
    parser.add_argument("--json", type=Path, help="the figures as a file")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name(), torch.__version__, torchvision.__version__)
    with torch.device("meta"):
        counted = count(FasterRCNN(), (1, CHANNELS, HEIGHT, WIDTH), convention="matmul")
    operations = counted.forward_per_sample + counted.backward_per_sample
    print(f"ours: {operations / 1e9:.0f} GFLOP an image, {counted.parameters:,} parameters")
    for check in (
        check_no_synchronization,
        lambda: check_nms(4),
        lambda: check_nms(16),
        lambda: check_roi_align(4, torch.float32),
        lambda: check_roi_align(4, torch.bfloat16),
        lambda: check_roi_align(16, torch.bfloat16),
    ):
        check()
        torch.cuda.empty_cache()
    launched: Launch = "compiled" if options.compile else "launched"
    results = []
    print("case      version   images/s  × stock  TFLOPS  watts  images/J")
    for case in options.only:
        result = compare(case, operations=operations, launched=launched)
        for version in ("stock", launched, "ours"):
            row = result[version]
            watts, speed = row["watts"], row["samples_per_second"]
            per_joule = f"{speed / watts:9.3f}" if watts else "        –"
            print(
                f"{case:9} {version:9} {speed:8} {row.get('ratio', '–'):>8} "
                f"{row.get('tflops', '–'):>7} {watts or '–':>6} {per_joule}",
                flush=True,
            )
        results.append(result)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
        torch.cuda.empty_cache()
    if options.profile:
        profile(options.only[-1], launched)


if __name__ == "__main__":
    main()
