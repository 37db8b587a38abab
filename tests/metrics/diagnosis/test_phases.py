"""Phases of a step: every timer in its phase, and phases with the rest are the step time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest import read_logs
from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.schema import PHASES, TIMED_PHASES, TIMER_CAVEATS, TIMER_SPANS
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.metrics import analyse
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.core.run_table import MetricsRow, metrics_rows
from fairmfu.metrics.diagnosis import messages
from fairmfu.metrics.diagnosis.phase_gap import phase_gap
from fairmfu.metrics.diagnosis.phases import CAVEAT_MESSAGES, MAX_TIMER_ROUNDING_S
from fairmfu.metrics.diagnosis.timer_readings import timers_of_format
from fairmfu.reports.text.diagnosis import diagnosis
from fairmfu.reports.text.verdict import gap_sentence
from tests.support.effort import THOROUGH, every_log, sampled
from tests.support.folders import ROOT
from tests.tools.corpus import CORPUS, GENERATED

pytestmark = sampled(3)

MS = 1e-3


def seconds(row: Mapping[str, Any], share_of: str = "step") -> dict[str, float | None]:
    """Seconds by phase."""
    return {r["phase"]: r["seconds"] for r in row["phases"] if r["share_of"] == share_of}


def check_sums(row: MetricsRow) -> None:
    """Phases and rest are the step time; nothing is negative, and shares are of the step."""
    step = row["phase_step_s"]
    if step is None:
        assert all(r["share_of"] == "wall" for r in row["phases"] or [])
        return
    parts = [r for r in row["phases"] or [] if r["share_of"] == "step"]
    assert [r["phase"] for r in parts] == [n for n in PHASES if n in {r["phase"] for r in parts}]
    assert parts[-1]["phase"] == "rest"
    assert all(r["seconds"] is None or r["seconds"] >= 0 for r in parts)
    known = fsum(r["seconds"] for r in parts if r["seconds"] is not None)
    exceeds = messages.PHASES_EXCEED_STEP.identifier in (row["phase_note_kinds"] or [])
    assert (parts[-1]["seconds"] is None) == exceeds
    if exceeds:
        assert known > step
    else:
        rounding = MAX_TIMER_ROUNDING_S * len(parts) + 0.005 * step * (parts[-1]["seconds"] == 0)
        assert known == pytest.approx(step, abs=max(rounding, 1e-12))
        assert all(r["share"] == pytest.approx((r["seconds"] or 0) / step) for r in parts)


# --- composed logs ---------------------------------------------------------------------------

MEGATRON = (
    " iteration {step:8d}/    1000 | consumed samples: {samples:12d} | elapsed time per iteration "
    "(ms): {step_ms:.1f} | learning rate: 1.875E-05 | global batch size:    16 | lm loss: "
    "{loss:.6E} | loss scale: 12.0 | grad norm: 67.593 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 | samples per second: 50.014 | TFLOPs: 31.07 |"
)


def megatron_log(steps: Sequence[Mapping[str, float]], timers: str, before: str = "") -> str:
    """A log of Megatron: a line of timers after each iteration, and maybe one before."""
    lines = []
    for n, times in enumerate(steps, start=1):
        if before:
            lines.append(before.format(**times))
        lines.append(MEGATRON.format(step=n, samples=16 * n, loss=12 - n / 100, **times))
        lines.append(timers.format(**times))
    return "\n".join(lines) + "\n"


def row_of(folder: Path, text: str, **facts: object) -> MetricsRow:
    log = folder / "run.log"
    log.write_text(text)
    known: dict[str, Any] = {"gpus": 8, "seq_len": 2048, "packed": "true", **facts}
    (row,) = metrics_rows(analyse(read_logs(log, facts=known)).metrics)
    assert row["error"] is None
    return row


OF_2021 = (
    "time (ms) | forward-compute: {forward:.2f} | backward-compute: {backward:.2f} | "
    "backward-params-all-reduce: {collectives:.2f} | optimizer: {optimizer:.2f} | "
    "batch-generator: {data:.2f}"
)

times = st.fixed_dictionaries(
    {
        "data": st.floats(0, 40),
        "compute": st.floats(1, 500),
        "backward": st.floats(1, 900),
        "collectives": st.floats(0, 300),
        "optimizer": st.floats(0, 100),
        "rest": st.floats(0.5, 200),
    }
)


@settings(max_examples=50 if THOROUGH else 5)
@given(drawn=st.lists(times, min_size=8, max_size=40))
def test_drawn_timers_and_rest_are_the_step(
    drawn: list[dict[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    steps = [
        {
            **each,
            "forward": each["compute"] + each["data"],
            "step_ms": fsum(each.values()),
        }
        for each in drawn
    ]
    row = row_of(tmp_path_factory.mktemp("drawn"), megatron_log(steps, OF_2021))
    check_sums(row)
    found = seconds(row)
    assert set(found) == {"data", "forward", "backward", "collectives", "optimizer", "rest"}
    for phase, name in {"forward": "compute"}.items() | {(n, n) for n in found if n != "forward"}:
        printed = [each[name] * MS for each in drawn]
        value = found[phase]
        assert value is not None
        assert min(printed) - 1e-4 <= value <= max(printed) + 1e-4


def test_each_level_of_speed_has_its_phases(tmp_path: Path) -> None:
    """From step 31 on, the data loader takes 80 ms instead of 5 ms of some 500 ms."""
    draw = np.random.default_rng(1)
    steps = []
    for n in range(60):
        data = 80.0 if n >= 30 else 5.0
        compute, backward = 100 + draw.normal(0, 0.5), 300 + draw.normal(0, 1)
        parts = {"data": data, "backward": backward, "collectives": 40.0, "optimizer": 20.0}
        whole = sum(parts.values()) + compute + 30
        steps.append({**parts, "forward": compute + data, "step_ms": whole})
    row = row_of(tmp_path, megatron_log(steps, OF_2021))
    first, second = row["levels"] or []
    assert (first["to_step"], second["from_step"]) == (30, 31)
    assert row["phases"] is not None
    times = [
        {each["phase"]: each["seconds"] / MS for each in level["phases"] or []}
        for level in (first, second)
    ]
    assert times[0]["data"] == pytest.approx(5)
    assert times[1]["data"] == pytest.approx(80)
    for phase, milliseconds in {"forward": 100, "backward": 300, "rest": 30}.items():
        assert [of[phase] for of in times] == pytest.approx([milliseconds] * 2, abs=1)
    assert (
        "Data rose from 5 ms a step (steps 2 to 30) to 80 ms (steps 31 to 60)." in diagnosis(row)[1]
    )


def constant(n: int = 20, **others: float) -> list[dict[str, float]]:
    each = {
        "forward": 100.0,
        "data": 10.0,
        "backward": 200.0,
        "collectives": 30.0,
        "optimizer": 20.0,
        "step_ms": 400.0,
    }
    return [each | others for _ in range(n)]


def test_a_timer_counts_without_its_parts(tmp_path: Path) -> None:
    row = row_of(tmp_path, megatron_log(constant(), OF_2021))
    assert {n: round(s or 0, 6) for n, s in seconds(row).items()} == {
        "data": 0.01,
        "forward": 0.09,
        "backward": 0.2,
        "collectives": 0.03,
        "optimizer": 0.02,
        "rest": 0.05,
    }
    sources = {r["phase"]: r["source"] for r in row["phases"] or []}
    assert sources["forward"] == "forward-compute minus batch-generator"


def test_timers_that_exceed_a_step_leave_the_rest_unknown(tmp_path: Path) -> None:
    steps = [each | {"step_ms": 300 + n / 10} for n, each in enumerate(constant(21))]
    row = row_of(tmp_path, megatron_log(steps, OF_2021))
    assert seconds(row)["rest"] is None
    said = messages.PHASES_EXCEED_STEP(seconds="350.00 ms", step="301.05 ms")
    assert (row["phase_notes"] or [])[0] == said
    check_sums(row)


def test_a_timer_that_did_not_run_is_no_time(tmp_path: Path) -> None:
    """The pipeline engine trains, so Megatron's own timers print zeros."""
    row = row_of(tmp_path, megatron_log(constant(forward=0.0, backward=0.0), OF_2021))
    assert row["phases"] is None


def test_timers_are_of_their_own_step(tmp_path: Path) -> None:
    """Steps of two lengths in turn: timers of a neighbour would exceed the short ones."""
    slow = {"backward": 900.0, "step_ms": 1100.0}
    steps = [each | (slow if n % 3 else {}) for n, each in enumerate(constant(30))]
    row = row_of(tmp_path, megatron_log(steps, OF_2021))
    assert seconds(row)["backward"] == pytest.approx(0.9)
    assert seconds(row)["rest"] == pytest.approx(0.05)


ENGINE = (
    "[Rank 0] time (ms) | fwd_microstep: 1.00 | bwd_microstep: 1.00 | bwd_allreduce_microstep: "
    "0.10 | step_microstep: 1.00\n"
    "[Rank 0] time (ms) | optimizer_allgather: 5.00 | optimizer_gradients: 0.50 | optimizer_step: "
    "3.00\n"
    "[Rank 0] time (ms) | fwd: {forward:.2f} | bwd: {backward:.2f} | bwd_inner: 150.00 | "
    "bwd_allreduce: {collectives:.2f} | step: {optimizer:.2f}"
)


def test_one_of_two_sets_of_timers_counts(tmp_path: Path) -> None:
    """DeepSpeed's engine splits collectives, so its timers come first; none is added twice."""
    row = row_of(tmp_path, megatron_log(constant(), OF_2021, before=ENGINE))
    assert {n: round(s or 0, 6) for n, s in seconds(row).items()} == {
        "forward": 0.1,
        "backward": 0.17,
        "collectives": 0.035,
        "optimizer": 0.015,
        "rest": 0.08,
    }
    assert messages.OVERLAPPED_COLLECTIVES.identifier in (row["phase_note_kinds"] or [])


RANKS = (
    "(min, max) time across ranks (ms):\n"
    "    forward-backward ...............................: (290.00, {forward:.2f})\n"
    "    all-grads-sync .................................: (1.00, 2.00)\n"
    "    optimizer ......................................: (19.00, {optimizer:.2f})"
)


def test_the_longest_of_the_ranks_is_said(tmp_path: Path) -> None:
    row = row_of(tmp_path, megatron_log(constant(forward=310.0), RANKS))
    found = seconds(row)
    assert found["forward_backward"] == pytest.approx(0.308)
    assert found["collectives"] == pytest.approx(0.002)
    assert found["rest"] == pytest.approx(0.07)
    assert messages.LONGEST_RANKS.identifier in (row["phase_note_kinds"] or [])


def pipeline_log(every: int) -> str:
    """A log of the pipeline engine, whose timers cover all steps since the line before."""
    lines = []
    for step in range(every, 20 * every, every):
        seconds = step // every
        stamp = f"[2026-11-20 15:{seconds // 60:02}:{seconds % 60:02},000] [INFO]"
        rank = f"{stamp} [logging.py:96:log_dist] [Rank 0]"
        lines += [
            f"{rank} step={step}, skipped=0, lr=[0.001], mom=[(0.9, 0.95)]",
            f"{rank} time (ms) | batch_input: {10 * every:.2f} | fwd_microstep: 1.00 | "
            "bwd_microstep: 1.00 | step_microstep: 1.00",
            f"{rank} time (ms) | fwd: {40 * every:.2f} | bwd: {90 * every:.2f} | bwd_inner: 1.00 | "
            f"bwd_allreduce: 0.00 | step: {20 * every:.2f}",
            f"steps: {step} loss: 7.0344 iter time (s): 0.200 samples/sec: 47.403",
            f"{rank} time (ms) | pipe_send_output: {5 * every:.2f} | pipe_recv_grad: "
            f"{15 * every:.2f}",
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("every", [1, 5])
def test_timers_of_an_interval_are_divided_by_its_steps(every: int, tmp_path: Path) -> None:
    row = row_of(tmp_path, pipeline_log(every))
    assert {n: round(s or 0, 6) for n, s in seconds(row).items()} == {
        "data": 0.01,
        "forward": 0.04,
        "backward": 0.09,
        "collectives": 0,
        "pipeline": 0.02,
        "optimizer": 0.02,
        "rest": 0.02,
    }
    assert messages.WAITS_FOR_RANKS.identifier in (row["phase_note_kinds"] or [])


# --- formats -----------------------------------------------------------------------------------

OWN = r"""
name = "nova"
framework = "novatrain"
looks_like_step = '\[nova\] it \d+'
evidence = ["elapsed"]
elapsed_covers = "step"

[[steps]]
regex = 'it (?P<step>\d+) loss (?P<loss>\S+) (?P<time>\S+) s (?P<fb>\S+) fb (?P<comm>\S+) comm'
columns = {{ step = "step", loss = "loss", time = "elapsed_s" }}
example = "[nova] it 120 loss 2.31 0.812 s 700.00 fb 100.00 comm"

[[phase_timers]]
timer = "fb"
phase = "{phase}"
unit = "ms"

[[phase_timers]]
timer = "comm"
phase = "collectives"
part_of = "{part_of}"
unit = "ms"
caveat = "overlapped"
"""


def own_rows(folder: Path, phase: str = "forward_backward", part_of: str = "fb") -> MetricsRow:
    toml = folder / "nova.toml"
    toml.write_text(OWN.format(phase=phase, part_of=part_of))
    lines = [f"[nova] it {n} loss 2.31 0.812 s 700.00 fb 100.00 comm" for n in range(1, 20)]
    (folder / "nova.log").write_text("\n".join(lines) + "\n")
    (row,) = metrics_rows(analyse(read_logs(folder / "nova.log", log_formats=[str(toml)])).metrics)
    return row


def test_a_format_of_users_has_timers(tmp_path: Path) -> None:
    row = own_rows(tmp_path)
    assert {n: round(s or 0, 6) for n, s in seconds(row).items()} == {
        "forward_backward": 0.6,
        "collectives": 0.1,
        "rest": 0.112,
    }


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("phase", "compute", r"\[\[phase_timers\]\] 1, phase: is 'compute': write one of data"),
        ("part_of", "fbb", r"\[\[phase_timers\]\] 2, part_of: no timer is called 'fbb'. Did"),
    ],
)
def test_a_wrong_timer_is_named(key: str, value: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(FairmfuError, match=problem):
        own_rows(tmp_path, **{key: value})


def test_all_words_of_timers_are_known() -> None:
    timers = {timer for each in BUILT_IN_FORMATS for timer in each.phase_timers}
    assert {timer.phase for timer in timers} == set(TIMED_PHASES)
    assert {timer.covers for timer in timers} == set(TIMER_SPANS)
    assert {timer.caveat for timer in timers} - {None} == set(TIMER_CAVEATS) == set(CAVEAT_MESSAGES)
    for each in BUILT_IN_FORMATS:
        names = {(timer.group, timer.timer) for timer in each.phase_timers}
        named = {
            (timer.group, name)
            for timer in each.phase_timers
            for name in (timer.beside, timer.part_of)
            if name is not None
        }
        assert named <= names, each.name
        stored = each.stored_value("phase_timers")
        assert (
            [t.timer for t in timers_of_format(stored)] == [t.timer for t in each.phase_timers]
            if stored
            else not each.phase_timers
        )


# --- comparison --------------------------------------------------------------------------------


def test_the_phase_of_the_gap_is_named(tmp_path: Path) -> None:
    fast = row_of(tmp_path, megatron_log(constant(), OF_2021))
    slow = row_of(tmp_path, megatron_log(constant(collectives=130.0, step_ms=505.0), OF_2021))
    gap = phase_gap(slow, fast)
    assert gap is not None
    assert (gap.phase, round(gap.gap_s, 6)) == ("collectives", 0.105)
    assert gap.share == pytest.approx(100 / 105)


@pytest.mark.parametrize("gpus", [(8, 8), (2, 4), (1, 64)])
def test_without_tokens_the_gap_is_that_of_equal_samples(
    gpus: tuple[int, int], tmp_path: Path
) -> None:
    """As with tokens, if each sample has equally many."""
    batches = (16.0, 16.0)
    logs = (constant(), constant(collectives=130.0, step_ms=505.0))
    counted, uncounted = [], []
    for number, batch, log in zip(gpus, batches, logs, strict=True):
        row = row_of(tmp_path, megatron_log(log, OF_2021))
        row |= {"gpus": number, "samples_per_update": batch}
        counted.append(row | {"tokens_per_gpu_step": 512 * batch / number})
        uncounted.append(row | {"tokens_per_gpu_step": None, "tgs": None})
    assert phase_gap(uncounted[1], uncounted[0]) == phase_gap(counted[1], counted[0])
    assert phase_gap(uncounted[1], counted[0]) is None  # tokens and samples are no equal work


@pytest.mark.parametrize(
    ("slow", "sentence"),
    [
        (
            {"collectives": 130.0, "step_ms": 505.0},
            "Most of the gap between a and b is collectives: 130 ms per step against 30 ms (95.2 % "
            "of the difference).",
        ),
        (
            {"step_ms": 505.0},
            "Most of the gap between a and b is outside all timed phases (data, forward, "
            "backward, collectives and optimizer): 155 ms per step against 50 ms (all of the "
            "difference).",
        ),
    ],
)
def test_the_sentence_on_a_gap(slow: dict[str, float], sentence: str, tmp_path: Path) -> None:
    rows = [
        cast(ComparisonRow, {**row_of(tmp_path, megatron_log(log, OF_2021)), "label": label})
        for log, label in ((constant(), "a"), (constant(**slow), "b"))
    ]
    assert gap_sentence(rows[1], rows[0]) == sentence
    assert gap_sentence(rows[0], rows[1]) == ""


def test_phases_of_one_log_alone_are_rest(tmp_path: Path) -> None:
    fast = row_of(tmp_path, megatron_log(constant(), OF_2021))
    slow = row_of(tmp_path, megatron_log(constant(forward=310.0, step_ms=500.0), RANKS))
    gap = phase_gap(slow, fast)
    assert gap is not None
    assert (gap.phase, gap.timed) == ("rest", ("forward_backward", "collectives", "optimizer"))
    assert gap.gap_s == pytest.approx(0.1)


# --- logs of others ----------------------------------------------------------------------------

SAMPLES = sorted((ROOT / "sample_logs" / "genuine").glob("*/*"))


def test_phases_of_sample_logs_are_the_step() -> None:
    folders = SAMPLES if THOROUGH else SAMPLES[::3]
    rows = metrics_rows(analyse(read_logs(*folders)).metrics)
    assert len(rows) >= len(folders)
    for row in rows:
        check_sums(row)


PRINT_TIMERS = (b"time (ms) | f", b"data_time", b"time across ranks", b'"fwd_bwd_end"')


def logs_with_timers(folder: Path, *patterns: str) -> list[Path]:
    found = (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return sorted(path for path in found if any(mark in path.read_bytes() for mark in PRINT_TIMERS))


@every_log
@pytest.mark.parametrize(
    ("folder", "patterns", "fewest"),
    [
        pytest.param(CORPUS, ("*/*",), 20, id="public"),
        pytest.param(GENERATED, ("*/*/*.log", "*/*/*/*/*.jsonl"), 20, id="generated"),
    ],
)
def test_phases_of_all_logs_are_the_step(
    folder: Path, patterns: Sequence[str], fewest: int
) -> None:
    if not folder.is_dir():
        pytest.skip(f"NO LOGS in {folder}: set FAIRMFU_CORPUS and FAIRMFU_GENERATED")
    known = 0
    for path in logs_with_timers(folder, *patterns):
        try:
            tables = read_logs(path)
        except FairmfuError:
            continue
        for row in metrics_rows(analyse(tables).metrics):
            check_sums(row)
            known += row["phase_step_s"] is not None
    assert known >= fewest


BY_HAND = {
    "bigscience__meg_ds_3d_gpt2_perf_n16-ds-off.out": (
        126651.429,
        {
            "data": 172.449,
            "forward": 27966.147,
            "backward": 74910.309,
            "collectives": 4207.524,
            "pipeline": 19284.003,
            "optimizer": 76.574,
            "rest": 34.423,
        },
    ),
    "alcf__cooldown.md": (
        3411.45,
        {
            "forward": 713.985,
            "backward": 1224.07,
            "collectives": 1332.83,
            "optimizer": 6.485,
            "rest": 134.08,
        },
    ),
}
"""Step time and phases [ms] of public logs, added up from their lines without fairmfu.

The first is the mean of the 7 middle windows of 61; the second of steps 136,005 and 136,007, the
middle two of 6.
"""


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"NO PUBLIC LOGS in {CORPUS}: set FAIRMFU_CORPUS")
@pytest.mark.parametrize("name", BY_HAND)
def test_two_public_logs_are_as_by_hand(name: str) -> None:
    (row,) = metrics_rows(analyse(read_logs(CORPUS / "deepspeed" / name)).metrics)
    step_ms, phases = BY_HAND[name]
    assert row["phase_step_s"] == pytest.approx(step_ms * MS, abs=1e-6)
    assert {n: (s or 0) / MS for n, s in seconds(row).items()} == pytest.approx(phases, abs=1e-3)


def test_no_timer_is_no_table() -> None:
    rows = analyse(read_logs(ROOT / "sample_logs/h200/torchtitan-0.2.2/bf16/run.log")).metrics
    assert rows.select(pl.col("phases").is_null().all()).item()
