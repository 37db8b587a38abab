"""Logs that become tables together have the same tables as alone."""

from __future__ import annotations

import gzip
import pickle
import re
from functools import cache
from pathlib import Path
from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from fairmfu.ingest.core import spill as spools
from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.spill import (
    ChainedRows,
    LogTables,
    SlicedRows,
    Spool,
    SpooledFrame,
    chain_rows,
    collect_rows,
)
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.detect import detection
from fairmfu.ingest.extract import table_batches
from fairmfu.ingest.extract.log_tables import read_log, read_log_files, read_log_tables
from fairmfu.ingest.extract.table_batches import LogBatch, LogGroup, LogRows
from fairmfu.ingest.launches.event_rows import EventRows
from fairmfu.ingest.launches.row_chunks import MAPPING_ROW_WEIGHT
from fairmfu.ingest.launches.step_rows import StepRows
from fairmfu.ingest.store.changeset import LOG_TABLES
from fairmfu.ingest.store.store import Tables
from fairmfu.ingest.workers import local_engine
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT

EVERY = sorted((ROOT / "sample_logs").rglob("*.log"))
LONG = next(path for path in EVERY if path.name == "llama3-8b-8xh100-xtuner-v1.log")
SAMPLES = EVERY if THOROUGH else [*EVERY[::8], LONG]


def batch(paths: list[Path]) -> list[LogTables]:
    spool = Spool()
    out = LogBatch(spool)
    for path in paths:
        out.add(read_log(path, spool))
    return out.tables()


@cache
def _alone(path: Path, _: tuple[int, ...]) -> Tables | FairmfuError:
    """Of files that do not change meanwhile, by so many bytes at once."""
    try:
        return read_log_tables(path)
    except FairmfuError as error:
        return error


def read_alone(path: Path) -> Tables | FairmfuError:
    """What a log says when it is read by itself, or why it is refused."""
    return _alone(path, (line_reader.READ_BLOCK_BYTES, detection.FIRST_LOOK_BYTES))


def expect_alike(found: list[LogTables], paths: list[Path]) -> None:
    for path, tables in zip(paths, found, strict=True):
        alone = read_alone(path)
        assert not isinstance(alone, FairmfuError)
        assert set(tables) == set(alone) == set(LOG_TABLES)
        for name, table in tables.items():
            assert collect_rows(table).equals(alone[name]), (path.name, name)
            assert collect_rows(table).schema == alone[name].schema, (path.name, name)


@pytest.mark.parametrize("held_bytes", [0, spools.MAX_HELD_BYTES])
def test_each_log_gets_its_own_rows(held_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MAX_HELD_BYTES", held_bytes)
    expect_alike(batch(SAMPLES), SAMPLES)


@pytest.mark.parametrize(("logs", "rows"), [(3, 32_768), (64, 40), (64, 400)])
def test_logs_keep_their_order_however_many_are_together(
    logs: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_batches, "MAX_GROUP_LOGS", logs)
    monkeypatch.setattr(table_batches, "CHUNK_ROWS", rows)
    expect_alike(batch(SAMPLES), SAMPLES)


@pytest.mark.parametrize("paths", [SAMPLES, SAMPLES[:1]])
@pytest.mark.parametrize("rows", [32_768, 40])
def test_what_another_process_packs_is_what_it_has_read(
    paths: list[Path], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_batches, "CHUNK_ROWS", rows)
    logs = [
        log
        for log in read_log_files([(path, ()) for path in paths], Spool())
        if isinstance(log, LogRows)
    ]
    sent: LogGroup = pickle.loads(pickle.dumps(LogGroup.packed(logs)))  # noqa: S301 - ours
    steps = sent.tables["steps"]
    assert not isinstance(steps, pl.DataFrame)
    assert max(part.height for part in steps) <= rows
    expect_alike(sent.logs(Spool()), paths)


def test_neighbours_are_read_together_and_in_their_order() -> None:
    tables = [log["steps"] for log in batch(SAMPLES)]
    joined = chain_rows(tables)
    assert isinstance(joined, SlicedRows)
    assert collect_rows(joined).equals(pl.concat([collect_rows(table) for table in tables]))


def test_what_stood_between_is_left_out() -> None:
    tables = [log["steps"] for log in batch(SAMPLES)]
    assert all(table.height for table in tables[:3])
    some = [tables[0], tables[2], tables[1]]
    joined = chain_rows(some)
    assert isinstance(joined, ChainedRows)
    assert len(joined.tables) == len(some)
    assert collect_rows(joined).equals(pl.concat([collect_rows(table) for table in some]))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Logs by turns, most cut, broken or begun anew somewhere, and files that cannot be read."""
    rng, tmp_path = Random(3), tmp_path_factory.mktemp("many")  # noqa: S311 - logs to try
    out = []
    for number, sample in enumerate((3 if THOROUGH else 2) * SAMPLES):
        data = sample.read_bytes()
        at, to = sorted(rng.sample(range(len(data) + 1), 2))
        forms = [data, data[:to], data[:at] + data[to:], data[:to] + data, b"\xff\n" + data, b""]
        out.append(tmp_path / f"{number}.log")
        out[-1].write_bytes(rng.choice(forms))
    packed = tmp_path / "packed.log.gz"
    packed.write_bytes(gzip.compress(SAMPLES[0].read_bytes()))
    none = tmp_path / "none.log"
    none.write_bytes(b"no line of any format\n")
    out += [packed, none, tmp_path / "missing.log"]
    rng.shuffle(out)
    return out


@pytest.mark.parametrize(
    ("small_bytes", "block_bytes"),
    [
        (3_000, line_reader.READ_BLOCK_BYTES),
        (local_engine.MAX_SMALL_BYTES, 1_000),
        (local_engine.MAX_SMALL_BYTES, 2**20),
    ],
)
def test_logs_that_are_read_together_are_read_as_alone(
    many: list[Path], small_bytes: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairmfu.ingest.extract.log_tables.MAX_SMALL_BYTES", small_bytes)
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(detection, "FIRST_LOOK_BYTES", block_bytes)
    found = read_log_files([(path, ()) for path in many], Spool())
    logs = [one for one in found if not isinstance(one, Exception)]
    read = [path for path, one in zip(many, found, strict=True) if not isinstance(one, Exception)]
    expect_alike(LogGroup.of(logs).logs(Spool()), read)
    errors = {path: one for path, one in zip(many, found, strict=True) if path not in read}
    assert len(read) > len(SAMPLES)
    assert len(errors) > 3
    for path, error in errors.items():
        alone = read_alone(path)
        assert (str(error), type(error)) == (str(alone), type(alone))


def together_read(paths: list[Path]) -> list[LogTables]:
    """The tables of each, none of which fails."""
    logs = read_log_files([(path, ()) for path in paths], Spool())
    return LogGroup.of([log for log in logs if not isinstance(log, Exception)]).logs(Spool())


def test_neighbours_wait_together_as_long_as_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 100
    monkeypatch.setattr(table_batches, "CHUNK_ROWS", rows)
    found = together_read(SAMPLES)
    expect_alike(found, SAMPLES)
    steps = [tables["steps"] for tables in found]
    pieces = [table.piece for table in steps if isinstance(table, SlicedRows)]
    assert len({id(piece) for piece in pieces}) < len(pieces)  # some share one
    assert len(pieces) < len(steps)  # and some are of one log alone
    assert all(isinstance(piece, SpooledFrame) and piece.height <= rows for piece in pieces)
    assert all(isinstance(table, SlicedRows) == (table.height <= rows) for table in steps)


def titan(step: int) -> bytes:
    """A step line of Torchtitan."""
    said = "step: {:2}  loss: {:7.4f}  grad_norm: 1.5  memory: 9.25GiB(12.00%)  tps: 1,234  "
    rest = "tflops: 100.00  mfu: 10.00%"
    stamp = f"2026-11-20 15:{step // 60:02}:{step % 60:02},731"
    return (
        f"[rank0]:[titan] {stamp} - root - INFO - {said.format(step, 9 - step / 64)}{rest}".encode()
    )


def test_a_packed_log_without_a_name_for_it_is_read_alone(tmp_path: Path) -> None:
    """It may be long: this one has a line that is cut between two blocks, and kinds behind it."""
    sample = b"".join(titan(step) + b"\n" for step in range(1, 80))
    noise = b"some noise of a kind\n" * (
        (line_reader.READ_BLOCK_BYTES - len(sample) - 300_000) // 21
    )
    news = b"".join(b"news of kind %c\n" % kind for kind in b"abcdefgh")
    packed, beside = tmp_path / "packed.log", tmp_path / "beside.log"
    packed.write_bytes(gzip.compress(sample + noise + b"z" * 700_000 + b"\n" + sample + news))
    beside.write_bytes(sample)
    found = together_read([packed, beside])
    expect_alike(found, [packed, beside])
    (told,) = found[0]["sources"]["other_kinds"]
    assert {kind["example"] for kind in told} >= {f"news of kind {kind}" for kind in "abcdefgh"}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_line_is_too_long_with_its_return_or_without(
    tmp_path: Path, end: bytes, over: int
) -> None:
    lines = [titan(step) for step in range(1, 80)]
    lines.insert(40, b"z" * (line_reader.MAX_LINE_BYTES + over))
    log = tmp_path / "long.log"
    log.write_bytes(b"".join(line + end for line in lines))
    expected = read_log_tables(log, use_fast_path=False)
    (alone,) = LogGroup.of([read_log(log, Spool())]).logs(Spool())
    for found in (
        read_log_tables(log),
        {name: collect_rows(table) for name, table in alone.items()},
    ):
        for name, table in expected.items():
            assert found[name].equals(table), name
    assert expected["unread"].height == (over + len(end) > 1)


def test_what_is_learned_of_one_log_holds_for_others(tmp_path: Path) -> None:
    """The first has skipped steps from its start on; the other begins twice, which says so."""

    def lines(starts: int, skipped: int, steps: int) -> str:
        prefix = "[2026-11-20 15:01:{:02},506] [INFO] [logging.py:123:log_dist] [Rank 0] "
        said = [(0, 0)] + [(10 * step, skipped) for step in range(1, steps)]
        text = "step={}, skipped={}, lr=[0.0001], mom=[(0.9, 0.95)]\n"
        each = [prefix.format(at % 60) + text.format(*one) for at, one in enumerate(said)]
        return "".join(each[0 if starts else 1 :] * max(starts, 1))

    paths = [tmp_path / "skips.log", tmp_path / "begins_twice.log"]
    paths[0].write_text(lines(0, 5, 800))
    paths[1].write_text(lines(2, 2, 30))
    found = together_read(paths)
    for path, tables in zip(paths, found, strict=True):
        for name, table in read_log_tables(path, use_fast_path=False).items():
            assert collect_rows(tables[name]).equals(table), (path.name, name)
    assert collect_rows(found[1]["runs"]).height == 2


def test_half_a_character_in_a_config_is_kept_as_it_is_spelled(tmp_path: Path) -> None:
    """JSON may spell one; no table can hold it, and no other log is to suffer for it."""
    good = next(p for p in EVERY if b'"attn_type": "' in p.read_bytes()).read_bytes()
    paths = [tmp_path / "odd.log", tmp_path / "good.log"]
    paths[0].write_bytes(re.sub(rb'"attn_type": "[a-z]+"', rb'"attn_type": "\\ud800"', good))
    paths[1].write_bytes(good)
    expect_alike(together_read(paths), paths)
    assert r"\ud800" in read_log_tables(paths[0])["facts"]["value"].to_list()


@pytest.mark.parametrize("place", [-9, -8, -1, 0, 1])
def test_what_is_said_behind_the_end_of_a_long_line_is_not_said(tmp_path: Path, place: int) -> None:
    """The Trainer's bars and dicts share lines: whether they do is told by what is kept of each."""
    bars = [
        f" {step * 3}%|###   | {step}/40 [00:0{step % 9}<00:30,  5.71it/s]" for step in range(30)
    ]
    head = [
        "***** Running training *****",
        "  Num examples = 640",
        "  Total optimization steps = 40",
    ]
    long = "x" * (line_reader.MAX_LINE_BYTES + place) + "{'loss': "
    log = tmp_path / "trainer.log"
    log.write_text("\n".join([*head, *bars, long, *bars, ""]))
    expected, found = (read_log_tables(log, use_fast_path=fast) for fast in (False, True))
    for name, table in expected.items():
        assert found[name].equals(table), name


# -- logs of a few rows, written by hand ---------------------------------------------------------


def log_of(name: str, steps: int, events: int, unread: int) -> LogRows:
    """A log of one run, with so many rows of each table."""
    step_rows, event_rows = StepRows(None, ["plain"]), EventRows()
    for n in range(1, steps + 1):
        step_rows.append({"line": n, "rank": None, "step": n, "form": "plain"})
    for n in range(1, events + 1):
        event_rows.append({"line": n, "kind": "checkpoint", "text": f"{name} {n}"})
    step_rows.settle()
    event_rows.settle()
    rows = {
        "sources": [{"sha256": name, "path": name}],
        "runs": [{"run_id": name, "sha256": name}],
        "facts": [{"run_id": name, "name": "gpus", "value": "8"}],
        "unread": [{"sha256": name, "line": n} for n in range(unread)],
    }
    return LogRows(rows, [(name, step_rows)], [(name, event_rows)])


SIZES = st.lists(st.tuples(*[st.sampled_from((0, 1, 3, 7))] * 3), min_size=1, max_size=4)


def logs_of(sizes: list[tuple[int, int, int]]) -> list[LogRows]:
    return [log_of(str(n), *size) for n, size in enumerate(sizes)]


def expect_same(found: list[LogTables], logs: list[LogRows]) -> None:
    assert len(found) == len(logs)
    for mine, log in zip(found, logs, strict=True):
        alone = log.tables(Spool())
        assert set(mine) == set(alone)
        for name, table in alone.items():
            assert_frame_equal(collect_rows(mine[name]), collect_rows(table))
            assert mine[name].height == log.heights[name]


@pytest.mark.parametrize("most", [4, 1000])
@given(sizes=SIZES)
@settings(max_examples=8)
def test_each_of_several_logs_has_its_own_rows_again(
    most: int, sizes: list[tuple[int, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_batches, "CHUNK_ROWS", most)
        patch.setattr(table_batches, "MAX_GROUP_LOGS", 3)
        logs = logs_of(sizes)
        expect_same(LogGroup.of(logs).logs(Spool()), logs)
        sent: LogGroup = pickle.loads(pickle.dumps(LogGroup.packed(logs)))  # noqa: S301 - ours
        expect_same(sent.logs(Spool()), logs)
        batch = LogBatch(Spool())
        for place, log in enumerate(logs):
            batch.add(log.tables(Spool()) if place % 3 == 1 else log)
        expect_same(batch.tables(), logs)


def test_rows_of_a_log_that_may_be_many_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps always, others where they are more than a piece has."""
    monkeypatch.setattr(table_batches, "CHUNK_ROWS", 5)
    for size, framed in (
        ((1, 5, 5), {"events", "unread"}),
        ((1, 6, 5), {"unread"}),
        ((0, 5, 6), {"events", "steps"}),
    ):
        tables = LogGroup.packed([log_of("a", *size)]).tables
        few = {name for name, table in tables.items() if isinstance(table, pl.DataFrame)}
        assert few == {"sources", "runs", "facts", *framed}, size


def test_a_log_weighs_what_its_rows_do() -> None:
    """A row by itself as much as four of a frame: sources, runs, facts and what is unread."""
    bare = log_of("a", 0, 0, 0)
    assert bare.weight == 3 * MAPPING_ROW_WEIGHT
    assert log_of("a", 7, 0, 0).weight == 3 * MAPPING_ROW_WEIGHT + 7
    assert log_of("a", 0, 0, 2).weight == 5 * MAPPING_ROW_WEIGHT
    assert log_of("a", 0, 2, 0).weight > bare.weight


@pytest.mark.parametrize(("heavy", "together"), [(10, [1, 1, 1]), (100, [3]), (25, [2, 1])])
def test_logs_become_tables_together_while_they_are_few(
    heavy: int, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each weighs 12, and three of them 36."""
    monkeypatch.setattr(table_batches, "CHUNK_ROWS", heavy)
    made, of = list[int](), LogGroup.of
    monkeypatch.setattr(
        LogGroup, "of", classmethod(lambda _, logs: made.append(len(logs)) or of(logs))
    )
    batch = LogBatch(Spool())
    for log in logs_of([(0, 0, 0)] * 3):
        batch.add(log)
    assert len(batch.tables()) == 3
    assert made == [count for count in together if count > 1]
