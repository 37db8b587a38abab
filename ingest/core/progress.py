"""Progress of a command: one line on a terminal, erased at the end.

Long work notes what it does and how far it is with `note_progress`. Only `shown_on_terminal` prints
it, and only after DELAY_S. Nothing is printed into a pipe or a file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, RLock, Thread
from typing import IO, Any, Final, NamedTuple

DELAY_S: Final = 1.0
"""Seconds before a command shows its progress."""

INTERVAL_S: Final = 0.2
"""Seconds between two updates of the line."""

DEFAULT_COLUMNS: Final = 80
MEGABYTE: Final = 1e6


class Progress(NamedTuple):
    """State of the work.

    done, total: files or runs, total 0 if unknown; bytes_total: 0 if files are not read
    """

    work: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    part_bytes: int = 0

    def text(self, seconds: float) -> str:
        """Return the line to show. seconds: since the command began."""
        far = [f"{self.done:,} of {self.total:,} {self.unit}"] if self.total else []
        if self.bytes_total:
            read = min(self.bytes_done + self.part_bytes, self.bytes_total)
            far.append(f"{read / MEGABYTE:,.0f} of {self.bytes_total / MEGABYTE:,.0f} MB")
        return f"{self.work}: {', '.join([*far, f'{seconds:.0f} s'])}"


_state = Progress()
_earlier = (0, 0)
_is_shown = False


def note_progress(  # noqa: PLR0913, PLR0917 - fields of Progress
    work: str,
    done: int = 0,
    total: int = 0,
    unit: str = "",
    bytes_done: int = 0,
    bytes_total: int = 0,
) -> None:
    """Note what the command does now, and how far it is. work: begins a sentence."""
    global _state  # noqa: PLW0603 - one command runs in a process
    before, whole = _earlier
    _state = Progress(work, before + done, max(whole, total), unit, bytes_done, bytes_total)


def note_part(part_bytes: int) -> None:
    """Note the bytes that were read of the current file."""
    global _state  # noqa: PLW0603 - as `note_progress`
    if _state.bytes_total:
        _state = _state._replace(part_bytes=part_bytes)


@contextmanager
def counted_after(done: int, total: int) -> Iterator[None]:
    """Count work within as a part of all: `done` of `total` were done before."""
    global _earlier  # noqa: PLW0603 - as `note_progress`
    before, _earlier = _earlier, (done, total)
    try:
        yield
    finally:
        _earlier = before


def is_progress_shown() -> bool:
    """Return whether a terminal shows the progress."""
    return _is_shown


@contextmanager
def shown_on_terminal() -> Iterator[None]:
    """Show the progress of this process on the terminal of stderr, if there is one.

    Whatever else is printed meanwhile erases the line first.
    """
    global _is_shown, _state  # noqa: PLW0603 - as `note_progress`
    if _is_shown or not _is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
        yield
        return
    line = _Line(sys.stderr)
    before = sys.stdout, sys.stderr
    sys.stderr = _Erasing(sys.stderr, line)
    if _is_terminal(sys.stdout):
        sys.stdout = _Erasing(sys.stdout, line)
    _is_shown, _state = True, Progress()
    thread = Thread(target=line.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        _is_shown = False
        sys.stdout, sys.stderr = before
        line.ended.set()
        thread.join()
        line.erase()


class _Line:
    """Line of a terminal that is drawn again and again."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream, self.began = stream, time.monotonic()
        self.ended, self.lock = Event(), RLock()
        self.width = 0
        """Characters that are drawn."""
        self.text = ""
        self.is_free = True
        """False while another text is in the line."""

    def run(self) -> None:
        """Draw the line until `ended` is set."""
        while not self.ended.wait(INTERVAL_S):
            self.draw()

    def draw(self) -> None:
        """Draw the state, if the command takes long enough."""
        seconds = time.monotonic() - self.began
        if seconds < DELAY_S or not _state.work:
            return
        with self.lock:
            if self.is_free:
                text = _state.text(seconds)[: max(1, _columns(self.stream) - 1)]
                if text != self.text:
                    self._print(f"\r{text.ljust(self.width)}")
                    self.text, self.width = text, len(text)

    def erase(self) -> None:
        """Erase the line, if it is drawn."""
        with self.lock:
            if self.width:
                self._print(f"\r{' ' * self.width}\r")
                self.text, self.width = "", 0

    def _print(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self.ended.set()


def _is_terminal(stream: IO[str]) -> bool:
    with suppress(OSError, ValueError):
        return os.isatty(stream.fileno())
    return False


def _columns(stream: IO[str]) -> int:
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    return DEFAULT_COLUMNS


class _Erasing:
    """Stream to the terminal of a line; its texts erase the line first."""

    def __init__(self, stream: IO[str], line: _Line) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        """Write after the line is erased."""
        with self._line.lock:
            self._line.erase()
            written = self._stream.write(text)
            self._stream.flush()
            if text:
                self._line.is_free = text.endswith("\n")
        return written

    def writelines(self, texts: Iterable[str]) -> None:
        """Write several texts."""
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - those of the stream
        return getattr(self._stream, name)
