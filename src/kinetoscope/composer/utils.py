"""Export of the memory timeline, under Composer's module path."""

import logging
import os
from pathlib import Path
from typing import Any

from kinetoscope.errors import SettingsError
from kinetoscope.torch.memory_timeline import Category, MemoryTimeline, build_memory_timeline

__all__ = ["export_memory_timeline_html"]

_log = logging.getLogger(__name__)
_GB = 1024**3


def export_memory_timeline_html(
    prof: Any,
    path: str | os.PathLike[str],
    device: str | None = None,
    figsize: tuple[int, int] = (20, 12),
    title: str | None = None,
    yxis_step_size: float = 1.0,
    return_fig: bool = False,
) -> Any:
    """Write the memory of ``device`` over the last window of a torch profiler, ours or torch's, as a page.

    Args:
        prof: the profiler.
        path: the page to write; ends in ``.html``.
        device: the device, by default the profiler's; the number of a CUDA device is accepted too.
        figsize: the size of the figure in inches.
        title: the title of the figure.
        yxis_step_size: the distance of its ticks in GB.
        return_fig: return a matplotlib figure, and write nothing.

    Returns:
        The figure with ``return_fig``; None without matplotlib, and a line in the log.

    Raises:
        SettingsError: if ``path`` does not end in ``.html``, and the errors of
            `kinetoscope.torch.profile.memory_timeline`.
    """
    if return_fig:
        return _draw_figure(_build_timeline(prof, device), figsize, title, yxis_step_size)
    if not os.fspath(path).endswith(".html"):
        raise SettingsError(f"The memory timeline is a web page, so its name must end in .html; not {path!r}.")
    _build_timeline(prof, device).save(Path(os.fspath(path)))
    return None


def _build_timeline(prof: Any, device: str | None) -> MemoryTimeline:
    """Return the timeline of our profiler, or build that of torch's."""
    if isinstance(device, int):  # Composer's own callback passes the number of the CUDA device
        device = f"cuda:{device}"
    if hasattr(prof, "memory_timeline"):
        return prof.memory_timeline(device)
    if device is None:
        kind = getattr(prof, "use_device", None)
        device = f"{kind}:0" if kind else "cpu"
    return build_memory_timeline(prof.profiler.kineto_results, device)


def _draw_figure(timeline: MemoryTimeline, figsize: tuple[int, int], title: str | None, step: float) -> Any:
    """Return a matplotlib figure of the timeline; None without matplotlib."""
    try:
        from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
    except ImportError:
        _log.warning("A figure needs matplotlib, which is not installed. Leave return_fig out for an interactive page.")
        return None
    figure = Figure(figsize=figsize, dpi=80)
    axes = figure.add_subplot()
    by_category = [[size / _GB for size in row] for row in zip(*timeline.sizes_bytes, strict=True)]
    names = [category.name.lower().replace("_", " ") for category in Category]
    axes.stackplot(timeline.times_us, *by_category, labels=names, alpha=0.7)
    end = axes.get_ylim()[1]
    axes.set_yticks([tick * step for tick in range(int(end / step) + 1)])
    axes.set(xlabel="Time (us)", ylabel="Memory (GB)", title=title or "")
    axes.grid(visible=True)
    figure.legend()
    return figure
