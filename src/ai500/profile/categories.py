"""The eight categories of V2 Fig. 10 as tables of patterns.

Three questions decide the category of a kernel; the first answer counts:

1. Is its name enough? A copy, NCCL, a change of layout, batch norm, an element-wise loop of torch.
2. Which operator launched it? One CUTLASS kernel serves convolutions and matrix products alike.
   From the innermost operator outwards; views and allocations leave it to the operator around.
3. What does its name suggest? For kernels whose operator is not known.

On a CPU operators are timed (each without those inside it), and question 2 is the only one.
A kernel without an answer is listed as unknown, with its time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, get_args

from ai500.operations.aten import kind_of

Category = Literal[
    "convolution",
    "GEMM",
    "batch norm",
    "element-wise",
    "pooling",
    "memcpy",
    "all-reduce",
    "transformation",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
MEANINGS: dict[Category, str] = {
    "convolution": "convolutions, forward and both gradients",
    "GEMM": "matrix products: linear layers, attention",
    "batch norm": "batch norm and other normalizations",
    "element-wise": "activations, sums, losses, reductions, the optimizer",
    "pooling": "maximum and average pooling",
    "memcpy": "copies and fills of memory as it is",
    "all-reduce": "every exchange between ranks, with the wait for the others in it",
    "transformation": "another layout, type or order of the same values",
}

Table = tuple[tuple[Category, str], ...]

CERTAIN_KERNELS: Table = (
    ("all-reduce", r"^nccl|^rccl|^oneccl|^gloo:|::ncclDev"),
    ("memcpy", r"^Memcpy|^Memset|\b(memcpy|memset)(\d+\w*)?\b|^copyBuffer|^fillBuffer"),
    # Layouts: cuDNN converts for itself, inside convolutions too.
    ("transformation", r"nchwToNhwc|nhwcToNchw|nchw_?to_?nhwc|nhwc_?to_?nchw|nhwcAddPadding"),
    ("transformation", r"nhwcToFoldedNhwc|foldedNhwcToNhwc|tensorTransform|TensorTransform"),
    ("transformation", r"transpose_readWrite|\btranspose\w*_kernel|permute_?kernel|convertTensor"),
    ("transformation", r"CatArrayBatchedCopy|batch_transpose|SubTensorOpWithCastTensor"),
    # A loop of torch that only copies changes type or layout; plain copies are Memcpy DtoD.
    ("transformation", r"at::native::.*(direct_copy|copy_kernel|loop_kernel_copy)"),
    ("transformation", r"at::native::.*(index_elementwise|gather|scatter|indexSelect|flip)"),
    ("batch norm", r"batch_?norm|BatchNorm|\bbn_(fw|bw)|_bn_(fw|bw)|bnFw|bnBw|batchnorm_"),
    ("batch norm", r"layer_?norm|LayerNorm|group_?norm|GroupNorm|rms_?norm|RMSNorm"),
    ("pooling", r"max_?pool|avg_?pool|adaptive_(average|max)|MaxPool|AvgPool|pooling_(fw|bw)"),
    # Our own (workloads/kernels): a fused kernel belongs to the part that moves most of its bytes.
    ("batch norm", r"^(partial_statistics|fold_norm|norm_relu|norm_relu_sum|norm_add_relu)$"),
    ("batch norm", r"^(norm_backward|norm_backward_sums|norm_backward_terms|column_sums)$"),
    ("batch norm", r"^(add_relu_backward|pointwise_fold_norm|pointwise_backward_terms)$"),
    ("convolution", r"^(pointwise_add_relu|pointwise_add_relu_backward)$"),
    ("pooling", r"^(norm_relu_max_pool|norm_max_pool_backward)$"),
    ("transformation", r"^(space_to_depth|crop_flip_normalize)$"),
    ("element-wise", r"at::native::.*multi_tensor_apply|multi_tensor_apply_kernel"),
    ("element-wise", r"at::native::.*(elementwise_kernel|reduce_kernel|distribution_)"),
    ("element-wise", r"at::native::.*(oftMax|oftmax|nll_loss|dropout|tensor_kernel_scan)"),
    ("element-wise", r"at::native::.*(cunn_|FillFunctor|embedding|amp_non_finite|lpnorm)"),
)
"""Question 1."""

OPERATORS: Table = (
    ("all-reduce", r"^c10d::|^nccl:|^gloo:|^record_param_comms|^fsdp::(all_gather|reduce_scatter)"),
    ("convolution", r"conv\d?d?\b|[cC]onvolution|ConvDepthwise|conv_transpose|thnn_conv|slow_conv"),
    ("batch norm", r"batch_norm|BatchNorm|layer_norm|LayerNorm|group_norm|GroupNorm|rms_norm"),
    ("pooling", r"pool\dd|Pool\dD|pool1d|_pool"),
    ("GEMM", r"^aten::_?(scaled_|int_)?(add|badd)?b?mm(_out)?$|^aten::(matmul|linear|addmv|mv)$"),
    ("GEMM", r"^(Addmm|Mm|Bmm|Baddbmm|Linear)Backward|^aten::_?addmm_activation|^aten::dot$"),
    ("GEMM", r"attention|Attention|^mkldnn::_linear|^aten::mkldnn_linear"),
    ("transformation", r"^(aten|fsdp)::(_?chunk_cat|split_with_sizes_copy|all_gather_copy_in)"),
    ("transformation", r"^aten::(_to_copy|to|contiguous|clone|type_as|half|float|bfloat16)$"),
    ("memcpy", r"^torch::distributed::reducer::copy_"),
    ("memcpy", r"^aten::(copy_|_copy_from|fill_|zero_|_pin_memory|pin_memory|full|zeros|ones)$"),
    ("memcpy", r"^aten::(zeros_like|ones_like|full_like|new_zeros|new_full|_local_scalar_dense)$"),
    ("element-wise", r"^aten::(_fused_\w+|_foreach_\w+|_amp_\w+|mul_|isfinite|sub_|add_|lerp_)$"),
    ("element-wise", r"^aten::(cross_entropy_loss|log_softmax|softmax|nll_loss\w*|normal_)$"),
    ("element-wise", r"^aten::(rand\w*|uniform_|random_|bernoulli_?|where)$"),
    ("element-wise", r"^aten::(logical_\w+|bitwise_\w+|argsort)$"),
    ("element-wise", r"^aten::_?embedding_bag"),  # weighted sums: RoI align
    ("transformation", r"^aten::gather_backward$"),
    ("element-wise", r"^aten::(frexp\w*|arange|linspace|masked_fill_?|dropout|clamp_\w+|__\w+__)$"),
)
"""Question 2. Operators not listed go by the kind that counting operations gives them."""

LIKELY_KERNELS: Table = (
    ("convolution", r"fprop|dgrad|wgrad|conv\dd|convolve|[cC]onvolution|winograd|implicit_gemm"),
    ("convolution", r"cudnn::(detail::)?(cnn|ops)?.*(dgrad|wgrad|conv)|computeOffsets|scalePacked"),
    ("convolution", r"^triton_.*conv"),
    ("batch norm", r"^triton_.*(batch_norm|_norm_|native_batch)"),
    ("pooling", r"^triton_.*pool"),
    ("element-wise", r"split_embedding|embedding_\w+kernel"),
    ("GEMM", r"(?<!fb)gemm|GEMM|^nvjet_|^Cijk_|splitKreduce|gemv|fmha|flash_|^triton_.*mm\b"),
    ("GEMM", r"^void cutlass::Kernel|^sm\d+_xmma_gemm|dot_kernel|cublas"),
    ("element-wise", r"^triton_|elementwise|reduce_kernel|multi_tensor|^void at::native"),
    ("element-wise", r"cudnn::.*(activation|op_tensor)|softmax|cub::|thrust::"),
)
"""Question 3."""

_DEFERRING = re.compile(
    r"^aten::(empty\w*|new_empty\w*|resize_|resolve_(conj|neg)|set_|lift_fresh|item)$|"
    r"^aten::(result_type|promote_types|tensor_split|can_cast|is_nonzero|broadcast_tensors)$"
)
"""Allocations and the like: part of the operator around them, as views are."""
_AUGMENTATION = re.compile(r"^aten::(affine_grid_generator|grid_sampler\w*)$")
"""Augmentation of images; the small product that makes the grid belongs to it."""
_COPIES = re.compile(r"^aten::(copy_|_copy_from)$")
_CONVERSIONS = re.compile(r"^aten::(_to_copy|contiguous|clone|reshape|_reshape_copy)$")

_KIND_CATEGORIES: dict[str, Category] = {
    "batch_norm_backward": "batch norm",
    "max_pool": "pooling",
    "average_pool": "pooling",
    "pool_backward": "pooling",
    "roi_pool": "pooling",
    "data_movement": "transformation",
}


def _matcher(table: Table) -> Callable[[str], Category | None]:
    compiled = [(category, re.compile(pattern)) for category, pattern in table]

    @lru_cache(maxsize=65536)
    def matching(name: str) -> Category | None:
        return next((category for category, pattern in compiled if pattern.search(name)), None)

    return matching


_certain, _by_operator, _likely = map(_matcher, (CERTAIN_KERNELS, OPERATORS, LIKELY_KERNELS))


def category_of_kernel(name: str, operators: Sequence[str] = ()) -> Category | None:
    """Return the category of an accelerator's kernel, launched by `operators`, innermost first."""
    return _certain(name) or category_of_operators(tuple(operators)) or _likely(name)


@lru_cache(maxsize=65536)
def category_of_operators(operators: tuple[str, ...]) -> Category | None:
    """Return the category of an operator inside others, innermost first."""
    if any(map(_AUGMENTATION.match, operators)):
        return "element-wise"
    deferred = False
    for place, name in enumerate(operators):
        if _COPIES.match(name) and any(map(_CONVERSIONS.match, operators[place + 1 : place + 3])):
            return "transformation"
        if _DEFERRING.match(name) or kind_of(name) == "view":
            deferred = True
            continue
        if (category := _category_of_operator(name)) is not None:
            return category
    # A view or an allocation outside of any operator prepares memory and computes nothing.
    return "transformation" if deferred else None


def _category_of_operator(name: str) -> Category | None:
    plain = name.removeprefix("autograd::engine::evaluate_function: ")
    category = _by_operator(plain)
    if category is not None or not plain.startswith(("aten::", "torchvision::")):
        return category
    kind = kind_of(plain)
    return None if kind is None else _KIND_CATEGORIES.get(kind, "element-wise")
