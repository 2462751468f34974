"""Bounds of plausibility: just inside of each a run is valid, just outside it is not."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ai500.core.events import TRAINING_EVENTS
from ai500.inventory.description import NodeDescription, Processors
from ai500.inventory.peaks import (
    HIGHEST_HERTZ,
    MOST_CORES,
    data_sheet,
    data_sheets,
    largest_flops,
    processor_flops,
)
from ai500.pipeline import scoring
from ai500.records import run_folder
from ai500.roofline.records import KernelTime
from ai500.rules import plausibility_rules as rules
from ai500.rules.evidence import Ceilings, Evidence, MeterSpan
from ai500.rules.judgement import judge
from ai500.rules.plausibility_rules import PLAUSIBILITY_RULES
from ai500.rules.window_rules import WINDOW_RULES, window_as_described
from tests.support.rule_violations import (
    Change,
    after_training,
    clock_event,
    described,
    events,
    faster,
    late_first_batch,
    on_accelerators,
    run_score,
    score,
    trials,
    without,
)
from tests.support.synthetic_roofline import synthetic_roofline
from tests.support.synthetic_run import official_shape, write_synthetic_run

RULES = (*PLAUSIBILITY_RULES, *WINDOW_RULES)


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder = tmp_path_factory.mktemp("plausibility") / "run"
    return scoring.run_evidence(write_synthetic_run(folder, official_shape()))


@pytest.fixture
def clean(clean_run: Evidence) -> Evidence:
    return copy.deepcopy(clean_run)


def broken(evidence: Evidence) -> set[str]:
    return {finding.rule for finding in judge(evidence, rules=RULES).violations}


H200 = 4 * 67e12
EFFICIENCY = max(sheet.flops["fp32"] / sheet.watts for sheet in data_sheets())
EPOCH = 63 * 20e-6


def test_ceilings_are_the_fastest_of_each_precision_per_unit(tmp_path: Path) -> None:
    """A short burst is faster than a long one: the ceiling is the higher."""
    kernels = (
        KernelTime("gemm", "fp32", "a", 10**12, 0.5, 5),
        KernelTime("gemm", "fp32", "b", 10**12, 0.25, 5),
        KernelTime("gemm", "bf16", "a", 10**12, 0.25, 5, burst_seconds=0.125),
    )
    run = write_synthetic_run(tmp_path / "run", official_shape())
    run_folder.write(run.roofline, synthetic_roofline(kernels=kernels, units=4))
    ceilings = scoring.run_evidence(run).ceilings
    assert ceilings is not None
    assert ceilings.flops == {"fp32": 1e12, "bf16": 2e12}


def with_ceilings(share: float) -> Change:
    """Submit ceilings whose bound is this share of the run's FLOPS."""

    def change(evidence: Evidence) -> Evidence:
        rate = max(trial.flops or 0.0 for trial in evidence.score.trials)
        core = share * rate / 1.5 / 2
        return dataclasses.replace(evidence, ceilings=Ceilings("CPU", "core", {"fp32": core}))

    return change


def metered_from(seconds: float) -> Change:
    """Start member 0's meters so long after its first batch."""

    def change(evidence: Evidence) -> Evidence:
        first = evidence.events_of("first_batch")[0]
        host = (first["host"], first["boot"])
        spans = [MeterSpan(host, 0, first["monotonic"] + seconds)]
        return trials(meter_spans=spans)(evidence)

    return change


def processors(**changes: Any) -> Change:
    """Change the nodes' descriptions of their CPUs."""

    def change(evidence: Evidence) -> Evidence:
        nodes = [
            (member, dataclasses.replace(
                node, processors=dataclasses.replace(node.processors, **changes)))
            for member, node in evidence.trials[0].nodes
        ]  # fmt: skip
        return trials(nodes=nodes)(evidence)

    return change


def power_limits(watts: float) -> Change:
    """Describe a power limit of each accelerator."""

    def change(node: NodeDescription) -> NodeDescription:
        devices = [dataclasses.replace(d, power_limit_watts=watts) for d in node.accelerators]
        return dataclasses.replace(node, accelerators=tuple(devices))

    return described(change)


def limited(watts: float, coverage: str = "accelerators") -> Change:
    """Measure watts of four accelerators that may draw 700 W each."""
    accelerators = both(on_accelerators("NVIDIA H200", 4, 4), power_limits(700.0))
    return both(accelerators, score(watts=watts, power_coverage=coverage))


def both(first: Change, second: Change) -> Change:
    return lambda evidence: second(first(evidence))


def job_events(kind: str, seconds: float) -> Change:
    """Move the controller's events of jobs, by all clocks."""

    def change(evidence: Evidence) -> Evidence:
        moved = [
            event | {clock: event[clock] + seconds for clock in ("wall", "monotonic")}
            if event["event"] == kind
            else event
            for event in evidence.events
        ]
        return dataclasses.replace(evidence, events=moved)

    return change


def job_ended(seconds: float) -> Change:
    """See each member's job end so long after its training."""

    def change(evidence: Evidence) -> Evidence:
        ends = [
            event | {"event": "job_ended", "job": f"job-{event['member']}-1"}
            | {clock: event[clock] + seconds for clock in ("wall", "monotonic")}
            for event in evidence.events_of("end")
        ]  # fmt: skip
        return dataclasses.replace(evidence, events=[*evidence.events, *ends])

    return change


BOUNDS: list[tuple[str, Callable[[float], Change], float, float]] = [
    # rule, change by a number, number just inside, number just outside
    # 2 cores × 5 GHz × 96 operations × 4
    ("possible rate", lambda x: score(flops=x), 3.839e12, 3.841e12),
    ("possible rate", lambda x: both(processors(threads=1, cores=1), score(flops=x)),
     1.919e12, 1.921e12),
    ("possible rate", lambda x: both(processors(instructions=("asimd",)), score(flops=x)),
     1.279e12, 1.281e12),
    ("possible rate", lambda x: both(processors(highest_hertz=None), score(flops=x)),
     4 * 2 * 96 * HIGHEST_HERTZ * 0.999, 4 * 2 * 96 * HIGHEST_HERTZ * 1.001),
    ("possible rate", lambda x: both(on_accelerators("NVIDIA H200", 4, 4), score(flops=x)),
     4 * H200 * 0.999, 4 * H200 * 1.001),
    ("under submitted ceilings", with_ceilings, 1.001, 0.999),
    ("least step time", lambda x: faster(x * EPOCH / 2.1), 1.2, 0.8),
    ("whole first epoch", late_first_batch, 0.06, 0.04),
    ("window as described", after_training, 61.1, 61.3),
    ("window as described", after_training, -0.9, -1.1),
    ("window as metered", metered_from, 0.5, 1.5),
    ("steady clocks", lambda x: clock_event(offset_seconds=x), 0.9, 1.1),
    ("plausible power", lambda x: score(watts=x, power_coverage="processors"), 1.01, 0.99),
    ("plausible power",
     lambda x: both(on_accelerators("NVIDIA H200", 4, 4),
                    score(watts=x, power_coverage="accelerators")), 141.0, 139.0),
    ("plausible power", limited, 4199.0, 4201.0),
    ("plausible power", lambda x: score(flops=x * 8 * EFFICIENCY, watts=2.0,
                                        power_coverage="whole nodes"), 1.99, 2.01),
    ("possible quality", lambda x: score(ensemble_quality=x, target_quality=0.2), 0.79, 0.81),
    *(("plausible figures", lambda x, n=name: run_score(**{n: x}), 0.99e30, 1.01e30)
      for name in ("vflops", "flops", "seconds", "vflops_per_watt")),
    *(("plausible figures", lambda x, n=name: run_score(**{n: x}), 1.01e-30, 0.99e-30)
      for name in ("vflops", "flops", "seconds")),
    ("window as controlled", lambda x: job_events("job_submitted", x), 603.0, 604.0),
    ("window as controlled", lambda x: job_ended(x), -0.9, -1.1),
    ("accelerators as described", lambda x: on_accelerators("NVIDIA H200", 4, int(x)), 4, 3),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "change", "inside", "outside"), BOUNDS)
def test_both_sides_of_a_bound(
    rule: str, change: Callable[[float], Change], inside: float, outside: float, clean: Evidence
) -> None:
    slots = clean.plan.nodes[0].slots
    mapped = {slot for m in clean.plan.mapping for share in m.shares for slot in share.slots}
    assert len(slots) == len(mapped) == 4
    assert rule not in broken(change(inside)(copy.deepcopy(clean)))
    assert rule in broken(change(outside)(clean))


def test_a_clean_run_is_plausible(clean: Evidence) -> None:
    assert broken(clean) == set()


def test_evidence_that_is_missing_could_not_be_checked(clean: Evidence) -> None:
    """No description of a node, or none after training, is a verdict of its own."""
    for change, rule in (
        (trials(nodes=[]), "accelerators as described"),
        (
            trials(
                nodes=[
                    (member, dataclasses.replace(node, after=None))
                    for member, node in clean.trials[0].nodes
                ]
            ),
            "window as described",
        ),
        (without("job_submitted"), "window as controlled"),
        (events("epoch", loss=None), "no copied members"),
        (
            described(lambda node: dataclasses.replace(node, hostname="elsewhere")),
            "window as described",
        ),
    ):
        judgement = judge(change(copy.deepcopy(clean)), rules=RULES)
        assert {(f.rule, f.severity) for f in judgement.findings} == {(rule, "unchecked")}


def test_other_parts_of_a_node_have_no_power_limit(clean: Evidence) -> None:
    assert "plausible power" not in broken(limited(4201.0, "accelerators + processors")(clean))


def test_the_rate_of_an_unknown_cpu_could_not_be_checked(clean: Evidence) -> None:
    for changes in ({"instructions": ("unheard_of",)}, {"cores": None, "threads": None}):
        unknown = processors(**changes)(copy.deepcopy(clean))
        findings = judge(unknown, rules=(rules.possible_rate,)).violations
        assert {finding.severity for finding in findings} == {"unchecked"}


def test_a_description_of_a_larger_cpu_than_there_is_raises_no_bound() -> None:
    largest = Processors(cores=MOST_CORES, highest_hertz=HIGHEST_HERTZ, instructions=("fma",))
    for changes in ({"cores": 10**6}, {"highest_hertz": 1e15}):
        described = dataclasses.replace(largest, **changes)
        assert processor_flops(described, "fp32") == processor_flops(largest, "fp32")


def test_largest_rates_of_processors() -> None:
    """Data sheets: Xeon Platinum 8480+ (56 cores), EPYC 9654, A64FX, each at its highest clock."""
    xeon = Processors(
        cores=56, highest_hertz=3.8e9,
        instructions=("amx_bf16", "amx_int8", "avx512_fp16", "avx512f", "fma"),
    )  # fmt: skip
    assert processor_flops(xeon, "mixed-bf16") == 56 * 3.8e9 * 1024
    assert processor_flops(xeon, "int8") == 56 * 3.8e9 * 2048
    assert processor_flops(xeon, "fp16") == 56 * 3.8e9 * 128
    assert processor_flops(xeon, "fp32") == processor_flops(xeon, "tf32") == 56 * 3.8e9 * 96
    epyc = Processors(cores=96, threads=192, highest_hertz=3.7e9, instructions=("fma", "avx512f"))
    assert processor_flops(epyc, "bf16") == 96 * 3.7e9 * 96  # no BF16 units are described
    a64fx = Processors(threads=48, highest_hertz=2.2e9, instructions=("asimd", "sve"))
    assert processor_flops(a64fx, "fp32") == 48 * 2.2e9 * 64
    assert processor_flops(Processors(threads=4, instructions=("altivec",)), "fp32") is None


def test_accelerators_that_no_library_lists_could_not_be_checked(clean: Evidence) -> None:
    """One of four described is a contradiction, none is a driver that says nothing."""
    for listed, unchecked in ((0, True), (1, False)):
        claimed = on_accelerators("NVIDIA H200", 4, listed)(copy.deepcopy(clean))
        findings = judge(claimed, rules=(rules.accelerators_as_described,)).violations
        assert findings and all(
            (finding.severity == "unchecked") is unchecked for finding in findings
        )


def test_a_node_among_others_that_lists_no_accelerators_could_not_be_checked(
    clean: Evidence,
) -> None:
    claimed = on_accelerators("NVIDIA H200", 4, 4)(clean)
    member, node = claimed.trials[0].nodes[0]
    silent = (member, dataclasses.replace(node, hostname="silent", accelerators=()))
    claimed = trials(nodes=[*claimed.trials[0].nodes, silent])(claimed)
    findings = judge(claimed, rules=(rules.accelerators_as_described,)).violations
    assert {finding.severity for finding in findings} == {"unchecked"}
    assert all("silent" in finding.message for finding in findings)


def test_a_node_that_the_job_had_to_leave_has_no_state_after_training(clean: Evidence) -> None:
    """A requeued member resumes on another node, which describes itself [docs/slurm.md]."""
    first = clean.trials[0]
    member, node = first.nodes[0]
    lost = dataclasses.replace(node, hostname="lost", after=None)
    events = [
        event | {"host": "lost"}
        if (event["event"], event.get("trial"), event.get("member")) == ("first_batch", 1, member)
        else event
        for event in clean.events
    ]
    nodes = [(member, lost), *first.nodes]
    moved = dataclasses.replace(
        clean, events=events,
        trials=[dataclasses.replace(first, nodes=nodes), *clean.trials[1:]],
    )  # fmt: skip
    assert events != clean.events
    rule = (window_as_described,)
    assert judge(moved, rules=rule).violations == []
    early = dataclasses.replace(lost.before, wall=lost.before.wall + 3600.0)
    nodes[0] = (member, dataclasses.replace(lost, before=early))
    assert len(judge(moved, rules=rule).violations) == 1


def test_offsets_that_jump_between_two_measurements(clean: Evidence) -> None:
    """Another host may be an hour off, at both ends of its training."""
    elsewhere = {"host": "other", "boot": "1", "wall": 2e9}
    hour = clock_event(offset_seconds=3600.0, **elsewhere)
    later = clock_event(offset_seconds=3600.5, **(elsewhere | {"wall": 2e9 + 60}))
    jump = clock_event(offset_seconds=3630.0, **(elsewhere | {"wall": 2e9 + 60}))
    assert "steady clocks" not in broken(both(hour, later)(copy.deepcopy(clean)))
    assert "steady clocks" in broken(both(hour, jump)(clean))


def test_a_trial_with_another_trials_times(clean: Evidence) -> None:
    """Times of trial 1, moved as a whole, with losses of their own."""
    first = {
        (e["event"], e.get("member"), e.get("epoch")): e["monotonic"]
        for e in clean.events
        if e.get("trial") == 1
    }
    start = next(e["monotonic"] for e in clean.events if e.get("trial") == 2)
    begin = next(e["monotonic"] for e in clean.events if e.get("trial") == 1)
    moved = [
        e | {"monotonic": start - begin + first[e["event"], e.get("member"), e.get("epoch")]}
        if e.get("trial") == 2
        else e
        for e in clean.events
    ]
    assert broken(dataclasses.replace(clean, events=moved)) == {"no copied members"}


def test_members_on_another_host_may_be_minutes_apart(clean: Evidence) -> None:
    """Without a common clock only an offset that no cluster has is a violation."""
    other = {"host": "other", "boot": "1"}
    start = next(e["wall"] for e in clean.events if e["event"] == "trial_start")
    for seconds, expected in ((-600.9, False), (-601.1, True)):
        moved = [
            e | other | {"wall": start + seconds}
            if e["event"] == "first_batch" and e["trial"] == 1
            else e
            for e in clean.events
        ]
        judged = broken(dataclasses.replace(clean, events=moved))
        assert ("window as controlled" in judged) is expected


def test_a_host_whose_clock_is_minutes_ahead_trains_within_its_jobs(clean: Evidence) -> None:
    """The end of a job is the controller's event, on another clock than the end of training."""
    other = {"host": "other", "boot": "1"}
    for seconds, expected in ((300.0, False), (601.9, False), (602.1, True)):
        moved = [
            e | other | {"wall": e["wall"] + seconds} if e["event"] in TRAINING_EVENTS else e
            for e in job_ended(1.0)(clean).events
        ]
        judged = broken(dataclasses.replace(clean, events=moved))
        assert ("window as controlled" in judged) is expected


def test_every_data_sheet_is_found_by_its_name_and_by_variants() -> None:
    for sheet in data_sheets():
        assert data_sheet(sheet.name) == sheet
        assert sheet.source
        assert sheet.flops["fp32"] < sheet.flops["fp16"]
    for name, expected in (
        ("NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-80GB"), ("NVIDIA L40", "NVIDIA L40S"),
        ("AMD Instinct MI300A", "AMD Instinct MI300X"),
    ):  # fmt: skip
        sheet = data_sheet(name)
        assert sheet is not None and sheet.name == expected
    assert data_sheet("NVIDIA GeForce RTX 4090") is None


def test_largest_rates() -> None:
    assert largest_flops("NVIDIA H200", "mixed-bf16") == 989.4e12
    assert largest_flops("Tesla V100-SXM2-32GB", "mixed-bf16") == 125e12  # computed in FP16 or less
    assert largest_flops("A device of next year", "fp8") == 5000e12
