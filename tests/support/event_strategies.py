"""Shared by tests of merging and repairing: random events from hypothesis, ordinary and malformed."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

BASE_NS = 1_790_857_026_000_000_000
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

times = st.integers(0, 60_000).map(lambda ns: ns / 1000)
places = st.sampled_from(
    [1, 3, 7, "7", "07", 40, "Spans", "", None, 2.5, "2.5", -0.0, "stream 3", "é\n", {"a": 1}, 2**70]
)
texts = st.text(max_size=6) | st.sampled_from(
    ["aten::add", "ProfilerStep#3", "event/batch", "\\", 'a"b\\', "\ud83d\ude00"]
)
leaves = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    leaves, lambda of: st.lists(of, max_size=3) | st.dictionaries(texts, of, max_size=3), max_leaves=5
)
args = st.none() | st.just({}) | st.dictionaries(texts | st.just("kinetoscope"), values, max_size=3)
ids = st.integers(0, 5) | st.sampled_from(["3", "0x1f", 31, 2**60, "abc", 7.5])
categories = st.sampled_from(["cpu_op", "kernel", "python_function", "gpu_memcpy", "user_annotation"])
malformed_names = st.sampled_from([["a"], {"b": 1}, None, True, 7, 2.5, ""])


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


spans = st.builds(
    lambda fixed, more: fixed | more,
    st.fixed_dictionaries(
        {"ph": st.just("X"), "ts": times, "name": texts | malformed_names, "cat": categories | malformed_names}
    ),
    optional(
        dur=times,
        pid=places,
        tid=places,
        args=args,
        bind_id=ids,
        extra=values,
        **dict.fromkeys(("flow_in", "flow_out"), st.sampled_from([True, False, 1])),
    ),
)
others = st.builds(
    lambda fixed, more: fixed | more,
    st.fixed_dictionaries({"ph": st.sampled_from([*"BEiCsftbneM", "", "XX"]), "name": texts | malformed_names}),
    optional(ts=times, pid=places, tid=places, id=ids, args=args, s=st.sampled_from("gpt"), bp=st.just("e")),
)
names = st.fixed_dictionaries(
    {
        "ph": st.just("M"),
        "name": st.sampled_from(["thread_name", "thread_sort_index", "process_name", "process_labels"]),
        "pid": places,
        "tid": places,
        "args": st.fixed_dictionaries({"name": texts, "sort_index": st.integers(0, 9), "labels": st.just("GPU 0")}),
    }
)
events = st.lists(spans | spans | others | names, max_size=25)
