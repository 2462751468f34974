"""Runs that can be submitted, and submissions of them, without training anything."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ai500 import config as configuration
from ai500.bagging.program import ENSEMBLE
from ai500.bagging.tasks import member_tasks
from ai500.core import events
from ai500.core.randomness import Stream, derive
from ai500.pipeline import scoring
from ai500.records import BootstrapRecord, Placement, Plan, TrialRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission import archive, packing
from ai500.submission.description import Wish, describe
from ai500.submission.verify import MEMBERS_OWN, judged_files
from tests.support.synthetic_run import Shape, official_shape, write_synthetic_run

WISH = Wish(
    level="hardware",
    name="A. Tester",
    organization="Example University",
    system_name="Synthetic One",
    contact="nobody@example.org",
)


def submittable_run(path: Path, **changes: Any) -> RunFolder:
    """A finished run of class smoke that breaks no rule."""
    return with_members_logs(write_synthetic_run(path, replace(official_shape(), **changes)))


def small_run(path: Path, **shape: Any) -> RunFolder:
    """A run of few files; it breaks rules, so it is packed by `packed` and not by `submit`."""
    plain = {"members": 2, "epochs": 2}
    return with_members_logs(write_synthetic_run(path, Shape(**(plain | shape))))


def packed(run: RunFolder, out: Path, *, wish: Wish = WISH, key: Path | None = None) -> Path:
    """A submission of the run, whatever the rules say of it."""
    plan = run_folder.read(Plan, run.plan)
    files = packing.collect(run) | judged_files(*scoring.judge_run(run, level=wish.level))
    files |= packing.added_files(describe(run, plan, wish), plan, notes=wish.notes)
    packing.seal(files, key=key)
    archive.pack(out, files)
    return out


def with_members_logs(run: RunFolder) -> RunFolder:
    """What a synthetic run lacks to be as `ai500 run` leaves it: tasks, trials, members' logs."""
    plan = run_folder.read(Plan, run.plan)
    told = list(events.read(run.events))
    run.events.unlink()
    numbers: dict[tuple[int, int], int] = {}
    for event in told:
        if event["event"] in MEMBERS_OWN:
            of = (event["trial"], event["member"])
            numbers[of] = event["sequence"] = numbers.get(of, 0) + 1
            member = run.trial(of[0]).member(of[1])
            member.path.mkdir(parents=True, exist_ok=True)
            events.append(member.events, [event])
            events.append(run.events, [event | {"member_sequence": event["sequence"]}])
        else:
            events.append(run.events, [event])
    config = configuration.load(run.config)
    for number in range(1, plan.trials + 1):
        trial = run.trial(number)
        placements = run_folder.read_all(Placement, trial.placement)
        bootstraps = run_folder.read_all(BootstrapRecord, trial.bootstraps)
        seed = derive(plan.seed, Stream.TRIAL, number)
        run_folder.write(trial.trial, TrialRecord(number, seed, placements[0].store_sha256))
        for task in member_tasks(
            run, plan, trial=number, seed=seed, bootstraps=bootstraps, placements=placements,
            config=config, program=ENSEMBLE,
        ):  # fmt: skip
            run_folder.write(trial.member(task.member).task, task)
            trial.member(task.member).log.write_bytes(b"\x1b[1mtraining\x1b[0m \xff\n")
    scoring.score_run(run)
    return run


def contents(path: Path) -> dict[str, bytes]:
    """The files of an archive, read by another library than ours."""
    with tarfile.open(path) as file:
        found = {}
        for member in file.getmembers():
            content = file.extractfile(member)
            assert content is not None
            found[member.name] = content.read()
        return found
