"""Node descriptions from the files of a node; a missing value is not found."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ai500.core import schema
from ai500.inventory import host, summary
from ai500.inventory.description import (
    Accelerator,
    AcceleratorState,
    NodeDescription,
    NumaNode,
    State,
)
from ai500.inventory.node import (
    describe,
    observe,
    record_after,
    record_before,
    recorded_nodes,
)
from ai500.inventory.nvidia import link_peaks
from ai500.inventory.software import software
from ai500.pipeline.scoring import write_report
from ai500.records import run_folder
from tests.support.synthetic_run import Shape, write_synthetic_run

CPUINFO = """\
processor\t: {0}
vendor_id\t: GenuineIntel
model name\t: Xeon Test
flags\t\t: fpu smep avx2 avx512f amx_bf16 sse4_2 hypervisor

"""


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two sockets of two cores, two threads each, in /proc and /sys."""
    root = tmp_path / "root"
    put(root, {"proc/cpuinfo": "".join(CPUINFO.format(cpu) for cpu in range(8))})
    put(root, {"proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 3 kB"})
    put(root, {"proc/loadavg": "1.50 1.00 0.50 2/300 12345"})
    for cpu in range(8):
        socket, core = cpu % 4 // 2, cpu % 2
        at = f"sys/devices/system/cpu/cpu{cpu}"
        twins = f"{cpu % 4},{cpu % 4 + 4}"
        put(
            root,
            {
                f"{at}/topology/physical_package_id": str(socket),
                f"{at}/topology/core_id": str(core),
                f"{at}/cpufreq/cpuinfo_max_freq": "3800000",
                f"{at}/cpufreq/scaling_cur_freq": str(2000000 + cpu * 1000),
                f"{at}/cpufreq/scaling_governor": "performance" if cpu else "powersave",
                f"{at}/thermal_throttle/core_throttle_count": "2",
                f"{at}/cache/index0/level": "1",
                f"{at}/cache/index0/type": "Data",
                f"{at}/cache/index0/size": "48K",
                f"{at}/cache/index0/shared_cpu_list": twins,
                f"{at}/cache/index3/level": "3",
                f"{at}/cache/index3/type": "Unified",
                f"{at}/cache/index3/size": "32M",
                f"{at}/cache/index3/shared_cpu_list": "0-1,4-5" if socket == 0 else "2-3,6-7",
            },
        )
    put(root, {"sys/devices/system/node/node0/cpulist": "0-7"})
    put(root, {"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       1048576 kB"})
    put(root, {"sys/class/dmi/id/sys_vendor": "Maker", "sys/class/dmi/id/product_name": "Rack 9"})
    put(root, {"sys/block/nvme0n1/size": "2000", "sys/block/nvme0n1/queue/rotational": "0"})
    put(root, {"sys/block/nvme0n1/device/model": "Fast Disk", "sys/block/loop0/size": "10"})
    put(root, {"sys/class/net/eth0/device/vendor": "x", "sys/class/net/eth0/speed": "25000"})
    put(root, {"sys/class/net/eth0/type": "1", "sys/class/net/eth0/operstate": "up"})
    put(root, {"sys/class/net/lo/type": "772", "sys/class/net/eth1/device/vendor": "x"})
    put(root, {"sys/class/net/eth1/speed": "-1", "sys/class/net/eth1/type": "1"})
    port = "sys/class/infiniband/mlx5_0/ports/1"
    put(root, {f"{port}/rate": "200 Gb/sec (4X HDR)", f"{port}/state": "4: ACTIVE"})
    put(root, {f"{port}/link_layer": "InfiniBand"})
    return root


def test_processors_of_two_sockets(root: Path) -> None:
    cpus = host.processors(root)
    assert (cpus.model, cpus.sockets, cpus.cores, cpus.threads) == ("Xeon Test", 2, 4, 8)
    assert cpus.highest_hertz == 3.8e9
    assert cpus.caches == {"L1d": 4 * 48 << 10, "L3": 2 * 32 << 20}
    assert cpus.numa == (NumaNode(0, "0-7", 1 << 30),)
    assert cpus.instructions == ("amx_bf16", "avx2", "avx512f", "sse4_2")


def test_machine_memory_disks_and_network(root: Path) -> None:
    assert host.machine(root) == "Maker Rack 9"
    assert host.hypervisor(root) == "unnamed"
    assert host.memory_bytes(root) == 1 << 30
    (disk,) = host.disks(root)
    assert (disk.name, disk.model, disk.bytes, disk.rotational) == (
        *("nvme0n1", "Fast Disk"),
        *(2000 * 512, False),
    )
    speeds = {port.name: port.bits_per_second for port in host.interfaces(root)}
    assert speeds == {"eth0": 25e9, "eth1": None, "mlx5_0 port 1": 200e9}


def test_clocks_and_throttling_now(root: Path) -> None:
    state = observe(root)
    assert state.processor_hertz == (2.0e9, 2.007e9)
    assert state.processor_throttled == 16
    assert state.governors == ("performance", "powersave")
    assert state.load == 1.5


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    node = describe(tmp_path)
    assert node.processors.model is None and node.memory_bytes is None and node.disks == ()
    rows = dict(pair for _, pairs in summary.sections(node) for pair in pairs)
    for name in ("machine", "CPU", "cores", "caches", "memory", "disks", "network"):
        assert rows[name] == "not found", name


def test_only_variables_that_change_results_and_no_secrets(tmp_path: Path) -> None:
    environ = {
        "NCCL_ALGO": "Ring",
        "HOME": "/root",
        "TORCH_TOKEN": "s3cret",
        "OMP_NUM_THREADS": "4",
    }
    described = software(tmp_path, environ | {"SLURM_JOB_ID": "7", "container": "podman"})
    assert described.environment == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4"}
    assert described.scheduler == {"SLURM_JOB_ID": "7"}
    assert described.container == "podman"


def test_before_is_recorded_once_and_after_is_added(tmp_path: Path) -> None:
    path = tmp_path / "systems" / "n.json"
    record_after(path)
    assert not path.exists()
    record_before(path)
    first = run_folder.read(NodeDescription, path)
    record_before(path)
    assert run_folder.read(NodeDescription, path) == first
    record_after(path)
    last = run_folder.read(NodeDescription, path)
    assert last.before == first.before
    assert last.after is not None and last.after.wall >= first.before.wall


def node_called(root: Path, name: str, **changes: object) -> NodeDescription:
    return dataclasses.replace(describe(root), hostname=name, **changes)  # type: ignore[arg-type]


def test_equal_nodes_are_one_kind_and_another_shows_its_differences(root: Path) -> None:
    gpu = Accelerator(index=0, name="GPU", memory_bytes=80 << 30, driver="570.1")
    other = dataclasses.replace(gpu, driver="550.9")
    nodes = [
        node_called(root, "n1", accelerators=(gpu,), before=State(wall=1.0)),
        # A little less memory is the firmware's, not another kind of node.
        node_called(root, "n2", accelerators=(gpu,), memory_bytes=(1 << 30) - 4096),
        node_called(root, "n3", accelerators=(other,)),
    ]
    first, odd = summary.kinds(nodes)
    assert first.hostnames == ("n1", "n2") and first.differences == ()
    assert odd.hostnames == ("n3",)
    assert odd.differences == (("accelerators[0].driver", "550.9", "570.1"),)
    assert dict(summary.totals(nodes))["accelerators"] == "3 × GPU"
    assert dict(summary.totals(nodes))["cores"] == "12"


def view(root: Path, uuid: str, *, wall: float, slowed: tuple[str, ...] = ()) -> NodeDescription:
    """A node in the view of a job step with one of several accelerators."""
    seen = node_called(
        root, "n1", accelerators=(Accelerator(index=0, name="GPU", uuid=uuid),),
        before=State(wall=wall, load=wall),
        after=State(
            wall=wall + 10, load=wall + 10,
            accelerators=(AcceleratorState(0, 1e9 * wall, throttled_by=slowed),),
        ),
    )  # fmt: skip
    return dataclasses.replace(
        seen, software=dataclasses.replace(seen.software, environment={"CUDA_X": uuid})
    )


def test_members_that_see_one_accelerator_each_describe_the_node_together(
    tmp_path: Path, root: Path
) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    shutil.rmtree(run.trial(1).systems)
    views = [
        view(root, "GPU-a", wall=2.0, slowed=("heat",)), view(root, "GPU-b", wall=3.0),
        view(root, "GPU-a", wall=4.0, slowed=("power",)),
    ]  # fmt: skip
    for member, seen in enumerate(views):
        run_folder.write(run.trial(1).node_description("n1", member), seen)
    (node,) = recorded_nodes(run)
    devices = [(device.index, device.uuid) for device in node.accelerators]
    assert devices == [(0, "GPU-a"), (1, "GPU-b")]
    assert node.before.load == 2.0
    assert node.after is not None and node.after.load == 14.0
    states = node.after.accelerators
    assert [(state.index, state.clock_hertz, state.throttled_by) for state in states] == [
        (0, 4e9, ("heat", "power")),
        (1, 3e9, ()),
    ]
    assert node.software.environment == {"CUDA_X": "GPU-a | GPU-b"}
    twin = [dataclasses.replace(node, hostname="n2", accelerators=tuple(
        dataclasses.replace(device, uuid=f"other {device.index}") for device in node.accelerators
    ))]  # fmt: skip
    (kind,) = summary.kinds([node, *twin])
    assert kind.hostnames == ("n1", "n2")


def test_a_throttled_accelerator_is_named() -> None:
    state = State(wall=0.0, accelerators=(AcceleratorState(0, 1.2e9, None, 84.0, ("heat",)),))
    rows = dict(summary.state_rows("after", state))
    assert rows["accelerator 0 after"] == "1.2 GHz, 84 °C, slowed by heat"


def test_rows_say_before_only_if_there_is_an_after(root: Path) -> None:
    def named(node: NodeDescription) -> list[str]:
        return [name for name, _ in summary.sections(node)[-1][1]]

    node = node_called(root, "n1")
    assert node.after is None and "load" in named(node)
    trained = dataclasses.replace(node, after=node.before)
    assert {"load before", "load after"} <= set(named(trained))


def test_the_report_shows_the_nodes_and_the_users_notes(tmp_path: Path, root: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    run.config.write_text('[system]\nnotes = {network = "fat <b>tree</b>"}\n')
    run_folder.write(run.trial(1).node_description("n1", 0), node_called(root, "n1"))
    write_report(run)
    page = run.report.read_text(encoding="utf-8")
    assert "Xeon Test" in page and "Maker Rack 9" in page
    assert "fat &lt;b&gt;tree&lt;/b&gt;" in page


def system_command(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "COLUMNS": "80", "NCCL_ALGO": "Ring"}
    return subprocess.run(
        [sys.executable, "-m", "ai500", "system", *words],
        capture_output=True,
        text=True,
        env=environ,
    )


def test_the_command_describes_this_node(tmp_path: Path) -> None:
    out = tmp_path / "system.json"
    shown = system_command("--out", str(out), "--set", "system.notes.rack=B7")
    assert shown.returncode == 0, shown.stderr
    assert "NCCL_ALGO" in shown.stdout and "B7" in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    description = json.loads(out.read_text())
    assert description["notes"] == {"rack": "B7"}
    node = schema.decode(NodeDescription, description["nodes"][0])
    assert node.software.environment["NCCL_ALGO"] == "Ring"
    assert "CUDA of torch" not in node.software.libraries  # the command does not load torch


def test_a_run_without_descriptions_says_so(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    shutil.rmtree(run.trial(1).systems)
    refused = system_command(str(run.path))
    assert refused.returncode == 3
    assert "no description of a node yet" in refused.stderr


def test_theoretical_peaks_of_links() -> None:
    """PCIe 5.0 ×16 has 63.0 GB/s in each direction; 18 NVLinks of 26.6 GB/s have 478 GB/s."""
    peaks = link_peaks(5, 16, nvlinks=18, nvlink_mbps=26_562)
    assert peaks["PCIe"] == pytest.approx(63.0e9, rel=1e-3)
    assert peaks["NVLink"] == pytest.approx(478.1e9, rel=1e-3)
    assert link_peaks(3, 16, nvlinks=0, nvlink_mbps=None) == {
        "PCIe": pytest.approx(15.75e9, rel=1e-3)
    }
    assert link_peaks(None, None, nvlinks=4, nvlink_mbps=None) == {}
    assert link_peaks(9, 16, nvlinks=0, nvlink_mbps=None) == {}
