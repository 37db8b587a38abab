"""A store that others can write to: nothing outside of it is read, written or deleted."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result
from polars.testing import assert_frame_equal

from fairmfu.cli import EXIT_UNREAD_SOURCE, main
from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.pipeline import incremental
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from tests.support import hostile_stores
from tests.support.effort import THOROUGH
from tests.support.error_kinds import of_kind
from tests.support.shared_databases import own_readers

CATALOGUE_SEEDS = range(200 if THOROUGH else len(hostile_stores.CATALOGUE_CHANGES))
PART_SEEDS = range(200 if THOROUGH else len(hostile_stores.PART_CHANGES))
"""Each kind of change once; its details are drawn."""
READS = (
    ("runs",),
    ("query", "select (select count(*) from steps), (select count(*) from facts) from runs"),
    ("doctor",),
)
CANARY = "secret-canary"


def ran(*arguments: str) -> Result:
    """A command that ends well or with a message of ours, and shows nothing of the canaries."""
    done = CliRunner().invoke(main, [*arguments, "--store", "store"])
    said = (arguments, done.output, done.exc_info)
    assert done.exception is None or isinstance(done.exception, SystemExit), said
    assert done.exit_code in (0, 1, EXIT_UNREAD_SOURCE), said  # the last: of a run, named
    assert done.exit_code == 0 or arguments[0] == "doctor" or "Fix: " in done.output, said
    assert CANARY not in done.output, said
    return done


def tables(store: Store) -> dict[str, pl.DataFrame]:
    found = store.tables()
    return {name: frame.drop("quirks", strict=False) for name, frame in found.items()}


def assert_same(store: Store, before: dict[str, pl.DataFrame]) -> None:
    for name, frame in tables(store).items():
        assert_frame_equal(frame, before[name])


@pytest.fixture(scope="module")
def seed_store(tmp_path_factory: pytest.TempPathFactory, titan: Callable[..., str]) -> Path:
    """A folder with a store of three batches, and what is outside of it."""
    folder = tmp_path_factory.mktemp("seed")
    for number in range(3):
        log = folder / f"{number}.log"
        log.write_text(titan(20, loss=5.0 + number))
        ingest_run.ingest_paths([log], Store(folder / "store"))
    hostile_stores.make_canaries(folder)
    return folder


@pytest.fixture(scope="module")
def before(seed_store: Path) -> dict[str, pl.DataFrame]:
    """The tables of the store that is attacked."""
    return tables(Store(seed_store / "store"))


@pytest.fixture
def attacked(seed_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that is attacked, of three batches; its parts are of several tables."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(seed_store, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store"


@pytest.fixture(scope="module", autouse=True)
def equal_tables_are_analysed_once() -> Iterator[None]:
    """Nearly all attacks leave the same rows, and an analysis sees nothing but these."""
    known: dict[bytes, Analysis] = {}

    def remembered(given: Mapping[str, pl.DataFrame], overlay: Sequence[Accelerator]) -> Analysis:
        rows = pickle.dumps([(name, given[name]) for name in sorted(given)])
        if rows not in known:
            known[rows] = analyse(given, overlay)
        return known[rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental, "analyse", remembered)
        yield


def assert_harmless(
    store: Path, attack: str, before: dict[str, pl.DataFrame], *, again: bool
) -> None:
    """Each command leaves all outside alone; a rebuilt store is the one before the attack.

    again: whether metrics are computed a second time, after a write.
    """
    folder = store.parent
    outside = hostile_stores.canaries(folder)
    copy = folder / "second"
    shutil.copytree(store, copy, symlinks=True, copy_function=copy_any)
    for arguments in READS:
        ran(*arguments)
    assert hostile_stores.canaries(folder) == outside, attack
    wrote = ran("compact")
    assert hostile_stores.canaries(folder) == outside, attack
    if wrote.exit_code == 0:
        ran("set", "0", "gpus=8")
        if again:
            ran("runs")
    assert hostile_stores.canaries(folder) == outside, attack
    shutil.rmtree(store)
    copy.rename(store)
    if ran("rebuild").exit_code == 0:
        assert_same(Store(store), before)
    assert hostile_stores.canaries(folder) == outside, attack


def copy_any(source: str, target: str) -> None:
    """Copy a file, or make another pipe."""
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copy2(source, target)


@pytest.mark.parametrize("seed", CATALOGUE_SEEDS)
def test_a_crafted_catalogue_reaches_nothing_outside(
    attacked: Path, before: dict[str, pl.DataFrame], seed: int
) -> None:
    change = hostile_stores.CATALOGUE_CHANGES[seed % len(hostile_stores.CATALOGUE_CHANGES)]
    attack = change(attacked, random.Random(seed))  # noqa: S311 - a test
    with own_readers():
        assert_harmless(attacked, attack, before, again=THOROUGH or seed % 3 == 0)


@pytest.mark.parametrize("seed", PART_SEEDS)
def test_crafted_parts_reach_nothing_outside(
    attacked: Path, before: dict[str, pl.DataFrame], seed: int
) -> None:
    change = hostile_stores.PART_CHANGES[seed % len(hostile_stores.PART_CHANGES)]
    attack = change(attacked, random.Random(seed))  # noqa: S311 - a test
    with own_readers():
        assert_harmless(attacked, attack, before, again=THOROUGH or seed % 3 == 0)


@pytest.mark.parametrize("place", range(0, 22, 1 if THOROUGH else 3))
def test_no_file_is_deleted_by_the_list_of_dead_parts(
    attacked: Path, before: dict[str, pl.DataFrame], place: int
) -> None:
    path = hostile_stores.foreign_paths(attacked)[place]
    outside = hostile_stores.canaries(attacked.parent)
    with hostile_stores.opened(attacked) as con:
        con.execute("insert into held.dead values ($p, timestamp '2020-01-01')", {"p": path})
    said: list[str] = []
    Store(attacked, notify=said.append).compact()
    assert hostile_stores.canaries(attacked.parent) == outside
    assert (attacked / "writer.lock").exists()
    assert "rebuilt from the parts" in said[0]
    assert_same(Store(attacked), before)


def test_a_view_brings_no_file_into_the_store(
    attacked: Path, before: dict[str, pl.DataFrame]
) -> None:
    canary = attacked.parent / "outside" / "canary.parquet"
    with hostile_stores.opened(attacked) as con:
        con.execute("alter table held.parts rename to other")
        con.execute(
            "create view held.parts as select * replace ("  # noqa: S608 - a test
            f"(select any_value(run_id) from read_parquet('{canary}')) as sha256) from held.other"
        )
    with pytest.raises(StoreError, match="fairmfu rebuild", check=of_kind("untrusted-catalogue")):
        Store(attacked).tables()
    Store(attacked).compact()
    assert_same(Store(attacked), before)


@pytest.mark.parametrize("schema", ["held", "main"])
def test_a_macro_in_place_of_a_function_is_refused(
    attacked: Path, before: dict[str, pl.DataFrame], schema: str
) -> None:
    """A reader would count by it; the next write makes the catalogue anew."""
    with hostile_stores.opened(attacked) as con:
        con.execute(f"create macro {schema}.max(x) as 0")
    with pytest.raises(StoreError, match="macro", check=of_kind("untrusted-catalogue")):
        Store(attacked).tables()
    Store(attacked).compact()
    assert_same(Store(attacked), before)


def test_a_changed_part_is_not_merged(attacked: Path) -> None:
    part = hostile_stores.parts_of(attacked, "steps")[1]
    rows = pl.read_parquet(part).with_columns(loss=pl.lit(0.5))
    hostile_stores.rewrite(part, rows)
    with pytest.raises(StoreError, check=of_kind("damaged-part")):
        Store(attacked).compact()


def test_a_link_in_place_of_the_lock_is_not_written(attacked: Path) -> None:
    outside = hostile_stores.canaries(attacked.parent)
    (attacked / "writer.lock").unlink()
    (attacked / "writer.lock").symlink_to(attacked.parent / "outside" / "canary.txt")
    with pytest.raises(StoreError, match="is a link", check=of_kind("not-writable")):
        Store(attacked).compact()
    assert hostile_stores.canaries(attacked.parent) == outside
