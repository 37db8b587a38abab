"""Whole logs: the samples against their goldens, and public logs against counts made by hand.

`pytest --update-golden` rewrites the goldens of the samples; read the diff against the log. The
public logs lie outside of the project: in the folder $FAIRMFU_CORPUS, or beside it.
"""

from __future__ import annotations

import csv
import functools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.metrics.throughput.resolved_facts import resolve_facts
from tests.support.effort import THOROUGH, sampled
from tests.support.folders import ROOT
from tests.tools.corpus import (
    CORPUS,
    GENERATED,
    LOOKS,
    countable,
    public_tables,
    read,
    reading,
    reasons,
    step_like,
)

pytestmark = sampled(3)

GOLDEN = ROOT / "tests" / "golden"
SAMPLES = sorted((ROOT / "sample_logs").glob("*/*/*/run.log"))


def named(log: Path) -> str:
    return str(log.parent.relative_to(ROOT / "sample_logs"))


def golden_of(log: Path) -> Path:
    return GOLDEN / log.relative_to(ROOT).with_suffix(".json")


tables_of = functools.cache(read_log_tables)


def summary(log: Path) -> list[dict[str, Any]]:
    """What a golden keeps of each run: facts, number of steps, first and last rows, sums."""
    tables = tables_of(log)
    held = resolve_facts(tables["facts"])
    out = []
    for run_id, first_line in tables["runs"].select("run_id", "first_line").iter_rows():
        steps = tables["steps"].filter(run_id=run_id).drop("run_id")
        rows = [{k: v for k, v in row.items() if v is not None} for row in steps.to_dicts()]
        numbers = steps.select(pl.selectors.numeric().exclude("line")).sum()
        facts = held.filter(run_id=run_id).select("name", "value").iter_rows()
        summed = {k: v for k, v in numbers.row(0, named=True).items() if steps[k].count()}
        out.append(
            {
                "first_line": first_line,
                "facts": dict(facts),
                "steps": steps.height,
                "first": rows[:2],
                "last": rows[-2:],
                "sums": summed,
            }
        )
    return json.loads(json.dumps(out, default=str))


def close(value: Any) -> Any:
    """`value` with every number in it to be compared to 1e-9."""
    if isinstance(value, dict):
        return {key: close(item) for key, item in value.items()}
    if isinstance(value, list):
        return [close(item) for item in value]
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


@pytest.mark.parametrize("log", SAMPLES, ids=named)
def test_a_sample_says_what_its_golden_says(log: Path, request: pytest.FixtureRequest) -> None:
    golden, found = golden_of(log), summary(log)
    if request.config.getoption("update_golden"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(json.dumps(found, indent=1) + "\n")
    assert golden.is_file(), f"no golden: run pytest --update-golden and read {golden}"
    assert found == close(json.loads(golden.read_text()))


def test_every_golden_has_its_log() -> None:
    assert SAMPLES
    goldens = set((GOLDEN / "sample_logs").rglob("*.json"))
    assert goldens - {golden_of(log) for log in SAMPLES} == set()


@pytest.mark.parametrize("log", SAMPLES, ids=named)
def test_a_sample_is_read_whole_and_makes_sense(log: Path) -> None:
    tables = tables_of(log)
    source = tables["sources"].row(0, named=True)
    steps = tables["steps"]
    assert source["unread_lines"] == 0
    assert source["lines"] == log.read_bytes().count(b"\n")
    assert steps.height == source["step_lines"] > 0
    assert steps["line"].is_sorted()
    for column in ("elapsed_s", "logged_tgs", "rank_tokens", "loss"):
        assert (steps[column].drop_nulls() > 0).all()


# -- public logs ---------------------------------------------------------------------------


@functools.cache
def counted() -> dict[str, tuple[str, int, int]]:
    """Path: format, step lines, unread lines."""
    lines = (GOLDEN / "corpus.tsv").read_text().splitlines()
    rows = csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t")
    return {
        row["path"]: (row["log_format"], int(row["step_lines"]), int(row["unread_lines"]))
        for row in rows
    }


def joins(log_format: str) -> bool:
    """Whether a step of this format may stand on several lines, or several on one."""
    return any(f.name == log_format and f.join is not None for f in BUILT_IN_FORMATS)


def corpus() -> list[object]:
    if not CORPUS.is_dir():
        absent = pytest.mark.skip(reason=f"NO PUBLIC LOGS in {CORPUS}: set FAIRMFU_CORPUS")
        return [pytest.param("", marks=absent, id="absent")]
    return sorted(str(p.relative_to(CORPUS)) for p in CORPUS.rglob("*") if p.is_file())


WITHOUT_STEPS = r"unknown format|flops profiler|no training step; the launch failed"


@pytest.mark.parametrize("path", corpus())
def test_a_public_log_has_as_many_steps_as_were_counted_and_as_a_person_sees(path: str) -> None:
    if path not in counted():
        with pytest.raises(FairmfuError, match=WITHOUT_STEPS):
            public_tables(path)
        # To deepspeed-csv, told by its file's name, any row is a step.
        assert not any(step_like(CORPUS / path, f) for f in LOOKS if f != "deepspeed-csv")
        return
    tables = public_tables(path)
    source = tables["sources"].row(0, named=True)
    counts = [source[f"{kind}_lines"] for kind in ("step", "known", "companion", "other", "unread")]
    assert (source["log_format"], counts[0], counts[-1]) == counted()[path]
    assert sum(counts) == source["lines"]
    if not joins(source["log_format"]):
        assert tables["steps"].height == counts[0]
    assert set(tables["steps"]["run_id"]) <= set(tables["runs"]["run_id"])
    found = reading(CORPUS / path, path, tables)
    if path not in reasons() and countable(found):
        assert (found.steps, found.unread) == (found.looks, 0)


absent = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"NO PUBLIC LOGS in {CORPUS}: set FAIRMFU_CORPUS"
)


def reported() -> list[tuple[int, list[str]]]:
    lines = (GOLDEN / "reported.tsv").read_text().splitlines()
    rows = csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t")
    return [(int(row["lines"]), row["paths"].split()) for row in rows]


@absent
@pytest.mark.parametrize(("lines", "paths"), reported(), ids=lambda x: str(x)[:60])
def test_public_logs_have_as_many_steps_as_the_formats_descriptions_report(
    lines: int, paths: list[str]
) -> None:
    read = [public_tables(path)["sources"]["step_lines"].sum() for path in paths]
    assert sum(read) == lines


def generated() -> list[object]:
    if not GENERATED.is_dir():
        none = pytest.mark.skip(reason=f"NO GENERATED LOGS in {GENERATED}: set FAIRMFU_GENERATED")
        return [pytest.param("", marks=none, id="absent")]
    return sorted(str(p.relative_to(GENERATED)) for p in GENERATED.rglob("*") if p.is_file())


@pytest.mark.parametrize("path", generated()[:: 1 if THOROUGH else 3])
def test_a_generated_log_has_as_many_steps_as_a_plain_count_finds(path: str) -> None:
    found = read(GENERATED / path, GENERATED)
    assert found.steps == found.looks or not countable(found)
    assert found.unread == 0


@absent
def test_every_counted_log_is_there() -> None:
    assert {path for path in counted() if not (CORPUS / path).is_file()} == set()
