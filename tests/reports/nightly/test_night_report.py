"""One night, told the same way on the page, in Markdown, JSON, JUnit and SVG; and told safely."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import timedelta
from functools import cache

import altair as alt
import jsonschema
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fairmfu.metrics.compare.history import CHANGE_SCHEMA, history
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.nightly import history_charts
from fairmfu.reports.nightly import night_html as page_of_nights
from fairmfu.reports.nightly.findings import exit_code, find
from fairmfu.reports.nightly.headline import brief_headline, headline
from fairmfu.reports.nightly.night_html import AGE_SCRIPT, pages, status_js
from fairmfu.reports.nightly.night_outputs import junit, markdown, summary, svg_name, svgs
from fairmfu.reports.nightly.night_report import (
    SOURCE_SCHEMA,
    Night,
    build_digest,
    format_day,
    join_some,
    series_labels,
)
from fairmfu.reports.page import html_document
from fairmfu.reports.text.tabular import difference_text, markdown_text, signed_percent
from tests.reports.page.test_html_report import EVIL, Page
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT
from tests.support.packs import unpacked
from tests.support.series import START, metrics
from tests.support.series import runs as nightly_runs
from tests.support.told_nights import (
    BACK,
    DOUBT,
    DROP,
    FELL,
    FORMULA,
    NOW,
    RISE,
    a_night,
    a_series,
    crashed,
    frame,
    many,
    regression,
)

SCHEMA = json.loads((ROOT / "docs" / "summary.schema.json").read_text(encoding="utf-8"))
SLOWER = (
    "torchtitan, llama3-8b, 8 x H100 SXM is 5.1 % slower (4.6 to 5.6) since 12 March. "
    "Changed then: version 0.2.1 -> 0.2.2"
)
FAILED = {"path": "logs/cut.log.gz", "status": "failed", "message": "cut off after 3,200 lines"}
HOSTILE = "a|b`c*d_e[f](http://g.h) @team www.i.j # \\| <b>k</b> \x00\x1b[31m\u202e\n- l"
SMALL = a_series(nights=60, steps=((1, 0.9),), counts=False)
HELD = a_series(nights=60, steps=((40, 0.9),), baseline=0.9)
TWICE = a_series(nights=60, formulas=("fairmfu-1", "fairmfu-2"), steps=((30, 1.02),))


@cache
def a_bad_night():
    return regression(
        runs=[crashed()],
        sources=[FAILED, {"path": "logs/a.log", "status": "read", "message": None}],
        unplaced=[{"run_id": "titan-oom", "name": "titan-oom", "why": "it logged no step"}],
        notes=["The clock was set back by 2 hours."],
        comparison=["a is 1.08x (1.07 to 1.09) as fast per GPU as b."],
        runs_page="runs.html",
    )


def hostile(text=EVIL):
    """A night of which every text that a log can hold is `text`."""
    series = a_series(
        model="llama3-8b", nights=60, steps=((2, 0.9),), upgrades=((2, text),), name=text
    )
    for table in series.values():
        for row in table:
            row["series"] = f"{text}, llama3-8b, 8 x {text}"
    series["series"][0] |= {"framework": text, "formulas": [text, "b"], "setups": [text]}
    for point in series["points"]:
        point["formula"] = text if point["at"].day % 2 else "b"
    return a_night(
        series,
        *many(nights=60)[1:3],
        runs=[crashed(name=text, text=text)],
        sources=[{"path": text, "status": "failed", "message": text}],
        unplaced=[{"run_id": text, "name": text, "why": text}],
        notes=[text],
        comparison=[text],
        title=text,
        formula=text,
        version=text,
    )


def xml(text):
    return ET.fromstring(text)  # noqa: S314 - ours


def mixed():
    return a_night(TWICE)


def night_page(night):
    return pages(night)[0]


def quiet(**more):
    return a_night(*many(nights=30), **more)


# --- the sentences ------------------------------------------------------------------------


def first(night):
    return headline(build_digest(night)).says


def test_a_new_regression_is_the_first_sentence_with_size_sureness_date_and_cause():
    assert first(regression()).startswith(f"1 new regression: {SLOWER}. ")


STANDS = "deepspeed, qwen3-32b, 8 x H100 SXM is still slower since 14 December 2025, by 7.0 %."
DROPPED = (
    "Suspect until another run confirms it: xtuner, llama3-70b, 8 x H100 SXM, last run 6.1 % "
    "below its level."
)
CRASHED = "1 of 21 jobs failed tonight: titan-oom (out of memory)."


def test_a_run_that_did_not_complete_comes_before_a_regression():
    assert first(a_bad_night()) == f"{CRASHED} 1 new regression: {SLOWER}. {STANDS} {DROPPED}"
    assert first(regression()) == f"1 new regression: {SLOWER}. {STANDS} {DROPPED}"
    assert brief_headline(build_digest(a_bad_night())) == "1 of 21 jobs failed tonight"


def test_what_must_be_known_beside_it_stands_beneath():
    assert headline(build_digest(a_bad_night())).notes == (
        "21 runs tonight. Speed, measured in all 20 jobs: a new change in 1, a suspect run in 1, "
        "no new change in 18.",
        "1 log could not be read: logs/cut.log.gz.",
    )


def test_runs_that_nothing_watches_are_told_but_not_the_crashed_ones_twice():
    lost = [{**crashed(name=name), "outcome": "completed"} for name in ("a", "b")]
    said = headline(build_digest(a_night(*many(nights=30), runs=[*lost, crashed()])))
    assert said.notes[-1] == ("2 runs of tonight are not tracked: a; b.")
    assert "not tracked" not in headline(build_digest(a_bad_night())).notes[-1]


def test_a_quiet_night_is_one_sentence():
    assert headline(build_digest(quiet())) == headline(build_digest(quiet()))
    said = headline(build_digest(quiet()))
    assert said.says == "No new speed change in any of the 20 jobs. 20 runs tonight."
    assert said.notes == ()


@pytest.mark.parametrize("outcome", ["completed", "out_of_memory"])
def test_a_quiet_night_names_how_many_series_ran(outcome):
    night = quiet()
    tonight = night.tonight.head(1).with_columns(outcome=pl.lit(outcome))
    night = replace(night, tonight=tonight)
    if outcome == "completed":
        only = "Only 1 of 20 jobs has a completed run tonight; its speed has not changed."
        assert first(night) == f"{only} 1 run tonight."
    else:
        assert first(night).startswith("1 of 20 jobs failed tonight: ")
        assert (
            "1 run tonight. Speed, measured in 1 of 20 jobs"
            in headline(build_digest(night)).notes[0]
        )


def test_a_night_whose_runs_are_in_no_series_compares_nothing():
    night = quiet()
    tonight = night.tonight.head(2).with_columns(run_id=pl.lit("lost-") + pl.col("run_id"))
    said = headline(build_digest(replace(night, tonight=tonight)))
    assert said.says == "Nothing to compare. 2 runs tonight, none of a tracked job."
    assert said.notes[-1].startswith("2 runs of tonight are not tracked: ")


def test_failed_runs_of_one_name_are_told_apart():
    lost = [crashed(name="titan") | {"run_id": f"id{n}"} for n in (1, 2)]
    why = [{"run_id": run["run_id"], "name": "titan", "why": "no TGS"} for run in lost]
    night = quiet(runs=lost, unplaced=why)
    page = plain(Page(night_page(night)).text)
    for text in (markdown(night).replace("\\", ""), page):
        assert text.count("titan [id1]") > 1
        assert text.count("titan [id2]") > 1
    assert "torchtitan, out of memory" in markdown(night)
    assert page.index("What broke") < page.index("titan [id2]: out of memory")


def test_a_first_night_says_that_it_is_too_early():
    night = a_night(*many(nights=1), number=1)
    assert first(night) == (
        "Speed is not compared yet: it needs 10 runs of a job, and none of the 20 jobs has more "
        "than 1. 20 runs tonight."
    )
    alone = a_night(a_series(nights=3), number=1)
    assert first(alone) == (
        "Speed is not compared yet: it needs 10 runs of a job, and the only job has 3. "
        "1 run tonight."
    )


def test_of_several_regressions_the_largest_is_told():
    small = a_series("xtuner", nights=60, steps=((1, 0.98),))
    other = a_series("deepspeed", nights=60, steps=((1, 0.9),))
    assert first(a_night(small, other)) == (
        "2 new regressions, the largest: deepspeed, llama3-8b is 10.0 % slower (9.5 to 10.5) "
        "since 13 March."
    )


def test_a_baseline_regression_that_holds_is_told_before_an_improvement():
    faster = a_series("xtuner", nights=60, steps=((1, 1.1),))
    said = headline(build_digest(a_night(HELD, faster)))
    assert said.says == (
        "No new regression, but 1 job is still below its baseline: torchtitan, llama3-8b is "
        "10.0 % below its baseline (9.6 to 10.4) since 2 February."
    )
    assert "Also 1 new improvement." in said.notes


def test_an_improvement_alone_is_the_first_sentence():
    night = a_night(a_series("xtuner", nights=60, steps=((1, 1.1),)), a_series(nights=60))
    assert first(night) == (
        "1 new improvement: xtuner, llama3-8b is 10.0 % faster (9.5 to 10.5) since 13 March."
    )


def test_a_change_below_the_threshold_is_told_and_does_not_fail():
    night = a_night(
        a_series(nights=60, steps=((1, 0.98),), counts=False), a_series("xtuner"), threshold=0.03
    )
    said = headline(build_digest(night))
    assert said.says.startswith("No new speed change above the threshold of 3.0 %. ")
    assert "Also 1 change below the threshold of 3.0 %." in said.notes
    assert exit_code(night) == 0
    assert brief_headline(build_digest(night)) == "No new speed change above the threshold of 3.0 %"
    assert "below the threshold" in night_page(night)
    assert "below the threshold" in markdown(night)


def test_a_baseline_that_is_gone_is_told_first():
    pin = {"run_id": "gone", "name": "best-of-march", "at": NOW, "tgs": 5_000.0}
    pins = pl.DataFrame([pin]).with_columns(pl.col("at").dt.replace_time_zone(None))
    said = headline(build_digest(through_history(runs("xtuner"), baselines=pins)))
    assert said.notes[0].startswith(
        "1 baseline is not checked, because its run is not tracked: best"
    )


def test_runs_of_one_name_are_told_with_their_ids():
    rows = [row | {"name": "titan"} for row in runs(step=(30, 0.9))]
    page = night_page(through_history(rows))
    assert "titan [torchtitan-30]" in page
    assert "fairmfu compare torchtitan-29 torchtitan-30" in page


def test_a_series_that_no_longer_runs_is_missed():
    gone = a_series("xtuner", nights=30)
    for row in gone["points"]:
        row["at"] -= timedelta(days=9)
    night = a_night(gone, a_series(nights=30))
    assert first(night).startswith("xtuner, llama3-8b has not run for 9 days.")
    assert exit_code(night) == 5
    assert exit_code(replace(night, fail_on=("crash", "regression"))) == 0
    assert {row["days_without_a_run"] for row in summary(night)["series"]} == {9, None}


def test_a_night_without_runs_says_so():
    night = quiet()
    empty = a_night(*many(nights=30), tonight=night.tonight.clear())
    assert first(empty) == "No new run tonight. 20 jobs in the history."


def test_an_empty_store_is_told_in_every_form():
    night = a_night()
    assert first(night) == "No new run tonight. 0 jobs in the history."
    assert svgs(night) == {}
    jsonschema.validate(summary(night), SCHEMA)
    assert "0 jobs" in night_page(night)
    assert "0 jobs" in markdown(night)
    assert xml(junit(night)).get("tests") == "0"


# --- changes --------------------------------------------------------------------------------


def test_a_drop_that_was_mended_no_longer_stands():
    found = build_digest(a_night(BACK, a_series("xtuner")))
    stands = {change["kind"]: change["stands"] for change in found.changes}
    assert stands == {"regression": False, "improvement": True}


def test_a_drop_of_which_little_was_made_good_stands():
    found = build_digest(a_night(a_series(nights=90, steps=((60, 0.9), (20, 1.02)))))
    assert all(change["stands"] for change in found.changes)


def test_a_drop_before_the_run_that_was_pinned_later_is_taken_for_granted():
    series = a_series(nights=90, steps=((60, 0.9),))
    (row,) = series["series"]
    row |= {"baseline_run": series["points"][50]["run_id"], "baseline_tgs": row["level"]}
    (change,) = build_digest(a_night(series)).changes
    assert not change["stands"]


def test_tonight_comes_before_what_stands_and_that_before_what_is_past():
    found = build_digest(regression())
    order = [(change["new"], change["stands"]) for change in found.changes]
    assert order == sorted(order, reverse=True)
    assert found.changes[0]["series"] == DROP["series"][0]["series"]
    assert [row["state"] for row in found.series[:3]] == ["regressed", "regressed", "suspect"]


@pytest.mark.parametrize(
    ("night", "code"),
    [
        pytest.param(regression, 3, id="a new regression"),
        pytest.param(quiet, 0, id="nothing"),
        pytest.param(lambda: quiet(sources=[FAILED]), 4, id="a log that was not read"),
        pytest.param(lambda: regression(sources=[FAILED]), 3, id="both"),
        pytest.param(lambda: a_night(FELL), 0, id="told before"),
        pytest.param(lambda: a_night(SMALL), 0, id="below the threshold"),
        pytest.param(lambda: a_night(HELD), 3, id="below its baseline"),
        pytest.param(lambda: a_night(RISE), 0, id="an improvement"),
    ],
)
def test_exit_code(night, code):
    made = night()
    assert exit_code(made) == code
    assert summary(made)["exit_code"] == code
    failures = int(xml(junit(made)).get("failures"))
    assert (failures > 0) is (code == 3)


def runs(framework="torchtitan", nights=60, step=(3, 0.95), noise=0.004, **more):
    """Rows of METRICS of one job that changed its speed some nights ago."""
    random = np.random.default_rng(len(framework))
    ago, ratio = step
    rows = []
    for n in range(nights):
        after = n >= nights - ago
        tgs = 5_000 * (ratio if after else 1.0) * (1 + noise * random.standard_normal())
        at = NOW.replace(tzinfo=None) - timedelta(days=nights - 1 - n, hours=3)
        rows.append(
            {
                "run_id": f"{framework}-{n}",
                "name": f"{framework}-{at:%m%d}",
                "framework": framework,
                "model": "llama3-8b",
                "seq_len": 8192,
                "device": "NVIDIA H100 SXM",
                "gpus": 8,
                "precision": "bf16",
                "trained": "full",
                "framework_version": "0.2.2" if after else "0.2.1",
                "synthetic": False,
                "tgs": tgs,
                "mfu": tgs / 15_000,
                "formula": FORMULA,
                "outcome": "completed",
                "started_at": at,
                **more,
            }
        )
    return rows


def through_history(rows, **given):
    metrics = frame(METRICS, rows).with_columns(
        read_at=pl.col("started_at"), peaks=pl.lit("a1b2c3d4")
    )
    found = history(metrics, **given)
    last = metrics["started_at"].max()
    return Night(
        title="Nightly",
        at=NOW,
        number=60,
        series=found.series,
        points=found.points,
        changes=found.changes.with_columns(new=pl.col("found_at") == last),
        unplaced=found.unplaced,
        tonight=metrics.filter(pl.col("started_at") == last),
        sources=SOURCE_SCHEMA.to_frame(),
        formula=FORMULA,
        version="1.2.3",
    )


def test_a_night_through_the_real_history_names_what_was_planted():
    ago = 1
    night = through_history([*runs(step=(ago, 0.95)), *runs("xtuner", step=(0, 1.0))])
    while not night.changes["new"].any() and ago < 9:  # on the night that it was made sure
        ago += 1
        night = through_history([*runs(step=(ago, 0.95)), *runs("xtuner", step=(0, 1.0))])
    said = first(night)
    assert said.startswith("1 new regression: torchtitan, llama3-8b is ")
    assert "slower" in said
    assert said.endswith("Changed then: version 0.2.1 -> 0.2.2.")
    assert exit_code(night) == 3
    jsonschema.validate(summary(night), SCHEMA)
    assert said in plain(Page(night_page(night)).text)
    assert len(svgs(night)) == 2


def test_a_baseline_through_the_real_history_holds_the_alarm():
    pin = {"run_id": "torchtitan-5", "name": "torchtitan-pin", "at": NOW, "tgs": 5_000.0}
    pins = pl.DataFrame([pin]).with_columns(pl.col("at").dt.replace_time_zone(None))
    night = through_history([*runs(step=(30, 0.9)), *runs("xtuner")], baselines=pins)
    assert not night.changes["new"].any()
    assert exit_code(night) == 3
    held = "No new regression, but 1 job is still below its baseline: torchtitan, llama3-8b is "
    assert first(night).startswith(held)
    jsonschema.validate(summary(night), SCHEMA)


# --- figures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "low", "high", "told_as"),
    [
        (0.949, 0.944, 0.954, ("5.1 %", "4.6 to 5.6")),
        (1.05, 1.04, 1.06, ("5.0 %", "4.0 to 6.0")),
        (0.99, 0.97, 1.005, ("1.0 %", "\N{MINUS SIGN}0.5 to 3.0")),
        (0.9, None, None, ("10.0 %", "")),
        (0.9504, 0.9502, 0.9506, ("4.96 %", "4.94 to 4.98")),
        (0.9996, 0.9994, 0.9998, ("0.04 %", "0.02 to 0.06")),
    ],
)
def test_a_ratio_as_a_share_with_its_interval(ratio, low, high, told_as):
    assert difference_text(ratio, low, high) == told_as


def test_signs_lists_and_days():
    assert [signed_percent(x) for x in (0.949, 1.02, 0.99999, None)] == [
        "\N{MINUS SIGN}5.1 %",
        "+2.0 %",
        "0.0 %",
        "\N{EN DASH}",
    ]
    assert join_some(["a", "b", "c"]) == "a; b; c"
    assert join_some(["a", "b", "c", "d"]) == "a; b; 2 more"
    assert format_day(NOW, NOW) == "14 March"
    assert format_day(NOW - timedelta(days=80), NOW) == "24 December 2025"


def test_labels_leave_out_what_all_share_and_never_make_two_series_one():
    one, two = "t, m, 8,192 tokens, 8 x NVIDIA H100 SXM", "t, m, 8,192 tokens, 64 x NVIDIA H100 SXM"
    assert series_labels([one, two]) == (
        {one: "t, m, 8 x H100 SXM", two: "t, m, 64 x H100 SXM"},
        "8,192 tokens",
    )
    alike = ["t, m, NVIDIA A 80GB", "t, m, NVIDIA A 40GB"]
    assert list(series_labels(alike)[0].values()) == alike


@pytest.mark.parametrize("names", [["xtuner"], ["xtuner", "torchtitan"]])
def test_a_synthetic_series_says_so_once_wherever_it_is_named(names):
    """Its label does, also where all are synthetic, so that no style has to add it."""
    series = [a_series(name, nights=60, steps=((2, 0.9),)) for name in names]
    for row in (row for one in series for table in one.values() for row in table):
        row["series"] += ", synthetic"
    for point in (point for one in series for point in one["points"]):
        point["synthetic"] = True
    night = a_night(*series)
    (first, *_) = labels_of = [row["label"] for row in build_digest(night).series]
    assert all(label.count("synthetic") == 1 for label in labels_of)
    assert f"**{first}** is **10.0 % slower**" in markdown(night)
    assert f"{first} is 10.0 % slower" in headline(build_digest(night)).says
    page = Page(night_page(night))
    assert "synthetic synthetic" not in page.text
    assert first in page.text


@given(st.lists(st.text("ab, 8GNVIDA"), unique=True, max_size=5))
def test_every_series_has_a_label_of_its_own(series):
    short, _ = series_labels(series)
    assert list(short) == series
    assert len(set(short.values())) == len(series)


# --- one wording ----------------------------------------------------------------------------


def plain(html_text):
    return re.sub(r"\s+", " ", html_text.replace("\N{BLACK CIRCLE}\xa0", ""))


@given(st.integers(0, 24 * 60))
def test_the_heading_tells_the_day_of_runs_of_an_earlier_night(hours_ago):
    runs_end = NOW.replace(tzinfo=None) - timedelta(hours=hours_ago)
    told = f", runs up to {format_day(runs_end)}" if hours_ago >= 24 else ""
    heading = markdown(a_night(now=runs_end)).splitlines()[0]
    assert heading == f"### Nightly, GPU cluster: 14 March 2026{told}"


def test_page_markdown_json_and_junit_say_the_same():
    night = a_bad_night()
    said = headline(build_digest(night))
    shown = plain(Page(night_page(night)).text)
    text = markdown(night).replace("**", "").replace("\\", "")
    data = summary(night)
    system_out = xml(junit(night)).find("testsuite/system-out").text
    assert data["says"] == said.says
    for sentence in (said.says, *said.notes):
        assert sentence in shown
        assert sentence in text
        assert sentence in system_out
    for change in (c for c in data["regressions"] + data["improvements"] if c["stands"]):
        assert change["says"] in shown
    assert data["regressions"][0]["says"] == f"{SLOWER}."


def test_a_reason_of_several_lines_stands_on_as_many():
    why = {"message": "unknown format.\n  nearest: deepspeed: 2 <b>\n  known: torchtitan"}
    page = night_page(quiet(sources=[FAILED | why]))
    assert "format.<br>  nearest: deepspeed: 2 &lt;b&gt;<br>  known: torchtitan" in page


def test_the_page_names_what_an_engineer_asks_for():
    shown = plain(Page(night_page(a_bad_night())).text)
    assert (
        "From 5,830 to 5,533 tokens/s/GPU; last run before: torchtitan-llama3-8b-8-0311; "
        "first run after: torchtitan-llama3-8b-8-0312; confirmed on 14 March by "
        "run torchtitan-llama3-8b-8-0314; 3 runs since the change." in shown
    )
    for words in ("CUDA out of memory", "it logged no step", "cut off after 3,200 lines"):
        assert words in shown
    for words in ("The clock was set back", "1.08x", "Shared by all: 8,192 tokens, bf16"):
        assert words in shown
    assert "do not count" not in shown
    assert "runs.html" in Page(night_page(a_bad_night())).addresses


def test_a_change_that_nothing_explains_says_so():
    shown = plain(Page(night_page(a_night(FELL, DOUBT))).text)
    assert "the logs show no setup change at that point" in shown


def test_every_series_has_its_state_as_a_word_and_a_history():
    shown = night_page(regression())
    read = Page(shown)
    assert len([spec for spec in read.data if '"vconcat"' in spec]) == 20
    assert shown.count('<svg class="spark"') == 20
    for word in ("regressed tonight", "suspect", "improved", "steady"):
        assert word in read.text


def test_points_of_two_formulas_are_warned_of_with_their_dates():
    night = a_night(TWICE, a_series("xtuner", nights=60))
    words = (
        "MFU comes from several formulas, so an MFU step between them is not a speed change: "
        "fairmfu-1: 14 January 2026 to 12 February 2026, 30 runs; fairmfu-2: 13 February 2026 "
        "to 14 March 2026, 30 runs. TGS does not depend on the formula. Fix: fairmfu rescore."
    )
    assert words in plain(Page(night_page(night)).text)
    assert summary(night)["series"][0]["warnings"] == [words]
    note = "MFU comes from several formulas in 1 job: torchtitan, llama3-8b."
    assert note in headline(build_digest(night)).notes


def test_a_series_of_several_jobs_asks_to_be_split():
    night = a_night(a_series(setups=("global batch: 64 / 128",)), a_series("xtuner"))
    words = "several jobs: some facts go back and forth (global batch: 64 / 128). Fix: split"
    assert words in plain(Page(night_page(night)).text)


# --- the page as a file -----------------------------------------------------------------------


def test_the_same_night_is_the_same_bytes():
    assert night_page(a_bad_night()) == night_page(a_bad_night())
    assert junit(a_bad_night()) == junit(a_bad_night())


def test_only_our_scripts_and_the_status_beside_it_may_run():
    read = Page(unpacked(night_page(quiet())))
    assert read.addresses.count("status.js") == 1
    assert [a for a in read.addresses if not a.startswith("#")] == ["status.js"]
    ours = [AGE_SCRIPT, html_document.bundle(), html_document.page_script()]
    assert sorted(filter(None, read.run)) == sorted(ours)
    assert re.findall(r"'sha256-[^']+'", read.policy) == [*map(html_document.script_hash, ours)]
    assert "default-src 'none'" in read.policy
    assert "unsafe-inline'; img" in read.policy  # of styles
    assert "unsafe" not in read.policy.split("script-src")[1].split(";")[0]


def test_no_output_changes_the_rows_that_all_of_them_read():
    """Digest and findings are found once for a night."""
    night = a_bad_night()

    def rows():
        found = build_digest(night)
        return repr([found.series, found.changes, found.runs, found.failed, find(found)])

    digest, before = build_digest(night), rows()
    for output in (pages, markdown, summary, junit, svgs, exit_code):
        output(night)
    assert build_digest(night) is digest
    assert rows() == before


def test_the_nonce_hangs_on_the_body():
    """So that no log can name the nonce that would let its script run."""
    nonces = [re.search(r"'nonce-([^']+)'", Page(night_page(n)).policy)[1] for n in some_nights()]
    assert len(set(nonces)) == len(nonces)


def some_nights():
    return quiet(), a_bad_night(), hostile()


def test_an_archived_page_asks_for_no_status_and_no_age():
    read = Page(pages(quiet())[1])
    assert "status.js" not in read.addresses
    assert AGE_SCRIPT not in read.run
    assert "nonce" not in read.policy
    assert "(archived)" in read.text


def test_the_page_of_three_years_is_light():
    nights = 3 * 365
    changed = a_series(nights=nights, steps=((800, 0.97), (700, 1.05), (300, 0.97), (20, 1.03)))
    night = a_night(*many(nights=nights, but=[changed]))
    shown = night_page(night)
    assert len(shown.encode()) < 3_000_000
    whole = unpacked(shown)
    specs = [json.loads(spec) for spec in Page(whole).data if '"vconcat"' in spec]
    assert len(specs) == 20
    assert max(len(spec["datasets"]["runs"]) for spec in specs) <= 400
    assert "median of up to 4 consecutive runs" in whole


def test_status_js_says_when_and_why_and_a_comment_where_all_is_well():
    why = f"no space left {EVIL} \u2028 `${{x}}`"
    text = status_js(NOW, why)
    assert "<" not in text
    assert text.isascii()
    said = json.loads(text.removeprefix("window.fairmfuNightly = ").removesuffix(";\n"))
    assert said == {"failed_at": "2026-03-14T05:41:00+00:00", "why": why}
    assert status_js().startswith("//")


# --- texts of logs ----------------------------------------------------------------------------


BRACES = "'\" onclick='x' {{ 7*7 }}{% raw %} <script>alert(1)</script> &lt;"


@pytest.mark.parametrize("text", [EVIL, HOSTILE, BRACES, '"><img src=x onerror=alert(1)>'])
def test_no_text_of_a_log_becomes_markup(text):
    shown = night_page(hostile(text))
    harmless = Page(night_page(hostile("harmless")))
    read = Page(shown)
    commands = {"code"}  # of ids that a shell may be given
    assert set(read.tags) - commands == set(harmless.tags) - commands
    assert len(read.run) == len(harmless.run)
    assert [a for a in read.addresses if a[0] != "#"] == ["status.js"]
    assert text == HOSTILE or read.text.count(text) > 20


def rendered(text):
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)


@pytest.mark.parametrize("text", [EVIL, HOSTILE])
def test_no_text_of_a_log_becomes_markdown(text):
    made = markdown(hostile(text))
    shown = Page(rendered(made))
    assert set(shown.tags) <= {"h3", "p", "ul", "li", "strong"}
    assert not set("\x00\x1b\u202e") & set(made)
    for live in ("://", "www.i", "@team"):  # links and mentions that need no mark
        assert live not in made


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=1) | st.sampled_from(["a\n```\nb", "\r::error::x", "<!-- x -->", "|\n|"]))
def test_no_text_leaves_its_line_of_the_summary(text):
    tags = Page(rendered(markdown(hostile(text)))).tags
    assert set(tags) <= {"h3", "p", "ul", "li", "strong", "code"}
    assert tags.count("h3") == 1


@given(st.text("\\\\`*_~[]<>|#&;!ab 1.-+=(){}"))
def test_a_text_in_markdown_reads_as_it_was(text):
    """Behind a word, as every text of a log stands."""
    words = f"x {' '.join(text.split())}".strip()
    shown = Page(rendered(f"x {markdown_text(words[2:])}"))
    assert shown.tags == ["p"]
    assert shown.text.strip() == words


def test_an_escaped_backslash_does_not_free_what_follows():
    assert markdown_text(r"\*bold\*") == r"\\\*bold\\\*"
    assert markdown_text("a@b @c") == "a@b @\N{ZERO WIDTH SPACE}c"


def test_markdown_says_which_runs_stand_on_both_sides_and_how_to_compare_them():
    night = regression()
    (change,) = [row for row in build_digest(night).changes if row["new"]]
    text = markdown(night)
    assert f"`fairmfu compare {change['last_before']} {change['run_id']}`" in text
    assert f"last run before: {change['before_run']}; first run after: {change['run']};" in text
    assert "fairmfu compare" not in markdown(quiet())


def test_github_and_python_markdown_show_the_same_night():
    python_markdown = pytest.importorskip("markdown").markdown
    logs = [{"path": "a_b~c.log", "status": "failed", "message": "cut *off*"}]
    night = regression(runs=[crashed()], sources=logs, notes=["a note"])
    text = markdown(night)
    shown = [Page(page) for page in (rendered(text), python_markdown(text))]
    tags, others = (sorted(page.tags) for page in shown)
    assert tags == others
    assert tags.count("ul") >= 4
    assert shown[0].text.split() == shown[1].text.split()


def test_markdown_is_short_on_the_worst_of_nights():
    names = [(f, m, g) for g in (8, 64) for m in ("llama3-8b", "qwen3-32b") for f in "tdx"]
    bad = [a_series(*name, nights=60, steps=((30, 0.9), (1, 0.9)), baseline=0.8) for name in names]
    runs = [crashed(name=f"run-{n}") for n in range(30)]
    logs = [{"path": f"{n}.log", "status": "failed", "message": "cut\noff"} for n in range(30)]
    words = [f"note {n}" for n in range(30)]
    night = a_night(*bad, runs=runs, sources=logs, notes=words, comparison=words)
    text = markdown(night)
    assert len(text.splitlines()) <= 46
    assert "and 6 more in the report" in text  # one is the first sentence
    assert "and 28 more in the report" in text


@pytest.mark.parametrize("night", [a_bad_night, quiet, hostile])
def test_summary_is_what_its_schema_says(night):
    data = summary(night())
    jsonschema.validate(data, SCHEMA)
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_the_schema_names_every_key():
    """A key that the schema does not know is refused, so a new one must be documented."""
    data = summary(a_bad_night())
    data["series"][0]["more"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_no_figure_of_the_summary_is_not_a_number():
    series = a_series(nights=60)
    series["series"][0] |= {"spread": float("nan"), "level_high": float("inf")}
    data = summary(a_night(series))
    assert data["series"][0]["spread"] is None
    assert data["series"][0]["level_high"] is None


def test_summary_holds_the_changes_as_they_were_found():
    data = summary(regression())
    change = data["regressions"][0]
    row = DROP["changes"][0]
    for name in ("series", "ratio", "ratio_low", "run_id", "found_by", "points_after", "causes"):
        assert change[name] == row[name]
    assert change["at"] == "2026-03-12T02:41:00+00:00"
    assert change["new"]
    assert change["fails"]
    assert len(data["regressions"]) + len(data["improvements"]) == regression().changes.height
    against = {c["against"] for c in data["regressions"]}
    assert against == {"history", "baseline"}
    assert data["series"][0]["baseline"]["ratio"] == 0.949
    assert CHANGE_SCHEMA.keys() - {"causes"} <= change.keys() | {"causes"}


def test_junit_has_a_case_for_each_series_and_each_log_that_failed():
    root = xml(junit(a_bad_night()))
    suite = root.find("testsuite")
    assert [root.get(n) for n in ("tests", "failures", "errors", "skipped")] == [
        "22",
        "1",
        "2",
        "0",
    ]
    failed = [case for case in suite.iter("testcase") if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == [DROP["series"][0]["series"]]
    assert failed[0].find("failure").get("message") == f"{SLOWER}."
    job, log = suite.iter("error")
    assert job.get("message") == "titan-oom: out of memory."
    assert job.text == "titan-oom: out of memory.\nCUDA out of memory"
    assert log.get("message") == "cut off after 3,200 lines"


def test_junit_skips_a_series_that_has_too_few_runs():
    root = xml(junit(a_night(*many(nights=1), number=1)))
    assert root.get("skipped") == "20"


@pytest.mark.parametrize("text", [EVIL, HOSTILE, "]]>\ufffe\ud7ff&amp;"])
def test_junit_is_xml_whatever_a_log_holds(text):
    root = xml(junit(hostile(text)))
    (suite,) = root.findall("testsuite")
    assert len(suite.findall("testcase")) == 5
    assert root.get("errors") == "2"


# --- charts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("night", [a_bad_night, hostile, mixed])
def test_charts_are_valid_vega_lite_without_warnings(night):
    made = night()
    found = build_digest(made)
    specs = [history_charts.overview(found.series, made.points)]
    for row in found.series[: 5 if THOROUGH else 2]:
        own = made.points.filter(series=row["series"])
        specs += [history_charts.history(row, own).spec]
    for spec in specs:
        alt.Chart.from_dict(spec).to_dict()


def test_a_history_draws_levels_changes_baseline_marks_and_both_panels():
    row = build_digest(a_night(DROP)).series[0]
    made = history_charts.history(row, a_night(DROP).points)
    text = json.dumps(made.spec)
    for words in (
        "\\u25bc 5.1 % slower",
        "version 0.2.1 -> 0.2.2",
        "baseline: torchtitan-llama3-8b-8-0315",
        '"title": "MFU, exact"',
        "5532.67",
    ):
        assert words in text


def test_svgs_are_of_series_with_news_and_safe_by_name_and_text():
    drawn = svgs(hostile())
    assert len(drawn) == 2
    for name, text in drawn.items():
        assert re.fullmatch(r"[a-z0-9-]+\.svg", name)
        tags = {element.tag.split("}")[1] for element in xml(text).iter()}
        assert "script" not in tags
    assert drawn == svgs(hostile())


def test_a_quiet_night_draws_the_overview_alone():
    drawn = svgs(quiet())
    assert list(drawn) == ["overview.svg"]
    lines, points = (
        [
            len(group)
            for group in xml(drawn["overview.svg"]).iter()
            if mark in group.get("class", "")
        ]
        for mark in ("mark-line", "mark-symbol")
    )
    assert lines == [1] * 20
    assert sum(points) > 20 * 28


@given(st.lists(st.text(max_size=200), unique=True, max_size=4))
def test_names_of_svgs_are_safe_and_their_own(series):
    names = [svg_name(one) for one in series]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,90}\.svg", name) for name in names)


@given(
    nights=st.integers(1, 900),
    most=st.integers(1, 300),
    steps=st.lists(st.integers(1, 890), unique=True, max_size=3),
    formulas=st.integers(1, 3),
)
def test_thinning_keeps_every_run_within_its_level_and_formula(nights, most, steps, formulas):
    inside = sorted((ago for ago in steps if ago < nights - 1), reverse=True)
    names = tuple(f"f{n}" for n in range(formulas))
    points = frame_of(a_series(nights=nights, steps=[(a, 0.9) for a in inside], formulas=names))
    data = history_charts.thin_points(points, most, single_runs=5)
    assert data["runs"].sum() == points.height  # fewer than MOST_OUTLIERS strays
    early = data.height - 5 - data["outlier"].sum()
    assert early <= most + len(inside) + formulas
    assert data["at"].is_sorted()
    assert data.filter(
        (pl.col("low") > pl.col("tgs")) | (pl.col("tgs") > pl.col("high"))
    ).is_empty()
    singles = points.sort("at").tail(5)
    assert data.tail(5)["tgs"].to_list() == singles["tgs"].to_list()
    held = points.group_by("segment").agg(low=pl.col("tgs").min(), high=pl.col("tgs").max())
    within = data.join(held, on="segment", suffix="_of_segment")
    assert within.filter(pl.col("low") < pl.col("low_of_segment")).is_empty()
    assert within.filter(pl.col("high") > pl.col("high_of_segment")).is_empty()


def frame_of(series):
    return a_night(series).points


def test_one_point_per_run_is_said_where_nothing_was_thinned():
    data = history_charts.thin_points(frame_of(a_series(nights=100)))
    assert history_charts.thinning_sentence(data) == "One point per run."
    assert data.height == 100
    assert data["formula"].unique().to_list() == [FORMULA]


def test_the_small_history_lies_within_its_frame_and_shows_a_drop():
    points = frame_of(DROP)
    last = points["at"][-1]
    places, marks = history_charts.spark(points, [last - timedelta(days=999), last])
    assert marks == [1.0]
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places)
    assert places[-1][1] < 0.3
    assert places[0][1] > 0.7
    calm = [y for _, y in history_charts.spark(frame_of(a_series(nights=365)))[0]]
    assert max(calm) - min(calm) < 0.5


def test_equal_runs_of_one_day_look_equal() -> None:
    """An axis from 6,398.150 to 6,398.160 made a regression of nothing; each tick was one day."""
    rows = nightly_runs([6398.15 + i / 1000 for i in range(8)])
    near = [{**row, "started_at": START + timedelta(hours=i)} for i, row in enumerate(rows)]
    found = history(metrics(near))
    series = {"label": "x", "changes": [], **found.series.row(0, named=True)}
    tgs, *_ = history_charts.history(series, found.points).spec["vconcat"]
    dots = next(
        one["encoding"] for one in tgs["layer"] if one["encoding"]["y"].get("field") == "tgs"
    )
    low, high = dots["y"]["scale"]["domain"]
    assert high / low == pytest.approx(1.01 / 0.99)
    assert dots["x"]["axis"]["tickCount"] == {"interval": "day", "step": 1}


@pytest.mark.parametrize(
    ("state", "word"), [("regressed", "regressed, last run suspect"), ("suspect", "suspect")]
)
def test_a_suspect_run_shows_beside_another_state(state: str, word: str) -> None:
    row = {"state": state, "suspect": True, "changes": []}
    assert page_of_nights.state_words(row) == word
