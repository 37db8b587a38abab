"""The text of a line's bytes: UTF-8 with plain blanks.

Invalid UTF-8 becomes U+FFFD, NUL bytes go (real logs hold runs of them inside records), so do
byte-order marks (editors and shells of Windows write them) and other characters without a width;
no-break and other odd spaces of web copies become plain ones.
"""

from __future__ import annotations

from typing import Final

UTF16_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
ODD_SPACES: Final = "\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Spaces that a copy from a page has for plain ones; they become such."""
WIDTHLESS_CHARS: Final = "\xad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Characters that nobody sees: hints where to break or join, byte-order marks. They go."""
NORMALIZED_CHARS: Final = ODD_SPACES + WIDTHLESS_CHARS
_PLAIN: Final = str.maketrans(ODD_SPACES, " " * len(ODD_SPACES), WIDTHLESS_CHARS)


def decode_line(raw: bytes) -> str:
    """The text of a line's bytes."""
    if raw.startswith(UTF16_BYTE_ORDER_MARKS):
        raw = raw[2:]  # of which the NUL bytes go, so that ASCII is left
    text = raw.decode("utf-8", "replace").replace("\0", "")
    return (text if text.isascii() else text.translate(_PLAIN)).rstrip("\r")
