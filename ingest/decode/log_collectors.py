"""What collectors of logs put around each line, and how it is taken off.

Words before a line (`line_prefixes`), a record of JSON or logfmt whose one text is the line, a cell
of a CSV file, JSON over many lines.
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
    """What a line holds: a text, and when it was taken, where that can be compared.

    partial: the next line belongs to it; continues: it belongs to the one before. tag: the name of
    the pod, container, host or file that it is of.
    """

    text: bytes
    at: bytes = b""
    partial: bool = False
    continues: bool = False
    tag: bytes = b""


Unwrap = Callable[[bytes], UnwrappedLine | None]
"""A line, without its newline, as what it holds; None of one that is not wrapped so."""

MakeUnwrap = Callable[[], Unwrap]
"""One for lines that are read from the first on: it may know what an earlier one has begun."""

# -- words before a line -----------------------------------------------------------------------

PARTIAL_FLAG: Final = b" P "
"""Behind `stdout` or `stderr`: a part of a line, as Kubernetes' runtimes cut long ones
(kubernetes/kubernetes pkg/kubelet/kuberuntime/logs/logs.go@81b7503 parseCRILog)."""
CONTINUATION_FLAGS: Final = (b"O+", b"E+")
"""Behind GitLab's stamp: the line before goes on."""

RAY_REPEAT_NOTE: Final = re.compile(
    rb"(?:\x1b\[\d+m)? \[repeated \d+x across cluster\](?: \(Ray deduplicates .*)?(?:\x1b\[0m)?\s*$"
)
"""What Ray adds to a line that several actors printed (ray-project/ray
python/ray/_private/ray_logging/__init__.py@1359121 LogDeduplicator)."""


def unwrap_prefix(prefix: re.Pattern[bytes], line: bytes) -> UnwrappedLine | None:
    """A line without the words before it."""
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
    """Lines without the host before them.

    The Hugging Face Trainer prints its dicts on each node, without a step: four nodes would be four
    steps. So a dict keeps its host, as `srun --label` tells of a task: a number in the order in
    which they come. So does a progress bar, which is of its host's dicts.
    """

    def __init__(self, prefix: re.Pattern[bytes]) -> None:
        """prefix: with a group `who`."""
        self._prefix, self._numbers = prefix, dict[bytes, int]()

    def __call__(self, line: bytes) -> UnwrappedLine | None:
        """A line without its host; a dict or a bar with its number."""
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
"""Keys of a record: of the line, and of when or where it was taken. Docker's json-file has `log`
and `time` (moby/moby daemon/logger/jsonfilelog/jsonlog/jsonlog.go@2200d93 JSONLog), Loki's logcli
`line` and `timestamp` (grafana/loki pkg/logcli/output/jsonl.go@fbb1d74), clouds `message` or
`textPayload`, Google's within `jsonPayload`, Datadog's within `content` or `attributes`, journalctl
`MESSAGE`, stern `message` and `podName` (-o json) or `pod` (-o extjson), and Kaggle's file of a
notebook's log, one array, `data` and seconds since it began, which order nothing. A record
with a step is the framework's own (Torchtitan's spans have a `message` and a `time`)."""

_PAIR: Final = rb'([\w.@-]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)'
_LOGFMT: Final = re.compile(rb"%s(?: +%s)+\s*" % (_PAIR, _PAIR))
_PAIRS: Final = re.compile(_PAIR)
_ESCAPE: Final = re.compile(rb"\\(?:x([\da-f]{2})|([av])|.)", re.DOTALL)
_CONTROL: Final = {b"a": rb"\u0007", b"v": rb"\u000b"}


def unwrap_json_record(texts_have_newlines: bool, line: bytes) -> UnwrappedLine | None:  # noqa: FBT001 - a partial's first argument
    """The text of a record of JSON.

    texts_have_newlines: texts have their newlines, so one without it goes on in the next record.
    """
    if (found := _of_json(line)) is None:
        return None
    text, at = found
    return UnwrappedLine(
        _bytes(text.removesuffix("\n")), at, texts_have_newlines and not text.endswith("\n")
    )


def has_text_newline(line: bytes) -> bool:
    """Whether it is a record whose text has its newline."""
    return (found := _of_json(line)) is not None and found[0].endswith("\n")


def _of_json(line: bytes) -> tuple[str, bytes] | None:
    text = line.strip()
    if in_array := text.startswith((b"[{", b",{")):  # one record of it on each line
        text = text[1:].removesuffix(b"]")
    if not text.startswith(b"{"):
        return None
    with suppress(ValueError, RecursionError):
        said = json.loads(text)
        if isinstance(said, dict) and said.keys() == KAGGLE_KEYS and isinstance(said["data"], str):
            return said["data"], b""
        if isinstance(said, dict) and not in_array:
            return _message(said)
    return None


def _message(said: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """The text of a record that also says when or where it was taken, and that time."""
    for key in NESTED_RECORD_KEYS:
        if isinstance(inner := said.get(key), dict):
            said = {**inner, **said}
    taken = [said[key] for key in ORIGIN_KEYS if key in said]
    if STEP_RECORD_KEY in said or not taken:
        return None
    texts = [text for key in MESSAGE_KEYS if (text := _text(said.get(key))) is not None]
    return (texts[0], _time(str(taken[0]))) if len(texts) == 1 else None


def _text(value: object) -> str | None:
    """A text; journalctl writes one with colours as the numbers of its bytes."""
    if isinstance(value, list):
        with suppress(ValueError, TypeError):
            return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def unwrap_logfmt(line: bytes) -> UnwrappedLine | None:
    """The text of a line of `key=value`, or `key="value"`."""
    if not _LOGFMT.fullmatch(line):
        return None
    with suppress(ValueError):
        said = {key.decode(): _unquoted(value) for key, value in _PAIRS.findall(line)}
        if found := _message(said):
            return UnwrappedLine(_bytes(found[0].removesuffix("\n")), found[1])
    return None


def _unquoted(value: bytes) -> str:
    """A value that Go has quoted, without the quotes. Raises ValueError."""
    if not value.startswith(b'"'):
        return value.decode("utf-8", "replace")
    return str(json.loads(_ESCAPE.sub(_as_json, value)))


def _as_json(escape: re.Match[bytes]) -> bytes:
    return rb"\u00" + escape[1] if escape[1] else _CONTROL.get(escape[2], escape[0])


def _time(text: str) -> bytes:
    """A time up to its second, where times that are written so stand in the order of time."""
    return text[:19].encode() if text[:4].isdecimal() else b""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


# -- JSON over many lines ----------------------------------------------------------------------

_QUOTED: Final = re.compile(rb'\s*(?:"(?:message|textPayload)": )?("(?:[^"\\]|\\.)*"),?\s*')
_TAKEN: Final = re.compile(rb'\s*"timestamp": "?([\dT:-]{10,19})')
_OF_QUOTED: Final = re.compile(rb'\s*\{\s*"(?:cells|events)": \[|\s*\[\s*\{\s*"insertId": "')
"""A notebook, what `aws logs get-log-events` and `gcloud logging read --format=json` print."""


def unwrap_json_text(line: bytes) -> UnwrappedLine:
    """A line of JSON that is one text, of what a cell printed or of its source; else nothing."""
    if match := _QUOTED.fullmatch(line):
        with suppress(ValueError):
            return UnwrappedLine(_bytes(json.loads(match[1]).removesuffix("\n")))
    taken = _TAKEN.match(line)
    return UnwrappedLine(b"", taken[1] if taken else b"")


_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"')
MIN_INNER_LINES: Final = 3
"""Lines that a text of JSON has at least, if it is a log."""


def unwrap_json_texts(line: bytes) -> UnwrappedLine | None:
    """The lines of all texts of several lines in a line of JSON, such as an issue's body."""
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
    """The column of a CSV file that holds the lines; one cell may hold several of them."""

    def __init__(self, time_column: int, message_column: int) -> None:
        """Places of the columns."""
        self._taken, self._message = time_column, message_column
        self._open: int | None = None
        self._heading = True

    def __call__(self, line: bytes) -> UnwrappedLine:
        """What a line holds of the column: nothing of the heading."""
        if self._heading:
            self._heading = not line.strip()
            return UnwrappedLine(b"")
        found = dict(self.cells(line))
        taken = found.get(self._taken, b"").decode("utf-8", "replace")
        return UnwrappedLine(found.get(self._message, b""), _time(taken))

    def cells(self, line: bytes) -> Iterator[tuple[int, bytes]]:
        """The cells of a line, by their columns; one that is open goes on in the next."""
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


# -- lines that a terminal broke ---------------------------------------------------------------

_WORD: Final = BROKEN_BY_TERMINALS.word
_BEGINS: Final = BROKEN_BY_TERMINALS.begins
_FIELD: Final = BROKEN_BY_TERMINALS.field
MAX_PADDING_BLANKS: Final = BROKEN_BY_TERMINALS.max_padding_blanks


def _begins_step(line: bytes) -> bool:
    """Return whether a step line begins in a line; of most the word alone tells."""
    at = line.find(_WORD)
    return at >= 0 and _BEGINS.search(line, max(at - 1, 0)) is not None


class BrokenStepLines:
    """Step lines of barred fields, each broken where a terminal of so many columns ended."""

    def __init__(self, columns: int) -> None:
        """Nothing is open yet."""
        self._columns = columns
        self._before: bytes | None = None

    def __call__(self, line: bytes) -> UnwrappedLine:
        """A line; the rest of a step line belongs to the piece of it before."""
        line, before = line.rstrip(b"\r"), self._before
        goes_on = before is not None and self._belongs(before, line)
        self._before = line if goes_on or _begins_step(line) else None
        if not goes_on or before is None:
            return UnwrappedLine(line)
        return UnwrappedLine(b" " * (self._columns - len(before)) + line, continues=True)

    def _belongs(self, before: bytes, line: bytes) -> bool:
        """Whether a line goes on with a step line that the piece before has not ended."""
        wide = len(before) + MAX_PADDING_BLANKS >= self._columns or not _ended_field(before)
        return wide and len(line) <= self._columns and _may_go_on(before, line)


def detect_terminal_width(lines: Sequence[bytes], beginning: bytes) -> MakeUnwrap | None:
    """What puts step lines together that are all broken at the same column."""
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
    """Whether the line behind a piece of a step line may be the rest of it, however wide both are.

    Mostly the first step line's tells that a log is no terminal's copy.
    """
    if not behind.strip() or _begins_step(behind):
        return False
    return not _ended_field(line) or _FIELD.match(behind) is not None


def _ended_field(line: bytes) -> bool:
    """Whether a piece of a step line ends behind one of its fields."""
    return line.rstrip().endswith(b"|")


def _put_together(lines: Iterable[bytes], unwrap: BrokenStepLines) -> Iterator[bytes]:
    """Lines, each with the rest of it."""
    whole = b""
    for piece in map(unwrap, lines):
        if not piece.continues:
            yield whole
            whole = b""
        whole += piece.text
    yield whole


# -- dicts that each node prints ---------------------------------------------------------------

_DICT: Final = PRINTED_BY_NODES.dict_of_line
LOSS_DICT_START: Final = PRINTED_BY_NODES.begins
MAX_SAMPLED_DICTS: Final = 64
"""So many tell whether each stands there several times."""
MIN_COPIED_STEPS: Final = 3
"""Steps of which each has to stand there as often, but for the last."""
MAX_OPEN_STEPS: Final = MIN_COPIED_STEPS - 1
"""Steps of which copies are still waited for, at most: nodes wait for each other in each step.
Where a training is run again with the same seed, each step may read as it did, behind them all."""


class NodeCopies:
    """Dicts of the Trainer's steps without the copies that other nodes print into the same file.

    By default it prints them on each node (`log_on_each_node`), the same to the last digit, for
    their figures are of all nodes. Without a tag (`srun` without --label) nothing tells whose they
    are, and without a step in them each would be a step more.
    """

    def __init__(self, nodes: int) -> None:
        """nodes: how often each stands there."""
        self._nodes = nodes
        self._seen: dict[bytes, int] = {}

    def __call__(self, line: bytes) -> UnwrappedLine | None:
        """A line with a dict; of a copy what stands before it."""
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
    """What takes off the copies of several nodes, where all steps have as many.

    lines: from the first one with a step on.
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


# -- which of them -----------------------------------------------------------------------------

RECORD_STARTS: Final = (rb"\s*[\[,]?\{", rb"[\w.@-]+=")
"""How a record of JSON or logfmt begins."""


@cache
def _wrapped_start() -> re.Pattern[bytes]:
    """How a wrapped line may begin; compiled where a text is read, which takes 2.5 ms."""
    starts = (*RECORD_STARTS, *(prefix.pattern for prefix in line_prefixes()))
    return re.compile(re.sub(rb"\(\?P<\w+>", b"(?:", b"|".join(starts)))


def detect_file_envelope(lines: Sequence[bytes], beginning: bytes) -> MakeUnwrap | None:
    """What a whole file is wrapped in, by how it begins."""
    if _OF_QUOTED.match(beginning):
        return lambda: unwrap_json_text
    columns = _columns(next(filter(bytes.strip, lines), b""))
    return partial(CsvCells, *columns) if columns else None


def _columns(heading: bytes) -> tuple[int, int] | None:
    """Places of the time and of the line in a CSV export; None where that is no heading of one."""
    if not _HEADING.fullmatch(heading):
        return None
    cells = CsvCells(0, 0).cells(heading.removeprefix(b"\xef\xbb\xbf"))
    names = [cell.decode().strip().lstrip("@_").lower() for _, cell in cells]
    taken = [place for place, name in enumerate(names) if name in ORIGIN_KEYS]
    message = [place for place, name in enumerate(names) if name in _OF_MESSAGES]
    return (
        (taken[0], message[0])
        if taken and len(message) == 1 and STEP_RECORD_KEY not in names
        else None
    )


def detect_line_envelope(lines: Sequence[bytes]) -> MakeUnwrap | None:
    """What lines are wrapped in."""
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
    """Whether half of the lines begin as wrapped ones do; as soon as that is known."""
    others, starts = len(lines) - max(MIN_ALIKE_LINES, len(lines) / 2), _wrapped_start().match
    for line in lines:
        others -= starts(line) is None
        if others < 0:
            return False
    return len(lines) >= MIN_ALIKE_LINES


def _matches(regex: re.Pattern[bytes], lines: Iterable[bytes]) -> list[re.Match[bytes]]:
    return [match for line in lines if (match := regex.match(line))]
