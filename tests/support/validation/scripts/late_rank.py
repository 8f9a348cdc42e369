"""Two ranks; rank 1 sleeps in every third step, as one that writes a log. Fix: no sleep."""

import os
import time

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from watching import NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


def write_log(step: int) -> None:
    if step % 3 == 0:
        time.sleep(0.09)  # FAULT


def main() -> None:
    arguments = read_arguments()
    rank = int(os.environ["RANK"])
    store = f"file://{arguments.out}-ranks"
    init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * 256, NUM_FEATURES)), batch_size=256)
    model = DistributedDataParallel(make_model(width=256, num_layers=6))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for step, (inputs,) in enumerate(batches(loader)):
            if rank == 1 and not arguments.fixed:
                write_log(step)
            train_step(model, optimizer, model(inputs).square().mean())
    destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # one in ten processes with gloo is aborted by torch's threads if the interpreter ends, also without us
