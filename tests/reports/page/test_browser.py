"""The pages as a reader has them: in Chromium, from the disk, without a network."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import eq, ge, gt, le, lt
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl
import pytest

from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.speed_levels import OTHER_SPEED
from fairmfu.reports.charts import charts
from fairmfu.reports.nightly import night_html
from fairmfu.reports.page import html_report, report_data
from fairmfu.reports.page.html_document import Sheet
from fairmfu.reports.page.html_run import accelerator_of
from fairmfu.reports.page.report_data import ReportContent, build_content
from fairmfu.reports.text.tabular import GIB, count_noun
from tests.reports.page.test_html_report import FACTS as RUN_FACTS
from tests.reports.page.test_html_report import a_run, a_store, changed_speed
from tests.support.nights import plan_of, write_night
from tests.support.told_nights import regression

pytest.importorskip("playwright.sync_api", reason="NO PAGE IS TESTED: playwright is missing")

from playwright.sync_api import Browser

from tests.support.browser import NAMES, Reading, Tab, chromium, opened, untroubled
from tests.support.effort import THOROUGH, thorough_only
from tests.support.folders import ROOT
from tests.support.markup import paragraph

SAMPLES: Final = ROOT / "sample_logs"

pytestmark = pytest.mark.skipif(
    chromium() is None,
    reason=f"NO PAGE IS TESTED: none of {', '.join(NAMES)} is a program; CONTRIBUTING.md",
)

SCRIPT: Final = "</script><script>document.title='owned'</script>"
NAME: Final = f"{SCRIPT}<img src=x onerror=\"document.title='owned'\">"
ODD_NAME: Final = "{{7*7}} ${7*7} \u2028 \u202egnp.exe\u202c שלום <!--fold 0--> &amp;"
HOSTILE: Final = (NAME, ODD_NAME)
SAMPLES_TOLD: Final = (
    "synthetic",
    *(f"genuine/{name}" for name in ("torchtitan-0.3.0", "xtuner-0.2.0")),
)
"""Runs that can be ranked, and runs that can't."""
SERIES: Final = (2,)
"""Of tests.support.nights: one of Torchtitan in FP8."""


# --- the pages ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> ReportContent:
    """Of sample_logs and some simulated nights; texts of two runs are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    write_night(folder / "nights", 1, plan_of(seed=3), only=SERIES)
    store = Store(folder / "store")
    ingest_run.ingest_paths([*(SAMPLES / name for name in SAMPLES_TOLD), folder / "nights"], store)
    return content_of(hostile(store.tables()))


def content_of(tables: dict[str, pl.DataFrame], most_described: int | None = None) -> ReportContent:
    analysis = analyse(tables)
    return build_content(
        analysis,
        analysis.metrics,
        tables,
        "All runs",
        None,
        "1.2.3",
        most_described=most_described,
    )


def hostile(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Two runs have names that no log should have, and all their texts do."""
    chosen = tables["runs"].filter(pl.col("name").str.contains("torchtitan|xtuner")).sort("name")
    ids, sources = chosen["run_id"][:2].to_list(), chosen["sha256"][:2].to_list()
    text = pl.col("run_id").replace_strict(dict(zip(ids, HOSTILE, strict=True)), default=None)
    name = pl.coalesce(text, "name").alias("name")
    of = pl.col("sha256").replace_strict(dict(zip(sources, HOSTILE, strict=True)), default=None)
    first = {"run_id": ids[0], "origin": NAME, "line": 1, "sequence": 10_000}
    facts = pl.DataFrame([{**first, "name": fact, "value": NAME} for fact in ("optimizer", NAME)])
    lines = pl.DataFrame(
        [{"sha256": sha, "line": 7, "reason": NAME, "text": NAME} for sha in sources]
    )
    event = {"run_id": ids[0], "line": 30, "kind": "error", "text": NAME}
    return tables | {
        "runs": tables["runs"].with_columns(name),
        "sources": tables["sources"].with_columns(pl.coalesce(of + ".log", "path").alias("path")),
        "facts": pl.concat([tables["facts"], facts], how="diagonal_relaxed"),
        "events": pl.concat([tables["events"], pl.DataFrame([event])], how="diagonal_relaxed"),
        "unread": pl.concat([tables["unread"], lines], how="diagonal_relaxed"),
    }


@pytest.fixture(scope="session")
def report(told: ReportContent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_report.render_page(told), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nightly")
    (folder / night_html.STATUS_FILE).write_text(night_html.status_js(), encoding="utf-8")
    path = folder / "index.html"
    night = regression()  # type: ignore[no-untyped-call]
    path.write_text(night_html.pages(night)[0], encoding="utf-8")
    return path


@pytest.fixture
def reading(browser: Browser) -> Reading:
    """Open a page; whatever went wrong in it fails the test at the end."""
    return partial(untroubled, browser)


@pytest.fixture(scope="session")
def explored(browser: Browser, report: Path) -> Iterator[Tab]:
    """The report with all folds open and all charts drawn; who uses it leaves it as it was."""
    with opened(browser, report) as tab:
        yield all_open(tab)
        assert tab.trouble == []


@pytest.fixture(scope="session", params=["report", "nightly"])
def narrow(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A page as a telephone has it, with all folds open and all charts drawn."""
    path = request.getfixturevalue(request.param)
    with opened(browser, path, width=390, height=844) as tab:
        yield all_open(tab)
        assert tab.trouble == []


# --- what a reader does, in JavaScript ------------------------------------------------------

UNFOLD: Final = """async () => {
  const closed = () => [...document.querySelectorAll("details:not([open])")];
  for (let folds = closed(); folds.length; folds = closed()) {
    for (const fold of folds) fold.open = true;
    do await new Promise((then) => setTimeout(then, 20));
    while (document.querySelector("details[open][data-packed], [aria-busy=true]"));
  }
}"""
"""Opens all folds, and those within them."""

LOOK: Final = """async () => {
  for (const figure of document.querySelectorAll("figure")) {
    if (!figure.checkVisibility()) continue;
    const late = performance.now() + 10000;
    do {
      figure.scrollIntoView();
      await new Promise((then) => setTimeout(then, 5));
      if (performance.now() > late) throw new Error(`not drawn: ${figure.dataset.kind}`);
    } while (!figure.querySelector(".chart svg"));
  }
  scrollTo(0, 0);
}"""
"""Goes to each figure that is not in a closed fold, until it is drawn.

Again and again: a page that was opened at a link goes back to it until it is at rest.
"""

DRAWN: Final = """() => [...document.querySelectorAll("figure")].map((figure) => ({
  kind: figure.dataset.kind ?? figure.getAttribute("aria-label"),
  marks: [...figure.querySelectorAll(".role-mark:not(.mark-group) > :is(path, line, text)")].map(
    (mark) => ["d", "transform", "x2", "y2", "opacity"].map((name) => mark.getAttribute(name))
      .join(" ") + mark.textContent
  ),
}))"""
"""Where the marks of each figure stand, and what they say."""

SEEN: Final = """() => [...document.querySelectorAll("[data-of]")].filter(
  (cell) => cell.checkVisibility() && !cell.querySelector("[data-of]")
).map((cell) => {
  let path = cell.dataset.of;
  for (let at = cell; at = at.parentElement.closest("[data-at]");)
    path = at.dataset.at + "." + path;
  return [path, cell.textContent];
})"""
"""Every number that is seen, behind its path in the JSON of the report."""

RUNS: Final = """() => [...new Set([...document.querySelectorAll("[data-run]:not(button)")].filter(
  (part) => part.checkVisibility()
).map((part) => part.dataset.run))]"""
"""Runs of which a row or a fold is seen."""


def figures(tab: Tab) -> list[tuple[str, list[str]]]:
    """Kind and marks of each figure."""
    return [(one["kind"], one["marks"]) for one in tab.ask(DRAWN)]


def redrawn(tab: Tab, before: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """The figures once they have changed and come to rest."""
    found, last = figures(tab), before
    for _ in range(200):
        if found != before and found == last:
            return found
        tab.page.wait_for_timeout(25)
        found, last = figures(tab), found
    return found


def choose(tab: Tab, name: str, value: str) -> None:
    """Take a choice of the controls: a radio button or an item of a list."""
    radio = tab.page.locator(f'input[name="{name}"][value="{value}"]')
    if radio.count():
        radio.check()
    else:
        tab.page.select_option(f'select[name="{name}"]', value)


def all_open(tab: Tab) -> Tab:
    """With every fold open and every figure drawn."""
    tab.ask(UNFOLD)
    tab.ask(LOOK)
    return tab


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


def test_only_what_is_near_is_drawn_at_first(reading: Reading, report: Path) -> None:
    with reading(report) as tab:
        tab.page.locator("figure svg").first.wait_for()
        assert 0 < tab.page.locator("figure svg").count() < 10


def test_every_figure_is_drawn_once_a_reader_comes_by(explored: Tab, told: ReportContent) -> None:
    found = figures(explored)
    assert [kind for kind, marks in found if not marks] == []
    courses = [kind for kind, _ in found if kind.startswith("course")]
    assert len(courses) == sum(bool(run["series"]) for run in told.data["runs"].values()) > 10


def test_the_comparison_has_a_mark_for_each_known_figure(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    """A dot for each TGS and MFU, a diamond for each that the log printed."""
    with reading(report) as tab:
        figure = tab.page.locator('figure[data-kind^="comparison"]').first
        figure.scroll_into_view_if_needed()
        figure.locator("svg").wait_for()
        marks = figure.locator("svg .role-mark.mark-symbol > path").count()
    drawn = ("tgs", "mfu", "logged_tgs", "logged_mfu")
    assert marks >= sum(row[name] is not None for row in told.groups[0] for name in drawn) > 6


TIP: Final = """() => Object.fromEntries(
  [...document.querySelectorAll("#vg-tooltip-element.visible tr")].map(
    ({cells: [name, value]}) => [name.textContent, value.textContent]))"""
"""Rows of the tooltip that is shown."""


def test_a_mark_says_of_its_run_what_is_known_and_no_more(
    reading: Reading, told: ReportContent, tmp_path: Path
) -> None:
    first = told.groups[0][0]
    row = first | {"label": "known", "synthetic": False}
    unknown = dict.fromkeys((n for n in row if n.startswith(("mfu", "flops_per_token"))), None)
    bare = row | {"label": "bare", "run_id": "bare"} | unknown
    sheet, path = Sheet(), tmp_path / "two.html"
    path.write_text(sheet.html("two", sheet.figure(charts.comparison([row, bare]))), "utf-8")
    tips = []
    with reading(path) as tab:
        for n in range(2):
            dot = tab.page.locator("g.concat_0_layer_2_marks > path").nth(n)
            dot.hover(force=True)
            tab.until(
                "(said) => document.querySelector('#vg-tooltip-element.visible')"
                "?.textContent.includes(said)",
                ("known", "bare")[n],
            )
            tips.append({name.rstrip(":"): text for name, text in tab.ask(TIP).items()})
    of_known, of_bare = tips
    assert of_known["TGS [tokens/s/GPU]"] == f"{row['tgs']:,.1f}"
    assert of_known["MFU"] == f"{row['mfu']:.1%}"
    assert of_known["formula"] == row["formula"]
    assert set(of_known) - set(of_bare) == {"MFU", "TFLOP/s per GPU"}
    assert {"null", "undefined", "0.0%"}.isdisjoint(of_bare.values())


FIRST: Final = {"attention": "exact", "peak": "own"}
OTHER: Final = {"attention": "full", "peak": "bf16"}
CHANGED: Final = {
    "attention": {"comparison", "course", "operators"},
    "peak": {"course", "mfu_by_run"},  # the FP8 run is like no other
}
"""Kinds of charts that at least look otherwise."""


@pytest.mark.parametrize("name", ["attention", "peak"])
def test_a_toggle_changes_every_mfu_and_back(explored: Tab, told: ReportContent, name: str) -> None:
    runs = told.data["runs"]
    before, drawn = explored.ask(SEEN), figures(explored)
    choose(explored, name, OTHER[name])
    then, anew = explored.ask(SEEN), redrawn(explored, drawn)
    choose(explored, name, FIRST[name])
    assert explored.ask(SEEN) == before
    assert redrawn(explored, anew) == drawn
    chosen = FIRST | {name: OTHER[name]}
    of, was = (f"mfu_{how['attention']}_{how['peak']}" for how in (chosen, FIRST))
    shown = dict(then)
    told_apart = [
        run_id
        for run_id, run in runs.items()
        if run[of] is not None and f"{run[of]:.1%}" != f"{run[was]:.1%}"
    ]
    assert len(told_apart) >= 1
    for run_id in told_apart:
        assert shown[f"runs.{run_id}.{of}"] == f"{runs[run_id][of]:.1%}".replace("%", " %")
    differ = {one[0].partition("-")[0] for one, two in zip(drawn, anew, strict=True) if one != two}
    assert differ >= CHANGED[name]


def test_filters_hide_the_other_runs_everywhere(explored: Tab, told: ReportContent) -> None:
    models = {run_id: run["model"] for run_id, run in told.data["runs"].items()}
    some = next(model for model in models.values() if model and "llama" in model)
    assert set(explored.ask(RUNS)) == set(models)
    before = figures(explored)
    choose(explored, "model", some)
    seen, fewer = explored.ask(RUNS), redrawn(explored, before)
    choose(explored, "model", "")
    assert set(seen) == {run_id for run_id, model in models.items() if model == some}
    assert sum(len(marks) for _, marks in fewer) < sum(len(marks) for _, marks in before)
    assert set(explored.ask(RUNS)) == set(models)
    assert redrawn(explored, fewer) == before


SELECTED: Final = """() => [...new Set([...document.querySelectorAll(".selected[data-run]")].map(
  (part) => part.dataset.run))]"""


def test_a_click_on_a_mark_selects_its_run_everywhere(explored: Tab, told: ReportContent) -> None:
    before = figures(explored)
    figure = explored.page.locator('figure[data-kind^="comparison"]').first
    figure.locator("svg .mark-symbol.role-mark > path").first.click(force=True)
    explored.until(f"() => ({SELECTED})().length === 1")
    ((run_id),) = explored.ask(SELECTED)
    address, faint = explored.ask("location.hash"), redrawn(explored, before)
    explored.page.keyboard.press("Escape")
    assert run_id in told.data["groups"][0]["runs"]
    assert run_id in address
    assert faint != before
    assert explored.ask(SELECTED) == []
    assert run_id not in explored.ask("location.hash")
    assert redrawn(explored, faint) == before


def test_a_run_is_selected_by_keyboard_alone(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    with reading(report) as tab:
        for _ in range(60):
            tab.page.keyboard.press("Tab")
            if tab.ask("document.activeElement.matches('button.pick')"):
                break
        run_id = tab.ask("document.activeElement.dataset.run")
        assert run_id in told.data["runs"]
        assert tab.ask("getComputedStyle(document.activeElement).outlineStyle") != "none"
        tab.page.keyboard.press("Enter")
        assert tab.ask(SELECTED) == [run_id]
        assert tab.ask("document.activeElement.getAttribute('aria-pressed')") == "true"
        tab.page.keyboard.press("Enter")
        assert tab.ask(SELECTED) == []


def test_a_link_keeps_what_was_chosen(reading: Reading, report: Path, told: ReportContent) -> None:
    run_id = told.data["groups"][0]["runs"][0]
    with reading(report) as tab:
        choose(tab, "attention", "full")
        tab.page.locator(f'button.pick[data-run="{run_id}"]').first.click()
        before, fragment = tab.ask(SEEN), tab.ask("location.hash.slice(1)")
    with reading(report, fragment=fragment) as tab:
        assert tab.ask(SELECTED) == [run_id]
        assert tab.ask(SEEN) == before
        assert tab.page.locator('input[value="full"]').is_checked()


def test_a_link_to_a_run_opens_it(reading: Reading, report: Path, told: ReportContent) -> None:
    run_id = list(told.data["runs"])[-1]
    with reading(report, fragment=f"run-{run_id}") as tab:
        tab.until("(id) => document.getElementById(id)?.open", f"run-{run_id}")
        assert tab.page.locator(f"#run-{run_id} > :not(summary)").first.is_visible()
        tab.page.locator(f"#run-{run_id} .chart svg").first.wait_for()
        summary = tab.page.locator(f"#run-{run_id} > summary").bounding_box()
        bar = tab.page.locator(".bar").bounding_box()
        assert summary
        assert bar
        assert bar["y"] + bar["height"] <= summary["y"] < 200


REST: Final = """async (id) => {
  const place = () => document.getElementById(id)?.getBoundingClientRect().top ?? NaN;
  const late = performance.now() + 15000;
  for (let still = 0, last = NaN; still < 12 && performance.now() < late;) {
    await new Promise((then) => setTimeout(then, 25));
    const busy = document.querySelector("details[open][data-packed], [aria-busy=true]");
    still = place() === last && !busy ? still + 1 : 0;
    last = place();
  }
  return place() - (parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0);
}"""
"""Pixels between an element and the place where a link should bring it, once all is at rest."""
CLOSE_PX: Final = 8


@pytest.mark.parametrize("width", [1440, pytest.param(800, marks=thorough_only), 400])
def test_a_link_lands_in_any_filter(
    reading: Reading, report: Path, told: ReportContent, width: int
) -> None:
    """Charts above took their size later, so runs were thousands of pixels below."""
    runs = {run_id: run for run_id, run in told.data["runs"].items() if run["model"]}
    run_id = list(runs)[len(runs) // 2]
    other = next(run["model"] for run in runs.values() if run["model"] != runs[run_id]["model"])
    place = f"run-{run_id}"
    with reading(report, width=width) as tab:
        choose(tab, "model", other)
        tab.ask("(id) => { location.hash = id }", place)
        assert abs(tab.ask(REST, place)) <= CLOSE_PX
        assert tab.page.input_value("select[name=model]") == ""
        assert tab.ask("location.hash") == f"#{place}"
        tab.ask("() => scrollTo(0, 0)")
        tab.page.locator(f'a[href="#{place}"]:visible').first.click()
        assert abs(tab.ask(REST, place)) <= CLOSE_PX
    with reading(report, width=width, fragment=f"model={other}&at={place}") as tab:
        assert abs(tab.ask(REST, place)) <= CLOSE_PX


def test_a_click_on_a_name_in_the_table_goes_to_the_run(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    """A click only marked the row; a small grey arrow beside it led to the run."""
    run_id = list(told.data["runs"])[-1]
    row = f'#runs tr[data-run="{run_id}"]'
    with reading(report) as tab:
        tab.page.locator(f"{row} .name").click()
        tab.until("(id) => document.getElementById(id)?.open", f"run-{run_id}")
        assert abs(tab.ask(REST, f"run-{run_id}")) <= CLOSE_PX
        assert tab.ask(SELECTED) == []
        tab.page.locator(f"{row} button.pick").click()
        assert tab.ask(SELECTED) == [run_id]


PARTS: Final = """() => [...document.querySelectorAll("[data-runs]")].map((part) => [
  part.dataset.runs.split(" "),
  part.parentElement.closest("details:not([open])") ? !part.closest(".filtered")
    : part.checkVisibility()])"""


@pytest.fixture(scope="session")
def short_tables(told: ReportContent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report with all but two rows of each table in folds."""
    path = tmp_path_factory.mktemp("short") / "report.html"
    page = replace(html_report.page_view(told), open_rows=2, open_groups=1)
    page.sheet.packed_above = 0
    path.write_text(html_report.document(page), encoding="utf-8")
    return path


def test_filters_agree_with_the_data_also_in_packed_folds(
    reading: Reading, short_tables: Path, told: ReportContent
) -> None:
    """A table said that no run passes, above six that did."""
    of_run = {
        run_id: (run["framework"], run["model"] or "", accelerator_of(run) or "")
        for run_id, run in told.data["runs"].items()
    }
    chance = Random(59)  # noqa: S311 - a choice of filters
    with reading(short_tables) as tab:
        for _ in range(50 if THOROUGH else 12):
            wanted = {
                name: chance.choice(["", *tab.ask(OPTIONS, name)]) for name in html_report.FILTERS
            }
            for name, value in wanted.items():
                choose(tab, name, value)
            values = tuple(wanted.values())
            fitting = {
                run_id
                for run_id, own in of_run.items()
                if all(want in {"", value} for want, value in zip(values, own, strict=True))
            }
            for runs, seen in tab.ask(PARTS):
                assert seen == (not fitting.isdisjoint(runs)), (wanted, runs)
            said = tab.page.inner_text(".controls .status")
            told = f"{len(fitting)} of " if any(wanted.values()) else ""
            assert said.startswith(told), (wanted, said)
            rows = "" if len(fitting) == len(of_run) else f" {len(fitting)} "
            assert tab.page.inner_text("#runs .csv").startswith(f"Copy{rows}"), wanted


OPTIONS: Final = """(name) => [...document.querySelector(`select[name=${name}]`).options]
  .map((option) => option.value)"""


TABLE: Final = """() => [...document.querySelectorAll("#runs tbody tr")].filter(
  (row) => row.checkVisibility()).map((row) => row.dataset.run)"""
SORTED_BY: Final = {
    "TGS": "tgs",
    "MFU": "mfu_full_own",
    "GPUs": "gpus",
    "s/step": "seconds_per_step",
    "Framework": "framework",
    "Date": "started_at",
}
"""Columns of the table of runs, and where the JSON has them."""


def test_the_table_of_runs_is_sorted_as_the_data_are(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    runs = told.data["runs"]
    with reading(report, fragment="attention=full") as tab:
        assert tab.ask(TABLE) == list(runs)
        for title, field in SORTED_BY.items():
            head = tab.page.locator("#runs thead th", has_text=re.compile(rf"^{title}"))
            head.locator("button").focus()
            best_first = "descending" if field in {"tgs", "mfu_full_own", "gpus"} else "ascending"
            for again in range(2):
                tab.page.keyboard.press("Enter")
                way = head.get_attribute("aria-sort")
                assert (way == best_first) == (not again), title
                assert tab.page.locator("#runs [aria-sort]").count() == 1
                values = [six_digits(runs[run_id][field]) for run_id in tab.ask(TABLE)]
                known = [value for value in values if value is not None]
                assert known == sorted(known, reverse=way == "descending"), title
                assert values == known + [None] * (len(values) - len(known))


def six_digits(value: Any) -> Any:
    """A figure as the page sorts it; words as they are."""
    return float(f"{value:.6g}") if isinstance(value, int | float) else value


def test_a_search_leaves_the_rows_with_all_words(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    with reading(report) as tab:
        tab.page.get_by_label("Search all columns").fill("XTUNER completed")
        expected = {
            run_id
            for run_id, run in told.data["runs"].items()
            if run["framework"] == "xtuner" and run["outcome"] == "completed"
        }
        assert set(tab.ask(TABLE)) == expected
        assert tab.page.inner_text("#runs output").startswith(f"{len(expected)} of ")
        tab.page.get_by_label("Search all columns").fill("")
        assert tab.ask(TABLE) == list(told.data["runs"])


LEFTS: Final = """() => [...document.querySelectorAll("#runs thead th")].map(
  (head) => head.getBoundingClientRect().left)"""


def test_a_search_compares_with_any_sign_and_moves_no_heading(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    """A search for `GPUs>=64` said that there is no such run; clicks missed headings after one."""
    runs = told.data["runs"]
    signs = {":": eq, ">": gt, ">=": ge, "<": lt, "<=": le}
    chance = Random(64)  # noqa: S311 - a choice of searches
    with reading(report) as tab:
        search, before = tab.page.get_by_label("Search all columns"), tab.ask(LEFTS)
        for sign in [*signs, *signs]:
            column, field = chance.choice(
                [("TGS", "tgs"), ("GPUs", "gpus"), ("s/step", "seconds_per_step")]
            )
            border = six_digits(chance.choice([run[field] for run in runs.values() if run[field]]))
            blank, comma = chance.choice(["", " "]), chance.choice(["", ","])
            search.fill(f"{column}{blank}{sign}{blank}{border:g}{comma} outcome:completed")
            expected = {
                run_id
                for run_id, run in runs.items()
                if run["outcome"] == "completed"
                and run[field] is not None
                and signs[sign](six_digits(run[field]), border)
            }
            assert set(tab.ask(TABLE)) == expected, search.input_value()
            assert tab.ask(LEFTS) == pytest.approx(before, abs=2)
        search.fill("nothing of this")
        hint = tab.ask(
            "() => getComputedStyle(document.querySelector('#runs tbody'), '::after').content"
        )
        assert "COLUMN>NUMBER" in hint


def test_the_contents_stay_beside_a_wide_page_and_count_only_without_a_filter(
    reading: Reading, report: Path
) -> None:
    with reading(report, width=1440) as tab:
        contents = tab.page.get_by_role("navigation", name="Contents")
        tab.ask("() => scrollTo(0, document.body.scrollHeight)")
        box = contents.bounding_box()
        main = tab.page.locator("main").bounding_box()
        assert box is not None
        assert main is not None
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= main["x"]
        assert contents.locator(".of-all").first.is_visible()
        choose(tab, "framework", "xtuner")
        assert not contents.locator(".of-all").first.is_visible()
        assert "whatever the filters" in tab.page.inner_text(".overview")


COPIED: Final = """(() => {
  navigator.clipboard.writeText = async (text) => { window.copied = text; };
})()"""
HEADS: Final = """() => [...document.querySelectorAll("#runs thead th")].filter(
  (head) => head.checkVisibility()).map((head) => head.dataset.title)"""


def test_the_format_of_a_log_is_found_where_it_says_more_than_the_framework(
    reading: Reading, tmp_path: Path
) -> None:
    tables = a_store(*(a_run(name, 5_000.0) for name in ("deepspeed", "xtuner")))  # type: ignore[no-untyped-call]
    is_deepspeed = pl.col("framework") == "deepspeed"
    log_format = pl.when(is_deepspeed).then(pl.lit("gpt-neox")).otherwise("log_format")
    path = tmp_path / "report.html"
    runs = tables["runs"].with_columns(log_format.alias("log_format"))
    path.write_text(html_report.render_page(content_of(tables | {"runs": runs})), "utf-8")
    with reading(path) as tab:
        cells = tab.page.locator("#runs tbody tr td:nth-child(2)").all_inner_texts()
        assert sorted(" ".join(text.split()) for text in cells) == ["deepspeed gpt-neox", "xtuner"]
        for words in ("gpt-neox", "framework:gpt-neox", "framework:deepspeed"):
            tab.page.get_by_label("Search all columns").fill(words)
            assert tab.page.inner_text("#runs .csv") == "Copy 1 row as CSV"
        tab.page.get_by_label("Search all columns").fill("")
        assert tab.page.inner_text("#runs .csv") == "Copy as CSV"


def test_the_csv_has_the_rows_and_the_order_that_are_seen(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    runs = told.data["runs"]
    fragment = "find=torchtitan+tgs>1&sort=TGS:ascending&attention=full&hide=Memory"
    with reading(report, fragment=fragment, script_before=COPIED) as tab:
        seen = tab.ask(TABLE)
        tab.page.get_by_role("button", name=f"Copy {len(seen)} rows as CSV").press("Enter")
        tab.until("() => window.copied")
        with tab.page.expect_download() as download:
            tab.page.get_by_role("button", name=f"Save {len(seen)} rows as CSV").press("Enter")
        text = download.value.path().read_text(encoding="utf-8")
        assert tab.ask("window.copied") == text
    lines = [*csv.DictReader(io.StringIO(text))]
    wanted = {run_id for run_id in runs if runs[run_id]["framework"] == "torchtitan"}
    assert [line["Run id"] for line in lines] == seen
    assert set(seen) == {run_id for run_id in wanted if (runs[run_id]["tgs"] or 0) > 1}
    for line in lines:
        run = runs[line["Run id"]]
        assert line["Run"].removesuffix(" (synthetic)") == run["label"]
        assert line["Framework"] == run["framework"]
        assert line["TGS [tokens/s/GPU]"] == f"{six_digits(run['tgs']):g}"
        mfu = line["MFU [%], full attention, peak in the precision of each operator"]
        assert float(mfu or 0) == six_digits(100 * (run["mfu_full_own"] or 0))
        assert float(line["Memory [GiB]"] or 0) == six_digits((run["peak_memory_bytes"] or 0) / GIB)
        tflops = line["Our TFLOP/s, full attention, peak in the precision of each operator"]
        assert float(tflops or 0) == six_digits(run["tflops_full"] or 0)
        assert float(line["Logged MFU [%]"] or 0) == six_digits(100 * (run["logged_mfu"] or 0))
        for title, field in EXTRA_COLUMNS.items():
            assert float(line[title] or 0) == six_digits(run[field] or 0), title
        assert line["Version"] == (run["framework_version"] or "")


EXTRA_COLUMNS: Final = {
    "Logged TFLOP/s": "logged_tflops",
    "Sequence length": "seq_len",
    "Global batch": "samples_per_update",
}


def test_columns_are_chosen_by_keyboard_and_kept_in_the_address(
    reading: Reading, report: Path
) -> None:
    with reading(report) as tab:
        every = tab.ask(HEADS)
        tab.page.locator(".columns summary").press("Enter")
        for name in ("Precision", "Memory [GiB]"):
            tab.page.get_by_role("checkbox", name=name).press("Space")
        tab.page.get_by_label("Search all columns").fill("completed")
        tab.until("() => location.hash.includes('find=')")
        chosen, rows, fragment = tab.ask(HEADS), tab.ask(TABLE), tab.ask("location.hash.slice(1)")
    assert [name for name in every if name not in chosen] == ["Precision", "Memory [GiB]"]
    with reading(report, fragment=fragment) as tab:
        assert tab.ask(HEADS) == chosen
        assert tab.page.input_value("#runs [type=search]") == "completed"
        assert tab.ask(TABLE) == rows


def test_extra_columns_are_hidden_until_they_are_chosen(reading: Reading, report: Path) -> None:
    with reading(report) as tab:
        shown = tab.ask(HEADS)
        assert not {*EXTRA_COLUMNS, "Our TFLOP/s", "Logged MFU", "Version"} & {*shown}
        tab.page.locator(".columns summary").press("Enter")
        tab.page.get_by_role("checkbox", name="Version").press("Space")
        assert tab.ask(HEADS) == [*shown[:2], "Version", *shown[2:]]


CURVES: Final = """() => JSON.parse(
  document.querySelector("#compare figure script").textContent).datasets.points"""
LINES: Final = """() => [...document.querySelectorAll("#compare .mark-line.role-mark path")].map(
  (line) => line.getAttribute("stroke"))"""


def expected_points(runs: dict[str, Any], ids: list[str], across: str) -> list[tuple[Any, ...]]:
    """Run, place across and figures of each bin, as the JSON of the report has them."""
    return [
        (run_id, *(value and f"{value:.4g}" for value in (x, tgs, each["step_s"], each["loss"])))
        for run_id in ids
        for each in runs[run_id]["series"]
        for x in [(each["step"] + each["last_step"]) / 2 if across == "steps" else each[across]]
        for tgs in [each["tgs"] if each["window"] in {"counted", OTHER_SPEED} else None]
        if x is not None
    ]


def test_chosen_runs_are_overlaid_as_the_data_are(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    runs = told.data["runs"]
    with reading(report) as tab:
        ids = [run_id for run_id in tab.ask(TABLE) if runs[run_id]["tgs"] is not None][:3]
        assert tab.page.locator("#compare").count() == 0
        for run_id in ids:
            tab.page.locator(f'#runs tr[data-run="{run_id}"] .tick').press("Space")
        tab.page.get_by_role("link", name="Compare 3 chosen runs").press("Enter")
        tab.page.locator("#compare .mark-line").first.wait_for()
        assert abs(tab.ask(REST, "compare")) <= CLOSE_PX
        assert len(set(tab.ask(LINES))) == 3
        for across in ("steps", "tokens"):
            tab.page.get_by_label("Across").select_option(across)
            tab.until("(x) => location.hash.includes(`x=${x}`) || x === 'steps'", across)
            found = [
                (each["run_id"], *(each[of] and f"{each[of]:.4g}" for of in POINT))
                for each in tab.ask(CURVES)
            ]
            assert found == expected_points(runs, ids, across)
        fragment = tab.ask("location.hash.slice(1)")
    with reading(report, fragment=fragment) as tab:
        tab.page.locator("#compare .mark-line").first.wait_for()
        assert abs(tab.ask(REST, "compare")) <= CLOSE_PX
        assert tab.page.locator(".tick:checked").count() == 3
        assert tab.page.get_by_label("Across").input_value() == "tokens"
        tab.page.get_by_role("button", name="Clear the choice").press("Enter")
        tab.page.locator("#compare").wait_for(state="detached")
        assert "compare" not in tab.ask("location.hash")


def test_the_slow_part_of_a_run_is_drawn_pale(reading: Reading, tmp_path: Path) -> None:
    """The curve ended where the run slowed down, so the chart hid it."""
    slowing = changed_speed(a_run("xtuner", 5_000.0, steps=200), 0.7, from_step=130)  # type: ignore[no-untyped-call]
    tables = a_store(slowing, a_run("torchtitan", 5_200.0, steps=200))  # type: ignore[no-untyped-call]
    path, run_id = tmp_path / "report.html", slowing["runs"][0]["run_id"]
    content = content_of(tables)
    path.write_text(html_report.render_page(content), encoding="utf-8")
    with reading(path, fragment=f"compare={','.join(content.data['runs'])}") as tab:
        tab.page.locator("#compare .mark-line").first.wait_for()
        points = [each for each in tab.ask(CURVES) if each["run_id"] == run_id]
        late = [each for each in points if int(each["steps"].split("\u2013")[0]) >= 130]
        assert {each["opacity"] for each in late} == {0.55}
        assert {each["opacity"] for each in points if each not in late} == {1}
        assert all(3_300 < each["tgs"] < 3_700 for each in late)
        opacity = "(lines) => lines.map((line) => line.getAttribute('opacity') ?? '1')"
        lines = tab.page.locator("#compare .mark-line.role-mark path").evaluate_all(opacity)
        assert sorted(lines) == ["0.55"] * 2 + ["1"] * 6  # TGS, s/step; and loss without parts


def test_a_run_without_a_part_is_compared_by_its_row_and_says_so(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fact of such a run is said to be missing from its log."""
    monkeypatch.setattr(report_data, "MAX_RUNS_IN_FULL", 1)
    tables = a_store(a_run("xtuner", 5_000.0), a_run("torchtitan", 5_200.0))  # type: ignore[no-untyped-call]
    content, path = content_of(tables, most_described=1), tmp_path / "report.html"
    path.write_text(html_report.render_page(content), encoding="utf-8")
    chosen = f"compare={','.join(content.data['runs'])}&x=tokens"
    with reading(path, fragment=chosen) as tab:
        tab.page.locator("#compare .facts tbody tr").first.wait_for()
        assert tab.page.locator("#compare .about").inner_text() == (
            "This page has only a row of its tables for xtuner-8b (synthetic). For curves and all "
            "facts, make a report of these runs alone: fairmfu report RUN\u2026"
        )
        assert tab.page.locator("#compare .chosen-runs a").all_inner_texts() == [
            "torchtitan-8b (synthetic)"
        ]
        assert {each["run"] for each in tab.ask(CURVES)} == {"torchtitan-8b (synthetic)"}


@pytest.mark.parametrize("width", [1440, pytest.param(800, marks=thorough_only), 400])
def test_no_row_moves_when_runs_are_ticked(reading: Reading, report: Path, width: int) -> None:
    """A line came above the table with the first tick, so the second click missed its box."""
    top = """() => document.querySelector("#runs .scroll").getBoundingClientRect().top
      - document.getElementById("runs").getBoundingClientRect().top"""
    with reading(report, width=width) as tab:
        line = tab.page.locator("#runs .chosen-count")
        assert line.inner_text() == "Tick two to eight runs to compare them."
        before = tab.ask(top)
        for place in range(9):
            tab.page.locator("#runs .tick").nth(place).click()
            assert tab.ask(top) == before, line.inner_text()
        assert line.inner_text() == "At most 8 runs can be compared."


POINT: Final = ("x", "tgs", "step_s", "loss")
FACTS: Final = """() => Object.fromEntries(
  [...document.querySelectorAll("#compare .facts tbody tr")].map((line) => [
    line.cells[0].firstChild.textContent,
    [...line.cells].slice(1).map((cell) => (
      cell.querySelector('[data-of="value"]') ?? cell).textContent.trim()),
  ]))"""


def test_facts_of_chosen_runs_show_their_differences(
    reading: Reading, short_tables: Path, told: ReportContent
) -> None:
    runs = told.data["runs"]
    ids = list(runs)[:4]
    held = [{fact["name"]: fact["value"] for fact in runs[run_id]["facts"]} for run_id in ids]
    every = {name: [of.get(name, "\u2013") for of in held] for of in held for name in of}
    with reading(short_tables, fragment=f"compare={','.join(ids)}") as tab:
        tab.page.locator("#compare .facts tbody tr").first.wait_for()
        found = tab.ask(FACTS)
        assert {name: found[name] for name in found if name in every} == {
            name: values for name, values in every.items() if len(set(values)) > 1
        }
        tab.page.get_by_label("Differences only").uncheck()
        found = tab.ask(FACTS)
        assert {name: found[name] for name in every} == every
        assert found["Framework"] == [
            " ".join(dict.fromkeys(runs[run_id][name] for name in ("framework", "log_format")))
            for run_id in ids
        ]


COUNTED: Final = re.compile(r"(\d+) facts? differs?(?:, (\d+) (?:is|are) not known of all runs)?")


def test_what_shows_as_equal_is_no_difference(reading: Reading, tmp_path: Path) -> None:
    """Two runs of one day differed in Date, and facts of one run only were like any other."""
    facts = RUN_FACTS | {"optimizer": "AdamW"}
    runs = a_run("xtuner", 5_000.0, steps=300, facts=facts), a_run("torchtitan", 5_200.0, steps=90)  # type: ignore[no-untyped-call]
    for hour, run in enumerate(runs):
        run["runs"][0]["started_at"] = datetime(2026, 11, 30, 9 + hour)
        for step in run["steps"]:
            step["loss"] += hour
    path, content = tmp_path / "report.html", content_of(a_store(*runs))  # type: ignore[no-untyped-call]
    path.write_text(html_report.render_page(content), encoding="utf-8")
    first, second = (content.data["runs"][run["runs"][0]["run_id"]] for run in runs)
    chosen = f"compare={first['run_id']},{second['run_id']}"
    with reading(path, fragment=chosen) as tab:
        link = tab.page.locator("#compare a.differing")
        link.wait_for()
        found = tab.ask(FACTS)
        assert "Date" not in found
        assert found["optimizer"] == ["AdamW", UNKNOWN]
        assert "known of one run only" in (tab.page.text_content("#compare .facts tbody") or "")
        differing, partly = COUNTED.fullmatch(link.inner_text()).groups()  # type: ignore[union-attr]
        unknown = [values for values in found.values() if UNKNOWN in values]
        assert int(partly) == len(unknown) > 0
        assert int(differing) == len(found) - len(unknown) > 0
        assert [re.split("step|mean", value)[0] for value in found["Last loss"]] == [
            f"{run['series'][-1]['loss']:#.4g}" for run in (first, second)
        ]
        losses = [
            {(each["unit"], each["count"]): each["loss"] for each in run["losses"]}
            for run in (first, second)
        ]
        unit, count = max(losses[0].keys() & losses[1].keys())
        name = f"Loss at {count:,} {unit}, the last such count of all"
        assert found[name] == [f"{of[unit, count]:#.4g}" for of in losses]
        link.click()
        assert abs(tab.ask(REST, "compare-facts")) <= CLOSE_PX or tab.ask(AT_END)
        tab.page.locator("#compare .mark-symbol path").first.hover(force=True)
        tab.until("() => document.querySelector('#vg-tooltip-element.visible')")
        tips = {name.rstrip(":"): text for name, text in tab.ask(TIP).items()}
        assert tips.get("mean peak memory [GiB]") == UNKNOWN, tips
        assert "null" not in tips.values()


UNKNOWN: Final = "\u2013"
AT_END: Final = "scrollY + innerHeight >= document.documentElement.scrollHeight - 2"


@pytest.mark.parametrize(
    "lacking",
    [{"gpus"}, pytest.param({"seq_len"}, marks=thorough_only), {"gpus", "seq_len"}],
)
def test_the_facts_without_which_there_is_no_curve_over_tokens_are_named(
    reading: Reading, tmp_path: Path, lacking: set[str]
) -> None:
    facts = {name: value for name, value in RUN_FACTS.items() if name not in lacking}
    runs = a_run("xtuner", 5_000.0, facts=facts), a_run("torchtitan", 5_200.0)  # type: ignore[no-untyped-call]
    path, content = tmp_path / "report.html", content_of(a_store(*runs))  # type: ignore[no-untyped-call]
    path.write_text(html_report.render_page(content), encoding="utf-8")
    with reading(path, fragment=f"compare={','.join(content.data['runs'])}&x=tokens") as tab:
        about = tab.page.locator("#compare .about")
        about.wait_for()
        missing = ", ".join(sorted(lacking))
        assert f"xtuner-8b (synthetic) (missing: {missing})" in about.inner_text()


def test_a_part_of_the_curves_is_zoomed_by_keyboard_and_mouse(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    runs = told.data["runs"]
    ids = [run_id for run_id in runs if runs[run_id]["tgs"] is not None][:2]
    with reading(report, fragment=f"compare={','.join(ids)}", height=1_000) as tab:
        tab.page.locator("#compare .mark-line").first.wait_for()
        whole = [each["x"] for each in tab.ask(CURVES)]
        panel = tab.page.locator("#compare .background").nth(1).bounding_box()
        assert panel
        tab.page.mouse.move(panel["x"] + 0.3 * panel["width"], panel["y"] + 60)
        tab.page.mouse.down()
        tab.page.mouse.move(panel["x"] + 0.8 * panel["width"], panel["y"] + 60, steps=5)
        tab.page.mouse.up()
        tab.until("() => location.hash.includes('to=')")
        low, high = (float(tab.page.input_value(f"[name={name}]")) for name in ("from", "to"))
        assert [each["x"] for each in tab.ask(CURVES)] == [x for x in whole if low <= x <= high]
        assert min(whole) < low < high < max(whole)
        tab.page.get_by_label("from", exact=True).fill(str(min(whole)))
        tab.page.get_by_label("from", exact=True).press("Enter")
        tab.until("(from) => location.hash.includes(`from=${from}`)", min(whole))
        assert [each["x"] for each in tab.ask(CURVES)] == [x for x in whole if x <= high]
        tab.page.get_by_role("button", name="Whole range").press("Enter")
        assert [each["x"] for each in tab.ask(CURVES)] == whole


NESTED: Final = """() => [...document.querySelectorAll(
  ":is(button, a, summary) :is(button, a, summary, select)")].map((part) => part.outerHTML)"""


def test_the_page_has_landmarks_and_no_control_within_another(explored: Tab) -> None:
    assert explored.ask(NESTED) == []
    for landmark in ("header", "nav", "main"):
        assert explored.page.locator(f"body {landmark}").count() == 1, landmark


def test_the_overview_leads_to_the_parts_that_it_counts(
    reading: Reading, report: Path, told: ReportContent
) -> None:
    data = told.data
    with reading(report) as tab:
        said = tab.page.inner_text(".overview")
        for name in ("runs", "failed", "slowed"):
            assert f"{data['counts'][name]:,} " in said
        groups = [len(group["runs"]) for group in data["groups"]]
        several = [runs for runs in groups if runs > 1]
        assert f"{sum(several)} ranked in {count_noun(len(several), 'group')}, " in said
        assert f"{groups.count(1)} without a comparable run, " in said
        asked = ", ".join(data["missing"]["unlocks"][0]["facts"])
        assert tab.page.text_content("#first-fact") == asked
        assert tab.page.inner_text('.overview a[href="#first-fact"]') == asked
        parts = tab.page.locator("#missing > :is(.commands, .scroll)")
        assert "commands" in str(parts.first.get_attribute("class"))
        links = tab.page.locator(".overview a, .contents a").all()
        for link in {link.get_attribute("href"): link for link in reversed(links)}.values():
            place = (link.get_attribute("href") or "").removeprefix("#")
            link.click()
            below = tab.ask(REST, place)
            at_end = tab.ask("scrollY + innerHeight >= document.documentElement.scrollHeight - 2")
            assert abs(below) <= CLOSE_PX or at_end, place


def test_text_of_logs_stays_text(explored: Tab) -> None:
    page = explored.page
    assert page.title() == "All runs"
    assert page.locator("img").count() == 0
    scripts = page.locator("script:not([type])").all_text_contents()
    assert not [script for script in scripts if "owned" in script]
    seen = page.locator("body").inner_text()
    drawn = "".join(page.locator("figure svg text").all_text_contents())
    for name in HOSTILE:
        assert seen.count(name) >= 2, name
        assert name[-20:] in drawn  # the beginning is cut


# --- other readers -------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["report", "nightly"])
def test_on_paper_it_says_the_same(
    reading: Reading, request: pytest.FixtureRequest, which: str
) -> None:
    with reading(request.getfixturevalue(which)) as tab:
        tab.page.locator("figure").first.scroll_into_view_if_needed()
        tab.page.locator("figure svg").first.wait_for()
        says = tab.page.locator(".verdict .says").first.inner_text()
        printed = tab.page.pdf(format="A4")
    assert (
        printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") > 1
        or len(printed) > 50_000
    )
    if pdftotext := shutil.which("pdftotext"):
        done = subprocess.run(  # noqa: S603
            [pdftotext, "-", "-"], input=printed, capture_output=True, check=True
        )
        assert _letters(says)[:60] in _letters(done.stdout.decode())


CLOSED: Final = """() => [...document.querySelectorAll("details:not([open])")].filter(
  (fold) => !fold.closest("[data-holds], [data-run]")).length"""


def test_on_paper_every_part_but_those_of_runs_is_open(
    reading: Reading, short_tables: Path
) -> None:
    packed = "details[data-packed]:not([data-holds], [data-run])"
    with reading(short_tables) as tab:
        tab.until("(packed) => !document.querySelector(packed)", packed)
        heads = tab.page.locator("#runs thead").inner_text()
        tab.ask("() => dispatchEvent(new Event('beforeprint'))")
        assert tab.ask(CLOSED) == tab.page.locator("#runs thead button").count() == 0
        assert tab.page.locator("#runs thead").inner_text() == heads
        tab.ask("() => dispatchEvent(new Event('afterprint'))")
        assert tab.ask(CLOSED) > 2
        assert tab.page.locator("#runs thead button").count() == 20


def test_panels_fill_a_page_of_800_px(reading: Reading, report: Path, told: ReportContent) -> None:
    """Below one another they were as narrow as side by side."""
    names = [told.data["runs"][run_id]["label"] for run_id in told.data["groups"][0]["runs"]]
    with reading(report, width=800) as tab:
        figure = tab.page.locator('figure[data-kind^="comparison"]').first
        figure.locator("svg").wait_for()
        wide = figure.locator(".chart").evaluate("(chart) => chart.clientWidth")
        drawn = figure.locator("svg").evaluate("(svg) => svg.width.baseVal.value")
        assert 0.9 * wide < drawn <= wide + 1
        words = figure.locator("svg").text_content() or ""
        shown = {name: words.count(name[-12:]) for name in names if name not in HOSTILE}
        assert min(shown.values()) > 1, shown  # in each panel


def _letters(text: str) -> str:
    """Without blanks: lines break elsewhere on paper."""
    return re.sub(r"\W", "", text)


def test_a_narrow_screen_need_not_scroll_sideways(narrow: Tab) -> None:
    assert narrow.ask("document.documentElement.scrollWidth") <= 390


CUT: Final = """() => [...document.querySelectorAll(".cards th, .cards td, .cards svg")].filter(
  (part) => part.checkVisibility() && part.getBoundingClientRect().right > innerWidth
).map((part) => part.textContent)"""
"""What of wide tables stands beyond the edge of the screen."""

UNNAMED: Final = """() => [...document.querySelectorAll(".cards td")].filter(
  (part) => part.checkVisibility() && getComputedStyle(part, "::before").content === "normal"
).map((part) => part.textContent)"""


def test_rows_of_wide_tables_are_cards_on_a_narrow_screen(narrow: Tab) -> None:
    """The history of a series was beyond the edge, a reason made a row of one run a screen high."""
    assert narrow.page.locator(".cards").count()
    assert narrow.ask(CUT) == narrow.ask(UNNAMED) == []


@pytest.mark.parametrize("which", ["report", "nightly"])
def test_dark_where_the_reader_has_it_dark(
    reading: Reading, request: pytest.FixtureRequest, which: str
) -> None:
    path, light = request.getfixturevalue(which), {}
    for scheme in ("light", "dark"):
        with reading(path, scheme=scheme) as tab:
            light[scheme] = [_light(tab.ask(PAINT, name)) for name in ("backgroundColor", "color")]
            tab.page.locator("figure").first.scroll_into_view_if_needed()
            text = tab.page.locator("figure svg text").first
            text.wait_for()
            light[scheme].append(_light(text.evaluate("(e) => getComputedStyle(e).fill")))
    (paper, *inks), (dark, *bright) = light["light"], light["dark"]
    assert paper - max(inks) > CONTRAST
    assert min(bright) - dark > CONTRAST


CONTRAST: Final = 0.5
PAINT: Final = "(name) => getComputedStyle(document.body)[name]"


def _light(colour: str) -> float:
    """Mean of red, green and blue, from 0 to 1."""
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 / 255


def test_without_scripts_the_tables_hold_the_figures(
    browser: Browser, report: Path, told: ReportContent
) -> None:
    with opened(browser, report, script=False) as tab:
        assert tab.page.locator("noscript").count()
        seen = tab.page.locator("body").inner_text()
    first = told.data["runs"][told.data["groups"][0]["runs"][0]]
    assert f"{first['tgs']:,.0f}" in seen
    assert "JavaScript" in seen


def test_the_nightly_page_draws_its_figures(reading: Reading, nightly: Path) -> None:
    with reading(nightly) as tab:
        found = figures(all_open(tab))
    assert len(found) > 5
    assert [kind for kind, marks in found if not marks] == []


def test_jobs_of_the_nightly_page_are_sorted_and_searched(reading: Reading, nightly: Path) -> None:
    rows = """() => [...document.querySelectorAll("table.sortable tbody tr")].filter(
      (row) => row.checkVisibility()).map((row) => Number(row.cells[2].dataset.sort || NaN))"""
    with reading(nightly) as tab:
        for landmark in ("header", "nav", "main"):
            assert tab.page.locator(f"body {landmark}").count() == 1, landmark
        tab.page.get_by_role("button", name="Level", exact=True).press("Enter")
        levels = tab.ask(rows)
        known = [level for level in levels if level == level]  # noqa: PLR0124 - not NaN
        assert len(known) > 1
        assert levels[: len(known)] == sorted(known, reverse=True)
        tab.page.get_by_label("Search all columns").fill(f"level:{known[0]}")
        assert set(tab.ask(rows)) == {known[0]}
        for link in tab.page.locator(".contents a").all():
            place = (link.get_attribute("href") or "").removeprefix("#")
            assert tab.page.locator(f"#{place}").count() == 1, place


def test_a_fold_that_is_packed_is_there_once_opened(reading: Reading, tmp_path: Path) -> None:
    sheet = Sheet(packed_above=0)
    path = tmp_path / "packed.html"
    inner = sheet.fold("inner", paragraph(NAME) * 99)
    outer = sheet.fold("outer", paragraph("some text") + inner + paragraph("much text") * 200)
    path.write_text(sheet.html("packed", paragraph("packed") + outer), encoding="utf-8")
    assert "much text" not in path.read_text()
    with reading(path) as tab:
        assert "much text" not in tab.ask("document.body.innerText")
        tab.page.click("summary:has-text('outer')")
        tab.page.click("summary:has-text('inner')")
        tab.page.locator("p:has-text('owned')").first.wait_for()
        assert "much text" in tab.ask("document.body.innerText")
        assert tab.page.title() == "packed"
