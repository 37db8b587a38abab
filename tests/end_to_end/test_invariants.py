"""What has to hold between the figures of one log, whichever framework prints them.

Of public logs line by line (skipped where they are not there), and of golden/invariants.tsv: the
numbers of one window of each of their launches, without a line of them, so that the same relations
and our own TGS stay checked everywhere. `pytest --update-golden` with the logs rewrites it.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.resolved_facts import resolve_facts
from tests.end_to_end.test_corpus import GOLDEN, counted
from tests.support.effort import THOROUGH
from tests.tools.corpus import CORPUS, public_tables

MEGATRON: Final = ("megatron-deepspeed", "gpt-neox")
DEGREES: Final = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
)
NUMBERS: Final = (
    *("gpus", *DEGREES, "steps", "samples", "sequence_length", "elapsed_s"),
    *("samples_between", "tokens_between", "samples_per_second", "tgs"),
)
"""Of one window: `samples` and `elapsed_s` of a step, the differences of what was consumed over its
`steps`, the printed rates."""

THOUSANDTH: Final = 1000.0
"""bigscience printed so little of samples/s from 2021-12-06 to 2022-01-27."""

Numbers = dict[str, float | None]


@functools.cache
def windows(path: str) -> list[Numbers]:
    """The numbers of each line of a public log, with the differences to the line before."""
    return list(_windows(path))


def _windows(path: str) -> Iterator[Numbers]:
    tables = public_tables(path)
    facts = resolve_facts(tables["facts"])
    for run in tables["runs"]["run_id"]:
        said = dict(facts.filter(run_id=run).select("name", "value").iter_rows())
        known = {name: float(said[name]) for name in ("gpus", *DEGREES) if name in said}
        length, batch = said.get("seq_len"), said.get("global_batch_size")
        before: dict[str, Any] = {}
        for row in tables["steps"].filter(run_id=run).iter_rows(named=True):
            neox = tables["runs"]["log_format"][0] == "gpt-neox"
            yield known | {
                "steps": _less(row, before, "step"),
                "samples": float(batch) if neox and batch else row["samples"],
                "sequence_length": row["sequence_length"] or (float(length) if length else None),
                "elapsed_s": row["elapsed_s"],
                "samples_between": _less(row, before, "consumed_samples"),
                "tokens_between": _less(row, before, "consumed_tokens"),
                "samples_per_second": row["logged_samples_per_second"],
                "tgs": row["logged_tgs"],
            }
            before = row


def _less(row: dict[str, Any], before: dict[str, Any], name: str) -> float | None:
    return None if None in (row[name], before.get(name)) else row[name] - before[name]


def unlike(n: Numbers) -> list[str]:
    """The relations that the numbers of a window break."""
    broken = []
    degrees = [n.get(name) for name in DEGREES]
    product = functools.reduce(lambda a, b: a * (b or 1), degrees, 1.0)
    if n.get("gpus") and all(degrees[:3]) and product != n["gpus"]:
        broken.append(f"{product:g} ranks of {n['gpus']:g}")
    if n.get("tokens_between") and n.get("samples_between") and n.get("sequence_length"):
        expected = n["samples_between"] * n["sequence_length"]
        broken += [] if n["tokens_between"] == expected else [f"not {expected:g} tokens"]
    if not n.get("elapsed_s") or not n.get("samples"):
        return broken
    rate = n["samples"] / n["elapsed_s"]
    if n.get("samples_per_second"):
        printed = n["samples_per_second"]
        times = THOUSANDTH if rate / printed > THOUSANDTH / 2 else 1.0
        if abs(rate / times - printed) > printed * _clock(n["elapsed_s"]) + 0.00051:
            broken.append(f"{rate:g} samples/s, not {printed:g}")
    if n.get("tgs") and n.get("gpus") and n.get("sequence_length"):
        tgs = rate * n["sequence_length"] / n["gpus"]
        if abs(tgs - n["tgs"]) > tgs * _clock(n["elapsed_s"]) + 0.00051:
            broken.append(f"{tgs:g} tokens/s/GPU, not {n['tgs']:g}")
    return broken


def _clock(seconds: float) -> float:
    """Half a unit of the last digit of a time that is printed to 0.1 ms, or to 10 ms."""
    coarse = abs(seconds * 100 - round(seconds * 100)) < 1e-6
    return (0.0051 if coarse else 0.000051) / seconds


def logs(*formats: str) -> list[object]:
    if not CORPUS.is_dir():
        absent = pytest.mark.skip(reason=f"NO PUBLIC LOGS in {CORPUS}: set FAIRMFU_CORPUS")
        return [pytest.param("", marks=absent, id="absent")]
    return [path for path, row in counted().items() if row[0] in formats]


@pytest.mark.parametrize("path", logs(*MEGATRON))
def test_every_line_of_a_public_log_agrees_with_itself(path: str) -> None:
    broken = [(place, unlike(n)) for place, n in enumerate(windows(path))]
    assert [found for found in broken if found[1]] == []


@pytest.mark.parametrize("path", logs("torchtitan", "deepspeed", "xtuner", "xtuner-v1", *MEGATRON))
def test_the_degrees_of_a_public_log_make_its_world_and_its_batch(path: str) -> None:
    facts = resolve_facts(public_tables(path)["facts"])
    log_format = counted()[path][0]
    for _, rows in facts.group_by("run_id"):
        said = dict(rows.select("name", "value").iter_rows())
        degrees = [int(said.get(name, 1)) for name in DEGREES]
        product = functools.reduce(int.__mul__, degrees)
        if "gpus" in said and "data_parallel" in said:
            assert product == int(said["gpus"])
        parts = ("micro_batch_size", "gradient_accumulation", "data_parallel", "global_batch_size")
        if log_format not in MEGATRON and all(name in said for name in parts):
            micro, times, ranks, batch = (int(said[name]) for name in parts)
            assert micro * times * ranks == batch


@pytest.mark.parametrize("path", logs("xtuner-v1"))
def test_a_ranks_printed_rate_is_its_tokens_over_its_time(path: str) -> None:
    steps = public_tables(path)["steps"].drop_nulls(["rank_tokens", "logged_tgs"])
    assert steps.height
    for row in steps.iter_rows(named=True):
        assert row["rank_tokens"] / row["elapsed_s"] == pytest.approx(
            row["logged_tgs"], rel=0.0051 / row["elapsed_s"] + 0.051 / row["logged_tgs"]
        )


# -- without the logs ----------------------------------------------------------------------


@functools.cache
def kept() -> list[dict[str, str]]:
    lines = (GOLDEN / "invariants.tsv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t"))


def _name(row: dict[str, str]) -> str:
    return f"{row['log_format']}-{row['gpus']}x{row['samples']}x{row['elapsed_s']}"


def numbers(row: dict[str, str]) -> Numbers:
    return {name: float(row[name]) for name in NUMBERS if row[name]}


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"NO PUBLIC LOGS in {CORPUS}: set FAIRMFU_CORPUS")
def test_the_kept_numbers_are_those_of_the_logs(request: pytest.FixtureRequest) -> None:
    """Of each log the window of median time among those that say the most."""
    rows = set()  # two of them quote one run
    for path, (log_format, *_) in counted().items():
        if log_format in MEGATRON:
            every = [n for n in windows(path) if n["steps"] and n["elapsed_s"]]
            most = max((_said(n) for n in every), default=0)
            full = sorted((n for n in every if _said(n) == most), key=lambda n: n["elapsed_s"] or 0)
            if full and full[0]["samples"]:
                middle = full[len(full) // 2]
                rows.add((log_format, *(_text(middle.get(name)) for name in NUMBERS)))
    text = "\n".join("\t".join(row) for row in (("log_format", *NUMBERS), *sorted(rows)))
    golden = GOLDEN / "invariants.tsv"
    if request.config.getoption("update_golden"):
        head = (
            "# Numbers of one window of each public log; see test_invariants.py, which writes it.\n"
        )
        golden.write_text(f"{head}{text}\n", encoding="utf-8")
    assert golden.read_text(encoding="utf-8").partition("\n")[2] == f"{text}\n"


def _said(n: Numbers) -> int:
    return sum(value is not None for value in n.values())


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"


@pytest.mark.parametrize("row", kept(), ids=_name)
def test_the_kept_numbers_agree_with_each_other(row: dict[str, str]) -> None:
    assert unlike(numbers(row)) == []


WHOLE: Final = [row for row in kept() if row["gpus"] and row["sequence_length"]]


@pytest.mark.parametrize("row", WHOLE, ids=_name)
def test_our_rate_is_tokens_over_time_and_gpus(row: dict[str, str], tmp_path: Path) -> None:
    n = numbers(row)
    log = tmp_path / "run.log"
    log.write_text(composed(row["log_format"], n), encoding="utf-8")
    (ours,) = analyse(read_log_tables(log)).metrics["tgs"]
    assert ours == pytest.approx(
        n["samples"] * n["sequence_length"] / n["elapsed_s"] / n["gpus"], rel=1e-9
    )
    if n.get("tgs"):
        assert ours == pytest.approx(n["tgs"], rel=_clock(n["elapsed_s"]) + 0.00051 / n["tgs"])


def composed(log_format: str, n: Numbers) -> str:
    """Three lines of a run of these numbers, and the header that they need."""
    gpus, samples, length = (int(n[name]) for name in ("gpus", "samples", "sequence_length"))
    milliseconds, stride = n["elapsed_s"] * 1000, int(n["steps"])
    if log_format == "gpt-neox":
        keys = {
            "global_num_gpus": gpus,
            "log_interval": stride,
            "seq_length": length,
            "train_batch_size": samples,
        }
        ends, line = (
            "....updated",
            (
                " samples/sec: 1.000 | iteration {step}/ 999999 | elapsed time per iteration (ms): "
                f"{milliseconds!r} | lm_loss: 1.0E+00 | number of nan iterations:   0 |"
            ),
        )
    else:
        keys = {"log_interval": stride, "seq_length": length, "world_size": gpus}
        ends, line = (
            "",
            (
                " iteration {step}/ 999999 | elapsed time per iteration (ms): "
                f"{milliseconds!r} | global batch size: {samples} | lm loss: 1.0E+00 |"
            ),
        )
    header = [f"  {key} .... {value}{ends}" for key, value in keys.items()]
    steps = [line.format(step=place * stride) for place in (1, 2, 3)]
    text = ["--- arguments ---", *header, "--- end of arguments ---", *steps]
    return "\n".join(text) + "\n"


def test_numbers_are_kept_of_every_version_of_the_line() -> None:
    frame = pl.DataFrame(kept())
    assert set(frame["log_format"]) == set(MEGATRON)
    for name in ("samples_per_second", "tgs", "tokens_between", "context_parallel"):
        assert (frame[name] != "").any(), name


# -- Torchtitan: a rate and the stamps around it speak of the same tokens --------------------

SHARED_BY_TWO: Final = "torchtitan/msg_2024-10-22_6b2f673135.txt"
"""An excerpt without its mesh, of context_parallel 2: its stamps prove that tokens are shared."""


OF_TITAN: Final = [
    path
    for place, path in enumerate(logs("torchtitan"))
    if THOROUGH or place % 3 == 0 or path == SHARED_BY_TWO
]


@pytest.mark.parametrize("path", OF_TITAN)
def test_a_rate_times_the_time_between_stamps_is_the_tokens_of_the_header(path: str) -> None:
    metrics = analyse(public_tables(path)).metrics
    gaps = metrics.filter(pl.col("evidence_gap").is_not_null(), pl.col("windows") > 1)
    for gap, warnings in gaps.select("evidence_gap", "warnings").iter_rows():
        if path == SHARED_BY_TWO:
            assert gap == pytest.approx(1, abs=0.01)
            assert any("2x too high" in warning for warning in warnings)
        else:
            assert abs(gap) < 0.01
