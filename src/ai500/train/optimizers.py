"""Optimizers by name. Weight decay is on every parameter, batch norm's included (V2 §5.4).

SGD, Adam and AdaGrad are torch's own, with the decay in the gradient (L2). LARS and LAMB are
written after their papers: they scale each parameter's step by a trust ratio of norms, and the
papers make no exception for vectors (biases, batch norm's γ and β), so neither is one made here.
A norm of zero (a fresh bias) gives the ratio 1, otherwise the parameter could never leave zero.
The rate is set at each step by the learning-rate policy.
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
Norms = Callable[[Sequence[Tensor], Sequence[nn.Parameter]], Sequence[Tensor]]
"""L2 norms of tensors, each shaped like its parameter; an engine that splits parameters by hand
gives one that sums over the ranks."""


def settings_sha256(optimizer: torch.optim.Optimizer) -> str:
    """Identity of this rank's groups: all they say but the rate, which a policy changes."""
    changing = ("params", "lr", "initial_lr", "steps")
    groups = [
        {key: value for key, value in sorted(group.items()) if key not in changing}
        | {"elements": sum(parameter.numel() for parameter in group["params"])}
        for group in optimizer.param_groups
    ]
    return hashlib.sha256(json.dumps(groups, default=repr).encode()).hexdigest()


def sgd(parameters: Parameters, hyperparameters: Hyperparameters) -> torch.optim.SGD:
    """SGD with momentum: the papers' default; on a GPU in one pass over the weights."""
    chosen = list(parameters)
    on_gpu = all(one.is_cuda and not isinstance(one, DTensor) for one in chosen)
    return torch.optim.SGD(
        chosen,
        lr=hyperparameters.base_learning_rate,
        momentum=hyperparameters.momentum,
        weight_decay=hyperparameters.weight_decay,
        fused=on_gpu or None,
    )


def adam(parameters: Parameters, hyperparameters: Hyperparameters) -> torch.optim.Adam:
    """Kingma and Ba 2015."""
    return torch.optim.Adam(
        parameters,
        lr=hyperparameters.base_learning_rate,
        betas=hyperparameters.betas,
        eps=_epsilon(hyperparameters, 1e-8),
        weight_decay=hyperparameters.weight_decay,
    )


def adagrad(parameters: Parameters, hyperparameters: Hyperparameters) -> torch.optim.Adagrad:
    """Duchi et al. 2011."""
    return torch.optim.Adagrad(
        parameters,
        lr=hyperparameters.base_learning_rate,
        eps=_epsilon(hyperparameters, 1e-10),
        weight_decay=hyperparameters.weight_decay,
    )


def lars(parameters: Parameters, hyperparameters: Hyperparameters) -> LARS:
    """You et al. 2017."""
    return LARS(
        parameters,
        lr=hyperparameters.base_learning_rate,
        momentum=hyperparameters.momentum,
        weight_decay=hyperparameters.weight_decay,
        trust_coefficient=hyperparameters.trust_coefficient,
    )


def lamb(parameters: Parameters, hyperparameters: Hyperparameters) -> LAMB:
    """You et al. 2020."""
    return LAMB(
        parameters,
        lr=hyperparameters.base_learning_rate,
        betas=hyperparameters.betas,
        eps=_epsilon(hyperparameters, 1e-6),
        weight_decay=hyperparameters.weight_decay,
    )


def _epsilon(hyperparameters: Hyperparameters, default: float) -> float:
    return default if hyperparameters.epsilon is None else hyperparameters.epsilon


def norms(tensors: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> Sequence[Tensor]:
    """Norms of whole parameters, and of torch's sharded ones over all their shards."""
    del parameters
    if any(isinstance(one, DTensor) for one in tensors):
        return [_norm(one) for one in tensors]
    found: Sequence[Tensor] = torch._foreach_norm(list(tensors))
    return found


def _norm(tensor: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(tensor)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling, Algorithm 1 of You, Gitman and Ginsburg 2017.

        λ = η ‖w‖ / (‖∇L‖ + β ‖w‖)      v ← m v + γ λ (∇L + β w)      w ← w − v

    γ is the rate, m momentum, β weight decay, η the trust coefficient. Unlike torch's SGD the
    momentum holds past steps with the rate they were made at.
    """

    def __init__(
        self,
        parameters: Parameters,
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        trust_coefficient: float = 0.001,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
        }
        super().__init__(parameters, defaults)
        self.norms: Norms = norms

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step; a closure is not used."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            gradients = [p.grad for p in weights]
            velocities = [_state(self, p, "momentum_buffer") for p in weights]
            ratios = self._local_rates(weights, gradients, group)
            updates = torch._foreach_add(
                _local(gradients), _local(weights), alpha=group["weight_decay"]
            )
            torch._foreach_mul_(updates, [group["lr"] * ratio for ratio in ratios])
            torch._foreach_mul_(_local(velocities), group["momentum"])
            torch._foreach_add_(_local(velocities), updates)
            torch._foreach_sub_(_local(weights), _local(velocities))

    def _local_rates(
        self, weights: list[nn.Parameter], gradients: list[Tensor], group: dict[str, Any]
    ) -> list[Tensor]:
        of_weights = self.norms(weights, weights)
        of_gradients = self.norms(gradients, weights)
        return [
            _ratio(group["trust_coefficient"] * w, g + group["weight_decay"] * w)
            for w, g in zip(of_weights, of_gradients, strict=True)
        ]


class LAMB(torch.optim.Optimizer):
    """Algorithm 2 of You et al. 2020, with φ the identity, as in the paper's experiments.

        m ← β₁ m + (1−β₁) g      v ← β₂ v + (1−β₂) g²      r = m̂ / (√v̂ + ε)
        x ← x − η ‖x‖ / ‖r + λ x‖ (r + λ x)

    m̂ and v̂ are corrected for their bias to zero, λ is weight decay (not in the gradient).
    """

    def __init__(
        self,
        parameters: Parameters,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, defaults)
        self.norms: Norms = norms

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step; a closure is not used."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            group["steps"] = group.get("steps", 0) + 1
            updates = self._adam(weights, group)
            torch._foreach_add_(_local(updates), _local(weights), alpha=group["weight_decay"])
            ratios = [
                _ratio(w, u)
                for w, u in zip(
                    self.norms(weights, weights), self.norms(updates, weights), strict=True
                )
            ]
            torch._foreach_mul_(_local(updates), [group["lr"] * ratio for ratio in ratios])
            torch._foreach_sub_(_local(weights), _local(updates))

    def _adam(self, weights: list[nn.Parameter], group: dict[str, Any]) -> list[Tensor]:
        """r: the step Adam would take, shaped like the parameters."""
        beta1, beta2 = group["betas"]
        gradients = [p.grad for p in weights]
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
    """Their quotient; 1 where either is zero."""
    usable = (numerator > 0) & (denominator > 0)
    return torch.where(usable, numerator / denominator, 1.0)


def _state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, name: str) -> Tensor:
    state = optimizer.state[parameter]
    if name not in state:
        state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    found: Tensor = state[name]
    return found


def _local(tensors: Sequence[Any]) -> list[Tensor]:
    """This rank's part of sharded tensors: the same memory."""
    return [one.to_local() if isinstance(one, DTensor) else one for one in tensors]
