"""Runs a script where something goes wrong with the disk, for real and in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import ai500

PREAMBLE = """
import os, signal, sys
from pathlib import Path

def die_after(done_at_least):
    def progress(done, total):
        if done >= done_at_least:
            os.kill(os.getpid(), signal.SIGKILL)
    return progress

def become_nobody():
    # The superuser may write anywhere: permissions only bite an ordinary user.
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
"""

SMALL_DISK = """
import resource

HELD = Path("full-disk")
def fill_disk():
    if ON_TMPFS:
        with open(HELD, "ab", buffering=0) as file:
            try:
                while file.write(bytes(1 << 20)):
                    pass
            except OSError:
                pass
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))

def empty_disk():
    if ON_TMPFS:
        HELD.unlink()
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""


def _write_script(folder: Path, body: str, *, preamble: str) -> Path:
    script = folder / "script.py"
    main = textwrap.indent(textwrap.dedent(body), "    ")
    # Worker processes import the script again: the guard keeps them from running it.
    script.write_text(f'{preamble}\nif __name__ == "__main__":\n{main}')
    return script


def _environment() -> dict[str, str]:
    paths = [Path(ai500.__file__).parents[1], Path(__file__).parents[2]]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(path) for path in paths)}


def run(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run a script in `folder`; it may kill itself."""
    script = _write_script(folder, body, preamble=PREAMBLE)
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
    )


def run_and_see_all_end(folder: Path, body: str, *, seconds: float = 60) -> int:
    """Run a script; return how it ended once no process that it started is left."""
    script = _write_script(folder, body, preamble=PREAMBLE)
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=folder, env=_environment(), start_new_session=True
    )
    code = process.wait()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return code
        time.sleep(0.05)
    raise AssertionError(f"processes of group {process.pid} outlive their parent")


def run_on_small_disk(folder: Path, body: str, *, megabytes: int) -> str:
    """Run a script whose working folder is a disk of its own, and return what it prints.

    The disk is a tmpfs in a mount namespace, gone with the process. Where the machine grants no
    namespace (an unprivileged container), a limit on file sizes stands in: EFBIG for ENOSPC.
    """
    disk = folder / "disk"
    disk.mkdir()
    unshare = next(
        (u for u in (["unshare", "-m"], ["unshare", "-rm"]) if _can_mount(u, disk)), None
    )
    preamble = f"ON_TMPFS = {unshare is not None}\n" + PREAMBLE + SMALL_DISK
    script = _write_script(folder, body, preamble=preamble)
    command = [sys.executable, str(script)]
    if unshare:
        mount = f'mount -t tmpfs -o size={megabytes}m none "$0" && cd "$0" && exec "$@"'
        command = [*unshare, "sh", "-c", mount, str(disk), *command]
    done = subprocess.run(command, cwd=disk, env=_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _can_mount(unshare: list[str], disk: Path) -> bool:
    try:
        command = [*unshare, "mount", "-t", "tmpfs", "none", str(disk)]
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
