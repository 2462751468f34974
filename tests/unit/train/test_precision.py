"""Precisions: who may use which, loss scaling against torch's own, FP8 products on the CPU."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.config import load
from ai500.core.errors import ConfigError, EnvironmentLacksError
from ai500.pipeline.planning import make_plan
from ai500.records import Cluster, System
from ai500.train import precision
from ai500.train.precision import fp8
from ai500.train.precision.custom_products import Shape
from ai500.train.precision.loss_scaling import LossScaling
from tests.support.commands import SOURCE
from tests.support.trial_events import MACHINE

CPU = torch.device("cpu")


def gpu_machine(name: str) -> System:
    return dataclasses.replace(MACHINE, accelerator="cuda", accelerators=(name,))


@pytest.mark.parametrize("name", ["tf32", "fp8"])
def test_a_cpu_has_no_tensor_cores(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_plan(load(overrides={"train.precision": name}), MACHINE)
    assert (refused.value.key, refused.value.value) == ("train.precision", name)
    with pytest.raises(EnvironmentLacksError) as error:
        precision.make(name, device=CPU)
    assert (error.value.key, error.value.value) == ("train.precision", name)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("name", ["fp32", "mixed-bf16", "mixed-fp16", "fp16", "int8"])
def test_what_a_cpu_can_do(name: str) -> None:
    plan = make_plan(load(overrides={"train.precision": name}), MACHINE)
    assert plan.hyperparameters.precision == name
    assert (plan.estimated_seconds is None) == (name != "fp32")  # nobody measured the others


@pytest.mark.parametrize(
    ("name", "accelerator", "allowed"),
    [
        ("fp8", "NVIDIA H200", True),
        ("fp8", "NVIDIA L40S", True),
        ("fp8", "NVIDIA A100-SXM4-80GB", False),
        ("fp8", "Tesla V100-SXM2-32GB", False),
        ("fp8", "NVIDIA A10G", False),
        ("fp8", "NVIDIA RTX A6000", False),
        ("fp8", "NVIDIA RTX 6000 Ada Generation", True),
        ("fp8", "NVIDIA GeForce RTX 4090", True),
        ("tf32", "Tesla V100S-PCIE-32GB", False),
        ("tf32", "NVIDIA A100-SXM4-80GB", True),
        ("tf32", "Tesla T4", False),
        ("mixed-bf16", "Tesla V100-SXM2-32GB", False),
        ("mixed-fp16", "Tesla V100-SXM2-32GB", True),
        ("fp8", "an accelerator of next year", True),
        ("fp8", "NVIDIA RTX 2000 Ada Generation", True),
        ("fp8", "NVIDIA RTX 3000 Ada Generation Laptop GPU", True),
        ("fp8", "NVIDIA GeForce RTX 3090", False),
    ],
)
def test_the_plan_knows_accelerators_by_name(name: str, accelerator: str, allowed: bool) -> None:
    def plan() -> object:
        return make_plan(load(overrides={"train.precision": name}), gpu_machine(accelerator))

    if allowed:
        assert plan()
    else:
        with pytest.raises(ConfigError) as raised:
            plan()
        assert (raised.value.key, raised.value.value) == ("train.precision", name)


def test_a_login_node_s_accelerator_is_not_the_cluster_s() -> None:
    cluster = Cluster(
        name="c", partition="p", nodes=("n1", "n2"), unusable={}, cpus_per_node=64,
        accelerators_per_node=8, max_array_size=1001, max_seconds=None,
        accounting=False, version="22.05",
    )  # fmt: skip
    config = load(overrides={"train.precision": "mixed-bf16", "scheduler.kind": "slurm"})
    assert make_plan(config, gpu_machine("Tesla T4"), cluster).system_scale == 16


def test_another_machine_is_not_judged_by_this_one() -> None:
    overrides = {
        "train.precision": "fp8", "system.device": "cuda", "system.nodes": 2,
        "system.accelerators_per_node": 4,
    }  # fmt: skip
    assert make_plan(load(overrides=overrides), MACHINE).hyperparameters.precision == "fp8"


def test_an_unknown_name_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as raised:
        load(overrides={"train.precision": "mixed-bf61"})
    assert (raised.value.key, raised.value.value) == ("train.precision", "mixed-bf61")
    assert "'mixed-bf16'" in str(raised.value)
    with pytest.raises(ConfigError) as raised:
        load(overrides={"train.precision": "bf16"})
    assert (raised.value.key, raised.value.value) == ("train.precision", "bf16")
    assert "'mixed-bf16'" in str(raised.value)


def test_only_tf32_lets_torch_round_to_tf32() -> None:
    for name in ("fp32", "int8", "fp32"):
        precision.make(name, device=CPU)
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"  # type: ignore[attr-defined]


def test_trying_a_precision_draws_no_random_number() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    precision.make("int8", device=CPU)
    assert torch.equal(torch.rand(3), expected)


def test_loss_scaling_is_torchs_own() -> None:
    """Scale, skipped steps and weights equal torch.amp.GradScaler's, through two overflows."""
    own, scaled_by_torch = (nn.Parameter(torch.ones(4)) for _ in range(2))
    our_optimizer, their_optimizer = (torch.optim.SGD([p], lr=0.1) for p in (own, scaled_by_torch))
    numerics = precision.make("fp32", device=CPU)
    numerics.loss_scaling = LossScaling()
    reference = torch.amp.GradScaler("cpu")
    for step in range(8):
        factor = float("inf") if step in (2, 3) else 0.5
        for parameter, scaled in ((own, numerics.scale), (scaled_by_torch, reference.scale)):
            parameter.grad = None
            scaled((parameter * factor).sum()).backward()
        stepped = numerics.step(our_optimizer)
        reference.step(their_optimizer)
        reference.update()
        assert stepped == (step not in (2, 3))
        assert torch.equal(own, scaled_by_torch)
        assert numerics.loss_scaling.scale == reference.get_scale()
    assert numerics.describe()["loss_scaling"]["skipped_steps"] == 2


def test_the_scale_grows_after_a_long_time() -> None:
    scaling = LossScaling(scale=8.0)
    for _ in range(1999):
        scaling.update(finite=True)
    assert scaling.scale == 8.0
    scaling.update(finite=True)
    assert (scaling.scale, scaling.steps_since_change) == (16.0, 0)


def test_the_scale_of_a_loss_in_fp16_stays_within_fp16() -> None:
    scaling = precision.make("fp16", device=CPU).loss_scaling
    assert scaling is not None
    for _ in range(4000):
        scaling.update(finite=True)
    assert scaling.scale < torch.finfo(torch.float16).max


def test_a_rank_without_gradients_or_with_empty_ones_takes_part() -> None:
    scaling = LossScaling(scale=4.0)
    assert scaling.unscale([])
    assert scaling.unscale([torch.empty(0, 3)])
    gradient = torch.tensor([8.0])
    assert scaling.unscale([torch.empty(0), gradient])
    assert gradient.item() == 2.0


def test_a_recorded_step_sees_the_scale_change_where_it_was() -> None:
    scaling = LossScaling(scale=8.0)
    numerics = precision.make("mixed-fp16", device=CPU)
    numerics.loss_scaling = scaling
    place = scaling.factor(CPU)
    assert numerics.scale(torch.tensor(2.0)) == 16
    scaling.update(finite=False)
    assert place == 4
    scaling.load_state_dict({"scale": 32.0, "steps_since_change": 0, "skipped_steps": 0})
    assert place == 32
    assert scaling.factor(CPU) is place


def test_loss_scaling_goes_on_where_it_was() -> None:
    numerics = precision.make("fp32", device=CPU)
    numerics.loss_scaling = LossScaling(scale=4.0, steps_since_change=7, skipped_steps=3)
    again = precision.make("fp32", device=CPU)
    again.loss_scaling = LossScaling()
    again.load_state_dict(numerics.state_dict())
    assert again.loss_scaling == numerics.loss_scaling


REDUCED = """
import sys, json, torch
from torch.nn.functional import cross_entropy, mse_loss
from ai500.train import precision
from ai500.workloads.models.resnet import small_resnet

torch.set_num_threads(1)
draw = torch.Generator().manual_seed(0)
images, labels = torch.randn(16, 3, 12, 12, generator=draw), torch.arange(16) % 4
results = {}
for name in ("mixed-bf16", "mixed-fp16", "fp16", "fp32"):  # reduced ones before oneDNN runs
    numerics = precision.make(name, device=torch.device("cpu"))
    torch.manual_seed(1)
    model = numerics.model(small_resnet(classes=4, width=8).to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    while len(losses) < 8:
        optimizer.zero_grad()
        with numerics.forward():
            loss = cross_entropy(model(images), labels)
        numerics.scale(loss).backward()
        if numerics.step(optimizer):
            losses.append(loss.item())
    with numerics.forward(), torch.no_grad():
        image = model.stem(images)
        logits = model(images)
        inside = [str(t.dtype) for t in (image, logits, mse_loss(logits, logits))]
    state = {n: str(v.dtype) for n, v in model.state_dict().items()}
    results[name] = {"losses": losses, "state": state, "inside": inside}
print(json.dumps(results))
"""


@pytest.mark.slow
def test_reduced_precisions_learn_like_fp32_on_the_cpu() -> None:
    """In a process of its own: oneDNN's instructions are limited before it first runs."""

    environment = {key: value for key, value in os.environ.items() if "ONEDNN" not in key}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REDUCED],
        env={**environment, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    printed = json.loads(done.stdout)
    for name, tolerance in (("mixed-bf16", 0.03), ("mixed-fp16", 0.01), ("fp16", 0.02)):
        assert printed[name]["losses"] == pytest.approx(printed["fp32"]["losses"], rel=tolerance), (
            name
        )
        assert printed[name]["losses"] != printed["fp32"]["losses"], name
        assert printed[name]["state"].keys() == printed["fp32"]["state"].keys()
        assert set(printed[name]["state"].values()) == {"torch.float32", "torch.int64"}  # masters
    assert (printed["fp16"]["inside"], printed["mixed-fp16"]["inside"]) == (
        ["torch.float16"] * 3,
        ["torch.float16", "torch.float16", "torch.float32"],
    )


@pytest.fixture
def tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's contract, computed exactly: CPUs have it only by chance (with AMX)."""

    def scaled_mm(
        a: Tensor, b: Tensor, *, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype, **_: bool
    ) -> Tensor:
        assert a.is_contiguous()
        assert b.t().is_contiguous()
        assert not any(size % 16 for size in (*a.shape, *b.shape))
        assert fp8.GRADIENTS not in (b.dtype,)
        exact = (a.double() @ b.double()) * (scale_a.double() * scale_b.double())
        return exact.to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)


@pytest.mark.usefixtures("tensor_cores")
@pytest.mark.parametrize("kind", [fp8.VALUES, fp8.GRADIENTS])
@pytest.mark.parametrize("size", [(128, 48, 32), (100, 30, 12), (1, 1, 1)])
def test_fp8_products_are_those_of_the_rounded_matrices(
    kind: torch.dtype, size: tuple[int, int, int]
) -> None:
    """Against float64, within FP32's rounding; the formats' own error beside it."""
    m, k, n = size
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(m, k, generator=draw), torch.randn(k, n, generator=draw)
    qa, qb = fp8.quantize(a, kind), fp8.quantize(b, fp8.VALUES)
    result = fp8.product(qa, qb, out=torch.float32)
    exact = (qa.values.double() * qa.undo) @ (qb.values.double() * qb.undo)
    torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=1e-5)
    # Each rounding changes a number by at most half a unit of its last place: 2⁻⁴, 2⁻³ of it.
    first_error, second_error = (2**-4 if kind is fp8.VALUES else 2**-3), 2**-4
    bound = ((1 + first_error) * (1 + second_error) - 1) * (a.abs() @ b.abs())
    assert ((result - a @ b).abs() <= bound + 1e-4).all()


@pytest.mark.parametrize("kind", [fp8.VALUES, fp8.GRADIENTS])
@pytest.mark.parametrize("largest", [0.0, 1e-30, 1e-3, 1.0, 447.0, 449.0, 1e30])
def test_fp8_scaling_never_overflows_and_rounds_nothing(kind: torch.dtype, largest: float) -> None:
    values = torch.tensor([largest, -largest / 4, 0.0])
    scaled = fp8.quantize(values, kind)
    back = scaled.values.float() * scaled.undo
    assert torch.isfinite(back).all()
    assert back.tolist() == pytest.approx(values.tolist(), rel=1 / 16)
    assert torch.frexp(scaled.undo)[0].item() == 0.5  # a power of two


@pytest.mark.usefixtures("tensor_cores")
def test_fp8_gradients_of_a_strided_convolution() -> None:
    x = torch.randn(4, 16, 6, 6, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(32, 16, 1, 1, generator=torch.Generator().manual_seed(1))
    shape = Shape(stride=(2, 2))
    gradients, exact = (
        _gradients(x, weight, shape, own=True),
        _gradients(x, weight, shape, own=False),
    )
    for gradient, true in zip(gradients, exact, strict=True):
        assert gradient.shape == true.shape
        assert 0 < (gradient.float() - true).norm() / true.norm() < 0.1


def _gradients(x: Tensor, weight: Tensor, shape: Shape, *, own: bool) -> tuple[Tensor, ...]:
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    if own:
        out = fp8.FP8Products().convolution(x, weight, shape)
    else:
        out = F.conv2d(x, weight, stride=shape.stride)
    gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    out.backward(gradient.to(out.dtype))
    assert x.grad is not None
    assert weight.grad is not None
    return out.detach(), x.grad, weight.grad


def test_fp8_covers_matrix_products_only() -> None:
    products = fp8.FP8Products()
    assert products.has_own(nn.Linear(3, 4))
    assert products.has_own(nn.Conv2d(3, 4, 1, stride=2))
    assert not products.has_own(nn.Conv2d(3, 4, 3, padding=1))
    assert not products.has_own(nn.Conv2d(4, 4, 1, groups=4))
    assert not products.has_own(nn.BatchNorm2d(4))
