"""What a page holds: its scripts, data and text; what is packed, put back in its place."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

PACK = re.compile(r'<script type="text/plain" class="pack">([A-Za-z0-9+/=]*)</script>\n?')
LIBRARY = re.compile(r'<script type="text/plain" class="library">([A-Za-z0-9+/=]*)</script>')
PACKED_NOTE = re.compile(r'\n?<footer class="note screen".*?</footer><noscript>.*?</noscript>')
FOLD = re.compile(
    r'(<details[^>]*) data-packed="(\d+)\.(\d+)"([^>]*><summary>.*?</summary>)', re.DOTALL
)


def blocks(page: str) -> list[list[str]]:
    """The bodies of each pack of a page."""
    return [json.loads(text_of(held)) for held in PACK.findall(page)]


def text_of(held: str) -> str:
    return gzip.decompress(base64.b64decode(held)).decode()


def unpacked(page: str) -> str:
    """The page with all that it holds packed in its place, as where all had been opened."""
    bodies = blocks(page)

    def put(at: re.Match[str]) -> str:
        return at[1] + at[4] + whole(bodies[int(at[2])][int(at[3])])

    def whole(text: str) -> str:
        return FOLD.sub(put, text)

    shown = PACKED_NOTE.sub("", PACK.sub("", page))
    return whole(LIBRARY.sub(lambda at: f"<script>{text_of(at[1])}</script>", shown))


def rows(held: Any) -> list[dict[str, Any]]:
    """The rows of a chart's set of data, which mostly is held by column."""
    if isinstance(held, list):
        return held
    return [dict(zip(held, row, strict=True)) for row in zip(*held.values(), strict=True)]


class Read(HTMLParser):
    """A page as a browser takes it.

    tags: names of all elements; run, data: texts of its scripts, of which data do not run; text:
    what is no script; addresses: whatever could be loaded or gone to.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.run: list[str] = []
        self.data: list[str] = []
        self.addresses: list[str] = []
        self.text = self.policy = ""
        self._into: list[str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.addresses += [given[name] or "" for name in ("src", "href", "action") if name in given]
        if tag == "script":
            self._into = self.data if given.get("type") == "application/json" else self.run
            self._into.append("")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is None:
            self.text += data
        else:
            self._into[-1] += data
