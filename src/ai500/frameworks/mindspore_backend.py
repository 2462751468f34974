"""The reference's models in MindSpore: cells, SGD, and data parallelism over processes, on CPUs.

Activations are N×C×H×W and kernels O×I×H×W, as the reference's. MindSpore compiles the Python of
`construct` and of the functions that it calls (graph mode). Operations are counted on MindIR.
"""

from __future__ import annotations

import os
from typing import Any

# MindSpore prints its advice to the member's log unless this is set before the import.
os.environ.setdefault("GLOG_v", "3")
# With AVX-512, oneDNN runs its reference convolution on N×C×H×W: 50 times slower than with AVX2
# (docs/frameworks.md). oneDNN reads this when it is loaded.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore._c_expression import RuntimeConf
from numpy.typing import NDArray

from ai500.frameworks.backend import MOMENTUM, Arrays, Description, Setting, State
from ai500.frameworks.mindspore_graph import trace_mindir
from ai500.frameworks.mindspore_ranks import LIBRARY, Ranks
from ai500.operations import Trace
from ai500.workloads import image_arrays
from ai500.workloads.models.resnet_layers import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    ResNet,
    parameters,
)

Tensor = Any
Batch = tuple[Tensor, Tensor]
"""Inputs of the model, and the distribution of each sample's class."""


class Convolution(nn.Cell):
    """A convolution without bias, padded by half of the kernel."""

    def __init__(self, weight: Tensor, stride: int) -> None:
        super().__init__()
        channels, _, kernel, _ = weight.shape
        self.weight = weight
        self.convolve = ops.Conv2D(channels, kernel, pad_mode="pad", pad=kernel // 2, stride=stride)

    def construct(self, x: Tensor, training: bool) -> Tensor:
        """Convolve."""
        return self.convolve(x, self.weight)


class BatchNorm(nn.Cell):
    """Batch norm; MindSpore's kernel updates the running statistics by PyTorch's convention."""

    def __init__(self, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.running_mean, self.running_var = mean, variance
        self.by_batch = ops.BatchNorm(
            is_training=True, epsilon=BATCH_NORM_EPSILON, momentum=BATCH_NORM_MOMENTUM
        )
        self.by_running = ops.BatchNorm(is_training=False, epsilon=BATCH_NORM_EPSILON)

    def construct(self, x: Tensor, training: bool) -> Tensor:
        """Normalize by the batch's statistics in training, by the running ones otherwise."""
        if training:
            return self.by_batch(x, self.weight, self.bias, self.running_mean, self.running_var)[0]
        return self.by_running(x, self.weight, self.bias, self.running_mean, self.running_var)[0]


class Relu(nn.Cell):
    """max(x, 0)."""

    def construct(self, x: Tensor, training: bool) -> Tensor:
        """Return max(x, 0)."""
        return ops.relu(x)


class Add(nn.Cell):
    """Addition of the shortcut."""

    def construct(self, x: Tensor, y: Tensor, training: bool) -> Tensor:
        """Add."""
        return x + y


class MaxPool(nn.Cell):
    """Maximum of 3×3 windows, stride 2, padded by 1."""

    def construct(self, x: Tensor, training: bool) -> Tensor:
        """Take the maxima."""
        return ops.max_pool2d(x, 3, 2, 1)


class AveragePool(nn.Cell):
    """Average over all pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = ops.ReduceMean()

    def construct(self, x: Tensor, training: bool) -> Tensor:
        """Average."""
        return self.mean(x, (2, 3))


class Dense(nn.Cell):
    """Product with the weight transposed, plus the bias."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.multiply = ops.MatMul(transpose_b=True)
        self.add_bias = ops.BiasAdd()

    def construct(self, x: Tensor, training: bool) -> Tensor:
        """Multiply and add."""
        return self.add_bias(self.multiply(x, self.weight), self.bias)


class CellBuilder:
    """Layers of a ResNet that append cells; a value is the number of the cell that computes it."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self._weights = weights
        self.cells: list[Any] = []
        self.sources: list[tuple[int, ...]] = []

    def convolution(self, x: int, name: str, *, channels: int, kernel: int, stride: int) -> int:
        """Append a convolution."""
        return self._append(Convolution(self._weights[f"{name}.weight"], stride), x)

    def batch_norm(self, x: int, name: str) -> int:
        """Append a batch norm."""
        leaves = ("weight", "bias", "running_mean", "running_var")
        return self._append(BatchNorm(*(self._weights[f"{name}.{leaf}"] for leaf in leaves)), x)

    def relu(self, x: int) -> int:
        """Append max(x, 0)."""
        return self._append(Relu(), x)

    def add(self, x: int, y: int) -> int:
        """Append the addition of the shortcut."""
        return self._append(Add(), x, y)

    def max_pool(self, x: int) -> int:
        """Append the maximum of windows."""
        return self._append(MaxPool(), x)

    def average_pool(self, x: int) -> int:
        """Append the average over all pixels."""
        return self._append(AveragePool(), x)

    def dense(self, x: int, name: str, *, units: int) -> int:
        """Append a dense layer."""
        weight, bias = (self._weights[f"{name}.{leaf}"] for leaf in ("weight", "bias"))
        return self._append(Dense(weight, bias), x)

    def _append(self, cell: Any, *sources: int) -> int:
        self.cells.append(cell)
        self.sources.append(sources)
        return len(self.cells)


class Network(nn.Cell):
    """The class scores of a ResNet; value 0 is the input, value n the result of cell n − 1."""

    def __init__(self, model: ResNet, weights: dict[str, Tensor]) -> None:
        super().__init__()
        builder = CellBuilder(weights)
        model.forward(builder, 0)
        self.layers = nn.CellList(builder.cells)
        self.sources = tuple(builder.sources)

    def construct(self, x: Tensor, training: bool) -> Tensor:
        """Compute the scores; the compiler unrolls the loop."""
        values: tuple[Tensor, ...] = (x,)
        for index in range(len(self.sources)):
            source = self.sources[index]
            if len(source) == 1:
                value = self.layers[index](values[source[0]], training)
            else:
                value = self.layers[index](values[source[0]], values[source[1]], training)
            values = (*values, value)
        return values[-1]


class TrainingForward(nn.Cell):
    """The forward pass of training, for counting."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def construct(self, x: Tensor) -> Tensor:
        """Compute the scores by the batch's statistics."""
        return self.network(x, True)


class Prediction(nn.Cell):
    """Class probabilities by the running statistics."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def construct(self, x: Tensor) -> Tensor:
        """Compute the probabilities."""
        return ops.softmax(self.network(x, False), 1)


class Loss(nn.Cell):
    """Mean cross entropy with the distributions of the labels."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def construct(self, x: Tensor, distributions: Tensor) -> Tensor:
        """Compute the loss."""
        log_probabilities = ops.log_softmax(self.network(x, True), 1)
        return -(distributions * log_probabilities).sum(1).mean()


def sgd(
    weights: Any, momenta: Any, gradients: Any, rate: Tensor, momentum: float, decay: float
) -> None:
    """Update as `torch.optim.SGD`: decay in the gradient, the rate outside of the momentum."""
    for index in range(len(weights)):
        gradient = gradients[index] + decay * weights[index]
        velocity = momentum * momenta[index] + gradient
        ops.assign(momenta[index], velocity)
        ops.assign(weights[index], weights[index] - rate * velocity)


def mean_gradients(gradients: Any, all_reduce: Any, count: int) -> Any:
    """Average the gradients over the ranks."""
    means: tuple[Tensor, ...] = ()
    for index in range(len(gradients)):
        means = (*means, all_reduce(gradients[index]) / count)
    return means


class TrainingStep(nn.Cell):
    """One optimizer step: loss, gradients, their mean over the ranks, update."""

    def __init__(self, network: Any, trained: Any, momenta: Any, setting: Setting) -> None:
        super().__init__()
        self.trained, self.momenta = trained, momenta
        self.momentum = setting.hyperparameters.momentum
        self.decay = setting.hyperparameters.weight_decay
        self.differentiate = mindspore.value_and_grad(Loss(network), None, trained)
        self.ranks = setting.rank.world_size
        self.all_reduce = ops.AllReduce() if self.ranks > 1 else None

    def construct(self, x: Tensor, distributions: Tensor, rate: Tensor) -> Tensor:
        """Train on a batch; return the loss."""
        loss, gradients = self.differentiate(x, distributions)
        if self.ranks > 1:
            gradients = mean_gradients(gradients, self.all_reduce, self.ranks)
        sgd(self.trained, self.momenta, gradients, rate, self.momentum, self.decay)
        return loss


def trace_model(model: ResNet, shape: tuple[int, ...], *, dtype: str = "float32") -> Trace:
    """Trace the training forward pass of a model on inputs N×C×H×W; compiles, runs nothing."""
    declared = parameters(model)
    weights = {p.name: _parameter(p.name, np.zeros(p.shape, np.float32)) for p in declared}
    cell = TrainingForward(Network(model, weights))
    cell.set_train()
    compiled = _mindir(cell, mindspore.Tensor(np.zeros(shape, dtype)))
    # Cells name parameters by their position.
    trained = {weights[p.name].name for p in declared if p.trained}
    return trace_mindir(compiled, trained=trained, batch=shape[0])


def _mindir(cell: Any, *inputs: Any) -> Any:
    """Compile a cell; return its graph."""
    from mindspore.graph.api import _cell_graph_executor
    from mindspore.train.mind_ir_pb2 import ModelProto

    # `mindspore.export` does the same, but sets the model to prediction before.
    phase = f"ai500.{[value.shape for value in inputs]}"
    identifier, _ = _cell_graph_executor.compile(cell, *inputs, phase=phase, do_convert=False)
    stream = _cell_graph_executor._get_func_graph_proto(cell, identifier, "mind_ir")
    compiled = ModelProto()
    compiled.ParseFromString(stream)
    return compiled


class MindSporeBackend:
    """One rank's model, optimizer and communication; a `Backend`."""

    def __init__(self, setting: Setting, ranks: Ranks) -> None:
        self._setting = setting
        self._ranks = ranks
        self._model = setting.model
        state = {name: _parameter(name, value) for name, value in setting.weights.items()}
        names = [p.name for p in parameters(self._model) if p.trained]
        momenta = {
            MOMENTUM + name: _parameter(MOMENTUM + name, np.zeros(state[name].shape, np.float32))
            for name in names
        }
        network = Network(self._model, state)
        self._state = state | momenta
        self._step = TrainingStep(
            network,
            mindspore.ParameterTuple([state[name] for name in names]),
            mindspore.ParameterTuple(list(momenta.values())),
            setting,
        )
        self._step.set_train()
        self._prediction = Prediction(network)

    def place(self, fields: Arrays, draws: NDArray[np.float32]) -> Batch:
        """Augment a batch on the host, and smooth its labels."""
        setting = self._setting
        images = image_arrays.train_inputs(
            np, setting.problem_class, fields["images"], draws, dtype=setting.dtype
        )
        classes, smoothing = setting.problem_class.classes, setting.hyperparameters.label_smoothing
        distributions = np.full((len(images), classes), smoothing / classes, np.float32)
        distributions[np.arange(len(images)), fields["labels"]] += 1 - smoothing
        return _channels_first(images), mindspore.Tensor(distributions)

    def train_step(self, batch: Batch, *, learning_rate: float) -> Any:
        """Train on a placed batch."""
        return self._step(*batch, mindspore.Tensor(learning_rate, mindspore.float32))

    def predict(self, fields: Arrays) -> NDArray[np.float32]:
        """Return the class probabilities of stored images."""
        setting = self._setting
        images = image_arrays.evaluation_inputs(
            np, setting.problem_class, fields["images"], dtype=setting.dtype
        )
        rows: NDArray[np.float32] = self._prediction(_channels_first(images)).asnumpy()
        return rows

    def use_first_statistics(self) -> None:
        """Replace this rank's running statistics by rank 0's."""
        if not self._ranks.several:
            return
        own = {name: value for name, value in self._state.items() if ".running_" in name}
        ends = np.cumsum([value.shape[0] for value in own.values()])[:-1]
        row = np.concatenate([value.asnumpy() for value in own.values()])
        first = np.split(self.gather(row[None])[0], ends)
        for parameter, array in zip(own.values(), first, strict=True):
            parameter.set_data(mindspore.Tensor(array))

    def state(self) -> State:
        """Return copies of weights, statistics and momenta."""
        return {name: np.array(value.asnumpy()) for name, value in self._state.items()}

    def load_state(self, state: State) -> None:
        """Replace weights, statistics and momenta; momenta that are missing become zero."""
        for name, parameter in self._state.items():
            value = state.get(name)
            if value is None:
                value = np.zeros(parameter.shape, np.float32)
            parameter.set_data(mindspore.Tensor(np.array(value, np.float32)))

    def trace(self, *, batch: int) -> Trace:
        """Trace the graph of the model's forward pass."""
        return trace_model(self._model, (batch, *self._setting.problem_class.input_shape))

    def trace_step(self, *, batch: int) -> Trace:
        """Trace the whole training step that runs: gradients and update included."""
        definition = self._setting.problem_class
        inputs = np.zeros((batch, *definition.input_shape), np.float32)
        distributions = np.zeros((batch, definition.classes), np.float32)
        rate = mindspore.Tensor(0.0, mindspore.float32)
        compiled = _mindir(self._step, *map(mindspore.Tensor, (inputs, distributions)), rate)
        return trace_mindir(compiled, trained=(), batch=batch)

    def mean(self, value: float) -> float:
        """Average a value over the ranks, in FP64."""
        return float(self.gather(np.array([[value]])).mean())

    def broadcast(self, value: int) -> int:
        """Return rank 0's value on every rank."""
        return int(self.gather(np.array([[value]], dtype=np.int64))[0, 0])

    def gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Concatenate the rows of all ranks."""
        return self._ranks.gather(rows)

    def describe(self) -> Description:
        """Describe MindSpore's version, precision, communication and device."""
        several = self._ranks.several
        return Description(
            framework={
                "name": "mindspore",
                "version": mindspore.__version__,
                "compiled": True,
                "deterministic": mindspore.get_context("deterministic") == "ON",
                "initial_weights": "the reference's draws, by NumPy",
            },
            numerics={
                "precision": "fp32",
                "products": "IEEE FP32",
                "parameter_dtypes": ["mindspore.float32"],
                "tf32": None,
            },
            communication={
                "backend": LIBRARY if several else None,
                "version": None,
                "mode": "all_reduce" if several else None,
                "precision": "fp32" if several else None,
            },
            optimizer_class=f"{sgd.__module__}.{sgd.__qualname__}",
            device_name="cpu",
            versions={"mindspore": mindspore.__version__},
        )

    def close(self) -> None:
        """Leave the ranks' group."""
        self._ranks.close()


def _parameter(name: str, value: NDArray[Any]) -> Any:
    is_trained = ".running_" not in name and not name.startswith(MOMENTUM)
    tensor = mindspore.Tensor(np.array(value, np.float32))
    return mindspore.Parameter(tensor, name=name, requires_grad=is_trained)


def _channels_first(images: NDArray[Any]) -> Any:
    return mindspore.Tensor(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def make_backend(setting: Setting) -> MindSporeBackend:
    """Join the member's ranks and build the model on this rank's cores."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE, deterministic="ON")
    mindspore.set_device("CPU")
    if setting.threads is not None:
        _use_threads(setting.threads)
    return MindSporeBackend(setting, Ranks(setting.rank))


def _use_threads(threads: int) -> None:
    """Run on as many threads: the one that dispatches kernels computes too."""
    mindspore.runtime.dispatch_threads_num(1)
    # `op_tuning.threads_num` sets the same and refuses 0. A second thread on a single core yields
    # that core hundreds of times a step.
    RuntimeConf.get_instance().set_op_threads_num(threads - 1)
