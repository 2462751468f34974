"""A workload of one's own: the temperature of a magnet from its spins (2D Ising model)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ai500.api import Field, Generated, Hyperparameters, ProblemClass, average

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ai500.api import Arrays, MemberPredictions, Samples

    Fields = Mapping[str, Tensor]

TEMPERATURES = (1.6, 2.1, 2.27, 2.5, 4.0)  # in J/k: ordered, nearly, critical, disordered, hot
SIDE = 24
FIELDS = (
    Field("spins", "input", "int8", (SIDE, SIDE), limits=(-1, 1)),
    Field("phases", "target", "int64", (), limits=(0, len(TEMPERATURES) - 1)),
)


@dataclass(frozen=True, slots=True)
class Spins(Generated):
    """Metropolis sampling with Philox, whose raw words NumPy keeps stable between versions."""

    seed: int = 1
    sweeps: int = 40
    fields: ClassVar[tuple[Field, ...]] = FIELDS

    def draw(self, split: str, first: int, last: int) -> Arrays:
        phases = np.arange(first, last) % len(TEMPERATURES)
        words = np.stack([self._words(split, number) for number in range(first, last)])
        spins = np.ones((last - first, SIDE, SIDE), np.int8)  # cold: all up
        # Flipping a spin against the sum s of its neighbours costs 2s: Metropolis acceptance.
        chances = [[math.exp(min(0, -2 * s / t)) for s in range(-4, 5)] for t in TEMPERATURES]
        limits = (2**32 * np.array(chances)).astype(np.uint64)[phases]
        black = np.indices((SIDE, SIDE)).sum(axis=0) % 2 == 0
        for sweep in range(self.sweeps):
            draws = words[:, sweep].reshape(-1, SIDE, SIDE) >> np.uint64(32)
            for colour in (black, ~black):  # neighbours are of the other colour
                around = sum(np.roll(spins, shift, axis) for shift in (-1, 1) for axis in (1, 2))
                places = (spins * around + 4).reshape(len(spins), -1)
                limit = np.take_along_axis(limits, places.astype(np.int64), axis=1)
                spins[colour & (draws < limit.reshape(draws.shape))] *= -1
        return {"spins": spins, "phases": phases}

    def _words(self, split: str, number: int) -> NDArray[np.uint64]:
        generator = np.random.Philox(key=[self.seed, 2 * number + (split == "train")])
        return generator.random_raw(self.sweeps * SIDE * SIDE).reshape(self.sweeps, -1)


SMOKE = ProblemClass(
    name="smoke",
    ensemble_size=2,
    target_quality=0.84,
    penalty_exponent=5,
    required_runs=3,
    input_shape=(1, SIDE, SIDE),
    fields=FIELDS,
    classes=len(TEMPERATURES),
    train_samples=2000,
    validation_samples=500,
    out_of_bag_samples=2000,
    global_batch_size=50,
    store_sha256="458370d2af8dafbffcefcbd771a68531adec4d27b172e7dd42997e052d699c13",
    reference=Hyperparameters(
        epochs=6,
        batch_size=50,
        optimizer="sgd",
        base_learning_rate=0.05,
        reference_batch_size=50,
        schedule="cosine",
        warmup_epochs=1,
        momentum=0.9,
        weight_decay=1e-4,
    ),
)


class IsingPhases:
    """Accuracy over five temperatures; members' probabilities are averaged."""

    name = "ising_phases"
    quality_name = "accuracy"
    quality_direction: Literal["higher"] = "higher"
    quality_range: tuple[float, float] | None = (0.0, 1.0)
    loss_operator = "softmax"
    problem_classes: Mapping[str, ProblemClass] = {"smoke": SMOKE}
    draws_per_sample = 1

    def data_source(self, problem_class: ProblemClass) -> Spins:
        return Spins()

    def model(self, problem_class: ProblemClass) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = []
        for channels, wider in ((1, 16), (16, 32)):
            layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider)]
            layers += [nn.ReLU(), nn.AvgPool2d(4)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, problem_class.classes))

    def parallel_plan(self, problem_class: ProblemClass) -> None:
        """Return None: data parallelism is enough for a model this small."""

    def train_inputs(
        self, problem_class: ProblemClass, fields: Fields, draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs = self.evaluation_inputs(problem_class, fields)
        up = (draws[:, :1, None, None] < 0.5).to(inputs.dtype) * 2 - 1
        return inputs * up, fields["phases"]  # energy does not depend on the sign of all spins

    def forward(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Any:
        return model(inputs)

    def evaluation_inputs(self, problem_class: ProblemClass, fields: Fields) -> Tensor:
        return fields["spins"].unsqueeze(1).float()

    def loss(self, outputs: Any, targets: Tensor, *, hyperparameters: Hyperparameters) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, targets, label_smoothing=hyperparameters.label_smoothing)

    def predictions(self, outputs: Tensor, fields: Fields) -> Tensor:
        return outputs.float().softmax(dim=1)

    def combine(self, members: MemberPredictions) -> NDArray[np.floating]:
        return average(members)

    def quality(self, predictions: NDArray[np.floating], targets: Mapping[str, Any]) -> float:
        return float(np.mean(predictions.argmax(axis=1) == targets["phases"]))

    def illustrations(
        self, predictions: Mapping[int, Any], *, ensemble: Any, samples: Samples
    ) -> None:
        """Return None: the report shows no pictures."""


WORKLOAD = IsingPhases()
