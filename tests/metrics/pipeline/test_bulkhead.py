"""What is raised of one run is its own error: others are as without it, whoever tells of them."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest.core.errors import StoreError, describe_fault
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.core.run_messages import ANALYSIS_FAILED
from fairmfu.metrics.pipeline import incremental, launch_tables
from fairmfu.metrics.pipeline import run_scoring as module
from fairmfu.metrics.pipeline.analysis import Analysis, analyse, tables_of_runs
from fairmfu.metrics.pipeline.bulkhead import compute_apart
from fairmfu.metrics.pipeline.incremental import rescore
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA, finish_metrics
from fairmfu.reports.comparison.comparison import compare
from fairmfu.reports.page import html_report
from fairmfu.reports.page.report_data import report
from fairmfu.reports.text.run_explained import explain
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
BAD = "megatron-deepspeed"
"""The log format of the run that raises here."""

Tables = dict[str, pl.DataFrame]


# -- who is to blame ---------------------------------------------------------------------------


@given(
    st.integers(0, 12),
    st.sets(st.integers(0, 11), max_size=3),
    st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=2),
)
def test_only_those_that_raise_are_left_out(
    count: int, bad: set[int], unlike: set[tuple[int, int]]
) -> None:
    """Alone, or beside another one: of such a pair one is left out."""
    ids = [str(place) for place in range(count)]
    pairs = {(str(a), str(b)) for a, b in unlike if a != b}

    def compute(some: Sequence[str]) -> list[str]:
        if any(str(place) in some for place in bad):
            raise ZeroDivisionError
        if any(a in some and b in some for a, b in pairs):
            raise ValueError
        return list(some)

    done = compute_apart(ids, compute)
    assert [*sorted(done.result), *sorted(done.errors)] == [
        *sorted(set(ids) - set(done.errors)),
        *sorted(set(ids) - set(done.result)),
    ]
    assert {str(place) for place in bad} & set(ids) <= set(done.errors)
    blamed = set(done.errors) - {str(place) for place in bad}
    assert all(any(one in pair for pair in pairs) for one in blamed)
    assert len(blamed) <= len(pairs)


def test_the_order_of_runs_stays() -> None:
    def compute(some: Sequence[str]) -> list[str]:
        if "c" in some:
            raise ValueError
        return list(some)

    assert compute_apart("dbcae", compute).result == ["d", "b", "a", "e"]


def test_an_overflow_of_numpy_is_an_error() -> None:
    def compute(some: Sequence[str]) -> float:
        return float((np.array([1e308]) * (10 if "b" in some else 1))[0])

    done = compute_apart("ab", compute)
    assert done.result == 1e308
    assert "RuntimeWarning" in done.errors["b"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compute_apart("ab", compute).errors, "whatever else is heard of warnings"


@pytest.mark.parametrize("error", [StoreError("x"), OSError("x"), MemoryError()])
def test_what_is_no_fault_of_a_run_ends_all(error: Exception) -> None:
    def compute(_: Sequence[str]) -> None:
        raise error

    with pytest.raises(type(error)):
        compute_apart("ab", compute)


def test_an_error_is_named_by_its_place() -> None:
    def told(**facts: Any) -> str:
        try:
            module._check_finite(facts or None)  # type: ignore[arg-type]
        except AttributeError as error:
            return describe_fault(error)
        return ""

    first, again = told(), told()
    assert first == again
    assert re.match(r"AttributeError in metrics/pipeline/\w+\.py, line \d+, \w+: ", first)


# -- one bad run of a store --------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginnings of the synthetic logs, without one format; `make thorough`: of all."""
    folder = tmp_path_factory.mktemp("logs")
    for path in sorted(SYNTHETIC.rglob("*.log")):
        if not THOROUGH and path.parent.name == "deepspeed":
            continue
        short = folder / path.relative_to(SYNTHETIC)
        short.parent.mkdir(parents=True, exist_ok=True)
        short.write_text("".join(path.read_text().splitlines(keepends=True)[:45]))
        if (facts := path.with_name("facts.toml")).exists():
            short.with_name("facts.toml").write_text(facts.read_text())
    return folder


@pytest.fixture(scope="module")
def tables(short_logs: Path) -> Tables:
    """Of all of these logs but one, which only the commands need for a comparison."""
    logs = sorted(short_logs.rglob("*.log"))
    parts = [read_log_tables(path) for path in logs if THOROUGH or path.parent.name != "torchtitan"]
    return {name: pl.concat([part[name] for part in parts]) for name in parts[0]}


@pytest.fixture(scope="module")
def unharmed(tables: Tables) -> Analysis:
    """The analysis of all but the bad run, where nothing is broken."""
    return analyse(without(tables))


def bad_id(tables: Tables) -> str:
    return str(tables["runs"].filter(log_format=BAD)["run_id"][0])


def without(tables: Tables) -> Tables:
    return dict(
        tables_of_runs(
            tables, [run_id for run_id in tables["runs"]["run_id"] if run_id != bad_id(tables)]
        )
    )


def raises(*_: object, **__: object) -> None:
    raise ZeroDivisionError("integer division or modulo by zero")


def for_the_bad(function: Callable[..., Any], is_bad: Callable[..., bool]) -> Callable[..., Any]:
    """The function, which raises for the bad run."""

    def called(*arguments: Any, **options: Any) -> Any:
        return (raises if is_bad(*arguments, **options) else function)(*arguments, **options)

    return called


@pytest.fixture(params=["audit", "score_utilization", "summarise", "merge", "overflow"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tables: Tables) -> str:
    """A fault of fairmfu that shows in one run alone, in a part that sees one or all of them."""
    run_id = bad_id(tables)

    def holds_it(frame: pl.DataFrame, *_: object, **__: object) -> bool:
        return run_id in frame["run_id"]

    if request.param == "audit":
        bad = for_the_bad(module.logged.audit, lambda _, known: known.log_format == BAD)
        monkeypatch.setattr(module.logged, "audit", bad)
    elif request.param == "score_utilization":
        bad = for_the_bad(module.score_utilization, lambda facts, *_: "megatron_arguments" in facts)
        monkeypatch.setattr(module, "score_utilization", bad)
    elif request.param == "summarise":
        bad = for_the_bad(module.throughput.summarise, holds_it)
        monkeypatch.setattr(module.throughput, "summarise", bad)
    elif request.param == "merge":
        bad = for_the_bad(launch_tables.same_run.merge_launches, lambda t: holds_it(t["runs"]))
        monkeypatch.setattr(launch_tables.same_run, "merge_launches", bad)
    else:
        found = module.rank_skew.bottleneck
        huge = np.array([1e308])

        def overflows(share: float | None) -> str | None:
            return found(share) if share is not None else str(huge * 10)

        of_run = module._row

        def row(run: Any, *arguments: Any, **options: Any) -> Any:
            found = of_run(run, *arguments, **options)
            return found | {"data_share": None if run["log_format"] == BAD else 0.0}

        monkeypatch.setattr(module.rank_skew, "bottleneck", overflows)
        monkeypatch.setattr(module, "_row", row)
    return str(request.param)


def test_others_are_as_without_it(broken: str, tables: Tables, unharmed: Analysis) -> None:
    run_id = bad_id(tables)
    beside = analyse(tables)
    is_seen_in_others = broken == "overflow"  # it gives all runs a share
    alone = analyse(without(tables)) if is_seen_in_others else unharmed
    other = pl.col("run_id") != run_id
    for name in ("metrics", "isolated_metrics", "windows", "events", "resolved_facts"):
        there: pl.DataFrame = getattr(beside, name).filter(other)
        assert there.equals(getattr(alone, name)), name
    (row,) = beside.metrics.filter(~other).to_dicts()
    kind = "RuntimeWarning" if broken == "overflow" else "ZeroDivisionError in"
    assert row["error"].startswith(kind)
    assert row["warnings"] == [ANALYSIS_FAILED(error=row["error"])]
    assert row["tgs"] is row["mfu"] is row["model"] is None


def test_kept_metrics_are_those_of_all_together(broken: str, tables: Tables) -> None:
    assert broken
    kept = KEPT_SCHEMA.to_frame()
    for run_id in tables["runs"]["run_id"]:
        known = [*kept["run_id"], run_id]
        runs = tables["runs"].filter(pl.col("run_id").is_in(known))
        done = rescore(runs, kept, [run_id], lambda ids: tables_of_runs(tables, ids))
        kept = done.replace_in(kept)
    assert finish_metrics(kept).equals(analyse(tables).metrics)


def test_a_fault_in_the_search_for_ties_is_the_runs_own(
    monkeypatch: pytest.MonkeyPatch, tables: Tables
) -> None:
    run_id = bad_id(tables)
    bad = for_the_bad(incremental.same_run.find_candidates, lambda *a: run_id in a[3])
    monkeypatch.setattr(incremental.same_run, "find_candidates", bad)
    others = without(tables)
    first = rescore(others["runs"], KEPT_SCHEMA.to_frame(), (), lambda _: others)
    kept = first.replace_in(KEPT_SCHEMA.to_frame())
    load = lambda ids: tables_of_runs(tables, ids)  # noqa: E731 - short
    second = rescore(tables["runs"], kept, (), load)
    after = finish_metrics(second.replace_in(kept))
    assert after.filter(pl.col("run_id") != run_id).equals(finish_metrics(kept))
    assert after.filter(run_id=run_id)["error"][0].startswith("ZeroDivisionError")
    assert second.removed == []


@pytest.mark.parametrize("place", ["bridges", "page"])
def test_what_cannot_be_told_of_a_run_is_its_error(
    place: str, monkeypatch: pytest.MonkeyPatch, tables: Tables, unharmed: Analysis
) -> None:
    """Where figures are there, and putting them into words or pictures raises."""
    run_id = bad_id(tables)
    if place == "bridges":
        bad = for_the_bad(
            Analysis._rate,
            lambda _, row, *__: row["run_id"] == run_id and row["tgs"] is not None,
        )
        monkeypatch.setattr(Analysis, "_rate", bad)
    else:
        bad = for_the_bad(
            html_report.run_views,
            lambda content: content.data["runs"].get(run_id, {"tgs": None})["tgs"] is not None,
        )
        monkeypatch.setattr(html_report, "run_views", bad)
    told = report(tables)
    page = told.render(html_report.render_page)
    assert "ZeroDivisionError" in page
    if place == "page":
        assert [row["run_id"] for row in told.failed] == [run_id]
        return
    before = report(without(tables), analysis=unharmed).data
    for key, row in before["runs"].items():
        same = row | {"source_places": told.data["runs"][key]["source_places"]}
        assert told.data["runs"][key] == same
    analysis = analyse(tables)
    assert "ZeroDivisionError" in explain(analysis, run_id)
    assert json.loads(explain(analysis, run_id, output="json"))["run"]["error"]
    assert {row["run_id"]: bool(row["error"]) for row in compare(analysis).rows}[run_id]


# -- as a user meets it ------------------------------------------------------------------------


def fairmfu(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_commands_tell_it_and_exit_with_4(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_logs: Path
) -> None:
    bad = for_the_bad(module.logged.audit, lambda _, known: known.log_format == BAD)
    monkeypatch.setattr(module.logged, "audit", bad)
    store, name = tmp_path / "store", f"llama3-8b-8xh100-{BAD}"
    assert fairmfu("ingest", short_logs, "--store", store).exit_code == 0
    for command in (
        ("runs",),
        ("compare",),
        ("explain", name),
        ("query", "select name from metrics"),
        ("rescore",),
        ("report", "--out", tmp_path / "report.json"),
        ("export", "--to", "tensorboard", "--out", tmp_path / "tensorboard"),
        ("chart", "comparison", "--out", tmp_path / "chart.json"),
    ):
        result = fairmfu(*command, "--store", store)
        assert result.exit_code == 4, (command, result.output)
        assert isinstance(result.exception, SystemExit)
        assert ANALYSIS_FAILED.fix in result.output or "could not be analysed" in result.output
    assert fairmfu("explain", "llama3-8b-8xh100-xtuner", "--store", store).exit_code == 0
    result = fairmfu("runs", "--format", "json", "--store", store)
    assert result.exit_code == 4
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows if row["error"]] == [name]


def test_a_night_tells_it_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_logs: Path
) -> None:
    bad = for_the_bad(module.logged.audit, lambda _, known: known.log_format == BAD)
    monkeypatch.setattr(module.logged, "audit", bad)
    out = tmp_path / "out"
    result = fairmfu("nightly", short_logs, "--store", tmp_path / "store", "--out", out)
    assert result.exit_code == 4, result.output
    assert result.output.startswith("1 run could not be analysed")
    summary = json.loads((out / "summary.json").read_text())
    assert [run["error"] is not None for run in summary["runs"]].count(True) == 1
    assert '<error type="fault" message="ZeroDivisionError in' in (out / "junit.xml").read_text()
    assert "could not be analysed" in (out / "summary.md").read_text().splitlines()[2]


def test_any_number_of_runs_may_fail(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    bad = for_the_bad(module.logged.audit, lambda _, known: known.log_format in ("xtuner", BAD))
    monkeypatch.setattr(module.logged, "audit", bad)
    failed = analyse(tables).metrics.filter(pl.col("error").is_not_null())
    assert sorted(failed["log_format"]) == [BAD, "xtuner"]
    monkeypatch.setattr(module.logged, "audit", raises)
    assert analyse(tables).metrics["error"].null_count() == 0
    assert report(tables).render(html_report.render_page)


@pytest.mark.parametrize("error", [ValueError("x"), pl.exceptions.PanicException("x")])
def test_a_fault_of_a_whole_command_is_a_sentence(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With an identifier; the traceback is there for whoever asks."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("fairmfu.reports.current_metrics", fail)
    (tmp_path / "run.log").write_text(next(SYNTHETIC.rglob("*.log")).read_text())
    assert fairmfu("ingest", tmp_path / "run.log", "--store", tmp_path / "store").exit_code == 0
    result = fairmfu("runs", "--store", tmp_path / "store")
    assert result.exit_code == 1
    assert re.search(
        rf"fairmfu itself failed: {type(error).__name__}.*\[[0-9a-f]{{8}}\]", result.output
    )
    monkeypatch.setenv("FAIRMFU_TRACEBACK", "1")
    with pytest.raises(type(error)):
        CliRunner().invoke(
            main, ["runs", "--store", str(tmp_path / "store")], catch_exceptions=False
        )
