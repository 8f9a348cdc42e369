"""Options of a recording as advice names them: for `kinetoscope run`, and for the Python API."""

DIAGNOSE = "`kinetoscope run --diagnose` (`diagnose=True` in Python)"
"""Recording with everything that findings use, such as lines of code and the reasons of waits."""

LINE_ADVICE = f"Record its line of code with {DIAGNOSE}."
"""Advice of findings whose line of code only a sampled recording names."""

RECORD_TEN_STEPS = (
    "Record 10: `kinetoscope run -n 10`, or in Python `schedule=kinetoscope.cyclic_schedule(skip_first=1, warmup=1, "
    "active=10)`."
)
