"""Verification recomputes a score; replication compares two sets of runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai500.cli.submit import broken_rules
from ai500.core import plugins
from ai500.core.errors import ConfigError, InputError
from ai500.metrics.equations import penalty_coefficient
from ai500.pipeline import scoring
from ai500.pipeline.scoring import score_from_events
from ai500.records import Plan, Score, Task, run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission import archive, packing, replication
from ai500.submission.manifest import MANIFEST, open_submission
from ai500.submission.rerun import rerun_config, system_differences
from ai500.submission.verify import Verification, recompute
from tests.support import changed_records
from tests.support.submitted import contents, packed, small_run, submittable_run
from tests.support.synthetic_run import CLASS, Shape, write_synthetic_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("run") / "run", trials=2)


@pytest.fixture(scope="module")
def files(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return contents(packed(run, tmp_path_factory.mktemp("packed") / "s.ai500"))


def verified(files: dict[str, bytes], folder: Path, **changed: bytes) -> Verification:
    """Verify changed files with a manifest that matches them, so that digests don't help."""
    forged = {name: content for name, content in (files | changed).items() if name != MANIFEST}
    packing.seal(forged, key=None)
    archive.pack(folder / "s.ai500", forged)
    with open_submission(folder / "s.ai500") as submission:
        assert submission.problems == []
        return recompute(submission)


def edited(content: bytes, *path: Any, by: Any) -> bytes:
    """Replace one value of a JSON document."""
    document = json.loads(content)
    *parents, last = path
    inner = document
    for key in parents:
        inner = inner[key]
    inner[last] = by(inner[last]) if callable(by) else by
    return json.dumps(document).encode()


def test_a_clean_one_is_confirmed(files: dict[str, bytes], tmp_path: Path) -> None:
    result = verified(files, tmp_path)
    assert (result.problems, result.differences) == ((), ())
    assert result.confirmed
    assert result.compared > 100


@pytest.mark.parametrize(
    ("file", "path", "by"),
    [
        ("score.json", ("vflops",), lambda v: v * (1 + 1e-8)),
        ("score.json", ("trials", 0, "ensemble_quality"), 0.99),
        ("score.json", ("complete",), False),
        ("score.json", ("kept_trials",), []),
        ("score.json", ("problem_class",), "full"),
        ("trials/02/score.json", ("seconds",), lambda v: v / 2),
        ("findings.json", (0, "severity"), "note"),
        ("judgement.json", ("layers", 0, "verdict"), "same"),
    ],
)
def test_a_value_that_does_not_follow_from_the_events(
    file: str, path: tuple[Any, ...], by: Any, files: dict[str, bytes], tmp_path: Path
) -> None:
    result = verified(files, tmp_path, **{file: edited(files[file], *path, by=by)})
    assert not result.confirmed
    assert {difference.file for difference in result.differences} == {file}


def test_rounding_of_another_machine_is_no_difference(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    rounded = edited(files["score.json"], "vflops", by=lambda v: v * (1 + 1e-12))
    assert verified(files, tmp_path, **{"score.json": rounded}).confirmed


def test_findings_that_were_removed(files: dict[str, bytes], tmp_path: Path) -> None:
    result = verified(files, tmp_path, **{"findings.json": b"[]"})
    assert result.differences
    assert {difference.claimed for difference in result.differences} == {"missing", "[]"}


def in_events(content: bytes, kind: str, **changes: Any) -> bytes:
    lines = [json.loads(line) for line in content.splitlines()]
    changed = [line | changes if line["event"] == kind else line for line in lines]
    return "".join(json.dumps(line) + "\n" for line in changed).encode()


def test_a_run_log_that_differs_from_the_members_logs(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    """Faster epochs in events.jsonl alone, with a score that follows from them."""
    forged = in_events(files["events.jsonl"], "epoch", samples=10**6)
    result = verified(files, tmp_path, **{"events.jsonl": forged})
    assert any("members/000/events.jsonl" in problem for problem in result.problems)
    first = next(line for line in files["events.jsonl"].splitlines() if b'"epoch"' in line)
    twice = verified(files, tmp_path, **{"events.jsonl": files["events.jsonl"] + first + b"\n"})
    assert any("duplicate" in problem for problem in twice.problems)
    events = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    unnumbered = [{k: v for k, v in e.items() if k != "member_sequence"} for e in events]
    lines = "".join(json.dumps(event) + "\n" for event in unnumbered).encode()
    result = verified(files, tmp_path, **{"events.jsonl": lines})
    assert any("in no member's log" in problem for problem in result.problems)


def test_a_result_that_the_events_do_not_have(files: dict[str, bytes], tmp_path: Path) -> None:
    name = "trials/01/ensemble.json"
    better = edited(files[name], "ensemble_quality", by=0.99)
    result = verified(files, tmp_path, **{name: better})
    assert [name in problem for problem in result.problems] == [True]


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "operations", "forward_per_sample": 10**38},
        {"kind": "aggregate", "result": {"complete": True}},
        {"kind": "end", "monotonic": -1e300},
        {"kind": "first_batch", "monotonic": "soon"},
        {"kind": "epoch", "samples": [[]]},
        {"kind": "epoch", "epoch": {}},
        {"kind": "aggregate", "trial": "x"},
        {"kind": "quality", "quality": None},
    ],
)
def test_events_that_no_run_writes(
    changes: dict[str, Any], files: dict[str, bytes], tmp_path: Path
) -> None:
    """Valid JSON with impossible values is not confirmed, and raises no exception."""
    kind = changes["kind"]
    forged = in_events(
        files["events.jsonl"], kind, **{k: v for k, v in changes.items() if k != "kind"}
    )
    result = verified(files, tmp_path, **{"events.jsonl": forged})
    assert not result.confirmed


def test_d15_lower_is_better_through_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error above its target is penalized; a score with the opposite direction is detected."""
    table = plugins._table("workload")
    monkeypatch.setitem(table, "error_rate", "tests.support.lower_is_better:WORKLOAD")
    lower = small_run(tmp_path / "run", config='workload = "error_rate"\n')
    plan = run_folder.read(Plan, lower.plan)
    run_folder.write(lower.plan, replace(plan, workload="error_rate"))
    for path in lower.path.glob("trials/*/members/*/task.json"):
        run_folder.write(path, replace(run_folder.read(Task, path), workload="error_rate"))
    files = contents(packed(lower, tmp_path / "first.ai500"))
    result = verified(files, tmp_path)
    assert result.confirmed
    assert result.score is not None
    score = result.score
    assert score.quality_name == "top-1 error"
    assert score.penalty_coefficient == pytest.approx(
        (score.target_quality / score.ensemble_quality) ** plan.definition.penalty_exponent
    )
    wrong = penalty_coefficient(
        score.ensemble_quality, target_quality=score.target_quality,
        exponent=plan.definition.penalty_exponent, direction="higher",
    )  # fmt: skip
    forged = edited(files["score.json"], "penalty_coefficient", by=wrong)
    result = verified(files, tmp_path, **{"score.json": forged})
    assert [difference.key for difference in result.differences] == ["penalty_coefficient"]


def in_all_logs(
    files: dict[str, bytes], change: Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
) -> dict[str, bytes]:
    """Change every event in the run's log and in the members' logs."""
    return {
        name: "".join(
            json.dumps(event) + "\n"
            for line in content.splitlines()
            for event in change(json.loads(line))
        ).encode()
        for name, content in files.items()
        if name.endswith("events.jsonl")
    }


def test_members_that_were_not_planned(files: dict[str, bytes], tmp_path: Path) -> None:
    """Fifty copies of member 0 in the run's log: more operations in the same time."""
    copies = list(range(50, 100))

    def more(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if event["event"] == "aggregate":
            result = event["result"]
            event["result"] = result | {
                "members": result["members"] + copies,
                "member_qualities": result["member_qualities"] + [0.7] * 50,
            }
        yield event
        if event.get("member") == 0 and "member_sequence" in event:
            yield from (event | {"member": member} for member in copies)

    logs = in_all_logs({"events.jsonl": files["events.jsonl"]}, more)
    result = verified(files, tmp_path, **logs)
    assert result.score is None
    assert "2 planned members" in result.problems[0]

    def silent(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield event
        if event.get("member") == 0 and "member_sequence" in event:
            yield event | {"member": 2}

    logs = in_all_logs({"events.jsonl": files["events.jsonl"]}, silent)
    problems = verified(files, tmp_path, **logs).problems
    assert any("member 2 of trial 1" in problem for problem in problems)


@pytest.mark.parametrize(
    ("name", "path", "by"),
    [
        ("submission.json", ("source", "sha256"), "f" * 64),
        ("submission.json", ("source", "commit"), "d" * 40),
        ("submission.json", ("source", "dirty"), True),
        ("submission.json", ("data_sha256",), ["e" * 64]),
        ("submission.json", ("created",), "1999-01-01T00:00:00Z"),
        ("submission.json", ("edition",), "2099-12"),
        ("submission.json", ("edition",), "2020-01"),
        ("submission.json", ("edition",), "2027-05"),  # its seeds are those of 2026-11
        ("submission.json", ("ai500_version",), "99"),
        ("trials/01/bootstraps.json", (1, "sha256"), "0" * 64),
        ("trials/02/bootstraps.json", (0, "drawn"), 4000),
    ],
)
def test_claims_that_contradict_the_run(
    name: str, path: tuple[Any, ...], by: Any, files: dict[str, bytes], tmp_path: Path
) -> None:
    result = verified(files, tmp_path, **{name: edited(files[name], *path, by=by)})
    assert any(problem.startswith(f"{name}: ") for problem in result.problems)


@pytest.mark.parametrize(
    ("name", "path", "by"),
    [
        ("trials/01/trial.json", ("trial",), 2),
        ("trials/01/trial.json", ("seed",), 7),
        ("trials/01/placement.json", (0, "node"), "elsewhere"),
        ("trials/01/placement.json", (0, "store_sha256"), "e" * 64),
        ("trials/01/jobs.json", (0, "id"), "job-9"),
        ("trials/01/jobs.json", (0, "member"), 1),
        ("trials/01/members/000/task.json", ("member",), 1),
        ("trials/01/members/000/task.json", ("seed",), 7),
        ("trials/01/members/000/task.json", ("workload",), "extreme_weather"),
        ("trials/01/members/000/task.json", ("hyperparameters", "batch_size"), 4),
        ("trials/01/members/000/task.json", ("definition", "target_quality"), 0.1),
        ("trials/01/members/000/task.json", ("steps_per_epoch",), 1),
        ("trials/01/members/000/task.json", ("bootstrap_sha256",), "e" * 64),
        ("trials/01/members/000/task.json", ("slots", 0, "device"), "cuda:0"),
        ("trials/01/members/000/task.json", ("entry_point",), "mine:run"),
        ("trials/01/members/000/record.json", ("member",), 1),
        ("trials/01/members/000/record.json", ("device",), "cuda:0"),
    ],
)
def test_records_that_contradict_each_other(
    name: str, path: tuple[Any, ...], by: Any, files: dict[str, bytes], tmp_path: Path
) -> None:
    result = verified(files, tmp_path, **{name: edited(files[name], *path, by=by)})
    assert any(problem.startswith(f"{name}: ") for problem in result.problems)
    assert not result.confirmed


def test_a_run_after_today_is_a_problem(files: dict[str, bytes], tmp_path: Path) -> None:
    """The date is an argument: an hour early is another time zone, two days are not."""
    packing.seal(again := {n: c for n, c in files.items() if n != MANIFEST}, key=None)
    archive.pack(tmp_path / "s.ai500", again)
    ended = max(json.loads(line)["wall"] for line in files["events.jsonl"].splitlines())
    with open_submission(tmp_path / "s.ai500") as submission:
        assert recompute(submission, now=ended - 3600).problems == ()
        [problem] = recompute(submission, now=ended - 2 * 86_400).problems
    assert problem.startswith("events.jsonl: ")


def test_a_run_that_breaks_rules_is_confirmed_and_not_valid(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    result = verified(files, tmp_path)
    assert (result.confirmed, result.valid) == (True, False)
    assert any("V2 §5.3.2" in broken for broken in result.broken)


def test_another_script_is_a_problem_and_another_organization_is_not(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    script = verified(files, tmp_path, **{"run.sh": b"#!/bin/sh\nrm -rf ~\n"})
    assert [problem.startswith("run.sh: ") for problem in script.problems] == [True]
    named = edited(files["submission.json"], "organization", by="Another University")
    assert verified(files, tmp_path, **{"submission.json": named}).confirmed


def test_the_plan_does_not_decide_which_trials_count(tmp_path: Path) -> None:
    """A plan that requires 100 trials must not prevent that trials are dropped."""
    changed = replace(CLASS, required_runs=100)
    run = write_synthetic_run(tmp_path / "run", Shape(trials=3, epochs=1, definition=changed))
    _, _, score = score_from_events(run)
    assert len(score.kept_trials) == 1


def scored(template: Score, vflops: list[float], quality: list[float]) -> Score:
    """Return a score with these trials."""
    trials = tuple(
        replace(template.trials[0], trial=n, vflops=v, ensemble_quality=q, complete=True)
        for n, (v, q) in enumerate(zip(vflops, quality, strict=True), 1)
    )
    return replace(template, trials=trials)


CLAIM = [100.0, 101.0, 99.0, 100.5, 99.5], [0.86, 0.861, 0.859, 0.862, 0.858]
SAME = [99.0, 100.0, 101.0], [0.861, 0.859, 0.86]


@pytest.mark.parametrize(
    ("repeated", "verdicts"),
    [
        (SAME, ["replicated", "replicated"]),
        (([80.0, 81.0, 79.0], SAME[1]), ["differs", "replicated"]),
        (([120.0, 121.0, 119.0], SAME[1]), ["differs", "replicated"]),
        ((SAME[0], [0.80, 0.801, 0.799]), ["replicated", "differs"]),
        (([60.0, 100.0, 140.0], SAME[1]), ["too few runs to tell", "replicated"]),
        (([100.0], [0.86]), ["too few runs to tell", "too few runs to tell"]),
        (([], []), ["too few runs to tell", "too few runs to tell"]),
    ],
)
def test_replication(
    run: RunFolder, repeated: tuple[list[float], list[float]], verdicts: list[str]
) -> None:
    template = run_folder.read(Score, run.score)
    judged = replication.judge(
        scored(template, *CLAIM), scored(template, *repeated), penalty_exponent=5
    )
    assert [comparison.verdict for comparison in judged.comparisons] == verdicts
    assert judged.verdict == (
        "differs" if "differs" in verdicts else
        "replicated" if set(verdicts) == {"replicated"} else "too few runs to tell"
    )  # fmt: skip
    assert judged.comparisons[1].margin == pytest.approx(0.01)
    for comparison in judged.comparisons:
        # TOST at 5 % and the 90 % interval are equivalent.
        if comparison.interval is not None and comparison.equivalence_p is not None:
            low, high = comparison.interval
            inside = -comparison.margin < low and high < comparison.margin
            assert inside == (comparison.equivalence_p < replication.ALPHA)


def test_d15_better_and_worse_are_exchanged_where_lower_is_better(run: RunFolder) -> None:
    template = run_folder.read(Score, run.score)
    claimed, repeated = scored(template, *CLAIM), scored(template, SAME[0], [0.8, 0.801, 0.799])
    for direction, word in (("higher", "worse"), ("lower", "better")):
        judged = replication.judge(
            claimed, repeated, penalty_exponent=5,
            direction=direction,  # type: ignore[arg-type]
        )  # fmt: skip
        assert f"are {word}" in judged.comparisons[1].reason
        assert judged.verdict == "differs"


def test_a_rerun_that_breaks_rules_is_no_replication(run: RunFolder) -> None:
    template = run_folder.read(Score, run.score)
    judged = replication.judge(
        scored(template, *CLAIM), scored(template, *SAME), penalty_exponent=5,
        broken=["M = 1, the minimum of the class is 4"],
    )  # fmt: skip
    assert {comparison.verdict for comparison in judged.comparisons} == {"replicated"}
    assert judged.verdict == "the rerun breaks rules"


def test_an_invalid_margin(run: RunFolder) -> None:
    score = run_folder.read(Score, run.score)
    with pytest.raises(InputError) as caught:
        replication.judge(score, score, penalty_exponent=5, margin=0)
    assert (caught.value.key, caught.value.value) == ("--margin", 0)


def test_a_rerun_uses_no_paths_and_programs_of_the_submission(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    evil = files["config.toml"] + (
        b'[data]\npath = "/etc"\n[slurm]\nsetup = ["rm -rf ~"]\npython = "/tmp/evil"\n'
        b'[free_level]\nmodel = "evil:model"\n'
        b'[container]\nruntime = ["/tmp/evil"]\n[train]\nbatch_size = 16\n[run]\nseed = 7\n'
    )
    forged = {name: content for name, content in files.items() if name != MANIFEST}
    forged["config.toml"] = evil
    packing.seal(forged, key=None)
    archive.pack(tmp_path / "s.ai500", forged)
    with open_submission(tmp_path / "s.ai500") as submission:
        config = rerun_config(submission, local=None, runs=4, overrides={"data.path": "/mine"})
        again = rerun_config(submission, local=None, runs=None, overrides={})
        with pytest.raises(ConfigError) as caught:
            rerun_config(submission, local=None, runs=None, overrides={"train.epochs": 1})
        assert caught.value.key == "train.epochs"
        (tmp_path / "local.toml").write_text("[train]\nepochs = 1\n")
        with pytest.raises(ConfigError) as caught:
            rerun_config(submission, local=tmp_path / "local.toml", runs=None, overrides={})
        assert caught.value.key == "train"
    assert config.data.path == "/mine"
    assert (config.slurm.setup, config.slurm.python, config.container.runtime) == ((), None, ())
    assert config.free_level.model is None
    planned = json.loads(files["plan.json"])["hyperparameters"]
    assert config.train.batch_size == planned["batch_size"] != 16
    assert config.train.epochs == planned["epochs"] == 2
    assert config.ensemble.size == 2
    assert (config.run.trials, again.run.trials) == (4, 3)
    assert config.run.seed == again.run.seed != 7


def test_a_rerun_trains_in_the_submissions_framework_by_an_interpreter_of_this_system(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    """Without it a JAX entry would have been repeated in PyTorch, unseen."""
    forged = {name: content for name, content in files.items() if name != MANIFEST}
    plan = json.loads(forged["plan.json"])
    plan["framework"] = {"kind": "jax", "python": "/tmp/evil"}
    forged["plan.json"] = json.dumps(plan).encode()
    packing.seal(forged, key=None)
    archive.pack(tmp_path / "s.ai500", forged)
    with open_submission(tmp_path / "s.ai500") as submission:
        config = rerun_config(submission, local=None, runs=1, overrides={})
        chosen = {"framework.python": "/mine/python"}
        local = rerun_config(submission, local=None, runs=1, overrides=chosen)
        with pytest.raises(ConfigError) as caught:
            rerun_config(submission, local=None, runs=1, overrides={"framework.kind": "pytorch"})
    assert (config.framework.kind, config.framework.python) == ("jax", None)
    assert local.framework.python == "/mine/python"
    assert caught.value.key == "framework.kind"


def test_differences_of_systems(run: RunFolder, tmp_path: Path) -> None:
    other = small_run(tmp_path / "other", host="host")
    assert list(system_differences(run, other)) == []
    system = changed_records.load(other.system)
    system["cpu"], system["libraries"] = "Another CPU", {"torch": "2.0"}
    changed_records.save(other.system, system)
    assert list(system_differences(run, other)) == [
        "cpu: Synthetic CPU there, Another CPU here",
        "torch: not known there, 2.0 here",
    ]


def test_a_rerun_has_a_seed_of_its_own_and_breaks_no_rule_by_it(tmp_path: Path) -> None:
    rerun = submittable_run(tmp_path / "rerun", seed=4_000_000_000)
    _, judgement = scoring.judge_run(rerun, level="hardware")
    assert {finding.rule for finding in judgement.violations} == {"seed of the edition"}
    assert list(broken_rules(rerun, "hardware")) == []


def test_code_of_a_submitters_own_is_named_by_who_repeats_the_run(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    """The name in a submission is never imported."""
    own = {"model": "theirs:net", "optimizer": None, "loss": None, "folder": "/theirs"}
    altered = {name: content for name, content in files.items() if name != MANIFEST}
    altered["plan.json"] = edited(files["plan.json"], "own_code", by=own)
    packing.seal(altered, key=None)
    archive.pack(tmp_path / "s.ai500", altered)
    with open_submission(tmp_path / "s.ai500") as submission:
        with pytest.raises(ConfigError) as caught:
            rerun_config(submission, local=None, runs=None, overrides={})
        assert caught.value.key == "free_level.model"
        reviewed = {"free_level.model": "reviewed:net"}
        config = rerun_config(submission, local=None, runs=None, overrides=reviewed)
    assert config.free_level.model == "reviewed:net"
