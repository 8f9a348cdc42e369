"""Output to terminals and notebooks: stderr, or a block below the cell.

Training has ended when these functions are called. None of them may raise or wait for long.
"""

import logging
import os
import select
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from kinetoscope.core.paths.short_paths import short_path
from kinetoscope.core.text.templates import load_macros
from kinetoscope.core.text.wording import sanitize_lines
from kinetoscope.recording.messages.standard_error import write_line

_log = logging.getLogger("kinetoscope")
_PREFIX = "Kinetoscope: "
_MAX_WAIT_MS = 1000


class MessageSink(Protocol):
    """Destination of messages for people.

    Attributes:
        is_watched: whether a person sees the message at once.
        is_notebook: whether it is below a cell.
    """

    is_watched: bool
    is_notebook: bool

    def show(self, message: str, command: str = "") -> None:
        """Show a line, and below it the command to type next; either may be empty."""
        ...


def find_message_sink(paths: Sequence[Path]) -> MessageSink:
    """Return the destination of this process. In a notebook, ``paths`` become links."""
    display_function = _find_notebook_display()
    return _Stderr() if display_function is None else _NotebookBlock(display_function, paths)


class _Stderr:
    """Standard error of any kind; the log where there is none."""

    is_notebook = False

    def __init__(self) -> None:
        self._stream = sys.stderr
        self.is_watched = False
        with suppress(Exception):  # the stream may be an object of the program's own
            self.is_watched = self._stream.isatty()

    def show(self, message: str, command: str = "") -> None:
        message = sanitize_lines("\n".join(filter(None, [message and _PREFIX + message, command])))
        if self._stream is None or getattr(self._stream, "closed", False):
            _log.info(message)
            return
        with suppress(Exception):  # also if a signal interrupted a write of the program
            if _accepts_output(self._stream):
                write_line(self._stream, _wrap(message, self._stream) if self.is_watched else message)


def _accepts_output(stream: Any) -> bool:
    """Return whether a stream can be written to without waiting: not a full pipe that no process reads."""
    try:
        number = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return True
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return bool(poll.poll(_MAX_WAIT_MS))


def _wrap(message: str, terminal: Any) -> str:
    """Wrap each line between words. A path that is longer than a line is not split, nor is a command."""
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    width = columns or shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) if line.startswith(_PREFIX) else line
        for line in message.split("\n")
    )


class _NotebookBlock:
    """Block below the cell, to which later messages are added."""

    is_watched = False
    is_notebook = True

    def __init__(self, display: Any, paths: Sequence[Path]) -> None:
        self._display, self._paths = display, paths
        self._shown: Any = None
        self._messages: list[str] = []

    def show(self, message: str, command: str = "") -> None:
        self._messages += map(sanitize_lines, filter(None, [message, command]))
        text = _PREFIX + "\n".join(self._messages)
        try:
            content = {"text/plain": text, "text/html": self._render_html()}
            if self._shown is None:
                self._shown = self._display(content, raw=True, display_id=True)
            else:
                self._shown.update(content, raw=True)
        except Exception:  # a kernel that is shutting down, or a replacement for one
            _Stderr().show(message, command)

    def _render_html(self) -> str:
        return str(load_macros("recording/messages/console.jinja").block(list(map(self._split_links, self._messages))))

    def _split_links(self, message: str) -> list[tuple[str, str]]:
        """Return the parts of a line, each with the address that it links to, or with an empty string."""
        parts = [(message, "")]
        for path in filter(_is_linkable, map(short_path, self._paths)):
            written = sanitize_lines(path)
            for number, (text, address) in enumerate(parts):
                if not address and written in text:
                    before, _, after = text.partition(written)
                    parts[number : number + 1] = [(before, ""), (written, quote(path)), (after, "")]
                    break
        return parts


def _is_linkable(path: str) -> bool:
    """Return whether a notebook can link to a path: one relative to its working folder."""
    return not os.path.isabs(path)


def _find_notebook_display() -> Any:
    """Return the function that shows output below the current cell; None outside a notebook. Import nothing."""
    with suppress(Exception):  # IPython's names may change
        shell = sys.modules["IPython"].get_ipython()
        if getattr(shell, "kernel", None) is not None:
            return sys.modules["IPython.display"].display
    return None
