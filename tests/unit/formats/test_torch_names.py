"""formats/torch_names.py: operators pass because torch registers them, kernels because each identifier is known."""

import pytest

from kinetoscope.formats.torch_names import is_backward_node, is_kernel, is_operator, redact_kernel


def test_all_names_that_torch_registers_are_known():
    torch = pytest.importorskip("torch")
    from support.torch_operator_names import PATH, registered_names

    if not torch.__version__.startswith("2.13"):
        pytest.skip("the names are from torch 2.13")
    assert set(registered_names()) <= set(PATH.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", ["aten::mm", "aten::add.Tensor", "prims::convert_element_type", "c10d::allreduce_"])
def test_operators_of_torch_are_known(name):
    assert is_operator(name)


@pytest.mark.parametrize(
    "name", ["aten::titan", "titan::mm", "aten::", "mm", "aten::mm titan", "torch::titan", "AddmmBackward0"]
)
def test_operators_of_users_are_not(name):
    assert not is_operator(name)


def test_nodes_of_the_backward_pass_are_known_by_name():
    assert is_backward_node("AddmmBackward0")
    assert not is_backward_node("TitanBackward0")


KERNELS = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >()",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(float*, float const*, int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::"
    "sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int>>()",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>"
    "(cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4::Params)",
    "ampere_sgemm_128x64_tn",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(int)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "triton_poi_fused_add_relu_0",
    "triton_red_fused__softmax_mul_sum_12",
]


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_torch_and_its_libraries_are_known(name):
    assert is_kernel(name), redact_kernel(name, lambda unknown: f"!{unknown}!")


@pytest.mark.parametrize(
    ("name", "redacted"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, titan::Functor<float>, at::Array<char*, 2>>(titan::F)",
            "void at::native::vectorized_elementwise_kernel<4, *<float>, at::Array<char*, 2>>(*)",
        ),
        ("void cub::DeviceReduceKernel<titan::Policy>(int)", "void cub::DeviceReduceKernel<*>(int)"),
        (
            "void thrust::cuda_cub::core::_kernel_agent<Titan>(int)",
            "void thrust::cuda_cub::core::_kernel_agent<*>(int)",
        ),
        ("void cutlass::Kernel<TitanGemm>(TitanGemm::Params)", "void cutlass::Kernel<*>(*)"),
        ("void gemm_titan_kernel<float>(int)", "void *<float>(int)"),
        ("triton_poi_fused_titan_0", "*"),
        ("ampere_titan_gemm", "*"),
        ("sm90_titan_gemm", "*"),
        ("ncclDevKernel_titan", "*"),
        ("cudnn_titan_ampere", "*"),
        ("void (anonymous namespace)::titan<float>(int)", "void *<float>(int)"),
        ("void titan<float>::operator()(int)", "void *<float>::operator()(int)"),
    ],
)
def test_identifiers_of_users_in_the_name_of_a_kernel_are_replaced(name, redacted):
    assert not is_kernel(name)
    assert redact_kernel(name, lambda _: "*") == redacted
