"""What collectors of logs put around each line, taken off: Kubernetes, Docker, clouds, Ray, MPI.

The beginning of a file tells which (ingest.decode.log_collectors). They go before anything is
read, so a config that is printed over several lines is whole again, and quotes that JSON has
escaped are quotes. Ranks of launchers (`[rank0]:`, `0: `) stay: they tell something. Stamps of
collectors go: they say when a line arrived, and where a log has none of its own, it has none.
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
"""Lines of a beginning that are looked at: so many of these, evenly apart."""
MAX_ENVELOPES: Final = 3
"""Wrappings of one file, one within another."""
MAX_REMEMBERED_FILES: Final = 2
"""Beginnings that are held, each of a few megabytes at most."""
MIN_ORDERED_TIMES: Final = 3
"""Times of lines that tell their order."""

KeepsEnvelope = Callable[[Unwrap, Sequence[bytes]], bool]
"""Whether lines that are wrapped so are to stay: a format of a user's is of them."""


class ByteStream(Protocol):
    """A stream of bytes."""

    def read(self, size: int = ..., /) -> bytes:
        """So many bytes at most, none at the end."""


class Envelopes(NamedTuple):
    """What takes off the wrappings of a file, the outermost first; newest_first: of its lines."""

    unwraps: Sequence[Unwrap] = ()
    newest_first: bool = False


def keeps_none(*_: object) -> bool:
    """Keep no envelope: no format of a user's is there."""
    return False


def detect_envelopes(beginning: bytes, keeps_envelope: KeepsEnvelope = keeps_none) -> Envelopes:
    """What takes off the wrappings of a file that begins so."""
    made, newest_first = _detect(beginning, keeps_envelope)
    return Envelopes([make() for make in made], newest_first)


@lru_cache(MAX_REMEMBERED_FILES)
def _detect(beginning: bytes, keeps_envelope: KeepsEnvelope) -> tuple[Sequence[MakeUnwrap], bool]:
    """Return makers of `Envelopes.unwraps`, and its newest_first: a file may be read again."""
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
    found, newest_first = list[MakeUnwrap](), False
    while made is not None and len(found) < MAX_ENVELOPES and not keeps_envelope(made(), lines):
        found.append(made)
        pieces = [piece for piece in map(made(), lines) if piece]
        newest_first = newest_first or _falls([piece.at for piece in pieces if piece.at])
        lines = _sample([piece.text for piece in pieces])
        made = _detect_line_envelope(lines)
    bare_lines = _whole_texts(every, [one() for one in found])
    made = detect_wrapped_lines(bare_lines)
    made = made or (None if found else detect_terminal_width(every, beginning))
    if made is not None and not keeps_envelope(made(), bare_lines):
        found.append(made)
    steps = _behind(beginning, LOSS_DICT_START)
    made = detect_node_copies(_texts(steps, [one() for one in found])) if steps else None
    if made is not None and not keeps_envelope(made(), steps):
        found.append(made)
    return (*first, *found), newest_first


def _detect_line_envelope(lines: Sequence[bytes]) -> MakeUnwrap | None:
    """Return the wrapping of lines: as collectors are known to, else as the lines show."""
    return detect_line_envelope(lines) or detect_learned_prefix(lines)


def _lines_of(beginning: bytes) -> list[bytes]:
    """The first lines, without one that may go on."""
    return beginning.split(b"\n", MAX_BEGINNING_LINES)[:-1]


def _behind(beginning: bytes, text: bytes) -> list[bytes]:
    """The lines from the first one on that holds a text."""
    at = beginning.find(text)
    return [] if at < 0 else beginning[beginning.rfind(b"\n", 0, at) + 1 :].split(b"\n")[:-1]


def _whole_texts(lines: Sequence[bytes], unwraps: Sequence[Unwrap]) -> Sequence[bytes]:
    """The lines without these wrappings; none where a wrapping tells of itself which go on."""
    for unwrap in unwraps:
        pieces = [unwrap(line) or UnwrappedLine(line) for line in lines]
        if any(piece.partial or piece.continues for piece in pieces):
            return ()
        lines = [piece.text for piece in pieces]
    return lines


def _texts(lines: Iterable[bytes], unwraps: Sequence[Unwrap]) -> Iterator[bytes]:
    """The lines without these wrappings, each by itself."""
    for line in lines:
        for unwrap in unwraps:
            line = piece.text if (piece := unwrap(line)) is not None else line  # noqa: PLW2901
        yield line


def _sample(lines: list[bytes]) -> list[bytes]:
    few = lines[:: len(lines) // MAX_SAMPLED_LINES | 1]  # odd: of lines cut in two both halves
    return [line for line in few if line.strip()]


def _falls(times: Sequence[bytes]) -> bool:
    """Whether times go back from each line to the next."""
    return len(set(times)) >= MIN_ORDERED_TIMES and all(x >= y for x, y in pairwise(times))


class LineTags:
    """Whose each line of a file is: the name of its pod, container, host or file.

    names: numbers of the names, from 1, in the order in which they come; numbers: that of each
    line, 0 of one without a name
    """

    def __init__(self) -> None:
        """No line yet."""
        self.names: dict[bytes, int] = {}
        self.numbers = array("H")

    def add(self, name: bytes) -> None:
        """The name of the next line, or none."""
        number = self.names.setdefault(name, len(self.names) + 1) if name else 0
        self.numbers.append(min(number, MAX_TAGS))


MAX_TAGS: Final = 2**16 - 1
"""Names that are told apart, at most."""


def detect_json_texts(beginning: bytes) -> Unwrap | None:
    """Return what takes the texts of several lines out of JSON, where a log stands in one.

    One does if its lines say more by themselves than they do as one line.
    """
    if beginning.lstrip()[:1] not in (b"{", b"[", b'"') or b"\\n" not in beginning:
        return None
    known = known_lines()
    for line in beginning.split(b"\n", MAX_BEGINNING_LINES):
        if (piece := unwrap_json_texts(line)) is not None:
            inside = piece.text.split(b"\n", MAX_BEGINNING_LINES)
            if sum(map(known.count, inside)) > known.count(line):
                return unwrap_json_texts
    return None


class UnwrappedStream:
    """A stream of lines without what is around them; tags: whose each line is."""

    def __init__(self, stream: ByteStream, unwraps: Iterable[Unwrap]) -> None:
        self._stream, self._wrappings = stream, tuple(unwraps)
        self.tags = LineTags()
        self._rest = self._ready = b""
        self._held: bytes | None = None
        self._goes_on = False

    def read(self, size: int = 1 << 22, /) -> bytes:
        """So many bytes at most, none at the end."""
        while not self._ready and (block := self._stream.read(size)):
            self._ready = self.given(block)
        if not self._ready:
            self._ready = self._last()
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def given(self, block: bytes) -> bytes:
        """The lines that are whole with the next block; the last may go on in the one after."""
        block = self._rest + block
        end = block.rfind(b"\n") + 1
        self._rest = block[end:]
        return b"".join(map(self._line, _lines(block[:end])))

    def _last(self) -> bytes:
        """What is left at the end."""
        before = self._line(self._rest) if self._rest else b""
        held, newline = self._held, b"" if self._rest or self._goes_on else b"\n"
        self._rest, self._held = b"", None
        return before + (b"" if held is None else held + newline)

    def _line(self, line: bytes) -> bytes:
        """The line before; of one in parts all in the last, and others blank: numbers go on."""
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
    """Lines that end within `data`, without their newlines."""
    return iter(data.split(b"\n")[:-1])
