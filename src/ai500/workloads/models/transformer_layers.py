"""The reference's transformer for frameworks other than PyTorch: parameters and initial weights.

No torch. Names and order are those of `transformer.py`; initial weights are the same draws from the
same seed, in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ai500.core.reference_random import ReferenceGenerator
from ai500.workloads.models.resnet_layers import Parameter, Weights
from ai500.workloads.models.transformer_plan import DEVIATION, TransformerShape

LAYER_NORM_EPSILON = 1e-5
"""torch's default."""


def parameters(shape: TransformerShape) -> tuple[Parameter, ...]:
    """Return all parameters in the reference's order."""
    width = shape.width
    return (
        Parameter("tokens.weight", "embedding weight", (shape.vocabulary, width)),
        Parameter("positions.weight", "Positions weight", (shape.context, width)),
        *(
            parameter
            for number in range(shape.layers)
            for parameter in _block(f"blocks.{number}", width)
        ),
        *_layer_norm("norm", width),
    )


def _block(name: str, width: int) -> Iterator[Parameter]:
    yield from _layer_norm(f"{name}.attention_norm", width)
    yield from _dense(f"{name}.attention.qkv", width, 3 * width)
    yield from _dense(f"{name}.attention.out", width, width)
    yield from _layer_norm(f"{name}.feed_forward_norm", width)
    yield from _dense(f"{name}.feed_forward.up", width, 4 * width)
    yield from _dense(f"{name}.feed_forward.down", 4 * width, width)


def _layer_norm(name: str, width: int) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", "layer norm weight", (width,))
    yield Parameter(f"{name}.bias", "layer norm bias", (width,))


def _dense(name: str, inputs: int, outputs: int) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", "dense weight", (outputs, inputs))
    yield Parameter(f"{name}.bias", "dense bias", (outputs,))


def initial_weights(shape: TransformerShape, *, seed: int) -> Weights:
    """Draw the weights that the reference's model has after `torch.manual_seed(seed)`.

    They agree to the last bit or two of FP32: libraries round log, sin and cos differently.
    """
    generator, tensors = ReferenceGenerator(seed), parameters(shape)
    # torch's layers draw default weights when they are made, which the model then draws anew.
    for parameter in tensors:
        if parameter.kind == "embedding weight":
            generator.normal(parameter.size, deviation=1.0)
        elif parameter.kind.startswith("dense"):
            generator.skip(parameter.size)
    weights: Weights = {}
    for parameter in tensors:
        if len(parameter.shape) > 1:
            last_of_branch = parameter.name.endswith(
                ("attention.out.weight", "feed_forward.down.weight")
            )
            scale = (2 * shape.layers) ** -0.5 if last_of_branch else 1.0
            drawn = generator.normal(parameter.size, deviation=DEVIATION * scale)
            weights[parameter.name] = drawn.reshape(parameter.shape)
        else:
            value = 1.0 if parameter.kind == "layer norm weight" else 0.0
            weights[parameter.name] = np.full(parameter.shape, value, dtype=np.float32)
    return weights
