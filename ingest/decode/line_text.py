"""Decode the bytes of a line: UTF-8 with plain blanks.

Invalid UTF-8 becomes U+FFFD. NUL bytes are removed (real logs have runs of NULs inside records),
and so are byte-order marks (from editors and shells of Windows) and other characters without a
width. No-break and other special spaces of web copies become plain ones.
"""

from __future__ import annotations

from typing import Final

UTF16_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
ODD_SPACES: Final = "\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Special spaces in text copied from web pages; they become plain ones."""
WIDTHLESS_CHARS: Final = "\xad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Invisible characters: hints where to break or join, byte-order marks. They are removed."""
NORMALIZED_CHARS: Final = ODD_SPACES + WIDTHLESS_CHARS
_PLAIN: Final = str.maketrans(ODD_SPACES, " " * len(ODD_SPACES), WIDTHLESS_CHARS)


def decode_line(raw: bytes) -> str:
    """Return the text of a line's bytes."""
    if raw.startswith(UTF16_BYTE_ORDER_MARKS):
        raw = raw[2:]  # removing the NUL bytes of UTF-16 leaves ASCII
    text = raw.decode("utf-8", "replace").replace("\0", "")
    return (text if text.isascii() else text.translate(_PLAIN)).rstrip("\r")


def holds(data: bytes, text: bytes) -> bool:
    """Return whether a text is in the data; its first byte is searched in a tenth of the time."""
    return text[:1] in data and text in data
