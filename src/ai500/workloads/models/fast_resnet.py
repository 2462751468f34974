"""ResNet v1.5's training step with gradients written by hand: the same function, fewer passes.

A block is cut where it is cheapest, not where it is drawn: it takes what the last block's third
convolution gave, joins it with the skip (batch norm, add, ReLU), and ends with its own third
convolution. So the gradient of its first convolution can be added to the skip's, masked and
reduced for the last block's batch norm while it is still in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from ai500.workloads.kernels.plain import (
    Extra,
    Normal,
    Other,
    Plain,
    Size,
    Slopes,
    as_images,
    as_rows,
    depth_size,
    from_depth,
    pooled,
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
    """Its first and second batch norm."""
    before: tuple[nn.BatchNorm2d, ...]
    """Of the join at its beginning: none behind the stem, two behind a downsampling skip."""

    @property
    def out(self) -> Size:
        """Of its output."""
        n, height, width = self.size
        return Size(n, (height - 1) // self.stride + 1, (width - 1) // self.stride + 1)


@dataclass
class Edge:
    """What flows from block to block: a third convolution's result and the other branch."""

    x: Tensor
    parts: Tensor | None
    other: Tensor | None
    other_parts: Tensor | None


@dataclass
class _Joined:
    """A join as its backward pass needs it."""

    normal: Normal
    other: Other | None
    passes: Tensor


def _join(site: Site, edge: Edge) -> tuple[Tensor, _Joined | None]:
    if edge.parts is None:
        return edge.x, None
    rows = site.size.rows
    normal = site.kernels.normal(edge.parts, site.before[0], rows)
    other = None
    if edge.other is not None and edge.other_parts is not None:
        other = Other(edge.other, site.kernels.normal(edge.other_parts, site.before[1], rows))
    skip = None if other is not None else edge.other
    y, passes = site.kernels.join(edge.x, normal, skip, other)
    return y, _Joined(normal, other, passes)


def _join_backward(
    site: Site, x: Tensor, joined: _Joined, reduced: tuple[Tensor, Tensor, Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Gradients of x, the other branch, and γ, β of one or two batch norms."""
    g, sums, other_sums = reduced
    kernels, rows = site.kernels, site.size.rows
    slopes = kernels.slopes(sums, joined.normal, site.before[0].weight, rows)
    theirs: Slopes | None = None
    if joined.other is not None and other_sums is not None:
        theirs = kernels.slopes(other_sums, joined.other.normal, site.before[1].weight, rows)
    dx, dother = kernels.joined_spread(g, x, joined.normal, slopes, joined.other, theirs)
    if theirs is None:
        return dx, g, slopes.weight, slopes.bias, None, None
    return dx, dother, slopes.weight, slopes.bias, theirs.weight, theirs.bias


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, site: Site, weights: tuple[Tensor, ...], *inputs: Any) -> Any:
        x, parts, other, other_parts = inputs[:4]
        kernels = site.kernels
        y, joined = _join(site, Edge(x, parts, other, other_parts))
        x1, parts1 = kernels.product(y, weights[0], site.size)
        normal1 = kernels.normal(parts1, site.norms[0], site.size.rows)
        y1 = kernels.apply(x1, normal1)
        x2, parts2 = kernels.convolution(y1, weights[1], site.size, site.stride)
        normal2 = kernels.normal(parts2, site.norms[1], site.out.rows)
        y2 = kernels.apply(x2, normal2)
        x3, parts3 = kernels.product(y2, weights[2], site.out)
        branch, branch_parts = y, None
        if len(weights) == 4:
            branch, branch_parts = _downsampled(site, y, weights[3])
        else:
            branch = y.view_as(y)
        ctx.site, ctx.weights, ctx.joined = site, weights, joined
        ctx.normals = (normal1, normal2)
        ctx.save_for_backward(x, y, x1, y1, x2, y2)
        still = [one for one in (parts3, branch_parts) if one is not None]
        ctx.mark_non_differentiable(*still)
        return x3, parts3, branch, branch_parts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        site, weights = ctx.site, ctx.weights
        x, y, x1, y1, x2, y2 = ctx.saved_tensors
        kernels, (normal1, normal2) = site.kernels, ctx.normals
        dx3, dbranch = gradients[0], gradients[2]
        out, same = (site.out, site.out), (site.size, site.size)
        dweight3 = kernels.weight_gradient(dx3, y2, weights[2], out, 1)
        dy2, sums2 = kernels.gradient_product(dx3, weights[2], x2, normal2, site.out)
        slopes2 = kernels.slopes(sums2, normal2, site.norms[1].weight, site.out.rows)
        dx2 = kernels.spread(dy2, x2, normal2, slopes2)
        dy1, dweight2 = kernels.convolution_backward(
            dx2, y1, weights[1], (site.size, site.out), site.stride
        )
        sums1 = kernels.reduce(dy1, x1, normal1)
        slopes1 = kernels.slopes(sums1, normal1, site.norms[0].weight, site.size.rows)
        dx1 = kernels.spread(dy1, x1, normal1, slopes1)
        dweight1 = kernels.weight_gradient(dx1, y, weights[0], same, 1)
        extra, dweight4 = Extra(dbranch, 1), None
        if len(weights) == 4:
            dweight4 = kernels.weight_gradient(
                dbranch, y, weights[3], (site.size, site.out), site.stride
            )
            extra = Extra(dbranch @ weights[3].flatten(1), site.stride)
        edge: tuple[Tensor | None, ...]
        if ctx.joined is None:
            edge = kernels.total_gradient(dx1, weights[0], extra, site.size), *(None,) * 5
        else:
            joined = ctx.joined
            reduced = kernels.join_gradient(
                dx1, weights[0], extra, site.size, x, joined.normal, joined.other, joined.passes
            )
            edge = _join_backward(site, x, joined, reduced)
        dx, dother, *outer = edge
        parameters = (dweight1, slopes1.weight, slopes1.bias, dweight2, slopes2.weight,
                      slopes2.bias, dweight3, dweight4)  # fmt: skip
        return None, None, dx, None, dother, None, *outer, *map(_single, parameters)


def _single(gradient: Tensor | None) -> Tensor | None:
    """Master weights are FP32: so are their gradients (float64 stays, in tests)."""
    return gradient.float() if gradient is not None and gradient.itemsize < 4 else gradient


def _downsampled(site: Site, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    if site.stride == 1:
        return site.kernels.product(y, weight, site.size)
    return site.kernels.convolution(y, weight, site.size, site.stride)


class _Last(torch.autograd.Function):
    """The join behind the last block."""

    @staticmethod
    def forward(ctx: Any, site: Site, *inputs: Any) -> Any:
        x, parts, other, other_parts = inputs[:4]
        y, ctx.joined = _join(site, Edge(x, parts, other, other_parts))
        ctx.site = site
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        site, joined, (x,) = ctx.site, ctx.joined, ctx.saved_tensors
        dy = gradients[0].contiguous()
        reduced = site.kernels.join_reduce(dy, x, joined.normal, joined.other, joined.passes)
        dx, dother, *outer = _join_backward(site, x, joined, reduced)
        return None, dx, None, dother, None, *outer


class _Stem(torch.autograd.Function):
    """7×7 convolution, batch norm, ReLU and 3×3 maximum."""

    @staticmethod
    def forward(
        ctx: Any, site: Site, deep_weight: Tensor, images: Tensor, *parameters: Tensor
    ) -> Any:
        kernels = site.kernels
        rows, size = kernels.space_to_depth(images, deep_weight.dtype)
        x = as_rows(torch.conv2d(as_images(rows, size), deep_weight))
        parts = kernels.statistics(x)
        normal = kernels.normal(parts, site.norms[0], site.size.rows)
        y, taps = kernels.pool(x, normal, site.size)
        ctx.site, ctx.normal, ctx.sizes = site, normal, (size, images.shape[1])
        ctx.save_for_backward(rows, deep_weight, x, taps)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        site, normal = ctx.site, ctx.normal
        rows, deep_weight, x, taps = ctx.saved_tensors
        (size, channels), kernels, dy = ctx.sizes, site.kernels, gradients[0]
        sums = kernels.pool_reduce(dy, taps, x, normal, site.size)
        slopes = kernels.slopes(sums, normal, site.norms[0].weight, site.size.rows)
        dx = kernels.pool_spread(dy, taps, x, normal, slopes, site.size)
        _, dweight, _ = torch.ops.aten.convolution_backward(
            as_images(dx, site.size), as_images(rows, size), deep_weight, None,
            (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, True, False),
        )  # fmt: skip
        found = _single(from_depth(dweight, channels))
        return None, None, None, found, slopes.weight, slopes.bias


class FastResNet(ResNet):
    """A ResNet whose training step runs through `kernels`; evaluation is the ordinary one's."""

    kernels: Plain
    working: torch.dtype
    _copies: dict[Tensor, Tensor]

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.kernels.covers(x.device):
            return super().forward(x)
        self._copy_weights()
        edge, size = self._through_stem(x)
        before: tuple[nn.BatchNorm2d, ...] = ()
        for block in (one for stage in self.stages for one in cast(nn.Sequential, stage)):
            edge, size = self._through(cast(Bottleneck, block), edge, size, before)
            before = _joining(cast(Bottleneck, block))
        site = Site(self.kernels, size, 1, (), before)
        rows: Tensor = _Last.apply(site, *_tensors(edge), *_outer(before))
        means = rows.view(size.images, -1, rows.shape[1]).mean(1)
        with torch.no_grad():
            torch._foreach_add_(_counters(self), 1)
        logits: Tensor = self.classifier(means)
        return logits

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

    def _through_stem(self, images: Tensor) -> tuple[Edge, Size]:
        convolution, norm = cast(nn.Conv2d, self.stem[0]), cast(nn.BatchNorm2d, self.stem[1])
        cells = depth_size(images)
        size = Size(cells.images, cells.height - 3, cells.width - 3)
        site = Site(self.kernels, size, 1, (norm,), ())
        deep = to_depth(self._copies[convolution.weight])
        deep = deep.contiguous(memory_format=torch.channels_last)
        y = _Stem.apply(site, deep, images, convolution.weight, norm.weight, norm.bias)
        return Edge(y, None, None, None), pooled(size)

    def _through(
        self, block: Bottleneck, edge: Edge, size: Size, before: tuple[nn.BatchNorm2d, ...]
    ) -> tuple[Edge, Size]:
        site = Site(self.kernels, size, block.conv2.stride[0], (block.bn1, block.bn2), before)
        weights = [block.conv1.weight, block.conv2.weight, block.conv3.weight]
        if isinstance(block.shortcut, nn.Sequential):
            weights.append(cast(nn.Conv2d, block.shortcut[0]).weight)
        copies = tuple(self._copies[one] for one in weights)
        parameters = (
            weights[0], block.bn1.weight, block.bn1.bias,
            weights[1], block.bn2.weight, block.bn2.bias,
            weights[2], weights[3] if len(weights) == 4 else None,
        )  # fmt: skip
        found = _Block.apply(site, copies, *_tensors(edge), *_outer(before), *parameters)
        return Edge(*found), site.out


def _joining(block: Bottleneck) -> tuple[nn.BatchNorm2d, ...]:
    if isinstance(block.shortcut, nn.Sequential):
        return block.bn3, cast(nn.BatchNorm2d, block.shortcut[1])
    return (block.bn3,)


def _tensors(edge: Edge) -> tuple[Tensor | None, ...]:
    return edge.x, edge.parts, edge.other, edge.other_parts


def _outer(norms: tuple[nn.BatchNorm2d, ...]) -> tuple[Tensor | None, ...]:
    found: list[Tensor | None] = [one for norm in norms for one in (norm.weight, norm.bias)]
    return (*found, *(None,) * (4 - len(found)))


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
