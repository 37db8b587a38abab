"""Folders that are remembered as a whole: whatever changes there is seen as it is file by file."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core.errors import UnreadableSourceError
from fairmfu.ingest.extract.discovery import FileWalk, folder_signature
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline.ingest_run import Outcome, ingest_paths
from fairmfu.ingest.store.store import KnownFolders, Store
from tests.support.effort import THOROUGH, sampled
from tests.support.error_kinds import of_kind

Titan = Callable[..., str]
HOUR = 3600


@pytest.fixture
def folder(logs: Path, titan: Titan) -> Path:
    """Three logs and facts of theirs."""
    return filled(logs / "runs", titan)


def filled(folder: Path, titan: Titan, loss: float = 4.0) -> Path:
    for number, name in enumerate("abc"):
        write(folder / f"{name}.log", titan(loss=loss + number))
    write(folder / "facts.toml", "gpus = 8\n")
    return folder


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


def test_every_change_of_a_remembered_folder_is_seen(
    logs: Path, store: Store, titan: Titan
) -> None:
    folders = [
        filled(logs / change.__name__, titan, loss=10.0 * number)
        for number, change in enumerate(CHANGES, 1)
    ]
    ingest_paths([logs], store)
    known = store.folders().listed
    for change, folder in zip(CHANGES, folders, strict=True):
        assert str(folder) in known
        assert list(FileWalk(known_folders=known).of(folder)) == []
        change(folder, titan)
        assert list(FileWalk(known_folders=known).of(folder)), change.__name__


@sampled(4)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change.__name__))
def test_a_change_is_seen_as_it_is_file_by_file(
    change: Callable[[Path, Titan], None], folder: Path, store: Store, titan: Titan
) -> None:
    ingest_paths([folder], store)
    assert str(folder) in store.folders().listed
    change(folder, titan)
    walk = FileWalk(known_folders=store.folders().listed)
    assert list(walk.of(folder)), "it was not seen"
    for _ in range(3 if THOROUGH else 2):
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


# -- what a walk finds -------------------------------------------------------------------------


def made(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def found_in(path: Path, walk: FileWalk | None = None) -> list[str]:
    return [os.path.relpath(one.path, path) for one in (walk or FileWalk()).of(path)]


def test_a_walk_finds_what_may_be_logs(tmp_path: Path) -> None:
    made(tmp_path, "a.log", "b", "sub/c.txt.gz", "sub/events.out.tfevents.1", ".hidden/d.log", ".e")
    made(tmp_path, "trainer_state.json", "x.pt", "X.PT", "x.pt.gz", "x.json.zst", "facts.toml")
    names = ["a.log", "b", "sub/c.txt.gz", "sub/events.out.tfevents.1", "trainer_state.json"]
    assert found_in(tmp_path) == names


def test_what_is_passed_over_for_its_name_is_told(tmp_path: Path) -> None:
    """What frameworks put beside logs is not."""
    made(tmp_path, "page.md", "issue.HTML", "table.csv", "README.md", "model_config.json", "x.py")
    walk = FileWalk()
    with pytest.raises(UnreadableSourceError) as error:
        list(walk.of(tmp_path))
    names = ["issue.HTML", "page.md", "table.csv"]
    assert sorted(Path(path).name for path in walk.unlisted) == names
    assert str(error.value).endswith(
        f"Skipped by file name: {', '.join(names)}. To read one, give its path."
    )
    assert [one.named for one in FileWalk().of(tmp_path / "page.md")] == [True]


def test_at_most_five_names_are_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSourceError, match=r"name: 0\.md, 1\.md, 2\.md, 3\.md, 4\.md\. "):
        list(FileWalk().of(made(tmp_path, *(f"{n}.md" for n in range(7)))))


def test_a_pattern_finds_each_file_once(tmp_path: Path) -> None:
    made(tmp_path, "a/x.log", "a/y.log", "b/x.log", "b/store.duckdb", "c.parquet")
    walk = FileWalk()
    first = [one.path for one in walk.of(tmp_path / "a" / "x.log")]
    assert first == [str(tmp_path / "a" / "x.log")]
    rest = [os.path.relpath(one.path, tmp_path) for one in walk.of(tmp_path / "*" / "*.log")]
    assert rest == ["a/y.log", "b/x.log"]
    assert [one.path for one in walk.of(tmp_path / "?")] == []
    assert list(FileWalk().of(tmp_path / "*.parquet")) == []
    with pytest.raises(UnreadableSourceError, check=of_kind("no-match")):
        list(FileWalk().of(tmp_path / "*.none"))


def test_what_a_path_is_not_is_said(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (
        ("none", "path-missing"),
        ("loop", "broken-link"),
        ("pipe", "no-regular-file"),
    ):
        with pytest.raises(UnreadableSourceError, check=of_kind(kind)):
            list(FileWalk().of(tmp_path / name))


def test_links_within_a_folder_are_found_by_the_files_own_names(tmp_path: Path) -> None:
    root, outside = made(tmp_path / "root", "a.log", ".b.log"), made(tmp_path / "else", "c.log")
    for link, to in (
        ("latest.log", root / "a.log"),
        ("hidden.log", root / ".b.log"),
        ("outside.log", outside / "c.log"),
    ):
        (root / link).symlink_to(to)
    assert found_in(root) == ["a.log", "hidden.log", "outside.log"]


def test_a_folder_that_is_left_out_is_not_entered(tmp_path: Path) -> None:
    made(tmp_path, "a.log", "store/b.log", "logs/store/c.log")
    walk = FileWalk(excluded_folders=[tmp_path / "store"])
    assert found_in(tmp_path, walk) == ["a.log", "logs/store/c.log"]


def test_what_gives_facts_to_a_log_shows_when_it_changes(tmp_path: Path) -> None:
    """A file of the folder reaches all its logs, one of a log's own name that log alone."""
    made(tmp_path, "a.log", "b.log")

    def beside() -> list[str]:
        return [one.beside((), ()).text for one in FileWalk().of(tmp_path)]

    assert beside() == ["", ""]
    write(tmp_path / "a.log.facts.toml", "gpus = 8\n")
    own, other = beside()
    assert own
    assert other == ""
    write(tmp_path / "facts.toml", "gpus = 8\n", ago=2 * HOUR)
    both = beside()
    assert all(both)
    assert both[0] != own
    write(tmp_path / "facts.toml", "gpus = 9\n", ago=HOUR)
    assert all(now != before for now, before in zip(beside(), both, strict=True))
    (one, _) = FileWalk().of(tmp_path)
    flags = facts_from_flags(["gpus=4"])
    assert one.beside(flags, ()).text != one.beside((), ()).text
    named = one.beside((), [str(tmp_path / "config.json")])
    assert named.text.splitlines()[1:] == [str(tmp_path / "config.json")]
    assert named.newest_ns == max(
        (tmp_path / name).stat().st_mtime_ns for name in ("facts.toml", "a.log.facts.toml")
    )


def test_a_signature_changes_with_each_column() -> None:
    files: tuple[list[str], list[int], list[int], list[int]] = (["a", "b"], [1, 2], [3, 4], [5, 6])
    before = folder_signature(files, "")
    assert before == folder_signature(files, "")
    assert before != folder_signature(files, "x")
    for place in range(4):
        changed = [list(column) for column in files]
        changed[place] = changed[place][::-1]
        assert before != folder_signature(tuple(changed), "")  # type: ignore[arg-type]
