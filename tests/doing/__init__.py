"""Trainings with a fault, and the same mended: what mending gains is the truth that findings are compared with."""
