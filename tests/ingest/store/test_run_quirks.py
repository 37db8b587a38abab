"""What is true of one format alone is data: of a format of one's own as of a built-in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairmfu.ingest import read_logs
from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.schema import QUIRKS
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.store.run_quirks import COLUMNS, with_quirks
from fairmfu.metrics import analyse
from fairmfu.metrics.throughput import messages

RANK_SUM_DOUBTFUL = messages.RANK_SUM_DOUBTFUL()

NOVA = r"""
name = "nova"
framework = "novatrain"
signature = '\[nova\] it \d+/\d+'
looks_like_step = '\[nova\] it \d+'
evidence = ["{evidence}"]
elapsed_covers = "step"
rate_covers = "interval"
{quirks}

[[steps]]
anchor = "[nova] it "
regex = '\[nova\] it (?P<step>\d+)/\d+ \| loss (?P<loss>[\d.]+) \| {field}'
example = "[nova] it 120/5000 | loss 2.31 | {example}"
printed_by = "nova/train.py"
[steps.columns]
step = "step"
loss = "loss"
{columns}
"""


def told(tmp_path: Path, fields: list[str], quirks: list[str], **parts: str) -> dict[str, Any]:
    """The row of a NovaTrain log, one line a step, read by a format of one's own."""
    toml, log = tmp_path / "nova.toml", tmp_path / "nova.log"
    keys = f"quirks = {quirks}".replace("'", '"') if quirks else ""
    toml.write_text(NOVA.format(quirks=keys, **parts))
    lines = [
        f"[nova] it {n}/5000 | loss {3 - n / 100:.2f} | {field}"
        for n, field in enumerate(fields, 1)
    ]
    log.write_text("\n".join(lines) + "\n")
    facts = {"gpus": 4, "seq_len": 4096, "packed": "true", "tensor_parallel": 2}
    tables = read_logs(log, facts=facts, log_formats=[str(toml)])
    return analyse(tables).metrics.row(0, named=True)


RATES = {
    "evidence": "rate",
    "field": r"(?P<rate>\d+) tok/s/gpu",
    "example": "8 tok/s/gpu",
    "columns": 'rate = "logged_tgs"',
}


@pytest.mark.parametrize("quirks", [[], ["rates_rounded"]])
def test_rates_that_a_format_rounds_are_doubted_where_they_are_coarse(
    tmp_path: Path, quirks: list[str]
) -> None:
    """8 is any rate from 7.5 to 8.5; of another format it is 8.0 as far as anyone knows."""
    row = told(tmp_path, ["8 tok/s/gpu"] * 6, quirks, **RATES)
    assert row["tgs"] == pytest.approx(8)
    doubts = [text for text in row["warnings"] if "whole numbers" in text]
    assert [text.startswith("TGS may be up to 6.2% off") for text in doubts] == [True] * len(quirks)


TOKENS = {
    "evidence": "elapsed",
    "field": r"(?P<time>[\d.]+) s/it \| (?P<tokens>\d+) tok",
    "example": "0.812 s/it | 131072 tok",
}


@pytest.mark.parametrize("column", ["consumed_tokens", "step_tokens"])
def test_tokens_are_summed_as_the_quirks_say(column: str, tmp_path: Path) -> None:
    """Two of four GPUs are given the same tokens, so that a sum over all counts each twice."""
    grows = column == "consumed_tokens"
    fields = [f"0.812 s/it | {131072 * (n if grows else 1)} tok" for n in range(1, 31)]
    nova = {**TOKENS, "columns": f'time = "elapsed_s"\ntokens = "{column}"'}
    once = 131072 / 4 / 0.812
    assert told(tmp_path, fields, [], **nova)["tgs"] == pytest.approx(once)
    summed = told(tmp_path, fields, ["tokens_of_processes"], **nova)
    assert summed["tgs"] is None
    assert summed["missing"][:1] == ["global_batch_size"]
    counted = told(tmp_path, fields, ["tokens_of_ranks"], **nova)
    assert counted["tgs"] == pytest.approx(once / 2)
    assert RANK_SUM_DOUBTFUL in counted["warnings"]  # how many share a sequence it may not know


def test_a_quirk_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(FairmfuError, match="quirks: 'rates_whole' is unknown"):
        told(tmp_path, ["8 tok/s/gpu"], ["rates_whole"], **RATES)


def test_all_quirks_are_known_and_used() -> None:
    used = {quirk for one in BUILT_IN_FORMATS for quirk in one.quirks}
    assert used == set(QUIRKS)


def test_an_engine_below_is_a_format_that_a_log_can_be_read_with() -> None:
    engines = {one.engine_below for one in BUILT_IN_FORMATS} - {None}
    assert engines <= {one.name for one in BUILT_IN_FORMATS}


def test_a_run_that_was_stored_before_has_what_its_format_says() -> None:
    log = Path("sample_logs/h200/torchtitan-0.2.2/bf16/run.log")
    runs = read_logs(log)["runs"]
    before = runs.with_columns(**dict.fromkeys(COLUMNS)).cast(dict(runs.schema))
    assert with_quirks(before).equals(runs)
    assert "rates_rounded" in runs["quirks"][0].to_list()
    fewer = runs.with_columns(quirks=pl.lit(["accumulation_stated"]))
    assert with_quirks(fewer).equals(runs)
    own = pl.concat([before, fewer]).with_columns(log_format=pl.lit("torchtitan-fork"))
    assert with_quirks(own)["quirks"].to_list() == [None, ["accumulation_stated"]]
