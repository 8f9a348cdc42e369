"""Work of the CPU: operators, phases, Python time, samples of stacks, and states of threads."""
