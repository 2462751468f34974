"""Nodes and partitions as Slurm prints them (recorded from 22.05, written after 20.11 and 23.11),
and the checks of [slurm]."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ai500.config import Config
from ai500.core.errors import ConfigError
from ai500.jobs.schedulers.slurm_cluster import (
    Partition,
    check_sbatch_option,
    check_settings,
    is_usable,
    matches,
    mebibytes,
    no_node,
    of_type,
    partition_from,
    read_gpus,
    read_nodes,
)

NODES_20_11 = (
    "NodeName=gpu01 Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUTot=128 CPULoad=0.01 "
    "AvailableFeatures=a100,ib ActiveFeatures=a100,ib Gres=gpu:a100:4(S:0-1) NodeAddr=10.0.0.1 "
    "NodeHostName=gpu01 Version=20.11.9 OS=Linux 4.18.0-305.el8.x86_64 #1 SMP Thu Apr 29 2021  "
    "RealMemory=515000 AllocMem=0 FreeMem=510332 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=2 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,all  "
    "BootTime=2021-06-01T08:00:00 SlurmdStartTime=2021-06-01T08:01:00 "
    "CfgTRES=cpu=128,mem=515000M,billing=128,gres/gpu=4 AllocTRES= CapWatts=n/a "
    "Comment=(null)\n"
    "NodeName=gpu02 Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUTot=128 CPULoad=N/A "
    "AvailableFeatures=a100 ActiveFeatures=a100 Gres=gpu:a100:4 NodeAddr=gpu02 NodeHostName=gpu02 "
    "RealMemory=515000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 State=DOWN*+DRAIN "
    "ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,all  "
    "BootTime=None SlurmdStartTime=None CfgTRES=cpu=128,mem=515000M,billing=128 AllocTRES= "
    "Reason=DIMM 3 broken, State=IDLE soon [root@2021-06-03T10:00:00] Comment=ticket 77\n"
)
NODES_22_05 = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.36 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:fake:2 NodeAddr=127.149.0.1 "
    "NodeHostName=n1 Port=12858 Version=22.05.8 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  "
    "RealMemory=16000 AllocMem=0 FreeMem=22645 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=batch  BootTime=2026-11-15T02:27:00 "
    "SlurmdStartTime=2026-11-15T05:42:29 LastBusyTime=2026-11-15T05:42:29 "
    "CfgTRES=cpu=2,mem=16000M,billing=2 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 "
    "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n"
)
NODES_23_11 = (
    "NodeName=cloud-7 CoresPerSocket=48  CPUAlloc=0 CPUEfctv=92 CPUTot=96 CPULoad=0.00 "
    "AvailableFeatures=h100,cloud ActiveFeatures=h100,cloud "
    "Gres=gpu:h100:8(S:0-1),shard:h100:64(S:0-1) NodeAddr=cloud-7 NodeHostName=cloud-7 "
    "RealMemory=2000000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 CoreSpecCount=2 "
    "CPUSpecList=92-95 MemSpecLimit=16000 State=IDLE+CLOUD+POWERED_DOWN ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=cloud  BootTime=None "
    "SlurmdStartTime=None LastBusyTime=2024-03-01T00:00:00 ResumeAfterTime=None "
    "CfgTRES=cpu=92,mem=2000000M,billing=92,gres/gpu=8 AllocTRES= CapWatts=n/a CurrentWatts=0 "
    "AveWatts=0 ExtSensorsJoules=n/a ExtSensorsWatts=0 ExtSensorsTemp=n/a\n"
    "NodeName=broken CPUEfctv=96 CPUTot=96 Gres=(null) RealMemory=1 "
    "State=IDLE+DRAIN+NOT_RESPONDING Partitions=cloud  Reason=Not responding [slurm@2024-03-01]\n"
)
PARTITIONS = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO "
    "QoS=N/A DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO "
    "MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED "
    "Nodes=gpu[01-02] State=UP TotalCPUs=256 TotalNodes=2\n"
    "PartitionName=all AllowGroups=ALL Default=YES QoS=N/A DefaultTime=NONE MaxTime=UNLIMITED "
    "Nodes=gpu[01-02] State=UP TotalCPUs=256 TotalNodes=2\n"
    "PartitionName=old Default=NO DefaultTime=NONE MaxTime=UNLIMITED Nodes=gpu01 State=DRAIN\n"
)
CONFIG = (
    "Configuration data as of 2026-11-15T05:42:30\n"
    "AccountingStorageType   = accounting_storage/none\n"
    "ClusterName             = lab\n"
    "MaxArraySize            = 10001\n"
    "MinJobAge               = 600 sec\n"
    "SLURM_VERSION           = 22.05.8\n"
    "SchedulerParameters     = sched_interval=1,bf_interval=1\n"
)


def _partition(
    name: str | None = None, *, nodes: str = NODES_20_11, constraint: str | None = None
) -> Partition:
    return partition_from(
        config=CONFIG, partitions=PARTITIONS, nodes=nodes, name=name, constraint=constraint
    )


def test_a_node_of_22_05_as_recorded() -> None:
    (node,) = read_nodes(NODES_22_05)
    assert (node.name, node.cpus, node.gpus) == ("n1", 2, 2)
    assert (node.usable, node.reason, node.features) == (True, None, ())
    assert node.partitions == ("batch",)


def test_reason_is_the_administrators_and_never_taken_for_fields() -> None:
    _, broken = read_nodes(NODES_20_11)
    assert (broken.state, broken.usable) == ("DOWN*+DRAIN", False)
    assert broken.reason == "DIMM 3 broken, State=IDLE soon"


def test_a_sleeping_cloud_node_is_usable_with_what_jobs_may_have_of_it() -> None:
    asleep, broken = read_nodes(NODES_23_11)
    assert (asleep.usable, asleep.cpus, asleep.gpus) == (True, 92, 8)
    assert (broken.name, broken.usable, broken.reason) == ("broken", False, "Not responding")


def test_a_node_without_reason_tells_its_state() -> None:
    (node,) = read_nodes("NodeName=a CPUTot=4 State=UNKNOWN+NOT_RESPONDING Partitions=x")
    assert node.reason == "its state is UNKNOWN+NOT_RESPONDING"


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED", True),
        ("ALLOCATED+COMPLETING", True),
        ("COMPLETING", True),
        ("IDLE+PLANNED", True),
        ("IDLE-", True),
        ("IDLE+RESERVED", True),
        ("RESERVED", True),
        ("IDLE+CLOUD+POWERED_DOWN", True),
        ("IDLE+CLOUD+POWERING_UP", True),
        ("MIXED#+CLOUD", True),
        ("IDLE~", True),
        ("IDLE+POWER", True),
        ("IDLE+DYNAMIC_NORM", True),
        ("MIXED+REBOOT_REQUESTED", True),
        ("IDLE*", False),
        ("IDLE%", False),
        ("IDLE+POWERING_DOWN", False),
        ("IDLE+POWER_DOWN", False),
        ("IDLE+NOT_RESPONDING", False),
        ("IDLE+DRAIN", False),
        ("MIXED+DRAIN", False),
        ("DRAINED", False),
        ("DOWN", False),
        ("DOWN*", False),
        ("DOWN+CLOUD+POWERED_DOWN", False),
        ("ALLOCATED+FAIL", False),
        ("IDLE+MAINTENANCE+RESERVED", False),
        ("MAINT", False),
        ("IDLE+INVALID_REG", False),
        ("INVAL", False),
        ("DOWN+REBOOT_ISSUED", False),
        ("IDLE+REBOOT_ISSUED", False),
        ("FUTURE", False),
        ("UNKNOWN", False),
        ("ERROR", False),
    ],
)
def test_where_slurm_starts_jobs(state: str, usable: bool) -> None:
    assert is_usable(state) is usable


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", 0),
        ("", 0),
        ("gpu:8", 8),
        ("gpu", 1),
        ("gpu:0", 0),
        ("gpu:a100:8(S:0-3)", 8),
        ("gpu:a100:4(S:0,2),gpu:h100:4(S:1,3)", 8),
        ("gpu:a100:2,gpu:a100:2", 4),
        ("gpu:1g.5gb:7", 7),
        ("gpu:kepler:no_consume:2", 2),
        ("shard:h100:64(S:0-1)", 0),
        ("mps:400,gpu:v100:4,bandwidth:lustre:no_consume:4G", 4),
        ("gpu_mem:80G", 0),
    ],
)
def test_gpus_of_a_node(gres: str, gpus: int) -> None:
    assert sum(read_gpus(gres).values()) == gpus


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (None, True),
        ("", True),
        ("bar", True),
        ("foo", False),
        ("bar&baz", True),
        ("bar&foo", False),
        ("foo|bar", True),
        ("foo|bar&baz", True),
        ("bar|baz&foo", False),  # from left to right, tried with sbatch --test-only
        ("[foo|qux]", True),
        ("foo*2", True),
        ("(foo&qux)", True),
    ],
)
def test_constraint_on_a_node_with_bar_and_baz(constraint: str | None, expected: bool) -> None:
    assert matches(constraint, ("bar", "baz")) is expected


def test_the_default_partition_and_the_clusters_limits() -> None:
    partition = _partition()
    assert (partition.cluster, partition.name, partition.version) == ("lab", "all", "22.05.8")
    assert (partition.max_seconds, partition.max_array_size) == (None, 10001)
    assert partition.accounting is False
    assert [node.name for node in partition.nodes] == ["gpu01", "gpu02"]


def test_a_named_partition_and_a_constraint() -> None:
    partition = _partition("gpu", constraint="a100&ib")
    assert partition.max_seconds == 172_800
    assert [node.name for node in partition.nodes] == ["gpu01"]


def test_a_partition_that_is_not_up_has_no_usable_node() -> None:
    nodes = NODES_20_11.replace("Partitions=gpu,all", "Partitions=gpu,all,old")
    first, second = _partition("old", nodes=nodes).nodes
    assert (first.usable, first.reason) == (False, "partition old is DRAIN")
    assert second.reason == "DIMM 3 broken, State=IDLE soon"


def test_an_unknown_partition_names_the_key_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        _partition("gpus")
    assert (caught.value.key, caught.value.value) == ("slurm.partition", "gpus")
    assert "'gpu'?" in caught.value.remedy
    assert "gpu, all, old" in caught.value.remedy


def test_no_default_partition_names_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        partition_from(
            config=CONFIG, partitions=PARTITIONS.splitlines()[0], nodes=NODES_20_11,
            name=None, constraint=None,
        )  # fmt: skip
    assert (caught.value.key, caught.value.value) == ("slurm.partition", None)


def _with_limit(time_limit: str) -> Config:
    config = Config()
    return replace(config, slurm=replace(config.slurm, time_limit=time_limit))


@pytest.mark.parametrize(
    "text", ["90", "90:00", "2:00:00", "1-12", "1-12:30", "1-12:30:05", "-1", "UNLIMITED"]
)
def test_a_time_as_slurm_writes_it(text: str) -> None:
    check_settings(_with_limit(text))


@pytest.mark.parametrize("text", ["2h", "2:00:00:00", "two hours", "1.5", "1-", ""])
def test_a_time_that_slurm_does_not_know(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(_with_limit(text))
    assert (caught.value.key, caught.value.value) == ("slurm.time_limit", text)


def test_no_usable_node_names_the_key_and_the_states() -> None:
    drained = no_node("gpu", {"n1": "a fan is loud"}, constraint=None)
    assert (drained.key, drained.value) == ("slurm.partition", "gpu")
    assert "n1: a fan is loud" in str(drained)
    unmatched = no_node("gpu", {}, constraint="h100")
    assert (unmatched.key, unmatched.value) == ("slurm.constraint", "h100")


@pytest.mark.parametrize(
    "text",
    ["--job-name=mine", "--job-name mine", "-J mine", "-Jmine", "-HJ mine", "--array=0-3", "-a 0-3",
     "-a0-3", "--parsable", "--wait", "-W", "-QW", "--parsa", "--arr=1", "--mail-type=END --wait",
     "--test-only", "--wrap=true"],
)  # fmt: skip
def test_options_that_hide_a_job_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_sbatch_option(text)
    assert (caught.value.key, caught.value.value) == ("slurm.sbatch", text)
    assert "find its jobs" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["--mail-type=END", "--wait-all-nodes=1", "-A project", "-p batch", "--comment=J", "-w n1",
     "--mail-user=Jane@site", "-t 1:00:00", "--nice", "-N 2"],
)  # fmt: skip
def test_other_options_of_sbatch_are_passed_on(text: str) -> None:
    check_sbatch_option(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("32G", 32_768), ("500M", 500), ("500", 500), ("1T", 1_048_576), ("4096K", 4), ("2gb", 2_048),
     ("0", None), ("", None), ("lots", None), ("-1G", None), ("1.5G", None)],
)  # fmt: skip
def test_amounts_of_memory(text: str, expected: int | None) -> None:
    assert mebibytes(text) == expected


def test_limits_and_types_are_read() -> None:
    first, _ = read_nodes(NODES_20_11)
    assert (first.memory_mib, dict(first.gpus_by_type)) == (515_000, {"a100": 4})
    cloud, _ = read_nodes(NODES_23_11)
    assert cloud.memory_mib == 2_000_000 - 16_000
    assert (of_type(cloud, "h100").gpus, of_type(cloud, "a100").gpus) == (8, 0)
    config = CONFIG + "SelectTypeParameters = CR_CORE_MEMORY\nDefMemPerNode = UNLIMITED\n"
    read = partition_from(
        config=config, partitions=PARTITIONS, nodes=NODES_20_11, name="gpu", constraint=None
    )
    assert read.allocates_memory
    assert (read.limits.default_seconds, read.limits.max_nodes) == (3600, None)
    assert (read.limits.default_mib_per_cpu, read.limits.default_mib_per_node) == (None, None)
    own = partition_from(
        config=CONFIG + "DefMemPerCPU = 4000\n",
        partitions=PARTITIONS.replace("PartitionName=gpu", "PartitionName=gpu DefMemPerNode=64000"),
        nodes=NODES_20_11, name="gpu", constraint=None,
    ).limits  # fmt: skip
    assert (own.default_mib_per_cpu, own.default_mib_per_node) == (None, 64_000)
