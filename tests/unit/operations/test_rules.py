"""The rules as arithmetic: no torch here."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core.errors import InputError
from ai500.operations import aten
from ai500.operations.count import KindCount, convention_named, count_op, count_trace
from ai500.operations.graph import UNKNOWN, Op, Shapes, Trace, with_loss
from ai500.operations.rules import _EXTENSIONS, CONVENTIONS, aiperf, matmul, v3

small = st.integers(1, 4)


def convolution(
    batch: int, groups: int, per_group: tuple[int, int], kernel: int, size: int, **more: int
) -> Op:
    channels_in, channels_out = groups * per_group[0], groups * per_group[1]
    data, weight = (batch, channels_in, 9, 9), (channels_out, per_group[0], kernel, kernel)
    return Op("convolution", Shapes((data, weight), ((batch, channels_out, size, size),)), more)


@given(small, small, st.tuples(small, small), small, small)
def test_convolution_is_the_loops_counted(
    batch: int, groups: int, per_group: tuple[int, int], kernel: int, size: int
) -> None:
    op = convolution(batch, groups, per_group, kernel, size)
    loops = product(
        range(batch), range(groups), range(per_group[0]), range(per_group[1]),
        range(kernel), range(kernel), range(size), range(size),
    )  # fmt: skip
    multiply_adds = sum(1 for _ in loops)
    for convention in (v3, aiperf, matmul):
        assert count_op(op, convention).forward == 2 * multiply_adds


@given(st.integers(0, 2), st.integers(0, 1000))
def test_backward_is_gradients_times_forward_plus_update(gradients: int, updated: int) -> None:
    op = convolution(2, 1, (3, 4), 3, 7, gradients=gradients, updated=updated)
    for convention, per_parameter in ((v3, 0), (aiperf, 2), (matmul, 0)):
        counted = count_op(op, convention)
        assert counted.update == per_parameter * updated
        assert counted.backward == gradients * counted.forward + counted.update


def test_transposed_convolution_visits_inputs() -> None:
    shapes = Shapes(((1, 8, 5, 5), (8, 4, 2, 2)), ((1, 4, 10, 10),))
    op = Op("convolution", shapes, {"transposed": 1})
    assert count_op(op, aiperf).forward == 2 * 25 * 8 * 4 * 4


def test_attention_is_two_products_and_a_softmax() -> None:
    query, key, value = (2, 4, 10, 8), (2, 4, 12, 8), (2, 4, 12, 16)
    op = Op("attention", Shapes((query, key, value), ((2, 4, 10, 16),)), {"gradients": 2})
    scores = 2 * 4 * 10 * 12
    products = 2 * scores * (8 + 16)
    assert count_op(op, matmul).forward == products
    assert count_op(op, aiperf).forward == products + 13 * scores
    assert count_op(op, aiperf).backward == 2 * products


@pytest.mark.parametrize("heads", [(), (4,), (2, 4)])
def test_attention_with_any_dimensions_before_the_sequence(heads: tuple[int, ...]) -> None:
    query, key, value = (*heads, 10, 8), (*heads, 12, 8), (*heads, 12, 16)
    op = Op("attention", Shapes((query, key, value), ((*heads, 10, 16),)))
    assert count_op(op, matmul).forward == 2 * prod(heads) * 10 * 12 * (8 + 16)


def test_the_total_of_a_kind_has_its_gradients() -> None:
    assert KindCount(forward=3, backward=5, update=2).total == 8


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("relu", 24), ("sigmoid", 13 * 24), ("div", 4 * 24), ("exp", 8 * 24), ("layer_norm", 7 * 24)],
)
def test_element_wise_weights(kind: str, expected: int) -> None:
    op = Op(kind, Shapes(((2, 3, 4),), ((2, 3, 4),)))
    assert count_op(op, aiperf).forward == expected
    assert count_op(op, v3).forward == 24
    assert count_op(op, matmul).forward == 0


def test_pools() -> None:
    shapes = Shapes(((1, 8, 12, 12),), ((1, 8, 6, 6),))
    assert count_op(Op("max_pool", shapes, {"kernel": 9}), aiperf).forward == 9 * 288
    assert count_op(Op("max_pool", shapes), aiperf).forward == 1152
    assert count_op(Op("average_pool", shapes, {"kernel": 4}), aiperf).forward == 4 * 288 + 4 * 288
    assert count_op(Op("average_pool", shapes), v3).forward == 288


def test_every_kind_has_a_rule_in_every_convention() -> None:
    kinds = set(aten.KINDS.values()) | {"convolution", "dense", "matmul", "attention"}
    for convention in CONVENTIONS.values():
        assert kinds <= set(convention.rules), convention.name
        assert all(rule.source for rule in convention.rules.values())


def test_every_kind_counts_something_in_aiperf_or_is_free() -> None:
    shapes = Shapes(((4, 8, 8, 8), (4, 8, 8, 8), (4, 8, 8, 8)), ((4, 8, 8, 8),))
    free = {"view", "data_movement", "embedding", "interpolate_nearest"}
    for kind in set(aten.KINDS.values()):
        assert (count_op(Op(kind, shapes), aiperf).forward > 0) == (kind not in free), kind


def test_no_operator_is_in_two_kinds() -> None:
    tables = [getattr(aten, name) for name in vars(aten) if name.startswith("_") and name.isupper()]
    names = [name for table in tables for row in table.values() for name in row.split()]
    assert len(names) == len(set(names)) == len(aten.KINDS)


def test_in_place_is_the_same_kind() -> None:
    assert aten.kind_of("aten::relu_") == aten.kind_of("aten::relu") == "relu"
    assert aten.kind_of("torchvision::roi_align") == "roi_align"
    assert aten.kind_of("mine::relu") is None


def test_unknown_operators_are_named_and_counted() -> None:
    strange = Op(UNKNOWN, Shapes(), operator="mine::fancy")
    counted = count_trace(Trace((strange, strange), parameters=0, batch=1), convention="aiperf")
    assert counted.unknown == {"mine::fancy": 2}
    assert counted.total == 0


def test_with_loss_appends_over_the_output() -> None:
    trace = with_loss(Trace((), parameters=0, batch=3, outputs=((3, 10),)), "softmax")
    counted = count_trace(trace, convention="aiperf")
    assert counted.by_kind["softmax"].forward == 13 * 30
    assert list(counted.by_module) == ["(loss)"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("aipref", "did you mean 'aiperf'"), ("V3", "'v3'"), ("", "known: aiperf, matmul, v3")],
)
def test_unknown_convention_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        convention_named(name)
    assert (raised.value.key, raised.value.value) == ("convention", name)
    assert hint in raised.value.remedy


def documented_weights() -> list[tuple[str, int]]:
    """Rows of the user page's table: kinds, and operations per element."""
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \| (\d+) \|", page, flags=re.MULTILINE)
    return [(kind, int(weight)) for kinds, weight in rows for kind in re.findall(r"`(\w+)`", kinds)]


@pytest.mark.parametrize(("kind", "weight"), documented_weights())
def test_documented_weight_is_the_rule(kind: str, weight: int) -> None:
    op = Op(kind, Shapes(((1,),), ((1,),)))
    assert count_op(op, aiperf).forward == weight
    assert aiperf.rules[kind].source == "extension"


def test_every_weight_of_ours_is_documented() -> None:
    documented = {kind for kind, _ in documented_weights()}
    forward_kinds = {kind for kind in _EXTENSIONS if not kind.endswith("_backward")}
    assert documented == forward_kinds


# Per element, where an addition, a comparison and a multiplication are 1, a multiply-add 2 and a
# division 4 (docs/operations.md).
GRADIENTS = {
    "batch_norm": 2 * 2 + 2 + 4, "softmax": 2 + 1 + 1, "activation": 1 + 1, "pool": 1,
    "dropout": 2, "loss": 1 + 1, "embedding": 1, "interpolate": 4 * 2,
    "lstm_cell": 5 * 3, "gru_cell": 3 * 3,
}  # fmt: skip


@pytest.mark.parametrize("kind", GRADIENTS)
def test_a_gradient_s_weight_is_the_sum_of_its_steps(kind: str) -> None:
    op = Op(f"{kind}_backward", Shapes(((3,),), ((3,),)))
    assert count_op(op, aiperf).forward == 3 * GRADIENTS[kind]


def test_every_gradient_has_such_a_test() -> None:
    names = {kind.removesuffix("_backward") for kind in _EXTENSIONS if kind.endswith("_backward")}
    assert names == GRADIENTS.keys()


def test_weights_are_whole_numbers() -> None:
    """Operations of a large run exceed the whole numbers that a float can hold."""
    assert {type(weight) for weight in _EXTENSIONS.values()} == {int}
