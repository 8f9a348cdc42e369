"""formats/anonymizer.py: the names of users are replaced in each field, those of torch and ours stay in theirs."""

import pytest

from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.formats.sentence_redaction import LEFT_OUT


def name_of(name, category="cpu_op", phase="X"):
    """Return the name of an event after redaction."""
    return Anonymizer().event({"ph": phase, "cat": category, "name": name})["name"]


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cpu_op", "aten::convolution_backward"),
        ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0"),
        ("cpu_op", "torch::autograd::AccumulateGrad"),
        ("user_annotation", "ProfilerStep#12"),
        ("user_annotation", "Optimizer.step#Adam.step"),
        ("user_annotation", "nccl:all_reduce"),
        ("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::threshold_kernel_impl>(int)"),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
        ("kernel", "ampere_sgemm_128x64_tn"),
        ("kernel", "triton_poi_fused_add_relu_0"),
        ("cuda_runtime", "cudaLaunchKernel"),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"),
        ("batch", "event/batch"),
        ("python_function", "torch/nn/modules/module.py(1783): _call_impl"),
        ("python_function", "<built-in method run_backward of torch._C._EngineBase object at 0x7f2f1c>"),
        ("python_function", "<built-in function linear>"),
        ("stack_sample,state", "waits: sleep"),
        ("gc", "gc generation 2"),
        ("processors", "processors"),
        ("overhead", "Activity Buffer Request"),
    ],
)
def test_names_of_torch_and_kinetoscope_stay(category, name):
    event = {"ph": "X", "cat": category, "name": name}
    assert Anonymizer().event(event) == event


@pytest.mark.parametrize(
    ("category", "name", "redacted"),
    [
        ("cpu_op", "aten::titan", "name 1"),
        ("cpu_op", "titan::mm", "name 1"),
        ("cpu_op", "TitanBackward0", "name 1"),
        ("cpu_op", "autograd::engine::evaluate_function: TitanBackward0", "name 1"),
        ("user_annotation", "forward pass", "name 1"),
        ("user_annotation", "memory", "name 1"),
        ("user_annotation", "reduce", "name 1"),
        ("user_annotation", "step", "name 1"),
        ("user_annotation", "waits: sleep", "name 1"),
        ("user_annotation", "Optimizer.step#Titan.step", "Optimizer.step#name 1"),
        ("user_annotation", "gloo:titan", "name 1"),
        ("marker", "aten::mm", "name 1"),
        ("marker", "ProfilerStep#3", "name 1"),
        ("kernel", "titan_kernel", "kernel 1"),
        ("kernel", "void cub::DeviceReduceKernel<titan::Policy>(int)", "void cub::DeviceReduceKernel<type 1>(int)"),
        ("cuda_runtime", "cudaTitan", "name 1"),
        ("gpu_memcpy", "Memcpy (titan)", "name 1"),
        ("overhead", "Command Buffer titan", "name 1"),
        ("python_function", "train.py(3): main", "file 1.py(3): function 1"),
        ("python_function", "/a/site-packages/titan/x.py(3): f", "site-packages/file 1.py(3): function 1"),
        ("python_function", "torch/titan/x.py(1): f", "file 1.py(1): function 1"),
        ("python_function", "nn.Module: Titan_0", "function 1"),
        ("python_function", "<built-in method score_patient of PyCapsule object at 0x7f2f1c>", "function 1"),
        ("python_function", "<frozen titan>(1): titan", "file 1(1): function 1"),
        ("stack_sample", "train.py(3): main", "file 1.py(3): function 1"),
        ("memory_holder", "memory holder titan", "memory holder name 1"),
        ("compile", "compile/titan", "compile/name 1"),
        ("kinetoscope", "kinetoscope/titan", "name 1"),
        ("another", "titan", "name 1"),
    ],
)
def test_names_of_users_are_replaced(category, name, redacted):
    assert name_of(name, category) == redacted


def test_an_operator_in_a_trace_of_another_profiler_stays():
    assert name_of("aten::mm", "another") == "aten::mm"


def test_kinetoscope_category_is_user_text_on_another_event():
    anonymizer = Anonymizer()
    assert anonymizer.event({"ph": "X", "cat": "batch", "name": "event/batch"})["cat"] == "batch"
    assert anonymizer.event({"ph": "X", "cat": "batch", "name": "of cookies"})["cat"] == "category 1"
    assert anonymizer.event({"ph": "X", "cat": "marker,bread", "name": "x"})["cat"] == "marker,category 2"


def test_series_of_our_counters_stay_and_those_of_users_do_not():
    args = {"used_gib": 3}
    counter = {"ph": "C", "cat": "system", "name": "memory/virtual", "args": args}
    assert Anonymizer().event(counter) == counter
    users = {"ph": "C", "cat": "marker", "name": "memory/virtual", "args": args}
    assert Anonymizer().event(users) == users | {"name": "name 1", "args": {"argument 1": 3}}


@pytest.mark.parametrize(
    ("key", "value", "redacted"),
    [
        ("Input type", ["float", "c10::BFloat16", "Scalar"], None),
        ("Input type", ["float", "titan"], ["float", "name 1"]),
        ("Concrete Inputs", ["", "0.1", "[1, 2]", "False"], None),
        ("Concrete Inputs", ["titan"], ["name 1"]),
        ("Collective name", "_allgather_base", None),
        ("Collective name", "reduce titan", "name 1"),
        ("Process Group Name", "default_pg", None),
        ("Process Group Name", "gather", "group 1"),
        ("line", "a/train.py:12", "file 1.py:12"),
        ("line", "torch/nn/functional.py:12", None),
        ("Call stack", "train.py(3): f;torch/_ops.py(4): g", "file 1.py(3): function 1;torch/_ops.py(4): g"),
        ("kind", "list", None),
        ("kind", "Patients", "name 1"),
        ("holder", "list", "name 1"),
        ("dataset", "float", "name 1"),
        ("cut", "open when its window closed", None),
        ("kinetoscope", "project titan", LEFT_OUT),
        ("stream", 7, None),
        ("grid", [1, 2.5], None),
        ("grid", "titan", "name 1"),
    ],
)
def test_a_value_stays_where_its_argument_may_have_it(key, value, redacted):
    assert Anonymizer().arguments({key: value}) == {key: value if redacted is None else redacted}


def test_arguments_and_fields_of_users_are_replaced_with_their_texts():
    assert Anonymizer().arguments({"patient": "nccl", "x": {"device": 1}}) == {
        "argument 1": "name 1",
        "argument 2": {"device": 1},
    }


@pytest.mark.parametrize(
    ("name", "is_of_makers"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", True),
        ("NVIDIA GeForce RTX 4090", True),
        ("AMD Instinct MI300X", True),
        ("Tesla V100-SXM2-16GB", True),
        ("NVIDIA secret", False),
        ("A100 of the secret project", False),
    ],
)
def test_names_of_devices_are_those_of_their_makers(name, is_of_makers):
    (device,) = Anonymizer().header({"deviceProperties": [{"id": 0, "name": name}]})["deviceProperties"]
    assert device == {"id": 0, "name": name if is_of_makers else "device 1"}


@pytest.mark.parametrize("thread", ["MainThread", "stream 7", "thread 4001 (pt_main_thread)", "GPU 0 stream 7"])
def test_names_of_threads_that_torch_and_we_give_stay(thread):
    assert Anonymizer().event(described(thread)) == described(thread)


@pytest.mark.parametrize("thread", ["thread 4 (mine)", "stream", "pt_mine", "kinetoscope-titan"])
def test_names_of_threads_of_users_do_not(thread):
    assert Anonymizer().event(described(thread)) == described("track 1")


def described(thread):
    """Return the event that names a thread."""
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": thread}}


def test_the_same_name_is_replaced_by_the_same_and_steps_of_a_user_stay_steps():
    anonymizer = Anonymizer(step="my step")
    events = [{"ph": "X", "cat": "user_annotation", "name": name} for name in ("a", "my step 3", "b", "a", "my steps")]
    assert [anonymizer.event(event)["name"] for event in events] == ["name 1", "step 3", "name 2", "name 1", "name 3"]


@pytest.mark.parametrize("sentence", ["the project is for google, meta and apple", "project titan", "data", "rank 3"])
def test_a_sentence_of_a_user_is_left_out_although_our_code_has_its_words(sentence):
    assert Anonymizer().sentence(sentence) == LEFT_OUT


def test_kinetoscope_sentence_keeps_only_its_numbers():
    left_out = "titan.json was left out: it holds the same as apple."
    assert Anonymizer().sentence(left_out) == "… was left out: it holds the same as …."
    assert Anonymizer().sentence("Events with a negative duration were left out: 3.").endswith("left out: 3.")
