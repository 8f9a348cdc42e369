"""Evidence on devices: kernels, copies and idle time."""

from functools import cached_property

from kinetoscope.analysis.findings.evidence.recording import Recording


class GpuEvidence:
    """Time of the devices, in ns per step."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        gpus = [one.gpu for one in recording.all_windows]
        self.majors = [major for one in gpus for major in one.majors_by_device.values()]
        """First numbers of the compute capability, as far as they were recorded."""

    @property
    def waits_for_cpu_ns(self) -> float:
        """The idle time before launches, and the short gaps between kernels."""
        return sum(map(self._recording.mean_of_ranks_ns, ("idle_host_wait_ns", "idle_kernel_wait_ns")))

    @property
    def idle_ns(self) -> float:
        """The idle time of a step; the whole step where that is unknown."""
        parts = self._recording.rows.parts
        device = parts["device"] if parts is not None else None
        return self._recording.rows.step_ns if device is None or device["idle_ns"] is None else device["idle_ns"]

    @cached_property
    def unexplained_idle_ns(self) -> float:
        """The idle time between kernels that were launched in time."""
        return self._recording.mean_of_ranks_ns("idle_other_ns")

    @property
    def graph_gaps_ns(self) -> float:
        """The part of the unexplained idle time before kernels of CUDA graphs."""
        return sum(one.gpu.graph_gaps_ns for one in self._recording.windows) / self._recording.num_rank_steps

    @property
    def exposed_to_device_ns(self) -> float:
        """The time with copies from the CPU and no kernel."""
        return sum(one.gpu.exposed_to_device_ns for one in self._recording.windows) / self._recording.num_rank_steps

    def small_kernels(self) -> tuple[float, float, float]:
        """Return the number of kernels in runs of small ones, the CPU's time for them, and the GPU's of empty ones."""
        num_steps, edges = self._recording.num_rank_steps, self._recording.edges
        small, empty = edges.filter("in_run"), edges.filter("is_empty")
        return len(small) / num_steps, int(small["weight"].sum()) / num_steps, int(empty["weight"].sum()) / num_steps
