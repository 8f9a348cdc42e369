"""References for the pulse: the blocks of all steps that were recorded, and the slow ones among them."""

from statistics import median_high

from kinetoscope.pulse.layout import BLOCK, NUM_EXACT, NUM_FINE, STEP, STEPS_AT, STEPS_PER_FINE


def last_step(file: bytes, num_steps: int) -> tuple[int, ...]:
    """Return the last of so many steps, as it is in the file."""
    return STEP.unpack_from(file, STEPS_AT + (num_steps - 1) % NUM_EXACT * STEP.size)


def expected_blocks(steps: list[tuple[int, ...]], num_places: int) -> tuple[list[tuple], list[tuple], int]:
    """Return the fine and the coarse blocks of all steps, the unfinished one last, and the steps of a coarse block."""
    summed_up = steps[: max(0, len(steps) - NUM_EXACT)]
    num_fine = len(summed_up) // STEPS_PER_FINE
    first_fine = max(0, num_fine - NUM_FINE)
    fine = [
        summed_up[at : at + STEPS_PER_FINE] for at in range(first_fine * STEPS_PER_FINE, len(summed_up), STEPS_PER_FINE)
    ]
    old, per_coarse = summed_up[: first_fine * STEPS_PER_FINE], NUM_EXACT
    while len(old) // per_coarse >= num_places:
        per_coarse *= 2
    coarse = [old[at : at + per_coarse] for at in range(0, len(old), per_coarse)]
    return [_sum_up(some) for some in fine], [_sum_up(some) for some in coarse], per_coarse


def _sum_up(steps: list[tuple[int, ...]]) -> tuple:
    number, began_ns, *_, epoch, _ = steps[0]
    known = -1
    for step in steps:
        known &= step[-1]
    slowest = max(steps, key=lambda step: step[2])[0]
    sums = []
    for column in range(2, len(steps[0]) - 2):
        times = [step[column] for step in steps]
        sums += [sum(times), sum(float(time) ** 2 for time in times), float(min(times)), float(max(times))]
    return (number, began_ns, slowest, len(steps), epoch, known, 0, *sums)


def block_at(file: bytes, at: int) -> tuple:
    """Return the block at a place of the file."""
    return BLOCK.unpack_from(file, at)


def find_slow_steps(steps: list[tuple[int, tuple[int, ...], int | None]]) -> list[tuple[int, tuple, tuple, int]]:
    """Return the number, times, usual times and limit of each slow step; see `SlowSteps` in ``_native.pyi``.

    The times of a step are its duration, its time in each phase, and its run-queue delay.
    """
    found, recent, limit_ns = [], [None] * 256, None
    for number, times in enumerate(steps):
        recent[number % 256] = times
        known = [each for each in recent if each is not None]
        is_slow = limit_ns is not None and times[0] > limit_ns
        if len(known) >= 64 and (is_slow or (number + 1) % 32 == 0):
            usual_ns, limit_ns = _limits([duration_ns for duration_ns, _, _ in known])
        if is_slow and times[0] > limit_ns:
            by_phase = tuple(median_high(each[1][phase] for each in known) for phase in range(len(times[1])))
            delay_ns = median_high(-1 if each[2] is None else each[2] for each in known)
            found.append((number, times, (usual_ns, by_phase, None if delay_ns == -1 else delay_ns), limit_ns))
    return found


def _limits(durations: list[int]) -> tuple[int, int]:
    usual_ns, thirteenth_ns = median_high(durations), sorted(durations)[-13]
    deviation_ns = median_high(abs(duration_ns - usual_ns) for duration_ns in durations)
    limit_ns = usual_ns + max(8 * deviation_ns, usual_ns // 5)
    if thirteenth_ns > limit_ns:
        return usual_ns, thirteenth_ns + thirteenth_ns // 3
    return usual_ns, max(limit_ns, thirteenth_ns + thirteenth_ns // 10)
