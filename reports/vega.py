"""What vl_convert makes: pictures of Vega-Lite specs, and the scripts that draw them on a page.

Run as a program, as `reports.drawing` does, it makes what it is asked for until nobody asks any
more. So it imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

import vl_convert

SCALE: Final = 2.0
"""Pixels of a PNG per pixel of a chart."""
NOTHING: Final = {"$schema": "https://vega.github.io/schema/vega/v6.json"}


@cache
def _scripts(_given: object) -> str:
    return vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub lacks the default


def _begun(_given: object) -> str:
    return vl_convert.vega_to_svg(NOTHING)


MAKES: Final[Mapping[str, Callable[[Any], str | bytes]]] = {
    "svg": vl_convert.vegalite_to_svg,
    "png": partial(vl_convert.svg_to_png, scale=SCALE),
    "pdf": vl_convert.svg_to_pdf,
    "scripts": _scripts,
    "begun": _begun,
}
"""By name: the SVG of a spec; PNG and PDF of an SVG; Vega, Vega-Lite and vega-embed in one script,
some 0.9 MB, which takes as long as 20 charts; and nothing but the start, as long as a few."""


def make(what: str, given: object = None) -> bytes:
    """One of MAKES. Raises ValueError on a spec that vl_convert cannot draw."""
    made = MAKES[what](given)
    return made.encode() if isinstance(made, str) else made


def main() -> None:
    """Answer each line, [what, given] in JSON: by a line with the number of bytes, and the bytes.

    A line that is no number says why there are none.
    """
    for line in sys.stdin.buffer:
        try:
            made = make(*json.loads(line))
        except ValueError as error:
            answer = b"%s\n" % json.dumps(str(error)).encode()
        else:
            answer = b"%d\n%s" % (len(made), made)
        try:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # who asked is gone; an exit would flush again
            os._exit(0)


if __name__ == "__main__":
    main()
