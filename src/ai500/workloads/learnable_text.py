"""The learnable text of classes `smoke` and `workstation`: the same bytes on every machine.

A sample has a hidden topic. Its words are a Markov chain: in each topic every word has preferred
followers, and sometimes any word follows. Words end with a space, so that bytes give the words and
the source's own probability of a text is known exactly: `bits_per_byte` is the least that any model
can expect on these samples, `entropy_rate` its limit for long texts.

Integer arithmetic only. Every number is a hash of (seed, split, sample, slot), so a sample depends
neither on its neighbours nor on the platform's random numbers, mathematical library or rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ai500.core.randomness import mix
from ai500.data.generated import Generated
from ai500.data.store import Arrays
from ai500.records import Field

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]
Tokens = NDArray[np.uint8]

SPLITS = ("train", "validation")
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
UNIT = 1 << 16  # probabilities are integers over this
ANY_WORD = UNIT // 4  # probability that any word follows, by its frequency
FULL_STOP = 0  # index of the word that ends a sentence; every sample begins after one
_FREQUENCY = 1 << 20  # frequency of a word is this over its rank


def _hash(keys: Words, slot: int) -> Words:
    """Hash each key with a slot."""
    return mix(keys + np.array([slot + 1], np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def _below(words: Words, size: int) -> Integers:
    """Map hashes to the integers from 0 to size − 1."""
    return (((words >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)).astype(np.int64)


def token_fields(length: int, dtype: str, *, tokens: int) -> tuple[Field, ...]:
    """Return the fields of a sequence: its tokens, and the bytes of text of all but the first."""
    return (
        Field("tokens", "input", dtype, (length,), limits=(0, tokens - 1)),
        Field("bytes", "target", "int32", (), limits=(1, 2**31 - 1)),
    )


@dataclass(frozen=True)
class LearnableText(Generated):
    """A source of texts of `length` bytes."""

    seed: int
    words: int
    """Words of the lexicon, the full stop included."""
    topics: int
    followers: int
    """Preferred followers of each word in each topic."""
    length: int
    """Bytes of a sample: a model reads all but the last and predicts all but the first."""
    train: int
    validation: int

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the fields of bytes as tokens."""
        return token_fields(self.length, "uint8", tokens=256)

    def draw(self, split: str, first: int, last: int) -> Arrays:
        """Return samples `first` to `last` − 1 of a split."""
        return {
            "tokens": self.tokens(split, first, last),
            "bytes": np.full(last - first, self.length - 1, np.int32),
        }

    def tokens(self, split: str, first: int, last: int) -> Tokens:
        """Return samples `first` to `last` − 1 of a split, a row of bytes each."""
        keys = _hash(np.arange(first, last, dtype=np.uint64), self._stream(1 + SPLITS.index(split)))
        topics = _below(_hash(keys, 0), self.topics)
        texts = np.zeros((len(keys), self.length), np.uint8)
        filled = np.zeros(len(keys), np.int64)
        previous = np.full(len(keys), FULL_STOP)
        flat, longest = self._cumulative.ravel(), self._spelling.shape[1]
        step = 0
        while len(filled) and filled.min() < self.length:
            step += 1
            row = topics * self.words + previous
            draws = (_hash(keys, step) >> np.uint64(48)).astype(np.int64)
            previous = np.searchsorted(flat, row * UNIT + draws, side="right") - row * self.words
            for place in range(longest):
                rows = np.flatnonzero(
                    (place < self._lengths[previous]) & (filled + place < self.length)
                )
                texts[rows, filled[rows] + place] = self._spelling[previous[rows], place]
            filled += self._lengths[previous]
        return texts

    @cached_property
    def lexicon(self) -> tuple[bytes, ...]:
        """Distinct words of one to three syllables, frequent ones shorter, ended by a space."""
        words = [b".\n"]
        attempt = 0
        while len(words) < self.words:
            rank = len(words)
            syllables = 1 + (rank > self.words // 8) + (rank > self.words // 2)
            key = np.array([attempt], np.uint64)
            letters = [int(_hash(key, self._stream(3) + slot)[0]) >> 33 for slot in range(6)]
            word = "".join(
                CONSONANTS[letters[2 * place] % len(CONSONANTS)]
                + VOWELS[letters[2 * place + 1] % len(VOWELS)]
                for place in range(syllables)
            )
            attempt += 1
            if (spelled := f"{word} ".encode()) not in words:
                words.append(spelled)
        return tuple(words)

    @cached_property
    def transitions(self) -> Integers:
        """Probability of each follower of each word in each topic, times UNIT."""
        frequency = _FREQUENCY // np.arange(2, self.words + 2)
        anything = ANY_WORD * frequency // frequency.sum()
        anything[FULL_STOP] += ANY_WORD - anything.sum()
        popular = np.cumsum(frequency)
        rows = np.arange(self.topics * self.words, dtype=np.uint64)
        weights = _FREQUENCY // np.arange(1, self.followers + 1)
        preferred = (UNIT - ANY_WORD) * weights // weights.sum()
        preferred[0] += UNIT - ANY_WORD - preferred.sum()
        table = np.tile(anything, (len(rows), 1))
        for place, probability in enumerate(preferred):
            drawn = _below(_hash(rows, self._stream(4) + place), int(popular[-1]))
            table[rows.astype(np.int64), np.searchsorted(popular, drawn, side="right")] += (
                probability
            )
        return table.reshape(self.topics, self.words, self.words)

    def entropy_rate(self) -> float:
        """Return the source's bits per byte in a long text, whose topic has become known."""
        probabilities = self.transitions / UNIT
        bits = -(probabilities * np.log2(np.where(probabilities > 0, probabilities, 1.0))).sum(2)
        rates = []
        for table, word_bits in zip(probabilities, bits, strict=True):
            stationary = np.full(self.words, 1 / self.words)
            for _ in range(200):  # the error shrinks to 3/4 or less per step: ANY_WORD
                stationary = stationary @ table
            rates.append(stationary @ word_bits / (stationary @ self._lengths))
        return float(np.mean(rates))

    def bits_per_byte(self, texts: Tokens) -> float:
        """Return the mean bits of all bytes but the first under the source itself, which sums
        over the topics: no model can expect less on such samples."""
        total = sum(self._bits(text.tobytes()) - self._bits(text.tobytes()[:1]) for text in texts)
        return float(total / (len(texts) * (self.length - 1)))

    def _bits(self, text: bytes) -> float:
        """Return −log₂ of the probability that a sample begins with `text`."""
        logarithms = np.zeros(self.topics)
        previous = FULL_STOP
        while text:
            whole = next((i for i, word in enumerate(self.lexicon) if text.startswith(word)), None)
            if whole is None:  # the sample ends within a word
                possible = [i for i, word in enumerate(self.lexicon) if word.startswith(text)]
                text = b""
            else:
                possible, text = [whole], text[len(self.lexicon[whole]) :]
            chances = self.transitions[:, previous, possible].sum(1)
            logarithms += np.log2(chances / UNIT)
            previous = possible[0]
        return float(-np.logaddexp2.reduce(logarithms) + np.log2(self.topics))

    @cached_property
    def _cumulative(self) -> Integers:
        """Upper bounds of the draws of each follower, ascending over all rows."""
        bounds = np.cumsum(self.transitions.reshape(-1, self.words), axis=1)
        return bounds + UNIT * np.arange(len(bounds))[:, None]

    @cached_property
    def _lengths(self) -> Integers:
        return np.array([len(word) for word in self.lexicon])

    @cached_property
    def _spelling(self) -> Tokens:
        longest = max(map(len, self.lexicon))
        padded = b"".join(word.ljust(longest, b"\0") for word in self.lexicon)
        return np.frombuffer(padded, np.uint8).reshape(self.words, longest)

    def _stream(self, purpose: int) -> int:
        """Return the first slot of a purpose's hashes: the streams of a seed do not meet."""
        return (self.seed << 40) + (purpose << 20)


SMOKE = LearnableText(
    seed=1, words=64, topics=2, followers=4, length=129, train=4_096, validation=512
)
WORKSTATION = LearnableText(
    seed=2, words=512, topics=4, followers=8, length=257, train=32_768, validation=2_048
)
