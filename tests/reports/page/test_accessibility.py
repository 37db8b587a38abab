"""The pages by axe-core: names, roles, landmarks, keyboard, contrast in both themes."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.reports.nightly import night_html
from fairmfu.reports.page import html_report
from fairmfu.reports.page.report_data import report
from tests.reports.page.test_browser import all_open
from tests.support.browser import NAMES, Tab, chromium, opened
from tests.support.effort import thorough_only
from tests.support.folders import ROOT
from tests.support.told_nights import regression

pytestmark = pytest.mark.skipif(
    chromium() is None, reason=f"NO PAGE IS TESTED: no {' nor '.join(NAMES)}"
)

SHOWN: Final = "* { content-visibility: visible !important }"
"""Axe skips what the browser has not laid out yet."""
THREE: Final = "h200"
EVERY: Final = ""
"""Folders of the sample logs."""


@pytest.fixture(scope="module")
def pages() -> dict[str, tuple[Path, str]]:
    """Pages of sample logs made so far; each with the part of its address that compares runs."""
    return {}


def page_of(name: str, folder: Path, pages: dict[str, tuple[Path, str]]) -> tuple[Path, str]:
    if name not in pages:
        store, path = Store(folder / "store"), folder / "report.html"
        ingest_run.ingest_paths([ROOT / "sample_logs" / name], store)
        content = report(store.tables())
        path.write_text(html_report.render_page(content), encoding="utf-8")
        pages[name] = path, f"compare={','.join([*content.data['runs']][:3])}"
    return pages[name]


def violations(tab: Tab) -> list[str]:
    """Rules that the page breaks, with the elements."""
    tab.page.add_style_tag(content=SHOWN)
    found = Axe().run(tab.page).response["violations"]
    return [f"{one['id']}: {node['html'][:300]}" for one in found for node in one["nodes"]]


CASES: Final = [
    pytest.param((name, width, scheme), marks=marks, id=f"{name or 'all'}, {width} px, {scheme}")
    for name in (THREE, EVERY)
    for width in (1440, 400)
    for scheme in ("light", "dark")
    for usual in [(width == 400) == (scheme == "dark") and (name == THREE or width > 400)]
    for marks in [() if usual else thorough_only]
]


@pytest.mark.parametrize("case", CASES)
def test_axe_finds_no_violation(
    browser: Browser,
    tmp_path: Path,
    pages: dict[str, tuple[Path, str]],
    case: tuple[str, int, Literal["light", "dark"]],
) -> None:
    name, width, scheme = case
    path, fragment = page_of(name, tmp_path, pages)
    with opened(browser, path, fragment=fragment, width=width, scheme=scheme) as tab:
        tab.page.locator("#compare svg .mark-line").first.wait_for()
        if name == THREE:
            all_open(tab)
        assert violations(tab) == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=thorough_only)])
def test_axe_finds_no_violation_on_the_nightly_page(
    browser: Browser, tmp_path: Path, scheme: Literal["light", "dark"]
) -> None:
    (tmp_path / night_html.STATUS_FILE).write_text(night_html.status_js(), encoding="utf-8")
    path = tmp_path / "index.html"
    path.write_text(night_html.pages(regression())[0], encoding="utf-8")  # type: ignore[no-untyped-call]
    with opened(browser, path, width=400 if scheme == "dark" else 1440, scheme=scheme) as tab:
        assert violations(all_open(tab)) == []


def test_axe_sees_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text('<html lang="en"><title>bad</title><main><input></main></html>')
    with opened(browser, path) as tab:
        assert any("label" in words for words in violations(tab))
