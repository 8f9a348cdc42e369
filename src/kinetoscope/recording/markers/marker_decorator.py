"""Decoration of functions, methods, coroutines and generators: ``@marker`` makes each call a span."""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from kinetoscope.errors import SettingsError
from kinetoscope.recording.markers import compiler
from kinetoscope.recording.markers.native_recorder import NativeSpan


def wrap_in_spans(marker: NativeSpan, function: Any) -> Any:
    """Return ``function`` wrapped so that each call is a span of ``marker``.

    A ``staticmethod`` or ``classmethod`` keeps its kind. Raises `SettingsError` for an object that is not callable.
    """
    if isinstance(function, staticmethod | classmethod):
        return type(function)(wrap_in_spans(marker, function.__func__))
    if not callable(function):
        raise SettingsError(f"A marker cannot decorate {function!r}. Put it above a function or method.")
    return functools.wraps(function)(_wrap(marker, function))


def mark_function(function: Any, find: Callable[[str], Any]) -> Any:
    """Return the function decorated with the marker of its qualified name, for ``@marker`` without parentheses.

    Under torch's compiler the function itself is returned.

    Args:
        function: a function or method.
        find: returns the marker with a given name.

    Raises:
        SettingsError: if ``function`` is not a function or method.
    """
    if compiler.is_compiling():
        return function
    name = getattr(function, "__qualname__", None)
    is_function = callable(function) or isinstance(function, classmethod)
    if isinstance(function, type) or not is_function or not isinstance(name, str):
        raise SettingsError(
            f'A marker needs a name or a function, not {function!r}. Write marker("forward"), or put @marker above '
            "a function or method."
        )
    return find(name)(function)


def _wrap(marker: NativeSpan, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the wrapper for the kind of the function: plain, coroutine, generator or asynchronous generator."""
    if _is_kind(inspect.isasyncgenfunction, function):
        return _wrap_async_generator(marker, function)
    if _is_kind(inspect.iscoroutinefunction, function):
        return _wrap_coroutine(marker, function)
    if _is_kind(inspect.isgeneratorfunction, function):
        return _wrap_generator(marker, function)
    return _wrap_function(marker, function)


def _is_kind(predicate: Callable[[Any], bool], function: Any) -> bool:
    """Return whether the predicate holds for ``function``, or for the ``__call__`` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return predicate(function) or predicate(type(function).__call__)


def _wrap_function(marker: NativeSpan, function: Callable[..., Any]) -> Callable[..., Any]:
    # Looked up once: this makes a call faster than `with marker:`.
    begin, end = marker.begin, marker.end

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if compiler.is_compiling():
            return function(*args, **kwargs)
        token = begin()
        try:
            return function(*args, **kwargs)
        finally:
            end(token)

    return wrapper


@contextmanager
def _record_span(marker: NativeSpan) -> Iterator[None]:
    """Record a span by a token, since the block may end on another thread than it began."""
    token = marker.begin()
    try:
        yield
    finally:
        marker.end(token)


def _wrap_coroutine(marker: NativeSpan, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _record_span(marker):
            return await function(*args, **kwargs)

    return wrapper


def _wrap_generator(marker: NativeSpan, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with _record_span(marker):
            return (yield from function(*args, **kwargs))

    return wrapper


def _wrap_async_generator(marker: NativeSpan, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with _record_span(marker):
            generator = function(*args, **kwargs)
            advance = generator.asend(None)
            try:
                while True:
                    try:
                        item = await advance
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        advance = generator.athrow(error)
                    else:
                        advance = generator.asend(sent)
            finally:
                await generator.aclose()

    return wrapper
