"""Pictures in the docs, in light and dark: ``make pictures``, or this script with names of `SUBJECTS`.

The README and the page on GPUs show the report of a simulated run with two faults. The others show real training runs:
four ranks with a suspended one, steps recorded on request, outlier steps, and the tutorials, one of them simulated.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, sync_playwright
from rich.console import Console

from kinetoscope.cli import main
from kinetoscope.status.health import RunState, read_run_status
from kinetoscope.status.status_screen import build_status_screen
from kinetoscope.status.terminal import render_status
from support.chromium import chromium, launch_chromium
from support.tutorials import Reader, page_of
from support.view_server import served
from trainsim import Fault, Settings, simulate

PICTURES = Path(__file__).parent
EXAMPLE = PICTURES.parents[1] / "examples" / "train_digits.py"
SIZE, STATUS_SIZE = ViewportSize(width=1280, height=840), ViewportSize(width=1000, height=840)
ANNOTATED_SIZE = ViewportSize(width=1280, height=1080)
TUTORIAL_SIZE, TABLE_SIZE = ViewportSize(width=1000, height=560), ViewportSize(width=760, height=840)
TUTORIALS = ("data-loading", "straggler", "memory-growth", "pipeline", "waiting-device")
NUM_RANKS, SUSPENDED_RANK, NUM_STEPS, SUSPENDED_S, MAX_WAIT_S = 4, 2, 300, 12, 300
TESTS = PICTURES.parents[1] / "tests"
NUM_SLOW_STEPS = 900
RUN = Settings(
    num_ranks=4,
    num_steps=24,
    step_ns=12_000_000,
    has_stacks=True,
    faults=(Fault(kind="slow_loader", cost_ns=22_000_000), Fault(kind="leak", num_bytes=8_000_000)),
)


def write_report(folder: Path) -> Path:
    """Write the report of a simulated run with a slow DataLoader and a memory leak, which is always the same."""
    run, file = folder / "slow-loader", folder / "report.html"  # the folder is what the report is titled by
    simulate(RUN).write(run)
    if main(["report", "--no-cache", str(run), "-o", str(file)]) != 0:
        sys.exit("The report was not written, so there is nothing to take a picture of.")
    return file


def report_on_slow_steps(folder: Path) -> Path:
    """Write the report of a training run of 900 steps with some slow ones."""
    program, run, file = (
        TESTS / "support" / "programs" / "slow_steps.py",
        folder / "outliers",
        folder / "slow-steps.html",
    )
    slow = {163: "data_wait", 337: "forward", 608: "backward", 741: "forward"}
    slow |= dict.fromkeys(range(99, NUM_SLOW_STEPS, 100), "checkpoint")
    command = [sys.executable, program, run, folder / "times", NUM_SLOW_STEPS, json.dumps(slow)]
    subprocess.run(list(map(str, command)), check=True)
    if main(["report", "--no-cache", str(run), "-o", str(file)]) != 0:
        sys.exit("The report on slow steps was not written, so there is nothing to take a picture of.")
    return file


def report_of_tutorial(name: str, folder: Path) -> Path:
    """Follow a tutorial up to its report, which is of the run with the fault, and return that."""
    (folder / name).mkdir()
    (folder / name / "tests").symlink_to(TESTS)  # for the one whose run is simulated
    Reader(folder / name).follow(page_of(name), until="kinetoscope report ")
    (report,) = (folder / name).glob("runs/*/report.html")
    return report


def take(
    browser: Browser,
    address: str,
    name: str,
    size: ViewportSize = SIZE,
    wait_for: str = ".findings > ol > li",
    script: str = "() => {}",
    part: str = "",
) -> None:
    """Take the first view of a page, or a part of it, once a selector is there and a script has run."""
    for scheme, suffix in (("light", ""), ("dark", "-dark")):
        page = browser.new_page(viewport=size, color_scheme=scheme, locale="en-GB", timezone_id="UTC")
        page.goto(address)
        page.wait_for_selector(wait_for)
        page.evaluate("document.fonts.ready")
        page.evaluate(script)
        of = page.locator(part) if part else page
        of.screenshot(path=PICTURES / f"{name}{suffix}.png", animations="disabled")
        page.close()


LABEL_AS_SIMULATED = """() => {
  const label = document.createElement("div");
  label.textContent = "Simulated run: no GPU took part in it";
  label.style.cssText = "padding: 6px; background: #c2255c; color: white; text-align: center";
  label.style.font = "bold 17px sans-serif";
  document.body.prepend(label);
}"""
NUMBER_PLACES = """() => PLACES.forEach((place, index) => {
  const box = document.querySelector(place).getBoundingClientRect();
  const mark = document.body.appendChild(document.createElement("span"));
  mark.textContent = index + 1;
  mark.style.cssText = `position: absolute; left: ${box.right - 14}px; top: ${box.top - 6}px; width: 28px; height: 28px;
    border-radius: 50%; background: #c2255c; color: white; font: bold 17px/28px sans-serif; text-align: center`;
})"""
REPORT_PLACES = [".hero", ".breakdown", ".findings > ol > li", ".step-picture h3", ".step-picture .numbers"]
NUMBER_REPORT = NUMBER_PLACES.replace("PLACES", json.dumps(REPORT_PLACES), 1)
"""Numbers the places that `docs/first-report.md` explains."""


@contextmanager
def training(run: Path) -> Iterator[None]:
    """Train on the digits, in the background, until the block ends."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}"]
    command = [*torchrun, EXAMPLE, "--epochs", "100000", "--out", run]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "KINETOSCOPE_HANG_S": "3"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        try:
            wait_for(lambda: has_trained(run))
            yield
        finally:
            process.kill()
            for rank in read_run_status(run).ranks:  # else they would train for ever, without their launcher
                os.kill(rank.pid, signal.SIGKILL)


def suspend_one_rank(run: Path) -> None:
    """Suspend one rank of a training run for a while."""
    os.kill({rank.rank: rank.pid for rank in read_run_status(run).ranks}[SUSPENDED_RANK], signal.SIGSTOP)
    wait_for(lambda: read_run_status(run).state is RunState.HUNG)
    time.sleep(SUSPENDED_S)


def has_trained(run: Path) -> bool:
    ranks = read_run_status(run).ranks
    return len(ranks) == NUM_RANKS and all(rank.num_steps > NUM_STEPS for rank in ranks)


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + MAX_WAIT_S
    while not what():
        if time.monotonic() > until:
            sys.exit("The training has not come so far, so there is nothing to take a picture of.")
        time.sleep(0.1)


def record_training(folder: Path) -> Path:
    """Write the report of steps recorded on request; the output of the terminal is printed, for the docs."""
    run = folder / "recorded"
    with training(run):
        if main(["record", str(run), "--report"]) != 0:
            sys.exit("Not all ranks have recorded the steps, so there is nothing to take a picture of.")
    return run / "report.html"


def take_report(browser: Browser, folder: Path) -> None:
    """Take the report of the simulated run: unmodified, with numbered places, and with a label."""
    report = write_report(folder).as_uri()
    take(browser, report, "report")
    take(browser, report, "first-report", ANNOTATED_SIZE, script=NUMBER_REPORT)
    take(browser, report, "gpu", script=LABEL_AS_SIMULATED)


def take_tutorial(name: str, browser: Browser, folder: Path) -> None:
    take(browser, report_of_tutorial(name, folder).as_uri(), name, TUTORIAL_SIZE)


def take_layers(browser: Browser, folder: Path) -> None:
    """Take the modules in the report of the tutorial that finds a layer."""
    address = report_of_tutorial("find-the-layer", folder).as_uri()
    take(browser, f"{address}#view=modules", "find-the-layer", TUTORIAL_SIZE, wait_for="main table")


def take_status(browser: Browser, folder: Path) -> None:
    """Take the page of a running job; the output of the terminal is printed, for the docs."""
    run = folder / "digits"
    with training(run), served(run) as server:
        suspend_one_rank(run)
        Console(width=100, highlight=False).print(render_status(build_status_screen(read_run_status(run)), 100))
        take(browser, server.link, "status", STATUS_SIZE, wait_for=".now tbody tr")


def take_record(browser: Browser, folder: Path) -> None:
    take(browser, record_training(folder).as_uri(), "record", TUTORIAL_SIZE)


def take_slow_steps(browser: Browser, folder: Path) -> None:
    report = report_on_slow_steps(folder).as_uri()
    take(browser, report, "slow-steps", TABLE_SIZE, wait_for=".slow-steps", part=".slow-steps")


SUBJECTS: dict[str, Callable[[Browser, Path], None]] = {
    "report": take_report,
    **{name: partial(take_tutorial, name) for name in TUTORIALS},
    "find-the-layer": take_layers,
    "status": take_status,
    "record": take_record,
    "slow-steps": take_slow_steps,
}

if __name__ == "__main__":
    if chromium() is None:
        sys.exit("Chromium is not installed. On Debian: apt install chromium.")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        for subject in sys.argv[1:] or SUBJECTS:
            SUBJECTS[subject](browser, Path(folder))
        browser.close()
