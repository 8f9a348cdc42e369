"""Words for counts, sizes and options, and text that is safe to print."""

from collections.abc import Mapping

_KILO = 1000
_STEERING = frozenset(map(chr, [*range(32), *range(127, 160)]))
_MOST_SHOWN = 1000


def missing_options(options: Mapping[str, object]) -> str:
    """The options that are off, as arguments that switch them on, such as ``with_stack=True``; "" if there are none."""
    return ", ".join(f"{name}=True" for name, is_on in options.items() if not is_on)


def counted(count: int, thing: str) -> str:
    """A count with its noun, such as ``1 file`` or ``2,000 events``."""
    plural = "es" if thing.endswith(("ch", "ss")) else "s"
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}{plural}"


def ordinal(number: int) -> str:
    """A number as in ``every 3rd step``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def sized(num_bytes: int) -> str:
    """The size of a file in a readable unit, such as ``12.3 MB``."""
    if num_bytes < _KILO:
        return counted(num_bytes, "byte")
    size, unit = num_bytes / _KILO, "kB"
    if size >= _KILO:
        size, unit = size / _KILO, "MB"
    return f"{size:.1f} {unit}"


def memory_size(num_bytes: int) -> str:
    """A size of memory in a readable unit, as torch says it, such as ``12.3 MiB``."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return counted(num_bytes, "byte")


def printable(text: str) -> str:
    """A foreign text on one line, shortened, with control characters escaped."""
    return _escaped(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def printable_lines(text: object) -> str:
    """A text that may contain foreign names, with control characters escaped in each of its lines."""
    return "\n".join(map(_escaped, str(text).split("\n")))


def _escaped(text: str) -> str:
    return "".join(ascii(letter)[1:-1] if letter in _STEERING else letter for letter in text)
