"""A score of the analysis: simulated runs with known faults, and how often the report on them is right.

    make score                                        # all scenarios; docs/score.md shows the result
    make score SCENARIO=late-host SEED=123 RUNS=1 VERBOSE=1

`scenario` defines what a scenario is, `catalogue` lists them, `judge` compares a report with reruns of the simulation,
`tally` sums the verdicts up, and `output` prints and writes them.
"""
