"""Templates: what a log or a user wrote stays text, whatever it holds; one door lets markup in."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from jinja2 import UndefinedError

from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.page import html_report
from fairmfu.reports.page.html_templates import environment
from fairmfu.reports.page.report_data import ReportContent
from tests.reports.page.test_report_data import three
from tests.support.folders import ROOT
from tests.support.markup import markup
from tests.support.packs import Read, unpacked

TEMPLATES: Final = sorted((ROOT / "reports").glob("*/templates/*"))
DOORS: Final = {
    "reports/nightly/night_html.py": 2,  # clauses on a change, written in a style
    "reports/page/html_document.py": 5,  # scripts, style sheets, JSON, folds put into their places
    "reports/page/html_style.py": 4,  # sentences, written in a style
    "reports/page/html_templates.py": 1,  # what a template has written
}
"""Times each module lets markup past autoescape; the module says why it may."""

HOSTILE: Final = (
    "</td><script>alert(1)</script><!--fold 0-->'\" onclick='x' {{ 7*7 }}{% raw %} &lt;b&gt;"
)
HARMLESS: Final = "a text of a log"
WORDS_OF_OURS: Final = {"figure", "price_per_gpu_hour"}
"""Texts by which others are chosen, as are ids and names of columns; no log brings them."""


# --- texts that a log or a file of facts brings -------------------------------------------------


class Structure(HTMLParser):
    """The elements of a page with the names of their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, ...]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))


def with_text(value: Any, text: str, key: str = "") -> Any:
    """A part of a report with a text behind every text of it."""
    if isinstance(value, str):
        ours = key in WORDS_OF_OURS or value in METRICS or value.startswith("id-")
        return value if ours else value + text
    if isinstance(value, dict):
        return {name: with_text(item, text, name) for name, item in value.items()}
    return [with_text(item, text, key) for item in value] if isinstance(value, list) else value


def page_of(text: str) -> str:
    """A report of which every text ends so, those of the sentences too."""
    told = three()
    groups = [[with_text(dict(row), text) for row in group] for group in told.groups]
    rows = [with_text(dict(row), text) for row in told.rows]
    hostile: ReportContent = replace(
        told, data=with_text(told.data, text), groups=groups, rows=rows, analysis=None
    )
    return unpacked(html_report.render_page(hostile))


def test_every_text_of_a_report_stays_text() -> None:
    page, harmless = page_of(HOSTILE), page_of(HARMLESS)
    assert Structure(page).elements == Structure(harmless).elements
    assert Read(page).run == Read(harmless).run
    assert "<script>alert" not in page
    assert Read(page).text.count(HOSTILE) > 300


def test_a_text_is_escaped_wherever_a_template_puts_it() -> None:
    shown = markup("<b title='{{ text }}' lang=\"{{ text }}\">{{ text }}</b>", text=HOSTILE)
    assert Structure(shown).elements == [("b", "title", "lang")]
    assert Read(shown).text == HOSTILE


# --- the door -----------------------------------------------------------------------------------


def test_markup_comes_in_by_one_door_from_places_that_are_known() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "reports").rglob("*.py")}
    made = [path.name for path, text in sources.items() for _ in re.findall(r"\bMarkup\(", text)]
    assert made == ["html_templates.py"]
    calls = {
        str(path.relative_to(ROOT)): len(re.findall(r"(?<!def )\btrusted\b[(),]", text))
        for path, text in sources.items()
    }
    assert {path: count for path, count in calls.items() if count} == DOORS


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_lets_a_text_past_autoescape(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe\b|\{%-?\s*autoescape\b", text)
    assert path.name.endswith(".html.j2")
    environment().get_template(f"{path.parts[-3]}/{path.name}")


def test_html_is_written_by_templates_alone() -> None:
    ends = {
        path.name: re.findall(r"</[a-z]\w*>", path.read_text(encoding="utf-8"))
        for path in (ROOT / "reports").rglob("*.py")
    }
    assert {name: found for name, found in ends.items() if found} == {
        "html_templates.py": ["</pre>"]  # whose line breaks are kept
    }


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'nothing' is undefined"):
        markup("{{ nothing }}")
    with pytest.raises(UndefinedError, match="has no attribute 'nothing'"):
        markup("{{ row.nothing }}", row={"something": 1})


# --- line breaks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("<p>\n  one\n  two\n</p>\n<p>three</p>\n", "<p>one two</p><p>three</p>"),
        ("<b>\n  {{ text }}\n</b>", "<b>a\n b</b>"),
        ("{% if text %}\n  one\n{% endif %}\n", "one"),
        ("{{ text }}\n{{ text }}", "a\n ba\n b"),
        ("one\n{{ text }}\ntwo", "one a\n b two"),
        ("one\n{# a remark #}\ntwo", "onetwo"),
        ("<i>one</i> <b>two</b>", "<i>one</i> <b>two</b>"),
        ("<pre>\n  one\n    two</pre>\n<p>\n", "<pre>\n  one\n    two</pre><p>"),
    ],
)
def test_line_breaks_of_a_template_are_spaces_between_words_alone(
    source: str, written: str
) -> None:
    assert markup(source, text="a\n b") == written
