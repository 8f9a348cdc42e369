"""analysis: `kinetoscope.analyze`, all there is to say about a run. Each rank is summed up alone, then they are joined."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kinetoscope.analysis.collectives import CollectiveRow, collective_calls, join_collectives
from kinetoscope.analysis.dependencies import Dependencies, find_dependencies
from kinetoscope.analysis.host_time import HostTime
from kinetoscope.analysis.kernels import KernelRow, kernel_rows, kernel_runs
from kinetoscope.analysis.operators import OperatorRow, operator_calls, operator_rows
from kinetoscope.analysis.ranks import RankRow, add_rank_rows, rank_rows
from kinetoscope.analysis.replay import ReplayGraph
from kinetoscope.analysis.steps import StepRow, step_rows
from kinetoscope.analysis.stragglers import StragglerRow, straggler_rows
from kinetoscope.analysis.window import RankWindow, read_windows
from kinetoscope.table.columns import import_polars
from kinetoscope.table.load import PathLike, load
from kinetoscope.table.trace import Trace, TraceSet

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
