"""What several tests share: bare lines through the parser, logs on disk, a store."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest

from fairmfu.ingest.core import prefilter
from fairmfu.ingest.decode import text_cleaning
from fairmfu.ingest.decode.line_reader import NumberedLine
from fairmfu.ingest.detect.format_lookup import FORMATS_FOLDER_VARIABLE
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.extract.log_tables import cost_columns
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.parse import unmatched_lines
from fairmfu.ingest.parse.line_parser import parse_lines
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.ingest.vector import line_cache
from tests.support import shared_databases
from tests.support.effort import THOROUGH, sampled_items

os.environ[FORMATS_FOLDER_VARIABLE] = ""  # no test depends on the formats of who runs it

hypothesis.settings.register_profile("fairmfu", deadline=None, max_examples=100 if THOROUGH else 25)
hypothesis.settings.load_profile("fairmfu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A share of the cases of `sampled` modules runs.

    A name with packed bytes in it holds the second in which they were packed. Workers that collect
    the same tests then disagree on their names.
    """
    items[:], left = sampled_items(items)
    if left:
        config.hook.pytest_deselected(items=left)
    odd = [item.nodeid for item in items if r"\x1f\x8b" in item.nodeid]
    if odd:
        raise pytest.UsageError(f"{odd[0]}: give it an id")


def pytest_collection_finish() -> None:
    """What was collected stays: else each full collection of garbage looks through all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def nothing_is_forced_to_the_disk() -> Iterator[None]:
    """No test outlives a power cut, and every store would wait for the disk twenty times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def caches_are_those_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Write nothing into the cache of who runs the tests; their processes share one."""
    with pytest.MonkeyPatch.context() as patch:
        shared = tmp_path_factory.getbasetemp()
        shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
        patch.setenv("FAIRMFU_CACHE", str(shared / "cache"))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_reading_is_timed() -> Iterator[None]:
    """Leave out the cost of a reading, which varies: nearly all tests compare what logs say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_tables, "cost_columns", lambda *_: {})
        yield


@pytest.fixture(autouse=True, scope="session")
def databases_are_shared() -> Iterator[None]:
    """Start no database for each store: that takes longer than most tests."""
    with (
        shared_databases.shared_writers(),
        shared_databases.shared_readers(),
        shared_databases.shared_beginnings(),
    ):
        yield


@pytest.fixture
def readings_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources say what it cost to read them, as ever outside tests."""
    monkeypatch.setattr(log_tables, "cost_columns", cost_columns)


@pytest.fixture(scope="module")
def however_few() -> Iterator[None]:
    """Lines are cleaned and named together, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_cleaning, "MAX_SINGLY_CLEANED_LINES", 0)
        patch.setattr(unmatched_lines, "MAX_SINGLY_KINDED_LINES", 0)
        patch.setattr(prefilter, "MAX_PYTHON_SEARCH_LINES", 0)
        patch.setattr(line_cache, "MIN_DOUBTFUL_LINES", 1)
        yield


@pytest.fixture(scope="session")
def parse() -> Callable[..., ParsedSource]:
    """Read lines, or a text of lines, with the format of that name and its companions."""
    formats = {f.name: f for f in BUILT_IN_FORMATS}

    def read(name: str, lines: Iterable[str] | str, companions: Sequence[str] = ()) -> ParsedSource:
        rows = lines.strip("\n").split("\n") if isinstance(lines, str) else lines
        numbered = (NumberedLine(number, text, cut=False) for number, text in enumerate(rows, 1))
        return parse_lines(numbered, formats[name], [formats[c] for c in companions])

    return read


@pytest.fixture(scope="module")
def one_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder at which all tests of a module may take place: see tests.support.prepared."""
    return tmp_path_factory.mktemp("one") / "place"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """An empty folder for logs."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def titan() -> Callable[..., str]:
    """The text of a Torchtitan log of a few steps."""

    def text(steps: int = 3, loss: float = 5.0, tps: int = 1000) -> str:
        return "".join(
            f"[titan] 2026-01-02 03:04:{step:02},000 - root - INFO - step: {step:2}  "
            f"loss: {loss - step / 100:8.5f}  grad_norm:  1.2000  memory:  1.50GiB(3.00%)  "
            f"tps: {tps:,}  tflops: 1.25  mfu: 0.40%\n"
            for step in range(1, steps + 1)
        )

    return text


@pytest.fixture
def ingest(store: Store) -> Callable[..., list[ingest_run.Outcome]]:
    """Ingest paths into `store`, as the command does."""

    def read(*paths: Path, **options: object) -> list[ingest_run.Outcome]:
        return ingest_run.ingest_paths(paths, store, **options)

    return read


@pytest.fixture(scope="session")
def by_name() -> dict[str, LogFormat]:
    return {f.name: f for f in BUILT_IN_FORMATS}
