"""Python API of the ingest: logs into a store, or into tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.paths import parse_path
from ..detect.detection import FormatChoice
from ..detect.format_lookup import load_format_catalog
from ..extract.engine_api import ReadEngine
from ..facts.facts import facts_from_values
from ..formats.launch_view import Fact
from ..store.store import Store, Tables
from .ingest_run import SINGLE_PROCESS, Outcome, ingest_paths
from .messages import LOGS_FAILED, NO_LOG_FOUND, NO_LOG_GIVEN

__all__ = ["ingest_logs", "read_logs"]

GivenFacts = Mapping[str, object] | Sequence[Fact]
"""Values by name from schema.FACT_NAMES, or facts from facts.facts."""


def ingest_logs(  # noqa: PLR0913 - each is an option of the command
    store: Store,
    *paths: str | Path,
    facts: GivenFacts = (),
    log_formats: Sequence[str] | FormatChoice = (),
    strict: bool = False,
    report: Callable[[Outcome], None] = lambda _: None,
    engine: ReadEngine = SINGLE_PROCESS,
) -> list[Outcome]:
    """Read logs into a store; stored content is not read again.

    store: the folder need not exist yet.
    paths: files, folders, patterns (`logs/**/*.log`) or addresses (`s3://bucket/logs`).
    facts: facts missing in the logs, for all runs read here: {"gpus": 8, "seq_len": 8192}. Units:
    seq_len [tokens], peak_flops [FLOP/s of one GPU]; the others in ingest.core.schema.FACT_NAMES.
    log_formats: names of formats, or your TOML files; all logs must have one of these formats.
    strict: fail logs with lines that look like steps and cannot be read.
    report: receives each outcome when ready.
    engine: ingest.workers.local_engine.LocalEngine(n), or ingest.workers.ray_engine.RayEngine;
    this process by default.

    Returns one Outcome per file: status (read, known, unchanged, passed, failed), message, and
    counts [lines]. A failing file does not affect the others.

    Raises FactError for an unknown fact or an invalid value, FormatFileError for an invalid format,
    UnreadableSourceError for an address that no installed package can open, StoreError if the store
    is not writable, ClusterError if the engine fails.

    >>> ingest_logs(Store("perf"), "logs/", facts={"gpus": 8})
    """
    arguments: Sequence[object] = paths  # a notebook may pass any type
    wrong = [argument for argument in arguments if not isinstance(argument, (str, Path))]
    if wrong or not arguments:
        what = f"{wrong[0]!r} is no path" if wrong else "no path"
        raise NO_LOG_GIVEN(what=what)
    format_choice = (
        log_formats
        if isinstance(log_formats, FormatChoice)
        else load_format_catalog().tried(log_formats)
    )
    return ingest_paths(
        [parse_path(path) if isinstance(path, str) else path for path in paths],
        store,
        flag_facts=_given(facts),
        strict=strict,
        format_choice=format_choice,
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
    """Read logs into tables in memory: runs, facts, steps, events, unread, sources.

    Each table is a Polars frame, as from a new store with these logs alone, which is made in a
    temporary folder. Facts from files next to the logs count, and duplicate files count once.

    Arguments as for `ingest_logs`. Columns with their units: ingest.core.schema.TABLES; of `steps`
    elapsed_s, data_s [s], step_tokens [tokens], peak_memory_bytes [bytes], logged_tgs
    [tokens/s/GPU], logged_tflops [TFLOP/s/GPU]: `logged_*` are figures that the log printed.

    Raises UnreadableSourceError if a log is unreadable or no log is found; then no table is
    returned, and `kind` is that of the only unreadable log. Raises FactError and FormatFileError
    as `ingest_logs`, StoreError if the disk is full.

    >>> read_logs("titan.log", "xtuner.log", facts={"gpus": 8})["steps"]
    """
    with TemporaryDirectory(prefix="fairmfu-") as folder:
        store = Store(Path(folder))
        outcomes = ingest_logs(store, *paths, facts=facts, log_formats=log_formats, strict=strict)
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        if failed:
            error = LOGS_FAILED(messages="\n".join(outcome.message for outcome in failed))
            if len(failed) == 1:
                error.kind = failed[0].kind
            raise error
        if not any(outcome.status in ("read", "known") for outcome in outcomes):
            names = ", ".join(map(str, paths))
            raise NO_LOG_FOUND(names=names)
        return store.tables()
