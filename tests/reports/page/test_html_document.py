"""Parts of a page: what they say of themselves, escaped; packed folds come back as they were."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from fairmfu.reports.charts.figure import Figure
from fairmfu.reports.charts.theme import FRAMEWORK_COLOURS, chart_theme
from fairmfu.reports.charts.tooltips import CONVENTIONS
from fairmfu.reports.page.html_cells import by_convention, number, ratio
from fairmfu.reports.page.html_document import (
    MAX_FOLDS_PER_PACK,
    SCRIPT_FILES,
    Sheet,
    bundle,
    page_script,
    script_hash,
)
from fairmfu.reports.page.html_report import Controls
from fairmfu.reports.page.html_templates import packaged
from tests.support.markup import controls, markup, paragraph
from tests.support.packs import Read, blocks, unpacked

SMUGGLED = "</script><script>document.title = 'owned'</script>"
HOSTILE = [
    SMUGGLED,
    "<!-- <script>",
    "<!--fold 0-->",
    "</details></figure><img src=x onerror=alert(1)>",
    '" onclick="alert(1)',
    "\u2028\u2029 \u202egnp.exe \u200f שלום",
    "\x00 ]]> &lt; &amp; \\u003c",
]

FIGURE = Figure(
    kind="dots",
    title="TGS of each run",
    notes=("Tokens per second per GPU.", "One point per run."),
    description="TGS of 2 runs.",
    spec={
        "data": {"name": "runs"},
        "mark": "point",
        "encoding": {"x": {"field": "tgs", "type": "quantitative"}},
        "params": [{"name": "attention", "value": "exact"}],
    },
    datasets={"runs": [{"run_id": "a1", "tgs": 5.5}]},
    params={},
)
NOTHING = markup("")
HEAVY = paragraph("a fold that is heavy enough to be packed " * 40)


# --- cells, tables and controls -----------------------------------------------------------------


def test_a_number_has_its_unit_and_an_unknown_one_a_dash() -> None:
    assert number(5830.04) == "5,830"
    assert number(41.25, 1) == "41.2"
    assert ratio(1.1259) == "1.13x"
    assert number(None, 1) == ratio(None) == "\N{EN DASH}"


TABLE = """
{% call(row) tables.table("Runs", [Column("Run"), Column("TGS", "number"), Column("Note")], rows, "", path, key) %}
  <th scope="row" data-of="name">{{ row.name }}</th>
  <td class="number" data-of="tgs">{{ row.tgs|number }}</td>
  <td>as logged</td>
{% endcall %}
"""  # noqa: E501 - a template


def test_a_cell_names_its_field_and_a_row_its_place() -> None:
    first = {"run_id": "a1", "name": "one", "tgs": 5.0, "model": "x", "accelerator": None}
    rows: list[dict[str, Any]] = [first, {**dict.fromkeys(first), "run_id": "b2", "name": ""}]
    by_index = markup(TABLE, rows=rows, path="runs.list", key="")
    assert re.findall('data-at="([^"]*)"', by_index) == ["runs.list.0", "runs.list.1"]
    assert '<th scope="row" data-of="name">one</th>' in by_index
    assert '<td class="number" data-of="tgs">5</td><td>as logged</td>' in by_index
    assert "data-run" not in by_index
    by_id = markup(TABLE, rows=rows, path="runs", key="run_id")
    assert re.findall('data-at="([^"]*)"', by_id) == ["runs.a1", "runs.b2"]
    assert re.findall('data-run="([^"]*)"', by_id) == ["a1", "b2"]
    assert "data-at" not in markup(TABLE, rows=rows, path="", key="")


def by_conventions(texts: dict[str, str]) -> str:
    """A figure that reads so by each convention."""
    row = {f"mfu_{name}": text for name, text in texts.items()}
    return markup("{{ figures.conventions(shown) }}", shown=by_convention(row, "mfu", str))


def test_a_figure_under_each_convention_names_each_field() -> None:
    shown = by_conventions({name: name for name in CONVENTIONS})
    assert re.findall('data-of="([^"]*)"', shown) == [f"mfu_{name}" for name in CONVENTIONS]
    assert '<span class="c full bf16" data-of="mfu_full_bf16">full_bf16</span>' in shown


def test_what_conventions_agree_on_stands_there_once() -> None:
    assert by_conventions({name: name[:4] for name in CONVENTIONS}) == (
        '<span class="c exact" data-of="mfu_exact_own">exac</span>'
        '<span class="c full" data-of="mfu_full_own">full</span>'
    )
    agreed = by_conventions(dict.fromkeys(CONVENTIONS, "1"))
    assert agreed == '<span data-of="mfu_exact_own">1</span>'


def test_the_style_sheet_shows_one_convention_at_a_time() -> None:
    style = re.sub(r"\s+", " ", packaged("page.css"))
    hidden = re.search(r'(html\[data-attention="exact"\][^{]*) \{ display: none; \}', style)
    assert hidden is not None
    pairs = re.findall(r'html\[data-(\w+)="(\w+)"\] \.c\.(\w+)', hidden[1])
    assert sorted(pairs) == [
        ("attention", "exact", "full"),
        ("attention", "full", "exact"),
        ("peak", "bf16", "own"),
        ("peak", "own", "bf16"),
    ]


def test_controls_offer_what_there_is_to_choose() -> None:
    same = {"framework": "own", "device": None, "accelerator": "H100"}
    runs = [same | {"run_id": str(n), "model": m} for n, m in enumerate(("b<c", "a", "a"))]
    chosen = Controls.of(runs)
    assert json.loads(chosen.subjects) == [
        ["own", "a", "H100", "1 2"],
        ["own", "b<c", "H100", "0"],
    ]
    shown = markup("{{ controls.controls(chosen) }}", chosen=chosen)
    assert re.findall('<option value="([^"]*)"', shown) == ["", "a", "b&lt;c"]
    assert 'name="accelerator"' not in shown
    assert shown.count('type="radio"') == 4
    assert re.findall(r'value="(\w+)" autocomplete="off" checked', shown) == ["exact", "own"]
    assert '<option value="">all 2</option>' in shown
    assert "<select" not in controls([], [])
    assert "data-subjects" not in controls([], [])


def test_every_control_has_a_label() -> None:
    shown = controls(["a", "b"], ["c", "d"])
    unlabelled = re.sub(r"<label\b.*?</label>", "", shown)
    assert not re.search("<input|<select", unlabelled)
    for fieldset in re.findall("<fieldset>.*?</fieldset>", shown):
        assert fieldset.startswith("<fieldset><legend>")


def test_a_colour_in_the_legend_has_its_name_beside_it() -> None:
    shown = markup("{{ controls.legend(known) }}", known=["xtuner", "own"])
    assert shown.count("<li>") == 2
    assert FRAMEWORK_COLOURS["xtuner"] in shown
    assert Read(shown).text == "\N{BLACK CIRCLE} xtuner\N{BLACK CIRCLE} own"


# --- figures ------------------------------------------------------------------------------------


def test_a_spec_stands_once_however_many_figures_are_of_its_kind() -> None:
    sheet = Sheet()
    again = replace(FIGURE, datasets={"runs": []}, params={"attention": "full"})
    read = Read(sheet.html("t", sheet.figure(FIGURE) + sheet.figure(again)))
    held = [json.loads(text) for text in read.data]
    assert held == [
        {"datasets": {"runs": {"run_id": ["a1"], "tgs": [5.5]}}, "params": {}},
        {"datasets": {"runs": []}, "params": {"attention": "full"}},
        chart_theme()["config"],
        FIGURE.spec,
    ]
    assert read.text.count("TGS of each run") == 2
    assert "One point per run." in read.text


def test_figures_of_one_kind_and_two_specs_are_refused() -> None:
    sheet = Sheet()
    sheet.figure(FIGURE)
    sheet.figure(replace(FIGURE, spec={**FIGURE.spec}))  # equal, so well
    with pytest.raises(ValueError, match="'dots' have different specs"):
        sheet.figure(replace(FIGURE, spec=FIGURE.spec | {"mark": "bar"}))


def test_a_whole_spec_stands_by_itself() -> None:
    sheet = Sheet()
    whole = {"description": 'a "chart"', "mark": "bar"}
    shown = sheet.figure(whole)
    assert json.loads(Read(shown).data[0]) == whole
    assert '<figure aria-label="a &#34;chart&#34;">' in shown
    assert "data-kind" not in shown


# --- folds --------------------------------------------------------------------------------------


def a_page(sheet: Sheet, depth: int = 2) -> str:
    """A page of folds in folds, one of them too small to be packed."""
    inner = sheet.figure(FIGURE) + HEAVY
    for level in range(depth):
        inner = HEAVY + sheet.fold(f"level {level}", inner, name=f"run-{level}")
    other = sheet.fold("other", sheet.fold("within", HEAVY))
    attributes = markup("{{ names.run_attributes('a1') }}")
    small = sheet.fold("small", paragraph("small"), attributes=attributes)
    return sheet.html("t", markup("<header>h</header>") + controls([], []) + inner + other + small)


def test_folds_stand_in_their_places_where_they_are_light() -> None:
    shown = a_page(Sheet())
    assert "<!--fold" not in shown
    assert 'data-packed="' not in shown
    assert shown.count("<details") == shown.count("</details>") == 5
    assert '<details id="run-1"><summary>level 1</summary><p>a fold' in shown
    assert "<details><summary>other</summary><details>" in shown
    assert '<details data-run="a1"><summary>small' in shown


def test_packed_folds_come_back_as_they_were() -> None:
    packed = a_page(Sheet(packed_above=0))
    assert packed.count('data-packed="') == 2  # the inner one is in the pack of the outer
    assert "<details><summary>other</summary><details data-packed=" in packed
    assert "<p>small</p>" in packed
    assert "TGS of each run" not in packed
    light = a_page(Sheet())
    assert (
        unpacked(packed).split("<body>")[1].split("<script")[0]
        == (light.split("<body>")[1].split("<script")[0])
    )
    assert sorted(Read(unpacked(packed)).run) == sorted(Read(light).run)


def test_packs_hold_some_folds_each_and_none_without_need() -> None:
    sheet = Sheet()
    folds = [sheet.fold(str(n), paragraph(str(n)) + HEAVY) for n in range(1_000)]
    held = blocks(sheet.html("t", NOTHING.join(folds)))
    assert [len(block) for block in held[:-1]] == [MAX_FOLDS_PER_PACK] * (len(held) - 1)
    assert sum(map(len, held)) == 1_000
    assert 30 <= MAX_FOLDS_PER_PACK <= 60
    assert not blocks(sheet.html("t", NOTHING.join(folds[:10])))


def test_two_thousand_folds_are_a_light_page() -> None:
    sheet = Sheet()
    rows = [{"name": f"step_{n}", "tgs": 5_000 + n / 7} for n in range(40)]
    facts = markup(TABLE, rows=rows, path="facts", key="")
    folds = [sheet.fold(f"run {n}", sheet.figure(FIGURE) + facts) for n in range(2_000)]
    shown = sheet.html("t", NOTHING.join(folds))
    assert len(shown.encode()) < 1_500_000
    assert unpacked(shown).count("</figure>") == 2_000


texts = st.text(max_size=60) | st.sampled_from(HOSTILE)


@settings(max_examples=30)
@given(
    st.recursive(texts, lambda inner: st.tuples(texts, st.lists(inner, max_size=4)), max_leaves=12)
)
def test_no_text_can_leave_its_place(tree: Any) -> None:
    """Packed or not, a tree of folds of hostile texts has the elements of one of harmless texts."""
    found = [Read(unpacked(page_of(tree, packed))) for packed in (False, True)]
    harmless = Read(page_of(tree, packed=False, say=lambda _: "harmless"))
    for read in found:
        assert sorted(read.tags) == sorted(harmless.tags)
        assert sorted(read.run) == sorted(harmless.run)
        assert read.addresses == []
    assert found[0].text.split() == found[1].text.split()


def page_of(tree: Any, packed: bool, say: Any = str) -> str:  # noqa: FBT001 - of a test
    sheet = Sheet(packed_above=0 if packed else 10**9)

    def part(node: Any) -> Markup:
        if isinstance(node, str):
            text = say(node)
            figure = replace(FIGURE, title=text, description=text, datasets={"runs": [{"a": text}]})
            return paragraph(text) + HEAVY + sheet.figure(figure)
        return sheet.fold(say(node[0]), NOTHING.join(map(part, node[1])) + HEAVY)

    return sheet.html(say("title"), part(tree))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_still_text(text: str) -> None:
    sheet = Sheet(packed_above=0)
    names = ("text", "run_id", "model", "accelerator", "device", "label", "framework")
    row = dict.fromkeys(names, text)
    body = markup(
        "{% call(row) tables.table(text, [Column(text)], rows, text, 'runs', 'run_id') %}"
        "<td>{{ row.text }}</td>{{ names.run_link(row) }}{% endcall %}",
        text=text,
        rows=[row | {"synthetic": True, "facts": []}],
    )
    head = controls([text, "b"], [text, "b"], Controls.of([row]).subjects)
    page = sheet.html(text, head + sheet.fold(text, body + HEAVY))
    read = Read(unpacked(page))
    assert set(read.run) == {page_script()}
    if "\x00" not in text:
        assert text in read.text
    assert "img" not in read.tags
    assert read.addresses == [f"#run-{text}"]


# --- the document -------------------------------------------------------------------------------


@pytest.mark.parametrize("packed_above", [0, 10**9])
def test_the_same_parts_give_the_same_bytes(packed_above: int) -> None:
    assert a_page(Sheet(packed_above=packed_above)) == a_page(Sheet(packed_above=packed_above))


def test_a_sheet_can_be_written_twice() -> None:
    sheet = Sheet(packed_above=0)
    body = sheet.fold("one", HEAVY + sheet.figure(FIGURE))
    assert sheet.html("t", body) == sheet.html("t", body)


@pytest.mark.parametrize("packed_above", [0, 10**9])
def test_the_policy_names_the_scripts_of_the_page_and_no_more(packed_above: int) -> None:
    read = Read(unpacked(a_page(Sheet(packed_above=packed_above))))
    assert sorted(read.run) == sorted([bundle(), page_script()])
    assert re.findall(r"'sha256-[^']+'", read.policy) == [script_hash(bundle()), PAGE]
    assert read.policy.startswith("default-src 'none'; script-src 'sha256-")
    for word in ("unsafe-eval", "http", "nonce", "*"):
        assert word not in read.policy


PAGE = script_hash(page_script())


def test_a_page_without_anything_to_do_runs_nothing() -> None:
    read = Read(Sheet().html("t", paragraph("words")))
    assert read.run == []
    assert "script-src 'none'" in read.policy


def test_a_file_beside_the_page_may_run_by_a_nonce_that_hangs_on_the_body() -> None:
    def nonce(words: str) -> str:
        page = Sheet().html("t", paragraph(words), script="age()", script_file="status.js")
        (found,) = set(re.findall(r"nonce-([^']+)'", Read(page).policy))
        assert f'<script nonce="{found}" src="status.js"></script>' in page
        assert script_hash("age()") in Read(page).policy
        return str(found)

    assert nonce("one") != nonce("two")
    assert nonce("one") == nonce("one")


def test_the_page_says_what_needs_a_script() -> None:
    sheet = Sheet()
    page = sheet.html("t", sheet.figure(FIGURE))
    assert "<noscript>" in page
    packed = a_page(Sheet(packed_above=0))
    assert "are compressed. They need JavaScript" in packed
    assert "are compressed" not in page


@pytest.mark.parametrize("name", [*SCRIPT_FILES, "page.css", "nightly.css"])
def test_what_the_package_holds_asks_for_nothing(name: str) -> None:
    text = packaged(name)
    assert not re.search(r"https?:|url\(|@import|</|<!--|\beval\(|new Function|innerHTML", text)
    assert text.isascii()
