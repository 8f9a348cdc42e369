"""Formats of counts, sizes, times and names, and text that is safe to print."""

import re
import signal
from collections.abc import Iterable, Mapping, Sequence

from kinetoscope.errors import KinetoscopeError

_KILO = 1000
_LONG_S, _NEARLY_ONE = 99.95, 0.9995
_LONG_UNITS = ((86400, "day", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_FLOP_UNITS = (
    (1e18, "EFLOP"),
    (1e15, "PFLOP"),
    (1e12, "TFLOP"),
    (1e9, "GFLOP"),
    (1e6, "MFLOP"),
    (1e3, "kFLOP"),
    (1.0, "FLOP"),
)
# Characters that move a terminal's cursor, or turn its writing direction.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
# Halves of letters, but for bytes of a path that is no valid text, as surrogateescape has them.
_HALVES = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
_CUT, _BEFORE_DIFFERENCE = "\N{HORIZONTAL ELLIPSIS}", 4
_MAX_NAME_CHARACTERS, _MAX_SENTENCE_CHARACTERS, _MAX_PATH_CHARACTERS = 200, 1000, 4096
_MAX_RANGES = 16


def format_missing_options(options: Mapping[str, object]) -> str:
    """Return the options that are off as arguments that enable them: ``with_stack=True``."""
    return ", ".join(f"{name}=True" for name, is_on in options.items() if not is_on)


def format_count(count: int, thing: str) -> str:
    """Return a count with its noun, such as ``1 file`` or ``2,000 events``."""
    plural = "es" if thing.endswith(("ch", "ss")) else "s"
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}{plural}"


def format_file_size(num_bytes: int) -> str:
    """Return the size of a file in a readable unit, such as ``12.3 MB``."""
    if num_bytes < _KILO:
        return format_count(num_bytes, "byte")
    size, unit = num_bytes / _KILO, "kB"
    if size >= _KILO:
        size, unit = size / _KILO, "MB"
    return f"{size:.1f} {unit}"


def choose_flop_unit(operations: float) -> tuple[float, str]:
    """Return the largest unit of floating-point operations up to a number of them: its size and name."""
    return next((pair for pair in _FLOP_UNITS if operations >= pair[0]), _FLOP_UNITS[-1])


def format_flop(operations: float) -> str:
    """Return a number of floating-point operations with its unit, such as ``302 MFLOP``."""
    size, unit = choose_flop_unit(operations)
    return f"{operations / size:.3g} {unit}"


def format_memory(num_bytes: int) -> str:
    """Return a size of memory in torch's units, such as ``12.3 MiB``."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return format_count(num_bytes, "byte")


def format_percent(share: float, digits: int = 0) -> str:
    """Return a share as percent, such as ``42 %``, with this number of decimal digits."""
    return f"{100 * share:,.{digits}f} %"


def format_duration(time_ns: float) -> str:
    """Return a time in readable units, such as ``46.2 ms``, ``1.52 s`` or ``2 min 10 s``."""
    seconds = time_ns / 1e9
    if seconds < _LONG_S:
        number, unit = (seconds, "s") if seconds >= _NEARLY_ONE else (seconds * 1e3, "ms")
        return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2 if number >= _NEARLY_ONE else 3}f} {unit}"
    whole = round(seconds)
    size, unit, part, parts = next(units for units in _LONG_UNITS if whole >= units[0])
    number, left = divmod(whole // part, size // part)
    return f"{number:,} {'days' if unit == 'day' and number > 1 else unit} {left} {parts}"


def format_ms(time_ns: float | None) -> str:
    """Return a time in milliseconds with the significant digits; "" if it is unknown."""
    if time_ns is None:
        return ""
    return f"{time_ns / 1e6:,.{1 if abs(time_ns) >= 1e7 else 2 if abs(time_ns) >= 1e5 else 3}f}"


def format_error_line(error: object) -> str:
    """Return an error, or its message, as a line for stderr, with control characters escaped."""
    if isinstance(error, OSError) and not isinstance(error, KinetoscopeError):
        where = f" {error.filename}" if error.filename else ""
        error = f"Cannot read or write{where}: {error.strerror}."
    return f"error: {sanitize_lines(error)}"


def describe_failure(status: int, stderr: str) -> str:
    """Return why a process failed: its last ``error:`` line, the signal that ended it, or the last line it printed."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1]
    if -status == signal.SIGKILL:
        return "its process was killed (SIGKILL), as the system does when memory is exhausted"
    if status < 0:
        return f"its process was ended by signal {-status}"
    return lines[-1] if lines else f"its process ended with exit code {status}"


def format_ranks(ranks: Iterable[int | tuple[int, int]]) -> str:
    """Ranks, or ranges of them, in order, as ``ranks 0-3, 7``."""
    named = format_ranges(ranks)
    return f"{'rank' if named.isdecimal() else 'ranks'} {named}"


def format_ranges(numbers: Iterable[int | tuple[int, int]], max_ranges: int = _MAX_RANGES) -> str:
    """Return sorted numbers, or ranges of them, as ``0-3, 7``.

    Consecutive numbers become one range. At most ``max_ranges`` are listed, and the others counted.
    """
    joined: list[tuple[int, int]] = []
    for first, last in (one if isinstance(one, tuple) else (one, one) for one in numbers):
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in joined]
    more = f" and {format_count(len(texts) - max_ranges, 'more group')}" if len(texts) > max_ranges else ""
    return f"{', '.join(texts[:max_ranges])}{more}"


def find_gaps(present: Iterable[int], num_all: int) -> list[tuple[int, int]]:
    """Return the missing numbers of ``range(num_all)`` as pairs of the first and the last of a range."""
    inside = sorted(number for number in set(present) if number < num_all)
    around = zip([-1, *inside], [*inside, num_all], strict=True)
    return [(before + 1, after - 1) for before, after in around if after - before > 1]


def sanitize(text: object, max_characters: int = _MAX_NAME_CHARACTERS, *, in_html: bool = False) -> str:
    """Return untrusted text on one line without control characters; the middle of a long one is cut.

    A cut text ends with its length. A page (``in_html``) puts it into ``<bdi>``, which limits the effect of letters
    that turn the direction of writing.
    """
    return _escaped(_cut(_as_text(text), max_characters, max_characters), _CONTROLS if in_html else _CONTROL_CHARACTERS)


def sanitize_sentence(text: object) -> str:
    """Return a sentence that may contain untrusted names on one line, like `sanitize`."""
    return sanitize(text, _MAX_SENTENCE_CHARACTERS)


def escape_json(text: str) -> str:
    """Escape the letters in one line of JSON that turn the direction of writing in a terminal."""
    return _CONTROL_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shorten_name(name: object, max_width: int) -> str:
    """Return an untrusted name for a table cell of ``max_width`` letters; the middle of a long one is cut."""
    return truncate_middle(_escaped(truncate_middle(_as_text(name), 2 * max_width)), max_width)


def shorten_distinctly(names: Sequence[object], max_width: int) -> list[str]:
    """Return untrusted names for the cells of a column, shortened so that different ones stay different.

    Where `shorten_name` would make different names equal, their ends are cut too, so that the difference shows.
    """
    texts = list(map(_as_text, names))
    cut = [shorten_name(text, max_width) for text in texts]
    alike: dict[str, set[str]] = {}
    for short, text in zip(cut, texts, strict=True):
        alike.setdefault(short, set()).add(text)
    return [
        short if len(alike[short]) == 1 else _keep_difference(text, alike[short], max_width)
        for short, text in zip(cut, texts, strict=True)
    ]


def _keep_difference(text: str, lookalikes: set[str], max_width: int) -> str:
    """Return the start of a name, and the part from its first difference to the most similar one."""
    first_difference = max(_common_prefix_length(text, other) for other in lookalikes if other != text)
    start = first_difference - min(_BEFORE_DIFFERENCE, max_width // 8)
    begin = f"{text[: max_width // 2]}{_CUT}" if start > max_width // 2 else ""
    rest, left = text[start if begin else 0 :], max_width - len(begin)
    return truncate_middle(_escaped(begin + (rest if len(rest) <= left else f"{rest[: left - 1]}{_CUT}")), max_width)


def _common_prefix_length(one: str, other: str) -> int:
    """Return the number of letters that both texts start with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (letter, others) in pairs if letter != others), min(len(one), len(other)))


def truncate_middle(text: str, max_characters: int) -> str:
    """Return a text of at most ``max_characters`` letters; a long one is cut in its middle.

    The page does the same (`cutInMiddle`): names with the same start often differ at their ends, and a path ends with
    its file.
    """
    num_end = (max_characters - 1) // 2
    return (
        text
        if len(text) <= max_characters
        else f"{text[: max_characters - 1 - num_end]}{_CUT}{text[len(text) - num_end :]}"
    )


def sanitize_lines(text: object) -> str:
    """Return text that may contain untrusted names with control characters escaped in each line.

    Words longer than any path and unreadably long lines are cut.
    """
    return "\n".join(_escaped(_line(line)) for line in _as_text(text).split("\n"))


def _line(line: str) -> str:
    if len(line) <= _MAX_PATH_CHARACTERS:
        return line
    words = [_cut(word, _MAX_PATH_CHARACTERS, _MAX_NAME_CHARACTERS) for word in line.split(" ")]
    return _cut(" ".join(words), 2 * _MAX_PATH_CHARACTERS, 2 * _MAX_PATH_CHARACTERS)


def _cut(text: str, max_width: int, kept: int) -> str:
    """Return a text of at most ``max_width`` characters, or ``kept`` characters of a longer one and their number."""
    return text if len(text) <= max_width else f"{truncate_middle(text, kept)} ({len(text):,} characters)"


def _as_text(text: object) -> str:
    """Return printable text: lone surrogates are escaped, except for bytes of a path."""
    return _escaped(str(text), _HALVES)


def _escaped(text: str, letters: re.Pattern[str] = _CONTROL_CHARACTERS) -> str:
    return letters.sub(lambda found: ascii(found[0])[1:-1], text)
