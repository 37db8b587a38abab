"""Remove the envelopes of log collectors: Kubernetes, Docker, clouds, Ray, MPI.

The beginning of a file shows the envelope (ingest.decode.log_collectors). Envelopes go before any
parsing, so a config printed over several lines is whole again, and quotes escaped by JSON are
quotes. Ranks of launchers (`[rank0]:`, `0: `) stay: they are information. Stamps of collectors go:
they show the arrival of a line, so a log without stamps of its own has no times.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from . import ansi_residue, copied_text
from .known_lines import known_lines
from .learned_prefix import detect_learned_prefix
from .line_text import holds
from .log_collectors import (
    LOSS_DICT_START,
    MakeUnwrap,
    Unwrap,
    UnwrappedLine,
    detect_file_envelope,
    detect_line_envelope,
    detect_node_copies,
    detect_terminal_width,
    unwrap_json_texts,
)
from .wrapped_lines import detect_wrapped_lines

MAX_BEGINNING_LINES: Final = 1_000
MAX_SAMPLED_LINES: Final = 64
"""Lines sampled, at equal distances, from the first MAX_BEGINNING_LINES."""
MAX_ENVELOPES: Final = 3
"""Nested envelopes of a file."""
MAX_REMEMBERED_FILES: Final = 2
"""Cached beginnings, of a few megabytes at most."""
MIN_ORDERED_TIMES: Final = 3
"""Distinct times that show the order of lines."""

KeepsEnvelope = Callable[[Unwrap, Sequence[bytes]], bool]
"""Returns whether lines wrapped like this stay: a user's format reads them as they are."""


class ByteStream(Protocol):
    """A stream of bytes."""

    def read(self, size: int = ..., /) -> bytes:
        """Return at most `size` bytes; none at the end."""


class Envelopes(NamedTuple):
    """Removals of a file's envelopes, the outermost first.

    newest_first: the order of the lines.
    """

    unwraps: Sequence[Unwrap] = ()
    newest_first: bool = False


def keeps_none(*_: object) -> bool:
    """Keep no envelope: there is no user's format."""
    return False


def detect_envelopes(beginning: bytes, keeps_envelope: KeepsEnvelope = keeps_none) -> Envelopes:
    """Return the removals of the envelopes of a file with this beginning."""
    made, newest_first = _detect(beginning, keeps_envelope)
    return Envelopes([make() for make in made], newest_first)


@lru_cache(MAX_REMEMBERED_FILES)
def _detect(beginning: bytes, keeps_envelope: KeepsEnvelope) -> tuple[Sequence[MakeUnwrap], bool]:
    """Return makers of `Envelopes.unwraps`, and newest_first.

    Cached for a second reading.
    """
    every, first = _lines_of(beginning), list[MakeUnwrap]()
    if colour := ansi_residue.detect_colours(every, _sample(every), beginning):
        bare = partial(ansi_residue.strip_colours, colour)
        if not keeps_envelope(bare, every):
            first.append(lambda: bare)
            beginning = colour.sub(b"", beginning)
            every = _lines_of(beginning)
    for undone in copied_text.detect_copy(beginning):
        if not keeps_envelope(undone, every):
            first.append(partial(partial, undone))
            every = [*_texts(every, [undone])]
    lines = every
    if (made := detect_file_envelope(every, beginning)) is None:
        lines = _sample(every)
        made = _detect_line_envelope(lines)
    nested, newest_first = list[MakeUnwrap](), False
    while made is not None and len(nested) < MAX_ENVELOPES and not keeps_envelope(made(), lines):
        nested.append(made)
        pieces = [piece for piece in map(made(), lines) if piece]
        newest_first = newest_first or _falls([piece.at for piece in pieces if piece.at])
        lines = _sample([piece.text for piece in pieces])
        made = _detect_line_envelope(lines)
    bare_lines = _whole_texts(every, [make() for make in nested])
    made = detect_wrapped_lines(bare_lines)
    made = made or (None if nested else detect_terminal_width(every, beginning))
    if made is not None and not keeps_envelope(made(), bare_lines):
        nested.append(made)
    steps = _lines_from(beginning, LOSS_DICT_START)
    made = detect_node_copies(_texts(steps, [make() for make in nested])) if steps else None
    if made is not None and not keeps_envelope(made(), steps):
        nested.append(made)
    return (*first, *nested), newest_first


def _detect_line_envelope(lines: Sequence[bytes]) -> MakeUnwrap | None:
    """Return the envelope of lines: one of a known collector, else a learned one."""
    return detect_line_envelope(lines) or detect_learned_prefix(lines)


def _lines_of(beginning: bytes) -> list[bytes]:
    """Return the first lines, without a last one that may continue."""
    return beginning.split(b"\n", MAX_BEGINNING_LINES)[:-1]


def _lines_from(beginning: bytes, text: bytes) -> list[bytes]:
    """Return the lines from the first one with a text on."""
    if not holds(beginning, text):
        return []
    return beginning[beginning.rfind(b"\n", 0, beginning.find(text)) + 1 :].split(b"\n")[:-1]


def _whole_texts(lines: Sequence[bytes], unwraps: Sequence[Unwrap]) -> Sequence[bytes]:
    """Return the lines without these envelopes; empty if an envelope joins lines."""
    for unwrap in unwraps:
        pieces = [unwrap(line) or UnwrappedLine(line) for line in lines]
        if any(piece.partial or piece.continues for piece in pieces):
            return ()
        lines = [piece.text for piece in pieces]
    return lines


def _texts(lines: Iterable[bytes], unwraps: Sequence[Unwrap]) -> Iterator[bytes]:
    """Yield the lines without these envelopes, none joined."""
    for line in lines:
        for unwrap in unwraps:
            line = piece.text if (piece := unwrap(line)) is not None else line  # noqa: PLW2901
        yield line


def _sample(lines: list[bytes]) -> list[bytes]:
    few = lines[:: len(lines) // MAX_SAMPLED_LINES | 1]  # odd: covers both halves of cut lines
    return [line for line in few if line.strip()]


def _falls(times: Sequence[bytes]) -> bool:
    """Return whether times fall from line to line."""
    return len(set(times)) >= MIN_ORDERED_TIMES and all(x >= y for x, y in pairwise(times))


class LineTags:
    """Origins of the lines of a file: names of pods, containers, hosts or files.

    names: name to number, from 1, in order of appearance. numbers: number of the name, per line; 0
    without a name.
    """

    def __init__(self) -> None:
        """Set up without lines."""
        self.names: dict[bytes, int] = {}
        self.numbers = array("H")

    def add(self, name: bytes) -> None:
        """Add the name of the next line; empty for none."""
        number = self.names.setdefault(name, len(self.names) + 1) if name else 0
        self.numbers.append(min(number, MAX_TAGS))


MAX_TAGS: Final = 2**16 - 1
"""Distinct names: later names share this number."""


def detect_json_texts(beginning: bytes) -> Unwrap | None:
    """Return the removal of JSON around texts of several lines, if a text is a log.

    A text is a log if its lines have more values than the same text as one line.
    """
    if beginning.lstrip()[:1] not in (b"{", b"[", b'"') or not holds(beginning, b"\\n"):
        return None
    known = known_lines()
    for line in beginning.split(b"\n", MAX_BEGINNING_LINES):
        if (piece := unwrap_json_texts(line)) is not None:
            inside = piece.text.split(b"\n", MAX_BEGINNING_LINES)
            if sum(map(known.count, inside)) > known.count(line):
                return unwrap_json_texts
    return None


class UnwrappedStream:
    """A stream of lines without envelopes. tags: origins of the lines."""

    def __init__(self, stream: ByteStream, unwraps: Iterable[Unwrap]) -> None:
        self._stream, self._wrappings = stream, tuple(unwraps)
        self.tags = LineTags()
        self._rest = self._ready = b""
        self._held: bytes | None = None
        self._goes_on = False

    def read(self, size: int = 1 << 22, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        while not self._ready and (block := self._stream.read(size)):
            self._ready = self.given(block)
        if not self._ready:
            self._ready = self._last()
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def given(self, block: bytes) -> bytes:
        """Return the lines completed by the next block.

        The last may continue in a later one.
        """
        block = self._rest + block
        end = block.rfind(b"\n") + 1
        self._rest = block[end:]
        return b"".join(map(self._line, _lines(block[:end])))

    def _last(self) -> bytes:
        """Return the rest at the end."""
        before = self._line(self._rest) if self._rest else b""
        held, newline = self._held, b"" if self._rest or self._goes_on else b"\n"
        self._rest, self._held = b"", None
        return before + (b"" if held is None else held + newline)

    def _line(self, line: bytes) -> bytes:
        """Return the previous line.

        Pieces of a joined line become empty lines, and the last has the whole text, so line numbers
        stay right.
        """
        piece, held = self._piece(line), self._held
        joined = held is not None and (self._goes_on or piece.continues)
        self._goes_on = piece.partial
        self._held = held + piece.text if held is not None and joined else piece.text
        return b"" if held is None else b"\n" if joined else held + b"\n"

    def _piece(self, line: bytes) -> UnwrappedLine:
        partial = continues = False
        tag = b""
        for unwrap in self._wrappings:
            if (piece := unwrap(line)) is not None:
                line, tag = piece.text, tag or piece.tag
                partial, continues = partial or piece.partial, continues or piece.continues
        self.tags.add(tag)
        return UnwrappedLine(line, partial=partial, continues=continues)


def _lines(data: bytes) -> Iterator[bytes]:
    """Return the complete lines of `data`, without newlines."""
    return iter(data.split(b"\n")[:-1])
