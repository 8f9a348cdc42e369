"""native.CallRecorder: calls of a Python function, however Python code calls it, and nothing left in it."""

import functools
import sys
import threading

import pytest

from kinetoscope.native import native


class Callable:
    def call(self, *arguments):
        return arguments

    __call__ = call


class Overriding(Callable):
    def __call__(self, *arguments):
        return super().__call__(*arguments)


class OverridingWithOneArgument(Callable):
    def __call__(self, argument):
        return super().__call__(argument)


WAYS = {
    "the object": lambda: Callable(),
    "super() with *arguments": lambda: Overriding(),
    "super() with one argument": lambda: OverridingWithOneArgument(),
    "the bound method": lambda: functools.partial(Callable().__call__),
}


@pytest.fixture
def recorder():
    """A recorder with ``called``, the class of the first argument of each call; it remembers no span."""
    called = []

    def find(first, outermost):
        called.append(type(first))

    recorder = native.CallRecorder(vars(Callable)["call"], {}, find)
    yield recorder, called
    recorder.stop()


@pytest.mark.parametrize("way", WAYS)
def test_calls_are_recorded_between_start_and_stop(way, recorder):
    if way == "super() with one argument" and sys.version_info < (3, 12):
        pytest.skip("CPython 3.11 calls the function without its vectorcall there")
    recorder, called = recorder
    call = WAYS[way]()

    def use():
        return [call(number) for number in range(100)]  # the interpreter specializes the calls meanwhile

    before = use()
    recorder.start()
    assert use() == before
    recorder.stop()
    assert use() == before
    assert len(called) == 100


def test_one_recorder_runs_at_a_time(recorder):
    recorder, called = recorder
    recorder.start()
    with pytest.raises(RuntimeError, match="another recorder of calls is running"):
        native.CallRecorder(vars(Callable)["call"], {}, print).start()
    Callable()(1)
    assert called == [Callable]


def test_a_recorder_may_be_stopped_within_a_call_and_twice():
    def find(first, outermost):
        called.append(first)
        recorder.stop()
        recorder.stop()

    called, first = [], Callable()
    recorder = native.CallRecorder(vars(Callable)["call"], {}, find)
    recorder.start()
    assert [first(1), first(1)] == [(1,), (1,)]
    assert called == [first]


def test_the_outermost_object_is_that_of_the_thread():
    def call(self, inner=None):
        return inner() if inner is not None else None

    class Node:
        __call__ = call

    outer, inner, other = Node(), Node(), Node()

    def on_another_thread():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    pairs = []
    recorder = native.CallRecorder(call, {}, lambda first, outermost: pairs.append((first, outermost)))
    recorder.start()
    outer(inner)
    outer(on_another_thread)
    recorder.stop()
    assert pairs == [(outer, outer), (inner, outer), (outer, outer), (other, other)]


@pytest.mark.parametrize("function", [len, Callable, functools.partial(print), None])
def test_only_python_functions_are_recorded(function):
    with pytest.raises(TypeError):
        native.CallRecorder(function, {}, print)
