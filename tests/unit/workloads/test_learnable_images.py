"""The learnable images: the same bytes everywhere, balanced, and not to be had by a linear look."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.workloads.learnable_images import OUTLINES, PATTERNS, SMOKE, SPLITS, WORKSTATION

# Computed once; every machine, Python and NumPy must agree.
KNOWN = [
    (SMOKE, "train", 64, "72c39c33c1cca3d736344eb77366388291c26a44f663f4ae3e87bd222ff1a0d4"),
    (SMOKE, "validation", 64, "6c205686f7f18f8ef1d07e74b40921b18b1e11271e1f4ab2bea9c03fe928a66a"),
    (WORKSTATION, "train", 4, "87933f5fb0093b0ba4ba9b35169950efe0dd83c9c63de94e63a8aee54c2329c7"),
    (
        WORKSTATION,
        "validation",
        4,
        "d0ab9623fc41f599102502aff140c7541ee7efaadaffb5e932f1177718b2cc82",
    ),
]


def digest(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    return hashlib.sha256(images.tobytes() + labels.astype("<i8").tobytes()).hexdigest()


@pytest.mark.parametrize(("generator", "split", "count", "known"), KNOWN)
def test_the_first_images_have_their_known_hash(generator, split, count, known):
    assert digest(**generator.draw(split, 0, count)) == known


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SPLITS), st.lists(st.integers(0, 300), min_size=2, max_size=5))
def test_any_chunking_gives_the_same_bytes(split, cuts):
    cuts = sorted(cuts)
    images, labels = SMOKE.draw(split, cuts[0], cuts[-1]).values()
    parts = [SMOKE.draw(split, a, b) for a, b in itertools.pairwise(cuts)]
    assert digest(images, labels) == digest(
        np.concatenate([part["images"] for part in parts]),
        np.concatenate([part["labels"] for part in parts]),
    )


@pytest.mark.parametrize("generator", [SMOKE, WORKSTATION])
def test_shapes_types_and_values(generator):
    images, labels = generator.draw("train", 0, 6).values()
    assert images.shape == (6, generator.height, generator.width, 3)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert images.min() < 16
    assert images.max() > 239
    assert 60 < images.mean() < 190


def test_an_empty_range_is_empty():
    images, labels = SMOKE.draw("train", 7, 7).values()
    assert images.shape == (0, SMOKE.height, SMOKE.width, 3)
    assert labels.shape == (0,)


@pytest.mark.parametrize("generator", [SMOKE, WORKSTATION])
@pytest.mark.parametrize("split", SPLITS)
def test_classes_are_balanced(generator, split):
    labels = generator.labels(split, 0, generator.count(split))
    occurrences = np.bincount(labels, minlength=generator.classes)
    assert len(occurrences) == generator.classes
    assert occurrences.max() - occurrences.min() <= 1


def test_labels_are_not_the_position_in_the_set():
    labels = SMOKE.labels("train", 0, SMOKE.train)
    index = np.arange(SMOKE.train)
    for period in range(1, 3 * SMOKE.classes):
        guess = (labels[index % period]) == labels
        assert guess.mean() < 0.2


def test_splits_seeds_and_images_differ():
    train = SMOKE.draw("train", 0, 200)["images"]
    validation = SMOKE.draw("validation", 0, 200)["images"]
    other = dataclasses.replace(SMOKE, seed=SMOKE.seed + 1).draw("train", 0, 200)["images"]
    every = np.concatenate([train, validation, other]).reshape(600, -1)
    assert len(np.unique(every, axis=0)) == 600


def nearest_mean_accuracy(
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    other_features: NDArray[np.float64],
    other_labels: NDArray[np.int64],
) -> float:
    means = np.stack([features[labels == label].mean(axis=0) for label in range(SMOKE.classes)])
    distance = ((other_features[:, None, :] - means[None]) ** 2).sum(axis=2)
    return float((distance.argmin(axis=1) == other_labels).mean())


def trivial_features(images: NDArray[np.uint8]) -> dict[str, NDArray[np.float64]]:
    pixels = images.astype(np.float64)
    histogram = np.stack(
        [np.bincount(image.ravel() // 16, minlength=16) for image in images]
    ).astype(np.float64)
    return {
        "mean colour": pixels.mean(axis=(1, 2)),
        "spread of colour": pixels.std(axis=(1, 2)),
        "histogram": histogram,
        "pixels": pixels.reshape(len(images), -1),
    }


def test_trivial_statistics_do_not_give_the_label():
    """One base model of class `smoke` reaches some 0.8; a nearest mean stays near 1 / classes."""
    train, labels = SMOKE.draw("train", 0, SMOKE.train).values()
    validation, other_labels = SMOKE.draw("validation", 0, SMOKE.validation).values()
    seen, unseen = trivial_features(train), trivial_features(validation)
    for name in seen:
        accuracy = nearest_mean_accuracy(seen[name], labels, unseen[name], other_labels)
        assert accuracy < 0.15, f"{name} gives the label of {accuracy:.0%}"


def disagreement(masks: list[NDArray[np.bool_]]) -> float:
    """The least share of pixels in which two masks differ."""
    shares = [(mask != other).mean() for i, mask in enumerate(masks) for other in masks[i + 1 :]]
    return float(min(shares))


def test_outlines_are_distinct_and_keep_their_label_when_mirrored():
    v, u = np.mgrid[-64:65, -64:65].astype(np.int32)
    masks = [inside(u, v) for _, inside in OUTLINES]
    assert disagreement(masks) > 0.04
    for mask in masks:
        assert np.array_equal(mask, mask[:, ::-1])
        assert 0.2 < mask.mean() < 0.75
    assert WORKSTATION.outlines <= len(OUTLINES)
    assert WORKSTATION.patterns <= len(PATTERNS)


@pytest.mark.parametrize(
    ("split", "first", "last"),
    [("train", -1, 1), ("train", 3, 2), ("validation", 0, SMOKE.validation + 1)],
)
def test_samples_that_do_not_exist_are_refused(split, first, last):
    with pytest.raises(DataError) as raised:
        SMOKE.draw(split, first, last)
    assert (raised.value.key, raised.value.value) == (split, (first, last))


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(DataError) as raised:
        SMOKE.draw("test", 0, 1)
    assert (raised.value.key, raised.value.value) == ("split", "test")


@pytest.mark.parametrize("block", [1, 5, 1000])
def test_the_block_painted_at_once_does_not_matter(monkeypatch, block):
    expected = digest(**SMOKE.draw("train", 0, 40))
    monkeypatch.setattr(
        "ai500.workloads.learnable_images.PIXELS_PER_BLOCK", block * SMOKE.height * SMOKE.width
    )
    assert digest(**SMOKE.draw("train", 0, 40)) == expected
