"""Model, optimizer and loss of the user's own, for entries at the free level (V2 §3.1).

A part is named as `module:function`. It takes the place of the workload's:

    model(problem_class) → nn.Module                       weights from torch's generator
    optimizer(parameters, hyperparameters) → Optimizer
    loss(outputs, targets, *, hyperparameters) → Tensor
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ai500.core import plugins
from ai500.core.errors import EnvironmentLacksError
from ai500.records import OwnCode, Task
from ai500.train.training_facts import module_source
from ai500.workloads.protocol import Workload


def build_model(task: Task, workload: Workload) -> nn.Module:
    """Build the user's model, or the class's own."""
    if task.own_code.model is None:
        return workload.model(task.definition)
    model = load(task.own_code, "model")(task.definition)
    if not isinstance(model, nn.Module):
        raise EnvironmentLacksError(
            f"free_level.model = {task.own_code.model!r} returned a {type(model).__name__}, not an "
            "nn.Module.",
            key="free_level.model",
            value=task.own_code.model,
            remedy="Return the model that the function builds.",
        )
    return model


def build_optimizer(task: Task, parameters: Any) -> torch.optim.Optimizer:
    """Build the user's optimizer, or the one that the hyper-parameters name."""
    hyper = task.hyperparameters
    if task.own_code.optimizer is None:
        make = plugins.load("optimizer", hyper.optimizer)
    else:
        make = load(task.own_code, "optimizer")
    optimizer: torch.optim.Optimizer = make(parameters, hyper)
    return optimizer


def loss_function(task: Task, workload: Workload) -> Callable[[Any, Any], Tensor]:
    """Return the user's loss, or the workload's, as a function of outputs and targets."""
    function = workload.loss if task.own_code.loss is None else load(task.own_code, "loss")
    return partial(function, hyperparameters=task.hyperparameters)


def load(code: OwnCode, part: str) -> Any:
    """Import a part of the user's code; its folder comes first on the import path."""
    name = getattr(code, part)
    if code.folder is not None and code.folder not in sys.path:
        sys.path.insert(0, code.folder)
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise EnvironmentLacksError(
            f"free_level.{part} = {name!r} can't be loaded: {error}.",
            key=f"free_level.{part}",
            value=name,
            remedy=f"Put the module into {code.folder}, or install it on every node.",
        ) from error


def describe(code: OwnCode) -> dict[str, dict[str, str | None]]:
    """Return name, source and SHA-256 of each part of the user's own, for the record."""
    return {part: _describe(code, part) for part in code.parts}


def _describe(code: OwnCode, part: str) -> dict[str, str | None]:
    source = module_source(load(code, part))
    digest = None if source is None else hashlib.sha256(source.encode()).hexdigest()
    return {"code": getattr(code, part), "source": source, "sha256": digest}
