"""What collectors of logs put around each line, taken off: Kubernetes, Docker, clouds, Ray, MPI.

A record of JSON whose one text is the line; or words before it: a stamp with its zone, the name of
a pod, a host or an actor. The beginning of a file tells which: half of its lines have them. They go
before anything is read, so a config that is printed over several lines is whole again, and quotes
that JSON has escaped are quotes. Ranks of launchers (`[rank0]:`, `0: `) stay: they tell something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

LOOKED_AT: Final = 1_000
SAMPLED: Final = 64
"""Lines of a beginning that are looked at: so many of these, evenly apart."""
LEAST: Final = 2
"""Lines that have to look alike."""
MOST: Final = 3
"""Wrappings of one file, one within another."""

MESSAGES: Final = ("log", "line", "message", "msg", "textPayload")
TIMES: Final = frozenset({"time", "timestamp", "ts", "@timestamp", "date", "asctime"})
OWN: Final = "step"
"""Keys of a record: of the line, and of when it was taken. Docker's json-file has `log` and `time`
(moby/moby daemon/logger/jsonfilelog/jsonlog/jsonlog.go@2200d93 JSONLog), Loki's logcli `line` and
`timestamp` (grafana/loki pkg/logcli/output/jsonl.go@fbb1d74), clouds `message` or `textPayload`. A
record with a step is the framework's own (Torchtitan's spans have a `message` and a `time`)."""

ISO: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
PARTIAL: Final = b" P "
"""Behind `stdout` or `stderr`: a part of a line, as Kubernetes' runtimes cut long ones
(kubernetes/kubernetes pkg/kubelet/kuberuntime/logs/logs.go@81b7503 parseCRILog)."""

PREFIXES: Final = tuple(
    re.compile(prefix)
    for prefix in (
        rb"%s (?:stdout|stderr) [FP] " % ISO,
        rb"%s [\w.-]+/[\w./-]+ " % ISO,  # aws logs tail
        rb"%s[ \t]" % ISO,  # kubectl logs --timestamps, docker logs -t, GitHub Actions
        rb"<\d{1,3}>1 %s \S+ \S+ \S+ \S+ - " % ISO,  # syslog, RFC 5424
        rb"\[pod/[^\]\s]+\] ",  # kubectl logs --prefix
        rb"(?:\x1b\[\d+m)?\(\w[\w.:-]* pid=\d+(?:, ip=[\w.:]+)?\)(?:\x1b\[0m)? ?",  # Ray
        rb"\[\d+,mpirank:\d+,[\w.-]+\]<std(?:out|err)>: ?",  # SageMaker
        rb"(?:\d{1,3}(?:\.\d{1,3}){3}|worker-\d+): ",  # pdsh
        rb"[\w.-]+-\d+ +\| ",  # docker compose
        rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:[\w.-]+ [\w.@/-]+\[\d+\]: )?",  # journalctl, ts
        # Airflow, and its pods
        rb"\[[\d-]{10}[T,] ?[\d:]{8}(?: UTC|[.\d]*[+-]\d{4})\] \{\w+\.py:\d+\} [A-Z]+ - "
        rb"(?:\[base\] )?",
        rb"\[%s\] " % ISO,  # Jenkins
    )
)

_MAY_BE: Final = re.compile(b"|".join((rb"\s*\{", *(one.pattern for one in PREFIXES))))

REPEATED: Final = re.compile(
    rb"(?:\x1b\[\d+m)? \[repeated \d+x across cluster\](?: \(Ray deduplicates .*)?(?:\x1b\[0m)?\s*$"
)
"""What Ray adds to a line that several actors printed (ray-project/ray
python/ray/_private/ray_logging/__init__.py@1359121 LogDeduplicator)."""

_QUOTED: Final = re.compile(rb'\s*(?:"message": )?("(?:[^"\\]|\\.)*"),?\s*')
_OF_QUOTED: Final = re.compile(rb'\s*\{\s*"(?:cells|events)": \[')
"""A notebook, and what `aws logs get-log-events` prints: JSON over many lines."""


class Piece(NamedTuple):
    """What a line holds: a text, and whether it is only a part of one."""

    text: bytes
    partial: bool = False


Unwrap = Callable[[bytes], Piece | None]
"""A line, without its newline, as what it holds; None of one that is not wrapped so."""


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def unwrapping(beginning: bytes) -> Sequence[Unwrap]:
    """What takes off the wrappings of a file that begins so, the outermost first."""
    lines = [line for line in beginning.split(b"\n", LOOKED_AT)[:-1] if line.strip()]
    lines = lines[:: len(lines) // SAMPLED | 1]  # odd: of lines cut in two both halves
    found: list[Unwrap] = []
    unwrap = _quoted if _OF_QUOTED.match(beginning) else _of(lines)
    while unwrap is not None and len(found) < MOST:
        found.append(unwrap)
        lines = [piece.text for piece in map(unwrap, lines) if piece and piece.text.strip()]
        unwrap = _of(lines)
    return found


class Unwrapped:
    """A stream of lines without what is around them."""

    def __init__(self, stream: _Readable, wrappings: Iterable[Unwrap]) -> None:
        self._stream, self._wrappings = stream, tuple(wrappings)
        self._rest = self._parts = self._ready = b""

    def read(self, size: int = 1 << 22, /) -> bytes:
        """So many bytes at most, none at the end."""
        while not self._ready and (block := self._stream.read(size)):
            self._ready = self.given(block)
        if not self._ready and (self._rest or self._parts):
            self._ready, self._rest = self._parts + self._text(self._rest), b""
            self._parts = b""
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def given(self, block: bytes) -> bytes:
        """The lines that end in the next block."""
        block = self._rest + block
        end = block.rfind(b"\n") + 1
        self._rest = block[end:]
        return b"".join(map(self._line, _lines(block[:end])))

    def _line(self, line: bytes) -> bytes:
        """A line; of one in parts nothing before the last, but a blank line: numbers go on."""
        piece = self._piece(line)
        if piece.partial:
            self._parts += piece.text
            return b"\n"
        whole, self._parts = self._parts + piece.text, b""
        return whole + b"\n"

    def _text(self, line: bytes) -> bytes:
        return self._piece(line).text

    def _piece(self, line: bytes) -> Piece:
        partial = False
        for unwrap in self._wrappings:
            if (piece := unwrap(line)) is not None:
                line, partial = piece.text, partial or piece.partial
        return Piece(line, partial)


def _lines(data: bytes) -> Iterator[bytes]:
    """Those that end in `data`, without their newlines."""
    return iter(data.split(b"\n")[:-1])


def _of(lines: Sequence[bytes]) -> Unwrap | None:
    """What half of the lines are wrapped in."""
    if not any(map(_MAY_BE.match, lines)):
        return None
    ends = any(_ended(line) for line in lines)
    for unwrap in (partial(_record, ends), *(partial(_prefixed, prefix) for prefix in PREFIXES)):
        alike = sum(unwrap(line) is not None for line in lines)
        if alike >= max(LEAST, len(lines) / 2):
            return unwrap
    return None


def _prefixed(prefix: re.Pattern[bytes], line: bytes) -> Piece | None:
    if (match := prefix.match(line)) is None:
        return None
    text = line[match.end() :]
    if b" across cluster]" in text:
        text = REPEATED.sub(b"", text)
    return Piece(text, match[0].endswith(PARTIAL))


def _record(ends: bool, line: bytes) -> Piece | None:  # noqa: FBT001 - a partial's first argument
    """ends: texts have their newlines, so one without it goes on in the next record."""
    text = _message(line)
    if text is None:
        return None
    return Piece(_bytes(text.removesuffix("\n")), ends and not text.endswith("\n"))


def _ended(line: bytes) -> bool:
    return (_message(line) or "").endswith("\n")


def _message(line: bytes) -> str | None:
    """The text of a record of JSON that also says when it was taken."""
    if not line.lstrip().startswith(b"{"):
        return None
    with suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict) and OWN not in record and not TIMES.isdisjoint(record):
            texts = [record[key] for key in MESSAGES if isinstance(record.get(key), str)]
            return texts[0] if len(texts) == 1 else None
    return None


def _quoted(line: bytes) -> Piece | None:
    """A line of JSON that is one text, of what a cell printed or of its source; else nothing."""
    if match := _QUOTED.fullmatch(line):
        with suppress(ValueError):
            return Piece(_bytes(json.loads(match[1]).removesuffix("\n")))
    return Piece(b"")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
