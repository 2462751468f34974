"""A torch model → a stream of operators, on fake tensors: no memory, no kernel, no device.

Why dispatch-mode tracing and not torch.export: docs/adr/0003-operation-tracer.md.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.attention import SDPBackend, sdpa_kernel

from ai500.core.errors import InputError
from ai500.operations.graph import Trace
from ai500.operations.torch_modes import ModulePath, Recorder, shapes_of, tensors_of

#: A tensor (real, meta or fake; only its shape, type and `requires_grad` are read), a shape with
#: the batch first (float32), or a sequence of tensors for a model with several inputs.
Example = Tensor | Sequence[int] | Sequence[Tensor]


def trace(model: nn.Module, example_input: Example, *, regions: int | None = None) -> Trace:
    """Trace the forward pass of `model` in the mode it is in; the model is left as it was.

    `regions` is how many rows an operator gives whose output size depends on the values of its
    data (a detector's proposals); without it such a model is refused.
    """
    return _trace(model, example_input, regions=regions, backward=_no_backward)


def trace_backward(
    model: nn.Module, example_input: Example, *, regions: int | None = None
) -> Trace:
    """Trace the backward pass that autograd really makes, for comparison with the one rule."""
    return _trace(model, example_input, regions=regions, backward=_sum_backward)


def _trace(
    model: nn.Module,
    example_input: Example,
    *,
    regions: int | None,
    backward: Callable[[Any, Recorder], None],
) -> Trace:
    if regions is not None and regions < 1:
        raise InputError(f"regions = {regions}: state a positive number of regions")
    model = _unwrapped(model)
    path = ModulePath(model)
    with _untouched_world(), _fake_mode(regions):
        state = _fake_state(model)
        inputs = _fake_inputs(example_input, device=_device(state))
        parameters = [value for value in state.values() if isinstance(value, nn.Parameter)]
        recorder = Recorder(path, parameters, regions=regions)
        try:
            with path.followed(), recorder:
                outputs = torch.func.functional_call(model, state, inputs)
                backward(outputs, recorder)
        except Exception as error:
            raise _explained(error, path=path, inputs=inputs, regions=regions) from error
        return Trace(
            ops=tuple(recorder.ops),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            batch=inputs[0].shape[0] if inputs and inputs[0].dim() else 1,
            outputs=shapes_of(tensors_of(outputs)),
        )


def _no_backward(outputs: Any, recorder: Recorder) -> None:
    """The forward pass is all."""


def _sum_backward(outputs: Any, recorder: Recorder) -> None:
    """Drop the forward pass, and send a gradient of ones through the backward one."""
    leaves = [leaf for leaf in tensors_of(outputs) if leaf.requires_grad]
    recorder.ops.clear()
    torch.autograd.backward(leaves, [torch.ones_like(leaf) for leaf in leaves])


def _fake_mode(regions: int | None) -> FakeTensorMode:
    """With stated regions, sizes that depend on data come out symbolic; the recorder fills them in.

    Branches that depend on data (`.item()`) are refused either way.
    """
    env = ShapeEnv(allow_scalar_outputs=False) if regions is not None else None
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=env, static_shapes=True)


@contextmanager
def _untouched_world() -> Iterator[None]:
    """Settings that make the graph the same on every device, and put back what tracing touches.

    Fused attention and recurrent kernels differ from device to device: their mathematical form
    does not. Torch's log is silent: what fails is told in one message of ours.
    """
    torch_log = logging.getLogger("torch")
    log_level = torch_log.level
    fast_path = torch.backends.mha.get_fastpath_enabled()
    onednn, cudnn = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
    python_random = random.getstate()
    try:
        torch_log.setLevel(logging.CRITICAL + 1)
        torch.backends.mha.set_fastpath_enabled(False)
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        torch.backends.cudnn.enabled = False
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.backends.mkldnn.enabled = onednn
        torch.backends.cudnn.enabled = cudnn
        random.setstate(python_random)
        torch_log.setLevel(log_level)


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's or DDP's wrapper: neither changes what is computed."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return _unwrapped(model.module)
    original = getattr(model, "_orig_mod", None)
    return _unwrapped(original) if isinstance(original, nn.Module) else model


def _fake_state(model: nn.Module) -> dict[str, Tensor]:
    """Fake parameters and buffers: the real ones are neither read nor written."""
    state: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise InputError(f"{name} has no shape yet: call the model once before counting it")
        state[name] = nn.Parameter(_fake(parameter), requires_grad=parameter.requires_grad)
    for name, buffer in model.named_buffers():
        state[name] = _fake(buffer)
    return state


def _fake(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    device = device or tensor.device
    # Tensors a model makes on the way live on the CPU, and a meta tensor does not mix with them.
    return torch.empty_strided(
        tensor.shape,
        tensor.stride(),
        dtype=tensor.dtype,
        device="cpu" if device.type == "meta" else device,
    )


def _fake_inputs(example: Example, *, device: torch.device) -> tuple[Tensor, ...]:
    if isinstance(example, Tensor):
        return (_fake_input(example, device),)
    tensors = tuple(part for part in example if isinstance(part, Tensor))
    sizes = tuple(part for part in example if isinstance(part, int) and part > 0)
    if tensors and len(tensors) == len(example):
        return tuple(_fake_input(tensor, device) for tensor in tensors)
    if sizes and len(sizes) == len(example):
        return (torch.empty(sizes, device=device),)
    raise InputError(
        f"example input {example!r}: give a tensor, several tensors, or a shape of positive "
        "whole numbers with the batch first"
    )


def _fake_input(tensor: Tensor, device: torch.device) -> Tensor:
    return _fake(tensor, device).requires_grad_(tensor.requires_grad)


def _device(state: dict[str, Tensor]) -> torch.device:
    return next((tensor.device for tensor in state.values()), torch.device("cpu"))


def _explained(
    error: Exception, *, path: ModulePath, inputs: tuple[Tensor, ...], regions: int | None
) -> InputError:
    """One message that names the layer, for a mistake in the model or its input."""
    reason = _first_line(error)
    if isinstance(error, DynamicOutputShapeException) and regions is None:
        return InputError(
            f"cannot trace {path.described}: how many rows {reason} gives depends on the values "
            "of its data. State the number of regions: --regions N, in Python regions=N."
        )
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return InputError(
            f"cannot trace {path.described}: what it does depends on the values of its data "
            f"({reason}). Count a variant whose sizes and branches are fixed."
        )
    if "fake" in reason or "tensor subclasses" in reason:
        return InputError(
            f"cannot trace {path.described}: it needs real data ({reason}). Count a variant "
            "that stays in torch, with operators that know the shape of their result."
        )
    shapes = ", ".join("×".join(map(str, tensor.shape)) for tensor in inputs)
    return InputError(
        f"{path.described} fails on an input of {shapes}: {reason}. "
        "Check the input's shape (without the batch) and type: --input and --dtype of "
        "`ai500 flops`, input_shape of a workload's class."
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
