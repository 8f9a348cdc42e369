"""The flame graphs of a page."""

from support.page_data import page_of, read_column, span, write_trace


def frames_of(graph):
    """Own time, time with callees, and calls of each chain of calls, written as names and >."""
    chains, found = [], {}
    columns = [read_column(getattr(graph, name)) for name in ("names", "callers", "self_ns", "total", "num_calls")]
    for name, caller, *numbers in zip(*columns, strict=True):
        chains.append(f"{chains[caller - 1]} > {graph.texts[name]}" if caller else graph.texts[name])
        found[chains[-1]] = tuple(numbers)
    return found


def test_operators_are_summed_by_who_called_them(tmp_path):
    events = []
    for first in (0, 100):
        events += [
            span("aten::linear", first, 50),
            span("aten::addmm", first + 10, 20),
            span("aten::addmm", first + 35, 5),
        ]
    (graph,) = page_of(write_trace(tmp_path / "rank0.json", events)).flame_graphs
    assert frames_of(graph) == {
        "aten::linear": (50_000, 100_000, 2),
        "aten::linear > aten::addmm": (50_000, 50_000, 4),
    }


def test_python_functions_have_a_graph_of_their_own(tmp_path):
    events = [
        span("train.py(1): main", 0, 100, category="python_function"),
        span("model.py(3): forward", 10, 30, category="python_function"),
        span("aten::mm", 20, 10),
    ]
    operators, stacks = page_of(write_trace(tmp_path / "rank0.json", events)).flame_graphs
    assert frames_of(operators) == {"aten::mm": (10_000, 10_000, 1)}
    assert frames_of(stacks) == {
        "train.py(1): main": (70_000, 100_000, 1),
        "train.py(1): main > model.py(3): forward": (30_000, 30_000, 1),
    }


def test_sampled_lines_have_a_graph_that_says_so_and_counts_no_calls(tmp_path):
    events = [
        span("train.py(9): main", 0, 100, category="stack_sample"),
        span("torch/nn/modules/linear.py(134): forward", 10, 30, category="stack_sample,library"),
        span("aten::mm", 20, 10, tid=2),
    ]
    operators, samples = page_of(write_trace(tmp_path / "rank0.json", events)).flame_graphs
    assert frames_of(operators) == {"aten::mm": (10_000, 10_000, 1)}
    assert samples.title == "Python lines, sampled"
    assert frames_of(samples) == {
        "train.py(9): main": (70_000, 100_000, 0),
        "train.py(9): main > torch/nn/modules/linear.py(134): forward": (30_000, 30_000, 0),
    }


def test_several_ranks_have_a_graph_of_all_and_one_each(tmp_path):
    paths = [write_trace(tmp_path / f"rank{rank}.json", [span("aten::mm", 0, 10 + rank)]) for rank in range(2)]
    graphs = page_of(*paths).flame_graphs
    assert [(graph.rank, frames_of(graph)) for graph in graphs] == [
        (None, {"aten::mm": (21_000, 21_000, 2)}),
        (0, {"aten::mm": (10_000, 10_000, 1)}),
        (1, {"aten::mm": (11_000, 11_000, 1)}),
    ]


def test_each_thread_has_a_graph_and_the_loop_is_first(tmp_path):
    events = [
        span("autograd::engine::evaluate_function: MmBackward0", 0, 90, tid=2),
        span("ProfilerStep#3", 0, 100),
        span("aten::mm", 10, 50),
    ]
    paths = [write_trace(tmp_path / f"rank{rank}.json", events) for rank in range(2)]
    graphs = page_of(*paths).flame_graphs
    assert [(graph.thread, graph.rank) for graph in graphs] == [
        ("training loop", None),
        ("training loop", 0),
        ("training loop", 1),
        ("backward thread", None),
        ("backward thread", 0),
        ("backward thread", 1),
    ]
    assert frames_of(graphs[1]) == {"aten::mm": (50_000, 50_000, 1)}


def test_threads_of_one_name_are_numbered_and_their_other_tracks_belong_to_the_loop(tmp_path):
    names = {1: "worker", 2: "worker", 3: "samples of worker", 4: "reader", 5: "samples of reader"}
    names[6] = "worker (overlap 1)"
    events = [
        *(
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}}
            for tid, name in names.items()
        ),
        span("aten::add", 0, 30, tid=1),
        span("ProfilerStep#3", 0, 100, tid=2),
        span("aten::mm", 10, 50, tid=2),
        span("train.py(9): main", 0, 100, category="stack_sample", tid=3),
        span("aten::copy_", 50, 60, tid=6),
        span("read", 0, 5, tid=4),
        span("train.py(7): read", 0, 50, category="stack_sample", tid=5),
        *(span("autograd::engine::evaluate_function: MmBackward0", 0, 10 * tid, tid=tid) for tid in (7, 8)),
        span("gemm", 0, 90, tid=99, category="kernel"),
    ]
    path = write_trace(tmp_path / "rank0.json", events)
    graphs = {(graph.title, graph.thread): frames_of(graph) for graph in page_of(path).flame_graphs}
    assert list(graphs) == [
        ("Operators and markers", "training loop"),
        ("Operators and markers", "backward thread #2"),
        ("Operators and markers", "backward thread #1"),
        ("Operators and markers", "worker"),
        ("Operators and markers", "reader"),
        ("Python lines, sampled", "training loop"),
        ("Python lines, sampled", "reader"),
    ]
    assert [*graphs["Operators and markers", "training loop"]] == ["aten::mm", "aten::copy_"]
    assert [*graphs["Operators and markers", "worker"]] == ["aten::add"]


def test_the_profilers_own_spans_have_a_graph_apart(tmp_path):
    events = [
        span("aten::mm", 0, 100),
        span("kinetoscope: between steps", 10, 30, category="kinetoscope"),
        span("aten::add", 200, 10),
    ]
    operators, own = page_of(write_trace(tmp_path / "rank0.json", events)).flame_graphs
    assert frames_of(operators) == {"aten::mm": (100_000, 100_000, 1), "aten::add": (10_000, 10_000, 1)}
    assert own.title == "The profiler itself"
    assert frames_of(own) == {"kinetoscope: between steps": (30_000, 30_000, 1)}


def test_order_of_first_calls_is_reported(tmp_path):
    events = [span("aten::b", 0, 10), span("aten::a", 20, 50), span("aten::c", 30, 5), span("aten::b", 100, 10)]
    (graph,) = page_of(write_trace(tmp_path / "rank0.json", events)).flame_graphs
    names = [graph.texts[name] for name in read_column(graph.names)]
    firsts = read_column(graph.firsts)
    assert [name for _, name in sorted(zip(firsts, names, strict=True))] == ["aten::b", "aten::a", "aten::c"]
