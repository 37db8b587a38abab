"""Marks of the Hugging Face Trainer's dicts, printed by every node without a step."""

from __future__ import annotations

import re
from typing import Final

from ..spec import SteplessDicts

STEPLESS_DICTS: Final = SteplessDicts(
    begins=b"{'loss': ",
    dict_of_line=re.compile(rb"(?:^|\r|(?:s/it|it/s)\])[ \r]*(?P<dict>\{'loss': [^{}]*\})\s*$"),
    of_each_node=re.compile(rb"\{'(?:loss|train_runtime)': |\d/\d+ \[[\d:]{5,12}<"),
)
