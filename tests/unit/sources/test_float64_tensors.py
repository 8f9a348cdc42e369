"""Float64Tensors with real tensors and modules: values in float64, and the line that creates them."""

import inspect

import pytest

from kinetoscope import Float64Tensors, GrowingMemory, Profiler, ProfilerAction
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.testing import MemoryTraceHandler

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


class Recording:
    """A recorded loop; what was noted of it is there afterwards."""

    def __init__(self, *others):
        self._handler, self._sources = MemoryTraceHandler(), [*others, Float64Tensors()]

    def __iter__(self):
        options = {"sources": self._sources, "strict": True}
        with Profiler(lambda state: ProfilerAction.ACTIVE, self._handler, **options) as profiler:
            yield from profiler.batches(range(3))

    @property
    def num_scans(self):
        return len([event for event in self._handler.events("kinetoscope") if "scan" in event.name])

    @property
    def notes(self):
        return {event.args["holder"]: event.args for event in self._handler.events("float64")}


def run(recording):
    for _ in recording:
        pass


def line_here(function):
    """Return the line of a function that is marked by a comment."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [number for number, text in enumerate(lines) if text.rstrip().endswith("# here")]
    return f"{source_name(__file__)}:{first + offset}"


def test_a_tensor_of_a_numpy_array_is_named_with_the_line_that_makes_it():
    recording = Recording()
    samples = torch.as_tensor(  # here
        numpy.zeros((4, 4))
    )
    small = samples.float()
    run(recording)
    (note,) = recording.notes.values()
    assert note == {
        "holder": "samples",
        "kind": "tensor",
        "location": "variable of test_a_tensor_of_a_numpy_array_is_named_with_the_line_that_makes_it",
        "line": line_here(test_a_tensor_of_a_numpy_array_is_named_with_the_line_that_makes_it),
    }
    assert small is not None


def convert_by_name():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2))
    model.double()  # here
    run(recording := Recording())
    return model, recording


def convert_by_type():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2))
    model.to(torch.float64)  # here
    model.to("cpu")
    run(recording := Recording())
    return model, recording


@pytest.mark.parametrize("convert", [convert_by_name, convert_by_type])
def test_a_model_that_is_converted_is_named_as_a_whole(convert):
    _, recording = convert()
    (note,) = recording.notes.values()
    assert (note["holder"], note["kind"]) == ("model", "module")
    assert note["line"] == line_here(convert)


class Samples:
    def __init__(self):
        self.values = torch.from_numpy(numpy.ones(8))  # here


def test_the_line_may_be_in_the_class_of_a_dataset():
    recording, loader = Recording(), torch.utils.data.DataLoader(Samples())
    run(recording)
    assert recording.notes["loader.dataset.values"]["line"] == line_here(Samples.__init__)
    assert loader is not None


def test_float64_as_torchs_default_dtype_is_reported_with_the_line_that_sets_it():
    recording = Recording()
    try:
        set_default()
        weights = torch.ones(4)
        run(recording)
    finally:
        torch.set_default_dtype(torch.float32)
    (note,) = recording.notes.values()
    assert (note["holder"], note["location"]) == ("torch.get_default_dtype()", "all modules and tensors")
    assert "line" not in note, "two lines set it"
    assert weights is not None


def set_default():
    torch.set_default_dtype(torch.float64)


def test_no_line_is_named_for_what_was_made_of_something_else():
    recording = Recording()
    made = [torch.zeros(3, dtype=torch.float64)]
    result = made[0] * 2
    run(recording)
    assert set(recording.notes) == {"result", "made[0]"}
    assert "line" not in recording.notes["result"]
    assert result is not None


def test_float32_single_numbers_and_arrays_of_numpy_are_no_fault():
    recording, model = Recording(), torch.nn.Linear(2, 2)
    scale, array = torch.tensor(0.5, dtype=torch.float64), numpy.ones(3)
    run(recording)
    assert recording.notes == {}
    assert (model, scale, array) is not None


def test_it_scans_together_with_growing_memory():
    alone, both = Recording(), Recording(GrowingMemory())
    samples = torch.zeros((4, 4), dtype=torch.float64)
    run(alone)
    run(both)
    assert both.notes["samples"] == alone.notes["samples"]
    assert (alone.num_scans, both.num_scans) == (1, 2), "the second one is at the end of the window"
    assert samples is not None
