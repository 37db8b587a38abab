"""Sentences as markup: the style of reports.text.verdict for a page.

A style joins texts to a sentence. Names and emphasis come from the template of names. All other
text passes `plain`, which escapes. So the sentence as a whole is trusted.
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
"""Style on a page whose runs can be selected."""
SERIES_STYLE: Final = replace(HTML_STYLE, name=_named("dotted_label"))
"""Style without a synthetic mark: a series' label contains the mark, unlike a run's."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """Verdict for the page's template."""

    label: str
    sentence: Markup
    notes: tuple[Markup, ...]
    differs: Markup

    @classmethod
    def of(cls, verdict: Verdict) -> Sentences:
        """Convert a verdict written in a style of this module."""
        return cls(
            label=verdict.label,
            sentence=trusted(verdict.sentence),
            notes=tuple(map(trusted, verdict.notes)),
            differs=trusted(verdict.differs),
        )
