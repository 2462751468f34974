"""TensorFlow: members trained by `array_member.py` with `tensorflow_backend.py`."""

from __future__ import annotations

from ai500.frameworks.interpreted import Interpreted
from ai500.frameworks.protocol import Capabilities

TENSORFLOW = Interpreted(
    name="tensorflow",
    title="TensorFlow",
    distributions=("tensorflow-cpu", "tensorflow"),
    oldest="2.21.0",
    capabilities=Capabilities(
        parallel_modes=("data",),
        precisions=("fp32", "mixed-bf16"),
        devices=("cpu",),
    ),
)
