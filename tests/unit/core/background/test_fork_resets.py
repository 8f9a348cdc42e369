"""One registry resets what a forked child has of its parent."""

import gc
import os

from kinetoscope.core.background.fork_resets import reset_after_fork


def calls_in_a_forked_child(calls: list[str]) -> str:
    """Return the calls in a child, after its resets."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, " ".join(calls).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


class Source:
    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls
        reset_after_fork(self.reset_in_child)

    def reset_in_child(self) -> None:
        self.calls.append(self.name)


def test_functions_and_living_objects_are_reset_in_the_order_of_their_registration():
    calls: list[str] = []
    first = Source("first", calls)
    reset_after_fork(lambda: calls.append("function"))
    last, dead = Source("last", calls), Source("dead", calls)
    del dead
    gc.collect()
    assert calls_in_a_forked_child(calls) == "first function last"
    assert (first.name, last.name, calls) == ("first", "last", [])  # the parent keeps its state


def test_object_registered_twice_is_reset_once():
    calls: list[str] = []

    def reset() -> None:
        calls.append("reset")

    source = Source("object", calls)
    for _ in range(3):
        reset_after_fork(reset)
        reset_after_fork(source.reset_in_child)
    assert calls_in_a_forked_child(calls) == "object reset"


class FailingSource(Source):
    def reset_in_child(self) -> None:
        super().reset_in_child()
        raise RuntimeError("a reset that fails")


def test_a_reset_that_fails_does_not_keep_others_from_running():
    calls: list[str] = []
    sources = [FailingSource("failing", calls), Source("next", calls)]
    assert calls_in_a_forked_child(calls) == "failing next"
    assert [source.name for source in sources] == ["failing", "next"]
