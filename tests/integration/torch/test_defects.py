"""Each defect of torch.profiler that we know, and that ours does the right thing. `defects` has them as programs.

Those that end the process are in `test_endings`, the costs in `benchmarks/torch`.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from integration.torch.defects import DEFECTS
from support.fork_server import run_with_torch
from support.torch_versions import as_in_2_13

NOT_JSON, OF_THE_HANDLER = "JSONDecodeError", "OSError"
# The outcome: a value, or the name of an error. Our error may inherit from that type.
STOCK_AND_OURS = {
    "a_quote_in_a_name": (NOT_JSON, True),
    "a_backslash_and_a_newline_in_a_name": (False, True),
    "a_tab_in_metadata": (NOT_JSON, True),
    "metadata_that_is_no_string": ("AttributeError", True),
    "metadata_that_is_not_json": (NOT_JSON, "ValueError"),
    "a_second_export": ("RuntimeError", True),
    "an_export_after_one_that_failed": ("RuntimeError", True),
    "a_folder_that_is_not_there": (False, True),
    "a_path_that_is_no_string": ("AttributeError", True),
    "an_export_before_the_stop": ("AttributeError", "NothingRecordedError"),
    "cycles_in_a_trace_of_all": (1, 3),
    "a_run_that_ends_in_the_warmup_of_a_later_cycle": (False, True),
    "a_schedule_without_a_step": (False, True),
    "a_handler_that_fails_after_the_training": (OF_THE_HANDLER, "ZeroDivisionError"),
    "a_profiler_inside_another": (0, "RuntimeError"),
    "activities_of_an_iterator": ("AssertionError", True),
    "stacks_without_the_verbose_configuration": (False, True),
    "the_name_of_the_worker_after_a_fork": (False, True),
    "a_profiler_that_is_dropped": (False, True),
    "a_stop_on_another_thread": ("no error, still recording: True", "ProfilerStateError"),
}


@cache
def outcomes(module: str) -> dict[str, Any]:
    done = run_with_torch(Path(__file__).with_name("defects.py").read_text(), module)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_every_defect_is_looked_at():
    assert [defect.__name__ for defect in DEFECTS] == list(STOCK_AND_OURS)


@pytest.mark.parametrize("defect", STOCK_AND_OURS)
@pytest.mark.parametrize(
    ("module", "place"), [pytest.param("torch.profiler", 0, marks=as_in_2_13), ("kinetoscope.torch", 1)]
)
def test_torch_has_the_defect_and_kinetoscope_does_not(defect, module, place):
    outcome, expected = outcomes(module)[defect], STOCK_AND_OURS[defect][place]
    assert expected in outcome if isinstance(outcome, list) else outcome == expected
