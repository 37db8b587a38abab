"""Lines that were broken at a width, put together by what was found of them."""

from __future__ import annotations

from collections.abc import Sequence

from fairmfu.ingest.decode.log_collectors import MakeUnwrap


def joined_by(made: MakeUnwrap | None, lines: Sequence[bytes]) -> list[bytes] | None:
    """The lines put together; None where nothing was found, and they stay."""
    if made is None:
        return None
    whole: list[bytes] = []
    for piece in map(made(), lines):
        assert piece is not None
        if piece.continues:
            whole[-1] += piece.text
        else:
            whole.append(piece.text)
    return whole
