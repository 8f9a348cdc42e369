"""The memory timeline: torch's numbers on the same results, also on the CPU, and a page that needs nothing else."""

import base64
import gzip
import json

import pytest
import torch
from torch.profiler._memory_profiler import MemoryProfile, MemoryProfileTimeline

from kinetoscope.torch import profile
from kinetoscope.torch.memory_timeline import Category

OPTIONS = {"record_shapes": True, "profile_memory": True, "with_stack": True}


def train(optimizer_type, model, num_steps: int = 2) -> None:
    optimizer = optimizer_type(model.parameters(), lr=0.01)
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()


def sequential() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))


def train_with_adam() -> None:
    train(torch.optim.Adam, sequential())


def train_with_sgd_made_before() -> None:
    train(torch.optim.SGD, BEFORE)


def infer() -> None:
    with torch.no_grad():
        sequential()(torch.randn(4, 16))


def make_and_resize() -> None:
    tensors = [torch.randn(100) for _ in range(3)]
    tensors[0].resize_(1000)
    torch.cat(tensors).add_(1)


BEFORE = sequential()
WORKS = [train_with_adam, train_with_sgd_made_before, infer, make_and_resize, lambda: None]


def record(work) -> profile:
    with profile(**OPTIONS) as profiler:
        work()
    return profiler


@pytest.fixture(autouse=True, scope="module")
def everything_is_imported():
    """The first optimizer imports torch's compiler, which is a lot to record."""
    train_with_adam()


def stocks(profiler) -> MemoryProfileTimeline:
    return MemoryProfileTimeline(MemoryProfile(profiler.profiler.kineto_results))


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_every_change_and_category_is_stocks(work, tmp_path):
    profiler = record(work)
    stock = stocks(profiler)
    stock.export_memory_timeline_raw(str(tmp_path / "stock.json"), "cpu")
    stock.export_memory_timeline(str(tmp_path / "sums.json"), "cpu")
    profiler.export_memory_timeline(tmp_path / "ours.raw.json.gz", "cpu")
    profiler.export_memory_timeline(tmp_path / "ours.json.gz", "cpu")
    profiler.export_memory_timeline(tmp_path / "ours.json", "cpu")
    raw = json.loads(gzip.decompress((tmp_path / "ours.raw.json.gz").read_bytes()))
    assert raw == json.loads((tmp_path / "stock.json").read_text())
    sums = (tmp_path / "ours.json").read_text()
    assert json.loads(sums) == json.loads((tmp_path / "sums.json").read_text())
    assert gzip.decompress((tmp_path / "ours.json.gz").read_bytes()).decode() == sums


def test_the_result_says_what_was_allocated_at_the_peak():
    timeline = record(train_with_adam).memory_timeline("cpu")
    assert timeline.peak_bytes == max(sum(row) for row in timeline.sizes_bytes) > 0
    assert sum(timeline.bytes_at_peak.values()) == timeline.peak_bytes
    assert {Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE} <= set(timeline.bytes_at_peak)
    assert timeline.peak_time_us in timeline.times_us


def test_the_page_holds_all_it_needs(tmp_path):
    profiler = record(train_with_adam)
    profiler.export_memory_timeline(tmp_path / "new" / "memory.html")
    page = (tmp_path / "new" / "memory.html").read_text()
    data = gzip.decompress(base64.b64decode(page.partition('id="page-data">')[2].partition("</script>")[0]))
    assert b"optimizer state" in data
    assert "default-src 'none'" in page
    assert profiler.mem_tl.device == ("cuda:0" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("missing", OPTIONS)
def test_the_error_names_the_missing_option(missing, tmp_path):
    with profile(**{**OPTIONS, missing: False}) as profiler:
        torch.ones(3)
    for call in (lambda: profiler.export_memory_timeline(tmp_path / "memory.html"), profiler._memory_profile):
        with pytest.raises(ValueError, match=f"{missing}=True"):
            call()


def test_a_device_on_which_nothing_happened_has_an_empty_timeline(tmp_path):
    profiler = record(infer)
    timeline = profiler.memory_timeline("cuda:7")
    assert (timeline.peak_bytes, timeline.peak_time_us, timeline.bytes_at_peak) == (0, None, {})
    profiler.export_memory_timeline(tmp_path / "memory.html", "cuda:7")
