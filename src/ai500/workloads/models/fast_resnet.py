"""ResNet v1.5 with fused kernels: hand-written gradients of its training step, and its evaluation.

A block's third convolution is linear, and so is batch norm once its statistics are known: these
follow from the second moments of the convolution's input, which is four times smaller than its
output (`ReferenceKernels.pointwise_norm`). That output is not kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ai500.workloads.kernels.reference import (
    FoldedNorm,
    PointwiseConv,
    ReferenceKernels,
    Size,
    SkipGradient,
    as_images,
    as_rows,
    fold_running_norms,
    folded_pointwise,
    pooled_size,
    stem_size,
    weight_gradient_from_depth,
    weight_to_depth,
)
from ai500.workloads.models.resnet import Bottleneck, ResNet


@dataclass(frozen=True)
class BlockContext:
    """Kernels, sizes and norms of one block in a step."""

    kernels: ReferenceKernels
    size: Size
    """Size of the block's input."""
    stride: int
    norms: tuple[nn.BatchNorm2d, ...]
    """Three, and that of a downsampling skip."""
    before: ReluMask | None
    """Last ReLU of the block before; None behind the stem."""
    after: ReluMask

    @property
    def out(self) -> Size:
        """Return the size of the block's output."""
        return self.size.strided(self.stride)


@dataclass
class ReluMask:
    """Mask of a block's last ReLU.

    The next block masks its input gradient with it and leaves the column sums in `totals`.
    """

    mask: Tensor | None = None
    totals: Tensor | None = None


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, context: BlockContext, weights: tuple[Tensor, ...], y: Tensor, *_: Any
    ) -> Tensor:
        kernels, (norm1, norm2, norm3, *norm4) = context.kernels, context.norms
        x1, parts1 = kernels.pointwise_conv(y, weights[0], context.size)
        folded1 = kernels.fold_norm(parts1, norm1, context.size.rows)
        y1 = kernels.norm_relu(x1, folded1)
        x2, parts2 = kernels.convolution(y1, weights[1], context.size, context.stride)
        folded2 = kernels.fold_norm(parts2, norm2, context.out.rows)
        y2, totals2 = kernels.norm_relu_sum(x2, folded2)
        third = kernels.pointwise_norm(y2, totals2, weights[2], norm3)
        fourth: PointwiseConv | None = None
        if norm4:
            even, totals4 = kernels.strided_rows_sum(y, context.size, context.stride)
            fourth = kernels.pointwise_norm(even, totals4, weights[3], norm4[0])
        out, context.after.mask = kernels.pointwise_add_relu(third, None if fourth else y, fourth)
        ctx.site, ctx.weights = context, weights
        ctx.normals, ctx.linears = (folded1, folded2), (third, fourth)
        ctx.save_for_backward(y, x1, y1, x2)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.linears is None:
            raise RuntimeError("a fast block supports one backward pass only")
        context, weights, (third, fourth) = ctx.site, ctx.weights, ctx.linears
        y, x1, y1, x2 = ctx.saved_tensors
        kernels, (folded1, folded2) = context.kernels, ctx.normals
        g, totals = gradients[0], context.after.totals
        if totals is None:
            g, totals = kernels.add_relu_backward(g.contiguous(), context.after.mask)
        back = kernels.pointwise_backward(g, totals, third, context.norms[2])
        sums2 = kernels.norm_backward_sums(back.y, x2, folded2)
        terms2 = kernels.norm_backward_terms(
            sums2, folded2, context.norms[1].weight, context.out.rows
        )
        dx2 = kernels.norm_backward(back.y, x2, folded2, terms2)
        dy1, dweight2 = kernels.convolution_backward(
            dx2, y1, weights[1], (context.size, context.out), context.stride
        )
        sums1 = kernels.norm_backward_sums(dy1, x1, folded1)
        terms1 = kernels.norm_backward_terms(
            sums1, folded1, context.norms[0].weight, context.size.rows
        )
        dx1 = kernels.norm_backward(dy1, x1, folded1, terms1)
        dweight1 = kernels.weight_gradient(dx1, y, weights[0])
        extra, skip = SkipGradient(g, 1), ()
        if fourth is not None:
            dy4, *skip = kernels.pointwise_backward(g, totals, fourth, context.norms[3])
            extra = SkipGradient(dy4, context.stride)
        dy = _input_gradient(context, dx1, weights[0], extra)
        context.after.mask = context.after.totals = ctx.linears = None
        parameters = (dweight1, terms1.weight, terms1.bias, dweight2, terms2.weight,
                      terms2.bias, *back[1:], *skip)  # fmt: skip
        return None, None, dy, *map(_single, parameters)


def _input_gradient(
    context: BlockContext, dx: Tensor, weight: Tensor, extra: SkipGradient
) -> Tensor:
    """Compute the gradient of a block's input, masked by the ReLU of the block before."""
    relu = context.before
    if relu is None or relu.mask is None:
        return context.kernels.input_gradient(dx, weight, extra, context.size)
    dy, relu.totals = context.kernels.pointwise_add_relu_backward(
        dx, weight, extra, context.size, relu.mask
    )
    return dy


def _single(gradient: Tensor | None) -> Tensor | None:
    """Convert a 16-bit gradient to FP32, the precision of master weights."""
    return gradient.float() if gradient is not None and gradient.itemsize < 4 else gradient


class _Stem(torch.autograd.Function):
    """7×7 convolution, batch norm, ReLU and 3×3 maximum."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: ReferenceKernels,
        norm: nn.BatchNorm2d,
        deep_weight: Tensor,
        images: Tensor,
        *_: Tensor,
    ) -> Tensor:
        rows, size = kernels.space_to_depth(images, deep_weight.dtype)
        x, size_out = _stem_convolution(rows, size, deep_weight), stem_size(images)
        folded = kernels.fold_norm(kernels.partial_statistics(x), norm, size_out.rows)
        y, taps, chosen = kernels.norm_relu_max_pool(x, folded, size_out)
        ctx.kernels, ctx.norm, ctx.normal = kernels, norm, folded
        ctx.sizes = size, size_out, images.shape[1]
        ctx.save_for_backward(rows, deep_weight, x, taps, chosen)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        rows, deep_weight, x, taps, chosen = ctx.saved_tensors
        kernels, folded, (size, size_out, channels) = ctx.kernels, ctx.normal, ctx.sizes
        dy = gradients[0]
        sums = kernels.norm_backward_sums(dy, chosen, folded)
        terms = kernels.norm_backward_terms(sums, folded, ctx.norm.weight, size_out.rows)
        dx = kernels.norm_max_pool_backward(dy, taps, x, folded, terms, size_out)
        _, dweight, _ = torch.ops.aten.convolution_backward(
            as_images(dx, size_out), as_images(rows, size), deep_weight, None,
            (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, True, False),
        )  # fmt: skip
        stem_gradient = _single(weight_gradient_from_depth(dweight, channels))
        return None, None, None, None, stem_gradient, terms.weight, terms.bias


def _stem_convolution(rows: Tensor, size: Size, deep_weight: Tensor) -> Tensor:
    return as_rows(torch.conv2d(as_images(rows, size), deep_weight))


class FastResNet(ResNet):
    """A ResNet whose training step and evaluation run through `kernels`."""

    fixed_shapes = True
    kernels: ReferenceKernels
    compute_dtype: torch.dtype
    _weight_copies: dict[Tensor, Tensor]

    def forward(self, x: Tensor) -> Tensor:
        use_kernels = self.training or not torch.is_grad_enabled()
        if not use_kernels or not self.kernels.supports(x.device):
            return super().forward(x)
        # Fused kernels choose their precisions; autocast would round second moments to BF16.
        with torch.autocast(x.device.type, enabled=False):
            rows, size = self._train_forward(x) if self.training else self._evaluate(x)
        means = rows.view(size.images, -1, rows.shape[1]).mean(1)
        logits: Tensor = self.classifier(means)
        return logits

    def _train_forward(self, x: Tensor) -> tuple[Tensor, Size]:
        self._copy_weights()
        rows, size, before = self._stem_forward(x), pooled_size(stem_size(x)), None
        for block in self._iterate_blocks():
            rows, context = self._block_forward(block, rows, size, before)
            size, before = context.out, context.after
        with torch.no_grad():
            torch._foreach_add_(_counters(self), 1)
        return rows, size

    def _evaluate(self, images: Tensor) -> tuple[Tensor, Size]:
        """Evaluate with running statistics; nothing is kept for gradients.

        Every batch norm is known before its input, so each 1×1 convolution applies its norm, the
        ReLU and the skip in the same pass.
        """
        self._copy_weights()
        norms = [module for module in self.modules() if isinstance(module, nn.BatchNorm2d)]
        folded = dict(zip(norms, fold_running_norms(norms), strict=True))
        convolution, norm = cast(nn.Conv2d, self.stem[0]), cast(nn.BatchNorm2d, self.stem[1])
        rows, size = self.kernels.space_to_depth(images, self.compute_dtype)
        x, size = _stem_convolution(rows, size, self._depth_weight(convolution)), stem_size(images)
        rows, size = self.kernels.norm_relu_max_pool(x, folded[norm], size)[0], pooled_size(size)
        for block in self._iterate_blocks():
            rows, size = self._evaluate_block(block, rows, size, folded)
        return rows, size

    def _evaluate_block(
        self, block: Bottleneck, rows: Tensor, size: Size, folded: dict[nn.BatchNorm2d, FoldedNorm]
    ) -> tuple[Tensor, Size]:
        kernels, stride = self.kernels, block.conv2.stride[0]

        def pointwise(y: Tensor, layer: tuple[nn.Conv2d, nn.BatchNorm2d]) -> PointwiseConv:
            return folded_pointwise(y, self._weight_copies[layer[0].weight], folded[layer[1]])

        first, (middle, norm), third, *skip = _layers(block)
        y, _ = kernels.pointwise_add_relu(pointwise(rows, first), None, None)
        x = kernels.convolve(y, self._weight_copies[middle.weight], size, stride)
        last = pointwise(kernels.norm_relu(x, folded[norm]), third)
        other = pointwise(kernels.strided_rows(rows, size, stride), skip[0]) if skip else None
        out, _ = kernels.pointwise_add_relu(last, None if other else rows, other)
        return out, size.strided(stride)

    def _iterate_blocks(self) -> Iterator[Bottleneck]:
        for stage in self.stages:
            yield from cast(Iterable[Bottleneck], stage)

    def _depth_weight(self, convolution: nn.Conv2d) -> Tensor:
        deep = weight_to_depth(self._weight_copies[convolution.weight])
        return deep.contiguous(memory_format=torch.channels_last)

    def _copy_weights(self) -> None:
        """Copy convolution weights to `compute_dtype`, all in a few launches."""
        weights = [module.weight for module in self.modules() if isinstance(module, nn.Conv2d)]
        if not self._weight_copies or self._weight_copies[weights[0]].device != weights[0].device:
            self._weight_copies.update(
                (weight, torch.empty_like(weight, dtype=self.compute_dtype, requires_grad=False))
                for weight in weights
            )
        copies = [self._weight_copies[weight] for weight in weights]
        with torch.no_grad():
            torch._foreach_copy_(copies, weights)

    def _stem_forward(self, images: Tensor) -> Tensor:
        convolution, norm = cast(nn.Conv2d, self.stem[0]), cast(nn.BatchNorm2d, self.stem[1])
        rows: Tensor = _Stem.apply(
            self.kernels, norm, self._depth_weight(convolution), images,
            convolution.weight, norm.weight, norm.bias,
        )  # fmt: skip
        return rows

    def _block_forward(
        self, block: Bottleneck, rows: Tensor, size: Size, before: ReluMask | None
    ) -> tuple[Tensor, BlockContext]:
        layers = _layers(block)
        norms = tuple(norm for _, norm in layers)
        context = BlockContext(self.kernels, size, block.conv2.stride[0], norms, before, ReluMask())
        copies = tuple(self._weight_copies[convolution.weight] for convolution, _ in layers)
        parameters = (
            parameter
            for convolution, norm in layers
            for parameter in (convolution.weight, norm.weight, norm.bias)
        )
        return _Block.apply(context, copies, rows, *parameters), context


def _layers(block: Bottleneck) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Return a block's convolutions and norms, a downsampling skip's last."""
    layers = [(block.conv1, block.bn1), (block.conv2, block.bn2), (block.conv3, block.bn3)]
    if isinstance(block.shortcut, nn.Sequential):
        layers.append(cast(tuple[nn.Conv2d, nn.BatchNorm2d], tuple(block.shortcut)))
    return layers


def _counters(model: nn.Module) -> list[Tensor]:
    norms = (module for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    return [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]


def unsupported_reason(model: nn.Module) -> str:
    """Return why a model has no fast form; empty if it has one."""
    if type(model) is not ResNet or not isinstance(model.stem[-1], nn.MaxPool2d):
        return "only ResNets of bottlenecks with the ImageNet stem have a fast form"
    blocks = [block for stage in model.stages for block in cast(nn.Sequential, stage)]
    if not all(isinstance(block, Bottleneck) and block.conv1.stride == (1, 1) for block in blocks):
        return "only bottlenecks with the stride on the 3×3 convolution (v1.5) have a fast form"
    batch_norm = nn.modules.batchnorm._BatchNorm
    norms = [module for module in model.modules() if isinstance(module, batch_norm)]
    if not all(type(norm) is nn.BatchNorm2d and norm.momentum is not None for norm in norms):
        return "batch norm is synchronized or has no momentum"
    return ""


def make_fast(
    model: ResNet, kernels: ReferenceKernels, *, compute_dtype: torch.dtype
) -> FastResNet:
    """Convert a model in place; parameters, buffers and their names stay.

    `compute_dtype` is the precision of activations and products.
    """
    reason = unsupported_reason(model)
    if reason:
        raise ValueError(reason)
    model.__class__ = FastResNet
    fast_model = cast(FastResNet, model)
    fast_model.kernels, fast_model.compute_dtype = kernels, compute_dtype
    fast_model._weight_copies = {}
    return fast_model
