"""The reference's language model in plain JAX; weights are in the reference's layout."""

from __future__ import annotations

from typing import Any

from ai500.frameworks.jax_setup import jax, jnp
from ai500.operations import Trace
from ai500.operations.stablehlo import trace_stablehlo
from ai500.workloads.models.transformer_layers import LAYER_NORM_EPSILON, parameters
from ai500.workloads.models.transformer_plan import TransformerShape

Array = Any
Tree = dict[str, Array]


def dense(x: Array, weights: Tree, name: str, *, compute: Any) -> Array:
    """Multiply the last dimension by the weight transposed, and add the bias."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    rows = x.reshape(-1, x.shape[-1]).astype(compute)
    return (rows @ weight.astype(compute).T + bias.astype(compute)).reshape(*x.shape[:-1], -1)


def layer_norm(x: Array, weights: Tree, name: str) -> Array:
    """Normalize the last dimension."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x - mean).mean(axis=-1, keepdims=True)
    normalized = (x - mean) * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return normalized * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def attention(query: Array, key: Array, value: Array) -> Array:
    """Mix the values of earlier tokens; all are [samples, heads, context, channels]."""
    samples, heads, context, channels = query.shape
    scale = channels**-0.25  # of both factors, as torch's attention scales them
    products = (query * scale).reshape(-1, context, channels) @ (
        (key.swapaxes(2, 3) * scale).reshape(-1, channels, context)
    )
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = products.reshape(samples, heads, context, context).astype(wide)
    mask = jnp.where(jnp.tril(jnp.ones((context, context), bool)), 0, -jnp.inf).astype(wide)
    shares = jax.nn.softmax(scores + mask).astype(value.dtype)
    mixed = shares.reshape(-1, context, context) @ value.reshape(-1, context, channels)
    return mixed.reshape(samples, heads, context, channels)


def log_probabilities(
    shape: TransformerShape, weights: Tree, tokens: Array, *, compute: Any
) -> Array:
    """Return the log-probability of each token after the first [samples, context]."""
    head = shape.width // shape.heads
    x = weights["tokens.weight"][tokens[:, :-1]]
    x = x + weights["positions.weight"][: x.shape[1]]
    samples, context, width = x.shape
    for number in range(shape.layers):
        name = f"blocks.{number}"
        y = layer_norm(x, weights, f"{name}.attention_norm")
        qkv = dense(y, weights, f"{name}.attention.qkv", compute=compute)
        # Channels are ordered by head first, as the reference's are.
        parts = qkv.reshape(samples, context, -1, 3, head).transpose(3, 0, 2, 1, 4)
        mixed = attention(*parts).transpose(0, 2, 1, 3).reshape(samples, context, width)
        x = x + dense(mixed, weights, f"{name}.attention.out", compute=compute)
        y = layer_norm(x, weights, f"{name}.feed_forward_norm")
        y = dense(y, weights, f"{name}.feed_forward.up", compute=compute)
        y = jax.nn.gelu(y, approximate=True)
        x = x + dense(y, weights, f"{name}.feed_forward.down", compute=compute)
    rows = layer_norm(x, weights, "norm").reshape(-1, width).astype(compute)
    logits = rows @ weights["tokens.weight"].astype(compute).T
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    chosen = jnp.take_along_axis(
        jax.nn.log_softmax(logits), tokens[:, 1:].reshape(-1, 1), axis=1, mode="promise_in_bounds"
    )
    losses = -chosen[:, 0]
    return -losses.reshape(samples, context)


def trace_transformer(shape: TransformerShape, *, batch: int, dtype: Any, compute: Any) -> Trace:
    """Trace the forward pass on `batch` texts; no memory, no kernels."""
    weights = {p.name: jax.ShapeDtypeStruct(p.shape, dtype) for p in parameters(shape)}
    tokens = jax.ShapeDtypeStruct((batch, shape.context + 1), jnp.int32)

    def forward(weights: Tree, tokens: Array) -> Array:
        return log_probabilities(shape, weights, tokens, compute=compute)

    text = jax.jit(forward).lower(weights, tokens).as_text()
    return trace_stablehlo(text, parameters=range(len(weights)), batch=batch)
