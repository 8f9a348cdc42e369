"""One-line integrations with other trainers and notebooks. None of these libraries is imported.

`lightning`, `transformers`, `accelerate` and `notebook` are for one of them each; `trainer_run` is shared by trainers,
and `arguments` has the arguments of `kinetoscope.profile`, which all of them take.
"""
