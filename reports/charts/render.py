"""Products of vl_convert: pictures of Vega-Lite specs, and scripts for the page.

As a program, started by `reports.charts.render_process`, this module makes products until its input
ends. So it imports nothing of ours, and nothing slow: the caller waits, and `json` and `typing`
would take half of the time until vl_convert can begin.
"""

from __future__ import annotations

import marshal
import os
import sys

import vl_convert

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final

SCALE: Final = 2.0
"""Pixels of a PNG per pixel of a chart."""
EMPTY_SPEC: Final = {"$schema": "https://vega.github.io/schema/vega/v6.json"}


def _png(svg: str) -> bytes:
    return vl_convert.svg_to_png(svg, scale=SCALE)


_bundled: Final[list[str]] = []


def _scripts(_given: object) -> str:
    """Return Vega, Vega-Lite and vega-embed in one script.

    The library takes two seconds to bundle them, and the result changes with its version alone.
    So it is kept in the user's cache (FAIRMFU_CACHE, XDG_CACHE_HOME or ~/.cache).
    """
    if not _bundled:
        path = _cached_scripts()
        kept = _read_scripts(path)
        if kept is None:
            kept = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub lacks the default
            _keep_scripts(path, kept)
        _bundled.append(kept)
    return _bundled[0]


def _cached_scripts() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")  # noqa: PTH118
    folder = os.environ.get("FAIRMFU_CACHE") or os.path.join(home, "fairmfu")  # noqa: PTH118
    version = vl_convert.__version__  # type: ignore[attr-defined]  # its stub lacks it
    return os.path.join(os.path.expanduser(folder), f"vega_{version}.js")  # noqa: PTH111, PTH118


def _checksum(scripts: bytes) -> bytes:
    from hashlib import sha256  # noqa: PLC0415 - not needed to start the library

    return sha256(scripts).hexdigest().encode()


def _read_scripts(path: str) -> str | None:
    """Return the scripts that `_keep_scripts` wrote; None without a whole file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            mark, _, scripts = file.read().partition(b"\n")
    except OSError:
        return None
    return scripts.decode() if mark == _checksum(scripts) else None


def _keep_scripts(path: str, scripts: str) -> None:
    """Write the scripts behind their checksum; without a place for them, do nothing."""
    made, own = scripts.encode(), f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(own, "wb") as file:  # noqa: PTH123
            file.write(_checksum(made) + b"\n" + made)
        os.replace(own, path)  # noqa: PTH105
    except OSError:
        return


def _begun(_given: object) -> str:
    return vl_convert.vega_to_svg(EMPTY_SPEC)


MAKES: Final[Mapping[str, Callable[[Any], str | bytes]]] = {
    "svg": vl_convert.vegalite_to_svg,
    "png": _png,
    "pdf": vl_convert.svg_to_pdf,
    "scripts": _scripts,
    "begun": _begun,
}
"""Products by name: the SVG of a spec; PNG and PDF of an SVG; Vega, Vega-Lite and vega-embed in one
script of 0.9 MB, which takes as long as 20 charts; and the mere start of the library, which
takes as long as a few charts.
"""
ERROR_PREFIX: Final = b"why not: "


def make_product(product: str, source: object = None) -> bytes:
    """Return one of MAKES; raise ValueError for a spec that vl_convert cannot draw."""
    made = MAKES[product](source)
    return made.encode() if isinstance(made, str) else made


def main() -> None:
    """Answer each question with a line giving the number of bytes, then the bytes.

    A question is a line with the product's name and the number of bytes of its source, then the
    source, by `marshal`: marshal keeps numbers exact, and imports nothing. On failure ERROR_PREFIX
    begins the line, and the bytes are the error.
    """
    while asked := sys.stdin.buffer.readline():
        what, size = asked.decode().split()
        said, mark = sys.stdin.buffer.read(int(size)), b""
        if len(said) < int(size):
            return  # the caller is gone
        try:
            made = make_product(what, marshal.loads(said))  # noqa: S302 - said by reports.charts.render_process
        except ValueError as error:
            made, mark = str(error).encode(), ERROR_PREFIX
        answer = b"%s%d\n%s" % (mark, len(made), made)
        try:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the caller is gone; an exit would flush again
            os._exit(0)


if __name__ == "__main__":
    main()
