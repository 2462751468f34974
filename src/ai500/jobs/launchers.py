"""Launchers: wrap a job's command so that it runs in a container, or without one.

A launcher returns argument words, never a line for a shell: names with spaces, quotes, `;` and `$`
pass unchanged. Names that a runtime's notation cannot express are rejected before anything starts.
The runtime is looked for on the node only: a login node often has none.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from ai500.core.errors import ConfigError, setting_error

DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
"""Variables in which a scheduler lists the accelerators of a job."""

RUNTIMES = ("apptainer", "podman", "docker")
"""Launchers that start a program, by default of their own name."""


class Launcher(Protocol):
    """Wraps the command of one job."""

    def __call__(self, command: Sequence[str]) -> list[str]:
        """Return the words that start `command`."""

    @property
    def srun_flags(self) -> tuple[str, ...]:
        """Options of `srun`; empty unless Slurm itself starts the container."""


@dataclass(frozen=True, slots=True)
class Container:
    """The container of a job: image, mounts, environment and flags."""

    image: str
    """Image, in the runtime's notation: file.sif, docker://…, localhost/name, path.sqsh."""
    mounts: tuple[str, ...]
    """`/folder`, `/host:/container` or either with `:ro`; the last of a target counts."""
    accelerators: bool
    environment: tuple[str, ...]
    """Names of the variables to pass into the container."""
    working_directory: str
    flags: tuple[str, ...]
    """The site's flags, after all others."""
    runtime: tuple[str, ...] = ()
    """The program with its global flags; empty: the launcher's default."""
    accelerator_flags: tuple[str, ...] | None = None
    """Flags that pass accelerators to the container; None: the launcher's, for NVIDIA GPUs."""


@dataclass(frozen=True, slots=True)
class Wrap:
    """A launcher that puts words before the command."""

    before: tuple[str, ...] = ()
    srun_flags: tuple[str, ...] = ()

    def __call__(self, command: Sequence[str]) -> list[str]:
        """Return the words that start `command`."""
        return [*self.before, *command]


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host and its path in the container."""

    source: str
    target: str
    read_only: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


def bare(container: Container | None) -> Launcher:
    """Run the command without a container."""
    if container is not None:
        raise setting_error(
            "container.image",
            container.image,
            "scheduler.launcher = 'bare' starts no container.",
            "Set scheduler.launcher to apptainer, podman, docker or pyxis, or remove the image.",
        )
    return Wrap()


def apptainer(container: Container | None) -> Launcher:
    """Run in Apptainer, or in Singularity by `container.runtime = ["singularity"]`.

    The container is an ordinary child of the launching process: it inherits environment (hence no
    --cleanenv), user, limits, cgroup and process ids, receives its signals and ends with it. The
    home folder is not mounted: packages in ~/.local would hide the image's.
    """
    container = _checked(container, "apptainer")
    binds = [
        f"--bind={mount}"
        # Apptainer splits at commas and carets and trims; newer versions unescape.
        for mount in _mounts(container, "apptainer", refused=r"[,^\\]|^\s|\s$")
    ]
    return Wrap(
        before=(
            *(container.runtime or ("apptainer",)), "exec", "--no-home", *binds,
            f"--pwd={container.working_directory}",
            *_accelerators(container, "--nv"), *container.flags, container.image,
        )
    )  # fmt: skip


def podman(container: Container | None) -> Launcher:
    """Run in Podman, with or without root."""
    container = _checked(container, "podman")
    # Without root, map the caller's user id: files would otherwise belong to a subordinate id.
    user = ("--user=0:0",) if os.geteuid() == 0 else ("--userns=keep-id",)
    return _engine(
        container,
        program=container.runtime or ("podman",),
        flags=(*user, *_accelerators(container, "--device=nvidia.com/gpu=all")),
    )


def docker(container: Container | None) -> Launcher:
    """Run in Docker; its daemon is root, so user, groups and limits are passed explicitly."""
    container = _checked(container, "docker")
    return _engine(
        container,
        program=container.runtime or ("docker",),
        flags=(
            f"--user={os.geteuid()}:{os.getegid()}",
            *(f"--group-add={group}" for group in os.getgroups() if group != os.getegid()),
            "--ulimit=memlock=-1",  # the daemon's limit is too low for RDMA
            *_accelerators(container, "--gpus=all"),
        ),
    )


def pyxis(container: Container | None) -> Launcher:
    """Run in pyxis and enroot: Slurm starts the container, the command stays unchanged."""
    container = _checked(container, "pyxis")
    if container.runtime:
        raise setting_error(
            "container.runtime",
            container.runtime,
            "with scheduler.launcher = 'pyxis' Slurm starts the container.",
            "Remove it, and write flags of srun into container.flags.",
        )
    # pyxis separates mounts by commas and writes them into a bash script, in double quotes.
    mounts = [str(m) for m in _mounts(container, "pyxis", refused=r"[,\s\"$`\\]")]
    # A variable of the image overrides the job's unless it is listed here.
    names = (f"--container-env={','.join(container.environment)}",) if container.environment else ()
    return Wrap(
        srun_flags=(
            f"--container-image={container.image}",
            *((f"--container-mounts={','.join(mounts)}",) if mounts else ()),
            f"--container-workdir={container.working_directory}",
            *names,
            "--no-container-mount-home",
            "--no-container-entrypoint",
            *_accelerators(container),
            *container.flags,
        )
    )


# Containers of Podman and Docker are children of conmon or containerd and outlive a client that is
# killed: a job that Slurm or the controller considers ended would still write to its member's
# folder. So the container gets the client's process id, which `exec` keeps, sees the host's
# processes, and kills itself when that process has ended or is a zombie. The watcher is not a
# child of the command.
_EXPORT_PID = 'AI500_LAUNCHER_PID=$$ exec "$@"'
_DIE_WITH_LAUNCHER = (
    '({ while kill -0 $$ && read -r _ _ state _ <"/proc/$AI500_LAUNCHER_PID/stat" && '
    '[ "$state" != Z ]; do sleep 1; done; kill -KILL $$; } >/dev/null 2>&1 &); exec "$@"'
)


def _engine(container: Container, *, program: Sequence[str], flags: Sequence[str]) -> Launcher:
    """Build the command line that Podman and Docker share."""
    names = [*container.environment, *(DEVICE_VARIABLES if container.accelerators else ())]
    return Wrap(
        before=(
            "sh", "-c", _EXPORT_PID, "sh",
            *program, "run", "--rm",
            # The host's network, host names and shared memory: same speed, and reachable by name.
            "--network=host", "--uts=host", "--ipc=host",
            # Not process 1, so that signals have their default effect; the client forwards them.
            "--pid=host",
            "--log-driver=none",  # output goes to the job's log only
            "--security-opt=label=disable",  # SELinux would hide the mounted folders
            "--entrypoint=",
            *flags,
            *(f"--mount={_csv(mount)}" for mount in _mounts(container, program[0], refused=r"\r")),
            f"--workdir={container.working_directory}",
            "--env=AI500_LAUNCHER_PID", *(f"--env={name}" for name in dict.fromkeys(names)),
            *container.flags,
            container.image,
            "sh", "-c", _DIE_WITH_LAUNCHER, "sh",
        )
    )  # fmt: skip


def _checked(container: Container | None, launcher: str) -> Container:
    if container is None or not container.image:
        raise ConfigError(
            f"scheduler.launcher = {launcher!r} needs an image.",
            key="container.image",
            remedy="Set container.image, or scheduler.launcher = 'bare'.",
        )
    for name in container.environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise setting_error(
                "container.environment",
                name,
                "not the name of a variable.",
                "List names only; set values where the job runs (slurm.setup on a cluster).",
            )
    if not container.working_directory.startswith("/"):
        raise ConfigError(
            f"the container's working directory {container.working_directory!r} is not absolute.",
            value=container.working_directory,
        )
    return container


def _accelerators(container: Container, *default: str) -> tuple[str, ...]:
    if not container.accelerators:
        return ()
    return default if container.accelerator_flags is None else container.accelerator_flags


def _mounts(container: Container, launcher: str, *, refused: str) -> list[Mount]:
    """List the mounts, outer folders first; reject paths that match `refused`."""
    mounts = {}
    for text in container.mounts:
        mount = _mount(text)
        for path in (mount.source, mount.target):
            if match := re.search(refused, path):
                problem = f"the mounts of {launcher} cannot express {match[0]!r}."
                raise setting_error("container.mounts", path, problem, "Rename the folder.")
        mounts[mount.target] = mount
    return [mounts[target] for target in sorted(mounts)]


def _mount(text: str) -> Mount:
    places = text.split(":")
    mode = places.pop() if len(places) > 1 and places[-1] in ("ro", "rw") else "rw"
    if len(places) > 2 or not all(place.startswith("/") for place in places):
        raise setting_error(
            "container.mounts",
            text,
            "not '/folder', '/host:/container' or either with ':ro'.",
            "Write absolute paths without a colon.",
        )
    source, target = (str(PurePosixPath(place)) for place in (places[0], places[-1]))
    return Mount(source, target, read_only=mode == "ro")


def _csv(mount: Mount) -> str:
    """Format `--mount`, a line of CSV; Go's reader drops carriage returns."""
    line = io.StringIO()
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    csv.writer(line).writerow([*fields, *(["readonly"] * mount.read_only)])
    return line.getvalue().removesuffix("\r\n")
