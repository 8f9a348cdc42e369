"""training: counts, sizes and options as people say them. Numbers flow in; words flow out."""

from collections.abc import Mapping

_KILO = 1000
_STEERING = frozenset(map(chr, [*range(32), *range(127, 160)]))
_MOST_SHOWN = 1000


def missing_options(options: Mapping[str, object]) -> str:
    """Those that are off, as they are to be passed: ``with_stack=True``; "" if there are none."""
    return ", ".join(f"{name}=True" for name, is_on in options.items() if not is_on)


def counted(count: int, thing: str) -> str:
    """How many there are of something, such as ``1 file`` or ``2,000 events``."""
    plural = "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}{plural}"


def sized(num_bytes: int) -> str:
    """A size in the unit in which it is easily read, such as ``12.3 MB``."""
    if num_bytes < _KILO:
        return counted(num_bytes, "byte")
    size, unit = num_bytes / _KILO, "kB"
    if size >= _KILO:
        size, unit = size / _KILO, "MB"
    return f"{size:.1f} {unit}"


def printable(text: str) -> str:
    """A text of somebody else's on one line, of a length to be read, without what would steer a terminal."""
    return _escaped(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def printable_lines(text: object) -> str:
    """A text in which names of somebody else's may stand: each of its lines without what would steer a terminal."""
    return "\n".join(map(_escaped, str(text).split("\n")))


def _escaped(text: str) -> str:
    return "".join(ascii(letter)[1:-1] if letter in _STEERING else letter for letter in text)
