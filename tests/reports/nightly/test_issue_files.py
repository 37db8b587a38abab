"""Issues of a night: a file per new finding, of its own, and the same however often written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fairmfu.cli import main
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.nightly.findings import find, told_failures
from fairmfu.reports.nightly.issue_files import (
    NOT_FILED,
    filed,
    filed_runs,
    issue_commands,
    issue_files,
    issue_name,
)
from fairmfu.reports.nightly.night_report import build_digest
from tests.reports.nightly.test_findings import (
    LAST,
    OOM,
    WELL,
    crash,
    job,
    night_of,
    nightly,
    write,
)
from tests.support.effort import costly
from tests.support.told_nights import a_night, frame, regression

__all__ = ["nightly"]  # the fixture

NO_RUNS = frame(METRICS, [])
CUT = {"path": "logs/a.log.gz", "status": "failed", "message": "logs/a.log.gz: cut off"}


def bad_night():
    """A night on which two jobs failed, one is missing and a log is unreadable."""
    return night_of(
        job("ds-1b", *WELL, "out_of_memory", step_lines=4, last_step=40),
        job("xtuner-1b", *WELL, "crashed", outcome_text="RuntimeError: boom", step_lines=0),
        job("meg-8b", *WELL, until=2),
        sources=[CUT],
        store="/srv/my perf",
    )


def test_every_new_finding_has_a_file_that_says_all_about_it():
    night = bad_night()
    ran = night.tonight.filter(pl.col("run_id") == filed_runs(night)[0])
    ran = ran.with_columns(framework_version=pl.lit("0.19.8"), torch=pl.lit("2.9.1"))
    files = issue_files(night, ran.with_columns(gpus=pl.lit(8), accelerator=pl.lit("H100")))
    assert [re.sub(r"-\w{10}\.md$", "", name) for name in files] == [
        "job-failed-ds-1b",
        "job-failed-xtuner-1b",
        "job-missing-meg-8b",
        "log-unreadable-logs-a-log-gz",
    ]
    text = files[next(iter(files))]
    assert text.startswith("# ds-1b: out of memory at step 40\n\n")
    assert "- Since: 14 March 2026, 02:41 (start of the first run with it)\n" in text
    assert f"\n## Evidence\n\n    {OOM}\n" in text
    assert "\n    fairmfu explain ds-1b-9 --store '/srv/my perf'\n" in text
    for row in ("| version | 0.19.8 |", "| PyTorch | 2.9.1 |", "| GPUs | 8 |", "| accelerator | H"):
        assert row in text
    assert "\n## What to do\n\nRead the log: /logs/ds-1b/9.log\n" in text
    for name, words in (("missing", "no run for 2 days"), ("unreadable", "could not be read")):
        (text,) = (text for file, text in files.items() if name in file)
        assert words in text.splitlines()[0]
        assert "## What to do" in text or name == "unreadable"


def test_a_regression_shows_both_runs_and_how_to_compare_them():
    night = regression()
    (name, text) = next((n, t) for n, t in issue_files(night, NO_RUNS).items() if "regression" in n)
    (change,) = [row for row in build_digest(night).changes if row["new"]]
    assert re.match(r"# .* is 5\.1 % slower \(4\.6 to 5\.6\)\n", text)
    assert f"fairmfu compare {change['last_before']} {change['run_id']}\n" in text
    assert "version 0.2.1 -\\> 0.2.2" in text or "version 0.2.1 -> 0.2.2" in text
    assert set(filed_runs(night)) >= {change["last_before"], change["run_id"]}
    assert issue_files(night, NO_RUNS)[name] == text


def test_a_finding_of_an_earlier_night_has_no_file():
    night = bad_night()
    sources = night.sources.with_columns(new=pl.lit(value=False))
    again = replace(
        night, told=frozenset(told_failures(night)), tonight=night.tonight.clear(), sources=sources
    )
    assert len(find(build_digest(again))) >= 4
    assert issue_files(again, NO_RUNS) == {}
    assert issue_files(regression(number=365), NO_RUNS)
    assert all(name.startswith("regression") for name in issue_files(regression(), NO_RUNS))


NAMES = st.text(min_size=1, max_size=90) | st.sampled_from(["a/b", "a b", "../x", "A", "a", "…"])


@costly
@given(st.lists(NAMES, unique=True, min_size=1, max_size=6), st.booleans())
def test_names_are_safe_and_no_finding_overwrites_another(names, crashed):
    ends = (*WELL, "crashed") if crashed else WELL
    jobs = [job(name, *ends, until=0 if crashed else 3) for name in names]
    for place, rows in enumerate(jobs):
        for row in rows:
            row |= {"run_id": f"{place}-{row['at']:%j}", "outcome_text": f"{names[0]}\n# x\n```"}
    night = night_of(*jobs)
    found = filed(build_digest(night))
    files = issue_files(night, NO_RUNS)
    assert len(files) == len(found) == len(names)
    assert set(files) == {issue_name(one) for one in found}
    for name, text in files.items():
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,110}\.md", name)
        tags = re.findall(r"<(\w+)", MarkdownIt("commonmark").enable("table").render(text))
        assert set(tags) <= {"h1", "h2", "p", "ul", "li", "pre", "code"}
        assert tags.count("h1") == 1
    later = night_of(*jobs, number=400)
    assert set(issue_files(later, NO_RUNS)) == set(files)


def test_unconfirmed_findings_and_notes_have_no_file():
    for night in (bad_night(), regression(), a_night()):
        for one in find(build_digest(night)):
            if one.kind in NOT_FILED or one.kind.severity == "note":
                assert one not in filed(build_digest(night))


def test_the_option_and_the_key_write_files_once(nightly: Callable[..., Result]) -> None:
    Path("fairmfu.toml").write_text('issue_dir = "issues"\n')
    for night in (1, 2, 3):
        write(night)
    assert nightly().exit_code == 0
    assert list(Path("issues").iterdir()) == []
    one, _ = write(4)
    crash(
        one, next(n for n, line in enumerate(one.read_text().splitlines()) if "100 " in line), OOM
    )
    Path("logs/cut.log.gz").write_bytes(b"\x1f\x8b\x08 cut off")
    assert nightly().exit_code == 5
    texts = {path.name: path.read_text() for path in Path("issues").iterdir()}
    assert sorted(re.sub(r"-\w+\.md$", "", name)[:14] for name in texts) == [
        "job-failed-tor",
        "log-unreadable",
    ]
    for text in texts.values():
        for line in re.findall(r"^    (fairmfu .*)$", text, re.MULTILINE):
            result = CliRunner().invoke(main, shlex.split(line)[1:])
            assert result.exit_code == (1 if " ingest " in line else 0), result.output
    failed = next(text for name, text in texts.items() if "failed" in name)
    assert "| version |" in failed
    assert "| GPUs |" in failed
    nightly()  # the same night again
    assert {path.name: path.read_text() for path in Path("issues").iterdir()} == texts
    write(5, only=(1,))
    nightly("--issue", "other")
    assert [path.name[:12] for path in Path("other").iterdir()] == ["job-missing-"]
    write(6, only=(1,))
    nightly("--issue", "third")
    assert list(Path("third").iterdir()) == []
    assert json.loads(Path("out/summary.json").read_text())["findings"][0]["id"] == "job-missing"


def test_a_file_in_the_way_fails_the_night(nightly: Callable[..., Result]) -> None:
    write(1)
    Path("blocked").write_text("")
    found = nightly("--issue", "blocked/issues")
    assert found.exit_code == 1
    assert "blocked/issues" in " ".join(found.stderr.split())


def test_commands_name_a_run_only_by_a_safe_id():
    night = night_of(job("a; rm -rf /", *WELL, "crashed"))
    (one,) = [x for x in find(build_digest(night)) if x.kind.identifier == "job-failed"]
    assert issue_commands(one, night) == ["fairmfu runs"]
    assert LAST - one.since == timedelta(0)


def test_issues_of_a_redacted_night_hide_names(nightly: Callable[..., Result]) -> None:
    for night in (1, 2, 3):
        write(night)
    nightly("--redact", "--issue", "issues")
    one, _ = write(4)
    steps = [n for n, line in enumerate(one.read_text().splitlines()) if "step:" in line]
    crash(one, steps[9], "RuntimeError: disk of alice@example.org is full")
    for _ in range(2):
        nightly("--redact", "--issue", "issues")
    (text,) = [path.name + path.read_text() for path in Path("issues").iterdir()]
    assert "alice" not in text
    assert "RuntimeError: disk of mail-" in text


@example("a\n# x")
@given(st.text() | st.sampled_from(["a\n# x\n```", "a\r\n::error::b", "\n\n<b>", "`|@me"]))
def test_a_log_with_any_name_stays_in_its_block(name):
    source = CUT | {"path": name or "x", "message": f"{name}: cut off"}
    (text,) = issue_files(night_of(job("a", *WELL), sources=[source]), NO_RUNS).values()
    page = MarkdownIt("commonmark").enable("table").render(text)
    tags = re.findall(r"<(\w+)", page)
    assert tags.count("pre") == 2, text
    assert set(tags) <= {"h1", "h2", "p", "ul", "li", "pre", "code"}
