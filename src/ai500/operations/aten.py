"""Kinds of torch's operators, by name, so that the table needs no torch.

A name without a namespace is `aten`'s; the in-place form (`relu_`) has the kind of the plain name.
"""

from __future__ import annotations

from collections.abc import Mapping


def _rows(table: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in table.items() for name in names.split()}


#: Convolutions, whose operands, kernel and gradients the tracer reads.
CONVOLUTIONS = {
    "convolution",
    "_convolution",
    "convolution_overrideable",
    "cudnn_convolution",
    "miopen_convolution",
    "mkldnn_convolution",
}
#: Those whose seventh argument says whether they are transposed; that of cuDNN's is `benchmark`.
TRANSPOSABLE = {"convolution", "_convolution", "convolution_overrideable"}
CONVOLUTION_BACKWARD = "convolution_backward"

#: Products of two tensors → index of the first factor among the arguments.
PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "mv": 0,
    "dot": 0,
    "vdot": 0,
    "_scaled_mm": 0,
    "_scaled_mm_v2": 0,
    "_grouped_mm": 0,
    "_scaled_grouped_mm": 0,
    "_addmm_activation": 1,
    "_int_mm": 0,
    "linear": 0,
    "addmm": 1,
    "baddbmm": 1,
    "addbmm": 1,
    "addmv": 1,
}

#: Product of three factors: left, weight, right.
BILINEAR = "_trilinear"

FUSED_ATTENTION = {
    "scaled_dot_product_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math_for_mps",
}
#: Kernels of attention with the heads after the sequence: (batch, sequence, heads, channels).
ATTENTION_BY_SEQUENCE = {
    "_flash_attention_forward",
    "_flash_attention_forward_no_dropout_inplace",
    "_efficient_attention_forward",
}
FOURIER_TRANSFORMS = {"_fft_r2c", "_fft_c2r", "_fft_c2c"}
DISTANCES = {"_cdist_forward", "_pdist_forward", "_euclidean_dist"}

_LAYERS = {
    "batch_norm": """native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
        _native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_no_update
        cudnn_batch_norm miopen_batch_norm batch_norm""",
    "layer_norm": "native_layer_norm layer_norm",
    "group_norm": "native_group_norm group_norm",
    "rms_norm": "_fused_rms_norm rms_norm",
    "max_pool": """max_pool2d_with_indices max_pool3d_with_indices max_pool1d max_pool2d max_pool3d
        adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d""",
    "average_pool": """avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d""",
    "softmax": "_softmax _safe_softmax softmax",
    "log_softmax": "_log_softmax log_softmax logsumexp",
    "dropout": "native_dropout",
    "embedding": "embedding",
    "embedding_bag": "_embedding_bag _embedding_bag_forward_only",
    "lstm_cell": "_thnn_fused_lstm_cell",
    "gru_cell": "_thnn_fused_gru_cell",
}

_ACTIVATIONS = {
    "relu": "relu",
    "clamp": "hardtanh clamp clamp_min clamp_max threshold relu6",
    "leaky_relu": "leaky_relu _prelu_kernel prelu rrelu_with_noise rrelu_with_noise_functional",
    "sigmoid": "sigmoid",
    "log_sigmoid": "log_sigmoid_forward",
    "tanh": "tanh",
    "gelu": "gelu",
    "silu": "silu",
    "mish": "mish",
    "elu": "elu celu",
    "softplus": "softplus",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "softshrink": "softshrink hardshrink",
    "glu": "glu",
}

_ARITHMETIC = {
    "add": "add sub rsub _foreach_add",
    "mul": "mul square addcmul lerp addr",
    "div": "div reciprocal fmod remainder floor_divide true_divide addcdiv",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "exp": """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh erf
        erfc erfinv pow xlogy special_entr logaddexp logaddexp2 special_log_ndtr digamma lgamma
        hypot logit asinh acosh atanh angle""",
    "polar": "polar",
    "compare": """eq ne lt le gt ge maximum minimum fmax fmin abs neg sign sgn round floor ceil
        trunc frac isnan isinf nan_to_num""",
}

_REDUCTIONS = {
    "sum": """sum cumsum cumprod prod nansum amax amin max min argmax argmin aminmax any all
        cummax cummin index_add scatter_add scatter_reduce segment_reduce histc bincount
        logcumsumexp trace""",
    "mean": "mean",
    "variance": "var std var_mean std_mean",
    "norm": "linalg_vector_norm norm",
    "distance": " ".join(DISTANCES),
    "weight_norm": "_weight_norm_interface",
    "sort": """sort topk kthvalue median nanmedian mode searchsorted bucketize _unique _unique2
        unique_dim unique_consecutive""",
}

_LOSSES = {
    "nll_loss": "nll_loss_forward nll_loss2d_forward",
    "mse_loss": "mse_loss",
    "smooth_l1_loss": "smooth_l1_loss huber_loss",
    "binary_cross_entropy": "binary_cross_entropy binary_cross_entropy_with_logits",
    "soft_margin_loss": "soft_margin_loss multi_margin_loss multilabel_margin_loss_forward",
    "ctc_loss": "_ctc_loss",
}

_SAMPLING = {
    "interpolate_nearest": """upsample_nearest1d upsample_nearest2d upsample_nearest3d
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""",
    "interpolate_linear": "upsample_linear1d",
    "interpolate_bilinear": "upsample_bilinear2d _upsample_bilinear2d_aa",
    "interpolate_trilinear": "upsample_trilinear3d",
    "interpolate_bicubic": "upsample_bicubic2d _upsample_bicubic2d_aa",
    "grid_sample": "grid_sampler_2d grid_sampler_3d",
    "roi_align": "torchvision::roi_align torchvision::ps_roi_align",
    "roi_pool": "torchvision::roi_pool torchvision::ps_roi_pool",
    "nms": "torchvision::nms",
    "fft": " ".join(FOURIER_TRANSFORMS),
}

#: Backward operators, which occur only if the backward pass itself is traced.
_BACKWARD = {
    "batch_norm_backward": """native_batch_norm_backward cudnn_batch_norm_backward
        miopen_batch_norm_backward batch_norm_backward native_layer_norm_backward
        native_group_norm_backward _fused_rms_norm_backward""",
    "softmax_backward": "_softmax_backward_data _log_softmax_backward_data",
    "activation_backward": """threshold_backward hardtanh_backward leaky_relu_backward
        _prelu_kernel_backward hardswish_backward hardsigmoid_backward elu_backward
        softplus_backward sigmoid_backward tanh_backward silu_backward gelu_backward
        mish_backward log_sigmoid_backward softshrink_backward glu_backward""",
    "pool_backward": """max_pool2d_with_indices_backward max_pool3d_with_indices_backward
        avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward
        _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward""",
    "dropout_backward": "native_dropout_backward",
    "loss_backward": """nll_loss_backward nll_loss2d_backward mse_loss_backward
        smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward""",
    "embedding_backward": "embedding_dense_backward",
    "interpolate_backward": """upsample_nearest1d_backward upsample_nearest2d_backward
        upsample_nearest3d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward
        upsample_linear1d_backward upsample_trilinear3d_backward grid_sampler_2d_backward""",
    "lstm_cell_backward": """_thnn_fused_lstm_cell_backward_impl
        _thnn_differentiable_lstm_cell_backward""",
    "gru_cell_backward": "_thnn_fused_gru_cell_backward",
}

#: No arithmetic on data: views of the same memory, and memory that is moved, filled or drawn.
_FREE = {
    "view": """view _unsafe_view reshape _reshape_alias t transpose permute expand expand_as
        slice select narrow split split_with_sizes unsafe_split unsafe_split_with_sizes chunk
        unsafe_chunk unbind unsqueeze squeeze detach alias as_strided view_as_real
        view_as_complex view_as flatten unflatten movedim diagonal unfold lift lift_fresh
        real imag _conj conj resolve_conj resolve_neg numpy_T mT mH swapaxes _neg_view
        is_same_size size stride sym_size sym_stride sym_numel dim numel storage_offset
        sym_storage_offset is_contiguous prim::device prim::layout prim::dtype
        _has_compatible_shallow_copy_type set_ resize""",
    "data_movement": """clone copy _to_copy to contiguous cat stack hstack vstack roll flip rot90
        repeat repeat_interleave tile constant_pad_nd reflection_pad1d reflection_pad2d
        reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pad
        pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im index index_select
        index_put _index_put_impl _unsafe_index _unsafe_index_put gather scatter index_copy
        index_fill masked_fill masked_select masked_scatter where take take_along_dim put
        tril triu tril_indices triu_indices diag diag_embed select_scatter slice_scatter
        diagonal_scatter as_strided_scatter slice_backward select_backward unfold_backward
        unfold_copy empty empty_strided empty_like empty_permuted new_empty new_empty_strided
        zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill zero
        scalar_tensor arange linspace eye meshgrid one_hot rand rand_like randn randn_like
        randint randint_like randperm normal uniform bernoulli multinomial exponential random
        nonzero nonzero_static _local_scalar_dense item is_nonzero _pin_memory
        _pack_padded_sequence _pad_packed_sequence view_copy expand_copy _assert_async
        _assert_tensor_metadata logical_not logical_and logical_or logical_xor bitwise_not
        bitwise_and bitwise_or bitwise_xor __and__ __or__ isin equal allclose complex
        _fused_sdp_choice""",
}

KINDS = _rows(
    {
        **_LAYERS,
        **_ACTIVATIONS,
        **_ARITHMETIC,
        **_REDUCTIONS,
        **_LOSSES,
        **_SAMPLING,
        **_BACKWARD,
        **_FREE,
    }
)


def kind_of(operator: str) -> str | None:
    """Return the kind of an operator such as `aten::relu_` or `torchvision::nms`; None: unknown."""
    name = operator.removeprefix("aten::")
    return KINDS.get(name) or KINDS.get(name.removesuffix("_"))
