"""A torch model → a stream of operators, on fake tensors: no memory, no kernel, no device.

Why dispatch-mode tracing and not torch.export: docs/adr/0003-operation-tracer.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from ai500.errors import InputError
from ai500.operations import aten
from ai500.operations.graph import UNKNOWN, Op, Shape, Shapes, Trace

#: A tensor (real, meta or fake; only its shape, type and `requires_grad` are read), a shape with
#: the batch first (float32), or a sequence of tensors for a model with several inputs.
Example = Tensor | Sequence[int] | Sequence[Tensor]

_NOT_TRACEABLE = (DataDependentOutputException, DynamicOutputShapeException)


def trace(model: nn.Module, example_input: Example) -> Trace:
    """Trace the forward pass of `model` in the mode it is in; the model is left as it was."""
    return _trace(model, example_input, backward=_no_backward)


def trace_backward(model: nn.Module, example_input: Example) -> Trace:
    """Trace the backward pass that autograd really makes, for comparison with the one rule."""
    return _trace(model, example_input, backward=_sum_backward)


def _trace(
    model: nn.Module, example_input: Example, *, backward: Callable[[Any, _Recorder], None]
) -> Trace:
    model = _unwrapped(model)
    path = _ModulePath(model)
    with _untouched_world(), FakeTensorMode(allow_non_fake_inputs=True):
        state = _fake_state(model)
        inputs = _fake_inputs(example_input, device=_device(state))
        recorder = _Recorder(path, [value for value in state.values() if _is_parameter(value)])
        try:
            with path.followed(), recorder:
                outputs = torch.func.functional_call(model, state, inputs)
                backward(outputs, recorder)
        except Exception as error:
            raise _explained(error, path=path, inputs=inputs) from error
        return Trace(
            ops=tuple(recorder.ops),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            batch=inputs[0].shape[0] if inputs and inputs[0].dim() else 1,
            outputs=_shapes(_tensors(outputs)),
        )


def _no_backward(outputs: Any, recorder: _Recorder) -> None:
    """The forward pass is all."""


def _sum_backward(outputs: Any, recorder: _Recorder) -> None:
    """Drop the forward pass, and send a gradient of ones through the backward one."""
    leaves = [leaf for leaf in _tensors(outputs) if leaf.requires_grad]
    recorder.ops.clear()
    torch.autograd.backward(leaves, [torch.ones_like(leaf) for leaf in leaves])


@contextmanager
def _untouched_world() -> Iterator[None]:
    """Settings that make the graph the same on every device, and put back what tracing touches.

    Fused attention and recurrent kernels differ from device to device: their mathematical form
    does not.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    onednn, cudnn = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
    python_random = random.getstate()
    try:
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


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter)


class _ModulePath:
    """Where in the model we are, by torch's global hooks: the model itself gets none."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {id(module): name for name, module in model.named_modules()}
        self._stack: list[nn.Module] = []

    @property
    def current(self) -> str:
        return self._names.get(id(self._stack[-1]), "") if self._stack else ""

    @property
    def described(self) -> str:
        """`stages.0.1.conv1 (Conv2d)`; the model's own forward has no name."""
        kind = type(self._stack[-1]).__name__ if self._stack else "nn.Module"
        return f"layer {self.current} ({kind})" if self.current else f"the forward of {kind}"

    @contextmanager
    def followed(self) -> Iterator[None]:
        # No always_call: after an exception the stack still ends at the layer that failed.
        enter = hooks.register_module_forward_pre_hook(self._enter)
        leave = hooks.register_module_forward_hook(self._leave)
        try:
            yield
        finally:
            enter.remove()
            leave.remove()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        self._stack.append(module)

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._stack.pop()


class _Recorder(TorchDispatchMode):
    """Turns every operator below autograd into an `Op`."""

    def __init__(self, path: _ModulePath, parameters: list[Tensor]) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self._path = path
        # Memory → the parameter that lives in it: finds a weight behind any view of it.
        self._owner = {_memory(parameter): parameter for parameter in parameters}
        self._kept: list[Tensor] = []
        self._seen: set[int] = set()
        self._updated: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        operator = func.name().partition(".")[0]
        name = operator.removeprefix("aten::")
        if aten.kind_of(operator) == "view":
            return outputs
        inputs = _tensors((args, kwargs))
        if name == "_to_copy":
            self._follow_copy(inputs, outputs)
        if name == aten.CONVOLUTION_BACKWARD:
            self._record_convolution_backward(operator, args)
        else:
            self._record(operator, name, args, inputs, _tensors(outputs))
        return outputs

    def _record(
        self,
        operator: str,
        name: str,
        args: tuple[Any, ...],
        inputs: list[Tensor],
        outputs: list[Tensor],
    ) -> None:
        kind, factors, attributes = self._read(operator, name, args, inputs, outputs)
        if kind not in (UNKNOWN, "view") and not any(map(_is_number, (*inputs, *outputs))):
            kind = "data_movement"  # whole numbers only: indices and counters, not data
        attributes["parameters"] = self._first_seen(inputs, self._seen)
        if kind in ("convolution", "dense") and torch.is_grad_enabled():
            trained = [tensor for tensor in inputs if tensor.requires_grad]
            attributes["updated"] = self._first_seen(trained, self._updated)
        attributes["activation_bytes"] = _new_bytes(inputs, outputs)
        self.ops.append(
            Op(
                kind=kind,
                shapes=Shapes(inputs=factors, outputs=tuple(map(_shape, outputs))),
                attributes={key: value for key, value in attributes.items() if value},
                module=self._path.current,
                operator=operator,
            )
        )

    def _read(
        self,
        operator: str,
        name: str,
        args: tuple[Any, ...],
        inputs: list[Tensor],
        outputs: list[Tensor],
    ) -> tuple[str, tuple[Shape, ...], dict[str, int]]:
        """Kind, the shapes its rule reads, and its attributes."""
        if name in aten.CONVOLUTIONS:
            transposed = name.endswith("convolution") and len(args) > 6 and args[6] is True
            factors = args[:2]
            return "convolution", _shapes(factors), _gradients(factors, transposed=transposed)
        if name in aten.PRODUCTS:
            first = aten.PRODUCTS[name]
            factors = args[first : first + 2]
            left, right = _shapes(factors)
            right = right[::-1] if name == "linear" else right
            is_dense = name in ("addmm", "linear") or any(map(self._owned, factors))
            return "dense" if is_dense else "matmul", (left, right), _gradients(factors)
        if name in aten.FUSED_ATTENTION:
            gradients = 2 if _any_gradient(args[:3]) else 0
            return "attention", _shapes(args[:3]), {"gradients": gradients}
        kind = aten.kind_of(operator) or UNKNOWN
        if kind == "mean" and _is_global_pool(args):
            kind = "average_pool"
        attributes = {"kernel": _kernel(name, args, inputs)} if kind.endswith("_pool") else {}
        return kind, tuple(map(_shape, inputs)), attributes

    def _record_convolution_backward(self, operator: str, args: tuple[Any, ...]) -> None:
        """One convolution for each gradient it computes; both cost what the forward costs."""
        gradient, data, weight = args[:3]
        for wanted in args[-1][:2]:
            if wanted:
                shapes = Shapes((_shape(data), _shape(weight)), (_shape(gradient),))
                attributes = {"transposed": 1} if args[7] else {}
                self.ops.append(Op("convolution", shapes, attributes, operator=operator))

    def _owned(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor) and _memory(tensor) in self._owner

    def _first_seen(self, tensors: list[Tensor], seen: set[int]) -> int:
        """Elements of the parameters among `tensors` that are not in `seen` yet."""
        fresh = {
            id(owner): owner
            for tensor in tensors
            if (owner := self._owner.get(_memory(tensor))) is not None and id(owner) not in seen
        }
        seen.update(fresh)
        return sum(owner.numel() for owner in fresh.values())

    def _follow_copy(self, inputs: list[Tensor], outputs: Any) -> None:
        """A parameter cast to another precision is still that parameter."""
        owner = self._owner.get(_memory(inputs[0])) if inputs else None
        if owner is not None:
            self._owner[_memory(outputs)] = owner
            self._kept.append(outputs)  # or its memory's address could be given to another


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _shape(tensor: Tensor) -> Shape:
    return tuple(int(size) for size in tensor.shape)


def _shapes(tensors: Sequence[Tensor]) -> tuple[Shape, ...]:
    return tuple(map(_shape, tensors))


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _any_gradient(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _gradients(factors: Sequence[Tensor], *, transposed: bool = False) -> dict[str, int]:
    """One gradient per factor that needs one: the first layer's data needs none (SPEC §4)."""
    wanted = sum(factor.requires_grad for factor in factors) if torch.is_grad_enabled() else 0
    return {"gradients": wanted, "transposed": int(transposed)}


def _is_global_pool(args: tuple[Any, ...]) -> bool:
    """A mean over all spatial dimensions of images: what adaptive pooling to 1×1 turns into."""
    data, *rest = args
    dimensions = rest[0] if rest and isinstance(rest[0], (list, tuple)) else ()
    spatial = set(range(2, data.dim()))
    return data.dim() >= 4 and {dimension % data.dim() for dimension in dimensions} == spatial


def _kernel(name: str, args: tuple[Any, ...], inputs: list[Tensor]) -> int:
    """Elements of a pooling window; 0 where windows adapt to the output's size."""
    if "adaptive" in name or name == "mean":
        return 0
    size = args[1]
    spatial = int(name[name.index("pool") + 4])  # max_pool2d_… → 2
    return prod(size) if len(size) == spatial else int(size[0]) ** spatial


def _new_bytes(inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Bytes of the outputs that share no memory with an input (in-place makes none)."""
    old = {_memory(tensor) for tensor in inputs}
    return sum(
        tensor.numel() * tensor.element_size() for tensor in outputs if _memory(tensor) not in old
    )


def _explained(error: Exception, *, path: _ModulePath, inputs: tuple[Tensor, ...]) -> InputError:
    """One message that names the layer, for a mistake in the model or its input."""
    shapes = ", ".join("×".join(map(str, tensor.shape)) for tensor in inputs)
    if isinstance(error, _NOT_TRACEABLE) or "fake" in str(error).lower():
        return InputError(
            f"cannot trace {path.described}: what it does depends on the values of its data "
            f"({_first_line(error)}). Count a variant whose sizes and branches are fixed."
        )
    return InputError(
        f"{path.described} fails on an input of {shapes}: {_first_line(error)}. "
        "Check the input's shape (--input, without the batch) and type (--dtype)."
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
