"""What vl_convert makes: pictures of Vega-Lite specs, and the scripts that draw them on a page.

Run as a program, as `reports.charts.render_process` does, it makes what it is asked for until
nobody asks any more. So it imports nothing of ours, and nothing that takes long: who draws waits
for it, and `json` and `typing` would be half of the time until vl_convert can begin.
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
    if not _bundled:
        bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub lacks the default
        _bundled.append(bundle)
    return _bundled[0]


def _begun(_given: object) -> str:
    return vl_convert.vega_to_svg(EMPTY_SPEC)


MAKES: Final[Mapping[str, Callable[[Any], str | bytes]]] = {
    "svg": vl_convert.vegalite_to_svg,
    "png": _png,
    "pdf": vl_convert.svg_to_pdf,
    "scripts": _scripts,
    "begun": _begun,
}
"""What can be made, by name: the SVG of a spec; PNG and PDF of an SVG; Vega, Vega-Lite and
vega-embed in one script of 0.9 MB, which takes as long as 20 charts; and nothing but the start of
the library, which takes as long as a few."""
ERROR_PREFIX: Final = b"why not: "


def make_product(product: str, source: object = None) -> bytes:
    """One of MAKES. Raises ValueError on a spec that vl_convert cannot draw."""
    made = MAKES[product](source)
    return made.encode() if isinstance(made, str) else made


def main() -> None:
    """Answer each question: by a line with the number of bytes, and the bytes.

    A question is a line with the name of what is made and the number of bytes of what is given for
    it, and these, by `marshal`: it keeps each number as it is, and imports nothing. Where nothing
    could be made, ERROR_PREFIX begins the line, and the bytes say it.
    """
    while asked := sys.stdin.buffer.readline():
        what, size = asked.decode().split()
        said, mark = sys.stdin.buffer.read(int(size)), b""
        if len(said) < int(size):
            return  # who asked is gone
        try:
            made = make_product(what, marshal.loads(said))  # noqa: S302 - said by reports.charts.render_process
        except ValueError as error:
            made, mark = str(error).encode(), ERROR_PREFIX
        answer = b"%s%d\n%s" % (mark, len(made), made)
        try:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # who asked is gone; an exit would flush again
            os._exit(0)


if __name__ == "__main__":
    main()
