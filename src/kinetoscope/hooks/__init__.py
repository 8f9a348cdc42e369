"""hooks: calls of our code in torch, from DataLoaders, backward passes, optimizers and checkpoints.

`loader_watch` wraps fetches, `phase_hooks` reports phases to the pulse, `patching` replaces a method, and
`training_safe` keeps our errors out of training.
"""
