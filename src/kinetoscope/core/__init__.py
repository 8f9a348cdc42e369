"""core: shared by recording and analysis, on the standard library, msgspec, psutil and jinja2.

`text` writes numbers and names for people, `clock` relates clocks, `paths` opens files, `background` has threads and
processes off the training thread, and `job` describes a run. Each imports only those before it.
"""
