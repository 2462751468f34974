"""Start a member's worker in a framework's own interpreter: `python start_worker.py TASK`.

Run by its path: that interpreter has the framework and NumPy, but not ai500. This file makes the
running source importable there as `ai500`, and nothing else of the environment that it lies in,
whose packages are made for another Python. `--ranks N --first K --address HOST:PORT` starts N ranks
of the member as processes, K being the first one's number.
"""

import argparse
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INTERRUPTED = 143  # exit code of a rank that stopped on request, with its checkpoint written
LACKING = 3  # exit code: the environment lacks something
KILL_SECONDS = 10.0  # for the ranks that are left when one failed


def import_ai500() -> None:
    """Import the package that this file belongs to."""
    # This file's folder is on the path now: `jax.py` in it would hide the framework.
    sys.path[:] = [
        entry for entry in sys.path if Path(entry or ".").resolve() != PACKAGE / "frameworks"
    ]
    spec = importlib.util.spec_from_file_location(
        "ai500", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ai500"] = module
    spec.loader.exec_module(module)


def launch(arguments: argparse.Namespace) -> int:
    """Start this node's ranks and wait; a rank that failed ends the others."""
    host, _, port = arguments.address.rpartition(":")
    ranks = []
    for local_rank in range(arguments.ranks):
        environment = os.environ | {
            "RANK": str(arguments.first + local_rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(arguments.ranks),
            "WORLD_SIZE": str(arguments.world_size),
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
        }
        words = [sys.executable, __file__, arguments.task]
        ranks.append(subprocess.Popen(words, env=environment))
    failed_at = None
    while None in (codes := [rank.poll() for rank in ranks]):
        if failed_at is None and any(code not in (None, 0, INTERRUPTED) for code in codes):
            failed_at = time.monotonic()
            _signal(ranks, signal.SIGTERM)  # the others would wait for it
        if failed_at is not None and time.monotonic() - failed_at > KILL_SECONDS:
            _signal(ranks, signal.SIGKILL)
        time.sleep(0.05)
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def _signal(ranks: "list[subprocess.Popen[bytes]]", number: signal.Signals) -> None:
    for rank in ranks:
        with contextlib.suppress(ProcessLookupError):
            rank.send_signal(number)


def main() -> int:
    """Train the rank that the environment names, or start several."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--address", default="127.0.0.1:0")
    arguments = parser.parse_args()
    if arguments.ranks:
        return launch(arguments)
    import_ai500()
    try:
        from ai500.train import worker

        return worker.main("ai500.frameworks.array_member:run")
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        if lacking == "ai500":
            raise
        print(
            f"error: {sys.executable} has no {lacking} on {os.uname().nodename}. Install it there, "
            "or name another interpreter in framework.python.",
            file=sys.stderr,
        )
        return LACKING


if __name__ == "__main__":
    sys.exit(main())
