"""background: work off the training thread. Standard library only.

`background_thread` and `writer_thread` are threads, `background_process` and `jobs` processes of low priority;
`early_exit` and `fork_resets` keep both out of children, and `private_names` finds names of other libraries that may be
missing.
"""
