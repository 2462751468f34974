"""Converts stored images to a model's inputs on any device: crops, flips, normalization."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor


@cache
def _on_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Copy constants to a device once: a copy per step would synchronize with it."""
    return torch.tensor(values, device=device)


def normalized(images: Tensor, *, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Convert uint8 N×H×W×C to float N×C×H×W, normalized by channel."""
    shift, scale = _on_device(mean, images.device), _on_device(deviation, images.device)
    # The permuted view keeps channels last in memory, which is the faster layout to convolve.
    return ((images.float() - shift) / scale).permute(0, 3, 1, 2)


def flipped(images: Tensor, draws: Tensor) -> Tensor:
    """Mirror half of the N×C×H×W images left to right, by one draw each."""
    mirror = (draws < 0.5).view(-1, 1, 1, 1)
    return torch.where(mirror, images.flip(3), images)


def random_resized_crop(images: Tensor, draws: Tensor, *, height: int, width: int) -> Tensor:
    """Crop 8 to 100 % of the area, of aspect 3/4 to 4/3, and scale it; four draws each."""
    area, aspect, at_y, at_x = draws.unbind(1)
    fraction = 0.08 + 0.92 * area
    ratio = torch.exp((2 * aspect - 1) * torch.log(_on_device((4 / 3,), images.device)))
    tall = (fraction / ratio).sqrt().clamp(max=1.0)
    wide = (fraction * ratio).sqrt().clamp(max=1.0)
    # In affine_grid's coordinates an image spans −1 to 1: a centre may move by 1 − size.
    zeros = torch.zeros_like(tall)
    theta = torch.stack(
        [
            torch.stack([wide, zeros, (1 - wide) * (2 * at_x - 1)], dim=1),
            torch.stack([zeros, tall, (1 - tall) * (2 * at_y - 1)], dim=1),
        ],
        dim=1,
    )
    size = [len(images), images.shape[1], height, width]
    grid = F.affine_grid(theta, size, align_corners=False)
    return F.grid_sample(
        images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )


def shrunk(images: Tensor, *, height: int, width: int) -> Tensor:
    """Shrink N×C×H×W images to 256/224 of the crop's size, antialiased; never enlarge."""
    factor = max(height * 256 / 224 / images.shape[2], width * 256 / 224 / images.shape[3])
    if factor >= 1:
        return images
    size = (round(images.shape[2] * factor), round(images.shape[3] * factor))
    return F.interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)


def centre_crop(images: Tensor, *, height: int, width: int) -> Tensor:
    """Crop the centre of N×C×H×W images."""
    top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
    return images[:, :, top : top + height, left : left + width]
