"""storage: uploads of finished files to an object store, by a process beside training."""
