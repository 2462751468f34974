"""What a search is fixed on: the class's own, with the user's changes over it. Needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ai500.automl.architecture import Architecture, basic_resnet, bottleneck_resnet


@dataclass(frozen=True, slots=True)
class Initial:
    """The network that every search of a class starts at."""

    kind: Literal["bottleneck", "basic"]
    blocks: tuple[int, ...]
    width: int

    def architecture(self, *, classes: int, input_channels: int) -> Architecture:
        """As layers; bottleneck (3, 4, 6, 3) of width 64 is ResNet-50 (AIPerf Table IV)."""
        build = bottleneck_resnet if self.kind == "bottleneck" else basic_resnet
        return build(self.blocks, width=self.width, classes=classes, input_channels=input_channels)


@dataclass(frozen=True, slots=True)
class Search:
    """One search of a worker (AIPerf §IV-E, Table IV)."""

    minutes: float
    """How long each worker searches."""
    initial: Initial
    patience: int
    """Epochs without progress on the validation set after which a model is given up."""
    batch_sizes: tuple[int, ...]
    """Images per accelerator and step that TPE chooses from."""
    kernel_sizes: tuple[int, ...] = (3, 5)
    """Of the blocks that are added; the first before TPE begins."""
    warmup_rounds: int = 4
    """TPE and the actual accuracy from the round after these on: the fifth."""
    most_growth: float = 8.0
    """A model has at most so many times the initial one's operations per image."""
    kept_models: int = 10
    """Parents are drawn from the best so many; only their weights are kept on disk."""
    degree: int | None = None
    """Accelerators of a worker; None: all of a node, as AIPerf's."""
    needs_accelerator: bool = False

    def tunes(self, number: int) -> bool:
        """Whether TPE chooses the hyper-parameters of a worker's round."""
        return number > self.warmup_rounds

    def epochs_of(self, number: int, *, most: int) -> int:
        """Epochs of a worker's round: in warm-up rounds are "trained insufficiently", by fifths."""
        if self.tunes(number):
            return most
        return max(1, math.ceil(most * number / (self.warmup_rounds + 1)))
