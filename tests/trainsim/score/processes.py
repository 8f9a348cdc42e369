"""Processes that judge runs in parallel."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from trainsim.score.catalogue import BY_NAME
from trainsim.score.judge import Verdict, judge

PROGRESS_INTERVAL_S = 10.0


def judge_all(jobs: Sequence[tuple[str, int]], num_processes: int) -> Iterator[Verdict]:
    """Judge the runs of these scenarios and seeds, in the order in which they finish."""
    if num_processes == 1 or len(jobs) == 1:
        yield from (judge_named(*job) for job in jobs)
        return
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    shown_s = started_s = time.monotonic()
    # Polars must not be forked.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(judge_named, *job) for job in jobs]
        for number, future in enumerate(as_completed(futures), 1):
            yield future.result()
            if time.monotonic() - shown_s > PROGRESS_INTERVAL_S:
                shown_s = time.monotonic()
                print(f"  {number}/{len(jobs)} runs, {shown_s - started_s:.0f} s", file=sys.stderr, flush=True)


def judge_named(name: str, seed: int) -> Verdict:
    """Judge a run of the scenario of this name."""
    return judge(BY_NAME[name], seed)
