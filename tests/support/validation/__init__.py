"""Training runs with a fault and without it: what the fix gains is the truth for the findings."""
