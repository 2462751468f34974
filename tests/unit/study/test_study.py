"""Studies without a run: their points, what they reuse, what they expect, what they say."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ai500.core.errors import RunFolderError
from ai500.core.schema import FormatError
from ai500.records import System, run_folder
from ai500.report.page import render
from ai500.study import repeatability, timing_validity
from ai500.study.folder import StudyFolder
from ai500.study.optimizations_scales import efficiency as efficiency_over_scales
from ai500.study.optimizations_scales import lines_over_scales, scale_figures
from ai500.study.page import COLUMNS, study_page, write_csv
from ai500.study.records import Conditions, PlannedPoint, PointResult, StudyPlan, StudyResult
from ai500.study.run_study import write_results
from ai500.study.scaling import efficiency, idle_fraction
from ai500.study.studies import STUDIES
from ai500.study.timing_validity import observe_conditions, timing_issues
from tests.support.html_words import Words
from tests.support.synthetic_run import Shape, make_plan, make_system
from tests.support.synthetic_study import (
    DOUBT,
    finished_synthetic_run,
    measured_point,
    points_of,
    result_of,
    searched,
    varied,
)

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "studies"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> PointResult:
    return measured_point(tmp_path_factory.mktemp("base") / "run")


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
    run_events = [{"event": "first_batch", "boot": "the same"}]
    issues = timing_issues(
        make_plan(shape), machine, events=run_events, conditions=Conditions(busy)
    )
    assert (issues == ()) if word is None else any(word in issue for issue in issues)


def test_members_that_share_are_the_subject_of_their_study_and_else_a_doubt() -> None:
    shape = Shape(members=4, slots=2, members_per_accelerator=2)
    plan, machine = make_plan(shape), replace(make_system(shape), cores=4)
    labels = [
        timing_issues(plan, machine, events=[], conditions=None, measures_sharing=subject)
        for subject in (False, True)
    ]
    assert [len(issues) for issues in labels] == [1, 0]
    assert [name for name, study in STUDIES.items() if study.measures_sharing] == ["sharing"]


def test_an_interrupted_run_is_no_measure_of_speed() -> None:
    shape = Shape(members=1, slots=1)
    issues = timing_issues(
        make_plan(shape), make_system(shape), events=[{"event": "resumed"}], conditions=None
    )
    assert any("interrupted" in issue for issue in issues)


@pytest.mark.parametrize(
    ("device", "percent", "invalid"), [("cuda", 83, True), ("cuda", 4, False), ("cpu", 83, False)]
)
def test_an_accelerator_that_others_use_is_no_measure_of_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, percent: int, invalid: bool
) -> None:
    monkeypatch.setattr(
        timing_validity, "OBSERVATION_SECONDS", 0.0
    )  # the files of a card do not change
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # NVML has no such folder
    card = tmp_path / "sys/class/drm/card0/device"
    (card / "hwmon/hwmon0").mkdir(parents=True)
    for name, text in (("vendor", "0x1002"), ("gpu_busy_percent", f"{percent}"),
                       ("hwmon/hwmon0/power1_average", "90000000")):  # fmt: skip
        (card / name).write_text(text + "\n")
    observed = observe_conditions(tmp_path)
    assert observed == Conditions(None, percent / 100)  # this root has no processors
    shape = Shape(members=1, slots=1)
    plan, machine = replace(make_plan(shape), device=device), make_system(shape)
    issues = timing_issues(plan, replace(machine, cores=8), events=[], conditions=observed)
    assert any("kept an accelerator busy" in issue for issue in issues) == invalid


def test_without_an_accelerator_only_the_cores_are_looked_at(tmp_path: Path) -> None:
    run_folder.write(tmp_path / "conditions.json", {"busy_share": 0.02})  # of an earlier version
    assert run_folder.read(Conditions, tmp_path / "conditions.json") == Conditions(0.02, None)
    observed = observe_conditions()
    assert observed.busy_share is not None
    assert 0 <= observed.busy_share <= 1


# What a study says


@pytest.mark.parametrize("name", STUDIES)
def test_every_report_shows_its_points_and_says_when_speed_means_nothing(
    name: str, base: PointResult
) -> None:
    valid = render(study_page(result_of(name, base), STUDIES[name]))
    doubted = render(study_page(result_of(name, base, doubted=True), STUDIES[name]))
    for point in points_of(name, base):
        assert point.label in valid
    assert "no such arithmetic here" in valid
    assert "speed axis is not meaningful" not in valid
    assert "hollow" not in valid.partition("</style>")[2]
    assert "The speed axis is not meaningful here." in doubted
    assert f"Every point: {DOUBT}." in doubted
    assert "hollow" in doubted.partition("</style>")[2]
    assert valid.count("<polyline") >= doubted.count("<polyline")


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_of_a_part_is_a_report(name: str, base: PointResult) -> None:
    whole = result_of(name, base)
    for count in range(len(whole.points) + 1):
        part = render(study_page(replace(whole, points=whole.points[:count]), STUDIES[name]))
        assert part.count("<figure>") >= (count > 1)
    for point in whole.points:
        assert point.label in render(study_page(replace(whole, points=(point,)), STUDIES[name]))


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_in_which_nothing_was_learned_says_so(name: str, base: PointResult) -> None:
    whole = result_of(name, base)
    lost = tuple(varied(point, point.name, point.label, quality=0.0) for point in whole.points)
    assert all(point.score.vflops == 0 for point in lost)
    page = render(study_page(replace(whole, points=lost), STUDIES[name]))
    assert all(point.label in page for point in lost)
    assert not re.search(r"\b(inf|nan)\b", page)


def test_doubted_speeds_are_not_joined_by_a_line(base: PointResult) -> None:
    view = STUDIES["scaling"].view
    speed, efficiencies = view(result_of("scaling", base)).figures[:2]
    assert str(speed.svg).count("<polyline") == 3  # linear, FLOPS, VFLOPS
    for figure in view(result_of("scaling", base, doubted=True)).figures[:2]:
        assert "<polyline" not in str(figure.svg)
    assert "Hollow" not in efficiencies.caption


def test_v3_fig_7_speed_of_one_model_rises_as_m_falls(base: PointResult) -> None:
    """V3 §4.4: M = 1 is the fastest, though all members together are faster at M = 8."""
    points = points_of("tradeoff", base)
    speeds = [point.model_samples_per_second for point in points]
    assert [point.score.ensemble_size for point in points] == [8, 4, 2, 1]
    assert speeds == sorted(speeds)  # type: ignore[type-var]
    assert points[0].samples_per_second > points[-1].samples_per_second  # type: ignore[operator]
    first = points[0]
    images = first.steps_per_epoch * first.global_batch_size * first.epochs
    assert speeds[0] == pytest.approx(images / first.members[0].seconds)
    quality, time, _ = STUDIES["tradeoff"].view(result_of("tradeoff", base)).figures
    assert "images per second of one model" in str(quality.svg)
    dots = re.findall(r'<circle cx="([\d.]+)"[^>]*class="ensemble', str(quality.svg))
    assert [float(x) for x in dots] == sorted(map(float, dots))
    assert len(dots) == 4
    assert time.title == "Time to finish"
    text = " ".join(STUDIES["tradeoff"].view(result_of("tradeoff", base)).sentences)
    assert f"{speeds[-1] / speeds[0]:.2f} times as many images per second" in text  # type: ignore[operator]


def test_optimizations_over_scales_have_a_line_each(base: PointResult) -> None:
    """V3 Fig. 8: FLOPS; V2 Fig. 4, right: points lost against FP32 at the same scale."""
    result = result_of("optimizations", base)
    at_four = [
        varied(base, "fp32-4", "fp32 on 4", members=4, speed=3.9, quality=0.82),
        varied(base, "mixed-bf16-4", "mixed-bf16 on 4", members=4, speed=7.0, quality=0.80,
               precision="mixed-bf16"),
    ]  # fmt: skip
    scaled = replace(result, points=(*result.points, *at_four))
    plain = [point for point in scaled.points if not point.name.startswith(("large", "no-"))]
    lines = lines_over_scales(plain)
    assert set(lines) == {("fp32", "fp32"), ("mixed-bf16", "fp32")}
    assert [point.name for point in lines["fp32", "fp32"]] == ["fp32", "fp32-4"]
    speed, efficient, loss = scale_figures(plain, workload=scaled.workload)
    shares = [value.y for value in efficiency_over_scales(lines["fp32", "fp32"])]
    assert shares == pytest.approx([1.0, 3.9 / 4])  # V2 §7.4
    assert "V2: fp32" in str(efficient.svg)
    assert str(speed.svg).count("<polyline") == 2
    assert "mixed-bf16" in str(loss.svg) and "V2: mixed" in str(loss.svg)
    measured = loss.chart.series[0].values  # type: ignore[union-attr]
    assert measured[-1].x == 4 and measured[-1].y == pytest.approx(2.0)
    titles = [figure.title for figure in STUDIES["optimizations"].view(scaled).figures]
    assert "FLOPS over scale" in titles
    alone = [figure.title for figure in STUDIES["optimizations"].view(result).figures]
    assert "FLOPS over scale" not in alone
    # Without the baseline no other point of FP32, such as a policy's, takes its place in the line.
    failed = replace(scaled, points=tuple(p for p in scaled.points if p.name != "fp32"))
    (flops,) = [
        figure
        for figure in STUDIES["optimizations"].view(failed).figures
        if figure.title == "FLOPS over scale"
    ]
    assert [line.name for line in flops.chart.series] == ["mixed-bf16"]  # type: ignore[union-attr]


def test_table_8_stands_beside_our_own_gain(base: PointResult) -> None:
    sections = STUDIES["optimizations"].view(result_of("optimizations", base)).sections
    (section,) = [s for s in sections if s.title == "Weight decay on batch norm"]
    table = section.blocks[1]
    assert [row[1] for row in table.rows] == ["+1.00", "+0.45", "+0.45", "+1.38"]  # type: ignore[union-attr]
    assert [row[2] for row in table.rows][1:] == ["1.03", "1.03", "1.10"]  # type: ignore[union-attr]


def test_the_shipped_example_of_fig_7_has_the_papers_order() -> None:
    """The speed of one model rises as M falls, the run ends earlier, and quality falls."""
    result = run_folder.read(StudyResult, EXAMPLES / "tradeoff" / "result.json")
    points = {point.score.ensemble_size: point for point in result.points}
    speed = {size: point.model_samples_per_second or 0.0 for size, point in points.items()}
    assert all(point.timing_valid for point in result.points)
    assert speed[1] > speed[2] > speed[4] > speed[8] > 0
    seconds = [points[size].score.seconds for size in (1, 2, 4, 8)]
    assert seconds == sorted(seconds)
    quality = [points[size].ensemble_quality for size in (1, 2, 4, 8)]
    assert quality == sorted(quality)
    with (EXAMPLES / "tradeoff" / "points.csv").open(newline="") as file:
        rows = {int(row["ensemble_size"]): row for row in csv.DictReader(file)}
    assert float(rows[1]["model_samples_per_second"]) == pytest.approx(speed[1])
    page = (EXAMPLES / "tradeoff" / "report.html").read_text(encoding="utf-8")
    assert "images per second of one model" in page
    assert "Time to finish" in page


def test_a_speed_that_was_not_measured_is_stated_not_drawn_at_zero(base: PointResult) -> None:
    whole = result_of("tradeoff", base)
    first, *rest = whole.points
    unknown = replace(first, samples_per_second=None)
    figure = STUDIES["tradeoff"].view(replace(whole, points=(unknown, *rest))).figures[0]
    assert f"Images per second were not measured of {first.label}." in figure.caption
    assert first.label not in str(figure.svg)
    assert all(point.label in str(figure.svg) for point in rest)
    alone = STUDIES["tradeoff"].view(replace(whole, points=(unknown,))).figures[0]
    assert alone.svg is None
    assert first.label in render(study_page(replace(whole, points=(unknown,)), STUDIES["tradeoff"]))


def test_efficiency_against_a_doubted_point_is_doubted(base: PointResult) -> None:
    for name, published in (("scaling", 0), ("data-parallel", 1)):
        whole = result_of(name, base)
        first = replace(whole.points[0], timing_issues=(DOUBT,))
        view = STUDIES[name].view(replace(whole, points=(first, *whole.points[1:])))
        figure = next(candidate for candidate in view.figures if "efficiency" in candidate.title)
        assert "Hollow" in figure.caption
        assert str(figure.svg).count("<polyline") == published  # V2's own
    assert {row[-1] for row in view.sections[0].blocks[1].rows} == {"no"}


def test_efficiency_is_against_as_many_first_points(base: PointResult) -> None:
    points = points_of("scaling", base)
    assert efficiency(points[0], points[0]) == 1
    assert efficiency(points[3], points[0]) == pytest.approx(0.98**3)


def test_waiting_is_the_part_of_the_slots_in_which_no_member_trains(base: PointResult) -> None:
    two = varied(base, "m2", "M = 2", members=2)  # 0–20 s and 0.1–20.5 s
    assert idle_fraction(two) == pytest.approx(1 - (20 + 20.4) / (2 * 20.5))


def test_variation_is_standard_deviation_over_mean(base: PointResult) -> None:
    points = [varied(base, f"seed-{s}", "", quality=q) for s, q in ((1, 0.7), (2, 0.8), (3, 0.9))]
    quality, operations = repeatability.QUANTITIES[2], repeatability.QUANTITIES[0]
    assert repeatability.variation_of(points, quality) == pytest.approx(0.1 / 0.8)
    assert repeatability.variation_of(points, operations) == 0
    lost = replace(points[0].score.trials[0], epochs_to_target=None)
    missed = replace(points[0], score=replace(points[0].score, trials=(lost,)))
    assert repeatability.variation_of([missed, *points[1:]], repeatability.QUANTITIES[1]) is None


def test_a_search_is_compared_at_the_error_that_every_seed_reached(base: PointResult) -> None:
    points = [searched(base, (1e9, 0.5), (3e9, 0.3)), searched(base, (2e9, 0.4), (6e9, 0.2))]
    names = {quantity.name: quantity for quantity in repeatability.quantities(points)}
    common = names["operations to common error"]
    assert [common.value(quantity) for quantity in points] == [3e9, 6e9]  # 0.3: what both reached
    assert [names["time to common error"].value(quantity) for quantity in points] == [3.0, 6.0]
    # In a given time a faster machine computes more: that is no property of the search.
    assert {name for name, quantity in names.items() if quantity.is_speed} == {
        "time to common error", "operations in all", "models taken up", "regulated score", "FLOPS",
    }  # fmt: skip
    assert "operations to common error" not in {
        quantity.name for quantity in repeatability.quantities([base])
    }


@pytest.mark.parametrize("name", ["scaling", "repeatability"])
def test_the_report_of_a_search_speaks_of_searches(name: str, base: PointResult) -> None:
    points = tuple(
        searched(point, (1e9 * number, 0.4))
        for number, point in enumerate(points_of(name, base), 1)
    )
    page = render(
        study_page(replace(result_of(name, base), workload="automl", points=points), STUDIES[name])
    )
    words = Words(page).text.partition("V3, V2 and AIPerf are the papers.")[0]
    words = words.replace("VFLOPS equal FLOPS: AIPerf has no quality factor.", "")
    assert "worker" in words
    for other in ("bootstrap", "nsemble", "quality factor", "VFLOPS"):
        assert other not in words.rpartition("}")[2], other
    assert "V2 Table 2" not in page.partition("<figure>")[2].partition("<table")[0]
    if name == "repeatability":
        assert "all reached an error of 0.4000. The operations until then vary by 52.7" in page


def test_csv_has_every_figure_and_no_formula(tmp_path: Path, base: PointResult) -> None:
    result = result_of("tradeoff", base)
    evil = replace(result.points[0], label="=cmd()")
    write_csv(tmp_path / "points.csv", replace(result, points=(evil, *result.points[1:])))
    with (tmp_path / "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert rows[0]["label"] == "'=cmd()"
    assert float(rows[1]["flops"]) == pytest.approx(result.points[1].score.flops)
    assert rows[1]["watts"] == ""  # not measured, and not 0


def test_a_report_is_drawn_again_when_the_runs_are_gone(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    run = folder.runs / "m1-00000000"
    finished_synthetic_run(run, Shape(members=1, slots=1))
    point = PlannedPoint("m1", "M = 1", {}, digest="0" * 64, run=folder.relative_name(run))
    late = PlannedPoint("m2", "M = 2", {}, digest="1" * 64, run="runs/m2-11111111")
    plan = StudyPlan(study="scaling", workload="image_classification", problem_class="smoke",
                     points=(point, late))  # fmt: skip
    run_folder.write(folder.plan, plan)
    first = write_results(folder, STUDIES["scaling"])
    assert [entry.name for entry in first.points] == ["m1"]
    assert [entry.reason for entry in first.missing] == ["not run yet"]
    whole = folder.result.read_text()
    folder.result.write_text("{}")  # damaged, or of another version: the runs are all there
    late_run = folder.path / str(late.run)
    late_run.mkdir()
    assert write_results(folder, STUDIES["scaling"]).points == first.points
    late_run.rmdir()
    run.rename(tmp_path / "elsewhere")
    folder.result.write_text("{}")
    with pytest.raises(RunFolderError) as raised:
        write_results(folder, STUDIES["scaling"])  # nothing else knows: it is not written over
    assert raised.value.path == folder.result
    folder.result.write_text(whole)
    again = write_results(folder, STUDIES["scaling"])
    assert again.points == first.points
    assert again.hardware == first.hardware


def test_hostile_labels_are_text(base: PointResult) -> None:
    evil = "<script>alert(1)</script>"
    points = tuple(replace(point, label=evil, run=evil) for point in points_of("tradeoff", base))
    page = render(study_page(replace(result_of("tradeoff", base), points=points, hardware=evil),
                  STUDIES["tradeoff"]))  # fmt: skip
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_records_of_a_study_survive_the_disk(tmp_path: Path, base: PointResult) -> None:
    folder = StudyFolder(tmp_path)
    result = result_of("optimizations", base)
    run_folder.write(folder.result, result)
    assert folder.read_result() == result
    run_folder.write(folder.plan, {**json.loads('{"study": "scaling"}'), "format": 99})
    with pytest.raises(FormatError) as raised:
        folder.read_plan()
    assert (raised.value.key, raised.value.value) == ("study.json.format", 99)


EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "studies"


@pytest.mark.parametrize("name", sorted(folder.name for folder in EXAMPLES.iterdir()))
def test_the_example_of_the_documentation_can_be_drawn_again(tmp_path: Path, name: str) -> None:
    folder = StudyFolder(shutil.copytree(EXAMPLES / name, tmp_path / name))
    table, before = folder.csv.read_text(), folder.read_result()
    folder.report.unlink()
    # Its runs are not here: from what was collected.
    result = write_results(folder, STUDIES[name.removesuffix("-automl")])
    assert before is not None
    assert result.points == before.points != ()
    assert folder.csv.read_text() == table
    assert all(point.label in folder.report.read_text() for point in result.points)
    assert sum(file.stat().st_size for file in folder.path.iterdir()) < 300_000
