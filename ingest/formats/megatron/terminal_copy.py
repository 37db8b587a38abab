"""Marks of Megatron's step lines, for joining lines broken by a terminal's copy."""

from __future__ import annotations

import re
from typing import Final

from ..spec import BarredStepLine

BARRED_STEP_LINE: Final = BarredStepLine(
    word=b"iteration",
    begins=re.compile(rb"(?:^|\s)iteration[ =]+\d+ */ *\d+ \|"),
    field=re.compile(rb"[ \w()/-]*[:=][^|]*(?:\||$)"),
    max_padding_blanks=10,
)
