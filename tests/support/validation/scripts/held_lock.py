"""A lock that another thread holds most of the time. Fix: the loop puts its messages into a queue."""

import queue
import threading
import time

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

HELD_S, FREE_S = 0.04, 0.002


def report(lock: threading.Lock, is_over: threading.Event) -> None:
    """Hold the lock while it sends something."""
    while not is_over.is_set():
        with lock:
            time.sleep(HELD_S)
        time.sleep(FREE_S)


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    lock, is_over, messages = threading.Lock(), threading.Event(), queue.SimpleQueue[int]()
    reporting = threading.Thread(target=report, args=(lock, is_over))
    reporting.start()
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
            if arguments.fixed:
                messages.put(1)
            else:
                with lock:  # FAULT
                    messages.put(1)
    is_over.set()
    reporting.join()


if __name__ == "__main__":
    main()
