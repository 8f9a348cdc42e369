"""analysis/gpu/matmul_kernels.py: which kernels compute products, and on tensor cores, by names as found in traces."""

import pytest

from kinetoscope.analysis.gpu.matmul_kernels import is_matmul, uses_tensor_cores

# Whether it is a product, and whether it uses tensor cores.
KERNELS = {
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn": (True, True),
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": (True, True),
    "ampere_sgemm_128x64_tn": (True, False),
    "volta_sgemm_32x128_nn": (True, False),
    "ampere_dgemm_128x64_tn": (True, False),
    "ampere_gcgemm_64x64_nt": (True, False),
    "sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*, float const*)": (True, False),
    "nvjet_tst_64x8_64x16_2x4_h_bz_TNT": (True, True),
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(Params)": (True, True),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(Params)": (True, False),
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16": (True, True),
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3": (True, False),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1": (True, True),
    "cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1": (True, False),
    "void wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int)": (True, None),
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(WinogradDataParams)": (True, False),
    "gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, cublasGemvParams<>>(int)": (True, False),
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false>>(Params)": (
        True,
        True,
    ),
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<>::Params)": (True, True),
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<>::Params)": (True, None),
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1": (True, True),
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI16x16x16x1_SN_1LDSB0": (True, True),
    "Cijk_Ailk_Bljk_SB_MT16x16x16_SE_AF0EM1_AMAS2": (True, None),
    "triton_tem_fused_addmm_relu_3": (True, None),
    "triton_mm": (True, None),
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>(float*)": (True, True),
    "fused_moe_kernel": (True, None),
    "splitKreduce_kernel<32, 16, int, float, float, float, float, true, false>(cublasSplitKParams<float>)": (
        False,
        None,
    ),
    "cask_cudnn_infer::computeBOffsetsKernel(cask_cudnn_infer::ComputeBOffsetsParams)": (False, None),
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>()": (False, None),
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)": (False, False),
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()": (False, False),
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<1>>()": (
        False,
        False,
    ),
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)": (False, None),
    "triton_poi_fused_addmm_relu_0": (False, False),
    "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)": (False, None),
    "somebodys_kernel": (False, None),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_known_by_their_names(name):
    assert (is_matmul(name), uses_tensor_cores(name)) == KERNELS[name]
