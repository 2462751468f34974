"""Start the ranks that measure links: on this node by torchrun, on several nodes through Slurm."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ai500.config import Config, SlurmConfig
from ai500.core.errors import EnvironmentLacksError, JobError
from ai500.core.source import DIE_WITH_PARENT
from ai500.jobs.outage import ask_patiently
from ai500.jobs.schedulers import slurm_commands as commands
from ai500.jobs.schedulers.slurm_script import ADDRESS_OF, sbatch_line, site_options
from ai500.records import run_folder
from ai500.roofline.records import LinkTime

# Timeout of the measurement of one node.
TIMEOUT_SECONDS = 600.0
POLL_SECONDS = 1.0
WORKER = "ai500.roofline.link_worker"


def measure_node_links(*, device: str, ranks: int, seconds: float) -> list[LinkTime]:
    """Measure links between processes of this node.

    Each process has an accelerator, or a share of the cores.
    """
    with tempfile.TemporaryDirectory(prefix="ai500-links-") as folder:
        output = Path(folder) / "links.json"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                    f"--nproc-per-node={ranks}"]  # fmt: skip
        command = [*torchrun, "-m", WORKER, str(output), device, str(seconds)]
        threads = max(1, (os.cpu_count() or 1) // ranks)
        try:
            process = subprocess.run(
                [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *command],
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_SECONDS,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentLacksError(
                f"{ranks} processes did not measure the links of this node within "
                f"{TIMEOUT_SECONDS:.0f} s.",
                remedy="Check that they reach each other, or skip links with --ranks 1.",
            ) from error
        if not output.exists():
            raise EnvironmentLacksError(
                f"{ranks} processes failed to measure the links of this node: "
                f"{_first_error(process.stderr)}"
            )
        return run_folder.read_all(LinkTime, output)


def _first_error(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if re.search(r"\w*Error\b", line)]
    return lines[0].strip() if lines else "no error message"


def batch_script(
    *,
    folder: Path,
    nodes: int,
    ranks: int,
    cpus: int,
    device: str,
    kernels: Sequence[str],
    seconds: float,
    slurm: SlurmConfig,
    python: str,
) -> str:
    """Return a script of two steps: kernels of the first node, then links of all nodes."""
    options = [
        f"--job-name={job_name(folder)}",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
        *([f"--gpus-per-node={ranks}"] if device != "cpu" and slurm.gpus_per_task else []),
        *site_options(slurm),
        "--output=/dev/null",
        *slurm.sbatch,
    ]
    torchrun = [python, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
                f"--nnodes={nodes}"]  # fmt: skip
    worker = ["-m", WORKER, str(folder / "links.json"), device, str(seconds)]
    # SLURM_NODEID is only set on the node.
    on_node = (
        f'exec {shlex.join(torchrun)} --node-rank="$SLURM_NODEID" '
        f'--master-addr="$AI500_HEAD" --master-port="$AI500_PORT" {shlex.join(worker)}'
    )
    step = f"--ntasks-per-node=1 --cpus-per-task={cpus} --mem=0 --mpi=none --kill-on-bad-exit=1"
    site = shlex.join(slurm.srun)
    return "\n".join(
        [
            "#!/bin/bash",
            *map(sbatch_line, options),
            f"folder={shlex.quote(str(folder))}",
            'exec >>"$folder/log.txt" 2>&1',
            "export SLURM_EXPORT_ENV=ALL",
            *slurm.setup,
            ADDRESS_OF,
            'AI500_HEAD=$(address_of "$SLURMD_NODENAME")',
            "export AI500_HEAD AI500_PORT=$((20000 + SLURM_JOB_ID % 10000))",
            f"export OMP_NUM_THREADS={max(1, cpus // ranks)}",
            f"srun --nodes=1 --ntasks=1 {step} {site} \\",
            f"    {shlex.join(kernels)} || exit",
            f"srun --nodes={nodes} --ntasks={nodes} {step} {site} \\",
            f"    bash -c {shlex.quote(on_node)}",
            "",
        ]
    )


def job_name(folder: Path) -> str:
    """Return a job name in characters that every scheduler accepts."""
    return "ai500-roofline-" + re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name)[:40]


def run_batch_script(
    text: str, *, folder: Path, patience_seconds: float, on_state: Callable[[str], None]
) -> None:
    """Submit the script and wait for the job's end; Ctrl-C cancels it."""
    job = commands.submit_script(text, options=[f"--chdir={folder}"])
    try:
        while True:
            states = ask_patiently(
                lambda: commands.job_states([job]),
                patience_seconds=patience_seconds,
                on_outage=lambda reason: on_state(f"job {job}: {reason}"),
            )
            status = states[job]
            on_state(f"job {job}: {status.reason if status.state == 'pending' else status.state}")
            if status.state not in ("pending", "running"):
                break
            time.sleep(POLL_SECONDS)
    except BaseException:
        commands.cancel_jobs([job])
        raise
    if status.state != "done":
        raise JobError(
            f"Job {job} ended as {status.slurm_state}.", remedy=f"See {folder / 'log.txt'}."
        )


def ranks_and_cpus(config: Config, *, cpus_per_node: int, accelerators: int) -> tuple[int, int]:
    """Return ranks per node and CPUs to request: one rank per accelerator, or CPU slots [D8]."""
    if config.system.device != "cpu" and accelerators:
        ranks = config.system.accelerators_per_node or accelerators
        return ranks, (config.slurm.cpus_per_accelerator or cpus_per_node // ranks) * ranks
    ranks = config.system.accelerators_per_node or min(2, cpus_per_node)
    return ranks, (config.system.cores_per_slot or cpus_per_node // ranks) * ranks
