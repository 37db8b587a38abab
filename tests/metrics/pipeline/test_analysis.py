"""What the row of a run says of its reading, its facts and its own figures."""

from __future__ import annotations

from typing import Any

import pytest

from fairmfu.ingest.core.schema import READING_CHANGES, reading_changes_since, run_rows
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.core.run_messages import ANALYSIS_FAILED, OUTDATED_READING
from fairmfu.metrics.core.run_table import METRICS, MetricsRow, metrics_row
from fairmfu.metrics.pipeline import run_scoring as module
from fairmfu.metrics.pipeline.analysis import Analysis, analyse, tables_of_runs
from fairmfu.metrics.pipeline.messages import MANY_UNREAD_LINES, RATE_AGAINST_LOG, UNREAD_LINES
from fairmfu.metrics.throughput.messages import COUNTS_APART, EVIDENCE_MISCOUNTED
from tests.metrics.runs.test_same_run import START, Rows, fed, measured, source, tables, without
from tests.support.kinds import of_kind

LLAMA = {"model": "llama-3-8b", "seq_len": "8192", "gpus": "8", "global_batch_size": "8"}
LLAMA |= {"packed": "true", "precision": "bf16", "trainable": "full", "accelerator": "h100"}


def with_facts(made: dict[str, Rows], origin: str = "log:1", **facts: str) -> dict[str, Rows]:
    run_id = made["runs"][0]["run_id"]
    made["facts"] += [
        {"run_id": run_id, "name": name, "value": value, "origin": origin, "line": 1, "sequence": n}
        for n, (name, value) in enumerate(facts.items())
    ]
    return made


def row_of(made: dict[str, Rows]) -> MetricsRow:
    return metrics_row(analyse(tables(made)).metrics, made["runs"][0]["run_id"])


def llama(name: str = "run", **more: str) -> dict[str, Rows]:
    return with_facts(source(name, without(measured(1), "logged_at")), **(LLAMA | more))


@pytest.mark.parametrize(
    ("packed", "mask", "shown"),
    [("false", "true", "partly"), ("true", "true", "true"), ("false", "false", "false")],
)
def test_packs_that_need_not_be_full_are_packed_partly(packed: str, mask: str, shown: str) -> None:
    """So that their samples/s are not compared with those of single samples."""
    assert row_of(llama(packed=packed, document_mask=mask))["packed"] == shown


@pytest.mark.parametrize(
    ("unread", "read", "ranked"),
    [(0, 20, True), (2, 1, True), (3, 27, True), (3, 26, False), (4, 36, True), (4, 35, False)],
)
def test_many_unread_lines_keep_a_run_out_of_the_ranking(
    unread: int, read: int, *, ranked: bool
) -> None:
    """More than two, and more than a tenth of all that look like steps: 3 of 29, not 3 of 30."""
    made = fed(source("run", measured(1)))
    made["sources"][0] |= {"unread_lines": unread, "step_lines": read}
    said = of_kind(row_of(made), UNREAD_LINES, MANY_UNREAD_LINES)
    number = f": {unread}." if ranked else f"{NOT_RANKED}{unread} of {unread + read} lines"
    assert [number in words for words in said] == [True] * (unread > 0)
    assert [words.startswith(NOT_RANKED) for words in said] == [not ranked] * (unread > 0)


def test_unread_lines_of_all_sources_count_together() -> None:
    console, twin = source("console", measured(1), facts=3), source("twin", measured(1))
    for made, unread in ((console, 1), (twin, 2)):
        made["sources"][0] |= {"unread_lines": unread, "step_lines": 10}
    (row,) = analyse(tables(console, twin)).metrics.to_dicts()
    (words,) = of_kind(row, MANY_UNREAD_LINES)
    assert words.startswith(f"{NOT_RANKED}3 of 23 lines")


def test_a_source_that_was_read_before_a_change_of_its_format_says_so() -> None:
    made = fed(source("run", measured(1)))
    last = max(n for n, change in enumerate(READING_CHANGES) if not change.formats)
    made["sources"][0]["reading"] = last  # those after it are of other formats
    (words,) = of_kind(row_of(made), OUTDATED_READING)
    assert READING_CHANGES[last].what in words
    assert all(change.what not in words for change in READING_CHANGES[last + 1 :])
    assert words.startswith(NOT_RANKED)


def test_of_many_changes_of_its_reading_the_newest_are_named() -> None:
    made = fed(source("run", measured(1)))
    made["sources"][0]["reading"] = 0
    since = reading_changes_since(0, made["runs"][0]["log_format"], None)
    (words,) = of_kind(row_of(made), OUTDATED_READING)
    assert f"changed since: {since[-2]}; {since[-1]}; and {len(since) - 2} more." in words


def test_what_follows_from_other_than_words_is_marked_as_inferred() -> None:
    said = llama()
    assert row_of(said)["inferred"] == []
    guessed = with_facts(llama(), origin="inferred: by the framework", recompute="none")
    assert row_of(guessed)["inferred"] == ["recompute"]


def test_a_precision_that_the_log_contradicts_is_not_shown() -> None:
    made = llama(quantization="mxfp8")
    kept = [fact for fact in made["facts"] if fact["name"] != "precision"]
    made["facts"] = kept
    with_facts(made, origin="inferred: by the framework", precision="bf16")
    row = row_of(made)
    assert (row["precision"], row["mfu"], row["inferred"]) == (None, None, [])
    assert "precision" in row["missing"]


def test_rates_that_the_log_prints_of_other_tokens_are_doubted() -> None:
    """8,192 tokens in 2 s are 4,096 a second; a log that prints a third counts other tokens."""

    def warned(printed: float) -> list[str]:
        made = llama()
        made["runs"][0]["evidence"] = ["elapsed"]
        for row in made["steps"]:
            row["logged_tgs"] = round(8192 / row["elapsed_s"] * printed)
        return of_kind(row_of(made), COUNTS_APART, EVIDENCE_MISCOUNTED, RATE_AGAINST_LOG)

    assert warned(1.0) == []
    for printed, times in ((1 / 3, "3.00x"), (3.0, "0.33x")):
        (words,) = warned(printed)
        assert words.startswith(NOT_RANKED)
        assert f"TGS is {times} the logged rates" in words


def test_medians_of_lines_outside_steps_are_shown_where_no_step_has_any() -> None:
    made = llama()
    made["steps"][3] |= {"logged_mfu": 0.4, "logged_tflops": 400.0}
    row = row_of(made)
    assert (row["logged_mfu"], row["logged_tflops"]) == (0.4, 400.0)
    assert row_of(llama())["logged_mfu"] is None


def test_the_row_names_its_run_model_and_sources() -> None:
    row = row_of(llama())
    assert (row["model"], row["gpus"], row["seq_len"]) == ("llama-3-8b", 8, 8192)
    assert (row["sources"], row["members"], row["launch"]) == (["logs/run"], ["run"], 1)
    # 2 s a step on average, of 8,192 tokens a GPU.
    assert row["tgs"] == pytest.approx(4096, rel=0.05)
    assert row["tokens_per_second"] == pytest.approx(8 * row["tgs"])
    assert row["mfu"] == pytest.approx(row["tgs"] * 51_471_187_968 / 989.4e12)
    assert row["error"] is None


def test_a_run_that_fails_keeps_its_name_and_has_no_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    score = module.score_utilization

    def raises(facts: dict[str, Any], *rest: Any) -> Any:
        if facts["gpus"]["value"] == "16":
            raise ZeroDivisionError("by zero")
        return score(facts, *rest)

    monkeypatch.setattr(module, "score_utilization", raises)
    good, bad = llama("good"), with_facts(source("bad", measured(2)), **(LLAMA | {"gpus": "16"}))
    found = analyse(tables(good, bad))
    assert found.metrics["name"].to_list() == ["bad", "good"]
    row = metrics_row(found.metrics, "bad")
    assert (row["steps"], row["tgs"], row["mfu"], row["members"]) == (0, None, None, ["bad"])
    assert (row["framework"], row["launch"], row["sources"]) == ("xtuner", 1, ["logs/bad"])
    assert row["error"] is not None
    assert row["error"].startswith("ZeroDivisionError")
    assert row["warnings"] == row["doubts"] == [ANALYSIS_FAILED(error=row["error"])]
    alone = analyse(tables(llama("good")))
    assert metrics_row(found.metrics, "good") == metrics_row(alone.metrics, "good")
    assert found.windows.equals(alone.windows)
    assert found.resolved_facts.equals(alone.resolved_facts)
    assert set(found.logged_lines) <= {"good"}
    assert set(found.audits) == set(found.formula_facts) == {"good", "bad"}
    assert set(found.merged_launches.members) == {"good", "bad"}


def two() -> Analysis:
    later = [row | {"loss": row["loss"] + 3} for row in without(measured(2), "logged_at")]
    return analyse(tables(llama(recompute="full"), with_facts(source("two", later), **LLAMA)))


def test_other_tools_are_asked_once_for_each_model_and_length() -> None:
    """Recomputation is work where a tool counts it and the first run of the two recomputes."""
    found = two()
    (label,) = found.other_tools()
    assert label == "llama-3-8b, 8,192 tokens"
    plain = analyse(tables(llama())).other_tools()[label]
    assert plain["name"].to_list() == found.other_tools()[label]["name"].to_list()
    more = found.other_tools()[label]["ratio_to_ours"] - plain["ratio_to_ours"]
    assert (more >= 0).all()
    assert (more > 0.3).any()  # a forward more is a third


def test_facts_and_operators_are_of_the_run_that_is_asked_for() -> None:
    found = two()
    assert found.facts("run")["recompute"]["value"] == "full"
    assert "recompute" not in found.facts("two")
    operators = found.operators("two")
    assert operators.height == 4


def test_tables_of_some_runs_have_the_sources_of_these() -> None:
    one, other = llama("one"), llama("other")
    same_file = source("later", measured(3), sha256="hash of one", launch=2)
    same_file["sources"] = []
    whole = tables(one, other, same_file)
    assert tables_of_runs(whole, ["one", "later", "other"]) is whole
    some = tables_of_runs(whole, ["later"])
    assert some["runs"]["run_id"].to_list() == ["later"]
    assert some["sources"]["path"].to_list() == ["logs/one"]
    assert some["facts"].height == 0
    assert some["steps"].height == 20
    assert [row["run_id"] for row in run_rows(some["runs"])] == ["later"]


def test_runs_are_sorted_by_name_and_have_every_column() -> None:
    made = [
        source(name, [row | {"loss": row["loss"] + n} for row in measured(n)], started_at=START)
        for n, name in enumerate(("zeta", "alpha", "mid"))
    ]
    found = analyse(tables(*made)).metrics
    assert found["name"].to_list() == ["alpha", "mid", "zeta"]
    assert found.schema == METRICS
    assert found["started_at"].to_list() == [START] * 3
