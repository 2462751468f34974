"""The reference's models in plain JAX: layers, SGD, and data parallelism over processes.

Activations are N×H×W×C and kernels H×W×I×O, the layouts that XLA convolves fastest; weights enter
and leave in the reference's layout. Operations are counted on the StableHLO that XLA compiles.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.frameworks.backend import MOMENTUM, Arrays, Description, Setting, State, cpu_name
from ai500.frameworks.jax_setup import jax, jnp
from ai500.operations import Trace
from ai500.operations.graph import channels_first
from ai500.operations.stablehlo import trace_stablehlo
from ai500.records import ProblemClass
from ai500.workloads import image_arrays
from ai500.workloads.models.resnet_layers import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    ResNet,
    parameters,
)

lax = jax.lax
Array = Any
Tree = dict[str, Array]
Batch = tuple[Array, Array, Array]
"""Stored images, labels, draws."""

AXIS = "data"
_KERNEL_LAYOUT = ("NHWC", "HWIO", "NHWC")
PRECISION_OF_PRODUCTS = {"fp32": "highest", "tf32": "tensorfloat32", "mixed-bf16": "default"}
"""train.precision → jax_default_matmul_precision, which convolutions follow too."""
PRODUCTS = {
    "fp32": "IEEE FP32",
    "tf32": "TF32 inputs, FP32 sums",
    "mixed-bf16": "BF16 inputs, FP32 sums; batch norm's statistics, loss and update in FP32",
}


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


def sgd(
    weights: Tree, momenta: Tree, gradients: Tree, *, rate: Array, momentum: float, decay: float
) -> tuple[Tree, Tree]:
    """Update as `torch.optim.SGD`: decay in the gradient, the rate outside of the momentum."""
    new_weights, new_momenta = {}, {}
    for name, weight in weights.items():
        gradient = gradients[name] + decay * weight
        new_momenta[name] = momentum * momenta[name] + gradient
        new_weights[name] = weight - rate * new_momenta[name]
    return new_weights, new_momenta


def training_step(setting: Setting, *, axis: str | None) -> Callable[..., Any]:
    """Return the step of one rank: weights, statistics, momenta, batch, rate → new ones, loss."""
    model, hyper = setting.model, setting.hyperparameters
    compute = compute_type(setting)

    def step(
        weights: Tree, statistics: Tree, momenta: Tree, batch: Batch, rate: Array
    ) -> tuple[Tree, Tree, Tree, Array]:
        images, labels, draws = batch
        inputs = image_arrays.train_inputs(
            jnp, setting.problem_class, images, draws, dtype=setting.dtype
        )

        def loss_of(weights: Tree) -> tuple[Array, Tree]:
            logits, new = scores(model, weights, statistics, inputs.astype(compute), training=True)
            return cross_entropy(logits, labels, smoothing=hyper.label_smoothing), new

        (loss, new_statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
        if axis is not None:
            gradients = lax.pmean(gradients, axis)
        new_weights, new_momenta = sgd(
            weights, momenta, gradients,
            rate=rate, momentum=hyper.momentum, decay=hyper.weight_decay,
        )  # fmt: skip
        return new_weights, new_statistics, new_momenta, loss

    return step


def compute_type(setting: Setting) -> Any:
    """Return the type of activations and products."""
    return jnp.bfloat16 if setting.hyperparameters.precision == "mixed-bf16" else setting.dtype


class JaxBackend:
    """One rank's model, optimizer and communication; a `Backend`."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._model = setting.model
        self._device = jax.local_devices()[0]
        self._several = setting.rank.world_size > 1
        self._type = np.dtype(setting.dtype)
        self._weights: Tree = {}
        self._statistics: Tree = {}
        self._momenta: Tree = {}
        if self._several:
            self._mesh = jax.sharding.Mesh(np.array(jax.devices()), (AXIS,))
            shard, whole = jax.P(AXIS), jax.P()
            self._shard = jax.sharding.NamedSharding(self._mesh, shard)
            self._whole = jax.sharding.NamedSharding(self._mesh, whole)
            step = jax.shard_map(
                _on_shards(training_step(setting, axis=AXIS)),
                mesh=self._mesh,
                in_specs=(whole, shard, whole, shard, whole),
                out_specs=(whole, shard, whole, shard),
                check_vma=False,  # gradients are averaged explicitly
            )
        else:
            step = training_step(setting, axis=None)
        self._step = jax.jit(step, donate_argnums=(0, 1, 2))
        self._predict = jax.jit(functools.partial(_probabilities, setting.problem_class, setting))
        self.load_state(setting.weights)

    def place(self, fields: Arrays, draws: NDArray[np.float32]) -> Batch:
        """Start to copy a batch to the device."""
        put = self._sharded
        return put(fields["images"]), put(fields["labels"].astype(np.int32)), put(draws)

    def train_step(self, batch: Batch, *, learning_rate: float) -> Any:
        """Train on a placed batch; the host does not wait."""
        rate = self._type.type(learning_rate)
        self._weights, self._statistics, self._momenta, loss = self._step(
            self._weights, self._statistics, self._momenta, batch, rate
        )
        return _LocalScalar(loss) if self._several else loss

    def predict(self, fields: Arrays) -> NDArray[np.float32]:
        """Return the class probabilities of stored images."""
        local = self._local
        images = jax.device_put(fields["images"], self._device)
        rows = self._predict(local(self._weights), local(self._statistics), images)
        return np.asarray(rows)

    def use_first_statistics(self) -> None:
        """Replace this rank's running statistics by rank 0's."""
        if self._several:
            from jax.experimental import multihost_utils

            own = {name: np.asarray(value) for name, value in self._local(self._statistics).items()}
            self._put_statistics(multihost_utils.broadcast_one_to_all(own))

    def state(self) -> State:
        """Return weights, statistics and momenta under the reference's names and layouts."""
        state = {**self._local(self._weights), **self._local(self._statistics)}
        state |= {MOMENTUM + name: value for name, value in self._local(self._momenta).items()}
        return {name: _to_reference(np.asarray(value)) for name, value in state.items()}

    def load_state(self, state: State) -> None:
        """Replace weights, statistics and momenta; momenta that are missing become zero."""
        arrays = {name: _from_reference(value.astype(self._type)) for name, value in state.items()}
        weights = {name for name in arrays if not name.startswith(MOMENTUM)}
        statistics = {name for name in weights if ".running_" in name}
        put = self._replicated
        self._weights = {name: put(arrays[name]) for name in sorted(weights - statistics)}
        self._momenta = {
            name: put(arrays.get(MOMENTUM + name, np.zeros_like(arrays[name])))
            for name in self._weights
        }
        self._put_statistics({name: arrays[name] for name in sorted(statistics)})

    def trees(self) -> tuple[Tree, Tree, Tree]:
        """Return weights, running statistics and momenta of this rank."""
        local = self._local
        return local(self._weights), local(self._statistics), local(self._momenta)

    def trace(self, *, batch: int) -> Trace:
        """Trace the graph of the model's forward pass."""
        shape = (batch, *self._setting.problem_class.input_shape)
        return trace_model(self._model, shape, dtype=compute_type(self._setting))

    def mean(self, value: float) -> float:
        """Average a value over the ranks, in FP64."""
        # JAX has no FP64 by default: the bits travel as integers.
        bits = self.gather(np.array([value]).view(np.int32)[None])
        return float(bits.reshape(-1).view(np.float64).mean())

    def broadcast(self, value: int) -> int:
        """Return rank 0's value on every rank."""
        return int(self.gather(np.array([[value]], dtype=np.int32))[0, 0])

    def gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Concatenate the rows of all ranks."""
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(rows, tiled=True))

    def describe(self) -> Description:
        """Describe JAX's version, precision, communication and device."""
        import jaxlib

        precision = self._setting.hyperparameters.precision
        on_gpu = self._device.platform != "cpu"
        flags = os.environ.get("XLA_FLAGS", "")
        communication = "nccl" if on_gpu else "gloo"
        return Description(
            framework={
                "name": "jax",
                "version": jax.__version__,
                "compiled": True,
                "deterministic": "--xla_gpu_deterministic_ops=true" in flags,
                "xla_flags": flags,
                "initial_weights": "the reference's draws, by NumPy",
            },
            numerics={
                "precision": precision,
                "products": PRODUCTS[precision],
                "parameter_dtypes": [f"jax.{self._type.name}"],
                "tf32": precision == "tf32" if on_gpu else None,
            },
            communication={
                "backend": communication if self._several else None,
                "version": None,
                "mode": "all_reduce" if self._several else None,
                "precision": "fp32" if self._several else None,
            },
            optimizer_class=f"{sgd.__module__}.{sgd.__qualname__}",
            device_name=self._device.device_kind if on_gpu else cpu_name(),
            versions={"jax": jax.__version__, "jaxlib": jaxlib.__version__},
        )

    def close(self) -> None:
        """Leave the ranks' group."""
        if self._several:
            jax.distributed.shutdown()

    def _sharded(self, array: NDArray[Any]) -> Array:
        if self._several:
            return jax.make_array_from_process_local_data(self._shard, array)
        return jax.device_put(array, self._device)

    def _replicated(self, array: NDArray[Any]) -> Array:
        if self._several:
            return jax.make_array_from_process_local_data(self._whole, array, array.shape)
        return jax.device_put(array, self._device)

    def _put_statistics(self, statistics: dict[str, NDArray[Any]]) -> None:
        # Each rank has its own: with several, they are rows of one array.
        self._statistics = {
            name: self._sharded(np.asarray(value)[None] if self._several else value)
            for name, value in statistics.items()
        }

    def _local(self, tree: Tree) -> Tree:
        """Return this rank's part: its row of sharded arrays, replicated ones whole."""
        if not self._several:
            return tree
        parts = {name: value.addressable_data(0) for name, value in tree.items()}
        return {name: part[0] if ".running_" in name else part for name, part in parts.items()}


class _LocalScalar:
    """This rank's element of a sharded scalar."""

    def __init__(self, value: Array) -> None:
        self._value = value

    def __float__(self) -> float:
        return float(np.asarray(self._value.addressable_data(0))[0])


def _on_shards(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a rank's step: its statistics and its loss are rows of global arrays."""

    def sharded(weights: Tree, statistics: Tree, *rest: Any) -> Any:
        own = {name: value[0] for name, value in statistics.items()}
        new_weights, new_statistics, momenta, loss = step(weights, own, *rest)
        rows = {name: value[None] for name, value in new_statistics.items()}
        return new_weights, rows, momenta, loss[None]

    return sharded


def _probabilities(
    problem_class: ProblemClass, setting: Setting, weights: Tree, statistics: Tree, images: Array
) -> Array:
    inputs = image_arrays.evaluation_inputs(jnp, problem_class, images, dtype=setting.dtype)
    model, compute = setting.model, compute_type(setting)
    logits, _ = scores(model, weights, statistics, inputs.astype(compute), training=False)
    return jax.nn.softmax(logits.astype(jnp.float32))


def _from_reference(array: NDArray[Any]) -> NDArray[Any]:
    """Change a convolution's kernel from O×I×H×W to H×W×I×O."""
    return np.ascontiguousarray(array.transpose(2, 3, 1, 0)) if array.ndim == 4 else array


def _to_reference(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.transpose(3, 2, 0, 1)) if array.ndim == 4 else array


def make_backend(setting: Setting) -> JaxBackend:
    """Join the member's ranks and build the model on this rank's device."""
    from ai500.frameworks.jax_setup import start

    start(setting, precision=PRECISION_OF_PRODUCTS[setting.hyperparameters.precision])
    return JaxBackend(setting)
