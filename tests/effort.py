"""How much a test tries: `make thorough` has those that draw at random draw more."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = "FAIRMFU_THOROUGH" in os.environ
