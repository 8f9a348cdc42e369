"""clock: nanoseconds, and how clocks relate. Standard library only.

Anchors to unix time and the base of a run's traces (`clock`), how a rank's clock runs relative to rank 0's
(`relation`, `sync`), how the times of a trace move to rank 0's (`file_clock`), and the machine's boot and the start of
processes (`proc`).
"""
