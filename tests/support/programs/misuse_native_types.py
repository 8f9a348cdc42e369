"""Misuse of one type of `kinetoscope._native`: ``python misuse_native_types.py TYPE [SEED] [ROUNDS]``.

It creates objects in every possible way, also partly initialised ones, and calls all methods with arbitrary arguments.
It exits normally if each call returned a value or raised a proper exception. ``FUNCTIONS`` stands for the module's
functions.
"""

import random
import sys
import threading
import weakref
from contextlib import suppress
from types import BuiltinFunctionType
from typing import Any

from kinetoscope import _native
from kinetoscope.pulse.layout import BLOCK, COARSE_AT

_EVENTS = b'{"ph":"X","name":"a","pid":1,"tid":2,"ts":3,"dur":4},{"ph":"M","name":"thread_name","pid":1,"tid":7}'
_KINETO = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":7.125,"dur":1\n  },' * 3
_PLAIN: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    7,
    -1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    -(2**63),
    2**70,
    1.5,
    "a",
]
_BUFFERS: list[Any] = [b"", b"\1", b"a\0b", _EVENTS, bytes(320), memoryview(bytes(65)), bytearray(64), bytearray(b"\1")]
_COMPOUND: list[Any] = [
    (),
    [],
    {},
    (1, 2),
    (b"a", b"b"),
    [None],
    [()],
    [(1, b"a", b"b")],
    [(b"1", b"2", True, 0, 1, 1, 2, 0)],
    (0, 0, 1),
    (5, 7, 0),
    (0, 0, 1, 1),
    ((b'"a"',), (b'""',), (b"",)),
    {"a": 1, "b": 2.5},
    {1: 2},
    {"a": None},
    lambda: 1,
    sys.stdin,
]


_TEXTS = ((b"a",), (b"b",), (b"",), bytes(4))
_OUTPUTS = [(b"1", b"2", True, -(2**63), 2**63 - 1, 1, 2, 0)] * 3
_RIGHT: dict[str, tuple[Any, ...]] = {
    "rewrite": (_EVENTS, 0, len(_EVENTS), True, 0),
    "survey": (_EVENTS, 0, len(_EVENTS), True, 0),
    "plan": (_OUTPUTS, 5, 0, True, False, True, 0, (0, 0, 1)),
    "place_counters": (bytes(16), bytes(8)),
    "scan": (_EVENTS, 0, len(_EVENTS), True),
    "take": (True,),
    "texts": (0,),
    "add": (bytes(320),),
    "read": (0, bytearray(b"\1")),
    "move": (0, 1, 2, 3),
    "span": (0,),
    "follow_parent": ("here", "there.run", 1 << 20),
    "set_folder": (".", 0, 1 << 20),
    "survey_records": (bytes(320), 0, True, b"1", b"2", _TEXTS, (0, 0, 0, 1), bytes(16)),
    "rewrite_records": (bytes(320), 0, True, b"1", b"2", _TEXTS, (0, 0, 0, 1), bytes(16)),
    "drain_chrome": (bytes(320), 0, True, bytearray(999), _TEXTS, b"1", (0, 0, 0, 1), bytes(16)),
    "pair_records": (bytes(320), bytearray(640)),
    "sample": (5,),
    "end": (7,),
    "next_time": (5,),
    "wait": (0.001,),
    "record_columns": (bytes(320), *(bytearray(10 * width) for width in (8, 8, 4, 4, 2, 1, 1, 4))),
}
"""Arguments with which some methods have an effect."""
_SPECIAL = (
    "__init__",
    "__enter__",
    "__exit__",
    "__get__",
    "__arrow_c_array__",
    "__reduce_ex__",
    "__sizeof__",
    "__repr__",
)


class Hostile:
    """Raises, or starts another call, on any access."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    def _answer(self, *_: Any) -> Any:
        self._pool.use_another()
        raise ZeroDivisionError

    __index__ = __bool__ = __float__ = __len__ = __call__ = __hash__ = __eq__ = __iter__ = __fspath__ = _answer  # type: ignore[assignment]


class Pool:
    """Values to use as arguments, and the objects to call."""

    def __init__(self, chance: random.Random, objects: list[Any]) -> None:
        self._chance = chance
        self._depth = 0
        self.objects = objects
        self._kept: list[Any] = []
        self.values = [*_PLAIN, *_BUFFERS, *_COMPOUND, Hostile(self), [Hostile(self)] * 3, *objects]

    def arguments(self, name: str = "") -> list[Any]:
        """Right arguments, nearly right ones, or any."""
        some = list(_RIGHT.get(name, ()))
        for _ in range(self._chance.choice([0, 0, 1, 2]) if some else 0):
            some[self._chance.randrange(len(some))] = self._chance.choice(self.values + self._kept)
        is_any = self._chance.random() < (0.1 if some else 0.5)
        return self._chance.choices(self.values, k=self._chance.randrange(1, 10)) if is_any else some

    def use_another(self) -> None:
        """Call or sets one thing of one object."""
        if self._depth > 2:
            return
        self._depth += 1
        try:
            self._use(self._chance.choice(self.objects))
        except SystemError:
            raise  # Python raises this for a mistake in C
        except Exception:
            pass
        finally:
            self._depth -= 1

    def _use(self, subject: Any) -> None:
        choice = 2 if isinstance(subject, BuiltinFunctionType) else self._chance.randrange(12)
        if choice == 0:
            memoryview(subject)
        elif choice == 1:
            len(subject)
        elif choice == 2:
            subject(*self.arguments(getattr(subject, "__name__", "")))
        else:
            names = [name for name in dir(subject) if not name.startswith("__") or name in _SPECIAL]
            self._use_attribute(subject, self._chance.choice(names), choice)

    def _use_attribute(self, subject: Any, name: str, choice: int) -> None:
        value = getattr(subject, name)
        if callable(value):
            self._keep(value(*self.arguments(name)))
        elif choice == 3:
            setattr(subject, name, self._chance.choice(self.values))
        elif choice == 4:
            delattr(subject, name)

    def _keep(self, answer: Any) -> None:
        """Keep results and use them for a while, too."""
        self._kept = [*self._kept[-9:], answer]


def made_in_every_way(kind: type) -> list[Any]:
    """Objects of a type and of a subclass, most of them without a call of ``__init__``."""
    made: list[Any] = []
    kinds = [kind]
    with suppress(TypeError):
        kinds.append(type("Derived", (kind,), {"__init__": lambda self, *arguments: None}))
    arguments = [(), (None,), (0,), (_native.Recorder(None),), (b"",), ("a", 1, 2)]
    for make in (lambda k, *a: k(*a), lambda k, *a: k.__new__(k, *a), lambda k, *a: object.__new__(k)):
        for each in kinds:
            for some in arguments:
                with suppress(Exception):
                    made.append(make(each, *some))
    return made


class Recorder(_native.Recorder):
    """A recorder with the methods that the base class needs."""

    def describe_thread(self) -> tuple[int, str, bool]:
        return 1, "main", True

    def intern_series(self, name: str) -> int:
        return 1


class Span(_native.Span):
    def intern(self) -> int:
        return 0

    def plain_values(self, values: Any) -> dict[str, Any]:
        return {"a": 1}


def recorded() -> list[Any]:
    """Return a recorder, a span, an entry in progress, and records."""
    recorder = Recorder(None)
    span = Span(recorder, 0, 1)
    recorder.open_window()
    recorder.action = 1
    with span:
        span.instant()
    [(*_, chunks)] = recorder.take_at_close()
    recorder.open_window()
    descriptors = [vars(_native.Span)[name] for name in ("__enter__", "__exit__")]
    return [recorder, span, span.begin(), span.__enter__, span.__exit__, *chunks, *descriptors]


def called() -> list[Any]:
    """Return recorders of calls, with and without spans that are known, after calls of their function."""
    _, span, *_ = recorded()
    module = threading.Lock()
    spans = {id(module): (weakref.ref(span), span), 1: None, "a": ()}
    finds = (lambda module, outermost: span, lambda module, outermost: None, lambda: None)
    recorders = []
    for find in finds:

        def function(*arguments: Any) -> None: ...

        recorder = _native.CallRecorder(function, spans, find)
        with suppress(RuntimeError):  # the one before was not stopped
            recorder.start()
        for argument in (module, 1, "a", recorder):
            with suppress(TypeError):
                function(*[argument])
        recorder.stop()
        recorders.append(recorder)
    return [*recorders, span]


class StackSamples(_native.StackSamples):
    """Samples that sometimes fail, and that interrupt themselves."""

    span: Any
    num_asked = 0

    def span_of_line(self, code: Any, line: int | None) -> Any:
        self.num_asked += 1
        with suppress(RuntimeError):
            self.sample(3)
        if self.num_asked == 7:
            raise ZeroDivisionError
        return {3: None, 5: 1}.get(self.num_asked, self.span)

    def begin_window(self, has_states: bool) -> None:
        with suppress(RuntimeError):
            self.end(3)


def sampled() -> list[Any]:
    """Samples of this thread, which another thread ends soon."""
    recorder, span, *_ = recorded()
    samples = [StackSamples(recorder, threading.get_ident(), interval_ns, None) for interval_ns in (1, 10**18)]
    for each in samples:
        each.span = span
        threading.Timer(0.02, each.stop).start()
    return [*samples, recorder, span]


def rewritten() -> list[Any]:
    """Trace texts at each stage, and their lines."""
    fresh, surveyed, planned = (_native.TraceText(True, 2, b"a", checks, True) for checks in (True, False, True))
    for text in (surveyed, planned):
        text.survey(_EVENTS, 0, len(_EVENTS), True, 0)
        text.finish_survey()
    planned.plan(_OUTPUTS, 0, 0, True, False, False, 0, (0, 0, 1))
    lines = planned.rewrite(_EVENTS, 0, len(_EVENTS), True, 2)[2]
    return [fresh, surveyed, planned, lines.obj]


def scanned() -> list[Any]:
    names = tuple(f"column {number}".encode() for number in range(4 + 3 + 2))
    scanner = _native.Scanner(names, 4, 3, ())
    scanner.scan(_EVENTS, 0, len(_EVENTS), True)
    return [scanner, *scanner.take(True)[0]]


def watched_steps() -> Any:
    """Return a `SlowSteps` with a pending slow step."""
    now, slow = [1], _native.SlowSteps("/proc/self/schedstat")
    writer = _native.PulseWriter(bytearray(COARSE_AT + 4 * BLOCK.size), lambda: now[0], 2)
    writer.watch_slow_steps(slow)
    slow.set_enabled(True)
    for number in range(101):
        now[0] += 10**9 if number == 100 else 10**6
        writer.end_step(number, 0)
    slow.set_enabled(False)
    slow.stop()
    return slow


def objects_of(name: str) -> list[Any]:
    """Return all objects of a type, and objects to use with them."""
    if name == "FUNCTIONS":
        return [
            function for function in vars(_native).values() if isinstance(function, BuiltinFunctionType)
        ] + recorded()
    kind = {type(value).__name__: type(value) for value in recorded()}.get(name) or getattr(_native, name)
    others = [
        _native.ThreadClocks("/proc/self/schedstat"),
        _native.Sample(3),
        _native.KinetoLines(0, [(1, b"a", b'"b"')], (b'"x',), _KINETO),
        _native.PulseWriter(bytearray(COARSE_AT + 4 * BLOCK.size), None, 2),
        watched_steps(),
    ]
    for group in (recorded(), called(), sampled(), rewritten(), scanned(), *([value] for value in others)):
        if any(isinstance(value, kind) for value in group):
            return group + made_in_every_way(kind)
    raise ValueError(f"How is a {name} made?")


def main(name: str, seed: int = 1, num_rounds: int = 20) -> None:
    """Run the calls. Exits normally, unless the process crashes."""
    chance = random.Random(seed)
    for _ in range(num_rounds):
        pool = Pool(chance, objects_of(name))
        for _ in range(300):
            pool.use_another()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
