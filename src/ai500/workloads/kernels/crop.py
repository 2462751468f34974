"""Triton kernel: random-resized crop, flip and normalization of stored images."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def crop_flip_normalize(
    images, draws, out, stored_height, stored_width, height, width,
    mean_0, mean_1, mean_2, scale_0, scale_1, scale_2,
    log_aspect: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Write a block of pixels of one image.

    An image has five draws: area, aspect, vertical position, horizontal position, flip.
    """
    image = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    inside = pixel < height * width
    row, column = pixel // width, pixel % width
    image_draws = draws + image * 5
    fraction = 0.08 + 0.92 * tl.load(image_draws)
    ratio = tl.exp((2 * tl.load(image_draws + 1) - 1) * log_aspect)
    tall = tl.minimum(tl.sqrt(fraction / ratio), 1.0)
    wide = tl.minimum(tl.sqrt(fraction * ratio), 1.0)
    column = tl.where(tl.load(image_draws + 4) < 0.5, width - 1 - column, column)
    # From −1 to 1 over the stored image, then in its pixels. Beyond the centres of the outermost
    # pixels, clamping gives the same values as reflection.
    at_y = tall * ((2 * row + 1) / height - 1) + (1 - tall) * (2 * tl.load(image_draws + 2) - 1)
    at_x = wide * ((2 * column + 1) / width - 1) + (1 - wide) * (2 * tl.load(image_draws + 3) - 1)
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
