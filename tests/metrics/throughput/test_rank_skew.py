"""Ranks side by side: spread, the slowest of them, and whether the run waits for data."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import frame_schema
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.core.curve_columns import RANK_TIME_SCHEMA
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.rank_skew import (
    MIN_DATA_BOUND_SHARE,
    RANK_SKEW_SCHEMA,
    bottleneck,
    compare_ranks,
    measure_ranks,
)
from fairmfu.metrics.throughput.resolved_facts import resolve_facts, typed_facts
from fairmfu.metrics.throughput.windows import DISTURBING_EVENTS, build_windows
from tests.tools.corpus import CORPUS, GENERATED

Row = dict[str, Any]


def frame(table: str, *rows: Row) -> pl.DataFrame:
    schema = frame_schema(table)
    return pl.DataFrame([{n: row.get(n) for n in schema} for row in rows], schema=schema)


def compared(rows: Sequence[Row], *events: Row, **about: object) -> pl.DataFrame:
    run = {
        "run_id": "r",
        "step_unit": "optimizer_step",
        "elapsed_covers": "step",
        "rate_covers": "step",
        "evidence": ["elapsed", "rate"],
        "elapsed_excludes_data": False,
        "rate_excludes_data": False,
    }
    runs = frame("runs", run | about)
    numbered = ({"run_id": "r", "line": i, "rank_tokens": 8.0} | row for i, row in enumerate(rows))
    steps = frame("steps", *numbered)
    facts = typed_facts(resolve_facts(frame("facts")))
    spans = build_windows(
        steps, runs, facts, frame("events", *({"run_id": "r"} | e for e in events))
    )
    return compare_ranks(steps, measure_ranks(steps, spans))


def steady(rows: Sequence[Row]) -> Row:
    """The same where every step after the first is steady, without working that out."""
    steps, spans = all_steady(rows)
    return compare_ranks(steps, measure_ranks(steps, spans)).row(0, named=True)


def all_steady(rows: Sequence[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    steps = frame("steps", *({"run_id": "r"} | row for row in rows))
    spans = (
        steps.select("run_id", "step")
        .unique()
        .with_columns(
            first=pl.col("step") == 1,
            events=pl.lit([], pl.List(pl.String)),
            rate_events=pl.lit([], pl.List(pl.String)),
            smeared=False,
            disturbed=False,
            rate_disturbed=False,
            warming=False,
            unlogged=False,
            off_level=False,
            begun_anew=False,
            tokens_per_gpu=8.0,
            elapsed_excludes_data=False,
            rate_covers=pl.lit("step"),
            **{f"{evidence}_span": 1 for evidence in DISTURBING_EVENTS},
            **{f"{evidence}_time": 1.0 for evidence in DISTURBING_EVENTS},
        )
    )
    return steps, spans


def lines(times: Mapping[str, Sequence[float]]) -> list[tuple[str, int, float]]:
    """Rank, step and seconds; those given are of the steps 2, 3, …, step 1 is start-up."""
    every = {rank: enumerate([99.0, *seconds], 1) for rank, seconds in times.items()}
    return [(rank, step, seconds) for rank, mine in every.items() for step, seconds in mine]


def of(times: Mapping[str, Sequence[float]]) -> Row:
    rows = [{"rank": rank, "step": step, "elapsed_s": s} for rank, step, s in lines(times)]
    return steady(rows)


# -- laws ----------------------------------------------------------------------------------

# Tenths of a second, so that ranks often print the same time.
MATRIX = st.integers(2, 5).flatmap(
    lambda ranks: st.lists(
        st.lists(st.integers(1, 9), min_size=ranks, max_size=ranks), min_size=1, max_size=12
    )
)


def ranks_of(matrix: Sequence[Sequence[int]], unit: float = 0.1) -> dict[str, list[float]]:
    columns = zip(*matrix, strict=True)
    return {f"rank{i}": [unit * x for x in column] for i, column in enumerate(columns)}


@given(MATRIX)
def test_the_figures_are_those_of_a_plain_loop(matrix: list[list[int]]) -> None:
    ranks = range(len(matrix[0]))
    medians = [median(row[r] for row in matrix) for r in ranks]
    shares = [
        sum((row[r] == max(row)) / row.count(max(row)) for row in matrix) / len(matrix)
        for r in ranks
    ]
    worst = max(zip(medians, [round(s, 9) for s in shares], strict=True))
    alike = [r for r in ranks if (medians[r], round(shares[r], 9)) == worst]
    row = of(ranks_of(matrix))
    assert (row["ranks"], row["rank_steps"]) == (len(ranks), len(matrix))
    assert row["rank_spread"] == pytest.approx((max(medians) - min(medians)) / median(medians))
    assert row["slowest_rank"] == (f"rank{alike[0]}" if len(alike) == 1 else None)
    assert row["slowest_share"] == (pytest.approx(worst[1]) if len(alike) == 1 else None)


@given(MATRIX)
def test_each_rank_has_its_median_and_its_share_of_the_slow_steps(matrix: list[list[int]]) -> None:
    rows = [
        {"rank": rank, "step": step, "elapsed_s": s} for rank, step, s in lines(ranks_of(matrix))
    ]
    found = measure_ranks(*all_steady(rows))
    assert found.schema == RANK_TIME_SCHEMA
    ties = [[(x == max(row)) / row.count(max(row)) for x in row] for row in matrix]
    assert found.rows() == [
        (
            "r",
            f"rank{r}",
            pytest.approx(0.1 * median(row[r] for row in matrix)),
            True,
            pytest.approx(sum(tie[r] for tie in ties) / len(matrix), abs=1e-8),
            len(matrix),
        )
        for r in range(len(matrix[0]))
    ]


@pytest.mark.parametrize(("tokens", "time"), [(8.0, 0.2), (None, 0.025)])
def test_a_rate_without_its_tokens_gives_relative_times(tokens: float | None, time: float) -> None:
    rows = [
        {"rank": rank, "step": step, "rank_tokens": tokens, "logged_tgs": 8.0 / seconds}
        for rank, step, seconds in lines({"0": [0.2, 0.2], "1": [0.1, 0.1]})
    ]
    found = measure_ranks(*all_steady(rows)).row(0, named=True)
    assert found["time"] == pytest.approx(time)
    assert found["in_seconds"] is (tokens is not None)


@pytest.mark.parametrize("ranks", [["0"], [None, None]])
def test_a_run_whose_ranks_do_not_compare_has_no_rows(ranks: list[str | None]) -> None:
    rows = [{"rank": r, "step": step, "elapsed_s": 1.0} for r in ranks for step in range(5)]
    assert measure_ranks(*all_steady(rows)).rows() == []


@given(MATRIX, st.randoms(use_true_random=False))
def test_other_names_change_nothing_but_the_name(
    matrix: list[list[int]], chance: random.Random
) -> None:
    times = ranks_of(matrix)
    names = dict(
        zip(times, chance.sample([f"node-{i}" for i in range(9)], len(times)), strict=True)
    )
    before = of(times)
    renamed = {names[rank]: seconds for rank, seconds in times.items()}
    after = of(dict(chance.sample(list(renamed.items()), len(renamed))))
    assert after == before | {"slowest_rank": names.get(before["slowest_rank"])}


@given(MATRIX, st.sampled_from([1e-6, 0.037, 1.0, 7.0, 14.5703125, 3600.0]))
def test_another_unit_of_time_changes_nothing(matrix: list[list[int]], unit: float) -> None:
    before, after = of(ranks_of(matrix)), of(ranks_of(matrix, unit))
    assert after["rank_spread"] == pytest.approx(before["rank_spread"], rel=1e-6, abs=1e-9)
    for name in ("slowest_rank", "slowest_share", "rank_steps"):
        assert after[name] == before[name]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=9), st.integers(2, 9))
def test_equal_ranks_have_no_spread_and_none_is_the_slowest(seconds: list[float], n: int) -> None:
    row = of({str(rank): seconds for rank in range(n)})
    assert (row["rank_spread"], row["slowest_rank"], row["slowest_share"]) == (0.0, None, None)


@given(MATRIX)
def test_a_rate_says_what_its_time_says(matrix: list[list[int]]) -> None:
    times = ranks_of(matrix)
    rows = [
        {"rank": rank, "step": step, "rank_tokens": 8.0, "logged_tgs": 8.0 / seconds}
        for rank, step, seconds in lines(times)
    ]
    found, expected = steady(rows), of(times)
    assert found.pop("rank_spread") == pytest.approx(expected.pop("rank_spread"), abs=1e-7)
    assert found == expected


# -- a bad node, or noise ------------------------------------------------------------------


def test_noise_gives_each_of_four_ranks_a_quarter_and_a_bad_node_all() -> None:
    chance = random.Random(6)  # noqa: S311 - no secret
    noise = {str(r): [1 + chance.gauss(0, 0.01) for _ in range(400)] for r in range(4)}
    row = of(noise)
    assert row["slowest_share"] == pytest.approx(0.25, abs=0.07)  # 3 standard errors of 0.0217
    assert row["rank_spread"] < 0.005
    row = of(noise | {"3": [1.05 * s for s in noise["3"]]})
    assert (row["slowest_rank"], row["rank_steps"]) == ("3", 400)
    assert row["slowest_share"] > 0.95
    assert row["rank_spread"] == pytest.approx(0.05, abs=0.003)


def test_only_steady_steps_that_all_ranks_print_are_compared() -> None:
    rows = [
        {"line": 10 * step + r, "step": step, "rank": str(r), "elapsed_s": seconds}
        for step, both in enumerate([(50, 9), (1, 2), (30, 1), (1, 2), (7, 0)], 1)
        for r, seconds in enumerate(both)
        if seconds  # the log ends in the middle of the last step
    ]
    saved = {"line": 25, "kind": "checkpoint"}  # rank 0 writes it: in the step that took it 30 s
    assert compared(rows, saved).row(0) == ("r", 2, 2, pytest.approx(1 / 1.5), "1", 1.0)


def test_an_analysis_has_the_ranks_that_its_metrics_are_of(
    logs: Path, titan: Callable[..., str]
) -> None:
    both = zip(titan(9, tps=1000).splitlines(), titan(9, tps=800).splitlines(), strict=True)
    log = logs / "run.log"
    log.write_text("".join(f"[rank0]:{fast}\n[rank1]:{slow}\n" for fast, slow in both))
    found = analyse(read_log_tables(log))
    row = found.metrics.row(0, named=True)
    assert found.rank_times.rows() == [
        (row["run_id"], "0", pytest.approx(1 / 1000), False, 0.0, 8),
        (row["run_id"], "1", pytest.approx(1 / 800), False, 1.0, 8),
    ]
    assert [row[n] for n in ("rank_steps", "slowest_rank", "slowest_share")] == [8, "1", 1.0]


def test_data_loading_counts_once() -> None:
    rows = [
        {"step": step, "rank": rank, "elapsed_s": 1.0, "data_s": data}
        for step in (1, 2, 3)
        for rank, data in (("0", 0.1), ("1", 0.5))
    ]
    left_out = compared(rows, elapsed_excludes_data=True).row(0, named=True)
    assert left_out["rank_spread"] == pytest.approx((1.5 - 1.1) / 1.3)
    assert left_out["slowest_rank"] == "1"
    within = compared(rows).row(0, named=True)
    assert (within["rank_spread"], within["slowest_rank"]) == (0.0, None)


def test_a_rank_with_more_tokens_at_a_higher_rate_is_no_faster() -> None:
    rows = [
        {"step": step, "rank": str(r), "rank_tokens": tokens, "logged_tgs": tokens / 2.0}
        for step in (1, 2, 3)
        for r, tokens in enumerate((4000.0, 4400.0))
    ]
    assert compared(rows).row(0, named=True)["rank_spread"] == 0.0


@pytest.mark.parametrize("rank", [None, "0"])
def test_one_rank_is_compared_with_none(rank: str | None) -> None:
    found = compared([{"step": s, "rank": rank, "elapsed_s": 1.0} for s in (1, 2, 3)])
    assert found.schema == RANK_SKEW_SCHEMA
    assert found.rows() == ([] if rank is None else [("r", 1, None, None, None, None)])


# -- data or compute -----------------------------------------------------------------------


def test_a_run_is_data_bound_above_a_tenth() -> None:
    shares = (None, 0.0, MIN_DATA_BOUND_SHARE, 0.11, 1.0)
    assert [bottleneck(share) for share in shares] == [None, "compute", "compute", "data", "data"]


# -- real and generated logs, by hand ------------------------------------------------------

real = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"NO REAL LOGS at {CORPUS}: set FAIRMFU_CORPUS to their folder"
)
generated = pytest.mark.skipif(
    not GENERATED.is_dir(), reason=f"NO LOGS at {GENERATED}: set FAIRMFU_GENERATED to their folder"
)
FIGURES = ("ranks", "rank_steps", "rank_spread", "slowest_rank", "slowest_share", "bound")


@real
def test_eight_ranks_of_which_three_print_the_second_step() -> None:
    """XTuner v1's documentation: step 2 of the ranks 2, 5 and 1, cut off there.

    time + data_time: 0.8883 + 0.0516 = 0.9399, 0.8948 + 0.0442 = 0.9390, 0.8899 + 0.0438 = 0.9337.
    Waiting: the longest is 0.0516 of 0.9399, 5.5 %.
    """
    row = analyse(read_log_tables(CORPUS / "xtuner/xtuner_v1_docs_sft_8rank_20250829.log")).metrics
    spread = (0.9399 - 0.9337) / 0.9390
    expected = [8, 1, pytest.approx(spread), "2", 1.0, "compute"]
    assert [row[name][0] for name in FIGURES] == expected
    assert row["data_share"][0] == pytest.approx(0.0516 / 0.9399)


@real
def test_two_ranks_of_torchtitan_that_print_their_rates() -> None:
    """msg_2024-04-02: medians of steps 2 to 10 are 209,542 (rank 0) and 209,649 (rank 1).

    Rank 0 prints the lower rate in all but the steps 5 and 6: in 7 of 9.
    """
    row = analyse(read_log_tables(CORPUS / "torchtitan/msg_2024-04-02_25ee32fd9c.txt")).metrics
    spread = (1 / 209_542 - 1 / 209_649) / ((1 / 209_542 + 1 / 209_649) / 2)
    expected = [2, 9, pytest.approx(spread, rel=1e-5), "0", pytest.approx(7 / 9), None]
    assert [row[name][0] for name in FIGURES] == expected


@real
def test_ranks_that_print_the_same_rates_are_not_told_apart() -> None:
    """msg_2025-10-16: steps 20 and 30 of four ranks, behind step 10, which is of the warm-up.

    Rank 2 lacks step 40, which is left out for all.
    """
    row = analyse(read_log_tables(CORPUS / "torchtitan/msg_2025-10-16_54310d57e5.txt")).metrics
    assert [row[name][0] for name in FIGURES] == [4, 2, 0.0, None, None, None]


@real
def test_a_run_that_waits_for_data_nearly_half_of_its_time() -> None:
    """csg2008's LLaVA: of 0.93 s a step 0.44 s are spent waiting for images.

    The sums of time and data_time over lines 3 to 51: 45.8647 s and 21.7223 s, of ten steps
    each. The first two lines tell of steps 6 to 10: 10 x 0.7299 - 5 x 0.5359 = 4.6195 s and
    10 x 0.2425 - 5 x 0.0408 = 2.221 s. (217.223 + 2.221) / (458.647 + 4.6195) = 0.47369.
    """
    flags = facts_from_flags(["seq_len=2048", "micro_batch_size=1", "packed=true", "gpus=1"])
    log = CORPUS / "xtuner/csg2008_llama3_8b_llava_qlora_20240504.log"
    row = analyse(read_log_tables(log, flag_facts=flags)).metrics.row(0, named=True)
    assert row["data_share"] == pytest.approx(0.47369, abs=1e-5)
    assert row["bound"] == "data"


@generated
def test_two_ranks_of_xtuner_v1_in_the_longest_speed() -> None:
    """Medians of time + data_time of steps 8 to 15: rank 0 1.3663 s, rank 1 1.37325 s.

    These steps take 80 % longer than those around. Rank 1 is the slower one in 4 of 8: of two ranks
    no sign of a bad one.
    """
    row = analyse(read_log_tables(GENERATED / "xtuner_v1/np2_gbs8_tb/stderr.log")).metrics
    expected = [2, 8, pytest.approx(0.00695 / 1.369775), "1", pytest.approx(4 / 8), "compute"]
    assert [row[name][0] for name in FIGURES] == expected
