"""One value that no run can have: its run says which, and every other run is as without it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import polars as pl
import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from tests.support.damaged_values import (
    LLAMA,
    MIXTRAL,
    SAMPLES,
    DamagedRun,
    bases,
    damaged,
    findings,
)

INPUTS: Final = int(os.environ.get("FAIRMFU_FUZZ") or 60)
GOOD: Final = 6
FACTS: Final = """accelerator = "NVIDIA H100 80GB HBM3"
seq_len = 8192
packed = true
recompute = "full"
trainable = "full"
"""

Change = Callable[[str], str]


def changed(pattern: str, new: str, count: int = 0) -> Change:
    """Replace what a pattern finds; it has to be there."""

    def change(text: str) -> str:
        after, times = re.subn(pattern, new, text, count=count)
        assert times
        return after

    return change


def config(text: str, **values: object) -> str:
    return json.dumps(json.loads(text) | values)


CASES: Final = {
    "query heads that do not share their keys": (
        "megatron-deepspeed",
        changed(r"(num_attention_heads \.+) 32", r"\1 3"),
        {},
        "3 query heads cannot share 8 key and value heads (log:",
    ),
    "a window of -1": (
        "deepspeed",
        str,
        {"facts.toml": FACTS, "config.json": config(MIXTRAL, sliding_window=-1)},
        "The mixtral config: 'sliding_window' is -1, and no model has less than 0 or more than "
        "268,435,456 (companion:config.json)",
    ),
    "a hidden size of 2^32": (
        "deepspeed",
        str,
        {"facts.toml": FACTS, "config.json": config(LLAMA, hidden_size=2**32)},
        "'hidden_size' is 4294967296",
    ),
    "a hidden size of 0 among arguments": (
        "torchtitan",
        str,
        {"facts.toml": r'megatron_arguments = "{\"hidden_size\": 0}"'},
        "The arguments header: 'hidden_size' must be 1 or more, not 0",
    ),
    "a length of 0": (
        "torchtitan",
        changed("sequence length 8192", "sequence length 0"),
        {},
        "seq_len=0 is impossible [tokens]: it is 1 to 1,000,000,000 (log:",
    ),
    "all times of 1e308": (
        "xtuner-v1",
        changed(r"(?<= time: )[\d.]+", "1e308"),
        {},
        "elapsed_s=1e+308 [s] is impossible: it is up to 100,000,000 (200 lines, first at line 2)",
    ),
    "one time of 1e308": (
        "xtuner-v1",
        changed(r"(?s)(Step 49/.*? time: )[\d.]+", r"\g<1>1e308", count=1),
        {},
        "elapsed_s=1e+308 [s] is impossible: it is up to 100,000,000 (line 50)",
    ),
    # of the same kind, of nobody's list
    "GPUs that nobody has": (
        "torchtitan",
        changed("dp_shard=8", "dp_shard=80000000000"),
        {},
        "gpus=80000000000 is impossible [accelerators]: it is 1 to 10,000,000 (log:",
    ),
    "a model of more parameters than fit": (
        "deepspeed",
        str,
        {
            "facts.toml": FACTS,
            "config.json": config(
                LLAMA, num_hidden_layers=100_000, intermediate_size=2**27, hidden_size=2**20
            ),
        },
        "No model has 4.22e+19 parameters (companion:config.json)",
    ),
    "a batch beside the log that nobody trains": (
        "deepspeed",
        str,
        {"facts.toml": FACTS, "ds_config.json": '{"train_batch_size": 1000000000000000}'},
        "global_batch_size=1000000000000000 is impossible [sequences]: it is 1 to 1e+12 "
        "(companion:ds_config.json)",
    ),
    "tokens per second of a damaged exponent": (
        "xtuner-v1",
        changed(r"(Step 60/.*? tgs: )([\d.]+)", r"\g<1>\g<2>e15"),
        {},
        "logged_tgs=",
    ),
}


def fairmfu(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def rows_of(store: Path) -> dict[str, dict[str, object]]:
    result = fairmfu("runs", "--format", "json", "--store", store)
    assert result.exit_code == 0, result.output
    return {row["name"]: row for row in json.loads(result.stdout)}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one good run, of which nothing has been computed."""
    store = tmp_path_factory.mktemp("good") / "store"
    assert fairmfu("ingest", SAMPLES / "xtuner", "--store", store).exit_code == 0
    return store


@pytest.fixture(scope="module")
def alone(good: Path) -> tuple[str, dict[str, object]]:
    """Name and figures of the good run without another beside it."""
    store = good.with_name("alone")
    shutil.copytree(good, store)
    ((name, row),) = rows_of(store).items()
    return name, row


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_value_is_said_and_harms_no_other_run(
    case: str, good: Path, alone: tuple[str, dict[str, object]], logs: Path, tmp_path: Path
) -> None:
    framework, change, beside, said = CASES[case]
    (source,) = (SAMPLES / framework).glob("*.log")
    (logs / "bad.log").write_text(change(source.read_text()))
    if framework in ("megatron-deepspeed", "xtuner-v1"):
        (logs / "facts.toml").write_text(source.with_name("facts.toml").read_text())
    for name, text in beside.items():
        (logs / name).write_text(text)
    store = tmp_path / "store"
    shutil.copytree(good, store)
    result = fairmfu("ingest", logs, "--store", store)
    assert result.exit_code == 0, result.output
    rows, (name, before) = rows_of(store), alone
    assert rows.pop(name) == before
    (bad,) = rows.values()
    assert any(said in warning for warning in bad["warnings"]), bad["warnings"]
    assert bad["error"] is None
    assert bad["tgs"] is not None or "batch" in said
    of_shape_or_length = any(word in said for word in ("'", "heads", "seq_len=", "parameters"))
    assert (bad["mfu"] is None) == (of_shape_or_length or "batch" in said)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("seq_len=1e300", "seq_len=1e300 is impossible [tokens]: it is 1 to 1,000,000,000."),
        ("gpus=99999999999", "it is 1 to 10,000,000."),
        ("peak_flops=989", "peak_flops=989 is impossible [FLOP/s]: it is 1,000,000,000 to 1e+18."),
        ("zero_stage=7", "zero_stage=7 is impossible: it is 0 to 3."),
    ],
)
def test_a_fact_that_is_given_has_bounds(assignment: str, said: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = fairmfu("ingest", SAMPLES / "xtuner", "--store", store, "--set", assignment)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())


def test_values_of_any_kind_find_nothing() -> None:
    draw = Random(11)  # noqa: S311 - no secret
    runs = [damaged(draw) for _ in range(INPUTS)]
    assert list(findings(runs, GOOD)) == []


def test_a_fault_is_found_and_so_is_a_run_that_changes_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is the search vain."""
    from fairmfu.metrics.pipeline import run_scoring as module  # noqa: PLC0415 - patched here

    draw = Random(3)  # noqa: S311 - no secret
    runs = [damaged(draw) for _ in range(3)]
    found, summarise = module.score_utilization, module.throughput.summarise

    def fails(facts: dict[str, dict[str, str]], *others: object) -> object:
        if "lora_rank" in facts:
            raise ZeroDivisionError
        return found(facts, *others)

    def slower(*frames: pl.DataFrame) -> pl.DataFrame:
        rates = summarise(*frames)
        several = rates["run_id"].str.contains("-bad").any()
        return rates.with_columns(pl.col("tgs") * (0.9 if several else 1))

    monkeypatch.setattr(module, "score_utilization", fails)
    told = list(findings(runs, GOOD))
    assert any("ZeroDivisionError" in words for words in told)
    monkeypatch.setattr(module, "score_utilization", found)
    monkeypatch.setattr(module.throughput, "summarise", slower)
    assert any(words.startswith("changes others") for words in findings(runs[:2], GOOD))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (r"(Samples/sec: )[\d.]+", "1e308"),  # a figure that has no column, in `extra`
        (r"(global batch size: +)\d+", "0"),  # behind a batch that grows
    ],
)
def test_found_by_the_fuzzer(field: str, value: str) -> None:
    """In all lines, and in those of the log's second half alone."""
    runs = [
        DamagedRun({**files, "run.log": text[:first] + changed_text}, f"{field} from {first}")
        for files in bases()
        for text in [files["run.log"]]
        for first in (0, len(text) // 2)
        if (changed_text := re.sub(field, rf"\g<1>{value}", text[first:])) != text[first:]
    ]
    assert runs
    assert not list(findings(runs, GOOD))
