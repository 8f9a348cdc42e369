"""analysis/windows/kernel_names.py: kernels that communicate, by names as in traces."""

import json

import pytest

import kinetoscope
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.windows.kernel_names import (
    build_communication_notes,
    is_communication,
    may_be_communication,
)
from support.report_consistency import screen
from trainsim import Fault, Settings, simulate
from trainsim.analyses import analyze_cached

COMMUNICATES = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "_Z39ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
    "void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(c10::BFloat16*)",
    "_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIN3c108BFloat16ELi16EEEvPT_mPPjmm",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>(float*, float*, unsigned long)",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*, unsigned long, unsigned int**)",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)",
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*, sglang::RankSignals)",
    "_ZN4vllm26cross_device_reduce_1stageI13__nv_bfloat16Li8EEEvPNS_8RankDataE",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>()",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true, false>(AllReduceParams)",
    "void tensorrt_llm::kernels::lamport_style_one_shot_all_reduce_norm_kernel<8, __half, 8>(AllReduceParams)",
    "void tensorrt_llm::kernels::mnnvl::twoshot_allreduce_kernel<8, __nv_bfloat16>(__nv_bfloat16*)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16, 8>()",
    "moeA2ADispatchKernel(int const*, DispatchKernelPointers, int)",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
    "void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*, int*)",
    "void uccl::internode_ll::dispatch<true, 7168>(void*)",
    "void nccl_ep::internode_ll::dispatch<(bool)0, (bool)0, (int)7168>(void*)",
    "void moe_comm::intranode::cached_notify_combine<8>(void**, int*, int)",
    "_ZN4mine9intranode8dispatchILi8ELi768EEEvP4int4",
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
    "void alltoall_on_stream_kernel<int>(int, int*, int const*, unsigned long)",
    "nvshmemi_proxy_quiet_entrypoint()",
    "exchangeSplitAndOffset(long*, long*, int)",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int, int, int)",
    "kuserbuffers_pushrecv(int, int, int*, int*, int)",
    "EpDispatchIntraNodeKernel_bf16",
    "void mori::moe::EpCombineInterNodeV1KernelLowLatency<float>(mori::moe::EpDispatchCombineArgs<float>)",
]

COMPUTES = [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>()",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather_internal_kernel<>>()",
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<>>(long)",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(Params)",
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)",
    "triton_poi_fused_add_all_reduce_4",
    "triton_per_fused__to_copy_all_gather_into_tensor_native_layer_norm_wait_tensor_2",
    "void block_all_reduce_softmax<float>(float*)",
    "void small_gather_kernel<float>(float*)",
    "splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(cublasSplitKParams<float>)",
    "void fbgemm_gpu::split_embedding_nobag_codegen_forward_unweighted_kernel<float>(float)",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>(float*)",
    "void dispatch_mask_kernel<int>(int*)",
    "",
]

LOOKS_LIKE_IT = [
    "void mine::fused_allreduce_layernorm<__half>(__half*)",
    "void company::comm::AllGatherTiles<float>(float*)",
    "reduce_scatter_v2(float*, int)",
    "dlslime::intranode_alltoall_kernel(void*)",
    "nvidia_rsag_all_gather_kernel",
    "_ZN4mine18allreduceSimplePutEPf",
]


@pytest.mark.parametrize("name", COMMUNICATES)
def test_kernels_of_known_libraries_communicate(name):
    assert is_communication(name)
    assert not may_be_communication(name)


@pytest.mark.parametrize("name", COMPUTES)
def test_kernels_that_compute_are_no_communication_and_do_not_look_like_it(name):
    assert not is_communication(name)
    assert not may_be_communication(name)


@pytest.mark.parametrize("name", LOOKS_LIKE_IT)
def test_kernels_that_only_look_like_communication_have_a_note(name):
    assert not is_communication(name)
    assert may_be_communication(name)


def test_three_of_many_communication_like_kernels_are_named_and_the_rest_counted():
    (note,) = build_communication_notes([*COMPUTES, *LOOKS_LIKE_IT])
    assert note.endswith(", reduce_scatter_v2 and 3 more.")
    assert build_communication_notes(COMPUTES) == []


def renamed(folder, name):
    """Two ranks whose collectives are kernels of this name, and say nothing of what they do."""
    run = simulate(Settings(num_ranks=2, num_steps=4, has_kernel_args=False))
    for path in run.write(folder):
        trace = json.loads(path.read_text())
        for event in trace["traceEvents"]:
            if event.get("name", "").startswith("ncclDevKernel"):
                event["name"] = name
        path.write_text(json.dumps(trace))
    return run, kinetoscope.analyze(folder, cache=False)


def test_collectives_on_symmetric_memory_are_communication_to_the_nanosecond(tmp_path):
    run, report = renamed(tmp_path, COMMUNICATES[7])
    for row, truth in zip(report.ranks, run.truth.ranks, strict=True):
        assert (row.communication_ns, row.compute_ns) == (truth["communication_ns"], truth["compute_ns"])
        assert row.communication_is_at_least is False
    assert not any("at least" in note for note in report.run["notes"])


ON_SYMMETRIC_MEMORY = {
    "gradients": Settings(communicates_by="symmetric memory", num_ranks=4, num_steps=6),
    "layers": Settings(communicates_by="symmetric memory", num_ranks=4, num_steps=6, layout="tensor"),
    "beside a CUDA graph": Settings(
        communicates_by="symmetric memory", num_ranks=2, num_steps=6, has_cuda_graph=True, has_eager_head=True
    ),
    "slow": Settings(
        communicates_by="symmetric memory",
        num_ranks=2,
        num_steps=6,
        faults=(Fault(kind="slow_network", cost_ns=500_000),),
    ),
    "for a late rank": Settings(
        communicates_by="symmetric memory",
        num_ranks=2,
        num_steps=6,
        faults=(Fault(kind="late_host", ranks=(1,), cost_ns=5_000_000),),
    ),
}


def differences(rows, truth):
    """Fields that are not as they are in truth; a 0 that is unknown may be None. Clocks of ranks are not compared:
    without groups, it is unknown which ranks end a call together."""
    return [
        (name, found, value)
        for row, one in zip(rows, truth, strict=True)
        for name, value in one.items()
        if name != "begin_ns"
        and hasattr(row, name)
        and (found := getattr(row, name)) != value
        and (found, value) != (None, 0)
    ]


@pytest.mark.parametrize("what", ON_SYMMETRIC_MEMORY)
def test_all_numbers_of_devices_are_true_where_ranks_communicate_on_symmetric_memory(what):
    run, report = analyze_cached(ON_SYMMETRIC_MEMORY[what])
    assert sum(row.communication_ns for row in report.ranks) > 0
    assert differences(report.ranks, run.truth.ranks) == []
    steps = sorted(run.truth.steps, key=lambda row: (row["step"], row["rank"]))
    assert differences(report.steps, steps) == []
    kinds = {row.name: (row.kind, row.num_calls, row.total_ns) for row in report.kernels}
    assert kinds == {name: (row["kind"], row["num_calls"], row["total_ns"]) for name, row in run.truth.kernels.items()}


def test_a_slow_all_reduce_on_symmetric_memory_is_found_and_saves_what_it_takes():
    run, report = analyze_cached(ON_SYMMETRIC_MEMORY["slow"])
    assert "exposed_communication" in [finding.kind for finding in report.findings]
    truth = run.saving_ns_per_step(run.with_ideal("transfer"))
    assert report.saving_ns_per_step(Change(without=frozenset({"transfer"}))) == pytest.approx(truth, rel=0.01)


def test_kernels_that_look_like_communication_make_it_a_lower_bound(tmp_path):
    _, report = renamed(tmp_path, LOOKS_LIKE_IT[0])
    assert [(row.communication_ns, row.communication_is_at_least) for row in report.ranks] == 2 * [(0, True)]
    assert json.loads(report.to_json())["ranks"][0]["communication_is_at_least"] is True
    (note,) = (note for note in report.run["notes"] if note.startswith("Communication is a lower bound"))
    assert note.endswith("mine::fused_allreduce_layernorm.")
    assert sum("ommunication is a lower bound" in line for line in screen(report)) == 1


def test_rank_without_a_device_claims_no_minimal_communication(tmp_path):
    simulate(Settings(num_ranks=2, num_steps=4, has_device=False)).write(tmp_path)
    assert [row.communication_is_at_least for row in kinetoscope.analyze(tmp_path).ranks] == [None, None]
