"""status: how a run is doing now, as its pulses and the processes on this machine tell. It reads and lists only.

`judging` says it of each rank and of the run, with `processes` and `hangs`; `table` puts it into the words that a
terminal and a page show.
"""
