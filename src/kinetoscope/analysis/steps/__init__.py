"""Steps: their rows, breakdown, time, and outlier steps."""
