"""Warnings of a run by their kind, which stays when the words of a sentence change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairmfu.metrics.core.messages import MessageKind


def of_kind(row: Mapping[str, Any], *kinds: MessageKind) -> list[str]:
    """Return the warnings of these kinds in a metrics row, in their order."""
    wanted = {kind.identifier for kind in kinds}
    pairs = zip(row["warnings"], row["warning_kinds"], strict=True)
    return [text for text, kind in pairs if kind in wanted]
