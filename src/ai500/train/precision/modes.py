"""Precisions by name; each is tried on the device before training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ai500.core.errors import EnvironmentLacksError
from ai500.records.precision import PRECISIONS
from ai500.train.precision.custom_products import ProductMode
from ai500.train.precision.fp8 import FP8Products
from ai500.train.precision.int8 import Int8Products
from ai500.train.precision.loss_scaling import LossScaling
from ai500.train.precision.numerics import Numerics


def make(name: str, *, device: torch.device) -> Numerics:
    """Make the numerics of that name on this device, or raise EnvironmentLacksError.

    Sets torch's process-wide TF32 switch; call it before the first layer runs.
    """
    if name not in PRECISIONS:
        raise ValueError(f"precision {name!r} is not known")
    if device.type == "cpu" and name in ("mixed-bf16", "mixed-fp16", "fp16"):
        _avoid_amx()
    _set_tf32(on=name == "tf32")
    reason = _unsupported_reason(name, device)
    if reason:
        raise EnvironmentLacksError(
            f'train.precision = "{name}" on {device}: {reason}.', key="train.precision", value=name
        )
    return _make(name, device)


def _make(name: str, device: torch.device) -> Numerics:
    numerics = partial(Numerics, name, device=device)
    bf16 = partial(torch.autocast, device.type, dtype=torch.bfloat16)
    fp16 = partial(torch.autocast, device.type, dtype=torch.float16)
    match name:
        case "tf32":
            return numerics("TF32 inputs, FP32 sums")
        case "mixed-bf16":
            return numerics("BF16 by autocast", context=bf16)
        case "mixed-fp16":
            return numerics("FP16 by autocast", context=fp16, loss_scaling=LossScaling())
        case "fp16":
            # The loss itself is FP16: a scale above FP16's largest number would always overflow.
            scaling = LossScaling(scale=32768.0, largest=32768.0)
            arithmetic = "FP16, and every other operation of the model as well"
            return numerics(arithmetic, context=_AllInFP16, loss_scaling=scaling)
        case "fp8":
            fp8 = FP8Products()
            return numerics(
                "FP8 e4m3, gradients e5m2, in linear and 1×1 convolution; others BF16 by autocast",
                context=partial(_both, bf16, partial(ProductMode, fp8)),
                has_own_products=fp8.has_own,
            )
        case "int8":
            int8 = Int8Products()
            arithmetic = "INT8 × INT8 → INT32 forward and backward; others FP32"
            context = partial(ProductMode, int8)
            return numerics(arithmetic, context=context, has_own_products=int8.has_own)
    return numerics("IEEE FP32")


Context = Callable[[], AbstractContextManager[Any]]


@contextmanager
def _both(outer: Context, inner: Context) -> Iterator[None]:
    with outer(), inner():
        yield


class _AllInFP16(TorchFunctionMode):
    """Layers with weights take and return FP16, hence all operations between them are FP16.

    Weights are rounded from their FP32 master copies, which the optimizer updates (Micikevicius
    et al. 2018). Without master copies ResNet-50 hardly learns: docs/performance.md.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (F.conv2d, F.linear, F.conv_transpose2d):
            kwargs = {name: _to_half(value) for name, value in (kwargs or {}).items()}
            return func(*(_to_half(value) for value in args), **kwargs)
        return func(*args, **(kwargs or {}))


def _to_half(value: Any) -> Any:
    return value.half() if isinstance(value, Tensor) else value


def _set_tf32(*, on: bool) -> None:
    """Switch TF32: by default torch lets convolutions round FP32 to TF32."""
    value = "tf32" if on else "ieee"
    torch.backends.cuda.matmul.fp32_precision = value
    torch.backends.cudnn.conv.fp32_precision = value  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn.fp32_precision = value  # type: ignore[attr-defined]


def _avoid_amx() -> None:
    """Disable oneDNN's AMX kernels, before oneDNN first runs.

    oneDNN 3.12 crashes with an illegal instruction in the AMX gradient of a strided BF16
    convolution, and its FP16 gradients are ten times slower than torch's own.
    """
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def _unsupported_reason(name: str, device: torch.device) -> str:
    """Return why the device does not support a precision, by its properties and by a trial; empty
    if it does."""
    if name in _TENSOR_CORES_ONLY and (device.type != "cuda" or torch.version.hip is not None):
        return "that arithmetic is supported on NVIDIA's tensor cores only"
    if name in _LEAST_CAPABILITY and device.type == "cuda" and torch.version.hip is None:
        least, actual = _LEAST_CAPABILITY[name], torch.cuda.get_device_capability(device)
        if actual < least:
            return (
                f"it needs compute capability {least[0]}.{least[1]}, "
                f"{torch.cuda.get_device_name(device)} has {actual[0]}.{actual[1]}"
            )
    try:
        _try_out(_make(name, device))
    except (RuntimeError, NotImplementedError) as error:
        return f"torch {torch.__version__} does not support it: {str(error).splitlines()[0]}"
    return ""


_TENSOR_CORES_ONLY = ("tf32", "fp8")
# Compute capability of NVIDIA's chips; older ones emulate BF16, if they support it at all.
_LEAST_CAPABILITY = {"tf32": (8, 0), "mixed-bf16": (8, 0), "fp8": (8, 9)}


def _try_out(numerics: Numerics) -> None:
    """Run a convolution and a linear layer, forward and backward; the generator's state stays."""
    device = numerics.device
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        layers = nn.Sequential(nn.Conv2d(4, 16, 1), nn.Flatten(), nn.Linear(16 * 16, 8))
        model = numerics.model(layers.to(device))
        with numerics.forward():
            loss = model(torch.ones(2, 4, 4, 4, device=device)).float().mean()
        numerics.scale(loss).backward()
