"""Inputs that cost far more than their size are refused, with a clear error."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest.core.errors import FairmfuError, StoreError
from fairmfu.ingest.core.toml_reader import MAX_KEY_LEVELS, MAX_TOML_BYTES, parse_toml
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.facts.facts import facts_from_toml
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.query_limits import QueryLimits
from fairmfu.ingest.store.store import Store
from tests.support.error_kinds import of_kind
from tests.support.shared_databases import own_readers

DEEP = ".".join(["a"] * 50_000)
HOSTILE_TOML = {
    "dotted": f"{DEEP} = 1",
    "spaces around dots": f"{DEEP.replace('.', ' . ')} = 1",
    "quoted": f"{DEEP.replace('a', chr(34) + 'a' + chr(34))} = 1",
    "a table": f"[{DEEP}]",
    "an inline table": f"x = {{ {DEEP} = 1 }}",
    "arrays": "x = " + "[" * 50_000,
    "inline tables": "x = " + "{a=" * 30_000,
    "an integer": "x = " + "9" * 99_999,
    "size": "#" * (MAX_TOML_BYTES + 1),
}


@pytest.mark.parametrize("kind", HOSTILE_TOML)
def test_a_costly_facts_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "facts.toml"
    path.write_text(HOSTILE_TOML[kind])
    peak, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(FairmfuError, check=of_kind("invalid-facts-file")):
        facts_from_toml(path)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 500_000  # kB


@example(["a"] * 33)
@given(st.lists(st.from_regex("[a-z0-9_-]{1,5}", fullmatch=True), min_size=1, max_size=50))
def test_keys_of_usual_depth_are_read(names: list[str]) -> None:
    text = f"{'.'.join(names)} = 1"
    if len(names) <= MAX_KEY_LEVELS:
        assert [*parse_toml(text)] == names[:1]
    else:
        with pytest.raises(ValueError, match="more than 32 names"):
            parse_toml(text)


@pytest.mark.parametrize("text", ["a" * 100_000, "a . " * 20 + " " * 99_999, "'" * 99_999])
def test_the_search_for_deep_keys_takes_no_time(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r"."):
        parse_toml(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("packed_by", ["gzip", "zstd"])
def test_a_file_that_packs_too_well_is_refused(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, packed_by: str
) -> None:
    monkeypatch.setattr(line_reader, "MIN_BOUNDED_BYTES", 2**20)
    content = b"\n" * (64 * 2**20)
    packed = (
        gzip.compress(content)
        if packed_by == "gzip"
        else bytes(pa.compress(content, "zstd", asbytes=True))
    )
    path = tmp_path / "bomb.log.gz"
    path.write_bytes(packed)
    (outcome,) = ingest_run.ingest_paths([path], store)
    assert outcome.status == "failed"
    assert "over 500 times as large" in outcome.message
    assert "Fix: decompress it and look" in outcome.message


def test_a_log_that_packs_well_is_read(
    tmp_path: Path, store: Store, titan: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "MIN_BOUNDED_BYTES", 1)
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(titan(2_000).encode()))
    (outcome,) = ingest_run.ingest_paths([path], store)
    assert outcome.status == "read"


STEP = (
    "[rank0]:[titan] 2026-06-01 09:{:02}:{:02},000 - root - INFO - step: {:7}  loss: 11.{:05}  "
    "grad_norm:  1.2000  memory: 44.21GiB(55.88%)  tps: 6,400  tflops: 370.65  mfu: 37.48%\n"
)


def peak_of_ingest(folder: Path, steps: int) -> tuple[int, int]:
    """The size of a log of so many steps, and the peak of memory of its ingest [bytes]."""
    log = folder / f"{steps}.log"
    with log.open("w") as stream:
        stream.writelines(
            STEP.format(n // 60 % 60, n % 60, n + 1, n % 99_991) for n in range(steps)
        )
    command = ["ingest", str(log), "--store", f"{folder}/{steps}", "--processes", "1"]
    program = "from fairmfu.cli import main; main()"
    started = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", program, *command], stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode == 0
    return log.stat().st_size, used.ru_maxrss * 1024


def test_memory_does_not_grow_with_the_size_of_a_log(tmp_path: Path) -> None:
    """Of a log of 69 MB it is 20 MB more than of one of 9 MB; read at once it were 300 MB more."""
    (small, least), (large, most) = (peak_of_ingest(tmp_path, n) for n in (50_000, 400_000))
    assert most - least < large - small


ENDLESS = "select count(*) from range(10000000) a, range(10000000) b"


def test_a_query_ends_at_its_time(store: Store, logs: Path, titan: Callable[..., str]) -> None:
    (logs / "a.log").write_text(titan(20))
    ingest_run.ingest_paths([logs], store)
    with pytest.raises(StoreError, match="--timeout", check=of_kind("query-too-long")):
        store.query(ENDLESS, limits=QueryLimits(timeout_s=0.5))
    arguments = ["query", ENDLESS, "--store", str(store.path), "--timeout", "0.5"]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 1
    assert "did not end within 0.5 s" in found.stderr
    assert store.query("select count(*) as n from runs")["n"].to_list() == [1]


@pytest.mark.parametrize(
    "sql",
    [
        "select list(range) from range(100000000)",
        "select range, repeat('x', 100) from range(100000000)",
        "select a.range from range(1000000) a join range(1000000) b on a.range = b.range + 1 "
        "order by repeat('x', 1000) || a.range",
    ],
)
def test_a_query_keeps_to_its_memory(
    store: Store, logs: Path, titan: Callable[..., str], sql: str
) -> None:
    (logs / "a.log").write_text(titan(20))
    ingest_run.ingest_paths([logs], store)
    limits = QueryLimits(memory_bytes=100 * 2**20)
    with own_readers():
        with pytest.raises(StoreError, match="--memory-limit", check=of_kind("query-too-large")):
            store.query(sql, limits=limits)
        assert store.query("select count(*) as n from runs", limits=limits)["n"].to_list() == [1]
