"""A training run without a fault: `--size small` takes about 0.2 ms a step, `medium` 2 ms.

In the step `--end-at` it can exit, be killed, or say that it waits for a signal: `--ending exit`, `kill`, `wait`.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from watching import NUM_FEATURES, argument_parser, make_model, train_step, watched

SIZES = {"small": (2, 32, 1), "medium": (32, 512, 2)}


def end(how: str, out: Path) -> None:
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    out.with_name(f"{out.name}-begun").touch()


def main() -> None:
    parser = argument_parser()
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--end-at", type=int)
    parser.add_argument("--ending", choices=("exit", "kill", "wait"))
    arguments = parser.parse_args()
    batch_size, width, num_layers = SIZES[arguments.size]
    loader = DataLoader([torch.randn(batch_size, NUM_FEATURES)] * arguments.steps, batch_size=None)
    model = make_model(width, num_layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for step, inputs in enumerate(batches(loader)):
            train_step(model, optimizer, model(inputs).square().mean())
            if step == arguments.end_at:
                end(arguments.ending, arguments.out)


if __name__ == "__main__":
    main()
