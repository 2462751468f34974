"""The jobs of the conformance tests: each does what its member's order says, and records it.

python worker.py FOLDER WORD …
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

FOLDER, WORDS = Path(sys.argv[1]), sys.argv[2:]
MEMBER, ATTEMPT = os.environ["AI500_MEMBER"], int(os.environ["AI500_ATTEMPT"])
CHECKPOINTED_EXIT_CODE = 75  # of ai500.jobs.node_agent, which the jobs of a run start


def record(event: str) -> None:
    """Record an event with its time; a whole file at once, since another host reads it."""
    values = {"words": WORDS, "environment": dict(os.environ), "at": time.time()}
    file = FOLDER / f"{MEMBER}-{ATTEMPT}-{event}"
    file.with_suffix(".part").write_text(json.dumps(values))
    file.with_suffix(".part").rename(file)


def stop(number: int, frame: object) -> None:
    """Stop as a member does that wrote its checkpoint."""
    record("stopped")
    os._exit(CHECKPOINTED_EXIT_CODE)


signal.signal(signal.SIGTERM, stop)
record("started")
print(f"member {MEMBER} says hello", flush=True)
verb, _, number = (FOLDER / f"{MEMBER}.order").read_text().partition(" ")
if verb == "sleep":
    time.sleep(float(number))
    number = "0"
elif verb == "checkpoint" and ATTEMPT > 1:
    number = "0"
record("ended")
sys.exit(int(number))
