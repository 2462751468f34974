"""Runs that can be submitted, and submissions of them, without training anything."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from ai500 import config as configuration
from ai500.bagging.tasks import member_tasks
from ai500.core import events
from ai500.core.randomness import Stream, derive
from ai500.pipeline import scoring
from ai500.pipeline.programs import program_of
from ai500.records import BootstrapRecord, Placement, Plan, TrialRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission import archive, packing
from ai500.submission.description import SubmitOptions, describe
from ai500.submission.verify import MEMBER_EVENTS, result_files
from tests.support.synthetic_run import Shape, official_shape, write_synthetic_run

OPTIONS = SubmitOptions(
    level="hardware",
    name="A. Tester",
    organization="Example University",
    system_name="Synthetic One",
    contact="tester@example.org",
)


def submittable_run(path: Path, **changes: Any) -> RunFolder:
    """Write a finished run of class smoke that breaks no rule."""
    return with_members_logs(write_synthetic_run(path, replace(official_shape(), **changes)))


def small_run(path: Path, **shape: Any) -> RunFolder:
    """Write a run of few files; it breaks rules: pack it by `packed`, not by `submit`."""
    defaults = {"members": 2, "epochs": 2}
    return with_members_logs(write_synthetic_run(path, Shape(**(defaults | shape))))


def packed(
    run: RunFolder, out: Path, *, options: SubmitOptions = OPTIONS, key: Path | None = None
) -> Path:
    """Pack a run into a submission, even if it breaks rules."""
    plan = run_folder.read(Plan, run.plan)
    files = packing.collect(run) | result_files(*scoring.judge_run(run, level=options.level))
    files |= packing.added_files(describe(run, plan, options), plan, notes=options.notes)
    packing.seal(files, key=key)
    archive.pack(out, files)
    return out


def with_members_logs(run: RunFolder) -> RunFolder:
    """Add the files of `ai500 run` that a synthetic run lacks: tasks, trials, members' logs."""
    plan = run_folder.read(Plan, run.plan)
    log, members = [], defaultdict(list)
    for event in events.read(run.events):
        if event["event"] in MEMBER_EVENTS:
            own = members[event["trial"], event["member"]]
            own.append(event | {"sequence": len(own) + 1})
            log.append(own[-1] | {"member_sequence": len(own)})
        else:
            log.append(event)
    run.events.unlink()
    events.append(run.events, log)
    for (trial, member), own in members.items():
        folder = run.trial(trial).member(member)
        folder.path.mkdir(parents=True, exist_ok=True)
        events.append(folder.events, own)
    config = configuration.load(run.config)
    for number in range(1, plan.trials + 1):
        trial = run.trial(number)
        placements = run_folder.read_all(Placement, trial.placement)
        bootstraps = run_folder.read_all(BootstrapRecord, trial.bootstraps)
        seed = derive(plan.seed, Stream.TRIAL, number)
        run_folder.write(trial.trial, TrialRecord(number, seed, placements[0].store_sha256))
        for task in member_tasks(
            run, plan, trial=number, seed=seed, bootstraps=bootstraps, placements=placements,
            config=config, entry_point=program_of(plan).entry_point,
        ):  # fmt: skip
            run_folder.write(trial.member(task.member).task, task)
            trial.member(task.member).log.write_bytes(b"\x1b[1mtraining\x1b[0m \xff\n")
    scoring.score_run(run)
    return run


def contents(path: Path) -> dict[str, bytes]:
    """Read the files of an archive by Python's tarfile, not by our own code."""
    with tarfile.open(path) as file:
        files = {}
        for member in file.getmembers():
            content = file.extractfile(member)
            assert content is not None
            files[member.name] = content.read()
        return files
