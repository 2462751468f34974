"""JAX: members trained by `array_member.py` with `jax_backend.py`, data-parallel over processes."""

from __future__ import annotations

from ai500.frameworks.class_models import LANGUAGE_MODEL, WORKLOADS
from ai500.frameworks.interpreted import Interpreted
from ai500.frameworks.protocol import Capabilities

JAX = Interpreted(
    name="jax",
    title="JAX",
    distributions=("jax",),
    oldest="0.7.0",
    capabilities=Capabilities(
        parallel_modes=("data",),
        precisions=("fp32", "tf32", "mixed-bf16"),
        devices=("cpu", "cuda"),
    ),
    workloads=(*WORKLOADS, LANGUAGE_MODEL),
    optimizers=("sgd", "adamw"),
)
