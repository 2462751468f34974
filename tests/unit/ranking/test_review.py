"""Names belong to keys, and one run counts once: registry, decisions, and what they decide."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai500.core.errors import InputError
from ai500.ranking import registry as registry_module
from ai500.ranking.entries import Claim, MemberWork, Ranked
from ai500.ranking.identity import MARKS, marks, member_work, overlaps, rhythm
from ai500.ranking.near_copies import MIN_COPIES, near_copies
from ai500.ranking.registry import (
    Decision,
    Decisions,
    Key,
    Organization,
    Received,
    Registry,
    load_decisions,
    load_registry,
    record,
)
from ai500.ranking.review import Review, review
from tests.support.synthetic_list import entry, ranked

KEY, OTHER_KEY, STRANGE_KEY = "a" * 64, "b" * 64, "c" * 64
TWO = Registry(
    organizations=(
        Organization("First University", (Key(KEY),)),
        Organization("Second Laboratory", (Key(OTHER_KEY),)),
    )
)


def work(seed: int, *, trials: int = 2, members: int = 3, digits: int = 6) -> list[MemberWork]:
    """Train members whose times are random, as real ones are."""
    generator = random.Random(seed)
    trained = []
    for trial, member in itertools.product(range(1, trials + 1), range(members)):
        weights = f"{generator.getrandbits(256):064x}"
        trained.append(member_work(trial, member, weights, log(generator)))
    return trained


def log(generator: random.Random, *, epochs: int = 12) -> list[dict[str, Any]]:
    """Write the timed events of a member."""
    time = generator.uniform(1e3, 1e6)
    events: list[dict[str, Any]] = [{"event": "first_batch", "monotonic": time}]
    for epoch in range(1, epochs + 1):
        for kind in ("epoch", "quality"):
            time += generator.gauss(2.0, 0.02)
            events.append({"event": kind, "epoch": epoch, "monotonic": time})
    return events


def candidate(
    number: int, trained: Sequence[MemberWork], *, key: str | None = KEY, **changes: Any
) -> Ranked:
    owners = {KEY: "First University", OTHER_KEY: "Second Laboratory"}
    names = {
        "organization": owners.get(key or "", "Nobody's"), "workload": "w", "problem_class": "c",
        "level": "hardware",
    }  # fmt: skip
    return ranked(entry(number, **(names | changes)), fingerprint=key, work=tuple(trained))


def reviewed(
    *candidates: Ranked, registry: Registry | None = TWO, decisions: Decisions | None = None
) -> Review:
    return review(candidates, registry=registry, decisions=decisions or Decisions())


def received(*candidates: Ranked, registry: Registry = TWO) -> Registry:
    """Record that submissions were received, in this order."""
    order = tuple(Received(each.claim.sha256, "2026-11-20") for each in candidates)
    return Registry(organizations=registry.organizations, received=order)


def test_a_name_signed_by_its_key_is_ranked() -> None:
    assert reviewed(candidate(1, work(1))).refused == {}


@pytest.mark.parametrize(
    ("key", "organization", "reason"),
    [
        (None, "First University", "not signed"),
        (STRANGE_KEY, "First University", "not in the list's registry"),
        (OTHER_KEY, "First University", "a name belongs to its keys"),
        (KEY, "first university", "a name belongs to its keys"),
        (KEY, "First  University", "a name belongs to its keys"),
        (KEY, "", "a name belongs to its keys"),
    ],
)
def test_a_name_under_another_key_is_not_ranked(
    key: str | None, organization: str, reason: str
) -> None:
    (refusal,) = reviewed(
        candidate(1, work(1), key=key, organization=organization)
    ).refused.values()
    assert reason in refusal[0]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, False),
        ({"valid_from": "2026-11-20", "valid_until": "2026-11-20"}, False),
        ({"valid_from": "2026-11-21"}, True),
        ({"valid_until": "2026-11-19"}, True),
        ({"revoked": "2026-11-21"}, False),  # what was received before stays
        ({"revoked": "2026-11-20", "reason": "stolen"}, True),
    ],
)
def test_a_key_counts_on_the_day_of_receipt(changes: dict[str, Any], refused: bool) -> None:
    one = candidate(1, work(1))
    registry = Registry(
        organizations=(Organization("First University", (Key(KEY, **changes),)),),
        received=(Received(one.claim.sha256, "2026-11-20"),),
    )
    assert bool(reviewed(one, registry=registry).refused) is refused


def test_keys_of_one_organization_are_one_signer() -> None:
    """A run that is signed again by the next key of its owner is no theft."""
    rotated = Registry(
        organizations=(Organization("First University", (Key(KEY), Key(OTHER_KEY))),)
    )
    old = candidate(1, work(1))
    new = candidate(2, work(1), key=OTHER_KEY, organization="First University")
    result = reviewed(old, new, registry=received(new, old, registry=rotated))
    assert list(result.refused) == [old.entry.id]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_one_received_is_ranked(reverse: bool) -> None:
    one, again = candidate(1, work(1)), candidate(2, work(1), system="relabelled")
    order = (again, one) if reverse else (one, again)
    result = reviewed(one, again, registry=received(*order))
    assert list(result.refused) == [order[1].entry.id]
    assert "all 6 members" in result.refused[order[1].entry.id][0]
    assert order[1].claim.file in result.findings[order[0].entry.id][0]


def test_without_a_record_the_digest_decides_and_not_the_name() -> None:
    one, again = candidate(1, work(1)), candidate(2, work(1))
    higher = max(one, again, key=lambda each: each.claim.sha256)
    for order in ((one, again), (again, one)):
        assert list(reviewed(*order).refused) == [higher.entry.id]


@pytest.mark.parametrize("registry", [TWO, None])
def test_of_two_signers_neither_is_ranked_until_the_committee_decides(
    registry: Registry | None,
) -> None:
    one, thief = candidate(1, work(1)), candidate(2, work(1), key=OTHER_KEY)
    result = reviewed(one, thief, registry=registry)
    assert set(result.refused) == {one.entry.id, thief.entry.id}
    both = (one.claim.sha256, thief.claim.sha256)
    decided = Decisions(decisions=(Decision(both, (both[0],), "2026-12-01", "first logs seen"),))
    result = reviewed(one, thief, registry=registry, decisions=decided)
    assert list(result.refused) == [thief.entry.id]
    assert "first logs seen" in result.refused[thief.entry.id][0]
    decided = Decisions(decisions=(Decision(both, both, "2026-12-01", "one run of both"),))
    result = reviewed(one, thief, registry=registry, decisions=decided)
    assert result.refused == {}
    assert len(result.findings) == 2


def test_a_copy_under_a_strange_key_holds_up_nobody() -> None:
    one, thief = candidate(1, work(1)), candidate(2, work(1), key=STRANGE_KEY)
    unsigned = candidate(3, work(1), key=None, organization="First University")
    assert set(reviewed(one, thief, unsigned).refused) == {thief.entry.id, unsigned.entry.id}


def test_without_a_registry_unsigned_copies_of_other_names_are_held() -> None:
    one = candidate(1, work(1), key=None, organization="First University")
    thief = candidate(2, work(1), key=None, organization="Thief")
    assert len(reviewed(one, thief, registry=None).refused) == 2
    again = candidate(2, work(1), key=None, organization="First University ")
    assert len(reviewed(one, again, registry=None).refused) == 1


def test_one_run_may_enter_the_lists_of_several_levels() -> None:
    one, free = candidate(1, work(1)), candidate(2, work(1), level="free")
    assert reviewed(one, free).refused == {}
    thief = candidate(2, work(1), level="free", key=OTHER_KEY)
    assert len(reviewed(one, thief).refused) == 2


def test_an_entry_of_another_list_hides_no_copy() -> None:
    """All three share work with the first one; the last two are in one list."""
    other = candidate(1, work(1), level="free")
    one, again = candidate(2, work(1)), candidate(3, work(1), system="relabelled")
    result = reviewed(other, one, again, registry=received(other, one, again))
    assert list(result.refused) == [again.entry.id]
    assert one.claim.file in result.refused[again.entry.id][0]


def test_a_later_decision_replaces_an_earlier() -> None:
    one = candidate(1, work(1))
    no = Decision((one.claim.sha256,), (), "2026-12-01", "doubts")
    yes = Decision((one.claim.sha256,), (one.claim.sha256,), "2026-12-09", "no more doubts")
    assert reviewed(one, decisions=Decisions(decisions=(no,))).refused
    assert not reviewed(one, decisions=Decisions(decisions=(no, yes))).refused


def test_equal_weights_at_other_times_are_shown_and_ranked() -> None:
    own = work(1)
    again = [MemberWork(w.trial, w.member, w.weights_sha256, other.marks)
             for w, other in zip(own, work(2), strict=True)]  # fmt: skip
    result = reviewed(candidate(1, own), candidate(2, again, key=OTHER_KEY))
    assert result.refused == {}
    assert all("equal seeds" in findings[0] for findings in result.findings.values())
    assert len(result.findings) == 2
    assert reviewed(candidate(1, own), candidate(2, again)).findings == {}  # one signer's two runs


# --- the same work, found ------------------------------------------------------------------

FORGERIES = {
    "shifted": lambda log, _: [event | {"monotonic": event["monotonic"] + 1e9} for event in log],
    "one digit": lambda log, g: _replace(log, g.randrange(len(log)), 0.001),
    "two digits": lambda log, g: _replace(_replace(log, 3, 0.01), g.randrange(len(log)), 0.1),
    "another host": lambda log, _: [
        event | {"host": "x", "boot": "y", "wall": 1.0} for event in log
    ],
    "half the time": lambda log, _: [
        event | {"monotonic": event["monotonic"] / 2} for event in log
    ],
    "events between": lambda log, g: interrupted(log, g),
    "events between, and jitter of 1 µs": lambda log, g: interrupted(
        jittered(log, g, seconds=1e-6), g
    ),
    "cut": lambda log, g: log[g.randrange(6) :],
    "jitter of 1 µs": lambda log, g: jittered(log, g, seconds=1e-6),
    "jitter of 1 ms": lambda log, g: jittered(log, g, seconds=1e-3),
    "jitter of 0.1 %": lambda log, g: jittered(log, g, share=1e-3),
    "added events": lambda log, _: [*log, {"event": "end", "monotonic": log[-1]["monotonic"] + 1}],
}


ALTERED = {name for name in FORGERIES if "jitter" in name or "half" in name}
"""Forgeries that leave no interval as it is."""


def _replace(log: list[dict[str, Any]], place: int, seconds: float) -> list[dict[str, Any]]:
    changed = dict(log[place], monotonic=log[place]["monotonic"] + seconds)
    return [*log[:place], changed, *log[place + 1 :]]


def jittered(
    log: list[dict[str, Any]], generator: random.Random, *, seconds: float = 0.0, share: float = 0.0
) -> list[dict[str, Any]]:
    """Change every interval by up to a share of it, then every time by up to some seconds."""
    time = log[0]["monotonic"]
    changed = [log[0]]
    for earlier, later in itertools.pairwise(log):
        interval = later["monotonic"] - earlier["monotonic"]
        time += interval * (1 + generator.uniform(-share, share))
        changed.append(later | {"monotonic": time + generator.uniform(-seconds, seconds)})
    return changed


def interrupted(log: list[dict[str, Any]], generator: random.Random) -> list[dict[str, Any]]:
    """Put an event between each two: some that a worker writes, and some that none does."""
    changed = []
    for earlier, later in itertools.pairwise(log):
        time = generator.uniform(earlier["monotonic"], later["monotonic"])
        kind = generator.choice(["clock", "resumed", "tea"])
        changed += [earlier, {"event": kind, "epoch": 1, "monotonic": time}]
    return [*changed, log[-1]]


def claims_of(seed: int, forgery: str, reused: int) -> list[Claim]:
    """Claim a run, an honest other run, and one that reuses members of the first one, forged."""
    generator = random.Random(seed)
    logs = [log(generator) for _ in range(4)]
    honest = [log(generator) for _ in range(4)]
    own = [log(generator) for _ in range(4 - reused)]
    taken = [FORGERIES[forgery](each, generator) for each in generator.sample(logs, reused)]
    mixed = [*taken, *own]
    generator.shuffle(mixed)
    return [
        Claim(f"{number}.ai500", f"{number:064x}", KEY,
              tuple(member_work(1, member, None, each) for member, each in enumerate(run)))
        for number, run in enumerate((logs, honest, mixed))
    ]  # fmt: skip


def reused_members_are_found(seed: int, forgery: str, reused: int) -> None:
    claims = claims_of(seed, forgery, reused)
    if forgery in ALTERED and reused < MIN_COPIES:  # a single member may agree by chance
        assert {(each.first, each.second) for each in overlaps(claims)} <= {(0, 2)}
        return
    (overlap,) = overlaps(claims)
    assert (overlap.first, overlap.second) == (0, 2)
    assert (len(overlap.members), overlap.total) == (reused, 4)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    seed=st.integers(0, 2**32), forgery=st.sampled_from(sorted(FORGERIES)), reused=st.integers(1, 4)
)
def test_reused_members_are_found(seed: int, forgery: str, reused: int) -> None:
    reused_members_are_found(seed, forgery, reused)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_reused_members_are_found_in_20000_cases(part: int) -> None:
    for seed in range(5_000 * part, 5_000 * (part + 1)):
        generator = random.Random(f"case {seed}")
        forgery = generator.choice(sorted(FORGERIES))
        reused_members_are_found(seed, forgery, generator.randint(1, 4))


def test_two_very_large_ensembles_are_compared_in_seconds() -> None:
    """Two times 6,000 members, all alike, took minutes of the list's own time."""
    generator = random.Random(3)
    intervals = [generator.gauss(2e6, 2e4) for _ in range(24)]

    def ensemble(spread: float) -> list[MemberWork]:
        return [
            MemberWork(1, member, None, (), "same", tuple(
                round(interval + generator.gauss(0, spread * (member % 2) + 3))
                for interval in intervals
            ))
            for member in range(6000)
        ]  # fmt: skip

    claims = [Claim(f"{n}", f"{n:064x}", KEY, tuple(ensemble(n * 2e5))) for n in (1, 0)]
    began = time.process_time()
    assert len(list(near_copies(claims))) == 1
    assert time.process_time() - began < 20


def test_a_forger_whose_members_agree_too_well_hides_nothing() -> None:
    """One trial of another's run, shown as three with other microseconds, and received first."""
    generator = random.Random(1)
    logs = {place: log(generator) for place in itertools.product((1, 2, 3), range(4))}
    copies = {
        (trial, member): jittered(logs[1, member], generator, seconds=2e-6)
        for trial, member in logs
    }
    forged, own = (
        Claim(f"{run}.ai500", f"{run:064x}", KEY,
              tuple(member_work(*place, None, each) for place, each in members.items()))
        for run, members in enumerate((copies, logs))
    )  # fmt: skip
    (overlap,) = overlaps([forged, own])
    assert overlap.members == tuple((1, member) for member in range(4))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runs", [40, pytest.param(200, marks=pytest.mark.long)])
def test_honest_runs_share_no_work(runs: int) -> None:
    """2,000 and 10,000 members, with epochs of 2 s ± 1 %: none is taken for another's."""
    claims = [
        Claim(f"{n}", f"{n:064x}", KEY, tuple(work(n, trials=5, members=10))) for n in range(runs)
    ]
    assert overlaps(claims) == []


# Spread of a system's intervals, and what repeats in each of its runs or is coarse in its clock.
STEADY_SYSTEMS = {
    "noise of 10 ppm": (1e-5, {}),
    "drift of a member": (1e-4, {"drift": 0.05}),
    "slow epochs of a member": (1e-3, {"slow": 0.2}),
    "clock of 1 ms": (1e-4, {"digits": 3}),
    "clock of 10 ms": (1e-4, {"digits": 2}),
}  # fmt: skip


def repeated(system: str, seed: int, *, trials: int = 3, members: int = 8) -> Claim:
    """Run a system again: levels, drifts and slow epochs of its members are always the same."""
    noise = random.Random(f"{system} {seed}")
    spread, changes = STEADY_SYSTEMS[system]
    works = []
    for trial, member in itertools.product(range(1, trials + 1), range(members)):
        own = random.Random(f"{system} {member}")
        level, drift = own.gauss(2, 0.02), own.gauss(0, changes.get("drift", 0))
        time = noise.uniform(1e3, 1e6)
        log: list[dict[str, Any]] = [{"event": "first_batch", "monotonic": time}]
        for epoch, kind in itertools.product(range(12), ("epoch", "quality")):
            slow = changes.get("slow", 0) * (own.random() < 0.1) + 0.5 * (epoch == 0)
            time += level * (1 + drift * epoch / 12) * (1 + slow) * noise.gauss(1, spread)
            shown = round(time, changes.get("digits", 15))
            log.append({"event": kind, "epoch": epoch, "monotonic": shown})
        works.append(member_work(trial, member, None, log))
    return Claim(f"{seed}", f"{seed:064x}", KEY, tuple(works))


@pytest.mark.parametrize("system", STEADY_SYSTEMS)
def test_runs_of_a_steady_system_share_no_work(system: str) -> None:
    assert list(near_copies([repeated(system, seed) for seed in range(9)])) == []


def test_logs_of_equal_epochs_show_no_copy() -> None:
    """Epochs equal to a microsecond in one trial, with a drift in the others, are no copies."""
    claims = []
    for run, epoch_seconds in enumerate((2.0, 1.5, 3.0)):
        works = []
        for trial, member in itertools.product((1, 2, 3), range(4)):
            seconds = epoch_seconds * (1 + 0.1 * math.sin(member))
            log = [
                {
                    "event": "epoch",
                    "epoch": epoch,
                    "monotonic": 7.0 + seconds * epoch + 5e-6 * (trial - 1) * epoch**2,
                }
                for epoch in range(12)
            ]
            works.append(member_work(trial, member, None, log))
        claims.append(Claim(f"{run}", f"{run:064x}", KEY, tuple(works)))
    assert list(near_copies(claims)) == []


def test_events_of_one_call_are_no_mark() -> None:
    """Intervals of 0 s are alike in every run."""
    log = [{"event": "epoch", "epoch": n // 2, "monotonic": 2.0 * (n // 2)} for n in range(60)]
    assert len(marks(log)) == MARKS
    assert marks([{"event": "epoch", "monotonic": 5.0}] * 9) == ()
    assert marks([{"event": "a"}, {"event": "b", "monotonic": "x"}]) == ()


def test_many_copies_of_one_run_take_time_in_proportion() -> None:
    """One hundred copies of a run are each compared with the first, not with all."""
    shared = tuple(work(1))
    found = overlaps([Claim(f"{n}", f"{n:064x}", KEY, shared) for n in range(100)])
    assert [(each.first, each.second) for each in found] == [(0, n) for n in range(1, 100)]


# --- the files -----------------------------------------------------------------------------

REGISTRY = f"""format = 1
[[organizations]]
name = "First University"
contact = "list@first.example"
[[organizations.keys]]
sha256 = "{KEY}"
valid_from = 2026-11-01
[[organizations]]
name = "Second Laboratory"
keys = [{{ sha256 = "{OTHER_KEY}", revoked = 2026-12-01, reason = "lost" }}]
"""


def test_a_registry_is_read(tmp_path: Path) -> None:
    path = tmp_path / "registry.toml"
    path.write_text(REGISTRY)
    registry = load_registry(path)
    assert registry.owners[KEY][0].name == "First University"
    assert registry.owners[KEY][1].valid_from == "2026-11-01"
    assert registry.owners[OTHER_KEY][1].revoked == "2026-12-01"


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (f'"{OTHER_KEY}"', f'"{KEY}"', "organizations.keys.sha256"),
        (KEY, KEY.upper(), "organizations.keys.sha256"),
        ("2026-11-01", '"yesterday"', "organizations.keys.valid_from"),
        ("2026-11-01", "2026-11-01T10:00:00", "organizations.keys.valid_from"),
        ("Second Laboratory", "first university", "organizations.name"),
        ("Second Laboratory", "Second\\u202e", "organizations.name"),
        ("Second Laboratory", " ", "organizations.name"),
        ("format = 1", "format = 2", "format"),
        ("revoked", "revocked", "organizations[1].keys[0].revocked"),
        ("contact", "received = 1 #", "organizations[0].received"),
        ("format = 1", "format = ", None),
    ],
)
def test_a_mistake_in_a_registry_is_an_error(
    tmp_path: Path, old: str, new: str, key: str | None
) -> None:
    path = tmp_path / "registry.toml"
    path.write_text(REGISTRY.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_registry(path)
    assert (caught.value.key, caught.value.path) == (key, path)


def test_receipt_is_recorded_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "registry.toml"
    path.write_text(REGISTRY)
    assert record(path, [("f" * 64, "early.ai500"), ("e" * 64, 'na"me\n[x] é.ai500')]) == 2
    monkeypatch.setattr(registry_module, "today", lambda: "2999-01-01")
    assert record(path, [("0" * 64, "a.ai500"), ("f" * 64, "renamed.ai500")]) == 1
    assert record(path, [("0" * 64, "a.ai500")]) == 0
    registry = load_registry(path)
    assert [each.sha256[0] for each in registry.received] == ["e", "f", "0"]
    assert registry.received[-1].date == "2999-01-01"
    assert [each.name for each in registry.organizations] == [
        "First University",
        "Second Laboratory",
    ]


def test_decisions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "decisions.toml"
    path.write_text(
        f'format = 1\n[[decisions]]\nsubmissions = ["{KEY}", "{OTHER_KEY}"]\nranked = ["{KEY}"]\n'
        'date = 2026-12-01\nreason = "the first one has its logs"\n'
    )
    decisions = load_decisions(path)
    assert decisions.settles(KEY, OTHER_KEY)
    assert "2026-12-01" in decisions.refusal(OTHER_KEY)
    assert decisions.refusal(KEY) == ""


@pytest.mark.parametrize(
    ("decision", "key"),
    [
        (f'submissions = ["{KEY}"]\nranked = ["{OTHER_KEY}"]\nreason = "x"', "decisions.ranked"),
        (f'submissions = ["{KEY}"]\nreason = " "', "decisions.reason"),
        (f'submissions = ["{KEY}"]', "decisions.reason"),
        ('submissions = ["mine.ai500"]\nreason = "x"', "decisions.submissions"),
        (f'submissions = ["{KEY}"]\nreason = "x"\ndate = "soon"', "decisions.date"),
    ],
)
def test_a_mistake_in_decisions_is_an_error(tmp_path: Path, decision: str, key: str) -> None:
    path = tmp_path / "decisions.toml"
    path.write_text(f"format = 1\n[[decisions]]\n{decision}\n")
    with pytest.raises(InputError) as caught:
        load_decisions(path)
    assert caught.value.key == key


def test_a_registry_that_cannot_be_continued_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "registry.toml"
    path.write_text("format = 1\nreceived = []\n")
    with pytest.raises(InputError) as caught:
        record(path, [("c" * 64, "new.ai500")])
    assert caught.value.key == "received"
    assert load_registry(path).received == ()


def test_other_names_of_models_are_the_same_work() -> None:
    """A search's models are known by their order: other names hide no copy."""
    events = [
        event | {"model": f"model {event['epoch'] % 3}"} if "epoch" in event else event
        for event in log(random.Random(1))
    ]
    renamed = [event | {"model": f"x{event['model']}"} if "model" in event else event
               for event in events]  # fmt: skip
    assert marks(events) == marks(renamed)
    assert rhythm(events) == rhythm(renamed)
