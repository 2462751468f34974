"""Kernel name → category: names as cuDNN, cuBLAS, NCCL, torch and Triton give them."""

from __future__ import annotations

import pytest

from ai500.profile.categories import CATEGORIES, MEANINGS, category_of_kernel, category_of_operators

CERTAIN = {
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(…)": "batch norm",
    "void cudnn::bn_bw_1C11_kernel_new<__half, float, float2, 512, true, 1>(float)": "batch norm",
    "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float,"
    " int>(at::GenericPackedTensorAccessor)": "batch norm",
    "void at::native::batch_norm_backward_reduce_channels_last_kernel<4>": "batch norm",
    "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__nv_bfloat16, float>": "batch norm",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>)": "element-wise",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::TensorListMetadata<3>>": "element-wise",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": "element-wise",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>": "element-wise",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
    "TensorIteratorBase&)::{lambda()#3}>": "transformation",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>>": "transformation",
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0"
    ">": "transformation",
    "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, true>": "transformation",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::(anonymous "
    "namespace)::OpaqueType<4u>, unsigned int, 2, 128, 1>": "transformation",
    "void at::native::(anonymous namespace)::max_pool_forward_nhwc<float, int>": "pooling",
    "void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16>": "pooling",
    "void at::native::(anonymous namespace)::adaptive_average_gradinput_nhwc<int>": "pooling",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all-reduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all-reduce",
    "Memcpy HtoD (Pinned -> Device)": "memcpy",
    "Memcpy DtoD (Device -> Device)": "memcpy",
    "Memset (Device)": "memcpy",
    "memset32": "memcpy",
    "memset32_post": "memcpy",
    "memcpy32_post": "memcpy",
}  # fmt: skip

BY_OPERATOR = [
    # The grid that turns images for augmentation is made by a product.
    ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
     ("aten::bmm", "aten::affine_grid_generator"), "element-wise"),
    # One kernel of CUTLASS for two operators.
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(…)",
     ("aten::cudnn_convolution", "aten::_convolution", "aten::conv2d"), "convolution"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(…)",
     ("aten::addmm", "aten::linear"), "GEMM"),
    ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", ("aten::mm", "AddmmBackward0"), "GEMM"),
    ("nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNN",
     ("aten::convolution_backward", "ConvolutionBackward0"), "convolution"),
    # The bias of a convolution is added by torch itself.
    ("void at::native::elementwise_kernel<128, 2, at::native::CUDAFunctor_add<float>>",
     ("aten::add_", "aten::_convolution"), "element-wise"),
    ("void cudnn::ops::nchwToNhwcKernel<__half>", ("aten::cudnn_convolution",), "transformation"),
    ("void (anonymous namespace)::softmax_warp_forward<float>",
     ("aten::_log_softmax", "aten::log_softmax"), "element-wise"),
    ("some_new_kernel", ("aten::_fused_sgd_", "Optimizer.step#SGD.step"), "element-wise"),
    ("some_new_kernel", ("aten::cudnn_batch_norm_backward",), "batch norm"),
]  # fmt: skip

LIKELY = {
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroup"
    "size1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn": "convolution",
    "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16"
    "_stage4_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn": "convolution",
    "sm90_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64": "convolution",
    "cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": "convolution",
    "void cask__5x_cudnn::computeOffsetsKernel<false, false>": "convolution",
    "ampere_sgemm_128x64_nn": "GEMM",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1": "GEMM",
    "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_TNT": "GEMM",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>": "GEMM",
    "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*, "
    "cublasLtEpilogue_t)": "GEMM",
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1": "GEMM",
    "void split_embedding_codegen_forward_kernel<float>(fbgemm_gpu::Arguments)": "element-wise",
    "triton_poi_fused_add_relu_3": "element-wise",
    "triton_per_fused__native_batch_norm_legit_functional_7": "batch norm",
    "triton_tem_fused_convolution_2": "convolution",
    "triton_poi_fused_max_pool2d_with_indices_1": "pooling",
}

ON_A_CPU = [
    (("aten::bmm", "aten::affine_grid_generator"), "element-wise"),
    (("aten::bmm", "aten::matmul"), "GEMM"),
    (("aten::mkldnn_convolution", "aten::_convolution"), "convolution"),
    (("aten::convolution_backward", "ConvolutionBackward0",
      "autograd::engine::evaluate_function: ConvolutionBackward0"), "convolution"),
    (("aten::native_batch_norm", "aten::_batch_norm_impl_index"), "batch norm"),
    (("aten::addmm", "aten::linear"), "GEMM"),
    (("aten::resolve_conj", "aten::mm", "aten::matmul"), "GEMM"),
    (("aten::_int_mm",), "GEMM"),
    (("aten::max_pool2d_with_indices", "aten::max_pool2d"), "pooling"),
    (("aten::clamp_min_", "aten::relu_"), "element-wise"),
    (("aten::_foreach_add_", "Optimizer.step#SGD.step"), "element-wise"),
    (("aten::copy_",), "memcpy"),
    (("aten::copy_", "aten::_to_copy", "aten::to"), "transformation"),
    (("aten::copy_", "aten::clone", "aten::contiguous"), "transformation"),
    (("aten::empty", "aten::native_batch_norm"), "batch norm"),
    (("aten::index",), "transformation"),
    (("aten::view",), "transformation"),
    (("c10d::allreduce_",), "all-reduce"),
    (("gloo:all_reduce",), "all-reduce"),
    (("torch::distributed::reducer::copy_",), "memcpy"),
    (("mylibrary::mystery",), None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "category"), CERTAIN.items())
def test_names_that_are_enough(name: str, category: str) -> None:
    assert category_of_kernel(name) == category
    assert category_of_kernel(name, ("aten::conv2d",)) == category


@pytest.mark.parametrize(("name", "operators", "category"), BY_OPERATOR)
def test_the_operator_decides(name: str, operators: tuple[str, ...], category: str) -> None:
    assert category_of_kernel(name, operators) == category


@pytest.mark.parametrize(("name", "category"), LIKELY.items())
def test_names_without_an_operator(name: str, category: str) -> None:
    assert category_of_kernel(name) == category


@pytest.mark.parametrize(("operators", "category"), ON_A_CPU)
def test_operators_of_a_cpu(operators: tuple[str, ...], category: str | None) -> None:
    assert category_of_operators(operators) == category


def test_unknown_is_unknown() -> None:
    assert category_of_kernel("mystery", ("mylibrary::mystery", "ProfilerStep#3")) is None
    assert list(MEANINGS) == list(CATEGORIES)
    assert len(CATEGORIES) == 8
