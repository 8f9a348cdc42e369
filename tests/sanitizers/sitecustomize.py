"""Every program of the sanitized tests imports this at its start: a fork waits until threads have started.

GCC's AddressSanitizer (12 was tried) does not take the lock of its memory before a fork, as malloc of glibc does. The
child of a process in which another thread allocates just then waits for ever, and a thread that starts allocates
without the GIL.
"""

import os
import time

os.register_at_fork(before=lambda: time.sleep(0.02))
