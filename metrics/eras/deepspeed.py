"""deepspeed: what its versions print of their own speed."""

from __future__ import annotations

from typing import Final

from metrics.era import Era

ERAS: Final[tuple[Era, ...]] = ()
