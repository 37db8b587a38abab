"""Errors of the command line: wrong use, and results that end a command."""

from __future__ import annotations

from typing import IO, Any, Final

import click

from fairmfu.ingest.core.errors import ErrorKind

TRACEBACK_VARIABLE: Final = "FAIRMFU_TRACEBACK"
"""Variable that makes a fault of fairmfu print its traceback."""

EXIT_INTERRUPTED: Final = 130
"""Exit code of a command that Ctrl-C ended, as of every program: 128 and the signal."""


class Interrupted(click.ClickException):
    """End of a command by Ctrl-C; it is no error of the command."""

    exit_code = EXIT_INTERRUPTED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message alone."""
        click.echo(self.format_message(), file=file, err=file is None)


INTERRUPTED: Final = ErrorKind(
    "interrupted",
    "Interrupted. What was stored is whole.",
    "Ctrl-C ends a command. What it stored until then stays.",
    Interrupted,
    fix="to go on, run it again",
)
FAIRMFU_FAILED: Final = ErrorKind(
    "fairmfu-failed",
    "fairmfu itself failed: {fault}.",
    "A command fails for a reason that fairmfu does not expect: a fault of fairmfu.",
    click.ClickException,
    fix="report this with the text in brackets; for a traceback, set "
    f"{TRACEBACK_VARIABLE}=1 and run the command again",
)
FILE_FAILED: Final = ErrorKind(
    "file-failed",
    "{path}: {why}",
    "The system refuses to open, read or write a file of a command.",
    click.ClickException,
)

# -- wrong use: exit code 2 ----------------------------------------------------------------------

EMPTY_PATH: Final = ErrorKind(
    "empty-path",
    "the path is empty.",
    "A path is empty, mostly because a variable of the shell is not set.",
    click.BadParameter,
    fix="for the current folder, give '.'",
)
NOT_FINITE: Final = ErrorKind(
    "not-finite",
    "{value} is not a finite number.",
    "An option of a number is nan or inf.",
    click.BadParameter,
)
GATE_NEEDS_TWO: Final = ErrorKind(
    "gate-needs-two",
    "--fail-below needs two RUNs without a common run. {given}",
    "The names given to compare --fail-below are not a base and a head.",
    click.UsageError,
    fix="name base, then head: a run each, or a folder or a pattern of repeats each",
)
NO_FACT_OF_STUDY: Final = ErrorKind(
    "no-fact-of-study",
    "'{name}' is no fact by which runs are compared.",
    "The name given to compare --by is unknown.",
    click.BadParameter,
    fix="use one of {known}",
)
NO_STUDY: Final = ErrorKind(
    "no-study",
    "no two of these runs with a rate have the same model and framework and differ in {by}.",
    "No two runs show the effect that compare --by or --baseline asks for.",
    click.ClickException,
    fix="name other runs, or list them with 'fairmfu runs'; name all runs whose model is unknown",
)
SET_WITHOUT_FACT: Final = ErrorKind(
    "set-without-fact",
    "A run or a fact is missing.",
    "No run, or no NAME=VALUE, is given to fairmfu set.",
    click.UsageError,
    fix="give at least one run and one NAME=VALUE, or --facts FILE",
)
LIST_WITH_NAME: Final = ErrorKind(
    "list-with-name",
    "--list accepts neither NAME nor --out.",
    "A chart or a file is given to fairmfu chart --list.",
    click.UsageError,
    fix="omit them",
)
CHART_NAME_MISSING: Final = ErrorKind(
    "chart-name-missing",
    "The NAME of a chart is missing.",
    "No name is given to fairmfu chart.",
    click.UsageError,
    fix="list the names with: fairmfu chart --list",
)
EXPERIMENT_OF_TENSORBOARD: Final = ErrorKind(
    "experiment-of-tensorboard",
    "--experiment does not apply to TensorBoard.",
    "An experiment is given to an export to TensorBoard.",
    click.UsageError,
    fix="omit --experiment",
)
GPUS_WITHOUT_TIME: Final = ErrorKind(
    "gpus-without-time",
    "--gpus needs --time-for.",
    "GPUs are given to fairmfu flops, and no number of tokens.",
    click.UsageError,
    fix="give --time-for TOKENS, or omit --gpus",
)
RECOMPUTE_WITHOUT_ACCELERATOR: Final = ErrorKind(
    "recompute-without-accelerator",
    "--recompute gives an HFU, which needs a peak.",
    "Activation checkpointing is given to fairmfu flops, and no GPU or peak.",
    click.UsageError,
    fix="give --accelerator NAME or --peak-flops, or omit --recompute",
)
PRINTED_WITHOUT_OTHERS: Final = ErrorKind(
    "printed-without-others",
    "--printed needs --against-others.",
    "A figure of a log is given to fairmfu flops, and no comparison of formulas.",
    click.UsageError,
    fix="give --against-others, or omit --printed",
)
COUNT_WITH_OPTIONS: Final = ErrorKind(
    "count-with-options",
    "--count counts one sequence in training, and cannot take {options}.",
    "A count of a config.json is asked for, with an option of the formula.",
    click.UsageError,
    fix="omit {options}, or omit --count",
)
COUNT_WITHOUT_CONFIG: Final = ErrorKind(
    "count-without-config",
    "--count needs the path of a config.json, and {model!r} is none.",
    "A count is asked for by the name of a model.",
    click.UsageError,
    fix="give the path of the model's config.json",
)
LOG_WITHOUT_CHECK: Final = ErrorKind(
    "log-without-check",
    "LOG needs --check.",
    "A log is given to fairmfu formats, and no format.",
    click.UsageError,
    fix="give --check NAME or --check FILE.toml",
)
UNKNOWN_SHELL: Final = ErrorKind(
    "unknown-shell",
    "There is no completion for {shell}.",
    "A completion is asked for a shell that click does not support.",
    click.UsageError,
)
ADDRESS_WITHOUT_RAY: Final = ErrorKind(
    "address-without-ray",
    "--ray-address needs --engine ray.",
    "The address of a Ray cluster is given without Ray.",
    click.UsageError,
    fix="give --engine ray, or omit --ray-address",
)
PROCESSES_WITH_RAY: Final = ErrorKind(
    "processes-with-ray",
    "--processes needs --engine local: a cluster uses its own cores.",
    "A number of processes is given with Ray.",
    click.UsageError,
    fix="omit --processes",
)
NO_SOURCE_GIVEN: Final = ErrorKind(
    "no-source-given",
    "No source is given.",
    "No path is given to fairmfu nightly, and fairmfu.toml has no sources.",
    click.UsageError,
    fix="give at least one PATH, or sources in fairmfu.toml",
)
UNKNOWN_SERIES_COLUMN: Final = ErrorKind(
    "unknown-series-column",
    "metrics has no column {name!r}. {hint}",
    "A column of --series-by does not exist.",
    click.BadParameter,
)
UNKNOWN_FINDING: Final = ErrorKind(
    "unknown-finding",
    "{problem}",
    "A finding of --fail-on does not exist.",
    click.BadParameter,
)
NOT_A_FRACTION: Final = ErrorKind(
    "not-a-fraction",
    "{option} must be a fraction below 1.",
    "The value of --threshold or --fail-below is no fraction below 1.",
    click.BadParameter,
    fix="write 0.03 or 3%",
)
OUT_IS_STORE: Final = ErrorKind(
    "out-is-store",
    "--store and --out are the same folder.",
    "The reports of a night would go into the store.",
    click.BadParameter,
    fix="choose another --out",
)

# -- results that end a command: exit code 1 -----------------------------------------------------

NO_SOURCE_READ: Final = ErrorKind(
    "no-source-read",
    "No source could be read.",
    "Every source of fairmfu ingest fails; the reasons are above.",
    click.ClickException,
)
EXPORT_NOT_WRITABLE: Final = ErrorKind(
    "export-not-writable",
    "{path}: {why}.",
    "An export cannot be written: a full disk, or no permission.",
    click.ClickException,
    fix="{remedy}",
)
TEMPLATE_WITHOUT_FACT: Final = ErrorKind(
    "template-without-fact",
    "{path}: no fact is given.",
    "A template of facts is given to fairmfu set before it is filled in.",
    click.ClickException,
    fix="fill in values, and remove the '# ' before them",
)
TEMPLATE_EXISTS: Final = ErrorKind(
    "template-exists",
    "{path} exists already, and a template never replaces a file.",
    "The file of fairmfu missing --write exists already.",
    click.ClickException,
    fix="give another name to --write",
)
STORE_PROBLEMS: Final = ErrorKind(
    "store-problems",
    "{store}: {count} found.",
    "Something in the store is lost or wrong, as fairmfu doctor shows.",
    click.ClickException,
)
NO_LINE_MATCHES: Final = ErrorKind(
    "no-line-matches",
    "{log}: no line matches {name}.",
    "A format is checked on a log, and matches none of its lines.",
    click.ClickException,
)
UNKNOWN_LOGGED_FORMULA: Final = ErrorKind(
    "unknown-logged-formula",
    "logged_formula={name!r} is not a known formula.",
    "The fact logged_formula is no formula of a framework.",
    click.ClickException,
    fix="list them with: fairmfu formats --eras",
)
RAY_MISSING: Final = ErrorKind(
    "ray-missing",
    "--engine ray needs Ray, which is not installed.",
    "Ray is asked for, and not installed.",
    click.ClickException,
    fix="{hint}",
)
