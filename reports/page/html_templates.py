"""The one environment of all HTML: templates, with autoescape, and the one door past it.

A template is named by its room and file: `page/report.html.j2`. It does markup alone: Python gives
it data, and the filters by which a figure is written. Autoescape is on for all of them, so a text
of a log is a text; only `trusted` lets markup in. An unknown name is an error, not an empty text.

A line break with its indentation is a space between two words of a template, and nothing beside a
tag or a block. What comes from data keeps its line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from itertools import chain, pairwise
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.ext import Extension
from jinja2.lexer import TOKEN_BLOCK_BEGIN, TOKEN_BLOCK_END, TOKEN_DATA, Token, TokenStream
from markupsafe import Markup

from . import html_cells

ROOMS: Final = (__package__ or "").rpartition(".")[0]
"""The package whose rooms hold templates."""


def trusted(html: str) -> Markup:
    """Let markup past autoescape: the one door.

    html: markup that holds no text of a log, a file or a user that was not escaped before it was
    put in: output of templates, our scripts and style sheets, JSON whose '<' are escaped, and
    sentences in reports.page.html_style.
    """
    return Markup(html)  # noqa: S704 - the door


def render(name: str, **view: object) -> Markup:
    """Set a template as HTML. view: what it shows, by the names that it has for them."""
    return trusted(environment().get_template(name).render(view))


@cache
def macro(template: str, name: str) -> Callable[..., Markup]:
    """Return a macro of a template; its arguments are escaped but for markup."""
    found: Callable[..., Markup] = getattr(environment().get_template(template).module, name)
    return found


@cache
def environment() -> Environment:
    """Make the environment when the first page is drawn."""
    known = Environment(
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
    """Line breaks in templates are for those who read templates; pages hold no indentation."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        """Drop line breaks beside tags and blocks; between words a space takes their place."""
        block = Token(0, TOKEN_BLOCK_END, "")
        for (before, token), (_, after) in pairwise(pairwise(chain([block], stream, [block]))):
            if token.type != TOKEN_DATA:
                yield token
            elif text := _joined(token.value, _is_block(before), _is_block(after)):
                yield Token(token.lineno, TOKEN_DATA, text)


def _is_block(token: Token) -> bool:
    return token.type in {TOKEN_BLOCK_BEGIN, TOKEN_BLOCK_END, TOKEN_DATA}


LINE_BREAK: Final = re.compile(r"(?P<kept><pre\b.*?</pre>)|[ \t]*\n\s*", re.DOTALL)
"""A line break with its indentation; those of preformatted text are kept."""


def _joined(text: str, begins: bool, ends: bool) -> str:  # noqa: FBT001 - of two neighbours
    """Join the lines of a template's text. begins, ends: whether a block is its neighbour."""
    if not text.strip() and "\n" in text:
        return ""

    def between(found: re.Match[str]) -> str:
        if found["kept"]:
            return found["kept"]
        before, after = text[: found.start()][-1:], text[found.end() :][:1]
        if before == ">" or after == "<" or (not before and begins) or (not after and ends):
            return ""
        return " "

    return LINE_BREAK.sub(between, text)
