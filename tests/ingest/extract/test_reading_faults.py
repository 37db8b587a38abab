"""A file that makes the program itself fail: its own error, and no other file's."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest import read_logs
from fairmfu.ingest.core.errors import ReadingFaultError
from fairmfu.ingest.core.faults import reading_error
from fairmfu.ingest.core.spill import Spool
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.extract.log_tables import read_log_files, read_log_tables
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.store import Store

Raise = Callable[..., None]


def write_logs(folder: Path, count: int, *, steps: int = 4) -> list[Path]:
    """Logs of Torchtitan, each of other times."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(count):
        lines = (
            f"[titan] 2026-01-0{number + 1} 00:00:{n:02} - root - INFO - step: {n:2}  "
            f"loss: {9 - n / 100:.4f}  memory: 40.00GiB(50.00%)  tps: {1000 + number}  "
            f"tflops: 50.00  mfu: 5.00%\n"
            for n in range(1, steps + 1)
        )
        paths.append(folder / f"log{number}.log")
        paths[-1].write_text("".join(lines))
    return paths


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, BaseException], None]:
    """Makes files of a name fail while their rows are made."""

    def fail(name: str, error: BaseException) -> None:
        whole = log_tables._name_rank

        def broken(path: Path, *given: Any) -> None:
            if path.name == name:
                raise error
            whole(path, *given)

        monkeypatch.setattr(log_tables, "_name_rank", broken)

    return fail


FAULTS = (
    ValueError("math domain error"), ZeroDivisionError("division by zero"), KeyError("step"),
    pl.exceptions.ComputeError("no"), pl.exceptions.PanicException("index out of bounds"),
    OverflowError("int too large"), RecursionError("too deep"), MemoryError(),
)  # fmt: skip


@pytest.mark.parametrize("bad", range(5))
@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_one_file_takes_no_other_with_it(
    bad: int, error: BaseException, failing: Raise, tmp_path: Path
) -> None:
    paths = write_logs(tmp_path / "logs", 5)
    failing(paths[bad].name, error)
    found = read_log_files([(path, ()) for path in paths], Spool())
    faults = [place for place, one in enumerate(found) if isinstance(one, Exception)]
    assert faults == [bad]
    fault = found[bad]
    assert isinstance(fault, ReadingFaultError)
    assert fault.kind == "reading-fault"
    text = str(fault)
    assert text.startswith(f"{paths[bad]}: fairmfu failed on this file: {type(error).__name__}")
    assert re.search(r"\[[0-9a-f]{8}\]", text), "whoever reports it names it"


def test_a_large_file_fails_alone_too(
    failing: Raise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tables, "MAX_SMALL_BYTES", 0)
    paths = write_logs(tmp_path / "logs", 3)
    failing("log1.log", ValueError("x"))
    outcomes = {
        Path(one.given).name: one
        for one in ingest_paths([tmp_path / "logs"], Store(tmp_path / "s"))
    }
    assert [outcomes[path.name].status for path in paths] == ["read", "failed", "read"]


def test_what_a_file_could_not_be_refused_for_is_told_as_before(tmp_path: Path) -> None:
    """A message that the user can act on stays as it is beside a fault of another file."""
    paths = [*write_logs(tmp_path / "given", 1), *write_logs(tmp_path / "logs", 1)]
    paths[0].with_name("facts.toml").write_text("gpus = 'many'\n")
    one, other = read_log_files([(path, ()) for path in paths], Spool())
    assert isinstance(one, Exception)
    assert not isinstance(one, ReadingFaultError)
    assert not isinstance(other, Exception)


def test_the_others_are_as_without_it_and_the_command_says_so(
    failing: Raise, tmp_path: Path
) -> None:
    paths = write_logs(tmp_path / "logs", 4)
    alone = read_logs(*(path for path in paths if path.name != "log2.log"))
    failing("log2.log", ValueError("math domain error"))
    store = tmp_path / "store"
    run = CliRunner().invoke(main, ["ingest", str(tmp_path / "logs"), "--store", str(store)])
    assert run.exit_code == 4, run.output
    assert "log2.log: fairmfu failed on this file: ValueError" in run.output
    assert "Traceback" not in run.output
    kept = Store(store).tables()
    for name in ("runs", "facts", "steps", "events"):
        assert kept[name].sort(pl.all()).equals(alone[name].sort(pl.all())), name


def test_the_error_comes_whole_from_another_process() -> None:
    fault = reading_error("a.log", ValueError("math domain error"))
    again = pickle.loads(pickle.dumps(fault))  # noqa: S301 - our own
    assert type(again) is ReadingFaultError
    assert (str(again), again.kind) == (str(fault), "reading-fault")


# -- what made it fail -------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.floats(0, 1e6).map(lambda x: f"{x:.4f}"),
    st.sampled_from(["inf", "nan", "0.0", "-1.0", "1e308", "9223372036854775807.E418", "1e-320"]),
)


@given(
    rows=st.lists(st.tuples(st.integers(0, 59), st.integers(1, 400), NUMBERS, NUMBERS), max_size=12)
)
@example(  # their ratio is no number of 64 bits
    rows=[
        *[(0, step, "0.0000", "0.0000") for step in (1, 1, 1, 3)],
        (0, 1, "4048.0000", "0.0000"),
        (2, 2, "1e-320", "0.0000"),
        (4, 1, "0.0000", "0.0000"),
    ]
)
def test_no_printed_time_ends_the_reading_of_writers(
    rows: list[tuple[int, int, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Steps that go to and fro, so that several writers are looked for."""
    lines = [
        f"2027/01/01 00:20:{second:02} - mmengine - INFO - Iter(train) [{step:5}/500]  "
        f"lr: 2.0000e-05  eta: 1:45:34  time: {time}  data_time: 0.0024  memory: 45277  "
        f"loss: {loss}\n"
        for second, step, time, loss in [(0, 1, "0.5", "2.0"), *rows]
    ]
    path = tmp_path_factory.mktemp("writers") / "run.log"
    path.write_text("".join(lines))
    assert read_log_tables(path)["sources"]["lines"][0] == len(lines)
