"""Decoder-only transformer after GPT-2 (Radford et al. 2019): learned positions, LayerNorm before
each layer, GELU by tanh, and a head that shares its weight with the embedding.

The model scores texts: from tokens [samples, context + 1] to the logarithms of the probabilities
of all tokens but the first [samples, context]. Logits of a whole vocabulary never leave it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.workloads.models.transformer_plan import DEVIATION, TransformerShape

# Without gradients logits are computed for a few samples at a time: those of 256 texts of GPT-2
# would take 53 GB in FP32.
EVALUATED_LOGITS = 1 << 28


Carried = tuple[Tensor, ...]


class Attention(nn.Module):
    """Causal self-attention; it takes its number of heads from `qkv`, which may be split."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self._head_width = shape.width // shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        samples, context, _ = x.shape
        # Channels are ordered by head first, so that a contiguous part of them is whole heads.
        qkv = self.qkv(x).view(samples, context, -1, 3, self._head_width)
        query, key, value = qkv.permute(3, 0, 2, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        outputs: Tensor = self.out(mixed.transpose(1, 2).reshape(samples, context, -1))
        return outputs


class FeedForward(nn.Module):
    """Two linear layers, four times as wide between them."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.down(F.gelu(self.up(x), approximate="tanh"))
        return outputs


class Block(nn.Module):
    """Attention and feed-forward layer, each added to its input."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.LayerNorm(shape.width)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        outputs: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return outputs


class Positions(nn.Module):
    """Adds the learned embedding of each position."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape.context, shape.width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[: x.shape[1]]


class Head(nn.Module):
    """Log-probabilities of the true tokens by the embedding's weight."""

    def forward(self, x: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
        if self.training:
            return _log_probabilities(x, weight, tokens)
        samples = max(1, EVALUATED_LOGITS // (x.shape[1] * len(weight)))
        parts = zip(x.split(samples), tokens.split(samples), strict=True)
        return torch.cat([_log_probabilities(part, weight, true) for part, true in parts])


def _log_probabilities(x: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    logits = F.linear(x, weight).flatten(0, 1)
    if logits.dtype != torch.float64:
        logits = logits.float()  # BF16 has three digits: too few for a sum over a vocabulary
    losses = F.cross_entropy(logits, tokens.flatten(), reduction="none")
    return -losses.view(tokens.shape)


class Transformer(nn.Module):
    """GPT-2 of any size."""

    fixed_shapes = True

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = Positions(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = Head()
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._initialize()

    def _initialize(self) -> None:
        """Draw GPT-2's weights; each of the 2 · layers additions to `x` is scaled down."""
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                last_of_branch = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                scale = (2 * self.shape.layers) ** -0.5 if last_of_branch else 1.0
                nn.init.normal_(parameter, std=DEVIATION * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the log-probability of each token after the first."""
        if self.training and self._compiled is not None:
            return self._compiled(tokens)
        return self._score(tokens)

    def _score(self, tokens: Tensor) -> Tensor:
        x = self.positions(self.tokens(tokens[:, :-1]))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x), self.tokens.weight, tokens[:, 1:])
        return scores

    def forward_unit(self, name: str, carried: Carried) -> Carried:
        """Apply one unit of a pipeline; an evaluation carries the tokens to the head."""
        if name == "head":
            return carried
        if name == "tokens":
            embedded: Tensor = self.tokens(carried[0][:, :-1])
            return (embedded,) if self.training else (embedded, carried[0])
        return (self.get_submodule(name)(carried[0]), *carried[1:])

    def forward_end(self, carried: Carried, labels: Tensor | None) -> Tensor:
        """Return the log-probabilities, in training of the tokens that the loss is given."""
        tokens = carried[1] if labels is None else labels
        scores: Tensor = self.head(carried[0], self.tokens.weight, tokens[:, 1:])
        return scores

    def compile_training(self) -> None:
        """Compile the training pass; evaluations, whose batches differ in size, stay eager."""
        self._compiled = torch.compile(self._score, dynamic=False)
