"""Tracer of torch models: a stream of operators on fake tensors, without memory or kernels.

docs/adr/0003-operation-tracer.md explains why dispatch-mode tracing and not torch.export.
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
    """Trace the forward pass of `model` in its current mode, without changing the model.

    `regions` is the number of output rows of operators whose output size depends on the values of
    their input (a detector's proposals); without it such a model is an error.
    """
    return _trace(model, example_input, regions=regions, backward=_no_backward)


def trace_backward(
    model: nn.Module, example_input: Example, *, regions: int | None = None
) -> Trace:
    """Trace autograd's actual backward pass, for comparison with the rules' gradients."""
    return _trace(model, example_input, regions=regions, backward=_sum_backward)


def _trace(
    model: nn.Module,
    example_input: Example,
    *,
    regions: int | None,
    backward: Callable[[Any, Recorder], None],
) -> Trace:
    if regions is not None and regions < 1:
        raise InputError(
            f"regions = {regions}: expected a positive number.", key="regions", value=regions
        )
    model = _unwrapped(model)
    path = ModulePath(model)
    with _reproducible_settings(), _fake_mode(regions):
        state = _fake_state(model)
        inputs = _fake_inputs(example_input, device=_device(state))
        parameters = [value for value in state.values() if isinstance(value, nn.Parameter)]
        recorder = Recorder(path, parameters, regions=regions)
        try:
            with path.tracked(), recorder:
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
    """Trace no backward pass."""


def _sum_backward(outputs: Any, recorder: Recorder) -> None:
    """Drop the forward pass, then run the backward pass on gradients of ones."""
    leaves = [leaf for leaf in tensors_of(outputs) if leaf.requires_grad]
    recorder.ops.clear()
    torch.autograd.backward(leaves, [torch.ones_like(leaf) for leaf in leaves])


def _fake_mode(regions: int | None) -> FakeTensorMode:
    """Create the fake mode; with `regions`, data-dependent sizes are symbols until recorded.

    Data-dependent branches (`.item()`) are an error either way.
    """
    env = ShapeEnv(allow_scalar_outputs=False) if regions is not None else None
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=env, static_shapes=True)


@contextmanager
def _reproducible_settings() -> Iterator[None]:
    """Set what makes the graph device-independent, and restore all state that tracing changes.

    Fused attention and recurrent kernels differ between devices; their mathematical form does
    not. Torch's log is disabled: an error is reported in one message of the tracer.
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
    """Return the model inside the wrapper of torch.compile or DDP."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return _unwrapped(model.module)
    original = getattr(model, "_orig_mod", None)
    return _unwrapped(original) if isinstance(original, nn.Module) else model


def _fake_state(model: nn.Module) -> dict[str, Tensor]:
    """Create fake parameters and buffers; the real ones are neither read nor written."""
    state: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise InputError(
                f"{name} has no shape yet.", key=name, remedy="Call the model once before counting."
            )
        state[name] = nn.Parameter(_fake(parameter), requires_grad=parameter.requires_grad)
    for name, buffer in model.named_buffers():
        state[name] = _fake(buffer)
    return state


def _fake(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    device = device or tensor.device
    # Tensors that a model creates are on the CPU, and meta tensors do not mix with them.
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
        f"example input {example!r} is not valid.",
        key="example_input",
        value=example,
        remedy="Pass a tensor, several tensors, or a shape of positive integers, batch first.",
    )


def _fake_input(tensor: Tensor, device: torch.device) -> Tensor:
    return _fake(tensor, device).requires_grad_(tensor.requires_grad)


def _device(state: dict[str, Tensor]) -> torch.device:
    return next((tensor.device for tensor in state.values()), torch.device("cpu"))


def _explained(
    error: Exception, *, path: ModulePath, inputs: tuple[Tensor, ...], regions: int | None
) -> InputError:
    """Build an error that names the layer, for a mistake in the model or its input."""
    reason = _first_line(error)
    if isinstance(error, DynamicOutputShapeException) and regions is None:
        return InputError(
            f"cannot trace {path.described}: the output size of {reason} depends on values.",
            key="regions",
            remedy="Set the number of regions: --regions N, in Python regions=N.",
        )
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return InputError(
            f"cannot trace {path.described}: its control flow depends on values ({reason}).",
            key=path.current,
            remedy="Count a variant whose sizes and branches are fixed.",
        )
    if "fake" in reason or "tensor subclasses" in reason:
        return InputError(
            f"cannot trace {path.described}: it needs real data ({reason}).",
            key=path.current,
            remedy="Count a variant that uses torch operators only, with known output shapes.",
        )
    shapes = ", ".join("×".join(map(str, tensor.shape)) for tensor in inputs)
    return InputError(
        f"{path.described} fails on an input of {shapes}: {reason}.",
        key=path.current,
        value=shapes,
        remedy="Check the input's shape (without the batch) and type: --input and --dtype of "
        "`ai500 flops`, input_shape of a workload's class.",
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
