"""The meter of NVIDIA's accelerators, with a stand-in for their driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import SOURCE

STAND_IN = '''
"""A driver of two accelerators, the second without energy counter and utilization."""
import itertools, types

class NVMLError(Exception):
    pass

NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
clock = itertools.count(1)

def nvmlInit(): pass
def nvmlShutdown(): print("shut down")
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}aaa".encode()
def nvmlDeviceGetName(handle): return b"H200"
def nvmlDeviceGetPowerUsage(handle): return 700_000 + handle
def nvmlDeviceGetMemoryInfo(handle): return types.SimpleNamespace(used=60, total=80)
def nvmlDeviceGetTemperature(handle, sensor): return 55
def nvmlDeviceGetClockInfo(handle, kind): return 1980

NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197  # an old binding without the field of received bytes

def nvmlDeviceGetFieldValues(handle, fields):
    values = []
    for field, scope in fields:
        supported = handle == 0 or field < 190
        assert scope == (0 if field > 190 else 0xFFFFFFFF)
        number = types.SimpleNamespace(ullVal=1000 * field + handle)
        values.append(types.SimpleNamespace(nvmlReturn=0 if supported else 3, value=number))
    return values

NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
NVML_VOLATILE_ECC, nvmlEventTypeXidCriticalError = 0, 8
registered, waiting = [], [(0, 31), (1, 79), (0, 48)]

def nvmlDeviceGetTotalEccErrors(handle, kind, since):
    if handle == 1:
        raise NVMLError("Not Supported")
    return 7 if kind == 0 else 2

def nvmlDeviceGetCurrPcieLinkWidth(handle): return 16 - 8 * handle

def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return 0x4 if handle == 0 else 0x44  # the limit of power; heat besides

def nvmlEventSetCreate(): return "set"
def nvmlDeviceRegisterEvents(handle, kind, events):
    assert (kind, events) == (8, "set")
    registered.append(handle)

def nvmlEventSetWait(events, milliseconds):
    assert (events, milliseconds) == ("set", 0)
    if not waiting or waiting[0][0] not in registered:
        raise NVMLError("Timeout")
    handle, code = waiting.pop(0)
    return types.SimpleNamespace(device=handle, eventData=code)

def nvmlDeviceGetTotalEnergyConsumption(handle):
    if handle == 1:
        raise NVMLError("Not Supported")
    return 1000 * next(clock)

def nvmlDeviceGetUtilizationRates(handle):
    if handle == 1:
        raise NVMLError("Not Supported")
    return types.SimpleNamespace(gpu=93, memory=50)
'''
ASK = """
import json
from pathlib import Path
from ai500.meters.nvml import open_meter
meter = open_meter(Path("/"))
if hasattr(meter, "reason"):
    raise SystemExit(meter.reason)
meter.read()
print(json.dumps({f"{r.device} {r.quantity}": r.value for r in meter.read()}))
meter.close()
"""


def nvml(folder: Path, driver: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """NVML's Python binding is a stand-in here; the real one is in tests/gpu."""
    (folder / "pynvml.py").write_text(driver, encoding="utf-8")
    plain = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env=plain | {"PYTHONPATH": f"{SOURCE}:{folder}"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_nvml_reads_what_each_accelerator_supports(tmp_path: Path) -> None:
    done = nvml(tmp_path, STAND_IN)
    assert done.returncode == 0, done.stderr
    readings, closed = done.stdout.splitlines()
    assert closed == "shut down"
    assert '"GPU-0aaa energy_joules": 3.0' in readings  # opening the meter reads once
    assert '"GPU-0aaa utilization": 0.93' in readings
    assert '"GPU-0aaa memory_utilization": 0.75' in readings
    assert '"GPU-1aaa watts": 700.001' in readings
    assert '"GPU-1aaa clock_hertz": 1980000000.0' in readings
    assert "GPU-1aaa energy" not in readings
    assert "GPU-1aaa utilization" not in readings


def test_nvml_counts_the_bytes_of_links(tmp_path: Path) -> None:
    """NVLink's fields are in KiB over all links, PCIe's in bytes; what is missing is not 0."""
    readings = json.loads(nvml(tmp_path, STAND_IN).stdout.splitlines()[0])
    assert readings["GPU-0aaa nvlink_sent_bytes"] == 138_000 * 1024
    assert readings["GPU-1aaa nvlink_received_bytes"] == 139_001 * 1024
    assert readings["GPU-0aaa pcie_sent_bytes"] == 197_000
    assert "GPU-1aaa pcie_sent_bytes" not in readings  # not supported
    assert not any("pcie_received" in name for name in readings)  # unknown to the binding


def test_nvml_counts_faults(tmp_path: Path) -> None:
    """Heat counts the time between two samples; the limit of power is no fault."""
    readings = json.loads(nvml(tmp_path, STAND_IN).stdout.splitlines()[0])
    assert readings["GPU-0aaa memory_corrected_errors"] == 7
    assert readings["GPU-0aaa memory_uncorrected_errors"] == 2
    assert "GPU-1aaa memory_corrected_errors" not in readings  # not supported
    assert (readings["GPU-0aaa xid_errors"], readings["GPU-0aaa last_xid"]) == (2, 48)
    assert (readings["GPU-1aaa xid_errors"], readings["GPU-1aaa last_xid"]) == (1, 79)
    assert readings["GPU-0aaa throttled_seconds"] == 0
    assert 0 < readings["GPU-1aaa throttled_seconds"] < 30
    assert readings["GPU-1aaa pcie_lanes"] == 8


def test_nvml_of_a_binding_without_faults_still_meters(tmp_path: Path) -> None:
    old = STAND_IN.replace("nvmlEventType", "_").replace("NVML_VOLATILE_ECC", "_ecc")
    old = old.replace("nvmlDeviceGetCurrentClocksThrottleReasons", "_reasons")
    readings = json.loads(nvml(tmp_path, old).stdout.splitlines()[0])
    assert "GPU-0aaa watts" in readings
    faults = ("ecc", "xid", "throttled", "memory_corrected")
    assert not [name for name in readings if any(fault in name for fault in faults)]


@pytest.mark.parametrize("visible", ["1", "GPU-1"])
def test_nvml_meters_the_accelerators_of_the_run(tmp_path: Path, visible: str) -> None:
    done = nvml(tmp_path, STAND_IN, CUDA_VISIBLE_DEVICES=visible)
    assert "GPU-1aaa watts" in done.stdout
    assert "GPU-0aaa" not in done.stdout


@pytest.mark.parametrize(
    ("environment", "both"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, False),
    ],
)
def test_nvml_meters_all_where_numbers_are_ambiguous(
    tmp_path: Path, environment: dict[str, str], both: bool
) -> None:
    """CUDA numbers from the fastest, NVML along the bus: they differ for different models."""
    unlike = STAND_IN.replace('return b"H200"', 'return f"kind {handle}"')
    done = nvml(tmp_path, unlike, **environment)
    assert "GPU-1aaa watts" in done.stdout
    assert ("GPU-0aaa watts" in done.stdout) == both
    assert ("all 2 are metered" in done.stderr) == both


def test_nvml_without_driver_or_accelerator_is_absent(tmp_path: Path) -> None:
    broken = STAND_IN.replace(
        "def nvmlInit(): pass", "def nvmlInit(): raise NVMLError('no driver')"
    )
    assert nvml(tmp_path, broken).stderr.strip() == "NVML can't be used: no driver"
    hidden = nvml(tmp_path, STAND_IN, CUDA_VISIBLE_DEVICES="")
    assert "no accelerator of this run" in hidden.stderr
