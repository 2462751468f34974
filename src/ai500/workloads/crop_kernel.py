"""Random-resized crop, flip and normalization of stored images in one pass, where Triton runs.

The ordinary path (`image_inputs`) goes over the images some ten times, at 512 images about 4 GB of
traffic; this one reads the stored bytes and writes the inputs. The two agree to rounding.
"""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor

BLOCK = 256
LOG_ASPECT = math.log(4 / 3)
MOST_IMAGES = 65_535
"""Of a launch: the second dimension of a grid has no more."""


def usable(images: Tensor) -> bool:
    """Whether the kernel can take these stored images here."""
    fits = images.is_contiguous() and len(images) <= MOST_IMAGES and images.shape[3] == 3
    return images.is_cuda and fits and _runs(images.device)


@cache
def _runs(device: torch.device) -> bool:
    """Tried once: Triton may be missing, needs a compiler, and changes from version to version."""
    images = torch.zeros(1, 4, 4, 3, dtype=torch.uint8, device=device)
    draws = torch.full((1, 5), 0.5, device=device)
    try:
        made = cropped(images, draws, height=2, width=2, mean=(1.0,) * 3, deviation=(2.0,) * 3)
        return bool((made == -0.5).all())
    except Exception as error:  # whatever it lacks: the ordinary path does the same
        print(f"crops take the ordinary path: {type(error).__name__}: {error}", file=sys.stderr)
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
    from ai500.workloads.kernels.crop import crop

    count, stored_height, stored_width, _ = images.shape
    out = torch.empty(count, height, width, 3, device=images.device)
    grid = (-(-height * width // BLOCK), count)
    on_its_device = torch.cuda.device(images.device) if images.is_cuda else nullcontext()
    with on_its_device:
        crop[grid](
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
