"""What a page does in Chromium: choices that show everywhere, folds that open, charts that wait."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from markupsafe import Markup
from playwright.sync_api import Browser, expect

from fairmfu.reports.charts.figure import Figure
from fairmfu.reports.charts.tooltips import CONVENTIONS
from fairmfu.reports.page.html_document import Sheet
from fairmfu.reports.page.html_report import Controls
from tests.support.browser import NAMES, Reading, Tab, chromium, opened, untroubled
from tests.support.effort import THOROUGH
from tests.support.markup import controls, markup, paragraph

pytestmark = pytest.mark.skipif(
    chromium() is None, reason=f"NO PAGE'S SCRIPT IS TESTED: no {' nor '.join(NAMES)}"
)

SMUGGLED: Final = "</script><script>document.title='owned'</script><!-- \u2028 \u202eslr"
FRAMEWORKS: Final = ("torchtitan", "xtuner", "deepspeed")
RUNS: Final[list[dict[str, Any]]] = [
    {
        "run_id": f"{n:04x}",
        "run": SMUGGLED if n == 1 else f"run {n}",
        "label": SMUGGLED if n == 1 else f"run {n}",
        "synthetic": False,
        "framework": FRAMEWORKS[n % 3],
        "model": "llama3-8b" if n % 2 else "qwen3-32b",
        "device": None,
        "accelerator": "H100" if n % 3 else "A100",
        "tgs": 5_000 + 10 * n,
        **{f"mfu_{name}": 0.3 + 0.05 * at + n / 100 for at, name in enumerate(CONVENTIONS)},
    }
    for n in range(6)
]


def dots(rows: list[dict[str, Any]], title: str = "MFU of each run") -> Figure:
    """A dot per run, as the charts of the report are made."""
    spec = {
        "data": {"name": "runs"},
        "transform": [
            {"filter": "model == '' || datum.model == model"},
            {"calculate": "datum['mfu_' + attention + '_' + peak]", "as": "mfu"},
        ],
        "params": [
            {"name": "attention", "value": "exact"},
            {"name": "peak", "value": "own"},
            {"name": "model", "value": ""},
            {"name": "selected", "value": ""},
            {"name": "size", "value": 10},
        ],
        "hconcat": [
            {"width": 320, "height": 160, "layer": [DOT]},
            {"width": 320, "height": 160, "layer": [DOT], "title": "again"},
        ],
    }
    return Figure("dots", title, ("One dot per run.",), "MFU", spec, {"runs": rows}, {"size": 90})


DOT: Final[dict[str, Any]] = {
    "mark": {"type": "point", "filled": True, "size": {"expr": "size"}},
    "encoding": {
        "x": {"field": "mfu", "type": "quantitative"},
        "y": {"field": "run", "type": "nominal", "axis": {"labelLimit": 300}},
        "opacity": {
            "condition": {"test": "selected == '' || datum.run_id == selected", "value": 1},
            "value": 0.2,
        },
        "tooltip": [{"field": "run", "type": "nominal"}],
    },
}


OPEN = 3
"""The run whose fold alone stands open at first."""


PAGE: Final = """
<header><h1>A small page</h1><p>of all elements</p></header>
{{ controls.controls(chosen) }}{{ controls.legend(frameworks) }}{{ figure }}
{% set wide = [] %}{% for n in range(16) %}{{ wide.append(Column("Column " ~ n, "number")) or "" }}{% endfor %}
{% set columns = [Column("Run"), Column("MFU", "number")] + wide %}
{% call(run) tables.table("Runs", columns, runs, "All of them.", "runs", "run_id") %}
  <th scope="row">{{ names.run_select(run) }}</th>
  <td class="number">{{ figures.conventions(by_convention(run, "mfu", one_decimal)) }}</td>
  {% for _ in wide %}<td class="number">{{ run.tgs|number(3) }}</td>{% endfor %}
{% endcall %}
{{ folds }}<p><a href="#run-0004">To run 4</a></p>
"""  # noqa: E501 - a template
FOLD: Final = """
{% set name, attributes = "run-" ~ run.run_id, names.run_attributes(run.run_id) %}
{% set inner %}{{ sheet.figure(figure) }}{% for _ in range(40) %}<p>{{ run.run }}</p>{% endfor %}{% endset %}
{% if open %}
<details id="{{ name }}"{{ attributes }} open><summary>{{ names.run_select(run) }}</summary>{{ inner }}</details>
{% else %}
{{ sheet.fold(names.run_select(run), inner, name=name, attributes=attributes) }}
{% endif %}
"""  # noqa: E501 - a template


def a_page(sheet: Sheet, folds: int = len(RUNS)) -> str:
    """A small page of all elements."""
    body = markup(
        PAGE,
        chosen=Controls.of([run_of(n) for n in range(max(folds, len(RUNS)))]),
        frameworks=FRAMEWORKS,
        figure=sheet.figure(dots(RUNS)),
        runs=RUNS,
        one_decimal="{:.1%}".format,
        folds=markup("").join(a_fold(sheet, n) for n in range(folds)),
    )
    return sheet.html("A small page", body)


def run_of(n: int) -> dict[str, Any]:
    """The run of a fold: one of RUNS, and its likes."""
    return RUNS[n % len(RUNS)] | {"run_id": f"{n:04x}"}


def a_fold(sheet: Sheet, n: int) -> Markup:
    """A run's fold; one of them stands open, as in a page that somebody saved."""
    run = run_of(n)
    figure = dots([run], f"Course of {run['run']}")
    return markup(FOLD, sheet=sheet, run=run, figure=figure, open=n == OPEN)


def written(kind: str, folder: Path) -> Path:
    """The small page with its folds packed or plain."""
    path = folder / "small.html"
    packed_above = 0 if kind == "packed" else 10**9
    path.write_text(a_page(Sheet(packed_above=packed_above)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["packed", "plain"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For what has to do with folds."""
    return written(request.param, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module", params=["packed", "plain"] if THOROUGH else ["packed"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(request.param, tmp_path_factory.mktemp("page"))


@pytest.fixture
def reading(browser: Browser) -> Reading:
    """Open a page; whatever went wrong in it fails the test at the end."""
    return partial(untroubled, browser)


DRAWN: Final = "() => document.querySelectorAll('.chart svg').length"
MARKS: Final = """() => [...document.querySelector("figure").querySelectorAll(".mark-symbol")]
  .map((group) => group.querySelectorAll("path").length)"""
PLACES: Final = """() => [...document.querySelector("figure").querySelectorAll(".mark-symbol path")]
  .map((path) => path.getAttribute("transform")).join()"""
DOTS: Final = """() => [...document.querySelector("figure").querySelectorAll(".mark-symbol path")]
  .map((path) => path.getAttribute("opacity"))"""
ROWS: Final = (
    "() => [...document.querySelectorAll('tbody tr')].filter((r) => r.offsetHeight).length"
)


def status(tab: Tab) -> str:
    return tab.page.inner_text(".status")


# --- conventions, filters, selection ------------------------------------------------------------


def test_a_toggle_shows_another_figure_in_tables_and_charts(reading: Reading, page: Path) -> None:
    with reading(page) as tab:
        assert tab.page.title() == "A small page"
        tab.until(DRAWN)
        cell = tab.page.locator("tbody tr").first.locator("td").first
        before = tab.ask(PLACES)
        assert cell.inner_text() == "30.0%"
        tab.page.check("text=full")
        assert cell.inner_text() == "35.0%"
        tab.page.check("text=BF16")
        assert cell.inner_text() == "45.0%"
        assert cell.locator("span:visible").get_attribute("data-of") == "mfu_full_bf16"
        tab.until(f"before => ({PLACES})() !== before", before)
        assert tab.page.evaluate("location.hash") == "#attention=full&peak=bf16"


def test_a_chart_drawn_later_has_the_choices_made_before(reading: Reading, either: Path) -> None:
    with reading(either, fragment="attention=full&run=0002", height=3000) as tab:
        tab.page.click("#run-0002 summary", position={"x": 4, "y": 8})
        tab.until("() => document.querySelector('#run-0002 .chart svg')")
        tab.page.click("#run-0001 summary", position={"x": 4, "y": 8})
        tab.until("() => document.querySelector('#run-0001 .chart svg')")
        faded = "id => document.querySelector(`#${id} .mark-symbol path`).getAttribute('opacity')"
        assert tab.ask(faded, "run-0001") == "0.2"
        assert tab.ask(faded, "run-0002") == "1"


def test_a_filter_hides_runs_and_says_how_many_are_left(reading: Reading, page: Path) -> None:
    with reading(page) as tab:
        tab.until(DRAWN)
        assert status(tab) == ""
        assert tab.ask(ROWS) == 6
        tab.page.select_option("select[name=model]", "llama3-8b")
        assert status(tab) == "3 of 6 runs pass the filters."
        assert tab.ask(ROWS) == 3
        assert not tab.page.is_visible("#run-0002")
        tab.until(f"() => String(({MARKS})()) === '3,3'")
        tab.page.select_option("select[name=accelerator]", "A100")
        assert status(tab) == "1 of 6 runs pass the filters."
        tab.page.select_option("select[name=model]", "")
        tab.page.select_option("select[name=accelerator]", "")
        assert tab.ask(ROWS) == 6


def test_a_run_is_selected_by_its_name_and_let_go_again(reading: Reading, page: Path) -> None:
    with reading(page) as tab:
        tab.until(DRAWN)
        button = tab.page.locator("tbody button.pick").nth(2)
        button.click()
        tab.until(f"() => ({DOTS})().filter((opacity) => opacity === '1').length === 2")
        assert status(tab) == "Selected: run 2."
        assert button.get_attribute("aria-pressed") == "true"
        assert tab.page.locator("tr.selected").count() == 1
        mark = (
            "() => getComputedStyle(document.querySelector('tr.selected th'), '::before').content"
        )
        assert "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}" in tab.ask(mark)  # not by colour alone
        button.click()
        assert status(tab) == ""
        button.press("Enter")
        assert "Selected" in status(tab)
        tab.page.keyboard.press("Escape")
        assert status(tab) == ""
        assert tab.page.locator(".selected").count() == 0
        assert tab.page.evaluate("location.hash") == ""


def test_a_click_on_a_mark_selects_its_run(reading: Reading, either: Path) -> None:
    with reading(either) as tab:
        tab.until(DRAWN)
        tab.page.locator("figure .mark-symbol path").nth(4).click()
        assert "Selected: run 4." in status(tab)
        tab.page.click(".details")
        tab.until("() => document.querySelector('#run-0004[open] .chart svg')")
        tab.page.click(".clear")
        assert "Selected" not in status(tab)


def test_the_address_keeps_the_choices_and_brings_them_back(reading: Reading, page: Path) -> None:
    fragment = "attention=full&peak=bf16&model=qwen3-32b&run=0002"
    with reading(page, fragment=fragment) as tab:
        assert tab.page.is_checked("input[value=full]")
        assert tab.page.is_checked("input[value=bf16]")
        assert tab.page.input_value("select[name=model]") == "qwen3-32b"
        assert status(tab) == "3 of 6 runs pass the filters. Selected: run 2."
        tab.page.reload()
        assert status(tab) == "3 of 6 runs pass the filters. Selected: run 2."


@pytest.mark.parametrize(
    "fragment", ["attention=owned&peak=%00&model=none&run=none&at=nowhere", "nowhere", "%E0%A4%A"]
)
def test_an_address_that_names_nothing_changes_nothing(
    reading: Reading, page: Path, fragment: str
) -> None:
    with reading(page, fragment=fragment) as tab:
        assert status(tab) == ""
        assert tab.page.evaluate("({...document.documentElement.dataset})") == {
            "attention": "exact",
            "peak": "own",
        }


# --- folds and charts ---------------------------------------------------------------------------


def test_a_fold_opens_and_draws_and_a_closed_one_does_not(reading: Reading, either: Path) -> None:
    with reading(either, height=4000) as tab:
        tab.until(f"() => ({DRAWN})() === 2")  # that above, and that of the open fold
        tab.page.wait_for_timeout(300)
        assert tab.ask(DRAWN) == 2
        tab.page.locator("#run-0001 summary").focus()
        tab.page.keyboard.press("Tab")  # to the name; the fold itself opens by its summary
        tab.page.keyboard.press("Shift+Tab")
        tab.page.keyboard.press("Enter")
        tab.until(f"() => ({DRAWN})() === 3")
        assert tab.page.locator("#run-0001 p").count() >= 40
        assert SMUGGLED[:40] in tab.page.inner_text("#run-0001 p:last-child")
        tab.page.locator("#run-0001 summary").press("Enter")
        tab.page.locator("#run-0001 summary").press("Enter")
        assert tab.page.locator("#run-0001 p:last-child").count() == 1  # unpacked once


def test_a_link_to_a_run_opens_its_fold(reading: Reading, either: Path) -> None:
    with reading(either, fragment="run-0005") as tab:
        tab.until("() => document.querySelector('#run-0005[open] .chart svg')")
        tab.page.click("text=To run 4")
        tab.until("() => document.querySelector('#run-0004[open] .chart svg')")
        assert tab.page.locator("#run-0004 summary").evaluate("e => e === document.activeElement")


def test_a_link_into_a_fold_that_is_packed_within_another_opens_both(
    reading: Reading, tmp_path: Path
) -> None:
    sheet = Sheet(packed_above=0)
    inner = sheet.fold("inner", paragraph("deep") * 200, name="run-dead")
    holds, more = markup(' data-holds="beef dead"'), paragraph("more") * 200
    outer = sheet.fold("outer", inner + more, attributes=holds)
    unnamed = sheet.fold("other", markup("<p id='note'>a note</p>") + more)
    path = tmp_path / "deep.html"
    path.write_text(sheet.html("A small page", outer + controls([], []) + unnamed))
    with reading(path, fragment="run-dead") as tab:
        tab.until("() => document.querySelectorAll('#run-dead[open] p').length === 200")
        assert not tab.page.is_visible("text=a note")
    with reading(path, fragment="run=dead&attention=full") as tab:
        assert "Selected: dead." in status(tab)


def test_a_browser_that_cannot_unpack_says_so(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "old.html"
    path.write_text(a_page(Sheet(packed_above=0)), encoding="utf-8")
    with opened(browser, path) as tab:
        tab.page.add_init_script("delete window.DecompressionStream")
        tab.page.reload()
        tab.page.click("#run-0002 summary", position={"x": 4, "y": 8})
        tab.page.wait_for_selector("#run-0002 .warning")
        assert "too old to unpack it" in tab.page.inner_text("#run-0002 .warning")


def test_a_page_of_two_thousand_folds_opens_at_once(reading: Reading, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    path.write_text(a_page(Sheet(), folds=2_000), encoding="utf-8")
    with reading(path) as tab:
        tab.until(DRAWN)
        took = tab.ask("() => performance.getEntriesByType('navigation')[0].domComplete")
        assert took < 5_000  # [ms] of a busy machine; at rest it is some 300
        tab.until(f"() => ({DRAWN})() === 2")  # that above, and that of the open fold
        assert tab.ask("() => document.querySelectorAll('figure').length") <= 2
        tab.page.select_option("select[name=model]", "llama3-8b")
        assert tab.page.locator("details:visible").count() == 1_000
        tab.ask("() => { location.hash = 'run-07cf' }")
        tab.until("() => document.querySelector('#run-07cf[open] .chart svg')")


def test_without_a_script_the_page_says_what_is_missing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "still.html"
    path.write_text(a_page(Sheet()), encoding="utf-8")
    with opened(browser, path, script=False) as tab:
        assert not tab.page.is_visible(".controls")
        assert "The charts need JavaScript" in tab.page.locator("noscript").inner_text()
        first = tab.page.locator("tbody tr").first.locator("td").first
        expect(first).to_have_text("30.0%", use_inner_text=True)  # once it is laid out


# --- sizes, colours and paper -------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_stays_within_its_width(reading: Reading, page: Path, scheme: str) -> None:
    with reading(page, width=390, scheme=scheme) as tab:
        tab.until(DRAWN)
        assert tab.ask("() => document.documentElement.scrollWidth") == 390
        sizes = "() => [...document.querySelectorAll('svg')].map((s) => s.width.baseVal.value)"
        assert max(tab.ask(sizes)) <= 390
        tall = "() => document.querySelector('.chart svg').height.baseVal.value"
        assert tab.ask(tall) > 320  # panels below one another
        scroll = tab.page.locator(".scroll").first
        tab.until("() => document.querySelector('.scroll').tabIndex === 0")
        assert scroll.get_attribute("role") == "group"
        assert scroll.get_attribute("aria-label") == "Runs"


def test_a_chart_is_drawn_again_where_the_window_has_become_narrow(
    reading: Reading, page: Path
) -> None:
    with reading(page, width=1200) as tab:
        tab.until(DRAWN)
        width = "() => document.querySelector('.chart svg')?.width.baseVal.value ?? 9999"
        assert tab.ask(width) > 600
        tab.page.set_viewport_size({"width": 390, "height": 800})
        tab.until(f"() => ({width})() <= 390")


def test_dark_is_dark_also_when_the_reader_turns_it_on_later(reading: Reading, page: Path) -> None:
    paper = "() => getComputedStyle(document.body).backgroundColor"
    text = "() => getComputedStyle(document.querySelector('.chart svg text')).fill"
    with reading(page) as tab:
        tab.until(DRAWN)
        assert (tab.ask(paper), tab.ask(text)) == ("rgb(255, 255, 255)", "rgb(29, 33, 41)")
        tab.page.emulate_media(color_scheme="dark")
        assert (tab.ask(paper), tab.ask(text)) == ("rgb(21, 24, 29)", "rgb(230, 233, 238)")
        tab.page.locator("figure .mark-symbol path").nth(4).hover()
        tab.page.wait_for_selector("#vg-tooltip-element.visible")
        tip = (
            "() => getComputedStyle(document.getElementById('vg-tooltip-element')).backgroundColor"
        )
        assert tab.ask(tip) == "rgb(21, 24, 29)"


CONTRAST: Final = """() => {
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (rgb) => rgb.slice(0, 3).map(channel)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const rgb = parse(getComputedStyle(e).backgroundColor);
      if (rgb.length < 4 || rgb[3] > 0) return rgb;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll("body *:not(svg, svg *, script, noscript)")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.offsetParent || e.ariaHidden === "true") continue;
    const both = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    if (ratio < 4.5) bad.push([e.tagName, e.className, ratio]);
  }
  return bad;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_page(reading: Reading, page: Path, scheme: str) -> None:
    with reading(page, scheme=scheme, fragment="run=0002") as tab:
        tab.until(DRAWN)
        assert tab.ask(CONTRAST) == []


def test_print_shows_what_is_open_and_names_the_convention(reading: Reading, either: Path) -> None:
    with reading(either, fragment="attention=full", height=300) as tab:
        tab.page.emulate_media(media="print", color_scheme="dark")
        assert not tab.page.is_visible(".controls fieldset")
        assert not tab.page.is_visible(".controls select")
        shown = tab.page.inner_text(".convention")
        assert "full attention" in shown
        assert "exact" not in shown
        paper = "() => getComputedStyle(document.body).backgroundColor"
        assert tab.ask(paper) == "rgb(255, 255, 255)"


def test_paper_has_what_is_not_packed_with_its_charts(reading: Reading, either: Path) -> None:
    with reading(either, height=200) as tab:
        tab.until("() => window.vegaEmbed")  # the library comes when the page has nothing to do
        at_print = "() => { dispatchEvent(new Event('beforeprint')) }"
        tab.ask(at_print)
        folds = tab.page.locator("details:not([data-packed])").count()
        tab.until(f"() => ({DRAWN})() === {1 + folds}")
        assert tab.page.locator("details[open]").count() == folds
        tab.ask("() => { dispatchEvent(new Event('afterprint')) }")
        assert tab.page.locator("details[open]").count() == 1
        pdf = tab.page.pdf()
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) < 24


# --- a table of many rows -------------------------------------------------------------------

MANY: Final = 600
LONG: Final = """
<main><section id="jobs"><h2>Jobs</h2>
{% call(run) tables.table("Jobs", [Column("Run"), Column("TGS", "number")], runs, "", "runs", "run_id", css_class="sortable tall") %}
  <th scope="row" data-sort="{{ run.label }}">{{ run.label }}</th>
  <td class="number" data-sort="{{ run.tgs|sort_key }}">{{ run.tgs|number }}</td>
{% endcall %}
</section></main>{{ fold }}
"""  # noqa: E501 - a template
LISTED: Final = """() => [...document.querySelectorAll("tbody tr")].filter(
  (row) => row.checkVisibility()).map((row) => row.dataset.run)"""
COPIED: Final = """(() => {
  navigator.clipboard.writeText = async (text) => { window.copied = text; };
})()"""


@pytest.fixture(scope="module")
def long_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of one table with more rows than are laid out at first."""
    rows = [
        {**RUNS[0], "run_id": f"r{n}", "label": f"={n}", "tgs": n * 7 % MANY} for n in range(MANY)
    ]
    sheet, path = Sheet(), tmp_path_factory.mktemp("long") / "long.html"
    body = markup(LONG, runs=rows, fold=sheet.fold("fold", paragraph("text")))
    path.write_text(sheet.html("long", body), encoding="utf-8")
    return path


def test_a_long_table_shows_its_first_rows_in_any_order(reading: Reading, long_table: Path) -> None:
    by_tgs = [f"r{n}" for n in sorted(range(MANY), key=lambda n: -(n * 7 % MANY))]
    with reading(long_table, script_before=COPIED) as tab:
        assert tab.ask(LISTED) == [f"r{n}" for n in range(250)]
        tab.page.get_by_role("button", name="TGS").press("Enter")
        assert tab.ask(LISTED) == by_tgs[:250]
        tab.page.get_by_role("button", name="Show more: 250 of 600 rows").press("Enter")
        assert tab.ask(LISTED) == by_tgs[:500]
        tab.page.get_by_label("Search all columns").fill("tgs<40")
        assert tab.ask(LISTED) == by_tgs[-40:]
        assert tab.page.locator("button.more").is_hidden()
        tab.page.get_by_label("Search all columns").fill("")
        tab.page.get_by_role("button", name="Copy as CSV").press("Enter")
        tab.until("() => window.copied")
        lines = tab.ask("window.copied").splitlines()
        assert [line.split(",")[-1] for line in lines] == ["Run id", *by_tgs]
        assert lines[1].startswith("'=")  # else a spreadsheet would compute it
        tab.page.emulate_media(media="print")
        assert tab.ask(LISTED) == by_tgs


def test_a_narrow_screen_has_a_list_of_orders(reading: Reading, long_table: Path) -> None:
    by_tgs = [f"r{n}" for n in sorted(range(MANY), key=lambda n: -(n * 7 % MANY))]
    with reading(long_table) as tab:
        assert tab.page.get_by_label("Sort by").is_hidden()
    with reading(long_table, width=390) as tab:
        tab.page.get_by_label("Sort by").select_option("TGS")
        assert tab.ask(LISTED) == by_tgs[:250]
        tab.page.get_by_label("Sort by").select_option("as written")
        assert tab.ask(LISTED) == [f"r{n}" for n in range(250)]


def test_the_end_of_a_long_table_brings_more_rows(reading: Reading, long_table: Path) -> None:
    with reading(long_table) as tab:
        tab.ask("() => { document.querySelector('.tall').scrollTop = 1e6 }")
        tab.until("() => document.querySelectorAll('tr.beyond').length === 100")
