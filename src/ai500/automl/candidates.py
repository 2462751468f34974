"""The next model of a worker: parent, morphisms, operations, weights, then hyper-parameters.

CPU threads search architectures while the accelerator trains (AIPerf §IV-C): `search` draws a child
of one of the best models, `next` also gives it its parent's weights. Batch and kernel size of the
whole model are chosen after that (`trial`, AIPerf §IV-B), when the accelerator is free. Only
`first` draws from torch's own generator, which belongs to the thread that trains.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ai500.automl.buffer import BufferedArchitecture
from ai500.automl.counting import count_architecture
from ai500.automl.history import Candidate, History, Model, model_name
from ai500.automl.memory import OUT_OF_MEMORY, is_out_of_memory
from ai500.automl.morphism import Weights, WideningError, apply, enlarge_kernels, moves
from ai500.automl.moves import Move, describe_move
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

    def buffered(self) -> BufferedArchitecture:
        """Return what the buffer stores of a child."""
        assert self.candidate.parent is not None
        return BufferedArchitecture(
            parent=self.candidate.parent,
            round=self.candidate.round,
            seed=self.seed,
            moves=self.moves,
            architecture=self.candidate.architecture,
        )


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
        proposal = self._defaults()
        if self._search.tunes(number):
            known = list(self._history.models.values())
            tuned = propose(known, search=self._search, parts=self._parts, seed=seed)
            proposal = tuned or proposal
        candidate = self._candidate(self.initial, None, (), proposal, number=number)
        with _out_of_memory_as_error(candidate):
            weights = Network(self.initial).state_dict()
        return Prepared(candidate, proposal.batch_size, (), seed, weights)

    def resumed(self, candidate: Candidate) -> Prepared:
        """Return an interrupted model; its checkpoint has the weights."""
        seed = self._seed(candidate.round)
        return Prepared(candidate, candidate.batch_size // self._parts, (), seed, None)

    def next(self, number: int, *, training: str | None = None) -> Prepared:
        """Return a new child of one of the best models, with its weights.

        The worker's own model in `training` may be the parent; the child then gets its weights
        later, by `inherit`.
        """
        while True:
            prepared = self.search(number, training=training)
            parent = self._history.models[str(prepared.candidate.parent)]
            if parent.ended is None:
                return prepared
            weights = self.weights_of(parent)
            if weights is not None:
                return self.inherit(prepared, parent, weights)
            # The file is gone or unreadable, so that the next search skips this parent.

    def search(self, number: int, *, spare: int = 0, training: str | None = None) -> Prepared:
        """Draw a new child of one of the best models, without weights; `spare` draws others."""
        self._history.refresh()
        search = self._search
        seed = self._seed(number, 1, spare) if spare else self._seed(number)
        random = np.random.default_rng(seed)
        known = list(self._history.models.values())
        has_parent = False
        for parent in self._parents(known, number, random=random, training=training):
            has_parent = True
            child = self._child(parent, random=random)
            if child is not None:
                architecture, steps = child
                return self._prepared(architecture, parent.id, steps, seed=seed, number=number)
        if not has_parent:
            raise NoParentError(f"worker {self._task.member}: no model can have children yet.")
        raise SearchSpaceError(
            f"worker {self._task.member} has no new model for its round {number}: none of "
            f"{MAX_DRAWS} morphisms drawn from each kept model is new and has at most "
            f"automl.max_growth = {search.max_growth:g} times the initial model's operations "
            "(decision D21).",
            key="automl.max_growth",
            value=search.max_growth,
            remedy="Set a larger automl.max_growth, or more automl.kernel_sizes.",
        )

    def from_buffer(self, buffered: BufferedArchitecture, number: int) -> Prepared:
        """Return an architecture of the buffer as the worker's round `number`, without weights."""
        architecture = Architecture(buffered.architecture)
        return self._prepared(
            architecture, buffered.parent, buffered.moves, seed=buffered.seed, number=number
        )

    def weights_of(self, model: Model) -> Weights | None:
        """Read the weights of an ended model; None: deleted meanwhile, unreadable or not kept."""
        ended = model.ended
        if ended is None or ended.weights is None:
            return None
        return self._store.load(ended.weights, model.architecture)

    def inherit(self, prepared: Prepared, parent: Model, weights: Weights) -> Prepared:
        """Add the child's weights, with which it computes what its parent computes."""
        generator = torch.Generator().manual_seed(prepared.seed)
        architecture = parent.architecture
        with _out_of_memory_as_error(prepared.candidate):
            for move in prepared.moves:
                architecture, weights = apply(architecture, weights, move, generator=generator)
        return dataclasses.replace(prepared, weights=weights)

    def trial(self, base: Prepared) -> Prepared | None:
        """Return the next hyper-parameter trial of a round's architecture; None: it had them all.

        TPE chooses batch size and kernel size of the whole model (AIPerf §IV-B) after the morphism.
        Every trial starts from the inherited weights: larger kernels are padded with zeros.
        """
        search, number = self._search, base.candidate.round
        known = list(self._history.models.values())
        earlier = [
            model.candidate
            for model in known
            if model.worker == self._task.member and model.candidate.round == number
        ]
        trial = 1 + max((candidate.trial for candidate in earlier), default=0)
        if trial > search.hyperparameter_trials:
            return None
        variants = self._variants(Architecture(base.candidate.architecture))
        seed = base.seed if trial == 1 else self._seed(number, trial)
        proposal = propose(
            known,
            search=search,
            parts=self._parts,
            seed=seed,
            kernels=tuple(variants),
            tried={(c.batch_size // self._parts, c.kernel or 0) for c in earlier},
        )
        if proposal is None:
            return None
        architecture = variants[proposal.kernel]
        changed = architecture.digest != base.candidate.digest
        described = (f"all kernels to {proposal.kernel}×{proposal.kernel}",) if changed else ()
        candidate = self._candidate(
            architecture,
            base.candidate.parent,
            (*base.candidate.moves, *described),
            proposal,
            number=number,
            trial=trial,
        )
        with _out_of_memory_as_error(candidate):
            _, weights = enlarge_kernels(
                Architecture(base.candidate.architecture), base.weights or {}, proposal.kernel
            )
        return Prepared(candidate, proposal.batch_size, (), seed, weights)

    def _variants(self, architecture: Architecture) -> dict[int, Architecture]:
        """Return kernel size → architecture with it, within the limit of growth.

        Of sizes that give the same architecture only the largest is listed. Kernels never shrink:
        a child keeps its parent's layers.
        """
        shape = Shape.of(architecture)
        variants: dict[int, Architecture] = {}
        for size in sorted(self._search.kernel_sizes, reverse=True):
            variant, _ = enlarge_kernels(shape.architecture, shape.weights, size)
            known = {other.digest for other in variants.values()}
            if variant.digest not in known and self._within_limit(variant):
                variants[size] = variant
        return dict(sorted(variants.items())) or {self._search.kernel_sizes[0]: architecture}

    def _within_limit(self, architecture: Architecture) -> bool:
        """Return True if an architecture has at most max_growth × the start's operations [D21]."""
        limit = self._search.max_growth * self.operations(self.initial).forward_per_sample
        return self.operations(architecture).forward_per_sample <= limit

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

    def _seed(self, *keys: int) -> int:
        return derive(self._task.seed, Stream.SEARCH, self._task.member, *keys)

    @property
    def _parts(self) -> int:
        """Parts of a step's batch: one for each accelerator and pass before the update."""
        return self._task.parallel_degree * self._task.hyperparameters.accumulation

    def _defaults(self) -> Proposal:
        """Return the class's own hyper-parameters."""
        return default_proposal(self._search, batch_size=self._task.hyperparameters.batch_size)

    def _parents(
        self,
        known: Sequence[Model],
        number: int,
        *,
        random: np.random.Generator,
        training: str | None,
    ) -> Iterator[Model]:
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
            ended = parent.ended  # read once: another thread may end it
            if ended is None:
                usable = parent.id == training
            else:
                usable = ended.weights is not None and self._store.usable(ended.weights)
            if usable:
                empty = False
                yield parent
        current = self._history.models.get(training or "")
        if empty and current is not None and current.ended is None:
            yield current

    def _child(
        self, parent: Model, *, random: np.random.Generator
    ) -> tuple[Architecture, tuple[Move, ...]] | None:
        """Return the first drawn child that is new and not too large."""
        tried = {model.candidate.digest for model in list(self._history.models.values())}
        shape = Shape.of(parent.architecture)
        for _ in range(MAX_DRAWS):
            steps = draw_moves(shape, kernel=self._search.kernel_sizes[0], random=random)
            if steps is None:
                return None
            child = shape.after(steps)
            if child is None or child.digest in tried:
                continue
            tried.add(child.digest)
            if self._within_limit(child):
                return child, steps
        return None

    def _prepared(
        self,
        architecture: Architecture,
        parent: str,
        steps: tuple[Move, ...],
        *,
        seed: int,
        number: int,
    ) -> Prepared:
        described = tuple(map(describe_move, steps))
        proposal = self._defaults()
        candidate = self._candidate(architecture, parent, described, proposal, number=number)
        return Prepared(candidate, proposal.batch_size, steps, seed, None)

    def _candidate(
        self,
        architecture: Architecture,
        parent: str | None,
        changes: tuple[str, ...],
        proposal: Proposal,
        *,
        number: int,
        trial: int = 1,
    ) -> Candidate:
        task = self._task
        images = proposal.batch_size * self._parts
        return Candidate(
            model=model_name(worker=task.member, round_number=number, trial=trial),
            parent=parent,
            round=number,
            trial=trial,
            moves=changes,
            digest=architecture.digest,
            architecture=architecture.layers,
            batch_size=images,
            kernel=proposal.kernel if changes else None,
            tuned=proposal.tuned,
            operations=self.operations(architecture),
            steps_per_epoch=task.definition.train_samples // images,
            validation_samples=task.definition.validation_samples,
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
