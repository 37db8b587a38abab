"""DeepSpeed's wall clock breakdown where it is all that a run prints (no steps_per_print)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse

STARTED = datetime(2026, 5, 1, 10)
TIMED_S = 0.5
FACTS = ("gpus=2", "global_batch_size=8", "seq_len=512", "packed=true")
TOKENS = 8 * 512 / 2


def trained(wait_s: float, *, stamped: bool = True, paused_s: float = 0) -> str:
    """Lines of 60 steps, each after a wait for its data, which the timers leave out.

    paused_s: before step 31.
    """
    lines = []
    for step in range(1, 61):
        at = STARTED + timedelta(seconds=step * (TIMED_S + wait_s))
        at += timedelta(seconds=paused_s) if step > 30 else timedelta()
        stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO] "
        before = f"{stamp}[logging.py:107:log_dist] " if stamped else ""
        lines += [
            f"{before}[Rank 0] time (ms) | fwd{name}: 150.00 | bwd{name}: 300.00 | "
            f"bwd_inner{name}: 300.00 | bwd_allreduce{name}: 0.01 | step{name}: 50.00\n"
            for name in ("_microstep", "")
        ]
    return "".join(lines)


@pytest.fixture
def measured(logs):
    def of(text: str):
        (logs / "run.log").write_text(text)
        facts = given.facts_from_flags(FACTS)
        tables = read_log_tables(logs / "run.log", flag_facts=facts)
        return analyse(tables).metrics.row(0, named=True)

    return of


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.2])
def test_stamps_hold_the_wait_for_data(wait_s, measured):
    """The timers' own time counted, and the run was not ranked, although its stamps hold all."""
    row = measured(trained(wait_s))
    assert row["tgs"] == pytest.approx(TOKENS / (TIMED_S + wait_s))
    assert row["time_basis"] == "stamp"
    assert not any(NOT_RANKED in one for one in row["warnings"])


@pytest.mark.parametrize(("paused_s", "is_told"), [(0.1, False), (20, True), (3600, True)])
def test_a_pause_that_the_stamps_hold_is_not_ranked(paused_s, is_told, measured):
    """Another run behind it, or an evaluation without a line: TGS was 0.15 of what it was."""
    warnings = measured(trained(0.02, paused_s=paused_s))["warnings"]
    assert any(NOT_RANKED in one for one in warnings) == is_told


def test_a_wait_that_is_longer_than_the_step_is_not_ranked(measured):
    """So are steps of which lines are missing."""
    assert any(NOT_RANKED in one for one in measured(trained(0.6))["warnings"])


def test_without_stamps_nothing_holds_it(measured):
    row = measured(trained(0.2, stamped=False))
    assert row["tgs"] == pytest.approx(TOKENS / TIMED_S)
    assert any(NOT_RANKED in one for one in row["warnings"])


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ("--seq_len 350 --steps 9", "350"),
        ("--batch 2 --sequence-length=4096", "4096"),
        ("--seq_len 350 --seq_length 512", None),  # one of them has another meaning
        ("--seq_len $LENGTH", None),
        ("--max_len 350", None),
    ],
)
def test_the_scripts_own_option_gives_the_sequence_length(options, length, logs):
    command = f"cmd = python -u --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19 train.py {options}"
    (logs / "run.log").write_text(f"[x] [INFO] [runner.py:610:main] {command}\n{trained(0.0)}")
    facts = read_log_tables(logs / "run.log")["facts"]
    found = {row["name"]: row for row in facts.iter_rows(named=True)}
    assert found["gpus"]["value"] == "2"
    assert found.get("seq_len", {}).get("value") == length
    assert length is None or found["seq_len"]["origin"].startswith("inferred: ")


def test_a_single_quoted_step_has_its_phases(logs):
    quoted = "".join(trained(0.0).splitlines(keepends=True)[:2])
    (logs / "run.log").write_text(quoted)
    row = analyse(read_log_tables(logs / "run.log")).metrics.row(0, named=True)
    shares = {phase["phase"]: round(phase["share"], 3) for phase in row["phases"]}
    assert shares["forward"] == 0.3
    assert shares["backward"] + shares["collectives"] == pytest.approx(0.6)
    assert shares["rest"] == 0.0
    assert any("only logged step" in note for note in row["phase_notes"])
    (logs / "run.log").write_text(f"[x] [runner.py:610:main] cmd = python train.py\n{quoted}")
    begun = analyse(read_log_tables(logs / "run.log")).metrics.row(0, named=True)
    assert begun["phases"] is None  # the first step has the start-up
