"""Cosmology: CosmoFlow (MLPerf HPC) regresses four parameters from volumes at four times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ai500.records import Hyperparameters, ParallelPlan, ProblemClass
from ai500.workloads.learnable_volumes import (
    PARAMETERS,
    SCALE,
    SMOKE,
    TIMES,
    WORKSTATION,
    volume_fields,
)
from ai500.workloads.models.cosmoflow_plan import cosmoflow_plan

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ai500.data.store import DataSource, Samples
    from ai500.records.illustrations import Drawn
    from ai500.workloads.protocol import Optimized

WIDTHS = {"smoke": 8, "workstation": 32, "full": 32}
"""Channels of the model's first block by class."""


SMOKE_CLASS = ProblemClass(
    name="smoke",
    ensemble_size=4,
    target_quality=0.3,
    penalty_exponent=5,  # as V2's Image Classification
    required_runs=3,
    input_shape=(TIMES, SMOKE.edge, SMOKE.edge, SMOKE.edge),
    fields=volume_fields(SMOKE.edge),
    classes=0,
    train_samples=SMOKE.train,
    validation_samples=SMOKE.validation,
    out_of_bag_samples=SMOKE.train,
    global_batch_size=16,
    reference=ADAMW,
)
# Data, batch size, schedule and target of MLPerf HPC's CosmoFlow; never run by us.
CLASSES = {
    "smoke": SMOKE_CLASS,
    "workstation": WORKSTATION_CLASS,
    "full": FULL_CLASS,
}


class Cosmology:
    """Mean absolute error of the parameters; members' estimates are averaged."""

    name = "cosmology"
    sample_noun = "volume"
    quality_name = "mean absolute error"
    quality_direction: Literal["higher", "lower"] = "lower"
    quality_range: tuple[float, float] | None = (0.0, float("inf"))
    loss_operator = None
    problem_classes: Mapping[str, ProblemClass] = CLASSES
    draws_per_image = 3
    capturable = True

    def data_source(self, problem_class: ProblemClass) -> DataSource | None:
        """Return learnable volumes; None for `full`, the user's copy of MLPerf's data."""
        return {"smoke": SMOKE, "workstation": WORKSTATION}.get(problem_class.name)

    def model(self, problem_class: ProblemClass) -> nn.Module:
        """Build CosmoFlow; its depth follows from the edge of the volumes."""
        import torch

        from ai500.workloads.models.cosmoflow import CosmoFlow

        channels, edge, *_ = problem_class.input_shape
        width = WIDTHS[problem_class.name]
        model = CosmoFlow(channels=channels, edge=edge, width=width, parameters=len(PARAMETERS))
        return model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload,no-any-return]

    def optimized(
        self, model: nn.Module, *, precision: str, device: torch.device
    ) -> Optimized | None:
        """Compile the model for a GPU."""
        from ai500.workloads.models.compiled import compile_for_gpu

        return compile_for_gpu(model, device=device)

    def parallel_plan(self, problem_class: ProblemClass) -> ParallelPlan:
        """Return the plan of the model that `model` builds."""
        return cosmoflow_plan(problem_class.input_shape[1], width=WIDTHS[problem_class.name])

    def train_inputs(
        self, problem_class: ProblemClass, fields: Mapping[str, Tensor], draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mirror volumes at random along each edge: a mirrored universe is as likely."""
        volumes = self.evaluation_inputs(problem_class, fields)
        for axis in range(3):
            mirrored = (draws[:, axis] < 0.5).view(-1, 1, 1, 1, 1)
            volumes = volumes.where(mirrored, volumes.flip(2 + axis))
        return volumes, fields["parameters"]

    def evaluation_inputs(
        self, problem_class: ProblemClass, fields: Mapping[str, Tensor]
    ) -> Tensor:
        """Scale the stored integers to density contrasts."""
        import torch

        contrast = fields["volumes"].float() / SCALE
        return contrast.contiguous(memory_format=torch.channels_last_3d)

    def forward(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Estimate the parameters."""
        outputs: Tensor = model(inputs)
        return outputs

    def loss(self, outputs: Tensor, targets: Tensor, *, hyperparameters: Hyperparameters) -> Tensor:
        """Compute the mean squared error, as MLPerf HPC trains."""
        from torch.nn.functional import mse_loss

        return mse_loss(outputs.float(), targets)

    def predictions(self, outputs: Tensor, fields: Mapping[str, Tensor]) -> Tensor:
        """Return the estimates."""
        return outputs.float()

    def combine(
        self, members: NDArray[np.floating], *, voters: NDArray[np.bool_]
    ) -> NDArray[np.floating]:
        """Average the voters' estimates."""
        total = np.einsum("msp,ms->sp", members.astype(np.float64), voters.astype(np.float64))
        averaged: NDArray[np.floating] = total / voters.sum(axis=0)[:, None]
        return averaged

    def quality(
        self, predictions: NDArray[np.floating], targets: Mapping[str, NDArray[Any]]
    ) -> float:
        """Compute the mean absolute error over samples and parameters."""
        return float(np.mean(np.abs(predictions - targets["parameters"])))

    def illustrations(
        self, predictions: Mapping[int, NDArray[np.floating]], *, samples: Samples
    ) -> Drawn:
        """Draw slices of volumes with their parameters, and each parameter's error."""
        from ai500.workloads.volume_pictures import illustrations

        return illustrations(predictions, samples=samples)


WORKLOAD = Cosmology()
