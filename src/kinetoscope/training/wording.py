"""Words for counts, sizes and options, and text that is safe to print."""

from collections.abc import Mapping

_KILO = 1000
# What moves a terminal's cursor, or turns the direction in which it writes.
_CONTROLS = frozenset(map(chr, [*range(32), *range(127, 160)]))
_STEERING = _CONTROLS | frozenset(
    map(chr, [0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF])
)
_BYTES = range(0xDC80, 0xDD00)  # of a path that is no valid text, as surrogateescape has them
_HALVES = frozenset(chr(code) for code in range(0xD800, 0xE000) if code not in _BYTES)
_MOST_OF_NAME, _MOST_OF_SENTENCE, _LONGEST_PATH = 200, 1000, 4096


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


def shown(text: object, most: int = _MOST_OF_NAME, *, in_html: bool = False) -> str:
    """A foreign text of any kind on one line, without control characters; of a long one the beginning, and its
    length. A page (``in_html``) puts it into ``<bdi>``, out of which letters cannot turn the direction of writing."""
    return _escaped(_cut(_as_text(text), most, most), _CONTROLS if in_html else _STEERING)


def printable(text: object) -> str:
    """A sentence that may contain foreign names, on one line, as `shown`."""
    return shown(text, _MOST_OF_SENTENCE)


def shortened(name: object, longest: int) -> str:
    """A foreign name for a cell of a table, of at most ``longest`` letters."""
    text = _escaped(_as_text(name)[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def printable_lines(text: object) -> str:
    """A text that may contain foreign names, with control characters escaped in each of its lines. What is longer than
    any path is cut, and so is a line that nobody would read."""
    return "\n".join(_escaped(_line(line)) for line in _as_text(text).split("\n"))


def _line(line: str) -> str:
    if len(line) <= _LONGEST_PATH:
        return line
    words = [_cut(word, _LONGEST_PATH, _MOST_OF_NAME) for word in line.split(" ")]
    return _cut(" ".join(words), 2 * _LONGEST_PATH, 2 * _LONGEST_PATH)


def _cut(text: str, longest: int, kept: int) -> str:
    """The text; of one that is longer than ``longest`` so many letters, and how many it has."""
    return text if len(text) <= longest else f"{text[:kept]}\N{HORIZONTAL ELLIPSIS} ({len(text):,} characters)"


def _as_text(text: object) -> str:
    """As text that can be printed: halves of a letter that stand alone are escaped, but not bytes of a path, which are
    printed as they are."""
    return "".join(ascii(letter)[1:-1] if letter in _HALVES else letter for letter in str(text))


def _escaped(text: str, letters: frozenset[str] = _STEERING) -> str:
    return "".join(ascii(letter)[1:-1] if letter in letters else letter for letter in text)
