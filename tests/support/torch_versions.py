"""Support for tests with other versions of torch: a test is skipped if the version lacks what it needs."""

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
as_in_2_13 = pytest.mark.skipif(VERSION != (2, 13), reason=f"torch 2.13 is other than {torch.__version__} there")
since_2_13 = pytest.mark.skipif(VERSION < (2, 13), reason=f"torch 2.13 has what {torch.__version__} lacks")
counts_each_free = VERSION >= (2, 11)
"""Before, torch sometimes attributes a free to the operator after it: two recordings of one program differ."""

needs_frames_among_events = pytest.mark.skipif(
    VERSION < (2, 12), reason=f"Python's frames are no events in torch {torch.__version__}"
)


def experimental_config(**options):
    """torch's experimental configuration; skips the test if torch lacks one of ``options``."""
    try:
        return torch._C._profiler._ExperimentalConfig(**options)
    except TypeError:
        pytest.skip(f"torch {torch.__version__} knows no {' or '.join(options)}")
