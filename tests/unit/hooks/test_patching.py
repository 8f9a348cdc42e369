"""hooks/patching.py: replacements of a method may come and go in any order, and other code's stay."""

import functools

import pytest

from kinetoscope.hooks.patching import ReplacedMethod


def make_kind():
    class Kind:
        def ask(self, name):
            return [name]

    return Kind


def adding(word):
    return lambda original, own, name: [word, *original(own, name)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_replacements_are_restored_in_any_order(order):
    kind = make_kind()
    before = kind.ask
    both = [ReplacedMethod(kind, "ask", adding("first")), ReplacedMethod(kind, "ask", adding("second"))]
    assert kind().ask("x") == ["second", "first", "x"]
    both[order[0]].restore()
    assert kind().ask("x") == [["second", "first"][order[0]], "x"]
    both[order[1]].restore()
    assert kind.ask is before


@pytest.mark.parametrize("wraps", [functools.wraps, lambda method: lambda other: other], ids=["wraps", "plain"])
def test_later_patch_of_other_code_stays(wraps):
    kind = make_kind()
    replaced = ReplacedMethod(kind, "ask", adding("replaced"))
    beneath = kind.ask

    @wraps(beneath)
    def theirs(own, name):
        return ["theirs", *beneath(own, name)]

    kind.ask = theirs
    replaced.restore()
    assert kind.ask is theirs
    assert kind().ask("x") == ["theirs", "x"]


def test_an_error_of_the_original_is_the_callers():
    kind = make_kind()
    replaced = ReplacedMethod(kind, "ask", adding("replaced"))
    with pytest.raises(TypeError):
        kind().ask()
    replaced.restore()
