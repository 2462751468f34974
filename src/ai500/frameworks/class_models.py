"""The models of problem classes that frameworks other than PyTorch can build; no torch."""

from __future__ import annotations

from ai500.frameworks.backend import State
from ai500.records import Task
from ai500.workloads.models import resnet_layers, transformer_layers
from ai500.workloads.models.resnet_layers import Parameter
from ai500.workloads.models.transformer_plan import SHAPES

WORKLOADS = ("image_classification",)
"""Workloads that have a model described in layers."""
LANGUAGE_MODEL = "language_model"


def initial_state(task: Task, *, seed: int) -> State:
    """Draw the reference's initial weights of the task's model."""
    if task.workload == LANGUAGE_MODEL:
        shape = SHAPES[task.definition.name]
        return dict(transformer_layers.initial_weights(shape, seed=seed))
    return dict(
        resnet_layers.initial_weights(resnet_layers.class_resnet(task.definition), seed=seed)
    )


def trained_parameters(task: Task) -> tuple[Parameter, ...]:
    """Return the parameters of the task's model that the optimizer updates."""
    if task.workload == LANGUAGE_MODEL:
        return transformer_layers.parameters(SHAPES[task.definition.name])
    model = resnet_layers.class_resnet(task.definition)
    return tuple(parameter for parameter in resnet_layers.parameters(model) if parameter.trained)
