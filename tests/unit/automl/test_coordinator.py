"""The model that rank 0 of a worker trains next, whatever became of models and files before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from ai500.automl.buffer import ArchitectureBuffer, BufferedArchitecture
from ai500.automl.candidates import Prepared
from ai500.automl.coordinator import MAX_INITIAL_LOSSES, Coordinator
from ai500.automl.history import HISTORY_FILE, Ended, Epoch, Presence, State, Work, Writer
from ai500.automl.morphism import Weights
from ai500.automl.moves import Move
from ai500.core import events
from ai500.core.errors import AI500Error, DataError
from ai500.core.events import EventLog
from ai500.records import InitialNetwork, Search, checkpoint_file, run_folder
from ai500.train.task_files import checkpoint_owner
from ai500.workloads.models.architecture import Layer
from tests.support.small_search import SMALL, task


class Desk:
    """A worker's heads, one after the other; nothing is trained."""

    def __init__(self, trial: Path) -> None:
        self.trial = trial
        self.folder = trial / "members" / "000"
        self.folder.mkdir(parents=True)
        self.heads: list[Coordinator] = []

    def coordinator(self, search: Search = SMALL) -> Coordinator:
        made = Coordinator(task(self.trial, search=search), EventLog(self.folder / "events.jsonl"))
        self.heads.append(made)
        return made

    def recorded(self, event: str) -> list[events.Event]:
        return [
            line for line in events.read(self.folder / "events.jsonl") if line["event"] == event
        ]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    for coordinator in made.heads:
        coordinator.close("over")


def taken(coordinator: Coordinator) -> Prepared:
    prepared = coordinator.next_model()
    assert prepared is not None
    return prepared


def end(
    coordinator: Coordinator, prepared: Prepared, state: State = "trained", accuracy: float = 0.5
) -> None:
    name = prepared.candidate.model
    if state != "lost":
        coordinator.write(Epoch(name, 1, None, accuracy, accuracy))
    weights: Weights = prepared.weights or {}
    coordinator.finish_model(prepared.candidate, Ended(name, state), weights)


def test_every_child_begins_with_its_parents_weights(desk: Desk) -> None:
    coordinator = desk.coordinator()
    states: list[State] = ["lost", "trained", "lost", "lost", "trained"]
    for number, state in enumerate(states, start=1):
        prepared = taken(coordinator)
        assert prepared.weights is not None
        assert (prepared.candidate.parent is None) == (number <= 2)  # 1 is lost: begun again
        coordinator.prepare_next()
        end(coordinator, prepared, state)
    assert taken(coordinator).candidate.model == "000-0005-2"


def test_an_initial_model_that_cannot_be_trained_is_an_error(desk: Desk) -> None:
    coordinator = desk.coordinator()
    for _ in range(MAX_INITIAL_LOSSES):
        end(coordinator, taken(coordinator), "lost")
    with pytest.raises(AI500Error) as raised:
        coordinator.next_model()
    assert raised.value.key == "train.batch_size"


def test_an_initial_model_too_large_for_any_memory_is_an_error(desk: Desk) -> None:
    """Its widest layer alone has 10^15 bytes: the allocator refuses them on every machine."""
    coordinator = desk.coordinator(
        dataclasses.replace(SMALL, initial=InitialNetwork("basic", (1, 1), 1 << 22))
    )
    with pytest.raises(AI500Error) as raised:
        coordinator.next_model()
    assert raised.value.key == "train.batch_size"
    states = [model.state for model in coordinator.history.models.values()]
    assert states == ["lost"] * MAX_INITIAL_LOSSES
    assert len(desk.recorded("out_of_memory")) == MAX_INITIAL_LOSSES


def test_a_child_too_large_for_any_memory_is_lost_and_the_next_one_taken(desk: Desk) -> None:
    coordinator = desk.coordinator()
    first = taken(coordinator)
    coordinator.prepare_next()
    (ahead,) = coordinator._preparing
    prepared = ahead.result()
    assert prepared.weights is None
    (added,) = [move for move in prepared.moves if move.kind == "deeper"]
    huge = dataclasses.replace(prepared, moves=(Move("wider", added.layer - 2, size=1 << 44),))
    done: Future[Prepared] = Future()
    done.set_result(huge)
    coordinator._preparing = [done]
    end(coordinator, first)
    after = taken(coordinator)
    assert after.candidate.model == "000-0003" and after.candidate.parent == "000-0001"
    assert coordinator.history.models["000-0002"].state == "lost"
    (event,) = desk.recorded("out_of_memory")
    assert event["model"] == "000-0002"


def test_what_another_worker_took_up_meanwhile_is_not_taken(desk: Desk) -> None:
    coordinator = desk.coordinator()
    first = taken(coordinator)
    coordinator.prepare_next()
    (ahead,) = coordinator._preparing
    same = ahead.result().candidate
    end(coordinator, first)
    (desk.trial / "members" / "001").mkdir()
    other = Writer(desk.trial / "members" / "001", worker=1, attempt=1)
    other.write(dataclasses.replace(same, model="001-0002"))
    assert taken(coordinator).candidate.digest != same.digest


def rounds(coordinator: Coordinator, number: int) -> Prepared:
    """Train rounds until one of this number is begun; return its first model."""
    while True:
        prepared = taken(coordinator)
        if prepared.candidate.round == number:
            return prepared
        coordinator.prepare_next()
        end(coordinator, prepared, accuracy=0.4 + prepared.candidate.round / 100)


def test_each_architecture_has_trials_from_the_fifth_round_on(desk: Desk) -> None:
    coordinator = desk.coordinator()
    rounds(coordinator, 7)
    models = list(coordinator.history.models.values())[:-1]
    assert [(m.candidate.round, m.candidate.trial) for m in models] == [
        (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (5, 2), (6, 1), (6, 2),
    ]  # fmt: skip
    assert [m.candidate.tuned for m in models] == [False] * 4 + [True] * 4
    for first, second in (models[4:6], models[6:8]):
        earlier, later = first.candidate, second.candidate
        assert earlier.parent == later.parent
        assert (earlier.batch_size, earlier.kernel) != (later.batch_size, later.kernel)


def test_a_restarted_worker_goes_on_with_the_trials_of_its_round(desk: Desk) -> None:
    coordinator = desk.coordinator()
    first = rounds(coordinator, 5)
    owner = checkpoint_owner(dataclasses.replace(task(desk.trial, search=SMALL), seed=first.seed))
    checkpoint_file.write(coordinator.checkpoint("000-0005"), b"", owner=owner, epoch=0)
    again = desk.coordinator()
    assert taken(again).candidate == first.candidate
    end(again, first)
    second = taken(again)
    assert (second.candidate.model, second.candidate.parent) == (
        "000-0005-2", first.candidate.parent,
    )  # fmt: skip
    assert second.weights is not None


def test_the_buffer_is_filled_ahead_on_the_shared_file_system(desk: Desk) -> None:
    search = dataclasses.replace(SMALL, buffer_size=5, search_threads=3)
    coordinator = desk.coordinator(search)
    first = taken(coordinator)
    coordinator.prepare_next()
    for future in [*coordinator._preparing, *coordinator._filling]:
        future.result()
    files = sorted((desk.folder / "buffer").glob("0*.json"))
    waiting = [run_folder.read(BufferedArchitecture, path) for path in files]
    assert 2 <= len(waiting) <= 5
    assert {buffered.parent for buffered in waiting} == {"000-0001"}
    end(coordinator, first)
    second = taken(coordinator)
    current = run_folder.read(BufferedArchitecture, desk.folder / "buffer/current.json")
    assert current.digest == second.candidate.digest in {buffered.digest for buffered in waiting}
    end(coordinator, second, accuracy=0.1)
    coordinator.close("over")
    # A worker that starts again takes what waits there, without searching anew.
    left = {buffered.digest for buffered in waiting} - {second.candidate.digest}
    assert taken(desk.coordinator(search)).candidate.digest in left


def test_the_buffer_keeps_the_newest(tmp_path: Path) -> None:
    layers = [Layer(0, "input", channels=3)]
    buffer = ArchitectureBuffer(tmp_path / "buffer", size=2)
    for number in (1, 2, 3, 2):
        made = (*layers, Layer(1, "dense", (0,), channels=number))
        buffer.add(
            BufferedArchitecture(parent="p", round=number, seed=1, moves=(), architecture=made)
        )
    assert [buffered.round for buffered in buffer.newest_first()] == [2, 3]
    (tmp_path / "buffer/000009.json").write_text("{", encoding="utf-8")
    reopened = ArchitectureBuffer(tmp_path / "buffer", size=2)
    assert reopened.newest_first() == buffer.newest_first()
    assert not (tmp_path / "buffer/000009.json").exists()


def test_an_exhausted_space_ends_the_search(desk: Desk) -> None:
    coordinator = desk.coordinator(dataclasses.replace(SMALL, max_growth=1.01))
    prepared: Prepared | None = taken(coordinator)
    for _ in range(200):
        if prepared is None:
            break
        end(coordinator, prepared)
        prepared = coordinator.next_model()
    assert prepared is None
    (event,) = desk.recorded("search_space_exhausted")
    assert "Set a larger automl.max_growth" in event["reason"]


def spoil(path: Path, event: str) -> None:
    """The last line of that kind, as a broken disk leaves it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    at = max(n for n, line in enumerate(lines) if f'"{event}"' in line)
    lines[at] = "\x00" * 9
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def test_no_name_is_given_twice(desk: Desk) -> None:
    coordinator = desk.coordinator()
    end(coordinator, taken(coordinator))
    second = taken(coordinator).candidate.model
    coordinator.write(Work(second, "train", 1, 0, 5, 1.0))
    coordinator._saving.result()  # type: ignore[union-attr]
    coordinator.checkpoint(second).write_bytes(b"whatever")
    spoil(desk.folder / HISTORY_FILE, "candidate")
    again = desk.coordinator()
    assert taken(again).candidate.model == "000-0003"
    assert not coordinator.checkpoint(second).exists()  # nobody knows what it is of
    assert len(again.history.unreadable) == 2


@pytest.mark.parametrize("torn", [b"", b"PK\x03\x04 torn", b"\x80\x02torn"])
def test_a_checkpoint_that_can_not_be_read_loses_its_model_at_once(desk: Desk, torn: bytes) -> None:
    coordinator = desk.coordinator()
    first = taken(coordinator)
    coordinator.write(Presence("begin"))
    coordinator.checkpoint("000-0001").write_bytes(torn)
    with pytest.raises(DataError) as raised:
        checkpoint_file.read(coordinator.checkpoint("000-0001"), owner={})
    assert raised.value.path == coordinator.checkpoint("000-0001")
    coordinator = desk.coordinator()
    again = taken(coordinator)  # the first round has its weights from the seed
    assert again.candidate == first.candidate
    assert again.weights is not None and first.weights is not None
    assert all(torch.equal(again.weights[name], first.weights[name]) for name in first.weights)
    end(coordinator, again)
    second = taken(coordinator).candidate.model
    coordinator.checkpoint(second).write_bytes(torn)
    coordinator = desk.coordinator()
    assert taken(coordinator).candidate.model == "000-0003"
    assert coordinator.history.models[second].state == "lost"
    assert len(desk.recorded("checkpoint_damaged")) == 2
