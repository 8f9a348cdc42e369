"""Variant: torch's foreach optimizers."""

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.optimizers import set_implementation
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return True where an optimizer could be foreach and is not; on a device that is torch's default."""
    could = any(
        one.takes_foreach and not one.foreach and not one.fused and not one.is_on_device for one in facts.optimizers
    )
    return [True] if could else []


@variant(
    "foreach",
    find_values=find_values,
    valid_values=(True, False),
    code="{optimizer}(..., foreach={value})",
    kinds=("host_bound", "small_kernels", "python_overhead"),
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Change torch's optimizers that have the argument."""
    set_implementation("foreach", value, "fused", applied)
