"""Modules of models that other libraries build, wrap and train: `make test-trainers`."""

import importlib
import importlib.util
import os
from functools import partial

import polars as pl
import pytest

import kinetoscope
from kinetoscope import ModuleCalls, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

torch = pytest.importorskip("torch")
nn = torch.nn
HAS_ALL = os.environ.get("KINETOSCOPE_REQUIRE_TRAINERS") == "1"
LAYER, NUM_STEPS = "LlamaForCausalLM.model.layers.0", 3


@pytest.fixture(autouse=True)
def its_library_is_here(library):
    if importlib.util.find_spec(library) is None:
        assert not HAS_ALL, f"{library} is missing"
        pytest.skip(f"needs {library}")


def build_llama():
    """Return a Hugging Face model by its config, without a download."""
    import transformers

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, num_hidden_layers=2, **sizes))


def build_checkpointing_llama(use_reentrant):
    model = build_llama()
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    return model


def build_compiled_llama():
    torch._dynamo.reset()
    return torch.compile(build_llama(), backend="eager", fullgraph=True)


def build_lora():
    import peft

    return peft.get_peft_model(build_llama(), peft.LoraConfig(r=2, target_modules=["q_proj"]))


def training_step(build):
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tokens = torch.randint(0, 64, (2, 8))

    def step():
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def recorded(step, num_steps=NUM_STEPS):
    """Return the names of the recorded calls of modules, the classes by name, and what each step returned."""
    handler, results = MemoryTraceHandler(), []
    with Profiler(lambda _: ProfilerAction.ACTIVE, handler, sources=[ModuleCalls()], strict=True) as profiler:
        for _ in profiler.batches(range(num_steps)):
            results.append(step())
    names = [name for cycle in handler.cycles for name in cycle.names if name.categories == ("module",)]
    classes = {name.name: dict(name.args)["class"] for name in names}
    return [name for name, _, _ in handler.spans() if name in classes], classes, results


MODELS = {
    "eager": (build_llama, 1),
    "checkpointing": (partial(build_checkpointing_llama, False), 2),
    "reentrant checkpointing": (partial(build_checkpointing_llama, True), 2),
    "compiled": (build_compiled_llama, 0),
}


@pytest.mark.parametrize("library", ["transformers"])
@pytest.mark.parametrize("kind", MODELS)
def test_layers_of_transformers_are_recorded_and_losses_are_the_same(kind, library):
    build, num_calls = MODELS[kind]
    plain = training_step(build)
    expected = [plain() for _ in range(NUM_STEPS)]
    names, classes, losses = recorded(training_step(build))
    assert losses == expected
    assert names.count(f"{LAYER}.mlp") == NUM_STEPS * num_calls
    assert names.count("LlamaForCausalLM") == NUM_STEPS
    assert classes["LlamaForCausalLM"] == "LlamaForCausalLM"


@pytest.mark.parametrize("library", ["transformers"])
@pytest.mark.parametrize("kind", ["eager", "checkpointing"])
def test_times_of_modules_of_transformers_add_up_to_the_steps(kind, library, tmp_path):
    step = training_step(MODELS[kind][0])
    schedule = kinetoscope.cyclic_schedule(skip_first=0, wait=0, warmup=1, active=NUM_STEPS, repeat=1)
    options = {"system": False, "quiet": True, "strict": True}
    with kinetoscope.profile(tmp_path / "run", schedule=schedule, modules=True, **options) as profiler:
        for _ in profiler.batches(range(NUM_STEPS + 1)):
            step()
    table = kinetoscope.load(tmp_path / "run").modules
    own = table.select(pl.col("self_cpu_forward_ns", "self_cpu_backward_ns").sum()).row(0)
    recomputed = table.filter(pl.col("depth") == 0)["recompute_ns"].sum() or 0
    steps = kinetoscope.analyze(tmp_path / "run", cache=False).steps
    assert sum(own) + recomputed == sum(row.duration_ns for row in steps)
    assert (recomputed > 0) == (kind == "checkpointing")


@pytest.mark.parametrize("library", ["peft"])
def test_lora_layers_are_recorded_with_the_layers_that_they_wrap(library):
    names, classes, _ = recorded(training_step(build_lora))
    wrapped = "PeftModel.base_model.model.model.layers.0.self_attn.q_proj"
    assert [names.count(f"{wrapped}{part}") for part in ("", ".base_layer", ".lora_A.default")] == [NUM_STEPS] * 3
    assert classes["PeftModel"].startswith("PeftModel")


@pytest.mark.parametrize("library", ["lightning", "pytorch_lightning"])
def test_modules_in_a_trainer_of_lightning_are_recorded(library, tmp_path):
    lightning = importlib.import_module(library)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def training_step(self, batch, _):
            return self.network(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = lightning.Trainer(accelerator="cpu", max_steps=NUM_STEPS, default_root_dir=tmp_path, **quiet)
    loader = torch.utils.data.DataLoader(torch.randn(NUM_STEPS, 4))
    names, _, _ = recorded(lambda: trainer.fit(Module(), loader), 1)
    assert names == ["Sequential", "Sequential.0", "Sequential.1"] * NUM_STEPS


@pytest.mark.parametrize("library", ["accelerate"])
def test_a_model_that_accelerate_prepares_has_its_own_names(library):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))

    def step():
        accelerator.backward(model(torch.ones(1, 4)).sum())
        optimizer.step()

    names, _, _ = recorded(step)
    assert names == ["Sequential", "Sequential.0", "Sequential.1"] * NUM_STEPS
