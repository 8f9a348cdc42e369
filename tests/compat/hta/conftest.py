"""The tests against HolisticTraceAnalysis. They run in an environment of its own: `make test-hta TRACES=DIR`."""

import importlib.util

if not importlib.util.find_spec("hta"):
    collect_ignore_glob = ["test_hta.py"]
