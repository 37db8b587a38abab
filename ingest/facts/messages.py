"""Errors of facts, of the files that give them, and of the configuration."""

from __future__ import annotations

from typing import Final

from ..core.errors import ConfigError, ErrorKind, FactError

NO_ASSIGNMENT: Final = ErrorKind(
    "no-assignment",
    "{context} {text} gives no value.",
    "A fact is given without an equals sign.",
    FactError,
    fix="write NAME=VALUE, for example gpus=8",
)
UNKNOWN_FACT: Final = ErrorKind(
    "unknown-fact",
    "{context}: no fact is called {name!r}.{hint}",
    "A fact is given by a name that does not exist.",
    FactError,
)
IMPOSSIBLE_FACT: Final = ErrorKind(
    "impossible-fact",
    "{context}: {why}.",
    "A fact is given a value that no run can have.",
    FactError,
)
INVALID_FACTS_FILE: Final = ErrorKind(
    "invalid-facts-file",
    "{path}: not a facts file: {error}.",
    "A facts.toml cannot be read, or is not TOML.",
    FactError,
)
NO_MODEL_CONFIG: Final = ErrorKind(
    "no-model-config",
    "{context}: {path} is not a model's config.json: it has no model_type.",
    "The fact model_config names another JSON file.",
    FactError,
)
INVALID_OPERATORS: Final = ErrorKind(
    "invalid-operators",
    "{context}: operators is no operator list: {why}.",
    "The fact operators is not the JSON of an operator list.",
    FactError,
    fix="give the output of fairmfu flops MODEL --seq-len N --format json",
)
JSON_FILE_MISSING: Final = ErrorKind(
    "json-file-missing",
    "{context}: {path} {why}.",
    "A fact names a JSON file that does not exist.",
    FactError,
)
JSON_FILE_TOO_LARGE: Final = ErrorKind(
    "json-file-too-large",
    "{context}: {path} is too large for a model's config.json.",
    "A fact names a JSON file of more than 4 MiB.",
    FactError,
)
INVALID_JSON: Final = ErrorKind(
    "invalid-json",
    "{context} cannot be read as JSON: {error}.",
    "The value of a fact, or the file that it names, is not JSON.",
    FactError,
)
NO_JSON_OBJECT: Final = ErrorKind(
    "no-json-object",
    "{context} is not a JSON object.",
    "The value of a fact is JSON, and not an object.",
    FactError,
)
CONFIG_MISSING: Final = ErrorKind(
    "config-missing",
    "{variable}={path}: no such file.",
    "An environment variable names a configuration that does not exist.",
    ConfigError,
    fix="create it, or unset the variable",
)
