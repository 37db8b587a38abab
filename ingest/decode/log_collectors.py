"""What collectors of logs put around each line, as data where it can be, and how it is taken off.

Words before a line (`PREFIXES`), a record of JSON or logfmt whose one text is the line, a cell of a
CSV file, JSON over many lines. A false one is worse than none: words that a log may print itself
count only where (nearly) all lines have the same ones, numbers only where they rise.
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

MIN_ALIKE_LINES: Final = 2
"""Lines that have to look alike."""
MIN_RISING_LINES: Final = 5
"""Lines whose numbers have to rise."""
MIN_MATCHING_SHARE: Final = 0.9
MIN_LINES_PER_NAME: Final = 4
"""Lines that those of one pod, host or file have to be on average."""


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

IsCollector = Callable[[Sequence[re.Match[bytes]], int], bool]
"""Whether matches in so many lines are a collector's and not the log's own."""

# -- words before a line -----------------------------------------------------------------------


def half_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Half of the lines have words that no log prints itself."""
    return len(matches) >= max(MIN_ALIKE_LINES, lines / 2)


def nearly_all_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Nearly all of the lines have words that a log prints itself before some."""
    return len(matches) >= max(MIN_ALIKE_LINES, lines * MIN_MATCHING_SHARE)


def few_names_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Nearly all have them, and they are those (`who`) of a few."""
    named = {match["who"] for match in matches}
    few = len(named) == 1 or len(named) * MIN_LINES_PER_NAME <= len(matches)
    return nearly_all_match(matches, lines) and few


def few_hosts_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Nearly all have a name (`who`), of few that differ in their digits alone: node1, node2."""
    named = {match["who"] for match in matches}
    alike = len({_NUMBER.sub(b"", name) for name in named}) == 1 and len(named) > 1
    return alike and few_names_match(matches, lines)


_NUMBER: Final = re.compile(rb"\d+")


def rising_numbers_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Nearly all begin with a number that rises, in each file (`who`) that is named.

    And half of them are no `clock`.
    """
    clocks = sum("clock" in m.re.groupindex and m["clock"] is not None for m in matches)
    if (
        len(matches) < max(MIN_RISING_LINES, lines * MIN_MATCHING_SHARE)
        or clocks > len(matches) / 2
    ):
        return False
    last: dict[bytes | None, int] = {}
    for match in matches:
        who, number = match.groupdict().get("who"), int(match["number"])
        if number <= last.get(who, 0):
            return False
        last[who] = number
    return len(last) == 1 or len(last) * MIN_LINES_PER_NAME <= len(matches)


_compiled = cache(re.compile)


class Prefix(NamedTuple):
    """Words before a line; groups: `at`, when it was taken, and others that `sure` asks for.

    names_hosts: `who` is one of those that one job runs on.
    """

    pattern: bytes
    sure: IsCollector = half_match
    names_hosts: bool = False

    @property
    def regex(self) -> re.Pattern[bytes]:
        """Compiled when it is first asked for: most logs are not wrapped."""
        return _compiled(self.pattern)


ISO_STAMP: Final = rb"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
SYSLOG_STAMP: Final = rb"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?"
HOST_AND_PROGRAM: Final = rb"(?!DEBUG|INFO|WARN|ERROR)[\w.-]{1,253} [\w.@/-]{1,99}"
PROCESS_ID: Final = rb"\[\d{1,9}\]: "
BYTE_ORDER_MARK: Final = rb"(?:\xef\xbb\xbf)?"
COLOUR_SEQUENCE: Final = rb"(?:\x1b\[[\d;]{0,9}m)?"
CONTAINER_NAME: Final = rb"[a-z0-9][a-z0-9-]{0,62}"
POD_NAME: Final = rb"[a-z0-9][a-z0-9.-]{0,250}-(?:\d{1,5}|[bcdfghjklmnpqrstvwxz2456789]{5})"
"""A pod's name ends with its number, or with five letters that make no word: none is a vowel."""
FILE_PATH: Final = rb"[\w./@=+-]{1,255}"
CLOCK_REST: Final = rb"\d\d(?::\d\d)?(?:[,. \]]|$)"
"""The rest of a clock (12:34:56) whose hour, or hour and minute, look like what grep adds."""

PARTIAL_FLAG: Final = b" P "
"""Behind `stdout` or `stderr`: a part of a line, as Kubernetes' runtimes cut long ones
(kubernetes/kubernetes pkg/kubelet/kuberuntime/logs/logs.go@81b7503 parseCRILog)."""
CONTINUATION_FLAGS: Final = (b"O+", b"E+")
"""Behind GitLab's stamp: the line before goes on."""

_FROM_A_HOST: Final = (
    Prefix(rb"%s %s%s" % (ISO_STAMP, HOST_AND_PROGRAM, PROCESS_ID)),
    Prefix(rb"%s (?P<who>%s): " % (ISO_STAMP, HOST_AND_PROGRAM), few_names_match),
)
"""journalctl -o short-iso, and syslog today; the number of the process may be missing."""

PREFIXES: Final = (
    Prefix(rb"(?:> ?){1,9}", nearly_all_match),  # quoted in a thread; Megatron begins some lines so
    Prefix(rb"%s (?:stdout|stderr) [FP] " % ISO_STAMP),
    Prefix(rb"%s [\da-f]{2}[OE][ +]" % ISO_STAMP),  # GitLab CI
    *_FROM_A_HOST,
    Prefix(rb'%s +\{(?:\w+="(?:[^"\\]|\\.)*"(?:, ?)?)+\} +' % ISO_STAMP),  # logcli
    Prefix(rb"%s [\w.-]+/[\w./-]+ " % ISO_STAMP),  # aws logs tail
    Prefix(
        rb"[^\t\n]{1,99}+\t[^\t\n]{1,99}+\t%s%s " % (BYTE_ORDER_MARK, ISO_STAMP)
    ),  # gh run view --log
    # kubectl logs --timestamps, docker logs -t, GitHub Actions
    Prefix(rb"%s%s[ \t]" % (BYTE_ORDER_MARK, ISO_STAMP)),
    # syslog, RFC 5424
    Prefix(
        rb"<\d{1,3}>1 %s \S+ \S+ \S+ \S+ "
        rb'(?:-|(?:\[[^\]\s]+(?: [^\s=\]]+="(?:[^"\\\]]|\\.)*")*\])+) %s'
        % (ISO_STAMP, BYTE_ORDER_MARK)
    ),
    Prefix(rb"\[(?P<who>pod/[^\]\s]+)\] "),  # kubectl logs --prefix
    Prefix(
        rb"%s(?P<who>\[%s(?: %s)?\])%s "
        % (COLOUR_SEQUENCE, POD_NAME, CONTAINER_NAME, COLOUR_SEQUENCE),
        few_names_match,
    ),
    *(  # stern, of one namespace and of several
        Prefix(
            rb"%s(?P<who>%s%s%s %s%s)%s "
            % (
                COLOUR_SEQUENCE,
                of,
                POD_NAME,
                COLOUR_SEQUENCE,
                COLOUR_SEQUENCE,
                CONTAINER_NAME,
                COLOUR_SEQUENCE,
            ),
            few_names_match,
        )
        for of in (b"", rb"%s%s %s" % (CONTAINER_NAME, COLOUR_SEQUENCE, COLOUR_SEQUENCE))
    ),
    Prefix(  # Ray
        rb"(?:\x1b\[\d+m)?\(\w[\w.:-]* pid=\d+(?:, ip=[\w.:]+)?\)(?:\x1b\[0m)? ?"
    ),
    Prefix(rb"\[\d+,mpirank:\d+,[\w.-]+\]<std(?:out|err)>: ?"),  # SageMaker
    # pdsh, `deepspeed --hostfile`
    Prefix(rb"(?P<who>\d{1,3}(?:\.\d{1,3}){3}|worker-\d+): ", names_hosts=True),
    Prefix(rb"(?P<who>(?!rank\d)[A-Za-z][\w.-]{1,99}): ", few_hosts_match, names_hosts=True),
    # docker compose, docker service logs
    Prefix(
        rb"%s(?P<who>[\w.-]+(?:-\d+|\.\d+\.\w+@[\w.-]+)) +\| %s"
        % (COLOUR_SEQUENCE, COLOUR_SEQUENCE)
    ),
    # docker-compose 1
    Prefix(
        rb"%s(?P<who>[\w.-]+_\d+) +\|%s %s" % (COLOUR_SEQUENCE, COLOUR_SEQUENCE, COLOUR_SEQUENCE),
        few_names_match,
    ),
    Prefix(rb"%s (?P<who>%s): " % (SYSLOG_STAMP, HOST_AND_PROGRAM), few_names_match),
    Prefix(
        rb"%s (?:%s%s)?" % (SYSLOG_STAMP, HOST_AND_PROGRAM, PROCESS_ID)
    ),  # journalctl, syslog, ts
    # journalctl -o short-full, -o short-unix; ts %.s
    Prefix(
        rb"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [A-Z+-]\w{1,5} %s%s"
        % (HOST_AND_PROGRAM, PROCESS_ID)
    ),
    Prefix(rb"(?P<at>\d{10})\.\d{6} (?:%s%s)?" % (HOST_AND_PROGRAM, PROCESS_ID)),
    # Airflow, and its pods
    Prefix(
        rb"\[[\d-]{10}[T,] ?[\d:]{8}(?: UTC|[.\d]*[+-]\d{4})\] \{\w+\.py:\d+\} [A-Z]+ - "
        rb"(?:\[base\] )?"
    ),
    Prefix(rb"\[%s\] " % ISO_STAMP),  # Jenkins
    Prefix(rb"(?=[ \d]{6}) {0,5}(?P<number>\d{1,9})\t", rising_numbers_match),  # cat -n, nl
    Prefix(
        rb"\d{1,7}\.\ds[ \t]+(?P<number>\d{1,9})[ \t]", rising_numbers_match
    ),  # Kaggle's page of a log
    # grep -n, grep -rn
    Prefix(
        rb"(?:(?P<who>%s):)?(?P<number>\d{1,9}):(?P<clock>(?=%s))?" % (FILE_PATH, CLOCK_REST),
        rising_numbers_match,
    ),
    Prefix(  # grep of several files
        rb"(?P<who>%s\.(?:log|out|err|txt)(?:[.-]\d+)?):" % FILE_PATH, few_names_match
    ),
)

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

_HEADING: Final = re.compile(rb'%s[\w@" ]+(?:,[\w@". ]+)+\r?' % BYTE_ORDER_MARK)
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

_STARTS: Final = (rb"\s*[\[,]?\{", rb"[\w.@-]+=", *(one.pattern for one in PREFIXES))


@cache
def _wrapped_start() -> re.Pattern[bytes]:
    """How a wrapped line may begin; compiled where a text is read, which takes 2.5 ms."""
    return re.compile(re.sub(rb"\(\?P<\w+>", b"(?:", b"|".join(_STARTS)))


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
    for prefix in PREFIXES:
        if prefix.sure(_matches(prefix.regex, lines), len(lines)):
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
