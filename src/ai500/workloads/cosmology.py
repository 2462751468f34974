"""Cosmology: CosmoFlow (MLPerf HPC) regresses four parameters from volumes at four times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ai500.records import Hyperparameters, ParallelPlan, ProblemClass
from ai500.workloads import learnable_volumes as learnable
from ai500.workloads.averaging import average
from ai500.workloads.models.cosmoflow_plan import cosmoflow_plan

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ai500.data.store import DataSource, Samples
    from ai500.records.illustrations import Drawn
    from ai500.workloads.protocol import Optimized

SMOKE, WORKSTATION = learnable.SMOKE, learnable.WORKSTATION
WIDTHS = {"smoke": 8, "workstation": 32, "full": 32}
"""Channels of the model's first block by class."""
ADAMW = Hyperparameters(
    epochs=8, batch_size=16, optimizer="adamw", base_learning_rate=2e-3, reference_batch_size=16,
    schedule="cosine", warmup_epochs=1, momentum=0.9, weight_decay=1e-2, epsilon=1e-8,
)  # fmt: skip
# MLPerf HPC's CosmoFlow: batch size, schedule, data and target of `full`. Never run by us.
MLPERF = replace(
    ADAMW, epochs=100, optimizer="sgd", base_learning_rate=1e-3, reference_batch_size=64,
    schedule="step", decay_epochs=(32, 64), warmup_epochs=4, weight_decay=0.0, epsilon=None,
)  # fmt: skip


def _class(name: str, edge: int, train: int, validation: int, **settings: Any) -> ProblemClass:
    """Return a class; n of Eq. 8 is V2's of Image Classification, for MLPerf HPC has none."""
    return ProblemClass(
        name=name, penalty_exponent=5, classes=0, train_samples=train, **settings,
        input_shape=(learnable.TIMES, edge, edge, edge), fields=learnable.volume_fields(edge),
        validation_samples=validation, out_of_bag_samples=validation,
    )  # fmt: skip


CLASSES = {
    "smoke": _class(
        # Reference FP32 ensembles of seeds 31 to 33: 0.2347, 0.2551, 0.2469; mean + 1 sd, rounded.
        "smoke", SMOKE.edge, SMOKE.train, SMOKE.validation, target_quality=0.26,
        store_sha256="00502db28d566dbb5bfef888eeb4a5a6328b30d5e6da56043d79b12c68381f23",
        ensemble_size=4, required_runs=3, global_batch_size=16, reference=ADAMW,
    ),
    "workstation": _class(
        # Seeds 1 to 3 on an H200: 0.2891, 0.3449, 0.3427; mean + 1 sd, rounded.
        "workstation", WORKSTATION.edge, WORKSTATION.train, WORKSTATION.validation,
        target_quality=0.36,
        store_sha256="e6be6ba4ab8fb93439437aecff574340a564a8e8a84e9622a4e28752043c4362",
        ensemble_size=2, required_runs=5, global_batch_size=16,
        reference=replace(ADAMW, epochs=16, base_learning_rate=1e-3),
    ),
    "full": _class(
        "full", 128, 524_288, 65_536,
        target_quality=0.124, ensemble_size=1, required_runs=10, reference=MLPERF,
    ),
}  # fmt: skip


class Cosmology:
    """Mean absolute error of the parameters; members' estimates are averaged."""

    name = "cosmology"
    sample_noun = "volume"
    quality_name = "mean absolute error"
    quality_direction: Literal["higher", "lower"] = "lower"
    quality_range: tuple[float, float] | None = (0.0, float("inf"))
    loss_operator = None
    problem_classes: Mapping[str, ProblemClass] = CLASSES
    draws_per_sample = 3
    capturable = True
    combine = staticmethod(average)

    def data_source(self, problem_class: ProblemClass) -> DataSource | None:
        """Return learnable volumes; None for `full`, the user's copy of MLPerf's data."""
        return {"smoke": SMOKE, "workstation": WORKSTATION}.get(problem_class.name)

    def model(self, problem_class: ProblemClass) -> nn.Module:
        """Build CosmoFlow; its depth follows from the edge of the volumes."""
        from ai500.workloads.models.cosmoflow import cosmoflow

        return cosmoflow(problem_class.input_shape, width=WIDTHS[problem_class.name])

    def optimized(
        self, model: nn.Module, *, precision: str, device: torch.device
    ) -> Optimized | None:
        """Fuse what surrounds the convolutions on a GPU."""
        from ai500.workloads.models.cosmoflow import use_fused_pooling

        return use_fused_pooling(model, precision=precision, device=device)

    def parallel_plan(self, problem_class: ProblemClass) -> ParallelPlan:
        """Return the plan of the model that `model` builds."""
        return cosmoflow_plan(problem_class.input_shape[1], width=WIDTHS[problem_class.name])

    def train_inputs(
        self, problem_class: ProblemClass, fields: Mapping[str, Tensor], draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mirror volumes at random along each edge: a mirrored universe is as likely."""
        from ai500.workloads.volume_inputs import mirrored_contrasts

        return mirrored_contrasts(fields["volumes"], draws), fields["parameters"]

    def evaluation_inputs(
        self, problem_class: ProblemClass, fields: Mapping[str, Tensor]
    ) -> Tensor:
        """Scale the stored integers to density contrasts."""
        from ai500.workloads.volume_inputs import contrasts

        return contrasts(fields["volumes"])

    def forward(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Estimate the parameters."""
        return model(inputs)  # type: ignore[no-any-return]

    def loss(self, outputs: Tensor, targets: Tensor, *, hyperparameters: Hyperparameters) -> Tensor:
        """Compute the mean squared error, as MLPerf HPC trains."""
        return (outputs.float() - targets).square().mean()

    def predictions(self, outputs: Tensor, fields: Mapping[str, Tensor]) -> Tensor:
        """Return the estimates."""
        return outputs.float()

    def quality(
        self, predictions: NDArray[np.floating], targets: Mapping[str, NDArray[Any]]
    ) -> float:
        """Compute the mean absolute error over samples and parameters."""
        return float(np.mean(np.abs(predictions - targets["parameters"])))

    def illustrations(
        self, predictions: Mapping[int, NDArray[Any]], *, ensemble: NDArray[Any], samples: Samples
    ) -> Drawn:
        """Draw slices of volumes with their parameters, and each parameter's error."""
        from ai500.workloads.volume_pictures import illustrations

        return illustrations(predictions, ensemble=ensemble, samples=samples)


WORKLOAD = Cosmology()
