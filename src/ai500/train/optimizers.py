"""Optimizers by name. Weight decay is on every parameter, batch norm's included (V2 §5.4).

SGD, Adam, AdamW and AdaGrad are torch's own, with the decay in the gradient (L2) but for AdamW,
which decays weights apart from it. LARS and LAMB are
written after their papers: they scale each parameter's step by a trust ratio of norms. The papers
make no exception for vectors (biases, batch norm's γ and β), and neither does this code. A norm of
zero (a fresh bias) gives the ratio 1, otherwise the parameter could never leave zero. The
learning-rate policy sets the rate at each step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ai500.records import Hyperparameters

Parameters = Iterable[nn.Parameter]
Weights = list[nn.Parameter]
Tensors = list[Tensor]
Group = dict[str, Any]
Norms = Callable[[Sequence[Tensor], Sequence[nn.Parameter]], Sequence[Tensor]]
"""Function that returns the L2 norms of tensors shaped like their parameters; an engine that splits
parameters replaces it by one that sums over ranks."""


def settings_sha256(optimizer: torch.optim.Optimizer) -> str:
    """Hash this rank's optimizer groups, without the rate, which the policy changes."""
    excluded = ("params", "lr", "initial_lr", "steps")
    groups = [
        {key: value for key, value in sorted(group.items()) if key not in excluded}
        | {"elements": sum(parameter.numel() for parameter in group["params"])}
        for group in optimizer.param_groups
    ]
    return hashlib.sha256(json.dumps(groups, default=repr).encode()).hexdigest()


def sgd(parameters: Parameters, hyperparameters: Hyperparameters) -> torch.optim.SGD:
    """Make SGD with momentum, the papers' default; on a GPU with fused updates."""
    weights = list(parameters)
    on_gpu = all(weight.is_cuda and not isinstance(weight, DTensor) for weight in weights)
    return torch.optim.SGD(
        weights,
        momentum=hyperparameters.momentum,
        fused=on_gpu or None,
        **_rate_and_decay(hyperparameters),
    )


def sgd_no_vector_decay(
    parameters: Parameters, hyperparameters: Hyperparameters
) -> torch.optim.SGD:
    """Make SGD without weight decay on vectors: batch norm's γ and β, and biases.

    Jia et al. 2018 do so, and V2 §5.4 and Table 8 show what it gains: a change of layer 8 that the
    rule "weight decay on everything" catches. `ai500 study optimizations` has it as a point.
    """
    weights = list(parameters)
    optimizer = sgd(weights, hyperparameters)
    (group,) = optimizer.param_groups
    group["params"] = [weight for weight in weights if weight.ndim > 1]
    vectors = [weight for weight in weights if weight.ndim <= 1]
    optimizer.add_param_group({"params": vectors, "weight_decay": 0.0})
    return optimizer


def adam(parameters: Parameters, hyperparameters: Hyperparameters) -> torch.optim.Adam:
    """Make Adam (Kingma and Ba 2015)."""
    epsilon = _epsilon(hyperparameters, 1e-8)
    common = _rate_and_decay(hyperparameters)
    return torch.optim.Adam(parameters, betas=hyperparameters.betas, eps=epsilon, **common)


def adamw(parameters: Parameters, hyperparameters: Hyperparameters) -> torch.optim.AdamW:
    """Make AdamW (Loshchilov and Hutter 2019), with fused updates of unsharded weights."""
    weights = list(parameters)
    sharded = any(isinstance(weight, DTensor) for weight in weights)
    return torch.optim.AdamW(
        weights,
        lr=hyperparameters.base_learning_rate,
        betas=hyperparameters.betas,
        eps=_epsilon(hyperparameters, 1e-8),
        weight_decay=hyperparameters.weight_decay,
        fused=not sharded,
    )


def adagrad(parameters: Parameters, hyperparameters: Hyperparameters) -> torch.optim.Adagrad:
    """Make AdaGrad (Duchi et al. 2011)."""
    epsilon = _epsilon(hyperparameters, 1e-10)
    return torch.optim.Adagrad(parameters, eps=epsilon, **_rate_and_decay(hyperparameters))


def lars(parameters: Parameters, hyperparameters: Hyperparameters) -> LARS:
    """Make LARS (You et al. 2017)."""
    settings = {
        "momentum": hyperparameters.momentum,
        "trust_coefficient": hyperparameters.trust_coefficient,
    }
    return LARS(parameters, settings | _rate_and_decay(hyperparameters))


def lamb(parameters: Parameters, hyperparameters: Hyperparameters) -> LAMB:
    """Make LAMB (You et al. 2020)."""
    settings = {"betas": hyperparameters.betas, "eps": _epsilon(hyperparameters, 1e-6)}
    return LAMB(parameters, settings | _rate_and_decay(hyperparameters))


def _rate_and_decay(hyperparameters: Hyperparameters) -> dict[str, Any]:
    """Return the settings that every optimizer has."""
    rate, decay = hyperparameters.base_learning_rate, hyperparameters.weight_decay
    return {"lr": rate, "weight_decay": decay}


def _epsilon(hyperparameters: Hyperparameters, default: float) -> float:
    return default if hyperparameters.epsilon is None else hyperparameters.epsilon


def norms(tensors: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> Sequence[Tensor]:
    """Return L2 norms of whole parameters, and of DTensors over all their shards."""
    del parameters
    if any(isinstance(tensor, DTensor) for tensor in tensors):
        return [_norm(tensor) for tensor in tensors]
    values: Sequence[Tensor] = torch._foreach_norm(list(tensors))
    return values


def _norm(tensor: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(tensor)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


class _Layerwise(torch.optim.Optimizer):
    """Optimizer that scales each parameter's step by a trust ratio of norms."""

    norms: Norms = staticmethod(norms)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters; the closure is not used."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._update(weights, [p.grad for p in weights], group)

    def _update(self, weights: Weights, gradients: Tensors, group: Group) -> None:
        """Update the weights of a group."""
        raise NotImplementedError


class LARS(_Layerwise):
    """Layer-wise adaptive rate scaling, Algorithm 1 of You, Gitman and Ginsburg 2017.

        λ = η ‖w‖ / (‖∇L‖ + β ‖w‖)      v ← m v + γ λ (∇L + β w)      w ← w − v

    γ is the rate, m momentum, β weight decay, η the trust coefficient. Unlike torch's SGD the
    momentum holds past steps with the rate they were made at.
    """

    def _update(self, weights: Weights, gradients: Tensors, group: Group) -> None:
        velocities = [_state(self, p, "momentum_buffer") for p in weights]
        ratios = self._local_rates(weights, gradients, group)
        updates = torch._foreach_add(
            _local(gradients), _local(weights), alpha=group["weight_decay"]
        )
        torch._foreach_mul_(updates, [group["lr"] * ratio for ratio in ratios])
        torch._foreach_mul_(_local(velocities), group["momentum"])
        torch._foreach_add_(_local(velocities), updates)
        torch._foreach_sub_(_local(weights), _local(velocities))

    def _local_rates(self, weights: Weights, gradients: Tensors, group: Group) -> Tensors:
        weight_norms = self.norms(weights, weights)
        gradient_norms = self.norms(gradients, weights)
        return [
            _ratio(group["trust_coefficient"] * w, g + group["weight_decay"] * w)
            for w, g in zip(weight_norms, gradient_norms, strict=True)
        ]


class LAMB(_Layerwise):
    """Algorithm 2 of You et al. 2020, with φ the identity, as in the paper's experiments.

        m ← β₁ m + (1−β₁) g      v ← β₂ v + (1−β₂) g²      r = m̂ / (√v̂ + ε)
        x ← x − η ‖x‖ / ‖r + λ x‖ (r + λ x)

    m̂ and v̂ are corrected for their bias to zero, λ is weight decay (not in the gradient).
    """

    def _update(self, weights: Weights, gradients: Tensors, group: Group) -> None:
        group["steps"] = group.get("steps", 0) + 1
        updates = self._adam(weights, gradients, group)
        torch._foreach_add_(_local(updates), _local(weights), alpha=group["weight_decay"])
        ratios = [
            _ratio(w, u)
            for w, u in zip(self.norms(weights, weights), self.norms(updates, weights), strict=True)
        ]
        torch._foreach_mul_(_local(updates), [group["lr"] * ratio for ratio in ratios])
        torch._foreach_sub_(_local(weights), _local(updates))

    def _adam(self, weights: Weights, gradients: Tensors, group: Group) -> Tensors:
        """Return r, Adam's step, shaped like the parameters."""
        beta1, beta2 = group["betas"]
        means = [_state(self, p, "exp_avg") for p in weights]
        squares = [_state(self, p, "exp_avg_sq") for p in weights]
        torch._foreach_lerp_(_local(means), _local(gradients), 1 - beta1)
        torch._foreach_mul_(_local(squares), beta2)
        torch._foreach_addcmul_(
            _local(squares), _local(gradients), _local(gradients), value=1 - beta2
        )
        updates = [torch.empty_like(p) for p in weights]
        torch._foreach_copy_(_local(updates), _local(squares))
        torch._foreach_div_(_local(updates), 1 - beta2 ** group["steps"])
        torch._foreach_sqrt_(_local(updates))
        torch._foreach_add_(_local(updates), group["eps"])
        corrected = torch._foreach_div(_local(means), 1 - beta1 ** group["steps"])
        torch._foreach_copy_(_local(updates), torch._foreach_div(corrected, _local(updates)))
        return updates


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return the quotient; 1 where either is zero."""
    usable = (numerator > 0) & (denominator > 0)
    return torch.where(usable, numerator / denominator, 1.0)


def _state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, name: str) -> Tensor:
    state = optimizer.state[parameter]
    if name not in state:
        state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    value: Tensor = state[name]
    return value


def _local(tensors: Sequence[Any]) -> list[Tensor]:
    """Return this rank's part of sharded tensors, in the same memory."""
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
