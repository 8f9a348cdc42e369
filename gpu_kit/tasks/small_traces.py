"""Two small traces that a repository can keep: a bfloat16 transformer, and stacks with memory."""

import gzip
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpu_kit.faults.layers import make_mlp, make_transformer
from gpu_kit.tasks.recorded import record
from gpu_kit.tasks.task import TaskRun

MAX_BYTES = 300_000


def main() -> None:
    run = TaskRun()
    torch.manual_seed(0)
    shapes = {"record_shapes": True, "with_flops": True}
    _record(run, "bf16_transformer", _transformer_step(run.device), (4, 3, 2, 1), **shapes)
    stacks = {"record_shapes": True, "with_stack": True, "profile_memory": True}
    _record(run, "stacks_and_memory", _mlp_step(run.device), (3, 2, 1), **stacks)


def _record(run: TaskRun, name: str, step: Callable[[], None], all_num_steps: tuple[int, ...], **options: Any) -> None:
    """Record as many steps as fit into the size limit."""
    for num_steps in all_num_steps:
        folder = run.folder / name
        record(folder, step, num_steps, system=False, **options)
        (trace,) = (folder / "traces").glob("ep*.json.gz")
        content = gzip.compress(gzip.decompress(trace.read_bytes()), 9, mtime=0)
        run.add(**{name: {"num_steps": num_steps, "bytes": len(content)}})
        shutil.rmtree(folder)
        if len(content) < MAX_BYTES:
            Path(run.folder, f"{name}.json.gz").write_bytes(content)
            return
    sys.exit(f"{name}: one step is larger than {MAX_BYTES} bytes")


def _transformer_step(device: str) -> Callable[[], None]:
    model = make_transformer(*((1024, 2) if device == "cuda" else (64, 1)), device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    inputs = torch.randn(*((8, 512, 1024) if device == "cuda" else (2, 16, 64)), device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()

    return step


def _mlp_step(device: str) -> Callable[[], None]:
    model = make_mlp(512, 3, device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    inputs = torch.randn(256, 512, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
