"""The table of eras, each built when it is asked for; and printed figures against formulas."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest.core.schema import RunRow
from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME, eras_of_format
from fairmfu.metrics.audit.eras import deepspeed, torchtitan, xtuner
from fairmfu.metrics.audit.formula_checks import (
    FormulaCheck,
    FormulaFacts,
    LineBounds,
    check_formulas,
    era_peak,
    formula_facts_of,
    implied_flops,
    needs_gpu_count,
    tflops_factor,
)
from fairmfu.metrics.audit.formula_era import GAP_CAUSES, cause_text, dated_era
from fairmfu.metrics.formula.simplified_model import SimplifiedModel
from tests.support.bad_rows import assert_commands_work
from tests.support.each_case import each_case
from tests.support.figures import known, lines

NAMES = [
    (row.keywords["log_formats"][0], row.keywords["name"])
    for row in (*torchtitan.ERA_ROWS, *xtuner.ERA_ROWS, *deepspeed.ERA_ROWS)
]


@each_case(("log_format", "name"), NAMES)
def test_each_era_builds(log_format: str, name: str) -> None:
    era = ERAS_BY_NAME[name]
    assert era.name == name
    assert era.log_formats[0] == log_format
    assert era.formula
    assert era.repo
    assert era.path
    assert era.commit
    assert era.since is None or era.until is None or era.since < era.until
    stages = [*era.stages, *(stage for path in era.figure_stages.values() for stage in path)]
    assert {stage.cause for stage in stages} <= set(GAP_CAUSES)


def test_eras_keep_their_order_and_are_built_once() -> None:
    assert list(ERAS_BY_NAME) == [name for _, name in NAMES]
    neox = ["gpt-neox-2021", "gpt-neox-2023-09", "gpt-neox-2023-12"]
    for era, name in zip(eras_of_format("gpt-neox"), neox, strict=True):
        assert era is ERAS_BY_NAME[name]
    assert eras_of_format("no such format") == ()


@pytest.mark.usefixtures("unbuilt")
def test_a_bad_era_fails_only_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats = ("deepspeed",)
    bad = partial(dated_era, name="bad", log_formats=formats, since="2024-13-01", until=None)
    monkeypatch.setattr(deepspeed, "ERA_ROWS", (bad, *deepspeed.ERA_ROWS))
    assert_commands_work(tmp_path)
    assert ERAS_BY_NAME["deepspeed-engine"].name == "deepspeed-engine"
    with pytest.raises(ValueError, match="month must be in"):
        eras_of_format("deepspeed")
    assert CliRunner().invoke(main, ["formats", "--eras"]).exit_code == 1


# --- bounds of a print ------------------------------------------------------------------------


def bounds(*pairs: tuple[float, float]) -> LineBounds:
    low, high = zip(*pairs, strict=True)
    return LineBounds(np.array(low), np.array(high))


def test_bounds_by_hand() -> None:
    one, other = bounds((1.0, 2.0), (1.5, 3.0)), bounds((4.0, 5.0), (2.0, 10.0))
    ratio = one / other
    assert (ratio.low.tolist(), ratio.high.tolist()) == ([0.2, 0.15], [0.5, 1.5])
    assert one.intersection == (1.5, 2.0)
    assert (one.middle, one.half_width) == (1.875, 0.625)
    assert one.contains(1.0).tolist() == [True, False]
    assert one.contains(3.0).tolist() == [False, True]
    assert [one.all_contain(x) for x in (1.49, 1.5, 1.75, 2.0, 2.01)] == [
        *(False, True, True, True, False)
    ]
    assert one.scaled(2.0).high.tolist() == [4.0, 6.0]


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0, 0.05), st.floats(0, 0.05))
@settings(max_examples=30)
def test_a_ratio_of_bounds_holds_the_ratio_of_any_two_values(
    one: float, other: float, below: float, above: float
) -> None:
    ratio = bounds((one - below, one + above)) / bounds((other - above, other + below))
    for mine in (one - below, one, one + above):
        for theirs in (other - above, other, other + below):
            assert ratio.low[0] * (1 - 1e-12) <= mine / theirs <= ratio.high[0] * (1 + 1e-12)


def test_a_print_stands_for_half_of_its_last_place() -> None:
    era = ERAS_BY_NAME["torchtitan-2025-10"]  # tokens/s without decimals, TFLOP/s with two
    printed = lines(logged_tgs=[6000.0], logged_tflops=[312.5]).with_decimals_of(era)
    for column, value, half in (("logged_tgs", 6000.0, 0.5), ("logged_tflops", 312.5, 0.005)):
        found = printed.interval(column)
        assert found.low[0] == pytest.approx(value - half, abs=1e-9)
        assert found.high[0] == pytest.approx(value + half, abs=1e-9)
    fine = lines(logged_tgs=[6000.0], logged_tflops=[312.512]).with_decimals_of(era)
    assert fine.interval("logged_tflops").high[0] == pytest.approx(312.5125, abs=1e-9)


@pytest.mark.parametrize(("value", "half"), [(0.123456, 5e-7), (1.2345678, 1.2e-7 * 1.2345678)])
def test_a_float_in_full_is_as_exact_as_a_float32(value: float, half: float) -> None:
    found = lines(logged_tgs=[1.0], elapsed_s=[value]).interval("elapsed_s")
    assert found.high[0] - value == pytest.approx(half, rel=1e-6)
    assert value - found.low[0] == pytest.approx(half, rel=1e-6)


def test_lines_are_chosen_by_what_they_print() -> None:
    some = lines(logged_tgs=[1.0, None, 3.0], logged_tflops=[1.0, 2.0, None], rank_tokens=[1, 0, 5])
    assert some.height == 3
    assert some.printing("logged_tgs", "logged_tflops").height == 1
    assert some.printed_values("logged_tgs").tolist() == [1.0, 3.0]
    assert not some.all_print("logged_tgs")
    assert some.all_print("rank_tokens")
    assert some.with_tokens().height == 2
    assert not some.select(np.zeros(3, bool)).all_print("rank_tokens")


# --- what formulas predict --------------------------------------------------------------------


def ratios(found: list[FormulaCheck]) -> dict[str, tuple[float, int, frozenset[str]]]:
    return {one.column: (one.ratio.middle, one.reproduced, one.depends_on) for one in found}


TITAN = ERAS_BY_NAME["torchtitan-2025-10"]
TITAN_FLOPS = TITAN.flops(cast(SimplifiedModel, known().simplified_model()))


@pytest.mark.parametrize(("times", "reproduced"), [(1.0, 2), (1.001, 0)])
def test_tflops_and_mfu_are_flops_times_tokens(times: float, reproduced: int) -> None:
    """F x 6,000 / 1e12 and / 989e12, of rounded tokens/s."""
    rates = [6000.0, 6100.0]
    printed = lines(
        logged_tgs=rates,
        logged_tflops=[round(rate * TITAN_FLOPS * times / 1e12, 2) for rate in rates],
        logged_mfu=[round(rate * TITAN_FLOPS * times / 989e12, 4) for rate in rates],
    )
    found = ratios(check_formulas(printed, TITAN, known(device="NVIDIA H100", peak=9.890e14)))
    assert found["logged_tflops"][0] == pytest.approx(times, rel=1e-4)
    assert found["logged_tflops"][1:] == (reproduced, frozenset({"model"}))
    assert found["logged_mfu"][0] == pytest.approx(times, rel=1e-3)
    assert found["logged_mfu"][2] == {"model", "peak"}
    assert "logged_tgs" not in found  # Torchtitan's follows from nothing that it prints
    assert "logged_mfu" not in ratios(check_formulas(printed, TITAN, known()))


def test_each_line_has_the_flops_of_its_own_length() -> None:
    lengths = [2048.0, 8192.0]
    flops = [
        TITAN.flops(cast(SimplifiedModel, known().simplified_model(int(length))))
        for length in lengths
    ]
    printed = lines(
        logged_tgs=[6000.0, 5000.0],
        sequence_length=lengths,
        logged_tflops=[6000 * flops[0] / 1e12, 5000 * flops[1] / 1e12],
    )
    (check,) = check_formulas(printed, TITAN, known())
    assert (check.lines, check.reproduced) == (2, 2)


XTUNER = ERAS_BY_NAME["xtuner-0.1.16"]


def test_tokens_per_second_are_those_of_a_micro_step_over_its_time() -> None:
    """2 sequences of 4,096 tokens, a half of each: 4,096 tokens in 2 s."""
    micro = known(micro_steps=True, micro_batch=2, sharing=2)
    printed = lines(logged_tgs=[2048.0], elapsed_s=[2.0])
    (found,) = check_formulas(printed, XTUNER, micro)
    assert (found.column, found.reproduced) == ("logged_tgs", 1)
    assert found.ratio.middle == pytest.approx(1, rel=0.05)
    assert found.depends_on == {"seq_len", "micro_batch_size", "context_parallel"}
    assert check_formulas(printed, XTUNER, micro._replace(own_time=False)) == []
    assert check_formulas(printed, XTUNER, micro._replace(averaged=frozenset({"logged_tgs"}))) == []
    # The tokens of the line itself need no fact.
    (own,) = check_formulas(
        lines(logged_tgs=[2048.0], elapsed_s=[2.0], rank_tokens=[4096.0]), XTUNER, micro
    )
    assert (own.reproduced, own.depends_on) == (1, frozenset())
    # A whole step: 16 sequences over 8 GPUs, or as many as the line says.
    (step,) = check_formulas(lines(logged_tgs=[4096.0], elapsed_s=[2.0]), XTUNER, known())
    assert (step.reproduced, step.depends_on) == (1, {"seq_len", "gpus", "global_batch_size"})
    (said,) = check_formulas(
        lines(logged_tgs=[8192.0], elapsed_s=[2.0], samples=[32.0]), XTUNER, known()
    )
    assert (said.reproduced, said.depends_on) == (1, {"seq_len", "gpus"})
    for unknown in ({"gpus": None}, {"batch": None}, {"T": None}):
        printed = lines(logged_tgs=[4096.0], elapsed_s=[2.0])
        assert check_formulas(printed, XTUNER, known(**unknown)) == []


@pytest.mark.parametrize(
    ("era", "interval", "printed", "reproduced"),
    [
        ("megatron-deepspeed-2022-12", 1, 8.0, 1),
        ("megatron-deepspeed-2022-12", 10, 8.0, 1),
        ("bigscience-2021-05", 10, 0.8, 1),  # the time of ten steps for that of one
        ("bigscience-2021-05", 1, 0.8, 0),
        ("bigscience-2022-01", 1, 0.008, 1),  # in thousandths
        ("torchtitan-2025-10", 1, 8.0, 0),  # it prints none
    ],
)
def test_samples_per_second_are_the_batch_over_the_time(
    era: str, interval: int, printed: float, reproduced: int
) -> None:
    """16 sequences in 2 s; some versions take the time of the interval for that of a step."""
    figures = lines(logged_tgs=[None], elapsed_s=[2.0], logged_samples_per_second=[printed])
    found = check_formulas(figures, ERAS_BY_NAME[era], known(log_interval=interval))
    assert sum(one.reproduced for one in found) == reproduced
    assert all(one.depends_on == {"global_batch_size"} for one in found)
    own = lines(
        logged_tgs=[None], elapsed_s=[2.0], logged_samples_per_second=[printed], samples=[16.0]
    )
    found = check_formulas(own, ERAS_BY_NAME[era], known(log_interval=interval, batch=None))
    assert sum(one.reproduced for one in found) == reproduced
    assert all(one.depends_on == frozenset() for one in found)


def test_the_trainers_total_is_flops_times_tokens() -> None:
    era = ERAS_BY_NAME["hf-trainer"]
    flops = era.flops(cast(SimplifiedModel, known().simplified_model()), "logged_total_flops")
    printed = lines(
        logged_tgs=[None], logged_total_flops=[flops * 1e6], consumed_tokens=[1_000_000.0]
    )
    (found,) = check_formulas(printed, era, known())
    assert (found.reproduced, found.depends_on) == (1, {"model"})
    (found,) = check_formulas(printed, era, known(T=None))  # it counts no attention
    assert found.reproduced == 1
    (doubled,) = check_formulas(
        lines(logged_tgs=[None], logged_total_flops=[flops * 1e6], consumed_tokens=[2e6]),
        era,
        known(),
    )
    assert doubled.ratio.middle == pytest.approx(0.5)


def test_a_rate_beside_a_mean_is_not_compared() -> None:
    printed = lines(logged_tgs=[6000.0], logged_tflops=[6000 * TITAN_FLOPS / 1e12])
    for averaged, lone in (
        (set(), False),
        ({"logged_tgs"}, True),
        ({"logged_tflops"}, True),
        ({"logged_tgs", "logged_tflops"}, False),
    ):
        facts = known(averaged=frozenset(averaged))
        assert (check_formulas(printed, TITAN, facts) == []) is lone
        assert (implied_flops(printed, TITAN, facts) == (None, None)) is lone


def test_flops_follow_from_tflops_or_from_mfu_and_peak() -> None:
    printed = lines(logged_tgs=[6000.0, 6100.0], logged_tflops=[300.0, 305.0])
    low, high = implied_flops(printed, TITAN, known())
    assert low is not None
    assert high is not None
    assert low == pytest.approx(304.995e12 / 6100.5)
    assert high == pytest.approx(300.005e12 / 5999.5, rel=1e-3)
    assert low < 5e10 < high
    of_mfu = lines(logged_tgs=[6000.0], logged_mfu=[0.3])
    assert implied_flops(of_mfu, TITAN, known()) == (None, None)
    low, high = implied_flops(of_mfu, TITAN, known(device="NVIDIA H100"))
    assert low is not None
    assert high is not None
    assert low < 0.3 * 989e12 / 6000 < high
    assert (high - low) / low == pytest.approx(2 * (0.5 / 6000 + 0.00005 / 0.3), rel=0.01)
    apart = lines(logged_tgs=[6000.0, 6100.0], logged_tflops=[300.0, 320.0])
    low, high = implied_flops(apart, TITAN, known())
    assert low is not None
    assert high is not None
    assert low > high  # no one number explains both


def test_tflops_over_the_gpus_once_more_need_their_number() -> None:
    chat = ERAS_BY_NAME["deepspeed-chat-2023-08"]
    assert needs_gpu_count(chat, known(gpus=None))
    assert not needs_gpu_count(chat, known())
    assert not needs_gpu_count(TITAN, known(gpus=None))
    assert tflops_factor(chat, known()) == 1 / 8
    assert tflops_factor(ERAS_BY_NAME["bigscience-2021-05"], known(log_interval=10)) == 1 / 10


@pytest.mark.parametrize(
    ("device", "printed", "peak"),
    [
        ("NVIDIA H100", None, 989e12),
        ("NVIDIA H100", 9.893e14, 989e12),  # within half a unit of four digits
        ("NVIDIA H100", 9.8451e14, 9.8451e14),  # 0.454 %: not the table's
        ("NVIDIA H100", 3.12e14, 3.12e14),
        (None, 3.12e14, 3.12e14),
        (None, None, None),
    ],
)
def test_the_printed_peak_is_the_tables_where_they_agree(
    device: str | None, printed: float | None, peak: float | None
) -> None:
    assert era_peak(TITAN, known(device=device, peak=printed)) == peak
    assert era_peak(XTUNER, known(device=device, peak=printed)) == printed  # it has no table


def test_a_printed_peak_is_as_exact_as_its_four_digits() -> None:
    rates = {"logged_tgs": [6000.0], "logged_mfu": [6000 * TITAN_FLOPS / 3.12e14]}
    (printed,) = check_formulas(lines(**rates), TITAN, known(peak=3.12e14))
    (tabled,) = check_formulas(lines(**rates), TITAN, known(device="NVIDIA A100"))
    more = printed.ratio.half_width / printed.ratio.middle
    less = tabled.ratio.half_width / tabled.ratio.middle
    assert more - less == pytest.approx(0.5 * 10.0 ** (14 - 3) / 3.12e14, rel=0.01)


# --- facts that formulas read -----------------------------------------------------------------

RUN: dict[str, Any] = {
    "log_format": "megatron-deepspeed",
    "started_at": None,
    "elapsed_covers": "step",
    "step_unit": "step",
}


def facts_of(*, run: dict[str, Any] | None = None, **values: str) -> FormulaFacts:
    facts = {
        name: {"name": name, "value": value, "origin": "flag" if name == "model" else "log:1"}
        for name, value in values.items()
    }
    return formula_facts_of(cast(RunRow, RUN | (run or {})), facts)


def test_facts_that_are_not_said_have_their_usual_value() -> None:
    facts = facts_of(model="llama3-8b")
    assert (facts.tensor_parallel, facts.pipeline_parallel, facts.log_interval) == (1, 1, 1)
    assert (facts.sharing, facts.adapters, facts.own_time, facts.averaged) == (
        *(1, 0, True),
        frozenset(),
    )
    said = facts_of(
        model="llama3-8b",
        tensor_parallel="2",
        pipeline_parallel="4",
        log_interval="10",
        context_parallel="4",
        averaged_rates="logged_tgs,logged_tflops",
    )
    assert (said.tensor_parallel, said.pipeline_parallel, said.log_interval) == (2, 4, 10)
    assert said.sharing % 4 == 0
    assert said.averaged == {"logged_tgs", "logged_tflops"}
    assert "log_interval" in said.stated_facts
    assert "model" not in said.stated_facts  # somebody gave it


@pytest.mark.parametrize(
    ("covers", "window", "own"),
    [
        ("step", None, True),
        ("last_10", None, False),
        ("last_10", "1", True),
        ("last_10", "5", False),
    ],
)
def test_a_time_is_the_lines_own_where_no_mean_is_taken(
    covers: str, window: str | None, *, own: bool
) -> None:
    values = {} if window is None else {"average_window": window}
    assert facts_of(run={"elapsed_covers": covers}, **values).own_time is own


def test_the_length_only_bounds_batches_that_are_not_packed() -> None:
    unpacked = facts_of(run={"log_format": "xtuner"}, seq_len="4096", packed="false")
    assert (unpacked.T, unpacked.max_length) == (None, 4096)
    packed = facts_of(run={"log_format": "xtuner"}, seq_len="4096", packed="true")
    assert (packed.T, packed.max_length) == (4096, None)
    titan = facts_of(run={"log_format": "torchtitan"}, seq_len="4096", packed="false")
    assert (titan.T, titan.max_length) == (4096, None)


STATED = '{"make_vocab_size_divisible_by": "256"}'
MULTIPLES_OF_512 = (128_512, 129_024, 131_072)
"""With 1, 2 or 4, or 8 ranks: 251 x 512, 126 x 1,024 (63 x 2,048) and 32 x 4,096 words."""


@pytest.mark.parametrize(
    ("values", "padded", "possible"),
    [
        # 128,256 words: a multiple of 128 (1,002 times) and of 256 (501 times), not of 512
        ({"padded_vocab_size": "128512"}, 128_512, ()),
        ({}, None, (128_512, 129_024)),
        ({"tensor_parallel": "4"}, None, (128_512,)),
        ({"tensor_parallel": "1"}, None, ()),
        ({"megatron_arguments": '{"make_vocab_size_divisible_by": "512"}'}, None, MULTIPLES_OF_512),
        ({"megatron_arguments": STATED, "tensor_parallel": "4"}, 129_024, ()),  # 126 x 1,024
        ({"megatron_arguments": STATED, "tensor_parallel": "1"}, 128_256, ()),
    ],
)
def test_the_padded_vocabulary_is_the_next_multiple(
    values: dict[str, str], padded: int | None, possible: tuple[int, ...]
) -> None:
    facts = facts_of(model="llama3-8b", **values)
    assert facts.padded_vocab == padded
    assert facts.padded_vocabs == possible


def test_a_given_length_goes_before_that_of_the_lines_and_of_the_facts() -> None:
    lengths = []
    for facts in (known(line_length=2048), known(), known(T=None)):
        models = (facts.simplified_model(512), facts.simplified_model())
        lengths.append([None if model is None else model.T for model in models])
    assert lengths == [[512, 2048], [512, 4096], [512, None]]
    model = known().simplified_model()
    assert model is not None
    assert (model.tensor_parallel, model.pipeline_parallel, model.adapters) == (1, 1, 0)


def test_lines_are_of_micro_steps_where_the_log_counts_these() -> None:
    assert not facts_of().micro_steps
    assert facts_of(run={"step_unit": "micro_step"}).micro_steps


def test_adapters_are_counted_where_the_model_is_known() -> None:
    """Rank 8 on q_proj: 32 layers of 8 x (4,096 in + 4,096 out)."""
    lora = {"trainable": "lora", "lora_rank": "8", "lora_targets": "q_proj"}
    assert facts_of(model="llama3-8b", **lora).adapters == 32 * 8 * 8192
    assert facts_of(**lora).adapters == 0


def test_the_table_of_peaks_is_of_the_day_else_of_the_eras_last() -> None:
    """The B200 came with 4,500 TFLOP/s, with sparsity, and has 2,250 today."""
    days = (date(2025, 6, 1), date(2026, 1, 1), None)
    peaks = [era_peak(TITAN, known(device="NVIDIA B200", day=day)) for day in days]
    assert peaks == [4.5e15, 2.25e15, 2.25e15]


def test_a_step_may_take_less_than_a_second() -> None:
    """2 sequences of 4,096 tokens in 0.5 s."""
    (found,) = check_formulas(lines(logged_tgs=[16_384.0], elapsed_s=[0.5]), XTUNER, known())
    assert found.reproduced == 1
    width = found.ratio.half_width / found.ratio.middle
    assert width == pytest.approx(0.5 * 1e-4 / 0.5, rel=0.01)  # of four decimals


def test_a_cause_says_whether_too_much_is_counted_or_too_little() -> None:
    assert cause_text("attention", 0.9) == cause_text("attention", 0.9, 0.8)
    assert cause_text("attention", 0.9) == "masked-out attention counted as work"
    assert cause_text("attention", 1.1) == "attention left out"
    assert cause_text("attention", 0.9, 1.1) == (
        "masked-out attention counted as work or attention left out"
    )
    assert cause_text("data", 1.1) == cause_text("data", 0.9) == GAP_CAUSES["data"]
