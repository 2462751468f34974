"""What runs while a model is traced: each operator as an `Op`, with the module it runs in."""

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
from ai500.operations.graph import UNKNOWN, Op, Shape, Shapes

#: Kinds whose parameters Table II updates; fused recurrent cells hold the biases of their gates.
_UPDATED_KINDS = {"convolution", "dense", "bias", "lstm_cell", "gru_cell"}


class ModulePath:
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


class Recorder(TorchDispatchMode):
    """Turns every operator below autograd into an `Op`.

    Where an operator's output size depends on the values of its data, `regions` is that size.
    """

    def __init__(
        self, path: ModulePath, parameters: Sequence[Tensor], *, regions: int | None = None
    ) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self._path = path
        self._regions = regions
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
            self._record(operator, name, args, inputs, tensors_of(outputs))
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
        if kind != UNKNOWN and not any(map(_is_number, (*inputs, *outputs))):
            kind = "data_movement"  # whole numbers only: indices and counters, not data
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
            return "convolution", shapes_of(factors), _gradients(factors, transposed=transposed)
        if name in aten.PRODUCTS:
            first = aten.PRODUCTS[name]
            factors = args[first : first + 2]
            left, right = shapes_of(factors)
            right = right[::-1] if name == "linear" else right
            is_dense = name in ("addmm", "linear") or any(map(self._owned, factors))
            return "dense" if is_dense else "matmul", (left, right), _gradients(factors)
        if name in aten.FUSED_ATTENTION:
            gradients = 2 if _any_gradient(args[:3]) else 0
            return "attention", shapes_of(args[:3]), {"gradients": gradients}
        kind = aten.kind_of(operator) or UNKNOWN
        if kind == "mean" and _is_global_pool(args):
            kind = "average_pool"
        elif kind == "add" and self._is_bias(inputs, outputs):
            kind = "bias"
        is_pool = kind in ("max_pool", "average_pool")
        return kind, shapes_of(inputs), {"kernel": _kernel(name, args)} if is_pool else {}

    def _record_convolution_backward(self, operator: str, args: tuple[Any, ...]) -> None:
        """One convolution for each gradient it computes; both cost what the forward costs."""
        gradient, data, weight = args[:3]
        for wanted in args[-1][:2]:
            if wanted:
                shapes = Shapes((_shape(data), _shape(weight)), (_shape(gradient),))
                attributes = {"transposed": 1} if args[7] else {}
                self.ops.append(Op("convolution", shapes, attributes, operator=operator))

    def _is_bias(self, inputs: list[Tensor], outputs: list[Tensor]) -> bool:
        """A bias torch adds by itself, where a layer's input is laid out so that it can't fuse."""
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


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors in arguments or results of any structure."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _sized(tensor: Tensor, *, regions: int) -> Tensor:
    """The tensor, or one with `regions` wherever its size depends on data and is a symbol."""
    if all(isinstance(size, int) for size in tensor.shape):
        return tensor
    return tensor.new_empty([_size(size, regions=regions) for size in tensor.shape])


def _size(size: int | torch.SymInt, *, regions: int) -> int:
    if isinstance(size, int):
        return size
    expression = size.node.expr  # of symbols, where an operator gives twice the rows it finds
    return int(expression.subs(dict.fromkeys(expression.free_symbols, regions)))


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _shape(tensor: Tensor) -> Shape:
    return tuple(int(size) for size in tensor.shape)


def shapes_of(tensors: Sequence[Tensor]) -> tuple[Shape, ...]:
    """Their shapes as plain numbers."""
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


def _kernel(name: str, args: tuple[Any, ...]) -> int:
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
