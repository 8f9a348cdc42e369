"""Replaced functions and registered hooks of torch: DataLoaders, backward passes, optimizers, checkpoints.

`loader_watch` wraps fetches, `phase_hooks` reports phases to the pulse, `patching` replaces a method, and
`training_safe` keeps our errors out of training.
"""
