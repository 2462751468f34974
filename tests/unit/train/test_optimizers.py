"""Optimizers against their papers, written out in NumPy, step by step."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from ai500.core import plugins
from ai500.records import Hyperparameters
from ai500.train import optimizers

Array = NDArray[np.float64]
RATES = (0.5, 2.0, 1.0, 0.25, 0.125)
HYPER = Hyperparameters(
    epochs=1, batch_size=1, optimizer="lars", base_learning_rate=1.0, reference_batch_size=1,
    schedule="cosine", warmup_epochs=0, momentum=0.9, weight_decay=1e-2,
)  # fmt: skip


def initial() -> list[Array]:
    """A convolution, a matrix, and vectors: batch norm's γ (ones) and β (zeros)."""
    draw = np.random.default_rng(3)
    return [draw.normal(size=(4, 3, 3, 3)), draw.normal(size=(5, 4)), np.ones(4), np.zeros(4)]


def gradients() -> Iterator[list[Array]]:
    draw = np.random.default_rng(4)
    while True:
        yield [draw.normal(size=weight.shape) for weight in initial()]


def lars_of_the_paper() -> Iterator[list[Array]]:
    """You et al. 2017, Algorithm 1: η = 0.001."""
    weights = initial()
    velocities = [np.zeros_like(w) for w in weights]
    momentum, beta, eta = HYPER.momentum, HYPER.weight_decay, 0.001
    for rate, gradient in zip(RATES, gradients(), strict=False):
        for w, v, g in zip(weights, velocities, gradient, strict=True):
            norm_w, norm_g = np.sqrt((w * w).sum()), np.sqrt((g * g).sum())
            local = eta * norm_w / (norm_g + beta * norm_w) if norm_w > 0 else 1.0
            v[...] = momentum * v + rate * local * (g + beta * w)
            w[...] = w - v
        yield weights


def lamb_of_the_paper() -> Iterator[list[Array]]:
    """You et al. 2020, Algorithm 2 with φ(z) = z; β₁ = 0.9, β₂ = 0.999, ε = 1e-6."""
    weights = initial()
    means = [np.zeros_like(w) for w in weights]
    squares = [np.zeros_like(w) for w in weights]
    decay = HYPER.weight_decay
    for step, (rate, gradient) in enumerate(zip(RATES, gradients(), strict=False), start=1):
        for w, m, v, g in zip(weights, means, squares, gradient, strict=True):
            m[...] = 0.9 * m + 0.1 * g
            v[...] = 0.999 * v + 0.001 * g * g
            r = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6)
            u = r + decay * w
            norm_w, norm_u = np.sqrt((w * w).sum()), np.sqrt((u * u).sum())
            trust = norm_w / norm_u if norm_w > 0 and norm_u > 0 else 1.0
            w[...] = w - rate * trust * u
        yield weights


def trained(name: str, *, stop_after: int | None = None) -> Iterator[list[Array]]:
    """The same steps by our optimizer; stopped and begun anew from its state, if wanted."""
    weights = [nn.Parameter(torch.from_numpy(initial_weight)) for initial_weight in initial()]
    optimizer = plugins.load("optimizer", name)(weights, HYPER)
    for step, (rate, gradient) in enumerate(zip(RATES, gradients(), strict=False)):
        if step == stop_after:
            state = optimizer.state_dict()
            weights = [nn.Parameter(w.detach().clone()) for w in weights]
            optimizer = plugins.load("optimizer", name)(weights, HYPER)
            optimizer.load_state_dict(state)
        for weight, g in zip(weights, gradient, strict=True):
            weight.grad = torch.from_numpy(g)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        yield [weight.detach().numpy() for weight in weights]


@pytest.mark.parametrize(
    ("name", "reference"), [("lars", lars_of_the_paper), ("lamb", lamb_of_the_paper)]
)
def test_every_step_is_the_papers(
    name: str, reference: Callable[[], Iterator[list[Array]]]
) -> None:
    steps = 0
    for weights, expected in zip(trained(name), reference(), strict=True):
        steps += 1
        for weight, true in zip(weights, expected, strict=True):
            np.testing.assert_allclose(weight, true, rtol=1e-12, atol=1e-14)
    assert steps == len(RATES)


@pytest.mark.parametrize("name", plugins.names("optimizer"))
def test_a_stopped_optimizer_goes_on_bit_by_bit(name: str) -> None:
    for weights, expected in zip(trained(name, stop_after=3), trained(name), strict=True):
        for weight, true in zip(weights, expected, strict=True):
            assert np.array_equal(weight, true)


@pytest.mark.parametrize("name", sorted({*plugins.names("optimizer")} - {"sgd_no_vector_decay"}))
def test_weight_decay_is_on_every_parameter(name: str) -> None:
    """V2 §5.4: a weight moves without a gradient, batch norm's γ and a bias as well."""
    weights = [nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))]
    optimizer = plugins.load("optimizer", name)(weights, HYPER)
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert all((weight < 1).all() for weight in weights)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {HYPER.weight_decay}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("adagrad", torch.optim.Adagrad),
    ],
)
def test_the_common_ones_are_torchs_own(name: str, kind: type) -> None:
    assert type(plugins.load("optimizer", name)([nn.Parameter(torch.ones(2))], HYPER)) is kind


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("adam", {}, {"betas": (0.9, 0.999), "eps": 1e-8}),
        ("adam", {"betas": (0.8, 0.9), "epsilon": 1e-3}, {"betas": (0.8, 0.9), "eps": 1e-3}),
        ("adamw", {"betas": (0.9, 0.95)}, {"betas": (0.9, 0.95), "eps": 1e-8}),
        ("adagrad", {}, {"eps": 1e-10}),
        ("lamb", {}, {"betas": (0.9, 0.999), "eps": 1e-6}),
        ("lars", {}, {"trust_coefficient": 0.001, "momentum": 0.9}),
        ("lars", {"trust_coefficient": 0.02}, {"trust_coefficient": 0.02}),
    ],
)
def test_settings_reach_the_optimizer(
    name: str, changes: dict[str, object], expected: dict[str, object]
) -> None:
    hyper = dataclasses.replace(HYPER, **changes)  # type: ignore[arg-type]
    optimizer = plugins.load("optimizer", name)([nn.Parameter(torch.ones(2))], hyper)
    assert {key: optimizer.param_groups[0][key] for key in expected} == expected


def test_a_parameter_without_a_gradient_stays() -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    for make in (optimizers.lars, optimizers.lamb):
        optimizer = make([used, unused], HYPER)
        used.grad = torch.ones(2)
        optimizer.step()
        assert torch.equal(unused, torch.ones(2))
        assert unused not in optimizer.state


def test_vectors_without_decay_are_a_group_of_their_own() -> None:
    """V2 §5.4: batch norm's γ and β (and biases) keep no weight decay; matrices do."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2)
    )
    hyper = HYPER
    optimizer = optimizers.sgd_no_vector_decay(model.parameters(), hyper)
    decayed, undecayed = optimizer.param_groups
    assert (decayed["weight_decay"], undecayed["weight_decay"]) == (hyper.weight_decay, 0.0)
    assert hyper.weight_decay > 0
    assert {id(p) for p in decayed["params"]} == {id(model[0].weight), id(model[2].weight)}
    assert {id(p) for p in undecayed["params"]} == {
        id(model[1].weight), id(model[1].bias), id(model[2].bias),
    }  # fmt: skip
    assert decayed["momentum"] == undecayed["momentum"] == hyper.momentum
    plain = optimizers.sgd(model.parameters(), hyper)
    assert optimizers.settings_sha256(optimizer) != optimizers.settings_sha256(plain)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad", "lars", "lamb"])
def test_settings_have_one_identity_while_only_the_rate_changes(name: str) -> None:
    """Through steps, other rates and a checkpoint; another weight decay is another identity."""
    model = nn.Linear(3, 2)
    optimizer = plugins.load("optimizer", name)(list(model.parameters()), HYPER)
    before = optimizers.settings_sha256(optimizer)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.05
    optimizer.step()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert optimizers.settings_sha256(optimizer) == before
    optimizer.param_groups[0]["weight_decay"] = 0.0
    assert optimizers.settings_sha256(optimizer) != before
