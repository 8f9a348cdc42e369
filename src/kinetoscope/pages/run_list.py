"""Data of the page that lists runs (``runs.html``, built by ``web/``).

web/generate_types.py writes the types of these classes into web/src/runs/list_data.ts.
"""

import html
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from kinetoscope.pages.page_data import DeviceTimes, RankBreakdown, TopCalls

STATE_LABELS = {"recording": "running", "hanging": "hung", "silent": "unresponsive"}
"""Labels of states on screen, where they differ from the values in JSON."""


@dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A trace or report of a run."""

    name: str
    address: str
    size_bytes: int
    changed_ms: float
    opens_in_perfetto: bool


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run in the list; None is unknown. ``key`` is its name as a part of an address.

    ``when_ms`` is its start, or without ``has_start_time`` its last write, in unix milliseconds. ``change`` is the
    relative change of the step time from the run before, ``before_key`` and ``before_title``, of the same folder and
    ``group``, with as many ranks on the same devices. ``finding`` is "" without findings, ``saving`` its estimated
    saving as text. ``notes`` are warnings; ``why_unknown`` is the reason for missing numbers or findings;
    ``is_queued``: they are being computed. ``is_active``: a rank has not ended. ``report`` is the address of its
    report, also if that is yet to be written (not ``has_report``).
    """

    key: str
    title: str
    address: str
    group: int
    state: str | None
    is_active: bool
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
    saving: str
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
    """Row of a rank: its ``state``, and its cells in the order of `StatusScreen.columns`."""

    state: str
    cells: list[str]


@dataclass(frozen=True, kw_only=True)
class StatusScreen:
    """Live status of a run as text: ``rest`` sums up the ranks without a row."""

    state: str
    headline: str
    sentences: list[str]
    columns: list[str]
    rows: list[RankLine]
    rest: str


@dataclass(frozen=True)
class Figure:
    """A number of a run as text, with its name."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class LivePhase:
    """A phase of the last steps: its mean time over all ranks, and the share of the step; None where it is unknown."""

    name: str
    label: str
    time_ns: float | None
    share: float | None


@dataclass(frozen=True, kw_only=True)
class StepPiece:
    """Consecutive steps of one rank: their mean duration, the longest, and the mean of each phase, None if unknown."""

    step: int
    last_step: int
    num_steps: int
    mean_ns: float
    max_duration_ns: float
    phases_ns: list[float | None]


@dataclass(frozen=True, kw_only=True)
class LiveSteps:
    """Steps of a run from its pulses: key ``figures``, and the ``phases`` of the last ``num_last`` steps.

    ``pieces`` are all steps of ``rank``, the oldest first.
    """

    figures: list[Figure]
    num_last: int
    phases: list[LivePhase]
    rank: int
    pieces: list[StepPiece]


@dataclass(frozen=True, kw_only=True)
class RunOverview:
    """Results of the analysis of a run: sentences on its findings, its time breakdown, and the calls with most time.

    ``devices`` are known where no step was recorded.
    """

    findings: list[str]
    breakdowns: list[RankBreakdown]
    devices: list[DeviceTimes]
    top_calls: TopCalls | None


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Files of one run. ``path`` is its folder, quoted for a shell; ``num_left_out`` further traces are not listed.

    ``live_status`` and ``live_steps`` are None without a pulse, and the status after a run has finished. ``overview``
    is None until the run has been analysed. ``trend`` are
    the runs of its group whose step times compare with its own, in the order of their starts, itself among them, with
    the longest of these step times.
    """

    run: ListedRun
    trend: list[ListedRun]
    max_step_ns: float
    live_status: StatusScreen | None
    live_steps: LiveSteps | None
    overview: Annotated[dict[str, Any], "RunOverview"] | None
    path: str
    is_only: bool
    reports: list[ListedFile]
    traces: list[ListedFile]
    num_left_out: int


@dataclass(frozen=True, kw_only=True)
class ListData:
    """Data of the page: the ``runs`` in a folder, or the ``files`` of one of them.

    The page requests it again every ``refresh_ms`` milliseconds; with 0 not any more, since the run has ended.
    """

    title: str
    folder: str
    notes: list[str]
    runs: list[ListedRun]
    files: RunFiles | None
    perfetto_url: str
    refresh_ms: int


def encode_list(data: ListData) -> bytes:
    """Return the data as JSON that is safe in a script element; names need not be valid text."""
    return json.dumps(data, default=vars).replace("<", "\\u003c").encode()


def render_list(data: ListData, plain: str) -> str:
    """Return the page as HTML; ``plain`` is its HTML without JavaScript."""
    parts = {"title": html.escape(data.title), "plain": plain, "data": encode_list(data).decode()}
    pieces = re.split(r"{{(title|plain|data)}}", _read_shell())  # in one pass: a part may contain a placeholder
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


@cache
def find_list_policy() -> str:
    """Return the Content-Security-Policy of the page."""
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', _read_shell())
    assert policy is not None  # the build adds it
    return f"{policy[1]}; frame-ancestors 'none'"


@cache
def _read_shell() -> str:
    return files("kinetoscope.pages").joinpath("runs.html").read_text(encoding="utf-8")
