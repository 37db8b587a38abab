"""Folders that are remembered as a whole: whatever changes there is seen as it is file by file."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.extract.discovery import FileWalk
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline.ingest_run import Outcome, ingest_paths
from fairmfu.ingest.store.store import KnownFolders, Store
from tests.support.effort import sampled

Titan = Callable[..., str]
HOUR = 3600


@pytest.fixture
def folder(logs: Path, titan: Titan) -> Path:
    """Three logs and facts of theirs."""
    for number, name in enumerate("abc"):
        write(logs / "runs" / f"{name}.log", titan(loss=4.0 + number))
    write(logs / "runs" / "facts.toml", "gpus = 8\n")
    return logs / "runs"


def write(path: Path, text: str, ago: float = HOUR) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    then = time.time() - ago
    os.utime(path, (then, then))
    return path


def told(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return sorted((one.given, one.status) for one in outcomes)


class _Forgetful(Store):
    """Remembers no folder."""

    def folders(self) -> KnownFolders:
        return KnownFolders({}, (-1, -1))


def same_with_and_without(store: Store, *paths: Path, **options: object) -> list[Outcome]:
    """What a further ingest says and stores, which no remembered folder changes."""
    other = _Forgetful(store.path.with_name("other"))
    shutil.rmtree(other.path, ignore_errors=True)
    shutil.copytree(store.path, other.path)
    said = ingest_paths(paths, store, **options)
    assert told(ingest_paths(paths, other, **options)) == told(said)
    tables, others = store.tables(), other.tables()
    for name, table in tables.items():
        mine, theirs = (frame.drop("read_at", strict=False) for frame in (table, others[name]))
        assert_frame_equal(mine, theirs)
    return said


def unchanged(folder: Path) -> list[tuple[str, str]]:
    return [(str(folder / f"{name}.log"), "unchanged") for name in "abc"]


def test_a_folder_is_remembered_with_what_is_read_of_it(folder: Path, store: Store) -> None:
    assert [one.status for one in ingest_paths([folder], store)] == ["read"] * 3
    held = store.folders()
    assert list(held.listed) == [str(folder)]
    walk = FileWalk(known_folders=held.listed)
    assert list(walk.of(folder.parent)) == []
    assert walk.unchanged == [str(folder / f"{name}.log") for name in "abc"]
    assert told(same_with_and_without(store, folder)) == unchanged(folder)


def test_paths_are_told_as_they_were_given(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_paths([folder], store)
    monkeypatch.chdir(folder)
    assert told(ingest_paths([Path()], store)) == [(f"{name}.log", "unchanged") for name in "abc"]
    monkeypatch.chdir(folder.parent)
    assert told(ingest_paths([Path("runs")], store))[0] == ("runs/a.log", "unchanged")


def test_what_is_given_twice_is_told_once(folder: Path, store: Store) -> None:
    ingest_paths([folder], store)
    for paths in ([folder, folder.parent], [folder.parent, folder]):
        assert len(same_with_and_without(store, *paths)) == 3
    assert len(same_with_and_without(store, folder / "a.log", folder)) == 3


def grown(folder: Path, titan: Titan) -> None:
    write(folder / "b.log", titan(9, loss=5.0))


def of_equal_size(folder: Path, titan: Titan) -> None:
    """In the place of another, and as old."""
    at = (folder / "b.log").stat().st_mtime_ns
    write(folder / "x", titan(loss=7.0)).rename(folder / "b.log")
    os.utime(folder / "b.log", ns=(at, at))


def touched(folder: Path, _: Titan) -> None:
    os.utime(folder / "b.log", (1e9, 1e9))


def added(folder: Path, titan: Titan) -> None:
    write(folder / "d.log", titan(loss=8.0))


def renamed(folder: Path, _: Titan) -> None:
    (folder / "b.log").rename(folder / "bb.log")


def exchanged(folder: Path, _: Titan) -> None:
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        (folder / f"{old}.log").rename(folder / f"{new}.log")


def removed(folder: Path, _: Titan) -> None:
    (folder / "b.log").unlink()


def facts_changed(folder: Path, _: Titan) -> None:
    write(folder / "facts.toml", "gpus = 9\n", ago=2 * HOUR)


def facts_removed(folder: Path, _: Titan) -> None:
    (folder / "facts.toml").unlink()


def own_facts(folder: Path, _: Titan) -> None:
    write(folder / "b.log.facts.toml", "gpus = 16\n")


def configured(folder: Path, _: Titan) -> None:
    write(folder / "ds_config.json", '{"train_batch_size": 36}')


def deeper(folder: Path, titan: Titan) -> None:
    write(folder / "more" / "d.log", titan(loss=8.0))


def copied(folder: Path, _: Titan) -> None:
    shutil.copy2(folder / "b.log", folder / "d.log")


def no_log(folder: Path, _: Titan) -> None:
    write(folder / "notes.txt", "epoch 1 | train loss 0.1\n" * 50)


CHANGES = [
    *(grown, of_equal_size, touched, added, renamed, exchanged, removed, facts_changed),
    *(facts_removed, own_facts, configured, deeper, copied, no_log),
]


@sampled(2)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change.__name__))
def test_a_change_is_seen_as_it_is_file_by_file(
    change: Callable[[Path, Titan], None], folder: Path, store: Store, titan: Titan
) -> None:
    ingest_paths([folder], store)
    assert str(folder) in store.folders().listed
    change(folder, titan)
    walk = FileWalk(known_folders=store.folders().listed)
    assert list(walk.of(folder)), "it was not seen"
    for _ in range(3):
        last = same_with_and_without(store, folder.parent)
    assert {one.status for one in last} <= {"unchanged", "passed"}


def test_a_source_that_is_removed_is_read_again(folder: Path, store: Store) -> None:
    ingest_paths([folder], store)
    store.remove(store.table("runs")["run_id"].to_list()[:1])
    assert store.folders().listed == {}
    said = same_with_and_without(store, folder)
    assert sorted(one.status for one in said) == ["read", "unchanged", "unchanged"]


def test_facts_that_are_given_reach_the_runs(folder: Path, store: Store) -> None:
    ingest_paths([folder], store)
    same_with_and_without(store, folder, flag_facts=facts_from_flags(["seq_len=4096"]))
    facts = store.table("facts").filter(name="seq_len", origin="flag")
    assert facts["value"].to_list() == ["4096"] * 3


def test_a_log_that_may_still_be_written_to_keeps_its_folder_apart(
    folder: Path, store: Store, titan: Titan
) -> None:
    write(folder / "d.log", titan(loss=8.0), ago=0)
    ingest_paths([folder], store)
    assert store.folders().listed == {}


def test_other_folders_stay_remembered_while_one_changes(
    folder: Path, store: Store, titan: Titan
) -> None:
    other = write(folder.with_name("z") / "z.log", titan(loss=9.0)).parent
    ingest_paths([folder.parent], store)
    write(folder / "d.log", titan(loss=8.0))
    said = same_with_and_without(store, folder.parent)
    assert sorted(one.status for one in said) == ["read", *["unchanged"] * 4]
    assert sorted(store.folders().listed) == [str(folder), str(other)]


def test_a_folder_that_is_not_there_any_more_is_an_error(folder: Path, store: Store) -> None:
    ingest_paths([folder], store)
    shutil.rmtree(folder)
    (one,) = ingest_paths([folder], store)
    assert one.status == "failed"
