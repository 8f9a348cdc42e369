"""GrowingMemory with hooks and other functions that retain tensors in closures, and objects that it cannot scan."""

from functools import partial, wraps

import pytest

from support.leaking_loop import NUM_STEPS, Recording, forward, line_here

torch = pytest.importorskip("torch")


def make_hook():
    kept = []

    def hook(module, inputs, output):
        kept.append(output)  # here

    return hook


def make_hook_of_gradients():
    kept = []

    def hook(gradient):
        kept.append(gradient)  # here

    return hook


def hook_with_a_default(module, inputs, output, kept=[]):  # noqa: B006
    kept.append(output)  # here


def keep_in(kept, module, inputs, output):
    kept.append(output)


def hook_with_an_attribute(module, inputs, output):
    hook_with_an_attribute.kept.append(output)  # here


class Keeping:
    def __init__(self):
        self.kept = []

    def __call__(self, module, inputs, output):
        self.kept.append(output)  # here


def decorated(function):
    @wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


def run(model):
    recording = Recording()
    for _ in recording:
        model(torch.ones(1, 3) * forward()).sum().backward()
    return recording


def model_with(register, hook):
    """Return a model, two layers deep, which alone holds the hook."""
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 3))
    getattr(model[1], register)(hook)
    return model


@pytest.mark.parametrize(
    "decorate", [lambda hook: hook, decorated, torch.no_grad()], ids=["plain", "wrapped", "torch's"]
)
def test_list_in_the_closure_of_a_forward_hook_is_named_with_line_and_module(decorate):
    (holder,) = run(model_with("register_forward_hook", decorate(make_hook()))).holders.values()
    assert (holder["holder"], holder["line"]) == ("kept", line_here(make_hook))
    assert holder["tensors"] == NUM_STEPS
    assert holder["location"] == "variable of hook, a hook of model.1"


def test_hooks_before_the_forward_pass_and_of_the_backward_pass_are_looked_at():
    for register in ("register_forward_pre_hook", "register_full_backward_hook"):
        kept = []
        model = model_with(register, lambda *arguments, kept=kept: kept.append(arguments[-1]))
        del kept
        (holder,) = run(model).holders.values()
        assert holder["location"] == "variable of <lambda>, a hook of model.1"


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_of_a_parameter_is_looked_at(register):
    model = torch.nn.Linear(3, 3)
    getattr(model.weight, register)(make_hook_of_gradients())
    (holder,) = run(model).holders.values()
    assert (holder["holder"], holder["line"]) == ("kept", line_here(make_hook_of_gradients))


def test_the_default_of_an_argument_is_a_variable_of_its_function():
    (holder,) = run(model_with("register_forward_hook", hook_with_a_default)).holders.values()
    assert (holder["holder"], holder["line"]) == ("kept", line_here(hook_with_a_default))
    hook_with_a_default.__defaults__[0].clear()


def test_arguments_of_a_partial_function_are_scanned():
    (holder,) = run(model_with("register_forward_hook", partial(keep_in, []))).holders.values()
    assert holder["tensors"] == NUM_STEPS


def test_an_object_that_is_a_hook_is_looked_at():
    (holder,) = run(model_with("register_forward_hook", Keeping())).holders.values()
    assert holder["line"] == line_here(Keeping.__call__)
    assert holder["location"] == "attribute of a Keeping"


def test_an_attribute_of_a_function_is_looked_at():
    hook_with_an_attribute.kept = []
    holders = run(model_with("register_forward_hook", hook_with_an_attribute)).holders
    assert holders["hook_with_an_attribute.kept"]["tensors"] == NUM_STEPS
    del hook_with_an_attribute.kept


def test_the_variables_of_the_module_of_a_hook_are_looked_at(tmp_path, monkeypatch):
    (tmp_path / "some_hooks.py").write_text("KEPT = []\ndef hook(module, inputs, output):\n    KEPT.append(output)\n")
    monkeypatch.syspath_prepend(tmp_path)
    from some_hooks import hook

    (holder,) = run(model_with("register_forward_hook", hook)).holders.values()
    assert (holder["holder"], holder["location"], holder["line"]) == ("KEPT", "global variable", "some_hooks.py:3")


def test_a_hook_that_keeps_nothing_is_not_named():
    recording = run(model_with("register_forward_hook", lambda module, inputs, output: None))
    assert recording.holders == {}
    assert recording.notes[-1]["complete"] == 1


# -- where not everything was looked at


def deep(value, depth):
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("held", "complete"),
    [
        (lambda: deep([], 5), 1),
        (lambda: deep([], 30), 0),
        (lambda: list(range(5000)), 1),
        (lambda: [*range(5000), []], 0),
        (lambda: [None] * 100_000, 0),
        (lambda: [[] for _ in range(500)], 1),
        (lambda: [[] for _ in range(2000)], 0),
    ],
    ids=["not deep", "too deep", "numbers", "a list behind numbers", "very long", "long", "too long"],
)
def test_a_look_is_complete_only_if_it_saw_everything(held, complete):
    values, recording = held(), Recording()
    for _ in recording:
        pass
    assert recording.notes[-1]["complete"] == complete
    assert values is not None


def call_from(depth, function):
    return call_from(depth - 1, function) if depth else function()


def test_a_look_out_of_too_many_functions_is_not_complete():
    def record():
        recording = Recording()
        for _ in recording:
            pass
        return recording.notes[-1]["complete"]

    assert call_from(2, record) == 1
    assert call_from(40, record) == 0
