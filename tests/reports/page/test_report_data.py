"""What the report says: every number of the page is that of `--format json`, under its place."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from html import escape
from html.parser import HTMLParser

import jsonschema
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.compare.comparability import COMPARISON
from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.core.messages import as_clause
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.pipeline.missing_facts import find_needs
from fairmfu.metrics.pipeline.run_needs import unlocks
from fairmfu.metrics.throughput import messages
from fairmfu.reports.page import html_report, overview
from fairmfu.reports.page import report_data as told_content
from fairmfu.reports.page.report_data import (
    bins_per_run,
    build_content,
    json_value,
    report_json,
    understood_shares,
)
from fairmfu.reports.text.commands import with_store
from fairmfu.reports.text.missing_facts import missing_facts, run_argument
from fairmfu.reports.text.run_explained import explain
from fairmfu.reports.text.run_narrative import BAD_OUTCOMES
from tests.reports.page.test_html_report import EVIL, FACTS, a_run, a_store, claiming
from tests.support.folders import ROOT
from tests.support.packs import rows, unpacked

SINGLE_LOGGED_STEP = messages.SINGLE_STEP()

SCHEMA = ROOT / "docs" / "report.schema.json"
VOID = {"meta", "link", "br", "input", "img", "hr", "wbr"}

SCALES = {
    "%": 0.01,
    "k": 1e3,
    "M": 1e6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "x": 1.0,
    "GiB": 2.0**30,
}
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
NOTHING = "\N{EN DASH}"


class Walk(HTMLParser):
    """Every text of a page with its place in the JSON: elements with data-of, and texts outside.

    A place is the data-at of the elements around, outermost first, and the data-of. What is hidden
    from a screen reader or marked data-static inside of an element is no part of its text.
    """

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.shown, self.loose, self.figures = [], [], []
        self._open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in VOID:
            return
        given = dict(attrs)
        within = self._open[-1] if self._open else {}
        self._open.append(
            {
                "tag": tag,
                "at": [*within.get("at", []), *([given["data-at"]] if "data-at" in given else [])],
                "of": given.get("data-of"),
                "silent": within.get("silent")
                or tag in ("script", "style", "title")
                or "data-static" in given
                or given.get("aria-hidden") == "true",
                "spec": tag == "script" and "spec" in given.get("class", "").split(),
                "json": given.get("type") == "application/json",
                "caption": within.get("caption") or tag == "figcaption",
                "figure": tag == "figure",
                "text": "",
                "words": "",
                "data": None,
            }
        )

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        one = self._open.pop()
        assert one["tag"] == tag, f"{one['tag']} closed by {tag}"
        if one["of"] is not None:
            self.shown.append((".".join([*one["at"], one["of"]]), squeezed(one["text"])))
        if one["figure"]:
            self.figures.append((".".join(one["at"]), one["words"], one["data"]))

    def handle_data(self, data):
        top = self._open[-1] if self._open else {}
        if top.get("json") and not top["spec"]:
            for one in reversed(self._open):
                if one["figure"]:
                    one["data"] = json.loads(data)
        if top.get("silent"):
            return
        for one in self._open:
            one["text"] += data
            if one["figure"] and top["caption"]:
                one["words"] += data
        inside = any(one["of"] is not None for one in self._open) or top.get("caption")
        if re.search(r"\d", data) and not inside:
            self.loose.append(data.strip())


def squeezed(text):
    return " ".join(text.split())


def found(whole, place):
    """The value at a place of the JSON; KeyError, IndexError where there is none."""
    for key in place.split("."):
        whole = whole[int(key)] if isinstance(whole, list) else whole[key]
    return whole


def reads_as(text, value):
    """Whether a text is the value, rounded to the digits that it shows."""
    if value is None:
        return text in (NOTHING, "")
    if isinstance(value, str):
        return text == squeezed(value)
    number = NUMBER.search(text)
    if number is None:
        return False
    before, after = text[: number.start()].strip(), text[number.end() :].strip()
    if before or (after and after not in SCALES):
        return False
    digits, _, power = number[0].replace(",", "").partition("e")
    scale = SCALES.get(after, 1.0)
    decimals = len(digits.partition(".")[2])
    half = 0.5 * 10.0 ** (int(power or 0) - decimals)
    if not decimals and not power:  # three significant figures of a large number may be zeros
        half = max(half, 0.5)
    return abs(float(number[0].replace(",", "")) - value / scale) <= half * (1 + 1e-6)


def walk(html, told):
    """What is wrong on a page: places that lead nowhere or elsewhere, and numbers without one."""
    seen = Walk(unpacked(html))
    wrong = [f"outside: {text}" for text in seen.loose]
    for place, text in seen.shown:
        try:
            value = found(told, place)
        except (KeyError, IndexError, ValueError, TypeError):
            wrong.append(f"{place}: leads nowhere ({text!r})")
            continue
        in_gib = f"{text} GiB" if place.endswith(".peak_memory_bytes") else text
        if not reads_as(text, value) and not reads_as(in_gib, value):
            wrong.append(f"{place}: {text!r} is not {value!r}")
    for place, words, data in seen.figures:
        if data.get("datasets", {}).get("points") == []:  # the script fills it
            continue
        chart = told["charts"].get(place.removeprefix("charts."))
        if chart is None:
            wrong.append(f"{place}: no such chart")
            continue
        if squeezed(words) != squeezed(chart["title"] + "".join(chart["notes"])):
            wrong.append(f"{place}: caption {words!r}")
        if {name: rows(held) for name, held in data["datasets"].items()} != chart["datasets"]:
            wrong.append(f"{place}: other data")
    return wrong, seen


def told_of(*runs, title="Runs", most_described=None):
    tables = a_store(*runs)
    analysis = analyse(tables)
    return build_content(
        analysis, analysis.metrics, tables, title, None, "1.2.3", most_described=most_described
    )


def no_model():
    return a_run("deepspeed", 5_838.0, facts={k: v for k, v in FACTS.items() if k != "model"})


@cache
def three():
    return told_of(
        a_run("xtuner", 5_834.0),
        claiming(),
        no_model(),
        a_run("deepspeed", 5_500.0, name="other", run_id="id-other"),
    )


def test_phases_of_the_page_are_in_the_json():
    """A phase of two words, a rest that is unknown, and a share of the wall time."""
    told = three()
    run = told.data["runs"]["id-xtuner"]
    rows = [
        {"phase": "forward_backward", "seconds": 12.5432, "share": 1.2, "share_of": "step"},
        {"phase": "rest", "seconds": None, "share": None, "share_of": "step"},
        {"phase": "evaluation", "seconds": 0.5, "share": 0.05, "share_of": "wall"},
    ]
    phases = [{**row, "windows": 1200, "source": "fb - comm"} for row in rows]
    about = run | {"phases": phases, "phase_step_s": 10.5, "phase_notes": ["They overlap."]}
    data = told.data | {"runs": told.data["runs"] | {"id-xtuner": about}}
    content = replace(told, data=data, say=None)
    wrong, seen = walk(html_report.render_page(content), report_json(content))
    assert wrong == []
    texts = [text for place, text in seen.shown if "id-xtuner.phase" in place]
    assert {"10.5 s", "12.54 s", "500 ms", "1,200", "They overlap."} <= set(texts)


def test_every_number_of_the_page_is_in_the_json():
    told = three()
    wrong, seen = walk(html_report.render_page(told), report_json(told))
    assert wrong == []
    assert len(seen.shown) > 300
    assert len(seen.figures) > 10


def test_every_number_of_studies_and_memory_is_in_the_json():
    runs = [
        a_run("xtuner", 10.0 * int(gpus), name=gpus, run_id=gpus, facts=FACTS | {"gpus": gpus})
        for gpus in ("800", "400")
    ]
    for step in (step for run in runs for step in run["steps"]):
        step["peak_memory_bytes"] = 40.0 * 2**30
    told = told_of(*runs)
    assert told.data["studies"]
    wrong, seen = walk(html_report.render_page(told), report_json(told))
    assert wrong == []
    assert ("studies.0.settings.0.peak_memory_bytes", "40.0") in seen.shown


@pytest.mark.parametrize(
    ("text", "value", "good"),
    [
        ("6,398", 6398.4, True),
        ("6,398", 6399.0, False),
        ("33.3 %", 0.33285, True),
        ("33.3 %", 0.3343, False),
        ("1.13x", 1.126, True),
        ("4.3 min", 258.2, True),
        ("4.3 min", 280.0, False),
        ("5.15e+10", 51_473_000_000.0, True),
        ("5.15e+10", 52_473_000_000.0, False),
        ("\N{EN DASH}", None, True),
        ("0", None, False),
        ("a b", "a\nb", True),
        ("about 5", 5, False),
    ],
)
def test_a_number_is_the_value_to_the_digits_it_shows(text, value, good):
    assert reads_as(text, value) is good


def test_the_walk_finds_what_is_wrong():
    told = {"a": 5, "charts": {}}
    assert walk('<p data-of="a">5</p><p data-static>7</p>', told)[0] == []
    for html in (
        '<p data-of="a">6</p>',
        '<p data-of="b">5</p>',
        "<p>5 runs</p>",
        '<div data-at="b"><p data-of="a">5</p></div>',
        '<b data-at="charts.x"><figure><script type="application/json">{}</script></figure></b>',
    ):
        assert len(walk(html, told)[0]) == 1, html


def test_json_is_as_its_schema_says():
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema["$defs"]["run"]["properties"].keys() >= {*METRICS, *COMPARISON}
    for told in (three(), told_of(), told_of(a_run("xtuner", 5e3))):
        jsonschema.validate(report_json(told), schema)


def test_json_is_json_and_the_same_each_time():
    tables = a_store(a_run("xtuner", 5_834.0), a_run("torchtitan", 5_838.0))

    def written():
        analysis = analyse(tables)
        told = build_content(analysis, analysis.metrics, tables, "Runs", None, "1.2.3")
        return json.dumps(report_json(told), allow_nan=False), html_report.render_page(told)

    assert written() == written()


def test_runs_that_can_not_be_ranked_say_the_command_that_completes_them():
    told = three().data
    lacking = told["runs"]["id-deepspeed"]
    assert told["apart"] == ["id-deepspeed"]
    command = lacking["complete_command"]
    assert command.startswith(f"fairmfu set {lacking['name']} ")
    assert " model=…" in command
    assert [one["name"] for one in lacking["complete_with"]] == re.findall(r"(\w+)=", command)


def short():
    return a_run("xtuner", 5_834.0, name="two steps", steps=3)


@pytest.mark.parametrize("make", [claiming, no_model, short])
def test_a_run_begins_with_the_sentences_of_explain(make):
    """Also before its first chart, and with a command that runs as printed."""
    tables = a_store(make())
    analysis = analyse(tables)
    content = build_content(analysis, analysis.metrics, tables, "Runs", None, "1.2.3", store="perf")
    ((run_id, run),) = content.data["runs"].items()
    told = squeezed(with_store(explain(analysis, run_id), "perf"))
    words = run["words"]
    head = [*words["diagnosis"], *words["logged"], *words["doubts"]]
    head += [f"{words['missing']} Fix: {run['complete_command']}"] if words["missing"] else []
    places = [told.find(squeezed(sentence)) for sentence in [*head, *words["notes"]]]
    assert places[0] > -1
    assert places == sorted(set(places))
    card = unpacked(html_report.render_page(content)).partition(f'id="run-{run_id}"')[2]
    before_chart = squeezed(re.sub("<[^>]+>", "", card.partition("<figure")[0]))
    texts = [escape(sentence).replace("&#x27;", "&#39;") for sentence in head]
    places = [before_chart.find(squeezed(text)) for text in texts]
    assert places[0] > -1
    assert places == sorted(set(places))


def test_a_run_without_an_mfu_says_why_first():
    data = told_of(no_model()).data
    (run,) = data["runs"].values()
    assert run["words"]["missing"] == "No MFU: the log lacks model."
    (run,) = told_of(claiming()).data["runs"].values()
    assert run["words"]["missing"] == ""
    assert run["words"]["logged"][0].startswith("Logged TFLOP/s: ")


def test_a_run_without_a_figure_says_why_in_a_sentence():
    lacking = {name: FACTS[name] for name in ("gpus", "packed", "global_batch_size")}
    preference = FACTS | {"objective": "preference"}
    told = told_of(
        a_run("xtuner", 5_834.0),
        no_model(),
        a_run("xtuner", 5_000.0, name="one", run_id="one", steps=1),
        a_run("xtuner", 4_000.0, name="bare", run_id="bare", facts=lacking),
        a_run("xtuner", 3_000.0, name="other", run_id="other", facts=preference),
    )
    runs = told.data["runs"]
    found = {run_id: (run["no_tgs"], run["no_mfu"]) for run_id, run in runs.items()}
    assert found["id-xtuner"] == (None, None)
    assert found["id-deepspeed"] == (None, "No MFU: missing model.")
    assert found["one"][0] == "No TGS: only one step is logged, and it may contain start-up."
    assert found["bare"][0] == "No TGS: missing seq_len."
    assert found["bare"][1].startswith("No MFU: missing seq_len, model")
    assert "objective=preference" in found["other"][1]
    page = html_report.render_page(told)
    for reason in filter(None, (reason for run in found.values() for reason in run)):
        assert "Fix" not in reason
        shown = escape(reason).replace("&#x27;", "&#39;")
        assert f'title="{shown}"><span role="img" aria-label="{shown}">' in page


def test_an_mfu_by_full_attention_alone_says_what_exact_attention_lacks():
    row = {"run_id": "a", "tgs": 1.0, "mfu": None, "mfu_full_attention": 0.1, "warnings": []}
    row |= {"missing": ["attended_pairs"]}
    because = overview.unknown_because(row, overview.Needs({}, None))
    lacks = "No MFU (exact attention): missing attended_pairs."
    assert because == {"no_tgs": None, "no_mfu": lacks}


@given(st.lists(st.integers(0, 10**6), min_size=5, max_size=5))
def test_the_understood_share_counts_neither_other_nor_unread_lines(counts):
    kinds = ("step_lines", "known_lines", "companion_lines", "other_lines", "unread_lines")
    source = dict(zip(kinds, counts, strict=True)) | {"lines": sum(counts)}
    (share,) = understood_shares(pl.DataFrame([source]))["understood"]
    if sum(counts):
        assert share == pytest.approx(sum(counts[:3]) / sum(counts))
    else:
        assert json_value(share) is None


def test_missing_facts_are_grouped_as_by_the_command_missing():
    lacking = {k: v for k, v in FACTS.items() if k not in ("model", "accelerator")}
    tables = a_store(
        a_run("xtuner", 5_834.0, name="a", run_id="a"),
        a_run("deepspeed", 5_000.0, name="b", run_id="b", facts=lacking),
        a_run("deepspeed", 4_000.0, name="c", run_id="c", facts=lacking),
        a_run("torchtitan", 5_000.0, name="d", run_id="d", facts={"seq_len": "4096"}),
    )
    analysis = analyse(tables)
    data = build_content(analysis, analysis.metrics, tables, "Runs", None, "1.2.3").data
    steps = unlocks(find_needs(tables))
    found = [(step["facts"], step["runs"]) for step in data["missing"]["unlocks"]]
    assert found == [([*step.facts], step.runs) for step in steps]
    assert data["missing"]["runs"] == sum(step.runs for step in steps) >= 2
    named = [run_id for step in data["missing"]["commands"] for run_id in step["runs"]]
    assert sorted(named) == sorted(data["apart"]) == ["b", "c", "d"]
    first = data["missing"]["commands"][0]
    assert first["command"].startswith("fairmfu set b c ")
    assert first["command"].endswith(data["runs"]["b"]["complete_command"].partition(" b ")[2])
    assert sorted(run for one in data["reasons_apart"] for run in one["runs"]) == ["b", "c", "d"]


def test_the_overview_counts_the_runs_of_its_lists():
    data = three().data
    ranked = sum(run["rank"] is not None for run in data["runs"].values())
    assert data["counts"]["ranked"] == ranked == len(data["runs"]) - len(data["apart"])
    for name in ("failed", "slowed"):
        assert data["counts"][name] == len(data[name])
        assert set(data[name]) <= set(data["runs"])


@given(outcomes=st.lists(st.sampled_from([*BAD_OUTCOMES, "completed"])))
def test_failed_runs_of_one_outcome_are_together_the_most_frequent_first(outcomes):
    rows = [{"run_id": str(at), "outcome": outcome} for at, outcome in enumerate(outcomes)]
    order = [outcomes[int(run_id)] for run_id in overview.failed(rows)]
    counts = Counter(outcome for outcome in outcomes if outcome != "completed").most_common()
    assert order == [outcome for outcome, count in counts for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "label", "called"),
    [
        ("titan-8b", "titan-8b", "titan-8b"),
        ("two words", "two words", "'two words'"),
        ("shared", "shared [id]", "id"),
        ("lr=1", "lr=1", "id"),
        ("-x", "-x", "id"),
        ("a\x1b[1m", "a\x1b[1m", "id"),
    ],
)
def test_a_command_names_a_run_as_people_do_where_that_is_clear(name, label, called):
    assert run_argument({"name": name, "run_id": "id"}, label) == called


def test_no_fact_completes_a_run_that_has_no_rate_whatever_is_said_of_it():
    row = dict.fromkeys(METRICS.names()) | {"missing": ["gpus", "model"], "warnings": []}
    assert "model" in missing_facts(row | {"steps": 3, "tgs": 1.0})
    assert "gpus" in missing_facts(row | {"steps": 3})
    assert missing_facts(row | {"steps": 0}) == []
    kinds = ["other", SINGLE_LOGGED_STEP.kind]
    without = row | {
        "steps": 1,
        "warnings": ["a doubt", SINGLE_LOGGED_STEP],
        "warning_kinds": kinds,
    }
    assert missing_facts(without) == []
    assert explain_missing_rate(without) == (as_clause(SINGLE_LOGGED_STEP), [])
    assert explain_missing_rate(row | {"steps": 3}) == ("missing gpus", ["gpus"])


def test_a_fact_that_a_message_asks_for_is_in_the_command():
    row = dict.fromkeys(METRICS.names()) | {"missing": ["model"], "tgs": 1.0, "steps": 3}
    assert "gradient_accumulation" not in missing_facts(row)
    doubted = row | {"warning_kinds": ["other", messages.ACCUMULATION_UNKNOWN.identifier]}
    assert "gradient_accumulation" in missing_facts(doubted)


def test_many_runs_are_drawn_with_fewer_points():
    counts = [bins_per_run([1_000] * n) for n in (1, 20, 21, 100, 2_000)]
    assert counts == sorted(counts, reverse=True)
    assert (counts[1], counts[-1]) == (300, 20)
    assert bins_per_run([10] * 400 + [1_000] * 6) == 300


def test_a_page_of_very_many_runs_says_less_of_each_and_says_so(monkeypatch):
    monkeypatch.setattr(told_content, "MAX_RUNS_IN_FULL", 5)
    monkeypatch.setattr(html_report, "MAX_OPEN_ROWS_OF_MANY", 3)
    monkeypatch.setattr(html_report, "MAX_RUNS_PER_FOLD", 4)
    runs = [
        a_run("xtuner", 5_800.0 + n, name=f"run-{n}", run_id=f"id-{n}", steps=8) for n in range(9)
    ]
    told = told_of(*runs)
    html = html_report.render_page(told)
    wrong, seen = walk(html, report_json(told))
    assert wrong == []
    assert {place.split(":")[0] for place, *_ in seen.figures} >= {"charts.course"}
    assert not any("step_times" in place for place, *_ in seen.figures)
    assert "With this many runs, each has only this chart" in html
    assert "Rows 4 to 9 of 9</span>" in html
    assert re.findall(r'data-holds="[^"]*"', html)[0].count("id-") == 4
    assert html.count('id="run-id-') == 9


def test_a_page_describes_failed_runs_first_and_has_all_others_in_its_tables(monkeypatch):
    monkeypatch.setattr(told_content, "MAX_RUNS_IN_FULL", 5)
    monkeypatch.setattr(html_report, "MAX_LISTED_LOGS", 4)
    runs = [
        a_run("xtuner", 5_800.0 + n, name=f"run-{n}", run_id=f"id-{n}", steps=8) for n in range(9)
    ]
    runs[3]["runs"][0] |= {"outcome": "killed", "outcome_line": 40, "outcome_text": "Killed"}
    told, whole = told_of(*runs, most_described=3), told_of(*runs)
    assert set(told.described) == {"id-3", "id-8", "id-7"}
    html = html_report.render_page(told)
    parts = set(re.findall(r'<details id="run-(id-\d)"', html))
    assert parts == set(told.described) == set(re.findall(r'href="#run-(id-\d)"', html))
    assert {*re.findall(r'<tr[^>]* data-run="(id-\d)"', html)} == whole.data["runs"].keys()
    assert "3 of 9 runs are described here:" in html
    assert "The table has the 4 of 9 logs of which the least was read." in html
    assert walk(html, report_json(whole))[0] == []
    for run_id, run in told.data["runs"].items():
        other = whole.data["runs"][run_id]
        assert run == {name: other[name] for name in run} | {
            "words": {name: other["words"][name] for name in run["words"]}
        }
        assert (run.keys() == other.keys()) == (run_id in told.described)


def test_folds_of_many_logs_say_what_they_hold(monkeypatch):
    monkeypatch.setattr(html_report, "MAX_FOLDS_PER_LEVEL", 2)
    runs = [a_run("xtuner", 5e3, name=f"run-{n}", run_id=f"id-{n}", steps=8) for n in range(3)]
    html = html_report.render_page(told_of(*runs))
    folds = re.findall(r"Unread and other lines: logs \d to \d of \d", html)
    assert folds == [f"Unread and other lines: logs {of} of 3" for of in ("1 to 2", "3 to 3")]


def test_text_of_logs_stays_text():
    run = a_run("xtuner", 5e3, name=EVIL, facts=FACTS | {"optimizer": EVIL})
    told = told_of(run, a_run("deepspeed", 5e3), title=EVIL)
    html = html_report.render_page(told)
    assert EVIL not in html
    assert walk(html, report_json(told))[0] == []
