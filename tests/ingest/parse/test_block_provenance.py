"""A fact of a log quotes the line that says it; a store of before, which quotes none, is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from fairmfu.cli import main
from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.decode.line_reader import Source
from fairmfu.ingest.decode.text_cleaning import Cleaner
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.parse.block_provenance import MAX_SEARCHED_LINES, locate_facts
from fairmfu.ingest.parse.line_matcher import MAX_QUOTED_CHARS
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store
from tests.support import old_store
from tests.support.effort import sampled
from tests.support.folders import ROOT
from tests.tools.corpus import CORPUS, GENERATED

pytestmark = sampled(12)

SAMPLES: Final = ROOT / "sample_logs"
FORMAT: Final = {f.name: f for f in BUILT_IN_FORMATS}

FOLLOWS: Final = frozenset({"gpus", "data_parallel", "tensor_parallel", "pipeline_parallel"})
"""Numbers that may follow from what a line lists, and stand nowhere as such."""

# -- the log's lines -------------------------------------------------------------------------


def logs_of(folder: Path) -> list[object]:
    if not folder.is_dir():
        absent = pytest.mark.skip(reason=f"NO LOGS in {folder}: see tests/tools/corpus.py")
        return [pytest.param(folder, marks=absent, id=folder.name)]
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [pytest.param(path, id=f"{folder.name}/{path.relative_to(folder)}") for path in paths]


@pytest.mark.parametrize("path", [*logs_of(SAMPLES), *logs_of(CORPUS), *logs_of(GENERATED)])
def test_a_quoted_line_is_the_logs(path: Path) -> None:
    """Each fact that names a line has its beginning, and a number that it states stands there."""
    try:
        tables = read_log_tables(path)
    except FairmfuError:  # no log
        return
    facts = tables["facts"]
    assert facts["line"].is_null().equals(facts["text"].is_null())
    primary = FORMAT[tables["sources"]["log_format"][0]]
    if primary.join is not None:  # a record is not a line
        return
    cleaner = Cleaner(primary.noise)
    quoted = set(facts["line"].drop_nulls())
    lines = {
        line.number: cleaner.strip(line.text)
        for line in Source(path).lines()
        if line.number in quoted
    }
    for fact in facts.filter(pl.col("line").is_not_null()).iter_rows(named=True):
        line, text = lines[fact["line"]], fact["text"]
        assert fact["origin"] == f"log:{fact['line']}" or f"(log:{fact['line']})" in fact["origin"]
        assert text == line[:MAX_QUOTED_CHARS] or text.startswith(f"{line.rstrip()} ")
        numeric = FACT_NAMES[fact["name"]].kind == "int" and fact["origin"].startswith("log:")
        if numeric and fact["name"] not in FOLLOWS:
            assert fact["value"] in line.replace(",", ""), fact


# -- a line of a block -----------------------------------------------------------------------


def read_pairs(lines: Sequence[str]) -> dict[str, str]:
    """Facts as a reader of a dump of arguments gives them."""
    said = dict(re.findall(r"(\w+) \.+ (\S+)", "\n".join(lines)))
    facts = {name: said[name] for name in ("tensor", "pipeline", "length") if name in said}
    if said.get("bf16") == "True":
        facts["precision"] = "bf16"
    if said.get("tensor", "").isdigit() and said.get("pipeline", "").isdigit():
        facts["both"] = str(int(said["tensor"]) * int(said["pipeline"]))
    return facts


def test_the_line_that_says_a_fact_is_found_among_lines_of_its_value() -> None:
    dump = [
        "------- arguments -------",
        "  decoys .......... 2",
        "  tensor .......... 2",
        "  workers ......... 2",
        "  pipeline ........ 2",
        "  bf16 ............ True",
        "  length .......... 4096",
        "  layers .......... 4",
    ]
    found = locate_facts(dump, read_pairs, read_pairs(dump))
    assert found == {"tensor": 2, "pipeline": 4, "precision": 5, "length": 6}  # `both` is of two


def read_json(lines: Sequence[str]) -> dict[str, str]:
    try:
        config = json.loads("\n".join(lines))
    except ValueError:
        return {}
    if config.get("stage") not in (1, 2, 3):
        return {}
    return {"stage": str(config["stage"]), "packed": str(config["packed"]).lower()}


def test_a_reader_that_refuses_other_values_is_asked_for_halves() -> None:
    """Of JSON, where a wrong word would spoil all, and of a value that has few choices."""
    dump = ["{", '"first": 1,', '"stage": 1,', '"whole": true,', '"packed": true,', '"n": 1', "}"]
    assert locate_facts(dump, read_json, read_json(dump)) == {"stage": 2, "packed": 4}


def test_a_fact_of_no_line_has_none() -> None:
    assert locate_facts(["wrapped"], lambda _: {"recompute": "full"}, {"recompute": "full"}) == {}
    assert (
        locate_facts(["recompute full"], lambda _: {"recompute": "full"}, {"recompute": "full"})
        == {}
    )


def test_a_block_without_end_is_not_read_again_and_again() -> None:
    dump = ["  tensor .......... 2"] + ["  x ............... 2"] * MAX_SEARCHED_LINES

    def never(_: Sequence[str]) -> dict[str, str]:
        raise AssertionError

    assert locate_facts(dump, never, {"tensor": "2"}) == {}


def read_numbers(lines: Sequence[str]) -> dict[str, str]:
    """Values without commas, and whole numbers without their decimals, as most readers do."""
    pairs = (line.split(": ") for line in lines)
    return {name: re.sub(r",|\.0+$", "", value) for name, value in pairs}


def test_a_number_is_found_however_it_is_spelled() -> None:
    for said in ("4096", "4,096", "4096.0", "4,096.0", "1,234,567"):
        dump = ["other: 4095", f"length: {said}", "none: x"]
        facts = {"length": read_numbers(dump)["length"]}
        assert locate_facts(dump, read_numbers, facts) == {"length": 1}, said


def test_a_text_is_found_as_it_stands() -> None:
    for said in ("a+b", "a|b", "a.b*c"):
        dump = ["other: aab", f"model: {said}", "none: x"]
        assert locate_facts(dump, read_numbers, {"model": said}) == {"model": 1}, said


def test_the_longest_block_is_looked_through() -> None:
    dump = ["length: 2"] + [f"x{n}: 2" for n in range(MAX_SEARCHED_LINES - 1)]
    assert locate_facts(dump, read_numbers, {"length": "2"}) == {"length": 0}
    assert locate_facts([*dump, "y: 2"], read_numbers, {"length": "2"}) == {}


NAMES: Final = st.sampled_from(["tensor", "pipeline", "length", "decoy", "other"])
VALUES: Final = st.sampled_from(["1", "2", "True", "none", "0.1", "4,096", "4096", "A100-80GB"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=12))
def test_what_is_found_holds_the_value_and_counts(pairs: list[tuple[str, str]]) -> None:
    """Of a name that comes twice the later line counts, which the dictionary keeps."""
    dump = [f"  {name} ..... {value}" for name, value in pairs]
    said = {n: v for n, v in read_pairs(dump).items() if n != "both"}
    last = {name: i for i, (name, _) in enumerate(pairs)}
    assert locate_facts(dump, read_pairs, said) == {name: last[name] for name in said}


def quoted(parsed: ParsedSource) -> dict[str, tuple[int, str]]:
    (launch,) = parsed.launches
    return {fact["name"]: (fact["line"], fact["text"]) for fact in launch.stated}


def test_facts_of_a_block_quote_their_own_lines(parse: Callable[..., ParsedSource]) -> None:
    text = """
2026/11/20 15:28:42 - mmengine - INFO - Config:
max_length = 256
model = dict(use_activation_checkpointing=False)
train_dataloader = dict(batch_size=1)
accumulative_counts = 4
2026/11/20 15:28:43 - mmengine - INFO - before_run:
"""
    found = quoted(parse("xtuner", text))
    assert found["seq_len"] == (2, "max_length = 256")
    assert found["micro_batch_size"] == (4, "train_dataloader = dict(batch_size=1)")
    assert found["gradient_accumulation"] == (5, "accumulative_counts = 4")
    assert found["recompute"] == (1, "2026/11/20 15:28:42 - mmengine - INFO - Config:")


def test_a_launch_begins_with_the_block_whose_later_lines_are_quoted(
    parse: Callable[..., ParsedSource],
) -> None:
    step = (
        "2026/11/20 15:{}:43 - mmengine - INFO - Iter(train) [{}/20]  lr: 1.0e-04  "
        "eta: 0:00:10  time: 0.5  data_time: 0.1  memory: 100  loss: 5.0"
    )
    text = [
        step.format(28, 10),
        "2026/11/20 15:40:00 - mmengine - INFO - Config:",
        "max_length = 256",
        "2026/11/20 15:40:01 - mmengine - INFO - before_run:",
        step.format(41, 10),
    ]
    first, second = parse("xtuner", text).launches
    assert (first.first_line, first.last_line) == (1, 1)
    assert second.first_line == 2
    assert {fact["name"]: fact["line"] for fact in second.stated}["seq_len"] == 3


def test_a_quote_is_without_colour_and_of_500_characters(
    parse: Callable[..., ParsedSource],
) -> None:
    line = (
        "[titan] 2026-01-02 03:04:01,000 - root - INFO - torchtitan version: \x1b[31m0.2.0\x1b[39m "
    )
    found = quoted(parse("torchtitan", [line + "x" * 1000]))
    number, text = found["framework_version"]
    assert number == 1
    assert text.startswith("[titan]")
    assert "version: 0.2.0 xxx" in text
    assert len(text) == MAX_QUOTED_CHARS


# -- stores of before ------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Store:
    return Store(old_store.genuine(tmp_path / "old"))


def by_nothing(_: Store) -> None:
    """Read as it is."""


def by_a_write(store: Store) -> None:
    run = store.table("runs")["run_id"][0]
    store.give_facts({run: facts_from_flags(["torch=2.0"])})
    store.give_facts({run: facts_from_flags(["torch="], allow_removal=True)})


def by_a_rebuild(store: Store) -> None:
    (store.path / "catalogue.duckdb").unlink()
    store.rebuild()


def by_a_merge(store: Store) -> None:
    store.compact()
    store.rebuild()


AFTER: Final = [by_nothing, by_a_write, by_a_rebuild, by_a_merge]


@pytest.mark.parametrize("after", AFTER)
def test_a_store_that_quoted_no_line_says_what_it_said(
    old: Store, after: Callable[[Store], None]
) -> None:
    said = old_store.said_by_genuine()
    after(old)
    for table, rows in said.items():
        found = old.table(table)
        assert old_store.as_told(found.select(list(rows[0]) if rows else [])) == rows
    assert old.table("facts")["text"].null_count() == old.table("facts").height > 0
    assert old.query("select count(text) as quoted from facts")["quoted"].to_list() == [0]
    assert [finding for finding in examine_store(old) if finding.is_harmful] == []


@pytest.mark.parametrize("after", AFTER)
def test_new_logs_in_it_quote_their_lines(
    old: Store, after: Callable[[Store], None], logs: Path, titan: Callable[..., str]
) -> None:
    """Parts with and without the column stand side by side, and are merged."""
    path = logs / "new.log"
    path.write_text(
        f"[titan] 2026-01-02 03:04:00,000 - root - INFO - torchtitan version: 1.0\n{titan()}"
    )
    ingest_run.ingest_paths([path], old, flag_facts=facts_from_flags(["gpus=8"]))
    before = old.table("facts")
    after(old)
    facts = old.table("facts")
    assert_frame_equal(facts.drop("sequence"), before.drop("sequence"))
    (new,) = old.table("runs").filter(name="new")["run_id"]
    named = facts.filter(run_id=new, name="framework_version")
    assert named["text"].to_list() == [path.read_text().splitlines()[0]]
    assert facts.filter(run_id=new, name="gpus")["text"].to_list() == [None]
    assert (
        facts.filter(pl.col("run_id") != new)["text"].null_count()
        == facts.height - facts.filter(run_id=new).height
    )
    assert [finding for finding in examine_store(old) if finding.is_harmful] == []


def test_it_is_explained_without_quotes(old: Store) -> None:
    said = CliRunner().invoke(
        main, ["explain", "titan-1rank", "--format", "json", "--store", str(old.path)]
    )
    facts = json.loads(said.stdout)["facts"]
    assert {fact["text"] for fact in facts} == {None}


def test_explain_quotes_in_json_and_not_in_its_table(
    store: Store, logs: Path, titan: Callable[..., str]
) -> None:
    path = logs / "new.log"
    first = "[titan] 2026-01-02 03:04:00,000 - root - INFO - torchtitan version: 1.0"
    path.write_text(f"{first}\n{titan()}")
    ingest_run.ingest_paths([path], store)
    said = CliRunner().invoke(
        main, ["explain", "new", "--format", "json", "--store", str(store.path)]
    )
    texts = {fact["name"]: fact["text"] for fact in json.loads(said.stdout)["facts"]}
    assert texts["framework_version"] == first
    table = CliRunner().invoke(main, ["explain", "new", "--store", str(store.path)]).stdout
    assert "log:1" in table
    assert first not in table
