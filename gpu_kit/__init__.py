"""The GPU kit: a folder that a GPU machine runs in one command, and the judge of the results that it brings back.

`build` makes the folder, `runner` runs its `parts` there, and `judge` reads the results here. Modules that travel
(all but `build` and `judging`) use the standard library, what a GPU machine has, and the wheels in the kit: no polars.
"""
