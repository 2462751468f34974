"""Models that can be counted by name: known ones, problem classes, `package.module:factory`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai500.core import plugins
from ai500.core.errors import EnvironmentLacksError, InputError
from ai500.core.schema import nearest
from ai500.workloads.protocol import load_workload

if TYPE_CHECKING:
    from torch import nn

    from ai500.records import ProblemClass
    from ai500.workloads.protocol import Workload

IMAGENET_INPUT = (3, 224, 224)
CLIMATE_INPUT = (16, 768, 1152)


@dataclass(frozen=True, slots=True)
class Countable:
    """A model that can be built and counted."""

    name: str
    build: Callable[[], Any]
    input_shape: tuple[int, ...] | None
    """Shape of one input, without the batch; None: the user has to state it."""
    loss: str | None = None
    """Operator after the model's outputs that is counted with it."""
    input_dtype: str = "float32"
    """Type of the input."""

    def model(self) -> nn.Module:
        """Build the model on the meta device if it can be: no memory, no random draws."""
        torch = imported_torch()
        try:
            with torch.device("meta"):
                model = self.build()
        except Exception:
            # Some constructors read values, which meta tensors do not have.
            model = self._build_with_values()
        if not isinstance(model, torch.nn.Module):
            raise InputError(
                f"{self.name} returns a {type(model).__name__}, not a torch.nn.Module.",
                key="model",
                value=self.name,
            )
        checked: nn.Module = model
        return checked

    def _build_with_values(self) -> Any:
        try:
            return self.build()
        except Exception as error:
            raise InputError(
                f"{self.name} raised {type(error).__name__} instead of building a model: "
                f"{_one_line(error)}",
                key="model",
                value=self.name,
            ) from error


def imported_torch() -> Any:
    """Import torch, or raise `EnvironmentLacksError`."""
    try:
        import torch
    except ImportError as error:
        raise EnvironmentLacksError(
            "counting a model's operations needs torch, which is not installed here"
        ) from error
    return torch


def countable(name: str) -> Countable:
    """Return the model of that name; the error suggests the nearest one."""
    if ":" in name:
        return Countable(name, _factory(name), input_shape=None)
    if name in _NAMED:
        return _NAMED[name]
    workload, _, problem_class = name.partition("/")
    if workload in plugins.names("workload"):
        loaded = load_workload(workload)
        largest = "full" if "full" in loaded.problem_classes else [*loaded.problem_classes][-1]
        return of_workload(loaded, problem_class or largest)
    known = [*_NAMED, *plugins.names("workload")]
    raise InputError(
        f"no model called {name!r}; {nearest(name, known)} "
        "(a model of your own: package.module:factory)",
        key="model",
        value=name,
    )


def of_workload(workload: Workload, problem_class: str) -> Countable:
    """Return the model of a problem class, at the class's input size."""
    classes = workload.problem_classes
    if problem_class not in classes:
        hint = nearest(problem_class, list(classes))
        raise InputError(
            f"{workload.name} has no class {problem_class!r}; {hint}",
            key="class",
            value=problem_class,
        )
    chosen: ProblemClass = classes[problem_class]
    return Countable(
        name=f"{workload.name}/{problem_class}",
        build=lambda: workload.model(chosen),
        input_shape=chosen.input_shape,
        input_dtype=chosen.input_dtype,
        loss=workload.loss_operator,
    )


def _resnet50(version: Any) -> Any:
    from ai500.workloads.models.resnet import resnet50

    return resnet50(version=version)


def _faster_rcnn() -> Any:
    from ai500.workloads.detection.faster_rcnn import FasterRCNN

    return FasterRCNN()


_NAMED = {
    "resnet50": Countable("resnet50", lambda: _resnet50("v1.5"), IMAGENET_INPUT, "softmax"),
    "resnet50-v1": Countable("resnet50-v1", lambda: _resnet50("v1"), IMAGENET_INPUT, "softmax"),
    "faster-rcnn": Countable("faster-rcnn", _faster_rcnn, CLIMATE_INPUT),
}


def _factory(name: str) -> Callable[[], Any]:
    """Import `package.module:factory`, also from the current folder."""
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        target: Any = import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{name} can't be imported: {_one_line(error)}", key="model", value=name
        ) from error
    except Exception as error:
        raise InputError(
            f"{module_name} raised {type(error).__name__} while it was imported: "
            f"{_one_line(error)}",
            key="model",
            value=name,
        ) from error
    is_model = hasattr(target, "named_parameters") and not isinstance(target, type)
    return target if callable(target) and not is_model else lambda: target


def _one_line(error: Exception) -> str:
    """Return the whole message on one line; a later line may name the missing key."""
    return " ".join(str(error).split()) or "no message"
