"""Issues of a night: one Markdown file per new finding, ready to file.

A file has what happened, since when, the evidence, commands that run as printed, the environment,
and what to do. Findings that an earlier night reported have none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from fairmfu.metrics.compare.comparability import COLUMN_LABELS, format_value
from fairmfu.metrics.core.run_table import value_of

from ..text.commands import shell_word, store_option
from ..text.markdown import MARKDOWN_STYLE, file_words
from ..text.tabular import printable, render_frame
from .findings import (
    FAILED,
    NOT_ANALYSED,
    NOT_TRACKED,
    PROVISIONAL,
    RETRIED,
    SILENT,
    STOPPED,
    UNREAD,
    Finding,
    find,
)
from .night_report import (
    Night,
    NightDigest,
    build_digest,
    change_size,
    compare_command,
    format_day,
)

NOT_FILED: Final = (PROVISIONAL, NOT_TRACKED, RETRIED)
"""Warnings without an issue: unconfirmed, or not a fault of the job. Notes have none either."""

QUOTED: Final = (FAILED, STOPPED, NOT_ANALYSED, UNREAD)
"""Findings whose evidence is a line of a log or of an error."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    name: COLUMN_LABELS.get(name, name.replace("_", " "))
    for name in (
        *("framework", "framework_version", "torch", "accelerator", "gpus", "model", "seq_len"),
        *("precision", "recompute", "compile", "global_batch_size", "micro_batch_size"),
        *("gradient_accumulation", "replicas", "tensor_parallel", "pipeline_parallel"),
        *("context_parallel", "expert_parallel", "zero_stage"),
    )
}
"""Columns of metrics that describe where a run ran, with labels."""

_safe = MARKDOWN_STYLE.plain
_SAFE_ID: Final = re.compile(r"[\w-]+")


def filed(digest: NightDigest) -> list[Finding]:
    """Return the findings of a night that get an issue: new ones that are no note."""
    return [
        one
        for one in find(digest)
        if one.new and one.kind.severity != "note" and one.kind not in NOT_FILED
    ]


def filed_runs(night: Night) -> list[str]:
    """Return the ids of the runs that the issues of a night describe."""
    return [run for one in filed(build_digest(night)) for run in _runs(one)]


def issue_files(night: Night, runs: pl.DataFrame) -> dict[str, str]:
    """Return the issues of a night: file name to Markdown.

    runs: METRICS rows of `filed_runs`, as redacted as the night

    The name is made of the finding's identifier and its job, and is the same whenever the night is
    written.
    """
    known = {row["run_id"]: row for row in runs.iter_rows(named=True)}
    found: dict[str, str] = {}
    for one in filed(build_digest(night)):
        found.setdefault(issue_name(one), _issue(one, night, known))
    return found


def issue_name(finding: Finding) -> str:
    """Return a portable file name, of its own for each finding of a job."""
    label = str(finding.job["label"] or "")
    key = (finding.kind.identifier, finding.series or label, finding.run_id, finding.since, label)
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode("utf-8", "surrogatepass"))
    words = file_words(f"{finding.kind.identifier} {label}")
    return f"{words}-{digest.hexdigest()[:10]}.md"


def _issue(finding: Finding, night: Night, runs: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [
        f"# {_safe(issue_title(finding))}",
        _what(finding),
        _section("Evidence", _evidence(finding)),
        _section("Commands", _block(issue_commands(finding, night))),
        _section("Environment", _environment(_runs(finding), runs)),
        _section("What to do", _remedy(finding, night)),
        f"fairmfu {_safe(night.version)}, formula {_safe(night.formula)}, night of "
        f"{format_day(night.at)}, finding `{finding.kind.identifier}`.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def issue_title(finding: Finding) -> str:
    """Return job and finding in a line of plain text."""
    label = str(finding.job["label"])
    if finding.change is not None:
        return f"{label} is {change_size(finding.change)}"
    if finding.kind is SILENT and finding.days is None:
        return f"{label} is expected and has never run"
    if finding.kind is UNREAD:
        return f"{label} could not be read"
    return f"{label}: {finding.detail.partition(chr(10))[0]}"


def _what(finding: Finding) -> str:
    """Return what happened and since when, as a list."""
    since = "the last run of the job" if finding.kind is SILENT else "the first run with it"
    at = finding.since
    words = [
        f"What: {_safe(printable('; '.join(filter(None, (finding.detail, finding.reason)))))}",
        f"Since: {format_day(at)}, {at:%H:%M} (start of {since})" if at is not None else "",
        f"Severity: {finding.kind.severity}" + ("; makes the night fail" if finding.fails else ""),
    ]
    return "\n".join(f"- {one}" for one in words if one)


def _section(heading: str, text: str) -> str:
    return f"## {heading}\n\n{text}" if text else ""


def _evidence(finding: Finding) -> str:
    """Return figures as a sentence, or the line of the log as it is."""
    if finding.kind in QUOTED:
        return _block((finding.evidence or finding.detail).splitlines())
    return _safe(printable(finding.evidence))


def _block(lines: Iterable[str]) -> str:
    """Return lines as they are, indented: no text of a log ends such a block."""
    return "\n".join(f"    {printable(line)}" for line in lines)


def issue_commands(finding: Finding, night: Night) -> list[str]:
    """Return commands that show the finding again."""
    store = store_option(night.store)
    if finding.kind is UNREAD:
        return [f"fairmfu ingest {shell_word(str(finding.job['label']))}{store}"]
    compare = compare_command(finding.change, night) if finding.change is not None else None
    traceback = "FAIRMFU_TRACEBACK=1 " if finding.kind is NOT_ANALYSED else ""
    run_id = finding.run_id if finding.run_id and _SAFE_ID.fullmatch(finding.run_id) else None
    explain = f"{traceback}fairmfu explain {run_id}{store}" if run_id else None
    return [one for one in (compare, explain) if one] or [f"fairmfu runs{store}"]


def _remedy(finding: Finding, night: Night) -> str:
    """Return what to do; the commands of a change are in their own section."""
    if finding.change is None:
        return _safe(printable(finding.fix))
    return (
        "Run the commands above: the first compares the last run before with the first run after. "
        "If the change is intended, make a later run the baseline: "
        f"`fairmfu baseline set RUN{store_option(night.store)}`."
    )


def _runs(finding: Finding) -> list[str]:
    """Return the last run before a change, and the run that shows the finding."""
    before = None if finding.change is None else finding.change["last_before"]
    return list(dict.fromkeys(run for run in (before, finding.run_id) if run is not None))


def _environment(ids: Sequence[str], runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where the runs ran, a column per run; empty if nothing is known."""
    known = [runs[run_id] for run_id in ids if run_id in runs]
    rows = []
    for name, label in ENVIRONMENT.items():
        values = [value_of(row, name) for row in known]
        if any(value is not None for value in values):
            cells = ["unknown" if value is None else format_value(value) for value in values]
            rows.append((label, *cells))
    if not rows:
        return ""
    headings = ["before", "after"] if len(known) > 1 else ["run"]
    schema = dict.fromkeys(["setting", *headings], pl.String())
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    names = dict(zip(headings, (f"{row['name']}" for row in known), strict=True))
    columns = {name: (f"{name}: {names[name]}" if name in names else name, str) for name in schema}
    return render_frame(frame, "markdown", columns)
