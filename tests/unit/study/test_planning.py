"""Plans of studies: points, reused runs, estimates, refusals."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import events
from ai500.core.errors import InputError, RunFolderError
from ai500.core.source import source_sha256
from ai500.pipeline import stages as pipeline
from ai500.records import Cluster, Plan, System, run_folder
from ai500.records.run_folder import RunFolder
from ai500.study.collect import wall_seconds
from ai500.study.definition import StudyContext, StudyOptions
from ai500.study.folder import StudyFolder, cost_family, finished_runs, work_digest
from ai500.study.planning import check_same_study, estimate, remaining_seconds, study_context
from ai500.study.records import StudyPlan
from ai500.study.scaling import ensemble_sizes
from ai500.study.studies import STUDIES
from tests.support.synthetic_study import at, configured, prepared, pretend_finished

CLUSTER = {"system.nodes": 8, "system.accelerators_per_node": 8, "system.device": "cuda"}


@pytest.fixture(scope="module")
def cluster() -> StudyContext:
    """V3's: eight nodes of eight GPUs."""
    return study_context(configuration.load(overrides={"problem_class": "full", **CLUSTER}))


# Points


def test_scaling_has_the_points_of_v3_figure_5(cluster: StudyContext) -> None:
    points = STUDIES["scaling"].points(cluster, StudyOptions())
    plans = [cluster.plan_for(point.overrides) for point in points]
    assert [plan.ensemble_size for plan in plans] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {plan.parallel_degree for plan in plans} == {8}
    assert [plan.system_scale for plan in plans] == [8, 16, 24, 32, 40, 48, 56, 64]
    assert all(plan.waves == 1 for plan in plans)


def test_tradeoff_fills_the_system_in_every_way(cluster: StudyContext) -> None:
    points = STUDIES["tradeoff"].points(cluster, StudyOptions())
    plans = [cluster.plan_for(point.overrides) for point in points]
    sizes = {(plan.ensemble_size, plan.parallel_degree) for plan in plans}
    assert all(members * degree == 64 for members, degree in sizes)
    assert {(8, 8), (4, 16), (1, 64)} <= sizes  # V3 Fig. 7
    assert len(sizes) == len(points) == 7


def test_sharing_doubles_the_members_of_every_accelerator(cluster: StudyContext) -> None:
    study, options = STUDIES["sharing"], StudyOptions(max_members=32)
    plans = [cluster.plan_for(point.overrides) for point in study.points(cluster, options)]
    assert [plan.members_per_accelerator for plan in plans] == [1, 2, 4]
    assert [plan.ensemble_size for plan in plans] == [8, 16, 32]  # a node of eight each: P = 8
    assert {(plan.system_scale, plan.waves) for plan in plans} == {(64, 1)}
    alone = cluster.config_for({"parallel.degree": 1, "system.scale": 1})
    with_one = replace(cluster, config=alone, plan=cluster.plan_for(
        {"parallel.degree": 1, "system.scale": 1}))  # fmt: skip
    sizes = [with_one.plan_for(point.overrides).ensemble_size for point in
             study.points(with_one, StudyOptions())]  # fmt: skip
    assert sizes == [1, 2, 4, 8]


def test_data_parallel_compares_the_same_accelerators(cluster: StudyContext) -> None:
    points = STUDIES["data-parallel"].points(cluster, StudyOptions())
    plans = {point.name: cluster.plan_for(point.overrides) for point in points}
    for n in (2, 4, 8):
        ensemble, single = plans[f"ensemble-{n}"], plans[f"single-{n}"]
        assert ensemble.system_scale == single.system_scale == 8 * n
        assert (single.ensemble_size, single.parallel_degree) == (1, 8 * n)


@pytest.mark.parametrize(
    ("nodes", "per_node", "members", "sizes"),
    [
        (1, 8, None, [1, 2, 4, 8]),
        (1, 6, None, [1, 2, 6]),
        (2, 6, None, [1, 2]),  # P_degree is a node's
        (1, 8, 7, [1, 2, 4]),  # one model over 7 of 8 would leave one idle
        (3, 4, None, [1, 2, 3]),
    ],
)
def test_data_parallel_takes_what_fits_the_nodes_and_the_largest(
    nodes: int, per_node: int, members: int | None, sizes: list[int]
) -> None:
    system_settings = {"system.nodes": nodes, "system.accelerators_per_node": per_node}
    context = study_context(
        configuration.load(overrides={**CLUSTER, "problem_class": "full", **system_settings})
    )
    points = STUDIES["data-parallel"].points(context, StudyOptions(max_members=members))
    for point in points:
        context.plan_for(point.overrides)  # none is refused
    assert [int(p.name[9:]) for p in points if p.name.startswith("ensemble-")] == sizes


def test_repeatability_repeats_the_workload_that_was_asked_for() -> None:
    for workload in ("image_classification", "automl"):
        context = study_context(configured(workload=workload))
        points = STUDIES["repeatability"].points(context, StudyOptions(seeds=2))
        assert [point.overrides for point in points] == [{"run.seed": 1}, {"run.seed": 2}]
        assert context.plan_for(points[0].overrides).workload == workload


def test_optimizations_at_several_scales(cluster: StudyContext) -> None:
    """V3 Fig. 8 over scales: every precision and compression on 1, 4 and all accelerators."""
    study = STUDIES["optimizations"]
    whole = {point.name for point in study.points(cluster, StudyOptions())}
    scaled = study.points(cluster, StudyOptions(scales=(1, 4, cluster.accelerators)))
    names = {point.name for point in scaled} - whole
    assert {"fp32-1", "mixed-bf16-1", "fp32-4", "compression-4", "both-4"} <= names
    assert "compression-1" not in names  # one rank sends nothing
    assert not any(name.endswith(f"-{cluster.accelerators}") for name in names)
    by_name = {point.name: point for point in scaled}
    for scale in (1, 4):
        plan = cluster.plan_for(by_name[f"fp32-{scale}"].overrides)
        assert plan.system_scale == plan.ensemble_size * plan.parallel_degree == scale
    with pytest.raises(InputError) as refused:
        study.points(cluster, StudyOptions(scales=(1_000_000,)))
    assert (refused.value.key, refused.value.value) == ("--scales", 1_000_000)


def test_batch_norms_decay_is_a_point_of_its_own(cluster: StudyContext) -> None:
    """V2 Table 8: nothing else differs from the baseline."""
    points = {p.name: p for p in STUDIES["optimizations"].points(cluster, StudyOptions())}
    baseline, undecayed = points["fp32"].overrides, points["no-batch-norm-decay"].overrides
    assert undecayed == {**baseline, "train.optimizer": "sgd_no_vector_decay"}


def test_policies_differ_in_scaling_and_warm_up_alone(cluster: StudyContext) -> None:
    points = STUDIES["optimizations"].points(cluster, StudyOptions())
    plans = {point.name: cluster.plan_for(point.overrides) for point in points}
    reference, both = plans["fp32"], plans["large-batch"]
    neither = plans["large-batch-neither"]
    assert both.global_batch_size == neither.global_batch_size == 8 * reference.global_batch_size
    assert both.learning_rate == pytest.approx(8 * reference.learning_rate)
    assert neither.learning_rate == pytest.approx(reference.learning_rate)
    assert both.hyperparameters.warmup_epochs > 0 == neither.hyperparameters.warmup_epochs
    assert plans["both"].communication.precision == "fp16"
    assert plans["both"].hyperparameters.precision == "mixed-fp16"


def test_a_precision_the_machine_lacks_is_reported_not_tried(tmp_path: Path) -> None:
    study = prepared("optimizations", tmp_path)
    impossible = {point.name: point.impossible for point in study.plan.points if point.impossible}
    assert set(impossible) == {"tf32", "fp8"}
    assert "tensor cores" in str(impossible["tf32"])
    assert not {"tf32", "fp8"} & {point.name for point in study.pending()}


def test_more_members_than_fit_run_in_waves() -> None:
    context = study_context(configured())
    points = STUDIES["scaling"].points(context, StudyOptions(max_members=3))
    plans = [context.plan_for(point.overrides) for point in points]
    assert [(plan.ensemble_size, plan.system_scale, plan.waves) for plan in plans] == [
        (1, 1, 1), (2, 2, 1), (3, 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (8, list(range(1, 9))),
                                             (20, [*range(1, 9), 16, 20])])  # fmt: skip
def test_sizes_are_few(most: int, sizes: list[int]) -> None:
    assert ensemble_sizes(most) == sizes


# Mistakes


@pytest.mark.parametrize(
    ("study", "extra", "choices", "key", "value"),
    [
        ("scaling", {"ensemble__size": 2}, StudyOptions(), "ensemble.size", 2),
        (
            "scaling",
            {"ensemble__members_per_accelerator": 2},
            StudyOptions(),
            "ensemble.members_per_accelerator",
            2,
        ),
        ("tradeoff", {"parallel__degree": 2}, StudyOptions(), "parallel.degree", 2),
        ("tradeoff", {"workload": "automl"}, StudyOptions(), "workload", "automl"),
        ("optimizations", {"workload": "automl"}, StudyOptions(), "workload", "automl"),
        ("data-parallel", {"workload": "automl"}, StudyOptions(), "workload", "automl"),
        ("repeatability", {}, StudyOptions(seeds=1), "--seeds", 1),
        ("data-parallel", {"parallel__degree": 2}, StudyOptions(), "parallel.degree", 2),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path,
    study: str,
    extra: dict[str, Any],
    choices: StudyOptions,
    key: str,
    value: object,
) -> None:
    with pytest.raises(InputError) as raised:
        prepared(study, tmp_path, choices=choices, **extra)
    assert (raised.value.key, raised.value.value) == (key, value)


def test_a_point_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        prepared("optimizations", tmp_path, only=["mixed-bf61"])
    assert (raised.value.key, raised.value.value) == ("--points", "mixed-bf61")
    assert "'mixed-bf16'" in str(raised.value)


def test_a_folder_belongs_to_one_study(tmp_path: Path) -> None:
    folder, config = StudyFolder(tmp_path / "study"), configured()
    known = StudyPlan(study="tradeoff", workload=config.workload, problem_class="smoke")
    existing = (known.study, known.workload, known.problem_class)
    run_folder.write(folder.plan, known)
    check_same_study(folder, STUDIES["tradeoff"], config)
    with pytest.raises(RunFolderError) as raised:
        check_same_study(folder, STUDIES["scaling"], config)
    assert (raised.value.key, raised.value.value) == ("study", existing)
    with pytest.raises(RunFolderError) as raised:
        check_same_study(folder, STUDIES["tradeoff"], configured(workload="extreme_weather"))
    assert (raised.value.key, raised.value.value) == ("study", existing)
    with pytest.raises(RunFolderError) as raised:
        check_same_study(StudyFolder(tmp_path), STUDIES["scaling"], config)
    assert raised.value.path == tmp_path
    with pytest.raises(RunFolderError) as raised:
        StudyFolder.open(tmp_path)
    assert (raised.value.key, raised.value.path) == ("study.json", tmp_path)


# Planning


def test_what_is_written_out_or_left_out_is_the_same_work() -> None:
    context = study_context(configured(ensemble__size=2))
    left_out = context.plan_for({})
    stated = {"parallel.degree": 1, "system.scale": 2, "train.precision": "fp32"}

    def keys(overrides: dict[str, Any]) -> tuple[str, str]:
        whole, plan = context.config_for(overrides), context.plan_for(overrides)
        return key(whole, plan, context.machine), cost_family(whole, plan, context.machine)

    first = key(context.config, left_out, context.machine)
    assert keys(stated)[0] == first
    assert keys({"train.precision": "mixed-bf16"})[0] != first
    seed, trials = keys({"run.seed": 2}), keys({"run.trials": 3})
    assert len({first, seed[0], trials[0]}) == 3
    assert seed[1] == trials[1] == keys({})[1]
    other = replace(context.machine, cpu="another one")
    assert key(context.config, left_out, other) != first
    assert work_digest(context.config, left_out, context.machine, source="another") != first


def test_thousands_of_members_are_distinguished_as_fast_as_two() -> None:
    """Count calls, not seconds: the members' map is no part of what makes work the same."""
    context = study_context(configured(ensemble__size=2))

    def calls(members: int) -> int:
        settings = {"ensemble.size": members}
        config, plan = context.config_for(settings), context.plan_for(settings)
        made: list[str] = []
        sys.setprofile(lambda frame, event, argument: made.append(event))
        try:
            work_digest(config, plan, context.machine, source="")
        finally:
            sys.setprofile(None)
        return len(made)

    assert calls(2000) < 2 * calls(2)


@pytest.mark.parametrize(
    "change",
    [
        {"slurm.constraint": "a100"},
        {"slurm.reservation": "ours"},
        {"slurm.setup": ["module load cuda/12"]},
        {"slurm.sbatch": ["--switches=1"]},
        {"slurm.srun": ["--network=x"]},
        {"container.image": "b.sif"},
        {"container.mounts": ["/data"]},
        {"container.flags": ["--nv"]},
        {"cluster": "another"},
        {"partition": "another"},
    ],
)
def test_another_way_to_run_jobs_is_other_work(change: dict[str, Any]) -> None:
    context = study_context(configured(container__image="a.sif", scheduler__launcher="apptainer"))
    where = Cluster("one", "gpus", (), {}, 2, 2, 1000, None, accounting=True, version="23")
    named = {"cluster": "name", "partition": "partition"}
    other = replace(where, **{named[k]: v for k, v in change.items() if k in named})
    settings = {k: v for k, v in change.items() if k not in named}
    config = context.config_for(settings)
    first = key(context.config, replace(context.plan, cluster=where), context.machine)
    assert key(config, replace(context.plan, cluster=other), context.machine) != first
    paid = context.config_for({"slurm.account": "them", "slurm.time_limit": "2:00:00"})
    assert key(paid, replace(context.plan, cluster=where), context.machine) == first


def key(config: Config, plan: Plan, machine: System) -> str:
    return work_digest(config, plan, machine, source=source_sha256())


def test_a_finished_run_is_used_again_and_an_unfinished_one_is_not(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    before = prepared("tradeoff", tmp_path, runs=runs)
    assert len(before.pending()) == 2
    point = before.plan.points[0]
    pretend_finished(runs / "mine", before.context.config_for(point.overrides))
    second = before.context.config_for(before.plan.points[1].overrides)
    pipeline.prepare(second, runs / "begun")
    pretend_finished(runs / "of another source", second, source="another")
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{")
    after = prepared("tradeoff", tmp_path, runs=runs)
    assert [point.name for point in after.pending()] == [before.plan.points[1].name]
    served = after.plan.points[0]
    assert served.reused
    assert (tmp_path / "study" / str(served.run)).resolve() == (runs / "mine").resolve()


def test_cost_is_that_of_the_same_work_or_not_known(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    config = configured(ensemble__size=2, run__trials=2, train__precision="mixed-bf16")
    pretend_finished(runs / "mine", config, joules=500.0)
    context = study_context(replace(config, run=replace(config.run, trials=3, seed=9)))
    finished = finished_runs([runs])
    assert estimate(context.plan, []).seconds is None  # no timing data for this precision
    expected = estimate(context.plan, finished)
    assert expected.seconds == pytest.approx(60.0 / 2 * 3)
    assert expected.joules == pytest.approx(1500.0)
    assert finished[0].family == cost_family(context.config, context.plan, context.machine)


def test_what_remains_goes_by_what_is_done(tmp_path: Path) -> None:
    study = prepared("tradeoff", tmp_path)
    first, second = study.plan.points
    assert remaining_seconds(study, {}, [second]) is None
    pace = 100.0 / (study.expected[first.name] or 0.0)
    left = remaining_seconds(study, {first.name: 100.0}, [second])
    assert left == pytest.approx(pace * (study.expected[second.name] or 0.0))


def test_time_of_a_run_leaves_interruptions_out(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert wall_seconds(run) is None
    epoch = at(30.0, "epoch", trial=1, member=0, attempt=1, epoch=1)
    starts, end = [at(0.0, "run_start"), at(1000.0, "run_start")], at(1020.0, "run_end")
    events.append(run.events, [starts[0], epoch, starts[1], end])
    assert wall_seconds(run) == pytest.approx(50.0)


def test_frameworks_that_are_not_installed_are_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI500_JAX_PYTHON", "/no/such/python")
    study = prepared("frameworks", tmp_path)
    planned = {point.name: point for point in study.plan.points}
    assert planned["pytorch"].impossible is None
    assert "/no/such/python" in (planned["jax"].impossible or "")
    assert planned["jax"].overrides["framework.python"] == "/no/such/python"
