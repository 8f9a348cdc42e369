"""Each variant, applied in a process with torch, changes the program as its code would, and reports that it did."""

import json

import pytest

from kinetoscope.variants.facts import DDPFacts, Facts, LoaderFacts, OptimizerFacts
from kinetoscope.variants.registry import load_variants
from support.fork_server import TORCH_COMPILE_MODULES, run_forked

pytest.importorskip("torch")

APPLY = """
import gc, json, sys, torch
from kinetoscope.variants.registry import load_variants
from torch.utils.data import DataLoader, IterableDataset
applied = []
load_variants()[NAME].apply(VALUE, lambda: applied.append(1))
"""
MODEL = "model = torch.nn.Linear(2, 2)\n"
GROUP = """
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
"""
STEP = "model(torch.ones(1, 2)).float().sum().backward(); optimizer.step()\n"
PROGRAMS = {
    "a loader with positional arguments": (
        "num_workers",
        2,
        "result = DataLoader([1, 2, 3], 2, False).num_workers",
        2,
    ),
    "a loader whose workers are taken away": (
        "num_workers",
        0,
        "loader = DataLoader([1], num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=5, "
        "multiprocessing_context='spawn')\n"
        "result = [loader.num_workers, loader.prefetch_factor, loader.persistent_workers, list(loader)[0].tolist()]",
        [0, None, False, [1]],
    ),
    "a loader of a class of the program": (
        "num_workers",
        1,
        "class Mine(DataLoader):\n"
        "    def __init__(self, data, **options):\n"
        "        super().__init__(data, **options)\n"
        "result = Mine([1], batch_size=1).num_workers",
        1,
    ),
    "prefetching": (
        "prefetch_factor",
        8,
        "result = [DataLoader([1], num_workers=1).prefetch_factor, DataLoader([1]).prefetch_factor]",
        [8, None],
    ),
    "kept workers": (
        "persistent_workers",
        True,
        "result = [DataLoader([1], num_workers=1).persistent_workers, DataLoader([1]).persistent_workers]",
        [True, False],
    ),
    "fused": (
        "fused",
        True,
        MODEL + "optimizer = torch.optim.AdamW(model.parameters(), 0.1, foreach=True)\n" + STEP + "result = "
        "[optimizer.defaults['fused'], optimizer.defaults['foreach'], optimizer.defaults['lr']]",
        [True, False, 0.1],
    ),
    "foreach": (
        "foreach",
        True,
        MODEL + "result = torch.optim.SGD(model.parameters(), 0.1).defaults['foreach']",
        True,
    ),
    "gradients that are dropped": (
        "set_to_none",
        True,
        MODEL + "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n" + STEP + "optimizer.zero_grad(False)\n"
        "result = model.weight.grad is None",
        True,
    ),
    "no validation": (
        "validate_args",
        False,
        "made = torch.distributions.Normal(0.0, -1.0, validate_args=True)\nresult = float(made.scale)",
        -1.0,
    ),
    "threads, also if the program sets them": (
        "num_threads",
        1,
        "torch.set_num_threads(2)\nresult = torch.get_num_threads()",
        1,
    ),
    "relaxed collections, from the first step on": (
        "relaxed_gc",
        True,
        MODEL
        + "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nbefore = gc.get_threshold()[0]\n"
        + "sys.modules['torch.optim.optimizer'].register_optimizer_step_post_hook(lambda *_: None)\n"
        + STEP
        + "result "
        "= [before, gc.get_threshold()[0], gc.get_freeze_count() > 0]",
        [700, 100_000, True],
    ),
    "buckets": (
        "bucket_cap_mb",
        100,
        GROUP + MODEL + "result = DistributedDataParallel(model, bucket_cap_mb=1).bucket_bytes_cap >> 20",
        100,
    ),
    "views of buckets": (
        "gradient_as_bucket_view",
        True,
        GROUP + MODEL + "result = DistributedDataParallel(model).gradient_as_bucket_view",
        True,
    ),
    "a static graph": (
        "static_graph",
        True,
        GROUP + MODEL + "result = DistributedDataParallel(model).static_graph",
        True,
    ),
    "bfloat16": (
        "bf16",
        True,
        MODEL + "output = model(torch.ones(1, 2))\nresult = [str(output.dtype), str(model.weight.dtype)]",
        ["torch.bfloat16", "torch.float32"],
    ),
    "channels last": (
        "channels_last",
        True,
        "model = torch.nn.Conv2d(3, 3, 2)\noutput = model(torch.ones(1, 3, 4, 4))\n"
        "result = output.is_contiguous(memory_format=torch.channels_last)",
        True,
    ),
    "TF32": ("tf32", True, "result = torch.get_float32_matmul_precision()", "high"),
    "cuDNN's benchmark": ("cudnn_benchmark", True, "result = torch.backends.cudnn.benchmark", True),
}


def applied(name, value, program):
    """Return how often a variant was applied in a program, and its ``result``."""
    text = APPLY.replace("NAME", repr(name)).replace("VALUE", repr(value)) + program
    done = run_forked(TORCH_COMPILE_MODULES, text + "\nprint(json.dumps([len(applied), result]))")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_variant_changes_the_program(program):
    name, value, text, expected = PROGRAMS[program]
    num_applied, result = applied(name, value, text)
    assert result == expected
    assert num_applied


def test_each_variant_that_needs_no_device_is_tried():
    names = {name for name, _, _, _ in PROGRAMS.values()}
    assert load_variants().keys() - names == {"pin_memory", "compile"}


@pytest.mark.parametrize(
    ("name", "value", "program"),
    [
        (
            "num_workers",
            2,
            "class Stream(IterableDataset):\n    def __iter__(self): yield 1\n"
            "result = DataLoader(Stream()).num_workers == 0",
        ),
        ("num_workers", 0, "result = DataLoader([1]).num_workers == 0"),
        ("fused", True, MODEL + "result = torch.optim.Adadelta(model.parameters()).defaults.get('fused') is None"),
        ("set_to_none", True, MODEL + "model.zero_grad()\nresult = True"),
    ],
)
def test_a_variant_without_use_reports_nothing(name, value, program):
    assert applied(name, value, program) == [0, True]


def test_a_call_that_torch_refuses_raises_its_own_error():
    program = "try:\n    DataLoader([1], nonsense=1)\nexcept TypeError as error:\n    result = 'nonsense' in str(error)"
    assert applied("num_workers", 2, program) == [0, True]


def test_dataloader_workers_keep_one_thread():
    program = (
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 1\n"
        "    def __getitem__(self, index): return torch.get_num_threads()\n"
        "result = next(iter(DataLoader(Data(), num_workers=1))).tolist()"
    )
    assert applied("num_threads", 2, program) == [1, [1]]


VALUES = [
    ("num_workers", Facts(num_cores=4, loaders=[LoaderFacts(1, is_map_style=True)]), [0, 4, 2]),
    ("num_workers", Facts(num_cores=4, loaders=[LoaderFacts(1, is_map_style=False)]), []),
    ("num_workers", Facts(num_cores=40, loaders=[LoaderFacts(0, is_map_style=True)]), [4, 2, 8, 1, 16, 32]),
    ("prefetch_factor", Facts(loaders=[LoaderFacts(0, is_map_style=True)]), []),
    ("prefetch_factor", Facts(loaders=[LoaderFacts(1, is_map_style=True, prefetch_factor=2)]), [8]),
    ("persistent_workers", Facts(loaders=[LoaderFacts(1, is_map_style=True, num_loops=1)]), []),
    ("persistent_workers", Facts(loaders=[LoaderFacts(1, is_map_style=True, num_loops=2)]), [True]),
    ("pin_memory", Facts(loaders=[LoaderFacts(1, is_map_style=True)]), []),
    ("pin_memory", Facts(has_device=True, loaders=[LoaderFacts(1, is_map_style=True)]), [True]),
    ("num_threads", Facts(num_threads=4, num_cores=4), [1, 2]),
    ("num_threads", Facts(num_threads=1, num_cores=1), []),
    ("fused", Facts(optimizers=[OptimizerFacts("SGD", 1, takes_fused=True, takes_foreach=True)]), [True]),
    ("fused", Facts(optimizers=[OptimizerFacts("SGD", 1, takes_fused=True, takes_foreach=True, fused=True)]), []),
    (
        "foreach",
        Facts(optimizers=[OptimizerFacts("SGD", 1, takes_fused=True, takes_foreach=True, is_on_device=True)]),
        [],
    ),
    ("validate_args", Facts(), []),
    ("validate_args", Facts(num_distributions=1), [False]),
    ("set_to_none", Facts(num_kept_gradients=1), [True]),
    ("bucket_cap_mb", Facts(ddp=[DDPFacts(1.0, gradient_as_bucket_view=True, static_graph=False)]), [25, 100]),
    ("bucket_cap_mb", Facts(ddp=[DDPFacts(25.0, gradient_as_bucket_view=True, static_graph=False)]), [100]),
    ("gradient_as_bucket_view", Facts(ddp=[DDPFacts(25.0, gradient_as_bucket_view=True, static_graph=False)]), []),
    ("static_graph", Facts(ddp=[DDPFacts(25.0, gradient_as_bucket_view=True, static_graph=False)]), [True]),
]


@pytest.mark.parametrize(("name", "facts", "values"), VALUES)
def test_values_follow_from_facts_of_the_program(name, facts, values):
    assert list(load_variants()[name].find_values(facts)) == values


def test_the_code_to_write_names_value_and_optimizer():
    facts = Facts(optimizers=[OptimizerFacts("SGD", 1, takes_fused=True, takes_foreach=True)])
    variants = load_variants()
    assert variants["fused"].describe_code(True, facts) == "SGD(..., fused=True)"
    assert variants["fused"].describe_code(None, facts) == "SGD(..., fused=True)"
    assert variants["num_workers"].describe_code(4, facts) == "DataLoader(..., num_workers=4)"
    assert variants["num_workers"].describe_code(None, facts) == "DataLoader(..., num_workers=VALUE)"
    for one in variants.values():
        codes = {one.describe_code(value, facts) for value in one.valid_values}
        assert len(codes) == len(one.valid_values), one.name
