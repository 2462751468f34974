"""Training speed of the language model on one GPU, beside plain PyTorch.

    PYTHONPATH=src:.:.carry/site python3 -m benchmarks.gpu.language_model [--parts full,small]

`full`: tokens/s of GPT-2 124M, batch 64 × 1,024, mixed BF16: our real loop (store, bootstrap,
schedule, events) and `torch.compile` of a plain GPT-2 with its loss on a constant batch, which is
timed before and after ours. `small`: the same with the model and batch of `workstation`. Full
numbers: $OUT/language_model.json.

Predictions before the first run: `full` at 1.00 ± 0.02 of torch.compile, whose 533,700 tokens/s
were measured before (lab/gpu_anchor3.py); `small` at 1.1 or more, since our step is one CUDA graph.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.gpu.beside_compile import free_memory, seconds_per_step
from benchmarks.gpu.framework import loop_step, make_member, make_task
from torch import Tensor, nn

from ai500.data.generated import generate
from ai500.data.store import Arrays
from ai500.records import Field
from ai500.workloads.language_model import CLASSES
from ai500.workloads.models.transformer_plan import SHAPES, TransformerShape

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
RESULTS: dict[str, Any] = {}
RESULTS_FILE = Path(os.environ.get("OUT", ".")) / "language_model.json"


class PlainBlock(nn.Module):
    """A block of the anchor, as `lab/gpu_anchor3.py` has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, context, width = x.shape
        shape = (samples, context, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(samples, context, width))
        outputs: Tensor = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return outputs


class PlainGPT(nn.Module):
    """The anchor: GPT-2 with its loss inside, so that torch.compile fuses both."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(
            PlainBlock(shape.width, shape.heads) for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(inputs) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@dataclasses.dataclass(frozen=True)
class RandomTokens:
    """Random tokens with the fields of a class."""

    fields: tuple[Field, ...]

    def draw(self, split: str, first: int, last: int) -> Arrays:
        """Draw rows from a generator of their own."""
        tokens, _ = self.fields
        assert tokens.limits is not None
        generator = np.random.default_rng([len(split), first])
        shape = (last - first, *tokens.shape)
        drawn = generator.integers(0, int(tokens.limits[1]) + 1, shape).astype(tokens.dtype)
        return {"tokens": drawn, "bytes": np.full(last - first, 4 * shape[1], np.int32)}


def anchor_step(shape: TransformerShape, batch: int) -> Callable[[], object]:
    """Return the step of the compiled anchor on a constant batch."""
    model = PlainGPT(shape).to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.randint(shape.vocabulary, (batch, shape.context), device=DEVICE)
    targets = inputs.roll(-1, 1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = compiled(inputs, targets)
        loss.backward()
        optimizer.step()

    return step


def our_step(problem_class: str, batch: int, folder: Path, *, samples: int) -> Callable[[], object]:
    """Return the step of the real loop on random tokens, read from a store."""
    store = generate(
        folder / "store", RandomTokens(CLASSES[problem_class].fields), name="noise",
        splits={"train": samples, "validation": 64},
    )  # fmt: skip
    options = argparse.Namespace(
        workload="language_model", problem_class=problem_class, batch=batch, precision="mixed-bf16"
    )
    member = make_member(make_task(options, store, folder), "ours")
    print("ours:", member.engine.describe(), flush=True)
    return loop_step(member)


def measure_speed(problem_class: str, batch: int, *, steps: int) -> None:
    """Compare tokens/s of our loop with the compiled anchor's, before and after."""
    shape = SHAPES[problem_class]

    def timed(step: Callable[[], object]) -> dict[str, float]:
        began = time.perf_counter()
        spent = 1e3 * seconds_per_step(step, steps=steps)
        row = {
            "ms": spent,
            "tokens_per_second": 1e3 * batch * shape.context / spent,
            "seconds_with_warm_up": time.perf_counter() - began,
        }
        if DEVICE.type == "cuda":
            row["GiB"] = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.reset_peak_memory_stats()
        print({key: round(value, 1) for key, value in row.items()}, flush=True)
        return row

    before = timed(anchor_step(shape, batch))
    free_memory()
    with tempfile.TemporaryDirectory() as folder:
        ours = timed(our_step(problem_class, batch, Path(folder), samples=batch * 8 * steps))
    free_memory()
    after = timed(anchor_step(shape, batch))
    anchor = max(before["tokens_per_second"], after["tokens_per_second"])
    ratio = ours["tokens_per_second"] / anchor
    print(
        f"{problem_class}, batch {batch}: ours {ours['tokens_per_second']:,.0f} tokens/s, "
        f"torch.compile {anchor:,.0f}: {ratio:.3f}",
        flush=True,
    )
    RESULTS[problem_class] = {"before": before, "ours": ours, "after": after, "ratio": ratio}


PARTS: dict[str, Callable[[], None]] = {
    "full": lambda: measure_speed("full", 64, steps=15),
    "small": lambda: measure_speed("workstation", 64, steps=100),
}


def main() -> None:
    """Run the chosen parts; a part that fails does not stop the next."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    for name in parser.parse_args().parts.split(","):
        try:
            PARTS[name]()
        except Exception:
            traceback.print_exc()
        RESULTS_FILE.write_text(json.dumps(RESULTS, indent=1))


if __name__ == "__main__":
    main()
