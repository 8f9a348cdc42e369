"""Hang detection on the training thread.

`hang_watchdog` reports a phase that lasts too long, after `thread_probe` has found no progress in it.
`gil_stall_stacks` writes the stacks of a hang that holds the GIL.
"""
