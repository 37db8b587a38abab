"""The pictures of the README, of the page that `make demo` writes: `make screenshots`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from fairmfu.cli import main
from tests.support.browser import launched, opened
from tests.support.folders import ROOT

IMAGES: Final = ROOT / "docs" / "images"
RUN: Final = "torchtitan-0.2.2/bf16"
DRAWN: Final = """() => [...document.querySelectorAll(".chart")].every(chart =>
  chart.getBoundingClientRect().top > innerHeight || chart.querySelector("svg"))"""
"""All charts that are on the screen, or were passed."""


def fairmfu(*words: object) -> str:
    """What a command prints."""
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False).stdout


def draw(store: Path, page: Path) -> None:
    """The first screen, and the beginning of one run's part."""
    runs = json.loads(fairmfu("runs", "--store", store, "--format", "json"))
    run_id = next(run["run_id"] for run in runs if run["name"] == RUN)
    place = f"#run-{run_id}"
    with launched() as browser:
        with opened(browser, page, width=1280, height=880) as tab:
            tab.until(DRAWN)
            tab.page.screenshot(path=IMAGES / "report.png")
        with opened(browser, page, width=1280, height=880, fragment=place[1:]) as tab:
            tab.until("(place) => document.querySelector(`${place} .chart svg`)", place)
            tab.page.locator(place).evaluate("fold => fold.scrollIntoView()")
            tab.page.screenshot(path=IMAGES / "run.png")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
