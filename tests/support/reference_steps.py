"""PyTorch's steps for comparison with another framework's, and that framework's results."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from ai500.records import ProblemClass
from ai500.workloads import image_arrays
from ai500.workloads.image_classification import WORKLOAD
from ai500.workloads.models import resnet
from ai500.workloads.models.resnet_layers import ResNet
from ai500.workloads.protocol import load_workload
from tests.support.commands import REPOSITORY

BLOCKS = {"bottleneck": resnet.Bottleneck, "basic": resnet.BasicBlock}
STEPS = REPOSITORY / "tests" / "support" / "backend_steps.py"


@dataclasses.dataclass(frozen=True)
class Case:
    """A comparison: model, type, steps."""

    problem_class: str = "smoke"
    model: ResNet | None = None
    """A model other than the class's."""
    input_shape: tuple[int, ...] = (3, 32, 32)
    stored: tuple[int, int] = (32, 32)
    dtype: str = "float64"
    precision: str = "fp32"
    batch: int = 8
    steps: int = 10
    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    workload: str = "image_classification"

    @property
    def definition(self) -> ProblemClass:
        return dataclasses.replace(
            load_workload(self.workload).problem_classes[self.problem_class],
            input_shape=self.input_shape,
        )


def bottlenecks(version: Literal["v1", "v1.5"]) -> Case:
    """Return ten steps of a small model with every layer of ResNet-50: max pool, both shortcuts."""
    classes = Case().definition.classes
    model = ResNet("bottleneck", (1, 2, 1, 1), classes, width=8, version=version)
    return Case(model=model, input_shape=(3, 64, 64), stored=(64, 64))


# One step: near its initial weights so deep a model amplifies the last bit. With a width of 8 and
# after ten steps on batches of 8, PyTorch's own momenta (at most 15) differ by 1 between two runs
# whose initial weights differ in that bit.
RESNET_50 = Case(
    problem_class="workstation", input_shape=(3, 64, 64), stored=(64, 64), steps=1, rate=0.001
)


def texts(**changes: Any) -> Case:
    """Return steps of the language model's class `smoke`."""
    settings = {"workload": "language_model", "input_shape": (129,), "rate": 4e-3}
    return Case(**settings | {"weight_decay": 0.1, "label_smoothing": 0.0} | changes)


@dataclasses.dataclass
class Steps:
    """Losses and states by step."""

    losses: NDArray[np.float64]
    states: list[dict[str, NDArray[Any]]]
    predictions: NDArray[Any]


def batches(case: Case) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(20)
    count = (case.steps, case.batch)
    rates = case.rate * (1 + np.arange(case.steps)) / case.steps
    if case.workload == "language_model":
        tokens = random.integers(0, 256, (*count, *case.input_shape), dtype=np.uint8)
        none = np.zeros((*count, 0), np.float32)
        return {"fields.tokens": tokens, "draws": none, "rates": rates}
    return {
        "fields.images": random.integers(0, 256, (*count, *case.stored, 3), dtype=np.uint8),
        "fields.labels": random.integers(0, case.definition.classes, count),
        "draws": random.random((*count, WORKLOAD.draws_per_sample), dtype=np.float32),
        "rates": rates,
    }


def reference(case: Case) -> Steps:
    """Train by torch's model and torch's optimizer."""
    return _reference_texts(case) if case.workload == "language_model" else _reference_images(case)


def _reference_texts(case: Case) -> Steps:
    """Train the language model by `torch.optim.AdamW`."""
    arrays, dtype = batches(case), getattr(torch, case.dtype)
    model, hyper = fresh_model(case).to(dtype), case.definition.reference
    settings = {"betas": hyper.betas, "eps": hyper.epsilon, "weight_decay": case.weight_decay}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, **settings)
    losses, states = [], []
    for step, rate in enumerate(arrays["rates"]):
        optimizer.param_groups[0]["lr"] = float(rate)
        optimizer.zero_grad()
        loss = -model(torch.from_numpy(arrays["fields.tokens"][step]).long()).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        state = {"momentum.updates": np.array(step + 1)}
        for name, parameter in model.named_parameters():
            state[name] = parameter.detach().numpy().copy()
            state[f"momentum.{name}"] = optimizer.state[parameter]["exp_avg"].numpy().copy()
            square = optimizer.state[parameter]["exp_avg_sq"].numpy().copy()
            state[f"momentum.square.{name}"] = square
        states.append(state)
    model.eval()
    with torch.no_grad():
        predictions = model(torch.from_numpy(arrays["fields.tokens"][0]).long()).exp().numpy()
    return Steps(np.array(losses), states, predictions)


def _reference_images(case: Case) -> Steps:
    """Train the ResNet by `torch.optim.SGD`."""
    arrays, dtype = batches(case), getattr(torch, case.dtype)
    model = fresh_model(case).to(dtype)
    settings = {"momentum": case.momentum, "weight_decay": case.weight_decay}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, **settings)
    names = [name for name, _ in model.named_parameters()]
    losses, states = [], []
    for step, rate in enumerate(arrays["rates"]):
        inputs = image_arrays.train_inputs(
            np,
            case.definition,
            arrays["fields.images"][step],
            arrays["draws"][step],
            dtype=case.dtype,
        )
        optimizer.param_groups[0]["lr"] = float(rate)
        optimizer.zero_grad()
        scores = model(_channels_first(inputs, dtype))
        labels = torch.from_numpy(arrays["fields.labels"][step])
        loss = cross_entropy(scores, labels, label_smoothing=case.label_smoothing)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        buffers = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
        state = {name: value.numpy().copy() for name, value in model.state_dict().items()}
        momenta = {f"momentum.{n}": b.numpy().copy() for n, b in zip(names, buffers, strict=True)}
        states.append(state | momenta)
    model.eval()
    inputs = image_arrays.evaluation_inputs(
        np, case.definition, arrays["fields.images"][0], dtype=case.dtype
    )
    with torch.no_grad():
        predictions = model(_channels_first(inputs, dtype)).softmax(dim=1).numpy()
    return Steps(np.array(losses), states, predictions)


def fresh_model(case: Case) -> torch.nn.Module:
    torch.manual_seed(7)
    if case.model is None:
        model: torch.nn.Module = load_workload(case.workload).model(case.definition)
        return model
    fields = dataclasses.asdict(case.model)
    return resnet.ResNet(BLOCKS[fields.pop("block")], fields.pop("depths"), **fields)


def of_framework(name: str, python: Path, case: Case, folder: Path) -> tuple[Steps, dict[str, Any]]:
    """Run the same steps in a framework's interpreter; return also its other results."""
    arrays: dict[str, Any] = batches(case)
    weights = fresh_model(case).state_dict().items()
    arrays |= {f"weights.{n}": w.numpy() for n, w in weights if "num_batches" not in n}
    keys = ("input_shape", "dtype", "precision", "workload")
    settings = {key: getattr(case, key) for key in keys} | {"class": case.problem_class}
    settings["model"] = dataclasses.asdict(case.model) if case.model else None
    keys = ("momentum", "weight_decay", "label_smoothing")
    settings["hyperparameters"] = {key: getattr(case, key) for key in keys}
    np.savez(folder / "given.npz", settings=np.array(json.dumps(settings)), **arrays)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [str(python), str(STEPS), name, str(folder / "given.npz"), str(folder / "result.npz")],
        check=True, env=environment | {"OMP_NUM_THREADS": "1"}, timeout=1500,
    )  # fmt: skip
    result = dict(np.load(folder / "result.npz"))
    states = []
    for step in range(case.steps):
        prefix = f"{step}."
        states.append(
            {name.removeprefix(prefix): a for name, a in result.items() if name.startswith(prefix)}
        )
    extras = {key: result[key] for key in result if not key.partition(".")[0].isdigit()}
    return Steps(result["losses"], states, result["predictions"]), extras


def largest_difference(expected: Steps, other_steps: Steps) -> dict[str, float]:
    """Return the largest absolute difference of losses, each kind of state, and predictions."""
    largest = {
        "loss": float(np.abs(expected.losses - other_steps.losses).max()),
        "predictions": float(np.abs(expected.predictions - other_steps.predictions).max()),
    }
    for state, other in zip(expected.states, other_steps.states, strict=True):
        assert set(state) == {name for name in other if "num_batches" not in name}
        for name, array in state.items():
            kind = "statistics" if ".running_" in name else name.partition(".")[0]
            kind = kind if kind in ("statistics", "momentum") else "weights"
            difference = float(np.abs(array - other[name]).max())
            largest[kind] = max(largest.get(kind, 0.0), difference)
    return largest


def _channels_first(inputs: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))).to(dtype)
