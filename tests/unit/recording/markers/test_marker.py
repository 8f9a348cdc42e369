"""Markers, on a real profiler with a clock that the test moves."""

import asyncio
import contextlib
import copy
import functools
import inspect
import logging
import pickle
import threading

import pytest

import kinetoscope
from kinetoscope import ProfilerAction
from kinetoscope.errors import MarkerError, SettingsError
from kinetoscope.recording.profiler import Profiler
from kinetoscope.spool.record import Kind
from kinetoscope.testing import FakeClock, MemoryTraceHandler


class Run:
    """A profiler that records everything, and its records after the block."""

    def __init__(self, schedule=lambda state: ProfilerAction.ACTIVE, tick_ns=10):
        self.clock = FakeClock(monotonic_ns=1000, tick_ns=tick_ns)
        self.handler = MemoryTraceHandler()
        self.profiler = Profiler(schedule, self.handler, clock=self.clock, strict=True)

    def __enter__(self):
        self.profiler.start()
        return self.profiler

    def __exit__(self, *exception):
        self.profiler.close()

    def names(self):
        return [name for name, _, _ in self.handler.spans()]

    def durations(self, name):
        return [end - begin for _, begin, end in self.handler.spans(name)]


def test_without_a_profiler_running_a_marker_records_nothing_and_works():
    marker = kinetoscope.marker("idle")
    with marker:
        pass
    marker.start()
    marker.finish()
    marker.instant()
    marker.counter({"a": 1})
    assert marker(lambda: 3)() == 3


def test_spans_instants_and_counters_are_recorded_only_in_actions_of_their_marker():
    actions = [ProfilerAction.WARMUP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE]
    run = Run(lambda state: actions[int(state.timestamp.batch) % 3])
    with run as profiler:
        marker = profiler.marker("work", actions=[ProfilerAction.ACTIVE])
        for _ in profiler.batches(range(3)):
            marker.instant()
            marker.counter(1)
            with marker:
                pass
    records = [record for cycle in run.handler.cycles for _, record, name in cycle.records() if name.name == "work"]
    assert sorted((record.kind, record.batch) for record in records) == [(kind, 1) for kind in Kind]


def test_a_span_has_the_nanoseconds_at_which_it_began_and_ended():
    run = Run(tick_ns=0)
    with run as profiler:
        marker = profiler.marker("work")
        run.clock.advance(100)
        with marker:
            run.clock.advance(250)
        run.clock.advance(100)
    assert run.handler.spans("work") == [("work", 1100, 1350)]


def test_a_batch_that_is_skipped_records_nothing():
    run = Run(lambda state: ProfilerAction.SKIP)
    with run as profiler:
        with profiler.marker("work"):
            pass
        profiler.marker("work").instant()
        profiler.marker("work").counter(3)
    assert run.handler.cycles == []


def test_a_marker_records_only_during_its_actions():
    run = Run(lambda state: list(ProfilerAction)[int(state.timestamp.batch) % 4])
    with run as profiler:
        warmup_only = profiler.marker("warm", actions=[ProfilerAction.WARMUP])
        for _ in profiler.batches(range(4)):
            with warmup_only, profiler.marker("all"):
                pass
    assert run.names().count("warm") == 1
    assert run.names().count("all") == 3


def test_recursion_nests():
    run = Run()
    with run as profiler:
        marker = profiler.marker("recursive")

        def descend(depth):
            with marker:
                if depth:
                    descend(depth - 1)

        descend(3)
    durations = run.durations("recursive")
    assert len(durations) == 4
    assert durations == sorted(durations, reverse=True)


def test_the_same_marker_may_be_entered_twice_in_one_statement():
    run = Run()
    with run as profiler:
        marker = profiler.marker("twice")
        with marker, marker:
            pass
    (_, outer_begin, outer_end), (_, inner_begin, inner_end) = run.handler.spans("twice")
    assert outer_begin < inner_begin < inner_end < outer_end


def test_spans_of_one_marker_in_interleaved_generators_keep_their_own_times():
    run = Run(tick_ns=0)
    with run as profiler:
        marker = profiler.marker("generator")

        def generate():
            with marker:
                yield

        first, second = generate(), generate()
        next(first)
        run.clock.advance(100)
        next(second)
        run.clock.advance(10)
        with contextlib.suppress(StopIteration):
            next(first)
        run.clock.advance(1000)
        with contextlib.suppress(StopIteration):
            next(second)
    assert sorted(run.durations("generator")) == [110, 1010]


def test_spans_of_one_marker_in_interleaved_tasks_keep_their_own_times():
    run = Run(tick_ns=0)

    async def task(marker, begin, gate, wait_for):
        await wait_for.wait()
        with marker:
            run.clock.advance(begin)
            gate.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        run.clock.advance(1)

    async def main(marker):
        go, first, second = asyncio.Event(), asyncio.Event(), asyncio.Event()
        go.set()
        await asyncio.gather(task(marker, 100, first, go), task(marker, 1000, second, first))

    with run as profiler:
        asyncio.run(main(profiler.marker("task")))
    spans = run.handler.spans("task")
    assert len(spans) == 2
    assert all(end > begin for _, begin, end in spans)
    assert spans[0][2] <= spans[1][2]


def test_a_generator_closed_on_another_thread_ends_its_span_there():
    run = Run()
    with run as profiler:
        marker = profiler.marker("generator")

        def generate():
            with marker:
                yield

        generator = generate()
        next(generator)
        thread = threading.Thread(target=generator.close)
        thread.start()
        thread.join()
        with profiler.marker("after"):
            pass
    assert run.names() == ["generator", "after"]
    assert run.handler.cut_spans() == []


def test_an_exit_stack_ends_the_span_it_entered():
    run = Run()
    with run as profiler:
        marker = profiler.marker("stacked")
        with contextlib.ExitStack() as stack:
            stack.enter_context(marker)
            with profiler.marker("inner"):
                pass
    assert run.names() == ["stacked", "inner"]
    assert run.handler.cut_spans() == []


def test_an_exception_ends_the_span_and_is_raised():
    run = Run()
    with run as profiler:
        with pytest.raises(ZeroDivisionError):
            with profiler.marker("fails"):
                1 / 0
    assert run.names() == ["fails"]
    assert run.handler.cut_spans() == []


def test_each_thread_has_its_own_track():
    run = Run()
    barrier = threading.Barrier(3)

    def work(marker):
        barrier.wait()
        for _ in range(500):
            with marker:
                pass

    with run as profiler:
        threads = [threading.Thread(target=work, args=(profiler.marker("w"),), name=f"w{n}") for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (cycle,) = run.handler.cycles
    assert sorted(thread.name for thread in cycle.threads) == ["w0", "w1", "w2"]
    assert len({thread.tid for thread in cycle.threads}) == 3
    assert run.names().count("w") == 1500


# -- decorator ---------------------------------------------------------------------------------------------------


def test_a_decorated_function_returns_its_own_result_and_keeps_its_signature():
    run = Run()
    with run as profiler:

        @profiler.marker("call")
        def add(a: int, b: int = 2) -> int:
            """Adds."""
            return a + b

        @profiler.marker("call")()
        def subtract(a, b):
            return a - b

        assert (add(1), subtract(3, 1)) == (3, 2)
    assert run.names() == ["call", "call"]
    assert add.__doc__ == "Adds."
    assert str(inspect.signature(add)) == "(a: int, b: int = 2) -> int"


def test_decorated_coroutine_function_stays_one_with_a_span_until_it_completes():
    run = Run(tick_ns=0)
    with run as profiler:

        @profiler.marker("coroutine")
        async def work():
            await asyncio.sleep(0)
            run.clock.advance(70)
            return "done"

        assert inspect.iscoroutinefunction(work)
        assert asyncio.run(work()) == "done"
    assert run.durations("coroutine") == [70]


def test_a_decorated_generator_function_stays_one_and_passes_everything_through():
    run = Run(tick_ns=0)
    with run as profiler:

        @profiler.marker("generator")
        def echo():
            received = yield "ready"
            run.clock.advance(30)
            try:
                yield received
            except KeyError:
                return "returned"

        assert inspect.isgeneratorfunction(echo)
        generator = echo()
        assert next(generator) == "ready"
        assert generator.send("hello") == "hello"
        with pytest.raises(StopIteration) as stop:
            generator.throw(KeyError)
        assert stop.value.value == "returned"
    assert run.durations("generator") == [30]


def test_decorated_async_generator_function_stays_one_and_passes_all_values():
    run = Run()
    log = []

    async def consume(echo):
        generator = echo()
        log.append(await generator.asend(None))
        log.append(await generator.asend("hello"))
        log.append(await generator.athrow(KeyError))
        await generator.aclose()

    with run as profiler:

        @profiler.marker("async generator")
        async def echo():
            try:
                received = yield "ready"
                try:
                    yield received
                except KeyError:
                    yield "caught"
            finally:
                log.append("closed")

        assert inspect.isasyncgenfunction(echo)
        asyncio.run(consume(echo))
    assert log == ["ready", "hello", "caught", "closed"]
    assert run.names() == ["async generator"]
    assert run.handler.cut_spans() == []


def test_decorated_object_with_coroutine_call_has_a_span_until_it_completes():
    run = Run(tick_ns=0)

    class Client:
        async def __call__(self, answer):
            await asyncio.sleep(0)
            run.clock.advance(70)
            return answer

    with run as profiler:
        for asked in (Client(), functools.partial(Client(), "done")):
            ask = profiler.marker("client")(asked)
            assert inspect.iscoroutinefunction(ask)
            assert asyncio.run(ask() if isinstance(asked, functools.partial) else ask("done")) == "done"
    assert run.durations("client") == [70, 70]


def test_decorated_object_with_generator_call_has_a_span_until_it_is_exhausted():
    run = Run(tick_ns=0)

    class Loader:
        def __call__(self):
            yield 1
            run.clock.advance(30)

    class Stream:
        async def __call__(self):
            yield 1
            run.clock.advance(50)

    async def consume(stream):
        return [item async for item in stream()]

    with run as profiler:
        assert list(profiler.marker("loader")(Loader())()) == [1]
        assert asyncio.run(consume(profiler.marker("stream")(Stream()))) == [1]
    assert run.durations("loader") == [30]
    assert run.durations("stream") == [50]


def test_a_decorated_method_works_on_its_object():
    run = Run()
    with run as profiler:

        class Model:
            @profiler.marker("method")
            def double(self, x):
                return 2 * x

        assert Model().double(4) == 8
    assert run.names() == ["method"]


# -- without parentheses -----------------------------------------------------------------------------------------


@pytest.fixture(params=["profiler.marker", "kinetoscope.marker"])
def marking(request):
    """A run, and either way to mark a function."""
    run = Run(tick_ns=0)
    with run as profiler:
        run.mark = profiler.marker if request.param == "profiler.marker" else kinetoscope.marker
        yield run


def test_without_parentheses_the_function_runs_and_its_qualified_name_is_the_markers(marking):
    @marking.mark
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        marking.clock.advance(40)
        return a + b

    assert (add(1), add(3, b=4)) == (3, 7)
    assert (add.__doc__, str(inspect.signature(add))) == ("Adds.", "(a: int, b: int = 2) -> int")
    marking.profiler.close()
    assert marking.durations(add.__qualname__) == [40, 40]
    assert add.__qualname__.endswith("qualified_name_is_the_markers.<locals>.add")


def test_without_parentheses_methods_of_every_kind_stay_what_they_are(marking):
    class Model:
        factor = 2

        @marking.mark
        def double(self, x):
            return self.factor * x

        @marking.mark
        @classmethod
        def triple(cls, x):
            return (cls.factor + 1) * x

        @classmethod
        @marking.mark
        def quadruple(cls, x):
            return 2 * cls.factor * x

        @marking.mark
        @staticmethod
        def negate(x):
            return -x

        @staticmethod
        @marking.mark
        def same(x):
            return x

    model = Model()
    assert (model.double(4), model.triple(4), model.quadruple(4), model.negate(4), model.same(4)) == (8, 12, 16, -4, 4)
    assert (Model.triple(1), Model.quadruple(1), Model.negate(1), Model.same(1)) == (3, 4, -1, 1)
    marking.profiler.close()
    names = [name.rpartition(".")[2] for name in marking.names()]
    kinds = ["double", "triple", "quadruple", "negate", "same"]
    assert {name: names.count(name) for name in kinds} == dict(zip(kinds, (1, 2, 2, 2, 2), strict=True))


def test_without_parentheses_coroutines_and_generators_stay_what_they_are(marking):
    @marking.mark
    async def work():
        await asyncio.sleep(0)
        marking.clock.advance(70)
        return "done"

    @marking.mark
    def count():
        received = yield 1
        marking.clock.advance(30)
        return received

    @marking.mark
    async def stream():
        yield 1
        marking.clock.advance(50)

    async def consume():
        return [item async for item in stream()]

    assert inspect.iscoroutinefunction(work)
    assert inspect.isgeneratorfunction(count)
    assert inspect.isasyncgenfunction(stream)
    assert asyncio.run(work()) == "done"
    assert asyncio.run(consume()) == [1]
    generator = count()
    assert next(generator) == 1
    with pytest.raises(StopIteration, match="sent"):
        generator.send("sent")
    marking.profiler.close()
    found = [marking.durations(function.__qualname__) for function in (work, count, stream)]
    assert found == [[70], [30], [50]]


def test_a_bound_method_and_a_builtin_are_functions_too(marking):
    assert marking.mark([3, 1].count)(3) == 1
    assert marking.mark(len)("four") == 4
    marking.profiler.close()
    assert [name for name in marking.names() if name in ("list.count", "len")] == ["list.count", "len"]


@pytest.mark.parametrize(
    "subject", [None, 5, b"text", ["text"], {}, property(len), object(), dict, functools.partial(len)]
)
def test_redact_value_other_than_string_or_function_is_refused_at_once(marking, subject):
    with pytest.raises(SettingsError, match="needs a name or a function, not"):
        marking.mark(subject)


def test_marker_decorates_static_and_class_methods_and_refuses_non_callables(marking):
    class Model:
        @marking.mark("negate")
        @staticmethod
        def negate(x):
            return -x

        @marking.mark("name")
        @classmethod
        def name(cls):
            return cls.__name__

    assert (Model().negate(1), Model.negate(1), Model.name(), Model().name()) == (-1, -1, "Model", "Model")
    with pytest.raises(SettingsError, match="A marker cannot decorate"):
        marking.mark("property")(property(len))


# -- start, finish, tokens ---------------------------------------------------------------------------------------


def test_start_and_finish_record_a_span():
    run = Run(tick_ns=0)
    with run as profiler:
        marker = profiler.marker("stretch")
        marker.start()
        run.clock.advance(40)
        marker.finish()
    assert run.durations("stretch") == [40]


def test_starting_twice_on_one_thread_is_an_error_that_names_the_ways_out():
    with Run() as profiler:
        marker = profiler.marker("twice")
        marker.start()
        with pytest.raises(MarkerError, match="with marker"):
            marker.start()
        marker.finish()


def test_finishing_what_was_not_started_is_an_error_that_names_the_token_api():
    with Run() as profiler:
        with pytest.raises(MarkerError, match=r"marker\.end\(token\)"):
            profiler.marker("never").finish()


def test_start_is_not_finished_by_a_with_block_inside_it():
    run = Run()
    with run as profiler:
        marker = profiler.marker("both")
        marker.start()
        with marker:
            pass
        marker.finish()
    assert len(run.durations("both")) == 2


def test_threads_start_and_finish_one_marker_independently():
    run = Run()
    errors = []

    def work(marker):
        try:
            for _ in range(300):
                marker.start()
                marker.finish()
        except MarkerError as error:
            errors.append(error)

    with run as profiler:
        threads = [threading.Thread(target=work, args=(profiler.marker("shared"),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert len(run.durations("shared")) == 1200


def test_a_token_ends_its_span_on_any_thread():
    run = Run(tick_ns=0)
    with run as profiler:
        marker = profiler.marker("handed over")
        token = marker.begin()
        run.clock.advance(60)
        thread = threading.Thread(target=marker.end, args=(token,))
        thread.start()
        thread.join()
        marker.end(token)  # a second time does nothing
    assert run.durations("handed over") == [60]


# -- boundaries --------------------------------------------------------------------------------------------------


def test_a_span_open_at_the_end_of_a_window_is_cut_at_the_boundary_and_marked_as_cut():
    run = Run(lambda state: ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch == 1 else ProfilerAction.ACTIVE)
    with run as profiler:
        marker = profiler.marker("long")
        for batch in profiler.batches(range(2)):
            if batch == 0:
                marker.start()
        marker.finish()
    first = run.handler.cycles[0]
    assert run.handler.cut_spans().count("long") == 1
    (_, _, end) = run.handler.spans("long")[0]
    assert end <= first.end.monotonic_ns


def test_a_span_that_began_before_the_window_is_not_recorded():
    run = Run(lambda state: ProfilerAction.SKIP if state.timestamp.batch == 0 else ProfilerAction.ACTIVE)
    with run as profiler:
        marker = profiler.marker("early")
        for batch in profiler.batches(range(2)):
            if batch == 0:
                marker.start()
            else:
                marker.finish()
    assert "early" not in run.names()


def test_with_block_from_before_the_window_does_not_end_an_inner_one():
    run = Run(lambda state: ProfilerAction.ACTIVE if state.timestamp.batch else ProfilerAction.SKIP, tick_ns=0)
    with run as profiler:
        marker = profiler.marker("nested")
        with marker:
            profiler.step()
            with marker:
                run.clock.advance(25)
            run.clock.advance(500)
    assert run.durations("nested") == [25]


# -- instants and counters ---------------------------------------------------------------------------------------


def test_an_instant_is_recorded_at_its_moment():
    run = Run(tick_ns=0)
    with run as profiler:
        run.clock.advance(5)
        profiler.marker("now").instant()
    assert run.handler.instants() == [("now", 1005)]


def test_a_marker_can_record_instants_at_its_edges():
    run = Run()
    with run as profiler:
        marker = profiler.marker("edges", record_instant_on_start=True, record_instant_on_finish=True)
        with marker:
            pass
        marker.start()
        marker.finish()
    assert len(run.handler.instants()) == 4


def test_a_counter_keeps_its_values_exactly():
    run = Run()
    values = {"int": 7, "float": 0.1, "negative": -3, "large": 2**62, "huge": 10.0**300, "bool": True}
    with run as profiler:
        profiler.marker("values").counter(values)
    assert {series: value for _, series, value in run.handler.counters()["values"]} == values


def test_a_counter_of_one_number_is_named_after_its_marker():
    run = Run()
    with run as profiler:
        profiler.marker("loss").counter(0.5)
    assert [(series, value) for _, series, value in run.handler.counters()["loss"]] == [("loss", 0.5)]


def test_a_counter_takes_scalars_of_numpy_and_torch():
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    run = Run()
    with run as profiler:
        profiler.marker("v").counter({"n": numpy.float32(0.5), "i": numpy.int64(3), "t": torch.tensor(2.5)})
    assert [value for _, _, value in run.handler.counters()["v"]] == [0.5, 3, 2.5]


def test_values_that_are_no_numbers_are_left_out_of_a_counter_with_one_warning(caplog):
    run = Run()
    with run as profiler, caplog.at_level(logging.WARNING, "kinetoscope"):
        for _ in range(3):
            profiler.marker("odd").counter({"text": "many", "none": None, "good": 1})
    assert [(series, value) for _, series, value in run.handler.counters()["odd"]] == [("good", 1)] * 3
    assert len([record for record in caplog.records if "odd" in record.message]) == 1


# -- identity ----------------------------------------------------------------------------------------------------


def test_a_marker_of_one_name_is_created_once():
    with Run() as profiler:
        assert profiler.marker("same") is profiler.marker("same")
        assert profiler.marker("other", categories=["a"]) is profiler.marker("other")


def test_marker_requested_with_other_options_keeps_the_first_and_warns_once(caplog):
    with Run() as profiler, caplog.at_level(logging.WARNING, "kinetoscope"):
        first = profiler.marker("m", categories=["first"])
        assert profiler.marker("m", categories=["second"]) is first
        assert profiler.marker("m", categories=["second"]) is first
        assert first.categories == ("first",)
        with first:
            pass
    (record,) = caplog.records
    assert "first" in record.message
    assert "second" in record.message


def test_markers_copy_deep_copy_and_pickle_by_name():
    with Run() as profiler:
        marker = profiler.marker("in a model", categories=("c",))
        assert copy.copy(marker) is marker
        assert copy.deepcopy({"m": marker})["m"] is marker
        again = pickle.loads(pickle.dumps(marker))
        assert (again.name, again.categories) == (marker.name, marker.categories)


def test_an_unpickled_marker_records_into_the_active_profiler():
    run = Run()
    with run as profiler:
        marker = pickle.loads(pickle.dumps(profiler.marker("travelled")))
        with marker:
            pass
    assert run.names() == ["travelled"]


def test_a_library_marker_made_before_the_profiler_records_into_it():
    marker = kinetoscope.marker("library")
    run = Run()
    with run:
        with marker, kinetoscope.marker("inside"):
            pass
    with marker:
        pass
    assert run.names() == ["library", "inside"]
