import { expect, test } from "vitest";
import { shortKernelName, shortKernelNames } from "../src/kernel_names";

test.each([
  [
    "void at::native::vectorized_elementwise_kernel<4, at::native::clamp_min_scalar, std::array<char*, 2ul>>(int)",
    "vectorized_elementwise_kernel<4, clamp_min_scalar, array<char*, 2>>",
  ],
  [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
  ],
  [
    "void (anonymous namespace)::softmax_warp_forward<float, float, 10, true>(float*, float const*)",
    "softmax_warp_forward<float, float, 10, true>",
  ],
  [
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, float)",
    "elementwise_kernel<128, 4, gpu_kernel_impl<CUDAFunctor_add<float>>::{lambda#1}>",
  ],
  ["ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"],
  ["Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"],
  ["triton_poi_fused_add_0", "triton_poi_fused_add_0"],
])("the short form of %s", (name, short) => {
  expect(shortKernelName(name)).toBe(short);
});

test("kernels with a common short form keep their names", () => {
  const names = ["void a::fill<int>(int)", "void b::fill<int>(int)", "void b::copy(int)"];
  expect([...shortKernelNames(names).values()]).toEqual([names[0], names[1], "copy"]);
});
