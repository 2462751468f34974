"""The batch size of an evaluation; needs no torch."""

from __future__ import annotations

import math

# Without gradients a batch may be larger than in training: at least this many samples, or as many
# as have this many values if that is less.
LEAST_BATCH, LEAST_VALUES = 128, 128 * 3 * 224 * 224
# On a GPU, up to four times the batch where its inputs in FP32 take no more than this share of free
# memory: the host then launches fewer kernels. Activations of ResNet-50 take 19 times as much as
# its inputs, and other members may share the GPU.
LARGER, SHARE_OF_MEMORY = 4, 1 / 50
FP32_BYTES = 4


def evaluation_batch_size(batch_size: int, input_shape: tuple[int, ...], *, free: int) -> int:
    """Return the evaluation batch for a training batch size; `free` is in bytes, 0 on a CPU."""
    values = math.prod(input_shape)
    least = min(LEAST_BATCH, LEAST_VALUES // values)
    larger = LARGER * min(batch_size, least)
    fits = larger * values * FP32_BYTES <= SHARE_OF_MEMORY * free
    return max(batch_size, least, larger if fits else 0)
