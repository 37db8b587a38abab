"""How much a test tries: `make thorough` has those that draw at random draw more, and reads all."""

from __future__ import annotations

import os
from typing import Final

import pytest

THOROUGH: Final = "FAIRMFU_THOROUGH" in os.environ

every_log = pytest.mark.skipif(not THOROUGH, reason="reads every log: make thorough")
