"""TensorFlow's process-wide settings, made before its first tensor: messages, devices, threads."""

from __future__ import annotations

import os

from ai500.frameworks.backend import Setting

# Notes on the build would fill a member's log; warnings and errors stay.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

__all__ = ["start", "tf"]


def start(setting: Setting) -> None:
    """Choose the CPU, and as many threads as the rank has cores."""
    tf.config.set_visible_devices([], "GPU")
    if setting.threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(setting.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    # Kernels whose order of additions depends on threads would make a resumed run another one.
    tf.config.experimental.enable_op_determinism()
