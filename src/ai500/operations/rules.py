"""The three conventions of SPEC §4: operator kind → a small function of its shapes.

A row names its source. Rows marked "ours" are what the papers' tables leave out; in `aiperf` they
follow the same weights (AIPerf Table I's caption). All functions count one operator as traced,
for the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

from ai500.operations.graph import Op

# AIPerf Table I's caption: the weight of each elementary operation.
MACC = 2
ADD = MULTIPLY = COMPARE = 1
DIVIDE = SQUARE_ROOT = 4
EXPONENTIAL = 8  # and every other special function

Formula = Callable[[Op], int]

V3 = "V3 Table 3"
V3_IGNORED = "V3 §3.6: ignored"
AIPERF = "AIPerf Table I"
TORCH = "torch.utils.flop_counter"
OURS = "ours"


class Rule(NamedTuple):
    """How one kind is counted: forward, each gradient of it in the backward pass, and whence."""

    forward: Formula
    source: str
    gradient: Formula = lambda op: 0


class Convention(NamedTuple):
    """A named table of rules; `update` is what one parameter costs in an optimizer step."""

    name: str
    rules: dict[str, Rule]
    update: int


def convolution_macc(op: Op) -> int:
    """K²·Ci·Ho·Wo·Co / groups; a transposed convolution visits each input position instead.

    The weight's shape already carries the division by the groups, so depth-wise needs no case.
    """
    data, weight = op.shapes.inputs
    positions = data if op.attributes.get("transposed") else op.shapes.outputs[0]
    return prod(weight) * data[0] * prod(positions[2:])


def product_macc(op: Op) -> int:
    """Rows·Ci·Co of a dense layer or a matrix product, batched or not."""
    left, right = op.shapes.inputs
    return prod(left) * (right[-1] if len(right) > 1 else 1)


def attention_scores(op: Op) -> int:
    """Elements of the score matrix of scaled dot product attention, all heads."""
    query, key, _ = op.shapes.inputs
    return prod(query[:-1]) * key[-2]


def attention_macc(op: Op) -> int:
    """The two products of attention: scores, and scores times values."""
    query, _, value = op.shapes.inputs
    return attention_scores(op) * (query[-1] + value[-1])


def elements(weight: int) -> Formula:
    """`weight` operations for each element of the output."""
    return lambda op: weight * op.shapes.elements_out


def elements_in(weight: int) -> Formula:
    """`weight` operations for each element of the input."""
    return lambda op: weight * op.shapes.elements_in


def _nothing(op: Op) -> int:
    return 0


def _max_pool(op: Op) -> int:
    """Compare = K²·Ho·Wo·Co; adaptive windows cover the input once (ours)."""
    kernel = op.attributes.get("kernel")
    return COMPARE * (kernel * op.shapes.elements_out if kernel else op.shapes.elements_in)


def _average_pool(op: Op) -> int:
    """Global: Add = Hi·Wi·Ci, Div = Ci; with a window Add = K²·Ho·Wo·Co, Div = Ho·Wo·Co (ours)."""
    outputs = op.shapes.elements_out
    kernel = op.attributes.get("kernel")
    return ADD * (kernel * outputs if kernel else op.shapes.elements_in) + DIVIDE * outputs


def _variance(op: Op) -> int:
    return (ADD + MACC) * op.shapes.elements_in + DIVIDE * op.shapes.elements_out


def _norm(op: Op) -> int:
    return MACC * op.shapes.elements_in + SQUARE_ROOT * op.shapes.elements_out


def _sort(op: Op) -> int:
    """n·log₂(n) comparisons along the last dimension."""
    length = op.shapes.inputs[0][-1] if op.shapes.inputs and op.shapes.inputs[0] else 1
    return COMPARE * op.shapes.elements_in * max(1, (length - 1).bit_length())


def _nms(op: Op) -> int:
    """Every pair of boxes: the corners of the overlap, two areas, one division."""
    boxes = op.shapes.inputs[0][0]
    return boxes * (boxes - 1) // 2 * (4 * COMPARE + 6 * ADD + MULTIPLY + DIVIDE)


def _fft(op: Op) -> int:
    """5·n·log₂(n), the usual count, along the last dimension."""
    length = op.shapes.inputs[0][-1] if op.shapes.inputs[0] else 1
    return 5 * op.shapes.elements_in * max(1, (length - 1).bit_length())


_NORMALIZATION = MACC + ADD + DIVIDE
_SIGMOID = EXPONENTIAL + ADD + DIVIDE
_TANH = MULTIPLY + EXPONENTIAL + 2 * ADD + DIVIDE
_SOFTPLUS = 2 * EXPONENTIAL + ADD
_DROPOUT = DIVIDE + MULTIPLY

#: Weight per element of the output, kinds AIPerf's Table I does not list.
_AIPERF_OURS: dict[str, int] = {
    "layer_norm": _NORMALIZATION,
    "group_norm": _NORMALIZATION,
    "rms_norm": _NORMALIZATION,
    "mul": MULTIPLY,
    "div": DIVIDE,
    "sqrt": SQUARE_ROOT,
    "rsqrt": SQUARE_ROOT + DIVIDE,
    "exp": EXPONENTIAL,
    "compare": COMPARE,
    "clamp": 2 * COMPARE,
    "leaky_relu": COMPARE + MULTIPLY,
    "sigmoid": _SIGMOID,
    "log_sigmoid": _SOFTPLUS,
    "tanh": _TANH,
    "gelu": EXPONENTIAL + 3 * MULTIPLY + ADD,
    "silu": _SIGMOID + MULTIPLY,
    "mish": _SOFTPLUS + _TANH + MULTIPLY,
    "elu": COMPARE + EXPONENTIAL + ADD + MULTIPLY,
    "softplus": _SOFTPLUS,
    "hardswish": ADD + 2 * COMPARE + 2 * MULTIPLY,
    "hardsigmoid": ADD + 2 * COMPARE + MULTIPLY,
    "softshrink": COMPARE + ADD,
    "glu": _SIGMOID + MULTIPLY,
    "dropout": _DROPOUT,
    "log_softmax": EXPONENTIAL + 2 * ADD,
    # Gates summed; three sigmoids and two tanh; new cell and output.
    "lstm_cell": 4 * ADD + 3 * _SIGMOID + 2 * _TANH + 3 * MULTIPLY + ADD,
    "gru_cell": 3 * ADD + 2 * _SIGMOID + _TANH + 2 * MULTIPLY + 2 * ADD,
    "interpolate_linear": 2 * MACC,
    "interpolate_bilinear": 4 * MACC,
    "interpolate_trilinear": 8 * MACC,
    "interpolate_bicubic": 16 * MACC,
    "grid_sample": 4 * MACC + 4 * ADD,
    "roi_align": 4 * 4 * MACC,  # two by two sampling points, four neighbours each
    "roi_pool": 4 * COMPARE,
    "batch_norm_backward": 2 * MACC + 2 * ADD + DIVIDE,
    "softmax_backward": MACC + ADD + MULTIPLY,
    "activation_backward": COMPARE + MULTIPLY,
    "pool_backward": ADD,
    "dropout_backward": 2 * MULTIPLY,
    "loss_backward": ADD + MULTIPLY,
    "embedding_backward": ADD,
    "interpolate_backward": 4 * MACC,
    "lstm_cell_backward": 5 * (ADD + 2 * MULTIPLY),
    "gru_cell_backward": 3 * (ADD + 2 * MULTIPLY),
}

#: The same per element of the input.
_AIPERF_OURS_INPUT: dict[str, int] = {
    "sum": ADD,
    "embedding_bag": ADD,
    "nll_loss": ADD,
    "mse_loss": ADD + MACC,
    "smooth_l1_loss": ADD + COMPARE + 2 * MULTIPLY + ADD,
    "binary_cross_entropy": 2 * EXPONENTIAL + MACC + 2 * ADD,
    "soft_margin_loss": _SOFTPLUS + MULTIPLY + ADD,
    "ctc_loss": 2 * EXPONENTIAL + 3 * ADD,
}

#: Element-wise in the sense of V3 Table 3, softmax included (SPEC §4).
_ELEMENT_WISE = {
    *("add", "mul", "div", "sqrt", "rsqrt", "exp", "compare", "dropout", "softmax", "log_softmax"),
    *("relu", "clamp", "leaky_relu", "sigmoid", "log_sigmoid", "tanh", "gelu", "silu", "mish"),
    *("elu", "softplus", "hardswish", "hardsigmoid", "softshrink", "glu", "lstm_cell", "gru_cell"),
}
_NORMALIZATIONS = ("batch_norm", "layer_norm", "group_norm", "rms_norm")
_POOLINGS = ("max_pool", "average_pool")
#: `bias`: none of the tables counts a bias, fused into its layer or not.
_FREE = ("view", "data_movement", "embedding", "interpolate_nearest", "bias")
_SPECIAL: dict[str, Formula] = {
    "mean": _average_pool,
    "variance": _variance,
    "norm": _norm,
    "sort": _sort,
    "nms": _nms,
    "fft": _fft,
}
_COUNTED_ONLY_BY_AIPERF = (*_AIPERF_OURS, *_AIPERF_OURS_INPUT, *_SPECIAL)


def _all(kinds: Iterable[str], rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(kinds, rule)


def _by_product(*, convolution: int, product: int, scores: int, source: str) -> dict[str, Rule]:
    """Rows for the kinds made of multiply-adds, the only ones with a counted backward pass."""

    def weigh(macc: Formula, weight: int, row_source: str) -> Rule:
        return Rule(lambda op: weight * macc(op), row_source, lambda op: weight * macc(op))

    unlisted = source if source == TORCH else OURS
    return {
        "convolution": weigh(convolution_macc, convolution, source),
        "dense": weigh(product_macc, product, source),
        "matmul": weigh(product_macc, product, unlisted),
        "attention": Rule(
            lambda op: product * attention_macc(op) + scores * attention_scores(op),
            unlisted,
            lambda op: product * attention_macc(op),
        ),
    }


_SOFTMAX = EXPONENTIAL + ADD + DIVIDE

v3 = Convention(
    name="v3",
    rules={
        **_all(_COUNTED_ONLY_BY_AIPERF, Rule(_nothing, V3_IGNORED)),
        **_all(_FREE, Rule(_nothing, V3_IGNORED)),
        # SPEC [D5]: no factor 2 for the fully connected layer, as printed.
        **_by_product(convolution=2, product=1, scores=1, source=V3),
        **_all(_ELEMENT_WISE, Rule(elements(1), V3)),
        **_all(_POOLINGS, Rule(elements(1), V3)),
        **_all(_NORMALIZATIONS, Rule(elements(1), V3)),
    },
    update=0,
)

aiperf = Convention(
    name="aiperf",
    rules={
        **_all(_FREE, Rule(_nothing, OURS)),
        **{kind: Rule(elements(weight), OURS) for kind, weight in _AIPERF_OURS.items()},
        **{kind: Rule(elements_in(weight), OURS) for kind, weight in _AIPERF_OURS_INPUT.items()},
        **{kind: Rule(formula, OURS) for kind, formula in _SPECIAL.items()},
        **_by_product(convolution=MACC, product=MACC, scores=_SOFTMAX, source=AIPERF),
        "batch_norm": Rule(elements_in(_NORMALIZATION), AIPERF),
        "relu": Rule(elements(COMPARE), AIPERF),
        "add": Rule(elements(ADD), AIPERF),
        "max_pool": Rule(_max_pool, AIPERF),
        "average_pool": Rule(_average_pool, AIPERF),
        "softmax": Rule(elements(_SOFTMAX), AIPERF),
    },
    update=MACC,
)

matmul = Convention(
    name="matmul",
    rules={
        **_all(aiperf.rules, Rule(_nothing, TORCH)),
        **_by_product(convolution=2, product=2, scores=0, source=TORCH),
    },
    update=0,
)

CONVENTIONS: dict[str, Convention] = {rule.name: rule for rule in (v3, aiperf, matmul)}
