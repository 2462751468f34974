"""Description of a run in its submission, and the script that repeats the run.

Both are derived from the run: `submit` writes them, `verify` derives them again and compares.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from ai500.core import events
from ai500.core.errors import RuleError
from ai500.core.shell import quoted
from ai500.records import Plan, RunState, TrainRecord, TrialRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.rules.layers import Level
from ai500.rules.rule import CURRENT
from ai500.submission.archive import printable
from ai500.submission.manifest import Info, Source


@dataclass(frozen=True)
class SubmitOptions:
    """Options of `ai500 submit` that describe the submitter; empty ones get a default."""

    level: Level
    name: str = ""
    organization: str = ""
    system_name: str = ""
    """Name of the system; empty: the cluster's name, or the host's."""
    contact: str = ""
    edition: str = ""
    """Edition of the list; empty: the run's, from which its seeds follow [D22]."""
    notes: str | None = None


def describe(run: RunFolder, plan: Plan, options: SubmitOptions) -> Info:
    """Return the content of submission.json."""
    ended = end_time(run)
    stores = {
        run_folder.read(TrialRecord, path).store_sha256
        for path in sorted(run.path.glob("trials/*/trial.json"))
    }
    return Info(
        level=options.level,
        rule_set=CURRENT,
        edition=options.edition or plan.edition,
        name=options.name,
        organization=options.organization,
        system_name=options.system_name
        or (plan.cluster.name if plan.cluster else plan.nodes[0].name),
        contact=options.contact,
        created=ended.strftime("%Y-%m-%dT%H:%M:%SZ"),
        ai500_version=run_folder.read(RunState, run.state).version,
        workload=plan.workload,
        problem_class=plan.problem_class,
        source=_source(run),
        data_sha256=tuple(sorted(stores)),
    )


def run_script(info: Info, plan: Plan) -> str:
    """Return the script that repeats the run from the submitted configuration."""
    source = info.source.sha256 or "not recorded"
    lines = [
        "#!/bin/sh",
        f"# Repeats this run: {plan.workload}, class {plan.problem_class}, {plan.trials} trials of",
        f"# M = {plan.ensemble_size} members, P_degree = {plan.parallel_degree}.",
        f"# It ran with ai500 {info.ai500_version}, source SHA-256 {source},",
        f"# commit {info.source.commit or 'not known'}, data SHA-256 {' '.join(info.data_sha256)}.",
    ]
    seed = f"run.seed={plan.seed}"
    command = ["ai500", "run", "--config", "config.toml", "--runs", str(plan.trials), "--set", seed]
    lines += [
        "set -eu",
        'cd "$(dirname "$0")"',
        f'exec {shlex.join(command)} --out "${{1:-rerun}}"',
    ]
    return "".join(printable(line) + "\n" for line in lines)


def end_time(run: RunFolder) -> datetime:
    """Return the time at which the run ended, by its events."""
    timed = [event for event in events.read(run.events) if isinstance(event.get("wall"), float)]
    ends = [event for event in timed if event["event"] == "run_end"] or timed
    if not ends:
        raise RuleError(
            f"{run.events} has no events: nothing ran. `ai500 resume {quoted(run.path)}`."
        )
    try:
        return datetime.fromtimestamp(ends[-1]["wall"], tz=UTC)
    except (OSError, OverflowError, ValueError) as error:
        raise RuleError(f"{run.events}: its last event has no time: {error}.") from error


def _source(run: RunFolder) -> Source:
    """Return the source that the workers recorded, and its commit if the run began with it."""
    records = sorted(run.path.glob("trials/*/members/*/record.json"))
    digests = {run_folder.read(TrainRecord, path).versions.get("source") for path in records}
    if len(digests) > 1:
        raise RuleError(
            f"{run.path}: its members trained with {len(digests)} different versions of the "
            "source code.",
            path=run.path,
            value=len(digests),
            remedy="Run it again, and keep the source code unchanged until it ends.",
        )
    sha256 = digests.pop() if digests else None
    state = run_folder.read(RunState, run.state)
    if sha256 is None or sha256 != state.source_sha256:
        return Source(sha256=sha256, commit=None, dirty=None)
    return Source(sha256=sha256, commit=state.commit, dirty=state.dirty)
