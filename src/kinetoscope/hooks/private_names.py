"""Private names of torch that hooks need, and the feature that is off where one is missing."""

from kinetoscope.core.background.private_names import PrivateObject

# The DataLoader.
loader_iterator = PrivateObject(
    "torch.utils.data.dataloader",
    "_BaseDataLoaderIter",
    "waits for batches are recorded only in loops over profiler.batches(), and the settings of DataLoaders are not",
    loaded="torch.utils.data",
)

# Autograd.
run_backward = PrivateObject(
    "torch.autograd", "_engine_run_backward", "the pulse does not separate forward and backward passes"
)

count_graph_nodes = PrivateObject(
    "torch._C._autograd",
    "_get_sequence_nr",
    "a forward pass before the next fetch counts as time between steps",
    loaded="torch.autograd",
)
