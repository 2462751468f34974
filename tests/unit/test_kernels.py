"""Triton's kernels through its interpreter, at small odd shapes, against float64 references.

Needs Triton, which wheels of torch for the CPU do not bring along; tests/gpu runs the same checks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("triton") is None, reason="NO TRITON: its kernels are untested here")
@pytest.mark.long
def test_kernels_in_the_interpreter_agree_with_float64() -> None:
    """In a process of its own: the interpreter is chosen when the kernels are first imported."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.kernel_checks", "cpu"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
