"""The nightly page."""

from __future__ import annotations

from reports.night import Night


def page(night: Night, *, archived: bool = False) -> str:
    """index.html."""
    raise NotImplementedError


def status_js(failed_at: str = "", why: str = "") -> str:
    """status.js."""
    raise NotImplementedError
