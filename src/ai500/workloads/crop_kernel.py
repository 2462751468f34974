"""Random-resized crop, flip and normalization of stored images in one pass, where Triton runs.

The ordinary path (`image_inputs`) goes over the images some ten times, at 512 images about 4 GB of
traffic; this one reads the stored bytes and writes the inputs. The two agree to rounding.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:  # a CPU build of torch: the ordinary path is all there is
    triton = None  # type: ignore[assignment,unused-ignore]

BLOCK = 256
LOG_ASPECT = math.log(4 / 3)
MOST_IMAGES = 65_535
"""Of a launch: the second dimension of a grid has no more."""


def usable(images: Tensor) -> bool:
    """Whether the kernel can take these stored images here."""
    fits = images.is_contiguous() and len(images) <= MOST_IMAGES and images.shape[3] == 3
    return images.is_cuda and triton is not None and fits and _runs(images.device)


@cache
def _runs(device: torch.device) -> bool:
    """Tried once: Triton needs a compiler, and not every version has every operator."""
    images = torch.zeros(1, 4, 4, 3, dtype=torch.uint8, device=device)
    draws = torch.full((1, 5), 0.5, device=device)
    try:
        made = cropped(images, draws, height=2, width=2, mean=(1.0,) * 3, deviation=(2.0,) * 3)
        return bool((made == -0.5).all())
    except Exception:  # whatever it lacks: the ordinary path does the same
        return False


def cropped(
    images: Tensor,
    draws: Tensor,
    *,
    height: int,
    width: int,
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
) -> Tensor:
    """uint8 N×H×W×3 to float N×3×height×width, channels last in memory; five draws each."""
    count, stored_height, stored_width, _ = images.shape
    out = torch.empty(count, height, width, 3, device=images.device)
    grid = (-(-height * width // BLOCK), count)
    on_its_device = torch.cuda.device(images.device) if images.is_cuda else nullcontext()
    with on_its_device:
        _crop[grid](
            images,
            draws.contiguous(),
            out,
            stored_height,
            stored_width,
            height,
            width,
            *mean,
            *(1 / one for one in deviation),
            log_aspect=LOG_ASPECT,
            block=BLOCK,
        )
    return out.permute(0, 3, 1, 2)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _crop(
        images: Any,
        draws: Any,
        out: Any,
        stored_height: Any,
        stored_width: Any,
        height: Any,
        width: Any,
        mean_0: Any,
        mean_1: Any,
        mean_2: Any,
        scale_0: Any,
        scale_1: Any,
        scale_2: Any,
        log_aspect: tl.constexpr,
        block: tl.constexpr,
    ) -> None:
        image = tl.program_id(1).to(tl.int64)
        pixel = tl.program_id(0) * block + tl.arange(0, block)
        inside = pixel < height * width
        row, column = pixel // width, pixel % width
        mine = draws + image * 5
        fraction = 0.08 + 0.92 * tl.load(mine)
        ratio = tl.exp((2 * tl.load(mine + 1) - 1) * log_aspect)
        tall = tl.minimum(tl.sqrt(fraction / ratio), 1.0)
        wide = tl.minimum(tl.sqrt(fraction * ratio), 1.0)
        column = tl.where(tl.load(mine + 4) < 0.5, width - 1 - column, column)
        # From −1 to 1 over the stored image, then in its pixels; what a crop reaches beyond the
        # centres of the outermost ones, a reflection or they themselves fill alike.
        at_y = tall * ((2 * row + 1) / height - 1) + (1 - tall) * (2 * tl.load(mine + 2) - 1)
        at_x = wide * ((2 * column + 1) / width - 1) + (1 - wide) * (2 * tl.load(mine + 3) - 1)
        y = tl.minimum(tl.maximum(((at_y + 1) * stored_height - 1) / 2, 0.0), stored_height - 1)
        x = tl.minimum(tl.maximum(((at_x + 1) * stored_width - 1) / 2, 0.0), stored_width - 1)
        top, left = tl.floor(y).to(tl.int32), tl.floor(x).to(tl.int32)
        below, right = y - top, x - left
        down = tl.where(top + 1 < stored_height, stored_width * 3, 0)
        across = tl.where(left + 1 < stored_width, 3, 0)
        source = images + image * stored_height * stored_width * 3
        source += (top * stored_width + left) * 3
        target = out + (image * height * width + pixel) * 3
        for channel in tl.static_range(3):
            upper_left = tl.load(source + channel, inside, 0).to(tl.float32)
            upper_right = tl.load(source + across + channel, inside, 0).to(tl.float32)
            lower_left = tl.load(source + down + channel, inside, 0).to(tl.float32)
            lower_right = tl.load(source + down + across + channel, inside, 0).to(tl.float32)
            upper = upper_left + (upper_right - upper_left) * right
            lower = lower_left + (lower_right - lower_left) * right
            value = upper + (lower - upper) * below
            mean = mean_0 if channel == 0 else mean_1 if channel == 1 else mean_2
            scale = scale_0 if channel == 0 else scale_1 if channel == 1 else scale_2
            tl.store(target + channel, (value - mean) * scale, inside)
