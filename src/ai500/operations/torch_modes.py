"""Tracing modes of torch: record each operator as an `Op`, with the module that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from ai500.operations import aten
from ai500.operations.graph import PRODUCTS, UNKNOWN, Op, Shape, Shapes

Arguments = tuple[Any, ...]
Tensors = list[Tensor]

#: Kinds whose parameters Table II updates; fused recurrent cells contain their gates' biases.
_UPDATED_KINDS = {"convolution", "dense", "bias", "lstm_cell", "gru_cell"}


class ModulePath:
    """Path of the running module, tracked by torch's global hooks; the model gets no hooks."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {id(module): name for name, module in model.named_modules()}
        self._stack: list[nn.Module] = []

    @property
    def current(self) -> str:
        """Path of the running module, such as `stages.0.1.conv1`; empty for the model itself."""
        return self._names.get(id(self._stack[-1]), "") if self._stack else ""

    @property
    def described(self) -> str:
        """Path and class of the running module, for error messages."""
        kind = type(self._stack[-1]).__name__ if self._stack else "nn.Module"
        return f"layer {self.current} ({kind})" if self.current else f"the forward of {kind}"

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Track the running module; after an exception the path is that of the failed layer."""
        # Hence no always_call: an exception must not pop the stack.
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


class Recorder(TorchDispatchMode):
    """Recorder of every operator below autograd as an `Op`.

    `regions` is the number of output rows of operators whose output size depends on values.
    """

    def __init__(
        self, path: ModulePath, parameters: Sequence[Tensor], *, regions: int | None = None
    ) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self._path = path
        self._regions = regions
        # Memory → its parameter: identifies a weight behind any view of it.
        self._owner = {_memory(parameter): parameter for parameter in parameters}
        self._kept: list[Tensor] = []
        self._seen: set[int] = set()
        self._updated: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        if self._regions is not None:
            outputs = tree_map_only(Tensor, partial(_sized, regions=self._regions), outputs)
        operator = func.name().partition(".")[0]
        name = operator.removeprefix("aten::")
        if aten.kind_of(operator) == "view":
            return outputs
        inputs = tensors_of((args, kwargs))
        if name == "_to_copy":
            self._follow_copy(inputs, outputs)
        if name == aten.CONVOLUTION_BACKWARD:
            self._record_convolution_backward(operator, args)
        else:
            self._record(operator, args, inputs, tensors_of(outputs))
        return outputs

    def _record(self, operator: str, args: Arguments, inputs: Tensors, outputs: Tensors) -> None:
        kind, factors, attributes = self._read(operator, args, inputs, outputs)
        if kind not in (UNKNOWN, *PRODUCTS) and not any(map(_is_number, (*inputs, *outputs))):
            kind = "data_movement"  # integers are indices and counters, not data
        attributes["parameters"] = self._first_seen(inputs, self._seen)
        if kind in _UPDATED_KINDS and torch.is_grad_enabled():
            trained = [tensor for tensor in inputs if tensor.requires_grad]
            attributes["updated"] = self._first_seen(trained, self._updated)
        attributes["activation_bytes"] = _new_bytes(inputs, outputs)
        self.ops.append(
            Op(
                kind=kind,
                shapes=Shapes(inputs=factors, outputs=shapes_of(outputs)),
                attributes={key: value for key, value in attributes.items() if value},
                module=self._path.current,
                operator=operator,
            )
        )

    def _read(
        self, operator: str, args: Arguments, inputs: Tensors, outputs: Tensors
    ) -> tuple[str, tuple[Shape, ...], dict[str, int]]:
        """Return the kind, the shapes that its rule reads, and the attributes."""
        name = operator.removeprefix("aten::")
        if name in aten.CONVOLUTIONS:
            transposed = name in aten.TRANSPOSABLE and args[6] is True
            factors = args[:2]
            return "convolution", shapes_of(factors), _gradients(factors, transposed=transposed)
        if name in aten.PRODUCTS:
            first = aten.PRODUCTS[name]
            factors = args[first : first + 2]
            left, right = shapes_of(factors)
            right = right[::-1] if name == "linear" else right
            if "grouped" in name and len(left) > len(right):
                left = left[1:]  # groups of columns: each product has some of them
            is_dense = name in ("addmm", "linear") or any(map(self._owned, factors))
            attributes = _gradients(factors) | {"complex": _complex_inputs(factors)}
            return "dense" if is_dense else "matmul", (left, right), attributes
        if name == aten.BILINEAR:
            return "bilinear", shapes_of(args[:3]), _gradients(args[:3])
        if name in aten.FUSED_ATTENTION | aten.ATTENTION_BY_SEQUENCE:
            return _attention(name, args)
        if name in aten.FOURIER_TRANSFORMS:
            return "fft", shapes_of(inputs), _transform(name, args, outputs)
        if name in aten.DISTANCES:
            return "distance", shapes_of(inputs), {"order": _order(name, args)}
        kind = aten.kind_of(operator) or UNKNOWN
        if kind == "mean" and _is_global_pool(args):
            kind = "average_pool"
        elif kind == "add" and self._is_bias(inputs, outputs):
            kind = "bias"
        elif name == "abs" and _complex_inputs(inputs):
            return "complex_abs", shapes_of(inputs), {}
        if kind in ("max_pool", "average_pool"):
            return kind, shapes_of(inputs), {"kernel": _kernel(name, args)}
        # A real result of complex numbers is a comparison or an angle; a norm has both parts.
        is_complex = kind == "norm" or any(output.is_complex() for output in outputs)
        return kind, shapes_of(inputs), {"complex": _complex_inputs(inputs)} if is_complex else {}

    def _record_convolution_backward(self, operator: str, args: Arguments) -> None:
        """Record a convolution per gradient; each costs the same as the forward pass."""
        gradient, data, weight = args[:3]
        for is_computed in args[-1][:2]:
            if is_computed:
                shapes = Shapes((_shape(data), _shape(weight)), (_shape(gradient),))
                attributes = {"transposed": 1} if args[7] else {}
                self.ops.append(Op("convolution", shapes, attributes, operator=operator))

    def _is_bias(self, inputs: Tensors, outputs: Tensors) -> bool:
        """Return True for a bias that torch did not fuse because of the memory layout."""
        previous = self.ops[-1] if self.ops else None
        return (
            previous is not None
            and previous.kind == "dense"
            and previous.module == self._path.current
            and previous.shapes.elements_out == outputs[0].numel()
            and any(self._owned(tensor) and tensor.dim() == 1 for tensor in inputs)
        )

    def _owned(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor) and _memory(tensor) in self._owner

    def _first_seen(self, tensors: Tensors, seen: set[int]) -> int:
        """Count the elements of the parameters among `tensors` that are not in `seen`; add them."""
        new = {
            id(owner): owner
            for tensor in tensors
            if (owner := self._owner.get(_memory(tensor))) is not None and id(owner) not in seen
        }
        seen.update(new)
        return sum(owner.numel() for owner in new.values())

    def _follow_copy(self, inputs: Tensors, outputs: Any) -> None:
        """Map the memory of a cast parameter to the parameter."""
        owner = self._owner.get(_memory(inputs[0])) if inputs else None
        if owner is not None:
            self._owner[_memory(outputs)] = owner
            self._kept.append(outputs)  # keeps the address from being reused


def tensors_of(tree: Any) -> Tensors:
    """Return the tensors in arguments or results of any structure."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _sized(tensor: Tensor, *, regions: int) -> Tensor:
    """Replace symbolic sizes, which depend on values, by `regions`."""
    if all(isinstance(size, int) for size in tensor.shape):
        return tensor
    return tensor.new_empty([_size(size, regions=regions) for size in tensor.shape])


def _size(size: int | torch.SymInt, *, regions: int) -> int:
    if isinstance(size, int):
        return size
    expression = size.node.expr  # may be a multiple of a symbol
    return int(expression.subs(dict.fromkeys(expression.free_symbols, regions)))


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _shape(tensor: Tensor) -> Shape:
    return tuple(int(size) for size in tensor.shape)


def shapes_of(tensors: Sequence[Tensor]) -> tuple[Shape, ...]:
    """Return the shapes as plain integers."""
    return tuple(map(_shape, tensors))


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _any_gradient(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _gradients(factors: Sequence[Tensor], *, transposed: bool = False) -> dict[str, int]:
    """Count the factors that need a gradient: the first layer's data needs none."""
    gradients = sum(factor.requires_grad for factor in factors) if torch.is_grad_enabled() else 0
    return {"gradients": gradients, "transposed": int(transposed)}


def _complex_inputs(tensors: Sequence[Tensor]) -> int:
    """Count the complex tensors among the first two."""
    return sum(tensor.is_complex() for tensor in tensors[:2])


def _attention(name: str, args: Arguments) -> tuple[str, tuple[Shape, ...], dict[str, int]]:
    """Read query, key and value as (batch, heads, sequence, channels).

    Sequences of several lengths in one tensor have no count by shapes.
    """
    query, key, value = shapes = shapes_of(args[:3])
    attributes = {"gradients": 2 if _any_gradient(args[:3]) else 0}
    if name in aten.FUSED_ATTENTION:
        return "attention", shapes, attributes
    if len(query) != 4:
        return UNKNOWN, shapes, {}
    heads_first = tuple((shape[0], shape[2], shape[1], shape[3]) for shape in (query, key, value))
    return "attention", heads_first, attributes


def _transform(name: str, args: Arguments, outputs: Tensors) -> dict[str, int]:
    """Read the length of a Fourier transform over all its dimensions, on its larger side."""
    sizes = outputs[0].shape if name == "_fft_c2r" else args[0].shape
    points = prod(int(sizes[dimension]) for dimension in args[1])
    return {"points": points, "real": int(name != "_fft_c2c")}


def _order(name: str, args: Arguments) -> int:
    """Read the order of a distance: 1 without a power, 2 Euclidean, 3 any other."""
    position = {"_cdist_forward": 2, "_pdist_forward": 1}.get(name)
    order = 2.0 if position is None or len(args) <= position else float(args[position])
    return {0.0: 1, 1.0: 1, float("inf"): 1, 2.0: 2}.get(order, 3)


def _is_global_pool(args: Arguments) -> bool:
    """Return True for a mean over all spatial dimensions: adaptive pooling to 1×1."""
    data, *rest = args
    dimensions = rest[0] if rest and isinstance(rest[0], (list, tuple)) else ()
    spatial = set(range(2, data.dim()))
    return data.dim() >= 4 and {dimension % data.dim() for dimension in dimensions} == spatial


def _kernel(name: str, args: Arguments) -> int:
    """Return the elements of a pooling window; 0 for adaptive pooling."""
    if "adaptive" in name or name == "mean":
        return 0
    size = args[1]
    spatial = int(name[name.index("pool") + 4])  # max_pool2d_… → 2
    return prod(size) if len(size) == spatial else int(size[0]) ** spatial


def _new_bytes(inputs: Tensors, outputs: Tensors) -> int:
    """Count the bytes of outputs that share no memory with an input."""
    old = {_memory(tensor) for tensor in inputs}
    return sum(
        tensor.numel() * tensor.element_size() for tensor in outputs if _memory(tensor) not in old
    )
