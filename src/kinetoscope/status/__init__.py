"""status: the health of a running job, from its pulses and the processes of this machine. It only reads.

`health` classifies each rank and the run, with `process_state` and `hangs`; `status_screen` builds what a terminal
and a page show, `live_steps` the steps on a page.
"""
