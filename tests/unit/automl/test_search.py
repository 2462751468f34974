"""A search's decisions: the accuracy it expects of a model, its parents, its tuning."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ai500 import config as configuration
from ai500.automl.history import MAX_STARTS, Ended, Epoch, Line, Model, Presence, Work, resume_state
from ai500.automl.memory import is_out_of_memory
from ai500.automl.selection import (
    draw_parents,
    has_stalled,
    models_to_keep,
    predicted_accuracy,
    ranked,
)
from ai500.automl.training import out_of_memory
from ai500.automl.tuning import import_optuna, propose
from ai500.bagging.data_sampler import WHOLE
from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError
from ai500.parallel import sharing
from ai500.pipeline.planning import make_plan
from ai500.records import InitialNetwork, Search
from ai500.train.learning_rate import inverse_time
from ai500.workloads.automl import CLASSES, WORKLOAD
from tests.support.synthetic_search import candidate
from tests.support.trial_events import MACHINE

SEARCH = Search(
    minutes=1, initial=InitialNetwork("basic", (1, 1), 8), patience=2, batch_sizes=(32, 64, 128)
)


def model(name: str, *accuracies: float, predicted: float = 0.0, **changes: Any) -> Model:
    epochs = {n: Epoch(name, n, None, a, predicted) for n, a in enumerate(accuracies, start=1)}
    ended = Ended(name, "trained", f"members/{name[:3]}/weights/{name}.pt")
    return Model(int(name[:3]), candidate(name, **changes), epochs, ended)


@pytest.mark.parametrize("exponent", [0.3, 0.7, 1.5])
def test_a_power_law_is_followed_to_its_end(exponent: float) -> None:
    curve = [0.8 - 0.5 * n**-exponent for n in range(1, 21)]
    expected = 0.8 - 0.5 * 60**-exponent
    assert predicted_accuracy(curve, epochs=60) == pytest.approx(expected, abs=0.02)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 60))
def test_a_prediction_is_never_below_what_was_reached_nor_above_one(
    curve: list[float], epochs: int
) -> None:
    assert max(curve) <= predicted_accuracy(curve, epochs=epochs) <= 1.0


def test_two_epochs_predict_what_they_reached() -> None:
    assert predicted_accuracy([0.2, 0.6], epochs=60) == 0.6


def test_a_rising_curve_promises_more_than_a_flat_one() -> None:
    assert predicted_accuracy([0.2, 0.35, 0.45], epochs=60) > 0.5
    assert predicted_accuracy([0.45, 0.45, 0.45], epochs=60) == pytest.approx(0.45)


def test_patience() -> None:
    assert not has_stalled([0.5, 0.4], patience=2)
    assert has_stalled([0.5, 0.4, 0.5], patience=2)
    assert not has_stalled([0.5, 0.4, 0.51], patience=2)


def test_rounds_of_warm_up_are_short_and_untuned() -> None:
    assert [SEARCH.tunes(number) for number in (1, 4, 5, 6)] == [False, False, True, True]
    assert [SEARCH.epochs_of(n, epochs=60) for n in range(1, 7)] == [12, 24, 36, 48, 60, 60]
    assert [SEARCH.epochs_of(n, epochs=1) for n in range(1, 6)] == [1] * 5


def test_rank_is_by_prediction_in_warm_up_and_by_accuracy_after() -> None:
    early = model("000-0001", 0.3, predicted=0.9)
    late = model("001-0001", 0.5, 0.6, predicted=0.7)
    lost = Model(1, candidate("001-0002"), {}, Ended("001-0002", "lost"))
    training = Model(0, candidate("000-0002"), {1: Epoch("000-0002", 1, None, 0.95, 0.95)})
    models = [lost, early, training, late]
    assert ranked(models, by_prediction=True) == [early, late]
    assert ranked(models, by_prediction=False) == [late, early]
    assert ranked(models, by_prediction=False, training="000-0002")[0] is training


def test_parents_are_drawn_by_rank() -> None:
    models = [model(f"000-{n:04d}", 0.9 - n / 100) for n in range(1, 7)]
    random = np.random.default_rng(1)
    first: Counter[str] = Counter()
    for _ in range(2000):
        drawn = list(draw_parents(models, by_prediction=False, best=4, random=random))
        assert {parent.id for parent in drawn[:4]} == {parent.id for parent in models[:4]}
        assert drawn[4:] == models[4:]  # where the best ones have no children left
        first[drawn[0].id] += 1
    weights = [math.exp(-rank / 2) for rank in range(4)]
    for parent, weight in zip(models, weights, strict=False):
        assert first[parent.id] / 2000 == pytest.approx(weight / sum(weights), abs=0.04)


def test_weights_of_the_best_by_either_rank_are_kept() -> None:
    models = [model(f"000-{n:04d}", n / 10, predicted=1 - n / 10) for n in range(1, 8)]
    assert models_to_keep(models, best=2) == {"000-0006", "000-0007", "000-0001", "000-0002"}


def tuned_history() -> list[Model]:
    """A batch of 64 is best, the kernel makes no difference."""
    value = {32: 0.3, 64: 0.7, 128: 0.2}
    return [
        model(f"000-{n:04d}", value[batch], batch_size=batch, kernel=3 + 2 * (n % 2))
        for n, batch in enumerate([32, 64, 128] * 4, start=1)
    ]


def test_tpe_goes_where_models_are_accurate() -> None:
    asked = [propose(tuned_history(), search=SEARCH, parts=1, seed=seed) for seed in range(20)]
    assert sum(proposal.batch_size == 64 for proposal in asked) >= 15
    assert {proposal.kernel for proposal in asked} == {3, 5}
    assert all(proposal.tuned for proposal in asked)


def test_tpe_follows_from_history_and_seed_alone() -> None:
    history = tuned_history()
    first = propose(history, search=SEARCH, parts=1, seed=7)
    assert propose(history[::-1], search=SEARCH, parts=1, seed=7) == first


def test_tpe_leaves_out_what_its_space_has_not() -> None:
    odd = [model("000-0001", 0.9, batch_size=48), model("000-0002", 0.9, batch_size=64, kernel=9)]
    assert propose(odd, search=SEARCH, parts=1, seed=1).batch_size in SEARCH.batch_sizes


def test_batch_sizes_are_an_accelerators() -> None:
    history = [
        model(f"000-{n:04d}", 0.9 if batch == 256 else 0.1, batch_size=batch)
        for n, batch in enumerate([128, 256, 512] * 4, start=1)
    ]
    asked = [propose(history, search=SEARCH, parts=4, seed=seed) for seed in range(8)]
    assert Counter(proposal.batch_size for proposal in asked).most_common(1)[0][0] == 64


def test_a_size_that_runs_out_of_memory_is_left_alone() -> None:
    lost = [
        dataclasses.replace(
            trained, epochs={}, ended=Ended(trained.id, "lost", None, "out of memory")
        )
        for trained in [model(f"000-{n:04d}", 0.5, batch_size=128) for n in range(1, 9)]
    ]
    small = [model(f"001-{n:04d}", 0.5 + n / 100, batch_size=32) for n in range(1, 5)]
    asked = [propose([*lost, *small], search=SEARCH, parts=1, seed=seed) for seed in range(8)]
    assert sum(proposal.batch_size == 128 for proposal in asked) <= 2


def test_out_of_memory_costs_the_model_or_says_what_to_lower() -> None:
    assert out_of_memory(64, rank=0, ranks=1)[0] == "lost"
    with pytest.raises(AI500Error) as raised:
        out_of_memory(64, rank=1, ranks=2)
    assert (raised.value.key, raised.value.value) == ("automl.batch_sizes", 64)


def test_what_allocators_say_is_known() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 50)
    assert is_out_of_memory(refused.value)
    assert is_out_of_memory(
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    )
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_workers_that_share_an_accelerator_are_processes() -> None:
    how = sharing.decide(
        "auto", WORKLOAD, members_per_accelerator=2, parallel_degree=1, device="cuda",
        precision="fp32",
    )  # fmt: skip
    assert (how.mode, "automl has no fixed shapes" in how.reason) == ("processes", True)


def test_without_optuna_a_search_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(EnvironmentLacksError) as raised:
        import_optuna()
    assert raised.value.value == "optuna"
    assert raised.value.exit_code == 3


def line(entry: Any, at: float, *, worker: int = 0, attempt: int = 1) -> Line:
    return Line(worker, attempt, entry, {"monotonic": at})


def test_time_of_all_attempts_counts_and_the_time_between_does_not() -> None:
    first, second = candidate("000-0001"), candidate("000-0002", round=2)
    past = resume_state(
        [
            line(first, 98.0),
            line(Presence("begin"), 100.0),
            line(Work("000-0001", "train", 1, 0, 5, 4.0), 104.0),
            line(Ended("000-0001", "trained"), 110.0),
            line(second, 111.0),
            line(candidate("001-0001"), 500.0, worker=1),
            # Killed there; taken up again much later, and a third time on another clock.
            line(second, 300.0, attempt=2),
            line(Presence("begin"), 304.0, attempt=2),
            line(Work("000-0002", "train", 1, 0, 5, 4.0), 306.0, attempt=2),
            line(second, 18.0, attempt=3),
            line(Presence("begin"), 20.0, attempt=3),
            line(Work("000-0002", "train", 1, 0, 5, 4.0), 25.0, attempt=3),
            line(Presence("end"), 26.0, attempt=3),
        ],
        worker=0,
    )
    assert past.seconds == pytest.approx(11.0 + 2.0 + 6.0)
    assert past.attempts == 3
    assert past.rounds == 2
    assert list(past.open) == ["000-0002"]


def test_a_model_that_kills_its_worker_is_given_up() -> None:
    second, work = candidate("000-0002", round=2), Work("000-0002", "train", 1, 0, 5, 4.0)
    often = [line(second, float(at)) for at in range(MAX_STARTS)]
    assert resume_state(often, worker=0).failed_repeatedly("000-0002")
    assert not resume_state(often[1:], worker=0).failed_repeatedly("000-0002")
    assert not resume_state([*often, line(work, 9.0)], worker=0).failed_repeatedly("000-0002")


def planned(problem_class: str = "smoke", *, device: str = "cpu", **overrides: Any) -> Search:
    values: Mapping[str, Any] = {key.replace("__", "."): v for key, v in overrides.items()}
    system = {"system.device": device, "system.nodes": 1, "system.accelerators_per_node": 1}
    chosen = {"workload": "automl", "problem_class": problem_class, **system, **values}
    search = make_plan(configuration.load(overrides=chosen), MACHINE).search
    assert search is not None
    return search


def test_the_users_changes_stand_over_the_class() -> None:
    changed = planned(automl__minutes=0.5, automl__kernel_sizes=[5, 7])
    assert (changed.minutes, changed.kernel_sizes) == (0.5, (5, 7))
    assert dataclasses.replace(changed, minutes=2, kernel_sizes=(3, 5)) == CLASSES["smoke"].search


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("automl.minutes", 0),
        ("automl.patience", 0),
        ("automl.batch_sizes", []),
        ("automl.batch_sizes", [100_000]),
        ("automl.batch_sizes", [32, 32]),
        ("automl.kernel_sizes", [4]),
        ("automl.kernel_sizes", [99]),
        ("automl.max_growth", 1),
        ("automl.hyperparameter_trials", 0),
        ("automl.initial_version", "v1"),
        ("parallel.mode", "tensor"),
        ("parallel.sharded", True),
        ("ensemble.sampler", "poisson"),
    ],
)
def test_mistakes_are_named(key: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        planned(**{key.replace(".", "__"): value})
    assert error.value.key == key


def test_full_needs_an_accelerator() -> None:
    with pytest.raises(EnvironmentLacksError) as error:
        planned("full")
    assert (error.value.key, error.value.value) == ("problem_class", "full")
    assert planned("full", device="cuda").minutes == 60


def test_the_start_can_be_chosen() -> None:
    """[D16]"""
    start = planned("full", device="cuda", automl__initial_version="v1").initial
    assert (start.kind, start.blocks, start.version) == ("bottleneck", (3, 4, 6, 3), "v1")
    assert planned("full", device="cuda").initial.version == "v1.5"


def test_the_whole_data_set_is_drawn() -> None:
    assert WHOLE.draw(7, seed=3, member=1).tolist() == [1] * 7


def test_inverse_time_is_keras_decay() -> None:
    rates = [
        inverse_time(step, peak=0.1, total_steps=99, warmup_steps=0, power=0.1 / 60)
        for step in (0, 600, 21_443)
    ]
    assert rates == pytest.approx([0.1, 0.05, 0.1 / (1 + 21_443 / 600)])
