"""Studies without a run: their points, what they reuse, what they expect, what they say."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ai500 import config as configuration
from ai500 import events, pipeline, rundir
from ai500.config import Config
from ai500.errors import InputError, RunFolderError
from ai500.records import Score, System
from ai500.rundir import RunFolder
from ai500.study import repeatability
from ai500.study.collect import wall_seconds
from ai500.study.conduct import draw
from ai500.study.definition import Choices, Ground, doubling
from ai500.study.doubts import speed_doubts
from ai500.study.folder import StudyFolder, digest, family, finished_runs
from ai500.study.page import render
from ai500.study.planning import (
    Prepared,
    check_same_study,
    estimate,
    ground_of,
    prepare,
    remaining_seconds,
)
from ai500.study.records import Conditions, PlannedPoint, PointResult, StudyPlan
from ai500.study.scaling import efficiency, waiting
from ai500.study.studies import STUDIES
from ai500.study.table import COLUMNS, write_csv
from tests.unit.synthetic_run import Shape, make_plan, make_system
from tests.unit.synthetic_study import (
    DOUBT,
    finished_synthetic_run,
    measured_point,
    points_of,
    result_of,
    varied,
)

TWO_SLOTS = {"system.accelerators_per_node": 2, "system.cores_per_slot": 1, "system.device": "cpu"}
CLUSTER = {"system.nodes": 8, "system.accelerators_per_node": 8, "system.device": "cuda"}


def configured(**extra: Any) -> Config:
    overrides = {key.replace("__", "."): value for key, value in extra.items()}
    return configuration.load(overrides={**TWO_SLOTS, **overrides})


@pytest.fixture(scope="module")
def cluster() -> Ground:
    """V3's: eight nodes of eight GPUs."""
    return ground_of(configuration.load(overrides={"problem_class": "full", **CLUSTER}))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> PointResult:
    return measured_point(tmp_path_factory.mktemp("base") / "run")


# Points


def test_scaling_has_the_points_of_v3_figure_5(cluster: Ground) -> None:
    points = STUDIES["scaling"].points(cluster, Choices())
    plans = [cluster.planned(point.overrides) for point in points]
    assert [plan.ensemble_size for plan in plans] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {plan.parallel_degree for plan in plans} == {8}
    assert [plan.system_scale for plan in plans] == [8, 16, 24, 32, 40, 48, 56, 64]
    assert all(plan.waves == 1 for plan in plans)


def test_tradeoff_fills_the_system_in_every_way(cluster: Ground) -> None:
    points = STUDIES["tradeoff"].points(cluster, Choices())
    plans = [cluster.planned(point.overrides) for point in points]
    found = {(plan.ensemble_size, plan.parallel_degree) for plan in plans}
    assert all(members * degree == 64 for members, degree in found)
    assert {(8, 8), (4, 16), (1, 64)} <= found  # V3 Fig. 7
    assert len(found) == len(points) == 7


def test_data_parallel_compares_the_same_accelerators(cluster: Ground) -> None:
    points = STUDIES["data-parallel"].points(cluster, Choices())
    plans = {point.name: cluster.planned(point.overrides) for point in points}
    for n in (2, 4, 8):
        ensemble, single = plans[f"ensemble-{n}"], plans[f"single-{n}"]
        assert ensemble.system_scale == single.system_scale == 8 * n
        assert (single.ensemble_size, single.parallel_degree) == (1, 8 * n)


def test_policies_differ_in_scaling_and_warm_up_alone(cluster: Ground) -> None:
    points = STUDIES["optimizations"].points(cluster, Choices())
    plans = {point.name: cluster.planned(point.overrides) for point in points}
    reference, both = plans["fp32"], plans["large-batch"]
    neither = plans["large-batch-neither"]
    assert both.global_batch_size == neither.global_batch_size == 8 * reference.global_batch_size
    assert both.learning_rate == pytest.approx(8 * reference.learning_rate)
    assert neither.learning_rate == pytest.approx(reference.learning_rate)
    assert both.hyperparameters.warmup_epochs > 0 == neither.hyperparameters.warmup_epochs
    assert plans["both"].communication.precision == "fp16"
    assert plans["both"].hyperparameters.precision == "mixed-fp16"


def test_a_precision_the_machine_lacks_is_told_not_tried(tmp_path: Path) -> None:
    found = prepared("optimizations", tmp_path)
    impossible = {one.name: one.impossible for one in found.plan.points if one.impossible}
    assert set(impossible) == {"tf32", "fp8"}
    assert "tensor cores" in str(impossible["tf32"])
    assert not {"tf32", "fp8"} & {one.name for one in found.waiting()}


def test_more_members_than_fit_run_in_waves() -> None:
    ground = ground_of(configured())
    points = STUDIES["scaling"].points(ground, Choices(max_members=3))
    plans = [ground.planned(point.overrides) for point in points]
    assert [(plan.ensemble_size, plan.system_scale, plan.waves) for plan in plans] == [
        (1, 1, 1), (2, 2, 1), (3, 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (8, list(range(1, 9))),
                                             (20, [*range(1, 9), 16, 20])])  # fmt: skip
def test_sizes_are_few(most: int, sizes: list[int]) -> None:
    assert doubling(most) == sizes


# Mistakes


@pytest.mark.parametrize(
    ("study", "extra", "choices", "word"),
    [
        ("scaling", {"ensemble__size": 2}, Choices(), "ensemble.size = 2"),
        ("tradeoff", {"parallel__degree": 2}, Choices(), "varies it itself"),
        ("repeatability", {}, Choices(seeds=1), "at least 2"),
        ("data-parallel", {"parallel__degree": 2}, Choices(), "at least 4 accelerators"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, study: str, extra: dict[str, Any], choices: Choices, word: str
) -> None:
    with pytest.raises(InputError, match=word):
        prepared(study, tmp_path, choices=choices, **extra)


def test_a_point_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'mixed-bf16'"):
        prepared("optimizations", tmp_path, only=["mixed-bf61"])


def test_a_folder_belongs_to_one_study(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    rundir.write(folder.plan, StudyPlan(study="tradeoff"))
    check_same_study(folder, STUDIES["tradeoff"])
    with pytest.raises(RunFolderError, match="holds the study 'tradeoff'"):
        check_same_study(folder, STUDIES["scaling"])
    with pytest.raises(RunFolderError, match="not an empty folder"):
        check_same_study(StudyFolder(tmp_path), STUDIES["scaling"])
    with pytest.raises(RunFolderError, match=r"no study\.json"):
        StudyFolder.open(tmp_path)


# Planning


def prepared(
    study: str,
    folder: Path,
    *,
    choices: Choices | None = None,
    only: list[str] | None = None,
    runs: Path | None = None,
    **extra: Any,
) -> Prepared:
    return prepare(
        STUDIES[study],
        configured(**extra),
        choices or Choices(),
        only=only or [],
        folder=StudyFolder(folder / "study"),
        finished=finished_runs([runs] if runs else []),
    )


def pretend_finished(path: Path, config: Config, *, joules: float | None = None) -> RunFolder:
    """A run folder as `ai500 run` leaves it, its numbers made up."""
    run = pipeline.prepare(config, path)
    finished_synthetic_run(path.parent.parent / "made up" / path.name, Shape(members=1, slots=1))
    score = rundir.read(Score, path.parent.parent / "made up" / path.name / "score.json")
    trials = config.run.trials
    assert isinstance(trials, int)
    one = replace(score.trials[0], energy_joules=joules)
    for number in range(1, trials + 1):
        rundir.write(run.trial(number).score, replace(one, trial=number))
    rundir.write(run.score, replace(score, trials=(one,) * trials))
    told = [{"event": "run_start", "wall": 1000.0}, {"event": "run_end", "wall": 1060.0}]
    events.append(run.events, told)
    return run


def test_what_is_written_out_or_left_out_is_the_same_work() -> None:
    ground = ground_of(configured(ensemble__size=2))
    left_out = ground.planned({})
    stated = {"parallel.degree": 1, "system.scale": 2, "train.precision": "fp32"}

    def keys(overrides: dict[str, Any]) -> tuple[str, str]:
        whole, plan = ground.configured(overrides), ground.planned(overrides)
        return digest(whole, plan, ground.machine), family(whole, plan, ground.machine)

    first = digest(ground.config, left_out, ground.machine)
    assert keys(stated)[0] == first
    assert keys({"train.precision": "mixed-bf16"})[0] != first
    seed, trials = keys({"run.seed": 2}), keys({"run.trials": 3})
    assert len({first, seed[0], trials[0]}) == 3
    assert seed[1] == trials[1] == keys({})[1]
    other = replace(ground.machine, cpu="another one")
    assert digest(ground.config, left_out, other) != first


def test_a_finished_run_is_used_again_and_an_unfinished_one_is_not(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    before = prepared("tradeoff", tmp_path, runs=runs)
    assert len(before.waiting()) == 2
    point = before.plan.points[0]
    pretend_finished(runs / "mine", before.ground.configured(point.overrides))
    pipeline.prepare(before.ground.configured(before.plan.points[1].overrides), runs / "begun")
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{")
    after = prepared("tradeoff", tmp_path, runs=runs)
    assert [one.name for one in after.waiting()] == [before.plan.points[1].name]
    served = after.plan.points[0]
    assert served.reused
    assert (tmp_path / "study" / str(served.run)).resolve() == (runs / "mine").resolve()


def test_cost_is_that_of_the_same_work_or_not_known(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    config = configured(ensemble__size=2, run__trials=2, train__precision="mixed-bf16")
    pretend_finished(runs / "mine", config, joules=500.0)
    ground = ground_of(replace(config, run=replace(config.run, trials=3, seed=9)))
    finished = finished_runs([runs])
    assert estimate(ground.plan, []).seconds is None  # nobody measured this precision
    found = estimate(ground.plan, finished)
    assert found.seconds == pytest.approx(60.0 / 2 * 3)
    assert found.joules == pytest.approx(1500.0)
    assert finished[0].family == family(ground.config, ground.plan, ground.machine)


def test_what_remains_goes_by_what_is_done(tmp_path: Path) -> None:
    found = prepared("tradeoff", tmp_path)
    first, second = found.plan.points
    assert remaining_seconds(found, {}, [second]) is None
    pace = 100.0 / (found.expected[first.name] or 0.0)
    left = remaining_seconds(found, {first.name: 100.0}, [second])
    assert left == pytest.approx(pace * (found.expected[second.name] or 0.0))


def test_time_of_a_run_leaves_interruptions_out(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert wall_seconds(run) is None
    kinds = [("run_start", 0.0), ("epoch", 30.0), ("run_start", 1000.0), ("run_end", 1020.0)]
    events.append(run.events, [{"event": kind, "wall": wall} for kind, wall in kinds])
    assert wall_seconds(run) == pytest.approx(50.0)


# Doubts about speed


@pytest.mark.parametrize(
    ("shape", "cores", "busy", "word"),
    [
        (Shape(members=2, slots=2), 4, 0.0, None),
        (Shape(members=2, slots=2), 2, 0.0, "use all 2 cores"),
        (Shape(members=2, slots=2), 4, 0.4, "other processes"),
        (Shape(members=4, slots=2), 4, 0.0, "2 waves"),
        (Shape(members=4, slots=2, members_per_accelerator=2), 4, 0.0, "share each accelerator"),
        (Shape(members=2, slots=1, nodes=2), 4, 0.0, "2 nodes are parts of 1 host"),
    ],
)
def test_speed_is_doubted_where_it_means_nothing(
    shape: Shape, cores: int, busy: float, word: str | None
) -> None:
    machine: System = replace(make_system(shape), cores=cores)
    told = [{"event": "first_batch", "boot": "the same"}]
    found = speed_doubts(make_plan(shape), machine, events=told, conditions=Conditions(busy))
    assert (found == ()) if word is None else any(word in doubt for doubt in found)


def test_an_interrupted_run_is_no_measure_of_speed() -> None:
    shape = Shape(members=1, slots=1)
    found = speed_doubts(
        make_plan(shape), make_system(shape), events=[{"event": "resumed"}], conditions=None
    )
    assert any("interrupted" in doubt for doubt in found)


# What a study says


@pytest.mark.parametrize("name", STUDIES)
def test_every_report_shows_its_points_and_says_when_speed_means_nothing(
    name: str, base: PointResult
) -> None:
    trusted = render(result_of(name, base), STUDIES[name])
    doubted = render(result_of(name, base, doubted=True), STUDIES[name])
    for one in points_of(name, base):
        assert one.label in trusted
    assert "no such arithmetic here" in trusted
    assert "speed axis is not meaningful" not in trusted
    assert "hollow" not in trusted.partition("</style>")[2]
    assert "The speed axis is not meaningful here." in doubted
    assert f"Every point: {DOUBT}." in doubted
    assert "hollow" in doubted.partition("</style>")[2]
    assert trusted.count("<polyline") >= doubted.count("<polyline")


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_of_a_part_is_a_report(name: str, base: PointResult) -> None:
    whole = result_of(name, base)
    for count in range(len(whole.points) + 1):
        part = render(replace(whole, points=whole.points[:count]), STUDIES[name])
        assert part.count("<figure>") >= (count > 1)
    for one in whole.points:
        assert one.label in render(replace(whole, points=(one,)), STUDIES[name])


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_in_which_nothing_was_learned_is_told(name: str, base: PointResult) -> None:
    whole = result_of(name, base)
    lost = tuple(varied(one, one.name, one.label, quality=0.0) for one in whole.points)
    assert all(one.score.vflops == 0 for one in lost)
    page = render(replace(whole, points=lost), STUDIES[name])
    assert all(one.label in page for one in lost)
    assert not re.search(r"\b(inf|nan)\b", page)


def test_doubted_speeds_are_not_joined_by_a_line(base: PointResult) -> None:
    view = STUDIES["scaling"].view
    speed, efficiencies = view(result_of("scaling", base)).figures[:2]
    assert str(speed.svg).count("<polyline") == 3  # linear, FLOPS, VFLOPS
    for figure in view(result_of("scaling", base, doubted=True)).figures[:2]:
        assert "<polyline" not in str(figure.svg)
    assert "Hollow" not in efficiencies.caption


def test_efficiency_is_against_as_many_first_points(base: PointResult) -> None:
    points = points_of("scaling", base)
    assert efficiency(points[0], points[0]) == 1
    assert efficiency(points[3], points[0]) == pytest.approx(0.98**3)


def test_waiting_is_the_part_of_the_places_in_which_nobody_trains(base: PointResult) -> None:
    two = varied(base, "m2", "M = 2", members=2)  # 0–20 s and 0.1–20.5 s
    assert waiting(two) == pytest.approx(1 - (20 + 20.4) / (2 * 20.5))


def test_variation_is_standard_deviation_over_mean(base: PointResult) -> None:
    points = [varied(base, f"seed-{s}", "", quality=q) for s, q in ((1, 0.7), (2, 0.8), (3, 0.9))]
    quality, operations = repeatability.QUANTITIES[2], repeatability.QUANTITIES[0]
    assert repeatability.varies(points, quality) == pytest.approx(0.1 / 0.8)
    assert repeatability.varies(points, operations) == 0
    lost = replace(points[0].score.trials[0], epochs_to_target=None)
    missed = replace(points[0], score=replace(points[0].score, trials=(lost,)))
    assert repeatability.varies([missed, *points[1:]], repeatability.QUANTITIES[1]) is None


def test_a_search_is_compared_at_the_error_that_every_seed_reached(base: PointResult) -> None:
    @dataclass(frozen=True, slots=True)
    class SearchedScore(Score):
        search: Any = None

    def searched(*steps: tuple[float, float]) -> PointResult:
        found = [SimpleNamespace(operations=operations, error=error) for operations, error in steps]
        search = SimpleNamespace(models=9, operations_to_target=None, improvements=found)
        fields = {name: getattr(base.score, name) for name in Score.__dataclass_fields__}
        one = SearchedScore(**{**fields, "trials": (), "search": search})
        return replace(base, score=replace(one, trials=(one,)))

    points = [searched((1e9, 0.5), (3e9, 0.3)), searched((2e9, 0.4), (6e9, 0.2))]
    names = {one.name: one for one in repeatability.quantities(points)}
    common = names["operations to common error"]
    assert [common.of(one) for one in points] == [3e9, 6e9]  # 0.3: what both reached
    assert repeatability.search_quantities([base]) == []


def test_csv_has_every_figure_and_no_formula(tmp_path: Path, base: PointResult) -> None:
    result = result_of("tradeoff", base)
    evil = replace(result.points[0], label="=cmd()")
    write_csv(tmp_path / "points.csv", replace(result, points=(evil, *result.points[1:])))
    with (tmp_path / "points.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert list(found[0]) == list(COLUMNS)
    assert found[0]["label"] == "'=cmd()"
    assert float(found[1]["flops"]) == pytest.approx(result.points[1].score.flops)
    assert found[1]["watts"] == ""  # not measured, and not 0


def test_a_report_is_drawn_again_when_the_runs_are_gone(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    run = folder.runs / "m1-00000000"
    finished_synthetic_run(run, Shape(members=1, slots=1))
    point = PlannedPoint("m1", "M = 1", {}, digest="0" * 64, run=folder.named(run))
    late = PlannedPoint("m2", "M = 2", {}, digest="1" * 64, run="runs/m2-11111111")
    plan = StudyPlan(study="scaling", workload="image_classification", problem_class="smoke",
                     points=(point, late))  # fmt: skip
    rundir.write(folder.plan, plan)
    first = draw(folder, STUDIES["scaling"])
    assert [one.name for one in first.points] == ["m1"]
    assert [one.reason for one in first.missing] == ["not run yet"]
    whole = folder.result.read_text()
    folder.result.write_text("{}")  # damaged, or of another version: the runs are all there
    late_run = folder.path / str(late.run)
    late_run.mkdir()
    assert draw(folder, STUDIES["scaling"]).points == first.points
    late_run.rmdir()
    run.rename(tmp_path / "elsewhere")
    folder.result.write_text("{}")
    with pytest.raises(RunFolderError, match="or delete it"):
        draw(folder, STUDIES["scaling"])  # nothing else knows: it is not written over
    folder.result.write_text(whole)
    again = draw(folder, STUDIES["scaling"])
    assert again.points == first.points
    assert again.hardware == first.hardware


def test_hostile_labels_are_text(base: PointResult) -> None:
    evil = "<script>alert(1)</script>"
    points = tuple(replace(one, label=evil, run=evil) for one in points_of("tradeoff", base))
    page = render(replace(result_of("tradeoff", base), points=points, hardware=evil),
                  STUDIES["tradeoff"])  # fmt: skip
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_records_of_a_study_survive_the_disk(tmp_path: Path, base: PointResult) -> None:
    folder = StudyFolder(tmp_path)
    result = result_of("optimizations", base)
    rundir.write(folder.result, result)
    assert folder.read_result() == result
    rundir.write(folder.plan, {**json.loads('{"study": "scaling"}'), "format": 99})
    with pytest.raises(RunFolderError, match="layout 99"):
        folder.read_plan()


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "studies"


@pytest.mark.parametrize("name", STUDIES)
def test_the_example_of_the_documentation_can_be_drawn_again(tmp_path: Path, name: str) -> None:
    folder = StudyFolder(shutil.copytree(EXAMPLES / name, tmp_path / name))
    table, before = folder.csv.read_text(), folder.read_result()
    folder.report.unlink()
    result = draw(folder, STUDIES[name])  # its runs are not here: from what was collected
    assert before is not None
    assert result.points == before.points != ()
    assert folder.csv.read_text() == table
    assert all(one.label in folder.report.read_text() for one in result.points)
    assert sum(file.stat().st_size for file in folder.path.iterdir()) < 300_000
