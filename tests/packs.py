"""Folds that a page holds packed, put back in their places."""

from __future__ import annotations

import base64
import gzip
import json
import re

PACK = re.compile(r'<script type="text/plain" class="pack">([A-Za-z0-9+/=]*)</script>\n?')
FOLD = re.compile(
    r'(<details[^>]*) data-packed="(\d+)\.(\d+)"([^>]*><summary>.*?</summary>)', re.DOTALL
)


def blocks(page: str) -> list[list[str]]:
    """The bodies of each pack of a page."""
    return [json.loads(gzip.decompress(base64.b64decode(held))) for held in PACK.findall(page)]


def unpacked(page: str) -> str:
    """The page with every packed body in its place, as where all had been opened."""
    bodies = blocks(page)

    def put(at: re.Match[str]) -> str:
        return at[1] + at[4] + whole(bodies[int(at[2])][int(at[3])])

    def whole(text: str) -> str:
        return FOLD.sub(put, text)

    return whole(PACK.sub("", page))
