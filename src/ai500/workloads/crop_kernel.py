"""Random-resized crop, flip and normalization of stored images in one pass, where Triton runs.

The ordinary path (`image_inputs`) passes over the images about ten times (4 GB of traffic for 512
images); this one reads the stored bytes and writes the inputs. The two agree to rounding.
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
# The second dimension of a CUDA grid has no more blocks.
MAX_IMAGES = 65_535


def supports(images: Tensor) -> bool:
    """Return whether the kernel runs here and takes these stored images."""
    fits = images.is_contiguous() and len(images) <= MAX_IMAGES and images.shape[3] == 3
    return images.is_cuda and fits and _kernel_works(images.device)


@cache
def _kernel_works(device: torch.device) -> bool:
    """Run the kernel once on a tiny image and check its result.

    Triton may be missing, needs a compiler, and changes from version to version.
    """
    images = torch.zeros(1, 4, 4, 3, dtype=torch.uint8, device=device)
    draws = torch.full((1, 5), 0.5, device=device)
    try:
        output = crop_images(
            images, draws, height=2, width=2, mean=(1.0,) * 3, deviation=(2.0,) * 3
        )
        return bool((output == -0.5).all())
    except Exception as error:  # any failure: the ordinary path computes the same
        print(
            f"crop kernel unavailable, using torch: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return False


def crop_images(
    images: Tensor,
    draws: Tensor,
    *,
    height: int,
    width: int,
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
) -> Tensor:
    """Convert uint8 N×H×W×3 to float N×3×height×width, channels last in memory; five draws an
    image."""
    from ai500.workloads.kernels.crop import crop_flip_normalize

    count, stored_height, stored_width, _ = images.shape
    out = torch.empty(count, height, width, 3, device=images.device)
    grid = (-(-height * width // BLOCK), count)
    device_context = torch.cuda.device(images.device) if images.is_cuda else nullcontext()
    with device_context:
        crop_flip_normalize[grid](
            images,
            draws.contiguous(),
            out,
            stored_height,
            stored_width,
            height,
            width,
            *mean,
            *(1 / channel_deviation for channel_deviation in deviation),
            log_aspect=LOG_ASPECT,
            block=BLOCK,
        )
    return out.permute(0, 3, 1, 2)
