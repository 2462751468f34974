"""Writes tests/unit/operations/stablehlo_texts: run as a file by an interpreter with JAX 0.10.

python tests/support/stablehlo_texts.py
"""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax

FOLDER = Path(__file__).parent.parent / "unit" / "operations" / "stablehlo_texts"
BATCH = 2
shape = jax.ShapeDtypeStruct


def f32(*sizes: int) -> jax.ShapeDtypeStruct:
    return shape(sizes, jnp.float32)


def i32(*sizes: int) -> jax.ShapeDtypeStruct:
    return shape(sizes, jnp.int32)


def convolve(x, weight, *, stride: int = 1, groups: int = 1):
    pad = [(size // 2, size // 2) for size in weight.shape[:2]]
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, weight, (stride, stride), pad, dimension_numbers=layout, feature_group_count=groups
    )


@jax.jit
def batch_norm(x, scale, shift, running_mean, running_variance):
    """Normalize by the batch, and update the running statistics."""
    mean = x.mean((0, 1, 2))
    variance = jnp.maximum(0, (x * x).mean((0, 1, 2)) - mean * mean)
    y = (x - mean) * (lax.rsqrt(variance + 1e-5) * scale) + shift
    return y, 0.9 * running_mean + 0.1 * mean, 0.9 * running_variance + 0.1 * variance


class ResNet50:
    """ResNet-50 v1 or v1.5 on images of 224×224, channels last, as one function of its weights."""

    def __init__(self, version: str, *, widths=(64, 128, 256, 512), depths=(3, 4, 6, 3)) -> None:
        self.version, self.widths, self.depths = version, widths, depths

    def weights(self, channels: int = 3, classes: int = 1000):
        params, statistics, layers = {}, {}, []
        layers.append(("stem", 7, channels, self.widths[0], 2))
        inputs = self.widths[0]
        for stage, (width, depth) in enumerate(zip(self.widths, self.depths, strict=True)):
            for block in range(depth):
                stride = 2 if stage and not block else 1
                first, second = (stride, 1) if self.version == "v1" else (1, stride)
                name = f"s{stage}b{block}"
                layers.append((f"{name}c1", 1, inputs, width, first))
                layers.append((f"{name}c2", 3, width, width, second))
                layers.append((f"{name}c3", 1, width, 4 * width, 1))
                if not block:
                    layers.append((f"{name}skip", 1, inputs, 4 * width, stride))
                inputs = 4 * width
        self.strides = {name: stride for name, *_, stride in layers}
        for name, kernel, into, out, _ in layers:
            params[name] = f32(kernel, kernel, into, out)
            params[f"{name}_scale"] = params[f"{name}_shift"] = f32(out)
            statistics[f"{name}_mean"] = statistics[f"{name}_variance"] = f32(out)
        params["dense"], params["bias"] = f32(inputs, classes), f32(classes)
        return params, statistics

    def __call__(self, params, statistics, images):
        new = {}

        def layer(x, name):
            y = convolve(x, params[name], stride=self.strides[name])
            old = (statistics[f"{name}_mean"], statistics[f"{name}_variance"])
            y, mean, variance = batch_norm(
                y, params[f"{name}_scale"], params[f"{name}_shift"], *old
            )
            new[f"{name}_mean"], new[f"{name}_variance"] = mean, variance
            return y

        x = jax.nn.relu(layer(images, "stem"))
        pad = ((0, 0), (1, 1), (1, 1), (0, 0))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pad)
        for stage, depth in enumerate(self.depths):
            for block in range(depth):
                name = f"s{stage}b{block}"
                y = jax.nn.relu(layer(x, f"{name}c1"))
                y = jax.nn.relu(layer(y, f"{name}c2"))
                y = layer(y, f"{name}c3")
                x = jax.nn.relu(y + (x if block else layer(x, f"{name}skip")))
        logits = x.mean((1, 2)) @ params["dense"] + params["bias"]
        return jax.nn.softmax(logits), new


def layer_norm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def rms_norm(x, scale):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def block(params, tokens):
    """A transformer block with two heads of 8 channels, and the logits of 11 tokens."""
    x = params["embedding"][tokens]
    y = layer_norm(x, params["scale"], params["shift"])
    qkv = (y @ params["qkv"]).reshape(BATCH, 6, 3, 2, 8)
    query, key, value = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhc,bkhc->bhqk", query, key) / 8**0.5
    y = jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(scores), value).reshape(BATCH, 6, 16)
    # A bias of heads × channels, as flax has it.
    heads = jnp.einsum("bqc,chd->bqhd", y, params["out"]) + params["out_bias"]
    x = x + heads.reshape(BATCH, 6, 16)
    return rms_norm(x, params["rms"]) @ params["logits"]


BLOCK = {
    "embedding": f32(11, 16), "scale": f32(16), "shift": f32(16), "qkv": f32(16, 48),
    "out": f32(16, 2, 8), "out_bias": f32(2, 8), "rms": f32(16), "logits": f32(16, 11),
}  # fmt: skip


def normalizations(scale, shift, mean, variance, x):
    """Ways to write a normalization: every output is one, of x with 8 channels last."""
    half = x.astype(jnp.bfloat16).astype(jnp.float32)  # mixed precision
    half_mean = half.mean((0, 1, 2))
    one_pass = lax.rsqrt((half * half).mean((0, 1, 2)) - half_mean * half_mean + 1e-5)
    two_pass = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
    groups = x.reshape(*x.shape[:3], 2, 4)
    axes = {"axis": (1, 2, 4), "keepdims": True}
    grouped = (groups - groups.mean(**axes)) * lax.rsqrt(groups.var(**axes) + 1e-5)
    return (
        ((half - half_mean) * one_pass * scale + shift).astype(jnp.bfloat16),
        two_pass * scale + shift,
        (x - mean) * (lax.rsqrt(variance + 1e-5) * scale) + shift,  # inference
        grouped.reshape(x.shape) * scale + shift,
        layer_norm(x, scale, shift),
        rms_norm(x, scale),
    )


def layers(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return x


def recomputed(weights, x):
    """A step that computes its forward pass twice to save memory."""
    return jax.value_and_grad(lambda w: jax.checkpoint(layers)(w, x).sum())(weights)


def convolutions(params, x):
    """Convolutions of every kind whose gradients JAX writes differently."""
    x = convolve(x, params["plain"], stride=2)
    x = convolve(x, params["grouped"], groups=4)
    x = convolve(x, params["depthwise"], groups=8, stride=2)
    valid = partial(lax.conv_general_dilated, padding="VALID", window_strides=(1, 1))
    x = valid(x, params["valid"], dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = valid(x, params["dilated"], rhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = lax.conv_transpose(x, params["transposed"], (2, 2), "SAME")
    return x.sum((1, 2)) @ params["dense"]


CONVOLUTIONS = {
    "plain": f32(3, 3, 3, 8), "grouped": f32(3, 3, 2, 8), "depthwise": f32(3, 3, 1, 8),
    "valid": f32(3, 3, 8, 8), "dilated": f32(3, 3, 8, 8), "transposed": f32(4, 4, 8, 6),
    "dense": f32(6, 5),
}  # fmt: skip


def loops(weights, bound, x):
    """Loops with a known number of iterations, one without, and a branch on data."""
    x, _ = lax.scan(lambda carry, weight: (jnp.tanh(carry @ weight), None), x, weights)
    x = lax.fori_loop(2, 12, lambda i, y: lax.fori_loop(0, 3, lambda j, z: z * 2.0, y), x)
    x = lax.fori_loop(0, bound, lambda i, y: y + 1.0, x)
    return lax.cond(x[0, 0] > 1, jnp.sin, jnp.cos, x)


def spectral(weights, x):
    """Fourier transforms over two dimensions of real input, complex products, and a sort."""
    spectrum = jnp.fft.rfft2(x)
    spectrum = jnp.fft.fft(spectrum * spectrum, axis=1) @ weights
    return jnp.sort(jnp.fft.irfft(spectrum), axis=-1)


def cross_entropy(model, params, x, labels):
    scores = jax.nn.log_softmax(model(params, x))
    return -jnp.take_along_axis(scores, labels[..., None], -1).mean()


def step(model):
    def descend(params, x, labels):
        gradients = jax.grad(partial(cross_entropy, model))(params, x, labels)
        return jax.tree.map(lambda weight, change: weight - 0.1 * change, params, gradients)

    return descend


def write(name: str, function, *arguments) -> None:
    lowered = jax.jit(function).lower(*arguments)
    (FOLDER / f"{name}.mlir").write_text(lowered.as_text(), encoding="utf-8")


def write_other_forms(function, *arguments) -> None:
    """Write a module with locations, and in MLIR's generic form."""
    lowered = jax.jit(function).lower(*arguments)
    located = lowered.as_text(debug_info=True)
    without_paths = re.sub(r'loc\("[^"]*\.py":[^)]*\)', "loc(unknown)", located)
    (FOLDER / "block_located.mlir").write_text(without_paths, encoding="utf-8")
    generic = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    (FOLDER / "block_generic.mlir").write_text(generic, encoding="utf-8")


def write_language_model() -> None:
    """Write the forward pass of JAX's language model, class `smoke`."""
    source = FOLDER.parents[3] / "src/ai500/frameworks/start_worker.py"
    spec = importlib.util.spec_from_file_location("start_worker", source)
    start_worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start_worker)
    start_worker.import_ai500()
    from ai500.frameworks.jax_transformer import log_probabilities
    from ai500.workloads.models.transformer_layers import parameters
    from ai500.workloads.models.transformer_plan import SHAPES

    smoke = SHAPES["smoke"]
    weights = {parameter.name: f32(*parameter.shape) for parameter in parameters(smoke)}
    forward = partial(log_probabilities, smoke, compute=jnp.float32)
    write("language_model", forward, weights, i32(BATCH, smoke.context + 1))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for version, name in (("v1", "resnet50-v1"), ("v1.5", "resnet50")):
        resnet = ResNet50(version)
        write(name, resnet, *resnet.weights(), f32(BATCH, 224, 224, 3))
    write("block", block, BLOCK, i32(BATCH, 6))
    write_other_forms(block, BLOCK, i32(BATCH, 6))
    write("block_step", step(block), BLOCK, i32(BATCH, 6), i32(BATCH, 6))
    images = f32(BATCH, 32, 32, 3)
    write("convolutions", convolutions, CONVOLUTIONS, images)
    write("convolutions_step", step(convolutions), CONVOLUTIONS, images, i32(BATCH))
    write("normalizations", normalizations, *[f32(8)] * 4, f32(BATCH, 4, 4, 8))
    write("layers", layers, [f32(8, 8)] * 3, f32(BATCH, 8))
    write("recomputed_step", recomputed, [f32(8, 8)] * 3, f32(BATCH, 8))
    write("loops", loops, f32(4, 8, 8), i32(), f32(3, 8))
    write_language_model()
    write("spectral", spectral, shape((5, 5), jnp.complex64), f32(BATCH, 12, 8))
