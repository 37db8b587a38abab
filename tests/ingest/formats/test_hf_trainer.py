"""What the Hugging Face Trainer's logs leave to be inferred: steps, seconds, the engine beneath."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from fairmfu.ingest.detect.format_lookup import load_format_catalog
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.formats.hugging_face.trainer import (
    GENERATED_TOKENS_NOTE,
    OBJECTIVE_KEYS,
    TIMES_ELSEWHERE,
    UNKNOWN_TOKENS_NOTE,
)
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.ingest.pipeline.api import read_logs
from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.core.messages import NOT_RANKED, as_clause
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput import messages
from tests.support.effort import sampled
from tests.support.kinds import of_kind
from tests.support.one_log import tables_of

COUNTER_TOO_COARSE = messages.COUNTER_TOO_COARSE()
PROCESS_SUM_UNKNOWN = messages.PROCESS_SUM_UNKNOWN()
RANK_SUM_UNKNOWN = messages.RANK_SUM_UNKNOWN()

pytestmark = sampled(2)

DICT = "{{'loss': {}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1}}"
HEADER = (
    "***** Running training *****",
    "  Instantaneous batch size per device = 4",
    "  Total train batch size (w. parallel, distributed & accumulation) = 16",
    "  Gradient Accumulation steps = 2",
    "  Total optimization steps = 40",
)


def bar(step: int, seconds: int, total: int = 40) -> str:
    clock = f"{seconds // 60:02}:{seconds % 60:02}"
    return f" {100 * step // total:2}%|##   | {step}/{total} [{clock}<00:10,  1.00s/it]"


def rows(parsed: ParsedSource) -> list[tuple[int, float | None]]:
    return [(row["step"], row.get("since_start_s")) for one in parsed.launches for row in one.rows]


def test_the_bar_that_is_redrawn_behind_a_dict_has_its_step(
    parse: Callable[..., ParsedSource],
) -> None:
    lines = [
        f"\r{bar(3, 29)}\r       \r{DICT.format(2.5)}",  # the bar before is an older one
        f"\r{bar(5, 31)}\r{bar(9, 58)}\r       \r{DICT.format(2.4)}",
        f"\r{bar(10, 62)}",
    ]
    assert rows(parse("hf-trainer", lines)) == [(5, 31.0), (10, 62.0)]


def test_tqdm_draws_no_bar_where_the_terminal_has_no_width(
    parse: Callable[..., ParsedSource],
) -> None:
    lines = [DICT.format(2.5), bar(5, 31).replace("|##   |", "")]
    parsed = parse("hf-trainer", lines)
    assert rows(parsed) == [(5, 31.0)]
    assert parsed.lines == len(lines) == parsed.step_lines + parsed.known_lines


def test_a_viewer_may_have_made_lines_of_carriage_returns(
    parse: Callable[..., ParsedSource],
) -> None:
    lines = [bar(5, 31), "      ", DICT.format(2.5), "", bar(5, 31), bar(6, 37), DICT.format(2.4)]
    parsed = parse("hf-trainer", lines)
    assert rows(parsed) == [(5, 31.0), (6, None)]
    assert parsed.lines == len(lines) == parsed.step_lines + parsed.known_lines


def test_a_bar_in_front_of_another_message_may_have_gone_on(
    parse: Callable[..., ParsedSource],
) -> None:
    """On a terminal's screen it is the last state; in a file a \\r stands before each."""
    warning = "[WARNING] [stage3.py:2114:step] 2 pytorch allocator cache flushes since last step"
    screen = [DICT.format(2.5), f"{bar(9, 58)}{warning}", DICT.format(2.4), bar(10, 62)]
    assert rows(parse("hf-trainer", screen)) == [(9, None), (10, 62.0)]
    file = [DICT.format(2.5), f"\r{bar(5, 31)}\r{bar(9, 58)}{warning}", DICT.format(2.4)]
    assert rows(parse("hf-trainer", file)) == [(5, 31.0), (6, None)]


@pytest.mark.parametrize(
    "logged",
    ["[INFO|2025-04-30 22:57:10] llamafactory.train.callbacks:143 >> ", "llmtuner.callbacks - "],
)
def test_llamafactory_logs_each_dict_before_the_trainer_prints_it(
    logged: str, parse: Callable[..., ParsedSource]
) -> None:
    again = logged + "{'loss': 2.5, 'learning_rate': 4.9978e-05, 'epoch': 0.17}"
    first, second = f"\r{bar(5, 31)}", f"\r{bar(10, 62)}"
    lines = [again, DICT.format(2.5), f"{first}{again}", DICT.format(2.4), second]
    parsed = parse("hf-trainer", lines)
    assert rows(parsed) == [(5, 31.0), (10, 62.0)]
    assert (parsed.unread_lines, parsed.other_lines) == (0, 0)


def test_ms_swift_of_2024_prints_the_global_step_and_a_mean_speed(
    parse: Callable[..., ParsedSource],
) -> None:
    """They say the time; it was said that the log has none."""
    speeds = {1: 0.155, 5: 0.21, 10: 0.0}
    line = "{{'loss': 1.7, 'train_speed(iter/s)': {}, 'epoch': 0.1, 'global_step': {}}}"
    dicts = [line.format(speed, n) for n, speed in speeds.items()]
    expected = [(1, pytest.approx(1 / 0.155)), (5, pytest.approx(5 / 0.21)), (10, None)]
    assert rows(parse("hf-trainer", dicts)) == expected
    counted = [text.replace(", 'global_step'", ", 'steps'") for text in dicts]
    assert [since for _, since in rows(parse("hf-trainer", counted))] == [None, None, None]


def test_dicts_without_a_bar_are_counted_by_the_trainers_own_interval(
    parse: Callable[..., ParsedSource],
) -> None:
    engine = (
        "[2026-11-20 15:01:22,508] [INFO] [config.py:678:print]   steps_per_print .............. 7"
    )
    arguments = "TrainingArguments(output_dir=out, logging_strategy=steps, logging_steps=10)"
    dicts = [DICT.format(2.5), DICT.format(2.4)]
    alone = parse("hf-trainer", [engine, *dicts], ["deepspeed"])
    told = parse("hf-trainer", [engine, arguments, *dicts], ["deepspeed"])
    assert rows(alone) == [(1, None), (2, None)]
    assert rows(told) == [(10, None), (20, None)]


def test_bars_are_steps_where_no_dict_stands(parse: Callable[..., ParsedSource]) -> None:
    states = "\r".join([bar(1, 3), bar(2, 6), bar(2, 6), bar(7, 1, total=13), bar(3, 9)])
    parsed = parse("hf-trainer", [*HEADER, f"\r{states}", "done"])
    assert rows(parsed) == [(1, 3.0), (2, 6.0), (3, 9.0)]  # 13 are batches of an evaluation
    assert (parsed.lines, parsed.step_lines) == (7, 1)


def test_bars_without_the_header_are_of_anything(parse: Callable[..., ParsedSource]) -> None:
    assert rows(parse("hf-trainer", [bar(1, 3), bar(2, 6)])) == []


def test_a_clock_that_goes_back_is_another_process(parse: Callable[..., ParsedSource]) -> None:
    lines = []
    for step, seconds in ((10, 31), (20, 60), (20, 60), (30, 35)):
        lines += [DICT.format(2.5), bar(step, seconds)]
    launches = parse("hf-trainer", lines).launches
    assert [[row["step"] for row in one.rows] for one in launches] == [[10, 20, 20], [30]]


@pytest.mark.parametrize("interval", ["0.1", "0", "None"])
def test_an_interval_that_is_no_number_of_steps_is_none(
    interval: str, parse: Callable[..., ParsedSource]
) -> None:
    line = f"TrainingArguments(output_dir=out, logging_steps={interval}, bf16=False)"
    names = {fact["name"] for fact in parse("hf-trainer", [line]).launches[0].facts}
    assert "log_interval" not in names


def test_the_framework_is_the_engine_that_prints_beside_the_trainer(tmp_path: Path) -> None:
    quiet = "[2026-11-20 15:07:20,089] [INFO] [stage3.py:218:__init__] Reduce bucket size 500000000"
    for name, lines in {"transformers": (), "deepspeed": (quiet,)}.items():
        log = tmp_path / f"{name}.log"
        log.write_text("\n".join([*lines, *HEADER, DICT.format(2.5), bar(5, 31)]) + "\n")
        tables = read_log_tables(log)
        assert tables["runs"]["framework"].to_list() == [name]
        assert tables["sources"]["companions"].to_list() == [["deepspeed"] if lines else []]


def engine(step: int, second: int) -> list[str]:
    stamp, spent = f"[2024-01-01 00:{second // 60:02}:{second % 60:02},000] [INFO]", "MemAllocated"
    return [
        f"{stamp} [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], "
        "mom=[(0.9, 0.95)]",
        f"{stamp} [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, "
        f"RunningAvgSamplesPerSec=32.1, CurrSamplesPerSec=32.1, {spent}=7.8GB, Max{spent}=25.1GB",
    ]


BY_THE_ENGINE: Final = messages.ONLY_ENGINE_TIMES(engine="deepspeed")


@pytest.mark.parametrize("lines", [[0], [0, 1]], ids=["steps", "steps and timer"])
def test_dicts_without_times_say_that_the_engine_between_them_has_some(
    lines: list[int], tmp_path: Path
) -> None:
    """10 steps of 64 samples of 2,048 tokens on 8 GPUs in 20 s are 8,192 tokens/s/GPU."""
    log = tmp_path / "run.log"
    each = [[engine(10 * n, 20 * n)[k] for k in lines] + [DICT.format(3 - n / 9)] for n in range(9)]
    log.write_text("".join(f"{line}\n" for few in each[1:] for line in few))
    (row,) = analyse(read_log_tables(log)).metrics.rows(named=True)
    assert explain_missing_rate(row) == (as_clause(BY_THE_ENGINE), [])
    assert "--log-format deepspeed," in BY_THE_ENGINE
    given = facts_from_flags(["seq_len=2048", "gpus=8", "global_batch_size=64", "packed=true"])
    by_engine = read_log_tables(
        log, flag_facts=given, format_choice=load_format_catalog().tried(["deepspeed"])
    )
    (row,) = analyse(by_engine).metrics.rows(named=True)
    assert row["tgs"] == pytest.approx(8192.0)


EPOCH: Final = DICT.replace("0.1", "{}")
BETWEEN: Final = ("seq_len=2048", "gpus=2", "packed=true")
TOKENS_S: Final = 16 * 2048 / 2 / 2.0  # of one GPU: 16 samples on 2 of them in a step of 2 s


def beside_engine(tmp_path: Path, every: int, *, late: int = 0, bars: bool = False) -> dict:
    """40 steps of 2 s, the first one of 12, a dict each 5 and a line of the engine each `every`.

    late: steps that the engine's count is behind the Trainer's
    """
    lines = list(HEADER)
    for step in range(1, 41):
        if step % every == 0:
            lines.append(engine(step - late, 10 + 2 * step)[0])
        if step % 5 == 0:
            lines += [EPOCH.format(3 - step / 20, step / 50), *([bar(step, 10 + 2 * step)] * bars)]
    lines.append(
        "{'train_runtime': 90.3, 'train_samples_per_second': 7.087, 'train_steps_per_second': "
        "0.443, 'train_loss': 2.0, 'epoch': 0.8}"
    )
    log = tmp_path / "run.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    (row,) = analyse(read_log_tables(log, flag_facts=facts_from_flags(BETWEEN))).metrics.rows(
        named=True
    )
    return row


@pytest.mark.parametrize(("every", "windows"), [(1, 7), (5, 7), (10, 3)])
def test_dicts_without_times_are_timed_by_the_engines_lines_of_the_same_steps(
    every: int, windows: int, tmp_path: Path
) -> None:
    row = beside_engine(tmp_path, every)
    assert (row["tgs"], row["time_basis"], row["windows"]) == (TOKENS_S, "engine", windows)
    assert row["end_to_end_basis"] == "runtime"
    assert row["tgs_end_to_end"] == pytest.approx(40 * 2 * TOKENS_S / 90.3)
    assert not row["warnings"]


@pytest.mark.parametrize("late", [1, 5])
def test_lines_of_the_engine_that_count_otherwise_time_no_dict(late: int, tmp_path: Path) -> None:
    """Its step of the same number does not stand between the two dicts that it should."""
    row = beside_engine(tmp_path, 5, late=late)
    assert explain_missing_rate(row) == (as_clause(BY_THE_ENGINE), [])


def test_the_trainers_own_clock_goes_before_the_engines_lines(tmp_path: Path) -> None:
    row = beside_engine(tmp_path, 5, bars=True)
    assert (row["tgs"], row["time_basis"]) == (TOKENS_S, "clock")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("hf-trainer", DICT.format(2.5)),
        (
            "deepspeed-chat-rlhf",
            "epoch: 0|step: 7|ppo_ep: 1|act_loss: 0.1|cri_loss: 0.2|unsuper_loss: 0.0",
        ),
    ],
)
def test_steps_without_times_say_where_these_are(name: str, line: str, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(f"{line}\n" * 9)
    (row,) = analyse(read_log_tables(log)).metrics.rows(named=True)
    (elsewhere,) = (one.times_elsewhere for one in BUILT_IN_FORMATS if one.name == name)
    assert elsewhere
    assert explain_missing_rate(row) == (as_clause(messages.NO_TIMES_HERE(elsewhere=elsewhere)), [])


def test_a_bar_at_the_end_alone_times_all_steps_together(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    end = (
        "{'train_runtime': 82.4, 'train_samples_per_second': 0.971, 'train_steps_per_second': "
        "0.485, 'train_loss': 2.5, 'epoch': 1.0}"
    )
    bar = "100%|##########| 40/40 [01:22<00:00,  2.06s/it]"
    dicts = [DICT.format(2.5).replace("0.1}", f"{step / 40}}}") for step in range(1, 41)]
    log.write_text("".join(f"{line}\n" for line in (*dicts, end, bar)))
    facts = facts_from_flags(["gpus=1", "seq_len=2048", "global_batch_size=2", "packed=true"])
    (row,) = analyse(read_log_tables(log, flag_facts=facts)).metrics.rows(named=True)
    why, lacks = explain_missing_rate(row)
    rate = " (0.971 samples/s)"
    assert why == as_clause(messages.ONLY_TOTAL_TIME(rate=rate, elsewhere=TIMES_ELSEWHERE))
    assert not lacks
    assert row["end_to_end_basis"] == "runtime"
    assert row["tgs_end_to_end"] == pytest.approx(40 * 2 * 2048 / 82.4)


def test_a_state_file_that_breaks_off_is_seen(parse: Callable[..., ParsedSource]) -> None:
    lines = ["{", '  "log_history": [', "    {", '      "loss": 2.5,', '      "step": 10']
    parsed = parse("hf-trainer-state", lines)
    assert (parsed.step_lines, parsed.unread_lines, parsed.lines) == (0, 3, 5)


def test_steps_trained_again_with_the_same_loss_are_of_another_process(
    parse: Callable[..., ParsedSource],
) -> None:
    """Training may be deterministic: then only the time since its start tells a resume."""
    printed = [(10, 600), (20, 1200), (30, 1800), (20, 540), (30, 1140)]
    lines = [text for shown in printed for text in (DICT.format(2.5), bar(*shown, 400))]
    assert [len(launch.rows) for launch in parse("hf-trainer", lines).launches] == [3, 2]


EPOCHS = "{{'loss': '{:.3f}', 'grad_norm': '1.2', 'learning_rate': '1e-4', 'epoch': '{:.4f}'}}"
FINAL = (
    "{'train_runtime': '10.67', 'train_samples_per_second': '59.98', "
    "'train_steps_per_second': '3.749', 'train_loss': '6.618', 'epoch': '0.2344'}"
)


def counted(parse: Callable[..., ParsedSource], first: float, dicts: int, *more: str) -> list[int]:
    lines = [EPOCHS.format(7 - i / 10, first + i * 0.0293) for i in range(dicts)]
    return [step for step, _ in rows(parse("hf-trainer", [*lines, *more]))]


def test_the_end_tells_how_many_steps_lie_between_two_dicts(
    parse: Callable[..., ParsedSource],
) -> None:
    """10.67 s x 3.749 steps/s = 40.0 steps, of which eight were printed."""
    assert counted(parse, 0.0293, 8, FINAL) == [5, 10, 15, 20, 25, 30, 35, 40]


def test_the_epochs_tell_how_many_steps_lie_between_two_dicts(
    parse: Callable[..., ParsedSource],
) -> None:
    """2,730 samples in batches of 16 are some 170.6 steps, and 0.0293 of them 5."""
    header = [HEADER[0], "  Num examples = 2,730", *HEADER[1:]]
    lines = [EPOCHS.format(7 - n / 10, n * 0.0293) for n in range(1, 9)]

    def steps(*lines: str) -> list[int]:
        return [step for step, _ in rows(parse("hf-trainer", [*header, *lines]))]

    assert steps(*lines) == [5, 10, 15, 20, 25, 30, 35, 40]
    coarse = [EPOCHS.replace(".4f", ".2f").format(7.5, n * 0.0293) for n in range(1, 9)]
    assert steps(*coarse) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert steps(*coarse[:1]) == [1]  # 0.03 of an epoch is 4.3 to 6.0 steps
    assert steps(*lines[3:]) == [1, 2, 3, 4, 5]  # resumed: not from the start


def test_steps_stay_a_count_where_the_end_does_not_tell(parse: Callable[..., ParsedSource]) -> None:
    long = FINAL.replace("10.67", "7767").replace("3.749", "1.288")
    assert counted(parse, 0.0293, 8) == list(range(1, 9))
    assert counted(parse, 0.0293, 8, long) == list(range(1, 9))  # 10,004 steps, give or take 5
    assert counted(parse, 0.1465, 4, FINAL) == list(range(1, 5))  # resumed: not from the start
    assert counted(parse, 0.0293, 3, FINAL) == [1, 2, 3]  # 40 // 11, 40 // 12 and 40 // 13 are 3


def test_ms_swift_prints_the_step_and_the_time_in_the_dict(
    parse: Callable[..., ParsedSource],
) -> None:
    """In its own words, its bar has a name, and the line may stand behind it."""
    lines = [
        "Train:   2%|\u258f         | 1/60 [00:42<41:47, 42.51s/it]{'loss': '0.37', 'grad_norm': "
        "'0.89', 'learning_rate': '3.3e-05', 'epoch': '0.086', 'global_step/max_steps': '1/60', "
        "'elapsed_time': '43s', 'remaining_time': '41m 48s', 'memory(GiB)': '14.5'}",
        "{'loss': 0.30, 'grad_norm': 0.65, 'learning_rate': 9.9e-05, 'memory(GiB)': 14.5, 'epoch': "
        "0.43, 'global_step/max_steps': '5/60', 'percentage': '8.33%', 'elapsed_time': '3m 53s'}",
        "{'loss': 0.23, 'grad_norm': 0.65, 'learning_rate': 8.6e-07, 'memory(GiB)': 14.5, 'epoch': "
        "0.64, 'global_step/max_steps': '56/60', 'percentage': '93.3%', 'elapsed_time': "
        "'1h 22m 38s', 'remaining_time': '6m 4s'}",
    ]
    rows = parse("hf-trainer", lines).launches[0].rows
    expected = [(1, 43.0), (5, 233.0), (56, 4958.0)]
    assert [(row["step"], row["since_start_s"]) for row in rows] == expected
    for other in ("iteration", "steps[global_step/max_steps]"):  # of Megatron, and of mid-2024
        renamed = [line.replace("global_step/max_steps", other) for line in lines]
        again = parse("hf-trainer", renamed).launches[0].rows
        assert [(row["step"], row["since_start_s"]) for row in again] == expected
    assert {row["peak_memory_bytes"] for row in rows} == {14.5 * 2**30}


@pytest.mark.parametrize("key", ["global_step/max_steps", "iteration"])
def test_a_dict_of_ms_swift_has_the_planned_steps(
    key: str, parse: Callable[..., ParsedSource]
) -> None:
    """Only its .jsonl gave them, and a run that broke off was not seen to."""
    lines = [
        f"{{'loss': 0.2, 'epoch': 0.5, '{key}': '{step}/176', 'elapsed_time': '1h 7m {step}s'}}"
        for step in (45, 46)
    ]
    (launch,) = parse("hf-trainer", lines).launches
    assert launch.last_value("total_steps") == "176"
    assert [row["step"] for row in launch.rows] == [45, 46]


def test_ms_swift_had_another_key_in_the_middle_of_2024(parse: Callable[..., ParsedSource]) -> None:
    lines = [
        f'{{"loss": 1.85694408, "acc": 0.59182997, "epoch": 0.5, "steps[global_step/max_steps]": '
        f'"{step}/61", "percentage": "50%", "elapsed_time": "{step // 15}m {step % 15 * 4}s"}}'
        for step in (30, 60)
    ]
    rows = parse("ms-swift", lines).launches[0].rows
    assert [(row["step"], row["since_start_s"]) for row in rows] == [(30, 120.0), (60, 240.0)]


@pytest.mark.parametrize(
    ("place", "said", "seconds"),
    [
        ("5/60", "'elapsed_time': '10s', 'train_speed(iter/s)': 0.48", 5 / 0.48),
        ("15/16", "'elapsed_time': '3m 11s', 'train_speed(iter/s)': '0.078265'", 15 / 0.078265),
        ("3/90", "'elapsed_time': '3m 12s', 'train_speed(s/it)': 63.92", 191.76),  # rounded
        ("43/90", "'elapsed_time': '3m 12s', 'train_speed(s/it)': 63.92", 191.76),  # resumed at 40
        ("430/900", "'elapsed_time': '3m 12s', 'train_speed(s/it)': 0.6392", 192.0),  # or at 130
        ("5/60", "'elapsed_time': '3m 2s', 'train_speed(iter/s)': 0.026265", 182.0),  # 8 s before
        ("5/60", "'elapsed_time': '10s', 'train_speed(iter/s)': 0.0", 10.0),
    ],
)
def test_the_mean_speed_of_ms_swift_is_finer_than_its_clock(
    place: str, said: str, seconds: float, parse: Callable[..., ParsedSource]
) -> None:
    """Windows of 10 s by clocks of whole seconds made TGS 2.6 % too low."""
    line = f"{{'loss': 0.3, 'grad_norm': 0.6, 'global_step/max_steps': '{place}', {said}}}"
    (row,) = parse("hf-trainer", [line]).launches[0].rows
    assert row["since_start_s"] == pytest.approx(seconds)


def test_a_mean_speed_is_weighed_in_lines_that_are_read_by_their_shape(tmp_path: Path) -> None:
    """The shape is learned where it is of another clock, which began 7 s before the loop."""
    line = (
        '{{"loss": 1.41207712, "grad_norm": 9.8125, "learning_rate": 1e-05, "epoch": 0.05, '
        '"global_step/max_steps": "{}/9000", "elapsed_time": "{}s", '
        '"train_speed(iter/s)": {:.6f}}}\n'
    )
    seconds = [10 + step % 40 + (7 if step < 1000 else 0.25) for step in range(1, 2000)]
    lines = (line.format(step, 10 + step % 40, step / s) for step, s in enumerate(seconds, 1))
    path = tmp_path / "logging.jsonl"
    path.write_text("".join(lines))
    by_shape, by_line = (
        read_log_tables(path, use_fast_path=fast)["steps"] for fast in (True, False)
    )
    assert by_shape.equals(by_line)
    clocks = [s - 7 if step < 1000 else s for step, s in enumerate(seconds, 1)]
    assert by_shape["since_start_s"].to_list() == pytest.approx(clocks, abs=0.01)


LLAMAFACTORY = (
    '{{"current_steps": 5, "total_steps": 90, "loss": 1.5, {}"elapsed_time": "0:00:11"{}}}'
)


def test_the_throughput_of_llamafactory_is_finer_than_its_clock(
    parse: Callable[..., ParsedSource],
) -> None:
    counted = ', "throughput": 4096.0, "total_tokens": 47104'  # in 11.5 s
    since = []
    for said in (counted, ', "throughput": 8192.0, "total_tokens": 47104', ""):
        (row,) = parse("llamafactory", [LLAMAFACTORY.format("", said)]).launches[0].rows
        since.append(row["since_start_s"])
    assert since == [11.5, 11.0, 11.0]


@pytest.mark.parametrize(
    ("key", "objective"),
    [
        ('"accuracy": 0.55, ', "preference"),
        ('"reward": 0.1, ', "reinforcement"),
        ('"reward": null, "accuracy": null, ', None),
    ],
)
def test_llamafactory_tells_what_the_loss_is_of(
    key: str, objective: str | None, tmp_path: Path
) -> None:
    """Its accuracy is that of rewards: a pair of DPO was one sequence, and ranked."""
    log = tmp_path / "trainer_log.jsonl"
    log.write_text(LLAMAFACTORY.format(key, "") + "\n")
    facts = tables_of(log)["facts"].filter(name="objective")["value"].to_list()
    assert facts == ([] if objective is None else [objective])


def test_an_evaluation_that_prints_no_time_spoils_the_next_window(tmp_path: Path) -> None:
    """On the console of Megatron-SWIFT: TGS was that of training and evaluation, 29 % too low."""
    log = tmp_path / "run.log"
    clock = {1: 31, 5: 71, 10: 121, 15: 231, 20: 281}
    said = (
        "{{'{0}': 1.7, 'learning_rate': 1e-05, 'iteration': '{1}/40', 'elapsed_time': '{2}m {3}s'"
    )
    each = {step: said.format("loss", step, *divmod(s, 60)) for step, s in clock.items()}
    each[10] += "}\n" + said.format("eval_loss", 10, 3, 1)
    log.write_text("".join(f"{one}}}\n" for one in each.values()))
    facts = {"gpus": 8, "seq_len": 4096, "packed": True, "global_batch_size": 32}
    row = analyse(tables_of(log, facts=facts)).metrics.row(0, named=True)
    assert row["tgs"] == pytest.approx(4 * 4096 / 10)


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        ("'num_input_tokens_seen': {}", ["gpus"]),
        (
            "'grad_norm': {}.0",
            ["log_interval", "seq_len", "gpus", "global_batch_size", "packed"],
        ),
    ],
)
def test_only_what_the_lines_do_not_print_is_asked_for(
    printed: str, missing: list[str], tmp_path: Path
) -> None:
    """It asked for the batch and the length of a log that counts its tokens."""
    log = tmp_path / "run.log"
    said = "{{'loss': 2.5, 'epoch': 0.{n}, {more}, 'train_runtime': {n}0.5}}\n"
    log.write_text("".join(said.format(n=n, more=printed.format(8192 * n)) for n in range(1, 5)))
    row = analyse(tables_of(log)).metrics.row(0, named=True)
    assert explain_missing_rate(row)[1] == missing
    assert bool(of_kind(row, messages.PADDED_TOKENS_UNKNOWN)) == ("packed" in missing)


def test_counted_lines_give_no_rate_by_the_batch(tmp_path: Path) -> None:
    """One dict in 25 steps is not the tokens of one step: TGS was a 25th, and ranked."""
    log = tmp_path / "run.log"
    said = "{{'loss': 2.5, 'epoch': {e}, {tokens}'train_runtime': {s}}}\n"
    facts = {"gpus": 1, "seq_len": 2048, "packed": True, "global_batch_size": 16}

    def rates(tokens: str = "", **more: int) -> tuple[float | None, float | None, list[str]]:
        each = [
            said.format(e=n / 4, s=100.0 * n, tokens=tokens.format(25 * 16 * 2048 * n))
            for n in (1, 2, 3, 4)
        ]
        log.write_text("".join(each))
        tables = tables_of(log, facts=facts | more)
        row = analyse(tables).metrics.row(0, named=True)
        return row["tgs"], row["tgs_end_to_end"], row["missing"]

    assert rates()[:2] == (None, None)
    assert rates()[2][0] == "log_interval"
    assert rates(log_interval=25)[:2] == (8192.0, 8192.0)
    assert rates("'num_input_tokens_seen': {}, ")[:2] == (8192.0, 8192.0)


@pytest.mark.parametrize(
    ("prefix", "interval", "seconds"),
    [
        ("[INFO|2026-11-26 22:{:02}:01] logging.py:157 >> ", 5, 12.0),
        ("[INFO|2026-11-26 22:{:02}:01] logging.py:157 >> ", None, None),
        ("2026-11-26T22:{:02}:01.5Z ", 5, None),  # a collector's stamps, of a buffer
    ],
)
def test_the_stamps_of_llamafactorys_own_file_time_its_dicts(
    prefix: str, interval: int | None, seconds: float | None, tmp_path: Path
) -> None:
    """No time was read, and each window was said to hold start-up, an evaluation or the like."""
    lines = [prefix.format(minute) + DICT.format(2.0 + minute / 100) for minute in range(8)]
    facts = {"seq_len": 2048, "packed": True, "global_batch_size": 16}
    known = facts if interval is None else facts | {"log_interval": interval}
    (row,) = metrics_of(tmp_path / "run.log", lines, **known)
    assert row["seconds_per_step"] == seconds
    assert (row["steps"], row["last_step"]) == (8, None)  # counted
    assert row["tgs"] == (seconds and pytest.approx(16 * 2048 / 2 / seconds))
    assert not of_kind(row, messages.NO_CLEAN_WINDOW)


@pytest.mark.parametrize(("key", "told"), OBJECTIVE_KEYS.items())
def test_keys_of_trl_tell_what_the_loss_is_of(
    key: str, told: tuple[str, str], parse: Callable[..., ParsedSource]
) -> None:
    """On the console, in trainer_state.json and in event files."""
    name, value = told
    said = {"hf-trainer": f"{{'loss': 0.49, '{key}': 0.5, 'learning_rate': 1e-06, 'epoch': 0.2}}"}
    said["hf-trainer-state"] = f"""{{
  "log_history": [
    {{
      "epoch": 0.2,
      "{key}": 0.5,
      "loss": 0.49,
      "step": 5
    }}
  ]
}}"""
    tags = (
        f'{{"tag": "train/{tag}", "step": 5, "wall_time": 1795187241.0, "value": 0.5}}'
        for tag in ("loss", key)
    )
    said["hf-trainer-tensorboard"] = "\n".join(tags)
    for log_format, text in said.items():
        stated = parse(log_format, f"{text}\n").launches[0].facts
        assert [f["value"] for f in stated if f["name"] == name] == [value], log_format


SFT = (
    "{{'loss': 1.2, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'entropy': 1.1, "
    "'num_tokens': {}, 'mean_token_accuracy': 0.71, 'epoch': {}}}"
)


def metrics_of(log: Path, lines: Sequence[str], **facts: object) -> list[dict[str, Any]]:
    """Metrics of the launches of these lines, in their order."""
    log.write_text("\n".join(lines) + "\n")
    found = analyse(tables_of(log, facts={"gpus": 2} | facts)).metrics.sort("launch")
    return found.to_dicts()


def trained(*shown: tuple[int, int, str], line: str = SFT) -> list[str]:
    """Dicts with their bars: step, seconds, count."""
    return [
        text
        for step, seconds, tokens in shown
        for text in (line.format(tokens, step / 40), bar(step, seconds))
    ]


def test_trl_counts_tokens_without_padding_over_all_ranks(tmp_path: Path) -> None:
    shown = [(5 * n, 100 * n, f"{8000.0 * n}") for n in range(1, 9)]
    (row,) = metrics_of(tmp_path / "run.log", trained(*shown))
    assert (row["tgs"], row["tokens_per_second"], row["token_basis"]) == (40, 80, "non_padding")
    assert row["tokens_per_gpu_step"] == 800
    assert (row["tgs_end_to_end"], row["end_to_end_basis"]) == (40, "clock from start")


def test_padding_shows_beside_the_slots_that_the_trainer_counts(tmp_path: Path) -> None:
    line = SFT.replace("'epoch'", "'num_input_tokens_seen': {slots}, 'epoch'")
    shown = [
        text
        for n in range(1, 9)
        for text in (line.format(8000.0 * n, n / 8, slots=10000 * n), bar(5 * n, 100 * n))
    ]
    (row,) = metrics_of(tmp_path / "run.log", shown)
    assert (row["tgs"], row["tgs_slots"], row["token_gap"]) == (40, 50, None)
    assert row["token_counts"] == [
        "tokens without padding 800.0 / consumed tokens 1,000.0 tokens per GPU and step: "
        "20.0% of the slots are padding"
    ]
    assert not [told for told in row["warnings"] if told.startswith(NOT_RANKED)]
    fewer = [text.replace("_seen': ", "_seen': 0.") for text in shown]
    (row,) = metrics_of(tmp_path / "run.log", fewer)  # fewer slots than tokens: no padding is that
    assert [told for told in row["warnings"] if told.startswith(NOT_RANKED)]


def test_a_counter_that_begins_anew_with_a_resume_is_counted_on_both_sides(tmp_path: Path) -> None:
    """The resumed process counts from 0, and the step that it went on from is not printed."""
    first = [(5 * n, 100 * n, f"{8000.0 * n}") for n in range(1, 5)]
    again = [(10 + 5 * n, 100 * n, f"{8000.0 * n}") for n in range(1, 6)]
    rows = metrics_of(tmp_path / "run.log", trained(*first, *again))
    assert [row["tgs"] for row in rows] == [40, 40]
    loaded = ["TrainingArguments(output_dir=out, logging_strategy=steps, logging_steps=5)"]
    loaded += ["  Continuing training from global step 10"]
    rows = metrics_of(tmp_path / "run.log", trained(*first) + loaded + trained(*again))
    whole = [(row["tgs_end_to_end"], row["end_to_end_basis"]) for row in rows]
    assert whole == [(40, "clock from start")] * 2


def test_an_excerpt_does_not_count_its_first_line_from_the_start(tmp_path: Path) -> None:
    shown = [(5 * n, 100 * n, f"{8000.0 * n}") for n in range(4, 9)]
    (row,) = metrics_of(tmp_path / "run.log", trained(*shown))
    assert (row["tgs"], row["tgs_end_to_end"], row["end_to_end_basis"]) == (40, 40, "clock")


def test_a_resumed_run_without_steps_does_not_train_what_its_counter_began_with(
    tmp_path: Path,
) -> None:
    """No bar, no step: the lines are counted from 1, the Trainer's tokens go on from before."""
    text = (
        "{{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': {}, 'num_input_tokens_seen': {}, "
        "'train_runtime': {}, 'train_tokens_per_second': 1.0}}"
    )
    for earlier, basis in ((0, "clock from start"), (5, "clock")):
        shown = range(1 + earlier, 9 + earlier)
        lines = [text.format(n / 10, 8000 * n, 100.0 * (n - earlier)) for n in shown]
        (row,) = metrics_of(tmp_path / "run.log", lines)
        assert (row["tgs"], row["tgs_end_to_end"], row["end_to_end_basis"]) == (40, 40, basis)
        assert not [told for told in row["warnings"] if told.startswith(NOT_RANKED)]


def test_an_evaluation_before_the_first_line_may_be_in_its_count(tmp_path: Path) -> None:
    """TRL 0.16 and 0.17 took one that the control did not ask for as training."""
    evaluated = "{'eval_loss': 2.1, 'eval_runtime': 3.2, 'eval_num_tokens': 0, 'epoch': 0}"
    shown = [(5 * n, 100 * n, f"{50000 + 8000.0 * n}") for n in range(1, 9)]
    (row,) = metrics_of(tmp_path / "run.log", [evaluated, *trained(*shown)])
    assert (row["tgs"], row["tgs_end_to_end"]) == (40, 40)
    assert row["end_to_end_basis"] == "clock"


def test_four_digits_are_enough_over_many_lines(tmp_path: Path) -> None:
    """Since transformers 5.0 the console rounds: 1.235e+07, and each line adds 330,000."""
    lines = [
        text
        for n in range(1, 41)
        for text in (SFT.format(f"'{330000 * n:.4g}'", n / 40), bar(10 * n, 20 * n, total=400))
    ]
    cut_off = SFT.format(f"'{330000 * 41:.4g}'", 41 / 40)  # its bar is not drawn any more
    (row,) = metrics_of(tmp_path / "run.log", [*lines, cut_off])
    assert row["tgs"] == pytest.approx(8250, rel=0.002)


def test_a_count_that_is_too_coarse_gives_no_figure_and_says_so(tmp_path: Path) -> None:
    shown = [(n, 2 * n, f"'{1234000 + 330 * n:.4g}'") for n in range(1, 21)]
    (row,) = metrics_of(tmp_path / "run.log", trained(*shown))
    assert row["tgs"] is None
    assert COUNTER_TOO_COARSE in row["warnings"]


def test_runs_with_the_count_and_without_stand_in_one_store(tmp_path: Path) -> None:
    with_it = [(5 * n, 100 * n, f"{8000.0 * n}") for n in range(1, 9)]
    (alone,) = metrics_of(tmp_path / "a.log", trained(*with_it))
    for bare in ("'aux_loss': {}", "'num_input_tokens_seen': {}"):
        lines = trained(*with_it, line=SFT.replace("'num_tokens': {}", bare))
        (tmp_path / "b.log").write_text("\n".join(lines) + "\n")
        both = analyse(read_logs(tmp_path / "a.log", tmp_path / "b.log", facts={"gpus": 2}))
        rows = {row["run_id"]: row for row in both.metrics.to_dicts()}
        assert len(rows) == 2
        assert rows[alone["run_id"]]["tgs"] == alone["tgs"] == 40


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            "'completions/mean_length': 211.5, 'reward': 0.2, 'mean_token_accuracy': 0.5",
            GENERATED_TOKENS_NOTE,
        ),
        ("'completion_length': 211.5, 'rewards/margins': 0.2", GENERATED_TOKENS_NOTE),
        ("'reward': 0.2", UNKNOWN_TOKENS_NOTE),
        ("'aux_loss': 0.1", UNKNOWN_TOKENS_NOTE),
    ],
)
def test_a_count_of_another_trainer_is_no_count_of_the_training(
    fields: str, why: str, tmp_path: Path
) -> None:
    line = SFT.replace("'entropy': 1.1", fields).replace("'mean_token_accuracy': 0.71, ", "")
    seen = "{}, 'num_input_tokens_seen': {}"  # of GRPO the same; else the Trainer's own
    shown = [(5 * n, 100 * n, seen.format(8000.0 * n, 10000 * n)) for n in range(1, 9)]
    (row,) = metrics_of(tmp_path / "run.log", trained(*shown, line=line))
    assert (row["tgs"], row["token_basis"]) == (
        None if why == GENERATED_TOKENS_NOTE else 50,
        "slots",
    )
    assert messages.TOKENS_UNCOUNTED(reason=why) in row["warnings"]


@pytest.mark.parametrize(
    "sharing", [{"tensor_parallel": 2}, {"context_parallel": 2}, {"data_parallel": 1}]
)
def test_ranks_that_share_tokens_may_have_counted_them_twice(
    sharing: dict[str, int], tmp_path: Path
) -> None:
    shown = [(5 * n, 100 * n, f"{8000.0 * n}") for n in range(1, 9)]
    (row,) = metrics_of(tmp_path / "run.log", trained(*shown), **sharing)
    assert row["tgs"] is None
    assert RANK_SUM_UNKNOWN in row["warnings"]


@pytest.mark.parametrize(
    ("summed", "rate", "whole"),
    [(40, 40, True), (20, 40, False), (40, 20, False), (None, 40, True)],
    ids=["begun at 0", "resumed", "resumed, transformers 5", "no mean"],
)
def test_the_state_of_a_resumed_run_has_the_time_of_its_last_process_alone(
    summed: int | None, rate: int, *, whole: bool, tmp_path: Path
) -> None:
    """Its mean loss is the sum of that process over all steps, or its rate is of its own steps."""
    lines = [{"epoch": n / 40, "loss": 2.5, "step": n} for n in range(10, 41, 10)]
    end = {"epoch": 1.0, "step": 40, "total_flos": 0.0, "train_runtime": 80.0}
    end |= {} if summed is None else {"train_loss": 2.5 * summed / 40}
    end |= {"train_samples_per_second": 1.0, "train_steps_per_second": rate / 80}
    state = {"global_step": 40, "log_history": [*lines, end], "logging_steps": 10, "max_steps": 40}
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(state, indent=2, sort_keys=True))
    facts = {"gpus": 1, "seq_len": 2048, "global_batch_size": 2, "packed": True}
    (row,) = analyse(tables_of(path, facts=facts)).metrics.to_dicts()
    assert row["tgs_end_to_end"] == (2048 if whole else None)


@pytest.mark.parametrize(
    ("sharing", "tgs"),
    [({"tensor_parallel": 2}, None), ({"context_parallel": 2}, None), ({"data_parallel": 1}, 40)],
)
def test_the_trainer_sums_the_tokens_of_each_process(
    sharing: dict[str, int], tgs: float | None, tmp_path: Path
) -> None:
    """Also of those that are given the same ones; one process on several devices is one."""
    line = SFT.replace("'num_tokens'", "'num_input_tokens_seen'")
    shown = [(5 * n, 100 * n, f"{8000 * n}") for n in range(1, 9)]
    (row,) = metrics_of(tmp_path / "run.log", trained(*shown, line=line), **sharing)
    assert (row["tgs"], PROCESS_SUM_UNKNOWN in row["warnings"]) == (tgs, tgs is None)


def test_it_does_with_deepspeed_below_it_too(tmp_path: Path) -> None:
    """Under AutoTP each rank's tokens counted for each of those that share them, ranked."""
    engine = "[2026-05-01 09:59:50,000] [INFO] [launch.py:170:main] dist_world_size=8"
    line = SFT.replace("'num_tokens'", "'num_input_tokens_seen'")
    shown = [(5 * n, 100 * n, f"{8000 * n}") for n in range(1, 9)]
    (row,) = metrics_of(
        tmp_path / "run.log", [engine, *trained(*shown, line=line)], tensor_parallel=2
    )
    assert row["framework"] == "deepspeed"
    assert (row["tgs"], PROCESS_SUM_UNKNOWN in row["warnings"]) == (None, True)


def test_a_step_that_evaluates_may_lack_the_count(tmp_path: Path) -> None:
    """TRL up to 0.17: its tokens are those of the steps around it, on the mean."""
    shown = [(5 * n, 100 * n, f"{8000.0 * n}") for n in range(1, 9)]
    lines = trained(*shown)
    lines[6] = DICT.format(1.1)
    lines.insert(8, "{'eval_loss': 2.1, 'eval_runtime': 3.2, 'epoch': 0.5}")
    (row,) = metrics_of(tmp_path / "run.log", lines)
    assert (row["tgs"], row["windows"]) == (40, 6)
