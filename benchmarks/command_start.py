"""Time to start `ai500 --help`, `--version` and `status`, beside importing typer and rich.

    python benchmarks/command_start.py [RUN]

Each process is started in turn with the others, so that a busy machine slows all of them; the least
processor time of each counts. The goal is a ratio of at most 3. `import rich` alone loads nothing
of rich, so the imports that draw a table are shown too, and an empty command: what typer itself
takes to parse a path and rich to print a line.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

ROUNDS = 9
EMPTY_COMMAND = """
import typer
from pathlib import Path
from rich.console import Console
from rich.table import Table
def show(path: Path) -> None:
    table = Table("name")
    table.add_row(str(path))
    Console().print(table)
typer.run(show)
"""
RUN = Path(__file__).parents[1] / "docs" / "examples" / "h200"


def processor_seconds(command: list[str]) -> float:
    """Run a command; return its user and system time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")},
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure all commands alternately and print the ratios."""
    run = sys.argv[1] if len(sys.argv) > 1 else str(RUN)
    commands = {
        "import typer, rich": [sys.executable, "-c", "import typer, rich"],
        "with rich.table": [sys.executable, "-c", "import typer, rich.console, rich.table"],
        "an empty command": [sys.executable, "-c", EMPTY_COMMAND, run],
        "ai500 --version": [sys.executable, "-m", "ai500", "--version"],
        "ai500 --help": [sys.executable, "-m", "ai500", "--help"],
        "ai500 status RUN": [sys.executable, "-m", "ai500", "status", run],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            seconds[name].append(processor_seconds(command))
    least = {name: min(times) for name, times in seconds.items()}
    reference = least["import typer, rich"]
    for name, time in least.items():
        print(f"{name:<20} {time:6.3f} s  {time / reference:5.2f} ×")


if __name__ == "__main__":
    main()
