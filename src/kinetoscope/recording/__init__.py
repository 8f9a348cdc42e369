"""recording: actions, schedules, the recorder, markers, cycles and the Profiler that drives them."""
