"""Members to repeat are drawn once, by a hash that anyone can recompute."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from ai500.core.errors import InputError, RunFolderError
from ai500.records import Plan, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission.member_rerun import ChosenMembers, choose, draw, judge_members
from tests.support.forgeries import copied, faster_members
from tests.support.submitted import small_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("run") / "run", members=3, trials=2)


def test_the_choice_follows_from_the_seed(run: RunFolder) -> None:
    plan = run_folder.read(Plan, run.plan)
    everything = choose(plan, count=6, seed=7)
    assert sorted(everything) == [(trial, member) for trial in (1, 2) for member in range(3)]
    assert choose(plan, count=2, seed=7) == everything[:2]
    assert choose(plan, count=6, seed=8) != everything
    digests = [hashlib.sha256(f"7/{t}/{m}".encode()).digest() for t, m in everything]
    assert digests == sorted(digests)
    for count in (0, 7):
        with pytest.raises(InputError) as caught:
            choose(plan, count=count, seed=7)
        assert caught.value.key == "--members"


def test_every_member_is_chosen_alike(run: RunFolder) -> None:
    """3,000 seeds: each of 6 members is first about 500 times; 5 deviations are 102."""
    plan = run_folder.read(Plan, run.plan)
    first = [choose(plan, count=1, seed=seed)[0] for seed in range(3000)]
    assert all(abs(first.count(pair) - 500) < 102 for pair in choose(plan, count=6, seed=0))


def test_the_draw_is_recorded_once(run: RunFolder, tmp_path: Path) -> None:
    plan = run_folder.read(Plan, run.plan)
    submission, out = tmp_path / "s.ai500", tmp_path / "out"
    submission.write_bytes(b"one")
    out.mkdir()
    chosen = draw(submission, plan, out, count=2)
    assert chosen.members == choose(plan, count=2, seed=chosen.seed)
    assert draw(submission, plan, out, count=2) == chosen
    with pytest.raises(RunFolderError):
        draw(submission, plan, out, count=3)
    submission.write_bytes(b"another")
    with pytest.raises(RunFolderError):
        draw(submission, plan, out, count=2)


def test_slower_members_contradict_and_faster_ones_do_not(run: RunFolder, tmp_path: Path) -> None:
    plan = run_folder.read(Plan, run.plan)
    chosen = ChosenMembers("0" * 64, 7, choose(plan, count=4, seed=7))

    def judged(repeated: RunFolder) -> str:
        return judge_members(
            run, repeated, chosen, margin=0.3, penalty_exponent=1.0, quality_name="accuracy",
            direction="higher",
        ).verdict  # fmt: skip

    assert judged(run) == "replicated"
    slower, faster = (copied(run, tmp_path / name) for name in ("slower", "faster"))
    faster_members(2.0)(slower)
    assert judged(slower) == "differs"
    faster_members(0.5)(faster)
    assert judged(faster) == "replicated"
    for path in faster.path.glob("trials/*/members/*/record.json"):
        record = run_folder.read(TrainRecord, path)
        run_folder.write(path, replace(record, quality=record.quality / 2))
    assert judged(faster) == "differs"
