"""storage: uploads. Finished files flow in; they flow out to an object store, by a process beside training."""
