"""A batch or a length that was given, against what a log's closing figures make of a step."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest import read_logs
from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.extract.discovery import FileWalk
from fairmfu.metrics import analyse
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.throughput.closing_figures import (
    CLOSING_IDENTITIES,
    CLOSING_SCHEMA,
    RunEnd,
    RunKnowledge,
    closing_figures,
)
from fairmfu.metrics.throughput.messages import (
    COUNTS_APART,
    FACTS_DIFFER,
    ONLY_LAST_LINE,
    RESULTS_APART,
    SEVERAL_LAST_LINES,
)
from fairmfu.reports import explain
from tests.metrics.throughput.test_throughput import at, frame
from tests.support.effort import THOROUGH
from tests.support.one_log import tables_of

FACTS: dict[str, object] = {
    "gpus": 1,
    "seq_len": 256,
    "packed": "true",
    "trainable": "full",
    "precision": "bf16",
    "accelerator": "H100",
}
PARAMS = 7_568_405_504
"""Of Qwen3 8B without its embedding, as the Trainer counts them."""


def console(tmp_path: Path, samples: str = "3.137", steps: str = "0.196") -> Path:
    """A Trainer's console of 100 steps of 5.1 s, with these rates on its last line."""
    lines = []
    for step in range(10, 101, 10):
        lines += [
            f"{{'loss': {1 - step / 1000}, 'grad_norm': 1.0, 'learning_rate': 0.0001, 'epoch': "
            f"{step / 100:.2f}}}",
            f" {step}%|####      | {step}/100 [{int(step * 5.1) // 60:02}:{int(step * 5.1) % 60:02}"
            "<10:00,  5.10s/it]",
        ]
    lines.append(
        f"{{'train_runtime': 510.0, 'train_samples_per_second': {samples}, "
        f"'train_steps_per_second': {steps}, 'train_loss': 0.95, 'epoch': 1.0}}"
    )
    path = tmp_path / "console.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def swift(tmp_path: Path, tokens_a_step: float, steps: int = 100) -> Path:
    """ms-swift's log of as many steps, with FLOPs of these tokens of Qwen3 8B on its last line."""
    lines = []
    for step in range(10, steps + 1, 10):
        seconds = int(step * 5.1)
        lines.append(
            {
                "loss": 1 - step / 1000,
                "grad_norm": 1.0,
                "learning_rate": 0.0001,
                "token_acc": 0.9,
                "epoch": step / steps,
                "global_step/max_steps": f"{step}/{steps}",
                "percentage": f"{100 * step / steps:.2f}%",
                "elapsed_time": f"{seconds // 60}m {seconds % 60}s",
                "remaining_time": "1m 0s",
                "memory(GiB)": 16.5,
                "train_speed(iter/s)": 0.196,
            }
        )
    lines.append(
        {
            "train_runtime": 510.0,
            "train_samples_per_second": 3.137,
            "train_steps_per_second": 0.196,
            "total_flos": 6.0 * tokens_a_step * steps * PARAMS,
            "train_loss": 0.95,
            "epoch": 1.0,
            "global_step/max_steps": f"{steps}/{steps}",
            "percentage": "100.00%",
            "elapsed_time": "8m 30s",
            "remaining_time": "0s",
            "memory(GiB)": 16.5,
            "train_speed(iter/s)": 0.196,
        }
    )
    path = tmp_path / "logging.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def engine(tmp_path: Path, average: float = 400.0) -> Path:
    """The engine's log: ten steps each 25.6 s, and its timer's mean; the batch is not said."""
    lines = []
    for n in range(1, 11):
        ms = round(n * 25_600)
        stamp = f"2024-05-06 10:{ms // 60_000:02}:{ms // 1000 % 60:02},{ms % 1000:03}"
        lines += [
            f"[{stamp}] [INFO] [logging.py:96:log_dist] [Rank 0] step={10 * n}, skipped=0, "
            "lr=[0.001], mom=[[0.9, 0.999]]",
            f"[{stamp}] [INFO] [timer.py:258:stop] epoch=0/micro_step={10 * n}/global_step={10 * n}"
            f", RunningAvgSamplesPerSec={average + n / 100}, CurrSamplesPerSec={2600 - n}.0, "
            "MemAllocated=0.15GB, MaxMemAllocated=12.35GB",
        ]
    path = tmp_path / "engine.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def doubts(path: Path, words: str, **facts: object) -> list[str]:
    """Warnings of the run that hold some words, each of which keeps it from being ranked."""
    row = analyse(tables_of(path, facts=FACTS | facts)).metrics.row(0, named=True)
    found = {
        text: kind
        for text, kind in zip(row["warnings"], row["warning_kinds"], strict=True)
        if words in text
    }
    assert all(text.startswith(NOT_RANKED) for text in found)
    assert set(found.values()) <= {COUNTS_APART.identifier}
    return [*found]


@pytest.mark.parametrize(("batch", "fits"), [(64, True), (8, True), (16, False)])
def test_a_batch_is_held_against_the_last_lines_rates(
    tmp_path: Path, batch: int, *, fits: bool
) -> None:
    found = doubts(console(tmp_path), "samples/s over steps/s", global_batch_size=batch)
    assert [text.endswith("agree with global_batch_size=16") for text in found] == [True] * fits


def test_a_coarse_rate_of_steps_doubts_no_batch_that_it_may_be_of(tmp_path: Path) -> None:
    log = console(tmp_path, samples="1.147", steps="0.005")  # 208 to 255 samples, or nearly
    assert not doubts(log, "samples/s over steps/s", global_batch_size=256)
    assert doubts(log, "samples/s over steps/s", global_batch_size=512)


def test_a_length_is_held_against_the_flops_since_the_start(tmp_path: Path) -> None:
    facts = {"model": "qwen3-8b", "global_batch_size": 16}
    (found,) = doubts(swift(tmp_path, 4600), "total_flos", seq_len=1024, **facts)
    assert found.endswith("both counts agree with 4,600 tokens a step")
    assert not doubts(swift(tmp_path, 16 * 1024), "total_flos", seq_len=1024, **facts)


def test_no_flops_are_compared_where_none_were_counted(tmp_path: Path) -> None:
    facts = {"model": "qwen3-8b", "global_batch_size": 16, "seq_len": 1024}
    assert not doubts(swift(tmp_path, 1e-9), "total_flos", **facts)  # ZeRO-3 leaves no parameters
    assert not doubts(swift(tmp_path, 4600), "total_flos", **facts | {"model": "no-such-model"})


def test_a_sum_over_processes_is_not_held_against_ranks_that_share_samples(tmp_path: Path) -> None:
    shared = {"gpus": 4, "context_parallel": 4, "global_batch_size": 4}
    assert not doubts(console(tmp_path), "samples/s over steps/s", **shared)


@pytest.mark.parametrize(("batch", "doubted"), [(512, True), (2048, True), (1024, False)])
def test_a_batch_is_held_against_the_engines_mean_rate(
    tmp_path: Path, batch: int, *, doubted: bool
) -> None:
    found = doubts(engine(tmp_path), "RunningAvgSamplesPerSec", global_batch_size=batch)
    fits = "agree with global_batch_size=1024"
    assert [text.endswith(fits) for text in found] == [True] * doubted


# --- the identities -------------------------------------------------------------------------


def ending(**known: Any) -> RunEnd:
    nothing: dict[str, Any] = dict.fromkeys(("seconds", "step", "epoch", "average", "step_s"))
    return RunEnd(**{"said": {}, "params": lambda: None} | nothing | known)


@given(
    batch=st.integers(1, 100_000),
    seconds=st.floats(0.01, 1e4),
    decimals=st.integers(3, 8),
)
def test_the_batch_lies_within_the_error_of_what_is_printed(
    batch: int, seconds: float, decimals: int
) -> None:
    said = {
        "train_samples_per_second": f"{batch / seconds:.{decimals}f}",
        "train_steps_per_second": f"{1 / seconds:.{decimals}f}",
    }
    found = CLOSING_IDENTITIES["end_samples"].per_step(ending(said=said))
    if found is not None:
        per_step, error = found
        assert abs(per_step / batch - 1) <= 1.1 * error / (1 - min(error, 0.9)) + 1e-9


@pytest.mark.parametrize("text", ["nan", "inf", "-3", "0", "0.000", "1e999999999", "", "x", None])
def test_a_rate_that_is_none_says_nothing(text: str | None) -> None:
    said: dict[str, Any] = {"train_samples_per_second": "3", "train_steps_per_second": text}
    said["total_flos"] = text
    for one in CLOSING_IDENTITIES.values():
        assert one.per_step(ending(said=said, step=10, params=lambda: 10)) is None


def test_a_run_without_closing_figures_has_no_row_of_worth(tmp_path: Path) -> None:
    tables = tables_of(console(tmp_path))
    none = tables["events"].clear()
    found = closing_figures(tables["runs"], tables["steps"], none, lambda _: None)
    assert found.schema == CLOSING_SCHEMA
    assert found.is_empty()
    assert isinstance(found, pl.DataFrame)


@pytest.mark.parametrize("dicts", [0, 4], ids=["the last line alone", "dicts without times"])
@settings(max_examples=20 if THOROUGH else 3)
@given(rate=st.floats(0.001, 9999), length=st.integers(1, 10**6), gpus=st.integers(1, 4096))
def test_a_last_line_without_any_time_gives_the_rate_of_the_whole(
    dicts: int, rate: float, length: int, gpus: int
) -> None:
    """The samples/s of all ranks by the tokens of a sample, over the GPUs; TGS stays unknown."""
    lines = [
        f"{{'loss': {1 - n / 9}, 'grad_norm': 1.0, 'learning_rate': 0.0001, 'epoch': {n / 4}}}"
        for n in range(1, dicts + 1)
    ]
    lines.append(
        f"{{'train_runtime': 2040.0, 'train_samples_per_second': {rate:.3f}, "
        "'train_steps_per_second': 0.196, 'train_loss': 0.5, 'epoch': 1.0}"
    )
    facts = {"seq_len": length, "gpus": gpus, "packed": "true"}
    with TemporaryDirectory() as folder:
        log = Path(folder) / "final.log"
        log.write_text("\n".join(lines) + "\n")
        row = analyse(tables_of(log, facts=facts)).metrics.row(0, named=True)
    assert row["tgs"] is None
    assert row["tgs_end_to_end"] == pytest.approx(float(f"{rate:.3f}") * length / gpus)
    assert row["end_to_end_basis"] == "printed samples/s"


def test_a_last_line_alone_asks_for_what_samples_lack_to_be_tokens(tmp_path: Path) -> None:
    log = tmp_path / "final.log"
    log.write_text(
        "{'train_runtime': 2040.0, 'train_samples_per_second': 3.137, "
        "'train_steps_per_second': 0.196, 'train_loss': 0.5, 'epoch': 1.0}\n"
    )
    row = analyse(tables_of(log)).metrics.row(0, named=True)
    assert row["missing"][:3] == ["seq_len", "gpus", "packed"]
    assert row["warning_kinds"][0] == ONLY_LAST_LINE.identifier


@pytest.mark.parametrize(("seconds", "apart"), [(101.9, True), (109.2, False)])
def test_last_lines_of_two_trainings_give_no_figure(
    seconds: float, *, apart: bool, tmp_path: Path
) -> None:
    """A page compared two ways to train; two processes of one training end together."""
    log = tmp_path / "page.md"
    ends = (
        f"{{'train_runtime': {time}, 'train_samples_per_second': {rate}, 'epoch': 0.69}}"
        for time, rate in ((110.6, 1.808), (seconds, 1.963))
    )
    log.write_text("".join(f"{end}\n" for end in ends))
    tables = tables_of(log, {"gpus": 2, "seq_len": 1024, "packed": "true"})
    row = analyse(tables).metrics.row(0, named=True)
    kind = SEVERAL_LAST_LINES if apart else ONLY_LAST_LINE
    assert row["warning_kinds"][0] == kind.identifier
    assert row["tgs_end_to_end"] == (None if apart else pytest.approx(1.963 * 1024 / 2))


def test_results_without_a_step_say_what_to_read(tmp_path: Path) -> None:
    file = tmp_path / "all_results.json"
    file.write_text(
        json.dumps({"epoch": 1.0, "train_loss": 0.5, "train_runtime": 2040.0}, indent=2)
    )
    with pytest.raises(FairmfuError, match=r"results of a Hugging Face run.*trainer_state\.json"):
        read_logs(file)


def test_both_rates_of_the_engine_stand_beside_ours(tmp_path: Path) -> None:
    tables = tables_of(engine(tmp_path), facts=FACTS | {"global_batch_size": 1024})
    analysis = analyse(tables)
    told = explain(analysis, "engine")
    assert "2,594, 400.1 (mean since the start); ours 400 (TGS x GPUs / seq_len)" in told, told


# --- the figures of a run, from its rows ------------------------------------------------------


def printed(*rows: dict, **end: Any) -> dict[str, Any]:
    """What the closing figures say of a run of DeepSpeed's: rows of steps, and its end."""
    lines = ({"run_id": "r", "line": n} | row for n, row in enumerate(rows, 1))
    events = [{"run_id": "r", "line": 99, "kind": "end"} | end] if end else []
    stated = ["r"] if end.pop("batch_stated", False) else []
    runs = frame("runs", {"run_id": "r", "log_format": "deepspeed"})
    found = closing_figures(
        runs,
        frame("steps", *lines),
        frame("events", *events),
        lambda _: 10**9,
        RunKnowledge(stated),
    )
    row = found.row(0, named=True) if found.height else {"closing": []}
    row["closing"] = {x["identity"]: (x["per_step"], x["error"]) for x in row["closing"]}
    return row


RATES = '{"train_samples_per_second": "8.0", "train_steps_per_second": "0.5"}'


@pytest.mark.parametrize(
    ("step", "text", "partial"),
    [
        (100, "{'epoch': 2.0}", 0.02),  # two last batches among 100
        (100, "{'epoch': '2.0'}", 0.02),
        (100, '{"epoch": 3}', 0.03),
        (100, "{'epoch': 50.0}", 0.1),
        (100, "no epoch is said", 0.1),
        (None, "{'epoch': 2.0}", 0.1),
    ],
)
def test_samples_of_a_step_are_as_exact_as_their_print_and_the_last_batches(
    step: int | None, text: str, partial: float
) -> None:
    """8.0 is of 7.95 to 8.05, and 0.5 of 0.45 to 0.55."""
    row = printed(extra=RATES, step=step, text=text)
    per_step, error = row["closing"]["end_samples"]
    assert per_step == 16.0
    assert error == pytest.approx(0.05 / 8 + 0.05 / 0.5 + partial)
    assert row["end_samples_per_second"] == 8.0


def test_flops_of_a_step_are_six_for_each_parameter_and_token() -> None:
    row = printed(extra='{"total_flos": "2.4e15"}', step=100)
    tokens, error = row["closing"]["total_flos"]
    assert tokens == pytest.approx(2.4e15 / (6 * 1e9 * 100))
    assert error == pytest.approx(0.05 / 2.4 + 0.03)
    assert "total_flos" not in printed(extra='{"total_flos": "2.4e15"}')["closing"]  # no step
    one = printed(extra='{"total_flos": "6e11"}', step=100)
    assert one["closing"]["total_flos"][0] == 1.0
    assert not printed(extra='{"total_flos": "5.9e11"}', step=100)["closing"]


def timed(average: float | str, step: int, seconds: float) -> dict[str, Any]:
    extra = f'{{"average": {average}, "current": 1.0}}'
    return {"step": step, "logged_at": at(seconds), "extra": extra}


def test_the_timers_last_mean_by_the_usual_time_of_a_step() -> None:
    """Steps of 2 s, one of 30 s among them; the mean of 4 samples/s is 8 samples a step."""
    rows = [
        timed(9.0, 10, 0),
        timed(7.0, 20, 20),
        timed(6.0, 30, 320),
        timed(5.0, 40, 340),
        timed(4.0, 50, 360),
    ]
    row = printed(*rows)
    assert row["closing"]["timer_samples"] == (8.0, 0.4)
    assert row["running_samples_per_second"] == 4.0
    stated = printed(*rows, extra="{}", batch_stated=True)
    assert (stated["closing"], stated["running_samples_per_second"]) == ({}, 4.0)


def test_a_step_of_two_lines_has_one_stamp() -> None:
    rows = [timed(4.0, 10, 0), {"step": 10, "logged_at": at(15)}, timed(4.0, 20, 20)]
    assert printed(*rows)["closing"]["timer_samples"] == (8.0, 0.4)


def test_lines_of_one_stamp_tell_no_time() -> None:
    rows = [timed(4.0, 10, 0), timed(4.0, 20, 20), timed(4.0, 30, 20)]
    row = printed(*rows)
    assert (row["closing"], row["running_samples_per_second"]) == ({}, 4.0)


@pytest.mark.parametrize("average", [0.0, -1.0, "NaN", '"inf"'])
def test_a_mean_that_is_none_says_nothing(average: float | str) -> None:
    rows = [timed(4.0, 10, 0), timed(average, 20, 20)]
    assert printed(*rows) == {"closing": {}}


def test_a_line_behind_the_timers_last_takes_nothing_from_it() -> None:
    rows = [timed(4.0, 10, 0), timed(5.0, 20, 20), {"step": 30, "logged_at": at(40)}]
    assert printed(*rows)["closing"]["timer_samples"] == (10.0, 0.4)


@pytest.mark.parametrize("average", [1e31, 1e308, 1e-308])
def test_a_mean_that_no_run_can_have_ends_nothing(average: float, tmp_path: Path) -> None:
    """A damaged exponent: numpy's overflow would end the analysis of the run."""
    path = engine(tmp_path)
    path.write_text(
        re.sub(
            r"RunningAvgSamplesPerSec=[\d.]+",
            f"RunningAvgSamplesPerSec={average}",
            path.read_text(),
        )
    )
    row = analyse(tables_of(path, facts=FACTS)).metrics.row(0, named=True)
    assert row["error"] is None
    assert row["tgs"] is not None


# --- all_results.json beside a log ------------------------------------------------------------

RESULTS = {
    "epoch": 1.0,
    "total_flos": 6.0 * 4096 * 100 * PARAMS,
    "train_loss": 0.95,
    "train_runtime": 510.2,
    "train_samples_per_second": 3.137,
    "train_steps_per_second": 0.196,
}


def beside(tmp_path: Path, *, ended: bool, planned: int = 100, **values: float) -> dict[str, Any]:
    """The metrics of a console beside all_results.json, with or without its last line."""
    log = console(tmp_path)
    lines = log.read_text().splitlines()
    text = "\n".join(lines if ended else lines[:-1]) + "\n"
    log.write_text(text.replace("/100 [", f"/{planned} ["))
    (tmp_path / "all_results.json").write_text(json.dumps(RESULTS | values, indent=4))
    facts = FACTS | {"global_batch_size": 64, "model": "qwen3-8b"}
    return analyse(tables_of(log, facts=facts)).metrics.row(0, named=True)


def test_a_file_of_results_checks_the_batch_of_a_log_without_its_last_line(
    tmp_path: Path,
) -> None:
    row = beside(tmp_path, ended=False)
    doubts = [warning for warning in row["warnings"] if "token counts differ" in warning]
    assert "global_batch_size=16" in doubts[0]
    assert "4,096 tokens a step" in doubts[1]
    assert row["tgs"] is not None


@settings(max_examples=20 if THOROUGH else 5)
@given(factor=st.floats(1.01, 3), key=st.sampled_from(["samples", "steps"]))
def test_a_file_that_contradicts_the_last_line_is_not_used(factor: float, key: str) -> None:
    """The log's own words win, and the contradiction is named."""
    key = f"train_{key}_per_second"
    with TemporaryDirectory() as folder:
        row = beside(Path(folder), ended=True, **{key: RESULTS[key] * factor})
    with TemporaryDirectory() as folder:
        (console(Path(folder))).rename(Path(folder) / "alone.log")
        alone = analyse(
            tables_of(
                Path(folder) / "alone.log",
                facts=FACTS | {"global_batch_size": 64, "model": "qwen3-8b"},
            )
        ).metrics.row(0, named=True)
    told = [f"{key} is ", "total_steps: 100 (log:1) against "]  # whole steps give that fact
    assert {RESULTS_APART.identifier, FACTS_DIFFER.identifier} & {*row["warning_kinds"]}
    assert any(each in warning for warning in row["warnings"] for each in told)
    assert (row["tgs"], row["mfu"]) == (alone["tgs"], alone["mfu"])


def test_an_agreeing_file_adds_only_the_flops_that_the_console_lacks(tmp_path: Path) -> None:
    row = beside(tmp_path, ended=True)
    assert RESULTS_APART.identifier not in row["warning_kinds"]
    assert any("total_flos" in warning for warning in row["warnings"])
    fits = beside(tmp_path, ended=True, total_flos=6.0 * 64 * 256 * 100 * PARAMS)
    assert not any("total_flos" in warning for warning in fits["warnings"])


def test_a_file_with_other_planned_steps_is_of_another_run(tmp_path: Path) -> None:
    values = {"train_steps_per_second": 2.0, "train_samples_per_second": 32.0}
    row = beside(tmp_path, ended=False, **values)
    assert RESULTS_APART.identifier in row["warning_kinds"]
    assert not any("token counts differ" in warning for warning in row["warnings"])


def test_a_run_that_stopped_early_has_no_flops_of_all_planned_steps(tmp_path: Path) -> None:
    """The Trainer's steps a second are the planned ones over the time."""
    rates = {"train_steps_per_second": 1.9602, "train_samples_per_second": 31.363}
    row = beside(tmp_path, ended=False, planned=1000, **rates)
    assert RESULTS_APART.identifier not in row["warning_kinds"]
    (doubt,) = [warning for warning in row["warnings"] if "token counts differ" in warning]
    assert "total_flos" not in doubt


def test_results_alone_are_a_run_and_beside_a_log_are_none(tmp_path: Path) -> None:
    for name in ("train_results.json", "all_results.json"):
        (tmp_path / name).write_text(json.dumps(RESULTS, indent=4))
    (alone,) = FileWalk().of(tmp_path)
    assert Path(alone.path).name == "all_results.json"
    row = analyse(
        tables_of(tmp_path / "all_results.json", facts=FACTS | {"gpus": 8, "seq_len": 4096})
    ).metrics.row(0, named=True)
    assert row["tgs_end_to_end"] == pytest.approx(3.137 * 4096 / 8)
    assert row["warning_kinds"][0] == ONLY_LAST_LINE.identifier
    console(tmp_path)
    assert [Path(file.path).name for file in FileWalk().of(tmp_path)] == ["console.log"]
