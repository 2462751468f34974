#!/usr/bin/env python3
"""A real Slurm cluster on one machine, for the tests and for trying things by hand.

    python tests/support/slurm/cluster.py up /var/tmp/slurm --nodes 4 --cpus 2
    export SLURM_CONF=/var/tmp/slurm/slurm.conf     # in another shell: sinfo, srun, sbatch, …
    python tests/support/slurm/cluster.py down /var/tmp/slurm

It has its own munge, slurmctld and, on request, slurmdbd with MariaDB. Each virtual node is one
slurmd in pid, uts, ipc and mount (on request network) namespaces of its own: its own host name,
/etc/hosts, /tmp and /dev/shm. Killing it kills every process on the node, like a power cut.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # as a script, import from the repository's root as the tests do
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.support.slurm import configuration
from tests.support.slurm.configuration import HERE, Place, Settings
from tests.support.slurm.daemons import ClusterError, Daemons
from tests.support.slurm.network import Bridge, free_ports, listening

# Unix sockets are below the base folder, and the kernel limits their paths to 107 bytes.
LONGEST_BASE = 60


class Cluster:
    """A cluster below one folder; `with Cluster(base, nodes=4) as cluster:` starts and stops it.

    The options are the fields of `Settings`.
    """

    def __init__(self, base: Path, **options: Any) -> None:
        self.settings = Settings(**options)
        self.names = self.settings.names
        self.base = base.resolve()
        if len(os.fsencode(self.base)) > LONGEST_BASE:
            raise ClusterError(
                f"{self.base} is longer than {LONGEST_BASE} bytes, and the daemons' sockets below "
                "it would not fit the kernel's limit. Choose a shorter folder, as /var/tmp/slurm."
            )
        if not re.fullmatch(r"[\w./-]+", str(self.base)):
            raise ClusterError(
                f"slurm.conf cannot contain the folder name {str(self.base)!r}. "
                "Choose one of letters, digits and ._- only, as /var/tmp/slurm."
            )
        self.conf = self.base / "slurm.conf"
        self.start_seconds = 0.0
        self._daemons = Daemons(self.base / "log")
        self._bridge: Bridge | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment for Slurm's commands, without variables of another Slurm."""
        inherited = re.compile(r"(SLURM|SBATCH|SRUN|SALLOC|SQUEUE|SINFO|SACCT|SCANCEL)_")
        kept = {name: value for name, value in os.environ.items() if not inherited.match(name)}
        path = kept.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
        return kept | {"SLURM_CONF": str(self.conf), "PATH": path}

    def run(self, *command: str | Path, timeout: float = 60, cwd: Path | None = None) -> str:
        """Run a command on the login node (this machine); return its output, or raise."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            env=self.environment,
            cwd=cwd or self.base,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode:
            message = (done.stderr or done.stdout).strip()
            raise ClusterError(f"{shlex.join(words)} exited with {done.returncode}: {message}")
        return done.stdout

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, timeout: float = 120) -> None:
        """Start all daemons; return when all nodes are idle."""
        begin = time.monotonic()
        self.check_prerequisites()
        try:
            self._lay_out()
            self.start_munge()
            if self.settings.accounting:
                self._start_accounting()
            self.start_controller()
            for name in self.names:
                self.start_node(name)
            self._daemons.until("idle nodes", self._all_idle, timeout=timeout)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - begin

    def stop(self) -> None:
        """Cancel all jobs and end all daemons; keep the files."""
        if "slurmctld" in self._daemons:
            # A waiting srun of this machine ends too.
            with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
                self.run("scancel", "--quiet", "--user=root", timeout=10)
        for name in self.names:
            if name in self._daemons:
                self.kill_node(name)
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            self._daemons.terminate(name)
        if self._bridge:
            self._bridge.delete()
            self._bridge = None

    def start_node(self, name: str) -> None:
        """Power a node on; it registers by itself."""
        kinds = ["--pid", "--uts", "--ipc", "--mount-proc", *(["--net"] if self._bridge else [])]
        address = self.place.addresses[name] if self._bridge else ""
        shared = [str(path) for path in (self.base, *self.settings.shared)]
        below_tmp = [path for path in shared if path.startswith("/tmp/")]
        pid = self._daemons.start(
            name,
            ["unshare", "--fork", "--kill-child=SIGKILL", *kinds,
             "sh", str(HERE / "node.sh"), str(self.base), name, address, *below_tmp],
            environment=self.environment,
            dies_by="KILL",  # unshare ignores SIGTERM; its SIGKILL empties the pid namespace
        )  # fmt: skip
        if self._bridge:
            here, there = Path("/proc/self/ns/net"), Path(f"/proc/{pid}/ns/net")
            self._daemons.until(name, lambda: here.readlink() != there.readlink())
            self._bridge.plug_in(name, pid)

    def kill_node(self, name: str) -> None:
        """Cut a node's power: kill its slurmd, its step daemons and all tasks at once."""
        self._daemons.kill(name)

    def start_controller(self) -> None:
        """Start slurmctld, which restores its saved state."""
        self._start_daemon("slurmctld", "-D", "-f", str(self.conf))
        up = "is UP"
        self._daemons.until("slurmctld", lambda: up in self.run("scontrol", "ping", timeout=5))

    def stop_controller(self) -> None:
        """Stop slurmctld, which saves its state; running jobs keep running."""
        self._daemons.terminate("slurmctld")

    def stop_munge(self) -> None:
        """Stop munged: every command and daemon of Slurm fails to authenticate."""
        self._daemons.terminate("munged")

    def cut_network(self, name: str) -> None:
        """Disconnect a node's network."""
        self._require_bridge().cut(name)

    def restore_network(self, name: str) -> None:
        """Reconnect a node's network."""
        self._require_bridge().restore(name)

    def heal(self, *, timeout: float = 120) -> None:
        """Restore a cluster after a test: all nodes idle, no jobs."""
        if "munged" not in self._daemons:
            self.start_munge()
        if "slurmctld" not in self._daemons:
            self.start_controller()
        self.run("scancel", "--quiet", "--user=root")
        for name in self.names:
            if name not in self._daemons:
                self.start_node(name)
        self._daemons.until("idle nodes", self._all_idle, timeout=timeout)

    def node_state(self, name: str) -> set[str]:
        """Read state and flags of a node, as {"DOWN", "NOT_RESPONDING"}; sinfo omits some."""
        shown = self.run("scontrol", "--oneliner", "show", "node", name)
        match = re.search(r"\bState=(\S+)", shown)
        if match is None:
            raise ClusterError(f"scontrol shows no state of node {name}: {shown}")
        return set(match[1].replace("*", "+NOT_RESPONDING").split("+"))

    def wait_for_node(self, name: str, state: str, *, timeout: float = 60) -> None:
        """Wait until the node has this state or flag."""
        self._daemons.until(
            f"{state} of {name}", lambda: state in self.node_state(name), timeout=timeout
        )

    def job_states(self, job_id: str | int) -> list[str]:
        """List the states of a job or of its array tasks; squeue keeps ended jobs 10 minutes."""
        command = ["squeue", "--noheader", "--array", "--states=all", "--format=%T"]
        return self.run(*command, f"--jobs={job_id}").split()

    def wait_for_job(self, job_id: str | int, *states: str, timeout: float = 120) -> None:
        """Wait until the job, or each task of an array, has one of these states."""
        self._daemons.until(
            f"{' or '.join(states)} of job {job_id}",
            lambda: set(self.job_states(job_id)) <= set(states),
            timeout=timeout,
        )

    def reach_time_limit(self, job_id: str | int) -> None:
        """Set a running job's limit to now; slurmctld checks every 30 s and sets TIMEOUT."""
        self.run("scontrol", "update", f"JobId={job_id}", "EndTime=now")

    def processes(self) -> list[int]:
        """List processes of this machine that have this cluster's SLURM_CONF."""
        mark = f"SLURM_CONF={self.conf}".encode()
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    variables = (entry / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if mark in variables:
                    pids.append(int(entry.name))
        return pids

    def check_prerequisites(self) -> None:
        """Raise an error if a cluster cannot start on this machine."""
        if os.geteuid() != 0:
            raise ClusterError("A cluster of virtual nodes needs root: it mounts file systems.")
        missing = configuration.missing_packages(self.settings, self.environment["PATH"])
        if missing:
            raise ClusterError(
                f"Debian packages are missing: {' '.join(missing)}. Run `make debian-packages`, or "
                f"`apt-get install --no-install-recommends {' '.join(missing)}`."
            )

    def _lay_out(self) -> None:
        """Make folders, the munge key, fake GPUs and configuration files; choose ports."""
        for folder in ("munge", "state", "log", "run", "dev"):
            (self.base / folder).mkdir(parents=True, exist_ok=True)
        for name in self.names:
            (self.base / "spool" / name).mkdir(parents=True, exist_ok=True)
            (self.base / "tmp" / name).mkdir(parents=True, exist_ok=True)
            (self.base / "tmp" / name).chmod(0o1777)
        key = self.base / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        for number in range(self.settings.gpus):
            device = self.base / "dev" / f"gpu{number}"
            if not device.exists():
                # Slurm accepts only character devices as GPUs: these are like /dev/null.
                os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
        self.place = self._choose_place()
        configuration.write(self.settings, self.place)

    def _choose_place(self) -> Place:
        controller_port, dbd_port, sql_port, *ports = free_ports(3 + len(self.names))
        self._bridge = Bridge() if self.settings.net else None
        prefix = self._bridge.prefix if self._bridge else "127.20"
        return Place(
            base=self.base,
            host=socket.gethostname(),
            controller_address=self._bridge.address if self._bridge else "127.0.0.1",
            controller_port=controller_port,
            dbd_port=dbd_port,
            sql_port=sql_port,
            addresses={
                name: f"{prefix}.{number // 250}.{number % 250 + 1}"
                for number, name in enumerate(self.names)
            },
            ports=dict(zip(self.names, ports, strict=True)),
        )

    def start_munge(self) -> None:
        """Start munged; no command of Slurm works without it."""
        munge = self.base / "munge"
        names = {"socket": "s", "key-file": "key", "pid-file": "pid", "log-file": "log"}
        files = [f"--{kind}={munge / name}" for kind, name in names.items()]
        # --force: munged rejects sockets below a folder that other users cannot enter.
        arguments = ["--foreground", "--force", "--num-threads=10", f"--seed-file={munge}/seed"]
        self._start_daemon("munged", *arguments, *files)
        self._daemons.until("munge", lambda: bool(self.run("munge", "-S", munge / "s", "-n")))

    def _start_accounting(self) -> None:
        data, first = self.base / "mysql", self.base / "run" / "first.sql"
        if not data.exists():
            self.run(
                "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}",
                "--auth-root-authentication-method=normal", "--skip-test-db",
                "--skip-name-resolve", timeout=300,
            )  # fmt: skip
        first.write_text(
            "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"
            "CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
            "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';\n"
        )
        self._start_daemon(
            "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}",
            f"--socket={self.base}/run/sql", f"--pid-file={self.base}/run/mariadbd.pid",
            "--bind-address=127.0.0.1", f"--port={self.place.sql_port}", "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=2", "--max-allowed-packet=16M",
            f"--init-file={first}",
        )  # fmt: skip
        self._daemons.until("mariadbd", lambda: listening(self.place.sql_port), timeout=120)
        self._start_daemon("slurmdbd", "-D")
        self._daemons.until("slurmdbd", lambda: listening(self.place.dbd_port), timeout=120)
        show = ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster"]
        if "ai500" not in self.run(*show).split():
            self.run("sacctmgr", "--immediate", "add", "cluster", "ai500")

    def _start_daemon(self, command: str, *arguments: str) -> None:
        self._daemons.start(command, [command, *arguments], environment=self.environment)

    def _all_idle(self) -> bool:
        states = self.run(
            "sinfo", "--noheader", "--Node", "--partition=batch", "--format=%T"
        ).split()
        return states.count("idle") == len(self.names)

    def _require_bridge(self) -> Bridge:
        if self._bridge is None:
            raise ClusterError("The nodes have no network of their own; start with net=True.")
        return self._bridge


def up(cluster: Cluster) -> None:
    """Run a cluster until SIGINT or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit())
    if supervisor(cluster.base):
        raise ClusterError(f"A cluster is already up in {cluster.base}; `down` stops it.")
    cluster.check_prerequisites()
    cluster.base.mkdir(parents=True, exist_ok=True)
    pid_file = cluster.base / "supervisor.pid"
    pid_file.write_text(str(os.getpid()))
    try:
        with cluster:
            print(f"{len(cluster.names)} nodes are idle after {cluster.start_seconds:.1f} s.")
            print("Ctrl-C stops the cluster. In other shells:")
            print(f"export SLURM_CONF={cluster.conf}", flush=True)
            while True:
                signal.pause()
    finally:
        pid_file.unlink()


def supervisor(base: Path) -> int:
    """Return the process id of the `up` that runs a cluster in this folder, or 0."""
    try:
        pid = int((base / "supervisor.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return 0
    return pid if Path(__file__).name.encode() in command else 0


def down(base: Path, *, timeout: float = 60) -> None:
    """Stop the `up` of this folder and wait until it has ended."""
    pid = supervisor(base)
    if not pid:
        raise ClusterError(f"No cluster is up in {base}.")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while supervisor(base):
        if time.monotonic() > deadline:
            raise ClusterError(f"Process {pid} has not stopped after {timeout:.0f} s.")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("up", help="start a cluster and keep it until Ctrl-C or `down`")
    end = verbs.add_parser("down", help="stop the cluster of a folder; its files stay")
    for verb in (start, end):
        verb.add_argument("folder", metavar="DIR", type=Path, help="short, as /var/tmp/slurm")
    start.add_argument("--nodes", type=int, default=4, help="virtual nodes (4)")
    start.add_argument("--cpus", type=int, default=2, help="CPUs that each node claims (2)")
    start.add_argument("--gpus", type=int, default=0, help="fake GPUs of each node (0)")
    start.add_argument("--accounting", action="store_true", help="slurmdbd, MariaDB: sacct works")
    start.add_argument("--net", action="store_true", help="a network namespace for each node")
    options = vars(parser.parse_args())
    verb, folder = options.pop("verb"), options.pop("folder")
    try:
        if verb == "up":
            up(Cluster(folder, **options))
        else:
            down(folder.resolve())
    except ClusterError as error:
        sys.exit(f"cluster.py: {error}")


if __name__ == "__main__":
    main()
