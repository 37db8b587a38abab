"""fairmfu.toml: inputs and outputs of a nightly run, and facts of logs by path.

docs/fairmfu.toml shows every key. Paths in the file are relative to its folder. All errors are
reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from fnmatch import translate
from functools import lru_cache
from glob import escape, has_magic
from pathlib import Path
from typing import Any, Final

from ..core.errors import ConfigError, FactError
from ..core.paths import URL_SEPARATOR
from ..core.toml_reader import (
    TomlTable,
    raise_problems,
    read_toml,
    suggest_nearest,
    suggest_or_list,
)
from ..formats.launch_view import Fact
from . import facts as given
from .config_file import (
    DEFAULT_STORE,
    address_path,
    devices_path,
    folder_path,
    path_of_home,
    store_path,
)

ENGINE_NAMES: Final = ("local", "ray")
"""Engines that read logs."""

FAIL_ON_NAMES: Final = (
    *("regression", "crash", "missing", "slower-start", "memory", "loss", "standing"),
)
"""Findings that can make a night fail."""

DEFAULT_FAIL_ON: Final = ("regression", "crash", "missing")

_PERCENT: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    """Definition of a series of runs, and the changes that count.

    by: columns of `metrics` that are equal within a series; empty for the default columns
    threshold: a fraction; smaller changes are listed and do not count
    """

    by: tuple[str, ...] = ()
    threshold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsConfig:
    """Names of jobs: those that have to run, and those that no longer run."""

    expected: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFacts:
    """Facts of all logs whose path fits one of the patterns.

    place: name of the table, for messages
    """

    patterns: tuple[str, ...]
    facts: tuple[Fact, ...]
    place: str = ""

    def matches(self, path: str) -> bool:
        """Return whether a pattern fits the absolute path, or its end from some folder on."""
        return _regex(self.patterns).match(path) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectConfig:
    """Contents of fairmfu.toml, with defaults for missing keys.

    sources: files, folders and patterns, local or on object stores
    issue_dir: folder for one file per new finding; None for no files
    accelerators: a file of devices
    price: of a GPU-hour, as written
    redact: True if the reports are for others
    keep: number of dated reports to keep; None keeps all
    wait: maximum time to wait for another writer of the store [s]
    engine: reader of logs, of ENGINE_NAMES
    ray_address: of the Ray cluster
    processes: number of processes that read logs; None for the default number
    baselines: names or ids of runs
    fail_on: findings that make a night fail, of FAIL_ON_NAMES
    """

    path: Path | None = None
    store: Path = DEFAULT_STORE
    sources: tuple[Path, ...] = ()
    out: Path = Path("nightly")
    issue_dir: Path | None = None
    title: str = "Nightly"
    accelerators: Path | None = None
    price: str | None = None
    redact: bool = False
    keep: int | None = None
    wait: float = 600.0
    engine: str = "local"
    ray_address: str | None = None
    processes: int | None = None
    fail_on: tuple[str, ...] = DEFAULT_FAIL_ON
    series: SeriesConfig = SeriesConfig()
    jobs: JobsConfig = JobsConfig()
    facts: tuple[PathFacts, ...] = ()
    baselines: tuple[str, ...] = ()

    def facts_of(self, path: str) -> tuple[Fact, ...]:
        """Return facts of the log at an absolute path; later tables override earlier ones."""
        named = {fact["name"]: fact for t in self.facts if t.matches(path) for fact in t.facts}
        return tuple(named.values())

    def unmatched(self, paths: Iterable[Path]) -> list[str]:
        """Return a message for every table of facts that fits none of these logs."""
        whole = [str(path.absolute()) for path in paths] if self.facts else []
        return [
            f"{self.path}: {table.place}paths: no source matches {' or '.join(table.patterns)}."
            for table in self.facts
            if not any(map(table.matches, whole))
        ]


def load_config(
    path: Path, columns: Collection[str] = (), parse_price: Callable[[str], object] = str
) -> ProjectConfig:
    """Return the configuration of a file. Raises ConfigError with all errors.

    columns: allowed in `series.by`; empty allows any
    parse_price: raises ValueError for a text that is no price
    """
    problems: list[str] = []
    top = _Top(read_toml(path, ConfigError), "", problems)
    top.only(field.name for field in fields(ProjectConfig) if field.name != "path")
    folder = path.absolute().parent
    default = ProjectConfig()
    config = ProjectConfig(
        path=path,
        store=store_path(top, folder, default.store),
        sources=tuple(_source(top, text, folder) for text in _texts(top, "sources")),
        out=folder_path(top, "out", folder, default.out),
        issue_dir=(
            folder_path(top, "issue_dir", folder, folder) if "issue_dir" in top.values else None
        ),
        title=top.take("title", str, default.title),
        accelerators=devices_path(top, folder),
        price=_price(top, parse_price),
        redact=top.take("redact", bool, default.redact),
        keep=_positive(top, "keep", "reports, for example 400"),
        wait=_wait(top, default.wait),
        engine=_engine(top, default.engine),
        ray_address=top.take("ray_address", str, "") or None,
        processes=_positive(top, "processes", "processes, for example 4"),
        fail_on=_fail_on(top, default.fail_on),
        series=_series(top.table("series"), columns),
        jobs=_jobs(top.table("jobs")),
        facts=tuple(_facts(table, path, folder) for table in top.tables("facts")),
        baselines=tuple(_baseline(table) for table in top.tables("baselines")),
    )
    if config.store == config.out:
        top.add_problem("out", "is the store's folder. Give the reports another.")
    raise_problems(path, problems, ConfigError)
    return config


class _Top(TomlTable):
    """The whole file; its errors say if a key belongs to [series]."""

    def unknown_key_message(self, key: str, allowed: Sequence[str]) -> str:
        keys = [field.name for field in fields(SeriesConfig)]
        if self.place or suggest_nearest(key, allowed) or not (near := suggest_nearest(key, keys)):
            return super().unknown_key_message(key, allowed)
        return f"unknown key here. {'' if key in keys else f'{near} '}It belongs under [series]."


@lru_cache(maxsize=256)
def _regex(patterns: tuple[str, ...]) -> re.Pattern[str]:
    ends = (f"*/{pattern}" for pattern in patterns if pattern[:1] not in ("*", "/"))
    whole = (*patterns, *ends)
    return re.compile("|".join(map(translate, whole)))


def _source(table: TomlTable, text: str, folder: Path) -> Path:
    """Return a file, a folder, a pattern or an address.

    Wildcards in the folder's own name are escaped.
    """
    if URL_SEPARATOR in text:
        return address_path(table, "sources", text)
    path = path_of_home(table, "sources", text)
    return Path(escape(str(folder)) if has_magic(text) else folder) / path


def _texts(table: TomlTable, key: str) -> tuple[str, ...]:
    """Return a list of texts; add a problem if one is empty."""
    values = table.take(key, list, [])
    wrong = [value for value in values if not isinstance(value, str) or not value]
    if wrong:
        table.add_problem(key, f"has {wrong[0]!r}: write texts in quotes.")
    return tuple(value for value in values if value not in wrong)


def _price(table: TomlTable, parse_price: Callable[[str], object]) -> str | None:
    value = table.values.get("price")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        table.add_problem(
            "price", f'is {value!r}: write the price of a GPU-hour, 2.50 or "2.50 EUR".'
        )
        return None
    try:
        parse_price(str(value))
    except ValueError as error:
        table.add_problem("price", str(error))
    return str(value)


def _positive(table: TomlTable, key: str, form: str) -> int | None:
    value = table.values.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    table.add_problem(key, f"is {value!r}: write a whole number of {form}.")
    return None


def _wait(table: TomlTable, default: float) -> float:
    value = table.values.get("wait", default)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    table.add_problem("wait", f"is {value!r}: write seconds, for example 600.")
    return default


def _engine(table: TomlTable, default: str) -> str:
    name = table.take("engine", str, default)
    if name not in ENGINE_NAMES:
        table.add_problem("engine", f'is {name!r}: write "local" or "ray".')
    return name


def _series(table: TomlTable, columns: Collection[str]) -> SeriesConfig:
    table.only(field.name for field in fields(SeriesConfig))
    by = _texts(table, "by")
    if table.values.get("by") == []:
        table.add_problem("by", "is empty. Name columns, or leave it out for the usual ones.")
    for name in by:
        if columns and name not in columns:
            table.add_problem(
                "by", f"no column of metrics is called {name!r}. {suggest_or_list(name, columns)}"
            )
    return SeriesConfig(by=by, threshold=_threshold(table))


def fail_on_problem(name: str) -> str:
    """Return why `fail_on` cannot have this name; empty if it can."""
    if name in FAIL_ON_NAMES:
        return ""
    return f"has {name!r}. {suggest_or_list(name, FAIL_ON_NAMES)}".rstrip()


def _fail_on(table: TomlTable, default: tuple[str, ...]) -> tuple[str, ...]:
    names = _texts(table, "fail_on") if "fail_on" in table.values else default
    for name in names:
        if problem := fail_on_problem(name):
            table.add_problem("fail_on", problem)
    return names


def _jobs(table: TomlTable) -> JobsConfig:
    table.only(field.name for field in fields(JobsConfig))
    return JobsConfig(expected=_texts(table, "expected"), ended=_texts(table, "ended"))


def parse_fraction(raw_value: object) -> float | None:
    """Return a fraction below 1, from 0.03, "0.03" or "3 %"; None for other values."""
    percent = _PERCENT.fullmatch(raw_value.strip()) if isinstance(raw_value, str) else None
    try:
        value = float(percent[1]) / 100 if percent else float(str(raw_value))
    except ValueError:
        return None
    return value if 0 <= value < 1 else None


def _threshold(table: TomlTable) -> float:
    raw_value = table.values.get("threshold", 0.0)
    value = parse_fraction(raw_value)
    if value is None:
        table.add_problem(
            "threshold", f'is {raw_value!r}: write a fraction below 1, 0.03, or "3 %".'
        )
    return value or 0.0


def _facts(table: TomlTable, path: Path, folder: Path) -> PathFacts:
    """Return the facts of a [[facts]] table: a pattern or several, and values by name."""
    paths = table.values.get("paths")
    patterns = (paths,) if isinstance(paths, str) else _texts(table, "paths")
    if not any(patterns):
        table.add_problem("paths", 'is missing: write a pattern of paths, "*/h100/*.log".')
    facts: list[Fact] = []
    named = {name: value for name, value in table.values.items() if name != "paths"}
    if not named:
        table.problems.append(f"{table.place}has no fact: add one, for example gpus = 8.")
    for name, value in named.items():
        facts += _fact(table, name, value, f"sidecar:{path.name}", folder)
    return PathFacts(patterns=patterns, facts=tuple(facts), place=table.place)


def _fact(table: TomlTable, name: str, value: Any, origin: str, folder: Path) -> list[Fact]:  # noqa: ANN401
    try:
        return given.facts_from_values({name: value}, origin, folder, "")
    except FactError as error:
        table.problems.append(table.place + str(error).removeprefix(": "))
    return []


def _baseline(table: TomlTable) -> str:
    table.only(["run"])
    table.require("run")
    return table.take("run", str, "")
