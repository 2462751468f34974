"""Targets of several tensors: micro-steps get their rows of each."""

from __future__ import annotations

import torch

from ai500.parallel.targets import chunked, rows_of, tensors_of, with_tensors

A, B = torch.arange(6), torch.arange(12.0).reshape(6, 2)
TARGETS = {"masks": A, "boxes": (B, None, [A + 1])}


def test_rows_are_divided_alike() -> None:
    first, second = chunked(TARGETS, 2)
    assert first["masks"].tolist() == [0, 1, 2]
    assert second["boxes"][0].tolist() == B[3:].tolist()
    assert second["boxes"][1] is None
    assert second["boxes"][2][0].tolist() == [4, 5, 6]
    assert [part.tolist() for part in chunked(A, 3)] == [[0, 1], [2, 3], [4, 5]]
    assert chunked(None, 2) == [None, None]


def test_rows_are_selected_alike() -> None:
    chosen = rows_of(TARGETS, torch.tensor([5, 0]))
    assert chosen["masks"].tolist() == [5, 0]
    assert chosen["boxes"][0].tolist() == [[10.0, 11.0], [0.0, 1.0]]


def test_tensors_are_replaced_in_order() -> None:
    tensors = tensors_of(TARGETS)
    assert [len(tensor.shape) for tensor in tensors] == [1, 2, 1]
    changed = with_tensors(TARGETS, iter([tensor * 2 for tensor in tensors]))
    assert changed["boxes"][2][0].tolist() == ((A + 1) * 2).tolist()
    assert tensors_of(torch.tensor(3))[0] == 3
