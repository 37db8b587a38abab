"""Facts with their origin: given by hand, from files next to the log, or inferred.

    flag > sidecar > log > companion file > inferred

Of two facts with one kind of origin, the later applies. All are kept, to show disagreements.
"""

from __future__ import annotations

import errno
import json
import math
import tomllib
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from ..core.operator_list import operator_list, operator_list_text
from ..core.schema import FACT_NAMES, FactName, as_choice, fact_problem
from ..core.toml_reader import parse_toml, read_toml_text
from ..decode.text_cleaning import to_valid_utf8
from ..formats.launch_view import Fact, stated_size
from ..formats.spec import LogFormat
from ..launches.launch import Launch
from ..launches.step_rows import StepRows
from .messages import (
    IMPOSSIBLE_FACT,
    INVALID_FACTS_FILE,
    INVALID_JSON,
    INVALID_OPERATORS,
    JSON_FILE_MISSING,
    JSON_FILE_TOO_LARGE,
    NO_ASSIGNMENT,
    NO_JSON_OBJECT,
    NO_MODEL_CONFIG,
    UNKNOWN_FACT,
)

SIDECAR_NAME: Final = "facts.toml"
MAX_COMPANION_BYTES: Final = 4 * 1024 * 1024
MIN_EQUAL_LENGTH_LINES: Final = 3
"""Minimum number of lines with equal lengths: fewer may be equal by chance.

Lines differ if every line pads to its own longest sample.
"""
_RATES: Final = ("logged_samples_per_second", "sequence_length", "logged_tgs")
_OF_ONE_GROUP: Final = ("micro_batch_size", "gradient_accumulation", "data_parallel")


def facts_from_flags(
    assignments: Iterable[str], context: str = "--set", *, allow_removal: bool = False
) -> list[Fact]:
    """Return the facts of `NAME=VALUE` words, the values of `--set`.

    Raises FactError for a name not in FACT_NAMES, or an invalid value.

    context: start of error messages, for example the option
    allow_removal: turn `NAME=` into a fact without a value, which removes a fact given by hand
    """
    facts = []
    for assignment in assignments:
        name, equals, value = (word.strip() for word in assignment.partition("="))
        if not equals:
            raise NO_ASSIGNMENT(context=context, text=assignment)
        if allow_removal and not value:
            _known(name, context)
            facts.append({"name": name, "value": None, "origin": "flag", "line": None})
        else:
            facts.append(make_fact(name, value, "flag", Path.cwd(), context))
    return facts


def facts_from_sidecars(log: Path) -> list[Fact]:
    """Return facts of `facts.toml` in the log's folder, then of `<log>.facts.toml`.

    The later facts apply.
    """
    return [fact for path in _sidecars(log) for fact in facts_from_toml(path)]


def _sidecars(log: Path) -> Iterator[Path]:
    """Yield the existing sidecars of a log; a name too long for a file does not exist."""
    for path in (log.with_name(SIDECAR_NAME), log.with_name(f"{log.name}.{SIDECAR_NAME}")):
        try:
            exists = path.is_file()
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            exists = False
        if exists:
            yield path


def facts_from_toml(path: Path, origin_kind: str = "sidecar") -> list[Fact]:
    """Return the facts of a TOML file of `name = value` lines. Raises FactError.

    origin_kind: sidecar, or flag for a file named on the command line
    """
    try:
        values = parse_toml(read_toml_text(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise INVALID_FACTS_FILE(path=path, error=error) from error
    return facts_from_values(values, f"{origin_kind}:{path.name}", path.parent, str(path))


def facts_of_selections(path: Path) -> list[tuple[list[str], list[Fact]]]:
    """Return the runs and facts of each `[[facts]]` table of a file.

    The file is a template of `fairmfu missing --write`. Tables without facts are skipped.

    Raises FactError.
    """
    try:
        document = parse_toml(read_toml_text(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise INVALID_FACTS_FILE(path=path, error=error) from error
    tables = document.get("facts")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise INVALID_FACTS_FILE(path=path, error="it has no [[facts]] tables")
    found = []
    for table in tables:
        values = {name: value for name, value in table.items() if name != "runs"}
        runs = table.get("runs")
        if not isinstance(runs, list) or not all(isinstance(run, str) for run in runs):
            raise INVALID_FACTS_FILE(path=path, error="a [[facts]] table has no list of runs")
        if values:
            origin = f"flag:{path.name}"
            found.append((runs, facts_from_values(values, origin, path.parent, str(path))))
    return found


def facts_from_values(
    values: Mapping[str, object], origin: str, folder: Path, context: str
) -> list[Fact]:
    """Return the facts of a TOML table, with values by name.

    Raises FactError, with a message that begins with `context`.

    folder: base of relative paths
    """
    return [make_fact(n, value_text(value), origin, folder, context) for n, value in values.items()]


def files_named_in_sidecars(log: Path) -> list[Path]:
    """Return the files named in a log's sidecars: `model_config = "config.json"`."""
    named = []
    for sidecar in _sidecars(log):
        with suppress(OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            values = parse_toml(read_toml_text(sidecar))
            given = (v for n, v in values.items() if n in _IN_FILES and isinstance(v, str))
            named += [sidecar.parent / value for value in given if not value.startswith("{")]
    return named


def infer_facts(
    log_format: LogFormat, launches: Sequence[Launch], companions: Sequence[LogFormat] = ()
) -> list[list[Fact]]:
    """Return the facts of each launch that follow from its format or its steps.

    companions: formats with lines among those of log_format; one of the same framework, such as a
        script next to its engine, implies what log_format does not
    """
    implying = (f for f in (log_format, *companions) if f.framework == log_format.framework)
    implications = ChainMap(*(dict(each.implies) for each in implying))
    implied = [
        {"name": name, "value": value, "origin": f"inferred: {why}", "line": None}
        for name, (value, why) in implications.items()
    ]
    infers = {f.infer_sizes: None for f in (log_format, *companions) if f.infer_sizes}
    several = [infer(launches) for infer in infers]
    return [
        implied
        + _gpus_from_rates(launch.rows)
        + (_length_of_all(launch.rows) or _length_of_counts(launch))
        + _replica_groups(launch)
        + [fact for inferred in several for fact in inferred[index]]
        for index, launch in enumerate(launches)
    ]


def _replica_groups(launch: Launch) -> list[Fact]:
    """Infer the number of replica groups, from the log of a single group.

    TorchFT's groups are alike: Torchtitan's global batch is local batch x accumulation x
    data-parallel ranks of one group x groups
    (pytorch/torchtitan/torchtitan/components/ft/manager.py@0a8e148 FTManager.get_dp_info).
    """
    if launch.last_value("replica_group") is None:
        return []
    batch = stated_size(launch, "global_batch_size")
    group_sizes = [number for name in _OF_ONE_GROUP if (number := stated_size(launch, name))]
    if batch is None or len(group_sizes) < len(_OF_ONE_GROUP):
        return []
    groups, rest = divmod(batch, math.prod(group_sizes))
    if rest or not groups:
        return []
    why = "inferred: the global batch over the batch of this replica group"
    return [{"name": "replica_groups", "value": str(groups), "origin": why, "line": None}]


def _gpus_from_rates(rows: StepRows) -> list[Fact]:
    """Infer GPUs from lines with three rates.

    GPUs = samples/s x tokens per sample / (tokens/s/GPU)
    """
    counts = set[int]()
    for frame in rows.frames(*_RATES) if rows.has_columns(*_RATES) else ():
        samples, tokens, tgs = (frame[name].cast(pl.Float64).to_numpy() for name in _RATES)
        printed = (samples != 0) & (tokens != 0) & (tgs != 0)  # nulls are nan
        with np.errstate(all="ignore"):
            ratios = samples[printed] * tokens[printed] / tgs[printed]
        counts.update(map(int, np.unique(np.rint(ratios[np.isfinite(ratios)]))))
    if len(counts) != 1 or 0 in counts:
        return []
    why = "inferred: samples/s x tokens per sample / tgs, the same on every line"
    return [{"name": "gpus", "value": str(counts.pop()), "origin": why, "line": None}]


def _length_of_all(rows: StepRows) -> list[Fact]:
    """Infer the sequence length if all lines print the same, and not by chance."""
    if len(rows) < MIN_EQUAL_LENGTH_LINES or not rows.has_columns("sequence_length"):
        return []
    lengths = set[Any]()
    for frame in rows.frames("sequence_length"):
        printed = frame["sequence_length"]
        lengths |= {printed.min(), printed.max()} if len(printed) else set()
        if printed.null_count() or len(lengths) > 1:
            return []
    (length,) = lengths
    why = "inferred: every line prints this length"
    return [{"name": "seq_len", "value": str(length), "origin": why, "line": None}]


def _length_of_counts(launch: Launch) -> list[Fact]:
    """Infer the sequence length from tokens per sample consumed between lines.

    Only for logs that state no length, such as excerpts.
    """
    names = ("consumed_tokens", "consumed_samples")
    if launch.last_value("seq_len") is not None or not launch.rows.has_columns(*names):
        return []
    lengths, lines = set[float](), 0
    for frame in launch.rows.frames(*names):
        grown = frame.select(names).drop_nulls().select(pl.all().diff()).drop_nulls()
        grown = grown.filter(pl.all_horizontal(pl.all() > 0))
        lengths |= {*(grown["consumed_tokens"] / grown["consumed_samples"]).unique()}
        lines += grown.height
    if (
        lines < MIN_EQUAL_LENGTH_LINES - 1
        or len(lengths) > 1
        or not (length := lengths.pop()).is_integer()
    ):
        return []
    why = "inferred: the tokens that each sample adds to those consumed"
    return [{"name": "seq_len", "value": f"{length:.0f}", "origin": why, "line": None}]


def check_fact(name: str, text: str, context: str) -> None:
    """Check the name and value of a fact.

    Raises FactError for a name not in FACT_NAMES, or an invalid value.
    """
    _check(name, _known(name, context), text, context)


def make_fact(name: str, text: str, origin: str, folder: Path, where: str) -> Fact:
    """Return a fact with a checked value. Raises FactError.

    folder: base of relative paths
    where: start of error messages
    """
    definition = _known(name, where)
    if definition.kind == "json" and not text.startswith("{"):
        text = _json_file(folder / text, where, of_model=name != "operators")
    text = as_choice(definition, text)
    _check(name, definition, text, where)
    if name == "operators":
        text, origin = _operators(text, origin, where)
    value = to_valid_utf8(_canonical(definition, text))
    return {"name": name, "value": value, "origin": to_valid_utf8(origin), "line": None}


def _operators(text: str, origin: str, where: str) -> tuple[str, str]:
    """Return an operator list, and its origin with the programs that counted it."""
    try:
        counted_by = operator_list(text).counted_by
    except ValueError as error:
        raise INVALID_OPERATORS(context=where, why=error) from error
    if counted_by:
        origin += f"{',' if ':' in origin else ':'} counted by {counted_by}"
    return operator_list_text(text), origin


def _known(name: str, where: str) -> FactName:
    definition = FACT_NAMES.get(name)
    if definition is None:
        near = get_close_matches(name, FACT_NAMES, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UNKNOWN_FACT(context=where, name=name, hint=hint)
    return definition


def _canonical(definition: FactName, text: str) -> str:
    """Return a number in a form that all readers of the store understand.

    Python also accepts `8_192` and `1e3`.
    """
    if definition.kind == "int":
        return str(int(float(text)))
    plain = text.isascii() and "_" not in text
    return text if definition.kind != "float" or plain else repr(float(text))


def _check(name: str, definition: FactName, text: str, where: str) -> None:
    if (why := fact_problem(name, text)) is not None:
        raise IMPOSSIBLE_FACT(context=where, why=why)
    if definition.kind == "json":
        _object(text, f"{where}: {name}")


def value_text(value: object) -> str:
    """Return a value of TOML, YAML or JSON as the text of a fact."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return json.dumps(value, default=str) if isinstance(value, dict) else str(value)


def read_model_config(path: Path) -> dict[str, Any]:
    """Return the object of a Hugging Face config.json. Raises FactError."""
    return _json_values(path, "MODEL")


def _json_file(path: Path, where: str, *, of_model: bool) -> str:
    """Return a JSON file as text.

    of_model: any file but a model's config.json is refused
    """
    values = _json_values(path, where)
    if of_model and "model_type" not in values:
        raise NO_MODEL_CONFIG(context=where, path=path)
    return json.dumps(values)


def _json_values(path: Path, where: str) -> dict[str, Any]:
    try:
        if not path.is_file():
            why = "is not a file" if path.exists() else "does not exist"
            raise JSON_FILE_MISSING(context=where, path=path, why=why)
        if path.stat().st_size > MAX_COMPANION_BYTES:
            raise JSON_FILE_TOO_LARGE(context=where, path=path)
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise INVALID_JSON(context=f"{where}: {path}", error=error) from error
    return _object(text, f"{where}: {path}")


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise INVALID_JSON(context=where, error=error) from error
    if not isinstance(values, dict):
        raise NO_JSON_OBJECT(context=where)
    return values


_IN_FILES: Final = frozenset(name for name, known in FACT_NAMES.items() if known.kind == "json")
"""Facts whose value may be the path of a JSON file."""
