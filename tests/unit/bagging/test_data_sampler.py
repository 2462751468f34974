"""The bootstraps: the same on every machine, and their manifests tell when they are damaged."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.bagging import data_sampler
from ai500.bagging.data_sampler import BOOTSTRAPS
from ai500.core.errors import DataError
from ai500.data import bootstrap
from ai500.data.bootstrap import (
    epoch_order,
    expected_counts,
    load_bootstrap,
    out_of_bag_candidates,
    out_of_bag_indices,
    save_bootstrap,
)

IMAGENET = 1_281_167

KNOWN = {
    ("bootstrap", 10): "129347b54cf64466e2bc8aa35e1c11b663e435fec3c85446ab092c4a6b110a4f",
    ("bootstrap", IMAGENET): "ebd5b598b65b6cbb609c693330559b82605caab142f1289e0554af32c58fd1ea",
    ("poisson", 10): "4a78639862dd1620922df47c4cc2a2ef7ab541760e6416266943ab58fd7c5ad0",
    ("poisson", IMAGENET): "f1289bd2c6302797f785bc496208f262e868d02db47eedb3c24144a9b629b493",
}


@pytest.mark.parametrize(("name", "samples"), KNOWN)
def test_known_answer(name: str, samples: int) -> None:
    counts = BOOTSTRAPS[name].draw(samples, seed=2023, member=7)
    assert hashlib.sha256(counts.tobytes()).hexdigest() == KNOWN[name, samples]


def test_known_answer_of_a_wide_seed() -> None:
    counts = BOOTSTRAPS["bootstrap"].draw(12, seed=2**64 - 1, member=2**32 - 1)
    assert counts.tolist() == [0, 0, 1, 1, 2, 0, 1, 1, 0, 2, 1, 3]


def test_known_answer_of_the_order() -> None:
    counts = BOOTSTRAPS["bootstrap"].draw(IMAGENET, seed=2023, member=7)
    order = epoch_order(counts, seed=2023, member=7, epoch=3)
    sha256 = hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()
    assert sha256 == "df3d9d3b58e65cee7f6e059c833fe809c189a7c09e47e583d33eae0615571748"


def test_bootstrap_draws_as_often_as_there_are_samples() -> None:
    for samples in (1, 2, 255, 256, 65_536, 65_537, 200_000):
        counts = BOOTSTRAPS["bootstrap"].draw(samples, seed=1, member=0)
        assert counts.dtype == np.uint8
        assert counts.size == counts.sum(dtype=np.int64) == samples


@pytest.mark.parametrize("name", BOOTSTRAPS)
def test_another_seed_or_member_is_another_bootstrap(name: str) -> None:
    drawn = {
        BOOTSTRAPS[name].draw(1000, seed=seed, member=member).tobytes()
        for seed in (0, 1, 2**32, 2**32 + 1)
        for member in range(4)
    }
    assert len(drawn) == 16


def test_no_two_lists_of_numbers_share_a_stream() -> None:
    # SeedSequence alone takes [2^32, 5] for [0, 1, 5] and [1, 0] for [1].
    words = {
        tuple(bootstrap.random_words(s, seed=seed, member=m, epoch=e).random_raw(2).tolist())
        for s in (1, 2, 3)
        for seed in (0, 1, 2**32, 2**32 + 1)
        for m in (0, 1, 2)
        for e in (0, 1)
    }
    assert len(words) == 3 * 4 * 3 * 2


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1))
def test_scaling_is_exact(word: int, below: int) -> None:
    scaled = data_sampler._scaled(np.array([word], dtype=np.uint64), below=below)
    assert scaled.tolist() == [word * below >> 64]


def test_poisson_thresholds_are_exact() -> None:
    # e^−1 between two partial sums of its series, which is far finer than a 64-bit word.
    terms = [Fraction((-1) ** k, math.factorial(k)) for k in range(60)]
    low, high = sorted((sum(terms, Fraction(0)), sum(terms[:-1], Fraction(0))))
    assert high - low < Fraction(1, 2**200)
    below = Fraction(0)
    thresholds = data_sampler._poisson_thresholds().tolist()
    for k, threshold in enumerate(thresholds):
        below += low / math.factorial(k)
        assert threshold == math.floor(below * 2**64)
    assert thresholds[-1] == 2**64 - 1


@pytest.mark.parametrize("name", BOOTSTRAPS)
def test_counts_follow_poisson_one(name: str) -> None:
    counts = BOOTSTRAPS[name].draw(IMAGENET, seed=5, member=3)
    for k in range(6):
        expected = math.exp(-1) / math.factorial(k)
        deviation = math.sqrt(expected * (1 - expected) / IMAGENET)
        assert abs(np.mean(counts == k) - expected) < 5 * deviation


def test_members_are_independent() -> None:
    drawn = [BOOTSTRAPS["bootstrap"].draw(100_000, seed=5, member=m).astype(float) for m in (0, 1)]
    correlation = np.mean((drawn[0] - 1) * (drawn[1] - 1))
    assert abs(correlation) < 5 / math.sqrt(100_000)


def test_an_epoch_has_each_sample_as_often_as_drawn() -> None:
    counts = BOOTSTRAPS["bootstrap"].draw(5000, seed=5, member=3)
    orders = [epoch_order(counts, seed=5, member=3, epoch=epoch) for epoch in (0, 1)]
    for order in orders:
        assert np.array_equal(np.bincount(order, minlength=5000), counts)
    assert not np.array_equal(orders[0], orders[1])
    assert np.array_equal(orders[0], epoch_order(counts, seed=5, member=3, epoch=0))
    # A shuffle has no trend: the mean place of the first half of the samples is the middle.
    assert abs(np.mean(np.flatnonzero(orders[0] < 2500)) - 2500) < 150


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", -1), ("seed", 2**64), ("member", 2**32), ("samples", 0), ("samples", 2**32)],
)
@pytest.mark.parametrize("name", BOOTSTRAPS)
def test_impossible_numbers(name: str, key: str, value: int) -> None:
    arguments = {"samples": 10, "seed": 1, "member": 0, key: value}
    with pytest.raises(DataError) as raised:
        BOOTSTRAPS[name].draw(
            arguments["samples"], seed=arguments["seed"], member=arguments["member"]
        )
    assert (raised.value.key, raised.value.value) == (key, value)


def test_an_empty_poisson_bootstrap_is_an_error() -> None:
    outcomes = set()
    for member in range(20):
        try:
            outcomes.add(bool(BOOTSTRAPS["poisson"].draw(1, seed=1, member=member).any()))
        except DataError as error:
            outcomes.add((error.key, error.value) == ("samples", 1))
    assert outcomes == {True}
    with pytest.raises(DataError) as raised:
        [BOOTSTRAPS["poisson"].draw(1, seed=1, member=member) for member in range(20)]
    assert (raised.value.key, raised.value.value) == ("samples", 1)


@pytest.mark.parametrize("samples", [1, 2, 3, 1000, IMAGENET])
def test_a_manifest_comes_back(tmp_path: Path, samples: int) -> None:
    counts = BOOTSTRAPS["bootstrap"].draw(samples, seed=5, member=3)
    saved = save_bootstrap(tmp_path / "b", counts, algorithm="bootstrap", seed=5, member=3)
    header, loaded = load_bootstrap(tmp_path / "b")
    assert header == saved
    assert (header.samples, header.drawn) == (samples, samples)
    assert header.distinct == np.count_nonzero(counts)
    assert np.array_equal(loaded, counts)


def test_a_manifest_takes_less_than_two_bits_a_sample(tmp_path: Path) -> None:
    counts = BOOTSTRAPS["poisson"].draw(IMAGENET, seed=5, member=3)
    save_bootstrap(tmp_path / "b", counts, algorithm="poisson", seed=5, member=3)
    assert (tmp_path / "b").stat().st_size * 8 < 1.91 * IMAGENET


@given(st.lists(st.integers(0, 255), min_size=1, max_size=50))
def test_any_counts_come_back(tmp_path_factory: pytest.TempPathFactory, values: list[int]) -> None:
    file = tmp_path_factory.mktemp("any") / "b"
    counts = np.array(values, dtype=np.uint8)
    save_bootstrap(file, counts, algorithm="other", seed=0, member=0)
    assert load_bootstrap(file)[1].tolist() == values


@pytest.mark.parametrize("counts", [np.ones(3, dtype=np.int64), np.ones((3, 2), dtype=np.uint8)])
def test_counts_of_another_kind_are_refused(tmp_path: Path, counts: Any) -> None:
    with pytest.raises(DataError) as raised:
        save_bootstrap(tmp_path / "b", counts, algorithm="b", seed=0, member=0)
    assert (raised.value.key, raised.value.value) == ("counts", str(counts.dtype))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "largest"), [("seed", 2**64 - 1), ("member", 2**32 - 1), ("epoch", 2**32 - 1)]
)
def test_numbers_of_a_stream_have_bounds(key: str, largest: int) -> None:
    numbers = {"seed": 1, "member": 0, "epoch": 0}
    for value in (0, largest):
        assert bootstrap.random_words(1, **numbers | {key: value})
    for value in (-1, largest + 1):
        with pytest.raises(DataError) as raised:
            bootstrap.random_words(1, **numbers | {key: value})
        assert (raised.value.key, raised.value.value) == (key, value)


def test_every_damaged_byte_is_caught_and_named(tmp_path: Path) -> None:
    file = tmp_path / "member-003.bootstrap"
    counts = BOOTSTRAPS["bootstrap"].draw(300, seed=5, member=3)
    save_bootstrap(file, counts, algorithm="bootstrap", seed=5, member=3)
    data = file.read_bytes()
    head = data.index(b"\n", len(bootstrap.MAGIC)) + 1
    for place in range(head, len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DataError) as raised:
            load_bootstrap(file)
        assert (raised.value.key, raised.value.path) == ("sha256", file)
    for place in range(len(data)):
        file.write_bytes(data[:place])
        with pytest.raises(DataError) as raised:
            load_bootstrap(file)
        assert raised.value.path == file


@pytest.mark.parametrize("key", ["samples", "drawn", "distinct", "bits_per_count", "sha256"])
def test_a_wrong_header_is_caught_and_both_hashes_named(tmp_path: Path, key: str) -> None:
    file = tmp_path / "b"
    counts = BOOTSTRAPS["bootstrap"].draw(300, seed=5, member=3)
    saved = save_bootstrap(file, counts, algorithm="bootstrap", seed=5, member=3)
    magic, line, payload = file.read_bytes().split(b"\n", 2)
    header = json.loads(line)
    header[key] = "0" * 64 if key == "sha256" else header[key] + 1
    file.write_bytes(b"\n".join((magic, json.dumps(header).encode(), payload)))
    with pytest.raises(DataError) as raised:
        load_bootstrap(file)
    assert (raised.value.key, raised.value.path) == ("sha256", file)
    if key == "sha256":
        assert raised.value.value == saved.sha256


def test_another_valid_bootstrap_in_its_place_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    drawn = [BOOTSTRAPS["bootstrap"].draw(300, seed=5, member=member) for member in (0, 1)]
    digests = [
        save_bootstrap(file, counts, algorithm="bootstrap", seed=5, member=member).sha256
        for member, (file, counts) in enumerate(zip(files, drawn, strict=True))
    ]
    for file, counts, sha256 in zip(files, drawn, digests, strict=True):
        assert np.array_equal(expected_counts(file, sha256=sha256), counts)
        assert np.array_equal(expected_counts(file, sha256=None), counts)
    with pytest.raises(DataError) as raised:
        expected_counts(files[1], sha256=digests[0])
    assert raised.value.path == files[1]


def test_a_missing_manifest(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        load_bootstrap(tmp_path / "b")
    assert raised.value.path == tmp_path / "b"


def test_out_of_bag_candidates_are_all_or_evenly_spaced() -> None:
    """At the limit all; above it exactly `limit`, the first included, none twice."""
    assert out_of_bag_candidates(6, limit=6).tolist() == [0, 1, 2, 3, 4, 5]
    assert out_of_bag_candidates(7, limit=6).tolist() == [0, 1, 2, 3, 4, 5]
    assert out_of_bag_candidates(10, limit=4).tolist() == [0, 2, 5, 7]
    counts = np.array([0, 0, 1, 0, 0, 0, 0, 2, 0, 0], dtype=np.uint8)
    assert out_of_bag_indices(counts, limit=4).tolist() == [0, 5]
    assert out_of_bag_indices(counts, limit=10).tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
