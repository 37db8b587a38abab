"""Facts from the files that frameworks and users keep next to a log.

The kinds are data: `formats.registry.COMPANION_FILES`. A file gives no facts to a log of another
run. By name: a file whose name begins another log's name belongs to that log. By content: if a file
contradicts the log's batch or length, only the contradiction is kept, and reported.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from ..core.errors import FactError
from ..core.numbers import parse_size
from ..core.paths import as_remote
from ..core.schema import FACT_NAMES, fact_bounds
from ..core.toml_reader import parse_toml
from ..formats.launch_view import Fact
from ..formats.registry import COMPANION_FILES
from ..formats.spec import CompanionFile
from .facts import MAX_COMPANION_BYTES, SIDECAR_NAME, make_fact

MAX_YAML_BYTES: Final = 256 * 1024
"""Limit for YAML, whose parser takes a second per MiB."""

MAX_NAMED_FILES: Final = 8
"""Maximum number of files that a pattern such as *.yaml may match; of more, none is opened."""

IDENTITY_FACTS: Final = (
    *("gpus", "data_parallel", "micro_batch_size", "gradient_accumulation", "global_batch_size"),
    *("seq_len", "total_steps", "trainable", "lora_rank"),
)
"""Facts by which a file is recognised as another run's if the log states another value."""

_ORIGIN: Final = "companion:"
_PARENT: Final = "{parent}"
ABOVE: Final = ".."


def facts_from_companions(log: Path) -> list[Fact]:
    """Return facts of the files next to a log.

    In these files 0 and -1 mean that nothing is set, and a word means that the framework chooses:
    such values are no facts. A number too large for any run is kept, for the computation to report.

    If several files of a kind may be the log's, none is read.
    """
    folder, facts = log.parent, list[Fact]()
    entries = _possible_entries(folder)
    for name, files in _companions_in(folder).items():
        if not _may_match(name, entries):
            continue
        paths = [path for path in folder.glob(name) if path.is_file() and path != log]
        if files[0].has_own_name:
            facts += _facts_of_named(log, paths, files)
        elif len(paths) == 1:
            facts += _facts_of_file(paths[0], folder, files)
    return facts


def _facts_of_named(
    log: Path, paths: Sequence[Path], files: Sequence[CompanionFile]
) -> Sequence[Fact]:
    """Return the facts of the log's file, among files with names of the user's choice.

    A file that gives no facts is another program's.
    """
    mine = _of_log(log, paths)
    if len(mine) > MAX_NAMED_FILES:
        return []
    found = [facts for path in mine if (facts := _facts_of_file(path, log.parent, files))]
    return found[0] if len(found) == 1 else []


def _of_log(log: Path, paths: Sequence[Path]) -> Sequence[Path]:
    """Return the files with the log's name, or those without another log's name."""
    if not paths:
        return []
    mine = [path for path in paths if _names(path, log.name)]
    if mine:
        longest = max(len(_stem(path)) for path in mine)
        return [path for path in mine if len(_stem(path)) == longest]
    taken = _named_after(log.parent, frozenset(paths), _changed_ns(log.parent))
    return [path for path in paths if path not in taken]


@lru_cache(maxsize=64)
def _named_after(folder: Path, paths: frozenset[Path], _changed: int) -> frozenset[Path]:
    """Return the files whose name begins that of another file in a folder."""
    others = [other.name for other in folder.glob("*") if other not in paths]
    return frozenset(path for path in paths if any(_names(path, other) for other in others))


def _changed_ns(folder: Path) -> int:
    """Return the modification time of a folder [ns]; 0 at an object store."""
    return 0 if as_remote(folder) is not None else folder.stat().st_mtime_ns


def _stem(path: Path) -> str:
    return path.name.rpartition(".")[0].removesuffix("_system")


def _names(path: Path, other: str) -> bool:
    """Return whether a file's name begins another's: run1.yaml and run1_rank0.log."""
    stem = _stem(path)
    return other.startswith(stem) and not other[len(stem) : len(stem) + 1].isalnum()


def _facts_of_file(path: Path, folder: Path, files: Sequence[CompanionFile]) -> list[Fact]:
    limit = MAX_YAML_BYTES if files[0].kind == "YAML" else MAX_COMPANION_BYTES
    if path.stat().st_size > (files[0].max_bytes or limit):
        return []
    place = _place_of(path, folder)
    stated, inferred = _read(path, files)
    facts = [
        fact
        for name, value in stated.items()
        for fact in _valid(name, value, f"{_ORIGIN}{place}", path)
    ]
    return facts + [
        fact
        for name, (value, why) in inferred.items()
        if name not in stated
        for fact in _valid(name, value, f"inferred: {why} ({place})", path)
    ]


def _place_of(path: Path, folder: Path) -> str:
    """Return a file's path from a log's folder."""
    return str(path).removeprefix(f"{folder}/")


def _valid(name: str, value: str, origin: str, path: Path) -> list[Fact]:
    try:
        return [make_fact(name, value, origin, path.parent, str(path))]
    except FactError:
        too_large = _exceeds_bounds(name, value)
    return [{"name": name, "value": value, "origin": origin, "line": None}] if too_large else []


def _exceeds_bounds(name: str, text: str) -> bool:
    with suppress(ValueError):
        return FACT_NAMES[name].kind in ("int", "float") and float(text) > fact_bounds(name).highest
    return False


def without_other_runs(facts: Sequence[Fact], logged: Iterable[Fact]) -> list[Fact]:
    """Return facts without those of companion files that contradict the log.

    Of such a file only the contradictions remain: they lose against the log, and are reported.
    Fewer GPUs than the log's data-parallel ranks are those of one machine of several.

    logged: facts that the log states
    """
    said: dict[str, set[str]] = {}
    for fact in logged:
        if str(fact["origin"]).startswith("log"):
            said.setdefault(fact["name"], set()).add(str(fact["value"]).lower())
    wrong = {(f["origin"], f["name"]) for f in facts if _contradicts(f, said)}
    too_few = {(f["origin"], f["name"]) for f in facts if _has_too_few_gpus(f, said)}
    stated = [origin for origin, _ in wrong | too_few if origin.startswith(_ORIGIN)]
    others = {file for origin in stated if _is_of_one_run(file := _file_of(origin))}
    kept = [f for f in facts if (f["origin"], f["name"]) not in too_few]
    return [
        f for f in kept if _file_of(f["origin"]) not in others or (f["origin"], f["name"]) in wrong
    ]


def _contradicts(fact: Fact, logged_values: Mapping[str, Collection[str]]) -> bool:
    if fact["name"] not in IDENTITY_FACTS or not str(fact["origin"]).startswith(_ORIGIN):
        return False
    logged = logged_values.get(fact["name"])
    return logged is not None and str(fact["value"]).lower() not in logged


def _has_too_few_gpus(fact: Fact, logged_values: Mapping[str, Collection[str]]) -> bool:
    """Return whether a file has fewer GPUs than the log has data-parallel ranks."""
    if fact["name"] != "gpus" or not _file_of(fact["origin"]):
        return False
    ranks = (parse_size(text) for text in logged_values.get("data_parallel", ()))
    return any(number is not None and number > float(fact["value"]) for number in ranks)


def _is_of_one_run(path: str) -> bool:
    names = (name for file in COMPANION_FILES if file.of_one_run for name in file.names)
    return any(fnmatchcase(path, name.replace(_PARENT, "*")) for name in names)


def _file_of(origin: str) -> str:
    """Return the companion file of an origin; empty for another origin."""
    if origin.startswith(_ORIGIN):
        return origin.removeprefix(_ORIGIN)
    inferred = re.fullmatch(r"inferred: .* \((?!log:)([^()]+)\)", origin)
    return inferred[1] if inferred else ""


# -- the files of a folder -----------------------------------------------------------------


def companion_problem(path: Path) -> str | None:
    """Return why a companion file is unreadable; None if readable, or another file.

    `facts_from_companions` ignores such files silently.
    """
    kinds = (file.kind for file in COMPANION_FILES if path.name in file.names)
    kind = next((kind for kind in kinds if kind in ("JSON", "TOML")), None)
    if kind is None:
        return None
    try:
        if path.stat().st_size > MAX_COMPANION_BYTES:
            return f"larger than {MAX_COMPANION_BYTES:,} bytes"
        _PARSERS[kind](path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return f"cannot be read as {kind}: {error}"
    return None


def shared_fact_files(folder: Path, names: Collection[str] | None) -> list[Path]:
    """Return files that may give facts to all logs of a folder.

    names: entries of the folder, so that no other file is looked for; None if unknown
    """
    files = []
    patterns = (SIDECAR_NAME, *_companions_in(folder))
    endings = tuple(name.removeprefix("*") for name in patterns if name.startswith("*"))
    ending = sorted(entry for entry in names or () if entry.endswith(endings))  # of thousands
    for name in patterns:
        first, *further = name.split("/")
        if "*" in first:
            fitting = [folder / entry for entry in ending if fnmatchcase(entry, first)]
            files += sorted(folder.glob(name)) if names is None else fitting
        elif names is None or first in (*names, ABOVE):
            files += sorted(folder.glob(name)) if further else [folder / name]
    return files


def _possible_entries(folder: Path) -> Sequence[str] | None:
    """Return the names of a folder's entries that may be companions.

    None if the folder cannot be listed. Most folders have logs alone.
    """
    if as_remote(folder) is not None:
        return None
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in entries if _first_names().match(entry.name)]
    return None


@cache
def _first_names() -> re.Pattern[str]:
    """Return the regex of all companions in a log's folder, or of their folders there."""
    firsts = {name.partition("/")[0] for file in COMPANION_FILES for name in file.names}
    return re.compile("|".join(map(translate, sorted(firsts))))


def _may_match(pattern: str, entries: Sequence[str] | None) -> bool:
    """Return whether a glob may match in a folder with these `_possible_entries`."""
    first = pattern.partition("/")[0]
    return entries is None or first == ABOVE or any(fnmatchcase(name, first) for name in entries)


def _companions_in(folder: Path) -> Mapping[str, Sequence[CompanionFile]]:
    """Return the files that may be in a log's folder, by the globs of their names."""
    by_name = _companions_within(folder.name)
    patterns = {name: _in_folder(name, folder) for name in by_name}
    return {pattern: by_name[name] for name, pattern in patterns.items() if pattern is not None}


@lru_cache(maxsize=64)
def _companions_within(folder_name: str) -> Mapping[str, Sequence[CompanionFile]]:
    """Return the files that may be in a folder of this name, by `CompanionFile.names`."""
    found: dict[str, list[CompanionFile]] = {}
    for file in COMPANION_FILES:
        if file.within in (None, folder_name):
            for name in file.names:
                found.setdefault(name, []).append(file)
    return found


def _in_folder(name: str, folder: Path) -> str | None:
    """Return the glob of a name for one folder.

    None if it leads to no folder, or up from a folder of a store.
    """
    if not name.startswith(f"{ABOVE}/"):
        return name
    if as_remote(folder) is not None or not (folder / name).parent.is_dir():
        return None
    return name.replace(_PARENT, glob.escape(folder.resolve().parent.name))


# -- reading a file ------------------------------------------------------------------------


def _read(
    path: Path, files: Sequence[CompanionFile]
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return the stated and the inferred facts of a file; none if damaged.

    files: possible kinds, all with the same syntax
    """
    stated: dict[str, str] = {}
    inferred: dict[str, tuple[str, str]] = {}
    try:
        values = _PARSERS[files[0].kind](path.read_text(encoding="utf-8"))
        for file in files if isinstance(values, dict) or files[0].kind == "lines" else ():
            stated |= file.read(values)
            inferred |= file.infer(values) if file.infer is not None else {}
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError):
        return {}, {}  # or a value that Python cannot print, or use as a key
    return stated, inferred


class _WithoutAliases(yaml.SafeLoader):
    """YAML loader without aliases, which frameworks never write.

    A few aliases can expand to gigabytes.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; raise YAMLError for an alias."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


def _yaml_values(text: str) -> object:
    return yaml.load(text, _WithoutAliases)  # noqa: S506 - safe


def _wandb_values(text: str) -> dict[Any, Any]:
    """Return the values of Weights & Biases' config.yaml: `key: {value: …}`."""
    values = _yaml_values(text)
    pairs = values.items() if isinstance(values, dict) else ()
    return {k: v["value"] for k, v in pairs if isinstance(v, dict) and "value" in v}


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "JSON": json.loads,
    "TOML": parse_toml,
    "YAML": _yaml_values,
    "W&B": _wandb_values,
    "lines": str.splitlines,
}
"""Parser of the text for each kind of CompanionFile."""
