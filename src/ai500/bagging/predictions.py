"""Predictions of finished members: verified against their records, then mapped block by block.

A file is opened for the block that is read and closed after it: neither memory nor open files grow
with the ensemble.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.core.reading import file_sha256
from ai500.core.shell import quoted
from ai500.data.bootstrap import Counts
from ai500.records import TrainRecord
from ai500.records.run_folder import MemberFolder
from ai500.workloads.member_predictions import Voters, all_finite

QUALITY_TOLERANCE = 1e-9
"""Relative difference of a quality computed twice: nodes may differ in vector instructions."""


@dataclass(frozen=True)
class FinishedMember:
    """Files of a member that finished, and what its worker recorded of them."""

    member: int
    folder: MemberFolder
    record: TrainRecord
    run: Path
    read_counts: Callable[[], Counts]
    """Reads the repeat counts of its bootstrap."""

    def validation(self) -> NDArray[Any]:
        """Map the predictions of the validation samples."""
        return self._mapped(self.folder.validation)

    def out_of_bag(self) -> NDArray[Any]:
        """Map the predictions of the candidates that the member never drew."""
        return self._mapped(self.folder.out_of_bag)

    def verify_validation(self, *, samples: int) -> None:
        """Raise DataError unless the file is the one the worker recorded, with finite numbers."""
        self._verify(self.folder.validation, self.record.validation_sha256, rows=samples)

    def verify_out_of_bag(self, *, samples: int) -> None:
        """Raise DataError unless the file is the one the worker recorded, with finite numbers."""
        self._verify(self.folder.out_of_bag, self.record.out_of_bag_sha256, rows=samples)

    def verify_shape(self, path: Path, expected: tuple[int, ...]) -> None:
        """Raise DataError if a sample's prediction has another shape than the first member's."""
        array = self._mapped(path)
        if len(array) and array.shape[1:] != expected:
            raise self.error(path, f"has rows of shape {array.shape[1:]}, expected {expected}.")

    def verify_quality(self, quality: float) -> None:
        """Raise DataError if the predictions have another quality than the worker recorded."""
        recorded = self.record.quality
        if not math.isclose(quality, recorded, rel_tol=QUALITY_TOLERANCE, abs_tol=1e-12):
            raise self.error(
                self.folder.validation,
                f"has quality {quality!r}, the member recorded {recorded!r}.",
                value=quality,
            )

    def error(self, path: Path, problem: str, *, value: object = None) -> DataError:
        """Build the error about a file, with the command that predicts it again."""
        return DataError(
            f"member {self.member}: {path} {problem}",
            key=path.name,
            value=value,
            path=path,
            remedy=f"To repeat this member: rm {quoted(self.folder.record)} && "
            f"ai500 resume {quoted(self.run)}",
        )

    def _verify(self, path: Path, sha256: str | None, *, rows: int) -> None:
        if not path.is_file():
            raise self.error(path, "is missing.")
        if sha256 is None:
            raise self.error(path, "can't be verified: the member's record has no SHA-256 of it.")
        try:
            actual = file_sha256(path)
        except OSError as error:
            raise self.error(path, f"can't be read: {error.strerror}.") from error
        if actual != sha256:
            raise self.error(
                path, f"has SHA-256 {actual}, the member recorded {sha256}.", value=actual
            )
        array = self._mapped(path)
        if array.ndim == 0 or len(array) != rows:
            raise self.error(path, f"has shape {array.shape}, expected {rows} rows.")
        if not all_finite(array):
            raise self.error(path, "has numbers that are not finite.")

    def _mapped(self, path: Path) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self.error(path, f"can't be read: {error}.") from error
        return array


@dataclass(frozen=True)
class ValidationPredictions:
    """All members' predictions of the validation samples; every member votes on each."""

    members: Sequence[FinishedMember]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, members: Sequence[FinishedMember]) -> ValidationPredictions:
        """Take shape and type of the first member's."""
        first = members[0].validation()
        return cls(members, first.shape, first.dtype)

    def __len__(self) -> int:
        return len(self.members)

    def block(self, samples: slice) -> Iterator[tuple[Voters, NDArray[Any]]]:
        """Yield each member's rows of a block."""
        for member in self.members:
            yield slice(None), member.validation()[samples]


@dataclass(frozen=True)
class OutOfBagPredictions:
    """Predictions of training samples, each by the members that never drew it."""

    members: Sequence[FinishedMember]
    samples: NDArray[np.int64]
    """Samples that at least one member never drew, in order."""
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one member's predictions, if it had all samples."""
        return (len(self.samples), *self.row_shape)

    def __len__(self) -> int:
        return len(self.members)

    def block(self, samples: slice) -> Iterator[tuple[Voters, NDArray[Any]]]:
        """Yield the samples of a block that each member never drew, and its rows for them."""
        for member in self.members:
            unseen = member.read_counts()[self.samples] == 0
            first = np.count_nonzero(unseen[: samples.start])
            voters: NDArray[np.bool_] = unseen[samples]
            if count := np.count_nonzero(voters):
                yield voters, member.out_of_bag()[first : first + count]
            else:  # its file may have no rows, and then no shape of a row
                yield voters, np.empty((0, *self.row_shape), self.dtype)


class MappedValidation(Mapping[int, NDArray[Any]]):
    """Validation predictions by member, mapped when they are looked up."""

    def __init__(self, members: Sequence[FinishedMember]) -> None:
        self._members = {member.member: member for member in members}

    def __getitem__(self, member: int) -> NDArray[Any]:
        return self._members[member].validation()

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
