"""What Slurm prints, read: recorded from 22.05 (a real cluster), written after 20.11 and 23.11."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.bagging.schedulers.slurm_nodes import (
    Cluster,
    cluster_from,
    is_usable,
    matches,
    read_gpus,
    read_nodes,
)
from ai500.bagging.schedulers.slurm_text import (
    STATES,
    compress_tasks,
    expand_tasks,
    read_accounting,
    read_queue,
    seconds_of,
    spread,
    tasks_by_job,
)
from ai500.errors import AI500Error, ConfigError
from ai500.records import JobState

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
QUEUE_22_05 = """\
54_[5,12-100%4]|PENDING|0|0|Resources,BeginTime
54_11|RUNNING|2|0|None
54_10|COMPLETING|0|9|None
54_0|COMPLETED|0|0|None
54_1|FAILED|0|1792|NonZeroExitCode
54_2|FAILED|0|9|JobLaunchFailure
54_3|OUT_OF_MEMORY|0|125|OutOfMemory
54_4|CANCELLED|0|15|None
60|TIMEOUT|1|0|TimeLimit
"""
QUEUE_23_11 = """\
54_[5,12-100%4]|PENDING|0|0:0|Resources
54_0|COMPLETED|0|0:0|None
54_1|FAILED|0|7:0|NonZeroExitCode
54_2|FAILED|0|0:9|RaisedSignal:9(Killed)
54_3|OUT_OF_MEMORY|0|0:125|OutOfMemory
61|PENDING|0||launch failed | requeued held
"""
ACCOUNTING = """\
2|PENDING|0:0
1_0|COMPLETED|0:0
1_1|FAILED|7:0
1_2|FAILED|0:9
1_3|RUNNING|0:0
1_4|CANCELLED by 1000|0:15
1_[9-14,16-20]|PENDING|0:0
"""


def _cluster(
    *, nodes: str = NODES_20_11, partition: str | None = None, constraint: str | None = None
) -> Cluster:
    return cluster_from(
        config=CONFIG, partitions=PARTITIONS, nodes=nodes, partition=partition,
        constraint=constraint,
    )  # fmt: skip


def test_a_node_of_22_05_as_recorded() -> None:
    (node,) = read_nodes(NODES_22_05)
    assert (node.name, node.address, node.cpus) == ("n1", "127.149.0.1", 2)
    assert (node.gpus, node.gpu_type, node.memory_bytes) == (2, "fake", 16000 * 2**20)
    assert (node.usable, node.why, node.features) == (True, None, ())
    assert node.partitions == ("batch",)


def test_reason_is_the_administrators_and_never_taken_for_fields() -> None:
    _, broken = read_nodes(NODES_20_11)
    assert (broken.state, broken.usable) == ("DOWN*+DRAIN", False)
    assert broken.why == "DIMM 3 broken, State=IDLE soon"


def test_a_sleeping_cloud_node_is_usable_with_what_jobs_may_have_of_it() -> None:
    asleep, broken = read_nodes(NODES_23_11)
    assert (asleep.usable, asleep.cpus, asleep.gpus, asleep.gpu_type) == (True, 92, 8, "h100")
    assert asleep.memory_bytes == 1_984_000 * 2**20
    assert (broken.usable, broken.why, broken.memory_bytes) == (False, "Not responding", None)
    assert broken.address == "broken"


def test_a_node_without_reason_tells_its_state() -> None:
    (node,) = read_nodes("NodeName=a CPUTot=4 State=UNKNOWN+NOT_RESPONDING Partitions=x")
    assert node.why == "its state is UNKNOWN+NOT_RESPONDING"


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
        ("(null)", (0, None)),
        ("", (0, None)),
        ("gpu:8", (8, None)),
        ("gpu", (1, None)),
        ("gpu:0", (0, None)),
        ("gpu:a100:8(S:0-3)", (8, "a100")),
        ("gpu:a100:4(S:0,2),gpu:h100:4(S:1,3)", (8, "a100+h100")),
        ("gpu:a100:2,gpu:a100:2", (4, "a100")),
        ("gpu:1g.5gb:7", (7, "1g.5gb")),
        ("gpu:kepler:no_consume:2", (2, "kepler")),
        ("shard:h100:64(S:0-1)", (0, None)),
        ("mps:400,gpu:v100:4,bandwidth:lustre:no_consume:4G", (4, "v100")),
        ("gpu_mem:80G", (0, None)),
    ],
)
def test_gpus_of_a_node(gres: str, gpus: tuple[int, str | None]) -> None:
    assert read_gpus(gres) == gpus


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
    cluster = _cluster()
    assert (cluster.name, cluster.partition, cluster.version) == ("lab", "all", "22.05.8")
    assert (cluster.max_seconds, cluster.max_array_size) == (None, 10001)
    assert cluster.accounting is False
    assert [node.name for node in cluster.nodes] == ["gpu01", "gpu02"]


def test_a_named_partition_and_a_constraint() -> None:
    cluster = _cluster(partition="gpu", constraint="a100&ib")
    assert cluster.max_seconds == 172_800
    assert [node.name for node in cluster.nodes] == ["gpu01"]


def test_a_partition_that_is_not_up_has_no_usable_node() -> None:
    nodes = NODES_20_11.replace("Partitions=gpu,all", "Partitions=gpu,all,old")
    first, second = _cluster(nodes=nodes, partition="old").nodes
    assert (first.usable, first.why) == (False, "partition old is DRAIN")
    assert second.why == "DIMM 3 broken, State=IDLE soon"


def test_an_unknown_partition_names_the_key_and_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r'slurm.partition = "gpus".*mean "gpu"\?.*gpu, all, old'):
        _cluster(partition="gpus")


def test_no_default_partition_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"slurm.partition is not set.*one of: gpu\."):
        cluster_from(
            config=CONFIG, partitions=PARTITIONS.splitlines()[0], nodes=NODES_20_11,
            partition=None, constraint=None,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("01:00:00", 3600),
        ("2-00", 172_800),
        ("1-12:30", 131_400),
        ("1-12:30:05", 131_405),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("NOT_SET", None),
        ("NONE", None),
        ("", None),
    ],
)
def test_slurm_times(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


def test_every_state_of_the_table_in_both_commands() -> None:
    for word, state in STATES.items():
        (queued,) = read_queue(f"7|{word}|0|0|None")
        (accounted,) = read_accounting(f"7|{word}|0:0")
        assert queued.state == accounted.state == state
        assert queued.slurm_state == accounted.slurm_state == word


def test_the_states_slurms_sources_name() -> None:
    live = "PENDING CONFIGURING REQUEUED RUNNING COMPLETING SUSPENDED STAGE_OUT SPECIAL_EXIT"
    assert {STATES[word] for word in live.split()} == {"pending", "running"}
    broken = "FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY LAUNCH_FAILED"
    assert {STATES[word] for word in broken.split()} == {"failed"}


def test_an_unknown_word_lives_in_squeue_and_failed_in_sacct() -> None:
    (queued,) = read_queue("7|DREAMING|0|0|None")
    (accounted,) = read_accounting("7|DREAMING|0:0")
    assert (queued.state, queued.slurm_state) == ("running", "DREAMING")
    assert (accounted.state, accounted.slurm_state) == ("failed", "DREAMING")


@pytest.mark.parametrize("text", [QUEUE_22_05, QUEUE_23_11], ids=["22.05", "23.11"])
def test_exit_codes_of_both_forms(text: str) -> None:
    codes = {job.id: job.exit_code for job in read_queue(text)}
    assert (codes["54_0"], codes["54_1"], codes["54_2"], codes["54_3"]) == (0, 7, -9, None)


def test_rows_of_squeue() -> None:
    jobs = {job.id: job for job in read_queue(QUEUE_22_05)}
    assert (jobs["54_11"].restarts, jobs["54_11"].reason) == (2, None)
    assert (jobs["54_10"].state, jobs["54_10"].exit_code) == ("running", None)
    assert (jobs["54_4"].state, jobs["54_4"].exit_code) == ("cancelled", -15)
    assert (jobs["60"].state, jobs["60"].exit_code, jobs["60"].reason) == (
        "failed", None, "TimeLimit",
    )  # fmt: skip
    assert jobs["54_[5,12-100%4]"].restarts is None
    (held,) = (job for job in read_queue(QUEUE_23_11) if job.id == "61")
    assert held.reason == "launch failed | requeued held"


def test_a_line_that_is_no_row_is_an_error_not_a_lost_job() -> None:
    with pytest.raises(AI500Error, match=r"'hello'.*squeue --version"):
        list(read_queue("CLUSTER: a\n\n1|RUNNING|0|0|None\nhello\n"))


def test_rows_of_sacct() -> None:
    jobs = spread(read_accounting(ACCOUNTING), ["1_1", "1_3", "1_4", "1_10", "1_15", "9"])
    states: dict[str, JobState] = {job_id: job.state for job_id, job in jobs.items()}
    assert states == {"1_1": "failed", "1_3": "running", "1_4": "cancelled", "1_10": "pending"}
    assert (jobs["1_4"].slurm_state, jobs["1_4"].exit_code) == ("CANCELLED", -15)
    assert jobs["1_3"].reason == "known to sacct only"


def test_pending_tasks_are_found_in_their_folded_row() -> None:
    ids = ["54_4", "54_5", "54_6", "54_12", "54_100", "54_101", "60", "54", "5"]
    jobs = spread(read_queue(QUEUE_22_05), ids)
    assert sorted(jobs) == ["54_100", "54_12", "54_4", "54_5", "60"]
    assert jobs["54_12"] is jobs["54_5"]  # squeue folds them into one row


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("7", [(7, 7, 1)]),
        ("0-5,7-20:2%3", [(0, 5, 1), (7, 20, 2)]),
        ("1,3,5-6%10", [(1, 1, 1), (3, 3, 1), (5, 6, 1)]),
        ("1,3,...", [(1, 1, 1), (3, 3, 1)]),
        ("", []),
    ],
)
def test_array_expressions(text: str, ranges: list[tuple[int, int, int]]) -> None:
    assert list(expand_tasks(text)) == ranges


@given(st.sets(st.integers(0, 4_000_000)), st.integers(0, 99))
def test_array_expression_round_trip(tasks: set[int], at_once: int) -> None:
    text = compress_tasks(tasks) + (f"%{at_once}" if at_once else "")
    found = [task for a, b, step in expand_tasks(text) for task in range(a, b + 1, step)]
    assert found == sorted(tasks)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60), min_size=1))
def test_spread_is_the_intersection(wanted: set[int], pending: set[int]) -> None:
    rows = read_queue(f"7_[{compress_tasks(pending)}]|PENDING|0|0|None")
    assert set(spread(rows, [f"7_{task}" for task in wanted])) == {
        f"7_{task}" for task in wanted & pending
    }


def test_neighbours_are_folded() -> None:
    assert compress_tasks([3, 1, 2, 7, 9, 10]) == "1-3,7,9-10"
    assert tasks_by_job(["12", "34_6", "34_5"]) == {"12": set(), "34": {5, 6}}


def _seconds_to_read(count: int) -> float:
    ids = [f"9_{task}" for task in range(count)]
    pending = compress_tasks(range(0, count // 2, 2))  # nothing folds: the worst expression
    rows = "".join(f"9_{task}|COMPLETED|0|0|None\n" for task in range(1, count, 2))
    begin = time.process_time()
    found = spread(read_queue(f"9_[{pending}]|PENDING|0|0|None\n{rows}"), ids)
    seconds = time.process_time() - begin
    assert len(found) == count // 4 + count // 2
    return seconds


@pytest.mark.serial
def test_a_hundred_thousand_tasks_cost_ten_times_ten_thousand() -> None:
    small = min(_seconds_to_read(10_000) for _ in range(3))
    large = _seconds_to_read(100_000)
    assert large < 30 * small
