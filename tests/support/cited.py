"""Whether what was read of a log stands there: every line counted once, every value in its line.

Shares no code with the reading: a line's text is split at newlines here, its colours taken out, and
every number in it is read by float().
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from fairmfu.ingest.formats.spec import LogFormat, StepLine

COUNTS: Final = ("step_lines", "known_lines", "companion_lines", "other_lines", "unread_lines")
MORE_LINES: Final = 3
"""That a step which does not end on its line may have behind it."""

CUT_ESCAPE: Final = re.compile(r"\\(u[0-9a-f]{0,3})?$")
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
ESCAPED: Final = re.compile(r"(?:\\u[0-9a-f]{4})+")
"""A character as JSON writes it in ASCII, in records that are made of CSV."""
LIST: Final = re.compile(r"\[[^\[\]]*\]")
"""Where a comma may end a number."""
NUMBER: Final = re.compile(
    r"[-+]?(?:\d[\d,_]*\.?[\d,_]*|\.\d[\d,_]*)(?:[eE][-+]?\d+)?|-?\b(?:nan|inf|infinity)",
    re.IGNORECASE,
)

DERIVED: Final[Mapping[str, frozenset[str]]] = {
    "xtuner": frozenset({"step"}),  # of an epoch and an iteration of it
    "gpt-neox": frozenset({"logged_tflops"}),  # its unit is part of the value
    "deepspeed-timers": frozenset({"elapsed_s"}),  # the sum of the parts
    "deepspeed-tensorboard": frozenset({"elapsed_s"}),
    "deepspeed-csv": frozenset({"elapsed_s"}),
    "llamafactory": frozenset({"since_start_s"}),  # hours, minutes and seconds
    "ms-swift": frozenset({"since_start_s"}),
    "mlperf": frozenset({"step"}),  # samples over the batch size
}
"""Columns that a format makes of several printed values."""

Tables = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows of each table of ingest.core.schema, of one source."""


def uncounted(tables: Tables, lines: int) -> Iterator[str]:
    """Lines that are counted twice or never, of a log of so many."""
    source = tables["sources"][0]
    counts = {name: source[name] for name in COUNTS}
    if sum(counts.values()) != source["lines"] or min(counts.values()) < 0:
        yield f"{counts} of {source['lines']} lines"
    if lines != source["lines"]:
        yield f"{source['lines']} lines, not {lines}"
    unread = len(tables["unread"])
    if (unread == 0) != (source["unread_lines"] == 0) or unread > source["unread_lines"]:
        yield f"{unread} rows of {source['unread_lines']} unread lines"
    of_steps = {row["line"] for row in tables["steps"]} - {row["line"] for row in tables["unread"]}
    if bool(of_steps) != bool(source["step_lines"]):
        yield f"{len(of_steps)} lines of rows of {source['step_lines']} step lines"


def lines_of(log: bytes) -> list[str]:
    """The text of each line: no NUL bytes nor what has no width, other spaces as plain ones."""
    raw = log.removesuffix(b"\n").split(b"\n")
    texts = (
        re.sub("[\0\xad\u200b-\u200f\u2060\ufeff]", "", x.decode("utf-8", "replace")) for x in raw
    )
    return [
        re.sub("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]", " ", x).rstrip("\r") for x in texts
    ]


def plain(text: str) -> str:
    """Without colours, and digits of any script as ASCII has them, as int() and float() do.

    Until nothing changes: a colour within another leaves one, digits make an escape where none was.
    """
    before = None
    while text != before:
        before = text
        text = COLOUR.sub("", ESCAPED.sub(lambda match: json.loads(f'"{match[0]}"'), text))
        if not text.isascii():
            text = "".join(str(int(c)) if c.isdecimal() and not c.isascii() else c for c in text)
    return text


def uncited(tables: Tables, lines: Sequence[str], form: LogFormat) -> Iterator[str]:
    """Rows whose line does not hold what they say of it.

    Where the format joins lines to records, it is the record that has to hold it.
    """
    numbered = enumerate(lines, start=1)
    joined = numbered if form.join is None else ((n, text) for n, _, text in form.join(numbered))
    records: dict[int, list[str]] = {}
    for number, text in joined:
        said = text if form.noise is None else re.sub(form.noise, "", text)
        records.setdefault(number, []).append(plain(said))
    factors = _factors(form)
    for row in tables["steps"]:
        text = _record(records, row["line"], form)
        wrong = list(_not_printed(row, text, form, factors))
        yield from (f"steps, line {row['line']}: {one} of {text[:300]!r}" for one in wrong)
    said = {misprint.why for misprint in form.misprints}
    for table in ("events", "facts", "unread"):
        for row in tables[table]:
            if row.get("line") is None or not row.get("text") or row["text"] in said:
                continue
            text = _record(records, row["line"], form)
            if not _quotes(text, row["text"], form):
                yield f"{table}, line {row['line']}: {row['text'][:200]!r} of {text[:300]!r}"


def _quotes(text: str, quoted: str, form: LogFormat) -> bool:
    """Return whether a text is of that line: its parts in order, but for blanks and noise.

    Of a long line, the beginning and a late match are quoted, with an ellipsis between them.
    """
    quoted = plain(CUT_ESCAPE.sub("", quoted))
    if form.noise is not None:
        text, quoted = (re.sub(form.noise, "", one) for one in (text, quoted))
    rest = "".join(text.split())
    for part in [quoted] if "…" in text else quoted.split("…"):
        _, found, rest = rest.partition("".join(part.split()))
        if part.split() and not found:
            return False
    return True


def _record(records: Mapping[int, list[str]], number: int, form: LogFormat) -> str:
    """The text of the line, with those behind it that may be of the same record."""
    here = "\n".join(records.get(number, ()))
    if _whole(here, form):
        return here
    behind = (number + n for n in range(1, 4 * MORE_LINES) if number + n in records)
    more = (text for at in behind for text in records[at] if text.strip())
    return "\n".join([here, *islice(more, MORE_LINES)])


def _whole(text: str, form: LogFormat) -> bool:
    """Whether the line is a step by itself: what does not read alone may go on in the next."""
    line = _step_line(text, form)
    return line is not None and not line.may_continue


def _step_line(text: str, form: LogFormat) -> StepLine | None:
    """The first of the format's lines that this is one of, as one of several records."""
    found = (s for s in form.steps if s.anchor in text and re.search(s.regex, text))
    return next(found, None)


def _factors(form: LogFormat) -> dict[str, set[float]]:
    """What printed values of a column may be multiplied by."""
    out: dict[str, set[float]] = {}
    for line in form.steps:
        for target in line.columns.values():
            column, factor = target if isinstance(target, tuple) else (target, 1.0)
            out.setdefault(column, set()).add(factor or 1.0)
    for misprint in form.misprints:
        for column, factor in misprint.factors.items():
            out[column] = {one * more for one in out.get(column, {1.0}) for more in (1.0, factor)}
    return out


def _not_printed(
    row: Mapping[str, Any], text: str, form: LogFormat, factors: Mapping[str, Collection[float]]
) -> Iterator[str]:
    skipped = {"run_id", "line", "rank", "logged_at", "extra", *DERIVED.get(form.name, ())}
    line = _step_line(text.split("\n", maxsplit=1)[0], form)
    every = form.steps if line is None else [line]  # of one that goes on it is not known
    if any(map(_counted, every)):
        skipped.add("step")
    numbers: list[float] | None = None
    for column, value in row.items():
        if column in skipped or value is None:
            continue
        numbers = list(_numbers(text)) if numbers is None else numbers
        every = factors.get(column, {1.0})
        if not _among(value, numbers, every):
            yield f"{column} {value!r}"
    stamp = row["logged_at"]
    if stamp is not None and not form.utc and f"{stamp:%M:%S}" not in text:
        yield f"logged_at {stamp}"
    for key, value in json.loads(row["extra"] or "{}").items():
        if isinstance(value, str) and not _said(value, text):
            yield f"extra {key} {value!r}"


def _counted(line: StepLine) -> bool:
    return line.numbered or line.counts is not None


def _said(value: str, text: str) -> bool:
    """Whether a text stands in the line, as it is or as JSON has it."""
    value = plain(value)
    if value in text or " ".join(value.split()) in " ".join(text.split()):
        return True
    forms = (json.dumps(value), json.dumps(value, ensure_ascii=False))
    return any(form[1:-1] in text for form in forms) or "\\" in text or value[:1] in "{["


def _among(value: float, numbers: Iterable[float], factors: Collection[float]) -> bool:
    if value != value:  # noqa: PLR0124 - nan
        return any(number != number for number in numbers)  # noqa: PLR0124
    for number in numbers:
        for factor in factors:
            made = number * factor
            if made == value or abs(made - value) <= 1e-12 * abs(value):
                return True
    return False


def _numbers(text: str) -> Iterator[float]:
    """Every number of a text, the longest that begins at each place."""
    for form in (text, LIST.sub(lambda found: found[0].replace(",", ", "), text)):
        for match in NUMBER.finditer(form):
            yield from _read(match[0])
            yield from _read(match[0].lstrip("+-"))


def _read(word: str) -> Iterator[float]:
    try:
        yield float(word.replace(",", "").rstrip("_"))
    except ValueError:
        return
