"""Line prefix of AMD's Primus, for every framework that runs on it.

`[20260306 10:15:16][rank-7/8][INFO ] [--------trainer.py:2382] : `. In its files, the user, the
module and the node's address precede the rank (AMD-AGI/Primus primus/core/utils/logger.py@0db5d5d).
"""

from __future__ import annotations

from typing import Final

_COMPACT: Final = r"\d{8} \d\d:\d\d:\d\d"
_BEFORE_RANK: Final = r"\[(?:.{0,199}?\[)?rank-"

PLATFORM_STAMP: Final = rf"\[(?P<stamp>{_COMPACT})\](?={_BEFORE_RANK}\d)"
"""Time stamp of a line."""
PLATFORM_RANK_TAG: Final = rf"\[{_COMPACT}\]{_BEFORE_RANK}(?P<rank>\d{{1,9}})/\d{{1,9}}\]"
"""Prefix up to the global rank; as `LogFormat.rank_tag`."""
