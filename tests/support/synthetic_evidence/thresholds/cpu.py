"""Thresholds of waits, CPU contention, Python overhead and small operators."""

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.ranks.contention import build_contention_notes
from support.synthetic_evidence import STEP_NS, Run, find
from support.synthetic_evidence.thresholds import threshold
from support.synthetic_evidence.thresholds.confidence import confidence_of, pauses, python_between

WALL_NS = 1_000_000_000
SAVE = "save of torch/serialization.py"


def blocked(samples):
    """Return a run that is blocked for 20 % of each step, with these samples."""
    stalls = [{"kind": "blocked", "name": "aten::mm", "step": step, "total_ns": STEP_NS // 5} for step in range(10)]
    samples = [{"kind": "blocked", "state": "sleep", "step": number % 10, **one} for number, one in enumerate(samples)]
    return Run(parts=lambda rank, step: {"blocked": STEP_NS // 5}, stalls=stalls, samples=samples)


def split(share, num=20):
    """Return samples on two lines, ``a.py:1`` with this share of the time."""
    lines = {"a.py:1": share, "b.py:2": 1 - share}
    return [{"line": line, "total_ns": round(of_line * 10**6)} for _ in range(num) for line, of_line in lines.items()]


@threshold("findings.evidence.loader.MIN_SAMPLES", between=(4, 5))
def has_enough_samples(num_samples):
    samples = [{"line": "a.py:1", "total_ns": 10**6} for _ in range(num_samples)]
    return confidence_of(blocked(samples), "blocked") == "high"


@threshold("findings.rules.blocked._MIN_TITLE_SHARE", between=(0.45, 0.55))
def names_the_line_of_waits(share):
    lines = [{"line": "a.py:1", "total_ns": round(share * 10**6)}]
    lines += [{"line": f"b.py:{number}", "total_ns": round((1 - share) * 10**5)} for number in range(10)]
    return "at a.py:1" in find("blocked", blocked(lines)).title


@threshold("findings.blocking_calls._MIN_SHARE_OF_CALL", 0.4)
def advises_on_the_call(share):
    first = {"kind": "python", "line": "a.py:1", "call": SAVE, "state": "running", "step": 1}
    others = [
        {
            "kind": "python",
            "line": f"b.py:{number}",
            "state": "running",
            "step": 1,
            "total_ns": round((1 - share) * 10**5),
        }
        for number in range(10)
    ]
    found = find("python_overhead", python_between(0.2, samples=[first | {"total_ns": round(share * 10**6)}, *others]))
    return "async_save" in found.advice


# -- sampled lines


def sampled(samples):
    """Return the finding on Python overhead with these samples, which ran."""
    rows = [{"kind": "python", "state": "running", "step": 1, **one} for one in samples]
    return find("python_overhead", python_between(0.2, samples=rows))


@threshold("cpu.sampled_lines._MIN_SAMPLES", between=(4, 5))
def is_a_certain_line(num_samples):
    own = [{"line": "a.py:1", "total_ns": 10**6} for _ in range(num_samples)]
    return sampled([*own, *({"step": step, "total_ns": 10**6} for step in range(2, 10))]).where.lines == ("a.py:1",)


@threshold("cpu.sampled_lines._MIN_CERTAIN_SHARE", between=(8, 5))
def agrees_in_steps(num_steps):
    """Samples of a line in 4 steps of so many: it executes in 16 % of 8 steps at least, or in 33 % of 5."""
    lines = ["a.py:1"] * 4 + [None] * (num_steps - 4)
    samples = [{"line": line, "step": step, "total_ns": 10**6} for step, line in enumerate(lines)]
    return sampled(samples).where.lines == ("a.py:1",)


@threshold("cpu.sampled_lines._ERROR_PROBABILITY", 0.05)
def is_at_least(doubt):
    """The share of a line in the samples of all 10 steps is at least the 10th root of the probability of error."""
    samples = [{"line": "a.py:1", "step": step, "total_ns": 10**6} for step in range(10)]
    return dict(sampled(samples).evidence)["min_share_of_line"] <= doubt**0.1


@threshold("cpu.sampled_lines.MAX_LATE_SHARE", 0.5)
def was_read_late(share):
    states = {"running; the line is a later one": share, "running": 1 - share}
    samples = [
        {"line": "a.py:1", "step": step, "state": state, "total_ns": round(of_state * 10**6)}
        for step in range(10)
        for state, of_state in states.items()
    ]
    return "at a.py:1" not in sampled(samples).title


@threshold("cpu.sampled_lines._MIN_TITLE_SHARE", 0.5)
def is_in_the_title(share):
    others = [{"line": f"b.py:{step}", "total_ns": round((1 - share) * 10**6)} for step in range(10)]
    own = [{"line": "a.py:1", "total_ns": round(share * 10**6)} for _ in range(10)]
    return "at a.py:1" in sampled([{**one, "step": step % 10} for step, one in enumerate([*own, *others])]).title


@threshold("cpu.library_calls._MIN_NAMED_SHARE", 0.5)
def names_the_library(share):
    libraries = {"lib/a.py(3): step": share} | {f"lib/b.py(4): f{number}": (1 - share) / 5 for number in range(5)}
    stalls = [
        {"kind": "gc", "line": "a.py:1", "library": library, "num_calls": round(100 * of), "step": 1, "total_ns": 10**7}
        for library, of in libraries.items()
    ]
    found = find("garbage_collection", Run(stalls=stalls, parts=lambda rank, step: {"gc": 10**6}))
    return "lib/a.py" in found.advice


# -- Python overhead and small operators


@threshold("findings.rules.python_overhead._MIN_LONG_PAUSE_NS", 1_000_000)
def is_a_long_pause(time_ns):
    stalls = [{"kind": "python", "name": "aten::mm", "step": step, "total_ns": round(time_ns)} for step in range(10)]
    return "in 10 pauses" in find("python_overhead", python_between(0.2, stalls=stalls)).advice


@threshold("findings.rules.python_overhead._MIN_SHARE_IN_LONG_PAUSES", 0.6)
def is_mostly_in_long_pauses(share):
    short = {"kind": "python", "step": 1, "num_calls": 1000, "total_ns": round((1 - share) * 10**7)}
    long = {"kind": "python", "step": 2, "total_ns": round(share * 10**7)}
    return "in 1 pause" in find("python_overhead", python_between(0.2, stalls=[short, long])).advice


@threshold("findings.rules.python_overhead._MAX_RUNNING_SHARE", 0.5)
def is_busy_in_python(share):
    found = find("python_overhead", python_between(0.4, cpu={"process_percent": 100 * 0.4 * share}))
    return found.title.startswith("Python overhead")


def small_operators(num_per_step, share, *, mean_ns=5_000.0, **parts):
    """Return the finding on so many small operators, which take this share of a step."""
    self_ns, name = round(share * STEP_NS * 10), "aten::add"
    times = dict.fromkeys(("p50_ns", "p95_ns", "max_ns", "name_p50_ns", "name_p95_ns"), round(mean_ns))
    row = OperatorRow(
        name=name, shapes=None, num_calls=10 * num_per_step, total_ns=self_ns, self_ns=self_ns, mean_ns=mean_ns, **times
    )
    columns = {"python_ns": 0}
    return find("small_kernels", Run(operators=[row], columns=lambda rank, step: columns, **parts))


@threshold("cpu.python_time.SMALL_OPERATOR_NS", 10_000)
def is_no_small_operator(time_ns):
    return small_operators(200, 0.5, mean_ns=time_ns) is None


@threshold("findings.rules.small_kernels._MIN_SMALL_OPERATORS", between=(90, 110))
def is_many_small_operators(num_per_step):
    return small_operators(num_per_step, 0.5) is not None


@threshold("findings.rules.small_kernels._MIN_MANY_OPERATORS", between=(900, 1100))
def is_certainly_too_many(num_per_step):
    return small_operators(num_per_step, 0.6).confidence == "high"


@threshold("findings.rules.small_kernels._MIN_SHARE_OF_ITEMS", 0.8)
def reads_values_in_the_optimizer(share):
    found = small_operators(200, 0.5, cpu={"num_items": 2000, "num_items_of_optimizer": round(2000 * share)})
    return "LBFGS" in found.advice


# -- run-queue delay and CPU use


def delayed(delay_share, running_share):
    """Return columns of steps with this run-queue delay, and so much time in which the loop ran."""
    columns = {"starved_ns": round(delay_share * STEP_NS), "running_ns": round(running_share * STEP_NS)}
    return lambda rank, step: columns


@threshold("ranks.run_queue_delay._HIGH_SHARE", 0.3)
def may_be_noise(share):
    drawn = pauses(0.5, columns=delayed(0.02, 0.02 / share - 0.02))
    return confidence_of(drawn) == "medium"


@threshold("ranks.run_queue_delay._MIN_QUIET_SHARE", 0.05)
def counts_in_a_quiet_step(share):
    """A fault of 1.25 times this share of a step, 98 % of it delay, takes 2.5 % of a quiet step."""
    return find("garbage_collection", pauses(1.25 * share, columns=delayed(0.98, 0.02))) is not None


def contended(num_throttled=0, throttled_share=0.0, wall_ns=WALL_NS, **shares):
    """Return the finding on a run with a delay of 20 % of a step, and shares of the time of 4 cores."""
    used = {f"{name}_ns": round(share * 4 * wall_ns) for name, share in shares.items()}
    limit = {"num_throttled": num_throttled, "throttled_ns": round(throttled_share * wall_ns)} if num_throttled else {}
    counters = {"wall_ns": wall_ns, "cores": 4, **used, **limit}
    return find("processor_contention", Run(columns=delayed(0.2, 0.5), cpu={"counters": counters}))


@threshold("findings.rules.processor_contention._MIN_SHARE_OF_DELAY", 0.5)
def is_throttled(share):
    found = contended(num_throttled=5, throttled_share=0.2 * share, own=0.1, busy=0.2)
    return found is not None and "CPU limit" in found.title


@threshold("ranks.contention._MIN_OWN_SHARE", 0.5)
def contends_with_itself(share):
    return contended(own=share, busy=share + 0.05) is not None


@threshold("ranks.contention._OWN_RATIO", 3)
def uses_more_than_others(times):
    return contended(own=0.6, busy=0.6 + 0.6 / times) is not None


@threshold("ranks.contention._MIN_OWN_SHARE_ALONE", 0.8)
def contends_with_itself_alone(share):
    return contended(own=share) is not None


@threshold("ranks.contention.MIN_STEAL_SHARE", 0.03)
def is_stolen(share):
    return contended(own=0.6, busy=0.65, steal=share) is None


@threshold("ranks.contention.MIN_WALL_NS", 200_000_000)
def shows_other_processes(wall_ns):
    return contended(own=0.6, busy=0.65, wall_ns=round(wall_ns)) is not None


@threshold("ranks.run_queue_delay._BUSY_PERCENT", between=(85, 95))
def may_have_waited(machine_percent):
    cpu = {"machine_percent": machine_percent, "process_percent": 50}
    return "may have waited for a core" in find("python_overhead", python_between(0.2, cpu=cpu)).advice


@threshold("ranks.contention._MIN_SLOWDOWN", between=(1.05, 1.15))
def is_worth_a_note(slowdown):
    return bool(
        build_contention_notes({"own_percent": 10, "others_percent": 80, "steal_percent": 0, "slowdown": slowdown})
    )


# -- garbage collections and compilations


@threshold("findings.rules.garbage_collection._MIN_REQUESTED", between=(2, 3))
def is_requested(num_calls):
    stalls = [
        {"kind": "gc", "name": "gc generation 2", "step": step, "total_ns": 5 * 10**6} for step in range(num_calls)
    ]
    drawn = Run(stalls=stalls, parts=lambda rank, step: {"gc": 5 * 10**6 if step < num_calls else 0})
    return "out of the step" in find("garbage_collection", drawn).advice


@threshold("findings.rules.garbage_collection._MIN_TRIGGER_SHARE", between=(0.45, 0.55))
def names_the_trigger(share):
    lines = {"a.py:1": share, **{f"b.py:{number}": (1 - share) / 5 for number in range(5)}}
    return "at a.py:1" in find("garbage_collection", pauses(0.2, lines=lines)).title


@threshold("findings.rules.recompilation._MAX_FIRST_STEPS", between=(2, 3))
def recompiles(num_steps):
    stalls = [
        {"kind": "compile", "name": "compile/f", "step": step, "total_ns": 5 * 10**6} for step in range(num_steps)
    ]
    drawn = Run(stalls=stalls, parts=lambda rank, step: {"compile": 5 * 10**6 if step < num_steps else 0})
    return find("recompilation", drawn).title.startswith("Recompilation")
