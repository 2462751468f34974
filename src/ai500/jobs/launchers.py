"""Launchers: what a job's command is wrapped in, so that it runs in a container or bare.

A launcher gives argument words, never a line for a shell: names with spaces, quotes, `;` and `$`
arrive as they are. What a runtime's own notation can't express is refused before anything starts.
Whether the runtime is installed shows on the node: a login node often has none.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from ai500.core.errors import ConfigError

if TYPE_CHECKING:
    from ai500.config import ContainerConfig

DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
"""By which a scheduler says which of a node's accelerators are the job's."""

RUNTIMES = ("apptainer", "podman", "docker")
"""Launchers that start a program of the machine, if not told otherwise of their own name."""


class Launcher(Protocol):
    """Wraps the command of one job."""

    def __call__(self, command: Sequence[str]) -> list[str]:
        """The words that start `command`."""

    @property
    def srun_flags(self) -> tuple[str, ...]:
        """What `srun` must be told; nothing unless Slurm itself starts the container."""


@dataclass(frozen=True, slots=True)
class Container:
    """What a launcher is told."""

    image: str
    """As the runtime names it: file.sif, docker://…, localhost/name, path.sqsh."""
    mounts: tuple[str, ...]
    """`/folder`, `/host:/container` or either with `:ro`; of two at one place the later counts."""
    accelerators: bool
    environment: tuple[str, ...]
    """Names of the variables to hand through."""
    working_directory: str
    flags: tuple[str, ...]
    """The site's own, after all others."""
    runtime: tuple[str, ...] = ()
    """The program with its global flags; empty: the launcher's own."""
    accelerator_flags: tuple[str, ...] | None = None
    """What gives a container the accelerators; None: the launcher's own, for NVIDIA's."""

    @classmethod
    def of(
        cls,
        config: ContainerConfig,
        *,
        folders: Sequence[str],
        accelerators: bool,
        environment: Sequence[str],
        working_directory: str,
    ) -> Container | None:
        """The configured container with the run's own folders and variables; None without one."""
        if not config.image:
            return None
        return cls(
            image=config.image,
            mounts=(*folders, *config.mounts),
            accelerators=accelerators,
            environment=tuple(dict.fromkeys((*environment, *config.environment))),
            working_directory=working_directory,
            flags=config.flags,
            runtime=config.runtime,
            accelerator_flags=config.accelerator_flags,
        )


@dataclass(frozen=True, slots=True)
class Wrap:
    """A launcher that puts words before the command."""

    before: tuple[str, ...] = ()
    srun_flags: tuple[str, ...] = ()

    def __call__(self, command: Sequence[str]) -> list[str]:
        """The words that start `command`."""
        return [*self.before, *command]


@dataclass(frozen=True, slots=True)
class Mount:
    """A host's folder at its place in the container."""

    source: str
    target: str
    read_only: bool


def bare(container: Container | None) -> Launcher:
    """No container: the command as it is."""
    if container is not None:
        raise ConfigError(
            f"container.image = {container.image!r}, but scheduler.launcher = 'bare' starts no "
            "container. Set scheduler.launcher to apptainer, podman, docker or pyxis, or leave "
            "container.image out."
        )
    return Wrap()


def apptainer(container: Container | None) -> Launcher:
    """Apptainer, and Singularity by `container.runtime = ["singularity"]`.

    The container is a child of the launching process in all respects: it has its environment
    (so no --cleanenv), user, limits, cgroup and process numbers, gets its signals and dies with
    it. Only the home folder stays out: packages in ~/.local would hide the image's.
    """
    told = _known(container, "apptainer")
    binds = [
        f"--bind={mount.source}:{mount.target}{':ro' if mount.read_only else ''}"
        # Apptainer cuts at commas and carets, trims, and newer ones unescape.
        for mount in _mounts(told, "apptainer", refused=r"[,^\\]|^\s|\s$")
    ]
    return Wrap(
        before=(
            *(told.runtime or ("apptainer",)), "exec", "--no-home", *binds,
            f"--pwd={told.working_directory}",
            *_accelerators(told, "--nv"), *told.flags, told.image,
        )
    )  # fmt: skip


def podman(container: Container | None) -> Launcher:
    """Podman, with or without root."""
    told = _known(container, "podman")
    # Without root the caller's own number inside, else files would belong to a subordinate one.
    user = ("--user=0:0",) if os.geteuid() == 0 else ("--userns=keep-id",)
    return _engine(
        told,
        program=told.runtime or ("podman",),
        flags=(*user, *_accelerators(told, "--device=nvidia.com/gpu=all")),
    )


def docker(container: Container | None) -> Launcher:
    """Docker: its daemon is root, so the user, groups and limits are told."""
    told = _known(container, "docker")
    return _engine(
        told,
        program=told.runtime or ("docker",),
        flags=(
            f"--user={os.geteuid()}:{os.getegid()}",
            *(f"--group-add={group}" for group in os.getgroups() if group != os.getegid()),
            "--ulimit=memlock=-1",  # the daemon's own would not do for RDMA
            *_accelerators(told, "--gpus=all"),
        ),
    )


def pyxis(container: Container | None) -> Launcher:
    """pyxis and enroot: Slurm starts the container, the command stays as it is."""
    told = _known(container, "pyxis")
    if told.runtime:
        raise ConfigError(
            "container.runtime is set, but with scheduler.launcher = 'pyxis' Slurm starts the "
            "container. Leave it out; flags of srun go to container.flags."
        )
    # pyxis separates mounts by commas and writes them into a bash script, in double quotes.
    mounts = [
        f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"
        for mount in _mounts(told, "pyxis", refused=r"[,\s\"$`\\]")
    ]
    # An image's value of a variable wins over the job's, unless it is named.
    names = (f"--container-env={','.join(told.environment)}",) if told.environment else ()
    return Wrap(
        srun_flags=(
            f"--container-image={told.image}",
            *((f"--container-mounts={','.join(mounts)}",) if mounts else ()),
            f"--container-workdir={told.working_directory}",
            *names,
            "--no-container-mount-home",
            "--no-container-entrypoint",
            *_accelerators(told),
            *told.flags,
        )
    )


# Podman's and Docker's containers are children of conmon or containerd: they outlive a client that
# is killed, and then a job that Slurm or the controller believes dead still writes into its member.
# So the client's number, which `exec` keeps, is told to the container, which sees the host's
# processes and kills itself when that one is gone, or a zombie. The watcher is no child of the
# command's.
_TELL_NUMBER = 'AI500_LAUNCHER_PID=$$ exec "$@"'
_DIE_WITH_LAUNCHER = (
    '({ while kill -0 $$ && read -r _ _ state _ <"/proc/$AI500_LAUNCHER_PID/stat" && '
    '[ "$state" != Z ]; do sleep 1; done; kill -KILL $$; } >/dev/null 2>&1 &); exec "$@"'
)


def _engine(told: Container, *, program: Sequence[str], flags: Sequence[str]) -> Launcher:
    """What Podman and Docker have in common."""
    names = [*told.environment, *(DEVICE_VARIABLES if told.accelerators else ())]
    return Wrap(
        before=(
            "sh", "-c", _TELL_NUMBER, "sh",
            *program, "run", "--rm",
            # The host's network, names and shared memory: as fast, and as found by other nodes.
            "--network=host", "--uts=host", "--ipc=host",
            # Not process 1, so that signals act as everywhere; the client hands them all through.
            "--pid=host",
            "--log-driver=none",  # output goes to the job's log and is not kept a second time
            "--security-opt=label=disable",  # SELinux would hide the mounted folders
            "--entrypoint=",
            *flags,
            *(f"--mount={_csv(mount)}" for mount in _mounts(told, program[0], refused=r"\r")),
            f"--workdir={told.working_directory}",
            "--env=AI500_LAUNCHER_PID", *(f"--env={name}" for name in dict.fromkeys(names)),
            *told.flags,
            told.image,
            "sh", "-c", _DIE_WITH_LAUNCHER, "sh",
        )
    )  # fmt: skip


def _known(container: Container | None, launcher: str) -> Container:
    if container is None or not container.image:
        raise ConfigError(
            f"scheduler.launcher = {launcher!r} needs an image. Set container.image, or "
            "scheduler.launcher = 'bare'."
        )
    for name in container.environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(
                f"container.environment: {name!r} is not the name of a variable. Its value comes "
                "from where the job runs: set it there (slurm.setup on a cluster)."
            )
    if not container.working_directory.startswith("/"):
        raise ConfigError(
            f"the container's working directory {container.working_directory!r} is not absolute"
        )
    return container


def _accelerators(told: Container, *own: str) -> tuple[str, ...]:
    if not told.accelerators:
        return ()
    return own if told.accelerator_flags is None else told.accelerator_flags


def _mounts(told: Container, launcher: str, *, refused: str) -> list[Mount]:
    """Outer folders before inner ones, which they would hide; none with `refused` in its name."""
    mounts = {}
    for text in told.mounts:
        mount = _mount(text)
        for path in (mount.source, mount.target):
            if found := re.search(refused, path):
                raise ConfigError(
                    f"{launcher} can't mount {path!r}: its notation has no way to write "
                    f"{found[0]!r} there. Rename the folder."
                )
        mounts[mount.target] = mount
    return [mounts[target] for target in sorted(mounts)]


def _mount(text: str) -> Mount:
    places = text.split(":")
    mode = places.pop() if len(places) > 1 and places[-1] in ("ro", "rw") else "rw"
    if len(places) > 2 or not all(place.startswith("/") for place in places):
        raise ConfigError(
            f"container.mounts: {text!r} is not '/folder', '/host:/container' or either with "
            "':ro': paths are absolute, and a folder with a colon in its name can't be mounted."
        )
    source, target = (str(PurePosixPath(place)) for place in (places[0], places[-1]))
    return Mount(source, target, read_only=mode == "ro")


def _csv(mount: Mount) -> str:
    """`--mount` is a line of CSV: all is safe but a carriage return, which Go's reader drops."""
    line = io.StringIO()
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    csv.writer(line).writerow([*fields, *(["readonly"] * mount.read_only)])
    return line.getvalue().removesuffix("\r\n")
