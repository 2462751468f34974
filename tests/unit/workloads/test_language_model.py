"""The language model: model, quality, ensemble, operations and the plan, against hand formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ai500.config import Config
from ai500.core.errors import ConfigError
from ai500.operations import count
from ai500.parallel.model_parallelism import inside_member
from ai500.workloads.language_model import CLASSES, WORKLOAD
from ai500.workloads.learnable_text import SMOKE
from ai500.workloads.member_predictions import ArrayPredictions
from ai500.workloads.models import transformer
from ai500.workloads.models.compiled import use_compiler
from ai500.workloads.models.transformer import Transformer
from ai500.workloads.models.transformer_plan import SHAPES, TransformerShape, transformer_plan
from ai500.workloads.text_illustrations import illustrations, source_bits

SHAPE = TransformerShape(vocabulary=64, context=16, width=32, heads=4, layers=2)


def model(shape: TransformerShape = SHAPE) -> Transformer:
    torch.manual_seed(1)
    return Transformer(shape)


def tokens(samples: int = 3) -> torch.Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randint(SHAPE.vocabulary, (samples, SHAPE.context + 1), generator=draw)


@pytest.mark.parametrize(("name", "parameters"), [("smoke", 124_672), ("full", 124_475_904)])
def test_classes_have_gpt2s_number_of_parameters(name: str, parameters: int) -> None:
    shape = SHAPES[name]
    width, block = shape.width, 12 * shape.width**2 + 13 * shape.width
    by_hand = (shape.vocabulary + shape.context + 2) * width + shape.layers * block
    with torch.device("meta"):
        built = WORKLOAD.model(CLASSES[name])
    assert sum(parameter.numel() for parameter in built.parameters()) == by_hand == parameters


def test_inputs_of_a_class_fit_its_model() -> None:
    for name, problem_class in CLASSES.items():
        field = problem_class.fields[0]
        assert problem_class.input_shape == field.shape == (SHAPES[name].context + 1,)
        assert field.limits is not None
        assert field.limits[1] < SHAPES[name].vocabulary


def test_scores_are_log_probabilities_of_the_next_token() -> None:
    """Over all possible next tokens the probabilities add up to one."""
    text = tokens(1)[:, :9].repeat(SHAPE.vocabulary, 1)
    text[:, 8] = torch.arange(SHAPE.vocabulary)
    scores = model()(text)
    assert scores.shape == (SHAPE.vocabulary, 8)
    assert scores[:, 7].detach().exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def test_a_score_does_not_depend_on_later_tokens() -> None:
    text = tokens()
    changed = text.clone()
    changed[:, 9] = (changed[:, 9] + 1) % SHAPE.vocabulary
    scores, changed_scores = model()(text), model()(changed)
    torch.testing.assert_close(scores[:, :8], changed_scores[:, :8], rtol=0, atol=1e-6)
    assert (scores[:, 8:] - changed_scores[:, 8:]).abs().max() > 1e-3


def test_an_untrained_model_knows_nothing() -> None:
    loss = WORKLOAD.loss(model()(tokens()), tokens(), hyperparameters=CLASSES["smoke"].reference)
    assert loss.detach().item() == pytest.approx(math.log(SHAPE.vocabulary), rel=0.05)


def test_evaluation_in_parts_gives_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    built = model()
    expected = built(tokens(5))
    monkeypatch.setattr(transformer, "EVALUATED_LOGITS", 2 * SHAPE.context * SHAPE.vocabulary)
    with torch.no_grad():
        torch.testing.assert_close(built.eval()(tokens(5)), expected, rtol=1e-5, atol=1e-5)


def test_branches_start_smaller_than_other_layers() -> None:
    weights = model(replace(SHAPE, width=256, layers=8)).state_dict()
    assert float(weights["blocks.3.feed_forward.up.weight"].std()) == pytest.approx(0.02, rel=0.05)
    assert float(weights["blocks.3.attention.out.weight"].std()) == pytest.approx(0.005, rel=0.05)
    assert not weights["blocks.3.attention.qkv.bias"].any()


def test_on_a_cpu_nothing_is_compiled() -> None:
    assert use_compiler(model(), precision="fp32", device=torch.device("cpu")) is None


@pytest.mark.parametrize("batch", [1, 3])
def test_products_are_six_per_weight_and_token_and_attention(batch: int) -> None:
    """6·N per token, of which N is the weights of products, and 12·L·T·d for attention."""
    weights = 12 * SHAPE.layers * SHAPE.width**2 + SHAPE.vocabulary * SHAPE.width
    attention = 12 * SHAPE.layers * SHAPE.context * SHAPE.width
    counted = count(model(), tokens(batch), convention="matmul")
    assert counted.total == batch * SHAPE.context * (6 * weights + attention)
    assert not counted.unknown


def test_other_operations_are_counted_as_documented() -> None:
    """Per token, by `docs/operations.md`: embedding 0, LayerNorm 7, GELU 12, softmax 13,
    log-softmax 10; additions of positions, two branches and the causal mask; negation 1."""
    counted = count(model(), tokens(1), convention="aiperf")
    length, width, layers = SHAPE.context, SHAPE.width, SHAPE.layers
    scores = SHAPE.heads * length  # per token and layer
    expected = {
        "embedding": 0,
        "layer_norm": 7 * width * (2 * layers + 1),
        "gelu": 12 * 4 * width * layers,
        "softmax": 13 * scores * layers,
        "log_softmax": 10 * SHAPE.vocabulary,
        "mul": 2 * width * layers,  # attention scales queries and keys
        "add": width + 2 * width * layers + scores * layers,
        "compare": 1,
    }
    assert {kind: counted.by_kind[kind].forward for kind in expected} == {
        kind: length * operations for kind, operations in expected.items()
    }
    updated = 12 * width**2 + 9 * width  # a block's weights and biases of dense layers
    assert counted.update == 2 * (SHAPE.vocabulary * width + layers * updated)


def test_heads_stay_whole() -> None:
    """12 heads can't be divided by 8, though 768 and 2,304 channels could."""
    config = Config(workload="language_model", problem_class="full")
    config = replace(config, parallel=replace(config.parallel, mode="tensor"))
    plan = transformer_plan(SHAPES["full"])
    with pytest.raises(ConfigError) as raised:
        inside_member(config, degree=8, plan=plan, batch_size=8)
    assert raised.value.value == 8
    assert inside_member(config, degree=6, plan=plan, batch_size=8).tensor_degree == 6


def test_quality_is_bits_per_byte() -> None:
    """One sample of 4 tokens with 10 bytes, one of 4 with 6: 2 + 3 + 0 + 1, and 4 · 2 bits."""
    predictions = np.array([[1 / 4, 1 / 8, 1, 1 / 2], [1 / 4] * 4], np.float32)
    assert WORKLOAD.quality(predictions, {"bytes": np.array([10, 6])}) == (6 + 8) / 16


def test_an_impossible_token_costs_bits_but_not_everything() -> None:
    quality = WORKLOAD.quality(np.zeros((1, 1), np.float32), {"bytes": np.array([1])})
    assert quality == 126


def test_probabilities_are_averaged_over_the_voters() -> None:
    members = np.array([[[0.5, 0.1]], [[0.25, 0.3]], [[0.9, 0.9]]], np.float32)
    voters = np.array([[True], [True], [False]])
    np.testing.assert_allclose(
        WORKLOAD.combine(ArrayPredictions(members, voters)), [[0.375, 0.2]], rtol=1e-6
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_an_ensemble_is_never_worse_than_its_members_mean(members: int, seed: int) -> None:
    """Jensen: −log of a mean is at most the mean of −log."""
    draw = np.random.default_rng(seed)
    predictions = draw.uniform(1e-6, 1, (members, 4, 8)).astype(np.float32)
    targets = {"bytes": np.full(4, 8)}
    ensemble = WORKLOAD.combine(ArrayPredictions(predictions))
    alone = [WORKLOAD.quality(rows, targets) for rows in predictions]
    assert WORKLOAD.quality(ensemble, targets) <= np.mean(alone) + 1e-9


def test_predictions_are_probabilities_of_the_true_tokens() -> None:
    stored = {"tokens": tokens().to(torch.uint8), "bytes": torch.full((3,), 16)}
    inputs, targets = WORKLOAD.train_inputs(CLASSES["smoke"], stored, torch.empty(3, 0))
    assert torch.equal(inputs, tokens())
    assert torch.equal(targets, tokens())
    outputs = WORKLOAD.forward(model(), inputs, targets)
    predictions = WORKLOAD.predictions(outputs, stored)
    assert predictions.shape == (3, SHAPE.context)
    assert predictions.dtype == torch.float32
    torch.testing.assert_close(predictions, outputs.exp())


class Texts:
    """The first validation texts as a split of a store."""

    def __init__(self, count: int) -> None:
        self.count, self.fields = count, SMOKE.fields

    def rows(self, indices: np.ndarray, **_: object) -> dict[str, np.ndarray]:
        drawn = SMOKE.draw("validation", 0, self.count)
        return {name: values[indices] for name, values in drawn.items()}


@pytest.mark.parametrize("texts", [8, SMOKE.validation])
def test_the_report_shows_texts_members_and_the_optimum(texts: int) -> None:
    draw = np.random.default_rng(3)
    predictions = {member: draw.uniform(0.1, 1, (texts, 128)) for member in (0, 2)}
    ensemble = WORKLOAD.combine(ArrayPredictions(list(predictions.values())))
    samples: Any = Texts(texts)
    drawn = illustrations(WORKLOAD, predictions, ensemble=ensemble, samples=samples)
    record = drawn.illustrations
    assert {picture.file for picture in record.pictures} | {"bits.png"} == set(drawn.images)
    assert all(image.startswith(b"\x89PNG") for image in drawn.images.values())
    targets = Texts(texts).rows(np.arange(texts))
    names = [row[0] for row in record.rows]
    assert names[:4] == ["ensemble", "members' mean", "member 0", "member 2"]
    assert float(record.rows[2][1]) == pytest.approx(
        WORKLOAD.quality(predictions[0], targets), abs=1e-4
    )
    whole = texts == SMOKE.validation  # then the texts are known as the class's own
    assert len(record.rows) == 4 + whole
    if whole:
        assert float(record.rows[4][1]) == pytest.approx(0.8172, abs=1e-4)
        assert source_bits(targets["tokens"][:, ::-1]) is None
