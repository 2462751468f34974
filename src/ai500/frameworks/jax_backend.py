"""Members in JAX: SGD and AdamW, the training step of a model, and data parallelism over processes.

Weights enter and leave in the reference's layout. Operations are counted on the StableHLO that XLA
compiles. The state of an optimizer is a flat tree under the names of checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ai500.frameworks.backend import (
    MOMENTUM,
    Arrays,
    Description,
    Setting,
    State,
    adam_epsilon,
    cpu_name,
)
from ai500.frameworks.class_models import LANGUAGE_MODEL
from ai500.frameworks.jax_resnet import cross_entropy, scores, trace_model
from ai500.frameworks.jax_setup import jax, jnp
from ai500.frameworks.jax_transformer import log_probabilities, trace_transformer
from ai500.operations import Trace
from ai500.records import Hyperparameters
from ai500.workloads import image_arrays
from ai500.workloads.models.transformer_plan import SHAPES

lax = jax.lax
Array = Any
Tree = dict[str, Array]
Batch = tuple[Array, ...]
"""Stored images, labels, draws; or tokens."""

AXIS = "data"
PRECISION_OF_PRODUCTS = {"fp32": "highest", "tf32": "tensorfloat32", "mixed-bf16": "default"}
"""train.precision → jax_default_matmul_precision, which convolutions follow too."""
PRODUCTS = {
    "fp32": "IEEE FP32",
    "tf32": "TF32 inputs, FP32 sums",
    "mixed-bf16": "BF16 inputs, FP32 sums; batch norm's statistics, loss and update in FP32",
}
SQUARE = f"{MOMENTUM}square."
"""Prefix of the running means of squared gradients."""
UPDATES = f"{MOMENTUM}updates"
"""Name of the number of updates."""


class Optimizer(NamedTuple):
    """Initial state and update of an optimizer."""

    initial: Callable[[Mapping[str, NDArray[Any]]], State]
    """Return the state for these weights before the first update."""
    update: Callable[..., tuple[Tree, Tree]]
    """Return new weights and state; arguments: weights, state, gradients, rate, settings."""


def sgd(
    weights: Tree, state: Tree, gradients: Tree, rate: Array, hyper: Hyperparameters
) -> tuple[Tree, Tree]:
    """Update as `torch.optim.SGD`: decay in the gradient, the rate outside of the momentum."""
    new_weights, new_state = {}, {}
    for name, weight in weights.items():
        gradient = gradients[name] + hyper.weight_decay * weight
        momentum = hyper.momentum * state[MOMENTUM + name] + gradient
        new_state[MOMENTUM + name] = momentum
        new_weights[name] = weight - rate * momentum
    return new_weights, new_state


def adamw(
    weights: Tree, state: Tree, gradients: Tree, rate: Array, hyper: Hyperparameters
) -> tuple[Tree, Tree]:
    """Update as `torch.optim.AdamW`: decay apart from the gradient, both moments corrected."""
    first_rate, second_rate = hyper.betas
    updates = state[UPDATES] + 1
    first_correction = 1 - jnp.power(first_rate, updates)
    second_correction = jnp.sqrt(1 - jnp.power(second_rate, updates))
    new_weights, new_state = {}, {UPDATES: updates}
    for name, weight in weights.items():
        gradient = gradients[name]
        first = first_rate * state[MOMENTUM + name] + (1 - first_rate) * gradient
        square = second_rate * state[SQUARE + name] + (1 - second_rate) * gradient * gradient
        denominator = jnp.sqrt(square) / second_correction + adam_epsilon(hyper)
        decayed = weight * (1 - rate * hyper.weight_decay)
        new_weights[name] = decayed - rate / first_correction * first / denominator
        new_state |= {MOMENTUM + name: first, SQUARE + name: square}
    return new_weights, new_state


def _initial_sgd(weights: Mapping[str, NDArray[Any]]) -> State:
    return {MOMENTUM + name: np.zeros_like(weight) for name, weight in weights.items()}


def _initial_adamw(weights: Mapping[str, NDArray[Any]]) -> State:
    squares = {SQUARE + name: np.zeros_like(weight) for name, weight in weights.items()}
    dtype = next(iter(weights.values())).dtype
    return {**_initial_sgd(weights), **squares, UPDATES: np.zeros((), dtype)}


OPTIMIZERS = {"sgd": Optimizer(_initial_sgd, sgd), "adamw": Optimizer(_initial_adamw, adamw)}
"""train.optimizer → the optimizer."""


class ResNetNetwork:
    """The ResNet of image classification: its batches, loss and predictions."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def batch(self, fields: Arrays, draws: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
        """Return the arrays of a training batch."""
        return fields["images"], fields["labels"].astype(np.int32), draws

    def loss(self, weights: Tree, statistics: Tree, batch: Batch) -> tuple[Array, Tree]:
        """Compute the mean loss of a batch, and the running statistics after it."""
        setting = self._setting
        images, labels, draws = batch
        inputs = image_arrays.train_inputs(
            jnp, setting.problem_class, images, draws, dtype=setting.dtype
        )
        inputs = inputs.astype(compute_type(setting))
        logits, new = scores(setting.model, weights, statistics, inputs, training=True)
        smoothing = setting.hyperparameters.label_smoothing
        return cross_entropy(logits, labels, smoothing=smoothing), new

    def inputs(self, fields: Arrays) -> NDArray[Any]:
        """Return the array that predictions are made from."""
        return fields["images"]

    def predictions(self, weights: Tree, statistics: Tree, images: Array) -> Array:
        """Compute class probabilities."""
        setting = self._setting
        inputs = image_arrays.evaluation_inputs(
            jnp, setting.problem_class, images, dtype=setting.dtype
        )
        inputs = inputs.astype(compute_type(setting))
        logits, _ = scores(setting.model, weights, statistics, inputs, training=False)
        return jax.nn.softmax(logits.astype(jnp.float32))

    def trace(self, *, batch: int) -> Trace:
        """Trace the graph of the model's forward pass."""
        setting = self._setting
        shape = (batch, *setting.problem_class.input_shape)
        return trace_model(setting.model, shape, dtype=compute_type(setting))


class TransformerNetwork:
    """The transformer of the language model: its batches, loss and predictions."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._shape = SHAPES[setting.problem_class.name]

    def batch(self, fields: Arrays, draws: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
        """Return the arrays of a training batch."""
        return (fields["tokens"].astype(np.int32),)

    def loss(self, weights: Tree, statistics: Tree, batch: Batch) -> tuple[Array, Tree]:
        """Compute the mean cross entropy in nats per token; there are no running statistics."""
        return -self._log_probabilities(weights, batch[0]).mean(), statistics

    def inputs(self, fields: Arrays) -> NDArray[Any]:
        """Return the array that predictions are made from."""
        return fields["tokens"].astype(np.int32)

    def predictions(self, weights: Tree, statistics: Tree, tokens: Array) -> Array:
        """Compute the probabilities of the true tokens [samples, context]."""
        return jnp.exp(self._log_probabilities(weights, tokens).astype(jnp.float32))

    def trace(self, *, batch: int) -> Trace:
        """Trace the graph of the model's forward pass."""
        compute = compute_type(self._setting)
        return trace_transformer(self._shape, batch=batch, dtype=jnp.float32, compute=compute)

    def _log_probabilities(self, weights: Tree, tokens: Array) -> Array:
        compute = compute_type(self._setting)
        return log_probabilities(self._shape, weights, tokens, compute=compute)


Network = ResNetNetwork | TransformerNetwork


def network_of(setting: Setting) -> Network:
    """Return the model of the workload."""
    is_transformer = setting.workload == LANGUAGE_MODEL
    return TransformerNetwork(setting) if is_transformer else ResNetNetwork(setting)


def training_step(setting: Setting, *, axis: str | None) -> Callable[..., Any]:
    """Return the step of one rank: weights, statistics, optimizer state, batch, rate → new ones,
    loss."""
    network, hyper = network_of(setting), setting.hyperparameters
    update = OPTIMIZERS[hyper.optimizer].update

    def step(weights: Tree, statistics: Tree, state: Tree, batch: Batch, rate: Array) -> Any:
        def loss_of(weights: Tree) -> tuple[Array, Tree]:
            return network.loss(weights, statistics, batch)

        (loss, new_statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
        if axis is not None:
            gradients = lax.pmean(gradients, axis)
        new_weights, new_state = update(weights, state, gradients, rate, hyper)
        return new_weights, new_statistics, new_state, loss

    return step


def compute_type(setting: Setting) -> Any:
    """Return the type of activations and products."""
    return jnp.bfloat16 if setting.hyperparameters.precision == "mixed-bf16" else setting.dtype


class JaxBackend:
    """One rank's model, optimizer and communication; a `Backend`."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._network = network_of(setting)
        self._optimizer = OPTIMIZERS[setting.hyperparameters.optimizer]
        self._device = jax.local_devices()[0]
        self._several = setting.rank.world_size > 1
        self._type = np.dtype(setting.dtype)
        self._weights: Tree = {}
        self._statistics: Tree = {}
        self._optimizer_state: Tree = {}
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
        self._predict = jax.jit(self._network.predictions)
        self.load_state(setting.weights)

    def place(self, fields: Arrays, draws: NDArray[np.float32]) -> Batch:
        """Start to copy a batch to the device."""
        return tuple(map(self._sharded, self._network.batch(fields, draws)))

    def train_step(self, batch: Batch, *, learning_rate: float) -> Any:
        """Train on a placed batch; the host does not wait."""
        rate = self._type.type(learning_rate)
        self._weights, self._statistics, self._optimizer_state, loss = self._step(
            self._weights, self._statistics, self._optimizer_state, batch, rate
        )
        return _LocalScalar(loss) if self._several else loss

    def predict(self, fields: Arrays) -> NDArray[np.float32]:
        """Return the predictions for stored samples."""
        local = self._local
        inputs = jax.device_put(self._network.inputs(fields), self._device)
        rows = self._predict(local(self._weights), local(self._statistics), inputs)
        return np.asarray(rows)

    def use_first_statistics(self) -> None:
        """Replace this rank's running statistics by rank 0's."""
        if self._several and self._statistics:
            from jax.experimental import multihost_utils

            own = {name: np.asarray(value) for name, value in self._local(self._statistics).items()}
            self._put_statistics(multihost_utils.broadcast_one_to_all(own))

    def state(self) -> State:
        """Return weights, statistics and optimizer state under the reference's names."""
        trees = (self._weights, self._statistics, self._optimizer_state)
        state = {name: value for tree in trees for name, value in self._local(tree).items()}
        return {name: _to_reference(np.asarray(value)) for name, value in state.items()}

    def load_state(self, state: State) -> None:
        """Replace weights, statistics and optimizer state; what is missing of it is initial."""
        arrays = {name: _from_reference(value.astype(self._type)) for name, value in state.items()}
        weights = {name for name in arrays if not name.startswith(MOMENTUM)}
        statistics = {name for name in weights if ".running_" in name}
        put = self._replicated
        trained = {name: arrays[name] for name in sorted(weights - statistics)}
        self._weights = {name: put(array) for name, array in trained.items()}
        self._optimizer_state = {
            name: put(arrays.get(name, initial))
            for name, initial in self._optimizer.initial(trained).items()
        }
        self._put_statistics({name: arrays[name] for name in sorted(statistics)})

    def trees(self) -> tuple[Tree, Tree, Tree]:
        """Return weights, running statistics and optimizer state of this rank."""
        local = self._local
        return local(self._weights), local(self._statistics), local(self._optimizer_state)

    def trace(self, *, batch: int) -> Trace:
        """Trace the graph of the model's forward pass."""
        return self._network.trace(batch=batch)

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

        precision, update = self._setting.hyperparameters.precision, self._optimizer.update
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
            optimizer_class=f"{update.__module__}.{update.__qualname__}",
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
