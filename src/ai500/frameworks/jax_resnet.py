"""The reference's ResNet in plain JAX.

Activations are N×H×W×C and kernels H×W×I×O, the layouts that XLA convolves fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ai500.frameworks.jax_setup import jax, jnp
from ai500.operations import Trace
from ai500.operations.graph import channels_first
from ai500.operations.stablehlo import trace_stablehlo
from ai500.workloads.models.resnet_layers import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    ResNet,
    parameters,
)

lax = jax.lax
Array = Any
Tree = dict[str, Array]

_KERNEL_LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolution(x: Array, kernel: Array, *, stride: int) -> Array:
    """Convolve, padded by half of the kernel."""
    pad = kernel.shape[0] // 2
    return lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        window_strides=(stride, stride),
        padding=((pad, pad), (pad, pad)),
        dimension_numbers=_KERNEL_LAYOUT,
    )


def batch_norm(x: Array, weight: Array, bias: Array, mean: Array, variance: Array) -> Array:
    """Normalize each channel by these statistics, in the statistics' type."""
    scale = weight * lax.rsqrt(variance + BATCH_NORM_EPSILON)
    return ((x - mean) * scale + bias).astype(x.dtype)


def batch_norm_training(
    x: Array, weight: Array, bias: Array, running_mean: Array, running_variance: Array
) -> tuple[Array, Array, Array]:
    """Normalize by the batch's statistics; return also the new running ones."""
    wide = x.astype(weight.dtype)
    mean = wide.mean(axis=(0, 1, 2))
    # One pass over the activations: both sums in FP32.
    variance = jnp.maximum((wide * wide).mean(axis=(0, 1, 2)) - mean * mean, 0)
    count, rate = x.size // x.shape[-1], BATCH_NORM_MOMENTUM
    unbiased_rate = rate * count / max(1, count - 1)
    return (
        batch_norm(x, weight, bias, mean, variance),
        (1 - rate) * running_mean + rate * lax.stop_gradient(mean),
        (1 - rate) * running_variance + unbiased_rate * lax.stop_gradient(variance),
    )


def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return jnp.maximum(x, 0)


def add(x: Array, y: Array) -> Array:
    """Add the shortcut."""
    return x + y


def max_pool(x: Array) -> Array:
    """Take the maximum of 3×3 windows, stride 2."""
    pads = ((0, 0), (1, 1), (1, 1), (0, 0))
    return lax.reduce_window(
        x, np.array(-np.inf, x.dtype), lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads
    )


def average_pool(x: Array) -> Array:
    """Average over all pixels."""
    return x.mean(axis=(1, 2))


def dense(x: Array, weight: Array, bias: Array) -> Array:
    """Multiply by the weight transposed and add the bias."""
    return x @ weight.astype(x.dtype).T + bias.astype(x.dtype)


class JaxLayers:
    """The layers of a ResNet on JAX's arrays; collects new running statistics in training."""

    def __init__(self, weights: Tree, statistics: Tree, *, training: bool) -> None:
        self._weights = weights
        self._statistics = statistics
        self._training = training
        self.new_statistics: Tree = dict(statistics)

    def convolution(self, x: Array, name: str, *, channels: int, kernel: int, stride: int) -> Array:
        """Convolve to `channels`."""
        return convolution(x, self._weights[f"{name}.weight"], stride=stride)

    def batch_norm(self, x: Array, name: str) -> Array:
        """Normalize by the batch's statistics in training, by the running ones otherwise."""
        affine = (self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])
        names = f"{name}.running_mean", f"{name}.running_var"
        statistics = tuple(self._statistics[key] for key in names)
        if not self._training:
            return batch_norm(x, *affine, *statistics)
        out, *new = batch_norm_training(x, *affine, *statistics)
        self.new_statistics.update(zip(names, new, strict=True))
        return out

    def relu(self, x: Array) -> Array:
        """Return max(x, 0)."""
        return relu(x)

    def add(self, x: Array, y: Array) -> Array:
        """Add the shortcut."""
        return add(x, y)

    def max_pool(self, x: Array) -> Array:
        """Take the maximum of 3×3 windows."""
        return max_pool(x)

    def average_pool(self, x: Array) -> Array:
        """Average over all pixels."""
        return average_pool(x)

    def dense(self, x: Array, name: str, *, units: int) -> Array:
        """Multiply by the weight and add the bias."""
        return dense(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])


def scores(
    model: ResNet, weights: Tree, statistics: Tree, inputs: Array, *, training: bool
) -> tuple[Array, Tree]:
    """Compute the class scores; return also the running statistics after this batch."""
    layers = JaxLayers(weights, statistics, training=training)
    return model.forward(layers, inputs), layers.new_statistics


def trace_model(model: ResNet, shape: tuple[int, ...], *, dtype: Any) -> Trace:
    """Trace the training forward pass of a model on inputs N×C×H×W; no memory, no kernels."""
    batch, channels, height, width = shape
    tensors = parameters(model)
    weights, statistics = (
        {p.name: jax.ShapeDtypeStruct(_to_kernel(p.shape), jnp.float32) for p in part}
        for part in ([p for p in tensors if p.trained], [p for p in tensors if not p.trained])
    )
    inputs = jax.ShapeDtypeStruct((batch, height, width, channels), dtype)

    def forward(weights: Tree, statistics: Tree, inputs: Array) -> tuple[Array, Tree]:
        return scores(model, weights, statistics, inputs, training=True)

    lowered = jax.jit(forward).lower(weights, statistics, inputs)
    # JAX flattens dicts in the order of their keys, and the arguments in order.
    return channels_first(
        trace_stablehlo(lowered.as_text(), parameters=range(len(weights)), batch=batch)
    )


def _to_kernel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Change a convolution's shape from O×I×H×W to H×W×I×O."""
    return (*shape[2:], shape[1], shape[0]) if len(shape) == 4 else shape


def cross_entropy(logits: Array, labels: Array, *, smoothing: float) -> Array:
    """Compute the mean cross entropy with smoothed labels, in at least FP32."""
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    log_probabilities = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]
    return -((1 - smoothing) * chosen + smoothing * log_probabilities.mean(axis=1)).mean()
