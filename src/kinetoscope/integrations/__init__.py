"""integrations: one line in the trainers and notebooks of others. None of these libraries is imported.

`lightning`, `transformers`, `accelerate` and `notebook` are for one of them each; `trainer_run` is what trainers share,
and `arguments` has the arguments of `kinetoscope.profile`, which all of them take.
"""
