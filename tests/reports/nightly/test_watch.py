"""Changes of memory, loss, start-up: the same in sentence, exit code, JUnit, page and JSON."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import timedelta

import jsonschema
import polars as pl
import pytest

from fairmfu.metrics.compare.watched_metrics import WATCHED
from fairmfu.reports.nightly.findings import exit_code, find
from fairmfu.reports.nightly.headline import headline
from fairmfu.reports.nightly.jobs import JOB_SCHEMA
from fairmfu.reports.nightly.night_html import pages
from fairmfu.reports.nightly.night_outputs import junit, markdown, summary
from fairmfu.reports.nightly.night_report import WATCHED_NIGHT_SCHEMA, Night, build_digest
from fairmfu.reports.nightly.watch import with_news
from tests.support.folders import ROOT
from tests.support.told_nights import NOW, a_night, a_series, frame

LAST = NOW.replace(tzinfo=None) - timedelta(hours=3)
SERIES = a_series(nights=60)
KEY = SERIES["series"][0]["series"]
RUNS = [point["run_id"] for point in SERIES["points"]]
GIB = 2.0**30


def change(metric="memory", before=44.2 * GIB, after=71.9 * GIB, **more):
    """A change that the last three nights confirmed, of a series that RUNS are of."""
    return {
        **dict.fromkeys(WATCHED_NIGHT_SCHEMA),
        "series": KEY,
        "metric": metric,
        "against": "history",
        "kind": "worse",
        "at": LAST - timedelta(days=2),
        "run_id": RUNS[-3],
        "last_before": RUNS[-4],
        "found_at": LAST,
        "found_by": RUNS[-1],
        "before": before,
        "after": after,
        "ratio": after / before,
        "ratio_low": None,
        "ratio_high": None,
        "points_after": 3,
        "causes": [],
        "counts": True,
        "stands": True,
        "new": True,
        **more,
    }


def night(*rows, **more) -> Night:
    return a_night(SERIES, watched=frame(WATCHED_NIGHT_SCHEMA, rows), **more)


def says(one: Night) -> str:
    return headline(build_digest(one)).says


def ids(one: Night) -> list[str]:
    return [finding.kind.identifier for finding in find(build_digest(one))]


MEMORY = "needs 62.7 % more memory since 12 March (71.9 GiB instead of 44.2 GiB)"
WORSE = {
    "memory": (change(), MEMORY),
    "memory-growth": (
        change("memory-growth", 1.0, 1.25),
        "needs more and more memory inside a run since 12 March (25.0 % instead of 0.0 %)",
    ),
    "loss": (
        change("loss", 3.0, 3.3, at_count=11_863_283, count_unit="tokens"),
        "has a 10.0 % higher loss at 11.9 million tokens since 12 March (3.300 instead of 3.000)",
    ),
    "start-up": (
        change("start-up", 20.0, 40.0),
        "takes 100.0 % longer to start since 12 March (40.0 s instead of 20.0 s)",
    ),
    "end-to-end": (
        change("end-to-end", 0.9, 0.8),
        "is slower end to end at the same steady speed since 12 March (80.0 % instead of 90.0 %)",
    ),
    "seconds-per-step": (
        change("seconds-per-step", 0.5, 0.55),
        "takes 10.0 % more time per step since 12 March (0.550 s instead of 0.500 s)",
    ),
}


@pytest.mark.parametrize("metric", WATCHED, ids=lambda metric: metric.identifier)
def test_a_change_is_told_alike_everywhere(metric):
    row, words = WORSE[metric.identifier]
    one = night(row, fail_on=(metric.fail_on,))
    assert says(one).endswith(f"{words}.")
    assert ids(one) == [metric.finding]
    assert exit_code(one) == 3
    assert exit_code(replace(one, fail_on=("crash", "missing", "standing"))) == 0
    whole = summary(one)
    jsonschema.validate(
        whole, json.loads((ROOT / "docs" / "summary.schema.json").read_text(encoding="utf-8"))
    )
    (found,) = whole["findings"]
    assert (found["detail"], found["new"], found["fails"]) == (words, True, True)
    assert found["since"] == (LAST - timedelta(days=2)).isoformat() + "+00:00"
    command = "compare" if metric.command == "compare" else "explain"
    assert found["fix"].startswith(f"{command.capitalize()}: fairmfu {command} ")
    failure = ET.fromstring(junit(one)).find(".//failure")  # noqa: S314 - ours
    assert failure is not None
    assert (failure.get("type"), words in (failure.text or "")) == (metric.finding, True)
    assert found["evidence"][:20] in markdown(one)
    assert words.split(" (")[0] in pages(one)[0].replace("&nbsp;", " ")


def test_a_change_of_an_earlier_night_stands():
    old = change(new=False)
    one = night(old)
    assert says(one).endswith(
        "still needs 62.7 % more memory since 12 March (71.9 GiB instead of 44.2 GiB). "
        "The speed of torchtitan, llama3-8b, 8,192 tokens, 8 x H100 SXM, bf16 is unchanged. "
        "1 run tonight."
    )
    assert says(replace(one, number=1)) == says(one).replace("bf16 still needs", "bf16 needs")
    assert ids(one) == ["standing-change"]
    assert [exit_code(replace(one, fail_on=(name,))) for name in ("memory", "standing")] == [0, 3]
    assert ids(night({**old, "stands": False})) == ["all-well"]


def test_a_lower_loss_is_a_note_and_less_memory_is_nothing():
    lower = change("loss", 3.3, 3.0, kind="better", at_count=1024, count_unit="steps")
    one = night(lower, fail_on=("loss", "standing"))
    assert (ids(one), exit_code(one)) == (["lower-loss"], 0)
    assert "9.1 % lower loss at 1,024 steps" in " ".join(headline(build_digest(one)).notes)
    assert ids(night({**lower, "new": False})) == ["all-well"]
    assert ids(night(change(before=70 * GIB, after=50 * GIB, kind="better"))) == ["all-well"]


def test_a_baseline_is_told_in_place_of_the_change():
    off = change(against="baseline", last_before=RUNS[0], new=False)
    one = night(change(new=False), off, fail_on=("memory",))
    assert ids(one) == ["more-memory"]
    assert exit_code(one) == 3
    assert "instead of its baseline's 44.2 GiB" in says(one)


def test_many_changes_are_counted():
    rows = [row for row, _ in WORSE.values()]
    assert says(night(*rows)).count(" since 12 March") == 2
    assert "4 changes more of this kind: see the report." in says(night(*rows))


def test_a_change_is_new_once():
    rows = frame(WATCHED_NIGHT_SCHEMA, [change()]).drop("new")
    first, keys = with_news(rows, LAST, ())
    assert first["new"].to_list() == [True]
    again, more = with_news(rows, LAST, keys)
    assert (again["new"].to_list(), more) == ([False], [])
    moved = rows.with_columns(run_id=pl.lit(RUNS[-1]))  # a late log came between
    assert with_news(moved, LAST, keys)[0]["new"].to_list() == [False]
    later = LAST + timedelta(days=9)
    assert with_news(rows, later, ())[0]["new"].to_list() == [False]
    known = [key for key in keys if key.count("\x1f") == 1]
    assert with_news(rows, later, known)[0]["new"].to_list() == [True]
    recomputed = LAST + timedelta(days=90)
    assert with_news(rows, recomputed, known)[0]["new"].to_list() == [False]


def test_launches_that_fail_more_often_are_named():
    outcomes = ["completed"] * 40 + ["crashed", "completed"] * 12 + ["crashed", "crashed"]
    jobs = [
        {
            "run_id": f"j{n}",
            "name": f"j{n}",
            "job": "ds-1b",
            "outcome": outcome,
            "at": LAST - timedelta(hours=6 * (len(outcomes) - n)),
            "path": f"/logs/{n}.log",
        }
        for n, outcome in enumerate(outcomes)
    ]
    one = a_night(SERIES, jobs=frame(JOB_SCHEMA, jobs), fail_on=("standing",))
    (found,) = [each for each in find(build_digest(one)) if each.kind.watch == "standing"][-1:]
    assert found.detail.startswith("fails more often since ")
    assert "of 40 before" in found.detail
    assert exit_code(one) in (3, 5)
