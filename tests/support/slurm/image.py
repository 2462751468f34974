"""A container image built from this machine's files, in a Podman storage of its own.

Python and the libraries it needs are in the image; packages (torch) and the source tree are
mounted from the host. Nothing is pulled, and the user's Podman storage is not touched.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO

import pytest

SOURCE = Path(__file__).parents[3] / "src"
PROGRAMS = ("sh", "sleep", "cat")
NOT_NEEDED = {"site-packages", "dist-packages", "test", "idlelib", "ensurepip"}


@dataclass(frozen=True)
class Image:
    """An image, and the options with which Podman runs it here."""

    name: str
    runtime: tuple[str, ...]
    flags: tuple[str, ...]
    python: str
    """The tests' interpreter; with `mounts` it finds the same packages in the container."""
    mounts: tuple[str, ...]

    def containers(self) -> str:
        """List the ids of all containers, running or not."""
        return self._ps("--all")

    def running(self) -> str:
        """List the ids of the containers that podman has recorded as running."""
        return self._ps("--filter", "status=running")

    def _ps(self, *options: str) -> str:
        words = [*self.runtime, "ps", "--quiet", *options]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """Build the image once per session."""
    # Not under pytest's folder: paths of sockets there would be too long.
    folder = Path(tempfile.mkdtemp(prefix="ai500-podman-", dir="/var/tmp"))
    try:
        yield _make(folder)
    finally:
        _remove(folder)


def _make(folder: Path) -> Image:
    # The overlay driver starts a container in 0.2 s, but does not work on every file system.
    for driver in ("overlay", "vfs"):
        made = Image(
            name="localhost/ai500-test",
            runtime=(*_podman(folder), f"--storage-driver={driver}"),
            flags=_limits(),
            python=sys.executable,
            mounts=(f"{sys.prefix}:ro", f"{SOURCE}:ro"),
        )
        _import(made)
        trial = [*made.runtime, "run", "--rm", "--network=host", *made.flags, made.name, "sleep"]
        ended = subprocess.run([*trial, "0"], capture_output=True, text=True)
        if ended.returncode == 0:
            return made
        _remove(folder)
    raise AssertionError(f"podman runs no container here: {ended.stderr}")


def _podman(folder: Path) -> tuple[str, ...]:
    storage = (f"--{name}={folder / name}" for name in ("root", "runroot", "tmpdir"))
    # Without systemd, cgroupfs is the only cgroup manager.
    return ("podman", *storage, "--cgroup-manager=cgroupfs", "--runtime=runc")


def _limits() -> tuple[str, ...]:
    """Set limits: Podman's defaults exceed what root may set without capabilities, as in CI."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # Podman lowers its own limit to pid_max and then cannot raise it again.
    largest = int(Path("/proc/sys/kernel/pid_max").read_text())
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    processes = largest if processes == resource.RLIM_INFINITY else min(largest, processes)
    return (f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}")


def _import(image: Image) -> None:
    with subprocess.Popen(
        [*image.runtime, "import", "-", image.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as podman:
        assert podman.stdin is not None and podman.stderr is not None
        _write_files(podman.stdin)
        podman.stdin.close()
        message = podman.stderr.read().decode()
    assert podman.returncode == 0, message


def _write_files(stream: IO[bytes]) -> None:
    """Write the root file system as a tar."""
    library = Path(sysconfig.get_path("stdlib"))
    programs = [Path(path) for name in PROGRAMS if (path := shutil.which(name))]
    interpreter = Path(sys.executable).resolve()
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as tar:
        for name in ("tmp", "proc", "sys", "dev", "etc"):
            tar.addfile(_folder(name))
        _text(tar, "etc/passwd", f"root:x:0:0::/:/bin/sh\nuser:x:{os.getuid() or 1000}:1000::/:\n")
        for program in programs:
            tar.add(program, f"bin/{program.name}")
        tar.add(library, filter=_needed)
        for file in (interpreter, *_libraries(interpreter, *programs, *_compiled(library))):
            tar.add(file)
        for link in (*_links(Path(sys.executable)), Path("/usr/bin/python3")):
            if link != interpreter:
                tar.addfile(_link(str(link), str(interpreter)))


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(member.name).name
    unused = name in NOT_NEEDED or name.startswith("config-") or ".opt-" in name
    return None if unused else member


def _compiled(library: Path) -> list[Path]:
    """List compiled modules of Python and torch whose shared libraries the image needs."""
    torch = Path(sysconfig.get_path("platlib")) / "torch" / "lib"
    return [*(library / "lib-dynload").glob("*.so"), *torch.glob("*.so")]


def _libraries(*files: Path) -> list[Path]:
    """List all shared libraries of these files, as the loader resolves them."""
    output = subprocess.run(["ldd", *files], check=False, capture_output=True, text=True).stdout
    libraries = {Path(path) for path in re.findall(r"(/\S+) \(0x", output)}
    return sorted(path for path in libraries if not path.is_relative_to(sys.prefix))


def _links(path: Path) -> Iterator[Path]:
    """Yield the links outside the virtual environment that lead to its interpreter."""
    while path.is_symlink():
        path = path.parent / path.readlink()
        if path.is_symlink() and not path.is_relative_to(sys.prefix):
            yield path


def _folder(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    return member


def _link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name.lstrip("/"))
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def _text(tar: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    tar.addfile(member, BytesIO(text.encode()))


def _remove(folder: Path) -> None:
    podman = _podman(folder)
    run = partial(subprocess.run, check=False, capture_output=True)
    run([*podman, "rm", "--all", "--force", "--time=0"])
    run([*podman, "rmi", "--all", "--force"])
    if os.geteuid() != 0:  # files of subordinate users
        run([*podman, "unshare", "rm", "-rf", str(folder)])
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in sorted((m for m in mounted if m.startswith(f"{folder}/")), reverse=True):
        run(["umount", place])
    shutil.rmtree(folder, ignore_errors=True)
