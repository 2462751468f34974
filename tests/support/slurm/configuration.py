"""The settings of a test cluster, and its Slurm configuration files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]

# Debian package → a command of it.
PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurm-client": "scontrol",
    "munge": "munged",
    "iproute2": "ip",
    "procps": "ps",
}
ACCOUNTING_PACKAGES = {
    "slurmdbd": "slurmdbd",
    "mariadb-server-core": "mariadbd",
    "mariadb-client-core": "mariadb",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a test cluster."""

    nodes: int = 4
    cpus: int = 2
    memory_mib: int = 16_000
    gpus: int = 0
    accounting: bool = False
    net: bool = False
    max_array_size: int = 10_001
    slurmd_timeout_seconds: int = 8
    kill_wait_seconds: int = 5
    # A job of a failed node is requeued only after its credential has expired.
    cred_expire_seconds: int = 5
    # Lines of slurm.conf; one replaces the line of the same key in slurm.conf.in.
    extra_conf: Sequence[str] = ()
    # Shell lines that each node runs before slurmd, in its namespaces; $name is the node's name,
    # $private its own folder. They may set SLURMD_OPTIONS.
    node_setup: str = ""
    # Further lines of cgroup.conf.
    cgroup_conf: str = ""
    # Sockets, cores and threads, as in slurm.conf.
    topology: str = ""
    # Folders that the nodes see even below /tmp, so that a checkout there works.
    shared: Sequence[Path] = (REPOSITORY, Path(sys.prefix))

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Paths, addresses and ports of a cluster on this machine."""

    base: Path
    host: str
    controller_address: str
    controller_port: int
    dbd_port: int
    sql_port: int
    addresses: Mapping[str, str]
    ports: Mapping[str, int]


def missing_packages(settings: Settings, path: str) -> list[str]:
    """List the Debian packages whose command is not on this search path."""
    needed = PACKAGES | (ACCOUNTING_PACKAGES if settings.accounting else {})
    return [name for name, command in needed.items() if not shutil.which(command, path=path)]


def write(settings: Settings, place: Place) -> None:
    """All configuration files of a cluster."""
    base = place.base
    (base / "node_setup.sh").write_text(settings.node_setup)
    (base / "slurm.conf").write_text(slurm_conf(settings, place))
    # No cgroup is used; without this, slurmd looks for systemd where there are only v2 cgroups.
    (base / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\n{settings.cgroup_conf}")
    hosts = {"localhost": "127.0.0.1", place.host: place.controller_address, **place.addresses}
    lines = [f"{address} {name}\n" for name, address in hosts.items()]
    (base / "hosts").write_text("".join(lines))
    if settings.gpus:
        (base / "gres.conf").write_text(
            f"NodeName={','.join(settings.names)} Name=gpu Type=fake "
            f"File={base}/dev/gpu[0-{settings.gpus - 1}]\n"
        )
    if settings.accounting:
        secret = base / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text((HERE / "slurmdbd.conf.in").read_text().format_map(vars(place)))


def slurm_conf(settings: Settings, place: Place) -> str:
    """Write the text of slurm.conf."""
    # Hundreds of nodes on a few cores answer late.
    patience = {"message_timeout_seconds": 5, "tcp_timeout_seconds": 2}
    if settings.nodes > 32:
        patience = {"message_timeout_seconds": 60, "tcp_timeout_seconds": 10}
    template = (HERE / "slurm.conf.in").read_text()
    lines = template.format_map(vars(settings) | vars(place) | patience).splitlines()
    lines += accounting_lines(settings, place)
    replaced = {key(line) for line in settings.extra_conf}
    lines = [line for line in lines if key(line) not in replaced]
    return "\n".join([*lines, *settings.extra_conf, *node_lines(settings, place), ""])


def key(line: str) -> str:
    """Return the key of a line of slurm.conf, which is case-insensitive."""
    return line.partition("=")[0].strip().lower()


def accounting_lines(settings: Settings, place: Place) -> list[str]:
    if not settings.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={place.dbd_port}",
        f"AccountingStoragePass={place.base}/munge/s",
        *(["AccountingStorageTRES=gres/gpu"] if settings.gpus else []),
    ]


def node_lines(settings: Settings, place: Place) -> list[str]:
    """List the nodes, their GPUs, and the partition of all nodes."""
    gres = f" Gres=gpu:fake:{settings.gpus}" if settings.gpus else ""
    nodes = [
        f"NodeName={name} NodeHostname={name} NodeAddr={place.addresses[name]} "
        f"Port={place.ports[name]} CPUs={settings.cpus} {settings.topology} "
        f"RealMemory={settings.memory_mib}{gres}"
        for name in settings.names
    ]
    return [
        *(["GresTypes=gpu"] if settings.gpus else []),
        *nodes,
        "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
