"""Charts draw what is there, the page is one safe offline file, the same store is the same page."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from math import prod, sin

import polars as pl
import pytest

from fairmfu.ingest.core.schema import READING_CHANGES, frame_schema
from fairmfu.metrics.audit.audit_results import Bridge, Factor
from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME
from fairmfu.metrics.audit.formula_checks import era_flops
from fairmfu.metrics.audit.formula_era import GAP_CAUSES
from fairmfu.metrics.audit.logged_figures import LOGGED_FIGURES
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.reports.page import html_document, html_report
from fairmfu.reports.page.overview import NO_FRAMEWORKS_RANKED
from fairmfu.reports.page.report_data import build_content
from fairmfu.reports.text.bridge_text import COLUMN_LABELS, bridge_frame
from fairmfu.reports.text.tabular import count_noun

EVIL = "</script><script>alert(1)</script>"
LOGGED_TFLOPS = {"torchtitan": 331.0, "xtuner": 412.0, "deepspeed": 298.0}
EQUAL = {"torchtitan": 5_836.0, "xtuner": 5_834.0, "deepspeed": 5_838.0}
FACTS = {
    "model": "llama3-8b",
    "seq_len": "8192",
    "gpus": "8",
    "precision": "bf16",
    "trainable": "full",
    "accelerator": "NVIDIA H100 80GB HBM3",
    "packed": "true",
    "global_batch_size": "16",
    "recompute": "none",
}


def a_table(name, rows):
    schema = frame_schema(name)
    return pl.DataFrame([{c: row.get(c) for c in schema} for row in rows], schema=schema)


def a_run(framework, tgs, *, name="", run_id="", steps=40, facts=FACTS, logged="logged_tflops"):  # noqa: PLR0913
    """Rows of one made-up run, by table; the step time wobbles by up to 1 %."""
    run_id, name = run_id or f"id-{framework}", name or f"{framework}-8b"
    claim = {"logged_tflops": LOGGED_TFLOPS[framework], "logged_mfu": 0.335}
    return {
        "sources": [
            {
                "sha256": run_id,
                "path": f"logs/{name}.log",
                "log_format": framework,
                "reading": len(READING_CHANGES),
                "lines": steps + 4,
                "step_lines": steps,
                "known_lines": 2,
                "other_lines": 1,
                "unread_lines": 1,
                "companion_lines": 0,
                "other_kinds": [{"count": 1, "line": 3, "example": f"hello {name}"}],
            }
        ],
        "runs": [
            {
                "run_id": run_id,
                "sha256": run_id,
                "name": name,
                "launch": 1,
                "framework": framework,
                "log_format": framework,
                "first_line": 1,
                "last_line": steps,
                "step_unit": "optimizer_step",
                "elapsed_covers": "step",
                "elapsed_excludes_data": False,
                "rate_excludes_data": False,
                "evidence": ["elapsed"],
                "synthetic": True,
            }
        ],
        "facts": [
            {"run_id": run_id, "name": k, "value": v, "origin": "log:2", "line": 2, "sequence": i}
            for i, (k, v) in enumerate(facts.items())
        ],
        "steps": [
            {
                "run_id": run_id,
                "line": 2 + step,
                "step": step,
                "elapsed_s": 16_384 / tgs * (1 + 0.01 * sin(step)) * (3 if step in (1, 20) else 1),
                "loss": 12 / step**0.3,
                logged: claim[logged],
            }
            for step in range(1, steps + 1)
        ],
        "events": [{"run_id": run_id, "line": 22, "kind": "checkpoint", "text": name}],
        "unread": [{"sha256": run_id, "line": 9, "reason": f"cut off ({name})", "text": name}],
    }


def changed_speed(run, share, from_step):
    """The run going on at this share of its speed."""
    for step in run["steps"]:
        step["elapsed_s"] /= share if step["step"] >= from_step else 1
    return run


def a_store(*runs):
    names = ("sources", "runs", "facts", "steps", "events", "unread")
    return {name: a_table(name, [row for run in runs for row in run[name]]) for name in names}


def parts(tables):
    """What a page is rendered of."""
    analysis = analyse(tables)
    return {"analysis": analysis, "metrics": analysis.metrics, "tables": tables}


def equal_runs(**rates):
    return parts(a_store(*(a_run(name, tgs) for name, tgs in (EQUAL | rates).items())))


@cache
def equal_page():
    return rendered(equal_runs())


def rendered(given, title="Nightly"):
    return html_report.render_page(build_content(**given, title=title, price=None, version="1.2.3"))


class Page(HTMLParser):
    """The scripts, the attributes that name an address, the tables and the text of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.run, self.data, self.addresses, self.tables, self.tags = [], [], [], [], []
        self.text, self.policy, self._kind = "", "", None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.addresses += [
            v for k, v in attrs if k in ("src", "href", "action", "srcset", "data", "poster")
        ]
        if tag == "script":
            self._kind = self.data if values.get("type") == "application/json" else self.run
            self._kind.append("")
        if tag == "table":
            self.tables.append([])
        if self.tables and tag in ("caption", "th"):
            self.tables[-1].append((tag, values.get("scope")))
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]

    def handle_endtag(self, tag):
        if tag == "script":
            self._kind = None

    def handle_data(self, data):
        if self._kind is None:
            self.text += data
        else:
            self._kind[-1] += data


# --- the failed runs ----------------------------------------------------------------------


def failing(name, outcome, words):
    run = a_run("xtuner", 5_000.0 + 10 * ord(name), name=name, run_id=name)
    run["runs"][0] |= {"outcome": outcome, "outcome_line": 40, "outcome_text": words}
    return run


def test_failed_runs_are_counted_by_cause_with_the_last_words_of_their_logs():
    long = "CUDA out of memory. " * 30
    runs = [
        failing("a", "killed", "CANCELLED DUE TO TIME LIMIT"),
        failing("b", "killed", "KeyboardInterrupt"),
        failing("c", "out_of_memory", long),
        a_run("deepspeed", 5_000.0),
    ]
    given = parts(a_store(*runs))
    (section,) = re.findall(r'<section id="failed".*?</section>', rendered(given), re.DOTALL)
    text = re.sub(r"\s+", " ", Page(section).text)
    assert "Runs that failed2 killed, 1 out of memoryFailed runs" in text
    assert "Outcome:" not in text
    rows = re.findall(r"<tr data-at.*?</tr>", section, re.DOTALL)
    cells = {
        re.findall('data-run="(.)"', row)[0]: [
            Page(cell).text.strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)
        ]
        for row in rows
    }
    model = "llama-3-8b"
    ends = "killed, last step 40"
    assert cells["a"] == ["xtuner", model, ends, "CANCELLED DUE TO TIME LIMIT"]
    assert cells["b"] == ["xtuner", model, ends, "KeyboardInterrupt"]
    assert cells["c"][2] == "out of memory, last step 40"
    assert len(cells["c"][3]) < len(long)
    summaries = re.findall(r"<summary>(.*?)</summary>", rendered(given), re.DOTALL)
    assert sum(", outcome killed" in squeezed(Page(text).text) for text in summaries) == 2


def test_slowed_runs_have_the_loss_that_they_are_in_the_order_of():
    runs = [
        changed_speed(a_run("xtuner", 5_000.0, name=name, run_id=name, steps=200), share, 120)
        for name, share in (("a", 0.9), ("b", 0.7), ("c", 1.0))
    ]
    text = rendered(parts(a_store(*runs)))
    (section,) = re.findall(r'<section id="slowed".*?</section>', text, re.DOTALL)
    told = squeezed(Page(section).text)
    assert "Runs that slowed down during the run" in told
    assert "2 slowed down during the run" in squeezed(Page(text).text)
    assert re.findall(r'<tr data-at="runs.(.)"', section) == ["b", "a"]
    losses = [float(loss) for loss in re.findall(r"slowed down by ([\d.]+) %", told)]
    assert losses == pytest.approx([30, 10], abs=0.5)


# --- the sentence -------------------------------------------------------------------------


def first_screen(text):
    return re.sub(r"\s+", " ", Page(text).text.split("The same as a table")[0])


def test_equal_runs_with_different_logs():
    says = first_screen(equal_page())
    assert "are equally fast, within 0.1 %: 5,8" in says
    assert "although their logs print 298, 331 and 412 TFLOP/s per GPU." in says
    assert "Ours (exact attention): 300, 300 and 300 TFLOP/s per GPU" in says
    assert "Order by logged figures: xtuner-8b, torchtitan-8b, deepspeed-8b." in says
    assert "No setup has a second run, so run-to-run noise is unknown." in says
    assert "xtuner-8b would seem 1.38x as fast as" in says
    label = "llama-3-8b, 8,192 tokens, bf16, NVIDIA H100 SXM"
    assert f"synthetic runs deepspeed, torchtitan, xtuner: {label}" in says
    assert NO_FRAMEWORKS_RANKED not in says


def test_verdicts_of_one_framework_name_it_and_say_that_no_two_are_ranked():
    unknown = {name: value for name, value in FACTS.items() if name != "model"}
    runs = [
        a_run("xtuner", 5_000.0, name="a", run_id="a"),
        a_run("xtuner", 6_000.0, name="b", run_id="b"),
        a_run("deepspeed", 5_000.0, name="c", run_id="c", facts=unknown),
    ]
    text = squeezed(Page(rendered(parts(a_store(*runs)))).text)
    assert "synthetic runs xtuner: llama-3-8b, 8,192 tokens" in text
    said = f"{NO_FRAMEWORKS_RANKED}: all ranked runs are of xtuner. No run of deepspeed is "
    assert f"{said}ranked yet. See runs that cannot be ranked yet." in text
    assert text.count("No two ") == 1


def test_frameworks_are_apart_by_facts_that_never_agree_or_not_at_once():
    runs = [a_run("xtuner", 50.0 * ord(name), name=name, run_id=name) for name in "ab"]
    longer = FACTS | {"seq_len": "4096"}
    titan = a_run("torchtitan", 5_000.0, facts=longer)
    other = FACTS | {"model": "qwen3-8b", "seq_len": "4096"}
    third = a_run("xtuner", 4_000.0, name="c", run_id="c", facts=other)
    assert apart(*runs) == ""
    told = "the ranked runs of torchtitan and xtuner differ in sequence length."
    assert apart(*runs, titan) == f"{NO_FRAMEWORKS_RANKED}: {told}"
    told = "no ranked runs of torchtitan and xtuner agree on model, sequence length, precision and "
    assert apart(*runs, titan, third) == f"{NO_FRAMEWORKS_RANKED}: {told}GPU at once."


def apart(*runs):
    told = build_content(**parts(a_store(*runs)), title="", price=None, version="1.2.3")
    return told.data["frameworks_apart"]


def test_a_faster_run_is_named_with_its_interval():
    says = first_screen(rendered(equal_runs(torchtitan=6_400.0)))
    found = re.search(r"torchtitan-8b is (\S+)x \(([\d.]+) to ([\d.]+)\) as fast per GPU as", says)
    ratio, low, high = map(float, found.groups())
    assert ratio == pytest.approx(6_400 / 5_838, abs=0.01)
    assert 1 < low <= ratio <= high


def test_overlapping_intervals_are_not_told_apart():
    given = equal_runs(xtuner=5_300.0)
    wide = pl.lit(4_000.0).alias("tgs_low"), pl.lit(7_000.0).alias("tgs_high")
    given["metrics"] = given["metrics"].with_columns(wide)
    says = first_screen(rendered(given))
    assert "are not measurably different (they are 9.2 % apart; their noise " in says


# --- the page -----------------------------------------------------------------------------


def test_nothing_is_loaded_and_only_our_scripts_run():
    text = equal_page()
    read = Page(text)
    assert {address[:1] for address in read.addresses} == {"#"}
    assert {address[1:] for address in read.addresses} <= set(re.findall(r' id="([^"]+)"', text))
    assert not {"link", "img", "iframe", "object", "base", "form"} & set(read.tags)
    ours = [html_document.bundle(), html_document.page_script()]
    assert read.run == ours
    own = text.replace(ours[0], "")
    assert not re.search(r"https?:|//\w+\.|url\(|@import", own)
    assert "default-src 'none'" in read.policy
    assert re.findall(r"'sha256-[^']+'", read.policy) == [*map(html_document.script_hash, ours)]
    assert "unsafe-eval" not in read.policy


def evil_store():
    facts = FACTS | {"accelerator": EVIL, "optimizer": EVIL, "model": EVIL}
    run = a_run("xtuner", 5e3, name=EVIL, facts=facts)
    other = a_run("deepspeed", 5e3, name=f'"{EVIL}', facts=FACTS | {"accelerator": EVIL})
    third = a_run("torchtitan", 5e3, name=f"&{EVIL}", facts=FACTS | {"accelerator": EVIL})
    return a_store(run, other, third)


def test_text_of_logs_is_only_text():
    given = parts(evil_store())
    given["metrics"] = given["metrics"].with_columns(
        warnings=pl.lit([EVIL]), model=pl.lit(EVIL), framework_version=pl.lit(EVIL)
    )
    text = rendered(given, title=EVIL)
    assert EVIL not in text
    assert "<script>alert" not in text
    read = Page(text)
    assert len(read.run) == 2
    assert read.text.count(EVIL) > 10
    assert any(EVIL in str(json.loads(block)) for block in read.data)


def test_data_is_json_without_nan():
    for block in Page(equal_page()).data:
        json.loads(block, parse_constant=pytest.fail)


def test_warnings_of_a_log_are_apart_from_doubts_of_its_figures():
    run = a_run("xtuner", 5_000.0, steps=4)
    event = {"run_id": "id-xtuner", "line": 5, "kind": "warning", "text": "CUDA retries"}
    run["events"] += [event, event | {"line": 6}]
    for step in run["steps"]:
        step["peak_memory_bytes"] = 40 * 2**30
    card = rendered(parts(a_store(run))).partition('id="run-id-xtuner"')[2]
    summary = squeezed(Page(card.partition("</summary>")[0]).text)
    assert summary.endswith(", 2 notes")
    text = squeezed(Page(card).text)
    assert "Events in the logwarning (2), checkpoint (1)" in text
    assert "Peak memory40.0GiB of one GPU" in text


def squeezed(text):
    return " ".join(text.split())


def test_the_method_lists_every_peak_once_as_the_runs_say_it():
    facts = {"a": {}, "b": {"precision": "fp8"}, "c": {"peak_flops": "5e14"}, "d": {}}
    runs = [
        a_run("xtuner", 40.0 * ord(name), name=name, run_id=name, facts=FACTS | fact)
        for name, fact in facts.items()
    ]
    given = parts(a_store(*runs))
    method = rendered(given).partition('<div id="method">')[2]
    listed = re.findall("<li>(.*?)</li>", method.partition("Peaks used")[2], re.DOTALL)
    found = sorted(squeezed(Page(item).text) for item in listed)
    sources = Counter(given["metrics"]["peak_source"])
    assert found == sorted(f"{text} ({count_noun(n, 'run')})" for text, n in sources.items())
    assert len(found) == 3
    assert any(text.startswith("NVIDIA H100 SXM: dense bf16 989.4 TFLOP/s") for text in found)
    assert "Peaks used" not in rendered(parts(a_store(a_run("xtuner", 5e3, facts={}))))


def test_an_empty_store_renders():
    text = rendered(parts(a_store()))
    assert "The store has no runs." in text
    assert "<figure" not in text


@pytest.mark.parametrize("framework", LOGGED_TFLOPS)
def test_one_run_renders(framework):
    text = rendered(parts(a_store(a_run(framework, 5_000.0))))
    assert "; nothing else here is comparable." in text
    assert "What it ran" in text


def test_runs_without_a_rank_say_what_to_set():
    known = {k: v for k, v in FACTS.items() if k not in ("accelerator", "model")}
    text = rendered(parts(a_store(a_run("xtuner", 5_000.0, facts=known))))
    assert "No run can be ranked yet" in text
    (command,) = set(re.findall(r"fairmfu set xtuner-8b [^<]*", text))
    assert {"accelerator=…", "model=…"} <= set(command.split())
    assert "name of the GPU as the framework prints it" in text


def test_a_run_without_times_renders():
    run = a_run("xtuner", 5_000.0, steps=1)
    assert "no TGS" in rendered(parts(a_store(run)))
    assert "no TGS" in rendered(parts(a_store(run | {"steps": []})))


def test_the_same_store_gives_the_same_bytes():
    assert equal_page() == rendered(equal_runs())


def test_synthetic_runs_are_marked_wherever_they_stand():
    text = equal_page()
    marked = text.count('<span class="tag" data-static>synthetic')
    assert marked >= 7  # verdict, three rows, three folds
    assert "xtuner-8b (synthetic)" in "".join(Page(text).data)
    given = equal_runs()
    real = pl.lit(value=False).alias("synthetic")
    given["metrics"] = given["metrics"].with_columns(real)
    specs = re.compile(r'<script[^>]* class="spec".*?</script>', re.DOTALL)  # the same of all runs
    assert "ynthetic" not in specs.sub("", rendered(given))


def test_tables_have_captions_and_scoped_heads():
    tables = Page(equal_page()).tables
    assert len(tables) > 10
    for cells in tables:
        if len(cells) == 1:  # of chosen runs, which the script fills
            continue
        assert cells[0] == ("caption", None)
        assert {scope for tag, scope in cells if tag == "th"} == {"col", "row"}


def test_every_figure_carries_its_convention():
    text = Page(equal_page()).text
    assert "MFU (exact attention)" in text
    assert "MFU (full attention)" in text
    assert "5,822\N{EN DASH}5,853" in text
    assert "MFU = ideal time per token / actual time per token" in text


def test_the_appendix_shows_what_other_formulas_make_of_each_model():
    whole = parts(a_store(a_run("torchtitan", 5_000.0)))
    ((label, rows),) = whole["analysis"].other_tools().items()
    assert rows.height == 20
    text = rendered(whole)
    assert "One model, many formulas" in text
    assert label.split(",", maxsplit=1)[0] in text


# --- from the log's figure to ours --------------------------------------------------------

CAUSED = {
    "recompute": 0.75,
    "experts": 1.31,
    "kv_heads": 0.81,
    "ffn": 0.87,
    "norms": 0.999_99,
    "attention": 0.93,
    "data": 0.77,
    "window": 0.995,
}


def a_bridge(figure="logged_tflops", logged=181.3, caused=CAUSED, unexplained=1.0, rounding=1e-4):
    factors = tuple(Factor(cause, GAP_CAUSES[cause], factor) for cause, factor in caused.items())
    return Bridge(
        figure=figure,
        logged=logged,
        ours=logged * prod(caused.values()) / unexplained,
        factors=factors,
        unexplained=unexplained,
        low=unexplained * (1 - rounding),
        high=unexplained * (1 + rounding),
        explained=abs(unexplained - 1) <= unexplained * rounding,
    )


BRIDGES = {
    "many causes": a_bridge(),
    "no cause": a_bridge("logged_tgs", 6_457.5, {}, rounding=0.0),
    "unexplained": a_bridge(unexplained=1.46),
    "thousand times": a_bridge(logged=0.3, caused={"unit": 1000.0, "attention": 0.9}),
    "one digit": a_bridge("logged_mfu", 0.000_1, {"attention": 0.94}, 0.9, rounding=1.2),
}


@pytest.mark.parametrize("bridge", BRIDGES.values(), ids=BRIDGES)
def test_the_steps_of_a_bridge_multiply_to_the_whole(bridge):
    rows = bridge_frame(bridge)
    kinds = ["logged", *["named"] * len(bridge.factors), "unexplained", "ours"]
    assert rows["kind"].to_list() == kinds
    whole = prod(rows["factor"].drop_nulls())
    assert bridge.logged * whole == pytest.approx(bridge.ours, rel=1e-12)
    assert rows["before"][1:-1].to_list() == pytest.approx(rows["after"][:-2].to_list(), rel=1e-12)
    assert rows["after"][0] == bridge.logged
    assert rows["after"][-1] == bridge.ours
    left = rows.row(-2, named=True)
    assert left["after"] == pytest.approx(bridge.ours, rel=1e-12)
    assert (left["low"] <= left["before"]) == (bridge.high >= 1)
    assert (left["high"] is None) == (bridge.low <= 0)


def claiming(*, own_length=8192, times=1, name="torchtitan-8b", facts=FACTS):
    """A run whose log prints what Torchtitan's own formula gives for a length, or times that."""
    run = a_run("torchtitan", 5_800.0, name=name, facts=facts)
    era = ERAS_BY_NAME["torchtitan-2024-05"]
    known = analyse(a_store(a_run("torchtitan", 5_800.0))).formula_facts["id-torchtitan"]
    flops = era_flops(era, known.simplified_model(own_length))
    for step in run["steps"]:
        step["logged_tgs"] = round(16_384 / step["elapsed_s"])
        step["logged_tflops"] = round(times * flops * step["logged_tgs"] / 1e12, 2)
    about = {"run_id": "id-torchtitan", "name": "logged_formula", "value": era.name}
    run["facts"].append(about | {"origin": "flag", "sequence": len(facts)})
    return run


def told(*runs):
    """The page's text of its runs, and of its first screen."""
    text = rendered(parts(a_store(*runs)))
    return re.sub(r"\s+", " ", Page(text).text), text


def test_the_sentence_names_the_formula_and_the_causes():
    says, text = told(claiming())
    found = re.search(
        r"The log prints (\d+) TFLOP/s per GPU by torchtitan-2024-05 \(the framework's "
        r"formula, reproduced in 40 of 40 lines\); ours is (\d+)\. "
        r"Reasons: [^;]*\(x (0\.\d{4})\)",
        says,
    )
    logged, ours, factor = map(float, found.groups())
    assert ours / logged == pytest.approx(factor, rel=0.01)
    assert "Confirmed by the logged figures: seq_len, model." in says
    assert "Why the logged figure differs from ours" in says
    assert says.count("From logged TFLOP/s to ours") == 2  # before the runs, and in its own part
    assert re.search('reproduces every digit in 40 of 40 lines."><[^>]+>reproduced</', text)


def test_a_run_that_is_not_reproduced_says_what_would():
    says, _ = told(claiming(own_length=4096))
    assert "torchtitan-2024-05, its most likely formula, reproduces it in 0 of 40 lines" in says
    assert re.search(r"unexplained \(x 1\.\d{4}\)", says)
    hypothesis = "Nearest hypothesis (reproduces every line):"
    # The log states its length. Half of attention at 8,192 prints what all of it does at 4,096.
    assert (
        f"Not reproduced. {hypothesis} the formula of torchtitan-hf-backend-own-embedding." in says
    )
    assert "Confirmed" not in says
    _, text = told(claiming(times=2))
    why = f"0 of 40 lines. {hypothesis} the logged value is doubled."
    assert re.search(f'{re.escape(why)}"><[^>]+>not reproduced</', text)
    says, _ = told(claiming(times=1.9))
    assert "Not reproduced. No other common value, version or unit reproduces it." in says


def test_a_run_that_is_not_compared_says_why():
    unknown = {k: v for k, v in FACTS.items() if k != "model"}
    says, text = told(claiming(facts=unknown))
    assert "TFLOP/s per GPU, not compared with a formula of the framework; our figure is" in says
    assert "is unknown: missing model" in says
    assert "Not compared: TFLOP/s: missing model shape." in says
    assert "Why the logged figure" not in says
    assert "From logged TFLOP/s to ours" not in text
    run = a_run("deepspeed", 5_800.0)
    run["runs"][0]["log_format"] = "our-fork"
    says, text = told(run)
    assert "; not comparable with ours: the formula of the framework is unknown." in says
    assert "Not compared: no own formula is known of our-fork." in says
    assert re.search('no own formula is known of our-fork."><[^>]+>not compared</', text)


def test_every_figure_has_a_name_for_people():
    assert set(COLUMN_LABELS) == set(LOGGED_FIGURES)


def test_a_silent_log_is_not_audited():
    run = a_run("torchtitan", 5_800.0)
    for step in run["steps"]:
        del step["logged_tflops"]
    says, text = told(run)
    assert "The log prints no MFU, TFLOP/s or TGS in a steady window." in says
    assert "Not compared" not in says
    assert "</abbr>" not in text


def test_a_hostile_name_does_not_leave_the_audit(monkeypatch):
    given = parts(a_store(claiming(name=EVIL)))
    analysis = given["analysis"]
    ((run_id, audit),) = analysis.audits.items()
    (found,) = analysis.bridges(run_id)
    hostile = replace(found, factors=(*found.factors, Factor("peak", f"its peak {EVIL}", 0.5)))
    monkeypatch.setattr(Analysis, "bridges_of", lambda _, ids: {i: [hostile] for i in ids})
    era = replace(audit.era, name=EVIL)
    audits = {
        run_id: replace(audit, era=era, reproduced=False, hypothesis=EVIL, not_compared_reason=EVIL)
    }
    given["analysis"] = replace(analysis, audits=audits)
    given["metrics"] = given["metrics"].with_columns(logged_formula=pl.lit(EVIL))
    text = rendered(given)
    assert EVIL not in text
    read = Page(text)
    assert len(read.run) == 2
    assert f"Nearest hypothesis: {EVIL}." in read.text
    assert f"Logged: by the framework's formula, {EVIL}." in read.text


def test_a_run_adds_little_to_the_page_for_its_waterfall():
    found = re.findall(r"<figure aria-label=.From logged.*?</figure>", told(claiming())[1])
    assert len(found) == 2
    assert max(map(len, found)) < 6_000
