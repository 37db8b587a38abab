"""The library that draws, in a process of its own while there is something else to do.

It takes half a second to start, and more than another to have its scripts ready, all of it with
Python's lock. So a command that is going to draw has it begin first, and imports, reads and
computes meanwhile. Whoever draws asks the same, begun or not. The library ends its process where it
finds no memory; of one of its own, ours can tell.
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

from fairmfu.ingest.core.errors import FairmfuError

ERROR_PREFIX: Final = b"why not: "
"""Equal to that of `render`, which is not imported here: that would start the library."""
FIRST_PRODUCTS: Final = {
    "html": "scripts",
    "md": "begun",
    "svg": "begun",
    "png": "begun",
    "pdf": "begun",
}
"""What is made first for a file of such an ending."""


class DrawingEndedError(FairmfuError, RuntimeError):
    """The library ended while it drew."""


class _Elsewhere:
    """A process that makes what `reports.charts.render` does; one asks at a time."""

    def __init__(self) -> None:
        code = Path(__file__).with_name("render.py")
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", code],  # -P: what lies beside it is none of its modules
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # who ends ours by the keyboard is told by ours alone
        )
        atexit.register(self.end)
        self._lock = Lock()
        self._awaited: str | None = None

    def begin(self, what: str) -> None:
        """Have it make something that nobody waits for yet."""
        with self._lock:
            if self._awaited is None:
                self._ask(_question(what, None))
                self._awaited = what

    def make(self, what: str, given: object) -> bytes:
        """What `render.make` makes there. Raises DrawingEndedError where the process ends."""
        question = _question(what, given)  # made while the library may still start
        with self._lock:
            before, self._awaited = self._awaited, None
            made = self._answer() if before else b""
            if before == what and given is None:
                return made
            self._ask(question)
            return self._answer()

    def end(self) -> None:
        """Let it go."""
        atexit.unregister(self.end)
        self._process.kill()
        self._process.communicate()

    def _ask(self, question: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):  # the answer tells
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
            raise DrawingEndedError(
                f"vl_convert, which draws, ended with status {code}: it may have found no memory, "
                "or is not installed as it should be."
            )
        if size != said:
            raise ValueError(made.decode())
        return made


def _question(what: str, given: object) -> bytes:
    """A question as `reports.charts.render.main` reads it; what is given has only types of JSON."""
    said = marshal.dumps(json.loads(json.dumps(given)))
    return b"%s %d\n%s" % (what.encode(), len(said), said)


_elsewhere: list[_Elsewhere] = []


def start_drawing(suffix: str) -> None:
    """Have it begin what a file of such an ending takes, with or without its dot; others nothing.

    Where no process can be started, it draws in this one later.
    """
    what = FIRST_PRODUCTS.get(suffix.lower().removeprefix("."))
    if what is None:
        return
    with suppress(OSError):
        if not _elsewhere:
            _elsewhere.append(_Elsewhere())
        _elsewhere[0].begin(what)


def stop_drawing() -> None:
    """Let go of what has begun."""
    while _elsewhere:
        _elsewhere.pop().end()


def draw_product(product: str, source: object = None) -> bytes:
    """What `reports.charts.render.make_product` makes: by the process that has begun, else here.

    Raises ValueError on a spec that cannot be drawn, DrawingEndedError.
    """
    if not _elsewhere:
        from . import render  # noqa: PLC0415 - not needed where it has begun

        return render.make_product(product, source)
    try:
        return _elsewhere[0].make(product, source)
    except DrawingEndedError:
        stop_drawing()
        raise
