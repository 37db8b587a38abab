"""Names of runs and jobs by the paths of their logs."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.decode.line_reader import STDIN_PATH
from fairmfu.ingest.extract.run_names import job_name, run_name

JOBS = st.from_regex(r"[a-z]{3,8}(?:-[a-z]{2,6})?-\d{1,2}[bm]", fullmatch=True)


@pytest.mark.parametrize(
    ("path", "job", "run"),
    [
        ("/logs/ds-1b/2026-10-22.log", "ds-1b", "ds-1b/2026-10-22"),
        ("/logs/ds-1b/2026-10-22_b.log", "ds-1b", "2026-10-22_b"),
        ("/logs/ds-1b/run.log", "ds-1b", "ds-1b"),
        ("/logs/titan-8b-0412/run.log", "titan-8b", "titan-8b-0412"),
        ("/data/job-8b/2026-10-31T05-30-00/rank_0.log", "job-8b", "job-8b/2026-10-31T05-30-00"),
        ("/data/titan-8b/slurm-123456.out", "titan-8b", "slurm-123456"),
        ("/data/exp_3/20241011_101010/train.log.gz", "exp_3", "data/exp_3"),
        ("/x/llama3-8b-8192-8xh100.log", "llama3-8b-8192-8xh100", "llama3-8b-8192-8xh100"),
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


def test_a_log_from_a_pipe_has_no_job() -> None:
    assert (job_name(STDIN_PATH), run_name(STDIN_PATH)) == ("", "stdin")
