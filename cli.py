"""Command line: each command makes one call and prints the result.

No arithmetic, no SQL. Results go to stdout, progress to stderr. Each command imports the libraries
that it needs, so that help starts fast.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem, get_completion_class

from fairmfu.reports.text import messages

if TYPE_CHECKING:
    import polars as pl

    from fairmfu.ingest import Store
    from fairmfu.ingest.detect.detection import FormatChoice
    from fairmfu.ingest.detect.format_lookup import FormatCatalog
    from fairmfu.ingest.extract.engine_api import ReadEngine
    from fairmfu.ingest.facts.project_config import ProjectConfig
    from fairmfu.ingest.pipeline.ingest_run import Outcome
    from fairmfu.metrics.compare.cost import Price, Prices
    from fairmfu.metrics.core.run_table import MetricsRow
    from fairmfu.metrics.formula.accelerators import Accelerator
    from fairmfu.metrics.pipeline.analysis import Analysis
    from fairmfu.metrics.pipeline.run_needs import RunNeeds
    from fairmfu.reports.comparison.comparison import Comparison
    from fairmfu.reports.comparison.speed_change import GateResult
    from fairmfu.reports.nightly.night_report import Night
    from fairmfu.reports.nightly.nightly import NightlyOrder
    from fairmfu.reports.page.redaction import Redaction
    from fairmfu.reports.store.metrics_store import StoredRuns

CONTEXT_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "show_default": True,
    "auto_envvar_prefix": "FAIRMFU",
    "max_content_width": 100,
}
EXIT_UNREAD_SOURCE = 4
"""Exit code: done, but some sources could not be read, or some runs not analysed."""
NOTHING_FAILED = "no failed or missing job, no new regression"
"""Meaning of the exit code 0 of a night."""

Command = TypeVar("Command", bound=Callable[..., Any])


class _Path(click.Path):
    """Path that must not be empty, as "$OUT" is if the variable is not set."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - click's signature
        if value == "":
            raise messages.EMPTY_PATH()  # noqa: RSE102 - a kind
        return super().convert(value, param, ctx)


class _Finite(click.FloatRange):
    """Finite number within bounds; bounds alone would accept nan and inf."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - click's signature
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            raise messages.NOT_FINITE(value=value)
        return number


class _Place(_Path):
    """Path, or address in an object store."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - click's signature
        if isinstance(value, str) and "://" in value:
            from fairmfu.ingest.core.paths import parse_path

            return parse_path(value)
        return super().convert(value, param, ctx)


def _quiet(complete: Callable[..., Iterator[CompletionItem]]) -> Callable[..., Any]:
    """Return a completion that offers nothing on an error: nobody would see it."""

    def offered(
        context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        with suppress(Exception):
            return list(complete(context, begun))
        return []

    return offered


@_quiet
def _runs_begun(context: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield run names that begin with the text, or run ids if no name does, or files.

    It reads local stores only, not object stores.
    """
    from fairmfu.ingest import Store

    path = context.params.get("store")
    if not isinstance(path, Path) or not path.is_dir():
        return
    held = Store(path, patience_s=0).table("runs").sort("name", "run_id")
    rows = list(held.select("name", "run_id").unique(maintain_order=True).iter_rows())
    named = [(name, run_id) for name, run_id in rows if name.startswith(begun)]
    ids = [(run_id, name) for name, run_id in rows if run_id.startswith(begun)]
    if begun and not named and not ids:
        yield CompletionItem(begun, type="file")
    given = set(context.params.get("names") or ())
    for value, about in dict(named or ids).items():
        if value not in given and value.isprintable():
            yield CompletionItem(value, help=about)


@_quiet
def _formats_begun(_context: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield format names that begin with the text, or files if no name does."""
    from fairmfu.ingest.detect.format_lookup import load_format_catalog

    found = [f for f in load_format_catalog().formats if f.name.startswith(begun)]
    for one in found:
        yield CompletionItem(one.name, help=one.framework)
    if not found:
        yield CompletionItem(begun, type="file")


@_quiet
def _models_begun(_context: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield model names that begin with the text, or files if no name does."""
    from fairmfu.metrics.formula.model_shapes import model_names

    found = [name for name in model_names() if name.startswith(begun.lower())]
    for name in found:
        yield CompletionItem(name)
    if not found:
        yield CompletionItem(begun, type="file")


@_quiet
def _assignments_begun(context: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield runs and names of facts, or values behind `NAME=`.

    bash splits words at `=`, so the name may be the word before.
    """
    from fairmfu.ingest.core.schema import FACT_NAMES

    words = ["", "", *(context.params.get("arguments") or ())]
    name, equals, value = begun.partition("=")
    if words[-1] == "=":
        name, equals, value = words[-2], "=", begun
    elif not begun and words[-1] in FACT_NAMES:  # bash completes an "=" as an empty word
        name, equals = words[-1], "="
    if equals:
        prefix = f"{name}=" if "=" in begun else ""
        for known in _fact_values_begun(name, value):
            yield CompletionItem(f"{prefix}{known}")
        return
    names = [name for name in FACT_NAMES if begun and name.startswith(begun)]
    for name in names:
        yield CompletionItem(f"{name}=", help=FACT_NAMES[name].meaning)
    runs = _runs_begun(context, None, begun)
    yield from (item for item in runs if not names or item.type != "file")


def _fact_values_begun(name: str, begun: str) -> Iterator[str]:
    """Yield values of a fact that begin with the text."""
    from fairmfu.metrics.formula.accelerators import accelerator_names, normalise_name
    from fairmfu.metrics.formula.model_shapes import model_names
    from fairmfu.reports.text.fact_examples import fact_values

    values: Iterable[str] = fact_values(name)
    if name == "model":
        values = model_names()
    if name == "accelerator":
        values = map(normalise_name, accelerator_names())
    return (value for value in values if value.startswith(begun.lower()))


@_quiet
def _devices_begun(_context: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield short accelerator names, which need no quotes."""
    from fairmfu.metrics.formula.accelerators import accelerator_names, normalise_name

    for full_name in accelerator_names():
        name = normalise_name(full_name)
        if name.startswith(begun.lower()):
            yield CompletionItem(name, help=full_name)


@_quiet
def _charts_begun(_context: click.Context, begun: str) -> Iterator[CompletionItem]:
    from fairmfu.reports.page.chart_export import CHARTS

    for one in CHARTS:
        if one.name.startswith(begun):
            yield CompletionItem(one.name, help=one.meaning)


@_quiet
def _columns_begun(_context: click.Context, begun: str) -> Iterator[CompletionItem]:
    """Yield the text with its last word completed to a column of metrics."""
    from fairmfu.metrics.core.run_table import METRICS
    from fairmfu.metrics.pipeline.column_docs import METRIC_MEANINGS

    last = re.search(r"\w*$", begun)
    before, word = (begun[: last.start()], last[0]) if last else (begun, "")
    for name in METRICS:
        if name.startswith(word):
            about = METRIC_MEANINGS.get(name, ("", ""))[1]
            yield CompletionItem(f"{before}{name}", help=about)


runs_argument = click.argument("names", nargs=-1, metavar="[RUN]...", shell_complete=_runs_begun)
"""Names or ids of runs; without any, all runs."""

required_runs_argument = click.argument(
    "names", nargs=-1, required=True, metavar="RUN...", shell_complete=_runs_begun
)


def store_option(command: Command) -> Command:
    """Add --store, for most commands."""
    return click.option(
        "--store",
        type=_Place(path_type=Path, file_okay=False),
        default=_configured_store,
        show_default="store of ./fairmfu.toml, else fairmfu-store",
        callback=_remember_given_store,
        envvar="FAIRMFU_STORE",
        show_envvar=True,
        help="Folder of the store, or its address in an object store (s3://...).",
    )(command)


def _configured_store() -> Path:
    from fairmfu.ingest.facts.config_file import configured_store

    return configured_store()


STORE_KEY: Final = "fairmfu.store"
"""Key of the context's `meta`: the store that the user named with --store."""


def _remember_given_store(context: click.Context, parameter: click.Parameter, store: Path) -> Path:
    """Keep a store named with --store: printed commands have to name it too."""
    if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
        context.meta[STORE_KEY] = str(store)
    return store


def _given_store() -> str | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(STORE_KEY)


def _runnable(text: str) -> str:
    """Return a text whose commands name the store that --store named."""
    from fairmfu.reports.text.commands import with_store

    return with_store(text, _given_store())


def engine_options(command: Command) -> Command:
    """Add the options that choose processes or a Ray cluster."""
    options = (
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            help="Run on this machine or on a Ray cluster, whose nodes need the logs and the "
            "store at the same paths.  [default: local]",
        ),
        click.option(
            "--ray-address",
            metavar="ADDRESS",
            help="Address of the Ray cluster.  [default: RAY_ADDRESS, else a running local "
            "cluster, else a new one]",
        ),
        click.option(
            "--processes",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of reader processes.  [default: number of cores, at most 8]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def format_option(command: Command) -> Command:
    """Add --format for commands that print tables."""
    return click.option(
        "--format",
        "output",
        type=click.Choice(["table", "json", "csv", "markdown"]),
        default="table",
        help="Output format. JSON and CSV have all columns, tables the most used ones.",
    )(command)


def text_option(command: Command) -> Command:
    """Add --format for commands that print text."""
    return click.option(
        "--format",
        "output",
        type=click.Choice(["table", "json"]),
        default="table",
        help="Output format: text or JSON.",
    )(command)


def redact_option(command: Command) -> Command:
    """Add --redact."""
    return click.option(
        "--redact",
        is_flag=True,
        help="Replace secrets, e-mail addresses, user and host names, and IP addresses in all "
        "texts. Equal values get equal placeholders.",
    )(command)


def price_option(command: Command) -> Command:
    """Add --price."""
    return click.option(
        "--price",
        callback=_price,
        metavar="AMOUNT",
        help="Price of a GPU-hour, such as 2.50 or '2.50 EUR': adds the cost of 1 billion tokens.",
    )(command)


def prices_option(command: Command) -> Command:
    """Add --price, one for all accelerators or one for each."""
    return click.option(
        "--price",
        callback=_prices,
        multiple=True,
        metavar="[NAME=]AMOUNT",
        help="Price of a GPU-hour, such as 2.50 or '2.50 EUR': adds the cost of 1 billion tokens. "
        "Of one accelerator: H100=2.50; give it once for each.",
    )(command)


def _prices(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> Prices | None:
    from fairmfu.metrics.compare.cost import prices
    from fairmfu.metrics.compare.messages import NOT_A_PRICE, PriceError

    try:
        return prices(texts)
    except PriceError as error:
        raise NOT_A_PRICE.made(click.BadParameter, text=", ".join(texts)) from error


def where_option(command: Command) -> Command:
    """Add --where."""
    return click.option(
        "--where",
        "condition",
        metavar="EXPRESSION",
        shell_complete=_columns_begun,
        help="Only runs that fulfil this SQL condition on columns of metrics, such as "
        "\"framework = 'xtuner' and gpus >= 8\".",
    )(command)


def _price(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Price | None:
    if text is None:
        return None
    from fairmfu.metrics.compare.cost import price
    from fairmfu.metrics.compare.messages import NOT_A_PRICE, PriceError

    try:
        return price(text)
    except PriceError as error:
        raise NOT_A_PRICE.made(click.BadParameter, text=text) from error


def _allowed(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    """Return the slow-down that a gate allows [fraction]; None without a gate."""
    if text is None:
        return None
    from fairmfu.ingest.facts.project_config import parse_fraction

    share = parse_fraction(text)
    if share is None:
        raise messages.NOT_A_FRACTION(option="--fail-below")
    return share


def _fact_of_study(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> str | None:
    """Return the fact of which `compare` shows the effect."""
    if text is None:
        return None
    from fairmfu.metrics.compare.studies import FACTS

    return _fact_among(text, FACTS)


def _facts_of_matrix(
    _context: click.Context, _parameter: click.Parameter, pair: tuple[str, str] | None
) -> tuple[str, str] | None:
    """Return the facts of the rows and of the columns of a matrix."""
    if pair is None:
        return None
    from fairmfu.reports.comparison.matrix import MATRIX_FACTS

    return _fact_among(pair[0], MATRIX_FACTS), _fact_among(pair[1], MATRIX_FACTS)


def _fact_among(text: str, facts: Sequence[str]) -> str:
    from difflib import get_close_matches

    from fairmfu.metrics.compare.studies import ASKED_AS

    named = text.strip().lower().replace("-", "_")
    if named in facts or named in ASKED_AS:
        return ASKED_AS.get(named, named)
    known = [*facts, *ASKED_AS]
    near = get_close_matches(named, known, n=3, cutoff=0.4) or known
    raise messages.NO_FACT_OF_STUDY(name=text, known=", ".join(near))


GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Thresholds of the garbage collector: new objects that start a collection (700 by default), then
how many collections precede one of the next older generation."""


class _Command(click.Command):
    r"""Command whose help keeps the lines under `\b`, also in a raw docstring."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.help = (self.help or "").replace("\\b\n", "\b\n")
        super().format_help_text(ctx, formatter)


class _Failure(click.ClickException):
    """Error that ends a command. kind: identifier of its ErrorKind."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Group(click.Group):
    """Group that turns errors into one clear message and exit code 1.

    It lists commands in the order of this file: the first steps come first.
    """

    command_class = _Command

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run as the program of a process.

        Python's garbage collector runs less often than by default: it finds few cycles, and each
        collection visits all objects of all libraries. A last collection at exit would take a sixth
        of the time of `fairmfu runs`, so `freeze` excludes all objects from it.
        """
        gc.set_threshold(*GC_THRESHOLDS)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # ignored in some jobs
            signal.signal(signal.SIGINT, _interrupt)
        try:
            return super().__call__(*args, **kwargs)
        finally:
            gc.freeze()

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command; name the variables of its options after the options.

        click would name them after the parameters.
        """
        super().add_command(cmd, name)
        for option in cmd.params:
            if isinstance(option, click.Option) and option.envvar is None:
                words = f"fairmfu {cmd.name} {max(option.opts, key=len).lstrip('-')}"
                option.envvar = words.replace(" ", "_").replace("-", "_").upper()

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)

    def make_context(self, *args: Any, **options: Any) -> click.Context:  # noqa: ANN401 - click's signature
        """Read the arguments."""
        with _in_one_line():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command that the arguments name."""
        with _in_one_line(), _progress():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        from fairmfu.ingest import FairmfuError
        from fairmfu.ingest.core.errors import describe_fault, explain_read_error

        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, KeyboardInterrupt, SystemExit):
            raise
        except click.ClickException as error:
            error.message = _printable(error.message)  # type: ignore[misc]
            raise
        except FairmfuError as error:
            raise _Failure(_printable(str(error)), error.kind) from error
        except OSError as error:
            if error.filename is None:  # no file of the user's: a pipe that was closed
                raise
            path, why = _printable(str(error.filename)), _printable(explain_read_error(error))
            raise messages.FILE_FAILED(path=path, why=why) from error
        except BaseException as error:  # a panic of Polars is no Exception
            if messages.TRACEBACK_VARIABLE in os.environ:
                raise
            fault = _printable(describe_fault(error))
            raise messages.FAIRMFU_FAILED(fault=fault) from error


def _interrupt(_number: int, _frame: object) -> None:
    """End the command at Ctrl-C; a second Ctrl-C ends the process at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _progress() -> AbstractContextManager[None]:
    """Show the progress of a command on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return nullcontext()
    from fairmfu.ingest.core.progress import shown_on_terminal

    return shown_on_terminal()


def _note_work(work: str) -> None:
    """Note what the command does now, to show it on a terminal."""
    from fairmfu.ingest.core.progress import note_progress

    note_progress(work)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Turn Ctrl-C into one line and its exit code.

    Libraries turn the interrupt into errors of their own: DuckDB says that its query ended.
    """
    try:
        yield
    except (click.exceptions.Exit, messages.Interrupted, SystemExit):
        raise
    except BaseException as error:
        was_interrupted = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        if was_interrupted or isinstance(error, KeyboardInterrupt):
            raise messages.INTERRUPTED() from error  # noqa: RSE102 - a kind
        raise


def _printable(text: str) -> str:
    """Return text that is safe on a terminal: file names may be hostile."""
    from fairmfu.reports.text.tabular import printable

    return printable(_runnable(text))


def _show(text: str) -> None:
    """Print a text for people, with commands that name the store."""
    click.echo(_runnable(text))


def _say(text: str) -> None:
    """Print a message on stderr."""
    click.echo(_printable(text), err=True)


@click.group(
    cls=_Group,
    context_settings=CONTEXT_SETTINGS,
    epilog="Begin with: fairmfu ingest LOG. Then: fairmfu runs, fairmfu compare, "
    "fairmfu explain RUN, fairmfu report.",
)
@click.version_option(package_name="fairmfu", prog_name="fairmfu")
@click.option(
    "--accelerators",
    "overlay",
    type=_Path(exists=True, dir_okay=False, path_type=Path),
    envvar="FAIRMFU_ACCELERATORS",
    show_envvar=True,
    help="TOML file with accelerators; it overrides the built-in table.",
)
@click.pass_context
def main(context: click.Context, overlay: Path | None) -> None:
    """Find out which training run is faster, by how much, and why the logs disagree.

    fairmfu reads logs of XTuner, Torchtitan, DeepSpeed, Megatron-LM, MindSpeed and Hugging Face
    runs. It computes tokens/s per GPU (TGS) and MFU with one formula for all of them.
    """
    context.obj = overlay


def _paths_or_again(
    context: click.Context, parameter: click.Parameter, paths: tuple[str, ...]
) -> tuple[str, ...]:
    if not paths and not context.params.get("again"):
        raise click.MissingParameter(ctx=context, param=parameter)
    return paths


@main.command()
@click.argument(
    "paths",
    nargs=-1,
    metavar="[PATHS]...",
    callback=_paths_or_again,
    type=_Path(allow_dash=True, readable=False),
)
@store_option
@click.option(
    "--again",
    is_flag=True,
    is_eager=True,
    help="Also re-read stored logs whose parsing has changed.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=_assignments_begun,
    help="Fact for all runs in these logs, such as gpus=8; may be repeated.",
)
@click.option(
    "--facts",
    type=_Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with facts for all runs in these logs, one NAME = VALUE per line.",
)
@click.option(
    "--log-format",
    "log_formats",
    multiple=True,
    metavar="NAME|FILE.toml",
    shell_complete=_formats_begun,
    help="Use only this format: a name that fairmfu formats lists, or your own TOML file; may be "
    "repeated.",
)
@click.option("--strict", is_flag=True, help="Fail for a log with step lines that cannot be read.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print for each file how its lines were read, and the reading speed.",
)
@engine_options
def ingest(  # noqa: PLR0913 - each is an argument of the command
    paths: tuple[str, ...],
    store: Path,
    assignments: tuple[str, ...],
    facts: Path | None,
    log_formats: tuple[str, ...],
    *,
    again: bool,
    strict: bool,
    verbose: bool,
    engine: str | None,
    ray_address: str | None,
    processes: int | None,
) -> None:
    r"""Read logs into the store; unchanged logs are not read again.

    \b
    Examples:
      fairmfu ingest run.log --set gpus=8 --set accelerator="NVIDIA H100 80GB HBM3"
      fairmfu ingest "s3://bucket/**/train*.log"

    PATHS are files, folders, patterns, addresses in an object store (s3://bucket/folder), or - for
    standard input.

    Facts that a log lacks come from --set or --facts, from LOG.facts.toml or facts.toml beside the
    log, or from config.json beside it. Facts from --set stay when the log grows. Files beside the
    log are read again each time.

    If this version parses a given log differently, the log is read again. Its runs keep the facts
    that you gave.
    """
    from fairmfu.ingest.core.allocator import limit_allocators

    limit_allocators()
    from fairmfu.ingest import ingest_logs
    from fairmfu.ingest.detect.format_lookup import load_format_catalog
    from fairmfu.ingest.facts.facts import facts_from_flags, facts_from_toml

    given = [*(facts_from_toml(facts, "flag") if facts else []), *facts_from_flags(assignments)]
    _check_names(given)
    tried = load_format_catalog().tried(log_formats)
    opened = _open(store)
    logs = [*paths, *(_read_before(opened, tried) if again else ())]
    if not logs:
        click.echo(f"{store}: no logs need to be read again.", err=True)
        return
    with _engine(engine, ray_address, processes) as reads:
        outcomes = ingest_logs(
            opened,
            *logs,
            facts=given,
            log_formats=tried,
            strict=strict,
            report=partial(_echo_outcome, verbose=verbose),
            engine=reads,
        )
    _conclude(outcomes)


def _read_before(store: Store, tried: FormatChoice) -> list[Path]:
    """Return the stored logs to read again; print those that cannot be read again."""
    from fairmfu.ingest.pipeline.ingest_run import find_outdated_logs
    from fairmfu.reports.text.runs_table import MAX_LISTED_RUNS

    there, left = find_outdated_logs(store, tried)
    for why in left[:MAX_LISTED_RUNS]:
        _say(f"{why}; its stored runs stay unchanged")
    if len(left) > MAX_LISTED_RUNS:
        _say(f"{len(left) - MAX_LISTED_RUNS:,} more logs stay unchanged")
    return there


def _echo_outcome(outcome: Outcome, *, verbose: bool = False) -> None:
    from fairmfu.ingest.core.errors import one_line

    if outcome.status == "unchanged":  # nearly all, where thousands are known
        return
    path = one_line(outcome.path)
    if outcome.status == "failed":
        _say(f"Error: {outcome.message}")
    elif outcome.status == "unlisted" or (outcome.status == "read" and outcome.message):
        _say(outcome.message)
    elif outcome.status == "read":
        unread = f", {outcome.unread_lines:,} unread" if outcome.unread_lines else ""
        steps, others = _steps(outcome), _lines(outcome.other_lines, "other")
        names = _names(outcome.names)
        _say(f"{path}: {outcome.log_format}, {steps}{unread}, {others}{names}")
        if verbose:
            _say(f"  {outcome.cost}")
    elif outcome.status == "passed":
        if outcome.message:
            _say(outcome.skipped_message)
    elif outcome.status == "known":
        _say(f"{path}: {outcome.message}")


def _names(names: Sequence[str]) -> str:
    """Return the names of a file's runs, the first ones of many."""
    if not names:
        return ""
    from fairmfu.ingest.core.errors import one_line

    shown = names if len(names) <= MAX_NAMES else (*names[:2], f"{len(names) - 2:,} more")
    told = ", ".join(map(one_line, shown))
    return f"; stored as {'run' if len(names) == 1 else 'runs'} {told}"


MAX_NAMES: Final = 3
"""Most runs of one file to name."""


def _steps(outcome: Outcome) -> str:
    """Return the number of step lines, or of steps with several lines each."""
    lines = _lines(outcome.step_lines, "step")
    if 0 < outcome.steps < outcome.step_lines:
        return f"{outcome.steps:,} step{'' if outcome.steps == 1 else 's'} in {lines}"
    return lines


def _lines(number: int, kind: str) -> str:
    return f"{number:,} {kind} line{'' if number == 1 else 's'}"


def _echo_trouble(outcome: Outcome) -> None:
    """Print the outcome of a log only if something went wrong, for mail and job logs."""
    as_ever = outcome.status in ("known", "unlisted") and not outcome.urgent
    if not as_ever and (outcome.status != "read" or outcome.message):
        _echo_outcome(outcome)


def _conclude(outcomes: Iterable[Outcome]) -> None:
    """Print the counts of sources; raise if all failed, exit with 4 if some did."""
    words = {
        "read": "read",
        "known": "known already",
        "unchanged": "unchanged",
        "failed": "not read",
        "passed": "skipped",
    }
    counts = Counter(outcome.status for outcome in outcomes)
    counted = ", ".join(f"{counts[key]:,} {word}" for key, word in words.items() if key in counts)
    click.echo(counted, err=True)
    if not counts["read"] + counts["known"] + counts["unchanged"]:
        raise messages.NO_SOURCE_READ()  # noqa: RSE102 - a kind
    if counts["failed"]:
        sys.exit(EXIT_UNREAD_SOURCE)


@main.command(name="set")
@click.argument(
    "arguments",
    nargs=-1,
    metavar="RUN... NAME=VALUE...",
    shell_complete=_assignments_begun,
)
@click.option(
    "--facts",
    "template",
    type=_Path(exists=True, dir_okay=False, path_type=Path),
    help="File with [[facts]] tables for several runs: fairmfu missing --write.",
)
@store_option
def set_facts(arguments: tuple[str, ...], template: Path | None, store: Path) -> None:
    r"""Give, correct or remove facts of stored runs.

    \b
    Examples:
      fairmfu set my-run accelerator="NVIDIA H800" seq_len=4096
      fairmfu set "titan-*" accelerator=h100
      fairmfu set my-run seq_len=
      fairmfu set --facts facts.toml

    RUN is an id, a name, the path of a log, a folder of logs or a pattern of names. fairmfu missing
    lists the facts that runs lack, fairmfu facts lists all.

    NAME= without a value removes a fact that was given here or with ingest --set. Then the log and
    the files beside it decide again.
    """
    from fairmfu.ingest.facts.facts import facts_from_flags, facts_of_selections

    names = [a for a in arguments if "=" not in a]
    given = [a for a in arguments if "=" in a]
    facts = facts_from_flags(given, "fairmfu set", allow_removal=True)
    if bool(names) != bool(facts) or not (facts or template):
        raise messages.SET_WITHOUT_FACT()  # noqa: RSE102 - a kind
    selections = [] if template is None else facts_of_selections(template)
    if facts:
        selections.append((names, facts))
    if not selections:
        raise messages.TEMPLATE_WITHOUT_FACT(path=template)
    _give(_open(store), selections)


def _give(store: Store, selections: Sequence[tuple[list[str], list[dict[str, Any]]]]) -> None:
    """Give facts to the chosen runs, in one batch."""
    from fairmfu.metrics import choose
    from fairmfu.metrics.core.run_selection import with_sources
    from fairmfu.reports.text.tabular import count_noun

    runs = with_sources(store.table("runs"), store.table("sources"))
    facts_of_runs: dict[str, list[dict[str, Any]]] = {}
    for names, facts in selections:
        for run_id in choose(runs, *names)["run_id"]:
            facts_of_runs.setdefault(run_id, []).extend(facts)
        _check_names(facts)
    new = store.give_facts(facts_of_runs)
    removes = {fact["value"] is None for facts in facts_of_runs.values() for fact in facts}
    done = "Set or removed" if len(removes) > 1 else "Removed" if True in removes else "Set"
    changed = f"{done} {count_noun(new, 'fact')}" if new else "Nothing changed"
    click.echo(f"{changed} on {count_noun(len(facts_of_runs), 'run')}", err=True)


sort_option = click.option(
    "--sort",
    "column",
    metavar="COLUMN",
    shell_complete=_columns_begun,
    help="Sort by a column of metrics; with a leading - the largest first. Unknown values are "
    "last.",
)


@main.command()
@runs_argument
@where_option
@sort_option
@store_option
@format_option
def runs(
    names: tuple[str, ...], condition: str | None, column: str | None, store: Path, output: str
) -> None:
    r"""List runs with TGS, MFU and missing facts.

    \b
    Examples:
      fairmfu runs --where "framework = 'xtuner' and gpus >= 8" --sort -mfu
      fairmfu runs logs/titan/ "xtuner-*"

    RUN is an id, a name, the path of a log, a folder of logs or a pattern of names. Without RUN,
    all runs are listed. docs/reference/columns.md lists the columns.
    """
    from fairmfu.metrics import choose
    from fairmfu.metrics.core.run_filter import filter_runs, sort_runs
    from fairmfu.metrics.core.run_table import metrics_rows
    from fairmfu.reports.text.runs_table import (
        DROPPABLE_RUN_COLUMNS,
        NO_RUN_CHOSEN,
        NO_RUN_REMEDY,
        columns_of_runs,
        labelled,
    )
    from fairmfu.reports.text.tabular import render_frame

    stored = _metrics(_open(store))
    chosen = filter_runs(choose(stored, *names), condition)
    if chosen.is_empty():
        _say(f"{NO_RUN_CHOSEN} {NO_RUN_REMEDY}")
    chosen = chosen if column is None else sort_runs(chosen, column)
    shown = labelled(chosen, stored)
    table = shown if output in ("table", "markdown") else chosen
    columns = columns_of_runs(chosen)
    click.echo(render_frame(table, output, columns, droppable=DROPPABLE_RUN_COLUMNS))
    if output == "table":
        _echo_doubts(metrics_rows(shown.select("name", "missing", "warnings")))
    _end(chosen.select("name", "error").iter_rows(named=True))


def _echo_comparison(
    comparison: Comparison, output: str, allowed: float | None, *, brief: bool
) -> None:
    """Print a comparison; brief: sentences alone."""
    from fairmfu.reports.text.tabular import render_frame, wrapped

    if output in ("json", "csv"):
        click.echo(
            render_frame(comparison.effects if comparison.asked else comparison.table, output)
        )
        return
    if output == "markdown":
        _show(comparison.markdown(allowed))
    elif brief:
        click.echo("\n\n".join(wrapped(_runnable(sentence)) for sentence in comparison.brief))
        _show(f"\n{LONG_COMPARISON}")
    else:
        for sentence in comparison.sentences:
            click.echo(wrapped(_runnable(sentence)))
        _show(f"\n{comparison.text(output)}")
    if not comparison.asked and not brief:
        _echo_doubts([row | {"name": row["label"]} for row in comparison.rows], missing=False)


def _choice_of(
    names: Sequence[str], condition: str | None
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return the choice of runs by names and a condition."""
    from fairmfu.metrics import choose
    from fairmfu.metrics.core.run_filter import filter_runs

    return lambda runs: filter_runs(choose(runs, *names), condition)


def _warn_of_one_run(comparison: Comparison, names: Sequence[str]) -> None:
    if len(names) > 1 and comparison.ranked.height == 1:
        click.echo("All names are of the same run. Give two runs to compare.", err=True)


def _gate(comparison: Comparison, allowed: float, names: Sequence[str]) -> GateResult:
    """Return the result of a gate; raise unless two names have no run in common."""
    from fairmfu.reports.text.tabular import count_noun

    result = comparison.gate(allowed)
    if result is None:
        many = f"The names given have {count_noun(comparison.ranked.height, 'run')}."
        raise messages.GATE_NEEDS_TWO(given=many if names else "No name is given.")
    return result


LONG_COMPARISON: Final = (
    "Every table: fairmfu compare --full\n"
    "One fact: fairmfu compare --by precision\n"
    "What would rank more runs: fairmfu missing"
)


@main.command()
@runs_argument
@click.option(
    "--fail-below",
    "allowed",
    callback=_allowed,
    metavar="SHARE",
    help="For base and head: exit with 3 if head is slower by more than this share, such as 2%, "
    "over its whole 95 % interval; with 6 if the interval does not decide.",
)
@click.option(
    "--by",
    callback=_fact_of_study,
    metavar="FACT",
    help="Show the effect of one fact, such as precision, recompute or gpus.",
)
@click.option("--baseline", metavar="RUN", help="The run that the others are compared with.")
@click.option(
    "--matrix",
    nargs=2,
    callback=_facts_of_matrix,
    metavar="ROWS COLUMNS",
    help="Show a table of one fact by another, such as framework precision.",
)
@click.option("--full", is_flag=True, help="Show every table, also of hundreds of runs.")
@where_option
@sort_option
@prices_option
@store_option
@format_option
def compare(  # noqa: PLR0913, PLR0917 - each is an argument of the command
    names: tuple[str, ...],
    allowed: float | None,
    by: str | None,
    baseline: str | None,
    matrix: tuple[str, str] | None,
    condition: str | None,
    column: str | None,
    price: Prices | None,
    store: Path,
    output: str,
    *,
    full: bool,
) -> None:
    r"""Show which run is faster, by how much, and why logs disagree.

    \b
    Examples:
      fairmfu compare titan-8b xtuner-8b --price "2.50 EUR"
      fairmfu compare 'titan-*' --by precision
      fairmfu compare --where "gpus >= 8" --sort -peak_memory_bytes
      fairmfu compare base head --fail-below 2% --format markdown
      fairmfu compare base/ head/ --fail-below 2%

    RUN is an id, a name, the path of a log, a folder of logs or a pattern of names. Without RUN,
    all runs are compared. Runs are ranked within groups of like-for-like runs. For other runs, the
    differences are listed and no winner is named. The Markdown of two named runs shows the change
    from the first to the second.

    Runs of one model and framework that differ in facts are a study: the effect of a knob such as
    precision, scaling over GPUs, accelerators, or repeats. It shows each setting against a
    baseline, also where no winner can be named.

    With --fail-below, base and head are a run each, or repeats: a folder or a pattern. Repeats are
    pooled from 3 a side, and the interval then covers the noise between runs.

    \b
    Exit codes with --fail-below:
      0  head is not slower by more than the share, over its whole interval
      3  head is slower by more than the share, over its whole interval
      5  head failed: it crashed, ran out of memory, was killed or lost its loss
      6  not decided: the interval contains the share, the two are not ranked,
         or repeats are missing
    """
    from fairmfu.reports import compare as side_by_side
    from fairmfu.reports.store.metrics_store import stored_comparison

    found = side_by_side(
        stored_comparison(_open(store), _choice_of(names, condition), _overlay()),
        *names,
        price=price,
        by=by,
        baseline=baseline,
        where=condition,
        sort=column,
    )
    if (by or baseline) and not found.studies:
        raise messages.NO_STUDY(by=by or "that baseline")
    if matrix is not None:
        told = found.matrix(*matrix, output)
        click.echo(told if output in ("json", "csv") else _runnable(told))
        return
    _warn_of_one_run(found, names)
    result = None if allowed is None else _gate(found, allowed, names)
    brief = found.is_long and not (full or names or column)
    _echo_comparison(found, output, allowed, brief=brief)
    if result is not None:
        _say(f"{result.sentence} Exit code {result.code}.")
    _end(found.rows, result.code if result is not None else 0)


@main.command()
@click.argument("run", shell_complete=_runs_begun)
@store_option
@click.option(
    "--propose",
    is_flag=True,
    help="List models and sequence lengths that would reproduce the logged figures.",
)
@text_option
def explain(run: str, store: Path, output: Literal["table", "json"], *, propose: bool) -> None:
    r"""Show what happened in a run, its MFU, and why its log disagrees.

    \b
    Examples:
      fairmfu explain titan-8b
      fairmfu explain titan-8b --propose

    First the diagnosis: outcome, rate, what cost most time, and the logged figure beside ours.
    Then doubts, missing facts with the command that gives them, the speeds, the phases of a
    step, the slowest steps, late ranks and the wall time. Then the formula with the run's
    numbers, and the logged figures: whether the framework's own formula reproduces them, and the
    factors that lead from the logged figure to ours.
    """
    from fairmfu.metrics import choose
    from fairmfu.metrics.core.run_messages import FAULT
    from fairmfu.reports import explain as describe
    from fairmfu.reports.text.tabular import wrapped

    opened = _open(store)
    told = describe(
        _analysis_of_chosen(opened, lambda runs: choose(runs, run))
        if propose
        else _stored_runs(opened, [run]).runs,
        run,
        output=output,
        propose=propose,
    )
    lines = map(wrapped, _runnable(told).splitlines())
    click.echo("\n".join(lines) if output == "table" else told)
    if FAULT in told:
        sys.exit(EXIT_UNREAD_SOURCE)


@main.command()
@runs_argument
@click.option(
    "--write",
    "out",
    type=_Path(dir_okay=False, path_type=Path),
    help="Write a TOML template to fill in, with proposals from the logged figures.",
)
@store_option
@format_option
def missing(names: tuple[str, ...], out: Path | None, store: Path, output: str) -> None:
    r"""List the facts that runs need for an MFU, all in one round.

    \b
    Examples:
      fairmfu missing
      fairmfu missing "titan-*" --write facts.toml

    RUN is an id, a name, the path of a log, a folder of logs or a pattern of names. First what
    unlocks what, then the facts by folder. All facts are named that any later step would ask for.
    JSON and CSV have a row for each run.
    """
    from fairmfu.metrics import choose
    from fairmfu.metrics.core.run_selection import with_sources
    from fairmfu.reports.store.kept_needs import current_needs
    from fairmfu.reports.text.missing_text import missing_rows, show_missing
    from fairmfu.reports.text.tabular import render_frame

    opened = _open(store)
    chosen = None
    if names:
        stored = with_sources(opened.table("runs"), opened.table("sources"))
        chosen = choose(stored, *names)["run_id"].to_list()
    needs = current_needs(opened, _overlay(), chosen)
    if out is not None:
        _write_template(opened, needs, out)
        return
    if output in ("json", "csv"):
        click.echo(render_frame(missing_rows(needs), output))
        return
    _show(show_missing(needs, output))


def _write_template(store: Store, needs: Sequence[RunNeeds], out: Path) -> None:
    """Write a template of facts; an existing file is never replaced."""
    from fairmfu.reports.store.metrics_store import analysis_of_chosen
    from fairmfu.reports.text.missing_text import facts_template

    shape = {"model", "seq_len"}
    asked = [run.run_id for run in needs if run.gain and not shape.isdisjoint(run.facts)]
    analysis = analysis_of_chosen(
        store, lambda runs: runs.filter(runs["run_id"].is_in(asked)), _overlay()
    )
    proposals = {run_id: analysis.proposals(run_id) for run_id in asked}
    command = f"fairmfu set --facts {shlex.quote(str(out))}"
    if out.exists():
        raise messages.TEMPLATE_EXISTS(path=out)
    try:
        text = facts_template(needs, proposals, _runnable(command))
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_written(error, out, "--write") from error
    _say(f"Wrote {out}. Fill in the values, then: {command}")


@main.command()
@runs_argument
@click.option(
    "--format",
    "output",
    type=click.Choice(["html", "md", "json"]),
    help="html: one page. md: Markdown, with SVG charts in a folder beside it. json: the data.  "
    "[default: the ending of --out, else html]",
)
@click.option(
    "--out",
    type=_Path(path_type=Path, dir_okay=False),
    help="File to write.  [default: report.html, report.md or report.json]",
)
@click.option("--title", default="Training runs", help="Heading of the report.")
@click.option(
    "--matrix",
    nargs=2,
    callback=_facts_of_matrix,
    metavar="ROWS COLUMNS",
    help="Add a table of one fact by another, with links to runs.",
)
@price_option
@redact_option
@store_option
def report(  # noqa: PLR0913, PLR0917 - each is an argument of the command
    names: tuple[str, ...],
    output: str | None,
    out: Path | None,
    title: str,
    matrix: tuple[str, str] | None,
    price: Price | None,
    store: Path,
    *,
    redact: bool,
) -> None:
    r"""Write a report of all runs: one offline page, Markdown or JSON.

    \b
    Examples:
      fairmfu report --out nightly.html
      fairmfu report titan-8b xtuner-8b --format md

    RUN is an id, a name, the path of a log, a folder of logs or a pattern of names. Without RUN,
    the report has all runs. The JSON has every number of the page.
    """
    from fairmfu.reports.charts import render_process

    out = out or Path(f"report.{output or 'html'}")
    render_process.start_drawing(output or out.suffix)

    from fairmfu.reports import report as tell
    from fairmfu.reports import save_report
    from fairmfu.reports.page.output_files import report_format
    from fairmfu.reports.page.report_data import MAX_PAGE_PARTS

    kind = report_format(out, output)
    tables, computed = _stored_inputs(_open(store), names)
    told = tell(
        tables,
        *names,
        title=title,
        price=price,
        redact=redact,
        store=_given_store(),
        matrix=matrix,
        most_described=MAX_PAGE_PARTS if kind == "html" else None,
        **computed,
    )
    if told.redaction is not None:
        _echo_hidden(told.redaction)
    _echo_written(save_report(told, out, kind), kind)
    _end([*told.data["runs"].values(), *told.failed])


def _echo_written(files: Sequence[Path], kind: str) -> None:
    """Print the size of a report and its pictures."""
    from fairmfu.reports.text.tabular import count_noun

    beside = ", no network needed" if kind == "html" else ""
    if pictures := files[1:]:
        beside = f", with {count_noun(len(pictures), 'chart')} in {pictures[0].parent}"
    size = sum(file.stat().st_size for file in files)
    click.echo(f"{files[0]}: {size / 1e6:.2f} MB{beside}", err=True)


@main.command()
@click.argument("name", required=False, shell_complete=_charts_begun)
@runs_argument
@click.option("--list", "listed", is_flag=True, help="List the charts and what each shows.")
@click.option(
    "--out",
    type=_Path(path_type=Path, dir_okay=False),
    help="File to write: .svg, .png, .pdf or .json (Vega-Lite).  [default: NAME.svg]",
)
@click.option(
    "--attention",
    type=click.Choice(["exact", "full"]),
    default="exact",
    help="Attention in MFU and TFLOP/s: token pairs that the mask allows, or all pairs.",
)
@click.option(
    "--peak",
    type=click.Choice(["own", "bf16"]),
    default="own",
    help="Peak in MFU: of the precisions that each run uses, or of BF16 for all runs.",
)
@redact_option
@store_option
def chart(  # noqa: PLR0913, PLR0917 - each is an argument of the command
    name: str | None,
    names: tuple[str, ...],
    out: Path | None,
    attention: Literal["exact", "full"],
    peak: Literal["own", "bf16"],
    store: Path,
    *,
    listed: bool,
    redact: bool,
) -> None:
    r"""Draw a chart of the report as SVG, PNG, PDF or Vega-Lite.

    \b
    Examples:
      fairmfu chart --list
      fairmfu chart comparison --out comparison.svg
      fairmfu chart course titan-8b --attention full --out titan.png

    NAME is one of --list. RUN is an id, a name, the path of a log, a folder of logs or a pattern of
    names. A chart of one run needs RUN if the store has several. A chart of a group shows the group
    with the most runs.
    """
    if listed:
        from fairmfu.reports.page.chart_export import listing

        if name is not None or out is not None:
            raise messages.LIST_WITH_NAME()  # noqa: RSE102 - a kind
        click.echo(listing())
        return
    if name is None:
        raise messages.CHART_NAME_MISSING()  # noqa: RSE102 - a kind
    from fairmfu.reports.charts import render_process

    render_process.start_drawing(out.suffix if out else "svg")

    from fairmfu.reports import draw
    from fairmfu.reports import report as tell
    from fairmfu.reports.page import chart_export
    from fairmfu.reports.page.output_files import write_file

    wanted = chart_export.find_chart(name)
    out = out or Path(f"{wanted.name}.svg")
    kind = chart_export.chart_format(out)
    tables, computed = _stored_inputs(_open(store), names)
    drawable = partial(chart_export.check, wanted)
    told = tell(tables, *names, redact=redact, check=drawable, **computed)
    _note_work("Drawing the chart")
    drawn = chart_export.rendered(draw(wanted, told, attention=attention, peak=peak), kind)
    write_file(out, drawn)
    click.echo(f"{out}: {len(drawn) / 1e3:,.0f} kB", err=True)
    _end(told.data["runs"].values())


@main.command()
@runs_argument
@click.option(
    "--to",
    "tracker",
    type=click.Choice(["tensorboard", "mlflow", "wandb"]),
    required=True,
    help="Files to write: TensorBoard event files, an MLflow file store, or offline W&B runs.",
)
@click.option(
    "--out",
    type=_Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder to write to; runs that are already there are not overwritten.",
)
@click.option(
    "--experiment",
    metavar="NAME",
    help="MLflow experiment, or W&B project.  [default: fairmfu]",
)
@redact_option
@store_option
def export(  # noqa: PLR0913 - each is an argument of the command
    names: tuple[str, ...],
    tracker: str,
    out: Path,
    experiment: str | None,
    store: Path,
    *,
    redact: bool,
) -> None:
    r"""Write runs as files for TensorBoard, MLflow or W&B.

    \b
    Examples:
      fairmfu export --to tensorboard --out tensorboard
      fairmfu export titan-8b xtuner-8b --to wandb --out wandb --experiment speed

    RUN is an id, a name, the path of a log, a folder of logs or a pattern of names. Without RUN,
    all runs are written. The files have our figures beside the logged ones.
    """
    import polars as pl

    from fairmfu.metrics import choose
    from fairmfu.metrics.core.run_table import metrics_rows
    from fairmfu.reports.page.redaction import Redaction
    from fairmfu.reports.trackers import trackers
    from fairmfu.reports.trackers.tracker_record import redact_records, tracker_records

    if tracker == "tensorboard" and experiment is not None:
        raise messages.EXPERIMENT_OF_TENSORBOARD()  # noqa: RSE102 - a kind
    opened = _open(store)
    analysis = _stored_runs(opened, names).runs
    chosen = choose(analysis.metrics, *names)
    failed = metrics_rows(chosen.filter(pl.col("error").is_not_null()))
    chosen = chosen.filter(pl.col("error").is_null())
    members = chosen["members"].explode().drop_nulls().to_list()
    tables = opened.tables(members)
    runs = tracker_records(analysis, chosen, tables["steps"], tables["runs"])
    hides = Redaction() if redact else None
    if hides is not None:
        runs = redact_records(runs, hides)
        _echo_hidden(hides)
    try:
        for run, place in trackers.export_runs(
            runs, tracker, out, experiment or "fairmfu", omit_path=redact
        ):
            _say(f"{run.name}: {run.series.height:,} steps, {len(run.tags)} series: {place}")
    except OSError as error:
        raise _not_written(error, out) from error
    _say(f"Open: {trackers.TRACKERS[tracker].open_command.format(out=out)}")
    _end(failed)


@main.command()
@click.argument("sql")
@store_option
@click.option(
    "--memory-limit",
    type=click.FloatRange(min=0.05, max=2**20),
    default=4.0,
    show_default=True,
    metavar="GIB",
    help="Memory of the query, and of its result [GiB].",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=10**6),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds until the query is stopped.",
)
@format_option
def query(sql: str, store: Path, memory_limit: float, timeout: float, output: str) -> None:
    r"""Run read-only SQL over runs, metrics, facts, steps and events.

    \b
    Examples:
      fairmfu query "select name, tgs, mfu from metrics order by tgs desc"
      fairmfu query "describe metrics"

    Views: runs, metrics, facts, steps, events, unread, sources. docs/reference/columns.md has the
    unit and meaning of every column.
    """
    from fairmfu.ingest.store.query_limits import QueryLimits
    from fairmfu.reports import query as select
    from fairmfu.reports.text.tabular import render_frame

    opened = _open(store)
    limits = QueryLimits(memory_bytes=int(memory_limit * 1024**3), timeout_s=timeout)
    metrics = _metrics(opened)
    found = select(opened, sql, limits=limits, metrics=metrics)
    click.echo(render_frame(found, output))
    if "metrics" in sql.lower():
        _end(metrics.select("name", "error").iter_rows(named=True))


@main.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=_Path(readable=False))
@click.option(
    "--config",
    "config_file",
    type=_Path(exists=True, dir_okay=False, path_type=Path),
    envvar="FAIRMFU_CONFIG",
    show_envvar=True,
    help="TOML file with these options, and with facts by path.  [default: ./fairmfu.toml]",
)
@click.option(
    "--store",
    type=_Place(path_type=Path, file_okay=False),
    envvar="FAIRMFU_STORE",
    show_envvar=True,
    help="Folder of the store, or its address in an object store.  [default: fairmfu-store]",
)
@click.option(
    "--out",
    type=_Path(path_type=Path, file_okay=False),
    help="Folder to write the reports to.  [default: nightly]",
)
@click.option(
    "--issue",
    "issue_dir",
    type=_Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder to write one Markdown file per new finding to, ready to file.",
)
@click.option("--title", help="Heading of the report.  [default: Nightly]")
@click.option(
    "--series-by",
    metavar="COLUMN,...",
    help="Columns of metrics: runs with equal values form one series.  [default: framework, model, "
    "seq_len, device, precision, trained, gpus]",
)
@click.option(
    "--threshold",
    metavar="SHARE",
    help="Smallest change that counts, such as 3%; smaller ones are only listed.  [default: 0]",
)
@click.option(
    "--fail-on",
    metavar="NAME,...",
    help="Findings that make the night fail: regression, crash, missing, slower-start, memory, "
    "loss, standing; none for unreadable logs alone.  [default: regression, crash, missing]",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of dated reports to keep in the archive.  [default: all]",
)
@click.option(
    "--wait",
    type=_Finite(min=0),
    metavar="SECONDS",
    help="Seconds to wait while another process writes to the store.  [default: 600]",
)
@engine_options
@click.option(
    "--price",
    callback=_price,
    metavar="AMOUNT",
    help="Price of a GPU-hour, such as 2.50 or '2.50 EUR'.",
)
@redact_option
def nightly(paths: tuple[str, ...], config_file: Path | None, **options: Any) -> None:  # noqa: ANN401
    r"""Read new logs, and report what failed, is missing, or became slower or faster.

    \b
    Example:
      fairmfu nightly /data/logs --store perf --out /var/www/perf

    For cron and CI: it never asks a question, and does not open unchanged files. Options can also
    be set in fairmfu.toml or in variables FAIRMFU_NIGHTLY_OPTION.

    \b
    Exit codes:
      0  nothing that --fail-on names
      1  the night failed; the last good report stays
      3  a regression of speed, memory, loss or start-up
      4  a log could not be read or analysed
      5  a job failed or is missing
    Where several apply: 1, then 5, then 3, then 4.
    """
    from fairmfu.ingest.core.allocator import limit_allocators

    limit_allocators()
    from fairmfu.ingest.facts.project_config import DEFAULT_FAIL_ON
    from fairmfu.reports.nightly.findings import exit_reasons
    from fairmfu.reports.nightly.nightly import nightly as run

    config = _config(paths, config_file)
    if config_file is None:
        _check_places(config, options)
    engine = options["engine"] or config.engine
    address = options["ray_address"] or (config.ray_address if engine == "ray" else None)
    processes = options["processes"] or (config.processes if engine == "local" else None)
    with _engine(engine, address, processes) as reads:
        order = _order(paths, config, options, reads)
        night, code = run(order)
    _echo_night(night)
    if order.redaction is not None:
        _echo_hidden(order.redaction)
    index = order.out / "index.html"
    meaning = ", ".join(exit_reasons(night)) or NOTHING_FAILED
    if code == 0 and set(order.fail_on) != set(DEFAULT_FAIL_ON):
        meaning = f"nothing that fail_on names ({', '.join(order.fail_on) or 'none'})"
    click.echo(f"Report: {index}. Exit code {code}: {meaning}.", err=True)
    sys.exit(code)


@main.group(cls=_Group)
def baseline() -> None:
    """Set baselines: runs that nightly compares later runs with."""


@baseline.command(name="set")
@required_runs_argument
@store_option
def baseline_set(names: tuple[str, ...], store: Path) -> None:
    """Compare later runs of the same series with the TGS of RUN."""
    from fairmfu.metrics import choose
    from fairmfu.reports.nightly.baselines import pin

    opened = _open(store)
    chosen = choose(_metrics(opened), *names)
    pin(opened, chosen)
    for row in chosen.iter_rows(named=True):
        _say(f"{row['name']} ({row['run_id']}): {row['tgs']:,.1f} tokens/s/GPU")


@baseline.command(name="list")
@store_option
@format_option
def baseline_list(store: Path, output: str) -> None:
    """List the baselines."""
    from fairmfu.reports.nightly.baselines import pinned
    from fairmfu.reports.text.tabular import render_frame

    opened = _open(store)
    opened.require_batches()
    rows = pinned(opened)
    if rows.is_empty():
        _say("No baseline is set. Set one with: fairmfu baseline set RUN")
        if output in ("table", "markdown"):
            return
    rows = rows.with_columns(rows["at"].dt.truncate("1s"), rows["tgs"].round(1))
    click.echo(render_frame(rows, output))


@baseline.command(name="remove")
@required_runs_argument
@store_option
def baseline_remove(names: tuple[str, ...], store: Path) -> None:
    """Remove baselines."""
    from fairmfu.metrics import choose
    from fairmfu.reports.nightly.baselines import pinned, unpin
    from fairmfu.reports.text.tabular import count_noun

    opened = _open(store)
    chosen = choose(pinned(opened), *names, noun="baseline")
    unpin(opened, chosen)
    click.echo(f"Removed {count_noun(chosen.height, 'baseline')}", err=True)


@main.command()
@store_option
def rescore(store: Path) -> None:
    """Recompute metrics from an older formula, peak table or version.

    New runs and changed facts need no rescore: the next command computes their metrics.
    """
    from fairmfu.reports.store.metrics_store import rescore_all
    from fairmfu.reports.text.tabular import count_noun

    opened = _open(store)
    done = rescore_all(opened, _overlay(), lambda words: click.echo(words, err=True))
    click.echo(f"Recomputed {count_noun(done, 'run')}", err=True)
    _end(_metrics(opened).select("name", "error").iter_rows(named=True))


@main.command()
@required_runs_argument
@store_option
def remove(names: tuple[str, ...], store: Path) -> None:
    """Remove runs from the store, with all runs of the same files.

    RUN is an id, a name, the path of a log, a folder of logs or a pattern of names. The logs stay.
    If you ingest such a file again, its runs come back.
    """
    from fairmfu.metrics import choose
    from fairmfu.metrics.core.run_selection import with_sources
    from fairmfu.reports.nightly.baselines import removal_notices
    from fairmfu.reports.text.tabular import count_noun

    opened = _open(store)
    stored = with_sources(opened.table("runs"), opened.table("sources"))
    gone = opened.remove(choose(stored, *names)["run_id"].to_list())
    for path, runs in gone.items():
        _say(f"{path}: removed {count_noun(len(runs), 'run')}")
    runs_gone = [run for runs in gone.values() for run in runs]
    for words in removal_notices(opened, stored, runs_gone, _named_baselines(opened)):
        _say(f"Warning: {words}")


@main.command()
@store_option
def doctor(store: Path) -> None:
    """Check a store; show what is wrong and how to repair it.

    It changes nothing, and computes each run. The exit code is 1 if something is lost or wrong.
    """
    from fairmfu.ingest.store.doctor import examine_store
    from fairmfu.reports.store.failing_runs import failing_runs
    from fairmfu.reports.text.tabular import count_noun

    opened = _open(store)
    _note_work("Checking files")
    found = examine_store(opened)
    if not any(one.is_harmful for one in found):
        found = [*failing_runs(opened, _overlay()), *found]
    for one in found:
        kind = "Error" if one.is_harmful else "Note"
        click.echo(_printable(f"{kind}: {one.what}. {one.remedy}."))
    harm = sum(one.is_harmful for one in found)
    if harm:
        raise messages.STORE_PROBLEMS(store=store, count=count_noun(harm, "problem"))
    click.echo(f"{store}: no problems found.")


@main.command()
@store_option
def compact(store: Path) -> None:
    """Merge the Parquet files of each table into one.

    The store does this by itself as it grows.
    """
    _note_work("Merging files")
    before, after = _open(store).compact()
    click.echo(f"Merged {before:,} files into {after:,}", err=True)


@main.command()
@store_option
def rebuild(store: Path) -> None:
    """Rebuild the catalogue of a store from its Parquet files."""
    _note_work("Registering files")
    click.echo(f"{_open(store).rebuild():,} files registered", err=True)


@main.command(name="flops")
@click.argument("model", shell_complete=_models_begun)
@click.option(
    "--seq-len",
    type=click.IntRange(1, 2**40),
    required=True,
    help="Tokens in one sequence; for inference, in the context.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="HEIGHTxWIDTH",
    help="Size of an image in the sequence, in pixels after resizing; may be repeated.",
)
@click.option(
    "--documents",
    metavar="LENGTHS",
    help="Lengths of the documents in a sequence, between which attention stops: 4x1024,4096.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 2**40),
    default=1,
    help="Sequences in the KV cache, for its total size.",
)
@click.option(
    "--phase",
    type=click.Choice(["train", "prefill", "decode"]),
    default="train",
    help="Training, or one of the two phases of inference with a KV cache.",
)
@click.option(
    "--dtype",
    "precision",
    type=click.Choice(
        ["fp32", "tf32", "fp16", "bf16", "fp8", "fp8+lm_head", "mxfp8", "nvfp4"],
        case_sensitive=False,
    ),
    default="bf16",
    help="Precision. Below 16 bits, core attention and lm_head stay in bf16; with fp8+lm_head, "
    "only core attention.",
)
@click.option(
    "--trainable",
    type=click.Choice(["full", "lora", "frozen"]),
    default="full",
    help="Trainable weights: all, LoRA adapters only, or none (gradients still pass through).",
)
@click.option("--lora-rank", type=click.IntRange(min=1), help="Rank of the LoRA adapters.")
@click.option(
    "--lora-targets", help="Projections with adapters, separated by commas; or all-linear."
)
@click.option(
    "--mtp-modules",
    type=click.IntRange(0, 64),
    default=0,
    help="Number of multi-token prediction modules that are trained; 1 in DeepSeek-V3.",
)
@click.option(
    "--recompute",
    type=click.Choice(["none", "full", "selective"]),
    help="Activation checkpointing, for HFU; selective: of core attention only.",
)
@click.option(
    "--accelerator",
    shell_complete=_devices_begun,
    help="GPU, for its peak; fairmfu accelerators lists the names.",
)
@click.option(
    "--peak-flops",
    type=_Finite(1e9, 1e18),
    help="Dense FLOP/s of the GPU in this precision, instead of --accelerator, such as 989.4e12.",
)
@click.option(
    "--tgs", type=_Finite(0, min_open=True), help="Speed in tokens/s/GPU: prints its MFU."
)
@click.option(
    "--mfu",
    type=_Finite(0, 1, min_open=True),
    help="Speed as an MFU, such as 0.4: prints its tokens/s/GPU.",
)
@click.option(
    "--hfu",
    type=_Finite(0, 1, min_open=True),
    help="Speed as an HFU, which includes activation checkpointing: needs --recompute.",
)
@click.option(
    "--tflops", type=_Finite(0, min_open=True), help="Speed in TFLOP/s/GPU, exact attention."
)
@click.option(
    "--time-for",
    "tokens",
    metavar="TOKENS",
    help="Print days and GPU-hours for this many tokens, such as 1T.",
)
@click.option("--gpus", type=click.IntRange(min=1), help="Number of GPUs, for --time-for.")
@click.option(
    "--against-others",
    is_flag=True,
    help="Compare with FLOPs/token by the formulas of other tools; with a speed, also their "
    "TFLOP/s and MFU.",
)
@click.option(
    "--printed",
    metavar="FIGURE",
    help="Figure of a log, such as 418.2 (TFLOP/s) or 41.3%: with --against-others, marks the "
    "formula that gives it.",
)
@click.option(
    "--count",
    is_flag=True,
    help="Count a config.json with PyTorch's FlopCounterMode instead of the formula, for a "
    "model_type that the formula does not cover. Needs the extra fairmfu[count].",
)
@text_option
def flops_command(
    model: str,
    output: str,
    *,
    against_others: bool,
    printed: str | None,
    count: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    r"""Show FLOPs per token of a model, and MFU or training time.

    \b
    Examples:
      fairmfu flops llama3-8b --seq-len 8192 --accelerator h100 --tgs 6400
      fairmfu flops llama3-70b --seq-len 8192 --accelerator h100 --mfu 0.4 --gpus 512 --time-for 1T
      fairmfu flops config.json --seq-len 4096 --count --format json > operators.json

    MODEL is a name that `fairmfu models` lists, or the path of a Hugging Face config.json.

    The JSON output is an operator list. fairmfu set RUN operators=operators.json gives it to a run.
    """
    if count:
        _count(model, options["seq_len"], options["trainable"], output)
        return
    if options["gpus"] and not options["tokens"]:
        raise messages.GPUS_WITHOUT_TIME()  # noqa: RSE102 - a kind
    has_peak = options["accelerator"] or options["peak_flops"]
    if options["recompute"] and not has_peak and not against_others:
        raise messages.RECOMPUTE_WITHOUT_ACCELERATOR()  # noqa: RSE102 - a kind
    if printed and not against_others:
        raise messages.PRINTED_WITHOUT_OTHERS()  # noqa: RSE102 - a kind
    from fairmfu.ingest.facts.facts import read_model_config
    from fairmfu.metrics import answer, ask
    from fairmfu.metrics.pipeline.calculator import compare_with_other_tools
    from fairmfu.reports.text.calculator_text import show_answer, show_other_tools

    given = Path(model)
    named = read_model_config(given) if given.suffix == ".json" or given.is_file() else model
    question = ask(named, **options, overlay=_overlay())
    if against_others:
        rows = compare_with_other_tools(question, printed)
        click.echo(show_other_tools(question, answer(question), rows, output, printed))
    else:
        click.echo(show_answer(answer(question), output))


def _count(model: str, seq_len: int, trainable: str, output: str) -> None:
    """Print the FLOPs of a config.json as PyTorch counts them."""
    from fairmfu.ingest.facts.facts import read_model_config
    from fairmfu.metrics.pipeline.counted_answer import count_answer
    from fairmfu.reports.text.calculator_text import show_counted

    context = click.get_current_context()
    given = {
        option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    }
    taken = {"model", "--seq-len", "--trainable", "--count", "--format"}
    if others := sorted(given - taken):
        raise messages.COUNT_WITH_OPTIONS(options=", ".join(others))
    if trainable == "lora":
        raise messages.COUNT_WITH_OPTIONS(options="--trainable lora")
    if Path(model).suffix != ".json" and not Path(model).is_file():
        raise messages.COUNT_WITHOUT_CONFIG(model=model)
    config = read_model_config(Path(model))
    trained: Literal["full", "frozen"] = "frozen" if trainable == "frozen" else "full"
    click.echo(show_counted(count_answer(config, seq_len, trained), output))


@main.command()
@click.argument("log", required=False, type=_Path(path_type=Path))
@click.option(
    "--check",
    "checked",
    metavar="NAME|FILE.toml",
    shell_complete=_formats_begun,
    help="Check your own format; with LOG, show how it reads each line.",
)
@click.option(
    "--eras",
    is_flag=True,
    help="List the formulas of TFLOP/s and MFU by framework and version.",
)
@format_option
def formats(log: Path | None, checked: str | None, output: str, *, eras: bool) -> None:
    r"""List the log formats that fairmfu reads; check your own.

    \b
    Examples:
      fairmfu formats
      fairmfu formats --check titan-fork.toml run.log

    A format of your own is a TOML file. Use it for one log with ingest --log-format FILE.toml, or
    for all logs in ~/.config/fairmfu/formats (or $FAIRMFU_FORMATS). This one adds a step line to a
    known format. Without extends, a format also needs framework, evidence and looks_like_step.

    \b
      name = "titan-fork"
      extends = "torchtitan"
      [[steps]]
      regex = 'step: *(?P<step>\d+) loss: (?P<loss>\S+) mem: (?P<mem>[\d.]+)GiB'
      columns = { step = "step", loss = "loss", mem = ["peak_memory_bytes", "GiB"] }
      example = "step: 10 loss: 6.27853 mem: 0.71GiB"
    """
    from fairmfu.ingest.detect.format_lookup import load_format_catalog
    from fairmfu.reports.text.summary import DROPPABLE_ERA_COLUMNS, era_table, format_table
    from fairmfu.reports.text.tabular import render_frame

    if eras:
        from fairmfu.metrics.audit.era_lookup import all_eras

        click.echo(render_frame(era_table(all_eras()), output, droppable=DROPPABLE_ERA_COLUMNS))
        return
    every = load_format_catalog()
    if checked is not None:
        _check_format(every, checked, log, output)
        return
    if log is not None:
        raise messages.LOG_WITHOUT_CHECK()  # noqa: RSE102 - a kind
    rows = [
        {
            "format": f.name,
            "framework": f.framework,
            "versions": f.versions,
            "origin": every.origin(f.name),
        }
        for f in every.formats
    ]
    click.echo(render_frame(format_table(rows), output))


def _check_format(every: FormatCatalog, word: str, log: Path | None, output: str) -> None:
    """Print what is wrong with a format; raise if it matches no line of the log."""
    from dataclasses import asdict

    from fairmfu.ingest.detect.format_check import check_format
    from fairmfu.reports.text.format_check_text import show_check
    from fairmfu.reports.text.tabular import printable

    with_it, name = every.with_named_format(word)
    log_format = next(f for f in with_it.formats if f.name == name)
    own = next((o for o in with_it.own if o.log_format.name == name), None)
    extends = own.extends if own else log_format
    if log is None:
        click.echo(f"{printable(word)}: {name} is a valid format, and conflicts with no other.")
        return
    result = check_format(log_format, log, extends)
    click.echo(show_check({"log_format": name, "log": str(log), **asdict(result)}, output))
    if not result.matched:
        raise messages.NO_LINE_MATCHES(log=log, name=name)


@main.command()
@format_option
def facts(output: str) -> None:
    """List all facts of a run, with values, units and examples."""
    from fairmfu.reports.text.missing_text import show_facts

    click.echo(show_facts(output))


@main.command()
@format_option
def models(output: str) -> None:
    """List the known models, with their parameters."""
    from fairmfu.reports.text.summary import (
        DROPPABLE_MODEL_COLUMNS,
        MODEL_COLUMNS,
        model_table,
    )
    from fairmfu.reports.text.tabular import render_frame

    click.echo(render_frame(model_table(), output, MODEL_COLUMNS, DROPPABLE_MODEL_COLUMNS))


@main.command()
@format_option
def accelerators(output: str) -> None:
    """List the dense peaks of GPUs by precision, with sources."""
    from fairmfu.reports.text.summary import (
        ACCELERATOR_COLUMNS,
        DROPPABLE_PEAK_COLUMNS,
        accelerator_table,
    )
    from fairmfu.reports.text.tabular import render_frame

    table = accelerator_table(_overlay())
    click.echo(render_frame(table, output, ACCELERATOR_COLUMNS, droppable=DROPPABLE_PEAK_COLUMNS))


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    r"""Print the completion script for bash, zsh or fish.

    \b
    Run once, for all new shells:
      bash   fairmfu completion bash > ~/.local/share/bash-completion/completions/fairmfu
      zsh    in ~/.zshrc, below compinit: source <(fairmfu completion zsh)
      fish   fairmfu completion fish > ~/.config/fish/completions/fairmfu.fish

    It completes commands, options, runs, formats, models, GPUs and charts. Runs come from --store,
    else from FAIRMFU_STORE, else from the store of ./fairmfu.toml, else from ./fairmfu-store.
    """
    script = get_completion_class(shell)
    if script is None:
        raise messages.UNKNOWN_SHELL(shell=shell)
    click.echo(script(main, {}, "fairmfu", "_FAIRMFU_COMPLETE").source())


# -- what several commands do ------------------------------------------------------------------


def _check_names(facts: Sequence[dict[str, Any]]) -> None:
    """Raise on an unknown logged formula; warn of an unknown model or accelerator.

    A model or an accelerator may become known later, from a table of the user or another fact.
    """
    given = {fact["name"]: fact["value"] for fact in facts if fact["value"]}
    if "logged_formula" in given:
        from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME

        if given["logged_formula"] not in ERAS_BY_NAME:
            raise messages.UNKNOWN_LOGGED_FORMULA(name=given["logged_formula"])
    if {"model", "accelerator"} & given.keys():
        from fairmfu.metrics.utilization.formula_inputs import (
            accelerator_match_note,
            unknown_name_errors,
        )
        from fairmfu.reports.text.tabular import wrapped

        overlay = _overlay()
        for words in unknown_name_errors(given, overlay):
            _say(wrapped(f"Warning: {words}"))
        if (device := accelerator_match_note(given, overlay)) is not None:
            _say(wrapped(f"{device}."))


@contextmanager
def _engine(name: str | None, address: str | None, processes: int | None) -> Iterator[ReadEngine]:
    """Yield the engine that reads logs, and close it afterwards."""
    if name != "ray":
        from fairmfu.ingest.workers.local_engine import LocalEngine, default_process_count

        if address:
            raise messages.ADDRESS_WITHOUT_RAY()  # noqa: RSE102 - a kind
        yield LocalEngine(processes or default_process_count())
        return
    if processes:
        raise messages.PROCESSES_WITH_RAY()  # noqa: RSE102 - a kind
    if find_spec("ray") is None:
        from fairmfu.ingest.core.errors import install_hint

        raise messages.RAY_MISSING(hint=install_hint("ray"))
    from fairmfu.ingest.workers.ray_engine import RayEngine

    with RayEngine(address, _say) as cluster:
        yield cluster


def _config(paths: tuple[str, ...], config_file: Path | None) -> ProjectConfig:
    """Return the configuration of fairmfu.toml, or an empty one without that file."""
    from fairmfu.ingest.facts.config_file import find_config
    from fairmfu.ingest.facts.project_config import ProjectConfig, load_config
    from fairmfu.metrics.compare.cost import price
    from fairmfu.metrics.core.run_table import METRICS

    found = config_file or find_config()
    config = load_config(found, METRICS.names(), price) if found else ProjectConfig()
    if not paths and not config.sources:
        raise messages.NO_SOURCE_GIVEN()  # noqa: RSE102 - a kind
    return config


def _check_places(config: ProjectConfig, options: Mapping[str, Any]) -> None:
    """Raise if a fairmfu.toml that the user did not name writes outside of its folder."""
    from fairmfu.ingest.facts.config_file import PLACE_OPTIONS, require_inside

    for key in PLACE_OPTIONS:
        path = getattr(config, key)
        if config.path is not None and path is not None and not options[key]:
            require_inside(config.path, key, path)


def _order(
    paths: tuple[str, ...], config: ProjectConfig, options: dict[str, Any], engine: ReadEngine
) -> NightlyOrder:
    """Return the order of a nightly: from the options, else from fairmfu.toml."""
    from fairmfu.ingest.core.paths import parse_path
    from fairmfu.ingest.facts.config_file import DEFAULT_STORE
    from fairmfu.metrics.compare.cost import price
    from fairmfu.reports.nightly.nightly import NightlyOrder
    from fairmfu.reports.page.redaction import Redaction

    by = _series_columns(options["series_by"], config)
    threshold = _threshold(options["threshold"], config)
    store, out = options["store"] or config.store, options["out"] or config.out
    _check_apart(store, out)
    if store != DEFAULT_STORE:
        click.get_current_context().meta[STORE_KEY] = str(store)
    wait = config.wait if options["wait"] is None else options["wait"]
    return NightlyOrder(
        sources=tuple(map(parse_path, paths)) or config.sources,
        store=_open(store, wait),
        out=out,
        issue_dir=options["issue_dir"] or config.issue_dir,
        title=options["title"] or config.title,
        by=by,
        threshold=threshold,
        keep=options["keep"] or config.keep,
        baselines=config.baselines,
        fail_on=_fail_on(options["fail_on"], config),
        expected=config.jobs.expected,
        ended=config.jobs.ended,
        overlay=_overlay_of(config.accelerators),
        price=options["price"] or (price(config.price) if config.price else None),
        engine=engine,
        facts_of=config.facts_of,
        unmatched=config.unmatched,
        redaction=Redaction() if options["redact"] or config.redact else None,
        report=_echo_outcome if sys.stderr.isatty() else _echo_trouble,
    )


def _series_columns(series_by: str | None, config: ProjectConfig) -> Sequence[str]:
    """Return the columns that make a series.

    series_by: column names separated by commas.
    """
    from fairmfu.ingest.core.toml_reader import suggest_or_list
    from fairmfu.metrics.compare.history import SERIES_BY
    from fairmfu.metrics.core.run_table import METRICS

    by = tuple((series_by or "").replace(",", " ").split()) or config.series.by
    for name in by:
        if name not in METRICS:
            hint = suggest_or_list(name, METRICS)
            raise _of_option("--series-by", messages.UNKNOWN_SERIES_COLUMN(name=name, hint=hint))
    return by or SERIES_BY


def _fail_on(text: str | None, config: ProjectConfig) -> Sequence[str]:
    """Return the names of findings that make a night fail. text: separated by commas."""
    from fairmfu.ingest.facts.project_config import fail_on_problem

    if text is None:
        return config.fail_on
    names = tuple(text.replace(",", " ").split())
    names = () if names == ("none",) else names
    for name in names:
        if problem := fail_on_problem(name):
            raise _of_option("--fail-on", messages.UNKNOWN_FINDING(problem=problem))
    return names


def _threshold(text: str | None, config: ProjectConfig) -> float:
    """Return the share below which a change does not count [fraction]."""
    from fairmfu.ingest.facts.project_config import parse_fraction

    share = config.series.threshold if text is None else parse_fraction(text)
    if share is None:
        raise messages.NOT_A_FRACTION(option="--threshold")
    return share


def _check_apart(store: Path, out: Path) -> None:
    """Raise if reports would go into the store."""
    is_local = "://" not in str(store)
    if store.absolute() == out.absolute() or (is_local and store.resolve() == out.resolve()):
        raise messages.OUT_IS_STORE()  # noqa: RSE102 - a kind


def _of_option(name: str, error: click.BadParameter) -> click.BadParameter:
    """Return the error with the name of the option, which click prints before it."""
    error.param_hint = name
    return error


def _echo_night(night: Night) -> None:
    from fairmfu.reports.nightly.headline import headline, remedy_lines
    from fairmfu.reports.nightly.night_report import build_digest
    from fairmfu.reports.text.tabular import printable, wrapped

    digest = build_digest(night)
    said = headline(digest)
    click.echo(wrapped(printable(said.says)))
    for note in (*remedy_lines(digest), *said.notes, *night.notes):
        click.echo(wrapped(printable(note)))


def _echo_hidden(hidden: Redaction) -> None:
    click.echo(f"{hidden}; names of folders, models and runs are not hidden", err=True)


def _named_baselines(store: Store) -> Sequence[str]:
    """Return the baselines of ./fairmfu.toml if it names this store, else none.

    Errors of the file are ignored: other commands print them.
    """
    from fairmfu.ingest import FairmfuError
    from fairmfu.ingest.facts.config_file import find_config
    from fairmfu.ingest.facts.project_config import load_config

    with suppress(FairmfuError):
        config = load_config(found) if (found := find_config()) else None
        if config is not None and config.store.absolute() == store.path.absolute():
            return config.baselines
    return ()


def _open(path: Path, wait: float | None = None) -> Store:
    from fairmfu.ingest import Store

    return Store(path, patience_s=wait, notify=_say)


def _metrics(store: Store) -> pl.DataFrame:
    """Return the metrics of all runs; kept metrics are not computed again."""
    from fairmfu.reports import current_metrics

    return current_metrics(store, _overlay())


def _analysis_of_chosen(
    store: Store, choose_runs: Callable[[pl.DataFrame], pl.DataFrame]
) -> Analysis:
    """Return the analysis of chosen runs, with all metrics."""
    from fairmfu.reports.store.metrics_store import stored_analysis

    return stored_analysis(store, choose_runs, _overlay()).analysis


def _stored_runs(store: Store, names: Sequence[str], *, large: Sequence[str] = ()) -> StoredRuns:
    """Return the runs of these names to report, by default all."""
    from fairmfu.metrics import choose
    from fairmfu.reports.store.metrics_store import stored_runs

    choice = (lambda runs: choose(runs, *names)) if names else None
    return stored_runs(store, choice, _overlay(), large=large)


def _stored_inputs(
    store: Store, names: Sequence[str]
) -> tuple[Mapping[str, pl.DataFrame], dict[str, Any]]:
    """Return the tables of these runs, and what `report` else computes itself."""
    from fairmfu.metrics import choose
    from fairmfu.metrics.pipeline.metrics_cache import LARGE_COLUMNS
    from fairmfu.metrics.pipeline.reported_runs import ReportedRuns
    from fairmfu.metrics.pipeline.run_needs import need_rows
    from fairmfu.reports.store.kept_needs import asked_facts
    from fairmfu.reports.store.metrics_store import TablesOnDemand

    overlay = _overlay()
    analysis, state = _stored_runs(store, names, large=LARGE_COLUMNS)
    chosen = choose(analysis.metrics, *names)
    asked = asked_facts(store, state, need_rows(chosen), overlay)
    members = chosen["members"].explode().drop_nulls().to_list() if names else None
    kept = isinstance(analysis, ReportedRuns)
    tables = TablesOnDemand(store, members) if kept else store.tables(members)
    return tables, {"overlay": overlay, "analysis": analysis, "asked": asked}


def _end(rows: Iterable[Mapping[str, Any]], code: int = 0) -> None:
    """Exit with a code other than 0, or with 4 if a run could not be analysed.

    rows: with `name` and `error`
    """
    failed = list(dict.fromkeys(row["name"] for row in rows if row["error"] is not None))
    if failed:
        from fairmfu.reports.text.tabular import count_noun

        named = f"{', '.join(failed[:3])}{' and others' if failed[3:] else ''}"
        _say(
            f"{count_noun(len(failed), 'run')} could not be analysed, because of a bug in fairmfu "
            f"or a damaged store: {named}. For details: fairmfu explain RUN. Check the store: "
            "fairmfu doctor"
        )
    if code or failed:
        sys.exit(code or EXIT_UNREAD_SOURCE)


def _not_written(error: OSError, out: Path, option: str = "--out") -> click.ClickException:
    from fairmfu.ingest.core.errors import explain_write_error

    why, todo = explain_write_error(error, option)
    return messages.EXPORT_NOT_WRITABLE(path=error.filename or out, why=why, remedy=todo)


def _overlay() -> tuple[Accelerator, ...]:
    """Return the accelerators of the file in `--accelerators`, else of ./fairmfu.toml."""
    from fairmfu.ingest.facts.config_file import configured_accelerators

    if click.get_current_context().find_root().obj is not None:
        return _overlay_of(None)
    return _overlay_of(configured_accelerators())


def _overlay_of(path: Path | None) -> tuple[Accelerator, ...]:
    """Return the accelerators of the file in `--accelerators`, else of `path`."""
    from fairmfu.ingest.core.messages import UNREADABLE_FILE
    from fairmfu.metrics.formula.accelerators import OverlayError, load_overlay

    path = click.get_current_context().find_root().obj or path
    if path is None:
        return ()
    try:
        return load_overlay(path.read_text(encoding="utf-8"))
    except OverlayError as error:
        raise _Failure(f"{path}: {error}", error.kind) from error
    except UnicodeDecodeError as error:
        raise UNREADABLE_FILE(path=path, why=f"{error}.") from error


def _echo_doubts(rows: Iterable[MetricsRow], *, missing: bool = True) -> None:
    """Print doubts and missing facts on stderr: stdout has only the table."""
    from fairmfu.reports.text.runs_table import run_doubts
    from fairmfu.reports.text.tabular import wrapped

    for sentence in run_doubts(rows, missing=missing):
        click.echo(wrapped(_printable(sentence)), err=True)


if __name__ == "__main__":
    main()
