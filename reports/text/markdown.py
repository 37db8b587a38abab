"""Style of sentences in Markdown, and names of its picture files."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from .tabular import markdown_text, printable
from .verdict import Style


def _safe(text: str) -> str:
    """Return log text on one line, escaped for Markdown and a terminal."""
    return markdown_text(printable(text.replace("\r", " "))).replace(" -&gt; ", " -> ")


MARKDOWN_STYLE: Final = Style(
    name=lambda row: f"**{_safe(str(row['label']))}**",
    strong=lambda text: f"**{text}**",
    quiet=str,
    aside=str,
    plain=_safe,
)

MAX_FILE_STEM: Final = 80


def svg_name(series: str) -> str:
    """Return a portable file name, unique per series and the same every night."""
    words = file_words(series)
    digest = hashlib.sha256(series.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{words}-{digest}.svg" if words else f"{digest}.svg"


def file_words(text: str) -> str:
    """Return the words of a text as part of a portable file name; may be empty."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_FILE_STEM].strip("-")
