"""Logs in an object store: what holds of files holds of objects, with few requests."""

from __future__ import annotations

import gzip
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal
from s3fs import S3FileSystem

from fairmfu.cli import main
from fairmfu.ingest.core import paths
from fairmfu.ingest.core.errors import ConfigError, StoreError, UnreadableSourceError
from fairmfu.ingest.core.paths import ObjectStat, RemotePath, as_remote, list_folder, parse_path
from fairmfu.ingest.core.schema import READING_COSTS
from fairmfu.ingest.extract.discovery import FileWalk
from fairmfu.ingest.facts.project_config import load_config
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.pipeline.ingest_run import Outcome
from fairmfu.ingest.pipeline.messages import OTHER_RUN
from fairmfu.ingest.store.store import Store
from fairmfu.ingest.workers import local_engine
from fairmfu.ingest.workers.local_engine import LocalEngine
from fairmfu.metrics.throughput.resolved_facts import resolve_facts
from fairmfu.reports.nightly import nightly
from fairmfu.reports.nightly.nightly import NightlyOrder
from tests.support.damaged_events import damaged_events
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT
from tests.support.object_server import Bucket, Verdict, served

SAMPLES = ROOT / "sample_logs" / "genuine"

Ingest = Callable[..., list[Outcome]]
Titan = Callable[..., str]

UNCHANGED = ("unchanged", "known already")


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Bucket]]:
    with served(tmp_path_factory.getbasetemp() / "none") as made:
        yield made


@pytest.fixture
def bucket(buckets: Callable[[], Bucket], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(ingest_run, "MTIME_SETTLE_NS", 0)  # what was just put is not put again
    return buckets()


@pytest.fixture
def anew() -> Iterator[None]:
    """The store is set up by the environment of this test."""
    S3FileSystem.clear_instance_cache()
    yield
    S3FileSystem.clear_instance_cache()


def said(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(outcome.status, outcome.message) for outcome in outcomes]


def statuses(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.given.rpartition("/")[2]: outcome.status for outcome in outcomes}


def same(store: Store, other: Store) -> None:
    """All tables are alike, but for paths and the times of reading."""
    for name in ("runs", "steps", "facts", "events", "unread"):
        assert_frame_equal(other.table(name), store.table(name))
    sources = [
        one.table("sources").drop("read_at", "path", *READING_COSTS) for one in (store, other)
    ]
    assert_frame_equal(*sources)


# -- the same as of files --------------------------------------------------------------------


@pytest.fixture
def many(logs: Path, titan: Titan) -> Path:
    """Logs of all kinds with what stands beside them, and what is none.

    Names of runs are of the two folders above them.
    """
    logs /= "team/bench"
    for name in ("deepspeed-0.16.9", "torchtitan-0.2.2", "xtuner-0.1.11"):
        shutil.copytree(SAMPLES / name, logs / "samples" / name)
    (logs / "packed").mkdir()
    (logs / "packed" / "one.log.gz").write_bytes(gzip.compress(titan(7, loss=8.0).encode()))
    with pa.CompressedOutputStream(str(logs / "packed" / "two.log.zst"), "zstd") as packed:
        packed.write(titan(8, loss=9.0).encode())
    (logs / "tb").mkdir()
    damaged_events(logs / "tb" / "events.out.tfevents.1.host", "torchtitan-tensorboard", 7, 9)
    (logs / "beside" / "wandb" / "run-1" / "files").mkdir(parents=True)
    (logs / "beside" / "run.log").write_text(titan(9, loss=7.0))
    (logs / "beside" / "wandb" / "run-1" / "files" / "config.yaml").write_text(
        "seq_len: {value: 64}\n"
    )
    (logs / "beside" / "facts.toml").write_text('model_config = "../models/own.json"\n')
    (logs / "beside" / "run.log.facts.toml").write_text("gpus = 4\n")
    (logs / "models").mkdir()
    (logs / "models" / "own.json").write_text('{"model_type": "llama"}')
    (logs / ".hidden").mkdir()
    (logs / ".hidden" / "x.log").write_text(titan(3, loss=3.0))
    (logs / "aa_empty.log").write_bytes(b"")
    (logs / "bb_packed.log").write_bytes(b"BZh91AY")
    (logs / "cc_none.log").write_text("no line of any format\n" * 30)
    return logs


def test_a_store_of_objects_is_that_of_the_same_files(
    many: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by this process, and by two."""
    monkeypatch.setattr(local_engine, "MIN_BYTES_FOR_PROCESSES", 0)
    bucket.put_all(many, "team/bench")
    url, here = bucket.at("team/bench"), Store(tmp_path / "here")
    files = [(one.given, one.status) for one in ingest_run.ingest_paths([many], here)]
    assert {status for _, status in files} == {"read", "failed", "passed"}
    for processes in (1, 2):
        there = Store(tmp_path / f"by{processes}")
        told = ingest_run.ingest_paths([url], there, engine=LocalEngine(processes))
        assert [(o.given.replace(str(url), str(many)), o.status) for o in told] == files
        same(here, there)
        paths = [one.table("sources")["path"].sort().to_list() for one in (here, there)]
        assert [path.replace(str(url), str(many)) for path in paths[1]] == paths[0]
    again = [one.status for one in ingest_run.ingest_paths([url], there)]
    assert again == [{"read": "unchanged"}.get(status, status) for _, status in files]


@pytest.fixture(scope="module")
def filled(buckets: Callable[[], Bucket]) -> Bucket:
    """Logs in folders of several levels, hidden ones and others; nobody changes them."""
    bucket = buckets()
    keys = ["a.log", "b.txt", "notes.toml", "x/train1.log", "y/x/train2.log", "y/deep/er/c.log"]
    for key in (*keys, ".h/hidden.log", "y/.train3.log"):
        bucket.put(f"runs/{key}", "x")
    bucket.put("runs/y/", b"")  # as consoles mark a folder
    return bucket


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("runs", {"a.log", "b.txt", "c.log", "train1.log", "train2.log"}),
        ("runs/", {"a.log", "b.txt", "c.log", "train1.log", "train2.log"}),
        ("runs/a.log", {"a.log"}),
        ("runs/notes.toml", {"notes.toml"}),
        ("runs/*.log", {"a.log"}),
        ("runs/*/train*.log", {"train1.log"}),
        ("**/train*.log", {"train1.log", "train2.log"}),
        ("runs/**/x/*.log", {"train1.log", "train2.log"}),
        ("runs/*/x", {"train2.log"}),
        ("ru*/**", {"a.log", "b.txt", "c.log", "train1.log", "train2.log"}),
        ("runs/*/deep/er", {"c.log"}),
        ("runs/.h*/*.log", {"hidden.log"}),
    ],
)
def test_what_a_path_names(pattern: str, names: set[str], filled: Bucket) -> None:
    with paths.request_cache():
        found = list(FileWalk().of(filled.at(pattern)))
    assert {one.path.rpartition("/")[2] for one in found} == names
    assert [one.path for one in found] == sorted(one.path for one in found)
    assert all(one.path == one.identity and one.size == 1 and one.inode for one in found)


def test_names_of_objects_are_names(bucket: Bucket, titan: Titan, ingest: Ingest) -> None:
    odd = ["a b.log", "ä+é.log", "x#1?.log", "run[1].log", "per%20cent.log", "deep/a//b.log"]
    for number, name in enumerate(odd):
        bucket.put(f"logs/{name}", titan(3, loss=3.0 + number))
    assert statuses(ingest(bucket.at("logs"))) == {n.rpartition("/")[2]: "read" for n in odd}
    for name in odd:
        assert [one.status for one in ingest(bucket.at(f"logs/{name}"))] == ["unchanged"]


def test_facts_by_path_fit_addresses(
    bucket: Bucket, titan: Titan, tmp_path: Path, store: Store
) -> None:
    bucket.put("h100/a.log", titan())
    bucket.put("a100/b.log", titan(4, loss=4.0))
    config = tmp_path / "fairmfu.toml"
    config.write_text(
        f'sources = ["{bucket.url}/h100", "{bucket.url}/**/b.log"]\n'
        '[[facts]]\npaths = "*/h100/*.log"\ngpus = 8\n'
    )
    read = load_config(config)
    assert read.sources == (bucket.at("h100"), bucket.at("**/b.log"))
    outcomes = ingest_run.ingest_paths(
        read.sources, store, path_facts=lambda path: list(read.facts_of(path))
    )
    assert [one.status for one in outcomes] == ["read", "read"]
    assert resolve_facts(store.table("facts")).filter(name="gpus")["value"].to_list() == ["8"]
    assert read.unmatched(one.path for one in outcomes) == []


def test_the_commands_take_addresses(
    bucket: Bucket, titan: Titan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("logs/a.log", titan())
    bucket.put("logs/b.log", "")
    run, stored = CliRunner(), ["--store", str(tmp_path / "store")]
    result = run.invoke(main, ["ingest", f"{bucket.url}/logs", *stored])
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"{bucket.url}/logs/a.log: torchtitan, 3 step lines, 0 other lines; stored as run a",
        f"{bucket.url}/logs/b.log: skipped: the file is empty.",
        "1 read, 1 skipped",
    ]
    orders = list[NightlyOrder]()

    def note(order: NightlyOrder) -> None:
        orders.append(order)
        raise StoreError("enough")

    monkeypatch.setattr(nightly, "nightly", note)
    config = tmp_path / "fairmfu.toml"
    config.write_text(f'sources = ["{bucket.url}/logs/a*.log"]\n')
    for sources in ([], [f"{bucket.url}/logs"]):
        run.invoke(main, ["nightly", *sources, *stored, "--config", str(config)])
    assert [order.sources for order in orders] == [
        (bucket.at("logs/a*.log"),),
        (bucket.at("logs"),),
    ]


# -- what is asked of the store --------------------------------------------------------------


def test_a_small_log_is_one_request_and_a_known_one_none(
    bucket: Bucket, titan: Titan, ingest: Ingest
) -> None:
    for number in range(5):
        bucket.put(f"logs/{number}/run.log", titan(3, loss=3.0 + number))
    bucket.between.since()
    assert [one.status for one in ingest(bucket.at("logs"))] == ["read"] * 5
    asked = bucket.between.since()
    gets = [one for one in asked if "/run.log" in one]
    assert sorted(gets) == [f"GET /{bucket.name}/logs/{number}/run.log" for number in range(5)]
    assert len(asked) - len(gets) <= 3  # whether it is a folder, and what it holds
    assert said(ingest(bucket.at("logs"))) == [UNCHANGED] * 5
    again = bucket.between.since()
    assert len(again) <= 3
    assert not [one for one in again if "/run.log" in one]


def test_an_event_file_or_a_file_as_large_as_a_known_one_is_one_request(
    bucket: Bucket, titan: Titan, ingest: Ingest, tmp_path: Path
) -> None:
    path = tmp_path / "events.out.tfevents.1"
    damaged_events(path, "torchtitan-tensorboard", 7, 9)
    bucket.put("logs/events.out.tfevents.1", path.read_bytes())
    bucket.put("logs/a.log", titan())
    ingest(bucket.at("logs"))
    bucket.put("logs/b.log", titan(loss=6.0))
    ingest(bucket.at("logs"))
    objects = ("/a.log", "/b.log", "/events.out.tfevents.1")
    asked = [one for one in bucket.between.since() if one.endswith(objects)]
    assert sorted(asked) == [f"GET /{bucket.name}/logs{name}" for name in objects]


def test_a_sidecar_is_asked_for_once_and_only_where_it_is(
    bucket: Bucket, titan: Titan, ingest: Ingest, store: Store
) -> None:
    for number in range(5):
        bucket.put(f"logs/{number}.log", titan(3, loss=3.0 + number))
    bucket.put("logs/facts.toml", "gpus = 8\n")
    bucket.put("logs/3.log.facts.toml", "gpus = 9\n")
    bucket.between.since()
    ingest(bucket.at("logs"))
    beside = [one for one in bucket.between.since() if ".toml" in one or ".json" in one]
    assert beside == [
        f"GET /{bucket.name}/logs/facts.toml",
        f"GET /{bucket.name}/logs/3.log.facts.toml",
    ]
    facts = resolve_facts(store.table("facts")).filter(name="gpus")
    assert sorted(facts["value"]) == ["8", "8", "8", "8", "9"]


def test_what_changes_is_read_anew(
    bucket: Bucket, titan: Titan, ingest: Ingest, store: Store
) -> None:
    log = bucket.put("logs/a.log", titan())
    bucket.put("logs/b.log", titan(4, loss=4.0))
    ingest(bucket.at("logs"))
    bucket.put("logs/a.log", titan(9))
    assert said(ingest(bucket.at("logs"))) == [("read", ""), UNCHANGED]
    bucket.put("logs/a.log", titan(9, loss=6.0))  # of equal size
    kept = OTHER_RUN.words(path=log)
    assert said(ingest(bucket.at("logs"))) == [("read", kept), UNCHANGED]
    bucket.put("logs/facts.toml", "gpus = 8\n")
    assert [one.status for one in ingest(bucket.at("logs"))] == ["known", "known"]
    assert set(resolve_facts(store.table("facts")).filter(name="gpus")["value"]) == {"8"}
    assert said(ingest(bucket.at("logs"))) == [UNCHANGED] * 2
    bucket.delete("logs/facts.toml")
    assert [one.status for one in ingest(bucket.at("logs"))] == ["known", "known"]
    assert said(ingest(bucket.at("logs"))) == [UNCHANGED] * 2


def test_a_large_log_is_read_in_blocks(
    bucket: Bucket, titan: Titan, ingest: Ingest, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "OBJECT_BLOCK_BYTES", 64 * 1024)
    text = titan(50) * 40
    path = bucket.put("logs/a.log", text)
    bucket.put("logs/b.log.gz", gzip.compress(titan(50, loss=9.0).encode() * 40, 0))
    bucket.between.since()
    with path.open("rb") as file:
        assert file.read(10) == text[:10].encode()
        assert file.seek(0) == 0
        assert b"".join(iter(lambda: file.read(30_000), b"")) == text.encode()
        opened = file._raw  # type: ignore[attr-defined]  # of the store's library
    assert opened.closed  # which lets go of what was read ahead
    gets = [one for one in bucket.between.since() if one.startswith("GET") and "a.log" in one]
    assert 2 <= len(gets) <= len(text) // (64 * 1024) + 1
    assert [one.status for one in ingest(bucket.at("logs"))] == ["read"] * 2
    assert len(text) in store.table("sources")["bytes"].to_list()


# -- what can go wrong -----------------------------------------------------------------------


@pytest.fixture
def good(bucket: Bucket, titan: Titan) -> Path:
    return bucket.put("good/good.log", titan())


def failed(outcomes: list[Outcome]) -> str:
    """What is said of the first, beside which the second is read."""
    first, second = outcomes
    assert (first.status, second.status) == ("failed", "read")
    assert first.message.startswith("s3://")
    assert first.message.endswith(".") is (" Fix: " not in first.message)
    assert "\n" not in first.message
    return first.message


def of(key: str, verdict: str) -> Verdict:
    """That verdict on all that is asked of an object."""
    return lambda _method, path: verdict if key in path else ""


def test_a_bucket_or_an_object_that_is_not_there(
    bucket: Bucket, good: Path, ingest: Ingest
) -> None:
    url = bucket.url
    assert failed(ingest(bucket.at("no.log"), good)) == f"{url}/no.log: no such file or folder."
    (pattern,) = ingest(bucket.at("good/*.txt"))
    assert pattern.message == f"{url}/good/*.txt: no file or folder matches."
    for path in ("s3://nowhere/a.log", "s3://nowhere/*.log"):
        (outcome,) = ingest(parse_path(path))
        assert outcome.message.startswith(f"{path}: no ")
        assert outcome.message.endswith(" (The specified bucket does not exist).")
    (outcome,) = ingest(parse_path("s3://nowhere"))
    assert outcome.message == "s3://nowhere: no such file or folder."
    (outcome,) = ingest(parse_path("s3://*/a.log"))
    assert outcome.kind == "bucket-pattern"


def test_an_object_that_goes_after_it_was_listed(
    bucket: Bucket, good: Path, titan: Titan, ingest: Ingest
) -> None:
    bucket.put("good/a.log", titan(5, loss=6.0))

    def go(method: str, path: str) -> str:
        if method == "GET" and path.endswith("/a.log"):
            bucket.delete("good/a.log")
        return ""

    bucket.between.verdict = go
    message = failed(ingest(good.parent))
    assert message == (
        f"{bucket.url}/good/a.log: cannot be read: no such file or folder (The specified key does "
        "not exist)."
    )


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        ("denied", "access denied (Access Denied); check that the credentials may read it."),
        (
            "slow",
            "limits requests, and retries failed too (Please reduce",
        ),
        ("cut", "the connection was lost"),
    ],
)
def test_an_object_that_the_store_does_not_give(  # noqa: PLR0913, PLR0917
    verdict: str, says: str, bucket: Bucket, good: Path, titan: Titan, ingest: Ingest, store: Store
) -> None:
    bucket.put("good/a.log", titan(5, loss=6.0))
    bucket.between.verdict = of("/a.log", verdict)
    assert says in failed(ingest(good.parent))
    assert store.table("sources")["path"].to_list() == [str(good)]
    bucket.between.verdict = of("/a.log", "")
    assert [one.status for one in ingest(good.parent)] == ["read", "unchanged"]


def test_a_large_object_that_breaks_off_or_changes_stores_nothing(  # noqa: PLR0913, PLR0917
    bucket: Bucket,
    good: Path,
    titan: Titan,
    ingest: Ingest,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths, "OBJECT_BLOCK_BYTES", 64 * 1024)
    text = titan(50) * 40
    bucket.put("good/a.log", text)
    seen = count()

    def cut(method: str, path: str) -> str:
        later = method == "GET" and path.endswith("/a.log") and next(seen) >= 1
        return "cut" if later else ""

    bucket.between.verdict = cut
    message = failed(ingest(good.parent))
    assert re.search(
        r"connection was lost.*after [\d,]+ bytes\. Nothing was stored from it", message
    )

    def change(method: str, path: str) -> str:
        if method == "GET" and path.endswith("/a.log") and next(seen) == 1:
            bucket.put("good/a.log", text.replace("5", "6"))
        return ""

    seen = count()
    bucket.between.verdict = change
    first, _ = ingest(good.parent)
    assert first.status == "failed"
    assert first.kind == "object-overwritten"
    assert store.table("sources")["path"].to_list() == [str(good)]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_packed_object_that_breaks_off_stores_nothing(  # noqa: PLR0913, PLR0917
    codec: str,
    bucket: Bucket,
    good: Path,
    titan: Titan,
    ingest: Ingest,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths, "OBJECT_BLOCK_BYTES", 64 * 1024)
    draw, seen = Random(7), count()  # noqa: S311 - no secret
    noise = "".join(f"{draw.randbytes(500).hex()}\n" for _ in range(2_000))
    with pa.CompressedOutputStream(packed := pa.BufferOutputStream(), codec) as stream:
        stream.write((titan(9, loss=6.0) + noise).encode())
    bucket.put("good/a.log", packed.getvalue().to_pybytes())
    bucket.between.verdict = lambda method, path: (
        "cut" if method == "GET" and path.endswith("/a.log") and next(seen) >= 1 else ""
    )
    message = failed(ingest(good.parent))
    assert re.search(
        r"connection was lost.*after [\d,]+ bytes\. Nothing was stored from it", message
    )
    bucket.between.verdict = lambda _method, _path: ""
    assert [one.status for one in ingest(good.parent)] == ["read", "unchanged"]
    assert store.table("steps").height == 9 + 3


def test_a_folder_that_may_not_be_listed(bucket: Bucket, good: Path, ingest: Ingest) -> None:
    bucket.between.verdict = lambda _method, path: "denied" if "list-type" in path else ""
    first, second = ingest(good.parent, good)
    assert first.message.startswith(f"{good.parent}: access denied (Access Denied); check ")
    assert second.status == "read"


def test_a_sidecar_that_the_store_does_not_give_fails_its_log(
    bucket: Bucket, good: Path, ingest: Ingest
) -> None:
    bucket.put("good/config.json", '{"model_type": "llama"}')
    bucket.between.verdict = of("config.json", "slow")
    (outcome,) = ingest(good)
    assert outcome.status == "failed"
    assert outcome.message.startswith(f"{bucket.url}/good/config.json: the object store limits")


@pytest.mark.usefixtures("anew")
def test_without_credentials(
    bucket: Bucket, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (outcome,) = ingest(bucket.at("a.log"))
    assert outcome.status == "failed"
    assert outcome.message.startswith(f"{bucket.url}/a.log: no credentials found (")
    assert "AWS_PROFILE" in outcome.message


@pytest.mark.usefixtures("anew")
def test_a_store_that_cannot_be_reached(
    bucket: Bucket, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    (outcome,) = ingest(bucket.at("a.log"))
    assert outcome.status == "failed"
    assert outcome.message.startswith(f"{bucket.url}/a.log: the object store cannot be reached (")
    assert "AWS_ENDPOINT_URL" in outcome.message


# -- addresses -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["s3://b/x", "memory:///b/x"])
def test_an_address_is_a_path(text: str) -> None:
    path = parse_path(text)
    assert (str(path), path.name, str(path.parent)) == (text, "x", text.removesuffix("/x"))
    assert as_remote(path) == RemotePath(text)
    assert pickle.loads(pickle.dumps(path)) == path  # noqa: S301 - ours
    assert str(path.with_name("y")) == text.removesuffix("x") + "y"
    assert str(path.parent / "../c/d") == text.removesuffix("b/x") + "c/d"
    assert path.parent / "/here" == Path("/here")
    assert path != Path(text)
    assert parse_path(f"{text}/") == path


def test_what_is_no_address_is_a_path_of_this_machine() -> None:
    for text in ("run.log", "/a/b", "-", "s3:/b"):
        assert parse_path(text) == Path(text)
        assert as_remote(parse_path(text)) is None
    assert parse_path("file:///a/b") == Path("/a/b")


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(
        UnreadableSourceError,
        match=r"^gs://b/x: .*gcsfs",
        check=of_kind("protocol-package-missing"),
    ):
        parse_path("gs://b/x")
    with pytest.raises(UnreadableSourceError, match=r"^odd://b/x: .*Protocol not known"):
        parse_path("odd://b/x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    for protocol in ("s3", "memory"):
        missing = of_kind("s3-extra-missing")
        with pytest.raises(UnreadableSourceError, match=f"^{protocol}://b/x: ", check=missing):
            parse_path(f"{protocol}://b/x")
    result = CliRunner().invoke(main, ["ingest", "s3://b/x", "--store", str(tmp_path / "s")])
    assert result.exit_code == 1
    assert "pip install '.[s3]'" in result.stderr
    config = tmp_path / "fairmfu.toml"
    config.write_text('sources = ["s3://b/x"]\n')
    with pytest.raises(ConfigError, match="sources: has an invalid address: s3://b/x: reading"):
        load_config(config)


def test_a_store_that_tells_neither_time_nor_version_is_not_relied_on() -> None:
    entry = paths._entry({"name": "/x", "type": "file", "size": 3})
    assert (entry.st_size, entry.st_ino) == (3, 0)
    assert entry.st_mtime_ns > 0
    stamps = ("2026-01-02T03:04:05.678Z", 1767323045.9)
    for written in stamps:
        told = paths._entry({"name": "/x", "type": "file", "size": 3, "updated": written})
        assert told == ObjectStat(3, 1_767_323_045_000_000_000, 0)


def test_another_store_than_s3(titan: Titan, ingest: Ingest, store: Store) -> None:
    from fsspec.implementations.memory import MemoryFileSystem  # noqa: PLC0415

    memory = MemoryFileSystem()
    memory.pipe({"/logs/a/run.log": titan().encode(), "/logs/a/facts.toml": b"gpus = 8\n"})
    try:
        assert [one.status for one in ingest(parse_path("memory://logs/**/*.log"))] == ["read"]
        assert store.table("sources")["path"].to_list() == ["memory:///logs/a/run.log"]
        assert resolve_facts(store.table("facts")).filter(name="gpus")["value"].to_list() == ["8"]
        assert list_folder(RemotePath("memory:///logs")) == {"a": ObjectStat(is_folder=True)}
    finally:
        memory.rm("/logs", recursive=True)
