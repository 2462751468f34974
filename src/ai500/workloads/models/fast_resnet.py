"""ResNet v1.5's training step with gradients written by hand: the same function, fewer passes.
And its evaluation, where every batch norm is known beforehand.

A block's third convolution is linear, and so is batch norm once its statistics are known: these
come from the second moments of the convolution's input, which is four times smaller than its
output (`Plain.linear`). Nothing of that output is kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ai500.workloads.kernels.plain import (
    Extra,
    Linear,
    Normal,
    Plain,
    Size,
    as_images,
    as_rows,
    from_depth,
    known,
    pooled,
    running,
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
        return self.size.every(self.stride)


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
        x, size_out = _stem_convolution(rows, size, deep_weight), stem_size(images)
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


def _stem_convolution(rows: Tensor, size: Size, deep_weight: Tensor) -> Tensor:
    return as_rows(torch.conv2d(as_images(rows, size), deep_weight))


class FastResNet(ResNet):
    """A ResNet whose training step and evaluation run through `kernels`."""

    fixed_shapes = True
    kernels: Plain
    working: torch.dtype
    _copies: dict[Tensor, Tensor]

    def forward(self, x: Tensor) -> Tensor:
        by_kernels = self.training or not torch.is_grad_enabled()
        if not by_kernels or not self.kernels.covers(x.device):
            return super().forward(x)
        # What is fused chooses its precisions itself; autocast would round second moments to BF16.
        with torch.autocast(x.device.type, enabled=False):
            rows, size = self._through_blocks(x) if self.training else self._evaluated(x)
        means = rows.view(size.images, -1, rows.shape[1]).mean(1)
        logits: Tensor = self.classifier(means)
        return logits

    def _through_blocks(self, x: Tensor) -> tuple[Tensor, Size]:
        self._copy_weights()
        rows, size, before = self._through_stem(x), pooled(stem_size(x)), None
        for block in self._blocks():
            rows, site = self._through(block, rows, size, before)
            size, before = site.out, site.after
        with torch.no_grad():
            torch._foreach_add_(_counters(self), 1)
        return rows, size

    def _evaluated(self, images: Tensor) -> tuple[Tensor, Size]:
        """With running statistics every batch norm is known before its input, so each 1×1
        convolution takes its own, the ReLU and the skip along; nothing is kept."""
        self._copy_weights()
        norms = [one for one in self.modules() if isinstance(one, nn.BatchNorm2d)]
        normals = dict(zip(norms, running(norms), strict=True))
        convolution, norm = cast(nn.Conv2d, self.stem[0]), cast(nn.BatchNorm2d, self.stem[1])
        rows, size = self.kernels.space_to_depth(images, self.working)
        x, size = _stem_convolution(rows, size, self._deep(convolution)), stem_size(images)
        rows, size = self.kernels.pool(x, normals[norm], size)[0], pooled(size)
        for block in self._blocks():
            rows, size = self._evaluated_block(block, rows, size, normals)
        return rows, size

    def _evaluated_block(
        self, block: Bottleneck, rows: Tensor, size: Size, normals: dict[nn.BatchNorm2d, Normal]
    ) -> tuple[Tensor, Size]:
        kernels, stride = self.kernels, block.conv2.stride[0]

        def linear(y: Tensor, layer: tuple[nn.Conv2d, nn.BatchNorm2d]) -> Linear:
            return known(y, self._copies[layer[0].weight], normals[layer[1]])

        first, (middle, norm), third, *skip = _layers(block)
        y, _ = kernels.linear_join(linear(rows, first), None, None)
        x = kernels.convolved(y, self._copies[middle.weight], size, stride)
        last = linear(kernels.apply(x, normals[norm]), third)
        other = linear(kernels.strided(rows, size, stride), skip[0]) if skip else None
        out, _ = kernels.linear_join(last, None if other else rows, other)
        return out, size.every(stride)

    def _blocks(self) -> Iterator[Bottleneck]:
        for stage in self.stages:
            yield from cast(Iterable[Bottleneck], stage)

    def _deep(self, convolution: nn.Conv2d) -> Tensor:
        deep = to_depth(self._copies[convolution.weight])
        return deep.contiguous(memory_format=torch.channels_last)

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
        rows: Tensor = _Stem.apply(
            self.kernels, norm, self._deep(convolution), images,
            convolution.weight, norm.weight, norm.bias,
        )  # fmt: skip
        return rows

    def _through(
        self, block: Bottleneck, rows: Tensor, size: Size, before: Join | None
    ) -> tuple[Tensor, Site]:
        layers = _layers(block)
        norms = tuple(norm for _, norm in layers)
        site = Site(self.kernels, size, block.conv2.stride[0], norms, before, Join())
        copies = tuple(self._copies[convolution.weight] for convolution, _ in layers)
        parameters = (
            one
            for convolution, norm in layers
            for one in (convolution.weight, norm.weight, norm.bias)
        )
        return _Block.apply(site, copies, rows, *parameters), site


def _layers(block: Bottleneck) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Three, and the downsampling skip's if there is one."""
    layers = [(block.conv1, block.bn1), (block.conv2, block.bn2), (block.conv3, block.bn3)]
    if isinstance(block.shortcut, nn.Sequential):
        layers.append(cast(tuple[nn.Conv2d, nn.BatchNorm2d], tuple(block.shortcut)))
    return layers


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
