"""Markup as pages have it, for tests that make pages of their own."""

from __future__ import annotations

from functools import cache
from typing import Final

from jinja2 import Template
from markupsafe import Markup

from fairmfu.reports.page.html_report import Controls, Filter
from fairmfu.reports.page.html_templates import environment, trusted

MODULES: Final = ("controls", "figures", "names", "tables")
IMPORTS: Final = "".join(f'{{% import "page/{name}.html.j2" as {name} %}}' for name in MODULES)


def markup(source: str, **view: object) -> Markup:
    """Return the output of a template of this source, which has the pages' macros by module."""
    return trusted(_compiled(source).render(view))


@cache
def _compiled(source: str) -> Template:
    return environment().from_string(IMPORTS + source)


def paragraph(text: str) -> Markup:
    """A text as a template writes it."""
    return markup("<p>{{ text }}</p>", text=text)


def controls(models: list[str], accelerators: list[str], subjects: str = "") -> Markup:
    """The controls of a page whose runs differ in these."""
    filters = [Filter("model", "Model", models), Filter("accelerator", "GPU", accelerators)]
    chosen = Controls([one for one in filters if len(one.choices) > 1], subjects, [])
    return markup("{{ controls.controls(chosen) }}", chosen=chosen)
