"""The learnable text: the same bytes everywhere, and a source whose entropy is what it says."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai500.workloads.learnable_text import (
    ANY_WORD,
    FULL_STOP,
    SMOKE,
    SPLITS,
    UNIT,
    WORKSTATION,
    LearnableText,
)

# Computed once; every machine, Python and NumPy must agree.
KNOWN = [
    (SMOKE, "train", "ebd52bee446b1ac97964654d646de3b905d9d53c380bff1f713e011dcd3eb7fb"),
    (SMOKE, "validation", "ca367788f6777031f5da1f37f8618584d77ed33c84ea8b6a4d014081de369331"),
    (WORKSTATION, "train", "345bace7be1129c839f6256897dba0b25bd5e5ce15c6249f73a47d6e8885fee9"),
    (WORKSTATION, "validation", "11abf12250ffcff9696de266809f3e3d5e24ebe540b713427ee9054df0ffda3f"),
]
TINY = LearnableText(seed=5, words=4, topics=2, followers=2, length=8, train=64, validation=8)


@pytest.mark.parametrize(("source", "split", "known"), KNOWN)
def test_the_first_texts_have_their_known_hash(
    source: LearnableText, split: str, known: str
) -> None:
    assert hashlib.sha256(source.tokens(split, 0, 64).tobytes()).hexdigest() == known


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SPLITS), st.lists(st.integers(0, 300), min_size=2, max_size=5))
def test_any_chunking_gives_the_same_bytes(split: str, cuts: list[int]) -> None:
    cuts = sorted(cuts)
    parts = [SMOKE.draw(split, first, last) for first, last in itertools.pairwise(cuts)]
    whole = SMOKE.draw(split, cuts[0], cuts[-1])
    for name, values in whole.items():
        assert np.array_equal(values, np.concatenate([part[name] for part in parts]))


@pytest.mark.parametrize("source", [SMOKE, WORKSTATION])
def test_samples_have_the_declared_fields(source: LearnableText) -> None:
    drawn = source.draw("train", 0, 5)
    for field in source.fields:
        assert drawn[field.name].dtype == np.dtype(field.dtype)
        assert drawn[field.name].shape == (5, *field.shape)
    assert (drawn["bytes"] == source.length - 1).all()


@pytest.mark.parametrize("source", [SMOKE, WORKSTATION])
def test_texts_are_words_of_the_lexicon(source: LearnableText) -> None:
    assert len(set(source.lexicon)) == source.words
    words = {word.strip() for word in source.lexicon}
    for text in source.tokens("train", 0, 20):
        whole = text.tobytes().split()[:-1]  # the last word may be cut
        assert set(whole) <= words


def test_other_samples_splits_and_seeds_are_other_texts() -> None:
    texts = [
        *SMOKE.tokens("train", 0, 2),
        *SMOKE.tokens("validation", 0, 2),
        *replace(SMOKE, seed=9).tokens("train", 0, 2),
    ]
    assert len({text.tobytes() for text in texts}) == 6


@pytest.mark.parametrize("source", [TINY, SMOKE, WORKSTATION])
def test_transitions_are_probabilities(source: LearnableText) -> None:
    assert (source.transitions.sum(axis=2) == UNIT).all()
    assert source.transitions.min() > 0
    # The largest preference alone is more than a third of what is not ANY_WORD.
    assert (source.transitions.max(axis=2) > (UNIT - ANY_WORD) // 3).all()


def test_followers_are_as_frequent_as_their_probabilities() -> None:
    """A chi-squared test of the first words of 20,000 texts, over both topics."""
    texts = SMOKE.tokens("train", 0, 20_000)
    first = [text.tobytes().split(b" ")[0].split(b"\n")[0] for text in texts]
    expected = SMOKE.transitions[:, FULL_STOP].mean(axis=0) / UNIT * len(texts)
    names = [word.strip() for word in SMOKE.lexicon]
    counts = np.array([first.count(name) for name in names])
    assert counts.sum() == len(texts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    degrees = SMOKE.words - 1
    assert abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)


def test_the_probabilities_of_all_texts_add_up_to_one() -> None:
    """Over every beginning of four bytes that the tiny source can write."""
    beginnings = {text.tobytes()[:4] for text in TINY.tokens("train", 0, 4_000)}
    assert math.isclose(sum(2 ** -TINY._bits(text) for text in beginnings), 1.0, abs_tol=1e-9)


def test_the_bits_of_a_text_are_those_of_its_words() -> None:
    """Computed by hand: two whole words and the beginning of a third, in each topic."""
    first, second = TINY.lexicon[1], TINY.lexicon[2]
    text = first + second + b"."
    chances = TINY.transitions / UNIT
    by_topic = chances[:, 0, 1] * chances[:, 1, 2] * chances[:, 2, 0]
    assert math.isclose(TINY._bits(text), -math.log2(by_topic.mean()))


@pytest.mark.parametrize("source", [SMOKE, WORKSTATION])
def test_long_texts_have_the_entropy_rate(source: LearnableText) -> None:
    """The source's own bits of texts of 8,193 bytes, whose topic is soon known."""
    long_texts = replace(source, length=8_193)
    measured = long_texts.bits_per_byte(long_texts.tokens("train", 0, 12))
    assert math.isclose(measured, source.entropy_rate(), rel_tol=0.02)


def test_a_wrong_topic_costs_bits() -> None:
    """The hidden topic is worth knowing: its words are rarer in the other's chain."""
    texts = SMOKE.tokens("train", 0, 50)
    blind = replace(SMOKE)
    mixed = SMOKE.transitions.mean(axis=0, keepdims=True).repeat(2, axis=0)
    object.__setattr__(blind, "__dict__", {**blind.__dict__, "transitions": mixed})
    assert blind.bits_per_byte(texts) > SMOKE.bits_per_byte(texts) + 0.05
