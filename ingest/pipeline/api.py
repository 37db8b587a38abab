"""Logs by one call: into a store, or as tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.errors import UnreadableSourceError
from ..core.paths import parse_path
from ..detect.detection import FormatChoice
from ..detect.format_lookup import load_format_catalog
from ..extract.engine_api import ReadEngine
from ..facts.facts import facts_from_values
from ..formats.launch_view import Fact
from ..store.store import Store, Tables
from .ingest_run import SINGLE_PROCESS, Outcome, ingest_paths

__all__ = ["ingest_logs", "read_logs"]

GivenFacts = Mapping[str, object] | Sequence[Fact]
"""Values by the names of schema.FACT_NAMES, or facts as facts makes them."""


def ingest_logs(  # noqa: PLR0913 - each is an option of the command
    store: Store,
    *paths: str | Path,
    facts: GivenFacts = (),
    log_formats: Sequence[str] | FormatChoice = (),
    strict: bool = False,
    report: Callable[[Outcome], None] = lambda _: None,
    engine: ReadEngine = SINGLE_PROCESS,
) -> list[Outcome]:
    """Read logs into a store; what is known there already is not read again.

    store: the folder need not exist yet.
    paths: files, folders, patterns (`logs/**/*.log`) or addresses (`s3://bucket/logs`).
    facts: what the logs do not say, of all runs read here: {"gpus": 8, "seq_len": 8192}. Units:
    seq_len [tokens], peak_flops [FLOP/s of one GPU]; the others in ingest.core.schema.FACT_NAMES.
    log_formats: names of formats, or TOML files of one's own; then the logs have one of these.
    strict: a log with a line that looks like a step and cannot be read fails.
    report: gets each outcome as it comes.
    engine: who reads; ingest.workers.local_engine.LocalEngine(n), or
    ingest.workers.ray_engine.RayEngine. Without one this process.

    One Outcome per file: its status (read, known, unchanged, passed, failed), a message, and counts
    [lines]. A file that fails leaves the others alone. Raises FactError of a fact that there is not
    or a value that it cannot have, FormatFileError of a format, UnreadableSourceError of an address
    that no package knows, StoreError where the store cannot be written to, ClusterError where who
    is to read cannot.

    >>> ingest_logs(Store("perf"), "logs/", facts={"gpus": 8})
    """
    given: Sequence[object] = paths  # in a notebook, of any type
    odd = [one for one in given if not isinstance(one, (str, Path))]
    if odd or not given:
        what = f"{odd[0]!r} is no path" if odd else "no path"
        raise UnreadableSourceError(f"{what}: give each log as an argument, 'a.log', 'b.log'.")
    tried = (
        log_formats
        if isinstance(log_formats, FormatChoice)
        else load_format_catalog().tried(log_formats)
    )
    return ingest_paths(
        [parse_path(path) if isinstance(path, str) else path for path in paths],
        store,
        flag_facts=_given(facts),
        strict=strict,
        format_choice=tried,
        report=report,
        engine=engine,
    )


def _given(facts: GivenFacts) -> Sequence[Fact]:
    if not isinstance(facts, Mapping):
        return facts
    return facts_from_values(facts, "flag", Path.cwd(), "facts")


def read_logs(
    *paths: str | Path,
    facts: GivenFacts = (),
    log_formats: Sequence[str] | FormatChoice = (),
    strict: bool = False,
) -> Tables:
    """Logs as tables in memory: a Polars frame each of runs, facts, steps, events, unread, sources.

    The same as of a new store with these logs alone, which is what it makes, in a folder that is
    gone afterwards: facts beside the logs count, a file that is there twice counts once.

    Arguments as of `ingest_logs`. Columns with their units: ingest.core.schema.TABLES; of `steps`
    elapsed_s, data_s [s], step_tokens [tokens], peak_memory_bytes [bytes], logged_tgs
    [tokens/s/GPU], logged_tflops [TFLOP/s/GPU]: `logged_*` is what a log claims of itself.

    Raises UnreadableSourceError where a log cannot be read, or none is there: all of them, or
    none. FactError and FormatFileError as `ingest_logs`, StoreError where there is no room for it.

    >>> read_logs("titan.log", "xtuner.log", facts={"gpus": 8})["steps"]
    """
    with TemporaryDirectory(prefix="fairmfu-") as folder:
        store = Store(Path(folder))
        outcomes = ingest_logs(store, *paths, facts=facts, log_formats=log_formats, strict=strict)
        failed = [one.message for one in outcomes if one.status == "failed"]
        if failed:
            raise UnreadableSourceError("\n".join(failed))
        if not any(one.status in ("read", "known") for one in outcomes):
            given = ", ".join(map(str, paths))
            raise UnreadableSourceError(f"{given}: no log of a known framework.")
        return store.tables()
