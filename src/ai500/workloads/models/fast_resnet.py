"""ResNet v1.5's training step with gradients written by hand: the same function, fewer passes.

A block's third convolution is linear, and so is batch norm once its statistics are known: these
come from the second moments of the convolution's input, which is four times smaller than its
output (`Plain.linear`). Nothing of that output is kept for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ai500.workloads.kernels.plain import (
    Extra,
    Linear,
    Plain,
    Size,
    as_images,
    as_rows,
    from_depth,
    pooled,
    stem_size,
    to_depth,
)
from ai500.workloads.models.resnet import Bottleneck, ResNet


@dataclass(frozen=True)
class Site:
    """Where one block stands: what is not a tensor of its step."""

    kernels: Plain
    size: Size
    """Of its input."""
    stride: int
    norms: tuple[nn.BatchNorm2d, ...]
    """Three, and the downsampling skip's if there is one."""
    before: Join | None
    """What gave its input; the stem has no join."""
    after: Join

    @property
    def out(self) -> Size:
        """Of its output."""
        n, height, width = self.size
        return Size(n, (height - 1) // self.stride + 1, (width - 1) // self.stride + 1)


@dataclass
class Join:
    """A block's last ReLU. Where the next block has the gradient of its input at hand, it masks it
    by `passes` and leaves the sums of its columns here for the block before it."""

    passes: Tensor | None = None
    totals: Tensor | None = None


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, site: Site, weights: tuple[Tensor, ...], y: Tensor, *_: Any) -> Tensor:
        kernels, (norm1, norm2, norm3, *norm4) = site.kernels, site.norms
        x1, parts1 = kernels.product(y, weights[0], site.size)
        normal1 = kernels.normal(parts1, norm1, site.size.rows)
        y1 = kernels.apply(x1, normal1)
        x2, parts2 = kernels.convolution(y1, weights[1], site.size, site.stride)
        normal2 = kernels.normal(parts2, norm2, site.out.rows)
        y2, totals2 = kernels.apply_summed(x2, normal2)
        third = kernels.linear(y2, totals2, weights[2], norm3)
        fourth: Linear | None = None
        if norm4:
            even, totals4 = kernels.even(y, site.size, site.stride)
            fourth = kernels.linear(even, totals4, weights[3], norm4[0])
        out, site.after.passes = kernels.linear_join(third, None if fourth else y, fourth)
        ctx.site, ctx.weights = site, weights
        ctx.normals, ctx.linears = (normal1, normal2), (third, fourth)
        ctx.save_for_backward(y, x1, y1, x2)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.linears is None:
            raise RuntimeError("a fast block keeps what it needs for one backward pass only")
        site, weights, (third, fourth) = ctx.site, ctx.weights, ctx.linears
        y, x1, y1, x2 = ctx.saved_tensors
        kernels, (normal1, normal2) = site.kernels, ctx.normals
        g, totals = gradients[0], site.after.totals
        if totals is None:
            g, totals = kernels.join_masked(g.contiguous(), site.after.passes)
        back = kernels.linear_backward(g, totals, third, site.norms[2])
        sums2 = kernels.reduce(back.y, x2, normal2)
        slopes2 = kernels.slopes(sums2, normal2, site.norms[1].weight, site.out.rows)
        dx2 = kernels.spread(back.y, x2, normal2, slopes2)
        dy1, dweight2 = kernels.convolution_backward(
            dx2, y1, weights[1], (site.size, site.out), site.stride
        )
        sums1 = kernels.reduce(dy1, x1, normal1)
        slopes1 = kernels.slopes(sums1, normal1, site.norms[0].weight, site.size.rows)
        dx1 = kernels.spread(dy1, x1, normal1, slopes1)
        dweight1 = kernels.weight_gradient(dx1, y, weights[0])
        extra, skip = Extra(g, 1), ()
        if fourth is not None:
            dy4, *skip = kernels.linear_backward(g, totals, fourth, site.norms[3])
            extra = Extra(dy4, site.stride)
        dy = _into_join(site, dx1, weights[0], extra)
        site.after.passes = site.after.totals = ctx.linears = None
        parameters = (dweight1, slopes1.weight, slopes1.bias, dweight2, slopes2.weight,
                      slopes2.bias, *back[1:], *skip)  # fmt: skip
        return None, None, dy, *map(_single, parameters)


def _into_join(site: Site, dx: Tensor, weight: Tensor, extra: Extra) -> Tensor:
    """The gradient of a block's input, masked already where a join gave it."""
    join = site.before
    if join is None or join.passes is None:
        return site.kernels.total_gradient(dx, weight, extra, site.size)
    dy, join.totals = site.kernels.join_gradient(dx, weight, extra, site.size, join.passes)
    return dy


def _single(gradient: Tensor | None) -> Tensor | None:
    """Master weights are FP32: so are their gradients (float64 stays, in tests)."""
    return gradient.float() if gradient is not None and gradient.itemsize < 4 else gradient


class _Stem(torch.autograd.Function):
    """7×7 convolution, batch norm, ReLU and 3×3 maximum."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Plain,
        norm: nn.BatchNorm2d,
        deep_weight: Tensor,
        images: Tensor,
        *_: Tensor,
    ) -> Tensor:
        rows, size = kernels.space_to_depth(images, deep_weight.dtype)
        x = as_rows(torch.conv2d(as_images(rows, size), deep_weight))
        size_out = stem_size(images)
        normal = kernels.normal(kernels.statistics(x), norm, size_out.rows)
        y, taps, chosen = kernels.pool(x, normal, size_out)
        ctx.kernels, ctx.norm, ctx.normal = kernels, norm, normal
        ctx.sizes = size, size_out, images.shape[1]
        ctx.save_for_backward(rows, deep_weight, x, taps, chosen)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        rows, deep_weight, x, taps, chosen = ctx.saved_tensors
        kernels, normal, (size, size_out, channels) = ctx.kernels, ctx.normal, ctx.sizes
        dy = gradients[0]
        sums = kernels.reduce(dy, chosen, normal)
        slopes = kernels.slopes(sums, normal, ctx.norm.weight, size_out.rows)
        dx = kernels.pool_spread(dy, taps, x, normal, slopes, size_out)
        _, dweight, _ = torch.ops.aten.convolution_backward(
            as_images(dx, size_out), as_images(rows, size), deep_weight, None,
            (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, True, False),
        )  # fmt: skip
        found = _single(from_depth(dweight, channels))
        return None, None, None, None, found, slopes.weight, slopes.bias


class FastResNet(ResNet):
    """A ResNet whose training step runs through `kernels`; evaluation is the ordinary one's."""

    fixed_shapes = True
    kernels: Plain
    working: torch.dtype
    _copies: dict[Tensor, Tensor]

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.kernels.covers(x.device):
            return super().forward(x)
        # What is fused chooses its precisions itself; autocast would round second moments to BF16.
        with torch.autocast(x.device.type, enabled=False):
            rows, size = self._through_blocks(x)
        means = rows.view(size.images, -1, rows.shape[1]).mean(1)
        logits: Tensor = self.classifier(means)
        return logits

    def _through_blocks(self, x: Tensor) -> tuple[Tensor, Size]:
        self._copy_weights()
        rows, size, before = self._through_stem(x), pooled(stem_size(x)), None
        for block in (one for stage in self.stages for one in cast(nn.Sequential, stage)):
            rows, site = self._through(cast(Bottleneck, block), rows, size, before)
            size, before = site.out, site.after
        with torch.no_grad():
            torch._foreach_add_(_counters(self), 1)
        return rows, size

    def _copy_weights(self) -> None:
        """Convolution weights in the working precision, all in a few launches."""
        weights = [one.weight for one in self.modules() if isinstance(one, nn.Conv2d)]
        if not self._copies or self._copies[weights[0]].device != weights[0].device:
            self._copies.update(
                (one, torch.empty_like(one, dtype=self.working, requires_grad=False))
                for one in weights
            )
        copies = [self._copies[one] for one in weights]
        with torch.no_grad():
            torch._foreach_copy_(copies, weights)

    def _through_stem(self, images: Tensor) -> Tensor:
        convolution, norm = cast(nn.Conv2d, self.stem[0]), cast(nn.BatchNorm2d, self.stem[1])
        deep = to_depth(self._copies[convolution.weight])
        deep = deep.contiguous(memory_format=torch.channels_last)
        rows: Tensor = _Stem.apply(
            self.kernels, norm, deep, images, convolution.weight, norm.weight, norm.bias
        )
        return rows

    def _through(
        self, block: Bottleneck, rows: Tensor, size: Size, before: Join | None
    ) -> tuple[Tensor, Site]:
        layers = [(block.conv1, block.bn1), (block.conv2, block.bn2), (block.conv3, block.bn3)]
        if isinstance(block.shortcut, nn.Sequential):
            layers.append(cast(tuple[nn.Conv2d, nn.BatchNorm2d], tuple(block.shortcut)))
        norms = tuple(norm for _, norm in layers)
        site = Site(self.kernels, size, block.conv2.stride[0], norms, before, Join())
        copies = tuple(self._copies[convolution.weight] for convolution, _ in layers)
        parameters = (
            one
            for convolution, norm in layers
            for one in (convolution.weight, norm.weight, norm.bias)
        )
        return _Block.apply(site, copies, rows, *parameters), site


def _counters(model: nn.Module) -> list[Tensor]:
    norms = (one for one in model.modules() if isinstance(one, nn.BatchNorm2d))
    return [one.num_batches_tracked for one in norms if one.num_batches_tracked is not None]


def why_not(model: nn.Module) -> str:
    """Why a model has no fast form, or nothing."""
    if type(model) is not ResNet or not isinstance(model.stem[-1], nn.MaxPool2d):
        return "only ResNets of bottlenecks with the ImageNet stem have a fast form"
    blocks = [one for stage in model.stages for one in cast(nn.Sequential, stage)]
    if not all(isinstance(one, Bottleneck) and one.conv1.stride == (1, 1) for one in blocks):
        return "only bottlenecks with the stride on the 3×3 convolution (v1.5) have a fast form"
    norms = [one for one in model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    if not all(type(one) is nn.BatchNorm2d and one.momentum is not None for one in norms):
        return "batch norm is synchronized or not the usual one"
    return ""


def fast(model: ResNet, kernels: Plain, *, working: torch.dtype) -> FastResNet:
    """The same model, in place: parameters, buffers and their names stay; `working` is the
    precision of activations and products."""
    reason = why_not(model)
    if reason:
        raise ValueError(reason)
    model.__class__ = FastResNet
    quick = cast(FastResNet, model)
    quick.kernels, quick.working, quick._copies = kernels, working, {}
    return quick
