"""The training loop's view of a precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ai500.train.precision.loss_scaling import LossScaling


def no_layer(layer: nn.Module) -> bool:
    """Return False: no layer has products of its own."""
    return False


@dataclass
class Numerics:
    """One precision on one device."""

    name: str
    products: str
    """Arithmetic of convolutions and linear layers, for the record."""
    device: torch.device
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    has_own_products: Callable[[nn.Module], bool] = no_layer
    """Predicate: a layer is computed in the format the precision is named after."""
    loss_scaling: LossScaling | None = None
    _layers: dict[str, bool] = field(default_factory=dict)
    _dtypes: set[str] = field(default_factory=set)

    def model(self, module: nn.Module) -> nn.Module:
        """Prepare a model for the precision; none changes it yet, but its layers are recorded."""
        self._layers |= {
            name: self.has_own_products(layer)
            for name, layer in module.named_modules()
            if isinstance(layer, nn.Conv2d | nn.Linear)
        }
        self._dtypes |= {str(parameter.dtype) for parameter in module.parameters()}
        return module

    def forward(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass, in training and in evaluation."""
        return self.context()

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss for the backward pass."""
        scaling = self.loss_scaling
        return loss if scaling is None else loss.float() * scaling.factor(self.device)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take an optimizer step; return False if it was skipped because of an overflow."""
        if self.loss_scaling is None:
            optimizer.step()
            return True
        gradients = [
            parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        finite = self.loss_scaling.unscale(gradients)
        if finite:
            optimizer.step()
        self.loss_scaling.update(finite=finite)
        return finite

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the next step depends on."""
        return {} if self.loss_scaling is None else self.loss_scaling.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore that state."""
        if self.loss_scaling is not None:
            self.loss_scaling.load_state_dict(state)

    def describe(self) -> dict[str, Any]:
        """Describe what ran, for the record that the rules read."""
        description: dict[str, Any] = {
            "precision": self.name,
            "products": self.products,
            "parameter_dtypes": sorted(self._dtypes),
            "tf32": _tf32(self.device),
        }
        if self.has_own_products is not no_layer:
            layers = self._layers.items()
            description["own_products"] = sorted(name for name, own in layers if own)
            description["other_products"] = sorted(name for name, own in layers if not own)
        if self.loss_scaling is not None:
            description["loss_scaling"] = self.loss_scaling.state_dict()
        return description


def _tf32(device: torch.device) -> bool | None:
    """Return whether torch may round FP32 products to TF32; None on devices without TF32."""
    if device.type != "cuda":
        return None
    return "tf32" in (
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
    )
