"""Which format a log has: told from its lines, never from its name.

Of several formats in one file (Megatron iteration lines between the DeepSpeed engine's) the one of
the highest precedence is primary, the others are its companions. A launch that ended before its
first step is told by its header. Two primaries, or none, is an error that says how far each
candidate got.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..core.arrays import Ints, copy_to_arrow
from ..core.errors import FairmfuError, UnknownFormatError
from ..core.prefilter import cached_prefilter
from ..core.safe_regex import GuardedRegex, Regex
from ..decode.envelopes import KeepsEnvelope
from ..decode.line_reader import (
    NEWLINE,
    READ_BLOCK_BYTES,
    Chunk,
    NumberedLine,
    Source,
    count_newlines,
)
from ..decode.text_cleaning import ANSI_ESCAPE, Cleaner, line_array
from ..formats.registry import BUILT_IN_FORMATS, STEPLESS_FILES
from ..formats.spec import TRAINER_PRECEDENCE, LogFormat
from ..vector.format_watch import FormatWatch
from . import near_misses
from .user_envelopes import envelope_keeper


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """The formats that a log may have; by name, those that may be primary: all, where none is."""

    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS
    wanted: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Names of the formats."""
        return frozenset(log_format.name for log_format in self.formats)

    @property
    def keeps_envelope(self) -> KeepsEnvelope:
        """What tells wrappings of lines that a user's format is of."""
        return envelope_keeper(self.formats, BUILT_IN_FORMATS)

    def only(self, names: Collection[str]) -> FormatChoice:
        """Formats of these names, of which one becomes primary, and what may be its companions."""
        lowest = min(f.precedence for f in self.formats if f.name in names)
        kept = (f for f in self.formats if f.name in names or f.precedence < lowest)
        return FormatChoice(tuple(kept), frozenset(names))

    def __reduce__(self) -> tuple[Callable[..., FormatChoice], tuple[object, ...]]:
        """Built-in formats by their places: other processes have them, and a pipe is soon full."""
        told = (BUILT_IN_FORMATS.index(f) if f in BUILT_IN_FORMATS else f for f in self.formats)
        return _tried, (tuple(told), self.wanted)


def _tried(formats: Iterable[int | LogFormat], wanted: frozenset[str]) -> FormatChoice:
    return FormatChoice(
        tuple(BUILT_IN_FORMATS[f] if isinstance(f, int) else f for f in formats), wanted
    )


BUILT_IN_CHOICE: Final = FormatChoice()

DetectedFormats = tuple[LogFormat, tuple[LogFormat, ...]]
"""The primary format of a file, and its companions."""


PendingPatterns = tuple[tuple[tuple[str, str], ...], frozenset[str]]
"""Patterns as a sieve takes them, and which of them are of forks of what was found."""

MAX_SNIFFED_LINES: Final = 2_000
"""Lines looked at beyond the first step of a primary format; companions stand near it."""

FIRST_LOOK_BYTES: Final = 16 * 1024
"""Bytes of a log that are looked at first: mostly its header and first steps."""
LOOK_GROWTH_FACTOR: Final = 16
"""Times as many are looked at next, up to a block. MAX_SNIFFED_LINES are about as many."""

MIN_BEGINNING_BYTES: Final = LOOK_GROWTH_FACTOR * FIRST_LOOK_BYTES
"""Bytes that are looked at before a log is read by what its beginning shows."""

MAX_HEADER_LINES: Final = 200_000
"""Lines looked at for headers where no step shows."""


MAX_STEPLESS_HEAD_LINES: Final = 200
"""So many lines show that a file is no log."""

MIN_RECURRING_LINES: Final = 3
"""Lines of another format that are no accident."""


def detect_format(
    path: Path,
    chunks: Iterable[Chunk],
    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS,
    primary_names: Collection[str] = (),
) -> DetectedFormats:
    """The primary format of lines and its companions.

    primary_names: names of formats, where only they may be primary; a line that looks like a step
    of one is enough. Reads until a framework's own trainer shows, and `MAX_SNIFFED_LINES` beyond;
    where only others show, to the end. Where none shows, the header of a launch without steps tells
    it. Raises UnknownFormatError.
    """
    (found,) = detect_formats([(path, chunks)], formats, primary_names)
    if isinstance(found, Exception):
        raise found
    return found


class EarlyDetection(NamedTuple):
    """What a log is taken for by its lines up to `last`.

    watch: for what would change it behind them; None where nothing would.
    """

    detected: DetectedFormats
    last: int = 0
    watch: FormatWatch | None = None


def detect_from_beginning(
    path: Path,
    chunks: Iterable[Chunk],
    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS,
    primary_names: Collection[str] = (),
) -> EarlyDetection:
    """Detect formats as `detect_format` does, by the beginning of a log alone.

    The rest is to be watched while it is read. All that `detect_format` looks at is used where
    watching is of no use, or where the rest may well show something else: for a format whose lines
    are read together with others', or where many lines hold what marks another format.
    """
    chunks = iter(chunks)
    search = _Search(formats, primary_names, chunks)
    while search.advances():
        _look(_that_may_show([search]))
        if (found := search.beginning(formats, primary_names)) is not None:
            return found
    return EarlyDetection(_told(path, chunks, search, formats, primary_names))


def detect_formats(
    files: Sequence[tuple[Path, Iterable[Chunk]]],
    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS,
    primary_names: Collection[str] = (),
) -> list[DetectedFormats | FairmfuError | OSError]:
    """As `detect_format`, of several files at once; the error of a file stands in its place."""
    files = [(path, iter(chunks)) for path, chunks in files]
    searches = _signatures([chunks for _, chunks in files], formats, primary_names)
    found: list[DetectedFormats | FairmfuError | OSError] = []
    for (path, chunks), search in zip(files, searches, strict=True):
        try:
            found.append(_told(path, chunks, search, formats, primary_names))
        except (FairmfuError, OSError) as error:
            found.append(error)
    return found


def _told(
    path: Path,
    chunks: Iterable[Chunk],
    search: _Search,
    formats: tuple[LogFormat, ...],
    wanted: Collection[str],
) -> DetectedFormats:
    """What has shown tells the formats; chunks: those that are left."""
    primaries = search.primaries(formats, wanted)
    if len(primaries) > 1 and primaries[0].alone and path.is_file():
        lower = [f for f in primaries if f.precedence < primaries[0].precedence]
        primaries = [f for f in primaries if f not in lower] + _recurring(path, lower)
    if len(primaries) > 1:
        raise UnknownFormatError(_two_formats(path, primaries, search.found), recognised=True)
    if primaries:
        return primaries[0], _companions(primaries[0], search, formats)
    if known := _without_steps(path):
        raise UnknownFormatError(f"{path}: {known}", recognised=False)
    formats = tuple(f for f in formats if not wanted or f.name in wanted)
    left = (line for chunk in chunks for line in chunk.lines())
    every = Source(path).lines() if path.is_file() else left
    trainer = near_misses.UnreadTrainer()
    hits, end = near_misses.scan_formats(
        islice(every, MAX_HEADER_LINES), formats, Cleaner(_noise(formats)), trainer
    )
    if trainer.known:
        raise UnknownFormatError(f"{path}: {trainer.known}.", recognised=True)
    if without_steps := near_misses.formats_by_header(hits, end):
        return without_steps[0], without_steps[1:]
    nearest = near_misses.describe_hits(hits)
    names = ", ".join(f.name for f in formats)
    raise UnknownFormatError(
        near_misses.no_format_message(path, nearest, names), recognised=bool(nearest)
    )


def _recurring(path: Path, formats: Sequence[LogFormat]) -> list[LogFormat]:
    """Formats of which a file has several lines: a single one may be part of a model's answer."""
    cleaner = Cleaner(_noise(BUILT_IN_FORMATS))
    signs = {f.name: Regex(f.signature) for f in formats}
    seen = Counter[str]()
    for line in islice(Source(path).lines(), MAX_HEADER_LINES):
        text = cleaner.strip(line.text)
        seen.update(name for name, sign in signs.items() if sign.search(text))
    return [f for f in formats if seen[f.name] >= MIN_RECURRING_LINES]


def _companions(
    primary: LogFormat, search: _Search, formats: Iterable[LogFormat]
) -> tuple[LogFormat, ...]:
    """Formats whose steps stand in the file beside the primary's, or whose header does.

    An engine's header says nothing under the trainer of another framework, which feeds it its own
    batches.
    """
    low = primary.precedence < TRAINER_PRECEDENCE
    steps = [f for f in search.shown(formats) if f is not primary]
    headers = [
        f for f in formats if f.name in search.headed and f not in steps and f is not primary
    ]
    quiet = [f for f in headers if low or f.framework == primary.framework]
    return tuple(sorted((*steps, *quiet), key=lambda f: -f.precedence))


def _signatures(
    files: Iterable[Iterable[Chunk]], formats: tuple[LogFormat, ...], wanted: Collection[str]
) -> list[_Search]:
    """What each file shows: a piece of every one is looked at, then the next where that is due."""
    searches = [_Search(formats, wanted, chunks) for chunks in files]
    left = searches
    while left := [search for search in left if search.advances()]:
        _look(_that_may_show(left))
    return searches


def _that_may_show(searches: Sequence[_Search]) -> list[_Search]:
    """Searches whose piece may show a format that they have not found yet.

    Behind the first format that shows seldom another one does: all lines are sifted as one text, in
    a tenth of the time that each takes by itself.
    """
    later = [search for search in searches if search.found]
    if not later:
        return list(searches)
    which, texts = later[0].cleaner.join_clean_texts([search.piece for search in later])
    alike: dict[PendingPatterns, list[int]] = {}
    for place, search in enumerate(which.tolist()):
        alike.setdefault(later[search].sought, []).append(place)
    quiet = set[int]()
    for sought, places in alike.items():
        may = cached_prefilter(*sought).may_match(texts[places])
        quiet.update(id(later[search]) for search in which[places][~may].tolist())
    return [search for search in searches if id(search) not in quiet]


def _look(searches: Sequence[_Search]) -> None:
    """At the piece of each; lines of those that seek the same are sifted together."""
    if not searches:
        return
    wholes = [search.whole for search in searches]
    data = b"".join(wholes)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    raws = line_array(copy_to_arrow(data), np.append(starts, len(data)))
    texts = searches[0].cleaner.texts(raws)
    firsts = np.searchsorted(starts, np.cumsum([0, *map(len, wholes)])).tolist()
    left = [
        (search, first, np.arange(first, behind))
        for search, (first, behind) in zip(searches, pairwise(firsts), strict=True)
    ]
    while left:
        alike: dict[PendingPatterns, list[tuple[_Search, int, Ints]]] = {}
        for one in left:
            alike.setdefault(one[0].sought, []).append(one)
        left = []
        for sought, those in alike.items():
            places = np.concatenate([places for _, _, places in those])
            may = cached_prefilter(*sought).lines_may_match(texts[places])
            ends = np.cumsum([len(places) for _, _, places in those])
            for (search, first, places), mine in zip(those, np.split(may, ends[:-1]), strict=True):
                rest = search.look(places[mine], first, raws)
                if len(rest):  # these have to show one of those that are left
                    left.append((search, first, rest))


class _Search:
    """Looks for formats by their marks in a file; for those that are not yet found."""

    def __init__(
        self, formats: tuple[LogFormat, ...], wanted: Collection[str], chunks: Iterable[Chunk]
    ) -> None:
        marks = _marks(formats, frozenset(wanted))
        self.cleaner = marks.cleaner
        self._signatures, self._headers = marks.signatures, marks.headers
        self._pieces, self._piece = self._each(chunks), Chunk(0, b"")
        self.found: dict[str, NumberedLine] = {}
        self.headed: set[str] = set()
        self._of_forks = frozenset[str]()
        self._last = math.inf
        """The last line to look at."""
        self._bytes = self._in_vain = 0
        """Looked at so far, and lines of the piece that were looked at one by one in vain."""

    def advances(self) -> bool:
        """Go on to the next piece, if there is one to be looked at."""
        known = self._last < math.inf
        enough = known and self._piece.number + count_newlines(self._piece.data) > self._last
        piece = None if enough else next(self._pieces, None)
        if piece is None or piece.number > self._last:
            return False
        self._piece = piece
        self._bytes, self._in_vain = self._bytes + len(piece.data), 0
        return True

    def _each(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks cut into smaller ones: mostly the first lines tell.

        Of a small piece all are looked at as quickly.
        """
        size = FIRST_LOOK_BYTES
        for chunk in chunks:
            if not chunk.is_whole:
                yield chunk
                continue
            ends, first, begin = chunk.newlines, 0, 0
            while first < len(ends):
                number = chunk.number + first
                behind = min(int(np.searchsorted(ends, begin + size)) + 1, len(ends))
                large = int(ends[behind - 1]) - begin >= LOOK_GROWTH_FACTOR * FIRST_LOOK_BYTES
                if large and number <= self._last < chunk.number + behind:
                    behind = int(self._last) - chunk.number + 1
                end = int(ends[behind - 1]) + 1
                yield Chunk(number, bytes(chunk.view[begin:end]))
                first, begin, size = behind, end, min(LOOK_GROWTH_FACTOR * size, READ_BLOCK_BYTES)

    def shown(self, formats: Iterable[LogFormat]) -> list[LogFormat]:
        """Formats of which steps were found, the highest precedence first."""
        return sorted((f for f in formats if f.name in self.found), key=lambda f: -f.precedence)

    def primaries(
        self, formats: Iterable[LogFormat], wanted: Collection[str]
    ) -> Sequence[LogFormat]:
        """Formats that may be primary by what was found; none where one of them is not wanted.

        Beside a format that stands alone any other's steps are of another run, if none is named.
        """
        shown = self.shown(formats)
        alone = bool(shown) and shown[0].alone and not wanted
        primaries = [f for f in shown if f.precedence == shown[0].precedence or alone]
        return [] if wanted and not all(f.name in wanted for f in primaries) else primaries

    def beginning(
        self, formats: Iterable[LogFormat], wanted: Collection[str]
    ) -> EarlyDetection | None:
        """What was found so far if it is to be watched; None to look on."""
        primaries = self.primaries(formats, wanted)
        enough = self._bytes >= MIN_BEGINNING_BYTES and not (self._in_vain or self._last < math.inf)
        if not enough or len(primaries) != 1 or not _by_lines(primaries[0]):
            return None
        added = primaries[0].addition
        renamed = (added.renames[2],) if added and added.renames else ()
        marks = (*self._patterns, *map(re.escape, renamed))
        watch = FormatWatch.of(_noise(formats), marks)
        last = self._piece.number + count_newlines(self._piece.data) - 1
        detected = primaries[0], _companions(primaries[0], self, formats)
        if watch is None:
            return None
        self._pieces = iter(())  # these know of this search: each would keep the other, and a chunk
        return EarlyDetection(detected, last, watch)

    @property
    def piece(self) -> bytes:
        """The lines that are to be looked at."""
        return self._piece.data

    @property
    def whole(self) -> bytes:
        """The lines of the piece, each with a newline."""
        data = self._piece.data
        return data if data.endswith(b"\n") else data + b"\n"

    @property
    def sought(self) -> PendingPatterns:
        """The marks of what is not yet found."""
        return tuple(("", pattern) for pattern in self._patterns), self._of_forks

    @property
    def _patterns(self) -> Iterator[str]:
        return (mark.pattern for _, mark in (*self._signatures, *self._headers))

    def look(self, places: Ints, first: int, raws: pa.LargeBinaryArray) -> Ints:
        """At lines of the piece up to one that shows a format; those behind it.

        places: theirs among the lines of all files (raws); first: that of the piece's first line.
        """
        for index, place in enumerate(places.tolist()):
            number = self._piece.number + place - first
            if number > self._last:
                break
            (line,) = Chunk(number, raws[place].as_py()).lines()
            if self._changes(line):
                return places[index + 1 :]
        return places[:0]

    def _changes(self, line: NumberedLine) -> bool:
        """Whether other lines are sought behind it: it shows a format that none has shown before.

        Or it shares words with a mark that it does not show, as forks print the step line of what
        was found but for one word: then all words of that mark are sought.
        """
        text = self.cleaner.strip(line.text)
        near = [(f, signature) for f, signature in self._signatures if signature.holds(text)]
        new = [f for f, signature in near if signature.search(text)]
        headed = {name for name, header in self._headers if header.search(text)}
        self.found |= {f.name: line for f in new}
        self.headed |= headed
        if any(f.precedence == TRAINER_PRECEDENCE for f in new):
            self._last = min(self._last, line.number + MAX_SNIFFED_LINES)
        self._signatures = tuple(one for one in self._signatures if one[0].name not in self.found)
        self._headers = tuple(one for one in self._headers if one[0] not in self.headed)
        if new or headed:
            return True
        self._in_vain += 1
        forks = {signature.pattern for _, signature in near} - self._of_forks
        self._of_forks |= forks
        return bool(forks)


class _Marks(NamedTuple):
    """What shows formats in a text that the cleaner has cleaned."""

    cleaner: Cleaner
    signatures: tuple[tuple[LogFormat, GuardedRegex], ...]
    headers: tuple[tuple[str, GuardedRegex], ...]


@cache
def _marks(formats: tuple[LogFormat, ...], wanted: frozenset[str]) -> _Marks:
    """The marks of formats, made once for all files."""
    signatures = ((f, GuardedRegex(_signature(f, steps=f.name in wanted))) for f in formats)
    headers = ((f.name, GuardedRegex(f.header)) for f in formats if f.header)
    return _Marks(Cleaner(_noise(formats)), tuple(signatures), tuple(headers))


def _signature(log_format: LogFormat, *, steps: bool) -> str:
    """What shows a format; steps: a line that looks like its step is enough."""
    alone = log_format.signature
    return f"(?:{alone})|(?:{log_format.looks_like_step})" if steps else alone


def _by_lines(log_format: LogFormat) -> bool:
    """Whether each of its lines is a record, or becomes one by the next."""
    return log_format.join is None or log_format.addition is not None


def _noise(formats: Iterable[LogFormat]) -> str:
    return "|".join(sorted({f.noise for f in formats if f.noise} | {ANSI_ESCAPE}))


def _two_formats(path: Path, primaries: Sequence[LogFormat], found: dict[str, NumberedLine]) -> str:
    seen = "\n".join(
        f"  {f.name}: line {found[f.name].number}: {found[f.name].text.strip()[:100]}"
        for f in primaries
    )
    return (
        f"{path}: lines of {len(primaries)} formats stand in one file, so it is not clear "
        f"whose steps to count.\n{seen}\n"
        "  Split the file, or name one with --log-format."
    )


def _without_steps(path: Path) -> str:
    """What a file is that a framework leaves beside its logs; empty where it is not known."""
    if not path.is_file():
        return ""
    head = "\n".join(line.text for line in islice(Source(path).lines(), MAX_STEPLESS_HEAD_LINES))
    begins = (
        (re.match(pattern, head.lstrip(), re.DOTALL), what) for pattern, what in STEPLESS_FILES
    )
    return next((what for match, what in begins if match), "")
