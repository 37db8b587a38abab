"""What the parser makes of awkward lines, and that it counts every line once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain, count
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.spill import Spool
from fairmfu.ingest.decode.line_reader import NumberedLine, Source
from fairmfu.ingest.detect.detection import BUILT_IN_CHOICE
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.formats.torchtitan.console import TORCHTITAN
from fairmfu.ingest.launches.row_chunks import frame_of_rows
from fairmfu.ingest.launches.step_rows import PARSED_STEP_SCHEMA
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.parse.line_parser import LineParser, parse_lines
from fairmfu.ingest.parse.rank_and_time import parse_stamp
from fairmfu.ingest.parse.record_sink import ParsedSource, RecordSink
from fairmfu.ingest.parse.records import record_of
from fairmfu.ingest.parse.step_fields import _cut_pairs
from tests.support.effort import THOROUGH

Parse = Callable[..., ParsedSource]


def rows_of(parsed: ParsedSource) -> list[dict]:
    (launch,) = parsed.launches
    return launch.rows


def facts_of(parsed: ParsedSource) -> dict[str, str]:
    (launch,) = parsed.launches
    return {fact["name"]: fact["value"] for fact in launch.stated}


def titan_step(step: int, loss: str = "5.0", *, tail: str = "tps: 1,234  mfu: 40.00%") -> str:
    return f"step: {step:2}  loss: {loss}  memory: 41.20GiB(52.01%)  {tail}"


def xtuner_step(where: str, rest: str = "time: 0.5  loss: 1.5", stamp: str = "2026/01/02") -> str:
    return f"{stamp} 03:04:05 - mmengine - INFO - {where}  lr: 1e-4  {rest}"


def xtuner_v1_step(step: int, tokens: str, rank: int = 0) -> str:
    return (
        f"[XTuner][RANK {rank}][2026-01-02 03:04:05][INFO] Step {step}/9 lr: 0.1 time: 2.0 "
        f"text_tokens: 100.0 {tokens} reduced_llm_loss: 1.5"
    )


# -- what stands around a record -----------------------------------------------------------


@pytest.mark.parametrize("colour", ["\x1b[31m", "[31m", "\x1b[38;2;180;60;0m", "[38;2;54;234;195m"])
def test_colours_with_and_without_escape_character_are_stripped(colour: str, parse: Parse) -> None:
    text = f"{colour}step:  7  {colour}loss:  5.5  {colour}memory:  1.50GiB(3%)  {colour}tps: 1,234"
    (row,) = rows_of(parse("torchtitan", [f"{text}\x1b[39m"]))
    assert (row["step"], row["loss"], row["logged_tgs"]) == (7, 5.5, 1234)


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[rank3]:", "3"),
        ("[default0]:", "0"),
        ("5: ", "5"),
        ("  ", None),
        ("[titan] ", None),
        (" 12: ", "12"),
        ("1: [rank0]:[titan] ", "1:0"),
        ("[rank2]:[rank2]:[titan] ", "2"),
        ("[trainer55|7]:", "55"),
        ("[1,4]<stdout>:", "4"),
        ("[20260306 10:15:16][rank-7/8][INFO ] [--------trainer.py:2382] : ", "7"),
        (
            "[20260306 10:15:16][a/b][pre_trainer ][ip-10.0.0.7][rank-12/16][INFO]     [x.py:1] : ",
            "12",
        ),
        ("[default3]:[20260306 10:15:16][rank-11/16][WARNING]  [x.py:1] : ", "11"),
        ("[20260306 10:15:16][INFO] ", None),
        ("Loading: 0%|  | 0/408 [00:00<?, ?it/s][rank5]:[titan] ", "5"),
    ],
)
def test_the_rank_of_a_launcher_prefix_is_kept(prefix: str, rank: str | None, parse: Parse) -> None:
    (row,) = rows_of(parse("torchtitan", [prefix + titan_step(1)]))
    assert (row["rank"], row["step"]) == (rank, 1)


# -- launches ------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "{rank}: ", "[rank{rank}]:"])
def test_eight_copies_of_one_step_are_one_launch(prefix: str, parse: Parse) -> None:
    copies = [
        prefix.format(rank=rank) + titan_step(step, str(6 - step))
        for step in (1, 2)
        for rank in range(8)
    ]
    assert [row["step"] for row in rows_of(parse("torchtitan", copies))] == [1] * 8 + [2] * 8


def test_copies_that_come_late_are_still_one_launch(parse: Parse) -> None:
    lines = ["0: " + titan_step(step, str(9 - step)) for step in (1, 2, 3)]
    lines += ["1: " + titan_step(step, str(9 - step)) for step in (1, 2, 3)]
    assert len(rows_of(parse("torchtitan", lines))) == 6


def test_a_step_that_comes_again_with_another_loss_begins_a_launch(parse: Parse) -> None:
    lines = [titan_step(step, loss) for step, loss in ((1, "5.0"), (2, "4.0"), (1, "5.1"))]
    launches = parse("torchtitan", lines).launches
    assert [len(launch.rows) for launch in launches] == [2, 1]
    assert launches[1].first_line == 3


@pytest.mark.parametrize("prefix", ["", "[default7]:", "0: "])
def test_the_last_step_may_come_again_of_the_same_tag(prefix: str, parse: Parse) -> None:
    """As of a tee, or of two nodes whose ranks are called alike: each line was a launch."""
    twice = [prefix + MEGATRON_STEP.format(step) for step in (1, 2, 3) for _ in "ab"]
    rows = rows_of(parse("megatron-deepspeed", twice))
    assert [row["step"] for row in rows] == [1, 1, 2, 2, 3, 3]


def test_a_rank_that_goes_back_begins_a_launch(parse: Parse) -> None:
    lines = ["[default7]:" + MEGATRON_STEP.format(step) for step in (1, 2, 3, 2, 3)]
    assert [len(one.rows) for one in parse("megatron-deepspeed", lines).launches] == [3, 2]


def swift_step(step: int, loss: str = "2.5", seconds: int | None = None) -> str:
    since = 3 * step if seconds is None else seconds
    return (
        f"{{'loss': {loss}, 'learning_rate': 1e-05, 'epoch': 0.1, 'global_step/max_steps': "
        f"'{step}/9', 'elapsed_time': '{since}s'}}"
    )


DONE_TRAINING = "{'train_runtime': 27.1, 'train_samples_per_second': 6.3}"
MEGATRON_STEP = " iteration {}/  9 | consumed samples: 96 | lm loss: 9.0E+00 |"


@pytest.mark.parametrize(
    ("form", "step", "end"),
    [
        ("hf-trainer", swift_step, DONE_TRAINING),
        ("hf-trainer", lambda _: "{'loss': 2.5, 'epoch': 0.1}", DONE_TRAINING),  # counted
        ("torchtitan", titan_step, "Training completed"),
        (
            "megatron-deepspeed",
            MEGATRON_STEP.format,
            "[after training is done] datetime: 2026-01-02 03:04:05",
        ),
        (
            "llamafactory",
            '{{"current_steps": {}, "total_steps": 3, "loss": 2.5, "epoch": 0.1}}'.format,
            '{"current_steps": 3, "total_steps": 3, "epoch": 0.3}',
        ),
    ],
)
@pytest.mark.parametrize("tag", ["", "[rank0]:"])
def test_the_first_step_behind_a_launchs_own_end_begins_another_whatever_its_loss(
    form: str, step: Callable[[int], str], end: str, tag: str, parse: Parse
) -> None:
    lines = [tag + line for line in [*map(step, (1, 2, 3)), end]]
    launches = parse(form, [*lines, "", *lines]).launches
    assert [len(launch.rows) for launch in launches] == [3, 3]
    assert [launch.first_line for launch in launches] == [1, 6]
    assert [[e["line"] for e in launch.events] for launch in launches] == [[4], [9]]


def test_a_step_behind_an_end_that_another_form_of_line_has_printed_begins_a_launch(
    parse: Parse,
) -> None:
    """One without the bar that the others have behind them."""
    bar = " 11%|█         | 1/9 [00:03<00:24,  3.00s/it]"
    lines = [swift_step(1), bar, swift_step(5), DONE_TRAINING, swift_step(1), swift_step(5)]
    launches = parse("hf-trainer", lines).launches
    assert [[row["step"] for row in launch.rows] for launch in launches] == [[1, 5], [1, 5]]


@pytest.mark.parametrize("tag", ["", "{}: "])
def test_last_steps_of_other_ranks_behind_an_end_are_of_its_launch(tag: str, parse: Parse) -> None:
    ranks = [tag.format(rank) for rank in (0, 1)]
    lines = [rank + titan_step(step) for step in (1, 2) for rank in ranks]
    lines += [ranks[0] + titan_step(3), ranks[0] + "Training completed"]
    lines += [ranks[1] + titan_step(3), ranks[1] + "Training completed"]
    assert [row["step"] for row in rows_of(parse("torchtitan", lines))] == [1, 1, 2, 2, 3, 3]


def test_first_steps_of_another_rank_behind_an_end_are_of_its_launch(parse: Parse) -> None:
    lines = [
        f"{rank}: {line}"
        for rank in (0, 1)
        for line in [*map(titan_step, (1, 2, 3)), "Training completed"]
    ]
    assert len(rows_of(parse("torchtitan", lines))) == 6


def test_dicts_that_an_end_on_standard_error_has_overtaken_are_of_its_launch(parse: Parse) -> None:
    end = "Training completed. Do not forget to share your model on huggingface.co/models =)"
    loss = "{'loss': 2.5, 'epoch': 0.1}"
    assert len(rows_of(parse("hf-trainer", [loss, end, loss, DONE_TRAINING]))) == 2


def test_what_was_stated_before_an_end_is_not_of_the_launch_behind_it(parse: Parse) -> None:
    vocabulary = " > padded vocab (size: 50257) with 175 dummy tokens (new size: 50432)"
    end = "[after training is done] datetime: 2026-01-02 03:04:05"
    lines = [MEGATRON_STEP.format(1), vocabulary, end, MEGATRON_STEP.format(1)]
    first, second = parse("megatron-deepspeed", lines).launches
    assert "vocab_size" in [fact["name"] for fact in first.facts]
    assert "vocab_size" not in [fact["name"] for fact in second.facts]
    assert (second.first_line, len(first.events)) == (4, 1)


@pytest.mark.parametrize(("loss", "launches"), [("11.171E+00", 2), ("11.133E+00", 1)])
def test_another_loss_of_a_step_on_a_line_of_another_kind_begins_a_launch(
    loss: str, launches: int, parse: Parse
) -> None:
    lines = [
        "iteration=       1/  100 | consumed_samples=  768 | lm loss=11.133188 |",
        f" iteration        1/     100 | consumed samples:  96 | lm loss: {loss} |",
    ]
    assert len(parse("megatron-deepspeed", lines).launches) == launches


def test_another_number_of_planned_steps_is_of_another_process(parse: Parse) -> None:
    """Excerpts of two experiments in one page: the later begins where the first had stopped."""
    line = (
        " iteration {:8}/ {:6} | elapsed time per iteration (ms): 500.0 | learning rate: 1E-04 | "
        "lm loss: 2.5E+00 | TFLOPs: 7.07 |"
    )
    lines = [line.format(*of) for of in ((10, 500), (20, 500), (30, 900), (40, 900))]
    launches = parse("megatron-deepspeed", lines).launches
    assert [[row["step"] for row in one.rows] for one in launches] == [[10, 20], [30, 40]]
    facts = [{fact["name"]: fact["value"] for fact in one.stated} for one in launches]
    assert [of_one["total_steps"] for of_one in facts] == ["500", "900"]


def test_a_header_between_steps_begins_a_launch_with_its_own_facts(parse: Parse) -> None:
    header = "[titan] Building device mesh with parallelism: dp_shard={}, cp=1, tp=1, ep=1"
    lines = [header.format(4), titan_step(1), header.format(8), titan_step(2, "4.0")]
    first, second = parse("torchtitan", lines).launches
    gpus = [[f["value"] for f in x.facts if f["name"] == "gpus"] for x in (first, second)]
    assert gpus == [["4"], ["8"]]
    assert (first.last_line, second.first_line) == (1 + 1, 3)


def test_a_header_behind_the_last_step_is_a_launch_without_steps(parse: Parse) -> None:
    mesh = "Building device mesh with parallelism: dp_shard=4, cp=1, tp=1, ep=1"
    launches = parse("torchtitan", [titan_step(1), mesh]).launches
    assert [len(launch.rows) for launch in launches] == [1, 0]


def test_the_run_id_stays_when_the_file_grows(parse: Parse) -> None:
    lines = [titan_step(1), titan_step(2, "4.0")]
    short, long = parse("torchtitan", lines[:1]), parse("torchtitan", lines)
    assert short.launches[0].run_id == long.launches[0].run_id


# -- step lines ----------------------------------------------------------------------------


def test_a_wrapped_step_line_is_joined_with_the_next(parse: Parse) -> None:
    head, tail = titan_step(1).split("  tps", 1)
    parsed = parse("torchtitan", [head, f"  tps{tail}", "else"])
    (row,) = rows_of(parsed)
    assert (row["line"], row["logged_tgs"]) == (1, 1234)
    assert (parsed.step_lines, parsed.known_lines, parsed.other_lines) == (1, 1, 1)


def test_a_step_line_without_a_rate_stands_when_nothing_continues_it(parse: Parse) -> None:
    parsed = parse("torchtitan", [titan_step(step, str(step), tail="") for step in (1, 2, 3)])
    assert [row["step"] for row in rows_of(parsed)] == [1, 2, 3]
    validated = "validate step:  1  loss:  8.1  memory:  0.7GiB(3%)  tps: 4,331"
    parsed = parse("torchtitan", [titan_step(1, tail=""), validated])
    assert [event["line"] for event in parsed.launches[0].events] == [2]
    assert len(rows_of(parsed)) == 1
    parsed = parse("torchtitan", [titan_step(1, tail=""), "hello", titan_step(2, "4.0")])
    assert [row["line"] for row in rows_of(parsed)] == [1, 3]
    assert (parsed.step_lines, parsed.known_lines, parsed.other_lines) == (2, 0, 1)


def test_a_validation_line_is_an_event_and_no_step(parse: Parse) -> None:
    parsed = parse("torchtitan", ["validate step: 10  loss:  8.1  memory:  0.7GiB(3%)  tps: 4,331"])
    (event,) = parsed.launches[0].events
    assert (event["kind"], event["step"], parsed.step_lines) == ("evaluation", 10, 0)


def test_a_figure_that_does_not_apply_is_null(parse: Parse) -> None:
    (row,) = rows_of(parse("torchtitan", [titan_step(1, tail="tps: 9  tflops: 1.00  mfu: N/A")]))
    assert row.get("logged_mfu") is None
    assert row["logged_tflops"] == 1


def test_commas_of_thousands_and_units_are_read(parse: Parse) -> None:
    tail = "tps: 1,234,567  tflops: 1,017.25  mfu: 41.19%"
    (row,) = rows_of(parse("torchtitan", [titan_step(1000, tail=tail)]))
    assert (row["step"], row["logged_tgs"], row["logged_tflops"]) == (1000, 1_234_567, 1017.25)
    assert row["logged_mfu"] == pytest.approx(0.4119)
    assert row["peak_memory_bytes"] == pytest.approx(41.2 * 2**30)


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_is_kept(loss: str, parse: Parse) -> None:
    (titan,) = rows_of(parse("torchtitan", [titan_step(1, loss)]))
    (xtuner,) = rows_of(parse("xtuner", [xtuner_step("Iter(train) [1/9]", f"loss: {loss}")]))
    for row in (titan, xtuner):
        assert str(row["loss"]) == loss


def test_copies_with_a_nan_loss_are_one_launch(parse: Parse) -> None:
    assert len(rows_of(parse("torchtitan", [titan_step(1, "nan")] * 2))) == 2


def test_the_step_of_an_epoch_line_counts_on_over_the_epochs(parse: Parse) -> None:
    where = ("Epoch(train) [1][ 20/381]", "Epoch(train)  [2][ 20/381]", "Epoch(train) [12][1/381]")
    rows = rows_of(parse("xtuner", [xtuner_step(w) for w in where]))
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 20), (2, 401), (12, 4192)]


def test_an_eta_of_days_hides_no_field(parse: Parse) -> None:
    rest = "eta: 18 days, 16:13:38  time: 3.5  data_time: 0.5  memory: 100  loss: 1.25"
    (row,) = rows_of(parse("xtuner", [xtuner_step("Iter(train) [ 10/2000]", rest)]))
    assert (row["elapsed_s"], row["data_s"], row["loss"]) == (3.5, 0.5, 1.25)
    assert row["peak_memory_bytes"] == 100 * 2**20


@pytest.mark.parametrize(("unit", "seconds"), [("ms", 2.5), ("s", 2500)])
def test_the_key_says_whether_an_iteration_takes_seconds(
    unit: str, seconds: float, parse: Parse
) -> None:
    line = f" iteration 5/ 9 | elapsed time per iteration ({unit}): 2500.0 | lm loss: 1.0E+00 |"
    (row,) = rows_of(parse("megatron-deepspeed", [line]))
    assert (row["elapsed_s"], row["loss"]) == (seconds, 1)


def test_the_first_learning_rate_stands_for_all_groups(parse: Parse) -> None:
    line = "[Rank 0] step=5, skipped=1, lr=[0.25, 0.5], mom=[(0.9, 0.95)]"
    (row,) = rows_of(parse("deepspeed", [line]))
    assert (row["learning_rate"], row["skipped_steps"]) == (0.25, 1)


# -- XTuner v1: one key, several meanings --------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "column", "value"),
    [
        ("step_consumed_tokens: 800 total_consumed_tokens: 1600", "step_tokens", 800),
        ("step_consumed_tokens: 800 total_consumed_tokens: 1600", "consumed_tokens", 1600),
        ("reduced_consumed_tokens: 1600", "consumed_tokens", 1600),
        ("total_consumed_tokens: 1600.0", "consumed_tokens", None),
        ("step_consumed_tokens: 800.0", "step_tokens", None),
    ],
)
def test_a_token_count_means_what_the_set_of_keys_says(
    printed: str, column: str, value: float | None, parse: Parse
) -> None:
    (row,) = rows_of(parse("xtuner-v1", [xtuner_v1_step(1, printed)]))
    assert row.get(column) == value
    assert row["rank_tokens"] == 100


def test_a_key_that_comes_twice_keeps_both_values(parse: Parse) -> None:
    printed = "step_consumed_tokens: 800 total_consumed_tokens: 1600 step_consumed_tokens: 100.0"
    (row,) = rows_of(parse("xtuner-v1", [xtuner_v1_step(1, printed)]))
    assert row["step_tokens"] == 800
    assert json.loads(row["extra"])["step_consumed_tokens#2"] == "100.0"


@given(st.lists(st.sampled_from(["a", "a#2", "a#4", "b"])))
def test_a_key_that_comes_again_gets_the_next_number_that_is_free(keys: list[str]) -> None:
    expected: dict[str, str] = {}
    for place, key in enumerate(keys):
        names = chain([key], (f"{key}#{times}" for times in count(2)))
        expected[next(name for name in names if name not in expected)] = str(place)
    text = " ".join(f"{key}: {place}" for place, key in enumerate(keys))
    assert _cut_pairs(re.compile(r"(?P<key>\S+): (?P<value>\d+)"), text) == expected


def test_a_rank_without_text_tokens_takes_its_own_consumed_tokens(parse: Parse) -> None:
    line = xtuner_v1_step(1, "step_consumed_tokens: 90.0").replace("text_tokens: 100.0 ", "")
    (row,) = rows_of(parse("xtuner-v1", [line]))
    assert row["rank_tokens"] == 90


# -- time stamps ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2026-11-20 15:34:16,731", datetime(2026, 11, 20, 15, 34, 16, 731000)),
        ("2026-11-10 09:43:36,161992", datetime(2026, 11, 10, 9, 43, 36, 161992)),
        ("2024/08/27 06:33:10", datetime(2024, 8, 27, 6, 33, 10)),
        ("02/29 15:24:10", datetime(2000, 2, 29, 15, 24, 10)),
        ("20260306 10:15:16", datetime(2026, 3, 6, 10, 15, 16)),
        ("20261306 10:15:16", None),
        ("2026-13-40 15:34:16", None),
    ],
)
def test_stamps_are_read_as_printed(text: str, stamp: datetime | None) -> None:
    assert parse_stamp(text) == stamp


def test_the_stamp_nearest_the_record_holds(parse: Parse) -> None:
    line = f"2026-01-01 00:00:00,000 [titan] 2026-01-02 03:04:05,678 - INFO - {titan_step(1)}"
    (row,) = rows_of(parse("torchtitan", [line]))
    assert row["logged_at"] == datetime(2026, 1, 2, 3, 4, 5, 678000)


# -- facts ---------------------------------------------------------------------------------


def test_a_model_on_several_json_lines_is_read(parse: Parse) -> None:
    facts = facts_of(
        parse(
            "torchtitan",
            """
[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - Building llama3 8Bwith {
[rank0]:  "dim": 4096,
[rank0]:  "rope": {
[rank0]:    "theta": 500000
[rank0]:  },
[rank0]:  "n_kv_heads": null
[rank0]:}
""",
        )
    )
    assert facts["model"] == "llama3 8B"
    assert json.loads(facts["torchtitan_arguments"]) == {"dim": "4096", "n_kv_heads": "None"}


@pytest.mark.parametrize(
    ("between", "read"),
    [
        ("Generating train split: 2000 examples [00:00, 193929.35 examples/s]", True),
        ("  warnings.warn(", True),
        ('Generating train split: 0 examples [00:00, ? examples/s]  "n_layers": 32,', False),
        ("Generating train split: 0 examples [00:00, ? examples/s]  },", False),
    ],
)
def test_what_others_print_between_json_lines_is_passed_over_unless_it_holds_one(
    parse: Parse, between: str, *, read: bool
) -> None:
    """As datasets' bar did in sample_logs/h100/torchtitan-0.2.2/bf16."""
    head = "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - Building llama3 8Bwith {"
    block = [
        head,
        '[rank0]:  "dim": 4096,',
        f"[rank0]:{between}",
        '[rank0]:  "heads": 32',
        "[rank0]:}",
    ]
    facts = facts_of(parse("torchtitan", "\n".join(block)))
    assert ("torchtitan_arguments" in facts) is read
    if read:
        assert json.loads(facts["torchtitan_arguments"]) == {"dim": "4096", "heads": "32"}


@pytest.mark.parametrize(
    ("said", "fact", "value"),
    [
        ({"fp8_hybrid": "True"}, "quantization", "fp8_hybrid"),
        ({"fp8_e4m3": "False", "fp8": "None"}, "quantization", None),
        ({"fp8": "hybrid"}, "quantization", "fp8 hybrid"),
        ({"recompute_granularity": "full", "recompute_method": "uniform"}, "recompute", "full"),
        ({"recompute_granularity": "full", "recompute_method": "block"}, "recompute", "selective"),
    ],
)
def test_what_an_arguments_header_says_of_the_work(
    parse: Parse, said: dict[str, str], fact: str, value: str | None
) -> None:
    lines = [f"  {key} {'.' * (48 - len(key))} {text}" for key, text in said.items()]
    header = ["---- arguments ----", *lines, "---- end of arguments ----"]
    assert facts_of(parse("megatron-deepspeed", "\n".join(header))).get(fact) == value


def test_the_world_size_before_a_header_is_of_the_launch_that_it_opens(parse: Parse) -> None:
    step = (
        " iteration       10/     100 | consumed samples:          480 | elapsed time per "
        "iteration (ms): 2349.1 | global batch size:    48 | lm loss: 1.093108E+01 |"
    )

    def launch(gpus: int) -> list[str]:
        opens = f"using world size: {gpus}, data-parallel-size: {gpus}"
        return [opens, "setting x", "---- arguments ----", "---- end of arguments ----", step]

    launches = parse("megatron-deepspeed", "\n".join(launch(64) + launch(32))).launches
    gpus = [[f["value"] for f in one.facts if f["name"] == "gpus"] for one in launches]
    assert gpus == [["64"], ["32"]]


def test_degrees_of_megatron_lm_are_facts(parse: Parse) -> None:
    header = [
        "---- arguments ----",
        "  context_parallel_size ........................... 4",
        "  expert_model_parallel_size ...................... 8",
        "  num_layers ...................................... 12",
        "---- end of arguments ----",
    ]
    line = (
        " [2026-11-20 02:59:36] iteration        1/     100 | consumed samples:          128 | "
        "elapsed time per iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 239.8 | "
        "learning rate: 8.600000E-06 | global batch size:   128 | lm loss: 1.825991E+00 |"
    )
    (launch,) = parse("megatron-lm", "\n".join([*header, line])).launches
    said = {fact["name"]: fact["value"] for fact in launch.facts}
    assert (said["context_parallel"], said["expert_parallel"]) == ("4", "8")


def test_a_damaged_line_of_the_arguments_header_is_passed_over(parse: Parse) -> None:
    facts = facts_of(
        parse(
            "megatron-deepspeed",
            """
------------------------ arguments ------------------------
  bf16 ............................................ True
  num_layers ...................................... 12
  hidden_size ...........  recompute_granula
  seq_length ...................................... 2048
  world_size ...................................... 16
  zero_stage ...................................... 1.0
-------------------- end of arguments ---------------------
""",
        )
    )
    kept = json.loads(facts.pop("megatron_arguments"))
    assert (kept["num_layers"], kept["seq_length"]) == ("12", "2048")
    assert facts == {
        "precision": "bf16",
        "recompute": "none",
        "seq_len": "2048",
        "gpus": "16",
        "zero_stage": "1",
        "engine": "deepspeed",
    }


CONFIG = """
2026/01/02 03:04:05 - mmengine - INFO - Config:
SYSTEM = ''
accumulative_counts = 16
max_length = 999
model = dict(
    llm=dict(pretrained_model_name_or_path='org/model'),
    lora=dict(r=64, target_modules=['q_proj', 'v_proj']),
    use_activation_checkpointing=False)
optim_wrapper = dict(dtype='bfloat16', type='mmengine.optim.AmpOptimWrapper')
train_dataloader = dict(batch_size=2, dataset=dict(max_length=2048, pack_to_max_length=True))
"""
END_OF_CONFIG = "\n2026/01/02 03:04:05 - mmengine - WARNING - Failed to search registry"
CONFIG_FACTS = {
    "gradient_accumulation": "16",
    "seq_len": "2048",
    "packed": "True",
    "model": "org/model",
    "micro_batch_size": "2",
    "trainable": "lora",
    "lora_rank": "64",
    "lora_targets": "q_proj,v_proj",
    "recompute": "none",
    "precision": "bf16",
}


def test_a_dumped_config_is_read_and_nested_values_hold(parse: Parse) -> None:
    assert facts_of(parse("xtuner", CONFIG.rstrip() + END_OF_CONFIG)) == CONFIG_FACTS


@pytest.mark.parametrize("end", ["\nvisualizer = dict(vis_bac", "\nresume = ", "\n]"])
def test_a_config_that_is_cut_off_loses_its_last_statement_only(end: str, parse: Parse) -> None:
    assert facts_of(parse("xtuner", CONFIG.rstrip() + end + END_OF_CONFIG)) == CONFIG_FACTS


def test_odd_literals_of_a_config_warn_nobody(parse: Parse) -> None:
    config = CONFIG.rstrip().replace("SYSTEM = ''", "SYSTEM = '\\d'\nSTEPS = 1if True else 2")
    assert facts_of(parse("xtuner", config + END_OF_CONFIG)) == CONFIG_FACTS


def test_a_model_that_sees_is_another_than_its_language_model(parse: Parse) -> None:
    config = CONFIG.rstrip().replace("model = dict(", "model = dict(visual_encoder=dict(a=1),", 1)
    assert config != CONFIG.rstrip()
    facts = facts_of(parse("xtuner", config + END_OF_CONFIG))
    assert facts.pop("model") == f"{CONFIG_FACTS['model']} with a visual encoder"
    assert facts == {k: v for k, v in CONFIG_FACTS.items() if k != "model"}


@pytest.mark.parametrize(
    ("kind", "suffix"), [("xtuner.model.DPO", " in DPO"), ("SupervisedFinetune", "")]
)
def test_a_model_that_is_trained_otherwise_is_another(parse: Parse, kind: str, suffix: str) -> None:
    config = CONFIG.rstrip().replace("model = dict(", f"model = dict(type='{kind}',", 1)
    facts = facts_of(parse("xtuner", config + END_OF_CONFIG))
    assert facts["model"] == f"{CONFIG_FACTS['model']}{suffix}"


def test_a_log_of_another_project_of_mmengine_is_not_xtuners(by_name: dict[str, LogFormat]) -> None:
    line = "05/17 13:02:11 - mmengine - INFO - Iter(train) [   50/20000]  lr: 9.9e-03  time: 0.55  "
    signature = re.compile(by_name["xtuner"].signature)
    assert signature.search(f"{line}data_time: 0.01  loss: 2.1")
    assert not signature.search(f"{line}loss: 2.1  decode.loss_ce: 1.6  decode.acc_seg: 41.4")


def test_pipeline_lines_have_losses_whose_names_have_spaces(parse: Parse) -> None:
    line = (
        "steps: 200 loss: 5.5508 lm loss: 5.5103 moe loss: 0.0405 "
        "iter time (s): 0.936 samples/sec: 136.706"
    )
    (row,) = parse("deepspeed", [line]).launches[0].rows
    assert (row["step"], row["loss"]) == (200, 5.5508)
    assert json.loads(row["extra"]) == {"lm loss": "5.5103", "moe loss": "0.0405"}


@pytest.mark.parametrize(
    "key", ["layers_to_transform=[24, 25]", "modules_to_save=['lm_head']", "rank_pattern={'q': 8}"]
)
def test_adapters_of_some_layers_are_not_those_of_all(parse: Parse, key: str) -> None:
    config = CONFIG.rstrip().replace("r=64", f"r=64, {key}")
    facts = facts_of(parse("xtuner", config + END_OF_CONFIG))
    assert facts == {k: v for k, v in CONFIG_FACTS.items() if k != "lora_targets"}


def test_a_config_is_never_executed(parse: Parse) -> None:
    config = CONFIG + "max_length = __import__('os').system('false')\nbatch_size = exit(1)"
    assert facts_of(parse("xtuner", config + END_OF_CONFIG))["seq_len"] == "2048"


@pytest.mark.parametrize(
    "log_format", [f for f in BUILT_IN_FORMATS if f.blocks], ids=lambda f: f.name
)
def test_a_block_that_never_ends_swallows_no_step(log_format: LogFormat, parse: Parse) -> None:
    for block in log_format.blocks:
        lines = [*block.example[:-1], log_format.steps[0].example]
        assert parse(log_format.name, lines).step_lines == 1


@pytest.mark.parametrize(("fence", "events"), [(["```"], ["end", "profiler"]), ([], ["profiler"])])
def test_a_block_ends_with_the_code_block_of_its_page(
    fence: list[str], events: list[str], parse: Parse, by_name: dict[str, LogFormat]
) -> None:
    """An excerpt on a page lacks the profile's last line; another line may be within it."""
    profile = next(block for block in by_name["deepspeed"].blocks if block.kind == "profiler")
    closing = next(line for line in by_name["hf-trainer"].events if line.kind == "end").example
    step = "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}"
    lines = ["```", step, *profile.example[:-1], *fence, closing]
    (launch,) = parse("hf-trainer", lines, ["deepspeed"]).launches
    assert sorted(event["kind"] for event in launch.events) == events


def test_a_companion_states_only_what_the_primary_does_not(parse: Parse) -> None:
    dump = "[2026-01-02 03:04:05,678] [INFO] [config.py:678:print]   {} {} {}"
    lines = [
        dump.format("train_batch_size", "." * 13, 16),
        dump.format("steps_per_print", "." * 14, 5),
        "------------------------ arguments ------------------------",
        "  global_batch_size ............................... 512",
        "-------------------- end of arguments ---------------------",
    ]
    facts = facts_of(parse("megatron-deepspeed", lines, ["deepspeed"]))
    assert (facts["global_batch_size"], facts["log_interval"]) == ("512", "5")


def test_a_fact_says_where_it_stands(parse: Parse, by_name: dict[str, LogFormat]) -> None:
    applied = next(f for f in by_name["torchtitan"].facts if f.inferred)
    facts = parse("torchtitan", ["x", "torchtitan version: 1.2", applied.example]).launches[0].facts
    stands = {fact["name"]: (fact["line"], fact["origin"].partition(" ")[0]) for fact in facts}
    assert stands == {
        "framework_version": (2, "log:2"),
        "precision": (3, "inferred:"),
        "mixed_precision": (3, "log:3"),
    }
    assert facts[1]["origin"].endswith("(log:3)")


def test_a_log_that_says_it_was_composed_is_marked(parse: Parse) -> None:
    assert parse("torchtitan", ["# synthetic log: made by hand", titan_step(1)]).synthetic
    assert not parse("torchtitan", [titan_step(1)]).synthetic


# -- what is not understood ----------------------------------------------------------------


def test_an_unread_line_says_why_and_how_far_it_was_understood(parse: Parse) -> None:
    parsed = parse("torchtitan", ["", "step:  3  loss:  5.0  memory: lots", "x", titan_step(4)])
    (unread,) = parsed.unread
    assert unread["line"] == 2
    assert unread["text"] == "step:  3  loss:  5.0  memory: lots"
    assert unread["reason"].startswith("looks like a step of torchtitan; understood up to")
    assert unread["reason"].endswith('memory: "')


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("torchtitan", titan_step(1, "five"), "loss is 'five': not a number"),
        ("torchtitan", titan_step(10**30), "step is"),
        ("deepspeed", "step=5, skipped=0, lr=[tensor(0.1)], mom=[0.9]", "number"),
        ("xtuner-v1", xtuner_v1_step(1, "reduced_consumed_tokens: 0:00:03"), "number"),
    ],
)
def test_a_value_that_is_no_number_makes_the_line_unread(
    name: str, line: str, reason: str, parse: Parse
) -> None:
    parsed = parse(name, [line])
    assert (parsed.step_lines, parsed.unread_lines) == (0, 1)
    assert reason in parsed.unread[0]["reason"]


def test_an_event_with_a_damaged_duration_is_still_an_event(parse: Parse) -> None:
    line = "[XTuner][2026-01-02 03:04:05][SUCCESS] save checkpoint Elapsed time 1.25."
    (event,) = parse("xtuner-v1", [line]).launches[0].events
    assert (event["kind"], event["seconds"]) == ("checkpoint", None)


def test_other_lines_are_counted_by_kind_with_an_example(parse: Parse) -> None:
    parsed = parse("torchtitan", ["warmup 1 of 9", "warmup 2 of 9", "hello"])
    assert parsed.other_kinds == [
        {"count": 2, "line": 1, "example": "warmup 1 of 9"},
        {"count": 1, "line": 3, "example": "hello"},
    ]


EXAMPLES = [line.example for f in BUILT_IN_FORMATS for line in (*f.steps, *f.facts, *f.events)]
EXAMPLES += [text for f in BUILT_IN_FORMATS for block in f.blocks for text in block.example]


def _replaced(text: str, which: int, what: str) -> str:
    """`text` with one of its numbers replaced."""
    spans = [match.span() for match in NUMBER.finditer(text)]
    start, end = spans[which % len(spans)]
    return text[:start] + what + text[end:]


cut_examples = st.builds(
    lambda text, start, end: text[start:end],
    st.sampled_from(EXAMPLES),
    st.integers(0, 40),
    st.integers(0, 400),
)
spoilt_examples = st.builds(
    lambda text, at, what: text[:at] + what + text[at:],
    st.sampled_from(EXAMPLES),
    st.integers(0, 200),
    st.sampled_from(["", ".", ",", "9" * 30, "nan", "-", "[", "\x1b[1m", "=", ": ", "٣", "\x85"]),
)
NUMBER = re.compile(r"\d[\d.,:e+-]*")
odd_numbers = st.builds(
    _replaced,
    st.sampled_from([text for text in EXAMPLES if NUMBER.search(text)]),
    st.integers(0, 50),
    st.sampled_from(["nan", "inf", "-inf", "-1", "0", "1e400", "9" * 25, "9" * 5000, "N/A", "1:2"]),
)
any_line = st.one_of(
    st.sampled_from(EXAMPLES),
    cut_examples,
    spoilt_examples,
    odd_numbers,
    st.text(max_size=40),
    st.just(""),
)
any_lines = st.lists(st.tuples(any_line, st.integers(0, 19).map(lambda n: n == 0)), max_size=15)


@pytest.mark.parametrize("log_format", BUILT_IN_FORMATS, ids=lambda f: f.name)
@settings(max_examples=100 if THOROUGH else 8)
@given(lines=any_lines)
def test_every_line_is_counted_once_and_stored_whatever_it_holds(
    log_format: LogFormat, lines: Sequence[tuple[str, bool]]
) -> None:
    numbered = [NumberedLine(n, text, cut) for n, (text, cut) in enumerate(lines, 1)]
    companions = [f for f in BUILT_IN_FORMATS if f.precedence < log_format.precedence]
    parsed = parse_lines(numbered, log_format, companions)
    counts = (
        parsed.step_lines,
        parsed.known_lines,
        parsed.companion_lines,
        parsed.other_lines,
        parsed.unread_lines,
    )
    assert parsed.lines == len(lines) == sum(counts)
    rows = sum(len(launch.rows) for launch in parsed.launches)
    if log_format.join is None:
        assert (rows, len(parsed.unread)) == (parsed.step_lines, parsed.unread_lines)
    else:  # one of several lines
        assert rows <= parsed.step_lines
        assert len(parsed.unread) <= parsed.unread_lines
    text = log_tables._Text(Source(Path("run.log")), parsed, [], BUILT_IN_CHOICE)
    (log,) = log_tables._logs(log_format, companions, [text])
    assert log.tables(Spool())["steps"].height == rows


@given(
    step=st.integers(1, 10**9),
    loss=st.floats(-1e4, 1e4),
    tps=st.integers(1, 10**9),
    tflops=st.floats(0, 1e4),
    mfu=st.floats(0, 100),
)
def test_what_torchtitan_prints_is_read_back(
    step: int, loss: float, tps: int, tflops: float, mfu: float
) -> None:
    line = (
        f"step: {step:2}  loss: {loss:8.5f}  grad_norm: {1.5:7.4f}  memory: {1:5.2f}GiB({2:.2f}%)"
        f"  tps: {tps:,}  tflops: {tflops:,.2f}  mfu: {mfu:.2f}%"
    )
    (row,) = rows_of(parse_lines([NumberedLine(1, line, cut=False)], TORCHTITAN))
    assert (row["step"], row["logged_tgs"]) == (step, tps)
    assert math.isclose(row["loss"], loss, abs_tol=0.5e-5, rel_tol=1e-12)
    assert math.isclose(row["logged_tflops"], tflops, abs_tol=0.5001e-2)
    assert math.isclose(row["logged_mfu"], mfu / 100, abs_tol=0.5001e-4)


def test_lines_of_two_kinds_speak_of_one_step_side_by_side(parse: Parse) -> None:
    lines = [
        f"[2026-11-20 15:01:{step:02},000] [INFO] [logging.py:123:log_dist] [Rank 0] step={step}, "
        f"skipped=0, lr=[0.001], mom=[0.9]\n"
        f"steps: {step} loss: {9 - step / 10} iter time (s): 0.400 samples/sec: 640.000"
        for step in (10, 20, 30)
    ]
    (launch,) = parse("deepspeed", "\n".join(lines)).launches
    assert [row["step"] for row in launch.rows] == [10, 10, 20, 20, 30, 30]


# -- many lines at once ------------------------------------------------------------------------


def many(*steps: int | None, first_line: int) -> pl.DataFrame:
    rows = [{"line": first_line + n, "step": step, "form": 0} for n, step in enumerate(steps)]
    return frame_of_rows(rows, PARSED_STEP_SCHEMA, filled_only=True)


def sink_of(form: LogFormat, *texts: str) -> RecordSink:
    """Return the sink of lines that leave nothing open."""
    matcher = line_matcher(form, ())
    sink = RecordSink(matcher)
    parser = LineParser(matcher, sink)
    for number, text in enumerate(texts, 1):
        parser.read(record_of(matcher, NumberedLine(number, text, cut=False)))
    assert parser.is_idle
    assert sink.is_mid_launch
    return sink


@pytest.mark.parametrize(("lines", "counted"), [(None, 2), (5, 5)])
def test_rows_that_were_read_together_count_as_their_lines(
    lines: int | None, counted: int, by_name: dict[str, LogFormat]
) -> None:
    """Some records are of several lines each."""
    sink = sink_of(by_name["megatron-deepspeed"], MEGATRON_STEP.format(1))
    given_back = sink.add_steps(many(2, 3, first_line=2), "the last", lines)
    assert given_back["step"].to_list() == [2, 3]
    assert (sink.out.lines, sink.out.step_lines) == (1 + counted, 1 + counted)
    sink.count_known(4)
    parsed = sink.finish()
    assert (parsed.lines, parsed.known_lines) == (5 + counted, 4)
    (launch,) = parsed.launches
    assert [row["step"] for row in launch.rows] == [1, 2, 3]
    assert launch.last_step_text == "the last"


def test_rows_without_a_step_that_were_read_together_count_on(
    by_name: dict[str, LogFormat],
) -> None:
    dicts = ["{'loss': 2.5, 'epoch': 0.1}"] * 2
    sink = sink_of(by_name["hf-trainer"], *dicts, "what ends the second one")
    assert sink.launch.counts([None])
    rows = many(None, None, first_line=4).with_columns(pl.lit(None, pl.Int64).alias("step"))
    assert sink.add_steps(rows, "")["step"].to_list() == [3, 4]


# -- what only the whole launch tells --------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "seconds"), [("0.6.1", 2.5), ("0.6.2", 0.0025), ("0.6.3", 0.0025), ("0.6.30", 2.5)]
)
def test_times_of_a_version_that_misprints_them_are_put_right(
    version: str, seconds: float, parse: Parse
) -> None:
    """By 1000, with a warning at the first step: they are ms and called s."""
    head = (
        "[2026-11-20 15:01:20,507] [INFO] [logging.py:68:log_dist] [Rank 0] DeepSpeed info: "
        f"version={version}, git-hash=unknown, git-branch=unknown"
    )
    step = "steps: {} loss: 2.5 iter time (s): 2.5 samples/sec: 4.0"
    (launch,) = parse("deepspeed", [head, *map(step.format, (10, 20, 30))]).launches
    assert [row["elapsed_s"] for row in launch.rows] == [pytest.approx(seconds)] * 3
    rate = 4.0 if seconds > 1 else 4000.0
    assert [row["logged_samples_per_second"] for row in launch.rows] == [pytest.approx(rate)] * 3
    warned = [event["line"] for event in launch.events if event["kind"] == "warning"]
    assert warned == ([2] if seconds < 1 else [])
