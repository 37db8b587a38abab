"""Rows that wait on the disk are the rows that wait in memory, and nothing of them is left."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal

from fairmfu.ingest.core import spill
from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.spill import Spool, StreamedRows, collect_rows
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.decode.envelopes import Envelopes, KeepsEnvelope, detect_envelopes
from fairmfu.ingest.extract.log_tables import read_log, read_log_tables
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.launches.row_chunks import MAX_WAITING_FRAMES
from fairmfu.ingest.launches.step_rows import StepRows
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store import parquet_parts
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store, Tables
from tests.support.damaged_lines import damaged_log
from tests.support.effort import THOROUGH, sampled
from tests.support.folders import TESTS
from tests.support.log_lines import KINDS, Kind, Style, noise, write_log

pytestmark = sampled(5)

HERE = TESTS
EVERY = sorted(HERE.glob("variants/*/*.txt"))
VARIANTS = EVERY if THOROUGH else sorted({*EVERY[::6], *(min(x.parent.iterdir()) for x in EVERY)})
"""Of each format at least one."""
LOGS = [p for p in sorted(HERE.parent.glob("sample_logs/**/*")) if p.suffix in (".log", ".txt")]
SAMPLES = LOGS if THOROUGH else LOGS[::4]
TEXT = [f for f in BUILT_IN_FORMATS if f.join is None]
Limit = Callable[..., list[int]]
"""Rows at a time, and the log that is read."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Have rows go to the disk, so many at a time; gives the rows of each piece that went.

    The beginning of a file shows its envelope, and tabs in place of blanks: that beginning is as
    long as in a block of the usual size.
    """

    def limit(rows: int, log: Path | None = None) -> list[int]:
        went: list[int] = []
        write = Spool.write
        whole = b"" if log is None else log.read_bytes()

        def detected(first: bytes, keeps: KeepsEnvelope) -> Envelopes:
            return detect_envelopes(whole if whole.startswith(first) else first, keeps)

        def counted(self: Spool, frame: pl.DataFrame) -> tuple[int, int]:
            went.append(frame.height)
            return write(self, frame)

        monkeypatch.setattr(spill, "CHUNK_ROWS", rows)
        monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", 400 * rows)
        monkeypatch.setattr(line_reader, "detect_envelopes", detected)
        monkeypatch.setattr(spill, "MAX_HELD_BYTES", 0)
        monkeypatch.setattr(parquet_parts, "ROW_GROUP_ROWS", rows)
        monkeypatch.setattr(parquet_parts, "MAX_PART_ROWS", 5 * rows + 1)
        monkeypatch.setattr(Spool, "write", counted)
        return went

    return limit


def tables(path: Path, *, fast: bool) -> Tables | str:
    """All that is read of a log, whose rows may wait on the disk, or why it is refused."""
    kept = Spool()
    try:
        log = read_log(path, kept, use_fast_path=fast)
        found = {name: collect_rows(table) for name, table in log.tables(kept).items()}
        kept.settle()  # what goes to the disk by its thread is counted then
    except FairmfuError as error:
        return str(error)
    return found


def assert_same(found: Tables | str, expected: Tables | str) -> None:
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
        return
    assert found.keys() == expected.keys()
    for name, frame in expected.items():
        assert_frame_equal(found[name], frame, check_exact=True)


# -- one log -------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [*VARIANTS, *SAMPLES], ids=lambda p: "-".join(p.parts[-4:]))
def test_every_variant_says_the_same_from_the_disk(log: Path, at_once: Limit) -> None:
    """Counters of their own, counted steps, misprints, years, endings, world sizes, ranks."""
    expected = tables(log, fast=True)
    went = at_once(2, log)
    assert_same(tables(log, fast=True), expected)
    assert isinstance(expected, str) or sum(went) >= expected["steps"].height


@pytest.mark.parametrize("log_format", TEXT, ids=lambda f: f.name)
def test_damaged_and_restarted_logs_say_the_same_from_the_disk(
    log_format: LogFormat, tmp_path: Path, at_once: Limit
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(damaged_log(log_format, 1, 200 if THOROUGH else 40))
    expected = [tables(path, fast=fast) for fast in (True, False)]
    at_once(7, path)
    for fast, wanted in zip((True, False), expected, strict=True):
        assert_same(tables(path, fast=fast), wanted)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.log_format)
def test_a_generated_log_is_stored_from_the_disk_as_it_was_written(
    kind: Kind, tmp_path: Path, logs: Path, at_once: Limit
) -> None:
    truth = tmp_path / "truth.parquet"
    between = noise(kind, Style(), 0, 200)
    write_log(logs / "run.log", kind, 400_000, truth=truth, between=between, at_once=100)
    went = at_once(60)
    store = Store(tmp_path / "store")
    ingest_run.ingest_paths([logs], store)
    written, read = pl.read_parquet(truth), store.table("steps").sort("line")
    assert_frame_equal(read.select(written.columns), written, check_exact=True)
    stored = sorted((store.path / "parts" / "steps").iterdir())
    assert {path.stem for path in stored[:2]} == {"00000001", "00000001_0001"}
    heights = sorted(pl.read_parquet(path).height for path in stored)
    assert heights[1:] == [301] * (len(heights) - 1)
    assert {b for path in stored for b in pl.read_parquet(path)["batch"]} == {1}
    assert sum(went) >= written.height
    assert len(went) > 3
    assert examine_store(store) == []


def test_years_are_told_in_the_order_of_lines_whatever_lies_on_the_disk(
    logs: Path, at_once: Limit
) -> None:
    """Steps and events alternate over two New Years; one stamp is of no day of its year."""
    days = ["12/30", "12/31", "01/01", "02/28", "02/29", "07/01", "12/31", "01/02", "03/01"]
    lines = [f"{days[0]} 09:00:00 - mmengine - INFO - Exp name: cfg_20221230_090000\n"]
    for number, day in enumerate(days, 1):
        head = f"{day} 10:00:00 - mmengine - INFO - "
        lines += [f"{head}Iter(train) [{number}/99]  time: 0.5  loss: 1.5\n"]
        lines += [f"{head}Saving checkpoint at {number} iterations\n"]
    log = logs / "run.log"
    log.write_text("".join(lines))
    expected = read_log_tables(log)
    assert expected["events"].height >= len(days)
    years = expected["steps"]["logged_at"].dt.year().to_list()
    assert years == [2022, 2022, 2023, 2023, None, 2023, 2023, 2024, 2024]
    at_once(2)
    assert_same(tables(log, fast=True), expected)


def test_the_same_step_of_a_rank_far_apart_counts_once_for_the_world_size(
    logs: Path, at_once: Limit
) -> None:
    """Two ranks print one behind the other, so their steps lie in different pieces."""
    lines = [
        f"[XTuner][RANK {rank}][2026-01-02 03:04:{step:02}][INFO] Epoch 1 Step {step}/9 "
        f"data_time: 0.0500 lr: 1e-05 time: 3.9500 text_tokens: {tokens} "
        f"approximate_total_consumed_tokens: {16 * tokens * step} reduced_llm_loss: 1.5, "
        "local_loss: 1.5 tgs: 2025.3 "
        for rank, tokens in ((0, 8000), (1, 7000))
        for step in range(1, 10)
    ]
    log = logs / "run.log"
    log.write_text("\n".join(lines) + "\n")
    expected = read_log_tables(log)
    assert expected["facts"].filter(name="gpus")["value"].to_list() == ["16"]
    at_once(4)
    assert_same(tables(log, fast=True), expected)


# -- many logs, and what is left -----------------------------------------------------------


def test_many_logs_of_one_ingest_are_one_batch_from_the_disk(
    tmp_path: Path, logs: Path, titan: Callable[..., str], at_once: Limit
) -> None:
    paths = [logs / f"{number}.log" for number in range(6)]
    for number, path in enumerate(paths):
        path.write_text(titan(20 + number, loss=5.0 + number) * (1 + number % 2))
    plain, spilled = Store(tmp_path / "plain"), Store(tmp_path / "spilled")
    ingest_run.ingest_paths(paths[:4], plain)
    ingest_run.ingest_paths(paths[4:], plain)
    paths[0].write_text(paths[0].read_text() + titan(40, loss=5.0).splitlines()[-1] + "\n")
    ingest_run.ingest_paths(paths, plain)
    at_once(8)
    paths[0].write_text(paths[0].read_text().rsplit("\n", 2)[0] + "\n")
    ingest_run.ingest_paths(paths[:4], spilled)
    ingest_run.ingest_paths(paths[4:], spilled)
    assert len(list((spilled.path / "parts" / "batch").iterdir())) == 2
    paths[0].write_text(paths[0].read_text() + titan(40, loss=5.0).splitlines()[-1] + "\n")
    ingest_run.ingest_paths(paths, spilled)
    for name in ("runs", "steps", "events", "unread"):
        assert_frame_equal(spilled.table(name), plain.table(name), check_exact=True)
    assert examine_store(spilled) == []
    stored = spilled.table("steps")
    spilled.rebuild()
    spilled.compact()
    assert_frame_equal(spilled.table("steps"), stored)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_no_file_shows_while_rows_wait_nor_behind_them(
    tmp_path: Path,
    logs: Path,
    titan: Callable[..., str],
    at_once: Limit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (logs / "run.log").write_text(titan(30))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "system"))
    (tmp_path / "system").mkdir()
    store, went = Store(tmp_path / "store"), at_once(4)
    seen: list[set[str]] = []
    writes = Spool.write

    def looking(self: Spool, frame: pl.DataFrame) -> tuple[int, int]:
        there = writes(self, frame)
        seen.append(files(tmp_path / "system") | files(store.path))
        return there

    monkeypatch.setattr(Spool, "write", looking)
    ingest_run.ingest_paths([logs], store)
    assert went
    assert seen[0] == set()  # the others may be written while the store is
    assert files(tmp_path / "system") == set()
    assert all(path.startswith(("parts/", "catalogue", "writer")) for path in files(store.path))
    assert examine_store(store) == []


def test_small_logs_never_touch_the_disk(
    store: Store, logs: Path, titan: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spool, "write", lambda *_: pytest.fail("rows went to the disk"))
    for number in range(3):
        (logs / f"{number}.log").write_text(titan(50, loss=4.0 + number))
    assert {one.status for one in ingest_run.ingest_paths([logs], store)} == {"read"}


def test_a_disk_that_is_full_while_rows_wait_fails_that_log_alone(
    store: Store,
    logs: Path,
    titan: Callable[..., str],
    at_once: Limit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (logs / "a.log").write_text(titan(3))
    ingest_run.ingest_paths([logs], store)
    before = store.tables()
    (logs / "b.log").write_text(titan(40, loss=7.0))
    at_once(4)

    class Full:
        def __init__(self, **_: object) -> None:
            """No room."""

        def seek(self, _: int) -> None:
            """Anywhere."""

        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            """Nothing to do."""

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    outcomes = {Path(one.path).name: one for one in ingest_run.ingest_paths([logs], store)}
    assert outcomes["a.log"].status in ("known", "unchanged")
    assert outcomes["b.log"].status == "failed"
    assert "No space left on device" in outcomes["b.log"].message
    assert "free some space" in outcomes["b.log"].message
    for name, frame in before.items():
        assert_frame_equal(store.table(name), frame)


def test_what_nobody_waits_for_any_more_does_not_go_to_the_disk(
    at_once: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    went = at_once(4)
    frame = pl.DataFrame({"a": range(1000)})
    monkeypatch.setattr(spill, "MAX_HELD_BYTES", 3 * frame.estimated_size())
    kept = Spool()
    for _ in range(20):
        kept.keep(frame)
    held = [kept.keep(frame) for _ in range(2)]
    assert went == []
    held += [kept.keep(frame) for _ in range(2)]
    kept.settle()
    assert went == [1000] * 4
    assert all(piece.read().equals(frame) for piece in held)


def test_many_frames_of_few_rows_wait_as_copies_that_say_the_same() -> None:
    rows, came, numbers = StepRows(), [], list[NDArray[np.float64]]()
    for block in range(3 * MAX_WAITING_FRAMES):
        losses = np.arange(3.0) + block
        extra = [None, "", f'{{"lr": "{block} and more than twelve bytes"}}']
        frame = {"line": [3 * block + 1, 3 * block + 2, 3 * block + 3], "loss": losses}
        came.append(pl.DataFrame({**frame, "rank": ["0", None, "1"], "extra": extra}))
        numbers.append(losses)
        rows.extend(came[-1])
    waiting = [part for part in rows.waiting_rows() if isinstance(part, pl.DataFrame)]
    assert_frame_equal(pl.concat(waiting), pl.concat(came))
    held = zip(waiting, numbers, strict=True)
    shared = [np.shares_memory(frame["loss"].to_numpy(), losses) for frame, losses in held]
    assert sum(shared) == MAX_WAITING_FRAMES


def test_a_streamed_table_can_be_read_again_and_changed() -> None:
    frame = pl.DataFrame({"a": [1, 2, None], "b": ["x", None, "z"]})
    table = Spool().rows(frame)
    changed = table.with_columns(c=pl.col("a") * 2)
    assert isinstance(changed, StreamedRows)
    assert changed.schema == {"a": pl.Int64, "b": pl.String, "c": pl.Int64}
    for _ in range(2):
        assert_frame_equal(changed.whole(), frame.with_columns(c=pl.col("a") * 2))
