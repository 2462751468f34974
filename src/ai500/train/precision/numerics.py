"""What the training loop sees of a precision: six methods, put together from small parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ai500.train.precision.loss_scaling import LossScaling


def no_layer(layer: nn.Module) -> bool:
    """No layer has products of its own."""
    return False


@dataclass
class Numerics:
    """One precision on one device."""

    name: str
    products: str
    """Arithmetic of convolutions and linear layers, in words."""
    device: torch.device
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    has_own_products: Callable[[nn.Module], bool] = no_layer
    """Whether a layer is computed in the format the precision is named after."""
    loss_scaling: LossScaling | None = None
    _layers: dict[str, bool] = field(default_factory=dict)
    _dtypes: set[str] = field(default_factory=set)

    def model(self, module: nn.Module) -> nn.Module:
        """The model as the precision needs it: so far each leaves it as it is, and takes note."""
        self._layers |= {
            name: self.has_own_products(layer)
            for name, layer in module.named_modules()
            if isinstance(layer, nn.Conv2d | nn.Linear)
        }
        self._dtypes |= {str(parameter.dtype) for parameter in module.parameters()}
        return module

    def forward(self) -> AbstractContextManager[Any]:
        """Around every forward pass, in training and in evaluation."""
        return self.context()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss that `backward` is called on."""
        scaling = self.loss_scaling
        return loss if scaling is None else loss.float() * scaling.factor(self.device)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """One optimizer step; False when it was skipped because a gradient overflowed."""
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
        """All that the next step depends on."""
        return {} if self.loss_scaling is None else self.loss_scaling.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        if self.loss_scaling is not None:
            self.loss_scaling.load_state_dict(state)

    def describe(self) -> dict[str, Any]:
        """What ran, for the record that the rules read."""
        told: dict[str, Any] = {
            "precision": self.name,
            "products": self.products,
            "parameter_dtypes": sorted(self._dtypes),
            "tf32": _tf32(self.device),
        }
        if self.has_own_products is not no_layer:
            told["own_products"] = sorted(name for name, own in self._layers.items() if own)
            told["other_products"] = sorted(name for name, own in self._layers.items() if not own)
        if self.loss_scaling is not None:
            told["loss_scaling"] = self.loss_scaling.state_dict()
        return told


def _tf32(device: torch.device) -> bool | None:
    """Whether torch may round FP32 products to TF32; None where there is no such thing."""
    if device.type != "cuda":
        return None
    return "tf32" in (
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
    )
