"""experiments: `kinetoscope try`, which starts a command with and without variants, and compares their step times.

`experiment` runs the rounds, `start` one start of the command, `plan` chooses the variants, `statistics` gives
verdicts, and `results` compares parameters.
"""
