"""A file that did not change is not opened; whatever changed is looked at again."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.core.errors import UnreadableSourceError
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.detect.detection import FormatChoice
from fairmfu.ingest.extract.discovery import FileWalk
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.formats.deepspeed.engine import DEEPSPEED, DEEPSPEED_TIMERS
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.pipeline import ingest_run, messages
from fairmfu.ingest.pipeline.ingest_run import Outcome
from fairmfu.ingest.pipeline.messages import (
    EMPTIED_LOG,
    GROWING,
    KNOWN_COPY,
    OTHER_RUN,
    OVERWRITTEN_LOG,
    ROTATED_LOG,
)
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.resolved_facts import resolve_facts
from tests.support.effort import THOROUGH

Ingest = Callable[..., list[Outcome]]
Titan = Callable[..., str]

OTHER = "".join(f"epoch {n} | train loss 0.{n} | it/s 3.{n}\n" for n in range(50))


def age(path: Path, seconds: float = 3600.0) -> None:
    """The file was last written to so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def write(path: Path, text: str, seconds: float = 3600.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    age(path, seconds)
    return path


def said(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(outcome.status, outcome.message) for outcome in outcomes]


def held(store: Store, name: str) -> list[str | None]:
    """What holds of the fact of that name, run by run."""
    facts = resolve_facts(store.table("facts")).filter(name=name)
    runs = store.table("runs").select("run_id").join(facts, on="run_id", how="left")
    return runs["value"].to_list()


class _Opened:
    """Files that Python opens; a hook can't be taken away, so it is told when to listen."""

    def __init__(self) -> None:
        self.paths: list[str] | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.paths is not None and event == "open" and not Path(str(arguments[0])).is_dir():
            self.paths.append(str(arguments[0]))


_OPENED = _Opened()


@pytest.fixture
def opened(logs: Path) -> Iterator[Callable[[], list[str]]]:
    """Files in the folder of logs that were opened since it was last asked."""
    _OPENED.paths = []

    def since() -> list[str]:
        paths, _OPENED.paths = _OPENED.paths or [], []
        return sorted(os.path.relpath(p, logs) for p in paths if p.startswith(str(logs)))

    yield since
    _OPENED.paths = None


@pytest.fixture
def log(logs: Path, titan: Titan) -> Path:
    return write(logs / "a.log", titan())


UNCHANGED = [("unchanged", messages.KNOWN.words())]
KNOWN = [("known", messages.KNOWN.words())]
READ = [("read", "")]


# -- what is new -----------------------------------------------------------------------------


def test_a_log_is_hashed_before_it_is_read_only_where_a_known_one_is_as_large(
    log: Path, titan: Titan, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    """Its first bytes and its lines are read else: it is opened twice."""
    larger = write(log.with_name("b.log"), titan(4))
    other = write(log.with_name("c.log"), titan(3, loss=4.0))
    copy = write(log.with_name("d.log"), titan(4))
    for path, times in ((log, 2), (larger, 2), (other, 3)):
        opened()
        assert said(ingest(path)) == READ
        assert opened().count(path.name) == times
    assert [one.status for one in ingest(copy)] == ["known"]
    assert opened().count("d.log") == 1


def test_copies_of_a_new_log_in_one_ingest_are_read_once(
    log: Path, store: Store, titan: Titan, ingest: Ingest
) -> None:
    for name in ("b.log", "c.log"):
        write(log.with_name(name), titan(9, loss=3.0))
    assert [one.status for one in ingest(log.parent)] == ["read", "read", "known"]
    assert store.table("sources").height == 2


# -- what did not change ---------------------------------------------------------------------


@pytest.mark.parametrize("by", ["folder", "file", "pattern"])
def test_a_file_that_did_not_change_is_not_opened(
    by: str, log: Path, titan: Titan, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    write(log.with_name("facts.toml"), "gpus = 8\n")
    write(log.with_name("ds_config.json"), '{"train_batch_size": 36}')
    write(log.parent / "deeper" / "b.log", titan(loss=7.0))
    given = {"folder": [log.parent], "file": sorted(log.parent.rglob("*.log"))}
    given["pattern"] = [log.parent / "**" / "*.log"]
    assert said(ingest(log.parent)) == READ * 2
    assert "a.log" in opened()
    assert said(ingest(*given[by])) == UNCHANGED * 2
    assert opened() == []


def test_nothing_is_written_where_nothing_changed(store: Store, log: Path, ingest: Ingest) -> None:
    ingest(log)
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    assert said(ingest(log.parent)) == UNCHANGED
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == before


def test_steps_of_several_lines_are_counted_beside_them(log: Path, store: Store) -> None:
    """A state file of 1,218 steps had 7,308 "step lines"."""
    history = [{"epoch": step / 4, "loss": 2.5, "step": step} for step in (1, 2, 3)]
    state = log.with_name("trainer_state.json")
    write(state, json.dumps({"global_step": 3, "log_history": history, "max_steps": 3}, indent=2))
    result = CliRunner().invoke(main, ["ingest", str(state), "--store", str(store.path)])
    assert "hf-trainer-state, 3 steps in 15 step lines, " in result.stderr


def test_the_command_counts_them_and_says_nothing_of_each(log: Path, store: Store) -> None:
    write(log.with_name("notes.txt"), OTHER)
    said = []
    for _ in range(2):
        result = CliRunner().invoke(main, ["ingest", str(log.parent), "--store", str(store.path)])
        assert result.exit_code == 0
        said.append(result.stderr)
    assert said[0].splitlines() == [
        f"{log}: torchtitan, 3 step lines, 0 other lines; stored as run {log.stem}",
        f"{log.with_name('notes.txt')}: skipped: unknown format.",
        "1 read, 1 skipped",
    ]
    assert said[1] == "1 unchanged, 1 skipped\n"


def test_a_file_is_one_from_wherever_it_is_given(
    log: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log.with_name("facts.toml"), "gpus = 8\n")
    monkeypatch.chdir(log.parent)
    (first,) = ingest(Path())
    assert (first.status, first.path) == ("read", Path("a.log"))
    for path in (log, log.parent, Path("a.log"), Path("*.log")):
        assert said(ingest(path)) == UNCHANGED


def test_a_rebuilt_store_looks_once_more(store: Store, log: Path, ingest: Ingest) -> None:
    ingest(log)
    store.rebuild()
    assert [said(ingest(log)) for _ in range(2)] == [KNOWN, UNCHANGED]


def test_a_file_that_may_still_be_written_to_is_looked_at_again(
    log: Path, titan: Titan, ingest: Ingest
) -> None:
    write(log, titan(), seconds=0.5)
    stamp = log.stat().st_mtime_ns
    assert said(ingest(log)) == READ
    log.write_text(titan(loss=6.0))  # of equal size, and within the same tick of a coarse clock
    os.utime(log, ns=(stamp, stamp))
    (outcome,) = ingest(log)
    assert said([outcome]) == [("read", OTHER_RUN.words(path=log))]


@pytest.mark.parametrize("seconds", [-7200.0, 7200.0], ids=["ahead", "back"])
def test_a_clock_that_was_set_does_not_fool_it(
    seconds: float, log: Path, titan: Titan, ingest: Ingest
) -> None:
    ingest(log)
    size = log.stat().st_size
    write(log, titan(loss=6.0), seconds)
    assert log.stat().st_size == size
    assert said(ingest(log)) == [("read", OTHER_RUN.words(path=log))]
    assert said(ingest(log)) == (KNOWN if seconds < 0 else UNCHANGED)


def test_another_file_of_equal_size_and_time_is_seen(
    log: Path, titan: Titan, ingest: Ingest
) -> None:
    ingest(log)
    stamp = log.stat().st_mtime_ns
    other = write(log.with_name("new"), titan(loss=6.0))
    os.utime(other, ns=(stamp, stamp))
    other.replace(log)
    assert [outcome.status for outcome in ingest(log)] == ["read"]


def test_an_error_is_told_each_time(log: Path, ingest: Ingest) -> None:
    write(log, "")
    binary = write(log.with_name("b.log"), "\x01\x02\x03" * 99)
    other = write(log.with_name("c.log"), OTHER)
    first, second = ingest(log, binary, other), ingest(log, binary, other)
    assert [o.status for o in first] == ["failed"] * 3
    assert said(first) == said(second)
    assert (first[0].message, first[0].kind) == (f"{log}: the file is empty.", "empty-file")


# -- files that are no logs ------------------------------------------------------------------


def test_an_empty_file_of_a_folder_is_told_once_unless_it_was_a_log(
    store: Store, log: Path, titan: Titan, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    """torchrun leaves one beside the output of each rank, Slurm where nothing went wrong."""
    empty = write(log.with_name("stderr.log"), "")
    assert said(ingest(log.parent)) == [*READ, ("passed", f"{empty}: the file is empty.")]
    opened()
    assert said(ingest(log.parent)) == [*UNCHANGED, ("passed", "")]
    assert opened() == []
    write(empty, titan(7, loss=9.0))
    write(log, "")
    lost = ("failed", EMPTIED_LOG.words(path=log))
    assert said(ingest(log.parent)) == [lost, *READ]
    assert said(ingest(log.parent)) == [lost, *UNCHANGED]
    assert store.table("runs").height == 2


@pytest.mark.parametrize("now", [OTHER, "\x01\x02\x03" * 99], ids=["another text", "binary"])
def test_a_log_that_something_else_was_written_over_is_told_each_time(
    store: Store, log: Path, titan: Titan, ingest: Ingest, now: str
) -> None:
    ingest(log)
    write(log, now)
    lost = ("failed", OVERWRITTEN_LOG.words(path=log))
    assert said(ingest(log.parent)) == [lost]
    assert said(ingest(log.parent)) == [lost]
    assert store.table("runs").height == 1
    write(log, titan())
    assert said(ingest(log.parent)) == [("known", "known already")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", '{"model_type": "llama", '),
        ("ds_config.json", ""),
        ("job.toml", "[training]\nsteps = = 1\n"),
    ],
)
def test_a_broken_companion_is_told_once_a_folder(
    store: Store, log: Path, titan: Titan, name: str, text: str
) -> None:
    """The run lacks what stands there, and looked as if there were no such file."""
    why = f"cannot be read as {name[-4:].upper()}: "
    write(log.with_name("b.log"), titan(7, loss=9.0))
    write(log.with_name(name), text)
    told: list[ingest_run.Outcome] = []
    ingest_run.ingest_paths([log.parent], store, report=told.append)
    (broken,) = (one for one in told if one.status == "passed")
    assert broken.skipped_message.startswith(f"{log.with_name(name)}: skipped: {why}")
    assert broken.skipped_message.endswith("The logs beside it get no facts from it.")
    assert sum(one.status == "read" for one in told) == 2
    told.clear()
    ingest_run.ingest_paths([log.parent], store, report=told.append)
    assert {one.status for one in told} == {"unchanged"}
    write(log.with_name(name), "{}" if name.endswith("json") else "", seconds=1800.0)
    told.clear()
    ingest_run.ingest_paths([log.parent], store, report=told.append)
    assert [one.status for one in told] == ["known", "known"]


def test_a_file_that_is_no_log_is_read_once(
    log: Path, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    write(log.with_name("b.txt"), OTHER)
    _, first = ingest(log.parent)
    opened()
    assert first.status == "passed"
    assert "unknown format" in first.message
    assert said(ingest(log.parent)) == [*UNCHANGED, ("passed", "")]
    assert opened() == []
    (named,) = ingest(log.with_name("b.txt"))
    assert named.status == "failed"


IMPORT = (
    "[2026-11-20 15:01:12,345] [INFO] [real_accelerator.py:158:get_accelerator] Setting "
    "ds_accelerator to cuda (auto detect)\n"
)


BESIDE_LOGS = {
    "flops.txt": "\n".join(DEEPSPEED.blocks[1].example),
    "trainer_state.json": '{\n  "global_step": 2,\n  "log_history": []\n}',
    "tokens.log": IMPORT * 8 + OTHER,
}


@pytest.mark.parametrize("name", BESIDE_LOGS)
def test_what_stands_beside_logs_is_told_once(
    name: str, log: Path, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    beside = write(log.parent / "checkpoint-2" / name, BESIDE_LOGS[name])
    _, first = ingest(log.parent)
    assert (first.path, first.status, bool(first.message)) == (beside, "passed", True)
    opened()
    assert said(ingest(log.parent)) == [*UNCHANGED, ("passed", "")]
    assert opened() == []


@pytest.mark.parametrize("new", ["format", "program"])
def test_a_new_format_or_program_reads_it_again(
    new: str, log: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log.with_name("b.txt"), OTHER)
    ingest(log.parent)
    options = {}
    if new == "program":
        monkeypatch.setattr(ingest_run, "version", lambda _: "99.0")
    else:
        options = {
            "format_choice": FormatChoice(
                (*BUILT_IN_FORMATS, replace(BUILT_IN_FORMATS[0], name="own", signature="own"))
            )
        }
    again = [ingest(log.parent, **options)[1].message for _ in range(2)]
    assert [bool(message) for message in again] == [True, False]


def test_a_link_to_a_log_that_is_found_by_its_own_name_is_no_other(
    store: Store, log: Path, titan: Titan, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    """It stands before its log by name, and leads to another one each night."""
    newer = write(log.with_name("b.log"), titan(5, loss=7.0))
    link = log.with_name("Latest.log")
    for target in (log, newer):
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)
        assert {outcome.path for outcome in ingest(log.parent)} == {log, newer}
    assert store.table("sources")["path"].to_list() == [str(log), str(newer)]
    opened()
    assert said(ingest(log.parent)) == UNCHANGED * 2
    assert opened() == []


@pytest.mark.parametrize("where", ["outside", ".hidden", "left out", "other ending"])
def test_a_link_to_a_log_that_is_not_found_otherwise_is_read(
    where: str, log: Path, tmp_path: Path, titan: Titan, ingest: Ingest
) -> None:
    paths = {"outside": tmp_path / "x.log", "other ending": log.with_name("x.json")}
    target = write(paths.get(where, log.parent / where / "x.log"), titan(5, loss=7.0))
    link = log.with_name("z.log")
    link.symlink_to(target)
    found = ingest(log.parent, excluded_folders=[log.parent / "left out"])
    assert [(outcome.path, outcome.status) for outcome in found] == [(log, "read"), (link, "read")]


# -- facts from outside the log --------------------------------------------------------------


@pytest.mark.parametrize("name", ["facts.toml", "a.log.facts.toml"])
def test_facts_that_change_beside_a_log_reach_it(
    name: str, store: Store, log: Path, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    sidecar = log.with_name(name)
    ingest(log.parent)
    opened()
    for text, gpus in (("gpus = 8\n", "8"), ("gpus = 9\n", "9"), (None, None)):
        sidecar.unlink() if text is None else write(sidecar, text)
        age(sidecar, 3600.0 + int(gpus)) if gpus else None
        assert said(ingest(log.parent)) == KNOWN
        assert held(store, "gpus") == [gpus]
        assert log.name not in opened()
        assert said(ingest(log.parent)) == UNCHANGED


def test_a_companion_that_comes_and_goes_reaches_the_log(
    store: Store, log: Path, ingest: Ingest
) -> None:
    """One of each kind, one after the other."""
    ingest(log)
    for name, text, fact in (
        ("config.json", '{"model_type": "llama"}', "model_config"),
        ("ds_config.json", '{"train_batch_size": 36}', "global_batch_size"),
        ("config.yaml", "seq_len: {value: 64}\n", "seq_len"),
        ("wandb/run-1/files/config.yaml", "seq_len: {value: 64}\n", "seq_len"),
    ):
        companion = write(log.parent / name, text)
        assert said(ingest(log)) == KNOWN, name
        assert held(store, fact) != [None], name
        assert said(ingest(log)) == UNCHANGED, name
        companion.unlink()
        assert said(ingest(log)) == KNOWN, name
        assert held(store, fact) == [None], name


def test_a_file_that_a_sidecar_names_counts_as_beside_the_log(
    store: Store, log: Path, tmp_path: Path, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    model = write(tmp_path / "models" / "own.json", '{"model_type": "llama"}')
    write(log.with_name("facts.toml"), 'model_config = "../models/own.json"\n')
    ingest(log)
    opened()
    assert said(ingest(log)) == UNCHANGED
    assert opened() == []
    write(model, '{"model_type": "qwen2"}')
    assert said(ingest(log)) == KNOWN
    assert held(store, "model_config") == ['{"model_type": "qwen2"}']
    assert said(ingest(log)) == UNCHANGED


def test_a_sidecar_that_cannot_be_read_is_told_each_time(log: Path, ingest: Ingest) -> None:
    ingest(log)
    sidecar = write(log.with_name("facts.toml"), "gpu = 8\n")
    for _ in range(2):
        (outcome,) = ingest(log)
        assert outcome.status == "failed"
        assert outcome.message.startswith(f"{sidecar}: no fact is called 'gpu'.")
    sidecar.unlink()
    assert said(ingest(log)) == UNCHANGED


def test_facts_by_hand_reach_a_file_that_did_not_change(
    store: Store, log: Path, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    write(log.with_name("facts.toml"), "seq_len = 64\n")
    ingest(log)
    opened()
    assert said(ingest(log, flag_facts=facts_from_flags(["gpus=8"]))) == KNOWN
    assert (held(store, "gpus"), held(store, "seq_len")) == (["8"], ["64"])
    assert log.name not in opened()
    assert said(ingest(log)) == UNCHANGED


def test_facts_by_path_stand_behind_those_beside_the_log(
    store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    def by_path(gpus: str, *more: str) -> Callable[[str], list[dict[str, object]]]:
        facts = facts_from_flags([f"gpus={gpus}", *more])
        return lambda path: [f | {"origin": "sidecar:x"} for f in facts if path.endswith("/a.log")]

    write(log.with_name("b.log"), titan(loss=7.0))
    ingest(log.parent, path_facts=by_path("4"))
    assert held(store, "gpus") == ["4", None]
    assert said(ingest(log.parent, path_facts=by_path("4"))) == UNCHANGED * 2
    assert said(ingest(log.parent, path_facts=by_path("6", "seq_len=64"))) == KNOWN + UNCHANGED
    assert (held(store, "gpus"), held(store, "seq_len")) == (["6", None], ["64", None])
    write(log.with_name("a.log.facts.toml"), "gpus = 2\n")
    ingest(log.parent, path_facts=by_path("6"))
    assert (held(store, "gpus"), held(store, "seq_len")) == (["2", None], [None, None])
    assert said(ingest(log.parent)) == KNOWN + UNCHANGED


# -- what happens to logs --------------------------------------------------------------------


def test_a_grown_log_is_read_and_others_are_not(
    store: Store, log: Path, titan: Titan, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    write(log.with_name("b.log"), titan(loss=7.0))
    ingest(log.parent)
    opened()
    write(log, titan(9))
    assert said(ingest(log.parent)) == READ + UNCHANGED
    assert {"a.log", "b.log"} & set(opened()) == {"a.log"}
    assert store.table("steps").height == 9 + 3


def test_a_log_that_is_written_to_while_it_is_read_says_so(
    log: Path, titan: Titan, ingest: Ingest, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    reader = ingest_run.read_log

    def grow(path: Path, *given: object, **options: object) -> object:
        tables = reader(path, *given, **options)
        with path.open("a") as stream:
            stream.write(titan(5).splitlines(keepends=True)[3])
        age(path)
        return tables

    with monkeypatch.context() as patch:
        patch.setattr(ingest_run, "read_log", grow)
        note = GROWING.words(path=log)
        assert said(ingest(log)) == [("read", note)]
    assert store.table("steps").height == 3
    assert said(ingest(log)) == READ
    assert store.table("steps").height == 4
    assert said(ingest(log)) == UNCHANGED


def test_a_log_that_is_moved_while_it_is_read_is_read(
    log: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    reader = ingest_run.read_log

    def move(path: Path, *given: object, **options: object) -> object:
        tables = reader(path, *given, **options)
        path.rename(path.with_name("moved.log"))
        return tables

    monkeypatch.setattr(ingest_run, "read_log", move)
    assert said(ingest(log)) == READ
    assert store.table("steps").height == 3


def test_a_copy_is_known_and_then_unchanged(
    log: Path, ingest: Ingest, opened: Callable[[], list[str]]
) -> None:
    ingest(log)
    shutil.copy2(log, log.with_name("b.log"))
    same = KNOWN_COPY.words(stored=log)
    assert said(ingest(log.parent)) == [*UNCHANGED, ("known", same)]
    opened()
    assert said(ingest(log.parent)) == UNCHANGED * 2
    assert opened() == []


def test_a_moved_log_is_known_by_its_content(store: Store, log: Path, ingest: Ingest) -> None:
    ingest(log)
    moved = log.rename(log.with_name("b.log"))
    same = KNOWN_COPY.words(stored=log)
    assert said(ingest(log.parent)) == [("known", same)]
    assert said(ingest(moved)) == UNCHANGED
    assert store.table("runs").height == 1


def test_a_backup_that_did_not_change_is_read_when_its_log_grows(
    store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    ingest(log)
    shutil.copy2(log, log.with_name("b.log"))
    ingest(log.parent)
    write(log, titan(9))
    assert said(ingest(log.parent)) == READ * 2
    assert store.table("runs")["name"].to_list() == ["a", "b"]
    assert said(ingest(log.parent)) == UNCHANGED * 2


def test_what_was_given_to_a_run_stays_with_a_copy_that_did_not_change(
    store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    """A log that turns into another known one would otherwise take its earlier content along."""
    longer = write(log.with_name("b.log"), titan(9))
    ingest(log.parent)
    shutil.copy2(log, log.with_name("c.log"))
    ingest(log.parent)
    first = store.table("runs").filter(name="a")["run_id"][0]
    store.give_facts({first: facts_from_flags(["recompute=none"])})
    log.write_text(longer.read_text())
    age(log)
    *_, copy = ingest(log.parent)
    assert copy.status == "unchanged"
    assert store.table("runs").filter(name="a")["run_id"].to_list() == [first]
    assert sorted(held(store, "recompute"), key=str) == [None, "none"]


@pytest.mark.parametrize("names", ["abc", "cba"])
def test_logs_that_begin_alike_and_move_one_name_along_stay(
    names: str, store: Store, logs: Path, titan: Titan, ingest: Ingest
) -> None:
    """One takes the place of what the next one has still; that is read then, not lost.

    Nor is what the last one held, though nothing holds it any more.
    """
    first, second, third = (logs / f"{name}.log" for name in names)
    texts = [titan(steps) + f"of log {steps}\n" for steps in (5, 6, 7, 8)]
    for path, text in zip((first, second, third), texts, strict=False):
        write(path, text)
    ingest(logs)
    for path, text in zip((first, second, third), (texts[3], *texts[:2]), strict=True):
        write(path, text)
    ingest(logs)
    assert sorted(store.table("sources")["step_lines"]) == [5, 6, 7, 8]
    assert said(ingest(logs)) == UNCHANGED * 3
    assert sorted(store.table("sources")["step_lines"]) == [5, 6, 7, 8]


@pytest.mark.parametrize("grown", [0, 2], ids=["as it was", "grown since"])
def test_a_log_that_was_rotated_stays_one_run(
    grown: int, store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    log = write(log.with_name("run.log"), titan(30))
    log.with_name("a.log").unlink()
    ingest(log.parent)
    write(log, titan(30 + grown))
    log.rename(log.with_name("run.log.1"))
    write(log, titan(40, loss=7.0).replace("2026-01-02", "2026-01-03"))
    new, old = ingest(log.parent)
    assert said([new]) == [("read", OTHER_RUN.words(path=log))]
    same = KNOWN_COPY.words(stored=log)
    assert said([old]) == (READ if grown else [("known", same)])
    tables = {name: store.table(name) for name in ("runs", "facts", "steps", "events")}
    tables |= {name: store.table(name) for name in ("sources", "unread")}
    metrics = analyse(tables).metrics
    assert sorted(metrics["steps"]) == [30 + grown, 40]
    assert said(ingest(log.parent)) == UNCHANGED * 2


@pytest.mark.parametrize("case", [(0, ""), (5, OTHER), (5, ""), (0, OTHER)][: 4 if THOROUGH else 2])
def test_a_log_that_was_rotated_is_told_once(
    case: tuple[int, str], store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    """The next one has no step yet, and nothing is lost: a nightly job is not to fail."""
    grown, now = case
    ingest(write(log, titan(30)).parent)
    write(log, titan(30 + grown))
    older = log.rename(log.with_name("run.log.1"))
    write(log, now)
    first, second = ingest(log.parent)
    assert (first.status, first.message) == (
        "passed",
        ROTATED_LOG.words(path=log, moved_to=older),
    )
    assert second.status == ("read" if grown else "known")
    assert said(ingest(log.parent)) == [("passed", ""), *UNCHANGED]
    assert len(analyse(store.tables()).metrics) == 1
    write(log, titan(7, loss=9.0))
    assert [one.status for one in ingest(log.parent)] == ["read", "unchanged"]
    assert len(analyse(store.tables()).metrics) == 2
    write(log, "")
    assert said(ingest(log.parent)) == [
        ("failed", EMPTIED_LOG.words(path=log)),
        *UNCHANGED,
    ]


def test_a_log_that_was_truncated_in_place_keeps_its_earlier_run(
    store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    ingest(log)
    write(log, "")
    assert said(ingest(log)) == [("failed", EMPTIED_LOG.words(path=log))]
    assert store.table("runs").height == 1
    write(log, "\0" * 64 + titan(5, loss=7.0))  # its writer went on where it had been
    assert said(ingest(log)) == [("read", OTHER_RUN.words(path=log))]
    assert sorted(store.table("steps").group_by("run_id").len()["len"]) == [3, 5]


@pytest.mark.parametrize("lost", [2, 9], ids=["its end", "most of its steps"])
def test_a_log_that_was_cut_short_keeps_what_was_read_of_it(
    lost: int, store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    """As where a copy of it has only begun; its run stays one, and is whole again later."""
    lines = [*titan(10).splitlines(keepends=True), "torch.OutOfMemoryError: CUDA out of memory\n"]
    for name, held in (("b.log", lines), ("a.log", lines[:3])):  # another that begins alike
        ingest(write(log.with_name(name), "".join(held)).parent)
    write(log.with_name("b.log"), "".join(lines[:-lost]))
    first, cut = ingest(log.parent)
    assert said([first]) == UNCHANGED
    assert (cut.status, "has fewer steps of its run" in cut.message) == ("read", True)
    assert cut.urgent
    assert said(ingest(log.parent)) == UNCHANGED * 2

    def told() -> list[tuple[int, str]]:
        tables = {name: store.table(name) for name in TABLES}
        found = analyse(tables).metrics.filter(outcome="out_of_memory")
        return list(found.select("steps", "outcome").iter_rows())

    assert told() == [(10, "out_of_memory")]
    write(log.with_name("b.log"), "".join([*lines, "srun: error\n"]))
    assert said(ingest(log.parent)) == [*UNCHANGED, *READ]
    assert (told(), store.table("sources").height) == ([(10, "out_of_memory")], 2)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside one that begins alike"])
def test_a_log_that_is_another_when_it_is_told_again_keeps_its_earlier_run(
    store: Store, log: Path, titan: Titan, *, beside: bool
) -> None:
    """Its run has an id of its own where another log begins alike."""
    again = write(log.with_name("b.log"), titan(4))
    if not beside:
        log.unlink()

    def told(outcome: Outcome) -> None:
        if outcome.path == again and again.read_text() == titan(4):
            write(again, titan(5, loss=7.0))

    ingest_run.ingest_paths([again.parent, again], store, report=told)
    counts = sorted(store.table("steps").group_by("run_id").len()["len"])
    assert counts == ([3, 4, 5] if beside else [4, 5])


# -- what is much is stored batch by batch -----------------------------------------------------


def batches(store: Store) -> int:
    return len(list((store.path / "parts" / "batch").glob("*.parquet")))


@pytest.fixture
def by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logs are stored together at most."""
    monkeypatch.setattr(ingest_run, "MAX_BATCH_LOGS", 2)


@pytest.fixture
def five(logs: Path, titan: Titan) -> list[Path]:
    """Logs of which the last one is a copy of the second."""
    paths = [write(logs / f"{n}.log", titan(3 + n, loss=5.0 + n)) for n in range(4)]
    return [*paths, write(logs / "4.log", paths[1].read_text())]


@pytest.mark.usefixtures("by_two")
def test_logs_of_several_batches_are_stored_as_of_one(
    store: Store, tmp_path: Path, five: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ingest_run.ingest_paths([five[0].parent], store)
    assert [one.status for one in told] == ["read"] * 4 + ["known"]
    assert batches(store) == 2
    monkeypatch.undo()
    other = Store(tmp_path / "at_once")
    assert ingest_run.ingest_paths([five[0].parent], other) == told
    assert batches(other) == 1
    for name in ("runs", "facts", "steps", "events", "unread"):
        assert store.table(name).equals(other.table(name)), name


@pytest.mark.parametrize("most", [{"MAX_BATCH_LOGS": 2}, {"MAX_BATCH_STEPS": 7}])
def test_a_killed_ingest_leaves_whole_logs_and_the_next_one_reads_the_rest(
    store: Store, five: list[Path], most: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in most.items():
        monkeypatch.setattr(ingest_run, name, value)

    def killed(outcome: Outcome) -> None:
        if outcome.path == five[3]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_run.ingest_paths(five, store, report=killed)
    steps = store.table("steps").join(store.table("runs"), on="run_id").group_by("name").len()
    assert sorted(steps.iter_rows()) == [("0", 3), ("1", 4)]
    told = ingest_run.ingest_paths(five, store)
    assert [one.status for one in told] == ["known", "known", "read", "read", "known"]
    assert store.table("steps").height == 3 + 4 + 5 + 6
    assert [one.status for one in ingest_run.ingest_paths(five, store)] == ["unchanged"] * 5


@pytest.mark.usefixtures("by_two")
def test_a_folder_is_remembered_that_came_in_several_batches(
    store: Store, five: list[Path]
) -> None:
    folder = five[0].parent
    five[4].unlink()
    age(folder)
    ingest_run.ingest_paths([folder], store)
    assert list(store.folders().listed) == [str(folder)]


@pytest.mark.usefixtures("by_two")
def test_a_folder_is_not_remembered_where_another_wrote_between_its_batches(
    store: Store, five: list[Path], tmp_path: Path, titan: Titan
) -> None:
    folder, other = five[0].parent, write(tmp_path / "other" / "x.log", titan(9, loss=9.0))
    five[4].unlink()

    def meanwhile(outcome: Outcome) -> None:
        if outcome.path == five[2]:
            ingest_run.ingest_paths([other], Store(store.path))

    ingest_run.ingest_paths([folder], store, report=meanwhile)
    assert store.folders().listed == {}
    assert store.table("runs").height == 5


@pytest.mark.usefixtures("by_two")
def test_a_copy_is_read_again_where_its_log_grew_in_an_earlier_batch(
    store: Store, log: Path, titan: Titan, ingest: Ingest
) -> None:
    ingest(log)
    others = [write(log.with_name(f"{n}.log"), titan(3, loss=6.0 + n)) for n in range(3)]
    copy = write(log.with_name("z.log"), log.read_text())
    write(log, titan(9))
    assert said(ingest(log, *others, copy)) == READ * 5
    assert sorted(store.table("runs")["name"]) == ["0", "1", "2", "a", "z"]


# -- the walk --------------------------------------------------------------------------------


def test_files_are_found_in_the_order_of_their_paths(logs: Path) -> None:
    names = ["a/b.log", "a/c/d.log", "a.log", "a-b/x.log", "B.log", "a/B/z.log", "run", "x.1"]
    for name in (*names, ".git/x.log", "a/.hidden.log", "a/config.json", "train.py"):
        write(logs / name, "x")
    found = [one.path for one in FileWalk().of(logs)]
    assert found == [str(path) for path in sorted(logs / name for name in names)]


def test_what_patterns_and_folders_share_is_found_once(logs: Path) -> None:
    for name in ("a/b.log", "a/c/d.log", "e.log"):
        write(logs / name, "x")
    walk = FileWalk()
    paths = (logs / "**", logs / "a" / "*.log", logs / "a")
    found = [one.path for path in paths for one in walk.of(path)]
    assert sorted(found) == [str(logs / name) for name in ("a/b.log", "a/c/d.log", "e.log")]


def test_a_pattern_that_matches_nothing_is_told(logs: Path, ingest: Ingest) -> None:
    pattern = logs / "*" / "train.log"
    assert said(ingest(pattern)) == [("failed", f"{pattern}: no file or folder matches.")]


def test_a_name_that_looks_like_a_pattern_is_a_name(logs: Path, titan: Titan) -> None:
    log = write(logs / "run[1].log", titan())
    assert [one.path for one in FileWalk().of(log)] == [str(log)]


def test_folders_that_are_left_out_are_not_entered(logs: Path, ingest: Ingest) -> None:
    write(logs / "a" / "nightly" / "nightly.log", OTHER)
    write(logs / "a" / "x.log", OTHER)
    found = ingest(logs, excluded_folders=[logs / "a" / ".." / "a" / "nightly", logs / "gone"])
    assert [outcome.path for outcome in found] == [logs / "a" / "x.log"]


def test_a_folder_that_cannot_be_listed_is_told(
    log: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = log.parent / "closed"
    closed.mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    why = "Permission denied. Fix: get read permission; ls -ld shows the owner"
    assert said(ingest(log.parent)) == [*READ, ("failed", f"{closed}: cannot be read: {why}")]


def test_a_file_that_went_since_its_folder_was_listed_is_not_there(logs: Path) -> None:
    for name in ("a.log", "b.log", "c.log"):
        write(logs / name, "x")
    found = []
    for one in FileWalk().of(logs):
        found.append(Path(one.path).name)
        (logs / "b.log").unlink(missing_ok=True)
    assert found == ["a.log", "c.log"]


def test_an_empty_folder_is_told(logs: Path) -> None:
    with pytest.raises(UnreadableSourceError, match="no log file in this folder"):
        list(FileWalk().of(logs))


def test_facts_beside_a_moved_log_are_told_of_and_those_of_before_stay(
    store: Store, log: Path, ingest: Ingest
) -> None:
    def given() -> dict[str, str]:
        facts = store.table("facts").filter(pl.col("origin").str.starts_with("sidecar"))
        return dict(facts["name", "value"].iter_rows())

    beside = log.with_name("facts.toml")
    beside.write_text('accelerator = "NVIDIA H800"\n')
    ingest(log.parent)
    (moved := log.parent / "later").mkdir()
    log.rename(log := moved / log.name)
    beside.rename(moved / "facts.toml")
    (outcome,) = ingest(moved)
    assert (outcome.kind, outcome.urgent) == ("moved-log", True)
    assert given() == {"accelerator": "NVIDIA H800"}
    store.remove(store.table("runs")["run_id"].to_list())
    (moved / "facts.toml").write_text('accelerator = "NVIDIA A100-SXM4-80GB"\n')
    assert said(ingest(moved)) == READ
    assert given() == {"accelerator": "NVIDIA A100-SXM4-80GB"}


def with_timers(log: Path) -> list[str]:
    """The lines that a log of DeepSpeed's timers has now."""
    timers = [DEEPSPEED_TIMERS.steps[0].example] * 8
    log.write_text("\n".join(timers) + "\n")
    return timers


def test_a_log_that_grew_into_another_format_stays_one_run(
    store: Store, log: Path, ingest: Ingest
) -> None:
    """DeepSpeed's timers print from the first step on, its engine at every tenth."""
    timers = with_timers(log)
    ingest(log)
    (run,) = store.table("runs")["run_id"]
    store.give_facts({run: facts_from_flags(["gpus=8"])})
    whole = [*timers, *(line.example for line in DEEPSPEED.steps[:1]), *timers]
    log.write_text("\n".join(whole) + "\n")
    assert said(ingest(log)) == READ
    (run,) = store.table("runs")["run_id"]
    assert store.table("runs")["log_format"].to_list() == ["deepspeed"]
    facts = store.table("facts").filter(run_id=run, name="gpus")
    assert facts["value"].to_list() == ["8"]
    assert store.table("sources").height == 1


def test_a_log_that_begins_otherwise_is_another_run(
    log: Path, store: Store, ingest: Ingest
) -> None:
    timers = with_timers(log)
    ingest(log)
    log.write_text("x" + "\n".join([*timers, DEEPSPEED.steps[0].example]) + "\n")
    (outcome,) = ingest(log)
    assert outcome.message.endswith("has another run now; the earlier one is kept")
    assert store.table("runs").height == 2
