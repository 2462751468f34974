"""Members that sleep until they are released: real Slurm jobs without training.

A shell script in place of `slurm.python` speaks the worker contract; the job controller and the
scheduler are real.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ai500.bagging.job_controller import JobController
from ai500.bagging.member_views import MemberView
from ai500.config import Config, load
from ai500.core import events
from ai500.jobs.schedulers import JobStatus
from ai500.pipeline import stages as pipeline
from ai500.records import Plan
from ai500.records.run_folder import RunFolder
from tests.support.simulated_slurm import TRIAL, controller_for

SLEEPER = """\
#!/bin/sh
# In place of `python -m ai500.jobs.node_agent TRIAL`: logs a member's events, trains nothing.
[ "$2" != ai500.jobs.gang_agent ] || exec @PYTHON@ @GANG@ "$0" "$@"
[ "$2" = ai500.jobs.node_agent ] || exec @PYTHON@ "$@"
[ "$3" != --clear ] || exit 0
folder=$3/members/$(printf %03d "$AI500_MEMBER")
read -r boot </proc/sys/kernel/random/boot_id
[ ! -e "$folder/record.json" ] || exit 0
echo "$SLURM_NODEID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" >>"$folder/places"
if [ "$SLURM_NODEID" != 0 ]; then  # the member's first node logs
  while [ ! -e "$3/release" ]; do sleep 0.2; done
  exit 0
fi
log() {
  number=$(($(wc -l <"$folder/events.jsonl" 2>/dev/null || echo 0) + 1))
  read -r monotonic rest </proc/uptime
  printf '{"event": "%s", "wall": %s, "monotonic": %s, "host": "%s", "boot": "%s", ' \\
    "$1" "$(date +%s.%N)" "$monotonic" "$SLURMD_NODENAME" "$boot" >>"$folder/events.jsonl"
  printf '"sequence": %d, "trial": 1, "member": %d, "attempt": %d%s}\\n' \\
    "$number" "$AI500_MEMBER" "$AI500_ATTEMPT" "$2" >>"$folder/events.jsonl"
}
report() {  # scheduler.follow = "events"
  [ -n "$AI500_REPORTS" ] || return 0
  mkdir -p "$4/reports"
  : >"$4/reports/$AI500_MEMBER-$AI500_ATTEMPT-$1"
}
trap 'log interrupted; exit 75' TERM
report started "$@"
log start ", \\"pid\\": $$, \\"world_size\\": 1, \\"device\\": \\"cpu\\""
log first_batch
while [ ! -e "$3/release" ]; do
  [ ! -e "$folder/fail" ] || { rm "$folder/fail"; report ended-3 "$@"; exit 3; }
  sleep 0.2
done
log end ', "epoch": 1'
echo '{}' >"$folder/record.tmp" && mv "$folder/record.tmp" "$folder/record.json"
report ended-0 "$@"
"""

GANG = """\
# The agent of a gang, whose members are sleepers: `python GANG SLEEPER -m MODULE TRIAL …`.
import os, sys
from ai500.jobs import gang_agent, node_agent
sleeper = sys.argv[1]
def sleep(trial, member):
    os.execv(sleeper, [sleeper, "-m", "ai500.jobs.node_agent", str(trial.path)])
node_agent.run = sleep
del sys.argv[1:4]
sys.exit(gang_agent.main())
"""


@dataclass
class Followed:
    """An ensemble of sleeping members, followed by a controller in a thread of its own."""

    run: RunFolder
    config: Config
    plan: Plan
    notes: list[str] = field(default_factory=list)
    failed: list[int] | None = None
    shown: dict[int, str] = field(default_factory=dict)
    """State of each member in the live view."""
    queries: int = 0
    """Queries of the scheduler's job states."""
    error: BaseException | None = None
    _thread: threading.Thread | None = None

    def controller(self) -> JobController:
        return controller_for(self.run.path, self.config, self.plan, note=self.notes.append)

    def start(self) -> None:
        """Submit the members and follow them."""
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            controller = self.controller()
            states = controller._scheduler.states

            def counted(ids: Sequence[str]) -> dict[str, JobStatus]:
                self.queries += 1
                return states(ids)

            controller._scheduler.states = counted  # type: ignore[method-assign]
            controller.start()
            self.failed = controller.run(self._show)
        except BaseException as error:
            self.error = error

    def _show(self, views: Sequence[MemberView]) -> None:
        self.shown = {view.member: view.shown_state for view in views}

    def release(self) -> None:
        """Let the members end."""
        (self.run.trial(TRIAL).path / "release").touch()

    def wait(self, timeout: float = 120) -> list[int]:
        """Wait until the controller ends; return the members that failed, or raise its error."""
        assert self._thread is not None
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        assert self.failed is not None, f"the controller still runs: {self.notes}"
        return self.failed

    def events(self, kind: str, **fields: object) -> list[events.Event]:
        """List the events of this kind and with these fields in the run's log."""
        return [
            event
            for event in events.read(self.run.events)
            if event["event"] == kind
            and all(event.get(key) == value for key, value in fields.items())
        ]


def sleeping_ensemble(
    folder: Path, *, python: str, members: int = 2, **settings: object
) -> Followed:
    """Plan an ensemble of sleeping members on the cluster that SLURM_CONF names."""
    program = folder / "sleeper"
    gang = folder / "gang.py"
    gang.write_text(GANG)
    text = SLEEPER.replace("@PYTHON@", python).replace("@GANG@", f"'{gang}'")
    program.write_text(text)
    program.chmod(0o755)
    config = load(
        overrides={
            "ensemble.size": members,
            "parallel.degree": 1,
            "system.device": "cpu",
            "system.accelerators_per_node": 2,
            "system.scale": members,
            "scheduler.kind": "slurm",
            "scheduler.poll_seconds": 0.2,
            "slurm.python": str(program),
            "data.stage": False,
            **settings,
        }
    )
    _, plan = pipeline.survey_and_plan(config)
    return Followed(RunFolder(folder / "run"), config, plan)


@contextmanager
def released(ensemble: Followed) -> Iterator[Followed]:
    """Follow the ensemble; release its members at the end of the context."""
    ensemble.start()
    try:
        yield ensemble
    finally:
        ensemble.release()
