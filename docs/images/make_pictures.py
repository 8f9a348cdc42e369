"""``make pictures``: takes the README's pictures of the report of a simulated run with two faults, light and dark."""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from kinetoscope.cli import main
from simulated_training import Fault, Settings, simulate

PICTURES = Path(__file__).parent
SIZE = {"width": 1280, "height": 840}
RUN = Settings(
    num_ranks=4,
    num_steps=24,
    step_ns=12_000_000,
    has_stacks=True,
    faults=(Fault(kind="slow_loader", cost_ns=22_000_000), Fault(kind="leak", num_bytes=8_000_000)),
)


def write_report(folder: Path) -> Path:
    """The report of a run whose data loader is slow and whose memory grows. The same settings give the same run."""
    run, file = folder / "slow-loader", folder / "report.html"  # the folder is what the report is titled by
    simulate(RUN).write(run)
    if main(["report", "--no-cache", str(run), "-o", str(file)]) != 0:
        sys.exit("The report was not written, so there is nothing to take a picture of.")
    return file


def take_picture(browser: Browser, report: Path, scheme: str, picture: Path) -> None:
    """The first view, as it looks when the file is opened."""
    page = browser.new_page(viewport=SIZE, color_scheme=scheme, locale="en-GB", timezone_id="UTC")
    page.goto(report.as_uri())
    page.wait_for_selector(".findings > ol > li")
    page.evaluate("document.fonts.ready")
    page.screenshot(path=picture, animations="disabled")
    page.close()


if __name__ == "__main__":
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed. On Debian: apt install chromium.")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = write_report(Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        take_picture(browser, report, "light", PICTURES / "report.png")
        take_picture(browser, report, "dark", PICTURES / "report-dark.png")
        browser.close()
