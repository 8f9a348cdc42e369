"""Advice on an input-bound loop, and the saving that the advised change can reach on the cores that are free."""

import math
from dataclasses import dataclass, field, replace

from kinetoscope.analysis.findings.batch_transfer_advice import (
    BUILT_BY_LOOP,
    MIN_TRANSFER_COSTS,
    VECTORIZE,
    describe_cheap_batches,
)
from kinetoscope.analysis.findings.cores import MIN_BUSY_SHARE, find_cores
from kinetoscope.analysis.findings.evidence.loader import LoaderEvidence
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import REACHABLE_SAVING, Finding
from kinetoscope.analysis.findings.loader_costs import batch_transfer_costs
from kinetoscope.core.text.wording import format_percent

MIN_REACHED_SHARE = 0.8
"""Advice that can reach a smaller share of a saving is of medium confidence at most (the contract's share)."""

_MIN_TRANSFER_COSTS_OF_POOL = 3
"""`MIN_TRANSFER_COSTS` for the time that a worker has per batch, which contains the cost of sending it."""

_MAX_CHEAP_SAMPLE_NS = 50_000
"""Samples that take less are mostly Python overhead: one of a TensorDataset takes 4 to 10 us."""

_MIN_WAITING_SHARE = 0.6
"""Building a batch is mostly waiting from this share on."""

_MIN_EPOCH_START_SHARE = 0.4

_MAX_WORKERS, _MAX_WAITING_WORKERS = 8, 32
"""Limits of the advice where the number of free cores is unknown, and where workers only wait."""

_MIN_USEFUL_SHARE = 0.3
"""Workers that reach less of the saving are not advised."""

_CHEAPER = "preprocess the dataset once, before training, or do less work per sample"
_CHEAPER_WITH_GPU = "preprocess the dataset once, before training, or move augmentation to the GPU"

_EPOCH_START_ADVICE = (
    "{} of this time is for the first batch of an epoch, when the workers start. Build the DataLoader once, before the "
    "epochs, and keep its workers: `DataLoader(..., persistent_workers=True)`."
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


def advise_on_loader(evidence: Evidence, loader: LoaderEvidence, saving_ns: float | None) -> LoaderAdvice:
    """Return the advice for a loop that gains ``saving_ns`` per step if it never waits for a batch."""
    starts = loader.epoch_start_share
    if loader.num_workers and starts is not None and starts >= _MIN_EPOCH_START_SHARE:
        return LoaderAdvice(_EPOCH_START_ADVICE.format(format_percent(starts)))
    return _Loop(evidence, loader, loader.wait_ns if saving_ns is None else saving_ns).advice()


def limit_reach_without_recording(finding: Finding, cost_ns: float, step_ns: float) -> Finding:
    """Return an input-bound finding that predicts no more than the cores allow in steps that are not recorded.

    Recording makes the loop's Python slower, and so leaves threads of torch idle for longer than they are without it.

    Args:
        finding: a finding of any kind; others are returned unmodified.
        cost_ns: CPU time per step that recording adds.
        step_ns: recorded step time.
    """
    evidence = dict(finding.evidence)
    min_step_ns, num_cores = evidence.get("min_step_ns"), evidence.get("num_cores")
    reachable_share = finding.reachable_share
    if not min_step_ns or not num_cores or not reachable_share or not finding.saving_share or cost_ns >= step_ns:
        return finding
    share = max(0.0, 1 - (min_step_ns - cost_ns / num_cores) / (step_ns - cost_ns))
    if share >= min(reachable_share, MIN_REACHED_SHARE * finding.saving_share):
        return finding
    evidence[REACHABLE_SAVING] = (finding.saving_ns_per_step or 0) * share / finding.saving_share
    confidence = "medium" if finding.confidence == "high" else finding.confidence
    return replace(finding, evidence=tuple(evidence.items()), confidence=confidence)


class _Loop:
    """An input-bound loop and its loader. Times are ns per step, or per batch where a name or docstring has it."""

    def __init__(self, evidence: Evidence, loader: LoaderEvidence, saving_ns: float) -> None:
        self.step_ns, self.saving_ns = evidence.step_ns, saving_ns
        self.cheaper = _CHEAPER if evidence.gpu is None else _CHEAPER_WITH_GPU
        self.num_workers, self.settings = loader.num_workers, loader.settings
        self.waits = loader.waiting_share
        self.is_waiting = self.waits is not None and self.waits >= _MIN_WAITING_SHARE
        self.cores, self.is_too_short = find_cores(evidence.cpu), evidence.cpu.is_too_short
        fetches = evidence.stalls("data")
        self.fetch_ns = fetches.total_ns
        self.sending_ns, self.receiving_ns = batch_transfer_costs(loader.settings)
        self.num_batches = max(fetches.num_calls, 1 / max(1, evidence.num_steps))
        self.median_ns = fetches.median_ns or 0.0
        """Time to fetch a batch; without workers, to build it.

        The mean of batches of tenths of a millisecond is twice as long where other threads share the core.
        """

    def advice(self) -> LoaderAdvice:
        """Return the advice that its batches, waits and free cores allow."""
        loop_share = 0.0 if self.num_workers else self.fetch_ns / self.step_ns
        limit = None if self.is_waiting or self.cores is None else self.cores.max_new_workers(loop_share)
        wanted = self._num_wanted(limit)
        reachable_ns = self._reachable_ns(wanted) if wanted else 0.0 if limit == 0 else None
        is_useful = reachable_ns is None or reachable_ns >= _MIN_USEFUL_SHARE * self.saving_ns
        evidence = self._evidence()
        if self._is_cheap or (self._has_cheap_samples and not (is_useful and self._is_reached(reachable_ns))):
            return LoaderAdvice(self._advise_on_cheap_batches(), self._below(reachable_ns), True, evidence)
        if limit == 0 or not is_useful:
            return LoaderAdvice(self._advise_on_busy_cores(), self._below(reachable_ns or 0.0), True, evidence)
        is_short = not self._knows_others and not self.is_waiting and self.is_too_short
        on_cores = self._advise_on_cores(is_short=is_short)
        text = f"{self._advise_on_workers(wanted)} {on_cores}{self._advise_on_reach(reachable_ns)}"
        return LoaderAdvice(text, self._below(reachable_ns), is_short or not self._is_reached(reachable_ns), evidence)

    # -- gain from more workers

    @property
    def _worker_ns(self) -> float | None:
        """Time of workers to build and send the batches of a step, at most; None if unknown."""
        if self.num_workers is None:
            return None
        if self.num_workers == 0:
            return self.fetch_ns + self.sending_ns * self.num_batches
        return self.num_workers * self.step_ns

    @property
    def _rest_ns(self) -> float:
        """Time of a step without waiting: a batch that is ready must still be received."""
        rest_ns = max(1.0, self.step_ns - self.saving_ns)
        if self.num_workers:
            return rest_ns
        on_host_ns = max(0.0, self.step_ns - self.fetch_ns)
        return max(rest_ns, on_host_ns + self.receiving_ns * self.num_batches)

    def _num_wanted(self, limit: int | None) -> int | None:
        """Return the number of workers that keep up with the loop, as far as cores are free; None if unknown."""
        if self._worker_ns is None or self.num_workers is None:
            return None
        wanted = max(self.num_workers + 1, math.ceil(self._worker_ns / self._rest_ns))
        max_workers = _MAX_WAITING_WORKERS if self.is_waiting else max(_MAX_WORKERS, 2 * self.num_workers)
        return min(wanted, max_workers if limit is None else self.num_workers + limit)

    def _reachable_ns(self, num_workers: int) -> float:
        """Return the saving of so many workers.

        The loop still receives its batches, workers may not keep up with it, and the run's CPU time must fit on the
        cores that other processes leave, unless a batch mostly waits.
        """
        assert self._worker_ns is not None
        after_ns = max(self._rest_ns, self._worker_ns / max(1, num_workers), self._min_step_ns or 0.0)
        return min(self.saving_ns, max(0.0, self.step_ns - after_ns))

    @property
    def _min_step_ns(self) -> float | None:
        """The shortest step in which the run's CPU time fits on its cores, if workers send the batches."""
        if self.cores is None or self.is_waiting:
            return None
        moving_ns = 0.0 if self.num_workers else (self.sending_ns + self.receiving_ns) * self.num_batches
        own_ns = self.cores.own * self.step_ns + moving_ns / (self.cores.num or 1)
        return own_ns / max(1e-3, 1 - (self.cores.others or 0.0))

    @property
    def _knows_others(self) -> bool:
        return self.cores is not None and self.cores.others is not None

    def _is_reached(self, reachable_ns: float | None) -> bool:
        return reachable_ns is None or reachable_ns >= MIN_REACHED_SHARE * self.saving_ns

    def _below(self, reachable_ns: float | None) -> float | None:
        """Return the reachable saving, where it is less than the contract's share."""
        return None if self._is_reached(reachable_ns) else reachable_ns

    @property
    def _is_cheap(self) -> bool:
        """True if sending a batch costs about as much as building it."""
        if self.num_workers is None:
            return False
        if self.num_workers == 0:
            return self.median_ns < MIN_TRANSFER_COSTS * self.sending_ns
        return self.num_workers * self.step_ns / self.num_batches < _MIN_TRANSFER_COSTS_OF_POOL * self.sending_ns

    @property
    def _has_cheap_samples(self) -> bool:
        """True if the loop builds its batches of many samples that take microseconds each."""
        size = self.settings.get("batch_size")
        return self.num_workers == 0 and isinstance(size, int) and 0 < self.median_ns < size * _MAX_CHEAP_SAMPLE_NS

    def _evidence(self) -> dict[str, float | None]:
        is_built = self.num_workers == 0
        return {
            "num_cores": self.cores and self.cores.num,
            "num_free_cores": self.cores and self.cores.num_free,
            "min_step_ns": self._min_step_ns,
            "median_batch_ns": self.median_ns if is_built else None,
            "batch_transfer_ns": self.sending_ns if is_built else None,
        }

    # -- text

    def _advise_on_cheap_batches(self) -> str:
        if self.num_workers == 0:
            return describe_cheap_batches(self.median_ns, self.sending_ns)
        batch_ms = (self._worker_ns or 0.0) / self.num_batches / 1e6
        return (
            f"A worker needs at most {batch_ms:.2f} ms per batch, about {self.sending_ns / 1e6:.1f} ms of it to send "
            f"the batch, so more workers would save little. {VECTORIZE} With `num_workers=0` no batch is sent."
        )

    def _advise_on_busy_cores(self) -> str:
        cores = self.cores
        busy = f"The machine's cores were busy ({self._busy_percent:.0f} %), so more workers would"
        if cores is not None and cores.num is not None and cores.busy < MIN_BUSY_SHARE:
            used = f"This job used {self._busy_percent:.0f} % of the machine's {cores.num} cores"
            idle = used if cores.num_free is None else f"Only {cores.num_free:.1f} of {cores.num} cores were idle"
            busy = f"{idle}, so more workers would"
        if self.waits is None:
            return (
                f"Make batches cheaper: {self.cheaper}. {busy} help only if they mostly wait, which this recording "
                "does not show."
            )
        return f"Make batches cheaper: {self.cheaper}. {busy} not help."

    def _advise_on_workers(self, wanted: int | None) -> str:
        keeps = "" if self.settings.get("persistent_workers") is True else ", persistent_workers=True"
        to = f"num_workers={wanted}" if wanted else "a larger num_workers"
        use = f"`DataLoader(..., {to}{keeps})`." if wanted else f"pass {to}{keeps} to the DataLoader."
        if self.is_waiting:
            share = f"{100 * (self.waits or 0):.0f} %"
            return f"Building a batch waits for {share} of its time, for example for storage or the network: {use}"
        if self.num_workers == 0:
            return f"{BUILT_BY_LOOP}{self.median_ns / 1e6:.2f} ms each: {use}"
        return f"Add workers: {use}"

    def _advise_on_cores(self, *, is_short: bool) -> str:
        if self.is_waiting:
            return "Workers wait in parallel, even where cores are busy."
        if self.cores is None or not self._knows_others:
            if is_short:
                return "This helps if cores are idle; the recording is too short to show it: record for 2 s or more."
            return "This helps if cores are idle: a recording with `kinetoscope run`, or `system=True`, shows it."
        if self.cores.num_free is None:
            return f"The machine's cores were only {self._busy_percent:.0f} % busy."
        return f"{self.cores.num_free:.1f} of {self.cores.num} cores were idle."

    def _advise_on_reach(self, reachable_ns: float | None) -> str:
        if reachable_ns is None or self._is_reached(reachable_ns):
            return ""
        return f" To save the rest of the wait, make batches cheaper: {self.cheaper}."

    @property
    def _busy_percent(self) -> float:
        return 100 * self.cores.busy if self.cores else 0.0
