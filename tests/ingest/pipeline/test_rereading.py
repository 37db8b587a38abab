"""What an earlier fairmfu read, and this one reads otherwise: told, and read anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.core import schema as contract
from fairmfu.ingest.core.errors import UnknownFormatError
from fairmfu.ingest.core.schema import READING_CHANGES, ReadingChange
from fairmfu.ingest.detect.format_lookup import load_format_catalog
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline.ingest_run import Outcome
from fairmfu.ingest.store import catalogue
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.compare import comparability
from fairmfu.metrics.core.run_messages import OUTDATED_READING
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.nightly import nightly
from fairmfu.reports.store.metrics_store import current_metrics, rescore_all
from tests.ingest.detect.test_user_formats import ALONE
from tests.ingest.pipeline.test_ingest_run import held, said, write
from tests.support.effort import THOROUGH
from tests.support.kinds import of_kind
from tests.support.old_store import genuine
from tests.support.prepared import emptied, prepare

Ingest = Callable[..., list[Outcome]]
READ = [("read", "")]
UNCHANGED = [("unchanged", "known already")]
XTUNER = "[XTuner][RANK 0][2026-11-20 11:30:15][INFO] Step 1/32 lr: 0.1 grad_norm: 2.5\n"


@pytest.fixture
def log(logs: Path, titan: Callable[..., str]) -> Path:
    return write(logs / "a.log", titan())


@pytest.fixture
def tmp_path(one_place: Path) -> Path:
    return emptied(one_place)


@pytest.fixture
def before(tmp_path: Path, log: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log as a fairmfu that knew no readings read it."""

    def read() -> None:
        with monkeypatch.context() as earlier:
            earlier.setattr(log_tables, "READING_CHANGES", ())
            assert said(ingest(log.parent)) == READ
            ingest(log.parent)  # so that the folder is remembered

    prepare(tmp_path, "before", read)
    return log


def readings(store: Store) -> list[int]:
    return store.table("sources")["reading"].to_list()


def fairmfu(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.mark.parametrize("by", ["folder", "file"])
def test_it_is_read_anew_once_and_keeps_what_was_given(
    by: str, before: Path, store: Store, ingest: Ingest
) -> None:
    (run,) = store.table("runs")["run_id"]
    store.give_facts({run: facts_from_flags(["gpus=8"])})
    first = store.table("sources")["read_at"].to_list()
    path = before.parent if by == "folder" else before
    assert (said(ingest(path)), readings(store)) == (READ, [len(READING_CHANGES)])
    assert (said(ingest(path)), said(ingest(path))) == (UNCHANGED, UNCHANGED)
    assert store.table("runs")["run_id"].to_list() == [run]
    assert store.table("steps").height == 3
    assert held(store, "gpus") == ["8"]
    assert store.table("sources")["read_at"].to_list() == first
    tables = store.tables()
    for _ in range(2 if THOROUGH else by == "file"):
        assert not [one for one in examine_store(store) if one.is_harmful]
        store.compact()
        store.rebuild()
        assert all(store.tables()[name].equals(frame) for name, frame in tables.items())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_log_that_is_to_be_read_again_is_counted(
    count: int, logs: Path, store: Store, titan: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(logs / f"{steps}.log", titan(steps)) for steps in range(3, 3 + count)]
    with monkeypatch.context() as earlier:
        earlier.setattr(log_tables, "READING_CHANGES", ())
        store.add([read_log_tables(path) for path in paths])
    (finding,) = [one for one in examine_store(store) if "earlier fairmfu" in one.what]
    others = {1: "", 2: " and 1 more log", 3: " and 2 more logs"}[count]
    assert finding.what.startswith(f"{paths[0]}{others}: read by an earlier fairmfu")


def test_facts_beside_it_are_read_anew_too(before: Path, store: Store, ingest: Ingest) -> None:
    write(before.parent / "facts.toml", "gpus = 4\n")
    ingest(before)
    assert (held(store, "gpus"), readings(store)) == (["4"], [len(READING_CHANGES)])
    (before.parent / "facts.toml").unlink()
    ingest(before)
    assert held(store, "gpus") == [None]
    store.compact()
    store.rebuild()
    assert held(store, "gpus") == [None]


def test_where_launches_are_told_apart_otherwise_what_was_given_goes_along(
    before: Path, store: Store, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no fact of a run stays that there is no more."""
    (run,) = store.table("runs")["run_id"]
    store.give_facts({run: facts_from_flags(["gpus=8"])})
    monkeypatch.setattr(
        "fairmfu.ingest.launches.launch.Launch.run_id", property(lambda _: "0123456789ab")
    )
    assert said(ingest(before)) == READ
    assert store.table("runs")["run_id"].to_list() == ["0123456789ab"]
    assert set(store.table("facts")["run_id"]) == {"0123456789ab"}
    assert held(store, "gpus") == ["8"]


def test_a_copy_takes_its_place_where_the_file_is_gone(
    before: Path, store: Store, ingest: Ingest
) -> None:
    copy = write(before.parent / "other" / "b.log", before.read_text())
    assert [one.status for one in ingest(copy)] == ["known"]
    assert readings(store) == [0]
    before.unlink()
    assert said(ingest(copy)) == READ
    assert readings(store) == [len(READING_CHANGES)]
    assert store.table("sources")["path"].to_list() == [str(copy)]


def test_one_that_cannot_be_read_any_more_stays_as_it_was(
    before: Path, store: Store, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairmfu.ingest.detect.detection.detect_from_beginning", _knows_none)
    monkeypatch.setattr("fairmfu.ingest.extract.log_tables.detect_from_beginning", _knows_none)
    assert [one.status for one in ingest(before.parent)] == ["failed"]
    assert store.table("steps").height == 3
    assert readings(store) == [0]


def _knows_none(*_: object, **__: object) -> None:
    raise UnknownFormatError


def test_a_reading_is_of_some_formats(
    before: Path, store: Store, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(before)
    more = ReadingChange("dicts have steps", ("hf-trainer",))
    for module in (contract, catalogue, log_tables):
        monkeypatch.setattr(module, "READING_CHANGES", (*READING_CHANGES, more))
    assert store.outdated_sources() == {}
    assert said(ingest(before)) == UNCHANGED
    other = ReadingChange("lines are read to their ends", ("torchtitan",))
    for module in (contract, catalogue, log_tables):
        monkeypatch.setattr(module, "READING_CHANGES", (*READING_CHANGES, more, other))
    row = analyse(store.tables()).metrics.row(0, named=True)
    (words,) = of_kind(row, OUTDATED_READING)
    assert "lines are read to their ends" in words
    assert "dicts" not in words
    assert said(ingest(before)) == READ
    assert readings(store) == [len(READING_CHANGES) + 2]


def test_a_log_that_was_forced_is_read_anew_as_it_was(
    logs: Path,
    store: Store,
    ingest: Ingest,
    titan: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As what its own lines do not tell that it is; by a folder too, beside one that was not."""
    log, other = (write(logs / f"{steps}.log", titan(steps) + XTUNER) for steps in (3, 4))
    forced = load_format_catalog().tried(["xtuner-v1"])
    with monkeypatch.context() as earlier:
        earlier.setattr(log_tables, "READING_CHANGES", ())
        assert said(ingest(log, format_choice=forced)) == READ
        assert said(ingest(other)) == READ
    was = store.table("sources").select("path", "log_format", "forced").sort("path")
    assert was["log_format"].to_list() == ["xtuner-v1", "torchtitan"]
    assert was["forced"].to_list() == [["xtuner-v1"], None]
    assert said(ingest(logs)) == 2 * READ
    assert readings(store) == 2 * [len(READING_CHANGES)]
    now = store.table("sources").select("path", "log_format", "forced").sort("path")
    assert now.equals(was)
    assert said(ingest(logs)) == 2 * UNCHANGED


def test_a_format_of_ones_own_that_is_not_known_now_leaves_a_forced_log_as_it_is(
    logs: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write(logs / "a.log", "mine step 3 loss 1.5 took 250\n")
    mine = write(tmp_path / "mine.toml", ALONE)
    ingest = ("ingest", "--store", store.path)
    with monkeypatch.context() as earlier:
        earlier.setattr(log_tables, "READING_CHANGES", ())
        assert fairmfu(*ingest, log, "--log-format", mine).exit_code == 0
    left = fairmfu(*ingest, "--again")
    assert "unknown format mine: give it with --log-format" in left.stderr
    assert readings(store) == [0]
    assert fairmfu(*ingest, "--again", "--log-format", mine).exit_code == 0
    assert readings(store) == [len(READING_CHANGES)]
    assert store.table("sources")["forced"].to_list() == [["mine"]]


def test_commands_say_which_runs_it_is_of_and_what_to_do(before: Path, store: Store) -> None:
    told = "a: Not ranked: an earlier fairmfu read this log, and its parsing has changed since: "
    shown = " ".join(fairmfu("runs", "--store", store.path).stderr.split())
    assert told in shown
    assert f"Fix: fairmfu ingest --store {store.path} --again" in shown
    found = fairmfu("doctor", "--store", store.path)
    assert f"Note: {before}: read by an earlier fairmfu" in found.stdout
    assert (found.exit_code, "no problems found" in found.stdout) == (0, True)
    again = fairmfu("ingest", "--again", "--store", store.path)
    assert (again.exit_code, "1 read" in again.stderr) == (0, True)
    assert "earlier" not in fairmfu("runs", "--store", store.path).stderr
    nothing = fairmfu("ingest", "--again", "--store", store.path)
    told = f"{store.path}: no logs need to be read again.\n"
    assert (nothing.exit_code, nothing.stderr) == (0, told)
    assert fairmfu("ingest", "--store", store.path).exit_code == 2


def test_they_stand_in_no_ranking(before: Path, store: Store, ingest: Ingest) -> None:
    """Though all that makes two runs like for like is known of them."""
    facts = [
        *("model=llama3-8b", "seq_len=8192", "gpus=8", "accelerator=NVIDIA H100 80GB HBM3"),
        *("precision=bf16", "recompute=none", "micro_batch_size=1", "trainable=full"),
    ]
    other = before.with_name("b.log")
    write(other, before.read_text().replace("2026", "2025"))
    assert said(ingest(other)) == READ
    store.give_facts({run: facts_from_flags(facts) for run in store.table("runs")["run_id"]})
    groups = comparability.rank_runs(current_metrics(store))
    why = dict(groups.select("name", "not_ranked").iter_rows())
    assert "an earlier fairmfu read this log" in str(why["a"])
    ingest(before)
    groups = comparability.rank_runs(current_metrics(store))
    assert "earlier fairmfu" not in str(groups["not_ranked"].to_list())


def test_metrics_that_are_kept_say_it_too(before: Path, store: Store) -> None:
    """Kept by a program that did not know of it."""
    assert before.exists()
    rescore_all(store, ())
    (kinds,) = current_metrics(store)["warning_kinds"].to_list()
    assert kinds.count(OUTDATED_READING.identifier) == 1


def test_a_log_that_is_gone_stays_and_is_named(before: Path, store: Store) -> None:
    before.unlink()
    found = fairmfu("ingest", "--again", "--store", store.path)
    assert f"{before}: the file is gone; its stored runs stay unchanged" in found.stderr
    assert found.exit_code == 0
    assert store.table("steps").height == 3


def test_a_night_reads_its_own_logs_anew_and_names_what_stays(
    before: Path,
    store: Store,
    tmp_path: Path,
    titan: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    night = ("nightly", "--store", store.path, "--out", tmp_path / "out")
    other = write(tmp_path / "new" / "n.log", titan(4))
    monkeypatch.setattr(nightly, "_full_report", lambda *_: None)  # the page of tonight's runs
    assert fairmfu(*night, other).exit_code == 0
    notes = json.loads((tmp_path / "out" / "summary.json").read_text())["notes"]
    told = "1 run, such as a: an earlier fairmfu read this log, and its parsing has changed since: "
    assert any(note.startswith(told) for note in notes)
    assert fairmfu(*night, before).exit_code == 0
    notes = json.loads((tmp_path / "out" / "summary.json").read_text())["notes"]
    assert not any("earlier fairmfu" in note for note in notes)


def test_a_store_that_an_earlier_version_wrote_says_so(tmp_path: Path) -> None:
    """Before a writer of today brought its catalogue up, and behind that."""
    store = Store(genuine(tmp_path / "old"))
    assert len(store.outdated_sources()) == store.table("sources").height == 2
    assert readings(store) == [None, None]
    store.give_facts({store.table("runs")["run_id"][0]: facts_from_flags(["seq_len=4096"])})
    assert len(store.outdated_sources()) == 2
    assert not [one for one in examine_store(store) if one.is_harmful]


@pytest.mark.parametrize("by", ["folder", "file"])
def test_a_log_that_was_forced_and_grew_is_read_as_it_was(
    by: str, logs: Path, store: Store, ingest: Ingest, titan: Callable[..., str]
) -> None:
    """What its own lines tell is another format, of which it would have been a second run."""
    log, more = write(logs / "a.log", titan() + XTUNER), XTUNER.replace("Step 1", "Step 2")
    assert said(ingest(log, format_choice=load_format_catalog().tried(["xtuner-v1"]))) == READ
    write(log, log.read_text() + more)
    assert said(ingest(logs if by == "folder" else log)) == READ
    (source,) = store.table("sources").to_dicts()
    assert (source["log_format"], source["forced"]) == ("xtuner-v1", ["xtuner-v1"])
    assert store.table("steps")["step"].to_list() == [1, 2]
    write(log, titan(4))  # another log in its place, which nobody forced
    assert said(ingest(log))[0][0] == "read"
    assert "torchtitan" in store.table("sources")["log_format"].to_list()


def test_a_log_of_ones_own_format_that_grew_waits_for_it(
    logs: Path, store: Store, tmp_path: Path
) -> None:
    log, mine = logs / "a.log", write(tmp_path / "mine.toml", ALONE)
    write(log, "mine step 3 loss 1.5 took 250\n")
    ingest = ("ingest", "--store", store.path)
    assert fairmfu(*ingest, log, "--log-format", mine).exit_code == 0
    write(log, log.read_text() + "mine step 4 loss 1.4 took 250\n")
    left = fairmfu(*ingest, logs)
    assert "it grew, and --log-format mine, with which it was read, is unknown now" in left.stderr
    assert (left.exit_code, store.table("steps").height) == (1, 1)
    assert fairmfu(*ingest, logs, "--log-format", mine).exit_code == 0
    assert store.table("steps")["step"].to_list() == [3, 4]
