"""The reference's models in plain TensorFlow: layers, SGD, and data parallelism over processes.

Activations are N×H×W×C and kernels H×W×I×O, the only layouts of its convolutions on CPUs; weights
enter and leave in the reference's layout. Operations are counted on a concrete function's graph.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.frameworks.backend import MOMENTUM, Arrays, Description, Setting, State
from ai500.frameworks.tensorflow_graph import trace_graph
from ai500.frameworks.tensorflow_ranks import Ranks
from ai500.frameworks.tensorflow_setup import start, tf
from ai500.operations import Trace
from ai500.workloads import image_arrays
from ai500.workloads.models.resnet_layers import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    ResNet,
    parameters,
)

Tensor = Any
Tree = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]
"""Inputs, labels."""

PRODUCTS = {
    "fp32": "IEEE FP32",
    "mixed-bf16": "BF16 inputs, FP32 sums; batch norm's statistics, loss and update in FP32",
}


def convolution(x: Tensor, kernel: Tensor, *, stride: int, name: str) -> Tensor:
    """Convolve, padded by half of the kernel."""
    pad = kernel.shape[0] // 2
    padding = [[0, 0], [pad, pad], [pad, pad], [0, 0]] if pad else "VALID"
    return tf.nn.conv2d(x, tf.cast(kernel, x.dtype), stride, padding, name=name)


def batch_norm(
    x: Tensor, affine: tuple[Tensor, Tensor], running: tuple[Tensor, Tensor], *, name: str
) -> Tensor:
    """Normalize each channel by the running statistics, in the statistics' type."""
    if x.dtype == tf.float64:
        return _normalized(x, affine, *running)
    return _fused_batch_norm(x, affine, running, training=False, name=name)[0]


def batch_norm_training(
    x: Tensor, affine: tuple[Tensor, Tensor], running: tuple[Tensor, Tensor], *, name: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize by the batch's statistics; return also the new running ones."""
    if x.dtype != tf.float64:
        return _fused_batch_norm(x, affine, running, training=True, name=name)[:3]
    # The fused operator has no FP64, which only tests of equivalence use.
    mean, variance = tf.nn.moments(x, (0, 1, 2))
    count, rate = np.prod(x.shape[:-1]), BATCH_NORM_MOMENTUM
    unbiased_rate = rate * count / max(1, count - 1)
    return (
        _normalized(x, affine, mean, variance),
        (1 - rate) * running[0] + rate * mean,
        (1 - rate) * running[1] + unbiased_rate * variance,
    )


def _fused_batch_norm(
    x: Tensor,
    affine: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor],
    *,
    training: bool,
    name: str,
) -> tuple[Tensor, ...]:
    """Call the fused operator; its running variance is the unbiased one, as the reference's."""
    results: tuple[Tensor, ...] = tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=affine[0],
        offset=affine[1],
        mean=running[0],
        variance=running[1],
        epsilon=BATCH_NORM_EPSILON,
        exponential_avg_factor=BATCH_NORM_MOMENTUM if training else 1.0,
        is_training=training,
        name=name,
    )
    return results


def _normalized(x: Tensor, affine: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    return (x - mean) * (affine[0] * tf.math.rsqrt(variance + BATCH_NORM_EPSILON)) + affine[1]


class TensorFlowLayers:
    """The layers of a ResNet on tensors; collects new running statistics in training."""

    def __init__(self, weights: Tree, statistics: Tree, *, training: bool) -> None:
        self._weights = weights
        self._statistics = statistics
        self._training = training
        self.new_statistics: Tree = {}

    def convolution(
        self, x: Tensor, name: str, *, channels: int, kernel: int, stride: int
    ) -> Tensor:
        """Convolve to `channels`."""
        return convolution(x, self._weights[f"{name}.weight"], stride=stride, name=name)

    def batch_norm(self, x: Tensor, name: str) -> Tensor:
        """Normalize by the batch's statistics in training, by the running ones otherwise."""
        affine = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        names = f"{name}.running_mean", f"{name}.running_var"
        running = self._statistics[names[0]], self._statistics[names[1]]
        if not self._training:
            return batch_norm(x, affine, running, name=name)
        out, *new = batch_norm_training(x, affine, running, name=name)
        self.new_statistics.update(zip(names, new, strict=True))
        return out

    def relu(self, x: Tensor) -> Tensor:
        """Return max(x, 0)."""
        return tf.nn.relu(x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the shortcut."""
        return x + y

    def max_pool(self, x: Tensor) -> Tensor:
        """Take the maximum of 3×3 windows, stride 2."""
        return tf.nn.max_pool2d(x, 3, 2, [[0, 0], [1, 1], [1, 1], [0, 0]])

    def average_pool(self, x: Tensor) -> Tensor:
        """Average over all pixels."""
        return tf.reduce_mean(x, (1, 2))

    def dense(self, x: Tensor, name: str, *, units: int) -> Tensor:
        """Multiply by the weight transposed and add the bias."""
        weight, bias = (
            tf.cast(self._weights[f"{name}.{leaf}"], x.dtype) for leaf in ("weight", "bias")
        )
        return tf.nn.bias_add(tf.matmul(x, weight, transpose_b=True, name=name), bias)


def scores(
    model: ResNet, weights: Tree, statistics: Tree, inputs: Tensor, *, training: bool
) -> tuple[Tensor, Tree]:
    """Compute the class scores; return also the running statistics after this batch."""
    layers = TensorFlowLayers(weights, statistics, training=training)
    return model.forward(layers, inputs), layers.new_statistics


def trace_model(model: ResNet, shape: tuple[int, ...], *, dtype: Any) -> Trace:
    """Trace the training forward pass of a model on inputs N×C×H×W; no kernel runs."""
    batch, channels, height, width = shape
    weights, statistics = (
        {
            parameter.name: tf.TensorSpec(_to_kernel(parameter.shape), tf.float32)
            for parameter in parameters(model)
            if parameter.trained == trained
        }
        for trained in (True, False)
    )
    inputs = tf.TensorSpec((batch, height, width, channels), dtype)

    def forward(weights: Tree, statistics: Tree, inputs: Tensor) -> tuple[Tensor, Tree]:
        return scores(model, weights, statistics, inputs, training=True)

    graph = (
        tf.function(forward, autograph=False)
        .get_concrete_function(weights, statistics, inputs)
        .graph
    )
    # The arguments come in order, so the weights first.
    trained = [tensor.op.name for tensor in graph.inputs[: len(weights)]]
    return trace_graph(graph, parameters=trained, batch=batch)


def _to_kernel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Change a convolution's shape from O×I×H×W to H×W×I×O."""
    return (*shape[2:], shape[1], shape[0]) if len(shape) == 4 else shape


def cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float) -> Tensor:
    """Compute the mean cross entropy with smoothed labels, in at least FP32."""
    logits = logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)
    log_probabilities = tf.nn.log_softmax(logits)
    chosen = tf.gather(log_probabilities, labels, axis=1, batch_dims=1)
    everywhere = tf.reduce_mean(log_probabilities, axis=1)
    return -tf.reduce_mean((1 - smoothing) * chosen + smoothing * everywhere)


def sgd(
    weights: Tree, momenta: Tree, gradients: Tree, *, rate: Tensor, momentum: float, decay: float
) -> None:
    """Update as `torch.optim.SGD`: decay in the gradient, the rate outside of the momentum."""
    for name, weight in weights.items():
        # v = momentum·v + g; w −= rate·v, in place.
        tf.raw_ops.ResourceApplyMomentum(
            var=weight.handle,
            accum=momenta[name].handle,
            lr=rate,
            grad=gradients[name] + decay * weight,
            momentum=tf.constant(momentum, weight.dtype),
        )


def compute_type(setting: Setting) -> Any:
    """Return the type of activations and products."""
    precision = setting.hyperparameters.precision
    return tf.bfloat16 if precision == "mixed-bf16" else tf.as_dtype(setting.dtype)


class TensorFlowBackend:
    """One rank's model, optimizer and communication; a `Backend`."""

    def __init__(self, setting: Setting, ranks: Ranks) -> None:
        self._setting = setting
        self._ranks = ranks
        self._model = setting.model
        self._type = np.dtype(setting.dtype)
        arrays = self._arrays(setting.weights)
        variables = {name: tf.Variable(array) for name, array in arrays.items()}
        self._weights: Tree = {n: v for n, v in variables.items() if ".running_" not in n}
        self._statistics: Tree = {n: v for n, v in variables.items() if ".running_" in n}
        self._momenta: Tree = {
            name: tf.Variable(np.zeros_like(arrays[name])) for name in self._weights
        }
        self._step = tf.function(self._run_step, autograph=False)
        self._predict = tf.function(self._probabilities, autograph=False)

    def place(self, fields: Arrays, draws: NDArray[np.float32]) -> Batch:
        """Augment a batch on the host."""
        inputs = image_arrays.train_inputs(
            np, self._setting.problem_class, fields["images"], draws, dtype=self._setting.dtype
        )
        return tf.constant(inputs), tf.constant(fields["labels"].astype(np.int32))

    def train_step(self, batch: Batch, *, learning_rate: float) -> Any:
        """Train on a placed batch."""
        return self._step(*batch, tf.constant(learning_rate, self._type))

    def _run_step(self, inputs: Tensor, labels: Tensor, rate: Tensor) -> Tensor:
        return self._ranks.run(self._replica_step, (inputs, labels, rate))

    def _replica_step(self, inputs: Tensor, labels: Tensor, rate: Tensor) -> Tensor:
        """Compute gradients on this rank's batch, average them, update; return the loss."""
        hyper, weights = self._setting.hyperparameters, self._weights
        with tf.GradientTape() as tape:
            logits, new_statistics = scores(
                self._model, weights, self._statistics,
                tf.cast(inputs, compute_type(self._setting)), training=True,
            )  # fmt: skip
            loss = cross_entropy(logits, labels, smoothing=hyper.label_smoothing)
        gradients = self._ranks.mean(tape.gradient(loss, list(weights.values())))
        sgd(
            weights, self._momenta, dict(zip(weights, gradients, strict=True)),
            rate=rate, momentum=hyper.momentum, decay=hyper.weight_decay,
        )  # fmt: skip
        for name, value in new_statistics.items():
            self._statistics[name].assign(value)
        return loss

    def predict(self, fields: Arrays) -> NDArray[np.float32]:
        """Return the class probabilities of stored images."""
        inputs = image_arrays.evaluation_inputs(
            np, self._setting.problem_class, fields["images"], dtype=self._setting.dtype
        )
        return np.asarray(self._predict(tf.constant(inputs)))

    def _probabilities(self, inputs: Tensor) -> Tensor:
        logits, _ = scores(
            self._model, self._weights, self._statistics,
            tf.cast(inputs, compute_type(self._setting)), training=False,
        )  # fmt: skip
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    def use_first_statistics(self) -> None:
        """Replace this rank's running statistics by rank 0's."""
        if self._ranks.several:
            variables = list(self._statistics.values())
            own = np.concatenate([variable.numpy() for variable in variables])
            ends = np.cumsum([variable.shape[0] for variable in variables])[:-1]
            first = np.split(self.gather(own[None])[0], ends)
            for variable, array in zip(variables, first, strict=True):
                variable.assign(array)

    def state(self) -> State:
        """Return weights, statistics and momenta under the reference's names and layouts."""
        variables = self._weights | self._statistics
        variables |= {MOMENTUM + name: variable for name, variable in self._momenta.items()}
        return {name: _to_reference(variable.numpy()) for name, variable in variables.items()}

    def load_state(self, state: State) -> None:
        """Replace weights, statistics and momenta; momenta that are missing become zero."""
        arrays = self._arrays(state)
        for name, variable in (self._weights | self._statistics).items():
            variable.assign(arrays[name])
        for name, variable in self._momenta.items():
            variable.assign(arrays.get(MOMENTUM + name, np.zeros_like(arrays[name])))

    def trace(self, *, batch: int) -> Trace:
        """Trace the graph of the model's forward pass."""
        shape = (batch, *self._setting.problem_class.input_shape)
        compute = compute_type(self._setting)
        # Batch norm is one operator in every type that is trained with, not in FP64.
        return trace_model(
            self._model, shape, dtype=tf.float32 if compute == tf.float64 else compute
        )

    def trace_step(self, *, batch: int) -> Trace:
        """Trace the whole training step that runs: gradients and update included."""
        channels, height, width = self._setting.problem_class.input_shape
        graph = self._step.get_concrete_function(
            tf.TensorSpec((batch, height, width, channels), self._type),
            tf.TensorSpec((batch,), tf.int32),
            tf.TensorSpec((), self._type),
        ).graph
        return trace_graph(graph, parameters=[], batch=batch)

    def mean(self, value: float) -> float:
        """Average a value over the ranks, in FP64."""
        return float(self.gather(np.array([value])).mean())

    def broadcast(self, value: int) -> int:
        """Return rank 0's value on every rank."""
        return int(self.gather(np.array([value]))[0])

    def gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Concatenate the rows of all ranks."""
        return self._ranks.gather(rows) if self._ranks.several else rows

    def describe(self) -> Description:
        """Describe TensorFlow's version, precision, communication and device."""
        precision, several = self._setting.hyperparameters.precision, self._ranks.several
        return Description(
            framework={
                "name": "tensorflow",
                "version": tf.__version__,
                "compiled": False,  # graphs without XLA
                "deterministic": True,
                "initial_weights": "the reference's draws, by NumPy",
            },
            numerics={
                "precision": precision,
                "products": PRODUCTS[precision],
                "parameter_dtypes": [f"tensorflow.{self._type.name}"],
                "tf32": None,
            },
            communication={
                "backend": "grpc" if several else None,
                "version": None,
                "mode": "all_reduce" if several else None,
                "precision": "fp32" if several else None,
            },
            optimizer_class=f"{sgd.__module__}.{sgd.__qualname__}",
            device_name=platform.machine(),
            versions={"tensorflow": tf.__version__},
        )

    def close(self) -> None:
        """Leave the ranks' group."""

    def _arrays(self, state: State) -> dict[str, NDArray[Any]]:
        return {name: _from_reference(array.astype(self._type)) for name, array in state.items()}


def _from_reference(array: NDArray[Any]) -> NDArray[Any]:
    """Change a convolution's kernel from O×I×H×W to H×W×I×O."""
    return np.ascontiguousarray(array.transpose(2, 3, 1, 0)) if array.ndim == 4 else array


def _to_reference(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.transpose(3, 2, 0, 1)) if array.ndim == 4 else array


def make_backend(setting: Setting) -> TensorFlowBackend:
    """Join the member's ranks and build the model on this rank's device."""
    start(setting)
    return TensorFlowBackend(setting, Ranks(setting.rank))
