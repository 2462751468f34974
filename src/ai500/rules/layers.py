"""The nine layers and three levels of benchmarking (V2 §3.1, §5), and what each level fixes.

A rule about an aspect is a violation where the level fixes the aspect, and a note (a disclosure)
where the aspect is free. A rule without an aspect is about the procedure and holds at every level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

LAYERS = {
    1: "hardware",
    2: "operating system",
    3: "communication libraries",
    4: "AI accelerators and their libraries",
    5: "AI framework",
    6: "programming model",
    7: "workload",
    8: "hyper-parameters",
    9: "problem domain",
}
"""Names of the layers by number (V2 §3.1)."""

Level = Literal["hardware", "system", "free"]
LEVELS: tuple[Level, ...] = get_args(Level)
Freedom = Literal["fixed", "free"]


@dataclass(frozen=True, slots=True)
class Aspect:
    """Part of a layer that is fixed or free at each level."""

    layer: int
    free_from: Level | None
    """First level at which it is free; None: it is fixed at every level."""
    source: str
    text: str

    def at(self, level: Level) -> Freedom:
        """Return the freedom at a level."""
        free = LEVELS[LEVELS.index(self.free_from) :] if self.free_from is not None else ()
        return "free" if level in free else "fixed"


ASPECTS: dict[str, Aspect] = {
    # layer, first level at which it is free, source, text
    "data set": Aspect(9, None, "V2 §5.1.1", "the class's own data, whole"),
    "target quality": Aspect(9, None, "V2 §5.1.1", "and n of Eq. 8"),
    "epochs": Aspect(9, None, "V2 §5.1.1", "over all of a member's samples"),
    "evaluations": Aspect(9, None, "decision D14", "as often as the class prescribes"),
    "batch size": Aspect(8, "hardware", "V2 §5.1.2", "and accumulation"),
    "learning-rate policy": Aspect(
        8, "hardware", "V2 §5.1.2", "LARS and LAMB count as one; the source of another is recorded"
    ),
    "other hyper-parameters": Aspect(
        8, "free", "V2 §5.1.2, §5.4", "optimizer, momentum, weight decay, …"
    ),
    "a search's defaults": Aspect(
        8, "hardware", "AIPerf Table IV", "optimizer, learning rate, most epochs, …"
    ),
    "model": Aspect(7, "free", "V2 §5.1.3", "the graph, and what is trained"),
    "bagging": Aspect(7, "free", "V3 §3.3", "a bootstrap for each member"),
    "equivalent parallelism": Aspect(
        6, "hardware", "V2 §5.1.4", "data, tensor, pipeline, mixed: tests hold them equal"
    ),
    "other parallelism": Aspect(
        6, "free", "V2 §5.1.4", "not known to be mathematically equivalent"
    ),
    "synchronous training": Aspect(6, "free", "V2 §5.1.4, §5.1.6", "no asynchronous SGD"),
    "AI framework": Aspect(5, "system", "V2 §5.1.5, §5.2; decision D2", "PyTorch is the reference"),
    "framework's version": Aspect(5, "hardware", "V2 §5.1.5", "and its settings, such as compiled"),
    "precision": Aspect(
        4, "hardware", "V2 §5.1.7, V3 Table 2", "FP32, TF32, FP16, BF16, FP8, INT8, INT4"
    ),
    "other precision": Aspect(4, "free", "V2 §5.1.7", "not among those the papers allow"),
    "accelerators": Aspect(4, "hardware", "V2 §5.1.7", "and their libraries"),
    "communication": Aspect(
        3, "hardware", "V2 §5.1.6", "any topology and library, as long as synchronous"
    ),
    "operating system": Aspect(2, "hardware", "V2 §5.1.8", "compilers at −O2"),
    "hardware": Aspect(1, "hardware", "V2 §5.1.9", "CPUs, memory, network, and their number"),
}
"""Aspects by name (V2 §5.1). The rules, `check`, `compare` and docs/rules.md read this table."""
