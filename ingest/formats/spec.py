"""The vocabulary of a log format: frozen data, no code but what lines cannot say.

A format says how its lines look, which schema column or fact each printed value is, in which
unit, and which statement of the framework prints it. `ingest.parse.line_parser` does the reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

from .launch_view import FinishLaunch, InferSizes

GIB: Final = 1024.0**3
MIB: Final = 1024.0**2
PERCENT: Final = 0.01
MS: Final = 0.001

JSON_PAIRS: Final = "json"
"""`StepLine.pair` of a line whose pairs are a JSON object; keys of nested objects join by a dot."""

LAUNCH_STEPS: Final = "launch_steps"
MICRO_STEPS: Final = "micro_steps"
"""`StepLine.counts` of a line with a counter of its own: optimizer steps, or micro-steps of the
gradient accumulation, since the process started; see ingest.launches.step_alignment."""

PREFERENCE_OBJECTIVE: Final = ("objective", "preference")
REINFORCEMENT_OBJECTIVE: Final = ("objective", "reinforcement")
"""Facts of training that is no language modelling, for `StepLine.tells` and `objective_line`."""

ColumnTarget = str | tuple[str, float]
"""A schema column, or (column, factor to the column's unit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A line that reports a training step.

    `anchor` is a literal of every such line. Named groups of `regex` are keys of `columns`; the
    group `pairs`, where there is one, is cut into further keys and values by `pair` (a regex with
    the groups key and value, or JSON_PAIRS). Keys of `facts` are facts of the launch, stated where they
    are first printed or change; with `tells` a key states one by being there and not null. With
    `may_continue` the rest may stand on the next line (wrapped by a mailer or a split flush).
    `numbered`: the line prints no step, so it is counted: each is `log_interval` steps (1 where
    that is unknown) behind the one before of the same rank.
    `every_step`: it is printed at each step, whatever the log interval and other lines.
    `counts`: LAUNCH_STEPS or MICRO_STEPS where `step` is not the step of the training.
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
    may_continue: bool = False
    composed: bool = False

    @property
    def fills(self) -> list[str]:
        """The columns that its keys fill, each once."""
        columns = (t if isinstance(t, str) else t[0] for t in self.columns.values())
        return [*dict.fromkeys(columns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactLine:
    """A line that states facts: named groups are facts, `constants` hold when it is there.

    With `inferred` the line does not say the fact itself; the text says why it follows. A line
    that states nothing is only known: it is not counted among the lines that no pattern knows.
    `begins`: words with which each such line begins. One that has them, and is matched by no
    pattern of these words, is cut off or damaged: it is unread, for half a line proves nothing.
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
    composed: bool = False

    @property
    def states_facts(self) -> bool:
        """Whether it states facts; one that is only known may be anyone's."""
        return bool(self.constants or self.read or re.compile(self.regex).groupindex)


def objective_line(
    objective: tuple[str, str],
    anchor: str,
    example: str,
    printed_by: str,
    *,
    regex: str | None = None,
) -> FactLine:
    """A line that tells what the loss is of by being there; without a regex by its anchor."""
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
    """A line that states nothing: its framework's, and of no use here."""
    return FactLine(
        anchor=anchor, regex=regex, example=example, printed_by=printed_by, composed=composed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """A line that marks an event.

    Groups `step` and `seconds` are its columns (`factors` bring seconds to seconds); what other
    groups read goes to `extra`. `read` makes its fields of the groups, where those alone do not.
    `with_facts`: the format's FactLines read the line as well. `overtakes`: it goes another way
    than the steps, which may still come behind it. `begins`: a process prints it as it begins, so
    it is of what it trains.
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
        """Whether the process that prints it trains no step behind it."""
        return self.kind == "end" and not self.overtakes


def rate_restart_fields(printed: Mapping[str, str]) -> Mapping[str, str]:
    """Fields of an event behind which the rate of the next line counts and times anew."""
    return {**printed, "restarts": "rate"}


def profiled_steps_fields(printed: Mapping[str, str]) -> Mapping[str, str]:
    """Fields of an event of a profiler under which steps ran, up to the one that it names."""
    return {**printed, "profiled": "steps"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FactBlock:
    """Facts that stand on several lines, from a line with `start` to one that matches `end`.

    `read` gets the lines between them, cleaned, and gives facts; it never raises on bad text.
    With `braces` it is JSON_PAIRS that `start` opens, and its last line is the one that closes it,
    however lines are indented; `end` is then what stands in none of its lines, and braces of lines
    with `others`, which other ranks print between, do not count. With `kind` the block is an event
    as well: what `read` gives besides facts are its fields.
    """

    start: str
    end: str
    read: Callable[[Sequence[str]], Mapping[str, str]]
    example: Sequence[str]
    printed_by: str
    kind: str | None = None
    max_lines: int = 2000
    include_end: bool = False
    include_start: bool = False
    braces: bool = False
    others: str = "(?!)"


def parse_json_object(text: str) -> dict[str, Any]:
    """The JSON_PAIRS object of a text; empty where it is none or damaged."""
    with suppress(ValueError, RecursionError):
        values = json.loads(text)
        return values if isinstance(values, dict) else {}
    return {}


def to_seconds(*groups: str | None) -> float:
    """Seconds of days, hours, minutes and seconds, as a regex has found them."""
    days, hours, minutes, seconds = (int(group or 0) for group in groups)
    return float(((24 * days + hours) * 60 + minutes) * 60 + seconds)


LAUNCHER_TAG: Final = r"(?:\[[\w|]+\]:|\d+: |\[\d+,\d+\]<std(?:out|err)>:)"
"""The tag that a launcher puts before a line: torchrun, srun --label, Open MPI."""
LAUNCHER_TAGS: Final = re.compile(rf"^\s*{LAUNCHER_TAG}*")
"""They stand before each line of a JSON_PAIRS text too."""
ONE_OR_MORE_TAGS: Final = re.compile(rf"\s*{LAUNCHER_TAG}+")


_BESIDE_JSON: Final = re.compile(
    r"""(?!\s*(?:["{}\[\]\d-]|true|false|null|NaN|Infinity))[^"]*[^",{\[]"""
)
"""A line that is none of a JSON_PAIRS text and holds no part of one, such as a progress bar."""


def parse_json_lines(lines: Sequence[str]) -> dict[str, Any]:
    """The JSON_PAIRS object whose opening brace stands before these lines; empty where it is damaged.

    What others printed between its lines is passed over where it holds nothing of the object.
    """
    texts = [LAUNCHER_TAGS.sub("", line) for line in lines]
    return parse_json_object("\n".join(["{", *texts])) or parse_json_object(
        "\n".join(["{", *(text for text in texts if not _BESIDE_JSON.fullmatch(text))])
    )


def last_digit_unit(printed: Decimal) -> Decimal:
    """One unit of the last digit that a number was printed with: 0.01 of 10.67, 10 of 1.234e4."""
    return Decimal(1).scaleb(int(printed.as_tuple().exponent))


PROCESS_KEY: Final = "process"
MODEL_PARALLEL_KEY: Final = "model_parallel"
"""In events of the kind `setup`: one process of the launch has begun, and how many of them share
a model; what follows of both see ingest.formats.deepspeed."""

TRAINER_PRECEDENCE: Final = 3
LIBRARY_PRECEDENCE: Final = 2
ENGINE_PRECEDENCE: Final = 1
SCRIPT_PRECEDENCE: Final = 0
STEP_PARTS_PRECEDENCE: Final = -1
"""Precedence of formats: a framework's own trainer, the Hugging Face Trainer, the DeepSpeed engine
under either, what a user's script prints beside the engine, and the parts of a step that stand
for it where nothing else does."""
PRECEDENCE_BY_NAME: Final = {
    "trainer": TRAINER_PRECEDENCE,
    "hf_trainer": LIBRARY_PRECEDENCE,
    "engine": ENGINE_PRECEDENCE,
    "script": SCRIPT_PRECEDENCE,
}
"""Their names in files of own formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misprint:
    """Versions of a framework that print values in another unit than they say.

    `versions` matches the fact framework_version; `factors` bring columns to their unit.
    """

    versions: str
    factors: Mapping[str, float]
    why: str


@dataclass(frozen=True, slots=True)
class FinerClock:
    """Which mean since the start says the seconds since then more finely than they are printed.

    clock: the key of these; steps_per_s and s_per_step (of a resumed process perhaps of its own
    steps alone), or tokens_per_s, of `consumed_tokens`: keys of means, none of which a column
    holds. early, late: how far the finer seconds may be before and behind the printed ones, or
    these stay [s].
    """

    clock: str
    early: float
    late: float
    steps_per_s: str = ""
    s_per_step: str = ""
    tokens_per_s: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarredStepLine:
    """Step lines whose fields end with a bar each, so that a terminal's copy can be put together.

    word: stands in each; begins: matches where one begins, with that word; field: one field, up to
        its bar or the end
    max_padding_blanks: how many blanks are printed before a number, which a terminal's copy does
        not have at the end of a line
    """

    word: bytes
    begins: re.Pattern[bytes]
    field: re.Pattern[bytes]
    max_padding_blanks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteplessDicts:
    """Dicts of steps that each node prints, without a step and without its rank.

    begins: how each does; dict_of_line: one (a group `dict`), behind its bar or alone, but not
        behind a tag, which tells whose it is
    of_each_node: what each node prints: of a step, of its end, and in its progress bar
    """

    begins: bytes
    dict_of_line: re.Pattern[bytes]
    of_each_node: re.Pattern[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionFile:
    """A file that a framework leaves beside its log.

    names: globs from the log's folder; within: the name that the folder has to have, if any
    kind: what it is, and so what `read` gets: the values of a JSON or TOML object, those of a W&B
        config by key, or lines
    read: facts of that; none of another framework's file. What is no value of a fact is passed over
    """

    names: Sequence[str]
    kind: Literal["JSON", "TOML", "W&B", "lines"]
    read: Callable[[Any], Mapping[str, str]]
    within: str | None = None


WANDB_CONFIG_NAMES: Final = ("config.yaml", "wandb/run-*/files/config.yaml")
"""Where Weights & Biases keeps the config of a run, whatever trains."""


CompleteRow = Callable[[dict[str, Any], Mapping[str, str]], None]
"""Completes a row of `steps` in place, given all printed fields as text.

Each number by itself, or with others whatever these are: lines that are read by their shape
(ingest.vector) would not see that they bear each other out only now and then.

What follows of several fields, or of their values, may be facts of the launch: they go into
`row["says"]`, by name; what follows of one that is there is for `StepLine.tells`.
"""

JoinLines = Callable[[Iterable[tuple[int, str]]], Iterator[tuple[int, int, str]]]
"""Numbered lines to records: number of the first line, how many lines, the record on one line.

For what stands on several lines (pretty-printed JSON_PAIRS) or needs one seen before (the heading of a
CSV file). No line is lost: the counts add up to the lines read.
"""


AddText = Callable[[str, str, str], str]
"""What is added to a line: by the one before it, itself, and the one behind it.

Blank ones are passed over; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineAddition:
    """A `join` that keeps lines as they are, but for what those beside it add to some.

    `make_add_text` makes of the texts of a file, from a line before the first with `to` on and as far as it
    reads, what is asked of each line with `to`, in their order. That adds nothing, and learns
    nothing, where neither line beside one has `told_by`.
    renames: texts of a line from which on one text stands as another. tags: before the lines of a
    file of several writers, which `join` reads as each one's own, one line after the other.
    It says the same as `join` of a file that has a line with `to`.
    """

    to: str
    told_by: str
    make_add_text: Callable[[Iterable[str]], AddText]
    renames: tuple[Sequence[str], str, str] | None = None
    tags: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogFormat:
    """One log format of one framework, over the versions that print it; each is equal to itself.

    Of the formats whose lines stand in one file the one of the highest `precedence` is primary:
    its lines are the steps. Lower ones are its companions: their facts count where the primary
    says nothing, their step lines become events of the kind `as_companion`.

    step_pieces: matches what only step lines hold, wherever they are broken or damaged: a line with
        it that no pattern takes is unread
    header: matches lines of a companion that prints no step (a quiet DeepSpeed engine)
    alone: it runs on no engine, so it has no companion
    join: makes records of lines before they are read
    join_by_step: of event files, where no record holds lines of two steps, and which lines one
        holds depends on their tags alone
    addition: `join`, where it is an addition
    framework_unsaid: of lines that other frameworks print too, where no fact `engine` tells whose
    launch: matches lines that begin a launch
    late: matches those of them that may also be printed behind the first steps of their launch,
        and then begin none: where the launch has not said how many GPUs it has
    rank_in_path: the rank that a file of one rank has in its name only (a group)
    quirks: what is true of its logs and changes what their figures mean (core.schema.QUIRKS)
    engine_below: the framework whose engine may train below its lines and print lines of its own
    times_elsewhere: of lines that may lack times: where there are some, or why there are none
    timer_stopped_once_with: facts of trainers that stop the engine's timer once a step, so that
        each step has one micro-step by its count
    finish: settles what only a whole launch tells, also where it is a companion
    infer_sizes: facts that follow from the numbers of whole launches, also where it is a companion
    rank_tag: a tag before its lines whose group `rank` is the global rank, so it stands for those of
        launchers
    file_names: globs of its files where their ending (.json, .csv) is one that a folder's walk
        passes over
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
    timer_stopped_once_with: Sequence[str] = ()
    finish: FinishLaunch | None = None
    infer_sizes: InferSizes | None = None
