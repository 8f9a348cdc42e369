"""Records a run: actions, schedules, the recorder, markers, cycles, and the Profiler in front of them."""
