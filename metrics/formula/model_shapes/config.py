"""Reader of the keys of a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .. import messages
from ..messages import ShapeError
from .shape import check_dimension

MOST: Final = 1e6
"""Largest factor of a dimension, far beyond any model's."""


@dataclass(frozen=True, slots=True)
class Config:
    """Reader of a configuration; a missing or malformed key raises ShapeError.

    Defaults are used only where transformers documents them for this model_type (5.23.0,
    configuration classes). As in transformers, absent and null mean the same.

    read_keys: keys requested so far, by this configuration or its copies (`with_values`)
    """

    values: Mapping[str, object]
    source: str
    read_keys: set[str] = field(default_factory=set, compare=False)

    def with_values(self, values: Mapping[str, object]) -> Config:
        """Return the same configuration with other values."""
        return Config(values, self.source, self.read_keys)

    def number(self, *keys: str, default: int | None = None) -> int:
        """Return the first of `keys` with a value, a whole number of at least 1."""
        value = self.optional(*keys)
        if value is None:
            value = default
        if value is None:
            raise messages.SHAPE_KEY_MISSING(
                source=self.source, keys=" or ".join(repr(key) for key in keys)
            )
        if value < 1:
            key = next(key for key in keys if self.values.get(key) is not None)
            raise messages.SHAPE_KEY_TOO_SMALL(source=self.source, key=key, value=value)
        return check_dimension(self.source, keys[0], value)

    def optional(self, *keys: str) -> int | None:
        """Return the first of `keys` with a value; None without any."""
        self.read_keys.update(keys)
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, bool) or not isinstance(value, int | None):
                raise self._malformed(key, "a whole number")
            if value is not None:
                return check_dimension(self.source, key, value)
        return None

    def ratio(self, key: str) -> float:
        """Return a factor of the configuration, positive and finite."""
        self.read_keys.add(key)
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MOST:
            raise self._malformed(key, "a positive factor")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean of the configuration."""
        self.read_keys.add(key)
        value = self.values.get(key)
        if not isinstance(value, bool | None):
            raise self._malformed(key, "true or false")
        return default if value is None else value

    def choice(self, key: str, *choices: str, default: str) -> str:
        """Return the value of a key, one of `choices`; the default if absent."""
        self.read_keys.add(key)
        value = self.values.get(key) or default
        if value not in choices:
            raise self._malformed(key, " or ".join(choices))
        return str(value)

    def items(self, key: str) -> list[object]:
        """Return a list of the configuration; empty if absent."""
        self.read_keys.add(key)
        value = self.values.get(key) or []
        if not isinstance(value, list | tuple):
            raise self._malformed(key, "a list")
        return list(value)

    def layer_numbers(self, key: str) -> set[int]:
        """Return a list of layer numbers as a set; empty if absent."""
        places = self.items(key)
        for place in places:
            if isinstance(place, bool) or not isinstance(place, int):
                raise self._malformed(key, "a list of whole numbers")
        return {place for place in places if isinstance(place, int)}

    def _malformed(self, key: str, wanted: str) -> ShapeError:
        return messages.SHAPE_KEY_MALFORMED(
            source=self.source, key=key, value=self.values.get(key), wanted=wanted
        )
