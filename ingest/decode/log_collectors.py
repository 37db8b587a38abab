"""Envelopes of log collectors around lines, and how to remove them.

Prefixes (`line_prefixes`), records of JSON or logfmt with the line as their only text, cells of a
CSV file, JSON over many lines.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from ..formats.registry import BROKEN_BY_TERMINALS, PRINTED_BY_NODES
from .line_prefixes import MIN_ALIKE_LINES, line_prefixes


class UnwrappedLine(NamedTuple):
    """Content of a line: text, and time of collection if comparable.

    partial: the next line continues this one; continues: this line continues the previous one. tag:
    the name of the pod, container, host or file.
    """

    text: bytes
    at: bytes = b""
    partial: bool = False
    continues: bool = False
    tag: bytes = b""


Unwrap = Callable[[bytes], UnwrappedLine | None]
"""Returns the content of a line, given without its newline; None if not wrapped in this way."""

MakeUnwrap = Callable[[], Unwrap]
"""Makes an Unwrap for lines from the first on, as an Unwrap may remember earlier lines."""

# -- prefixes ----------------------------------------------------------------------------------

PARTIAL_FLAG: Final = b" P "
"""Follows `stdout` or `stderr`: part of a line, as Kubernetes' runtimes cut long lines
(kubernetes/kubernetes pkg/kubelet/kuberuntime/logs/logs.go@81b7503 parseCRILog).
"""
CONTINUATION_FLAGS: Final = (b"O+", b"E+")
"""Follow GitLab's stamp: this line continues the previous one."""

RAY_REPEAT_NOTE: Final = re.compile(
    rb"(?:\x1b\[\d+m)? \[repeated \d+x across cluster\](?: \(Ray deduplicates .*)?(?:\x1b\[0m)?\s*$"
)
"""Ray's note on a line that several actors printed (ray-project/ray
python/ray/_private/ray_logging/__init__.py@1359121 LogDeduplicator).
"""


def unwrap_prefix(prefix: re.Pattern[bytes], line: bytes) -> UnwrappedLine | None:
    """Return a line without its prefix; None if the prefix does not match."""
    if (match := prefix.match(line)) is None:
        return None
    text, words = line[match.end() :], match[0]
    if b" across cluster]" in text:
        text = RAY_REPEAT_NOTE.sub(b"", text)
    at, tag = ((match[name] or b"") if name in prefix.groupindex else b"" for name in ("at", "who"))
    partial, continues = words.endswith(PARTIAL_FLAG), words.endswith(CONTINUATION_FLAGS)
    return UnwrappedLine(text, at, partial, continues, tag)


_OF_EACH: Final = PRINTED_BY_NODES.of_each_node


class HostPrefixes:
    """Remove the host from lines.

    The Hugging Face Trainer prints its dicts on all nodes, without a step: four nodes would look
    like four steps. So a dict gets its host's number as a tag, as `srun --label` gives a task's,
    numbered in order of appearance. So does a progress bar, because it belongs to the dicts of its
    host.
    """

    def __init__(self, prefix: re.Pattern[bytes]) -> None:
        """Set up the numbers. prefix: with a group `who`."""
        self._prefix, self._numbers = prefix, dict[bytes, int]()

    def __call__(self, line: bytes) -> UnwrappedLine | None:
        """Return a line without its host; a dict or a bar with its number."""
        if (match := self._prefix.match(line)) is None:
            return None
        number = self._numbers.setdefault(match["who"], len(self._numbers))
        text = line[match.end() :]
        text = b"%d: %s" % (number, text) if _OF_EACH.search(text) else text
        return UnwrappedLine(text, tag=match["who"])


# -- records -----------------------------------------------------------------------------------

MESSAGE_KEYS: Final = ("log", "line", "message", "msg", "textPayload", "MESSAGE")
ORIGIN_KEYS: Final = (
    *("time", "timestamp", "ts", "@timestamp", "date", "asctime"),
    *("__REALTIME_TIMESTAMP", "podName", "pod"),
)
NESTED_RECORD_KEYS: Final = ("jsonPayload", "_source", "content", "attributes")
KAGGLE_KEYS: Final = {"stream_name", "time", "data"}
STEP_RECORD_KEY: Final = "step"
"""Keys of a record: of the line, and of the time or origin. Docker's json-file has `log` and `time`
(moby/moby daemon/logger/jsonfilelog/jsonlog/jsonlog.go@2200d93 JSONLog), Loki's logcli `line` and
`timestamp` (grafana/loki pkg/logcli/output/jsonl.go@fbb1d74). Clouds have `message` or
`textPayload`, Google's within `jsonPayload`, Datadog's within `content` or `attributes`. journalctl
has `MESSAGE`, stern `message` and `podName` (-o json) or `pod` (-o extjson). Kaggle's log of a
notebook is one array, with `data` and the seconds since the start, which give no order. A record
with a step is the framework's own (Torchtitan's spans have a `message` and a `time`).
"""

_PAIR: Final = rb'([\w.@-]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)'
_LOGFMT: Final = re.compile(rb"%s(?: +%s)+\s*" % (_PAIR, _PAIR))
_PAIRS: Final = re.compile(_PAIR)
_ESCAPE: Final = re.compile(rb"\\(?:x([\da-f]{2})|([av])|.)", re.DOTALL)
_CONTROL: Final = {b"a": rb"\u0007", b"v": rb"\u000b"}


def unwrap_json_record(texts_have_newlines: bool, line: bytes) -> UnwrappedLine | None:  # noqa: FBT001 - a partial's first argument
    """Return the text of a JSON record.

    texts_have_newlines: texts end with their newline, so a text without one continues in the next
    record.
    """
    if (record := _of_json(line)) is None:
        return None
    text, at = record
    return UnwrappedLine(
        _bytes(text.removesuffix("\n")), at, texts_have_newlines and not text.endswith("\n")
    )


def has_text_newline(line: bytes) -> bool:
    """Return whether a line is a record whose text ends with a newline."""
    return (record := _of_json(line)) is not None and record[0].endswith("\n")


def _of_json(line: bytes) -> tuple[str, bytes] | None:
    text = line.strip()
    if in_array := text.startswith((b"[{", b",{")):  # an array with one record per line
        text = text[1:].removesuffix(b"]")
    if not text.startswith(b"{"):
        return None
    with suppress(ValueError, RecursionError):
        record = json.loads(text)
        is_record = isinstance(record, dict)
        if is_record and record.keys() == KAGGLE_KEYS and isinstance(record["data"], str):
            return record["data"], b""
        if is_record and not in_array:
            return _message(record)
    return None


def _message(record: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """Return the text and the time of a record that also has a time or an origin."""
    for key in NESTED_RECORD_KEYS:
        if isinstance(inner := record.get(key), dict):
            record = {**inner, **record}
    origins = [record[key] for key in ORIGIN_KEYS if key in record]
    if STEP_RECORD_KEY in record or not origins:
        return None
    texts = [text for key in MESSAGE_KEYS if (text := _text(record.get(key))) is not None]
    return (texts[0], _time(str(origins[0]))) if len(texts) == 1 else None


def _text(value: object) -> str | None:
    """Return a text; journalctl writes a coloured text as a list of bytes."""
    if isinstance(value, list):
        with suppress(ValueError, TypeError):
            return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def unwrap_logfmt(line: bytes) -> UnwrappedLine | None:
    """Return the text of a line of `key=value` or `key="value"` pairs."""
    if not _LOGFMT.fullmatch(line):
        return None
    with suppress(ValueError):
        record = {key.decode(): _unquoted(value) for key, value in _PAIRS.findall(line)}
        if message := _message(record):
            return UnwrappedLine(_bytes(message[0].removesuffix("\n")), message[1])
    return None


def _unquoted(value: bytes) -> str:
    """Return a value without the quotes of Go. Raises ValueError."""
    if not value.startswith(b'"'):
        return value.decode("utf-8", "replace")
    return str(json.loads(_ESCAPE.sub(_as_json, value)))


def _as_json(escape: re.Match[bytes]) -> bytes:
    return rb"\u00" + escape[1] if escape[1] else _CONTROL.get(escape[2], escape[0])


def _time(text: str) -> bytes:
    """Return a time up to the second; empty unless its texts sort by time."""
    return text[:19].encode() if text[:4].isdecimal() else b""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


# -- JSON over many lines ----------------------------------------------------------------------

_QUOTED: Final = re.compile(rb'\s*(?:"(?:message|textPayload)": )?("(?:[^"\\]|\\.)*"),?\s*')
_TAKEN: Final = re.compile(rb'\s*"timestamp": "?([\dT:-]{10,19})')
_OF_QUOTED: Final = re.compile(rb'\s*\{\s*"(?:cells|events)": \[|\s*\[\s*\{\s*"insertId": "')
"""Start of a notebook, of `aws logs get-log-events`, of `gcloud logging read --format=json`."""


def unwrap_json_text(line: bytes) -> UnwrappedLine:
    """Return the text of a line of JSON that is a single string; else an empty line.

    Such lines are the output or the source of a notebook's cell, or a message of a cloud.
    """
    if match := _QUOTED.fullmatch(line):
        with suppress(ValueError):
            return UnwrappedLine(_bytes(json.loads(match[1]).removesuffix("\n")))
    taken = _TAKEN.match(line)
    return UnwrappedLine(b"", taken[1] if taken else b"")


_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"')
MIN_INNER_LINES: Final = 3
"""Lines of a JSON text that may be a log."""


def unwrap_json_texts(line: bytes) -> UnwrappedLine | None:
    """Return the lines of all long texts in a line of JSON, such as an issue's body."""
    if b"\\n" not in line:
        return None
    texts = list[str]()
    for match in _STRING.finditer(line):
        if match[0].count(b"\\n") + 1 >= MIN_INNER_LINES:
            with suppress(ValueError):
                texts.append(json.loads(match[0], strict=False))
    inner = (unwrap_json_texts(_bytes(text)) if "\n" not in text else None for text in texts)
    texts += [piece.text.decode("utf-8", "replace") for piece in inner if piece]  # JSON in JSON
    long = [text for text in texts if text.count("\n") + 1 >= MIN_INNER_LINES]
    return UnwrappedLine(_bytes("\n".join(long).replace("\r\n", "\n"))) if long else None


# -- CSV ---------------------------------------------------------------------------------------

_HEADING: Final = re.compile(rb'(?:\xef\xbb\xbf)?[\w@" ]+(?:,[\w@". ]+)+\r?')
_OF_MESSAGES: Final = {"raw", "content", *map(str.lower, MESSAGE_KEYS)}
_REST: Final = re.compile(rb'([^"]*(?:""[^"]*)*)("?)')
_CELL: Final = re.compile(rb'"%s|([^,]*)' % _REST.pattern)


class CsvCells:
    """Lines in one column of a CSV file; a cell may contain several lines."""

    def __init__(self, time_column: int, message_column: int) -> None:
        """Set up with the indices of the columns."""
        self._taken, self._message = time_column, message_column
        self._open: int | None = None
        self._heading = True

    def __call__(self, line: bytes) -> UnwrappedLine:
        """Return the part of a line in the message column; empty for the heading."""
        if self._heading:
            self._heading = not line.strip()
            return UnwrappedLine(b"")
        cells = dict(self.cells(line))
        time = cells.get(self._taken, b"").decode("utf-8", "replace")
        return UnwrappedLine(cells.get(self._message, b""), _time(time))

    def cells(self, line: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the cells of a line with their columns.

        An open cell continues in the next line.
        """
        at, column = 0, self._open or 0
        while True:
            match = (_CELL if self._open is None else _REST).match(line, at)
            text, closing = (match[1], match[2]) if match else (None, b"")
            if match is None or text is None:
                yield column, match[3] if match else b""
            else:
                yield column, text.replace(b'""', b'"')
            self._open = column if text is not None and not closing else None
            at = line.find(b",", match.end() if match else at)
            if self._open is not None or at < 0:
                return
            at, column = at + 1, column + 1


# -- lines broken by a terminal ----------------------------------------------------------------

_WORD: Final = BROKEN_BY_TERMINALS.word
_BEGINS: Final = BROKEN_BY_TERMINALS.begins
_FIELD: Final = BROKEN_BY_TERMINALS.field
MAX_PADDING_BLANKS: Final = BROKEN_BY_TERMINALS.max_padding_blanks


def _begins_step(line: bytes) -> bool:
    """Return whether a step line begins in a line.

    The search for a word rules out most.
    """
    at = line.find(_WORD)
    return at >= 0 and _BEGINS.search(line, max(at - 1, 0)) is not None


class BrokenStepLines:
    """Join step lines of fields between bars, broken at the width of a terminal."""

    def __init__(self, columns: int) -> None:
        """Set up with the width of the terminal."""
        self._columns = columns
        self._before: bytes | None = None

    def __call__(self, line: bytes) -> UnwrappedLine:
        """Return a line; the rest of a step line continues the previous piece."""
        line, before = line.rstrip(b"\r"), self._before
        goes_on = before is not None and self._belongs(before, line)
        self._before = line if goes_on or _begins_step(line) else None
        if not goes_on or before is None:
            return UnwrappedLine(line)
        return UnwrappedLine(b" " * (self._columns - len(before)) + line, continues=True)

    def _belongs(self, before: bytes, line: bytes) -> bool:
        """Return whether a line continues a step line that the previous piece left open."""
        wide = len(before) + MAX_PADDING_BLANKS >= self._columns or not _ended_field(before)
        return wide and len(line) <= self._columns and _may_go_on(before, line)


def detect_terminal_width(lines: Sequence[bytes], beginning: bytes) -> MakeUnwrap | None:
    """Return the joining of step lines if all are broken at the same column."""
    if _WORD not in beginning:
        return None
    starts = list[int]()
    for at in (at for at, line in enumerate(lines) if _begins_step(line)):
        if starts and not _may_go_on(lines[starts[-1]], lines[starts[-1] + 1].rstrip(b"\r")):
            return None
        starts.append(at)
    if len(starts) < MIN_ALIKE_LINES:
        return None
    lines = [line.rstrip(b"\r") for line in lines]
    columns = max(map(len, lines[starts[0] : starts[-1]]))
    made = partial(BrokenStepLines, columns)
    if any(len(lines[at]) + MAX_PADDING_BLANKS < columns for at in starts):
        return None
    steps = filter(_begins_step, _put_together(lines[starts[0] :], made()))
    count = 0
    for line, _ in pairwise(steps):  # the last may go on
        if len(line) <= columns or not line.rstrip().endswith(b"|"):
            return None
        count += 1
    return made if count >= MIN_ALIKE_LINES else None


def _may_go_on(line: bytes, behind: bytes) -> bool:
    """Return whether a line may be the rest of a piece of a step line, at any width.

    The first step line usually shows that a log is no copy of a terminal.
    """
    if not behind.strip() or _begins_step(behind):
        return False
    return not _ended_field(line) or _FIELD.match(behind) is not None


def _ended_field(line: bytes) -> bool:
    """Return whether a piece of a step line ends after a field."""
    return line.rstrip().endswith(b"|")


def _put_together(lines: Iterable[bytes], unwrap: BrokenStepLines) -> Iterator[bytes]:
    """Yield the lines with their continuations."""
    whole = b""
    for piece in map(unwrap, lines):
        if not piece.continues:
            yield whole
            whole = b""
        whole += piece.text
    yield whole


# -- dicts printed by every node ---------------------------------------------------------------

_DICT: Final = PRINTED_BY_NODES.dict_of_line
LOSS_DICT_START: Final = PRINTED_BY_NODES.begins
MAX_SAMPLED_DICTS: Final = 64
"""Dicts that show whether all are printed several times."""
MIN_COPIED_STEPS: Final = 3
"""Steps that must have the same number of copies, except the last."""
MAX_OPEN_STEPS: Final = MIN_COPIED_STEPS - 1
"""Steps whose copies are awaited at a time: nodes wait for each other in every step. A second
training with the same seed may repeat all dicts, after all those of the first.
"""


class NodeCopies:
    """Remove copies of the Trainer's dicts that other nodes print into the same file.

    By default every node prints them (`log_on_each_node`), the same to the last digit, because
    their figures cover all nodes. Without a tag (`srun` without --label) their node is unknown, and
    as dicts print no step, every copy would count as a step.
    """

    def __init__(self, nodes: int) -> None:
        """Set up. nodes: copies of a dict."""
        self._nodes = nodes
        self._seen: dict[bytes, int] = {}

    def __call__(self, line: bytes) -> UnwrappedLine | None:
        """Return a line with a dict; of a copy, only the text up to the dict."""
        if LOSS_DICT_START not in line or (match := _DICT.search(line)) is None:
            return None
        text = match["dict"]
        count = self._seen.pop(text, 0) + 1
        if count < self._nodes:
            self._seen[text] = count
        if len(self._seen) > MAX_OPEN_STEPS:
            del self._seen[next(iter(self._seen))]
        return UnwrappedLine(line[: match.start("dict")] if count > 1 else line)


def detect_node_copies(lines: Iterable[bytes]) -> MakeUnwrap | None:
    """Return the removal of copies by several nodes, if all steps have as many.

    lines: from the first line with a step on.
    """
    dicts = (
        match["dict"] for line in lines if LOSS_DICT_START in line and (match := _DICT.search(line))
    )
    counts = Counter(islice(dicts, MAX_SAMPLED_DICTS))
    if len(counts) < MIN_COPIED_STEPS:
        return None
    *whole, last = counts.values()
    nodes = whole[0]
    alike = {*whole} == {nodes} and last <= nodes
    return partial(NodeCopies, nodes) if alike and nodes > 1 else None


# -- detection ---------------------------------------------------------------------------------

RECORD_STARTS: Final = (rb"\s*[\[,]?\{", rb"[\w.@-]+=")
"""Start of a record of JSON or logfmt."""


@cache
def _wrapped_start() -> re.Pattern[bytes]:
    """Return the regex of the start of a wrapped line, compiled on first use (2.5 ms)."""
    starts = (*RECORD_STARTS, *(prefix.pattern for prefix in line_prefixes()))
    return re.compile(re.sub(rb"\(\?P<\w+>", b"(?:", b"|".join(starts)))


def detect_file_envelope(lines: Sequence[bytes], beginning: bytes) -> MakeUnwrap | None:
    """Return the envelope of a whole file, detected by its beginning."""
    if _OF_QUOTED.match(beginning):
        return lambda: unwrap_json_text
    columns = _columns(next(filter(bytes.strip, lines), b""))
    return partial(CsvCells, *columns) if columns else None


def _columns(heading: bytes) -> tuple[int, int] | None:
    """Return the columns of time and message in a CSV heading; None for another line."""
    if not _HEADING.fullmatch(heading):
        return None
    cells = CsvCells(0, 0).cells(heading.removeprefix(b"\xef\xbb\xbf"))
    names = [cell.decode().strip().lstrip("@_").lower() for _, cell in cells]
    origins = [column for column, name in enumerate(names) if name in ORIGIN_KEYS]
    message = [column for column, name in enumerate(names) if name in _OF_MESSAGES]
    return (
        (origins[0], message[0])
        if origins and len(message) == 1 and STEP_RECORD_KEY not in names
        else None
    )


def detect_line_envelope(lines: Sequence[bytes]) -> MakeUnwrap | None:
    """Return the envelope of the lines, as known collectors write it."""
    if not _may_be(lines):
        return None
    ends = any(map(has_text_newline, lines))
    for unwrap in (partial(unwrap_json_record, ends), unwrap_logfmt):
        alike = sum(unwrap(line) is not None for line in lines)
        if alike >= max(MIN_ALIKE_LINES, len(lines) / 2):
            return partial(partial, unwrap)
    for prefix in line_prefixes():
        if prefix.accepts(_matches(prefix.regex, lines), len(lines)):
            if prefix.names_hosts:
                return partial(HostPrefixes, prefix.regex)
            return partial(partial, unwrap_prefix, prefix.regex)
    return None


def _may_be(lines: Sequence[bytes]) -> bool:
    """Return whether half of the lines begin like wrapped ones; stops early if not."""
    others, starts = len(lines) - max(MIN_ALIKE_LINES, len(lines) / 2), _wrapped_start().match
    for line in lines:
        others -= starts(line) is None
        if others < 0:
            return False
    return len(lines) >= MIN_ALIKE_LINES


def _matches(regex: re.Pattern[bytes], lines: Iterable[bytes]) -> list[re.Match[bytes]]:
    return [match for line in lines if (match := regex.match(line))]
