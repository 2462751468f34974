"""NVML on a real accelerator: its counter agrees with its power, and a load shows in gauges."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from ai500.meters import Absent
from ai500.meters.log import read_meters
from ai500.meters.nvml import open_meter
from ai500.meters.recorder import Recorder
from ai500.meters.sources import FunctionMeter
from ai500.metrics.energy import Energy, Window, trial_energy
from ai500.metrics.meter_series import meter_curves

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="NO GPU: the meter of NVML is untested"
    ),
]
LOAD_SECONDS = 6.0


@pytest.fixture
def meter() -> FunctionMeter:
    opened = open_meter(Path("/"))
    assert not isinstance(opened, Absent), opened.reason
    return opened


def work(seconds: float) -> None:
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _ in range(10):
            matrix = torch.nn.functional.normalize(matrix @ matrix)
        torch.cuda.synchronize()


def test_every_accelerator_tells_what_it_should(meter: FunctionMeter) -> None:
    values = {(sample.device, sample.quantity): sample.value for sample in meter.read()}
    devices = {device for device, _ in values}
    assert len(devices) == torch.cuda.device_count()
    for device in devices:
        assert device.startswith("GPU-")
        assert 20 < values[device, "watts"] < 2000
        assert 0 <= values[device, "utilization"] <= 1
        assert 0 < values[device, "memory_utilization"] < 1
        assert values[device, "clock_hertz"] > 1e8
    meter.close()


def test_energy_of_a_load_by_counter_and_by_watts(tmp_path: Path) -> None:
    """Two ways to the same joules, more than idle, and the load shows in the curves."""
    recorder = Recorder(
        tmp_path / "here-000.jsonl", trial=1, member=0, period_seconds=0.1, lock_name=str(tmp_path)
    )
    work(1.0)
    recorder.start()
    time.sleep(1.0)
    first = time.time()
    work(LOAD_SECONDS)
    last = time.time()
    recorder.close()
    window = Window(first, last, lambda sample: float(sample["wall"]))
    energy = trial_energy(read_meters(tmp_path), window, nodes_of_members={0: 1}, device="cuda")
    assert isinstance(energy, Energy), energy
    curves = meter_curves(read_meters(tmp_path), window)
    power = curves["power of accelerators"]
    by_watts = power.mean * power.sources
    print(
        f"\n{energy.watts:.1f} W by {energy.coverage}; {by_watts:.1f} W by the accelerators' gauge"
    )
    assert max(point.high for point in curves["accelerator utilization"].points) > 0.9
    if energy.coverage == "accelerators":
        assert energy.watts == pytest.approx(by_watts, rel=0.15)


def test_a_reading_is_cheap(meter: FunctionMeter) -> None:
    times = []
    for _ in range(20):
        began = time.perf_counter()
        meter.read()
        times.append(time.perf_counter() - began)
    each = sorted(times)[10] / torch.cuda.device_count()
    print(f"\n{each * 1e3:.2f} ms for one accelerator")
    assert each < 0.02
    meter.close()
