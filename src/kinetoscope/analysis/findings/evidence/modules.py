"""Evidence on torch modules: the one with at least half of a cost."""

from collections.abc import Collection, Sequence

import polars as pl

from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.evidence.window_modules import KERNELS
from kinetoscope.analysis.modules.costs import find_module


class ModuleEvidence:
    """Costs by module in some windows, for `Where`: a tuple of one name, empty where no module has half of a cost."""

    def __init__(self, windows: Sequence[WindowEvidence]) -> None:
        self._costs = pl.concat([one.module_costs for one in windows])

    def of_costs(self, kind: str) -> tuple[str, ...]:
        """Return the module of a kind of stalls, or of another kind of `window_modules`."""
        return self._find(pl.col("kind") == kind)

    def of_kernels(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the module that launched kernels of these names, by their time."""
        return self._find((pl.col("kind") == KERNELS) & pl.col("name").is_in(list(names)))

    def _find(self, is_wanted: pl.Expr) -> tuple[str, ...]:
        module = find_module(self._costs.filter(is_wanted)) if len(self._costs) else None
        return () if module is None else (module,)
