"""MindSpore: members trained by `array_member.py` with `mindspore_backend.py`, on CPUs."""

from __future__ import annotations

from ai500.frameworks.interpreted import Interpreted
from ai500.frameworks.protocol import Capabilities

MINDSPORE = Interpreted(
    name="mindspore",
    title="MindSpore",
    distributions=("mindspore",),
    oldest="2.10.0",
    capabilities=Capabilities(
        parallel_modes=("data",),
        # Its kernels for CPUs have no BF16.
        precisions=("fp32",),
        devices=("cpu",),
    ),
)
