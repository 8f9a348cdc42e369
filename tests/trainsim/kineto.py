"""Writes what a rank recorded in the shape that Kineto gives its traces."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from trainsim.engine import CLOSURE, HostSpan, Memory, QueuedSpan, Window
from trainsim.groups import Group
from trainsim.settings import Settings
from trainsim.states import BLOCKED, STARVED, counters, samples, worker_samples
from trainsim.writer import GLOO

if TYPE_CHECKING:
    from trainsim.run import RankRun

_THREADS = {"loop": 0, "autograd": 158, "gloo": 9, "gloo2": 10, "sampler": 400}
_CALLBACK_IDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaGraphLaunch": 311,
    "cudaMemcpyAsync": 41,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaEventSynchronize": 137,
    "cudaDeviceSynchronize": 165,
}
_SYNC_KINDS = {
    "cudaStreamSynchronize": "Stream Sync",
    "cudaEventSynchronize": "Event Sync",
    "cudaDeviceSynchronize": "Context Sync",
}
_OURS = ("batch", "dataloader", "eval", "kinetoscope", "gc", "compile", "marker")
"""The categories of what is recorded without torch."""

DEVICE_NAME = "NVIDIA A100-SXM4-80GB"
DEVICE_BYTES = 85_198_045_184

BASE_NS = 1_790_857_026_000_000_000
START_NS = BASE_NS + 4_514_919_036_016_339
"""When every run begins, by rank 0's clock."""

_quoted = lru_cache(maxsize=None)(json.dumps)


def render(settings: Settings, groups: tuple[Group, ...], rank: "RankRun", window: Window) -> str:
    """Return the text of one trace."""
    header = json.dumps(_header(settings, groups, rank), indent=2)[1:-2]
    events = ",\n".join(_Events(settings, rank).of(window))
    return f'{{{header},\n  "traceEvents": [\n{events}\n  ]\n}}\n'


def _header(settings: Settings, groups: tuple[Group, ...], rank: "RankRun") -> dict[str, object]:
    has_device = settings.has_device
    device = {"id": rank.device, "name": DEVICE_NAME, "totalGlobalMem": DEVICE_BYTES, "computeMajor": 8}
    distributed: dict[str, object] = {
        "backend": "nccl" if has_device else "gloo",
        "rank": rank.rank,
        "world_size": settings.num_ranks,
    }
    if settings.num_ranks > 1:
        own = [group for group in groups if rank.rank in group.ranks]
        distributed["pg_count"] = len(own)
        distributed["pg_config"] = [
            {
                "pg_name": group.name,
                "pg_desc": group.description,
                "backend_config": "cuda:nccl" if has_device else "cpu:gloo",
                "pg_size": len(group.ranks),
                "ranks": list(group.ranks),
            }
            for group in own
        ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [device] if has_device else [],
        "record_shapes": int(settings.has_shapes),
        "profile_memory": int(settings.has_memory),
        "with_stack": int(settings.has_stacks),
        "distributedInfo": distributed,
        "host_name": rank.host,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceName": f"rank{rank.rank}.json",
    }


class _Events:
    """The events of one trace, as texts."""

    def __init__(self, settings: Settings, rank: "RankRun") -> None:
        self._settings, self._rank = settings, rank
        self._pid = 4000 + rank.rank
        self._python_ids: dict[int, int] = {}
        self._launched: set[int | None] = set()

    def of(self, window: Window) -> Iterator[str]:
        begin_ns, end_ns = self._time(window.begin_ns), self._time(window.end_ns)
        if self._settings.workers_do != "nothing":
            yield from self._samples_of_workers(window)
        if self._settings.workers_do != "nothing" or self._settings.has_states:
            yield (
                f'{{"ph": "i", "s": "t", "cat": "stack_sample", "name": "sampled every 0.1 ms", "pid": {self._pid}, '
                f'"tid": {self._tid("sampler")}, "ts": {_us(self._time(window.begin_ns))}}}'
            )
        if self._settings.has_states:
            yield from self._states(window)
        if not self._settings.has_torch:
            yield from map(self._host_span, self._shown(window))
            return
        yield (
            '{"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", '
            f'"ts": {_us(begin_ns)}, "dur": {_us(end_ns - begin_ns)}, "args": {{"Op count": 0}}}}'
        )
        yield from self._metadata(window)
        for span in self._shown(window):
            yield self._host_span(span)
            if self._settings.has_sync_events and span.name in _SYNC_KINDS:
                yield self._sync(span)
        for span in window.queued:
            yield from self._gloo(span) if span.kernel.kind == "gloo" else self._device_span(span)
        yield from self._annotations(window)
        for event in window.memory:
            yield self._memory(event)
        yield f'{{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": {_us(end_ns)}}}'

    def _shown(self, window: Window) -> Iterator[HostSpan]:
        is_hidden = (CLOSURE, BLOCKED, STARVED).__contains__
        is_shown = _OURS.__contains__ if not self._settings.has_torch else lambda category: not is_hidden(category)
        return (span for span in window.spans if is_shown(span.category))

    def _samples_of_workers(self, window: Window) -> Iterator[str]:
        for worker in range(self._settings.num_workers):
            place = f'"pid": {self._pid}, "tid": {self._tid("sampler") + 1 + worker}'
            fields = f'"name": "DataLoader worker {worker}: samples of MainThread"'
            yield f'{{"ph": "M", "name": "thread_name", {place}, "args": {{{fields}}}}}'
            for name, category, begin_ns, end_ns in worker_samples(window, worker, self._settings):
                yield self._span(name, category, place, begin_ns, end_ns, "")

    def _states(self, window: Window) -> Iterator[str]:
        place = f'"pid": {self._pid}, "tid": {self._tid("sampler")}'
        yield f'{{"ph": "M", "name": "thread_name", {place}, "args": {{"name": "samples of MainThread"}}}}'
        for name, category, begin_ns, end_ns in samples(window, self._settings.seed):
            yield self._span(name, category, place, begin_ns, end_ns, "")
        for at_ns, values in counters(window):
            yield (
                f'{{"ph": "C", "cat": "system", "name": "loop thread", "pid": {self._pid}, '
                f'"tid": {self._tid("loop")}, "ts": {_us(self._time(at_ns))}, "args": {values}}}'
            )
        if any(fault.kind == "preempted" for fault in self._settings.faults):
            wall_ns = window.end_ns - window.begin_ns
            used = {"wall_ns": wall_ns, "cores": 2, "threads": 8, "own_ns": 2 * wall_ns // self._settings.num_ranks}
            if self._settings.contention_by == "other programs":
                used |= {"own_ns": used["own_ns"] // 4, "busy_ns": 2 * wall_ns}
            yield (
                f'{{"ph": "i", "s": "t", "cat": "processors", "name": "processors", "pid": {self._pid}, '
                f'"tid": {self._tid("loop")}, "ts": {_us(self._time(window.end_ns))}, "args": {json.dumps(used)}}}'
            )

    def _time(self, at_ns: int) -> int:
        return self._rank.clock_ns(at_ns) - BASE_NS

    def _tid(self, thread: str) -> int:
        return self._pid + _THREADS[thread]

    def _span(self, name: str, category: str, place: str, begin_ns: int, end_ns: int, args: str) -> str:
        begin_ns, end_ns = self._time(begin_ns), self._time(end_ns)
        return (
            f'{{"ph": "X", "cat": "{category}", "name": {_quoted(name)}, {place}, '
            f'"ts": {_us(begin_ns)}, "dur": {_us(end_ns - begin_ns)}, "args": {{{args}}}}}'
        )

    def _metadata(self, window: Window) -> Iterator[str]:
        begin_ns = self._time(window.begin_ns)
        threads = {span.thread for span in window.spans}
        streams = {span.stream.track for span in window.queued}
        rows = [("process_name", self._pid, 0, '"name": "python"'), ("process_labels", self._pid, 0, '"labels": "CPU"')]
        rows.append(("process_sort_index", self._pid, 0, f'"sort_index": {self._pid}'))
        for thread in sorted(threads | (streams & {*GLOO})):
            fields = f"thread {self._tid(thread)} ({'pt_gloo_runloop' if thread in GLOO else 'python'})"
            rows.append(("thread_name", self._pid, self._tid(thread), f'"name": "{fields}"'))
        if self._settings.has_device:
            device = self._rank.device
            rows.append(("process_name", device, 0, '"name": "python"'))
            rows.append(("process_labels", device, 0, f'"labels": "GPU {device}"'))
            rows += [
                ("thread_name", device, int(stream), f'"name": "stream {stream} "')
                for stream in sorted(streams, key=int)
            ]
        for name, pid, tid, args in rows:
            yield (
                f'{{"ph": "M", "name": "{name}", "ts": {_us(begin_ns)}, "pid": {pid}, "tid": {tid}, '
                f'"args": {{{args}}}}}'
            )

    def _host_span(self, span: HostSpan) -> str:
        place = f'"pid": {self._pid}, "tid": {self._tid(span.thread)}'
        return self._span(span.name, span.category, place, span.begin_ns, span.end_ns, self._host_args(span))

    def _host_args(self, span: HostSpan) -> str:
        if span.category in ("cpu_op", "user_annotation"):
            fields = f'"External id": {span.external_id}, "Record function id": 0'
            if self._settings.num_closure_calls and span.phase in ("forward", "backward"):
                fields += f', "Sequence number": {span.external_id}, "Fwd thread id": {int(span.phase == "backward")}'
            return f"{fields}, {span.args}" if span.args else fields
        if span.category == "cuda_runtime":
            number = span.correlation
            return f'"External id": {span.external_id}, "cbid": {_CALLBACK_IDS[span.name]}, "correlation": {number}'
        if span.category == "python_function":
            return self._python_args(span)
        return span.args

    def _python_args(self, span: HostSpan) -> str:
        number = self._python_ids[id(span)] = len(self._python_ids) + 1
        parent = span.parent
        while parent is not None and parent.category != "python_function":
            parent = parent.parent
        caller = self._python_ids.get(id(parent))
        return f'"Python id": {number}, "Python parent id": {"null" if caller is None else caller}'

    def _on_stream(self, track: str) -> str:
        return f'"pid": {self._rank.device}, "tid": {track}'

    def _device_span(self, span: QueuedSpan) -> Iterator[str]:
        kernel, launch, track = span.kernel, span.launch, span.stream.track
        number = launch.correlation
        args = f'"External id": {launch.external_id}, "device": {self._rank.device}, "context": 1, "stream": {track}, '
        args += f'"correlation": {number}'
        if kernel.num_bytes is not None:
            args += f', "bytes": {kernel.num_bytes}'
        if kernel.args:
            args += f", {kernel.args}"
        assert span.end_ns is not None
        yield self._span(kernel.name, kernel.category, self._on_stream(track), span.begin_ns, span.end_ns, args)
        if launch.window is None:
            return
        flow = f'"id": {number}, "cat": "ac2g", "name": "ac2g"'
        begin_ns, on_thread = self._time(launch.begin_ns), f'"pid": {self._pid}, "tid": {self._tid(launch.thread)}'
        if number not in self._launched:  # a graph's launch has many kernels, and one arrow begins
            self._launched.add(number)
            yield f'{{"ph": "s", {flow}, {on_thread}, "ts": {_us(begin_ns)}}}'
        at = _us(self._time(span.begin_ns))
        yield f'{{"ph": "f", {flow}, {self._on_stream(track)}, "ts": {at}, "bp": "e"}}'

    def _gloo(self, span: QueuedSpan) -> Iterator[str]:
        assert span.end_ns is not None
        place = f'"pid": {self._pid}, "tid": {self._tid(span.stream.track)}'
        args = f'"External id": {100_000 + span.launch.external_id}, "Record function id": 0'
        args += f", {span.kernel.args}" if span.kernel.args else ""
        yield self._span(span.kernel.name, "user_annotation", place, span.begin_ns, span.end_ns, args)

    def _sync(self, span: HostSpan) -> str:
        kind = _SYNC_KINDS[span.name]
        track = "7"
        args = f'"cuda_sync_kind": "{kind}", "stream": {track}, "correlation": {span.correlation}, '
        args += f'"device": {self._rank.device}, "context": 1'
        return self._span(kind, "cuda_sync", self._on_stream(track), span.begin_ns + 500, span.end_ns - 500, args)

    def _annotations(self, window: Window) -> Iterator[str]:
        """Where on each stream the work lies that was launched in an annotation."""
        extents: dict[tuple[int, str], list[QueuedSpan]] = {}
        annotations: dict[int, HostSpan] = {}
        for span in window.queued:
            around = span.launch.parent if span.kernel.kind != "gloo" else None
            while span.launch.window is not None and around is not None:
                if around.category == "user_annotation" and around.window is not None:
                    annotations[id(around)] = around
                    extents.setdefault((id(around), span.stream.track), []).append(span)
                around = around.parent
        for (key, track), spans in extents.items():
            around, end_ns = annotations[key], spans[-1].end_ns
            assert end_ns is not None
            fields = f'"External id": {around.external_id}'
            place = self._on_stream(track)
            yield self._span(around.name, "gpu_user_annotation", place, spans[0].begin_ns, end_ns, fields)

    def _memory(self, event: Memory) -> str:
        device, kind = (self._rank.device, 1) if self._settings.has_device else (-1, 0)
        args = f'"Total Reserved": {event.total_bytes}, "Total Allocated": {event.total_bytes}, '
        args += f'"Bytes": {event.num_bytes}, "Device Id": {device}, "Device Type": {kind}, "Addr": {event.address}'
        place = f'"pid": {self._pid}, "tid": {self._tid(event.thread)}, "ts": {_us(self._time(event.at_ns))}'
        return f'{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", {place}, "args": {{{args}}}}}'


def _us(duration_ns: int) -> str:
    return f"{duration_ns // 1000}.{duration_ns % 1000:03d}"
