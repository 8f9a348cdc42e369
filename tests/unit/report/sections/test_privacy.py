"""What a page does not tell, since it is made to be sent."""

import re

import pytest

import kinetoscope
from kinetoscope.pages.html_file import encode
from kinetoscope.report.sections.names import is_known, is_known_argument, is_known_device, is_known_value
from kinetoscope.report.sections.own_words import is_ours
from kinetoscope.report.sections.page_redaction import LEFT_OUT
from page_columns import page_of, span, write_trace

HOME = "/home/alice.secret"


def steps_with_secrets():
    """A run of a user, with home and name wherever a trace has text."""
    events = []
    for step in range(10):
        first = 1000 * step
        where = f"{HOME}/project/secret_train.py(12): secret_function"
        events += [
            span(f"ProfilerStep#{step}", first, 900, category="user_annotation"),
            span(where, first + 1, 890, category="python_function"),
            span(f"{HOME}/venv/lib/python3.11/site-packages/torch/nn/linear.py(9): forward", first + 3, 80)
            | {"cat": "python_function"},
            span("nn.Module: SecretNet_0", first + 4, 70, category="python_function"),
            span("aten::mm", first + 5, 40, **{"Input Dims": [[step, 2]], "path": f"{HOME}/data set/secret.bin"}),
            span("secret::operator", first + 50, 10, note=r"C:\Users\alice.secret\secret.txt"),
            span(f"secret_marker in {HOME}/runs", first + 500, 30, category="secret_category"),
            span("secret_marker", first + 531, 5, category="marker"),
            span("SecretFunctionBackward", first + 540, 10),
            span("secret_kernel", first + 600, 10, tid=7, category="kernel", file=f"{HOME}/x/secret_kernel.py"),
            span("Optimizer.step#SecretOptimizer.step", first + 700, 10, category="user_annotation"),
            span("gc of alice.secret", first + 750, 20, category="gc"),
            {"ph": "C", "name": "secret loss", "pid": 1, "tid": 1, "ts": first, "args": {f"{HOME}/x": step}},
        ]
    names = [("thread_name", "secret thread"), ("process_name", f"python {HOME}/secret_train.py")]
    events += [{"ph": "M", "name": name, "pid": 1, "tid": 1, "args": {"name": value}} for name, value in names]
    return events


HEADER = {
    "kinetoscope": {
        "rank": 0,
        "run_name": f"secret_run by alice.secret in {HOME}/runs",
        "host": "secret-host",
        "notes": [f"{HOME}/runs/secret_file.json was left out; alice.secret was warned of secret_marker."],
    },
    "command": f"python {HOME}/train.py --password secret",
    "user_metadata": {"owner": "alice.secret"},
}


def text_of(page):
    """All that a page has, as text."""
    return encode(page).decode("utf-8", "replace")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_trace(tmp_path_factory.mktemp("secret") / "rank0.json", steps_with_secrets(), **HEADER)


@pytest.fixture(scope="module")
def redacted_page(path):
    return page_of(path, redact=True)


def test_neither_homes_nor_names_of_users_are_in_a_page(path):
    assert "alice" in path.read_text()

    text = text_of(page_of(path))

    assert "alice" not in text
    assert "/home" not in text
    assert "Users" not in text
    assert "password" not in text
    assert "owner" not in text


def test_lines_begin_in_the_library_or_in_the_project(path):
    text = text_of(page_of(path))
    assert "torch/nn/linear.py(9): forward" in text
    assert "secret_train.py(12): secret_function" in text
    assert "secret-host" in text


def test_a_redacted_page_has_no_name_that_a_user_chose(redacted_page):
    text = text_of(redacted_page)
    assert "secret" not in text.lower()
    assert "alice" not in text
    for name in ("aten::mm", "torch/nn/linear.py(9): forward", "ProfilerStep#3", "Optimizer.step#", "Input Dims"):
        assert name in text


def test_the_same_name_is_replaced_by_the_same_everywhere(redacted_page):
    (operator, *_) = (row["name"] for row in redacted_page.report["operators"] if not is_known(row["name"]))
    assert operator in redacted_page.timeline.texts
    assert any(operator in graph.texts for graph in redacted_page.flame_graphs)


@pytest.mark.parametrize(
    "name",
    [
        "aten::convolution_backward",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "torch::autograd::AccumulateGrad",
        "ProfilerStep#12",
        "void at::native::vectorized_elementwise_kernel<4, at::native::threshold_kernel_impl>(int)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "cudaLaunchKernel",
        "Memcpy HtoD (Pinned -> Device)",
        "event/dataloader",
        "torch/nn/modules/module.py(1783): _call_impl",
        "void gemmSN_TN_kernel<float, 128, 16>(int)",
        "ampere_sgemm_128x64_tn",
        "triton_poi_fused_add_relu_0",
        "memory/virtual used",
        "stream 7 ",
        "thread 4001 (pt_main_thread)",
    ],
)
def test_what_torch_itself_names_stays(name):
    assert is_known(name)


@pytest.mark.parametrize(
    "name",
    [
        "loss",
        "thread 4 (mine)",
        "my gemm",
        "my_gemm_kernel",
        "pt_mine",
        "memory of mine",
        "MyNet",
        "my::op",
        "MyFunctionBackward",
        "train.py(3): main",
        "forward pass",
        "aten::titan",
        "torch::titan",
        "prims::titan",
        "gloo:titan",
        "autograd::engine::evaluate_function: TitanBackward0",
        "TitanBackward0",
        "torch/titan/x.py(1): f",
        "cudaTitanxY_titan",
        "Memcpy (titan)",
        "enumerate(DataLoader)#_SingleProcessTitanDataLoaderIter.__next__",
        "torch.distributed.ddp.reducer::titan",
        "titan Buffer",
        "Command Buffer titan",
        "<frozen titan>(1): titan",
        "<built-in method titan of torch.titan object>",
        "<built-in function to of titan object at 0x1>",
        "kinetoscope-titan",
        "void at::native::vectorized_elementwise_kernel<4, titan::Functor<float>>(int)",
        "void cub::DeviceReduceKernel<titan::Policy>(int)",
        "void gemm_titan_kernel<float>(int)",
        "triton_poi_fused_titan_0",
        "ampere_titan_gemm",
        "ncclDevKernel_titan",
        "cudnn_titan_ampere",
    ],
)
def test_names_of_users_are_recognised(name):
    assert not is_known(name)


@pytest.mark.parametrize(
    ("frame", "is_torchs"),
    [
        ("<built-in method run_backward of torch._C._EngineBase object at 0x7f2f1c>", True),
        ("<built-in function linear>", True),
        ("<built-in method item of Tensor object at 0x7f2f1c>", True),
        ("<built-in method append of list object at 0x7f2f1c>", True),
        ("<built-in method score_patient of PyCapsule object at 0x7f2f1c>", False),
        ("<built-in function load_patients>", False),
    ],
)
def test_functions_in_c_are_known_by_their_own_name_or_by_their_type(frame, is_torchs):
    assert is_known(frame) is is_torchs


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
    assert is_known_device(name) is is_of_makers


def test_keys_and_texts_of_arguments_are_kept_only_if_they_are_torchs():
    assert all(map(is_known_argument, ["Input Dims", "correlation", "grid", "warps per SM", "num_workers"]))
    assert not any(map(is_known_argument, ["patient", "note", "input dims of mine"]))
    assert all(map(is_known_value, ["c10::BFloat16", "long int", "[[2], []]", "_allgather_base", "nccl", "aten::mm"]))
    assert not any(map(is_known_value, ["c10::BFloat16 of mine", "patient 3", "at::patient<int>"]))


def test_all_words_of_a_page_but_names_are_known_to_be_ours(path):
    """Else a redacted page would have other words where the page looks for its own."""
    page, plain = page_of(path, redact=True).report, page_of(path).report
    assert page.keys() == plain.keys()
    for table in ("ranks", "steps", "operators", "kernels", "memory", "findings"):
        assert [row.keys() for row in page[table]] == [row.keys() for row in plain[table]]
    words = ("bound_by", "state", "parts")
    assert [page["run"][word] for word in words] == [plain["run"][word] for word in words]
    assert is_ours("bound by data, 12.5ms")
    assert not is_ours("bound by patients")


def test_a_note_in_a_header_is_left_out_and_our_own_notes_stay(redacted_page):
    notes = redacted_page.report["run"]["notes"]
    assert LEFT_OUT in notes
    assert any(note.startswith("The estimated savings of findings are unknown: ") for note in notes)


def test_a_user_whose_name_is_a_word_of_ours_changes_no_field(monkeypatch, tmp_path):
    monkeypatch.setattr("getpass.getuser", lambda: "per")
    events = [span("ProfilerStep#0", 0, 900), span("aten::mm", 5, 40, note="of per", per="1")]
    trace = write_trace(tmp_path / "rank0.json", events, kinetoscope={"rank": 0, "run_name": "per"})
    page = page_of(trace)
    assert {"samples_per_s", "flops_per_step", "step_ns"} <= set(page.report["run"])
    assert page.report["run"]["name"] == "user"
    assert kinetoscope.analyze(trace, cache=False)._repr_html_()
    assert page.timeline.details == [{"note": "of user", "user": "1"}]  # what is a trace's is changed


def test_what_is_torchs_in_the_name_of_a_users_kernel_stays(tmp_path):
    kernel = "void at::native::vectorized_elementwise_kernel<4, secret::Functor<float>>(int, secret::Functor<float>)"
    events = [span(f"ProfilerStep#{step}", 1000 * step, 900, category="user_annotation") for step in range(10)]
    events += [span(kernel, 1000 * step + 10, 50, tid=7, category="kernel", stream=7, device=0) for step in range(10)]
    text = text_of(page_of(write_trace(tmp_path / "rank0.json", events), redact=True))
    assert "secret" not in text
    assert "void at::native::vectorized_elementwise_kernel<4, type 1<float>>(int, type 1<float>)" in text


USERS_NOTES = [
    "the project is for google, meta and apple",
    "project titan",
    "steps of the model for the next report",
    "Not here: the rank of data, of 8.",
]


@pytest.mark.parametrize("note", USERS_NOTES)
def test_a_note_of_a_user_is_left_out_also_if_our_code_has_its_words(tmp_path, note):
    header = HEADER | {"kinetoscope": HEADER["kinetoscope"] | {"notes": [note]}}
    path = write_trace(tmp_path / "rank0.json", steps_with_secrets(), **header)
    text = text_of(page_of(path, redact=True))
    assert note not in text
    assert not {"google", "titan", "apple"} & set(text.lower().split())


def test_a_note_of_ours_stays_with_its_numbers_and_without_names(tmp_path):
    events = [*steps_with_secrets(), *({"ph": "X", "name": "secret", "pid": 1, "tid": 1, "ts": 5, "dur": -1},) * 3]
    page = page_of(write_trace(tmp_path / "secret_rank0.json", events, **HEADER), redact=True)
    notes = page.report["run"]["notes"]
    assert "file 1: Events with a negative duration were left out: 3." in [_numbered(note) for note in notes], notes


def _numbered(note):
    return re.sub(r"^file \d+", "file 1", note)
