"""Vocabulary of log formats: frozen data, with code only where data is not enough.

A format gives the form of its lines, the schema column or fact and the unit of printed values, and
the statement of the framework that prints them. `ingest.parse.line_parser` does the reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal

from .launch_view import FinishLaunch, InferSizes

GIB: Final = 1024.0**3
MIB: Final = 1024.0**2
PERCENT: Final = 0.01
MS: Final = 0.001

JSON_PAIRS: Final = "json"
"""`StepLine.pair` of a line whose pairs are a JSON object; a dot joins keys of nested objects."""

LAUNCH_STEPS: Final = "launch_steps"
MICRO_STEPS: Final = "micro_steps"
"""`StepLine.counts` of a line with its own counter: optimizer steps, or micro-steps of the gradient
accumulation, since the process started; see ingest.launches.step_alignment.
"""

PREFERENCE_OBJECTIVE: Final = ("objective", "preference")
REINFORCEMENT_OBJECTIVE: Final = ("objective", "reinforcement")
"""Facts of training other than language modelling, for `StepLine.tells` and `objective_line`."""

ColumnTarget = str | tuple[str, float]
"""A schema column, or (column, factor to the column's unit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A line that reports a training step.

    `anchor` is a literal of every such line. Named groups of `regex` are keys of `columns`. `pair`
    (a regex with the groups key and value, or JSON_PAIRS) splits the group `pairs`, if any, into
    further keys and values. Keys of `facts` are facts of the launch, stated at the first print and
    at changes. A key of `tells` states a fact by its presence, unless null. With `may_continue` the
    rest may be on the next line (wrapped by a mailer or a split flush). `numbered`: the line prints
    no step, so lines are counted: a line is `log_interval` steps (1 if unknown) after the previous
    line of its rank. `every_step`: printed at every step, whatever the log interval and other
    lines. `counts`: LAUNCH_STEPS or MICRO_STEPS if `step` is not the step of the training.
    `times_data`: its time has the wait for data, even if the format's `elapsed_excludes_data`.
    `evidence`: kinds of time evidence beyond the format's, of launches with such lines only.
    `step_of_epoch`: key of the step within the epoch, from 0, of a `numbered` line with an `epoch`.
    """

    anchor: str
    regex: str
    columns: Mapping[str, ColumnTarget]
    example: str
    printed_by: str
    pair: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    tells: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # key: (fact, value)
    numbered: bool = False
    every_step: bool = False
    counts: str | None = None
    evidence: Sequence[str] = ()
    step_of_epoch: str | None = None
    may_continue: bool = False
    times_data: bool = False
    composed: bool = False

    @property
    def fills(self) -> list[str]:
        """Columns that the keys fill, without duplicates."""
        columns = (t if isinstance(t, str) else t[0] for t in self.columns.values())
        return [*dict.fromkeys(columns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactLine:
    """A line that states facts: named groups, and `constants` stated by its presence.

    With `inferred` the line does not print the fact itself; the text says why the fact follows. A
    line that states nothing is only known: it does not count among the lines without a pattern.
    `begins`: words at the start of every such line. A line with these words that no pattern with
    them matches is cut off or damaged: unread, as half a line proves nothing. `of_any_file`: the
    line may stand in files that are no logs, such as a script, so it does not identify the format.
    """

    anchor: str
    regex: str
    example: str
    printed_by: str
    constants: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    read: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
    inferred: str | None = None
    begins: str | None = None
    of_any_file: bool = False
    composed: bool = False

    @property
    def states_facts(self) -> bool:
        """True if the line states facts.

        A line that is only known may come from any program.
        """
        return bool(self.constants or self.read or re.compile(self.regex).groupindex)


def objective_line(
    objective: tuple[str, str],
    anchor: str,
    example: str,
    printed_by: str,
    *,
    regex: str | None = None,
) -> FactLine:
    """Return a line whose presence states the objective. regex: by default the anchor."""
    return FactLine(
        anchor=anchor,
        regex=re.escape(anchor) if regex is None else regex,
        constants=dict([objective]),
        example=example,
        printed_by=printed_by,
        composed=True,
    )


def known_line(
    anchor: str, regex: str, example: str, printed_by: str, *, composed: bool = False
) -> FactLine:
    """Return a line that states nothing: printed by the framework, and not needed."""
    return FactLine(
        anchor=anchor, regex=regex, example=example, printed_by=printed_by, composed=composed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """A line that marks an event.

    Groups `step` and `seconds` are columns (`factors` convert to seconds); other groups go to
    `extra`. `read` makes the fields from the groups, if these are not enough. `with_facts`: the
    format's FactLines read the line as well. `overtakes`: the line is written by another way than
    the steps, so steps may still follow. `begins`: a process prints the line at its start, so the
    line belongs to the training that follows.
    """

    anchor: str
    regex: str
    kind: str
    example: str
    printed_by: str
    factors: Mapping[str, float] = field(default_factory=dict)
    read: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
    with_facts: bool = False
    overtakes: bool = False
    begins: bool = False
    composed: bool = False

    @property
    def ends_training(self) -> bool:
        """True if the printing process trains no step after this line."""
        return self.kind == "end" and not self.overtakes


def rate_restart_fields(printed: Mapping[str, str]) -> Mapping[str, str]:
    """Return fields of an event after which the printed rate starts from zero."""
    return {**printed, "restarts": "rate"}


def profiled_steps_fields(printed: Mapping[str, str]) -> Mapping[str, str]:
    """Return fields of a profiler's event: steps up to this one ran under a profiler."""
    return {**printed, "profiled": "steps"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FactBlock:
    """Facts on several lines, from a line with `start` to a line that matches `end`.

    `read` gets the clean lines between, returns facts, and never raises on bad text. With `braces`
    the block is a JSON object opened by `start`, up to the line that closes the object, whatever
    the indentation. `end` then matches no line of the object, and braces in lines that match
    `others`, printed by other ranks in between, do not count. With `kind` the block is an event as
    well: other values from `read` are the event's fields. `infer` returns facts that the lines do
    not print, each with its value and the reason; a fact from `read` overrides it. `of_any_file`: as
    for a FactLine.
    """

    start: str
    end: str
    read: Callable[[Sequence[str]], Mapping[str, str]]
    example: Sequence[str]
    printed_by: str
    infer: Callable[[Sequence[str]], Mapping[str, tuple[str, str]]] | None = None
    kind: str | None = None
    of_any_file: bool = False
    max_lines: int = 2000
    include_end: bool = False
    include_start: bool = False
    braces: bool = False
    others: str = "(?!)"


def parse_json_object(text: str) -> dict[str, Any]:
    """Return the JSON object of a text; empty if there is none or if damaged."""
    with suppress(ValueError, RecursionError):
        values = json.loads(text)
        return values if isinstance(values, dict) else {}
    return {}


def to_seconds(*groups: str | None) -> float:
    """Return the seconds of days, hours, minutes and seconds, as matched by a regex."""
    days, hours, minutes, seconds = (int(group or 0) for group in groups)
    return float(((24 * days + hours) * 60 + minutes) * 60 + seconds)


LAUNCHER_TAG: Final = r"(?:\[[\w|]+\]:|\d+: |\[\d+,\d+\]<std(?:out|err)>:)"
"""A launcher's tag before a line: torchrun, srun --label, Open MPI."""
LAUNCHER_TAGS: Final = re.compile(rf"^\s*{LAUNCHER_TAG}*")
"""Tags before the lines of a JSON text."""
ONE_OR_MORE_TAGS: Final = re.compile(rf"\s*{LAUNCHER_TAG}+")


_BESIDE_JSON: Final = re.compile(
    r"""(?!\s*(?:["{}\[\]\d-]|true|false|null|NaN|Infinity))[^"]*[^",{\[]"""
)
"""A line that cannot be part of a JSON text, such as a progress bar."""


def parse_json_lines(lines: Sequence[str]) -> dict[str, Any]:
    """Return the JSON object that continues in these lines; empty if damaged.

    The opening brace is on the line before. Lines of other writers are skipped if they contain no
    part of the object.
    """
    texts = [LAUNCHER_TAGS.sub("", line) for line in lines]
    return parse_json_object("\n".join(["{", *texts])) or parse_json_object(
        "\n".join(["{", *(text for text in texts if not _BESIDE_JSON.fullmatch(text))])
    )


def last_digit_unit(printed: Decimal) -> Decimal:
    """Return one unit of a number's last digit: 0.01 of 10.67, 10 of 1.234e4."""
    return Decimal(1).scaleb(int(printed.as_tuple().exponent))


PROCESS_KEY: Final = "process"
MODEL_PARALLEL_KEY: Final = "model_parallel"
"""Keys of `setup` events: one process of the launch has begun; processes that share a model. See
ingest.formats.deepspeed.
"""

TRAINER_PRECEDENCE: Final = 4
LIBRARY_PRECEDENCE: Final = 3
ENGINES_PRECEDENCE: Final = 2
ENGINE_PRECEDENCE: Final = 1
SCRIPT_PRECEDENCE: Final = 0
STEP_PARTS_PRECEDENCE: Final = -1
ONLY_BARS_PRECEDENCE: Final = -2
"""Precedence of formats: a framework's own trainer, the Hugging Face Trainer, a script that trains
several models by an engine for each, the DeepSpeed engine under any of them, a user's script next
to the engine, and parts of a step, used only without all others. A progress bar is looked for only
if no line of another format was found.
"""
PRECEDENCE_BY_NAME: Final = {
    "trainer": TRAINER_PRECEDENCE,
    "hf_trainer": LIBRARY_PRECEDENCE,
    "engine": ENGINE_PRECEDENCE,
    "script": SCRIPT_PRECEDENCE,
}
"""Names of precedences in format files of users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misprint:
    """Versions of a framework that print values in another unit than the line says.

    `versions` matches the fact framework_version; `factors` convert columns to their unit.
    """

    versions: str
    factors: Mapping[str, float]
    why: str


@dataclass(frozen=True, slots=True)
class FinerClock:
    """A printed mean that gives the time since the start more finely than the clock.

    clock: key of the printed seconds. steps_per_s and s_per_step (after a resume maybe over the
    process's own steps), or tokens_per_s, of `consumed_tokens`: keys of means without a column.
    early, late: allowed difference of the finer seconds before and after the printed ones, else the
    printed ones stay [s].
    """

    clock: str
    early: float
    late: float
    steps_per_s: str = ""
    s_per_step: str = ""
    tokens_per_s: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarredStepLine:
    """Step lines whose fields end with a bar, so a terminal's copy can be joined.

    word: in every such line; begins: matches the start of a line, with the word; field: one field,
        up to its bar or the end
    max_padding_blanks: blanks printed before a number; a terminal's copy drops them at the end of a
        line
    """

    word: bytes
    begins: re.Pattern[bytes]
    field: re.Pattern[bytes]
    max_padding_blanks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteplessDicts:
    """Dicts of steps, printed by every node without a step and without its rank.

    begins: start of a dict; dict_of_line: a dict (a group `dict`), after its bar or alone, but not
        after a tag, as a tag names the node
    of_each_node: text of every node: of a step, of the end, and in the progress bar
    """

    begins: bytes
    dict_of_line: re.Pattern[bytes]
    of_each_node: re.Pattern[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionFile:
    """A file that a framework writes, or a user keeps, next to a log.

    names: globs from the log's folder; within: required name of the folder, if any. `{parent}` is
        the name of the folder above
    kind: of the content, and so the argument of `read`: the values of a JSON, TOML or YAML object,
        those of a W&B config by key, or lines
    read: returns the facts; none for another framework's file. Impossible values are skipped
    infer: returns facts that the file does not state, each with its value and the reason
    of_one_run: the file describes one run: if the log contradicts it, it is another run's
    max_bytes: larger files are not read; None: the limit of the kind
    """

    names: Sequence[str]
    kind: Literal["JSON", "TOML", "YAML", "W&B", "lines"]
    read: Callable[[Any], Mapping[str, str]]
    infer: Callable[[Any], Mapping[str, tuple[str, str]]] | None = None
    within: str | None = None
    of_one_run: bool = False
    max_bytes: int | None = None

    @property
    def has_own_name(self) -> bool:
        """True if the user chooses the name, so a folder may have several."""
        return any("*" in name.partition("/")[0] for name in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimer:
    """A printed timer, and the phase of a step that it measures.

    timer: its printed name: a key in `extra` of step lines or of `timers` events
    text: regex of the timer in an event's text, for event lines without fields; group 1 is the value
    phase: one of schema.TIMED_PHASES
    factor: to seconds
    group: timers of one group measure different parts of the same step. If a log has timers of
        several groups, the first group in the format's order counts
    part_of: timer of the group that contains this one
    beside: timer on the same line, where two groups print the same name
    covers: one of schema.TIMER_SPANS; pipelined_covers: the same under a pipeline engine
    after_step: printed after the step line of its step, not before
    caveat: one of schema.TIMER_CAVEATS
    """

    timer: str
    phase: str
    text: str | None = None
    factor: float = MS
    group: str = "step"
    part_of: str | None = None
    beside: str | None = None
    covers: str = "step"
    pipelined_covers: str | None = None
    after_step: bool = False
    caveat: str | None = None


@lru_cache(maxsize=256)
def stored_phase_timers(timers: tuple[PhaseTimer, ...]) -> str | None:
    """Return timers as the JSON of the column runs.phase_timers; None without timers."""
    return json.dumps([asdict(timer) for timer in timers]) if timers else None


WANDB_CONFIG_NAMES: Final = ("config.yaml", "wandb/run-*/files/config.yaml")
"""Paths of the config that Weights & Biases stores for a run of any framework."""

WANDB_SUMMARY_NAMES: Final = ("wandb-summary.json", "wandb/run-*/files/wandb-summary.json")
"""Paths of the last values that it stores of a run."""

WANDB_METADATA_NAMES: Final = ("wandb-metadata.json", "wandb/run-*/files/wandb-metadata.json")
"""Paths of what it stores about the machine and the repository."""


CompleteRow = Callable[[dict[str, Any], Mapping[str, str]], None]
"""Completes a row of `steps` in place, given all printed fields as text.

A number may depend on itself and on the presence of others, not on their values: the vectorized
reader (ingest.vector) would miss dependencies that show only now and then.

Facts of the launch that follow from several fields, or from values, go into `row["says"]` by name;
facts that follow from the presence of a field are for `StepLine.tells`.
"""

JoinLines = Callable[[Iterable[tuple[int, str]]], Iterator[tuple[int, int, str]]]
"""Joins numbered lines to records: (first line number, number of lines, record on one line).

For records on several lines (pretty-printed JSON) or records that need an earlier line (the heading
of a CSV file). No line is lost: the counts add up to the lines read.
"""


AddText = Callable[[str, str, str], str]
"""Returns the text to add to a line, given the previous line, the line, and the next one.

Blank lines are skipped; an empty text if there is no such line.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineAddition:
    """A `join` that keeps all lines, and adds text from neighbours to some lines.

    `make_add_text` gets the texts of a file, from a line before the first with `to` on, and reads
    as far as needed. It returns the function called for all lines with `to`, in order. The function
    adds nothing, and learns nothing, if neither neighbour has `told_by`. None: only `join` can read
    the file. renames: (texts, old, new): from a line with one of the texts on, new replaces old.
    tags: before lines of a file of several writers; `join` reads the lines of a writer as adjacent.
    For a file with several lines with `to`, the result is the same as by `join`.
    """

    to: str
    told_by: str
    make_add_text: Callable[[Iterable[str]], AddText | None]
    renames: tuple[Sequence[str], str, str] | None = None
    tags: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogFormat:
    """Format of one kind of log of one framework, over all versions of the log.

    Equality is identity. Among the formats found in a file, the one with the highest `precedence`
    is primary: its lines are the steps. Others are companions: their facts count if the primary
    says nothing, and their step lines become events of the kind `as_companion`.

    step_pieces: matches text found only in step lines, wherever they are broken or damaged: such a
        line without a matching pattern is unread
    header: matches lines of a companion without steps (a quiet DeepSpeed engine)
    alone: runs on no engine, so there is no companion
    join: makes records of lines before they are read
    join_by_step: for event files whose records never span two steps, and depend only on tags
    addition: `join`, if it only adds text
    framework_unsaid: framework of lines shared with other frameworks, if no fact `engine` decides
    launch: matches lines that begin a launch
    late: matches lines of `launch` that may also follow the first steps of their launch, and then
        begin none: if the number of GPUs is still unknown
    rank_in_path: the rank in a file name (a group), for files of one rank without printed ranks
    quirks: habits of the logs that change the meaning of figures (core.schema.QUIRKS)
    engine_below: the framework whose engine may train below and print lines of its own
    times_elsewhere: for lines that may lack times: where to find some, or why there are none
    phase_timers: printed timers of a step's phases
    timer_stopped_once_with: facts of trainers that stop the engine's timer once a step, so a step
        has one micro-step by the timer's count
    finish: settles facts that need the whole launch, also as a companion
    infer_sizes: facts that follow from the numbers of whole launches, also as a companion
    rank_tag: a tag before lines whose group `rank` is the global rank; replaces launchers' tags
    file_names: globs of the files, if a folder's walk skips their extension (.json, .csv)
    names_without_log: files without steps that are read if a walk finds no log; of a folder's, the
        first
    """

    name: str
    framework: str
    versions: str
    signature: str
    steps: Sequence[StepLine]
    looks_like_step: str
    evidence: Sequence[str]
    framework_unsaid: str | None = None
    facts: Sequence[FactLine] = ()
    implies: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # fact: (value, why)
    events: Sequence[EventLine] = ()
    blocks: Sequence[FactBlock] = ()
    launch: str | None = None
    late: str | None = None
    noise: str | None = None
    clock: str | None = None
    complete: CompleteRow | None = None
    finer_clock: FinerClock | None = None
    join: JoinLines | None = None
    join_by_step: bool = False
    addition: LineAddition | None = None
    precedence: int = TRAINER_PRECEDENCE
    as_companion: str = "engine_step"
    step_pieces: str | None = None
    header: str | None = None
    alone: bool = False
    rank_in_path: str | None = None
    rank_tag: str | None = None
    file_names: Sequence[str] = ()
    names_without_log: Sequence[str] = ()
    utc: bool = False  # its stamps count from the epoch
    misprints: Sequence[Misprint] = ()
    step_unit: str = "optimizer_step"
    elapsed_covers: str | None = None
    elapsed_excludes_data: bool = False
    rate_covers: str | None = None
    rate_excludes_data: bool = False
    quirks: Sequence[str] = ()
    engine_below: str | None = None
    times_elsewhere: str | None = None
    phase_timers: Sequence[PhaseTimer] = ()
    timer_stopped_once_with: Sequence[str] = ()
    finish: FinishLaunch | None = None
    infer_sizes: InferSizes | None = None

    def stored_value(self, column: str) -> Any:  # noqa: ANN401 - of any column
        """Return the value of this format for a column of `runs` with the name of a field."""
        if column == "phase_timers":
            return stored_phase_timers(tuple(self.phase_timers))
        return getattr(self, column)
