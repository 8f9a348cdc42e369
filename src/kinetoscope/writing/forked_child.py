"""writing: what is done in each child that this process forks. Where nothing can be forked, that is never."""

import os
from collections.abc import Callable


def after_fork_in_child(action: Callable[[], object]) -> None:
    """Calls ``action`` first thing in every process that is forked from now on, and in what that forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)
