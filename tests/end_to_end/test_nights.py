"""Simulated nights read as they were planned; stores of earlier versions read as they were."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline import analysis, metrics_cache, run_scoring
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.nightly import nightly
from tests.support.effort import THOROUGH
from tests.support.nights import (
    OTHER_ALARMS,
    SERIES,
    SIZES,
    TROUBLES,
    Change,
    Plan,
    Told,
    Trouble,
    judge,
    judge_troubles,
    place_of,
    plan_of,
    quiet_night,
    shortcomings,
    told_by,
    troubled_plan,
    write_night,
)


def test_a_night_is_read_as_it_was_planned(
    logs: Path, store: Store, ingest: Callable[..., list[ingest_run.Outcome]]
) -> None:
    plan = plan_of(seed=1)
    paths = write_night(logs, 100, plan)
    outcomes = ingest(logs)
    assert [outcome.status for outcome in outcomes] == ["read"] * len(SERIES)
    assert sum(outcome.unread_lines for outcome in outcomes) == 0
    rows = analyse({name: store.table(name) for name in TABLES}).metrics.rows_by_key(
        "name", named=True, unique=True
    )
    for place, path in enumerate(paths):
        series, row = SERIES[place], rows[path.stem]
        assert row["tgs"] == pytest.approx(plan.rate(place, 100), rel=0.006), path
        assert (row["gpus"], row["seq_len"]) == (series.gpus, series.seq_len)
        assert row["accelerator"] == series.device
        assert row["precision"] == series.precision.replace("fp32", "tf32")
        assert 0.2 < row["mfu"] < 0.6
        assert row["logged_reproduced"] in (True, None)
        assert not row["missing"]
        assert row["continues"] is None
        assert row["synthetic"]
        assert row["started_at"].date() == plan.on(100)


def test_nights_follow_from_the_seed_alone(tmp_path: Path) -> None:
    texts = [
        b"".join(p.read_bytes() for p in write_night(tmp_path / str(i), 3, plan_of(seed)))
        for i, seed in enumerate((1, 1, 2))
    ]
    assert texts[0] == texts[1] != texts[2]


def test_two_nights_of_a_series_share_no_line_of_a_step(tmp_path: Path) -> None:
    """Else fairmfu would take them for two tellings of one launch."""
    for place in range(len(SERIES)):
        first, then = (
            set(write_night(tmp_path, night, plan_of(1), only=[place])[0].read_text().splitlines())
            for night in (1, 2)
        )
        assert not [line for line in first & then if re.search(r"loss\b.*\d", line)]


def test_the_noise_from_run_to_run_is_as_stated() -> None:
    plan = Plan(seed=5)
    off = np.array(
        [math.log(plan.rate(s, n) / SERIES[s].tgs) for s in range(20) for n in range(500)]
    )
    regular = off[off > math.log(0.96)]
    assert regular.std() == pytest.approx(0.005, rel=0.03)
    assert 1 - len(regular) / len(off) == pytest.approx(0.01, abs=0.003)
    assert off.min() > math.log(0.68)


def test_a_year_holds_every_size_in_both_directions() -> None:
    plan = plan_of(seed=7)
    factors = [c.factor for changes in plan.changes.values() for c in changes]
    wanted = sorted(1 + way * size for size in SIZES for way in (-1, 1))
    assert sorted({round(factor, 9) for factor in factors} - {1.0}) == pytest.approx(wanted)
    assert min(factors.count(factor) for factor in set(factors)) >= 6
    for place, changes in plan.changes.items():
        nights = [c.night for c in changes if c.factor != 1]
        assert bool(nights) == (place < 16)
        assert all(b - a >= 45 for a, b in pairwise(nights))
        assert [c.upgrade for c in changes if c.factor == 1] == [True]
        assert all(c.night <= 351 for c in changes if c.factor != 1)
    with_upgrade = [c.upgrade for changes in plan.changes.values() for c in changes]
    assert 0.4 < np.mean(with_upgrade) < 0.7


def test_a_change_lasts_and_an_upgrade_is_printed(tmp_path: Path) -> None:
    plan = plan_of(seed=7)
    change = next(c for c in plan.changes[0] if c.upgrade and c.factor != 1)
    before, after, later = (plan.level(0, change.night + shift) for shift in (-1, 0, 20))
    assert after / before == pytest.approx(change.factor)
    assert later == after
    versions = [
        re.search(r"torchtitan version: (\S+)", path.read_text())[1]  # type: ignore[index]
        for night in (1, change.night - 1, change.night)
        for path in write_night(tmp_path, night, plan, only=[0])
    ]
    assert versions[1] != versions[2]
    assert versions[0] == "0.2.0"
    assert plan.on(change.night) - plan.on(1) == timedelta(days=change.night - 1)


# --- logs, ingest, metrics, history: what was planted is told -----------------------------------


def told_over(
    plan: Plan, nights: Iterable[int], logs: Path, store: Path
) -> Iterator[tuple[int, dict[str, Any], list[Told]]]:
    """Night after night: its number, its summary, and which changes it told as new."""
    for night in nights:
        write_night(logs, night, plan)
        summary = quiet_night(logs, store, logs.parent / "report")
        yield night, summary, told_by(plan, night, all_changes(summary))


def all_changes(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [*summary["regressions"], *summary["improvements"]]


def test_some_nights_tell_what_was_planted(logs: Path, tmp_path: Path) -> None:
    """7 series change by 5 or 10 % around the 12th night; the others stay, and are left alone.

    Of each two series of a framework one; `make thorough`: all.
    """
    plan = plan_of(seed=3, nights=18, spacing=12, sizes=(0.05, 0.10), still=6, tail=4)
    if not THOROUGH:
        changes = {place // 2: some for place, some in plan.changes.items() if not place % 2}
        plan = replace(plan, series=SERIES[::2], changes=changes)
    assert {one.framework for one in plan.series} == {one.framework for one in SERIES}
    count = len(plan.series)
    for night in range(1, 9):  # the first report finds some nights there
        write_night(logs, night, plan)
    told: list[Told] = []
    for _, summary, new in told_over(plan, range(9, 19), logs, tmp_path / "store"):
        assert not summary["unplaced"]
        assert len(summary["series"]) == count
        told += new
    judged = judge(plan, told, 18)
    assert len(judged.found) == 0.7 * count
    assert not judged.missed
    assert not judged.false
    assert max(took for _, took in judged.found) <= 3
    covered = 0
    for change in all_changes(summary):
        place, since = place_of(plan, change["run"])
        (planted,) = [c for c in plan.changes[place] if c.factor != 1]
        assert abs(since - planted.night) <= 1
        covered += change["ratio_low"] < planted.factor < change["ratio_high"]
        printed = plan.series[place].framework != "xtuner-v1"
        if since == planted.night:
            assert bool(change["causes"]) == (planted.upgrade and printed)
    assert covered >= 0.6 * count  # 13.3 of 14 are to be expected of intervals of 95 %


def of_the_last_year(plan: Plan) -> Plan:
    """The plan in the last 366 days: a run that starts in the future has a wrong clock."""
    return replace(plan, first=datetime.now(UTC).date() - timedelta(days=366))


@pytest.mark.skipif("FAIRMFU_YEAR" not in os.environ, reason="takes long: make year")
def test_a_year_of_nights_over_two_formulas(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 series: 30 nights are there to begin with, a new formula counts from night 180 on."""
    plan, path = of_the_last_year(plan_of(seed=7)), tmp_path / "store"
    for night in range(1, 31):
        ingest_run.ingest_paths(write_night(logs, night, plan), Store(path))
    told: list[Told] = []
    notes: dict[int, str] = {}
    for night, summary, new in told_over(plan, range(31, 366), logs, path):
        told += new
        watched = {*TROUBLES.values(), *OTHER_ALARMS} - {"regression"}
        assert not [one for one in summary["findings"] if one["id"] in watched], night
        assert summary["sources"] == {
            "read": 20,
            "known": 20 * (night - 1),
            "passed": 0,
            "failed": [],
        }
        assert {series["points"] for series in summary["series"]} == {night}
        notes[night] = " ".join(summary["notes"])
        formulas = {tuple(sorted(series["formulas"])) for series in summary["series"]}
        mixed = 181 <= night <= 200
        assert ("earlier fairmfu" in notes[night]) == mixed, night
        assert (formulas == {("fairmfu-1", "fairmfu-next")}) == mixed, night
        if night == 180:
            another_formula(monkeypatch)
        if night == 200:
            rescored = CliRunner().invoke(main, ["rescore", "--store", str(path)])
            assert rescored.exit_code == 0
            assert "Recomputed 3,600 runs" in rescored.output  # those of 180 nights
    judged = judge(plan, told, 365)
    assert not list(shortcomings(judged)), judged
    assert len(judged.found) + len(judged.missed) == 64
    assert not [finding for finding in examine_store(Store(path)) if finding.is_harmful]


def watch(
    plan: Plan, first: int, nights: int, logs: Path, store: Path
) -> list[tuple[int, dict[str, Any]]]:
    """Night after night from `first` on: the findings that were told as new."""
    for night in range(1, first):
        write_night(logs, night, plan, only=plan.ran(night))
    told = []
    for night in range(first, nights + 1):
        write_night(logs, night, plan, only=plan.ran(night))
        summary = quiet_night(logs, store, logs.parent / "report")
        told += [(night, one) for one in summary["findings"] if one["new"]]
    return told


def test_troubles_of_some_nights_are_told(logs: Path, tmp_path: Path) -> None:
    """Every kind of trouble in the last nights of four frameworks."""
    series = (SERIES[0], SERIES[12], SERIES[16], SERIES[18])
    kinds = ("memory", "loss", "growth", "start")
    sizes = {"memory": 0.05, "growth": 0.10, "loss": 0.06, "start": 1.5}
    troubles = {
        place: (Trouble(kind=kind, night=22, size=sizes[kind]), *more)
        for (place, kind), more in zip(
            enumerate(kinds),
            (
                (Trouble(kind="crash", night=25),),
                (Trouble(kind="gap", night=25, nights=9),),
                (),
                (),
            ),
            strict=True,
        )
    }
    plan = Plan(seed=4, series=series, troubles=troubles, outliers=0.0)
    told = watch(plan, 20, 25, logs, tmp_path / "store")
    found, missed, false = judge_troubles(plan, told)
    assert not missed
    assert not false
    late = [one for one, nights in found if nights > (4 if one.kind == "start" else 3)]
    assert not late, found


def test_slower_steps_of_a_job_without_tokens_are_told(logs: Path, tmp_path: Path) -> None:
    """DeepSpeed's engine without a sequence length: no TGS, and seconds per step."""
    changes = {0: (Change(night=13, factor=0.9),)}
    plan = Plan(seed=4, series=(SERIES[18],), changes=changes, outliers=0.0)
    (path,) = write_night(logs, 1, plan)
    path.with_name("facts.toml").write_text("gpus = 8\n", encoding="utf-8")
    for night in range(2, 13):
        write_night(logs, night, plan)
    told = []
    for night in range(13, 17):
        write_night(logs, night, plan)
        summary = quiet_night(logs, tmp_path / "store", tmp_path / "report")
        told += [(night, one) for one in summary["findings"] if one["id"] == "slower-steps"]
    ((night, finding),) = told
    assert (night, finding["series"], finding["fails"]) == (15, None, True)
    assert finding["job"] == SERIES[18].name
    assert finding["detail"].startswith("takes 1")
    assert not summary["series"]


@pytest.mark.skipif("FAIRMFU_YEAR" not in os.environ, reason="takes long: make year")
def test_a_year_of_troubles(logs: Path, tmp_path: Path) -> None:
    """Ten series with crashes, gaps, more and growing memory, higher losses and slow starts."""
    nights = int(os.environ.get("FAIRMFU_YEAR_NIGHTS", "365"))
    plan = of_the_last_year(troubled_plan(seed=8, nights=nights))
    found, missed, false = judge_troubles(plan, watch(plan, 31, nights, logs, tmp_path / "store"))
    took = {kind: sorted(n for t, n in found if t.kind == kind) for kind in TROUBLES}
    assert not missed, took
    assert len(false) <= 0.5 * len(plan.series) * nights / 365 / 10, false
    assert max(took["crash"] + took["gap"]) == 1
    assert max(n for kind in ("memory", "growth", "loss") for n in took[kind]) <= 5


def another_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on MFU is 3 % higher, by a formula of another name."""
    score = run_scoring.score_utilization

    def higher(*arguments: Any, **options: Any) -> Any:
        found = score(*arguments, **options)
        if found.values.get("mfu") is not None:
            found.values["mfu"] *= 1.03
        return found

    for module in (analysis, run_scoring, metrics_cache, nightly):
        monkeypatch.setattr(module, "FORMULA_VERSION", "fairmfu-next")
    monkeypatch.setattr(run_scoring, "score_utilization", higher)
