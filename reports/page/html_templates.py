"""Environment of all HTML templates, with autoescape and a single bypass.

A template is named by its room and file: `page/report.html.j2`. Templates contain markup only:
Python provides data, and filters that format figures. Autoescape is on for all templates, so log
text stays text; only `trusted` bypasses escaping. An unknown name is an error, not an empty text.

A line break with its indentation becomes a space between two words of a template, and nothing
beside a tag or a block. Line breaks in data stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from itertools import chain, pairwise
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.ext import Extension
from jinja2.lexer import TOKEN_BLOCK_BEGIN, TOKEN_BLOCK_END, TOKEN_DATA, Token, TokenStream
from markupsafe import Markup

from . import html_cells

ROOMS: Final = (__package__ or "").rpartition(".")[0]
"""Package whose rooms contain templates."""


def trusted(html: str) -> Markup:
    """Mark text as markup, bypassing autoescape: the only place that does.

    html: markup without unescaped text of a log, a file or a user: output of templates, our scripts
        and style sheets, JSON with escaped '<', and sentences in reports.page.html_style
    """
    return Markup(html)  # noqa: S704 - the door


def render(name: str, **view: object) -> Markup:
    """Render a template as HTML. view: its variables by name."""
    return trusted(environment().get_template(name).render(view))


@cache
def macro(template: str, name: str) -> Callable[..., Markup]:
    """Return a macro of a template; its arguments are escaped except markup."""
    found: Callable[..., Markup] = getattr(environment().get_template(template).module, name)
    return found


class DataEnvironment(Environment):
    """Environment that looks a name up among the keys of a dict before its methods.

    Most data of a page are dicts: a lookup of a missing method first takes as long as the rest.
    """

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - any data of a page
        """Return the value of the key, else as Jinja."""
        if type(obj) is dict and attribute in obj:
            return obj[attribute]
        if type(obj) is dict and not hasattr(dict, attribute):
            return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


@cache
def environment() -> Environment:
    """Create the environment on first use."""
    known = DataEnvironment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=[LineBreaks],
        auto_reload=False,
    )
    known.filters |= html_cells.FILTERS
    known.globals |= html_cells.GLOBALS
    return known


def _source(name: str) -> str:
    room, _, file = name.partition("/")
    found = resources.files(ROOMS).joinpath(room, "templates", file)
    return found.read_text(encoding="utf-8")


@cache
def packaged(name: str) -> str:
    """Return the text of a file of this package: a style sheet, a script."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


class LineBreaks(Extension):
    """Jinja extension that removes indentation: line breaks are for template authors."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        """Drop line breaks beside tags and blocks; use a space between words."""
        block = Token(0, TOKEN_BLOCK_END, "")
        for (before, token), (_, after) in pairwise(pairwise(chain([block], stream, [block]))):
            if token.type != TOKEN_DATA:
                yield token
            elif text := _joined(token.value, _is_block(before), _is_block(after)):
                yield Token(token.lineno, TOKEN_DATA, text)


def _is_block(token: Token) -> bool:
    return token.type in {TOKEN_BLOCK_BEGIN, TOKEN_BLOCK_END, TOKEN_DATA}


LINE_BREAK: Final = re.compile(r"(?P<kept><pre\b.*?</pre>)|[ \t]*\n\s*", re.DOTALL)
"""Line break with its indentation; preformatted text is kept."""


def _joined(text: str, begins: bool, ends: bool) -> str:  # noqa: FBT001 - of two neighbours
    """Join the lines of a template's text. begins, ends: a block is its neighbour."""
    if not text.strip() and "\n" in text:
        return ""

    def between(match: re.Match[str]) -> str:
        if match["kept"]:
            return match["kept"]
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        if before == ">" or after == "<" or (not before and begins) or (not after and ends):
            return ""
        return " "

    return LINE_BREAK.sub(between, text)
