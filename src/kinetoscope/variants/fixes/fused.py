"""Variant: torch's fused optimizers."""

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.optimizers import set_implementation
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where an optimizer could be fused and is not."""
    could = any(one.takes_fused and not one.fused for one in facts.optimizers)
    return [True] if could else []


@variant(
    "fused",
    find_values=find_values,
    valid_values=(True, False),
    code="{optimizer}(..., fused={value})",
    kinds=("host_bound", "small_kernels", "python_overhead"),
    keeps_results=False,
    excludes={True: ["foreach"]},
)
def apply(value: Value, applied: Applied) -> None:
    """Change torch's optimizers that have the argument."""
    set_implementation("fused", value, "foreach", applied)
