"""Uninstrumented training runs, one of each kind: ``python tests/support/programs/uninstrumented.py KIND``.

Each prints how many steps it took, and its last loss to the last bit.
"""

import itertools
import json
import os
import sys
import time
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)
NUM_BATCHES = 36


def data(num_batches=NUM_BATCHES, **options):
    samples, labels = torch.randn(4 * num_batches, 8), torch.randint(0, 2, (4 * num_batches,))
    return DataLoader(TensorDataset(samples, labels), batch_size=4, **options)


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def loss_of(model, batch):
    samples, labels = batch
    return nn.functional.cross_entropy(model(samples), labels)


def train_on(model, optimizer, batch):
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return loss


def plain():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    steps = [train_on(model, optimizer, batch) for _ in range(2) for batch in data()]
    return len(steps), steps[-1]


def accumulation(num_accumulated=4):
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    num_steps = 0
    for number, batch in enumerate(data(num_accumulated * NUM_BATCHES)):
        loss = loss_of(model, batch)
        loss.backward()
        if number % num_accumulated == num_accumulated - 1:
            optimizer.step()
            optimizer.zero_grad()
            num_steps += 1
    return num_steps, loss


def gan(num_critic_steps):
    generator, critic = network(), network()
    optimizers = [torch.optim.Adam(model.parameters()) for model in (critic, generator)]
    num_steps = 0
    for batch in data():
        for _ in range(num_critic_steps):
            train_on(critic, optimizers[0], batch)
        loss = train_on(generator, optimizers[1], batch)
        num_steps += 1
    return num_steps, loss


def hooks_of_its_own():
    """Hooks for all optimizers, registered before the first step, at which a profiler begins between them."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    seen = []
    register_optimizer_step_pre_hook(lambda *_: seen.append("pre"))
    register_optimizer_step_post_hook(lambda *_: seen.append("post"))
    num_steps, loss = plain()
    assert seen == ["pre", "post"] * num_steps
    return num_steps, loss


def two_optimizers():
    model = network()
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]
    num_steps = 0
    for batch in data():
        loss = loss_of(model, batch)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        num_steps += 1
    return num_steps, loss


def optimizer_in_backward():
    model = network()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    num_steps = 0
    for batch in data():
        loss = loss_of(model, batch)
        loss.backward()
        num_steps += 1
    return num_steps, loss


def ppo():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    num_steps = 0
    for _ in range(2):
        rollout = torch.randn(128, 8), torch.randint(0, 2, (128,))
        for _ in range(4):
            for chosen in torch.randperm(128).split(4):
                loss = train_on(model, optimizer, [part[chosen] for part in rollout])
                num_steps += 1
    return num_steps, loss


def lbfgs():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    num_steps = 0
    for batch in data():

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        num_steps += 1
    return num_steps, loss


def autograd_grad():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    num_steps = 0
    for batch in data():
        loss = loss_of(model, batch)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        num_steps += 1
    return num_steps, loss


@torch.no_grad()
def validate(model, loader):
    return sum(loss_of(model, batch) for batch in loader)


def validation():
    """Between epochs, and inside of them."""
    model, held_out = network(), data(5)
    optimizer = torch.optim.Adam(model.parameters())
    num_steps = 0
    for _ in range(2):
        for batch in data():
            train_on(model, optimizer, batch)
            num_steps += 1
            if num_steps % 10 == 0:
                validate(model, held_out)
        loss = validate(model, held_out)
    return num_steps, loss


def validation_with_gradients():
    """Gradients stay enabled; and batches are accumulated, so that not every one is followed by an optimizer step."""
    model, held_out = network(), data(6)
    optimizer = torch.optim.Adam(model.parameters())
    num_steps = 0
    for _ in range(2):
        for number, batch in enumerate(data()):
            loss_of(model, batch).backward()
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
                num_steps += 1
        loss = sum(loss_of(model, batch).detach() for batch in held_out)
    return num_steps, loss


def validation_first():
    """Validate at the start of a step, when its batch has already been fetched."""
    model, held_out = network(), data(5)
    optimizer = torch.optim.Adam(model.parameters())
    num_steps = 0
    for batch in data():
        if num_steps % 10 == 5:
            validate(model, held_out)
        loss = train_on(model, optimizer, batch)
        num_steps += 1
    return num_steps, loss


def ahead(loader):
    """Fetch a batch before the one before it is trained on, as accelerate does, to know which one is the last."""
    batches = iter(loader)
    current = next(batches)
    for following in batches:
        yield current
        current = following
    yield current


def fetched_ahead():
    """And gradients are off only while the model runs."""
    model, train, held_out = network(), data(), data(5)
    optimizer = torch.optim.Adam(model.parameters())
    steps = []
    for _ in range(3):
        steps += [train_on(model, optimizer, batch) for batch in ahead(train)]
        for batch in ahead(held_out):
            with torch.no_grad():
                loss = loss_of(model, batch)
    for batch in ahead(train):
        steps.append(train_on(model, optimizer, batch))
        loss = steps[-1]
        if len(steps) == 130:
            break
    return len(steps), loss


def kept_iterator():
    """It is there until the process ends, so the last step has no fetch after it."""
    global batches
    model, batches = network(), iter(data())
    optimizer = torch.optim.Adam(model.parameters())
    steps = [train_on(model, optimizer, next(batches)) for _ in range(NUM_BATCHES)]
    return len(steps), steps[-1]


class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(4 * NUM_BATCHES):
            yield torch.randn(8), torch.randint(0, 2, ())


def iterable_dataset():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    steps = [train_on(model, optimizer, batch) for batch in DataLoader(Stream(), batch_size=4)]
    return len(steps), steps[-1]


def no_loader():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    batches = ([torch.randn(4, 8), torch.randint(0, 2, (4,))] for _ in range(NUM_BATCHES))
    steps = [train_on(model, optimizer, batch) for batch in batches]
    return len(steps), steps[-1]


def skipped_by_scaler():
    model = network()
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0)
    num_steps = 0
    for batch in data():
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        scaler.scale(loss * (float("inf") if num_steps % 5 == 4 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
        num_steps += 1
    return num_steps, loss


def compiled_model():
    model = torch.compile(network(), backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters())
    steps = [train_on(model, optimizer, batch) for batch in data()]
    return len(steps), steps[-1]


def compiled_step():
    """Return the whole step, and in it the optimizer; prints the graphs of dynamo too."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), capturable=False)
    step = torch.compile(train_on, backend="aot_eager")
    steps = [step(model, optimizer, batch) for batch in data()]
    print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
    return len(steps), steps[-1]


def spawn_workers():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    loader = data(num_workers=1, multiprocessing_context="spawn")
    steps = [train_on(model, optimizer, batch) for batch in loader]
    return len(steps), steps[-1]


def on_two_ranks(wrap):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = wrap(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = [train_on(model, optimizer, batch).detach() for batch in data()]
    # A model that outlives its group waits for gloo's threads with the GIL, and they may wait for it.
    del model, optimizer
    dist.destroy_process_group()
    return len(steps), steps[-1]


def ddp():
    return on_two_ranks(nn.parallel.DistributedDataParallel)


def fsdp():
    from torch.distributed.fsdp import fully_shard

    return on_two_ranks(fully_shard)


def long_forward():
    return nn.Sequential(nn.Linear(8, 512), *[nn.Linear(512, 512) for _ in range(3)], nn.Linear(512, 2))


class TeacherWithin(nn.Module):
    """Its forward pass starts without gradients, as that of a model with a frozen teacher."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student = long_forward(), network()

    def forward(self, samples):
        with torch.no_grad():
            taught = self.teacher(samples.repeat_interleave(64, 0))
        return self.student(samples) + taught[0]


def fetched_between():
    """The next batch is fetched between the forward and the backward pass."""
    model, batches = TeacherWithin(), itertools.cycle(data())
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)
    batch = next(batches)
    for _ in range(NUM_BATCHES):
        loss = loss_of(model, batch)
        batch = next(batches)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return NUM_BATCHES, loss


def rollout():
    """An environment is played without gradients, in memory, before each update."""
    policy, critic = network(), long_forward()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    for _ in range(NUM_BATCHES):
        played = []
        for _ in range(8):
            with torch.no_grad():
                played.append(critic(torch.randn(64, 8)).argmax(1))
        loss = nn.functional.cross_entropy(policy(torch.randn(64, 8)), played[-1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return NUM_BATCHES, loss


def descend(model, batch):
    """Update by hand, without an optimizer of torch."""
    loss = loss_of(model, batch)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    return loss


def own_optimizer(num_epochs=2, num_batches=NUM_BATCHES):
    model = network()
    steps = [descend(model, batch) for _ in range(num_epochs) for batch in data(num_batches)]
    return len(steps), steps[-1]


def by_hand():
    """Neither an optimizer nor a DataLoader."""
    model, (samples, labels) = network(), next(iter(data(1)))
    steps = [descend(model, (samples, labels)) for _ in range(NUM_BATCHES)]
    return len(steps), steps[-1]


def train_anew(width, num_batches=30):
    model = nn.Sequential(nn.Linear(8, width), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = [train_on(model, optimizer, batch) for batch in data(num_batches)]
    return len(steps), steps[-1]


def sweep():
    """Five trials, of models of their own."""
    trials = [train_anew(8 << trial) for trial in range(5)]
    return sum(num_steps for num_steps, _ in trials), trials[-1][1]


def two_stages():
    """The second optimizer follows the first one, which is still there, in memory."""
    models = network(), nn.Linear(2, 2)
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    samples = torch.randn(64, 8)
    for model, optimizer in zip(models, optimizers, strict=True):
        for _ in range(40):
            optimizer.zero_grad()
            loss = model(samples).square().mean()
            loss.backward()
            optimizer.step()
        samples = model(samples).detach()
    return 80, loss


def ends_early():
    train_anew(8, num_batches=3)
    raise KeyError("no more data")


def collate_slowly(samples):
    sum(range(200_000))
    return default_collate(samples)


def slow_phases():
    """Times its phases itself, and prints them: of each step but the first, which is before the profiler.

    All take milliseconds: the time of hooks, which the script's times contain, is small against each on any machine.
    """
    now, times = time.perf_counter_ns, []
    model = long_forward()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    ready = now()
    for batch in data(collate_fn=collate_slowly):
        fetched = now()
        loss = loss_of(model, [part.repeat_interleave(16, 0) for part in batch])
        forwarded = now()
        loss.backward()
        gone_back = now()
        optimizer.step()
        stepped = now()
        optimizer.zero_grad()
        moments = (ready, fetched, forwarded, gone_back, stepped)
        times.append([end - begin for begin, end in itertools.pairwise(moments)])
        ready = now()
    print("times", json.dumps(times[1:]))
    return len(times), loss


KINDS = {
    "plain": plain,
    "accumulation": accumulation,
    "accumulation of 20": lambda: accumulation(20),
    "own optimizer": own_optimizer,
    "own optimizer, briefly": lambda: own_optimizer(1, 6),
    "by hand": by_hand,
    "gan 5": lambda: gan(5),
    "gan 15": lambda: gan(15),
    "hooks of its own": hooks_of_its_own,
    "two optimizers": two_optimizers,
    "optimizer in backward": optimizer_in_backward,
    "ppo": ppo,
    "lbfgs": lbfgs,
    "autograd.grad": autograd_grad,
    "validation": validation,
    "validation with gradients": validation_with_gradients,
    "validation first": validation_first,
    "fetched ahead": fetched_ahead,
    "fetched between": fetched_between,
    "rollout": rollout,
    "kept iterator": kept_iterator,
    "iterable dataset": iterable_dataset,
    "no loader": no_loader,
    "skipped by scaler": skipped_by_scaler,
    "compiled model": compiled_model,
    "compiled step": compiled_step,
    "spawn workers": spawn_workers,
    "slow phases": slow_phases,
    "sweep": sweep,
    "two stages": two_stages,
    "ends early": ends_early,
    "too short": lambda: train_anew(8, num_batches=3),
    "ddp": ddp,
    "fsdp": fsdp,
}

if __name__ == "__main__":
    num_steps, loss = KINDS[sys.argv[1]]()
    if os.environ.get("RANK", "0") == "0":
        print("steps", num_steps, "loss", float(loss).hex())
    sys.exit(3)
