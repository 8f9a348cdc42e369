"""pages: the page that lists runs, as ``web/`` built it (``runs.html``), and what it shows.

The types of web/src/runs/list_data.ts are made from these classes, by web/generate_types.py.
"""

import html
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A trace or report of a run. Perfetto can read it if it ``opens``."""

    name: str
    address: str
    size_bytes: int
    changed_ms: float
    opens_in_perfetto: bool


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """What a list says of a run; None is what nobody knows. ``key`` is its name as a part of an address.

    ``when_ms`` is when it began, or, if not ``has_start_time``, when it was last written, in unix milliseconds.
    ``change`` is how much longer its step is than that of the run before, ``before_key`` and ``before_title``, of the
    same folder, with as many ranks on the same devices. ``finding`` is "" where nothing was found.
    ``notes`` are warnings, ``why_unknown`` is why there are no numbers, or why no fault was looked for;
    ``is_queued`` while they are being worked out. ``report`` is the address of its
    report, also where that is yet to be made (not ``has_report``).
    """

    key: str
    title: str
    address: str
    state: str | None
    when_ms: float | None
    has_start_time: bool
    changed_ms: float | None
    hosts: list[str]
    devices: list[str]
    num_ranks: int | None
    world_size: int | None
    num_steps: int | None
    step_ns: float | None
    change: float | None
    before_key: str | None
    before_title: str | None
    finding: str | None
    saving_ns: int | None
    mfu: float | None
    peak_bytes: int | None
    peak_is_of_cpu: bool
    report: str | None
    has_report: bool
    num_traces: int
    traces_bytes: int
    notes: list[str]
    why_unknown: str
    is_queued: bool


@dataclass(frozen=True, kw_only=True)
class RankLine:
    """A rank's ``state``, and what else is said of it, in the order of `StatusScreen.columns`."""

    state: str
    cells: list[str]


@dataclass(frozen=True, kw_only=True)
class StatusScreen:
    """What a run does now, in words: ``rest`` sums up the ranks that have no row."""

    state: str
    headline: str
    sentences: list[str]
    columns: list[str]
    rows: list[RankLine]
    rest: str


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The files of one run. ``path`` is its folder, quoted for a shell; ``num_left_out`` traces more are there. ``now``
    is what it does, if it has not finished and tells that."""

    run: ListedRun
    live_status: StatusScreen | None
    path: str
    is_only: bool
    reports: list[ListedFile]
    traces: list[ListedFile]
    num_left_out: int


@dataclass(frozen=True, kw_only=True)
class ListData:
    """What the page shows: the ``runs`` in a folder, or the ``files`` of one of them. It is asked for again every
    ``refresh_ms`` milliseconds."""

    title: str
    folder: str
    notes: list[str]
    runs: list[ListedRun]
    files: RunFiles | None
    perfetto_url: str
    refresh_ms: int


def encode_list(data: ListData) -> bytes:
    """The data as JSON, which can stand in a script of a page. Names need not be valid text."""
    return json.dumps(data, default=vars).replace("<", "\\u003c").encode()


def render_list(data: ListData, plain: str) -> str:
    """The page as HTML; ``plain`` is what is read of it without JavaScript, as HTML."""
    parts = {"title": html.escape(data.title), "plain": plain, "data": encode_list(data).decode()}
    pieces = re.split(r"{{(title|plain|data)}}", _read_shell())  # at once: a part may have such a word in a name
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


@cache
def find_list_policy() -> str:
    """What the page may load, as a Content-Security-Policy."""
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', _read_shell())
    assert policy is not None  # the build puts it there
    return f"{policy[1]}; frame-ancestors 'none'"


@cache
def _read_shell() -> str:
    return files("kinetoscope.pages").joinpath("runs.html").read_text(encoding="utf-8")
