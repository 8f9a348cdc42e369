"""Advice on an input-bound loop, and the saving that the advised change can reach on the cores that are free."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.texts.wording import in_percent

MIN_REACHED_SHARE = 0.8
"""Advice that can reach a smaller share of a saving is of medium confidence at most (the contract's share)."""

_NS_PER_SENT_BATCH, _NS_PER_SENT_TENSOR = 200_000, 200_000
_NS_PER_SENT_BYTE, _NS_PER_RECEIVED_BYTE = 0.7, 0.1
"""CPU time to send a batch from a worker to the loop, on each side.

Measured with torch 2.13 on a Xeon at 2.1 GHz, in ms of the worker and of the loop: 0.55 and 0.53 for one small tensor,
0.76 and 0.52 for 2, 1.29 and 1.02 for 4, 4.1 and 5.1 for 20; 4.2 and 1.4 for 2 tensors of 4 MB together, 9.9 and 3.3
for 16 MB.
"""

_DEFAULT_NUM_TENSORS = 2
"""Inputs and labels, where the batches were not recorded."""

_MIN_SENDINGS = 3
"""A batch that is built in less than so many times the cost of sending it is cheap: workers gain less than 70 %."""

_MIN_SENDINGS_OF_POOL = 3
"""The same for the time that a worker has per batch, which contains the cost of sending it."""

_CHEAP_SAMPLE_NS = 50_000
"""Samples that take less are mostly Python overhead: one of a TensorDataset takes 4 to 10 us."""

_WAITING_SHARE = 0.6
"""Building a batch is mostly waiting from this share on."""

_EPOCH_START_SHARE = 0.4
_BUSY_PERCENT = 80
"""Cores that are busier have no time for more workers, where their number was not recorded."""

_FREE_CORE = 0.75
"""A core counts as free if this much of it was idle: the loop itself leaves less than a whole one to a worker."""

_MAX_WORKERS, _MAX_WAITING_WORKERS = 8, 32
"""Limits of the advice where the number of free cores is unknown, and where workers only wait."""

_USEFUL_SHARE = 0.3
"""Workers that reach less of the saving are not advised."""

_CHEAPER = "make batches cheaper: decode smaller files, preprocess the dataset once, or move augmentation to the GPU"

_VECTORIZE = (
    "Read all samples of a batch at once: DataLoader(dataset, batch_size=None, "
    "sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)) passes lists of indices to the "
    "dataset. TensorDataset accepts them; in your own dataset, index whole tensors in __getitem__."
)
_BUILT_BY_LOOP = "The loop builds its batches itself, in "
_ON_STARTS = (
    "{} of this time is for the first batch of an epoch, when the workers start. Build the DataLoader once, before the "
    "epochs, and keep its workers: DataLoader(..., persistent_workers=True)."
)


@dataclass(frozen=True)
class LoaderAdvice:
    """Advice for one loop.

    ``reachable_ns`` is the saving that the advised change can reach at most, None where that is unknown;
    ``is_estimate`` whether the change may gain less than `MIN_REACHED_SHARE` of the saving.
    """

    text: str
    reachable_ns: float | None = None
    is_estimate: bool = False
    evidence: dict[str, float | None] = field(default_factory=dict)


class _Cores(NamedTuple):
    """CPU use of the run and of others, as shares of all cores; ``num`` is None where it is unknown."""

    own: float
    others: float
    num: int | None

    @property
    def num_free(self) -> float | None:
        """The number of idle cores, None where the number of cores is unknown."""
        return None if self.num is None else max(0.0, self.num * (1 - self.own - self.others))

    def max_new_workers(self, loop_share: float) -> int | None:
        """Return how many workers find a core, None where that is unknown.

        The loop's own core counts for the share of the time that it would no longer build batches.
        """
        if self.num_free is not None:
            return math.floor(self.num_free + loop_share + 1 - _FREE_CORE)
        return 0 if self.own + self.others >= _BUSY_PERCENT / 100 else None


def advise_on_loader(
    case: Case, num_workers: int | None, loader: Mapping[str, Any], waits: float | None, saving_ns: float | None
) -> LoaderAdvice:
    """Return the advice for a loop that gains ``saving_ns`` per step if it never waits for a batch.

    Args:
        num_workers: workers of the DataLoader; 0 where the loop builds its batches, None where that is unknown.
        loader: settings of the DataLoader, as far as they were recorded.
        waits: share of the time of building a batch in which its maker waits, None where it was not sampled.
    """
    starts = [one.epoch_start_share for one in case.signs if one.epoch_start_share is not None]
    if num_workers and starts and sum(starts) / len(starts) >= _EPOCH_START_SHARE:
        return LoaderAdvice(_ON_STARTS.format(in_percent(sum(starts) / len(starts))))
    return _Loop(case, num_workers, loader, waits, case.data_wait_ns() if saving_ns is None else saving_ns).advice()


def without_recording_cost_of_batches(finding: Finding, fetch_ratio: float) -> Finding:
    """Return the finding with advice for cheap batches, if only recording makes them expensive.

    Args:
        fetch_ratio: median time to fetch a batch in unrecorded steps, divided by that in recorded ones.
    """
    evidence = dict(finding.evidence)
    batch_ns, sending_ns = evidence.get("median_batch_ns"), evidence.get("sending_ns")
    before, is_built, _ = finding.advice.partition(_BUILT_BY_LOOP)
    if not is_built or batch_ns is None or sending_ns is None or batch_ns * fetch_ratio >= _MIN_SENDINGS * sending_ns:
        return finding
    evidence["median_batch_ns"] = batch_ns = min(1.0, fetch_ratio) * batch_ns
    evidence.pop("reachable_saving_ns", None)  # of workers, which are no longer advised
    return replace(
        finding,
        advice=before + _on_cheap_batches(batch_ns, sending_ns),
        evidence=tuple(evidence.items()),
        confidence="medium" if finding.confidence == "high" else finding.confidence,
    )


def _on_cheap_batches(batch_ns: float, sending_ns: float) -> str:
    return (
        f"{_BUILT_BY_LOOP}{batch_ns / 1e6:.2f} ms each. A worker takes about {sending_ns / 1e6:.1f} ms to send a "
        f"batch, so workers would save little. {_VECTORIZE}"
    )


class _Loop:
    """An input-bound loop and its loader. Times are ns per step, unless they are said to be of a batch."""

    def __init__(
        self, case: Case, num_workers: int | None, loader: Mapping[str, Any], waits: float | None, saving_ns: float
    ) -> None:
        self.case, self.num_workers, self.loader, self.saving_ns = case, num_workers, loader, saving_ns
        self.waits, self.is_waiting = waits, waits is not None and waits >= _WAITING_SHARE
        self.cores = _cores(case)
        num_tensors, num_bytes = loader.get("tensors", _DEFAULT_NUM_TENSORS), loader.get("bytes", 0)
        to_send_ns = _NS_PER_SENT_BATCH + _NS_PER_SENT_TENSOR * num_tensors
        self.sending_ns = to_send_ns + _NS_PER_SENT_BYTE * num_bytes
        """CPU time of a worker to send a batch."""
        self.receiving_ns = to_send_ns + _NS_PER_RECEIVED_BYTE * num_bytes
        """CPU time of the loop to receive it."""
        self.num_batches = max(case.calls("data"), 1 / max(1, case.num_steps))
        self.median_ns = case.median_ns("data") or 0.0
        """What the loop takes to fetch a batch: without workers, to build it. The mean of batches that take tenths of a
        millisecond is twice as long where other threads share the core."""

    def advice(self) -> LoaderAdvice:
        loop_share = 0.0 if self.num_workers else self.case.total_ns("data") / self.case.step_ns
        limit = None if self.is_waiting or self.cores is None else self.cores.max_new_workers(loop_share)
        wanted = self._num_wanted(limit)
        reachable_ns = self._reachable_ns(wanted) if wanted else 0.0 if limit == 0 else None
        is_useful = reachable_ns is None or reachable_ns >= _USEFUL_SHARE * self.saving_ns
        evidence = self._evidence()
        if self._is_cheap or (self._has_cheap_samples and not (is_useful and self._is_reached(reachable_ns))):
            return LoaderAdvice(self._on_cheap_batches(), self._below(reachable_ns), True, evidence)
        if limit == 0 or not is_useful:
            return LoaderAdvice(self._on_busy_cores(), self._below(reachable_ns or 0.0), True, evidence)
        is_short = self.cores is None and not self.is_waiting and any(one.is_too_short for one in self.case.signs)
        text = f"{self._on_workers(wanted)} {self._on_cores(is_short=is_short)}{self._on_reach(reachable_ns)}"
        return LoaderAdvice(text, self._below(reachable_ns), is_short or not self._is_reached(reachable_ns), evidence)

    # -- what workers can do

    @property
    def _worker_ns(self) -> float | None:
        """What workers take to build and send the batches of a step, at most; None where that is unknown."""
        if self.num_workers is None:
            return None
        if self.num_workers == 0:
            return self.case.total_ns("data") + self.sending_ns * self.num_batches
        return self.num_workers * self.case.step_ns

    @property
    def _rest_ns(self) -> float:
        """What a step takes without waiting. A batch that is ready must still be received, which takes no longer than
        the device where that limits the loop then."""
        rest_ns = max(1.0, self.case.step_ns - self.saving_ns)
        if self.num_workers:
            return rest_ns
        on_host_ns = max(0.0, self.case.step_ns - self.case.total_ns("data"))
        return max(rest_ns, on_host_ns + self.receiving_ns * self.num_batches)

    def _num_wanted(self, limit: int | None) -> int | None:
        """How many workers keep up with the loop, as far as cores are free for them; None where that is unknown."""
        if self._worker_ns is None or self.num_workers is None:
            return None
        wanted = max(self.num_workers + 1, math.ceil(self._worker_ns / self._rest_ns))
        most = _MAX_WAITING_WORKERS if self.is_waiting else max(_MAX_WORKERS, 2 * self.num_workers)
        return min(wanted, most if limit is None else self.num_workers + limit)

    def _reachable_ns(self, num_workers: int) -> float:
        """What so many workers save: the loop still receives its batches, they may not keep up with it, and the run's
        CPU time must fit on the cores that other processes leave, unless building a batch takes hardly any."""
        assert self._worker_ns is not None
        after_ns = max(self._rest_ns, self._worker_ns / max(1, num_workers))
        if self.cores is not None and not self.is_waiting:
            moving_ns = 0.0 if self.num_workers else (self.sending_ns + self.receiving_ns) * self.num_batches
            own_ns = self.cores.own * self.case.step_ns + moving_ns / (self.cores.num or 1)
            after_ns = max(after_ns, own_ns / max(1e-3, 1 - self.cores.others))
        return min(self.saving_ns, max(0.0, self.case.step_ns - after_ns))

    def _is_reached(self, reachable_ns: float | None) -> bool:
        return reachable_ns is None or reachable_ns >= MIN_REACHED_SHARE * self.saving_ns

    def _below(self, reachable_ns: float | None) -> float | None:
        """The reachable saving, where it is less than the contract's share."""
        return None if self._is_reached(reachable_ns) else reachable_ns

    @property
    def _is_cheap(self) -> bool:
        """Whether sending a batch costs about as much as building it."""
        if self.num_workers is None:
            return False
        if self.num_workers == 0:
            return self.median_ns < _MIN_SENDINGS * self.sending_ns
        return self.num_workers * self.case.step_ns / self.num_batches < _MIN_SENDINGS_OF_POOL * self.sending_ns

    @property
    def _has_cheap_samples(self) -> bool:
        """Whether the loop builds its batches of many samples that take microseconds each."""
        size = self.loader.get("batch_size")
        return self.num_workers == 0 and isinstance(size, int) and 0 < self.median_ns < size * _CHEAP_SAMPLE_NS

    def _evidence(self) -> dict[str, float | None]:
        is_built = self.num_workers == 0
        return {
            "num_cores": self.cores and self.cores.num,
            "num_free_cores": self.cores and self.cores.num_free,
            "median_batch_ns": self.median_ns if is_built else None,
            "sending_ns": self.sending_ns if is_built else None,
        }

    # -- text

    def _on_cheap_batches(self) -> str:
        if self.num_workers == 0:
            return _on_cheap_batches(self.median_ns, self.sending_ns)
        batch_ms = (self._worker_ns or 0.0) / self.num_batches / 1e6
        return (
            f"A worker needs at most {batch_ms:.2f} ms per batch, about {self.sending_ns / 1e6:.1f} ms of it to send "
            f"the batch, so more workers would save little. {_VECTORIZE} With num_workers=0 no batch is sent."
        )

    def _on_busy_cores(self) -> str:
        busy = f"The machine's cores were busy ({self._busy_percent:.0f} %), so more workers would"
        if self._busy_percent < _BUSY_PERCENT and self.cores is not None and self.cores.num_free is not None:
            busy = f"Only {self.cores.num_free:.1f} of {self.cores.num} cores were idle, so more workers would"
        if self.waits is None:
            return f"{busy} help only if they mostly wait, which this recording does not show. Else {_CHEAPER}."
        return f"{busy} not help. Instead, {_CHEAPER}."

    def _on_workers(self, wanted: int | None) -> str:
        keeps = "" if self.loader.get("persistent_workers") is True else ", persistent_workers=True"
        to = f"num_workers={wanted}" if wanted else "a larger num_workers"
        use = f"DataLoader(..., {to}{keeps})." if wanted else f"pass {to}{keeps} to the DataLoader."
        if self.is_waiting:
            share = f"{100 * (self.waits or 0):.0f} %"
            return f"Building a batch waits for {share} of its time, for example for storage or the network: {use}"
        if self.num_workers == 0:
            return f"{_BUILT_BY_LOOP}{self.median_ns / 1e6:.2f} ms each: {use}"
        return f"Add workers: {use}"

    def _on_cores(self, *, is_short: bool) -> str:
        if self.is_waiting:
            return "Workers wait in parallel, even where cores are busy."
        if self.cores is None:
            if is_short:
                return "This helps if cores are idle; the recording is too short to show it: record for 2 s or more."
            return "This helps if cores are idle: record with system=True to see it."
        if self.cores.num_free is None:
            return f"The machine's cores were only {self._busy_percent:.0f} % busy."
        return f"{self.cores.num_free:.1f} of {self.cores.num} cores were idle."

    def _on_reach(self, reachable_ns: float | None) -> str:
        if reachable_ns is None or self._is_reached(reachable_ns):
            return ""
        saved = f"{reachable_ns / 1e6:.2f} ms of the {self.saving_ns / 1e6:.2f} ms"
        return f" This saves about {saved}. To save the rest, {_CHEAPER}."

    @property
    def _busy_percent(self) -> float:
        return 100 * (self.cores.own + self.cores.others) if self.cores else 0.0


def _cores(case: Case) -> _Cores | None:
    """Return the use of the cores; None where it was not recorded for long enough.

    Where only the machine's percentage is known, all of it counts as the run's own.
    """
    use = case.cpu_use
    if use.own_share is not None and use.others_share is not None and use.num_cores:
        return _Cores(use.own_share, use.others_share, use.num_cores)
    percents = [one.processor_percent for one in case.signs if one.processor_percent is not None]
    return _Cores(sum(percents) / len(percents) / 100, 0.0, None) if percents else None
