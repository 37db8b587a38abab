"""The nightly's files for programs and chats."""

from __future__ import annotations

from typing import Any

from reports.night import Night


def markdown(night: Night) -> str:
    """summary.md."""
    raise NotImplementedError


def summary(night: Night) -> dict[str, Any]:
    """summary.json."""
    raise NotImplementedError


def junit(night: Night) -> str:
    """junit.xml."""
    raise NotImplementedError


def svgs(night: Night) -> dict[str, str]:
    """File name to SVG."""
    raise NotImplementedError
