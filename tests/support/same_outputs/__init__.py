"""Compare what two commits make of the same files: ``make same BASE=COMMIT``.

`versions` checks out and builds the older commit, `inputs` makes 60 files and folders with it, `outputs` runs the
commands of each version on them, and `__main__` prints what differs.
"""
