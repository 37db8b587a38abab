"""Process of the drawing library, started while other work goes on.

The library takes half a second to start, and more than another to prepare its scripts, all with
Python's lock. So a command that will draw starts the process first, and imports, reads and computes
meanwhile. Callers use the same functions, started or not. Without enough memory the library ends
its process; if that is a separate process, ours can report the failure.
"""

from __future__ import annotations

import atexit
import json
import marshal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from .messages import DRAWING_ENDED, DrawingEndedError

ERROR_PREFIX: Final = b"why not: "
"""Same as in `render`, which is not imported here: the import would start the library."""
FIRST_PRODUCTS: Final = {
    "html": "scripts",
    "md": "begun",
    "svg": "begun",
    "png": "begun",
    "pdf": "begun",
}
"""First product to prepare for a file, by suffix."""


class _Elsewhere:
    """Process that makes the products of `reports.charts.render`, one at a time."""

    def __init__(self) -> None:
        code = Path(__file__).with_name("render.py")
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", code],  # -P: files in its folder are not importable
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches our process alone
        )
        atexit.register(self.end)
        self._lock = Lock()
        self._awaited: str | None = None

    def begin(self, what: str) -> None:
        """Start making a product before anybody needs it."""
        with self._lock:
            if self._awaited is None:
                self._ask(_question(what, None))
                self._awaited = what

    def make(self, what: str, given: object) -> bytes:
        """Return a product of `render.make_product` from the process.

        Raises DrawingEndedError if the process ends.
        """
        question = _question(what, given)  # encoded while the library may still start
        with self._lock:
            before, self._awaited = self._awaited, None
            made = self._answer() if before else b""
            if before == what and given is None:
                return made
            self._ask(question)
            return self._answer()

    def end(self) -> None:
        """End the process."""
        atexit.unregister(self.end)
        self._process.kill()
        self._process.communicate()

    def _ask(self, question: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):  # _answer reports the failure
            self._process.stdin.write(question)
            self._process.stdin.flush()

    def _answer(self) -> bytes:
        out = self._process.stdout
        assert out is not None  # noqa: S101 - a pipe
        said = out.readline()
        size = said.removeprefix(ERROR_PREFIX)
        made = out.read(int(size)) if said else b""
        if not said or len(made) < int(size):
            code = self._process.wait()
            raise DRAWING_ENDED(code=code)
        if size != said:
            raise ValueError(made.decode())
        return made


def _question(what: str, given: object) -> bytes:
    """Return a question for `reports.charts.render.main`, with only JSON types."""
    said = marshal.dumps(json.loads(json.dumps(given)))
    return b"%s %d\n%s" % (what.encode(), len(said), said)


_elsewhere: list[_Elsewhere] = []


def start_drawing(suffix: str) -> None:
    """Start preparing for a file with this suffix, with or without its dot.

    Nothing starts for a suffix without charts. If no process can be started, charts are drawn in
    this process later.
    """
    what = FIRST_PRODUCTS.get(suffix.lower().removeprefix("."))
    if what is None:
        return
    with suppress(OSError):
        if not _elsewhere:
            _elsewhere.append(_Elsewhere())
        _elsewhere[0].begin(what)


def stop_drawing() -> None:
    """End the process, if started."""
    while _elsewhere:
        _elsewhere.pop().end()


def draw_product(product: str, source: object = None) -> bytes:
    """Return a product of `reports.charts.render.make_product`.

    Made by the process if started, else here. Raises ValueError for a spec that cannot be drawn,
    DrawingEndedError if the process ends.
    """
    if not _elsewhere:
        from . import render  # noqa: PLC0415 - not needed if the process has started

        return render.make_product(product, source)
    try:
        return _elsewhere[0].make(product, source)
    except DrawingEndedError:
        stop_drawing()
        raise
