"""What a submission says of its run, and the script that repeats it: all from the run itself.

`submit` writes it, `verify` makes it again and compares.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from ai500.core import events
from ai500.core.errors import RuleError
from ai500.core.source import PACKAGE, source_sha256
from ai500.records import Plan, RunState, TrainRecord, TrialRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.rules.layers import Level
from ai500.rules.rule import CURRENT
from ai500.submission.archive import printable
from ai500.submission.manifest import Info, Source


def git_checkout() -> tuple[str | None, bool | None]:
    """Commit, and whether files are changed, of the checkout the package is in."""
    git = shutil.which("git")

    def ask(*arguments: str) -> str | None:
        if git is None:
            return None
        try:
            done = subprocess.run(
                [git, "-C", str(PACKAGE), *arguments],
                capture_output=True, text=True, timeout=30, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    # An installed package may lie inside somebody's checkout of something else.
    if ask("ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    changed = ask("status", "--porcelain", "--", ".")
    return ask("rev-parse", "HEAD"), None if changed is None else bool(changed)


Checkout = Callable[[], tuple[str | None, bool | None]]


@dataclass(frozen=True)
class Wish:
    """What a submitter says that no run knows."""

    level: Level
    name: str = ""
    organization: str = ""
    system_name: str = ""
    """Left out: the cluster's name, or the host's."""
    contact: str = ""
    edition: str = ""
    """Left out: year and month of the run's end."""
    notes: str | None = None


def describe(run: RunFolder, plan: Plan, wish: Wish, *, checkout: Checkout = git_checkout) -> Info:
    """submission.json"""
    ended = ended_at(run)
    seen = {
        run_folder.read(TrialRecord, path).store_sha256
        for path in sorted(run.path.glob("trials/*/trial.json"))
    }
    return Info(
        level=wish.level,
        rule_set=CURRENT,
        edition=wish.edition or ended.strftime("%Y-%m"),
        name=wish.name,
        organization=wish.organization,
        system_name=wish.system_name or (plan.cluster.name if plan.cluster else plan.nodes[0].name),
        contact=wish.contact,
        created=ended.strftime("%Y-%m-%dT%H:%M:%SZ"),
        ai500_version=run_folder.read(RunState, run.state).version,
        workload=plan.workload,
        problem_class=plan.problem_class,
        source=_source(run, checkout),
        data_sha256=tuple(sorted(seen)),
    )


def run_script(info: Info, plan: Plan) -> str:
    """The script that repeats the run from the configuration beside it."""
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


def ended_at(run: RunFolder) -> datetime:
    """When the run ended, by its own events."""
    told = [event for event in events.read(run.events) if isinstance(event.get("wall"), float)]
    ends = [event for event in told if event["event"] == "run_end"] or told
    if not ends:
        raise RuleError(f"{run.events} has no events: nothing ran. `ai500 resume {run.path}`.")
    try:
        return datetime.fromtimestamp(ends[-1]["wall"], tz=UTC)
    except (OSError, OverflowError, ValueError) as error:
        raise RuleError(f"{run.events}: its last event has no time: {error}.") from error


def _source(run: RunFolder, checkout: Checkout) -> Source:
    """As the workers told it; git is asked only if the files here are the same."""
    records = sorted(run.path.glob("trials/*/members/*/record.json"))
    told = {run_folder.read(TrainRecord, path).versions.get("source") for path in records}
    if len(told) > 1:
        raise RuleError(
            f"{run.path}: its members trained with {len(told)} different versions of the source "
            "code; that is no one result. Run again, without a change in between."
        )
    sha256 = told.pop() if told else None
    commit, dirty = checkout() if sha256 == source_sha256() else (None, None)
    return Source(sha256=sha256, commit=commit, dirty=dirty)
