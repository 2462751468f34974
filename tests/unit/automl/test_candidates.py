"""The next model of a worker: new, a child that computes what its parent does, not too large."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from ai500.automl.candidates import (
    Candidates,
    NoParentError,
    Prepared,
    SearchSpaceError,
    Shape,
    draw_moves,
)
from ai500.automl.history import Ended, Epoch, History, Writer
from ai500.automl.weights import WeightStore
from ai500.automl.worker import network
from ai500.operations import count
from ai500.records import Search
from ai500.workloads.models.architecture import Architecture, initial_architecture
from ai500.workloads.models.architecture_network import Network
from tests.support.small_search import SMALL, task


class Room:
    """One worker's history and weights in a folder, with models recorded as if they had trained."""

    def __init__(self, trial: Path, *, search: Search = SMALL) -> None:
        self.task = task(trial, search=search)
        folder = Path(self.task.folder)
        folder.mkdir(parents=True)
        self.history = History(folder.parent)
        self.store = WeightStore(trial, folder)
        self.writer = Writer(folder, worker=0, attempt=1)
        self.candidates = Candidates(self.task, self.history, self.store)

    def trained(self, prepared: Prepared, accuracy: float) -> None:
        name = prepared.candidate.model
        assert prepared.weights is not None
        self.writer.write(prepared.candidate)
        self.writer.write(Epoch(name, 1, 0.5, accuracy, accuracy))
        self.writer.write(Ended(name, "trained", self.store.save(name, prepared.weights)))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def outputs(prepared: Prepared) -> torch.Tensor:
    made = network(Architecture(prepared.candidate.architecture), prepared.weights).eval()
    images = torch.rand(4, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return made(images)


def test_rounds_of_a_worker(room: Room) -> None:
    prepared = room.candidates.first()
    assert prepared.candidate.parent is None and not prepared.candidate.tuned
    digests = {prepared.candidate.digest}
    expected = outputs(prepared)
    most = 6.0 * prepared.candidate.operations.forward_per_sample
    for number in range(2, 7):
        room.trained(prepared, 0.1 * number)
        prepared = room.candidates.next(number)
        made = prepared.candidate
        assert made.round == number and made.model == f"000-{number:04d}"
        assert made.digest not in digests
        digests.add(made.digest)
        assert "block behind" in made.moves[0]
        # The morphism comes first, with the class's own hyper-parameters; `trial` tunes them.
        assert (made.tuned, made.kernel) == (False, 3)
        assert made.operations.forward_per_sample <= most
        # Function preserving from generation to generation, so all compute what the first does.
        assert torch.allclose(outputs(prepared), expected, atol=1e-4)


def tuned_room(tmp_path: Path, search: Search) -> tuple[Room, Prepared]:
    """A worker that has had its warm-up, and the architecture of its fifth round."""
    room = Room(tmp_path, search=search)
    prepared = room.candidates.first()
    for number in range(2, 6):
        room.trained(prepared, 0.1 * number)
        prepared = room.candidates.next(number)
    return room, prepared


def kernels(prepared: Prepared) -> set[int]:
    """Sizes of the convolutions that are more than 1×1."""
    layers = prepared.candidate.architecture
    return {layer.kernel for layer in layers if layer.kind == "convolution" and layer.kernel > 1}


def test_hyperparameter_trials_follow_the_morphism(tmp_path: Path) -> None:
    """AIPerf §IV-B: HPO after NAS, of the batch size and the kernel size of the whole model."""
    room, base = tuned_room(tmp_path, dataclasses.replace(SMALL, hyperparameter_trials=4))
    expected, chosen = outputs(base), []
    while (prepared := room.candidates.trial(base)) is not None:
        made = prepared.candidate
        chosen.append((made.batch_size, made.kernel))
        assert (made.round, made.trial, made.tuned) == (5, len(chosen), True)
        assert made.model == ("000-0005" if len(chosen) == 1 else f"000-0005-{len(chosen)}")
        assert made.parent == base.candidate.parent
        assert made.moves[: len(base.candidate.moves)] == base.candidate.moves
        if made.kernel == 5:
            assert min(kernels(prepared)) == 5
            assert made.moves[-1] == "all kernels to 5×5"
        else:
            assert made.digest == base.candidate.digest
        # Every trial starts where the parent ended.
        assert torch.allclose(outputs(prepared), expected, atol=1e-4)
        traced = count(Network(Architecture(made.architecture)), (8, 3, 24, 24), loss="softmax")
        assert made.operations.forward_per_sample == traced.forward_per_sample
        assert made.steps_per_epoch == room.task.definition.train_samples // made.batch_size
        room.trained(prepared, 0.5)
        room.history.refresh()
    # All four pairs of (16, 32) and (3, 5), none of them twice.
    assert sorted(chosen) == [(16, 3), (16, 5), (32, 3), (32, 5)]


def test_an_architecture_has_as_many_trials_as_the_class_says(tmp_path: Path) -> None:
    room, base = tuned_room(tmp_path, SMALL)
    for _ in range(SMALL.hyperparameter_trials):
        prepared = room.candidates.trial(base)
        assert prepared is not None
        room.trained(prepared, 0.5)
        room.history.refresh()
    assert room.candidates.trial(base) is None


def test_a_kernel_that_grows_the_model_beyond_the_cap_is_no_choice(tmp_path: Path) -> None:
    search = dataclasses.replace(SMALL, max_growth=2.5, hyperparameter_trials=4)  # [D21]
    room, base = tuned_room(tmp_path, search)
    chosen = []
    while (prepared := room.candidates.trial(base)) is not None:
        chosen.append(prepared.candidate.kernel)
        room.trained(prepared, 0.5)
        room.history.refresh()
    assert chosen == [3, 3]  # 5×5 has 2.8 times the operations of 3×3


def test_spare_architectures_differ_from_the_next_one(room: Room) -> None:
    room.trained(room.candidates.first(), 0.3)
    digests = {room.candidates.search(2, spare=number).candidate.digest for number in range(5)}
    assert len(digests) > 1
    assert room.candidates.search(2).candidate.digest in digests


def test_operations_are_those_of_the_network_that_trains(room: Room) -> None:
    room.trained(room.candidates.first(), 0.3)
    made = room.candidates.next(2).candidate
    traced = count(Network(Architecture(made.architecture)), (8, 3, 24, 24), loss="softmax")
    assert made.operations.forward_per_sample == traced.forward_per_sample
    assert made.operations.backward_per_sample == traced.backward_per_sample
    assert made.operations.update_per_step == traced.update


def test_the_same_history_gives_the_same_candidate(room: Room) -> None:
    room.trained(room.candidates.first(), 0.3)
    first, again = room.candidates.next(2), room.candidates.next(2)
    assert first.candidate == again.candidate
    assert first.weights is not None and again.weights is not None
    assert all(torch.equal(first.weights[name], again.weights[name]) for name in first.weights)


def test_torchs_own_generator_is_left_alone(room: Room) -> None:
    room.trained(room.candidates.first(), 0.3)
    torch.manual_seed(9)
    before = torch.get_rng_state()
    prepared = room.candidates.next(2)
    network(Architecture(prepared.candidate.architecture), prepared.weights)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_child_of_the_model_in_training_inherits_when_it_has_ended(room: Room) -> None:
    first = room.candidates.first()
    room.writer.write(first.candidate)
    prepared = room.candidates.next(2, training="000-0001")
    assert prepared.weights is None and prepared.candidate.parent == "000-0001"
    assert first.weights is not None
    parent = room.history.models["000-0001"]
    whole = room.candidates.inherit(prepared, parent, first.weights)
    assert torch.allclose(outputs(whole), outputs(first), atol=1e-5)


def test_training_a_child_leaves_its_parents_weights_alone(room: Room) -> None:
    first = room.candidates.first()
    assert first.weights is not None
    made = network(Architecture(first.candidate.architecture), first.weights)
    before = {name: value.clone() for name, value in first.weights.items()}
    with torch.no_grad():
        for tensor in made.state_dict().values():
            tensor.add_(1)
    assert all(torch.equal(first.weights[name], before[name]) for name in before)


def flipped(whole: bytes, value: torch.Tensor) -> bytes:
    """One bit of a saved tensor, as a bad disk reads it."""
    at = whole.find(value.flatten().numpy().tobytes())
    assert at > 0
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "flipped", "another's"])
def test_a_parent_whose_weights_can_not_be_read_is_passed_over(
    how: str, room: Room, tmp_path: Path
) -> None:
    first = room.candidates.first()
    room.trained(first, 0.3)
    second = room.candidates.next(2)
    room.trained(second, 0.9)
    path = tmp_path / "members/000/weights/000-0002.pt"
    whole = path.read_bytes()
    assert second.weights is not None
    array = next(iter(second.weights.values()))
    path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2]}.get(how, whole))
    if how == "gone":
        path.unlink()
    elif how == "flipped":
        path.write_bytes(flipped(whole, array))
    elif how == "another's":
        path.write_bytes((path.parent / "000-0001.pt").read_bytes())
    made = [room.candidates.next(number).candidate.parent for number in (3, 4)]
    assert made == ["000-0001", "000-0001"]
    # Its worker may delete a file: only what is there and can't be read is told.
    expected = set() if how == "gone" else {"members/000/weights/000-0002.pt"}
    assert set(room.store.unreadable) == expected


def test_a_search_space_without_new_models_is_an_error(tmp_path: Path) -> None:
    room = Room(tmp_path, search=dataclasses.replace(SMALL, max_growth=1.0))
    room.trained(room.candidates.first(), 0.3)
    with pytest.raises(SearchSpaceError) as raised:
        room.candidates.next(2)
    assert (raised.value.key, raised.value.value) == ("automl.max_growth", 1.0)


@pytest.mark.parametrize("state", ["nothing", "training", "lost"])
def test_no_child_without_a_parents_weights(state: str, room: Room) -> None:
    if state != "nothing":
        room.writer.write(room.candidates.first().candidate)
    if state == "lost":
        room.writer.write(Ended("000-0001", "lost"))
    with pytest.raises(NoParentError):
        room.candidates.next(2, training="000-0001" if state == "lost" else None)


def test_parents_beyond_the_best_have_children_when_those_have_none_left(tmp_path: Path) -> None:
    """The best model is as large as it may be: its children are too large, the second one's not."""
    room = Room(tmp_path, search=dataclasses.replace(SMALL, kept_models=1, max_growth=1.4))
    room.trained(room.candidates.first(), 0.1)
    parents = []
    for number in range(2, 5):
        prepared = room.candidates.next(number)
        parents.append(prepared.candidate.parent)
        room.trained(prepared, 0.2 + number / 100)
    # Each is better than those before, so that without the others there would be one line.
    assert parents != [f"000-{number:04d}" for number in range(1, 4)]


def test_every_kind_of_step_is_drawn() -> None:
    shape = Shape.of(initial_architecture(SMALL.initial, classes=5, input_channels=3))
    random = np.random.default_rng(1)
    kinds = set()
    for _ in range(60):
        steps = draw_moves(shape, kernel=5, random=random)
        assert steps is not None and steps[0].kind == "deeper" and steps[0].size == 5
        kinds.add(steps[-1].kind)
    assert kinds == {"deeper", "wider", "kernel", "skip_add", "skip_concat"}


def test_weights_are_kept_and_deleted(room: Room) -> None:
    first = room.candidates.first()
    assert first.weights is not None
    paths = [room.store.save(f"000-{n:04d}", first.weights) for n in (1, 2, 3)]
    room.store.keep({"000-0002"})
    loaded = [room.store.load(path, Architecture(first.candidate.architecture)) for path in paths]
    assert [weights is not None for weights in loaded] == [False, True, False]
    assert room.store.unreadable == {}
    assert room.store.saved("000-0002") == "members/000/weights/000-0002.pt"
    assert room.store.saved("000-0003") is None
