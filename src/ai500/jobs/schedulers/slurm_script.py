"""The batch scripts that ai500 submits to Slurm: plain bash that a site can read and run.

`array`: one job array, a task per member; a member starts when its nodes become free.
`gang`: one job and one step for all members, which start together behind a barrier (ADR 4, 13).

Every word is quoted, except those that the script expands itself (`Expanded`). Paths never stand in
`#SBATCH` lines, where Slurm has rules of its own for `%`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.config import SlurmConfig
from ai500.core.errors import setting_error
from ai500.jobs.schedulers import ATTEMPT_MARK
from ai500.records.worker_exit import CHECKPOINTED_EXIT_CODE, SIGNAL_EXIT

ADDRESS_OF = """\
# Print a node's name, or its address if the name does not resolve.
address_of() {
  getent hosts "$1" >/dev/null && { echo "$1"; return; }
  scontrol --oneliner show node "$1" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p'
}
"""


STRADDLING = """\
# Slurm divided the member's slots among the nodes.
export AI500_TASKS_PER_NODE=$SLURM_TASKS_PER_NODE
unset SLURM_GPUS_PER_TASK SLURM_NTASKS SLURM_NPROCS SLURM_TASKS_PER_NODE
"""


NODE_ADDRESSES = [
    ADDRESS_OF,
    'scontrol show hostnames "$SLURM_JOB_NODELIST" | while read -r node; do',
    '  address_of "$node"',
    'done >"${exits%.exits}.nodes"',
]
COMPLETE_EXITS = [
    "# Of members whose end was not reported, the record decides.",
    "declare -A ended",
    'while read -r member exit_code; do ended[$member]=$exit_code; done <"$exits"',
    'for member in "${members[@]}"; do',
    '  printf -v folder "%s/members/%03d" "$trial" "$member"',
    '  [ -n "${ended[$member]}" ] || echo "$member $([ -e "$folder/record.json" ]; echo $?)"',
    'done >>"$exits"',
]


class Expanded(str):
    """A word that the shell expands; every other word is quoted."""

    __slots__ = ()


ALL_NODES = Expanded('"$SLURM_JOB_NUM_NODES"')


@dataclass(frozen=True, slots=True)
class Part:
    """One member of a submission."""

    member: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Request:
    """Contents of a batch script."""

    name: str
    trial: Path
    parts: Sequence[Part]
    nodes_per_member: int
    gang_nodes: int
    job_slots_per_node: int
    """Slots of the whole job on a node: in a gang several members may share one."""
    cpus_per_slot: int
    memory_mib_per_slot: int | None
    """Memory to request with each slot; None: the site's default."""
    accelerators: bool
    """True if a slot is an accelerator, false if it is CPUs only."""
    at_once: int | None
    """Largest number of members that train at the same time; None: no limit."""
    first_wave: int
    """Number of members of a gang that start together."""
    stages: bool
    command: Sequence[str]
    """Command of the agent in its container: of a member's nodes, or of a gang's."""
    clear: Sequence[str]
    barrier: Sequence[str]
    srun_flags: Sequence[str]
    environment: Mapping[str, str]
    exits: Path
    """File for the exit codes of a gang's members; its log and others lie beside it."""
    cancelled: Path
    """Flag file: while it exists, no job is requeued."""
    slurm: SlurmConfig
    straddling_slots: int | None = None
    """Slots of a member that fills its nodes unequally: Slurm divides them among the nodes, and
    the script exports how; None: each node has `slots_per_node`."""
    pinned_nodes: Sequence[str] = ()
    """Nodes that a gang has to run on; empty: those that Slurm chooses."""


def array_script(request: Request) -> str:
    """Write a script with one task per member; it runs on the member's first node."""
    tasks = f"0-{len(request.parts) - 1}" + (f"%{request.at_once}" if request.at_once else "")
    several, nodes = request.nodes_per_member > 1, str(request.nodes_per_member)
    if request.straddling_slots:
        # As few nodes as possible; what is free may be in parts.
        requested = [f"--nodes=1-{nodes}", "--use-min-nodes"]
        nodes = ALL_NODES
    else:
        requested = [f"--nodes={nodes}"]
    return "\n".join(
        [
            *_head(request, [f"--array={tasks}", *requested]),
            f"members=({_numbers(part.member for part in request.parts)})",
            f"attempts=({_numbers(part.attempt for part in request.parts)})",
            "export AI500_MEMBER=${members[SLURM_ARRAY_TASK_ID]}",
            'AI500_ATTEMPT=${attempts[SLURM_ARRAY_TASK_ID]}',
            "export AI500_ATTEMPT=$((AI500_ATTEMPT + ${SLURM_RESTART_COUNT:-0}))",
            'exec >>"$trial/members/$(printf %03d "$AI500_MEMBER")/log.txt" 2>&1',
            f'echo "{ATTEMPT_MARK}$AI500_ATTEMPT of member $AI500_MEMBER'
            ': job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"',
            *_set_up(request),
            *([ADDRESS_OF, 'AI500_HEAD=$(address_of "$SLURMD_NODENAME")', "export AI500_HEAD"]
              if several else []),
            *([STRADDLING] if request.straddling_slots else []),
            _array_step(request),
            "code=$?",
            *_clear(request, nodes),
            *_requeue(request, '"$code"'),
            'exit "$code"',
            "",
        ]
    )  # fmt: skip


def gang_script(request: Request) -> str:
    """Write a script with one step for all members, and a barrier server beside it.

    However many members and nodes there are, two srun run on the first node.
    """
    server = [
        *request.barrier, "--exits", str(request.exits), "--at-once", str(request.first_wave),
        "--seconds", f"{request.slurm.barrier_seconds:g}",
    ]  # fmt: skip
    names = ",".join(request.pinned_nodes)
    pinned = [f"--nodelist={names}"] if names else []
    return "\n".join(
        [
            *_head(request, [f"--nodes={request.gang_nodes}", *pinned]),
            f"members=({_numbers(part.member for part in request.parts)})",
            f"exits={shlex.quote(str(request.exits))}",
            'exec >>"${exits%.exits}.log" 2>&1',
            'echo "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)), on '
            '$SLURM_JOB_NODELIST"',
            ': >"$exits"',
            *_set_up(request),
            *(NODE_ADDRESSES if request.nodes_per_member > 1 else []),
            'export AI500_BARRIER="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"',
            _small_step(request, "1", ["--relative=0"], server)
            + ' --name "$AI500_BARRIER" >"${exits%.exits}.barrier.log" 2>&1 &',
            "barrier=$!",
            _gang_step(request),
            "code=$?",
            'kill "$barrier" 2>/dev/null; wait "$barrier"',
            *COMPLETE_EXITS,
            *_clear(request, str(request.gang_nodes)),
            f"stopped=$(grep -c ' {CHECKPOINTED_EXIT_CODE}$' \"$exits\")",
            *_requeue(request, f'"$((stopped > 0 ? {CHECKPOINTED_EXIT_CODE} : 0))"'),
            "! grep -qv ' 0$' \"$exits\"",
            "",
        ]
    )


def site_options(slurm: SlurmConfig) -> list[str]:
    """List the options of [slurm] that every job carries: partition, account, limits."""
    named = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": slurm.time_limit,
        "constraint": slurm.constraint,
        "reservation": slurm.reservation,
        "exclude": slurm.exclude,
    }
    stated = [f"--{name}={value}" for name, value in named.items() if value is not None]
    return [*stated, *(["--exclusive"] if slurm.exclusive else [])]


def sbatch_line(option: str) -> str:
    """Write an option of sbatch as one word, whatever characters it has.

    Slurm reads double quotes and backslashes here, and expands nothing. The end of a line, which
    would begin a line of the script, can't be expressed.
    """
    if not option.isprintable():
        raise setting_error(
            "slurm.sbatch", option, "an option of sbatch has only printable characters.",
            "Write lines of the script into slurm.setup.",
        )  # fmt: skip
    if re.search(r"""[\s"'\\#]""", option):
        option = '"' + re.sub(r"""(["\\])""", r"\\\1", option) + '"'
    return f"#SBATCH {option}"


def _head(request: Request, options: list[str]) -> list[str]:
    slurm = request.slurm
    if request.straddling_slots:
        resources = [
            f"--ntasks={request.straddling_slots}",
            f"--cpus-per-task={request.cpus_per_slot}",
            *_gpus(request, "--gpus-per-task", 1),
            *_memory(request, "--mem-per-cpu", slots=1 / request.cpus_per_slot),
        ]
    else:
        resources = [
            "--ntasks-per-node=1",
            f"--cpus-per-task={request.job_slots_per_node * request.cpus_per_slot}",
            *_gpus(request, "--gpus-per-node", request.job_slots_per_node),
            *_memory(request, "--mem", slots=request.job_slots_per_node),
        ]
    options = [
        f"--job-name={request.name}",
        *options,
        *resources,
        *site_options(slurm),
        "--requeue",
        f"--signal=TERM@{slurm.checkpoint_signal_seconds}",
        "--output=/dev/null",  # the script redirects to its own log
        *slurm.sbatch,
    ]
    return [
        "#!/bin/bash",
        *map(sbatch_line, options),
        f"trial={shlex.quote(str(request.trial))}",
    ]


def _set_up(request: Request) -> list[str]:
    """Set the environment; srun exports all of it and requests its GPUs itself."""
    lines = [f"export {name}={shlex.quote(v)}" for name, v in sorted(request.environment.items())]
    return [
        "export SLURM_EXPORT_ENV=ALL",
        "unset SLURM_GPUS_PER_NODE",
        *lines,
        *request.slurm.setup,
    ]


def _gpus(request: Request, flag: str, count: int) -> list[str]:
    requested = request.accelerators and request.slurm.gpus_per_task
    kind = f"{request.slurm.gpu_type}:" if request.slurm.gpu_type else ""
    return [f"{flag}={kind}{count}"] if requested else []


def _memory(request: Request, flag: str, *, slots: float) -> list[str]:
    if request.memory_mib_per_slot is None:
        return []
    return [f"{flag}={int(request.memory_mib_per_slot * slots)}M"]


def _array_step(request: Request) -> str:
    """Write the step of an array's member: the node agent, on each of its nodes."""
    if request.straddling_slots:
        # Without --exact the step has all CPUs and accelerators of the job on each node.
        whole = [f"--cpus-per-task={request.cpus_per_slot}", "--cpu-bind=none"]
        return _srun(request, ALL_NODES, [*whole, "--kill-on-bad-exit=1"], request.command)
    return _srun(
        request,
        str(request.nodes_per_member),
        [*_whole_nodes(request), "--kill-on-bad-exit=1"],
        request.command,
    )


def _gang_step(request: Request) -> str:
    """Write the step of a gang: an agent on each node, which does not end with the others'."""
    slurm = request.slurm
    flags = [
        "--cpus-per-slot", str(request.cpus_per_slot),
        *(["--nodes", str(request.exits.with_suffix(".nodes"))]
          if request.nodes_per_member > 1 else []),
        *(["--no-binding"] if slurm.cpu_bind == "none" else []),
    ]  # fmt: skip
    return _srun(
        request,
        str(request.gang_nodes),
        [*_whole_nodes(request), "--overlap", "--kill-on-bad-exit=0", "--wait=0"],
        [*request.command, *flags],
    )


def _whole_nodes(request: Request) -> list[str]:
    """List the options that give the job's slots on a node to the step's task there."""
    return [
        f"--cpus-per-task={request.job_slots_per_node * request.cpus_per_slot}",
        *_gpus(request, "--gpus-per-task", request.job_slots_per_node),
    ]


def _small_step(request: Request, nodes: str, place: Sequence[str], command: Sequence[str]) -> str:
    """Write a step that takes no CPUs and no accelerators from the members."""
    nothing = ["--overlap", "--cpus-per-task=1", *(["--gres=none"] if request.accelerators else [])]
    return _srun(request, nodes, [*nothing, *place, "--kill-on-bad-exit=1"], command)


def _srun(request: Request, nodes: str, place: Sequence[str], command: Sequence[str]) -> str:
    """Write a step of one task per node; all steps of the job share its memory."""
    slurm = request.slurm
    word = Expanded if isinstance(nodes, Expanded) else str
    flags = [
        word(f"--nodes={nodes}"),
        word(f"--ntasks={nodes}"),
        "--ntasks-per-node=1",
        *place,
        "--mem=0",
        "--mpi=none",
        *([f"--cpu-bind={slurm.cpu_bind}"] if slurm.cpu_bind else []),
        *request.srun_flags,
        *slurm.srun,
    ]
    quoted = [flag if isinstance(flag, Expanded) else shlex.quote(flag) for flag in flags]
    return f"srun {' '.join(quoted)} \\\n    {shlex.join(command)}"


def _clear(request: Request, nodes: str) -> list[str]:
    """Write a step that removes the copies of agents that were killed; others remove their own."""
    if not request.stages:
        return []
    step = _small_step(request, nodes, [], request.clear)
    return [f'if [ "$code" -ge {SIGNAL_EXIT} ]; then', step, "fi"]


def _requeue(request: Request, code: str) -> list[str]:
    """Write the requeue of a job whose member wrote a checkpoint, unless it was cancelled.

    One task of an array has the array's own job id: only the form `job_task` names that task alone.
    """
    return [
        f"if [ {code} -eq {CHECKPOINTED_EXIT_CODE} ] && "
        f"[ ! -e {shlex.quote(str(request.cancelled))} ]; then",
        "  job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}",
        "  job=${job:-$SLURM_JOB_ID}",
        "  for _ in 1 2 3 4 5 6 7 8 9 10; do  # slurmctld may be restarting",
        '    state=$(squeue --noheader --format=%T --jobs="$job") && [ -n "$state" ] && break',
        "    sleep 5",
        "  done",
        '  [ "$state" = RUNNING ] && scontrol requeue "$job" && sleep 600',
        "fi",
    ]


def _numbers(values: Iterable[int]) -> str:
    return " ".join(str(value) for value in values)
