"""Why a worker ended: the cause that a job's record keeps, its text, and what to do about it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.core.shell import quoted

ExitCause = Literal[
    "out_of_memory", "signal", "time_limit", "node_failure", "preempted", "not_started",
    "environment", "input", "error",
]  # fmt: skip
CHECKPOINTED_EXIT_CODE = 75
"""Exit code of a member that was stopped and wrote a checkpoint: requeue it (EX_TEMPFAIL)."""
SIGNAL_EXIT = 128
"""A shell's exit code of a process that a signal ended is 128 + the signal's number."""
NOT_STARTED_EXITS = (126, 127)
"""A shell's exit codes of a command that can't be executed, or that does not exist."""
CAUSES_OF_EXITS: dict[int, ExitCause] = {2: "input", 3: "environment"}
"""Exit codes of `core/errors.py`."""
CAUSES_OF_STATES: dict[str, ExitCause] = {
    "OUT_OF_MEMORY": "out_of_memory",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "PREEMPTED": "preempted",
    "LAUNCH_FAILED": "not_started",
    "RECONFIG_FAIL": "not_started",
}
"""Slurm's word for the end of a job → cause."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """End of a member's worker on one node, recorded by the node agent."""

    attempt: int
    node: str
    exit_code: int
    """Exit code as a shell reports it: 128 + the number of the signal that ended it."""
    out_of_memory: bool | None
    """True if the kernel killed a process of the job for lack of memory; None: not known."""


def exit_cause(
    exit_code: int | None, state: str | None, exits: Sequence[WorkerExit]
) -> ExitCause | None:
    """Return the cause of a failed job: what the kernel did, what the scheduler says, its code.

    None: not known.
    """
    if any(end.out_of_memory for end in exits):
        return "out_of_memory"
    if state in CAUSES_OF_STATES:
        return CAUSES_OF_STATES[state]
    codes: list[int | None] = [end.exit_code for end in exits if end.exit_code] or [exit_code]
    if any(signal_of(code) is not None for code in codes):
        return "signal"
    code = codes[0]
    if code in NOT_STARTED_EXITS:
        return "not_started"
    return None if not code else CAUSES_OF_EXITS.get(code, "error")


def signal_of(exit_code: int | None) -> str | None:
    """Return the signal that an exit code stands for: `SIGKILL`; None: it exited by itself."""
    if exit_code is None:
        return None
    number = -exit_code if exit_code < 0 else exit_code - SIGNAL_EXIT
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def describe_exit(cause: ExitCause | None, exit_code: int | None) -> str:
    """Describe why a job ended; empty where the cause is not known."""
    texts: dict[ExitCause, str] = {
        "out_of_memory": "out of memory: the kernel killed it",
        "signal": f"killed by {signal_of(exit_code) or 'a signal'}",
        "time_limit": "its job reached the time limit",
        "node_failure": "its node failed",
        "preempted": "its job was preempted",
        "not_started": "its command could not be started",
        "environment": "its node lacks something",
        "input": "its input was refused",
        "error": "it reported an error",
    }
    if cause is None:
        return ""
    return texts[cause] + ("" if exit_code is None else f" (exit code {exit_code})")


def exit_remedy(cause: ExitCause | None, *, run: str) -> str:
    """Return what to do after a failure; a resume alone does not mend every cause."""
    resume = f"`ai500 resume {quoted(run)}`"
    if cause == "out_of_memory":
        return (
            "A resume alone would run out of memory again: give the job more memory and then "
            f"{resume}, or start a new run with a smaller train.batch_size, a larger "
            "parallel.degree or fewer members at once."
        )
    if cause == "not_started":
        return (
            "A resume alone would fail in the same way: mend the image, the interpreter or the "
            f"launcher of its job first; then {resume}."
        )
    if cause in ("environment", "input"):
        return f"Mend what the error names; then {resume} repeats only what failed."
    if cause == "error":
        return f"Once what the error names is mended, {resume} repeats only what failed."
    return f"{resume} repeats only what failed."
