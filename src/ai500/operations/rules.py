"""The three conventions (docs/operations.md): operator kind → a formula of its shapes.

Each row names its source. Rows marked "extension" are kinds that the papers' tables omit; in
`aiperf` they use the same weights (AIPerf Table I's caption). All formulas count one traced
operator for the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod
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
EXTENSION = "extension"


class Rule(NamedTuple):
    """Formulas of one kind: forward, and each gradient of the backward pass; with their source."""

    forward: Formula
    source: str
    gradient: Formula = lambda op: 0


class Convention(NamedTuple):
    """A named table of rules; `update` is the operations per parameter of an optimizer step."""

    name: str
    rules: dict[str, Rule]
    update: int


def convolution_macc(op: Op) -> int:
    """Count K²·Ci·Ho·Wo·Co / groups; a transposed convolution counts input positions instead.

    The weight's shape is already divided by the groups, so depth-wise is no special case.
    """
    data, weight = op.shapes.inputs
    positions = data if op.attributes.get("transposed") else op.shapes.outputs[0]
    return prod(weight) * data[0] * prod(positions[2:])


def product_macc(op: Op) -> int:
    """Count rows·Ci·Co of a dense layer or a (batched) matrix product."""
    left, right = op.shapes.inputs
    return prod(left) * (right[-1] if len(right) > 1 else 1)


def bilinear_macc(op: Op) -> int:
    """Count left·weight, then the product with right, of a bilinear layer Σ left·weight·right."""
    left, weight, _ = op.shapes.inputs
    rows = prod(left[:-1])
    return rows * (prod(weight) + weight[0] * weight[-1])


def attention_scores(op: Op) -> int:
    """Count the elements of the attention scores of all heads."""
    query, key, _ = op.shapes.inputs
    return prod(query[:-1]) * key[-2]


def attention_macc(op: Op) -> int:
    """Count both products of attention: scores, and scores times values."""
    query, _, value = op.shapes.inputs
    return attention_scores(op) * (query[-1] + value[-1])


def elements(weight: int) -> Formula:
    """Return a formula of `weight` operations per output element."""
    return lambda op: weight * op.shapes.elements_out


def elements_in(weight: int) -> Formula:
    """Return a formula of `weight` operations per input element."""
    return lambda op: weight * op.shapes.elements_in


def _nothing(op: Op) -> int:
    return 0


def _max_pool(op: Op) -> int:
    """Count compare = K²·Ho·Wo·Co; adaptive windows cover the input once (extension)."""
    kernel = op.attributes.get("kernel")
    return COMPARE * (kernel * op.shapes.elements_out if kernel else op.shapes.elements_in)


def _average_pool(op: Op) -> int:
    """Count add = Hi·Wi·Ci and div = Ci of a global pool.

    With a window (extension) add = K²·Ho·Wo·Co, div = Ho·Wo·Co.
    """
    outputs = op.shapes.elements_out
    kernel = op.attributes.get("kernel")
    return ADD * (kernel * outputs if kernel else op.shapes.elements_in) + DIVIDE * outputs


def _variance(op: Op) -> int:
    return (ADD + MACC) * op.shapes.elements_in + DIVIDE * op.shapes.elements_out


def _norm(op: Op) -> int:
    return MACC * op.shapes.elements_in + SQUARE_ROOT * op.shapes.elements_out


def _sort(op: Op) -> int:
    """Count n·log₂(n) comparisons along the last dimension."""
    length = op.shapes.inputs[0][-1] if op.shapes.inputs and op.shapes.inputs[0] else 1
    return COMPARE * op.shapes.elements_in * max(1, (length - 1).bit_length())


def _nms(op: Op) -> int:
    """Count every pair of boxes: corners of the overlap, two areas, one division."""
    boxes = op.shapes.inputs[0][0]
    return boxes * (boxes - 1) // 2 * (4 * COMPARE + 6 * ADD + MULTIPLY + DIVIDE)


def _fft(op: Op) -> int:
    """Count 5·N·log₂(N) for each transform of N points, half of it for real data.

    A radix-2 butterfly is a complex product and two complex sums, 10 operations for 2 points.
    """
    points = op.attributes.get("points") or op.shapes.inputs[0][-1]
    # Of real data only half of the spectrum is stored: the other side has all points.
    elements = max(op.shapes.elements_in, op.shapes.elements_out)
    return round((2.5 if op.attributes.get("real") else 5) * elements * log2(points))


def _distance(op: Op) -> int:
    """Count each pair's terms (difference, power or absolute value, sum), and its root."""
    order = op.attributes.get("order", 2)
    term = {1: 2 * ADD + COMPARE, 2: ADD + MACC}.get(order, 2 * ADD + COMPARE + EXPONENTIAL)
    root = {1: 0, 2: SQUARE_ROOT}.get(order, EXPONENTIAL)
    return op.shapes.elements_out * (op.shapes.inputs[0][-1] * term + root)


def _weight_norm(op: Op) -> int:
    """Count v·(g / ‖v‖): squares and their sum, root and division of each norm, the product."""
    norms = prod(op.shapes.outputs[1]) if len(op.shapes.outputs) > 1 else 1
    return (MACC + MULTIPLY) * op.shapes.elements_in + (SQUARE_ROOT + DIVIDE) * norms


_NORMALIZATION = MACC + ADD + DIVIDE
_SIGMOID = EXPONENTIAL + ADD + DIVIDE
_TANH = MULTIPLY + EXPONENTIAL + 2 * ADD + DIVIDE
_SOFTPLUS = 2 * EXPONENTIAL + ADD
_DROPOUT = DIVIDE + MULTIPLY

#: Kinds that AIPerf's Table I omits → weight per output element.
_EXTENSIONS: dict[str, int] = {
    "layer_norm": _NORMALIZATION,
    "group_norm": _NORMALIZATION,
    "rms_norm": _NORMALIZATION,
    "mul": MULTIPLY,
    "div": DIVIDE,
    "sqrt": SQUARE_ROOT,
    "rsqrt": SQUARE_ROOT + DIVIDE,
    "complex_abs": 2 * MULTIPLY + ADD + SQUARE_ROOT,
    "polar": 2 * EXPONENTIAL + 2 * MULTIPLY,
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
    # Sums of the gates; three sigmoids and two tanh; new cell and output.
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

#: Kinds that AIPerf's Table I omits → weight per input element.
_EXTENSIONS_BY_INPUT: dict[str, int] = {
    "sum": ADD,
    "embedding_bag": ADD,
    "nll_loss": ADD,
    "mse_loss": ADD + MACC,
    "smooth_l1_loss": ADD + COMPARE + 2 * MULTIPLY + ADD,
    "binary_cross_entropy": 2 * EXPONENTIAL + MACC + 2 * ADD,
    "soft_margin_loss": _SOFTPLUS + MULTIPLY + ADD,
    "ctc_loss": 2 * EXPONENTIAL + 3 * ADD,
}

#: Element-wise kinds of V3 Table 3, softmax included.
_ELEMENT_WISE = {
    *(
        "add",
        "mul",
        "div",
        "sqrt",
        "rsqrt",
        "exp",
        "compare",
        "complex_abs",
        "polar",
        "dropout",
        "softmax",
        "log_softmax",
    ),
    *("relu", "clamp", "leaky_relu", "sigmoid", "log_sigmoid", "tanh", "gelu", "silu", "mish"),
    *("elu", "softplus", "hardswish", "hardsigmoid", "softshrink", "glu", "lstm_cell", "gru_cell"),
}
_NORMALIZATIONS = ("batch_norm", "layer_norm", "group_norm", "rms_norm")
_POOLINGS = ("max_pool", "average_pool")
#: No table counts a bias, whether it is fused into its layer or not.
_FREE = ("view", "data_movement", "embedding", "interpolate_nearest", "bias")
_SPECIAL: dict[str, Formula] = {
    "mean": _average_pool,
    "variance": _variance,
    "norm": _norm,
    "sort": _sort,
    "nms": _nms,
    "fft": _fft,
    "distance": _distance,
    "weight_norm": _weight_norm,
}
#: Arithmetic on complex numbers → weight with a real factor, weight with two complex ones. A
#: quotient multiplies by the conjugate, and divides both parts by its squared absolute value.
_COMPLEX: dict[str, tuple[int, int]] = {
    "mul": (2 * MULTIPLY, 4 * MULTIPLY + 2 * ADD),
    "div": (2 * DIVIDE, 6 * MULTIPLY + 3 * ADD + 2 * DIVIDE),
    "exp": (3 * EXPONENTIAL + 2 * MULTIPLY, 3 * EXPONENTIAL + 2 * MULTIPLY),
}
_COUNTED_ONLY_BY_AIPERF = (*_EXTENSIONS, *_EXTENSIONS_BY_INPUT, *_SPECIAL)


def _complex_parts(kind: str, rule: Rule) -> Rule:
    """Extend a rule to complex numbers: other arithmetic works on both of their parts."""
    weights = _COMPLEX.get(kind)

    def forward(op: Op) -> int:
        factors = op.attributes.get("complex", 0)
        if not factors:
            return rule.forward(op)
        return weights[factors - 1] * op.shapes.elements_out if weights else 2 * rule.forward(op)

    return rule._replace(forward=forward)


def _real_products(op: Op) -> int:
    """Return the real products of one product: 4 of two complex numbers."""
    return {1: 2, 2: 4}.get(op.attributes.get("complex", 0), 1)


def _by_product(*, convolution: int, product: int, scores: int, source: str) -> dict[str, Rule]:
    """Build the rules of multiply-add kinds, the only ones with a counted backward pass."""

    def weigh(macc: Formula, weight: int, row_source: str) -> Rule:
        def count(op: Op) -> int:
            return weight * macc(op) * _real_products(op)

        return Rule(count, row_source, count)

    unlisted = source if source == TORCH else EXTENSION
    return {
        "convolution": weigh(convolution_macc, convolution, source),
        "dense": weigh(product_macc, product, source),
        "matmul": weigh(product_macc, product, unlisted),
        "bilinear": weigh(bilinear_macc, product, unlisted),
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
        **dict.fromkeys(_COUNTED_ONLY_BY_AIPERF, Rule(_nothing, V3_IGNORED)),
        **dict.fromkeys(_FREE, Rule(_nothing, V3_IGNORED)),
        # SPEC [D5]: no factor 2 for the fully connected layer, as printed.
        **_by_product(convolution=2, product=1, scores=1, source=V3),
        **dict.fromkeys(_ELEMENT_WISE, Rule(elements(1), V3)),
        **dict.fromkeys(_POOLINGS, Rule(elements(1), V3)),
        **dict.fromkeys(_NORMALIZATIONS, Rule(elements(1), V3)),
    },
    update=0,
)

_AIPERF_ARITHMETIC: dict[str, Rule] = {
    **{kind: Rule(elements(weight), EXTENSION) for kind, weight in _EXTENSIONS.items()},
    **{kind: Rule(elements_in(weight), EXTENSION) for kind, weight in _EXTENSIONS_BY_INPUT.items()},
    **{kind: Rule(formula, EXTENSION) for kind, formula in _SPECIAL.items()},
    "batch_norm": Rule(elements_in(_NORMALIZATION), AIPERF),
    "relu": Rule(elements(COMPARE), AIPERF),
    "add": Rule(elements(ADD), AIPERF),
    "max_pool": Rule(_max_pool, AIPERF),
    "average_pool": Rule(_average_pool, AIPERF),
    "softmax": Rule(elements(_SOFTMAX), AIPERF),
}

aiperf = Convention(
    name="aiperf",
    rules={
        **dict.fromkeys(_FREE, Rule(_nothing, EXTENSION)),
        **{kind: _complex_parts(kind, rule) for kind, rule in _AIPERF_ARITHMETIC.items()},
        **_by_product(convolution=MACC, product=MACC, scores=_SOFTMAX, source=AIPERF),
    },
    update=MACC,
)

matmul = Convention(
    name="matmul",
    rules={
        **dict.fromkeys(aiperf.rules, Rule(_nothing, TORCH)),
        **_by_product(convolution=2, product=2, scores=0, source=TORCH),
    },
    update=0,
)

CONVENTIONS: dict[str, Convention] = {rule.name: rule for rule in (v3, aiperf, matmul)}
