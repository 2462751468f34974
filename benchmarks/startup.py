"""What one node reads from a shared file system to start a member: as installed, and from an image.

    python benchmarks/startup.py [--nodes 1000]        needs root, strace and squashfs-tools

`plain`: the interpreter's folder and ai500's source are files. strace lists the calls with a path
of the member's processes (node agent, torchrun's or the worker's own). The bytes are those of the
files that were opened: an upper bound, since a library's pages are read as they are used.

`image`: the same folders in one squashfs image, mounted from a loop device. Each start mounts it
afresh, so that nothing is cached; the device counts the reads and bytes of member and controller
together. The shared file system sees those, and one open.

A thousand nodes do this at the same time: the figures are multiplied by --nodes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' tiny data
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console
from rich.table import Table
from tests.support.commands import TINY

from ai500.core.source import PACKAGE
from ai500.core.units import human_bytes
from ai500.data.generated import generate
from ai500.workloads.learnable_images import SMOKE

AGENT = '"ai500.jobs.node_agent"'
CALL = re.compile(r'^(\d+) +(\w+)\(.*?"((?:[^"\\]|\\.)*)"(.*)$')
CHILD = re.compile(r"^(\d+) +(?:clone3?|fork|vfork)\(.*= (\d+)$")
RESUMED_CHILD = re.compile(r"^(\d+) +<\.\.\. (?:clone3?|fork|vfork) resumed>.*= (\d+)$")
OPENED = ("open", "openat", "openat2", "execve")


def main() -> None:
    """Measure both, print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    with tempfile.TemporaryDirectory(prefix="ai500-startup-", dir="/var/tmp") as folder:
        base = Path(folder)
        store = base / "store"
        classes = [f"class {number}" for number in range(SMOKE.classes)]
        generate(store, SMOKE, name="tiny", classes=classes, splits=TINY, workers=1)
        install = (Path(sys.prefix), PACKAGE.parent)
        plain = count_calls(trace(base / "plain", store), install)
        image = make_image(base, [folder.resolve() for folder in install])
        reads, read_bytes = image_reads(base, image, store)
    table = Table("of one start", "as installed", "from an image", f"× {nodes:,} nodes, image")
    rows = [
        ("calls with a path", plain["calls"], 1),
        ("of these for missing files", plain["missing"], 0),
        ("files opened", plain["opened"], 1),
        ("folders listed", plain["folders"], 0),
        ("reads of the image", None, reads),
    ]
    for name, files, of_image in rows:
        shown = "" if files is None else f"{files:,}"
        table.add_row(name, shown, f"{of_image:,}", f"{of_image * nodes:,}")
    table.add_row(
        "bytes", f"{human_bytes(plain['bytes'])} (files opened)", human_bytes(read_bytes),
        human_bytes(read_bytes * nodes),
    )  # fmt: skip
    Console().print(table)


def run_words(python: str, out: Path, store: Path) -> list[str]:
    """Train one member for an epoch."""
    settings = {"ensemble.size": 1, "system.accelerators_per_node": 1, "parallel.degree": 1,
                "system.cores_per_slot": 1, "train.epochs": 1, "run.meter_seconds": 0}  # fmt: skip
    words = [python, "-m", "ai500", "run", "--out", str(out), "--data", str(store)]
    return [
        *words,
        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
    ]


def trace(out: Path, store: Path) -> Iterator[str]:
    """Run with strace, and yield its lines."""
    log = out.with_suffix(".strace")
    words = ["strace", "-f", "--seccomp-bpf", "-qq", "-s", "4096", "-e", "trace=%file,%process",
             "-o", str(log), *run_words(sys.executable, out, store)]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
    with log.open(errors="replace") as lines:
        yield from lines


def count_calls(lines: Iterator[str], install: Sequence[Path]) -> Counter[str]:
    """Count the calls of the node agent and its children below the installation."""
    counts: Counter[str] = Counter()
    members: set[str] = set()
    files: dict[str, int] = {}
    prefixes = tuple(f"{folder}/" for folder in install)
    for line in lines:
        if child := CHILD.match(line) or RESUMED_CHILD.match(line):
            if child[1] in members:
                members.add(child[2])
            continue
        if not (call := CALL.match(line)):
            continue
        process, name, path, rest = call.groups()
        if name == "execve" and AGENT in rest:
            members.add(process)
        if process not in members or not path.startswith(prefixes):
            continue
        counts["calls"] += 1
        counts["missing"] += "ENOENT" in rest
        if name in OPENED and "= -1" not in rest:
            if "O_DIRECTORY" in rest:
                counts["folders"] += 1
            else:
                counts["opened"] += 1
                files.setdefault(path, Path(path).stat().st_size if Path(path).exists() else 0)
    assert counts["opened"], "no call of the node agent was traced"
    counts["bytes"] = sum(files.values())
    return counts


def make_image(base: Path, install: Sequence[Path]) -> Path:
    """Pack the installation; paths in the image are those of this machine."""
    image = base / "ai500.squashfs"
    words = ["mksquashfs", *map(str, install), str(image), "-no-strip", "-comp", "zstd",
             "-Xcompression-level", "1", "-no-progress", "-quiet"]  # fmt: skip
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return image


def image_reads(base: Path, image: Path, store: Path) -> tuple[int, int]:
    """Return the reads and bytes of a run whose installation lies in the image."""
    mounted = base / "mounted"
    mounted.mkdir()
    loop = subprocess.run(
        ["losetup", "--find", "--show", "--read-only", str(image)],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    counter = Path("/sys/block") / Path(loop).name / "stat"
    try:
        subprocess.run(["mount", "-t", "squashfs", "-o", "ro", loop, str(mounted)], check=True)
        before = [int(word) for word in counter.read_text().split()]
        python = str(mounted / Path(sys.prefix).resolve().relative_to("/") / "bin/python")
        source = mounted / PACKAGE.parent.resolve().relative_to("/")
        environment = os.environ | {"PYTHONPATH": str(source)}
        words = run_words(python, base / "from image", store)
        subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = [int(word) for word in counter.read_text().split()]
    finally:
        subprocess.run(["umount", str(mounted)], check=False)
        subprocess.run(["losetup", "--detach", loop], check=False)
    return after[0] - before[0], 512 * (after[2] - before[2])


if __name__ == "__main__":
    main()
