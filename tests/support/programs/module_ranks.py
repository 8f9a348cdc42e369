"""One rank of a training run with and without the recording of modules: losses are compared, and the run is recorded.

Arguments: ``ddp``, ``compiled``, ``fsdp`` or ``pipeline``; the run's folder; and the file in which ranks meet.
"""

import os
import sys
from collections.abc import Callable, Iterator

import torch
from torch import distributed, nn

import kinetoscope

NUM_STEPS, NUM_PARTS, WIDTH = 5, 4, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.mlp = nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.attn(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(number): Block() for number in range(4)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


Step = Callable[[], list[float]]


def data_parallel(wrap: Callable[[nn.Module], nn.Module], rank: int) -> Step:
    model = wrap(Model())
    batches = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> list[float]:
        optimizer.zero_grad()
        loss = model(torch.randn(4, WIDTH, generator=batches)).square().mean()
        loss.backward()
        optimizer.step()
        return [loss.item()]

    return step


def shard(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers.values():  # type: ignore[union-attr]
        fully_shard(layer)
    return fully_shard(model)


def pipeline(rank: int) -> Step:
    """Return a step of a pipeline in which each rank has two of the layers, under their names in the whole model."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    model = Model()
    for number in ("2", "3") if rank == 0 else ("0", "1"):
        del model.layers[number]
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, NUM_PARTS, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch, target = torch.randn(4 * NUM_PARTS, WIDTH), torch.randn(4 * NUM_PARTS, WIDTH)

    def step() -> list[float]:
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        schedule.step(batch) if rank == 0 else schedule.step(target=target, losses=losses)
        optimizer.step()
        return [loss.item() for loss in losses]

    return step


def build(kind: str, rank: int) -> Step:
    torch.manual_seed(0)
    data_parallel_model = nn.parallel.DistributedDataParallel
    match kind:
        case "ddp":
            return data_parallel(data_parallel_model, rank)
        case "compiled":
            return data_parallel(lambda model: torch.compile(data_parallel_model(model), backend="eager"), rank)
        case "fsdp":
            return data_parallel(shard, rank)
        case _:
            return pipeline(rank)


def main(kind: str, folder: str, meeting_place: str) -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{meeting_place}", world_size=2, rank=rank)
    step = build(kind, rank)
    plain = [step() for _ in range(NUM_STEPS)]
    step = build(kind, rank)
    schedule = kinetoscope.cyclic_schedule(skip_first=0, wait=1, warmup=1, active=2, repeat=1)
    options = {"system": False, "quiet": True, "strict": True}

    def recorded() -> Iterator[list[float]]:
        with kinetoscope.profile(folder, schedule=schedule, modules=True, **options) as profiler:
            for _ in profiler.batches(range(NUM_STEPS)):
                yield step()

    assert list(recorded()) == plain, "losses differ"
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
