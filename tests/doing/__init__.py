"""Trainings with a fault, and the same fixed: what the fix gains is the truth that findings are compared with."""
