"""Memory of real torch runs: a leak is reported to the byte with its reference, and nothing else is. Memory at the peak
is split over the parts of a step."""

import queue

import pytest

import kinetoscope
from kinetoscope import cyclic_schedule

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # else any operator waits for a second thread, for long on a busy machine
LEAK_BYTES = 400_000


def record(folder, after_each_batch=lambda loss: None, **options):
    """Train ten recorded batches from the run's first one on; return the memory of the host."""
    (row,) = report_on(folder, after_each_batch, **options).memory
    return row


def report_on(folder, after_each_batch, **options):
    """Return the report on a training run of ten recorded batches from the run's first one on."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = cyclic_schedule(active=10, per="run")
    options = {"schedule": schedule, "system": False, "strict": True, "quiet": True} | options
    with kinetoscope.profile(str(folder), **options) as profiler:
        for batch in profiler.batches(torch.randn(64, 64).split([4, 8, 5, 6, 9, 3, 7, 4, 8, 10])):
            loss = model(batch).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            after_each_batch(loss)
    return kinetoscope.analyze(str(folder), cache=False)


def test_leak_is_reported_within_one_percent_with_the_referencing_function(tmp_path):
    kept, values = [], torch.zeros(LEAK_BYTES // 4)

    def remember(loss):
        kept.append(values.clone())

    row = record(tmp_path / "run", remember, with_stack=True)
    assert row.growth_bytes_per_step == pytest.approx(LEAK_BYTES, rel=0.01)
    (holder,) = row.holders
    assert (holder.operator, holder.bytes_per_step) == ("aten::clone", LEAK_BYTES)
    assert holder.line.endswith(f"test_memory_growth.py:{remember.__code__.co_firstlineno}")
    assert row.peak_bytes > 9 * LEAK_BYTES
    assert row.peak_step == 9


def test_results_that_are_kept_keep_what_their_backward_pass_needs(tmp_path):
    kept, layer, values = [], torch.nn.Linear(100, 1000), torch.zeros(10, 100)

    def evaluate(loss):
        kept.append(torch.sigmoid(layer(values)).sum())

    row = record(tmp_path / "run", evaluate)
    assert row.growth_bytes_per_step == pytest.approx(10 * 1000 * 4, rel=0.01)
    assert row.holders[0].operator == "aten::sigmoid"


def finding(report):
    (found,) = [found for found in report.findings if found.kind == "memory_growth"]
    return found


def test_a_leak_of_graphs_is_named_by_what_holds_it_and_the_line_that_adds_to_it(tmp_path):
    kept, layer, values = [], torch.nn.Linear(100, 1000), torch.zeros(10, 100)

    def evaluate(loss):
        kept.append(torch.sigmoid(layer(values)).sum())

    found = finding(report_on(tmp_path / "run", evaluate, sources=[kinetoscope.GrowingMemory()]))
    assert found.title.endswith("/step, retained by kept")
    assert "kept (list, variable of " in found.advice
    assert "gained 9 tensors in 9 steps, 9 of them with their autograd graph." in found.advice
    assert found.where.lines[0].endswith(f"test_memory_growth.py:{evaluate.__code__.co_firstlineno + 1}")
    assert dict(found.evidence)["bytes_per_step"] == pytest.approx(10 * 1000 * 4, rel=0.01)
    assert found.saving_ns_per_step is None


def test_growth_without_a_known_reference_is_reported_as_such(tmp_path):
    hidden = queue.SimpleQueue()
    report = report_on(
        tmp_path / "run",
        lambda loss: hidden.put(torch.zeros(LEAK_BYTES // 4)),
        sources=[kinetoscope.GrowingMemory()],
    )
    assert "No object within reach of the loop's functions retains it" in finding(report).advice
    assert report.memory[0].growth_bytes_per_step == pytest.approx(LEAK_BYTES, rel=0.01)


def test_products_in_float64_are_named_with_the_line_that_makes_them_so(tmp_path):
    weights = torch.ones(800, 800, dtype=torch.float64)
    report = report_on(tmp_path / "run", lambda loss: weights @ weights, sources=[kinetoscope.Float64Tensors()])
    found = report.findings[0]
    assert (found.kind, found.saving_ns_per_step, found.confidence) == ("float64", None, "high")
    first_line = test_products_in_float64_are_named_with_the_line_that_makes_them_so.__code__.co_firstlineno
    assert found.where.lines[0].endswith(f"test_memory_growth.py:{first_line + 1}")
    assert found.advice.startswith("In float64: weights (tensor, ")


def test_a_run_that_keeps_nothing_does_not_grow_though_its_optimizer_began_in_it(tmp_path):
    row = record(tmp_path / "run")
    assert (row.growth_bytes_per_step, row.holders) == (0, ())


def test_memory_at_the_peak_is_shared_out_to_the_parts_of_a_step(tmp_path):
    row = record(tmp_path / "run")
    held = dict(row.by_category)
    parameters = 4 * (64 * 64 + 64 + 64 + 1)
    assert sum(held.values()) == row.peak_bytes
    assert held["backward"] >= parameters, "each parameter has a gradient"
    assert held["optimizer"] > 0, "at the peak Adam computes"


class ReadsOnce(torch.utils.data.Dataset):
    """A dataset that keeps what it has read."""

    def __init__(self):
        self.kept = {}

    def __len__(self):
        return 400

    def __getitem__(self, number):
        if number not in self.kept:
            self.kept[number] = torch.zeros(500)
        return self.kept[number]


@pytest.mark.parametrize("sources", [[], [kinetoscope.GrowingMemory]])
def test_memory_kept_by_a_dataset_is_no_certain_leak_and_no_kept_loss(tmp_path, sources):
    schedule = cyclic_schedule(skip_first=2, warmup=1, active=10, per="run")
    layer = torch.nn.Linear(500, 1)
    options = {"schedule": schedule, "system": False, "strict": True, "quiet": True, "profile_memory": True}
    with kinetoscope.profile(str(tmp_path / "run"), sources=[kind() for kind in sources], **options) as profiler:
        for batch in profiler.batches(torch.utils.data.DataLoader(ReadsOnce(), 20)):
            layer(batch).sum().backward()
    found = finding(kinetoscope.analyze(str(tmp_path / "run"), cache=False))
    assert dict(found.evidence)["bytes_per_step"] == pytest.approx(20 * 500 * 4, rel=0.01)
    assert found.confidence == "medium"
    assert "limit the dataset's cache" in found.advice
    assert "losses.append" not in found.advice


def train_with_closures(folder, optimizer_of, num_batches):
    """Train on batches of one size, each in a closure of an optimizer that requires it; return the report."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = optimizer_of(model.parameters())

    def loss_on(batch):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        return loss

    schedule = cyclic_schedule(skip_first=num_batches - 11, warmup=1, active=10, per="run")
    options = {"schedule": schedule, "system": False, "strict": True, "quiet": True, "profile_memory": True}
    with kinetoscope.profile(str(folder), sources=[kinetoscope.GrowingMemory()], **options) as profiler:
        for batch in profiler.batches(torch.randn(num_batches * 8, 64).split(8)):
            optimizer.step(lambda batch=batch: loss_on(batch))
    return kinetoscope.analyze(str(folder), cache=False)


def lbfgs(parameters, history_size=100):
    return torch.optim.LBFGS(parameters, lr=0.01, max_iter=2, history_size=history_size)


def test_a_history_of_an_optimizer_that_is_not_full_yet_is_no_sure_leak(tmp_path):
    found = finding(train_with_closures(tmp_path / "run", lbfgs, num_batches=12))
    assert found.confidence == "medium"
    assert found.title.startswith("Memory growth: +")
    assert "in the optimizer" in found.title
    assert "history_size" in found.advice
    assert "losses.append" not in found.advice


def test_a_history_of_an_optimizer_that_is_full_does_not_grow(tmp_path):
    report = train_with_closures(tmp_path / "run", lambda parameters: lbfgs(parameters, history_size=3), 22)
    assert "memory_growth" not in [found.kind for found in report.findings]
