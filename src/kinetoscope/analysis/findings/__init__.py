"""What is wrong with a run.

A `case` is a run as rules see it; `faults` has all rules (`host_faults`, `waiting_faults`, `device_faults`,
`memory_faults`). `lateness` chooses the late ranks (`late_faults`): `late_group` finds those late together, and
`proven_causes` those that spans explain, `uneven_loads` those late in turns. `pipeline` has the stages of a pipeline,
and `group_faults` the rules on how ranks share the work. `fault_graph` has the graphs for replays of them, `fix` what
a finding changes in one, and `signs` what a window shows beside its rows, also in sampled stacks (`sampled_lines`).
`explanations` reads the page of each kind, ``rules/KIND.md``.
"""
