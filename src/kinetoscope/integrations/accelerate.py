"""Integration with accelerate: ``with accelerator.profile(ProfileKwargs("runs/mine")) as profiler:``."""

import os
from typing import Unpack

from kinetoscope.integrations.arguments import ProfileArguments, ProfileOptions
from kinetoscope.recording.profiler import Profiler


class ProfileKwargs:
    """Argument of ``accelerator.profile`` that makes a `Profiler` of ours.

        with accelerator.profile(ProfileKwargs("runs/mine")) as profiler:
            for batch in profiler.batches(accelerator.prepare(loader)):
                ...

    The arguments are the same as for `kinetoscope.profile`. If it is used again, the second run is in the folder ``2``
    of ``out``, and so on.

    Raises TypeError for an argument that `kinetoscope.profile` does not have.
    """

    output_trace_dir: None = None
    """Accelerate need not write a trace: the Profiler does."""

    def __init__(self, out: str | os.PathLike[str] = "runs/{time}", **options: Unpack[ProfileOptions]) -> None:
        self._arguments = ProfileArguments(out, **options)

    def build(self) -> Profiler:
        """Return a new Profiler; accelerate calls this. Raises the errors of `kinetoscope.profile`."""
        return self._arguments.make_profiler()
