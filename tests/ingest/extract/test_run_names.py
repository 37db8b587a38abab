"""Names of runs and jobs by the paths of their logs."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.decode.line_reader import STDIN_PATH
from fairmfu.ingest.extract.run_names import (
    given_run_name,
    job_name,
    name_fact,
    named_job,
    named_run,
    run_name,
)

JOBS = st.from_regex(r"[a-z]{3,8}(?:-[a-z]{2,6})?-\d{1,2}[bm]", fullmatch=True)


@pytest.mark.parametrize(
    ("path", "job", "run"),
    [
        ("/logs/ds-1b/2026-10-22.log", "ds-1b", "ds-1b/2026-10-22"),
        ("/logs/ds-1b/2026-10-22_b.log", "ds-1b", "ds-1b/2026-10-22_b"),
        ("/logs/ds-1b/run.log", "ds-1b", "ds-1b"),
        ("/logs/titan-8b-0412/run.log", "titan-8b", "titan-8b-0412"),
        ("/data/job-8b/2026-10-31T05-30-00/rank_0.log", "job-8b", "job-8b/2026-10-31T05-30-00"),
        ("/data/titan-8b/slurm-123456.out", "titan-8b", "titan-8b/slurm-123456"),
        ("/data/exp_3/20241011_101010/train.log.gz", "exp_3", "data/exp_3"),
        ("/x/llama3-8b-8192-8xh100.log", "llama3-8b-8192-8xh100", "llama3-8b-8192-8xh100"),
        ("/data/titan-8b/2026-10-22/slurm-123456.out", "titan-8b", "titan-8b/slurm-123456"),
        ("/logs/run1.log", "", "run1"),
    ],
)
def test_names(path: str, job: str, run: str) -> None:
    assert job_name(Path(path)) == job
    assert run_name(Path(path)) == run


@given(JOBS, st.dates(date(2020, 1, 1), date(2035, 1, 1)), st.integers(0, 9))
def test_all_nights_of_a_job_have_its_name(job: str, day: date, count: int) -> None:
    for form in ("%Y-%m-%d", "%Y%m%d", "%Y_%m_%d", "%Y-%m-%dT02-03-04", "%Y%m%d_020304"):
        stamp = f"{day:{form}}"
        paths = (f"{job}/{stamp}.log", f"{job}-{stamp}.log", f"{job}/{stamp}/train.log")
        for path in (*paths, f"{job}/run{count}.log", f"{stamp}/{job}.log"):
            assert job_name(Path("/logs") / path) == job, path


def a_name(origin: str, value: str = "nightly-8b") -> dict:
    return {"name": "name", "value": value, "origin": origin, "line": None}


@pytest.mark.parametrize(
    ("path", "origin", "run", "job"),
    [
        ("/logs/a/2026-10-22.log", "flag", "nightly-8b", "nightly-8b"),
        ("/logs/a/x.log", "sidecar:x.log.facts.toml", "nightly-8b", "nightly-8b"),
        ("/logs/a/2026-10-22.log", "sidecar:facts.toml", "nightly-8b/2026-10-22", "nightly-8b"),
        (
            "/logs/a/2026-10-22/run.log",
            "sidecar:fairmfu.toml",
            "nightly-8b/2026-10-22",
            "nightly-8b",
        ),
        ("/logs/nightly-8b/run.log", "sidecar:facts.toml", "nightly-8b", "nightly-8b"),
        ("/logs/a-b/2026-10-22.log", "log:7", "a-b/2026-10-22", "a-b"),
        ("/logs/2026-10-22.log", "log:7", "nightly-8b/2026-10-22", "nightly-8b"),
        ("/logs/run.log", "companion:config.yaml", "nightly-8b", "nightly-8b"),
    ],
)
def test_a_given_name_comes_first_and_a_logged_one_last(
    path: str, origin: str, run: str, job: str
) -> None:
    named = name_fact([a_name(origin)])
    assert named is not None
    own = named_run(Path(path), named)
    assert (given_run_name(own, named) if named.is_given else own) == run
    assert named_job(Path(path), named)[0] == job


@given(st.permutations(["flag", "sidecar:facts.toml", "log:3", "companion:config.yaml"]))
def test_the_strongest_name_applies_in_any_order(origins: list[str]) -> None:
    facts = [a_name(origin, origin) for origin in origins]
    while facts:
        named = name_fact(facts)
        order = ("flag", "sidecar:facts.toml", "log:3", "companion:config.yaml")
        strongest = next(one for one in order if one in [fact["origin"] for fact in facts])
        assert named is not None
        assert named.value == strongest
        facts = [fact for fact in facts if fact["origin"] != strongest]
    assert name_fact([]) is None


@given(JOBS, st.dates(date(2020, 1, 1), date(2035, 1, 1)))
def test_runs_of_a_named_job_share_a_place_in_any_folder(job: str, day: date) -> None:
    for origin in ("flag", "sidecar:facts.toml"):
        for folder in ("/a", "/b/c"):
            path = Path(f"{folder}/{day}.log")
            named = name_fact([a_name(origin, f"{job}-{day}")])
            assert named_job(path, named) == (job, f"//{job}")
            assert named is not None
            assert str(day) != given_run_name(named_run(path, named), named)


def test_a_log_from_a_pipe_has_no_job() -> None:
    assert (job_name(STDIN_PATH), run_name(STDIN_PATH)) == ("", "stdin")
