"""Each meter on a tree that looks like a node, and on this machine; absent is never zero."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from ai500.meters import Absent, Meter, Reading, drm, host, open_meters, power
from ai500.meters.sources import Program, ProgramFailedError
from tests.support.metered import tree

POWERCAP = "sys/class/powercap"


def readings(meter: Meter | Absent) -> dict[tuple[str, str], float]:
    assert not isinstance(meter, Absent), meter
    return {(reading.device, reading.quantity): reading.value for reading in meter.read()}


def package(number: int, energy: int, *, memory: int | None) -> dict[str, str]:
    zone = f"{POWERCAP}/intel-rapl:{number}"
    files = {
        f"{zone}/name": f"package-{number}",
        f"{zone}/energy_uj": f"{energy}",
        f"{zone}/max_energy_range_uj": "262143328850",
        f"{zone}:0/name": "core",
        f"{zone}:0/energy_uj": "999999999",
        f"{zone}:0/max_energy_range_uj": "262143328850",
    }
    if memory is not None:
        files |= {
            f"{zone}:1/name": "dram",
            f"{zone}:1/energy_uj": f"{memory}",
            f"{zone}:1/max_energy_range_uj": "65712999613",
        }
    return files


def test_rapl_reads_packages_and_their_memory_but_no_part_twice(tmp_path: Path) -> None:
    psys = {f"{POWERCAP}/intel-rapl:2/name": "psys", f"{POWERCAP}/intel-rapl:2/energy_uj": "7"}
    files = package(0, 1_500_000, memory=250_000) | package(1, 2_500_000, memory=750_000) | psys
    meter = power.open_rapl(tree(tmp_path, files))
    assert not isinstance(meter, Absent)
    assert meter.covers == ("processors", "memory")
    assert meter.read() == [
        Reading("package-0", "energy_joules", 1.5, 262_143.32885),
        Reading("package-1", "energy_joules", 2.5, 262_143.32885),
        Reading("package-0 dram", "energy_joules", 0.25, 65_712.999613),
        Reading("package-1 dram", "energy_joules", 0.75, 65_712.999613),
    ]


def test_rapl_without_memory_says_so(tmp_path: Path) -> None:
    meter = power.open_rapl(tree(tmp_path, package(0, 5, memory=None)))
    assert not isinstance(meter, Absent)
    assert meter.covers == ("processors",)


def test_rapl_that_may_not_be_read_is_absent(tmp_path: Path) -> None:
    """Root reads everything, so the counter is a folder here: unreadable for everybody."""
    root = tree(tmp_path, package(0, 5, memory=None))
    (root / f"{POWERCAP}/intel-rapl:0/energy_uj").unlink()
    (root / f"{POWERCAP}/intel-rapl:0/energy_uj").mkdir()
    absent = power.open_rapl(root)
    assert isinstance(absent, Absent)
    assert "root only" in absent.reason


def card(number: int, vendor: str, sensors: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    device = f"sys/class/drm/card{number}/device"
    files = {f"{device}/vendor": vendor}
    files |= {f"{device}/hwmon/hwmon{number}/{name}": text for name, text in sensors.items()}
    return files | {f"{device}/{name}": text for name, text in more.items()}


def test_cards_of_amd_and_intel_by_their_hwmon(tmp_path: Path) -> None:
    memory = {"gpu_busy_percent": "87", "mem_info_vram_used": "3", "mem_info_vram_total": "4"}
    power = {"power1_average": "305000000", "temp1_input": "61000", "freq1_input": "2100000000"}
    files = card(1, "0x1002", power, memory)
    files |= card(2, "0x8086", {"energy1_input": "42000000"}, {})
    files |= card(3, "0x10de", {"power1_average": "1"}, {})  # NVML's
    files |= {"sys/class/drm/card1-DP-1/status": "disconnected"}
    root = tree(tmp_path, files)
    amd = root / "sys/class/drm/card1/device"
    slot = root / "sys/devices/0000:c1:00.0"
    slot.parent.mkdir()
    amd.rename(slot)
    amd.symlink_to(slot)
    assert readings(drm.open_meter(root)) == {
        ("0000:c1:00.0", "watts"): 305.0,
        ("0000:c1:00.0", "temperature_celsius"): 61.0,
        ("0000:c1:00.0", "clock_hertz"): 2.1e9,
        ("0000:c1:00.0", "utilization"): 0.87,
        ("0000:c1:00.0", "memory_bytes"): 3.0,
        ("0000:c1:00.0", "memory_utilization"): 0.75,
        ("device", "energy_joules"): 42.0,
    }


@pytest.mark.parametrize(
    ("revision", "read", "written"), [(4, 104, 168), (5, 144, 208), (6, 128, 192), (8, 136, 200)]
)
def test_xgmi_of_amd_is_read_from_known_tables(
    tmp_path: Path, revision: int, read: int, written: int
) -> None:
    """Sums over the links, in KB; a link without a counter is all ones."""
    table = bytearray(400)
    table[:4] = struct.pack("<HBB", len(table), 1, revision)
    struct.pack_into("<8Q", table, read, *range(1, 8), 2**64 - 1)
    struct.pack_into("<8Q", table, written, *[10] * 8)
    root = tree(tmp_path, card(1, "0x1002", {"power1_average": "1000000"}, {}))
    file = root / "sys/class/drm/card1/device/gpu_metrics"
    file.write_bytes(bytes(table))
    metered = readings(drm.open_meter(root))
    assert metered["device", "xgmi_received_bytes"] == 28_000
    assert metered["device", "xgmi_sent_bytes"] == 80_000
    for damaged in (b"", bytes(table[:120]), bytes([*table[:3], 3, *table[4:]])):
        file.write_bytes(damaged)
        left = [quantity for _, quantity in readings(drm.open_meter(root)) if "xgmi" in quantity]
        assert left in ([], ["xgmi_received_bytes"])
        assert not left or len(damaged) >= read + 64


def test_cray_s_counters_have_units_behind_them(tmp_path: Path) -> None:
    folder = "sys/cray/pm_counters"
    root = tree(tmp_path, {f"{folder}/energy": "178 J", f"{folder}/power": "420 W 1660000 us"})
    assert readings(power.open_cray(root)) == {
        ("node", "energy_joules"): 178.0,
        ("node", "watts"): 420.0,
    }


def test_only_whole_disks_count(tmp_path: Path) -> None:
    lines = [
        "   8   0 sda 10 0 2000 5 20 0 4000 9 0 7500 0",
        "   8   1 sda1 10 0 2000 5 20 0 4000 9 0 0 0",
        " 253   0 dm-0 10 0 2000 5 20 0 4000 9 0 0 0",
        "   7   0 loop0 1 0 64 5 0 0 0 0 0 0 0",
    ]
    files = {"proc/diskstats": "\n".join(lines), "sys/block/sda/device/model": "disk"}
    files |= {"sys/block/dm-0/size": "1", "sys/block/loop0/size": "1"}
    assert readings(host.open_disks(tree(tmp_path, files))) == {
        ("sda", "disk_read_bytes"): 2000 * 512,
        ("sda", "disk_written_bytes"): 4000 * 512,
        ("sda", "disk_busy_seconds"): 7.5,
    }


def interfaces(*rows: tuple[str, int, int]) -> str:
    lines = ["Inter-|   Receive |  Transmit", " face |bytes packets errs |bytes packets"]
    lines += [f"{name:>6}: {got} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name, got, sent in rows]
    return "\n".join(lines)


def test_network_counts_hardware_once_and_the_loop_apart(tmp_path: Path) -> None:
    rows = [("lo", 5, 5), ("eth0", 11, 12), ("bond0", 11, 12), ("docker0", 1, 1), ("ib0", 70, 80)]
    counters = "sys/class/infiniband/mlx5_0/ports/1/counters"
    files = {
        "proc/net/dev": interfaces(*rows),
        "sys/class/net/eth0/device/vendor": "0x15b3",
        "sys/class/net/eth0/type": "1",
        "sys/class/net/ib0/device/vendor": "0x15b3",
        "sys/class/net/ib0/type": "32",
        f"{counters}/port_rcv_data": "100",
        f"{counters}/port_xmit_data": "200",
        f"{counters}/symbol_error": "3",
        f"{counters}/link_downed": "1",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "sys/class/net/eth0/speed": "25000",
        "sys/class/net/eth0/statistics/rx_crc_errors": "12",
        "sys/class/net/eth0/statistics/rx_frame_errors": "2",
        "sys/class/net/eth0/statistics/rx_errors": "99",
    }
    assert readings(host.open_network(tree(tmp_path, files))) == {
        ("lo", "network_received_bytes"): 5,
        ("lo", "network_sent_bytes"): 5,
        ("eth0", "network_received_bytes"): 11,
        ("eth0", "network_sent_bytes"): 12,
        ("mlx5_0:1", "network_received_bytes"): 400,
        ("mlx5_0:1", "network_sent_bytes"): 800,
        ("mlx5_0:1", "link_errors"): 4,
        ("mlx5_0:1", "link_bits_per_second"): 400e9,
        ("eth0", "link_bits_per_second"): 25e9,
        ("eth0", "link_errors"): 14,
    }


@pytest.mark.parametrize("speed", ["-1", "10000"])
def test_a_link_that_is_down_or_virtual_has_no_speed(tmp_path: Path, speed: str) -> None:
    files = {"proc/net/dev": interfaces(("eth0", 2, 3)), "sys/class/net/eth0/speed": speed}
    if speed == "-1":
        files |= {"sys/class/net/eth0/device/vendor": "0x15b3"}
    values = readings(host.open_network(tree(tmp_path, files)))
    assert not [quantity for _, quantity in values if quantity.startswith("link")]


def test_a_container_s_interfaces_have_no_hardware_and_count(tmp_path: Path) -> None:
    files = {"proc/net/dev": interfaces(("lo", 1, 1), ("eth0", 2, 3))}
    values = readings(host.open_network(tree(tmp_path, files)))
    assert values["eth0", "network_sent_bytes"] == 3


def test_host_reads_busy_and_total_processor_seconds(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    stat = f"cpu  {3 * tick} {tick} {tick} {10 * tick} {2 * tick} 0 0 {tick} 99 99\ncpu0 1 1 1 1"
    memory = "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  400 kB\nHugePages_Total:  0"
    values = readings(host.open_host(tree(tmp_path, {"proc/stat": stat, "proc/meminfo": memory})))
    assert values["host", "cpu_busy_seconds"] == 6  # guests are counted in user and nice already
    assert values["host", "cpu_total_seconds"] == 18
    assert values["host", "memory_bytes"] == 600 * 1024
    assert values["host", "memory_utilization"] == pytest.approx(0.6)


def test_host_reads_ecc_errors_and_each_package_s_throttling_once(tmp_path: Path) -> None:
    cpu, memory = "sys/devices/system/cpu/cpu", "sys/devices/system/edac/mc"
    files = {"proc/stat": "cpu  1 1 1 1 1 0 0 0", f"{memory}/mc0/ce_count": "41"}
    files |= {f"{memory}/mc0/ue_count": "0", f"{memory}/mc1/ce_count": "2"}
    for thread, package, milliseconds in ((0, 0, 1500), (1, 0, 1500), (2, 1, 0)):
        throttle = f"{cpu}{thread}/thermal_throttle"
        files[f"{throttle}/package_throttle_total_time_ms"] = str(milliseconds)
        files[f"{cpu}{thread}/topology/physical_package_id"] = str(package)
    values = readings(host.open_host(tree(tmp_path, files)))
    faults = {key: value for key, value in values.items() if key[0] != "host"}
    assert faults == {
        ("package 0", "throttled_seconds"): 1.5,
        ("package 1", "throttled_seconds"): 0.0,
        ("mc0", "memory_corrected_errors"): 41,
        ("mc0", "memory_uncorrected_errors"): 0,
        ("mc1", "memory_corrected_errors"): 2,
    }


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    path.chmod(0o755)


def first_answer(meter: Meter | Absent) -> list[Reading]:
    """Read until the program has answered: `read` never waits for it."""
    assert not isinstance(meter, Absent), meter
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            began = time.monotonic()
            if values := meter.read():
                return list(values)
            assert time.monotonic() - began < 5  # read does not wait for the program
            time.sleep(0.02)
    finally:
        meter.close()
    raise AssertionError("no answer")


DCMI = """cat <<'END'

    Instantaneous power reading:                   612 Watts
    Minimum during sampling period:                  8 Watts
    Maximum during sampling period:                954 Watts
    Average power reading over sample period:      610 Watts
    Power reading state is:                   activated
END"""


def test_ipmi_through_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "ipmitool", 'test "$*" = "dcmi power reading" || exit 1\n' + DCMI)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    absent = power.open_ipmi(tmp_path)
    assert isinstance(absent, Absent)
    assert "/dev/ipmi0" in absent.reason
    meter = power.open_ipmi(tree(tmp_path, {"dev/ipmi0": ""}))
    assert first_answer(meter) == [Reading("node", "watts", 612.0)]


def test_a_controller_without_a_sensor_is_not_zero_watts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    program(tmp_path / "bin", "ipmitool", f"{DCMI.replace('612', '  0')}\ntouch {asked}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    meter = power.open_ipmi(tree(tmp_path, {"dev/ipmi0": ""}))
    assert not isinstance(meter, Absent)
    deadline = time.monotonic() + 20
    while not asked.exists() and time.monotonic() < deadline:
        assert meter.read() == []
        time.sleep(0.02)
    time.sleep(0.1)
    assert asked.exists()
    assert meter.read() == []
    meter.close()


def test_slurm_s_energy_as_its_configuration_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = "NodeName=n7 Arch=x86_64 CurrentWatts=481 AveWatts=470 ExtSensorsWatts=0"
    kind = tmp_path / "kind"
    program(
        tmp_path / "bin",
        "scontrol",
        f'case "$*" in "show config") echo "AcctGatherEnergyType = $(cat {kind})" ;;\n'
        f'"--oneliner show node n7") echo "{node}" ;; *) exit 1 ;; esac',
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    kind.write_text("(null)")
    assert isinstance(power.open_slurm(tmp_path), Absent)
    kind.write_text("acct_gather_energy/rapl")
    meter = power.open_slurm(tmp_path)
    assert not isinstance(meter, Absent)
    assert meter.covers == ("processors", "memory")
    kind.write_text("acct_gather_energy/ipmi")
    meter = power.open_slurm(tmp_path)
    assert not isinstance(meter, Absent)
    assert meter.covers == ("node",)
    assert first_answer(meter) == [Reading("n7", "watts", 481.0)]


def test_slurm_s_joules_count_when_they_step(tmp_path: Path) -> None:
    """The counter is constant between two reports: the time of the first value is not known."""
    answer = tmp_path / "answer"
    answer.write_text("CurrentWatts=n/s ConsumedJoules=5000")
    program = Program(["cat", str(answer)], period_seconds=0.0)
    meter = power.Slurm(program, node="n7", covers=("node",))
    deadline = time.monotonic() + 20
    seen: list[Reading] = []
    for joules in ("5000", "5000", "9000"):
        answer.write_text(f"CurrentWatts=n/s ConsumedJoules={joules}")
        until = time.monotonic() + 0.3
        while time.monotonic() < until or (joules == "9000" and not seen):
            assert time.monotonic() < deadline
            seen += meter.read()
            time.sleep(0.02)
        assert joules == "9000" or not seen
    meter.close()
    assert seen == [Reading("n7", "energy_joules", 9000.0)]


def test_a_program_that_fails_or_hangs_is_given_up() -> None:
    for command, reason in (
        (["sh", "-c", "echo no sensor; exit 3"], "exit code 3: no sensor"),
        (["sleep", "60"], "no answer within 0.2 s"),
    ):
        timeout = 0.2 if command[0] == "sleep" else 30.0
        program = Program(command, period_seconds=0.0, timeout_seconds=timeout)
        with pytest.raises(ProgramFailedError, match=reason):
            for _ in range(1000):
                assert program.poll() is None
                time.sleep(0.01)
        program.close()


def test_this_machine_s_meters_are_here_or_say_why_not() -> None:
    meters, absent = open_meters()
    assert {"host", "network"} <= set(meters)
    assert set(meters) | set(absent) == {
        "cray", "disk", "drm", "host", "ipmi", "network", "nvml", "rapl", "slurm",
    }  # fmt: skip
    assert all(absent.values())
    busy = readings(meters["host"])["host", "cpu_busy_seconds"]
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        pass
    assert readings(meters["host"])["host", "cpu_busy_seconds"] > busy
    for meter in meters.values():
        meter.close()
