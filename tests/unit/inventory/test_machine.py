"""Apple's accelerator, `mps`: macOS has no device files, and torch no name for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from ai500.inventory import machine
from ai500.train.provenance import device_name

TORCH = """
from types import SimpleNamespace as Module
accelerator = Module(
    is_available=lambda: True, device_count=lambda: 1,
    current_accelerator=lambda: Module(type="mps"),
)
get_device_module = lambda kind: Module()
"""


@pytest.mark.slow
def test_torch_is_asked_for_it_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(machine, "_DEVICE_NODES", ())
    assert machine.accelerators.__wrapped__() == (None, ())
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.accelerators.__wrapped__() == ("mps", ("mps",))


def test_it_is_named_by_its_type() -> None:
    assert device_name(torch.device("mps")) == "mps"
