"""CPU seconds and peak memory of `ai500 verify` on the worst submissions that we know of.

    python benchmarks/hostile_submissions.py [--megabytes 100] [--only TEXT]

Each file is made by `tests/support/hostile_submissions.py`, sealed by a valid manifest, and opened
in a process of its own. The start of that process (imports: the line "nothing hostile") counts.
Exit code 1 if one takes more than 10 CPU seconds or 500 MB.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' submissions
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console
from rich.table import Table
from tests.support.hostile_submissions import ATTACKS, Files
from tests.support.submitted import contents, packed, small_run

from ai500.submission import archive, packing
from ai500.submission.manifest import MANIFEST

MAX_CPU_SECONDS = 10.0
MAX_BYTES = 500_000_000
SUFFICIENT_BYTES = 4 << 30
"""Limit of the process, so that a failure does not take the machine with it."""


def write(path: Path, files: Files) -> None:
    """Write a submission; its manifest is right, unless it is the attack itself."""
    if MANIFEST not in files:
        packing.seal(files, key=None)
    archive.pack(path, files)


def measured(path: Path) -> tuple[float, int, int, str]:
    """Return CPU seconds, peak bytes, exit code and last words of `ai500 verify`."""
    command = [sys.executable, "-m", "ai500", "verify", str(path)]
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command, stdout=output, stderr=output,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (SUFFICIENT_BYTES,) * 2),
        )  # fmt: skip
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    words = "traceback" if "Traceback" in text else f"{len(text)} characters"
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, child.returncode, words


def main() -> int:
    """Measure each attack; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    size = int(options.megabytes * 1e6 * 0.95)  # the rest: headers, padding and the manifest
    table = Table("attack", "file, MB", "CPU, s", "memory, MB", "exit code", "output")
    console, failed = Console(width=110), False
    with tempfile.TemporaryDirectory(prefix="ai500-hostile-") as name:
        folder = Path(name)
        small = contents(packed(small_run(folder / "run"), folder / "small.ai500"))
        small.pop(MANIFEST)
        attacks = {"nothing hostile": lambda _files, _size: {}} | ATTACKS
        for title, make in attacks.items():
            if options.only not in title:
                continue
            path = folder / "hostile.ai500"
            write(path, small | make(small, size))
            seconds, peak, code, words = measured(path)
            exceeded = seconds > MAX_CPU_SECONDS or peak > MAX_BYTES or words == "traceback"
            failed |= exceeded
            row = (f"{path.stat().st_size / 1e6:.1f}", f"{seconds:.1f}", f"{peak / 1e6:.0f}")
            table.add_row(title, *row, str(code), words, style="bold" if exceeded else None)
            print(title, *row, code, words, file=sys.stderr, flush=True)
            path.unlink()
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
