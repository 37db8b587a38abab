"""The pages as a reader has them: in Chromium, from the disk, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from playwright.sync_api import Browser

from ingest import intake
from ingest.store import Store
from metrics.utilization import analyse
from reports import night_page, page
from reports.content import Content, content
from reports.document import Sheet
from tests.browser import NAMES, Tab, chromium, launched, opened
from tests.nights import plan_of, write_night
from tests.told_nights import regression

SAMPLES: Final = Path(__file__).parent.parent / "sample_logs"

pytestmark = pytest.mark.skipif(
    chromium() is None,
    reason=f"NO PAGE IS TESTED: none of {', '.join(NAMES)} is a program; CONTRIBUTING.md",
)

SCRIPT: Final = "</script><script>document.title='owned'</script>"
NAME: Final = f"{SCRIPT}<img src=x onerror=\"document.title='owned'\">"
ODD_NAME: Final = "{{7*7}} ${7*7} \u2028 \u202egnp.exe\u202c שלום <!--fold 0--> &amp;"
HOSTILE: Final = (NAME, ODD_NAME)
SERIES: Final = (0, 2, 9, 12)
"""Of tests.nights: H100 runs of Torchtitan, one of them in FP8, of Megatron and XTuner."""


# --- the pages ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """Of sample_logs and some simulated nights; texts of two runs are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    for night in (1, 2):
        write_night(folder / "nights", night, plan_of(seed=3), only=SERIES)
    store = Store(folder / "store")
    intake.ingest([SAMPLES, folder / "nights"], store)
    tables = hostile(store.tables())
    analysis = analyse(tables)
    return content(analysis, analysis.metrics, tables, "All runs", None, "1.2.3")


def hostile(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Two runs have names that no log should have, and all their texts do."""
    chosen = tables["runs"].filter(pl.col("name").str.contains("torchtitan|xtuner")).sort("name")
    ids, sources = chosen["run_id"][:2].to_list(), chosen["sha256"][:2].to_list()
    text = pl.col("run_id").replace_strict(dict(zip(ids, HOSTILE, strict=True)), default=None)
    name = pl.coalesce(text, "name").alias("name")
    of = pl.col("sha256").replace_strict(dict(zip(sources, HOSTILE, strict=True)), default=None)
    first = {"run_id": ids[0], "origin": NAME, "line": 1, "sequence": 10_000}
    facts = pl.DataFrame([{**first, "name": fact, "value": NAME} for fact in ("optimizer", NAME)])
    lines = pl.DataFrame([{"sha256": sha, "line": 7, "reason": NAME, "text": NAME} for sha in sources])
    event = {"run_id": ids[0], "line": 30, "kind": "error", "text": NAME}
    return tables | {
        "runs": tables["runs"].with_columns(name),
        "sources": tables["sources"].with_columns(pl.coalesce(of + ".log", "path").alias("path")),
        "facts": pl.concat([tables["facts"], facts], how="diagonal_relaxed"),
        "events": pl.concat([tables["events"], pl.DataFrame([event])], how="diagonal_relaxed"),
        "unread": pl.concat([tables["unread"], lines], how="diagonal_relaxed"),
    }


@pytest.fixture(scope="session")
def report(told: Content, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.render(told), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nightly")
    (folder / night_page.STATUS).write_text(night_page.status_js(), encoding="utf-8")
    path = folder / "index.html"
    path.write_text(night_page.page(regression()), encoding="utf-8")
    return path


Reading = Callable[..., AbstractContextManager[Tab]]


@pytest.fixture
def reading(browser: Browser) -> Reading:
    """Open a page; whatever went wrong in it fails the test at the end."""

    @contextmanager
    def read(path: Path, **how: Any) -> Iterator[Tab]:
        with opened(browser, path, **how) as tab:
            yield tab
            assert tab.trouble == []

    return read


# --- what a reader does --------------------------------------------------------------------

UNFOLD: Final = """async () => {
  const closed = () => [...document.querySelectorAll("details:not([open])")];
  const packed = () => document.querySelector("details[open][data-packed]");
  for (let folds = closed(); folds.length; folds = closed()) {
    for (const fold of folds) fold.open = true;
    do await new Promise((then) => setTimeout(then, 20)); while (packed());
  }
}"""
"""Opens all folds, and those within them."""

DRAW: Final = """async () => {
  const drawn = [];
  for (const figure of document.querySelectorAll("figure")) {
    figure.scrollIntoView();
    const late = performance.now() + 10000;
    while (!figure.querySelector(".chart svg") && performance.now() < late)
      await new Promise((then) => setTimeout(then, 5));
    drawn.push({
      kind: figure.dataset.kind ?? figure.getAttribute("aria-label"),
      marks: figure.querySelectorAll("svg .role-mark:not(.mark-group) > :is(path, line, text)").length,
      words: figure.querySelector("svg")?.textContent ?? "",
    });
  }
  return drawn;
}"""
"""Goes through the page to each figure; what was drawn there, in order."""

TEXT: Final = "document.body.innerText"
"""What is seen of the page but for its charts."""


def choose(tab: Tab, name: str, value: str) -> None:
    """Take a choice of the controls: a radio button or an item of a list."""
    radio = tab.page.locator(f'input[name="{name}"][value="{value}"]')
    if radio.count():
        radio.check()
    else:
        tab.page.select_option(f'select[name="{name}"]', value)


# --- that these tests can fail -------------------------------------------------------------


def test_what_goes_wrong_in_a_page_is_seen(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<meta http-equiv='Content-Security-Policy' content=\"script-src 'nonce-a'\">"
        "<img src='http://example.com/x.png'><script>document.title = 'owned'</script>"
        "<script nonce='a'>console.warn('careful'); fail()</script>"
    )
    with opened(browser, path) as tab:
        found = "\n".join(tab.trouble)
    for what in ("network: http://example.com", "Security Policy", "careful", "exception: "):
        assert what in found


# --- the report ----------------------------------------------------------------------------


def test_every_figure_is_drawn_where_a_reader_comes_by(reading: Reading, report: Path) -> None:
    with reading(report) as tab:
        tab.ask(UNFOLD)
        drawn = tab.ask(DRAW)
    assert [one["kind"] for one in drawn if not one["marks"]] == []
    assert len(drawn) > 30
