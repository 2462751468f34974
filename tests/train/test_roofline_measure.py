"""`ai500 roofline` on this machine's CPU: measured for real, interrupted, gone on with."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
import torch

from ai500.records import run_folder
from ai500.roofline.kernel_benchmarks import MIN_SAMPLES, time_calls
from ai500.roofline.records import RooflineRecord, ceilings, memory_bandwidth
from tests.support.commands import SOURCE, Start

pytestmark = pytest.mark.serial


def wait_for_kernels(path: Path, *, timeout: float = 180) -> RooflineRecord:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if path.exists() and (record := run_folder.read(RooflineRecord, path)).kernels:
            return record
        time.sleep(0.05)
    raise AssertionError(f"no kernel in {path} within {timeout} s")


def test_an_interrupted_measurement_is_kept_and_gone_on_with(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "here.json"
    arguments = ["roofline", "--out", out, "--device", "cpu", "--precision", "fp32",
                 "--precision", "tf32", "--seconds", "2", "--ranks", "2"]  # fmt: skip
    command = start(*arguments)
    partial = wait_for_kernels(out)
    command.interrupt()
    assert command.wait() == 130
    assert "run the same command again" in command.err
    kept = run_folder.read(RooflineRecord, out)
    assert not kept.complete
    shown = start("roofline", "--show", out)
    assert shown.wait() == 0, shown.err
    assert "PARTIAL" in shown.out

    command = start(*arguments)
    assert command.wait() == 0, command.err
    record = run_folder.read(RooflineRecord, out)
    assert record.complete
    assert record.kernels[: len(partial.kernels)] == partial.kernels  # not measured again
    assert {measurement.kernel for measurement in record.kernels} == {"gemm", "conv"}
    assert all(ceiling.flops > 1e8 for ceiling in ceilings(record))
    assert dict(record.unavailable).keys() == {"gemm:tf32", "conv:tf32"}
    assert (memory_bandwidth(record) or 0) > 1e8
    times = [link for link in record.links if link.kind == "all_reduce"]
    assert [link.bytes for link in times] == [1024 * 4**power for power in range(9)]
    assert "No accelerator here: this is the CPU's roofline." in command.out
    assert all(len(line) <= 80 for line in command.out.splitlines() if str(tmp_path) not in line)
    again = start(*arguments)
    assert again.wait() == 2
    assert "finished roofline" in again.err


def test_work_is_sustained_for_its_time_however_short_a_call_is() -> None:
    device, a = torch.device("cpu"), torch.ones(64, 64)
    for seconds in (0.05, 0.0):
        samples = time_calls(itertools.repeat(lambda: a @ a), device, seconds=seconds).sustained
        assert len(samples) >= MIN_SAMPLES
        assert sum(samples) >= 0.3 * seconds  # the machine is shared


def test_without_torch_it_says_what_is_missing(start: Start, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "torch.py").write_text("raise ImportError('hidden by the test')\n")
    command = start("roofline", "--out", tmp_path / "a.json", "--device", "cpu",
                    PYTHONPATH=f"{hidden}:{SOURCE}")  # fmt: skip
    command.out, command.err = command.process.communicate(timeout=120)
    assert command.process.returncode == 3
    assert "Check that torch is installed" in command.err


@pytest.mark.parametrize(
    ("device", "why"),
    [("gpu0", "torch knows no such device"), ("cuda:4711", ".")],
)
def test_a_device_that_is_not_here_is_one_message(
    start: Start, tmp_path: Path, device: str, why: str
) -> None:
    command = start("roofline", "--out", tmp_path / "a.json", "--device", device)
    assert command.wait() == 2
    errors = " ".join(command.err.split())
    assert f"--device {device}: " in errors
    assert why in errors
    assert "Devices that torch can use here: cpu" in errors
    assert "Traceback" not in command.err
    assert not (tmp_path / "a.json").exists()
