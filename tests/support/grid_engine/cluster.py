#!/usr/bin/env python3
"""A real Grid Engine on one machine: a qmaster and an execution host, for the tests and by hand.

    python tests/support/grid_engine/cluster.py /var/tmp/sge      # until Ctrl-C
    . /var/tmp/sge/settings.sh                                    # in another shell: qstat, qsub, …

Debian's binaries run with a root folder (SGE_ROOT) of their own, ports of their own and classic
spooling, in the foreground (SGE_ND), without systemd and without /etc/default/gridengine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

if not __package__:  # as a script, import from the repository's root as the tests do
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.support.slurm.daemons import ClusterError, Daemons
from tests.support.slurm.network import free_ports

HERE = Path(__file__).parent
INSTALLED = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
PACKAGES = ("gridengine-master", "gridengine-exec", "gridengine-client")
COMMANDS = ("sge_qmaster", "sge_execd", "qsub")
QUEUE, PARALLEL_ENVIRONMENT = "all.q", "smp"
NOTIFY_SECONDS = 5
"""Time between SIGUSR2 and SIGKILL of a deleted job that asked to be notified."""


class GridEngine:
    """A cell of one host with `slots` slots; `with GridEngine(base) as cell:` starts and stops."""

    def __init__(self, base: Path, *, slots: int = 4) -> None:
        self.base = base.resolve()
        self.slots = slots
        self._common = self.base / "default" / "common"
        self._spool = self.base / "spool"
        self._daemons = Daemons(self.base / "log")
        self._ports = free_ports(2)

    @property
    def environment(self) -> dict[str, str]:
        """Environment for Grid Engine's commands and daemons."""
        inherited = {name: v for name, v in os.environ.items() if not name.startswith("SGE_")}
        return inherited | {
            "SGE_ROOT": str(self.base),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(self._ports[0]),
            "SGE_EXECD_PORT": str(self._ports[1]),
        }

    def run(self, *words: str | Path, timeout: float = 60) -> str:
        """Run a command of Grid Engine; return its output, or raise."""
        done = subprocess.run(
            [str(word) for word in words], env=self.environment, cwd=self.base,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        if done.returncode:
            raise ClusterError(f"{words[0]} exited with {done.returncode}: {done.stderr}")
        return done.stdout

    def __enter__(self) -> GridEngine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start both daemons; return when the queue takes jobs."""
        if os.geteuid() != 0:
            raise ClusterError("Grid Engine's daemons of the tests need root.")
        if any(shutil.which(name, path=f"{INSTALLED}:/usr/bin") is None for name in COMMANDS):
            raise ClusterError(f"Debian packages are missing: {' '.join(PACKAGES)}.")
        try:
            self._lay_out()
            self.start_master()
            self._configure()
            self._start("sge_execd")
            self._daemons.until("execution host", self._takes_jobs)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Delete all jobs and end both daemons; keep the files."""
        if "sge_qmaster" in self._daemons:
            with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
                self.run("qdel", "-f", "-u", "*", timeout=10)
        for name in ("sge_execd", "sge_qmaster"):
            if name in self._daemons:
                self._daemons.kill(name)  # an orderly end takes seconds
        for pid in self.processes():  # shepherds and jobs outlive their execution daemon
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_master(self) -> None:
        """Start the qmaster, which reads its spooled state."""
        self._start("sge_qmaster")
        self._daemons.until("qmaster", lambda: bool(self.run("qconf", "-sh", timeout=5)))

    def stop_master(self) -> None:
        """Stop the qmaster; running jobs keep running."""
        self._daemons.terminate("sge_qmaster")

    def heal(self) -> None:
        """Delete all jobs and wait until they have gone."""
        if "sge_qmaster" not in self._daemons:
            self.start_master()
        with contextlib.suppress(ClusterError):
            self.run("qdel", "-f", "-u", "*")
        self._daemons.until("empty queue", lambda: not self.run("qstat", "-u", "*").strip())
        self._daemons.until("execution host", self._takes_jobs)

    def processes(self) -> list[int]:
        """List the processes of this machine that have this cell's SGE_ROOT."""
        mark, pids = f"SGE_ROOT={self.base}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        pids.append(int(entry.name))
        return pids

    def _lay_out(self) -> None:
        host = socket.gethostname()
        for folder in (self._common, self._spool / "qmaster", self._spool / "execd",
                       self.base / "log"):  # fmt: skip
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "lib", "util", "utilbin"):
            link = self.base / name
            if not link.is_symlink():
                link.symlink_to(Path("/var/lib/gridengine") / name)
        spooling = f"{self._common};{self._spool / 'qmaster'}"
        (self._common / "act_qmaster").write_text(f"{host}\n")
        # The daemons compare a client's host name with that of its address, here a loopback's.
        (self._common / "host_aliases").write_text(f"{host} localhost\n")
        (self._common / "bootstrap").write_text(
            "admin_user none\ndefault_domain none\nignore_fqdn true\n"
            f"spooling_method classic\nspooling_lib libspoolc\nspooling_params {spooling}\n"
            f"binary_path {self.base}/bin\nqmaster_spool_dir {self._spool}/qmaster\n"
            "security_mode none\nlistener_threads 2\nworker_threads 2\nscheduler_threads 1\n"
            "jvm_threads 0\n"
        )
        changed = {
            "execd_spool_dir": str(self._spool / "execd"), "mailer": "/bin/true", "min_uid": "0",
            "min_gid": "0", "load_report_time": "00:00:02", "max_unheard": "00:00:30",
            "reporting_params": "accounting=true reporting=false flush_time=00:00:01 "
            "joblog=false sharelog=00:00:00",
        }  # fmt: skip
        lines = (SHARED / "default-configuration").read_text().splitlines()
        rows = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
        configuration = self.base / "configuration"
        configuration.write_text("".join(f"{k} {changed.get(k, v)}\n" for k, v in rows))
        resources = SHARED / "util" / "resources"
        for words in (
            ["spoolinit", "classic", "libspoolc", spooling, "init"],
            ["spooldefaults", "configuration", configuration],
            ["spooldefaults", "complexes", resources / "centry"],
            ["spooldefaults", "usersets", resources / "usersets"],
            ["spooldefaults", "managers", "root"],
            ["spooldefaults", "operators", "root"],
        ):
            self.run(INSTALLED / words[0], *words[1:])
        (self.base / "settings.sh").write_text(
            "".join(f"export {k}={v}\n" for k, v in self.environment.items() if "SGE_" in k)
        )

    def _configure(self) -> None:
        """Add the host, the queue and the parallel environment; schedule every second."""
        host = socket.gethostname()
        self.run("qconf", "-as", host)
        for option, name in (("-Msconf", "scheduler"), ("-Ap", "pe"), ("-Aq", "queue")):
            text = (HERE / f"{name}.conf").read_text()
            text = text.format(host=host, slots=self.slots, notify=f"00:00:{NOTIFY_SECONDS:02d}")
            file = self.base / f"{name}.conf"
            file.write_text(text)
            self.run("qconf", option, file)

    def _start(self, name: str) -> None:
        library = {"SGE_ND": "1", "LD_LIBRARY_PATH": str(INSTALLED)}
        self._daemons.start(name, [str(INSTALLED / name)], environment=self.environment | library)

    def _takes_jobs(self) -> bool:
        lines = self.run("qstat", "-f", "-q", QUEUE, timeout=5).splitlines()
        rows = [line.split() for line in lines if line.startswith(QUEUE)]
        return bool(rows) and all(len(row) == 5 and row[3] != "-NA-" for row in rows)


def main() -> None:
    """Run a cell until Ctrl-C."""
    with GridEngine(Path(sys.argv[1])) as cell:
        print(f". {cell.base}/settings.sh", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(60)


if __name__ == "__main__":
    main()
