"""Findings of a night, worst first: the same in sentence, exit code, JUnit and summary.json."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest.core.errors import ConfigError
from fairmfu.ingest.facts.project_config import load_config
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.nightly import findings
from fairmfu.reports.nightly import nightly as module
from fairmfu.reports.nightly.findings import (
    EXIT_ORDER,
    KINDS,
    exit_code,
    failure_cause,
    failure_key,
    find,
    repeated_failure,
    told_failures,
)
from fairmfu.reports.nightly.headline import headline, remedy_lines
from fairmfu.reports.nightly.jobs import JOB_SCHEMA
from fairmfu.reports.nightly.night_outputs import junit, summary
from fairmfu.reports.nightly.night_report import build_digest
from tests.support.nights import SERIES, Change, Plan, facts_beside, write_night
from tests.support.prepared import emptied, prepare
from tests.support.told_nights import NOW, a_night, a_series, crashed, frame, regression

LAST = NOW.replace(tzinfo=None) - timedelta(hours=3)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/ProcessGroupNCCL.cpp:1691, "
    "unhandled system error"
)


def job(name, *outcomes, until=0, series=None, **more):
    """Rows of a job with one run a night; until: nights before tonight."""
    count = len(outcomes)
    return [
        {
            "run_id": f"{name}-{n}",
            "name": f"{name}-{n}",
            "job": name,
            "series": series,
            "at": LAST - timedelta(days=count - 1 - n + until),
            "path": f"/logs/{name}/{n}.log",
            "outcome": outcome,
            "outcome_text": OOM if outcome == "out_of_memory" else None,
            **(more if n == count - 1 else {}),
        }
        for n, outcome in enumerate(outcomes)
    ]


WELL = ("completed",) * 9


def night_of(*jobs, **more):
    rows = [row for one in jobs for row in one]
    tonight = [
        {**row, "framework": "xtuner", "synthetic": False, "started_at": row["at"]}
        for row in rows
        if row["at"] == LAST
    ]
    return a_night(runs=tonight, jobs=frame(JOB_SCHEMA, rows), **more)


def kinds(night):
    return [one.kind.identifier for one in find(build_digest(night))]


def says(night):
    return headline(build_digest(night)).says


def test_failed_missing_and_slower_jobs_are_told_in_this_order():
    series = a_series(nights=60, steps=((12, 0.961),))
    name = series["series"][0]["series"]
    titan = job("titan-8b", *WELL, series=name)
    oom = job("ds-1b", *WELL, "out_of_memory", step_lines=4, last_step=40)
    nccl = job("xtuner-1b", *WELL, "crashed", outcome_text=NCCL, step_lines=0)
    night = night_of(titan, oom, nccl, job("meg-8b", *WELL, until=7))
    tables = a_night(series)
    night = replace(night, series=tables.series, points=tables.points, changes=tables.changes)
    assert says(night) == (
        "2 of 4 jobs failed tonight: ds-1b (out of memory at step 40), "
        "xtuner-1b (NCCL error before step 1). meg-8b has not run for 7 days. "
        "titan-8b is still slower since 2 March, by 3.9 %."
    )
    assert exit_code(night) == 5
    assert kinds(night)[:4] == ["job-failed"] * 2 + ["job-missing", "standing-regression"]
    assert remedy_lines(build_digest(night)) == [
        f"ds-1b: {OOM} Read the log: /logs/ds-1b/9.log",
        f"xtuner-1b: {NCCL}. Read the log: /logs/xtuner-1b/9.log",
        "meg-8b: Its last run was on 7 March; its runs are usually at most 1 day apart. Check that "
        "the job was started and that its log arrives in /logs/meg-8b. If the job is retired, add "
        'it to "ended" under [jobs] in fairmfu.toml.',
    ]


def test_failures_in_a_row_are_counted() -> None:
    rows = job("ds-1b", *WELL, "out_of_memory", "out_of_memory", last_step=40, step_lines=20)
    rows[-2] |= {"last_step": 40, "step_lines": 20}
    assert says(night_of(rows)).startswith(
        "The only job failed tonight: ds-1b (out of memory at step 40 again, "
        "2 failed runs in a row)."
    )
    assert remedy_lines(build_digest(night_of(rows))) == [
        f"ds-1b: {OOM} Read the log: /logs/ds-1b/10.log"
    ]


def test_a_job_that_runs_without_a_failure_again_is_named() -> None:
    again = night_of(job("ds-1b", *WELL, "crashed", "completed"), job("titan-8b", *WELL))
    assert "Ran without a failure again: ds-1b." in headline(build_digest(again)).notes


def test_a_new_regression_is_told_with_the_command_that_compares_it() -> None:
    line = remedy_lines(build_digest(regression()))[-1]
    assert re.fullmatch(r"Compare [^:]+: fairmfu compare \S+ \S+( --store \S+)?", line)


@given(
    before=st.lists(st.sampled_from(["completed", "incomplete"]), max_size=5),
    failed=st.lists(
        st.sampled_from(["crashed", "killed", "out_of_memory"]), min_size=1, max_size=5
    ),
)
def test_a_failure_behind_a_good_run_is_the_first_in_a_row(
    before: list[str], failed: list[str]
) -> None:
    rows = job("ds-1b", *failed, *before, *failed)
    told = repeated_failure([{"step_lines": None, **row} for row in rows])
    many = len(failed) if before else 2 * len(failed)
    assert (f", {many} failed runs in a row" in told) == (many > 1)


def test_a_failure_is_new_once_and_named_until_the_job_runs_again():
    rows = job("ds-1b", *WELL, "out_of_memory", step_lines=4, last_step=40)
    first = night_of(rows)
    again = replace(first, told=frozenset(told_failures(first)), tonight=first.tonight.clear())
    assert (exit_code(first), exit_code(again)) == (5, 0)
    assert exit_code(replace(again, fail_on=("standing",))) == 5
    assert says(again).startswith("ds-1b failed on 14 March (out of memory at step 40) and has not")
    assert ET.fromstring(junit(again)).get("errors") == "1"  # noqa: S314 - ours


def test_the_last_run_of_a_night_decides():
    rows = job("ds-1b", *WELL, series="s")
    retried = [*job("ds-1b", "out_of_memory", series="s"), *rows]
    retried[0] |= {"run_id": "x", "at": LAST - timedelta(hours=1)}
    night = night_of(retried)
    fresh = night.tonight.head(1).with_columns(run_id=pl.lit("x"), outcome=pl.lit("out_of_memory"))
    night = replace(night, tonight=pl.concat([night.tonight, fresh]))
    assert "job-failed" not in kinds(night)
    assert exit_code(night) == 0
    notes = headline(build_digest(night)).notes
    assert "Failed tonight and ran again: ds-1b (out of memory)." in notes
    failed = [*rows, *job("ds-1b", "out_of_memory", series="s")]
    failed[-1] |= {"run_id": "x", "at": LAST + timedelta(hours=1)}
    tonight = night_of(failed).tonight
    more = tonight.head(1).with_columns(run_id=pl.lit("x"), outcome=pl.lit("out_of_memory"))
    assert "job-failed" in kinds(replace(night_of(failed), tonight=pl.concat([tonight, more])))


def test_a_missing_job_says_that_its_last_run_failed():
    rows = job("ds-1b", *WELL, "out_of_memory", until=2, step_lines=4, last_step=40)
    night = night_of(job("a", *WELL), rows, told=frozenset({"failed\x1fds-1b-9"}))
    assert says(night).startswith(
        "ds-1b has not run for 2 days (its last run failed: out of memory at step 40)."
    )


def test_a_log_that_stopped_growing():
    about = {"step_lines": 10, "last_step": 100, "last_at": LAST + timedelta(minutes=10)}
    rows = job("a", *WELL, "incomplete", **about)
    night = night_of(rows)
    assert says(night) == "a's log ends at step 100 without an end message."
    assert exit_code(night) == 5
    fresh = LAST + timedelta(hours=2, minutes=30)
    assert kinds(night_of(job("a", *WELL, "incomplete", **about | {"last_at": fresh})))[0] not in (
        "log-stopped",
        "job-failed",
    )
    never_ends = job("a", *["incomplete"] * 9, **about)
    assert "log-stopped" not in kinds(night_of(never_ends))


def test_jobs_of_the_configuration():
    gone, other = job("old-8b", *WELL, until=3), job("a", *WELL)
    assert "job-missing" in kinds(night_of(gone, other))
    assert "job-missing" not in kinds(night_of(gone, other, ended=("old-8b",)))
    night = night_of(other, expected=("a", "new-8b"))
    assert says(night).startswith("new-8b is expected and has never run.")
    (found,) = [one for one in summary(night)["findings"] if one["id"] == "job-missing"]
    assert (found["job"], found["days"], found["fails"]) == ("new-8b", None, True)


def test_a_first_night_tells_no_old_failures():
    old = job("a", *WELL, "crashed", until=2)
    now = job("b", *WELL, "crashed")
    night = replace(night_of(old, now), number=1)
    digest = build_digest(night)
    assert [one.job["label"] for one in find(digest) if one.kind is KINDS[0]] == ["b"]


def test_a_first_night_names_the_failed_runs_that_it_does_not_count():
    """All of them are read tonight; a job has run since."""
    old, now = job("a", "killed", until=9), job("b", "completed")
    read = [
        {**row, "framework": "xtuner", "synthetic": False, "started_at": row["at"]}
        for row in [*old, *now]
    ]
    night = replace(night_of(old, now), number=1, tonight=a_night(runs=read).tonight)
    notes = headline(build_digest(night)).notes
    assert "1 older run had failed, and does not count as tonight: a (killed)." in notes
    assert exit_code(night) == 0
    assert not any(
        "older run" in note for note in headline(build_digest(replace(night, number=2))).notes
    )


def test_a_launch_without_steps_of_no_known_job_failed():
    source = {"path": "logs/x-1b.log", "status": "passed", "message": "", "kind": "", "new": True}
    night = night_of(sources=[{**source, "place": "logs/x-1b", "launch_error": OOM}])
    assert says(night).startswith("The only job failed tonight: x-1b (")
    assert exit_code(night) == 5


def test_a_failed_launch_of_a_job_that_ended_counts_as_one_of_the_jobs():
    rows = [{**row, "place": "logs/a"} for row in job("a", *WELL, until=90)]
    source = {"path": "logs/a.log", "status": "passed", "message": "", "kind": "", "new": True}
    night = night_of(rows, sources=[{**source, "place": "logs/a", "launch_error": OOM}])
    assert says(night).startswith("The only job failed tonight: a (")


def test_a_failure_is_named_until_another_job_has_run():
    """The clock may be far ahead of the logs."""
    failed = job("a", *WELL, "crashed", until=90)
    told = (failure_key("a-9"),)
    night = night_of(failed, told=told)
    assert kinds(night) == ["job-still-failed"]
    assert kinds(night_of(failed, job("b", *WELL), told=told)) == ["facts-missing"]
    assert kinds(night_of(failed, told=told, ended=("a",))) == ["all-well"]


@pytest.mark.parametrize(
    ("nights", "last", "interval", "is_told"),
    [
        (6, 0.6, 0.002, True),
        (3, 0.94, 0.002, True),
        (6, 0.96, 0.002, False),
        (6, 0.9, 0.03, False),
        (2, 0.6, 0.002, False),
        (6, 1.4, 0.002, False),
    ],
)
def test_an_early_drop_is_provisional(nights, last, interval, is_told):
    series = a_series(nights=nights)
    series["series"][0]["state"] = "new"
    point = series["points"][-1]
    point["tgs"] *= last
    point |= {"tgs_low": point["tgs"] * (1 - interval), "tgs_high": point["tgs"] * (1 + interval)}
    night = a_night(series)
    assert ("provisional-drop" in kinds(night)) is is_told
    assert says(night).startswith("Provisional, with fewer than 10 runs: ") is is_told
    assert exit_code(night) == 0


@pytest.mark.parametrize(
    ("speeds", "drift", "told"),
    [
        ((6400.0, 5120.0), None, "20.0 % slower from step 101 on"),
        ((6400.0, 4480.0, 6400.0), None, "30.0 % slower in steps 101 to 200"),
        ((5120.0, 6400.0), None, None),
        ((6400.0, 6330.0), None, None),
        ((), -0.3, "30.0 % slower steadily over the run"),
        ((), 0.3, None),
        ((), None, None),
    ],
)
def test_a_run_that_slows_down_on_its_way_is_named_with_the_step(speeds, drift, told):
    night = night_of(job("a", *WELL))
    levels = [
        {"from_step": 100 * n + 1, "to_step": 100 * n + 100, "tgs": tgs, "seconds_per_step": 1.0}
        for n, tgs in enumerate(speeds)
    ]
    tonight = night.tonight.with_columns(
        pl.Series("levels", [levels] * night.tonight.height, dtype=METRICS["levels"]),
        drift=pl.lit(drift, pl.Float64),
    )
    night = replace(night, tonight=tonight)
    assert ("slow-down-inside" in kinds(night)) is (told is not None)
    if told:
        assert says(night).startswith(f"Slowed down inside its run: a-8 ({told}).")
    assert exit_code(night) == 0


def test_a_job_with_other_facts_goes_on():
    """The series of its former facts is not missing."""
    old = job("titan", *WELL, until=1, series="torchtitan, llama, bf16", place="logs/titan")
    new = job("titan", "completed", series="torchtitan, llama, fp8", place="logs/titan")
    new[0] |= {"run_id": "x", "name": "x"}
    night = night_of(old, new)
    found = {one.kind.identifier: one for one in find(build_digest(night))}
    assert found["setup-changed"].detail.startswith("bf16 -> fp8;")
    assert not found.keys() & {"job-missing", "job-failed"}
    elsewhere = [{**new[0], "place": "logs/other"}]
    assert "job-missing" in kinds(night_of(old, elsewhere))


@pytest.mark.parametrize(
    ("outcome", "text", "cause"),
    [
        (
            "crashed",
            "[rank5]:[E1 ProcessGroupNCCL.cpp:616] [Rank 5] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1) ran for 600003 milliseconds",
            "NCCL timeout (ALLREDUCE, rank 5)",
        ),
        ("crashed", NCCL, "NCCL error"),
        (
            "crashed",
            "[rank4]: RuntimeError: NCCL communicator was aborted on rank 4.",
            "NCCL commu",
        ),
        ("crashed", "KeyError: 'x'", "KeyError 'x'"),
        ("crashed", "ValueError: bad shape (3, 4)", "bad shape"),
        ("crashed", "exits with return code = 1", "crashed"),
        ("out_of_memory", OOM, "out of memory"),
        ("killed", None, "killed"),
    ],
)
def test_the_cause_is_the_first_clause_of_the_error(outcome, text, cause):
    assert failure_cause({"outcome": outcome, "outcome_text": text}).startswith(cause)


@given(
    st.lists(st.sampled_from(["completed", "out_of_memory", "crashed", "killed"]), max_size=5),
    st.sets(st.sampled_from(["regression", "crash", "missing", "standing"])),
)
def test_every_output_agrees_with_the_list(ends, fail_on):
    jobs = [job(f"job-{n}", *WELL, end) for n, end in enumerate(ends)]
    night = replace(night_of(*jobs), fail_on=tuple(fail_on))
    data = summary(night)
    codes = {one.kind.code for one in find(build_digest(night)) if one.fails}
    assert data["exit_code"] == next((code for code in EXIT_ORDER if code in codes), 0)
    bad = sum(end != "completed" for end in ends)
    assert [one["id"] for one in data["findings"]].count("job-failed") == bad
    assert ET.fromstring(junit(night)).get("errors") == str(bad)  # noqa: S314 - ours
    assert (f"{bad} of " in data["says"] or "All " in data["says"] or "only" in data["says"]) or (
        not bad
    )
    order = [kind.identifier for kind in KINDS]
    places = [order.index(one["id"]) for one in data["findings"]]
    assert places == sorted(places)


def test_fail_on_chooses_what_fails():
    night = regression(runs=[crashed()])
    codes = {
        (): 0,
        ("regression",): 3,
        ("crash",): 5,
        ("crash", "regression"): 5,
        ("standing",): 3,
    }
    assert {names: exit_code(replace(night, fail_on=names)) for names in codes} == codes


# --- the command ----------------------------------------------------------------------------


@pytest.fixture
def tmp_path(one_place: Path) -> Path:
    return emptied(one_place)


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "full_page", lambda *_: "runs")
    monkeypatch.setattr(module.night_outputs, "svgs", lambda _: {})
    monkeypatch.setattr(module.night_html, "pages", lambda _: ("now", "kept"))
    arguments = ["nightly", "logs", "--store", "store", "--out", "out"]
    return lambda *more: CliRunner().invoke(main, [*arguments, *more], catch_exceptions=False)


def write(night: int, only: tuple[int, ...] = (0, 1)) -> list[Path]:
    (Path("logs")).mkdir(exist_ok=True)
    return write_night(Path("logs"), night, Plan(seed=1), only=only)


def read() -> tuple[dict, ET.Element]:
    data = json.loads(Path("out/summary.json").read_text())
    return data, ET.parse("out/junit.xml").getroot()  # noqa: S314 - ours


def crash(log: Path, lines: int, error: str) -> None:
    kept = log.read_text().splitlines()[:lines]
    log.write_text("\n".join([*kept, "Traceback (most recent call last):", error]) + "\n")


@pytest.fixture
def three_told(tmp_path: Path, nightly: Callable[..., Result]) -> None:
    """A first night read three nights of two jobs."""

    def take_place() -> None:
        for night in (1, 2, 3):
            write(night)
        assert nightly().exit_code == 0

    prepare(tmp_path, "told", take_place)


@pytest.mark.usefixtures("three_told")
def test_nights_that_crash_and_miss(nightly: Callable[..., Result]) -> None:
    one, _ = write(4)
    name = one.parent.name
    steps = [n for n, line in enumerate(one.read_text().splitlines()) if "step: 100 " in line]
    crash(one, steps[0] + 1, OOM)
    found, (data, tests) = nightly(), read()
    assert found.exit_code == 5
    assert "Exit code 5: a job failed." in " ".join(found.stderr.split())
    assert data["says"].startswith(f"1 of 2 jobs failed tonight: {name}, synthetic (out of memory")
    assert "at step 100" in data["says"]
    (case,) = [case for case in tests.iter("testcase") if case.find("error") is not None]
    assert OOM in case.find("error").text
    assert "failed," in case.find("system-out").text
    assert nightly().exit_code == 0  # the same night again: told, and not counted twice
    assert data["findings"][0]["id"] == "job-failed"

    one, _ = write(5)
    crash(one, 5, NCCL)
    write(5, only=(1,))[0].unlink()
    found, (data, tests) = nightly(), read()
    assert found.exit_code == 5
    assert [one["id"] for one in data["findings"][:2]] == ["job-failed", "job-missing"]
    assert {row["job_state"] for row in data["series"]} == {"failed", "missing"}
    assert tests.get("errors") == "2"
    assert nightly("--fail-on", "regression").exit_code == 0


def test_jobs_of_equal_facts_fail_and_miss_each_for_itself(
    nightly: Callable[..., Result],
) -> None:
    def write_twins(night: int) -> list[Path]:
        """Log of a job, and of another job with the same settings."""
        first, second = (
            write_night(Path(place), night, Plan(seed=seed), only=(0,))[0]
            for seed, place in enumerate(("logs", "aside"))
        )
        twin = Path("logs/twin") / f"2026-03-{night:02}.log"
        twin.parent.mkdir(parents=True, exist_ok=True)
        return [first, second.replace(twin)]

    for night in (1, 2, 3):
        write_twins(night)
    assert nightly().exit_code == 0
    _, twin = write_twins(4)
    crash(twin, 5, OOM)
    assert nightly().exit_code == 5
    data, _ = read()
    assert data["says"].startswith("1 of 2 jobs failed tonight: twin, synthetic (out of memory")
    write_twins(5)[1].unlink()
    assert nightly().exit_code == 5
    data, _ = read()
    assert [one["id"] for one in data["findings"][:1]] == ["job-missing"]
    assert data["says"].startswith("twin, synthetic has not run since")


def test_a_job_whose_precision_no_line_states_is_watched(nightly: Callable[..., Result]) -> None:
    place = next(n for n, one in enumerate(SERIES) if facts_beside(one).startswith("precision"))
    plan = Plan(seed=5, changes={place: (Change(night=12, factor=0.9),)})
    codes = []
    for night in range(1, 15):
        (log,) = write_night(Path("logs"), night, plan, only=(place,))
        log.with_name("facts.toml").unlink()
        if night in (11, 12, 13, 14):
            codes.append(nightly().exit_code)
    assert sorted(codes) == [0, 0, 0, 3]
    (row,) = read()[0]["series"]
    assert (row["label"], row["points"]) == (f"{log.parent.name}, synthetic", 14)


def test_names_of_fail_on(tmp_path: Path, nightly: Callable[..., Result]) -> None:
    write(1)
    said = nightly("--fail-on", "crash,slower-start,memory,loss")
    assert said.exit_code == 0
    assert (
        "Did you mean" in (said := nightly("--fail-on", "regresion").stderr) or "regression" in said
    )
    assert nightly("--fail-on", "none").exit_code == 0
    path = tmp_path / "fairmfu.toml"
    path.write_text('fail_on = ["los", "crash"]\n[jobs]\nended = ["a"]\n')
    with pytest.raises(ConfigError, match=r"fail_on: has 'los'.*loss"):
        load_config(path)
    path.write_text('fail_on = ["standing"]\n[jobs]\nexpected = ["b"]\n')
    config = load_config(path)
    assert (config.fail_on, config.jobs.expected) == (("standing",), ("b",))


@pytest.mark.usefixtures("three_told")
def test_a_store_that_moved_is_judged_as_before(nightly: Callable[..., Result]) -> None:
    write(4, only=(0,))
    Path("store").rename("moved")
    found = nightly("--store", "moved")
    assert found.exit_code == 5
    assert "has not run since 3 January" in " ".join(found.stdout.split())


def test_a_clock_that_was_set_back_misses_no_job_by_mistake(
    nightly: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    for night in (1, 2, 3):
        write(night)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2001, 1, 1, 5, tzinfo=UTC) if tz else datetime(2001, 1, 1, 5)

    monkeypatch.setattr(module, "datetime", Clock)
    assert nightly().exit_code == 0
    assert kinds_of_summary() <= {"all-well", "setup-changed"}


def kinds_of_summary() -> set[str]:
    return {one["id"] for one in read()[0]["findings"]}


@given(st.permutations([(1, 9), (5, 6), (2, 3)]))
def test_a_launch_without_steps_is_of_the_job_that_ran_last(days: list[tuple[int, int]]) -> None:
    """Several jobs of one place: those before it have changed their facts."""
    jobs = [
        [{"run_id": f"{of}-{day}", "place": "x", "at": datetime(2026, 3, day)} for day in of]
        for of in days
    ]
    source = {"place": "x", "launch_error": "ValueError: x", "path": "x/10.log"}
    findings._add_launch(jobs, source, ())
    (found,) = (rows for rows in jobs if len(rows) == 3)
    assert found[1]["run_id"] == "(1, 9)-9"
    assert found[2]["outcome_text"] == "ValueError: x"
