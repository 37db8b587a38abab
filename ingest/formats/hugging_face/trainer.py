"""The Hugging Face Trainer, alone or over DeepSpeed: console, state, TensorBoard.

A step dict prints neither step nor time. Both are in the progress bar (see progress_bars). Its
seconds are whole and count from the start of the training loop, as does `train_runtime` of a step
dict (4.52 and later). Without a bar the dicts are counted. `num_input_tokens_seen` counts the
tokens of all ranks since the start, padding included. The final dict covers the whole schedule,
even after resuming from a checkpoint, and its `train_tokens_per_second` is that of one device.
Since 5.0 the console prints numbers as strings of four digits.

`tokens/total` of axolotl (since January 2026, with include_tkps) counts as the Trainer's own does,
but labels instead of inputs (src/axolotl/core/trainers/base.py, compute_loss and log). The sum is a
float of 32 bits, so from 10^9 tokens on a step may be slightly off.

`num_tokens` of TRL counts the model's inputs at every micro-step of training, not in evaluation:
`attention_mask.sum()`, or without a mask (padding_free, packing) the length of `position_ids`, so
no padding, summed over all processes. The count begins at 0 with the process, even after resuming
from a checkpoint. By huggingface/trl/trl/trainer/ at the tags:

    sft_trainer.py      since v0.16.0; up to v0.17 the dict of a step that evaluates lacks it
    reward_trainer.py   since v0.24.0, of pairs
    dpo_trainer.py      since v0.29.0, of pairs; without the inputs of the reference model
    kto_trainer.py      since v1.8.0, of the policy; experimental/tpo/tpo_trainer.py since v1.3.0

Tensor-parallel ranks get the same tokens: all of them count up to v1.12, only one since v1.13. In
the last batch of an epoch `gather_for_metrics` drops ranks if there are fewer samples than ranks
(huggingface/accelerate/src/accelerate/accelerator.py@v1.10.0). In grpo_trainer.py (since v0.16.0),
rloo_trainer.py (v0.22.0), distillation_trainer.py (v1.10.0) and experimental/dppo the same name
counts prompts and completions as generated, since v0.17 instead of `num_input_tokens_seen`: neither
is the tokens of training.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from ..deepspeed.phases import engine_timers, micro_step_timers
from ..launch_commands import EZPZ_GPUS, TRACED_LAUNCHER
from ..launch_view import Finished, LaunchView
from ..spec import (
    GIB,
    JSON_PAIRS,
    LIBRARY_PRECEDENCE,
    ONE_OR_MORE_TAGS,
    PREFERENCE_OBJECTIVE,
    REINFORCEMENT_OBJECTIVE,
    ColumnTarget,
    EventLine,
    FactBlock,
    FactLine,
    FinerClock,
    LineAddition,
    LogFormat,
    StepLine,
    objective_line,
    parse_json_lines,
    parse_json_object,
    to_seconds,
)
from . import preamble, swift_lines
from .arguments import python_literal, training_arguments
from .bar_matching import COPY_PREFIX, DICT_START, ProgressBar, drawn_bars
from .closing_dict import RESULTS_FILE, with_last_step
from .command_line import COMMAND_LINE
from .progress_bars import DictBarMatcher, match_bars, place_late_dicts

TRANSFORMERS_SOURCE: Final = "huggingface/transformers/src/transformers"
TRAINER_SOURCE: Final = f"{TRANSFORMERS_SOURCE}/trainer.py@v4.57.1"
CALLBACKS_SOURCE: Final = f"{TRANSFORMERS_SOURCE}/trainer_callback.py@v4.57.1"
TRAINER_UTILS_SOURCE: Final = f"{TRANSFORMERS_SOURCE}/trainer_pt_utils.py@v4.57.1"
TENSORBOARD_SOURCE: Final = f"{TRANSFORMERS_SOURCE}/integrations/integration_utils.py@v4.57.1"

PADDED_IMPLIES: Final[dict[str, tuple[str, str]]] = {
    "packed": ("false", "the Trainer need not fill a sequence, even where it packs samples")
}

# -- facts of several files ----------------------------------------------------------------


def python_arguments(groups: Mapping[str, str]) -> dict[str, str]:
    """Return facts of TrainingArguments as Python prints them, on one line or several."""
    values: dict[str, Any] = dict(_ARGUMENT.findall(groups["text"]))
    dicts = {key: python_literal(text) for key, text in values.items() if text[0] == "{"}
    return training_arguments(values | dicts)


def _nested_dict(depth: int) -> str:
    """Return a regex of a printed dict of nested dicts; it tries each place once."""
    within = rf"|{_nested_dict(depth - 1)}" if depth > 1 else ""
    return rf"\{{(?:[^{{}}\n]++{within})*+\}}"


_ARGUMENT: Final = re.compile(
    rf"(\w+)=({_nested_dict(5)}(?=,? *(?:\w+=|\)|$))|\[[^\]\n]*\]|[^,()\n]+)", re.MULTILINE
)
"""Name and value; a dict or a list is one value."""


def _json_arguments(groups: Mapping[str, str]) -> dict[str, str]:
    """Return facts of TrainingArguments in TensorBoard: JSON in a JSON string."""
    return training_arguments(parse_json_object(_unquoted(groups)))


def _model_config(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a Hugging Face config.json; empty without a model type."""
    return {"model_config": json.dumps(values)} if "model_type" in values else {}


def _model_config_block(lines: Sequence[str]) -> dict[str, str]:
    return _model_config(parse_json_lines(lines))


def _model_config_text(groups: Mapping[str, str]) -> dict[str, str]:
    return _model_config(parse_json_object(_unquoted(groups)))


def _arguments_block(lines: Sequence[str]) -> dict[str, str]:
    return python_arguments({"text": "\n".join(lines)})


def _unquoted(groups: Mapping[str, str]) -> str:
    """Return the text in a JSON string."""
    return str(json.loads(f'"{groups["text"]}"'))


def complete_row(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill tokens, TRL's tokens, and ms-swift's step and time since the start.

    0 tokens means that they are not counted. ms-swift prints `'global_step/max_steps': '56/176'` and
    `'elapsed_time': '1h 22m 38s'` (modelscope/ms-swift/swift/trainers/callback.py,
    add_train_message); its Megatron trainer prints `'iteration': '56/176'`
    (swift/megatron/callbacks/print.py@efd0a54 PrintCallback.on_log).
    """
    row["consumed_tokens"] = row.get("consumed_tokens") or None
    if "num_tokens" in printed:
        _count_of_trl(row, printed)
    if "global_step" in printed and "since" not in printed:
        _time_by_speed(row, printed)
    step_of_total = next((printed[key] for key in STEP_OF_TOTAL_KEYS if key in printed), "")
    if match := re.fullmatch(r"(\d{1,19})/\d+", step_of_total):
        row["step"] = int(match[1])
        if match := _CLOCK.fullmatch(printed.get("elapsed_time", "")):
            row["since_start_s"] = to_seconds(*match.groups())


def _time_by_speed(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill since_start_s from step and mean speed, as early ms-swift has no clock.

    The speed counts from the creation of the Trainer (swift/trainers/mixin.py,
    _maybe_log_save_evaluate).
    """
    step, speed = (
        float(printed.get(key) or 0) for key in ("global_step", MS_SWIFT_CLOCK.steps_per_s)
    )
    if step > 0 and 0 < speed < math.inf:
        row["since_start_s"] = step / speed


GLOBAL_STEP_KEYS: Final = ("global_step/max_steps", "steps[global_step/max_steps]")
"""ms-swift's keys of step and total; the second in the middle of 2024."""
STEP_OF_TOTAL_KEYS: Final = (*GLOBAL_STEP_KEYS, "iteration")
"""The same keys, with the one of its Megatron trainer."""
_CLOCK: Final = re.compile(r"(?:(\d{1,9})d ?)?(?:(\d{1,9})h ?)?(?:(\d\d?)m ?)?(\d\d?)s")
MS_SWIFT_CLOCK: Final = FinerClock(
    clock="elapsed_time",
    steps_per_s="train_speed(iter/s)",
    s_per_step="train_speed(s/it)",
    early=0.5,
    late=1.0,
)
"""ms-swift's mean speed (swift/trainers/callback.py add_train_message@018a548), and that of its
Megatron trainer (PrintCallback.on_log), to six decimals; the seconds are whole: rounded, or cut. In
2025 the clock was another one, started at the creation of the Trainer (swift/trainers/mixin.py).
"""


def _count_of_trl(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Store `num_tokens` if other fields show a training's count, else the reason."""
    if any(key.startswith(TRL_GENERATION_PREFIX) for key in printed):
        row["consumed_tokens"] = None
        row["says"]["uncounted_tokens"] = GENERATED_TOKENS_NOTE
    elif TRL_TRAINING_KEYS.isdisjoint(printed):
        row["says"]["uncounted_tokens"] = UNKNOWN_TOKENS_NOTE
    else:
        row["consumed_non_padding"] = float(printed["num_tokens"])


TRL_TRAINING_KEYS: Final = frozenset({"mean_token_accuracy", "rewards/margins", "mean_reward"})
"""Fields of SFT; of DPO, KTO and TPO; of the reward trainer: all their dicts have one of these."""

TRL_GENERATION_PREFIX: Final = "completion"
"""Prefix of fields of trainers that generate: `completions/mean_length`, `completion_length`."""

GENERATED_TOKENS_NOTE: Final = "num_tokens counts generated tokens, not trained ones"
UNKNOWN_TOKENS_NOTE: Final = (
    "The log prints num_tokens without the trainer's name, so its meaning is unknown"
)

# -- console -------------------------------------------------------------------------------

DICT_NUMBER: Final = r"'?[-+]?(?:[\d.]+(?:e[-+]?\d+)?|nan|inf)'?"
TOTAL_STEPS: Final = re.compile(
    r"Total optimization steps = ([\d,]+)$"
    r"|\| Total steps = ([\d,]+)\s*$"  # of Unsloth
)
OTHER_MODEL_MARKS: Final = ("Overriding config: ", "instantiating a new config instance from")
"""After these lines, configs of files are not those of the trained model."""
CONFIG_RENAMING: Final = ("Model config ", "A config ")


def _join(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield lines; add the progress bar's step and seconds to its dict.

    A single dict gives no interval, and without standard output only bars are left: every bar is a
    step then.
    """
    waiting, ahead, lines = list[tuple[int, str]](), deque[tuple[int, str]](), iter(lines)
    source = iter(_own_configs(_in_turn(ahead, lines)))
    for number, text in source:
        waiting.append((number, text))
        if DICT_START in text:
            break
    else:
        yield from _bars(waiting)
        return
    if ONE_OR_MORE_TAGS.match(waiting[-1][1]):
        yield from _joined_by_tag(waiting, source, _read_ahead(lines, ahead))
        return
    if not any(DICT_START in text for text in _read_ahead(lines, ahead)):
        yield from _bars([*waiting, *source])
        return
    *before, held = waiting
    above = _nearest_text(reversed(before))
    read_texts = [text for _, text in ahead]
    added = DictBarMatcher(chain((above, held[1], *read_texts), _read_ahead(lines, ahead)))
    if added.may_be_late:
        yield from _with_late_dicts(chain(waiting, source), added)
        return
    yield from ((number, 1, text) for number, text in before)
    yield from _with_bars_beside(held, source, above, added)


MAX_LATE_CHARS: Final = 64_000_000
"""Characters of a file that is held in memory to prove the steps of its dicts, at most."""


def _with_late_dicts(
    lines: Iterator[tuple[int, str]], added: DictBarMatcher
) -> Iterator[tuple[int, int, str]]:
    """Yield all lines of a file; add bars to dicts that waited in a buffer, if proven."""
    held, size = list[tuple[int, str]](), 0
    for line in lines:
        held.append(line)
        size += len(line[1])
        if size > MAX_LATE_CHARS:
            break
    texts = place_late_dicts([text for _, text in held]) if size <= MAX_LATE_CHARS else {}
    if not texts:
        rest = chain(held, lines)
        yield from _with_bars_beside(next(rest), rest, "", added)
        return
    for index, (number, text) in enumerate(held):
        yield number, 1, f"{text} {texts[index]}" if index in texts else text


def _with_bars_beside(
    held: tuple[int, str], rest: Iterable[tuple[int, str]], above: str, added: DictBarMatcher
) -> Iterator[tuple[int, int, str]]:
    """Yield lines; add to a dict the bar beside it.

    held: the first line; above: the nearest text before
    """
    blank: list[tuple[int, str]] = []
    for number, text in rest:
        if DICT_START in held[1] and not text.strip():
            blank.append((number, text))  # of a viewer that turned carriage returns into lines
            continue
        yield held[0], 1, held[1] + (added(above, held[1], text) if DICT_START in held[1] else "")
        yield from ((line_number, 1, empty) for line_number, empty in blank)
        above = held[1] if held[1].strip() else above
        held, blank = (number, text), []
    yield held[0], 1, held[1] + (added(above, held[1], "") if DICT_START in held[1] else "")
    yield from ((line_number, 1, empty) for line_number, empty in blank)


class _Line:
    """A line of one of several writers, with the previous text of the same writer."""

    def __init__(self, number: int, text: str, above: str, tag: str) -> None:
        self.number, self.text, self.above, self.tag = number, text, above, tag
        self.bare = text[len(tag) :]
        self.waits = DICT_START in self.bare


MAX_LOOKAHEAD_CHARS: Final = 4_000_000
"""Characters of all writers' lines that show the right bars for a writer's dicts."""
MAX_WAITING_LINES: Final = 10_000
"""Lines after a dict that still waits for its writer's next line, at most."""


def _joined_by_tag(
    before: Sequence[tuple[int, str]],
    rest: Iterator[tuple[int, str]],
    coming: Iterator[str],
) -> Iterator[tuple[int, int, str]]:
    """Join as `_join` does, for tagged lines: neighbours of a dict have the same tag.

    before: lines up to the first dict; rest: later lines; coming: texts of the later lines, read
    ahead.
    """
    bars = _bars_by_tag([*(text for _, text in before), *_as_many(coming)])
    above, waiting, queue = dict[str, str](), dict[str, _Line](), deque[_Line]()
    for number, text in chain(before, rest):
        tag = _tag_of(text)
        line = _Line(number, text, above.get(tag, ""), tag)
        queue.append(line)
        if line.bare.strip():
            if waiter := waiting.pop(tag, None):
                _settle(waiter, bars, line.bare)
            above[tag] = line.bare
        if line.waits:
            waiting[tag] = line
        while queue and (not queue[0].waits or len(queue) > MAX_WAITING_LINES):
            first = queue.popleft()
            if first.waits:
                _settle(waiting.pop(first.tag), bars, "")
            yield first.number, 1, first.text
    for line in queue:
        if line.waits:
            _settle(line, bars, "")
        yield line.number, 1, line.text


def _tag_of(text: str) -> str:
    match = ONE_OR_MORE_TAGS.match(text)
    return match[0] if match else ""


def _bars_by_tag(texts: Sequence[str]) -> dict[str, DictBarMatcher]:
    """Return the matchers of bars and dicts by writer."""
    by_tag = dict[str, list[str]]()
    for text in texts:
        by_tag.setdefault(tag := _tag_of(text), []).append(text[len(tag) :])
    return {tag: DictBarMatcher(bare_texts) for tag, bare_texts in by_tag.items()}


def _as_many(coming: Iterator[str]) -> Iterator[str]:
    size = 0
    for text in coming:
        yield text
        size += len(text) + 1
        if size > MAX_LOOKAHEAD_CHARS:
            return


def _settle(line: _Line, bars: dict[str, DictBarMatcher], below: str) -> None:
    """Add the bar to a waiting dict. below: its writer's next line."""
    if line.tag not in bars:
        bars[line.tag] = DictBarMatcher([line.bare, below])
    line.text += bars[line.tag](line.above, line.bare, below)
    line.waits = False


def _read_ahead(lines: Iterable[tuple[int, str]], ahead: deque[tuple[int, str]]) -> Iterator[str]:
    """Yield texts of lines, and keep the lines until their turn."""
    for line in lines:
        ahead.append(line)
        yield line[1]


def _in_turn(
    ahead: deque[tuple[int, str]], lines: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    """Yield lines in order, first those read ahead."""
    while line := ahead.popleft() if ahead else next(lines, None):
        yield line


END_DICT_START: Final = "{'train_runtime': "


def _bars(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the states of the training's own bar, and other lines.

    lines: with one dict at most, which is the state of its own bar. Bars of evaluations have another
    total. A line has many states: only the last counts the line, and may be cut off. After the end
    the last state is drawn again. If lines of several nodes have tags, only the first node's bars
    count, as clocks differ.
    """
    place, dict_bar = _dict_with_bar(lines)
    if place >= 0 and dict_bar is None:
        yield from ((number, 1, text) for number, text in lines)
        return
    totals, shown = _planned_totals(lines, dict_bar), dict_bar.step if dict_bar else None
    last, ended, writer = 0, False, None
    for index, (number, text) in enumerate(lines):
        ended = ended or END_DICT_START in text
        states: dict[int, str] = {}
        tag = _tag_of(text)
        for bar in filter(None, drawn_bars(text[len(tag) :]) if writer in (None, tag) else ()):
            again = (ended and bar.step == last) or bar.step == shown
            if bar.total in totals and bar.is_within and not again:
                states.setdefault(bar.step, bar.told)  # a later one is a redraw
        if states:
            last, ended, writer = next(reversed(states)), False, tag
        records = list(states.values())
        if index == place and dict_bar:
            records.append(f"{text} {dict_bar.told}")
        *before, final = records or [text]
        yield from ((number, 0, record) for record in before)
        yield number, 1, final


def _dict_with_bar(lines: Sequence[tuple[int, str]]) -> tuple[int, ProgressBar | None]:
    """Return the index of the dict's line, -1 if none, and the dict's own bar."""
    place = next((i for i, (_, text) in enumerate(lines) if DICT_START in text), -1)
    if place < 0:
        return place, None
    above, text = _nearest_text(reversed(lines[:place])), lines[place][1]
    below = _nearest_text(lines[place + 1 :])
    return place, DictBarMatcher((above, text, below)).bar_of(above, text, below)


def _nearest_text(lines: Iterable[tuple[int, str]]) -> str:
    """Return the first text that is not blank; empty if there is none."""
    return next((text for _, text in lines if text.strip()), "")


def _planned_totals(lines: Iterable[tuple[int, str]], dict_bar: ProgressBar | None) -> set[int]:
    """Return the steps planned, by headers or by the bar of a dict."""
    matches = filter(None, (TOTAL_STEPS.search(text) for _, text in lines))
    totals = {int((match[1] or match[2]).replace(",", "")) for match in matches}
    return totals | ({dict_bar.total} if dict_bar else set())


def _own_configs(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield lines; rename configs of files once the model comes from another config."""
    other = False
    for number, text in lines:
        other = other or any(mark in text for mark in OTHER_MODEL_MARKS)
        yield number, text.replace(*CONFIG_RENAMING) if other else text


def _header(lines: Sequence[str]) -> dict[str, str]:
    """Return the batch sizes in the Trainer's header, and the data-parallel ranks."""
    text = "\n".join(lines)
    names = {
        "total_samples": "Num examples",
        "micro_batch_size": "Instantaneous batch size per device",
        "global_batch_size": r"Total train batch size \([^)]*\)",
        "gradient_accumulation": "Gradient Accumulation steps",
        "total_steps": "Total optimization steps",
    }
    matches = {fact: re.search(rf"{name} = ([\d,]+)", text) for fact, name in names.items()}
    facts = {fact: match[1].replace(",", "") for fact, match in matches.items() if match}
    with suppress(KeyError, ZeroDivisionError):
        local = int(facts["micro_batch_size"]) * int(facts["gradient_accumulation"])
        ranks, rest = divmod(int(facts["global_batch_size"]), local)
        facts.update({"data_parallel": str(ranks)} if not rest else {})
    return facts


def _settle_lengths(launch: LaunchView) -> Finished:
    """Keep the lengths of the first data set; the next one is for evaluation."""
    for name in ("mean_sample_length", "sample_length_deviation"):
        for later in [fact for fact in launch.facts if fact["name"] == name][1:]:
            launch.facts.remove(later)
    return Finished()


DICT_COLUMNS: Final[dict[str, ColumnTarget]] = {
    "step": "step",
    "global_step": "step",  # ms-swift of 2024
    "since": "since_start_s",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "num_input_tokens_seen": "consumed_tokens",
    "tokens/total": "consumed_tokens",
    "memory(GiB)": ("peak_memory_bytes", GIB),
    "memory/max_allocated (GiB)": ("peak_memory_bytes", GIB),  # of axolotl
    "memory/max_mem_allocated(gib)": ("peak_memory_bytes", GIB),  # until August 2025
    "train_runtime": "since_start_s",  # finer than the bar's `since`, and read after it
}
OBJECTIVE_KEYS: Final = {
    **dict.fromkeys(("rewards/chosen", "logps/chosen"), PREFERENCE_OBJECTIVE),
    "min_reward": PREFERENCE_OBJECTIVE,  # RewardTrainer
    **dict.fromkeys(
        ("reward_std", "completions/mean_length", "completion_length"), REINFORCEMENT_OBJECTIVE
    ),
    "objective/kl": REINFORCEMENT_OBJECTIVE,
}
"""Keys of TRL's trainers (huggingface/trl DPOTrainer, RewardTrainer, GRPOTrainer, PPOTrainer), and
of their descendants in ms-swift and axolotl.
"""
_PAIR: Final = r"'(?P<key>[^']+)': '?(?P<value>[^,'}]+)'?"
_STEP_OF_TOTAL: Final = rf"(?:{'|'.join(map(re.escape, STEP_OF_TOTAL_KEYS))})"
_BAR_SAYS: Final = (
    r"\(progress bar: step (?P<step>\d+) of (?P<total>\d+)(?: after (?P<since>\d+) s)?\)$"
)

TIMES_ELSEWHERE: Final = (
    "the Trainer prints times in its progress bar (standard error) and its TensorBoard files"
)
"""Places of the times of the Trainer, whose lines may print none."""

HF_CONSOLE: Final = LogFormat(
    name="hf-trainer",
    quirks=("tokens_of_processes", "step_unsaid"),
    engine_below="deepspeed",
    phase_timers=(*engine_timers(), *micro_step_timers()),
    times_elsewhere=TIMES_ELSEWHERE,
    framework="transformers",
    versions="transformers 3 … 5",
    signature=rf"\{{'loss': {DICT_NUMBER}, .*'(?:learning_rate|epoch)': "
    rf"|\{{'train_runtime': {DICT_NUMBER}, 'train_samples_per_second': "
    rf"|  Total optimization steps = \d|\(progress bar: step \d+ of |{preamble.UNSLOTH_BANNER}",
    looks_like_step=rf"{COPY_PREFIX}\{{'loss': |\(progress bar: step \d+ of ",
    clock=r"\[(?:INFO|WARNING|ERROR)\|(?:\w+\.py:\d+\] )?"
    r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?)",
    launch=r"\*{5} Running training \*{5}|\[launch\.py:\d+:main\] dist_world_size"
    r"|\[runner\.py:\d+:main\] cmd = |TrainingArguments\("
    rf"|{preamble.UNSLOTH_BANNER}|{preamble.AXOLOTL_CONFIG_START}",
    evidence=("clock",),
    precedence=LIBRARY_PRECEDENCE,
    join=_join,
    addition=LineAddition(
        to=DICT_START,
        told_by="%",
        make_add_text=match_bars,
        renames=(OTHER_MODEL_MARKS, *CONFIG_RENAMING),
        tags=ONE_OR_MORE_TAGS,
    ),
    complete=complete_row,
    finer_clock=MS_SWIFT_CLOCK,
    implies=PADDED_IMPLIES,
    finish=_settle_lengths,
    steps=(
        StepLine(
            anchor="(progress bar: step ",
            regex=rf"{COPY_PREFIX}\{{(?P<pairs>'loss': .*?)\}}.*{_BAR_SAYS}",
            pair=_PAIR,
            columns=DICT_COLUMNS,
            tells=OBJECTIVE_KEYS,
            facts={"total": "total_steps"},
            example="{'loss': '6.947', 'grad_norm': '0.7694', 'learning_rate': '0.0004', "
            "'epoch': '0.01953'} (progress bar: step 5 of 40 after 1 s)",
            printed_by=f"{CALLBACKS_SOURCE} ProgressCallback.on_log",
        ),
        StepLine(
            anchor="{'loss': ",
            regex=rf"{COPY_PREFIX}\{{(?P<pairs>'loss': [^{{}}]*?'{_STEP_OF_TOTAL}': "
            r"'\d{1,19}/(?P<total>\d+)'[^{}]*)\}",
            pair=_PAIR,
            columns=DICT_COLUMNS,
            facts={"total": "total_steps"},
            tells=OBJECTIVE_KEYS,
            numbered=True,  # for the regex; complete_row reads the step
            example="{'loss': 0.21460216, 'epoch': 0.51, 'global_step/max_steps': '45/176', "
            "'percentage': '25.57%', 'elapsed_time': '1h 6m 5s'}",
            printed_by="modelscope/ms-swift/swift/trainers/callback.py@018a548 add_train_message",
            composed=True,
        ),
        StepLine(
            anchor=">> {'loss': ",
            regex=r"\[INFO\|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] (?:logging|callbacks)\.py:\d{1,5} >> "
            r"\{(?P<pairs>'loss': .*?)\}",
            pair=_PAIR,
            columns=DICT_COLUMNS,
            tells=OBJECTIVE_KEYS,
            numbered=True,
            evidence=("stamp",),  # of the file's own handler, which waits in no buffer
            example="[INFO|2026-11-20 15:09:01] logging.py:157 >> {'loss': 2.2818, "
            "'learning_rate': 2.5000e-06, 'epoch': 0.29}",
            printed_by="hiyouga/LLaMA-Factory/src/llamafactory/extras/logging.py@v0.9.1 "
            "LoggerHandler",
            composed=True,
        ),
        StepLine(
            anchor="{'loss': ",
            regex=rf"{COPY_PREFIX}\{{(?P<pairs>'loss': .*?)\}}",
            pair=_PAIR,
            columns=DICT_COLUMNS,
            tells=OBJECTIVE_KEYS,
            numbered=True,
            example="{'loss': '6.795', 'grad_norm': '2.812', 'learning_rate': '0.0002966', "
            "'epoch': '0.0293', 'num_input_tokens_seen': 15360, 'train_runtime': '3.986', "
            "'train_tokens_per_second': '3854'}",
            printed_by=f"{CALLBACKS_SOURCE} ProgressCallback.on_log, PrinterCallback.on_log",
        ),
        StepLine(
            anchor="(progress bar: step ",
            regex=rf"^{_BAR_SAYS}",
            columns={"step": "step", "since": "since_start_s"},
            facts={"total": "total_steps"},
            example="(progress bar: step 4 of 40 after 1 s)",
            printed_by=f"{CALLBACKS_SOURCE} ProgressCallback.on_step_end",
        ),
    ),
    events=(
        EventLine(
            anchor=END_DICT_START,
            regex=r"\{'train_runtime': '?(?P<seconds>[\d.e+]+)'?"
            r"(?:, 'train_samples_per_second': '?(?P<train_samples_per_second>[\d.e+-]+)'?)"
            r"(?:, 'train_steps_per_second': '?(?P<train_steps_per_second>[\d.e+-]+)'?)?"
            r"(?:, 'train_tokens_per_second': '?(?P<tokens_per_second_of_a_device>[\d.e+-]+)'?)?"
            r"(?:, 'train_loss': '?(?P<train_loss>[\w.+-]+)'?)?",
            kind="end",
            read=with_last_step,
            example="{'train_runtime': '7.012', 'train_samples_per_second': '91.28', "
            "'train_steps_per_second': '5.705', 'train_loss': '6.618', 'epoch': '0.1562'}",
            printed_by=f"{TRAINER_SOURCE} Trainer._inner_training_loop, speed_metrics",
        ),
        EventLine(
            anchor="Training completed. Do not forget",
            regex=r"Training completed\. Do not forget to share your model",
            kind="end",
            overtakes=True,  # by standard error: dicts wait in a buffer of standard output
            example="Training completed. Do not forget to share your model on "
            "huggingface.co/models =)",
            printed_by=f"{TRAINER_SOURCE} Trainer._inner_training_loop",
        ),
        EventLine(
            anchor="_runtime': ",
            regex=r"\{(?:'eval_loss': '?(?P<eval_loss>[\w.+-]++)'?)?[^{}]*"
            r"'eval_(?:\w+_)?runtime': '?(?P<seconds>[\d.e+]+)",
            kind="evaluation",
            example="{'eval_loss': '6.412', 'eval_runtime': '2.25', "
            "'eval_samples_per_second': '113.8', 'eval_steps_per_second': '14.22', "
            "'epoch': '0.1562'}",
            printed_by=f"{TRAINER_SOURCE} Trainer.evaluate",
            composed=True,
        ),
        EventLine(
            anchor="{'eval_",
            regex=r"\{'eval_(?![^{}]*'eval_(?:\w+_)?runtime': )",
            kind="evaluation",
            example="{'eval_loss': 1.6640625, 'iteration': '10/240', 'elapsed_time': '6m 50s'}",
            printed_by="modelscope/ms-swift/swift/megatron/callbacks/print.py@efd0a54 "
            "PrintCallback; Trainer.evaluate of 2020, which timed none",
            composed=True,
        ),
        EventLine(
            anchor="***** Running ",
            regex=r"\*{5} Running (?:Evaluation|Prediction|\w+ Evaluation) \*{5}",
            kind="evaluation",
            example="[transformers] ***** Running Evaluation *****",
            printed_by=f"{TRAINER_SOURCE} Trainer.evaluation_loop",
            composed=True,
        ),
        EventLine(
            anchor="Saving model checkpoint to ",
            regex=r"Saving model checkpoint to \S*?(?:checkpoint-(?P<step>\d+))?/?\s*$",
            kind="checkpoint",
            example="[INFO|trainer.py:3410] 2026-11-20 15:06:10,118 >> Saving model checkpoint to "
            "hf_out/checkpoint-20",
            printed_by=f"{TRAINER_SOURCE} Trainer._save",
            composed=True,
        ),
        EventLine(
            anchor="Continuing training from global step ",
            regex=r"Continuing training from global step (?P<step>\d+)",
            kind="load",
            example="[transformers]   Continuing training from global step 20",
            printed_by=f"{TRAINER_SOURCE} Trainer._inner_training_loop",
            composed=True,
        ),
        EventLine(
            anchor="Gradient accumulation steps mismatch",
            regex=r"Gradient accumulation steps mismatch: .*Using DeepSpeed's value",
            kind="warning",
            example="[RANK 0] Gradient accumulation steps mismatch: GradientAccumulationPlugin has "
            "1, DeepSpeed config has 2. Using DeepSpeed's value.",
            printed_by="huggingface/accelerate/src/accelerate/accelerator.py@v1.10.0",
        ),
    ),
    blocks=(
        *preamble.FACT_BLOCKS,
        *swift_lines.FACT_BLOCKS,
        FactBlock(
            start=r"\*{5} Running training \*{5}",
            kind="train_start",
            end=r"  Total optimization steps = ",
            include_end=True,
            max_lines=600,  # copies of many ranks, interleaved
            read=_header,
            example=(
                "[transformers] ***** Running training *****",
                "[transformers]   Num examples = 4,096",
                "[transformers]   Num Epochs = 1",
                "[transformers]   Num update steps per epoch = 256",
                "[transformers]   Instantaneous batch size per device = 4",
                "[transformers]   Total train batch size (w. parallel, distributed & "
                "accumulation) = 16",
                "[transformers]   Gradient Accumulation steps = 2",
                "[transformers]   Total optimization steps = 40",
            ),
            printed_by=f"{TRAINER_SOURCE} Trainer._inner_training_loop",
        ),
        FactBlock(
            start=r"\bModel config \w+ \{\s*$",
            end=r"\bModel config \w+ \{\s*$",
            braces=True,
            others=r"\[(?:INFO|WARNING)\|\w+\.py:\d+\]",
            read=_model_config_block,
            example=(
                "[INFO|configuration_utils.py:765] 2026-11-20 15:06:01,504 >> Model config "
                "LlamaConfig {",
                '  "hidden_size": 128,',
                '  "model_type": "llama",',
                '  "vocab_size": 1024',
                "}",
            ),
            printed_by=f"{TRANSFORMERS_SOURCE}/configuration_utils.py@v4.57.1",
        ),
        FactBlock(
            start=r"TrainingArguments\(\s*$",
            end=r"^\)",
            include_end=True,
            read=_arguments_block,
            example=(
                "INFO:__main__:Training/evaluation parameters TrainingArguments(",
                "_n_gpu=1,",
                "bf16=True,",
                "gradient_accumulation_steps=2,",
                "gradient_checkpointing=False,",
                "logging_steps=5,",
                "logging_strategy=steps,",
                "per_device_train_batch_size=4,",
                ")",
            ),
            printed_by=f"{TRANSFORMERS_SOURCE}/training_args.py@v4.57.1 TrainingArguments.__str__",
        ),
    ),
    facts=(
        EZPZ_GPUS,
        *preamble.FACT_LINES,
        *swift_lines.FACT_LINES,
        COMMAND_LINE,
        TRACED_LAUNCHER,
        FactLine(
            anchor="TrainingArguments(",
            regex=r"TrainingArguments\((?P<text>\w+=.+)\)\s*$",
            read=python_arguments,
            example="INFO:__main__:Training/evaluation parameters TrainingArguments("
            "output_dir=out, per_device_train_batch_size=4, gradient_accumulation_steps=1, "
            "logging_strategy=IntervalStrategy.STEPS, logging_steps=10, fp16=True, _n_gpu=1)",
            printed_by=f"{TRANSFORMERS_SOURCE}/training_args.py@v4.6.1 TrainingArguments (a data class)",
            composed=True,
        ),
        FactLine(
            anchor=" = ",
            regex=r"  (?:Num examples|Num Epochs|Num update steps per epoch|Batch size"
            r"|Instantaneous batch size per device|Total train batch size \([^()]*\)"
            r"|Gradient Accumulation steps|Total optimization steps"
            r"|Number of trainable parameters) = [\d,]+",
            example="[transformers]   Number of trainable parameters = 1,049,728",
            printed_by=f"{TRAINER_SOURCE} Trainer._inner_training_loop",
        ),
        FactLine(
            anchor="callbacks",
            regex=r"(?:llamafactory|llmtuner)\.[\w.]{0,99}callbacks(?::\d+ >>| -) \{'loss': ",
            example="[INFO|2025-04-30 22:57:10] llamafactory.train.callbacks:143 >> {'loss': "
            "1.4229, 'learning_rate': 4.9978e-05, 'epoch': 0.17, 'throughput': 8192.00}",
            printed_by="hiyouga/LLaMA-Factory/src/llamafactory/train/callbacks.py@ff6d4d1",
            composed=True,
        ),
        FactLine(
            anchor=" metrics *****",
            regex=r"\*{5} \w+ metrics \*{5}",
            example="***** train metrics *****",
            printed_by=f"{TRAINER_UTILS_SOURCE} log_metrics",
        ),
        FactLine(
            anchor=" = ",
            regex=r"(?:^| >>) +(?:epoch|total_flos|num_input_tokens_seen|(?:train|eval)_\w+) += +"
            r"[\w.:,+-]+\s*$",
            example="  train_runtime            = 0:00:07.01",
            printed_by=f"{TRAINER_UTILS_SOURCE} log_metrics",
        ),
        FactLine(
            anchor="%|",
            regex=r"^\s*\d+%\|.*\[(?:\d+:)?\d\d:\d\d<.*(?:it/s|s/it)\]\s*$",
            example="100%|██████████| 40/40 [00:07<00:00,  5.71it/s]",
            printed_by=f"{CALLBACKS_SOURCE} ProgressCallback",
        ),
        FactLine(
            anchor="% ",
            regex=r"^\s*\d+% \d+/\d+ \[(?:\d+:)?\d\d:\d\d<.*(?:it/s|s/it)\]\s*$",
            example="  2% 1/40 [00:00<00:07,  5.71it/s]",
            printed_by=f"{CALLBACKS_SOURCE} ProgressCallback",
            composed=True,
        ),
        FactLine(
            anchor="max_steps is given, it will override",
            regex=r"max_steps is given, it will override any value given in num_train_epochs",
            example="[transformers] max_steps is given, it will override any value given in "
            "num_train_epochs",
            printed_by=f"{TRAINER_SOURCE} Trainer.__init__",
        ),
    ),
)

# -- trainer_state.json --------------------------------------------------------------------


def _entries(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the entries of `log_history` as one record each; other lines as they are."""
    inside, start, parts = False, 0, list[str]()
    for number, text in lines:
        bare = text.strip()
        if not inside:
            inside = bare == '"log_history": ['
            yield number, 1, text
        elif not parts and bare == "{":
            start, parts, indent = number, [bare], text[: len(text) - len(text.lstrip())]
        elif parts:
            parts.append(bare)
            if text.startswith(f"{indent}}}"):
                yield start, len(parts), f'"log_history": {" ".join(parts).rstrip(",")}'
                parts = []
        else:
            inside = bare != "],"
            yield number, 1, text
    if parts:
        yield start, len(parts), f'"log_history": {" ".join(parts)}'


def _entries_or_results(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the entries of a state; a file of results alone becomes one record."""
    lines, head = iter(lines), list[tuple[int, str]]()
    for line in lines:
        head.append(line)
        if '"log_history": ' in line[1]:
            break
    else:
        values = " ".join(text.strip() for _, text in head)
        if re.match(RESULTS_FILE, values):
            yield head[0][0], len(head), f'"results": {values}'
            return
    yield from _entries(chain(head, lines))


def _state(key: str, fact: str) -> FactLine:
    return FactLine(
        anchor=f'"{key}": ',
        regex=rf'^ +"{key}": (?P<{fact}>\d+),?$',
        example=f'  "{key}": 40,',
        printed_by=f"{CALLBACKS_SOURCE} TrainerState",
    )


STEPLESS_STATE: Final = (
    r'\{.*"global_step": .*"log_history": \[\]',
    "the state of a Hugging Face checkpoint before the first logged step. Read that of a later "
    "checkpoint, or the console log.",
)
"""First bytes of a state without steps, and advice for the user."""

STEPLESS_RESULTS: Final = (
    r'\{\s*"(?:epoch|total_flos|train_\w+)": .*"train_runtime": ',
    "the results of a Hugging Face run, without step lines. Read its trainer_state.json or its "
    "console log, whose last line has the same figures.",
)
"""First bytes of all_results.json and train_results.json, and advice for the user."""

HF_STATE: Final = LogFormat(
    name="hf-trainer-state",
    quirks=("tokens_of_processes",),
    engine_below="deepspeed",
    times_elsewhere=TIMES_ELSEWHERE,
    framework="transformers",
    versions="trainer_state.json of transformers 3 … 5; all_results.json without a log",
    signature=r'^ *"log_history": (?!\[\])',
    looks_like_step=r'"log_history": \{.*"loss": ',
    evidence=("clock",),
    precedence=LIBRARY_PRECEDENCE,
    join=_entries_or_results,
    complete=complete_row,
    finer_clock=MS_SWIFT_CLOCK,
    file_names=("trainer_state.json",),
    names_without_log=("all_results.json", "train_results.json"),
    implies=PADDED_IMPLIES,
    steps=(
        StepLine(
            anchor='"log_history": ',
            regex=r'"log_history": (?P<pairs>\{(?=.*"loss": ).*\})$',
            pair=JSON_PAIRS,
            columns=DICT_COLUMNS,
            tells=OBJECTIVE_KEYS,
            example='"log_history": { "epoch": 0.0048828125, "grad_norm": 1.3115072462469197, '
            '"learning_rate": 0.0004, "loss": 6.951844024658203, "num_input_tokens_seen": 2560, '
            '"step": 5, "train_runtime": 0.6504, "train_tokens_per_second": 3935.943 }',
            printed_by=f"{CALLBACKS_SOURCE} TrainerState.save_to_json",
        ),
    ),
    events=(
        EventLine(
            anchor='_runtime": ',
            regex=r'"log_history": \{(?=.*"eval_(?:\w+_)?runtime": (?P<seconds>[\d.e+-]+))'
            r'(?=.*"step": (?P<step>\d+))(?:.*"eval_loss": (?P<eval_loss>[\w.+-]+))?',
            kind="evaluation",
            example='"log_history": { "epoch": 0.078125, "eval_loss": 6.512, "eval_runtime": '
            '2.2504, "eval_samples_per_second": 113.758, "eval_steps_per_second": 14.22, '
            '"step": 20 }',
            printed_by=f"{CALLBACKS_SOURCE} TrainerState.save_to_json",
            composed=True,
        ),
        EventLine(
            anchor='"train_samples_per_second": ',
            regex=r'"log_history": \{(?=.*"train_runtime": (?P<seconds>[\d.e+-]+))'
            r'(?=.*"step": (?P<step>\d+))(?=.*"total_flos": (?P<total_flos>[\d.e+-]+))?'
            r'(?=.*"train_loss": (?P<train_loss>[\w.+-]+))?'
            r'(?=.*"train_steps_per_second": (?P<train_steps_per_second>[\d.e+-]+))?'
            r'.*"train_samples_per_second": (?P<train_samples_per_second>[\d.e+-]+)'
            r'(?:.*"train_tokens_per_second": (?P<tokens_per_second_of_a_device>[\d.e+-]+))?',
            kind="end",
            example='"log_history": { "epoch": 0.15625, "step": 40, "total_flos": 451537797120.0, '
            '"train_loss": 6.617773246765137, "train_runtime": 7.0117, '
            '"train_samples_per_second": 91.276, "train_steps_per_second": 5.705 }',
            printed_by=f"{TRAINER_SOURCE} Trainer._inner_training_loop, speed_metrics",
        ),
        EventLine(
            anchor='"results": ',
            regex=r'"results": \{(?=.*"train_runtime": (?P<seconds>[\d.e+-]+))'
            r'(?=.*"total_flos": (?P<total_flos>[\d.e+-]+))?'
            r'(?=.*"train_loss": (?P<train_loss>[\w.+-]+))?'
            r'(?=.*"train_steps_per_second": (?P<train_steps_per_second>[\d.e+-]+))?'
            r'.*"train_samples_per_second": (?P<train_samples_per_second>[\d.e+-]+)',
            kind="end",
            read=with_last_step,
            example='"results": { "epoch": 0.15625, "total_flos": 451537797120.0, '
            '"train_loss": 6.617773246765137, "train_runtime": 10.6707, '
            '"train_samples_per_second": 59.978, "train_steps_per_second": 3.749 }',
            printed_by=f"{TRAINER_UTILS_SOURCE} save_metrics",
        ),
    ),
    facts=(
        _state("logging_steps", "log_interval"),
        _state("max_steps", "total_steps"),
        _state("train_batch_size", "micro_batch_size"),
        FactLine(
            anchor="",
            regex=r'^ *(?:"[^"]+": |[{}\]],?$)',
            example='  "num_train_epochs": 1,',
            printed_by=f"{CALLBACKS_SOURCE} TrainerState",
        ),
    ),
)

# -- TensorBoard ---------------------------------------------------------------------------

EVENT_VALUE: Final = r"(?P<value>[-+\w.]+)\}"
STEP_TAG_NAMES: Final = "(?:loss|grad_norm|num_input_tokens_seen|tokens/total)"


def _tag(tag: str, column: str, value: str) -> StepLine:
    """Return a value of logged steps; folding of ranks joins the rows of a step."""
    return StepLine(
        anchor=f'"tag": "train/{tag}"',
        regex=rf'"tag": "train/{tag}", "step": (?P<step>[1-9]\d*), .*"value": {EVENT_VALUE}',
        columns={"step": "step", "value": column},
        example=f'{{"tag": "train/{tag}", "step": 5, "wall_time": 1795187241.0039966, '
        f'"value": {value}}}',
        printed_by=f"{TENSORBOARD_SOURCE} TensorBoardCallback.on_log",
    )


HF_TENSORBOARD: Final = LogFormat(
    name="hf-trainer-tensorboard",
    quirks=("tokens_of_processes",),
    engine_below="deepspeed",
    framework="transformers",
    versions="event files of transformers 3 … 5",
    signature=rf'"tag": "train/{STEP_TAG_NAMES}", "step": \d',  # not a rate alone, as GPT-NeoX's
    looks_like_step=rf'"tag": "train/(?:{STEP_TAG_NAMES}|learning_rate)", ',
    clock=r'"wall_time": (?P<stamp>\d{10}(?:\.\d+)?)',
    utc=True,
    evidence=("stamp",),
    precedence=LIBRARY_PRECEDENCE,
    implies=PADDED_IMPLIES,
    steps=(
        _tag("loss", "loss", "6.951844"),
        _tag("grad_norm", "grad_norm", "1.3115072"),
        _tag("learning_rate", "learning_rate", "0.0004"),
        _tag("num_input_tokens_seen", "consumed_tokens", "2560.0"),
        _tag("tokens/total", "consumed_tokens", "2560.0"),
    ),
    events=(
        EventLine(
            anchor='"tag": "eval/',
            regex=r'"tag": "eval/(?:\w+_)?runtime", "step": (?P<step>\d+), .*'
            r'"value": (?P<seconds>[\d.e+-]+)',
            kind="evaluation",
            example='{"tag": "eval/runtime", "step": 20, "wall_time": 1795187243.6, '
            '"value": 2.2504}',
            printed_by=f"{TENSORBOARD_SOURCE} TensorBoardCallback.on_log",
            composed=True,
        ),
        EventLine(
            anchor='"tag": "train/train_loss"',
            regex=r'"tag": "train/train_loss", "step": (?P<step>\d+), .*'
            r'"value": (?P<train_loss>[-+\w.]+)',
            kind="end",
            example='{"tag": "train/train_loss", "step": 40, "wall_time": 1795187245.5105836, '
            '"value": 6.839351}',
            printed_by=f"{TENSORBOARD_SOURCE} TensorBoardCallback.on_log",
        ),
    ),
    facts=(
        FactLine(
            anchor='"tag": "args/text_summary"',
            regex=r'"tag": "args/text_summary", .*"text": "(?P<text>.*)"\}$',
            read=_json_arguments,
            example='{"tag": "args/text_summary", "step": 0, "wall_time": 1795187240.3549292, '
            r'"kind": "text", "text": "{\n  \"per_device_train_batch_size\": 4,\n  '
            r'\"gradient_accumulation_steps\": 1,\n  \"bf16\": true,\n  \"logging_steps\": 5\n}"}',
            printed_by=f"{TENSORBOARD_SOURCE} TensorBoardCallback.on_train_begin",
        ),
        FactLine(
            anchor='"tag": "model_config/text_summary"',
            regex=r'"tag": "model_config/text_summary", .*"text": "(?P<text>.*)"\}$',
            read=_model_config_text,
            example='{"tag": "model_config/text_summary", "step": 0, "wall_time": '
            r'1795187240.3554342, "kind": "text", "text": "{\n  \"hidden_size\": 128,\n  '
            r'\"model_type\": \"llama\"\n}"}',
            printed_by=f"{TENSORBOARD_SOURCE} TensorBoardCallback.on_train_begin",
        ),
        *(
            objective_line(
                objective,
                f'"tag": "train/{key}"',
                f'{{"tag": "train/{key}", "step": 5, "wall_time": 1795187241.0041494, '
                '"value": 0.5}',
                f"{TENSORBOARD_SOURCE} rewrite_logs",
            )
            for key, objective in OBJECTIVE_KEYS.items()
        ),
        FactLine(
            anchor='"tag": "',
            regex=r'"tag": "(?:train|eval|test)/',
            example='{"tag": "train/epoch", "step": 5, "wall_time": 1795187241.0041494, '
            '"value": 0.0048828125}',
            printed_by=f"{TENSORBOARD_SOURCE} rewrite_logs",
        ),
    ),
)
