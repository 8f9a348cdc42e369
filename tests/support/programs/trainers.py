"""Training runs in the trainers of other libraries, one of each kind: ``python tests/support/programs/trainers.py
KIND``.

Each prints how many steps its optimizer took, its last loss to the last bit, and how long the phases of each step took
as far as a script can measure them: of each step but the first, which is before the profiler.
"""

import hashlib
import importlib
import json
import os
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)
NUM_BATCHES, NUM_HELD_OUT, BATCH_SIZE, EVERY = 24, 5, 16, 7
PHASES = ("data_wait", "forward", "backward", "optimizer", "evaluation")


class Samples(TensorDataset):
    """Random numbers, under the names of the model's arguments."""

    def __init__(self, num_batches=NUM_BATCHES):
        num_samples = BATCH_SIZE * num_batches
        super().__init__(torch.randn(num_samples, 64), torch.randint(0, 2, (num_samples,)))

    def __getitem__(self, place):
        samples, labels = super().__getitem__(place)
        return {"samples": samples, "labels": labels}


class Stream(IterableDataset):
    def __iter__(self):
        yield from Samples()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        wide = [nn.Linear(512, 512) for _ in range(2)]
        self.layers = nn.Sequential(nn.Linear(64, 512), *wide, nn.ReLU(), nn.Linear(512, 2))
        self.loss = None

    def forward(self, samples, labels):
        logits = self.layers(samples)
        self.loss = nn.functional.cross_entropy(logits, labels)
        return {"loss": self.loss, "logits": logits}


class Stopwatch:
    """Adds up how long each phase of a step takes. A phase lasts from the last call to the `end` of it."""

    def __init__(self):
        self.steps, self.running, self.began_ns = [], dict.fromkeys(PHASES, 0), 0

    def begin(self):
        self.began_ns = time.perf_counter_ns()

    def end(self, phase):
        self.running[phase] += time.perf_counter_ns() - self.began_ns
        self.begin()

    def end_step(self):
        self.steps.append(list(self.running.values()))
        self.running = dict.fromkeys(PHASES, 0)


watch = Stopwatch()


class Adam(torch.optim.Adam):
    """In Lightning, a closure runs forward and backward within its step; the watch begins anew after that."""

    def step(self, closure=None):
        watch.begin()
        super().step(closure)
        watch.end("optimizer")
        watch.end_step()


def print_weights(folder):
    """Print what is in the last weights that were saved."""
    newest = max(Path(folder).rglob("model.safetensors"), key=os.path.getmtime)
    print("saved", hashlib.sha256(newest.read_bytes()).hexdigest())


# -- Transformers --


def transformers_trainer(num_runs=1, **arguments):
    import transformers

    transformers.utils.logging.set_verbosity_error()

    class Trainer(transformers.Trainer):
        def get_batch_samples(self, *arguments):
            watch.begin()
            batches = super().get_batch_samples(*arguments)
            watch.end("data_wait")
            return batches

        def compute_loss(self, model, *arguments, **options):
            loss = super().compute_loss(model, *arguments, **options)
            if model.training:
                watch.end("forward")
            return loss

        def training_step(self, *arguments, **options):
            loss = super().training_step(*arguments, **options)
            watch.end("backward")
            return loss

        def evaluate(self, *arguments, **options):
            watch.begin()
            metrics = super().evaluate(*arguments, **options)
            watch.end("evaluation")
            return metrics

    with tempfile.TemporaryDirectory() as folder:
        usual = {"num_train_epochs": 2, "logging_steps": 5, "save_strategy": "no", "report_to": []}
        sizes = {"per_device_train_batch_size": BATCH_SIZE, "per_device_eval_batch_size": BATCH_SIZE}
        settings = transformers.TrainingArguments(
            folder, use_cpu=True, disable_tqdm=True, **{**usual, **sizes, **arguments}
        )
        model, train, held_out = Network(), Samples(), Samples(NUM_HELD_OUT)
        for _ in range(num_runs):
            optimizers = Adam(model.parameters()), None
            Trainer(model, settings, train_dataset=train, eval_dataset=held_out, optimizers=optimizers).train()
        if "save_strategy" in arguments:
            print_weights(folder)
    return model.loss


# -- Lightning --


class TimedLoader(DataLoader):
    def __iter__(self):
        batches = super().__iter__()
        while True:
            watch.begin()
            batch = next(batches, None)
            watch.end("data_wait")
            if batch is None:
                return
            yield batch


def lightning_trainer(package, num_fits=1, is_stream=False, **arguments):
    lightning = importlib.import_module(package)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network()

        def configure_optimizers(self):
            return Adam(self.parameters())

        def on_train_batch_start(self, *_):
            watch.begin()

        def training_step(self, batch, number):
            return self.network(**batch)["loss"]

        def backward(self, loss, *arguments, **options):
            watch.end("forward")
            super().backward(loss, *arguments, **options)
            watch.end("backward")

        def on_before_optimizer_step(self, *_):
            watch.begin()

        def on_validation_start(self):
            watch.begin()

        def validation_step(self, batch, number):
            self.log("loss", self.network(**batch)["loss"])

        def on_validation_end(self):
            if not self.trainer.sanity_checking:
                watch.end("evaluation")

        def test_step(self, batch, number):
            self.network(**batch)

    module, held_out = Module(), DataLoader(Samples(NUM_HELD_OUT), batch_size=BATCH_SIZE)
    train = TimedLoader(Stream() if is_stream else Samples(), batch_size=BATCH_SIZE)
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    with tempfile.TemporaryDirectory() as folder:
        usual = {"accelerator": "cpu", "max_epochs": 2, "limit_val_batches": 0, "default_root_dir": folder}
        for number in range(num_fits):
            trainer = lightning.Trainer(**{**usual, **quiet, **arguments})
            trainer.fit(module, train, held_out)
            if number < num_fits - 1:
                trainer.test(module, held_out, verbose=False)
    return module.network.loss


# -- accelerate --


def accelerate_loop(num_accumulated=1, evaluates_every=None):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=num_accumulated)
    model = Network()
    optimizer = Adam(model.parameters())
    loaders = [DataLoader(Samples(num_batches), batch_size=BATCH_SIZE) for num_batches in (NUM_BATCHES, NUM_HELD_OUT)]
    model, optimizer, train, held_out = accelerator.prepare(model, optimizer, *loaders)
    for _ in range(2):
        watch.begin()
        for number, batch in enumerate(train):
            watch.end("data_wait")
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                watch.end("forward")
                accelerator.backward(loss)
                watch.end("backward")
                optimizer.step()
                optimizer.zero_grad()
            if evaluates_every and (number + 1) % evaluates_every == 0:
                evaluate(accelerator, model, held_out)
            watch.begin()
    return loss


def evaluate(accelerator, model, held_out):
    """As the examples of Transformers do it: gradients are off while the model runs, and on when a batch is fetched."""
    watch.begin()
    model.eval()
    for batch in held_out:
        with torch.no_grad():
            logits = model(**batch)["logits"]
        accelerator.gather_for_metrics((logits, batch["labels"]))
    model.train()
    watch.end("evaluation")
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        print_weights(folder)


LIGHTNING = {
    "": {},
    " accumulation": {"accumulate_grad_batches": 4},
    " evaluation": {"limit_val_batches": 1.0, "val_check_interval": EVERY, "enable_checkpointing": True},
    " epochs": {"limit_val_batches": 1.0, "enable_checkpointing": True},
    " stream": {"is_stream": True},
    " fit test fit": {"num_fits": 2, "limit_val_batches": 1.0},
    " ddp": {"devices": 2, "strategy": "ddp"},
}
every = {"eval_steps": EVERY, "save_steps": EVERY}
KINDS = {
    "transformers": transformers_trainer,
    "transformers accumulation": partial(transformers_trainer, gradient_accumulation_steps=4),
    "transformers evaluation": partial(transformers_trainer, eval_strategy="steps", save_strategy="steps", **every),
    "transformers epochs": partial(transformers_trainer, eval_strategy="epoch", save_strategy="epoch"),
    "transformers twice": partial(transformers_trainer, 2),
    **{f"lightning{kind}": partial(lightning_trainer, "lightning.pytorch", **how) for kind, how in LIGHTNING.items()},
    **{
        f"pytorch_lightning{kind}": partial(lightning_trainer, "pytorch_lightning", **how)
        for kind, how in LIGHTNING.items()
    },
    "accelerate": accelerate_loop,
    "accelerate accumulation": partial(accelerate_loop, num_accumulated=2),
    "accelerate evaluation": partial(accelerate_loop, evaluates_every=EVERY),
    "accelerate epochs": partial(accelerate_loop, evaluates_every=NUM_BATCHES),
}

if __name__ == "__main__":
    loss = KINDS[sys.argv[1]]()
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print("times", json.dumps(watch.steps[1:]))
        print("steps", len(watch.steps), "loss", float(loss).hex())
    has_launcher = "LOCAL_RANK" in os.environ or "ddp" in sys.argv[1]  # which kills the other ranks when one fails
    sys.exit(0 if has_launcher else 3)
