"""JAX's process-wide settings, made before its first array: device, memory, precision, ranks."""

from __future__ import annotations

import os
import signal

from ai500.frameworks.backend import Setting

# Members may share an accelerator: JAX would take three quarters of its memory for the first one.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

__all__ = ["jax", "jnp", "start"]


def start(setting: Setting, *, precision: str) -> None:
    """Choose this rank's device and the precision of products, and join the member's ranks."""
    kind, _, index = setting.device.partition(":")
    rank = setting.rank
    jax.config.update("jax_default_matmul_precision", precision)
    jax.config.update("jax_enable_x64", setting.dtype == "float64")
    jax.config.update("jax_platforms", kind)
    if kind != "cpu":
        jax.config.update("jax_cuda_visible_devices", index or "0")
    if rank.world_size > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            num_processes=rank.world_size,
            process_id=rank.rank,
            local_device_ids=[int(index or 0)] if kind != "cpu" else None,
        )
        # JAX's coordination took over SIGTERM: take it back, or no rank would write a checkpoint.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
