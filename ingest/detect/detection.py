"""Detection of a log's format, from lines and never from the file's name.

Of several formats in one file (Megatron iteration lines between the DeepSpeed engine's), the format
of the highest precedence is primary, and the others are companions. A launch without steps is
detected by its header. Two primaries, or none, is an error with the partial matches of each
candidate.
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
from ..core.errors import FairmfuError
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
from ..formats.registry import BUILT_IN_FORMATS, HAS_ONLY_BARS, RESULTS_FILES, STEPLESS_FILES
from ..formats.spec import ONLY_BARS_PRECEDENCE, TRAINER_PRECEDENCE, LogFormat
from ..vector.format_watch import FormatWatch
from . import near_misses
from .messages import (
    FILE_WITHOUT_STEPS,
    SEVERAL_FORMATS,
    UNSUPPORTED_TRAINER,
)
from .user_envelopes import envelope_keeper


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """Formats allowed for a log.

    wanted: names of formats allowed as primary; empty allows all
    """

    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS
    wanted: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Names of the formats."""
        return frozenset(log_format.name for log_format in self.formats)

    @property
    def keeps_envelope(self) -> KeepsEnvelope:
        """Function that recognises wrappings of lines from a user's format."""
        return envelope_keeper(self.formats, BUILT_IN_FORMATS)

    def only(self, names: Collection[str]) -> FormatChoice:
        """Return a choice of primary formats by name, with their possible companions."""
        lowest = min(f.precedence for f in self.formats if f.name in names)
        kept = (f for f in self.formats if f.name in names or f.precedence < lowest)
        return FormatChoice(tuple(kept), frozenset(names))

    def __reduce__(self) -> tuple[Callable[..., FormatChoice], tuple[object, ...]]:
        """Pickle built-in formats as indices: pipes between processes are small."""
        formats = (BUILT_IN_FORMATS.index(f) if f in BUILT_IN_FORMATS else f for f in self.formats)
        return _unpickled_choice, (tuple(formats), self.wanted)


def _unpickled_choice(formats: Iterable[int | LogFormat], wanted: frozenset[str]) -> FormatChoice:
    return FormatChoice(
        tuple(BUILT_IN_FORMATS[f] if isinstance(f, int) else f for f in formats), wanted
    )


BUILT_IN_CHOICE: Final = FormatChoice()

DetectedFormats = tuple[LogFormat, tuple[LogFormat, ...]]
"""The primary format of a file, and its companions."""


PendingPatterns = tuple[tuple[tuple[str, str], ...], frozenset[str]]
"""Patterns for a LiteralPrefilter, and those of forks of formats already found."""

MAX_SNIFFED_LINES: Final = 2_000
"""Lines searched after the first step of a primary format: companions are nearby."""

FIRST_LOOK_BYTES: Final = 16 * 1024
"""Bytes of a log searched first: usually the header and the first steps."""
LOOK_GROWTH_FACTOR: Final = 16
"""Growth of the next searched piece, up to a block; about MAX_SNIFFED_LINES lines."""

MIN_BEGINNING_BYTES: Final = LOOK_GROWTH_FACTOR * FIRST_LOOK_BYTES
"""Minimum number of bytes searched before a log is read by the formats of its beginning."""

MAX_HEADER_LINES: Final = 200_000
"""Lines searched for headers if there are no steps."""


MAX_STEPLESS_HEAD_LINES: Final = 200
"""Lines that suffice to recognise a file that is no log."""

MIN_RECURRING_LINES: Final = 3
"""Lines of another format that are no accident."""


def detect_format(
    path: Path,
    chunks: Iterable[Chunk],
    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS,
    primary_names: Collection[str] = (),
) -> DetectedFormats:
    """Return the primary format of lines, with companions.

    Reads until a framework's own trainer appears, and `MAX_SNIFFED_LINES` beyond; to the end if
    only other formats appear. If no step appears, the header of a launch without steps decides.
    Raises UnknownFormatError.

    primary_names: names of formats allowed as primary; a line like a step of such a format is
    enough
    """
    (detected,) = detect_formats([(path, chunks)], formats, primary_names)
    if isinstance(detected, Exception):
        raise detected
    return detected


class EarlyDetection(NamedTuple):
    """Formats of a log according to the lines up to `last`.

    watch: for later lines with other formats; None if nothing can change the result
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
    """Detect formats as `detect_format` does, but from the beginning of a log.

    The rest must be watched during reading. The result is that of `detect_format` if a watch is of
    no use, or the rest may well contain another format: for a format whose lines are read together
    with others', or if many lines contain marks of another format.
    """
    chunks = iter(chunks)
    search = _Search(formats, primary_names, chunks)
    while search.advances():
        _look(_that_may_show([search]))
        if (detected := search.beginning(formats, primary_names)) is not None:
            return detected
    return EarlyDetection(_conclude(path, chunks, search, formats, primary_names))


def detect_formats(
    files: Sequence[tuple[Path, Iterable[Chunk]]],
    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS,
    primary_names: Collection[str] = (),
) -> list[DetectedFormats | FairmfuError | OSError]:
    """Return the result of `detect_format` for several files; errors are results too."""
    files = [(path, iter(chunks)) for path, chunks in files]
    searches = _signatures([chunks for _, chunks in files], formats, primary_names)
    results: list[DetectedFormats | FairmfuError | OSError] = []
    for (path, chunks), search in zip(files, searches, strict=True):
        try:
            results.append(_conclude(path, chunks, search, formats, primary_names))
        except (FairmfuError, OSError) as error:
            results.append(error)
    return results


def _conclude(
    path: Path,
    chunks: Iterable[Chunk],
    search: _Search,
    formats: tuple[LogFormat, ...],
    wanted: Collection[str],
) -> DetectedFormats:
    """Return the formats found by a search. Raises UnknownFormatError.

    chunks: not searched yet
    """
    primaries = search.primaries(formats, wanted)
    if len(primaries) > 1 and primaries[0].alone and path.is_file():
        lower = [f for f in primaries if f.precedence < primaries[0].precedence]
        primaries = [f for f in primaries if f not in lower] + _recurring(path, lower)
    if len(primaries) > 1:
        lines = _first_lines(primaries, search.found)
        raise SEVERAL_FORMATS(path=path, count=len(primaries), lines=lines)
    if primaries:
        return primaries[0], _companions(primaries[0], search, formats)
    if results := _results_alone(path, formats):
        return results, ()
    if known := _without_steps(path):
        raise FILE_WITHOUT_STEPS(path=path, what=known)
    formats = tuple(f for f in formats if not wanted or f.name in wanted)
    left = (line for chunk in chunks for line in chunk.lines())
    every = Source(path).lines() if path.is_file() else left
    trainer = near_misses.UnreadTrainer()
    hits, end = near_misses.scan_formats(
        islice(every, MAX_HEADER_LINES), formats, Cleaner(_noise(formats)), trainer
    )
    if trainer.known:
        raise UNSUPPORTED_TRAINER(path=path, trainer=trainer.known)
    if without_steps := near_misses.formats_by_header(hits, end):
        return without_steps[0], without_steps[1:]
    nearest = near_misses.describe_hits(hits)
    if not nearest and (bars := _bars_alone(path, formats)):
        return bars, ()
    names = ", ".join(f.name for f in formats)
    raise near_misses.no_format_error(path, nearest, names, end)


def _bars_alone(path: Path, formats: Iterable[LogFormat]) -> LogFormat | None:
    """Return the format of a progress bar if the file has one; None if it has none.

    Envelopes stay: a name before all bars may be theirs, and tells a download from a training.
    """
    bars = next((f for f in formats if f.precedence == ONLY_BARS_PRECEDENCE), None)
    if bars is None or not path.is_file():
        return None
    source = Source(path, keeps_envelope=lambda *_: True)
    lines = (line.text for line in islice(source.lines(), MAX_HEADER_LINES))
    return bars if HAS_ONLY_BARS(lines) else None


def _recurring(path: Path, formats: Sequence[LogFormat]) -> list[LogFormat]:
    """Return formats with several lines: a single line may come from a model's answer."""
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
    """Return formats with steps, or a header, in the file of the primary.

    An engine's header does not apply under a trainer of another framework: that trainer sets the
    batch sizes.
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
    """Return a search per file: pieces of all files are searched in turn."""
    searches = [_Search(formats, wanted, chunks) for chunks in files]
    left = searches
    while left := [search for search in left if search.advances()]:
        _look(_that_may_show(left))
    return searches


def _that_may_show(searches: Sequence[_Search]) -> list[_Search]:
    """Return the searches whose piece may show a format not found yet.

    After a first format, other formats rarely follow. So the pieces of such searches are
    prefiltered as a single text, in a tenth of the time of separate pieces.
    """
    later = [search for search in searches if search.found]
    if not later:
        return list(searches)
    owners, texts = later[0].cleaner.join_clean_texts([search.piece for search in later])
    alike: dict[PendingPatterns, list[int]] = {}
    for line, search in enumerate(owners.tolist()):
        alike.setdefault(later[search].sought, []).append(line)
    quiet = set[int]()
    for sought, places in alike.items():
        may = cached_prefilter(*sought).may_match(texts[places])
        quiet.update(id(later[search]) for search in owners[places][~may].tolist())
    return [search for search in searches if id(search) not in quiet]


def _look(searches: Sequence[_Search]) -> None:
    """Search the pieces, with a common prefilter for searches for the same patterns."""
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
        for part in left:
            alike.setdefault(part[0].sought, []).append(part)
        left = []
        for sought, parts in alike.items():
            places = np.concatenate([places for _, _, places in parts])
            may = cached_prefilter(*sought).lines_may_match(texts[places])
            ends = np.cumsum([len(places) for _, _, places in parts])
            for (search, first, places), may_show in zip(
                parts, np.split(may, ends[:-1]), strict=True
            ):
                rest = search.look(places[may_show], first, raws)
                if len(rest):  # still to search, for the remaining marks
                    left.append((search, first, rest))


class _Search:
    """Search for formats in a file, by the marks of formats not found yet."""

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
        """The last line to search."""
        self._bytes = self._in_vain = 0
        """Bytes searched so far, and lines of the piece searched one by one in vain."""

    def advances(self) -> bool:
        """Go to the next piece; return False if there is none to search."""
        known = self._last < math.inf
        enough = known and self._piece.number + count_newlines(self._piece.data) > self._last
        piece = None if enough else next(self._pieces, None)
        if piece is None or piece.number > self._last:
            return False
        self._piece = piece
        self._bytes, self._in_vain = self._bytes + len(piece.data), 0
        return True

    def _each(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks in smaller pieces: usually the first lines decide.

        Only large pieces are cut at the last line to search: a cut makes small pieces no faster.
        """
        size = FIRST_LOOK_BYTES
        for chunk in chunks:
            if not chunk.is_whole:
                yield chunk
                continue
            ends, first, begin = chunk.newlines, 0, 0
            while first < len(ends):
                number = chunk.number + first
                stop = min(int(np.searchsorted(ends, begin + size)) + 1, len(ends))
                large = int(ends[stop - 1]) - begin >= LOOK_GROWTH_FACTOR * FIRST_LOOK_BYTES
                if large and number <= self._last < chunk.number + stop:
                    stop = int(self._last) - chunk.number + 1
                end = int(ends[stop - 1]) + 1
                yield Chunk(number, bytes(chunk.view[begin:end]))
                first, begin, size = stop, end, min(LOOK_GROWTH_FACTOR * size, READ_BLOCK_BYTES)

    def shown(self, formats: Iterable[LogFormat]) -> list[LogFormat]:
        """Return formats with steps found so far, the highest precedence first."""
        return sorted((f for f in formats if f.name in self.found), key=lambda f: -f.precedence)

    def primaries(
        self, formats: Iterable[LogFormat], wanted: Collection[str]
    ) -> Sequence[LogFormat]:
        """Return possible primary formats; none if any of them is not wanted.

        Next to a format marked `alone`, all other formats are possible too, because their steps
        belong to another run. Not so if formats were named.
        """
        shown = self.shown(formats)
        alone = bool(shown) and shown[0].alone and not wanted
        primaries = [f for f in shown if f.precedence == shown[0].precedence or alone]
        return [] if wanted and not all(f.name in wanted for f in primaries) else primaries

    def beginning(
        self, formats: Iterable[LogFormat], wanted: Collection[str]
    ) -> EarlyDetection | None:
        """Return the formats found so far with a watch; None if the search must go on."""
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
        self._pieces = iter(())  # break the reference cycle, which would keep a chunk
        return EarlyDetection(detected, last, watch)

    @property
    def piece(self) -> bytes:
        """Lines to search."""
        return self._piece.data

    @property
    def whole(self) -> bytes:
        """Lines of the piece, each with a newline."""
        data = self._piece.data
        return data if data.endswith(b"\n") else data + b"\n"

    @property
    def sought(self) -> PendingPatterns:
        """Marks of the formats not found yet."""
        return tuple(("", pattern) for pattern in self._patterns), self._of_forks

    @property
    def _patterns(self) -> Iterator[str]:
        return (mark.pattern for _, mark in (*self._signatures, *self._headers))

    def look(self, places: Ints, first: int, raws: pa.LargeBinaryArray) -> Ints:
        """Search lines of the piece until a format is shown; return the lines after.

        places: indices of the lines in `raws`
        first: index of the piece's first line in `raws`
        raws: lines of all files
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
        """Return whether the line changes the marks to search for.

        A new format changes the marks. So does a line with the literals of a mark but without a
        full match: forks change a word of the step line of a found format, so all words of the mark
        are searched for.
        """
        text = self.cleaner.strip(line.text)
        near = [(f, signature) for f, signature in self._signatures if signature.holds(text)]
        new = [f for f, signature in near if signature.search(text)]
        headed = {name for name, header in self._headers if header.search(text)}
        self.found |= {f.name: line for f in new}
        self.headed |= headed
        if any(f.precedence == TRAINER_PRECEDENCE for f in new):
            self._last = min(self._last, line.number + MAX_SNIFFED_LINES)
        self._signatures = tuple(
            mark for mark in self._signatures if mark[0].name not in self.found
        )
        self._headers = tuple(mark for mark in self._headers if mark[0] not in self.headed)
        if new or headed:
            return True
        self._in_vain += 1
        forks = {signature.pattern for _, signature in near} - self._of_forks
        self._of_forks |= forks
        return bool(forks)


class _Marks(NamedTuple):
    """Marks of formats, for texts cleaned by the cleaner."""

    cleaner: Cleaner
    signatures: tuple[tuple[LogFormat, GuardedRegex], ...]
    headers: tuple[tuple[str, GuardedRegex], ...]


@cache
def _marks(formats: tuple[LogFormat, ...], wanted: frozenset[str]) -> _Marks:
    """Return the marks of formats, shared by all files."""
    sought = (f for f in formats if f.precedence > ONLY_BARS_PRECEDENCE)
    signatures = ((f, GuardedRegex(_signature(f, steps=f.name in wanted))) for f in sought)
    headers = ((f.name, GuardedRegex(f.header)) for f in formats if f.header)
    return _Marks(Cleaner(_noise(formats)), tuple(signatures), tuple(headers))


def _signature(log_format: LogFormat, *, steps: bool) -> str:
    """Return the pattern of a format's marks.

    steps: lines like a step are enough
    """
    alone = log_format.signature
    return f"(?:{alone})|(?:{log_format.looks_like_step})" if steps else alone


def _by_lines(log_format: LogFormat) -> bool:
    """Return whether every line is a record, or becomes a record with its neighbours."""
    return log_format.join is None or log_format.addition is not None


def _noise(formats: Iterable[LogFormat]) -> str:
    return "|".join(sorted({f.noise for f in formats if f.noise} | {ANSI_ESCAPE}))


def _first_lines(primaries: Sequence[LogFormat], lines: dict[str, NumberedLine]) -> str:
    """Return the first line of each format, as text for an error."""
    return "\n".join(
        f"  {f.name}: line {lines[f.name].number}: {lines[f.name].text.strip()[:100]}"
        for f in primaries
    )


def _without_steps(path: Path) -> str:
    """Return the kind of a framework's file without steps; "" if unknown."""
    head = _head(path)
    begins = ((re.match(pattern, head, re.DOTALL), what) for pattern, what in STEPLESS_FILES)
    return next((what for match, what in begins if match), "")


def _results_alone(path: Path, formats: Iterable[LogFormat]) -> LogFormat | None:
    """Return the format of a file with closing figures alone; None if it has more."""
    head = _head(path)
    begins = (f for pattern, f in RESULTS_FILES if re.match(pattern, head, re.DOTALL))
    return next((f for f in begins if f in formats), None)


def _head(path: Path) -> str:
    """Return the first lines of a file without leading blanks; "" if it is no file."""
    if not path.is_file():
        return ""
    lines = islice(Source(path).lines(), MAX_STEPLESS_HEAD_LINES)
    return "\n".join(line.text for line in lines).lstrip()
