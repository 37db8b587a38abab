"""The page of 2,000 runs in Chromium: order, search, CSV and comparison as the data are. Long."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from playwright.sync_api import Browser

from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.reports.page import html_report
from fairmfu.reports.page.report_data import MAX_PAGE_PARTS, ReportContent, report
from tests.reports.page.test_browser import six_digits
from tests.reports.page.test_page_script import COPIED
from tests.support.browser import NAMES, Tab, chromium, untroubled
from tests.support.effort import thorough_only
from tests.support.nights import plan_of, write_night

pytestmark = [
    thorough_only,
    pytest.mark.skipif(chromium() is None, reason=f"NO PAGE IS TESTED: no {' nor '.join(NAMES)}"),
]

RUNS: Final = 2_000
COLUMNS: Final = {
    "TGS [tokens/s/GPU]": ("TGS", "tgs"),
    "GPUs": ("GPUs", "gpus"),
    "Model": ("Model", "model"),
    "Framework": ("Framework", "framework"),
}
"""Heading in CSV, heading on the page, and key of the JSON."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ReportContent]:
    folder = tmp_path_factory.mktemp("many")
    plan, logs = plan_of(seed=59), 0
    for night in range(1, RUNS + 1):
        logs += len(write_night(folder / "logs", night, plan))
        if logs >= RUNS:
            break
    store, path = Store(folder / "store"), folder / "report.html"
    ingest_run.ingest_paths([folder / "logs"], store)
    content = report(store.tables(), most_described=MAX_PAGE_PARTS)
    path.write_text(html_report.render_page(content), encoding="utf-8")
    return path, content


def natural(text: str) -> list[str | int]:
    """A text by its parts, with numbers as numbers: llama-2 is before llama-13."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def copied(tab: Tab) -> list[dict[str, str]]:
    tab.ask("() => { window.copied = '' }")
    tab.page.get_by_role("button", name=re.compile("^Copy")).press("Enter")
    tab.until("() => window.copied")
    return [*csv.DictReader(io.StringIO(tab.ask("window.copied")))]


def test_two_thousand_runs_are_sorted_searched_and_compared(
    browser: Browser, many: tuple[Path, ReportContent]
) -> None:
    path, content = many
    runs: dict[str, Any] = content.data["runs"]
    chance = Random(59)  # noqa: S311 - a choice of rows
    with untroubled(browser, path, script_before=COPIED) as tab:
        tab.page.locator("#runs details > summary").first.click()
        for title, (heading, key) in COLUMNS.items():
            tab.page.locator("#runs thead").get_by_role("button", name=heading, exact=True).click()
            lines = copied(tab)
            assert len(lines) == len(runs) >= RUNS
            values = [six_digits(runs[line["Run id"]][key]) for line in lines]
            known = [value for value in values if value is not None]
            falls = key in {"tgs", "gpus"}
            assert known == sorted(known, key=None if falls else natural, reverse=falls), title
        for _ in range(10):
            model = chance.choice([*{run["model"] for run in runs.values() if run["model"]}])
            gpus = chance.choice([8, 64])
            tab.page.get_by_label("Search all columns").fill(f"model:{model} gpus:{gpus}")
            fitting = {
                run_id
                for run_id, run in runs.items()
                if model in (run["model"] or "") and run["gpus"] == gpus
            }
            assert {line["Run id"] for line in copied(tab)} == fitting
        tab.page.get_by_label("Search all columns").fill("")
        others = [run_id for run_id in runs if run_id not in content.described]
        chosen = [*chance.sample([*content.described], 4), *chance.sample(others, 4)]
        tab.ask("(ids) => { location.hash = `compare=${ids}` }", ",".join(chosen))
        tab.page.locator("#compare .mark-line").first.wait_for()
        assert tab.page.locator("#compare .chosen-runs li").count() == 8
