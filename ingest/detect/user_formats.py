r"""Log formats described by users in TOML: the fields of a LogFormat, without code.

    name = "titan-fork"
    extends = "torchtitan"    # its lines go before Torchtitan's

    [[steps]]
    regex = 'step (?P<step>\d+) loss (?P<loss>\S+) mem (?P<mem>[\d.]+)GiB'
    columns = { step = "step", loss = "loss", mem = ["peak_memory_bytes", "GiB"] }
    example = "step 10 loss 6.27853 mem 0.71GiB"

All errors of a file are reported at once, before any log is read.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from ..core.errors import FactError, FormatFileError
from ..core.schema import (
    EVENT_KINDS,
    FACT_NAMES,
    QUIRKS,
    STEP_COLUMNS,
    TIMED_PHASES,
    TIMER_CAVEATS,
    TIMER_SPANS,
)
from ..core.toml_reader import TomlTable, list_choices, raise_problems, read_toml, suggest_or_list
from ..decode.line_reader import NumberedLine
from ..decode.text_cleaning import Cleaner
from ..facts import facts as given
from ..formats.registry import BUILT_IN_FORMATS
from ..formats.spec import (
    GIB,
    JSON_PAIRS,
    LAUNCH_STEPS,
    MIB,
    MICRO_STEPS,
    MS,
    PERCENT,
    PRECEDENCE_BY_NAME,
    ColumnTarget,
    EventLine,
    FactLine,
    LogFormat,
    PhaseTimer,
    StepLine,
)
from ..parse.line_parser import parse_lines
from ..parse.partial_match import longest_matched_prefix
from ..parse.record_sink import ParsedSource

FormatLine = StepLine | FactLine | EventLine

KEY_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "step_unit": ("optimizer_step", "micro_step"),
    "elapsed_covers": ("step", "interval", "last_10"),
    "rate_covers": ("step", "interval"),
    "precedence": tuple(PRECEDENCE_BY_NAME),
    "as_companion": tuple(EVENT_KINDS),
}
COUNTER_KINDS: Final = (LAUNCH_STEPS, MICRO_STEPS)
EVIDENCE_KINDS: Final = ("elapsed", "rate", "clock", "stamp")
REGEX_KEY_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "signature": (),
    "looks_like_step": (),
    "launch": (),
    "late": (),
    "noise": (),
    "clock": ("stamp",),
    "header": (),
    "step_pieces": (),
    "rank_in_path": (),
    "rank_tag": ("rank",),
}
"""Keys with regexes, and the groups that they need."""

COMBINED_REGEX_KEYS: Final = ("signature", "looks_like_step", "launch")
"""Patterns combined with those of the extended format; others replace theirs."""

FLAG_KEYS: Final = ("elapsed_excludes_data", "rate_excludes_data", "utc", "alone")
CODE_ONLY_KEYS: Final = frozenset(
    {"complete", "finer_clock", "join", "join_by_step", "addition", "blocks", "read", "misprints"}
    | {"finish", "infer_sizes", "names_without_log"}
)
UNFILLABLE_COLUMNS: Final = frozenset({"run_id", "line", "logged_at", "rank", "extra"})
"""Columns without groups: `clock` fills logged_at, the launcher's tag the rank."""

_COUNTS: Final = {"thousand": 1e3, "million": 1e6, "billion": 1e9}
UNIT_FACTORS: Final[dict[str, dict[str, float]]] = {
    "s": {"s": 1.0, "ms": MS, "us": 1e-6, "min": 60.0, "h": 3600.0},
    "bytes": {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": MIB, "GiB": GIB},
    "tokens": _COUNTS,
    "tokens/s/GPU": _COUNTS,
    "sequences/s": _COUNTS,
    "TFLOP/s/GPU": {"GFLOP/s": 1e-3, "TFLOP/s": 1.0, "PFLOP/s": 1e3},
    "FLOP/s": {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
    "": {"%": PERCENT},
}
"""Words for factors, by the unit of a column or fact, with their value in that unit."""


@dataclass(frozen=True, slots=True)
class UserFormat:
    """A user's format, the file, and the extended format, if any."""

    log_format: LogFormat
    path: Path
    extends: LogFormat | None = None


def load_user_format(path: Path) -> UserFormat:
    """Return the format of a TOML file. Raises FormatFileError with all errors."""
    problems: list[str] = []
    top = _Table(read_toml(path, FormatFileError), "", problems)
    old = _extended(top)
    values = _fields(top, old, path.name)
    raise_problems(path, problems, FormatFileError)
    log_format = replace(old, **values) if old else LogFormat(**values)
    problems += _as_a_whole(log_format)
    for name, number, line in lines_beyond_base(log_format, old):
        problems += _example(log_format, line, f"[[{name}]] {number}, ")
    raise_problems(path, problems, FormatFileError)
    return UserFormat(log_format, path, old)


def lines_beyond_base(
    log_format: LogFormat, base_format: LogFormat | None
) -> Iterator[tuple[str, int, FormatLine]]:
    """Yield the lines added by a format: array, number in the array, line."""
    for name in ("steps", "facts", "events"):
        every: Sequence[FormatLine] = getattr(log_format, name)
        inherited = len(getattr(base_format, name)) if base_format else 0
        for number, line in enumerate(every[: len(every) - inherited], start=1):
            yield name, number, line


# -- reading the tables ------------------------------------------------------------------------


class _Table(TomlTable):
    """A table of a format file, with regexes."""

    def regex(self, key: str, *groups: str) -> str:
        """Return a pattern that compiles and has the groups; "" if missing or invalid."""
        pattern = self.take(key, str, "")
        wrong = _does_not_compile(pattern)
        if wrong is None and _does_not_compile(f"(?:{pattern})"):  # to be combined with others
            wrong = "has a flag for the whole pattern: write (?i:…) around the part it is for."
        if wrong is None:
            missing = [g for g in groups if pattern and g not in _groups(pattern)]
            wrong = f"has no group {missing[0]!r}: write (?P<{missing[0]}>…)." if missing else None
        if wrong is not None:
            self.add_problem(key, wrong)
        return "" if wrong else pattern

    def only(self, keys: Iterable[str]) -> None:
        """Add a problem for keys not in `keys`, or only available to code."""
        super().only(set(keys) - CODE_ONLY_KEYS)

    def unknown_key_message(self, key: str, allowed: Sequence[str]) -> str:
        """Return the message for a key that is not allowed."""
        needs_code = "needs code: only a format in ingest/formats can have it."
        return needs_code if key in CODE_ONLY_KEYS else super().unknown_key_message(key, allowed)


def _extended(top: _Table) -> LogFormat | None:
    name = top.take("extends", str, "")
    old = next((f for f in BUILT_IN_FORMATS if f.name == name), None)
    if name and old is None:
        names = [f.name for f in BUILT_IN_FORMATS]
        top.add_problem("extends", f"no format is called {name!r}. {suggest_or_list(name, names)}")
    return old


def _fields(top: _Table, old: LogFormat | None, file: str) -> dict[str, Any]:
    """Return the fields of a LogFormat, followed by the lines of `old`."""
    top.only([*_names(LogFormat), "extends"])
    top.require("name", *(() if old else ("framework", "looks_like_step", "evidence", "steps")))
    values: dict[str, Any] = {key: top.take(key, str, "") for key in ("name", "framework")}
    if not re.fullmatch(r"[\w.-]*", values["name"]):
        top.add_problem("name", "may only contain letters, digits, dots, - and _.")
    values["versions"] = top.take("versions", str, old.versions if old else "")
    unsaid = top.take("framework_unsaid", str, "")
    values["framework_unsaid"] = unsaid or (old.framework_unsaid if old else None)
    values |= {key: top.take(key, str, "") for key in ("engine_below", "times_elsewhere")}
    values |= {key: top.regex(key, *groups) for key, groups in REGEX_KEY_GROUPS.items()}
    for key in ("rank_in_path", "rank_tag"):
        if values[key] and re.compile(values[key]).groups != 1:
            top.add_problem(key, "needs one group: the rank.")
    values |= {key: _choice(top, key, words) for key, words in KEY_CHOICES.items()}
    values |= {key: top.take(key, bool, False) for key in FLAG_KEYS if key in top.values}  # noqa: FBT003
    values["evidence"] = _words(top, "evidence", EVIDENCE_KINDS)
    values["file_names"] = _words(top, "file_names")
    values["quirks"] = _words(top, "quirks", tuple(QUIRKS))
    values["timer_stopped_once_with"] = _words(top, "timer_stopped_once_with", tuple(FACT_NAMES))
    values["implies"] = _implied(top)
    values["phase_timers"] = [_phase_timer(table) for table in top.tables("phase_timers")]
    _check_timers(top, values["phase_timers"], old)
    values["steps"] = [_step(table, file) for table in top.tables("steps")]
    values["facts"] = [_fact(table, file) for table in top.tables("facts")]
    values["events"] = [_event(table, file) for table in top.tables("events")]
    if not values["signature"] and values["steps"]:
        values["signature"] = "|".join(f"(?:{_unnamed(s.regex)})" for s in values["steps"])
        if wrong := _does_not_compile(values["signature"]):
            top.add_problem(
                "signature", f"is missing; combined from the regexes of [[steps]], it {wrong}"
            )
    values = {key: value for key, value in values.items() if value or value is False}
    return _beside(top, old, values) if old else {"versions": "", **values}


def _beside(top: _Table, old: LogFormat, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values, combined with values of `old` for keys that apply together."""
    for key in COMBINED_REGEX_KEYS:
        if key in values and (old_pattern := getattr(old, key)):
            values[key] = f"(?:{values[key]})|(?:{old_pattern})"
            if wrong := _does_not_compile(values[key]):
                top.add_problem(key, f"cannot be combined with that of {old.name}: {wrong}")
    for key in ("steps", "facts", "events", "phase_timers"):
        values[key] = (*values.get(key, ()), *getattr(old, key))
    values["implies"] = {**old.implies, **values.get("implies", {})}
    return values


def _choice(table: _Table, key: str, words: Sequence[str]) -> Any:  # noqa: ANN401 - text or rank
    word = table.take(key, str, "")
    if word and word not in words:
        table.add_problem(key, f"is {word!r}: write one of {', '.join(words)}.")
    return PRECEDENCE_BY_NAME.get(word) if key == "precedence" else word


def _words(table: _Table, key: str, words: Sequence[str] = ()) -> tuple[str, ...]:
    values = table.take(key, list, [])
    wrong = [word for word in values if not isinstance(word, str) or (words and word not in words)]
    if wrong:
        table.add_problem(
            key, f"{wrong[0]!r} is unknown. {list_choices(words) if words else 'Write texts.'}"
        )
    return tuple(values)


def _implied(top: _Table) -> dict[str, tuple[str, str]]:
    out = {}
    for name, pair in top.take("implies", dict, {}).items():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str):  # noqa: PLR2004
            out[name] = (_text(pair[0]), pair[1])
            _check_fact(top, f"implies.{name}", name, _text(pair[0]))
        else:
            top.add_problem(
                f"implies.{name}", "write [value, why it follows without being printed]."
            )
    return out


def _tells(table: _Table) -> dict[str, tuple[str, str]]:
    out = {}
    for key, pair in table.take("tells", dict, {}).items():
        if isinstance(pair, list) and len(pair) == 2:  # noqa: PLR2004
            name, value = map(_text, pair)
            _check_fact(table, f"tells.{key}", name, value)
            out[key] = (name, value)
        else:
            table.add_problem(f"tells.{key}", "write [fact, value].")
    return out


def _step(table: _Table, file: str) -> StepLine:
    table.only(_names(StepLine))
    table.require("regex", "example")
    json_pairs = table.values.get("pair") == JSON_PAIRS
    pair = JSON_PAIRS if json_pairs else table.regex("pair", "key", "value")
    regex = table.regex("regex", *(["pairs"] if pair else []))
    targets = table.take("columns", dict, {})
    columns = {key: _target(table, f"columns.{key}", column) for key, column in targets.items()}
    facts = table.take("facts", dict, {})
    for key, name in facts.items():
        _check_fact(table, f"facts.{key}", _text(name))
    tells = _tells(table)
    if regex and not pair:
        groups = sorted(_groups(regex))
        keys = {"columns": columns, "facts": facts, "tells": tells}
        for kind, key in ((k, key) for k, named in keys.items() for key in named):
            if key not in groups:
                full_key = f"{kind}.{key}"
                table.add_problem(
                    full_key, f"the regex has no group {key!r}. {suggest_or_list(key, groups)}"
                )
    numbered = table.take("numbered", bool, False)  # noqa: FBT003 - the default
    if columns and not numbered and "step" not in columns.values():
        table.add_problem(
            "columns", 'no group fills "step"; numbered = true counts lines without a step number.'
        )
    return StepLine(
        **_common(table, regex, file),
        columns=columns,
        pair=pair or None,
        facts=facts,
        tells=tells,
        numbered=numbered,
        every_step=table.take("every_step", bool, False),  # noqa: FBT003 - the default
        counts=_choice(table, "counts", COUNTER_KINDS) or None,
        evidence=_words(table, "evidence", EVIDENCE_KINDS),
        step_of_epoch=table.take("step_of_epoch", str, "") or None,
        may_continue=table.take("may_continue", bool, False),  # noqa: FBT003 - the default
        times_data=table.take("times_data", bool, False),  # noqa: FBT003 - the default
    )


def _fact(table: _Table, file: str) -> FactLine:
    table.only(_names(FactLine))
    table.require("regex", "example")
    regex = table.regex("regex")
    for name in _groups(regex):
        _check_fact(table, "regex, group", name)
    constants = {k: _text(v) for k, v in table.take("constants", dict, {}).items()}
    for name, value in constants.items():
        _check_fact(table, f"constants.{name}", name, value)
    factors = {}
    for name, factor in table.take("factors", dict, {}).items():
        key, fact = f"factors.{name}", FACT_NAMES.get(name)
        if fact is None or fact.kind != "float" or name not in _groups(regex):
            table.add_problem(key, "only a group for a fact with a fraction can have a factor.")
        else:
            factors[name] = _factor(table, key, factor, fact.unit)
    inferred = table.take("inferred", str, "")
    return FactLine(
        **_common(table, regex, file),
        begins=table.take("begins", str, "") or None,
        of_any_file=table.take("of_any_file", bool, False),  # noqa: FBT003 - the default
        constants=constants,
        factors=factors,
        inferred=inferred or None,
    )


def _phase_timer(table: _Table) -> PhaseTimer:
    """Return a timer of a step's phase: a group without a column."""
    table.only({*_names(PhaseTimer), "unit"} - CODE_ONLY_TIMER_KEYS)
    table.require("timer", "phase")
    choices = {"phase": TIMED_PHASES, "covers": TIMER_SPANS, "caveat": TIMER_CAVEATS}
    words = {key: _choice(table, key, tuple(of)) for key, of in choices.items()}
    texts = {key: table.take(key, str, "") for key in ("timer", "part_of", "beside", "group")}
    return PhaseTimer(
        **{"phase": "", "timer": "", **{key: of for key, of in (words | texts).items() if of}},
        factor=_factor(table, "unit", table.values.get("unit", "s"), "s"),
        after_step=table.take("after_step", bool, False),  # noqa: FBT003 - the default
    )


def _check_timers(top: _Table, timers: Sequence[PhaseTimer], old: LogFormat | None) -> None:
    """Add a problem if a timer names another one that the format does not have."""
    names = [timer.timer for timer in (*timers, *(old.phase_timers if old else ()))]
    for number, timer in enumerate(timers, start=1):
        for key, name in (("part_of", timer.part_of), ("beside", timer.beside)):
            if name is not None and name not in names:
                place = f"[[phase_timers]] {number}, {key}"
                top.add_problem(
                    place, f"no timer is called {name!r}. {suggest_or_list(name, names)}"
                )


CODE_ONLY_TIMER_KEYS: Final = frozenset({"text", "pipelined_covers", "factor"})
"""Fields of a PhaseTimer only available to code; `unit` gives a user's factor."""


def _event(table: _Table, file: str) -> EventLine:
    table.only(_names(EventLine))
    table.require("regex", "example", "kind")
    regex, kind = table.regex("regex"), table.take("kind", str, "")
    if kind and kind not in EVENT_KINDS:
        table.add_problem(
            "kind", f"no event is called {kind!r}. {suggest_or_list(kind, EVENT_KINDS)}"
        )
    factors = {}
    for name, value in table.take("factors", dict, {}).items():
        if name != "seconds":
            table.add_problem(f"factors.{name}", "only the group seconds can have a factor.")
        else:
            factors[name] = _factor(table, "factors.seconds", value, "s")
    return EventLine(
        **_common(table, regex, file),
        kind=kind,
        factors=factors,
        with_facts=table.take("with_facts", bool, False),  # noqa: FBT003 - the default
        overtakes=table.take("overtakes", bool, False),  # noqa: FBT003 - the default
        begins=table.take("begins", bool, False),  # noqa: FBT003 - the default
    )


def _common(table: _Table, regex: str, file: str) -> dict[str, Any]:
    """Return the fields of all kinds of lines.

    Without an anchor, the regex is tried on every line.
    """
    anchor, example = table.take("anchor", str, ""), table.take("example", str, "")
    if anchor not in example:
        table.add_problem(
            "anchor", f"{anchor!r} is not in the example: every line must contain it."
        )
    return {
        "anchor": anchor,
        "regex": regex,
        "example": example,
        "printed_by": table.take("printed_by", str, file),
        "composed": table.take("composed", bool, False),  # noqa: FBT003 - the default
    }


def _target(table: _Table, key: str, value: object) -> ColumnTarget:
    """Return the column of `"loss"`, `["elapsed_s", 0.001]` or `["elapsed_s", "ms"]`."""
    pair = isinstance(value, list) and len(value) == 2  # noqa: PLR2004
    column, factor = value if pair and isinstance(value, list) else (value, None)
    names = [name for name in STEP_COLUMNS if name not in UNFILLABLE_COLUMNS]
    if not isinstance(column, str):
        table.add_problem(key, 'write a column, or ["column", factor or unit].')
        return ""
    if column not in names:
        hint = " The clock of the format gives it." if column == "logged_at" else ""
        table.add_problem(
            key, f"no column is called {column!r}.{hint} {suggest_or_list(column, names)}"
        )
    elif factor is not None and not STEP_COLUMNS[column].dtype.is_float():
        table.add_problem(key, f"{column} is a whole number: it can have no factor.")
    elif factor is not None:
        return column, _factor(table, key, factor, STEP_COLUMNS[column].unit)
    return column


def _factor(table: _Table, key: str, value: object, unit: str) -> float:
    """Return a factor from a number, or from the word of a unit."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    words = UNIT_FACTORS.get(unit, {})
    if isinstance(value, str) and value in words:
        return words[value]
    choices = f", or one of {', '.join(words)}" if words else ""
    table.add_problem(
        key, f"{value!r} is not a factor to {unit or 'a fraction'}: write a number{choices}."
    )
    return 1.0


def _check_fact(table: _Table, key: str, name: str, value: str | None = None) -> None:
    """Add a problem if there is no such fact, or the value is invalid."""
    if name not in FACT_NAMES:
        table.add_problem(key, f"no fact is called {name!r}. {suggest_or_list(name, FACT_NAMES)}")
    elif value is not None and (wrong := _impossible(name, value)):
        table.add_problem(key, wrong)


def _impossible(name: str, value: str) -> str:
    try:
        given.check_fact(name, value, "")
    except FactError as error:
        return str(error).removeprefix(": ")
    return ""


def _names(kind: type) -> list[str]:
    return [f.name for f in fields(kind)]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- regexes -----------------------------------------------------------------------------------


def _groups(pattern: str) -> set[str]:
    return set(re.compile(pattern).groupindex)


def _unnamed(pattern: str) -> str:
    """Return the pattern without group names, to be combined with others."""
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


def _does_not_compile(pattern: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
    except re.error as error:
        position = error.pos or 0
        rest = f"before {pattern[position : position + 20]}" if pattern[position:] else "its end"
        return f"does not compile at character {position + 1}, {rest}: {error.msg}."
    except (FutureWarning, OverflowError, RecursionError, ValueError) as error:
        return f"does not compile: {error}."
    return None


# -- the format as a whole ---------------------------------------------------------------------


def _as_a_whole(log_format: LogFormat) -> Iterator[str]:
    """Yield contradictions between fields: figures never used, or used wrongly.

    Code that completes the rows may fill columns without a line.
    """
    filled = {column for line in log_format.steps for column in line.fills}
    rates = filled & {"logged_tgs", "logged_samples_per_second"}
    wanted = {
        "elapsed": ("elapsed_s" in filled, "no line fills elapsed_s"),
        "rate": (bool(rates), "no line fills logged_tgs or logged_samples_per_second"),
        "clock": ("since_start_s" in filled, "no line fills since_start_s"),
        "stamp": (log_format.clock is not None, "there is no clock"),
    }
    for word in log_format.evidence:
        is_filled, without = wanted[word]
        if not is_filled and log_format.complete is None:
            yield f"evidence: has {word!r}, but {without}."
    for key, is_filled in (("elapsed_covers", "elapsed_s" in filled), ("rate_covers", bool(rates))):
        if is_filled and getattr(log_format, key) is None:
            words = ", ".join(KEY_CHOICES[key])
            yield f"{key}: is missing: write which steps a printed time or rate covers ({words})."


def _example(log_format: LogFormat, line: FormatLine, context: str) -> Iterator[str]:
    """Yield the problems of a line's example, as the parser reads it."""
    text = Cleaner(log_format.noise).strip(line.example)
    if re.search(line.regex, text) is None:
        reach = longest_matched_prefix(line.regex, text)
        yield f'{context}example: the regex matches it up to "{reach}" only.'
        return
    parsed = parse_lines([NumberedLine(1, line.example, cut=False)], log_format)
    if isinstance(line, StepLine):
        yield from (
            f"{context}example: {wrong}" for wrong in _step_example(log_format, text, parsed)
        )
    elif isinstance(line, FactLine):
        stated = {fact["name"]: fact["value"] for fact in parsed.launches[0].facts}
        for name in (*_groups(line.regex), *line.constants):
            if name in stated and (wrong := _impossible(name, stated[name])):
                yield f"{context}example: {wrong}"
        if not parsed.known_lines:
            yield f"{context}example: is read as {_taken_for(parsed)}."
    elif [event["kind"] for event in parsed.launches[0].events] != [line.kind]:
        yield f"{context}example: is read as {_taken_for(parsed)}."


def _step_example(log_format: LogFormat, text: str, parsed: ParsedSource) -> Iterator[str]:
    if parsed.unread:
        yield f"cannot be read: {parsed.unread[0]['reason']}."
    elif not parsed.step_lines:
        yield f"is read as {_taken_for(parsed)}."
    for key in ("signature", "looks_like_step"):
        if re.search(getattr(log_format, key), text) is None:
            yield f"the {key} does not match it."


def _taken_for(parsed: ParsedSource) -> str:
    events = parsed.launches[0].events
    return (
        f"an event ({events[0]['kind']})" if events else "a step" if parsed.step_lines else "text"
    )
