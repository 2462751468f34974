"""A counted graph's file: what is written is read, and nothing else is."""

from __future__ import annotations

import json

import pytest

from ai500.core.errors import InputError
from ai500.operations.graph import UNKNOWN, Op, Shapes, Trace
from ai500.operations.graph_file import graph_bytes, read_graph, recount

TRACE = Trace(
    (
        Op("convolution", Shapes(((2, 3, 8, 8), (4, 3, 3, 3)), ((2, 4, 6, 6),)), {"gradients": 1}),
        Op(UNKNOWN, Shapes(((2, 4),), ((2, 4),)), operator="mine::scan"),
    ),
    parameters=108,
    batch=2,
)


def test_a_graph_read_again_counts_the_same() -> None:
    data = graph_bytes(TRACE)
    assert recount(read_graph(data)) == recount(TRACE)
    assert recount(TRACE)["aiperf"].uncounted == {"mine::scan": 1}
    assert graph_bytes(read_graph(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 100_000,
        graph_bytes(TRACE) + b" ",
        graph_bytes(TRACE).replace(b'"batch":2', b'"batch":0'),
        graph_bytes(TRACE).replace(b'"batch":2', b'"batch":true'),
        graph_bytes(TRACE).replace(b"[2,3,8,8]", b"[2,3,8,-8]"),
        graph_bytes(TRACE).replace(b"[2,3,8,8]", b"[2,3,8,1" + b"0" * 30 + b"]"),
        graph_bytes(TRACE).replace(b"[2,3,8,8]", b"[2,3,8,8.0]"),
        json.dumps(json.loads(graph_bytes(TRACE))).encode(),
    ],
)  # fmt: skip
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="graph"):
        read_graph(data)
