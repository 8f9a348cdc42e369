"""Samples from numpy, whose default is float64, and a model of the same dtype. Fix: both in float32."""

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


def main() -> None:
    arguments = read_arguments()
    samples = torch.as_tensor(np.random.default_rng(0).normal(size=(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)))  # FAULT
    if arguments.fixed:
        samples = samples.float()
    model = make_model().to(samples.dtype)  # FAULT
    loader = DataLoader(TensorDataset(samples), batch_size=BATCH_SIZE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())  # FAULT


if __name__ == "__main__":
    main()
