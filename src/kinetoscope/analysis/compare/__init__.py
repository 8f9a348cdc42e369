"""What got slower or larger from one run to another.

`compare` makes a `comparison` of two runs, row by row a `change` of two `estimate`s of a `series`, one number for
each step.
"""
