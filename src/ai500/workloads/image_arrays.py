"""Converts stored images to a model's inputs by the functions of NumPy, or of a module like it.

The same crops, flips and normalization as `image_inputs`, for frameworks other than PyTorch: `xp`
is `numpy`, `jax.numpy` or another module with NumPy's functions. Images stay N×H×W×C.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.records import ProblemClass
from ai500.workloads.image_classification import CHANNEL_DEVIATION, CHANNEL_MEAN

Array = Any


def train_inputs(
    xp: ModuleType, problem_class: ProblemClass, images: Array, draws: Array, *, dtype: str
) -> Array:
    """Flip, and crop at random where stored images are larger than the model's input."""
    _, height, width = problem_class.input_shape
    inputs = normalized(xp, images, dtype=dtype)
    if images.shape[1:3] != (height, width):
        inputs = random_resized_crop(xp, inputs, draws[:, :4], height=height, width=width)
    return flipped(xp, inputs, draws[:, 4])


def evaluation_inputs(
    xp: ModuleType, problem_class: ProblemClass, images: Array, *, dtype: str
) -> Array:
    """Crop the centre, 224 of every 256 pixels, at the model's input size."""
    _, height, width = problem_class.input_shape
    inputs = shrunk(xp, normalized(xp, images, dtype=dtype), height=height, width=width)
    top, left = (inputs.shape[1] - height) // 2, (inputs.shape[2] - width) // 2
    return inputs[:, top : top + height, left : left + width]


def normalized(xp: ModuleType, images: Array, *, dtype: str) -> Array:
    """Convert uint8 to floating point, normalized by channel."""
    shift = xp.asarray(np.asarray(CHANNEL_MEAN, dtype))
    scale = xp.asarray(np.asarray(CHANNEL_DEVIATION, dtype))
    return (xp.asarray(images).astype(dtype) - shift) / scale


def flipped(xp: ModuleType, images: Array, draws: Array) -> Array:
    """Mirror half of the images left to right, by one draw each."""
    mirror = (draws < 0.5)[:, None, None, None]
    return xp.where(mirror, images[:, :, ::-1], images)


def random_resized_crop(
    xp: ModuleType, images: Array, draws: Array, *, height: int, width: int
) -> Array:
    """Crop 8 to 100 % of the area, of aspect 3/4 to 4/3, and scale it; four draws each."""
    area, aspect, at_y, at_x = (draws[:, column] for column in range(4))
    fraction = 0.08 + 0.92 * area
    ratio = xp.exp((2 * aspect - 1) * np.float32(math.log(4 / 3)))
    tall = xp.minimum(xp.sqrt(fraction / ratio), 1.0)
    wide = xp.minimum(xp.sqrt(fraction * ratio), 1.0)
    rows = _interpolated(xp, images, _positions(xp, tall, at_y, images.shape[1], height), axis=1)
    return _interpolated(xp, rows, _positions(xp, wide, at_x, images.shape[2], width), axis=2)


def _positions(xp: ModuleType, share: Array, place: Array, size: int, count: int) -> Array:
    """Return the coordinates [N, count] of a crop's pixels, in pixels of the stored image."""
    # The pixel centres of the output on −1 to 1, as in torch's affine_grid; a crop that covers
    # `share` of the image may move its centre by 1 − share.
    centres = np.float32(2) * (np.arange(count, dtype=np.float32) + 0.5) / count - 1
    grid = share[:, None] * xp.asarray(centres) + ((1 - share) * (2 * place - 1))[:, None]
    # Crops lie inside the image: reflection at its border is a clamp to the outer pixels' centres.
    return xp.clip(((grid + 1) * size - 1) / 2, 0, size - 1)


def _interpolated(xp: ModuleType, images: Array, positions: Array, *, axis: int) -> Array:
    """Interpolate linearly along an axis at positions [N, count]."""
    low = xp.floor(positions).astype("int32")
    high = xp.minimum(low + 1, images.shape[axis] - 1)
    shape = [len(positions), 1, 1, 1]
    shape[axis] = positions.shape[1]
    share = (positions - low.astype(positions.dtype)).reshape(shape)
    below = xp.take_along_axis(images, low.reshape(shape), axis=axis)
    above = xp.take_along_axis(images, high.reshape(shape), axis=axis)
    return below * (1 - share) + above * share


def shrunk(xp: ModuleType, images: Array, *, height: int, width: int) -> Array:
    """Shrink images to 256/224 of the crop's size, antialiased; never enlarge."""
    factor = max(height * 256 / 224 / images.shape[1], width * 256 / 224 / images.shape[2])
    if factor >= 1:
        return images
    rows = antialiased(images.shape[1], round(images.shape[1] * factor))
    columns = antialiased(images.shape[2], round(images.shape[2] * factor))
    images = xp.einsum("oh,nhwc->nowc", xp.asarray(rows), images)
    return xp.einsum("ow,nhwc->nhoc", xp.asarray(columns), images)


def antialiased(size: int, smaller: int) -> NDArray[np.float32]:
    """Return the matrix [smaller, size] of torch's antialiased bilinear interpolation."""
    scale = size / smaller
    matrix = np.zeros((smaller, size), dtype=np.float64)
    for row in range(smaller):
        centre = scale * (row + 0.5)
        first = max(int(centre - scale + 0.5), 0)
        last = min(int(centre + scale + 0.5), size)
        distance = np.abs((np.arange(first, last) + 0.5 - centre) / scale)
        weights = np.maximum(0.0, 1.0 - distance)
        matrix[row, first:last] = weights / weights.sum()
    return matrix.astype(np.float32)
