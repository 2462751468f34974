"""The next model of a worker: parent, morphisms, hyper-parameters, operations, inherited weights.

The CPU prepares it while the accelerator trains the present model (AIPerf §IV-C). Only `first`
draws from torch's own generator, which belongs to the thread that trains.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ai500.automl.counting import count_architecture
from ai500.automl.history import Candidate, History, Model
from ai500.automl.memory import OUT_OF_MEMORY, is_out_of_memory
from ai500.automl.morphism import Move, Weights, WideningError, apply, moves
from ai500.automl.selection import draw_parents
from ai500.automl.tuning import Proposal, default_proposal, propose
from ai500.automl.weights import WeightStore, expected_weights
from ai500.core.errors import AI500Error
from ai500.core.randomness import Stream, derive
from ai500.records import Operations, Search, Task
from ai500.workloads.models.architecture import Architecture, initial_architecture
from ai500.workloads.models.architecture_network import Network

MAX_DRAWS = 24
"""Draws of morphisms from one parent, before the next parent is tried."""
SECOND_MOVES = ("nothing", "wider", "kernel", "skip_add", "skip_concat")
"""Every child gets a block (AIPerf §IV-A) and one of these, drawn uniformly."""


class SearchSpaceError(AI500Error):
    """No model of the history has an untried child within the limits of size and memory."""


class NoParentError(AI500Error):
    """No model has readable weights that a child could inherit."""


class TooLargeError(AI500Error):
    """The weights of a candidate need more memory than there is."""

    def __init__(self, candidate: Candidate) -> None:
        """Name the candidate in the message."""
        super().__init__(f"{candidate.model}: {OUT_OF_MEMORY} while its weights were made.")
        self.candidate = candidate


@dataclass(frozen=True)
class Prepared:
    """Candidate that is ready for training."""

    candidate: Candidate
    batch_size: int
    """Images per accelerator and step."""
    moves: tuple[Move, ...]
    seed: int
    weights: Weights | None
    """Inherited weights; None: the parent still trains, or a checkpoint has them."""


class Candidates:
    """Source of one worker's models; another worker may make the same one at the same time."""

    def __init__(self, task: Task, history: History, store: WeightStore) -> None:
        assert task.search is not None
        self._task = task
        self._search: Search = task.search
        self._history = history
        self._store = store
        self._counted: dict[str, Operations] = {}
        self.initial = initial_architecture(
            self._search.initial,
            classes=task.definition.classes,
            input_channels=task.definition.input_shape[0],
        )

    def first(self, number: int = 1) -> Prepared:
        """Return the initial model, its weights drawn by He's method from the seed.

        It is a worker's first round, and later ones while no model can have children. Call it in
        the thread that trains.
        """
        seed = self._seed(number)
        torch.manual_seed(derive(seed, Stream.INITIAL_WEIGHTS, self._task.member))
        proposed = self._proposed(list(self._history.models.values()), number)
        candidate = self._candidate(self.initial, None, (), proposed, number=number)
        with _out_of_memory_as_error(candidate):
            weights = Network(self.initial).state_dict()
        return Prepared(candidate, proposed.batch_size, (), seed, weights)

    def resumed(self, candidate: Candidate) -> Prepared:
        """Return an interrupted model; its checkpoint has the weights."""
        seed = self._seed(candidate.round)
        return Prepared(candidate, candidate.batch_size // self._parts, (), seed, None)

    def next(self, number: int, *, training: str | None = None) -> Prepared:
        """Return a new child of one of the best models.

        The worker's own model in `training` may be the parent; the child then gets its weights
        later, by `inherit`.
        """
        self._history.refresh()
        search, seed = self._search, self._seed(number)
        random = np.random.default_rng(seed)
        known = list(self._history.models.values())
        proposed = self._proposed(known, number)
        has_parent = False
        for parent, weights in self._parents(known, number, random=random, training=training):
            has_parent = True
            child = self._child(parent, proposed, random=random, number=number)
            if child is not None:
                candidate, steps = child
                prepared = Prepared(candidate, proposed.batch_size, steps, seed, None)
                return prepared if weights is None else self.inherit(prepared, parent, weights)
        if not has_parent:
            raise NoParentError(f"worker {self._task.member}: no model can have children yet.")
        raise SearchSpaceError(
            f"worker {self._task.member} has no new model for its round {number}: none of "
            f"{MAX_DRAWS} morphisms drawn from each kept model is new and has at most "
            f"automl.max_growth = {search.max_growth:g} times the initial model's operations.",
            key="automl.max_growth",
            value=search.max_growth,
            remedy="Set a larger automl.max_growth, or more automl.kernel_sizes.",
        )

    def inherit(self, prepared: Prepared, parent: Model, weights: Weights) -> Prepared:
        """Add the child's weights, with which it computes what its parent computes."""
        generator = torch.Generator().manual_seed(prepared.seed)
        architecture = parent.architecture
        with _out_of_memory_as_error(prepared.candidate):
            for move in prepared.moves:
                architecture, weights = apply(architecture, weights, move, generator=generator)
        return dataclasses.replace(prepared, weights=weights)

    def operations(self, architecture: Architecture) -> Operations:
        """Count the operations of an architecture, each one once."""
        digest = architecture.digest
        if digest not in self._counted:
            self._counted[digest] = count_architecture(
                architecture,
                input_shape=self._task.definition.input_shape,
                convention=self._task.convention,
            )
        return self._counted[digest]

    def _seed(self, number: int) -> int:
        return derive(self._task.seed, Stream.SEARCH, self._task.member, number)

    @property
    def _parts(self) -> int:
        """Parts of a step's batch: one for each accelerator and pass before the update."""
        return self._task.parallel_degree * self._task.hyperparameters.accumulation

    def _proposed(self, known: Sequence[Model], number: int) -> Proposal:
        """Return the hyper-parameters of a round: the class's own, later TPE's."""
        search = self._search
        if not search.tunes(number):
            return default_proposal(search, batch_size=self._task.hyperparameters.batch_size)
        return propose(known, search=search, parts=self._parts, seed=self._seed(number))

    def _parents(
        self,
        known: Sequence[Model],
        number: int,
        *,
        random: np.random.Generator,
        training: str | None,
    ) -> Iterator[tuple[Model, Weights | None]]:
        """Yield parents drawn from the ranked history; without any, the model in training."""
        drawn = draw_parents(
            known,
            by_prediction=not self._search.tunes(number),
            best=self._search.kept_models,
            random=random,
            training=training,
        )
        empty = True
        for parent in drawn:
            # Read once: another thread may end it.
            ended, weights = parent.ended, None
            if ended is not None and ended.weights is not None:
                # None, too, if they were deleted meanwhile, or are unreadable.
                weights = self._store.load(ended.weights, parent.architecture)
            if weights is not None or (ended is None and parent.id == training):
                empty = False
                yield parent, weights
        current = self._history.models.get(training or "")
        if empty and current is not None and current.ended is None:
            yield current, None

    def _child(
        self, parent: Model, proposed: Proposal, *, random: np.random.Generator, number: int
    ) -> tuple[Candidate, tuple[Move, ...]] | None:
        """Return the first drawn child that is new and not too large."""
        tried = {model.candidate.digest for model in list(self._history.models.values())}
        limit = self._search.max_growth * self.operations(self.initial).forward_per_image
        shape = Shape.of(parent.architecture)
        for _ in range(MAX_DRAWS):
            steps = draw_moves(shape, kernel=proposed.kernel, random=random)
            if steps is None:
                return None
            child = shape.after(steps)
            if child is None or child.digest in tried:
                continue
            tried.add(child.digest)
            if self.operations(child).forward_per_image <= limit:
                candidate = self._candidate(child, parent, steps, proposed, number=number)
                return candidate, steps
        return None

    def _candidate(
        self,
        architecture: Architecture,
        parent: Model | None,
        steps: Sequence[Move],
        proposed: Proposal,
        *,
        number: int,
    ) -> Candidate:
        task = self._task
        images = proposed.batch_size * self._parts
        return Candidate(
            model=f"{task.member:03d}-{number:04d}",
            parent=None if parent is None else parent.id,
            round=number,
            moves=tuple(map(describe_move, steps)),
            digest=architecture.digest,
            architecture=architecture.layers,
            batch_size=images,
            kernel=proposed.kernel if steps else None,
            tuned=proposed.tuned,
            operations=self.operations(architecture),
            steps_per_epoch=task.definition.train_samples // images,
            validation_images=task.definition.validation_samples,
            epochs=self._search.epochs_of(number, epochs=task.hyperparameters.epochs),
        )


@contextlib.contextmanager
def _out_of_memory_as_error(candidate: Candidate) -> Iterator[None]:
    """Raise TooLargeError where memory is too small for a candidate."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TooLargeError(candidate) from error


@dataclass(frozen=True)
class Shape:
    """Architecture with weights that have shapes only, so that morphisms are cheap."""

    architecture: Architecture
    weights: Weights

    @classmethod
    def of(cls, architecture: Architecture) -> Shape:
        """Return the shape of an architecture; draw no random number."""
        return cls(architecture, expected_weights(architecture))

    def after(self, steps: Sequence[Move]) -> Architecture | None:
        """Apply morphisms; None: one of them is impossible."""
        architecture, weights = self.architecture, self.weights
        generator = torch.Generator().manual_seed(0)
        for move in steps:
            try:
                architecture, weights = apply(architecture, weights, move, generator=generator)
            except WideningError:
                return None
        return architecture


def draw_moves(
    shape: Shape, *, kernel: int, random: np.random.Generator
) -> tuple[Move, ...] | None:
    """Draw a block behind a ReLU and a second morphism; None: there is no ReLU."""
    relus = [layer.number for layer in shape.architecture.layers if layer.kind == "relu"]
    if not relus:
        return None
    block = Move("deeper", relus[int(random.integers(len(relus)))], size=kernel)
    second = SECOND_MOVES[int(random.integers(len(SECOND_MOVES)))]
    grown = shape.after((block,))
    assert grown is not None  # a block can be added behind every ReLU
    choices = list(moves(grown, kinds=(second,)))
    if not choices:
        return (block,)
    return block, choices[int(random.integers(len(choices)))]


def describe_move(move: Move) -> str:
    """Describe a morphism for the history and the report."""
    if move.kind == "deeper":
        return f"a {move.size}×{move.size} block behind layer {move.layer}"
    if move.kind == "wider":
        return f"layer {move.layer} to {move.size} channels"
    if move.kind == "kernel":
        return f"layer {move.layer} to {move.size}×{move.size}"
    how = "added" if move.kind == "skip_add" else "joined"
    return f"layer {move.layer} {how} to layer {move.to}"
