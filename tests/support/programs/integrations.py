"""The same small training run in each trainer, with and without our integration.

As a program: ``python tests/support/programs/integrations.py TRAINER OUT [OPTION=VALUE ...]``.

`train` returns what a user would notice of a training run: its losses to the last bit, and where its checkpoint is.
"""

import contextlib
import importlib
import json
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_BATCHES, BATCH_SIZE, EVERY = 16, 4, 6
LIBRARIES = {
    "lightning": "lightning",
    "lightning callback": "lightning",
    "pytorch_lightning": "pytorch_lightning",
    "transformers": "transformers",
    "accelerate": "accelerate",
}
HAS_EVALUATION = ("lightning", "lightning callback", "pytorch_lightning", "transformers")


class Samples(Dataset):
    """Random numbers under the names of the model's arguments; each takes ``wait_s`` seconds to read."""

    def __init__(self, num_batches=NUM_BATCHES, wait_s=0.0):
        generator = torch.Generator().manual_seed(7)
        self.rows = torch.randn(num_batches * BATCH_SIZE, 16, generator=generator)
        self.wait_s = wait_s

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        if self.wait_s:
            time.sleep(self.wait_s)  # PLANTED
        return {"samples": self.rows[place], "labels": place % 2}


class Network(nn.Module):
    """Notes its losses while it trains. At step ``fails_at`` it raises ``error``, or a real Ctrl-C arrives."""

    def __init__(self, fails_at=None, error=None):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
        self.fails_at, self.error = fails_at, error
        self.losses = []

    def forward(self, samples, labels):
        if self.training and len(self.losses) == self.fails_at:
            if self.error is KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
            raise self.error
        logits = self.layers(samples)
        loss = nn.functional.cross_entropy(logits, labels)
        if self.training:
            self.losses.append(float(loss).hex())
        return {"loss": loss, "logits": logits}


def train(trainer, folder, integration=None, *, network=None, resumes_from=None, wait_s=0.0, **settings):
    """Train for two epochs; return the losses and the last checkpoint that was written. ``integration`` is what
    `integrate` made, or None. ``settings``: ``accumulates``, ``evaluates`` (on the training's own data object)."""
    network = network or Network()
    data = Samples(wait_s=wait_s)
    kind = {"transformers": in_transformers, "accelerate": in_accelerate}.get(trainer)
    if kind is not None:
        checkpoint = kind(folder, integration, network, data, resumes_from, **settings)
    else:
        package = LIBRARIES[trainer]
        checkpoint = in_lightning(package, folder, integration, network, data, resumes_from, **settings)
    return network.losses, checkpoint


def integrate(trainer, out, **options):
    """Return the integration that a user makes for a trainer."""
    name = "lightning" if "lightning" in trainer else trainer
    module = importlib.import_module(f"kinetoscope.integrations.{name}")
    if trainer == "accelerate":
        return module.ProfileKwargs(out, **options)
    has_callback = trainer in ("transformers", "lightning callback")
    return (module.KinetoscopeCallback if has_callback else module.KinetoscopeProfiler)(out, **options)


def in_lightning(package, folder, integration, network, data, resumes_from, accumulates=1, evaluates=False, devices=1):
    lightning = importlib.import_module("lightning.pytorch" if package == "lightning" else package)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

        def training_step(self, batch, number):
            return self.network(**batch)["loss"]

        def validation_step(self, batch, number):
            self.network(**batch)

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    arguments = {}
    if integration is not None:
        is_callback = type(integration).__name__ == "KinetoscopeCallback"
        arguments = {"callbacks": [integration]} if is_callback else {"profiler": integration}
    saving = lightning.callbacks.ModelCheckpoint(folder, every_n_train_steps=EVERY, save_top_k=-1)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        accumulate_grad_batches=accumulates,
        val_check_interval=EVERY if evaluates else None,
        limit_val_batches=2 if evaluates else 0,
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        **quiet,
        **{**arguments, "callbacks": [*arguments.get("callbacks", []), saving]},
    )
    loader = DataLoader(data, batch_size=BATCH_SIZE)
    trainer.fit(Module(), loader, loader, ckpt_path=resumes_from)
    return first_checkpoint(folder, "*.ckpt")


def in_transformers(folder, integration, network, data, resumes_from, accumulates=1, evaluates=False):
    import transformers

    transformers.utils.logging.set_verbosity_error()
    settings = transformers.TrainingArguments(
        str(folder),
        use_cpu=True,
        disable_tqdm=True,
        num_train_epochs=2,
        per_device_train_batch_size=BATCH_SIZE,
        per_device_eval_batch_size=BATCH_SIZE * NUM_BATCHES // 2,
        gradient_accumulation_steps=accumulates,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=EVERY,
        save_steps=EVERY,
        logging_steps=5,
        report_to=[],
    )
    callbacks = [] if integration is None else [integration]
    trainer = transformers.Trainer(network, settings, train_dataset=data, eval_dataset=data, callbacks=callbacks)
    with contextlib.redirect_stdout(sys.stderr):
        trainer.train(resume_from_checkpoint=resumes_from)
    return first_checkpoint(folder, "checkpoint-*")


def in_accelerate(folder, integration, network, data, resumes_from, accumulates=1):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulates)
    optimizer = torch.optim.Adam(network.parameters())
    loader = DataLoader(data, batch_size=BATCH_SIZE)
    model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    if resumes_from is not None:
        accelerator.load_state(resumes_from)
    profiling = contextlib.nullcontext() if integration is None else accelerator.profile(integration)
    with profiling as profiler:
        for epoch in range(2):
            batches = loader
            if resumes_from is not None and epoch == 0:
                batches = accelerator.skip_first_batches(loader, EVERY)
            for batch in batches if profiler is None else profiler.batches(batches):
                with accelerator.accumulate(model):
                    loss = model(**batch)["loss"]
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                if len(network.losses) == EVERY and resumes_from is None:
                    accelerator.save_state(str(folder / "checkpoint"))
    return folder / "checkpoint"


def first_checkpoint(folder, pattern):
    paths = sorted(Path(folder).glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    return str(paths[0]) if paths else None


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    trainer, out, *rest = sys.argv[1:]
    settings = {name: json.loads(value) for name, _, value in (text.partition("=") for text in rest)}
    fails_at = settings.pop("fails_at", None)
    error = KeyboardInterrupt if settings.pop("by_ctrl_c", False) else ValueError("planted")
    network = Network(fails_at, error)
    losses, _ = train(trainer, Path(out) / "checkpoints", integrate(trainer, f"{out}/run"), network=network, **settings)
    print("losses", len(losses))
