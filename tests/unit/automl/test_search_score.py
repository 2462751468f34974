"""Score over time of a search: hand-made histories with known answers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.automl.history import Ended, Epoch, History, Presence, Work
from ai500.automl.score import (
    Curve,
    SearchTimeline,
    idle,
    mean_of_searches,
    newly_covered,
    search_figures,
    search_result,
    search_timeline,
    timed_search,
)
from ai500.core import events, schema
from ai500.core.errors import JobError
from ai500.pipeline import scoring
from ai500.records import run_folder
from tests.support.synthetic_search import (
    BEGAN,
    BOOT,
    STEPS,
    VALIDATION,
    SearchShape,
    candidate,
    epoch,
    train_operations,
    trained,
    validation_operations,
    write_history,
    write_synthetic_search,
)

ONE_EPOCH = train_operations() + validation_operations()


def searched(members: Path) -> tuple[SearchTimeline, History]:
    history = History(members)
    lines = history.refresh()
    return search_timeline(lines, history, lambda line: float(line.event["monotonic"])), history


def test_training_and_validation_are_counted(tmp_path: Path) -> None:
    write_history(tmp_path, 0, trained(candidate("a"), at=5, accuracies=[0.5, 0.6]))
    write_history(tmp_path, 1, trained(candidate("b"), at=5, accuracies=[0.4]))
    search, _ = searched(tmp_path)
    assert search.seconds == pytest.approx(20)
    assert search.curve.operations[-1] == pytest.approx(3 * ONE_EPOCH)
    # Both workers train evenly for 9 s of 10, so 4.5 s hold half of it.
    assert search.curve.at(4.5) == pytest.approx(train_operations())
    assert search.curve.at(10) == pytest.approx(2 * ONE_EPOCH)
    assert search.curve.flops(20) == pytest.approx(3 * ONE_EPOCH / 20)
    assert search.curve.rate(20, window=10) == pytest.approx(ONE_EPOCH / 10)


def test_the_final_score_is_the_highest_of_the_times_that_are_long_enough(tmp_path: Path) -> None:
    quick = trained(candidate("a"), at=0, accuracies=[0.5, 0.6], seconds=10)
    slow = trained(candidate("b", "a"), at=20, accuracies=[0.7, 0.7], seconds=40)
    write_history(tmp_path, 0, [*quick, *slow])
    search, history = searched(tmp_path)
    fast, late = 2 * ONE_EPOCH / 20, 4 * ONE_EPOCH / 100
    assert search.curve.highest(least=20) == pytest.approx((fast, 20))
    assert search.curve.highest(least=99) == pytest.approx((search.curve.flops(99), 99))
    # A search shorter than the class's least time has only its end to show.
    assert search.curve.highest(least=3600) == pytest.approx((late, 100))
    figures = search_figures(search, history, min_seconds=60, target=0.3)
    assert figures.at_seconds >= 60
    assert figures.mean_flops == pytest.approx(late)
    # The regulated score may be highest later: the error falls meanwhile.
    assert figures.regulated_score == pytest.approx(
        max(
            -math.log(0.4) * search.curve.flops(60),
            *(-math.log(0.3) * search.curve.flops(t) for t in search.curve.seconds if t >= 60),
        )
    )


def test_what_a_restart_repeats_counts_once(tmp_path: Path) -> None:
    made = candidate("a")
    write_history(tmp_path, 0, [(0, made), (7, Work("a", "train", 1, 0, 7, 7.0))])
    again = epoch(made, 1, at=20, accuracy=0.5)
    write_history(tmp_path, 0, [(20, made), *again, (30, Ended("a", "trained"))], attempt=2)
    search, _ = searched(tmp_path)
    assert search.curve.operations[-1] == pytest.approx(ONE_EPOCH)
    assert search.curve.at(7) == pytest.approx(train_operations(7))
    # 20 to 24.5 repeats steps 0 to 5, then 5 to 10 of which 7 to 10 are new.
    assert search.curve.at(24.5) == pytest.approx(train_operations(7))
    assert search.curve.at(29) == pytest.approx(train_operations(10))


def test_an_epoch_has_no_more_than_its_steps_and_images(tmp_path: Path) -> None:
    greedy = [
        (5.0, Work("a", "train", 1, 0, 10 * STEPS, 5.0)),
        (6.0, Work("a", "validate", 1, 0, 10 * VALIDATION, 1.0)),
        (7.0, Work("a", "train", 99, 0, STEPS, 1.0)),
        (8.0, Work("stranger", "train", 1, 0, STEPS, 1.0)),
    ]
    write_history(tmp_path, 0, [(0, candidate("a")), *greedy])
    write_history(tmp_path, 1, [(8, Work("a", "train", 2, 0, STEPS, 8.0))])
    search, _ = searched(tmp_path)
    assert search.curve.operations[-1] == pytest.approx(ONE_EPOCH)


@given(
    ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=25),
)
def test_ranges_count_each_number_once(ranges: list[tuple[int, int]]) -> None:
    known: list[tuple[int, int]] = []
    seen: set[int] = set()
    for first, count in ranges:
        new = set(range(first, first + count)) - seen
        assert newly_covered(known, first, first + count) == len(new)
        seen |= new


@given(
    points=st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1e12)), min_size=1, max_size=30),
    least=st.floats(0.001, 400),
    probe=st.floats(0, 1),
)
def test_nothing_between_the_points_is_higher(
    points: list[tuple[float, float]], least: float, probe: float
) -> None:
    seconds, operations = [0.0], [0.0]
    for length, more in points:
        seconds.append(seconds[-1] + length)
        operations.append(operations[-1] + more)
    curve = Curve(seconds, operations)
    least = min(least, seconds[-1])
    highest, at = curve.highest(least=least)
    assert least <= at <= seconds[-1]
    other = least + probe * (seconds[-1] - least)
    assert curve.flops(other) <= highest * (1 + 1e-9) + 1e-9


def test_improvements_tell_operations_and_time_to_an_error(tmp_path: Path) -> None:
    write_history(tmp_path, 0, trained(candidate("a"), at=0, accuracies=[0.5, 0.45]))
    write_history(tmp_path, 1, trained(candidate("b"), at=5, accuracies=[0.4, 0.8]))
    search, history = searched(tmp_path)
    assert [(i.seconds, round(i.error, 9), i.model) for i in search.improvements] == [
        (10, 0.5, "a"),
        (25, 0.2, "b"),
    ]
    reached = search.to_error(0.3)
    assert reached is not None
    assert reached.operations == pytest.approx(4 * ONE_EPOCH)
    assert search.to_error(0.1) is None
    assert search.error(9.9) is None
    assert search.error(12) == pytest.approx(0.5)
    result = search_result(history, finished=[0, 1], ensemble_size=3)
    assert (result.members, result.missing, result.complete) == ((0, 1), (2,), False)
    assert result.member_qualities == pytest.approx((0.5, 0.2))
    assert result.ensemble_quality == pytest.approx(0.2)


def test_the_window_ends_when_the_last_worker_does(tmp_path: Path) -> None:
    """A model that ended just before the time was up does not make the search too short."""
    lines = trained(candidate("a"), at=0.1, accuracies=[0.5])
    write_history(tmp_path, 0, [(0, Presence("begin")), *lines, (12, Presence("end"))])
    search, _ = searched(tmp_path)
    assert search.seconds == pytest.approx(12)
    assert search.curve.at(12) == search.curve.at(10.1) == pytest.approx(ONE_EPOCH)
    assert search.curve.highest(least=11) == pytest.approx((ONE_EPOCH / 11, 11))


def test_an_epoch_recorded_again_has_its_last_value(tmp_path: Path) -> None:
    made = candidate("a")
    write_history(tmp_path, 0, [(0, made), *epoch(made, 1, at=0, accuracy=0.9)])
    write_history(tmp_path, 0, [(20, made), *epoch(made, 1, at=20, accuracy=0.6)], attempt=2)
    search, history = searched(tmp_path)
    assert [improvement.error for improvement in search.improvements] == pytest.approx([0.4])
    result = search_result(history, finished=[0], ensemble_size=1)
    assert result.ensemble_quality == search.improvements[-1].error


def test_the_best_model_of_a_run_is_that_of_its_best_trial(tmp_path: Path) -> None:
    scores = []
    for name, accuracy in (("a", 0.5), ("b", 0.8), ("c", 0.6)):
        write_history(tmp_path / name, 0, trained(candidate(name), at=0, accuracies=[accuracy]))
        search, history = searched(tmp_path / name)
        scores.append(search_figures(search, history, min_seconds=1, target=0.3))
    assert mean_of_searches(scores, variation=None).best_model == "b"


def test_idle_time_between_trainings_is_distinguished_from_restarts(tmp_path: Path) -> None:
    first = trained(candidate("a"), at=0, accuracies=[0.5])
    second = trained(candidate("b", "a"), at=11, accuracies=[0.5])
    write_history(tmp_path, 0, [*first, *second])
    write_history(tmp_path, 0, trained(candidate("c", "b"), at=30, accuracies=[0.5]), attempt=2)
    search, _ = searched(tmp_path)
    lost = idle(search.chunks)
    assert lost.between_trainings == pytest.approx(1 / 40)
    assert lost.uncovered == pytest.approx(10 / 40)


def test_workers_on_several_hosts_are_put_on_one_clock(tmp_path: Path) -> None:
    """[D6]: the second host's wall clock is 100 s ahead, and measured to be so."""
    write_history(tmp_path, 0, trained(candidate("a"), at=0, accuracies=[0.5]), host="one")
    late = trained(candidate("b"), at=2, accuracies=[0.6])
    write_history(tmp_path, 1, late, host="two", wall_offset=100.0)
    clocks = [
        {
            "event": "clock", "wall": BEGAN + offset, "host": host, "boot": BOOT,
            "offset_seconds": offset, "uncertainty_seconds": 0.001, "reference": "one",
        }
        for host, offset in (("one", 0.0), ("two", 100.0))
    ]  # fmt: skip
    timed = timed_search(History(tmp_path), clocks)
    assert timed.clock == "wall"
    assert timed.search.seconds == pytest.approx(12)
    assert timed.search.improvements[-1].seconds == pytest.approx(12)
    assert timed.clocks.uncertainty(*timed.ends) == pytest.approx(0.002, rel=1)
    assert timed_search(History(tmp_path), []).search.seconds == pytest.approx(112)


def test_the_last_model_is_judged_in_time(tmp_path: Path) -> None:
    """Its accuracy is recorded a moment after the work that ends the search."""
    *lines, (at, _), ended = trained(candidate("a"), at=0, accuracies=[0.5])
    late = Epoch("a", 1, None, 0.8, None)
    write_history(tmp_path, 0, [*lines, (at + 0.01, late), (ended[0] + 0.02, ended[1])])
    search, _ = searched(tmp_path)
    assert search.seconds == pytest.approx(10)
    assert search.error(search.seconds) == pytest.approx(0.2)


def test_no_error_at_all_is_known_only_as_less_than_one_image(tmp_path: Path) -> None:
    write_history(tmp_path, 0, trained(candidate("a"), at=0, accuracies=[1.0]))
    search, _ = searched(tmp_path)
    assert search.regulated(10) == pytest.approx(math.log(VALIDATION) * ONE_EPOCH / 10)


def test_a_search_without_a_validated_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(JobError) as error:
        search_result(History(tmp_path), finished=[0], ensemble_size=1)
    assert error.value.key == "automl.minutes"
    write_history(tmp_path, 0, [(0, candidate("a")), (5, Work("a", "train", 1, 0, 3, 5.0))])
    search, history = searched(tmp_path)
    with pytest.raises(JobError) as error:
        search_figures(search, history, min_seconds=1, target=0.3)
    assert error.value.key == "history"
    with pytest.raises(JobError) as error:
        searched(tmp_path / "empty")
    assert error.value.key == "history"


def test_corrupt_lines_are_in_the_score(tmp_path: Path) -> None:
    path = write_history(tmp_path, 0, trained(candidate("a"), at=0, accuracies=[0.5]))
    with path.open("a", encoding="utf-8") as file:
        file.write("{torn\n")
    write_history(tmp_path, 0, [(11, Epoch("a", 2, None, 0.6))])
    search, history = searched(tmp_path)
    assert search_figures(search, history, min_seconds=1, target=0.3).unreadable_lines == 1
    assert search.improvements[-1].error == pytest.approx(0.4)


def test_a_search_without_any_error_has_a_score(tmp_path: Path) -> None:
    """AIPerf has no penalty: an error of 0 must not divide by zero, nor give infinite VFLOPS."""
    made = write_synthetic_search(tmp_path / "run", SearchShape(workers=1))
    path = made.trial(1).member(0).history
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r'"accuracy":\s*[0-9.e-]+', '"accuracy": 1.0', text), encoding="utf-8")
    history = History(made.trial(1).members)
    result = search_result(history, finished=[0], ensemble_size=1)
    log = [event for event in events.read(made.events) if event["event"] != "aggregate"]
    aggregate = next(e for e in events.read(made.events) if e["event"] == "aggregate")
    made.events.unlink()
    events.append(made.events, [*log, aggregate | {"result": schema.encode(result)}])
    run_folder.write(made.trial(1).ensemble, result)
    score = scoring.score_run(made)
    assert score.ensemble_quality == 0.0
    assert (score.penalty_coefficient, score.vflops) == (1.0, score.flops)
    assert score.search is not None and math.isfinite(score.search.regulated_score)
    assert json.loads(made.score.read_text(encoding="utf-8"))["vflops"] == score.flops
