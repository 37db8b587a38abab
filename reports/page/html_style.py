"""Sentences as markup: the style in which reports.text.verdict writes them for a page.

A style joins texts to a sentence. Names and emphasis come from the template of names, all other
text through `plain`, which escapes; so the sentence as a whole is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from markupsafe import Markup, escape

from ..text.verdict import Style, Verdict
from .html_templates import macro, trusted

TEMPLATE: Final = "page/names.html.j2"


def _named(kind: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: str(macro(TEMPLATE, kind)(row))


def _emphasised(kind: str) -> Callable[[str], str]:
    return lambda sentence: str(macro(TEMPLATE, kind)(trusted(sentence)))


HTML_STYLE: Final = Style(
    name=_named("run_label"),
    strong=_emphasised("strong"),
    quiet=_emphasised("quiet"),
    aside=_emphasised("aside"),
    plain=lambda text: str(escape(text)),
)
SELECTABLE_STYLE: Final = replace(HTML_STYLE, name=_named("run_select"))
"""The style on a page whose runs can be marked."""
SERIES_STYLE: Final = replace(HTML_STYLE, name=_named("dotted_label"))
"""A series' label says itself that it is synthetic; a run's does not."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """A verdict as the page's template takes it."""

    label: str
    sentence: Markup
    notes: tuple[Markup, ...]
    differs: Markup

    @classmethod
    def of(cls, verdict: Verdict) -> Sentences:
        """Take a verdict that was written in a style of this module."""
        return cls(
            label=verdict.label,
            sentence=trusted(verdict.sentence),
            notes=tuple(map(trusted, verdict.notes)),
            differs=trusted(verdict.differs),
        )
