"""A store at an address: what holds of a folder holds there, whoever else writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from s3fs import S3FileSystem

from fairmfu.cli import main
from fairmfu.ingest.core.errors import FairmfuError, StoreError
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store import doctor, parquet_parts, transactions
from fairmfu.ingest.store import store as stores
from fairmfu.ingest.store.store import Store
from tests.support.alike import expect_alike
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT
from tests.support.nights import without_report
from tests.support.object_server import Bucket, served

SAMPLES = sorted((ROOT / "sample_logs").rglob("*.log"), key=lambda path: path.stat().st_size)[:3]
HALF = 2


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Bucket]]:
    with served(tmp_path_factory.getbasetemp() / "none") as made:
        yield made


@pytest.fixture
def bucket(buckets: Callable[[], Bucket], machine: Callable[[str], None]) -> Bucket:
    machine("one")
    return buckets()


@pytest.fixture(scope="module")
def locals_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Store]:
    """Make the store in a folder that the first so many samples give; nobody changes it."""

    @cache
    def store_of(count: int) -> Store:
        store = Store(tmp_path_factory.mktemp("here") / "store")
        ingest_paths(SAMPLES[:count], store)
        return store

    return store_of


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Be another machine, with a cache of its own."""
    return lambda name: monkeypatch.setenv("FAIRMFU_CACHE", str(tmp_path / "cache" / name))


def test_a_store_at_an_address_is_as_one_in_a_folder(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Store(tmp_path / "here"), Store(bucket.at("perf/store"))
    for some in (SAMPLES[:HALF], SAMPLES):
        told = [ingest_paths(some, store) for store in (here, there)]
        assert told[0] == told[1]
    expect_alike(here, there)
    run = here.table("runs")["run_id"][0]
    assert there.table("steps", [run]).equals(here.table("steps", [run]))
    sql = "select count(*) n, sum(loss) loss from steps"
    assert there.query(sql).equals(here.query(sql))
    assert all(key.startswith("perf/store/parts/") for key in bucket.held())
    monkeypatch.setattr(transactions, "MERGED_PART_GRACE", transactions.MERGED_PART_GRACE * 0)
    there.compact()
    there.compact()  # which deletes what the first one made needless
    there.rebuild()
    expect_alike(here, there)


def test_another_machine_sees_what_was_stored(
    bucket: Bucket, machine: Callable[[str], None], locals_of: Callable[[int], Store]
) -> None:
    here = locals_of(len(SAMPLES))
    ingest_paths(SAMPLES[:HALF], Store(bucket.at("store")))
    machine("two")
    ingest_paths(SAMPLES[HALF:], Store(bucket.at("store")))
    expect_tables(here, Store(bucket.at("store")))
    machine("one")
    expect_tables(here, Store(bucket.at("store")))
    Store(bucket.at("store")).compact()
    machine("two")
    expect_tables(here, Store(bucket.at("store")))
    machine("three")
    expect_tables(here, Store(bucket.at("store")))
    assert not any(one.is_harmful for one in doctor.examine_store(Store(bucket.at("store"))))


def expect_tables(here: Store, there: Store) -> None:
    assert there.table("steps").equals(here.table("steps"))
    for name in ("runs", "sources"):
        assert there.table(name).height == here.table(name).height


def test_who_is_overtaken_plans_anew(
    bucket: Bucket,
    machine: Callable[[str], None],
    locals_of: Callable[[int], Store],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another machine stores the same log, and others, before our record of that number is."""
    write, done = parquet_parts.write_record, []

    def overtaken(*given: Any) -> None:
        if not done:
            done.append(given)
            machine("two")
            ingest_paths(SAMPLES[HALF - 1 :], Store(bucket.at("store")))
            machine("one")
        write(*given)

    monkeypatch.setattr(parquet_parts, "write_record", overtaken)
    outcomes = ingest_paths(SAMPLES[:HALF], Store(bucket.at("store")))
    assert [one.status for one in outcomes] == [*["read"] * (HALF - 1), "known"]
    expect_tables(locals_of(len(SAMPLES)), Store(bucket.at("store")))
    assert len(done) == 1


def test_one_that_is_overtaken_again_and_again_says_so(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(*_: Any, **__: Any) -> None:
        raise stores.BatchConflictError

    monkeypatch.setattr(parquet_parts, "write_record", always)
    monkeypatch.setattr(stores.random, "uniform", lambda *_: 0)
    with pytest.raises(StoreError, match="each of 8 attempts", check=of_kind("write-conflicts")):
        ingest_paths(SAMPLES[:1], Store(bucket.at("store")))
    assert bucket.held("store/parts/batch") == []


def test_a_store_is_refused_where_two_writers_could_harm_each_other() -> None:
    for command in (["ingest", str(SAMPLES[0])], ["runs"]):
        told = CliRunner().invoke(main, [*command, "--store", "memory://perf/store"])
        assert told.exit_code == 1
        assert "a store cannot be at memory://" in told.stderr
        assert isinstance(told.exception, SystemExit)


def test_a_put_whose_answer_is_lost_is_ours(
    bucket: Bucket, locals_of: Callable[[int], Store]
) -> None:
    lost: list[str] = []

    def verdict(method: str, path: str) -> str:
        if method == "PUT" and "/parts/batch/" in path and not lost:
            lost.append(path)
            return "lost"
        return ""

    bucket.between.verdict = verdict
    ingest_paths(SAMPLES[:1], Store(bucket.at("store")))
    assert lost
    expect_alike(locals_of(1), Store(bucket.at("store")))


@pytest.mark.parametrize("where", ["/parts/steps/", "/parts/batch/"])
def test_puts_that_fail_leave_nothing_half(
    bucket: Bucket, locals_of: Callable[[int], Store], where: str
) -> None:
    """Refused twice, and then done without an answer, which tells who put it little."""
    ingest_paths(SAMPLES[:1], Store(bucket.at("store")))
    for verdict in ("slow", "denied", "lost"):
        bucket.between.verdict = lambda m, path, verdict=verdict: (
            verdict if m == "PUT" and where in path else ""
        )
        with pytest.raises(FairmfuError, match="s3://"):
            ingest_paths(SAMPLES[1:2], Store(bucket.at("store")))
        bucket.between.verdict = lambda *_: ""
        is_recorded = verdict == "lost" and "batch" in where  # the record is there: the batch is
        expect_tables(locals_of(2 if is_recorded else 1), Store(bucket.at("store")))
    ingest_paths(SAMPLES[1:2], Store(bucket.at("store")))
    expect_tables(locals_of(2), Store(bucket.at("store")))


def test_what_killed_writers_left_goes_a_day_later(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(bucket.at("store"))
    ingest_paths(SAMPLES[:1], store)
    left = "store/parts/steps/00000002-0a1b2c3d.parquet"
    bucket.put(left, b"PAR1")
    assert [one.is_harmful for one in doctor.examine_store(store)] == [False]
    store.compact()
    assert left in bucket.held()
    monkeypatch.setattr("fairmfu.ingest.store.staged_parts.STAGED_PART_LIFETIME_S", -1)
    store.compact()
    assert left not in bucket.held()


def test_a_bucket_that_was_emptied_is_a_new_store(bucket: Bucket) -> None:
    ingest_paths(SAMPLES[:2], Store(bucket.at("store")))
    for key in bucket.held():
        bucket.delete(key)
    with pytest.raises(StoreError, match="no store here"):
        Store(bucket.at("store")).table("runs")
    outcomes = ingest_paths(SAMPLES[2:3], Store(bucket.at("store")))
    assert [one.status for one in outcomes] == ["read"]
    assert Store(bucket.at("store")).table("sources").height == 1


def test_a_damaged_part_is_told(bucket: Bucket) -> None:
    ingest_paths(SAMPLES[:2], Store(bucket.at("store")))
    (key,) = bucket.held("store/parts/steps/")
    bucket.put(key, b"PAR1 and no more")
    harm = [one.what for one in doctor.examine_store(Store(bucket.at("store"))) if one.is_harmful]
    assert f"s3://{bucket.name}/{key}: the part differs from what was written" in harm[0]


def test_a_query_reads_nothing_but_the_store(bucket: Bucket) -> None:
    ingest_paths(SAMPLES[:2], Store(bucket.at("store")))
    rows = pl.DataFrame({"secret": [1]})
    sql = f"select * from read_parquet('{bucket.put('other/a.parquet', b'')}')"  # noqa: S608
    with pytest.raises(StoreError, match="and no other file or address"):
        Store(bucket.at("store")).query(sql, {"mine": rows})


def test_commands_take_an_address(bucket: Bucket, tmp_path: Path) -> None:
    for number, log in enumerate(SAMPLES[:HALF]):
        bucket.put(f"logs/{number}.log", log.read_bytes())
    where = ["--store", f"{bucket.url}/store/"]
    for words in (
        ["ingest", f"{bucket.url}/logs", *where],
        ["runs", *where],
        ["report", *where, "--out", str(tmp_path / "report.json")],
        ["nightly", f"{bucket.url}/logs", *where, "--out", str(tmp_path / "night")],
        ["query", "select count(*) from steps", *where],
        ["doctor", *where],
        ["compact", *where],
    ):
        with without_report():  # pages come of the same tables
            told = CliRunner().invoke(main, words, catch_exceptions=False)
        assert told.exit_code == 0, (words, told.output)
    assert len(json.loads((tmp_path / "report.json").read_text())["runs"]) == HALF


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "the object store cannot be reached"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no credentials found"),
    ],
)
def test_what_is_wrong_with_an_address_is_told(
    bucket: Bucket, changed: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in changed.items():
        monkeypatch.setenv(name, text) if text else monkeypatch.delenv(name)
    expect_refused(f"{bucket.url}/store", said)


def test_a_bucket_that_is_not_there_is_told(bucket: Bucket) -> None:
    expect_refused(f"{bucket.url}-none/store", "bucket does not exist")


def expect_refused(store: str, said: str) -> None:
    """An ingest into the store ends with exit code 1, its address and the reason."""
    S3FileSystem.clear_instance_cache()  # which keeps what the environment was
    told = CliRunner().invoke(main, ["ingest", str(SAMPLES[0]), "--store", store])
    S3FileSystem.clear_instance_cache()
    assert told.exit_code == 1
    assert isinstance(told.exception, SystemExit)
    assert said in told.stderr
    assert store in told.stderr
