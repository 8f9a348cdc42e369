"""Names and categories in Kinetoscope's traces by which readers recognise its records."""

BATCH = "event/batch"
"""The span of a batch, which is a step."""

STEP = "ProfilerStep#"
"""Prefix of the names of torch's spans of steps, before their number. `src/native/rewrite/survey.c` has both names."""

MODULE = "module"
"""The category of calls of torch modules. Their args have ``class`` and ``depth``."""

WATCHED_PHASE = "watched_phase"
"""The category of phases that hooks of torch have recorded."""

SAMPLE, SAMPLE_OF_LIBRARY, SAMPLED_STATE = "stack_sample", "stack_sample,library", "stack_sample,state"
"""The categories of frames of sampled stacks, the user's and those of libraries, and of the object of the
thread's wait in the innermost one."""

SAMPLES = (SAMPLE, SAMPLE_OF_LIBRARY, SAMPLED_STATE)

SAMPLES_TRACK = "samples of {}"
"""The name of the track with the samples of a thread, which has the name of that thread."""

SAMPLED_EVERY = "sampled every {} ms"
"""The instant at the start of a window with the sampling interval of that thread."""

WAITS_PREFIX = "waits: "
"""Prefix of the states of a waiting thread, before the object of its wait."""

LATE_LINE = "running; the line is a later one"
"""The state of a thread that ran on until its line was read."""

LOOP_CLOCKS = "loop thread"
"""The counter of the loop's thread. Its values are the nanoseconds since the reading before: ``running_ns``,
``starved_ns`` (waiting for a CPU), ``blocked_ns`` (all other time); ``waiting_ns`` instead of the last two
where the system does not distinguish them."""

LOADER, MEMORY_HOLDER, FLOAT64, PROCESSORS = "loader", "memory_holder", "float64", "processors"
"""The categories of instants whose args have the results of a source: the settings of a loader, the objects that retain
growing memory, the line that introduces float64, and the CPU use of a window."""

NOTES = (LOADER, MEMORY_HOLDER, FLOAT64, PROCESSORS)
