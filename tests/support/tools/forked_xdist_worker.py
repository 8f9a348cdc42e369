"""Worker of pytest-xdist: a process forked from one that has imported what test files import.

It gets the arguments that Python would get. These imports take each process of a test run three seconds of CPU time.
Our own modules, whose asserts pytest rewrites, and modules that start threads (polars) are not imported beforehand.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ["PYTEST_PREPARED_BY"] = str(os.getppid())  # all processes of this pytest share their imports
from support.fork_server import run_as_this_process

MODULES = (
    *("torch", "torch._dynamo", "torch._functorch.aot_autograd", "ipykernel", "markdown_it", "msgspec", "nbclient"),
    *("numpy", "torch.distributed.pipelining", "playwright.sync_api", "rich.console", "rich.table"),
)

if __name__ == "__main__":
    if sys.platform != "linux":
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    sys.exit(run_as_this_process(MODULES, sys.argv[sys.argv.index("-c") + 1]))
