"""Models known by name, with their configs in models.toml.

Those with a vision tower are in vision_models.toml.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final, cast

from fairmfu.ingest.core.data_files import read_data_file

from ..messages import UNKNOWN_MODEL, UnknownModelError
from .hugging_face import CONFIG_DIMENSIONS, from_hugging_face
from .shape import ModelShape

_SHAPELESS = re.compile(
    r"-(?:instruct|thinking|chat|base|hf|sft|it|pt|(?:flex|varlen)(?:-attn)?)(?=-|$)"
)
"""Words of a name that do not affect the shape; `flex` and `varlen` are torchtitan's."""


def find_model(name: str) -> ModelShape:
    """Return the shape of a model known by name, without its vision tower.

    Ignored: case, blanks and `_`, an organisation or folders before the name, `Meta-`, and words
    such as instruct, chat, hf. All the rest must be exact.

    Raises UnknownModelError, with the nearest names of the same series: `internlm2-7b` is no hint
    for an `internlm-8b`.
    """
    return _built(_find_row(name)["name"])


def find_config(name: str) -> dict[str, Any]:
    """Return the Hugging Face config of a known model: the keys of its shape.

    Raises UnknownModelError.
    """
    return _config(_find_row(name))


def _find_row(name: str) -> _Row:
    whole, known = _folded(name), {**_known(), **_known_seeing()}
    wanted = whole if whole in known else _SHAPELESS.sub("", whole)
    if wanted not in known:
        series = wanted.partition("-")[0]
        alike = [other for other in known if other.partition("-")[0] == series]
        alike = alike or [other for other in known if _is_same_series(other, wanted)]
        raise _unknown(name, difflib.get_close_matches(wanted, alike, n=3))
    return known[wanted]


def _unknown(name: str, nearest: list[str]) -> UnknownModelError:
    hint = f" Nearest known: {', '.join(nearest)}." if nearest else ""
    error = UNKNOWN_MODEL(name=name, hint=hint)
    error.name, error.nearest = name, nearest
    return error


@cache
def known_models() -> tuple[ModelShape, ...]:
    """Return every known model once, by name."""
    return tuple(_built(name) for name in model_names())


def model_names() -> tuple[str, ...]:
    """Return the canonical names of all known models, sorted; builds no model."""
    return tuple(sorted([*_canonical(_known()), *vision_model_names()]))


def vision_model_names() -> tuple[str, ...]:
    """Return the canonical names of known models with a vision tower, sorted."""
    return tuple(sorted(_canonical(_known_seeing())))


def _canonical(rows: Mapping[str, _Row]) -> list[str]:
    return [name for name, row in rows.items() if name == row["name"]]


@cache
def buildable_models() -> tuple[ModelShape, ...]:
    """Return every known model of text that can be built, by name.

    A search among models thus skips an invalid row.
    """
    shapes = []
    for name in sorted(_canonical(_known())):
        with suppress(Exception):
            shapes.append(_built(name))
    return tuple(shapes)


@cache
def _built(canonical: str) -> ModelShape:
    """Build one known model, once."""
    row = {**_known(), **_known_seeing()}[canonical]
    return replace(from_hugging_face(_config(row)), name=canonical)


def _folded(name: str) -> str:
    cached = re.search(r"models--(?:.*--)?([^/\\]+)", name)  # Hugging Face's cache folder
    last = cached.group(1) if cached else re.split(r"[/\\]", name.strip().rstrip("/\\"))[-1]
    return re.sub(r"[\s_]+", "-", last.strip().lower()).removeprefix("meta-")


def _is_same_series(model: str, wanted: str) -> bool:
    """Return whether the first words differ only by a typo: `lama` and llama.

    `internlm2` is another series than internlm.
    """
    series, other = model.partition("-")[0], wanted.partition("-")[0]
    same_version = re.findall(r"\d+", series) == re.findall(r"\d+", other)
    return same_version and difflib.SequenceMatcher(None, series, other).ratio() > MIN_ALIKE


MIN_ALIKE: Final = 0.8
"""Least similarity of a mistyped series name, as a ratio (difflib)."""

_Row = Mapping[str, Any]
"""A row of models.toml, unchecked."""


@cache
def _known() -> Mapping[str, _Row]:
    """Index the rows by normalised name; builds no model."""
    rows = cast("Sequence[_Row]", read_data_file(__package__, "models.toml")["model"])
    return {name: row for row in rows for name in (row["name"], *row.get("names", ()))}


@cache
def _known_seeing() -> Mapping[str, _Row]:
    """Index the rows of vision_models.toml by name, with their vision_config."""
    table = read_data_file(__package__, "vision_models.toml")
    rows = cast("Sequence[_Row]", table["model"])
    return {
        name: {**row, "vision_config": {**table["towers"][row["tower"]], **row.get("vision", {})}}
        for row in rows
        for name in (row["name"], *row.get("names", ()))
    }


def _config(row: _Row) -> dict[str, Any]:
    """Return the row as a Hugging Face config."""
    if "vision_config" in row:
        text = {key: value for key, value in row.items() if key != "vision_config"}
        return {
            "model_type": row["model_type"],
            "vision_config": row["vision_config"],
            "text_config": _config({**text, "model_type": row["text_type"]}),
        }
    dimensions = row.get("dimensions")
    return {
        "model_type": row["model_type"],
        **(dict(zip(CONFIG_DIMENSIONS, dimensions, strict=True)) if dimensions else {}),
        **row.get("config", {}),
        **dict.fromkeys(row.get("null", ())),
    }
