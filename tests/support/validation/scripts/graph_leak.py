"""A list of losses on held-out samples that keep the graphs of their steps. Fix: numbers."""

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


def bytes_of_a_graph(model: nn.Module, inputs: Tensor) -> int:
    """Return the bytes that the graph of a loss keeps alive besides parameters and inputs."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor.detach()

    with saved_tensors_hooks(note, lambda tensor: tensor):
        model(inputs).square().mean()
    others = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), inputs)}
    return sum(num_bytes for address, num_bytes in kept.items() if address not in others)


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    held_out = torch.randn(BATCH_SIZE, NUM_FEATURES)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    print(bytes_of_a_graph(model, held_out))
    losses = []
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
            loss = model(held_out).square().mean()
            losses.append(loss.item() if arguments.fixed else loss)  # FAULT


if __name__ == "__main__":
    main()
