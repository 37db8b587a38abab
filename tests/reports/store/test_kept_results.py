"""Results that a store keeps are those of computing all runs anew, whatever came when."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.audit.audit_results import Bridge
from fairmfu.metrics.core.run_selection import choose
from fairmfu.metrics.core.run_table import MetricsRow
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.formula.terms import FORMULA_VERSION
from fairmfu.metrics.pipeline import (
    analysis,
    incremental,
    measured_runs,
    metrics_cache,
    missing_facts,
    partitions,
    run_scoring,
)
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.metrics.pipeline.compared_runs import ComparedRuns
from fairmfu.metrics.pipeline.metrics_cache import LARGE_COLUMNS
from fairmfu.metrics.pipeline.missing_facts import find_needs
from fairmfu.metrics.pipeline.reported_runs import ReportedRuns
from fairmfu.metrics.utilization.formula_inputs import UtilizationResult
from fairmfu.reports.comparison.comparison import Comparison, compare
from fairmfu.reports.page import report_data
from fairmfu.reports.page.report_data import report, report_json
from fairmfu.reports.store import metrics_store
from fairmfu.reports.store.kept_needs import current_needs
from fairmfu.reports.text.run_explained import explain
from fairmfu.reports.trackers.tracker_record import TrackerRecord, tracker_records
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT

SAMPLES = ROOT / "sample_logs"
LOGS = (
    *sorted((SAMPLES / "synthetic").rglob("*.log")),
    *sorted((SAMPLES / "h100" / "xtuner-0.2.0").rglob("*.log")),
    *sorted((SAMPLES / "genuine" / "torchtitan-0.3.0").rglob("*.log"))[:6],
)
FACTS = {
    "seq_len": ("4096", "8192"),
    "accelerator": ("NVIDIA H100 80GB HBM3", None),
    "model": ("llama-3-8b", None),
    "precision": ("bf16", "fp8"),
    "gpus": ("8",),
    "logged_formula": ("nothing known",),
}
PEAKS = (
    (),
    (Accelerator(name="X1", unit="GPU", peaks={"bf16": 1e15}, source="a", confidence="high"),),
)
SEEDS = range(200) if THOROUGH else (0, 1, 32)
"""Of histories; these three have each act, and partitions of 1, 2 and 4 runs."""
STEPS = 5 if THOROUGH else 2
ACTS = ("read", "give", "remove", "change_peaks", "change_formula", "rescore")
"""Methods of a history."""


class History:
    """A store, and what happens to it at random."""

    def __init__(self, folder: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.formula = patch, FORMULA_VERSION
        self.random = np.random.default_rng(seed)
        self.logs, self.store = folder / "logs", Store(folder / "store")
        self.overlay, self.checks = PEAKS[0], seed
        for _ in range(3):
            self.read()

    def read(self) -> None:
        """Read another log, some with the facts beside it."""
        log = LOGS[self.random.integers(len(LOGS))]
        target = self.logs / f"{log.parent.name}-{self.random.integers(3)}"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, target)
        facts = log.with_name(f"{log.name}.facts.toml")
        if facts.exists() and self.random.integers(2):
            shutil.copy(facts, target)
        ingest_run.ingest_paths([self.logs], self.store)

    def give(self) -> None:
        name = str(self.random.choice(list(FACTS)))
        value = FACTS[name][self.random.integers(len(FACTS[name]))]
        fact = {"name": name, "value": value, "origin": "flag"}
        self.store.give_facts({self.some_run(): [fact]})

    def remove(self) -> None:
        if self.store.table("runs").height > 1:
            self.store.remove([self.some_run()])

    def change_peaks(self) -> None:
        self.overlay = PEAKS[self.random.integers(len(PEAKS))]

    def change_formula(self) -> None:
        """Have every MFU counted by other FLOPs, under another name of the formula."""
        self.formula = f"{self.formula}'"
        factor = float(self.random.uniform(0.5, 2))
        count = run_scoring.score_utilization

        def counted(*given: Any) -> UtilizationResult:
            result = count(*given)
            if result.values.get("mfu") is not None:
                result.values["mfu"] *= factor
            return result

        self.patch.setattr(run_scoring, "score_utilization", counted)
        for module in (analysis, metrics_cache, run_scoring):
            self.patch.setattr(module, "FORMULA_VERSION", self.formula)

    def rescore(self) -> None:
        """Keep today's metrics, as `fairmfu rescore` does."""
        metrics_store.rescore_all(self.store, self.overlay)

    def some_run(self) -> str:
        return str(self.random.choice(self.store.table("runs")["run_id"].to_list()))

    def holds(self) -> None:
        """THE LAW; reports by turns of all runs and of some, `make thorough`: of both."""
        self.checks += 1
        tables = self.store.tables()
        whole = analyse(tables, self.overlay)
        runs = metrics_store.current_metrics(self.store, self.overlay)
        assert_frame_equal(runs, whole.metrics, check_exact=True)
        assert current_needs(self.store, self.overlay) == find_needs(tables, self.overlay)
        ids = whole.metrics["run_id"].to_list()
        some = sorted(self.random.choice(ids, min(len(ids), 2), replace=False).tolist())
        for place, names in enumerate(((), some)):
            told = metrics_store.stored_comparison(
                self.store, partial(choose_of, names), self.overlay
            )
            assert isinstance(told, ComparedRuns)
            assert_alike(compare(told, *names), compare(whole, *names))
            if not THOROUGH and place != self.checks % 2:
                continue
            choice = partial(choose_of, names)
            large = LARGE_COLUMNS if self.random.integers(2) else ()
            kept = metrics_store.stored_runs(self.store, choice, self.overlay, large=large).runs
            assert isinstance(kept, ReportedRuns)
            self.tells_alike(kept, whole, names)

    def tells_alike(self, kept: ReportedRuns, whole: Analysis, names: Sequence[str]) -> None:
        """A report, an export and explanations of kept results are those of an analysis."""
        tables = self.store.tables()
        told, anew = (
            report(tables, *names, overlay=self.overlay, analysis=one) for one in (kept, whole)
        )
        assert report_json(told) == report_json(anew)
        if THOROUGH or not names:
            with self.patch.context() as patch:  # as of many runs
                patch.setattr(report_data, "MAX_RUNS_IN_FULL", 0)
                told, anew = (
                    report(tables, *names, overlay=self.overlay, analysis=one)
                    for one in (kept, whole)
                )
            assert not told.data["in_full"]
            assert report_json(told) == report_json(anew)
        chosen = choose(whole.metrics, *names)
        for run_id, output in product(chosen["run_id"].to_list(), ("table", "json")):
            assert explain(kept, run_id, output=output) == explain(whole, run_id, output=output)
        records = [
            tracker_records(one, chosen, tables["steps"], tables["runs"]) for one in (kept, whole)
        ]
        assert_same_records(*records)


def choose_of(names: Sequence[str], metrics: pl.DataFrame) -> pl.DataFrame:
    return choose(metrics, *names)


def assert_same_records(kept: Iterable[TrackerRecord], anew: Iterable[TrackerRecord]) -> None:
    for one, other in zip(kept, anew, strict=True):
        for found in fields(one):
            mine, its = getattr(one, found.name), getattr(other, found.name)
            if isinstance(mine, pl.DataFrame):
                assert_frame_equal(mine, its, check_exact=True)
            else:
                assert mine == its


def assert_alike(kept: Comparison, anew: Comparison) -> None:
    assert_frame_equal(kept.table, anew.table, check_exact=True)
    assert kept.rows == anew.rows
    assert kept.studies == anew.studies
    assert kept.markdown(0.02) == anew.markdown(0.02)


def acts_of(seed: int) -> list[str]:
    """Acts of a history; in few histories, each of another kind."""
    drawn = np.random.default_rng((seed, 60)).choice(ACTS, STEPS, replace=THOROUGH)
    return [str(act) for act in drawn]


def test_the_histories_have_each_kind_of_act_and_partition() -> None:
    assert {act for seed in SEEDS for act in acts_of(seed)} == {*ACTS}
    assert {seed % 3 for seed in SEEDS} == {0, 1, 2}
    assert len({most_losses_of(seed) for seed in SEEDS}) == 3


def most_losses_of(seed: int) -> int:
    """Most lines with a loss that a history keeps of a run: none, few or as usual."""
    return (0, 12, incremental.MAX_KEPT_LOSS_LINES)[(seed + seed // 9) % 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_kept_results_are_those_of_all_together(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", (1, 2, 4)[seed % 3])
    monkeypatch.setattr(incremental, "MAX_KEPT_LOSS_LINES", most_losses_of(seed))
    history = History(tmp_path, seed, monkeypatch)
    for act in acts_of(seed):
        getattr(history, act)()
        history.holds()


@pytest.fixture
def just_read(store: Store, logs: Path, titan: Callable[..., str]) -> Store:
    for number in range(2):
        (logs / f"{number}.log").write_text(titan(20, loss=5.0 + number))
    ingest_run.ingest_paths([logs], store)
    return store


def test_missing_facts_are_computed_once(just_read: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = current_needs(just_read)
    assert first
    monkeypatch.setattr(missing_facts, "analyse", None)
    assert current_needs(just_read) == first
    run_id = first[0].run_id
    assert current_needs(just_read, (), [run_id]) == first[:1]


def test_an_answer_is_kept_with_all_other_columns(just_read: Store) -> None:
    metrics_store.current_metrics(just_read)
    before = metrics_store.kept_rows(just_read, LARGE_COLUMNS)
    current_needs(just_read)
    after = metrics_store.kept_rows(just_read, LARGE_COLUMNS)
    assert before["needs"].null_count() == after["needs"].null_count() + 2
    assert_frame_equal(after.drop("needs"), before.drop("needs"), check_row_order=False)
    assert not after["curve"].null_count()


def test_only_changed_runs_are_asked_again(
    just_read: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    analyse = missing_facts.analyse

    def counting(tables: dict, overlay: tuple = ()) -> object:
        asked.append(tables["runs"].height)
        return analyse(tables, overlay)

    changed = current_needs(just_read)[0].run_id
    fact = {"name": "accelerator", "value": "NVIDIA H200", "origin": "flag"}
    just_read.give_facts({changed: [fact]})
    monkeypatch.setattr(missing_facts, "analyse", counting)
    current_needs(just_read)
    assert set(asked) <= {1}
    before = list(asked)
    current_needs(just_read)
    assert asked == before


def test_an_analysis_of_all_runs_is_computed_once_and_kept(
    just_read: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, state = metrics_store.stored_analysis(just_read)
    assert whole.metrics.equals(state.metrics)
    monkeypatch.setattr(partitions, "rescore_by_partition", None)
    assert metrics_store.current_metrics(just_read).equals(state.metrics)


def test_a_comparison_analyses_no_run(just_read: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = analyse(just_read.tables())
    metrics_store.current_metrics(just_read)
    monkeypatch.setattr(measured_runs.MeasuredRuns, "windows", None)
    told = metrics_store.stored_comparison(just_read, partial(choose_of, ()))
    assert_alike(compare(told), compare(whole))


def test_a_run_without_bridges_is_named_as_by_an_analysis(
    just_read: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(row: MetricsRow, *_: object) -> list[Bridge]:
        if row["error"] is None:
            raise KeyError("a cause")
        return []

    monkeypatch.setattr(analysis, "build_bridges", bad)
    told = metrics_store.stored_comparison(just_read, partial(choose_of, ()))
    assert isinstance(told, Analysis)
    assert all("KeyError" in row["error"] for row in compare(told).rows)


def test_a_run_that_cannot_be_compared_fails_alone(just_read: Store) -> None:
    whole = analyse(just_read.tables())
    kept = metrics_store.stored_comparison(just_read, partial(choose_of, ()))
    bad = whole.metrics["run_id"][0]

    def say(_: Analysis | ComparedRuns, metrics: pl.DataFrame) -> pl.DataFrame:
        if metrics.filter(run_id=bad)["error"].null_count():
            raise KeyError(bad)
        return metrics

    anew, shown = whole.present(whole.metrics, say), kept.present(kept.metrics, say)
    assert_frame_equal(shown, anew, check_exact=True)


def test_metrics_kept_with_other_fields_are_computed_anew(just_read: Store) -> None:
    """A store of an earlier fairmfu, whose audits had fewer fields, ended every command."""
    runs = metrics_store.current_metrics(just_read)
    kept = just_read.kept(metrics_store.METRICS_TABLE, latest_by=("run_id",))
    earlier = kept.with_columns(
        kept.select("audit").unnest("audit").drop("flops_low").to_struct("audit"),
        columns=pl.lit("01234567"),
    )
    just_read.keep(metrics_store.METRICS_TABLE, earlier)
    assert metrics_store.current_metrics(just_read).equals(runs)
    metrics_store.rescore_all(just_read, ())
    assert metrics_store.current_metrics(just_read).equals(runs)
