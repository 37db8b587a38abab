"""How many GPUs an XTuner v1 run had: it never prints that, but some of its counts tell.

A wrong world size is worse than none, so a mean over ranks is never taken for the tokens of the
rank that prints (of a sequence-parallel group the first ranks have more of them). What follows has
to follow from every line alike, within the rounding of what is printed; where two ways of counting
differ, or where ranks print that would not be there, there is no fact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import polars as pl

from ...core.arrays import Floats, Ints, column_values, integers_of
from ...core.numbers import parse_size
from ...core.schema import COUNTED_RANKS_SUFFIX
from ...core.spill import CHUNK_ROWS
from ..launch_view import Fact, LaunchView, RowsView

RankValues = Mapping[str, Any]
"""What a rank prints of a step: of RANK_COLUMNS the number, or null; of COUNT_KEYS the text, if
any."""

RANK_COLUMNS: Final = ("rank_tokens", "rank_slots", "elapsed_s", "data_s", "consumed_tokens")
TOTAL_TOKENS_KEY: Final = "approximate_total_consumed_tokens"
COUNT_KEYS: Final = ("e2e_tgs", "train_time", "est_global_batch_tokens", TOTAL_TOKENS_KEY)
NO_SLOTS: Final = 0.0

MAX_TIME_ROUNDING_S: Final = 0.5e-4
"""Times are printed to 4 decimals [s]."""

MAX_UNTIMED_S: Final = 1e-3
"""More than lies between the first step and its data, and between it and the end [s]."""

MAX_UNTIMED_SHARE: Final = 2e-3
"""The same of a long first step, as a share of it."""

LAUNCH_COLUMN: Final = "launch"
RANK_COLUMN_KEYS: Final = (LAUNCH_COLUMN, "rank")
MAX_KEPT_VALUES: Final = 2
FIRST_LOOK_ROWS: Final = 512
"""Rows that mostly tell whether a total grows by one multiple of a rank's tokens."""
MAX_EXACT_FLOAT32: Final = 2**24
"""TensorBoard keeps float32: it rounds counts beyond this."""


def infer_sizes(launches: Sequence[LaunchView]) -> list[list[Fact]]:
    """`gpus`, `data_parallel` and `seq_len` of each launch, as far as they follow for certain."""
    several = _Several([_Seen() for _ in launches])
    for frame in _in_order([launch.rows for launch in launches]):
        several.add(frame)
    return [_facts(launch, seen) for launch, seen in zip(launches, several.each, strict=True)]


def _in_order(several: Iterable[RowsView]) -> Iterator[pl.DataFrame]:
    """All rows with the number of their launch, by launch, step and line.

    Those of short launches come together. Of a long one those of a step do.
    """
    names = ("line", "rank", "step", "extra", *RANK_COLUMNS)
    short: list[pl.DataFrame] = []
    height = 0
    for number, rows in enumerate(several):
        long = len(rows) > CHUNK_ROWS
        if short and (long or height + len(rows) > CHUNK_ROWS):
            yield pl.concat(short).sort(LAUNCH_COLUMN, "step", "line")
            short, height = [], 0
        for frame in rows.by_step(*names) if long else rows.frames(*names):
            mine = pl.Series(LAUNCH_COLUMN, [number]).new_from_index(0, frame.height)
            if long:
                yield frame.hstack([mine])
            else:
                short.append(frame.hstack([mine]))
                height += frame.height
    if short:
        yield pl.concat(short).sort(LAUNCH_COLUMN, "step", "line")


class _Ranks(NamedTuple):
    """The rows of a frame rank by rank, each rank's as they were.

    places: theirs in the frame; begins: where among them those of each rank and launch begin;
    repeated: whether a rank has several rows of a step.
    """

    places: Ints
    begins: Ints
    repeated: bool

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Self:
        """The ranks of a frame that is in the order of its launches and steps."""
        known = frame["rank"].to_arrow().dictionary_encode()
        fewest = np.min_scalar_type(len(known.dictionary))  # of 16 bits or less they are counted
        ranks = integers_of(known.indices, len(known.dictionary)).astype(fewest)
        places = np.argsort(ranks, kind="stable")
        columns = (ranks, frame[LAUNCH_COLUMN].to_numpy(), frame["step"].to_numpy())
        rank, launch, step = (np.diff(column[places]) != 0 for column in columns)
        others = rank | launch
        begins = np.flatnonzero(np.append(len(ranks) > 0, others))
        return cls(places, begins, not (others | step).all())


def _facts(launch: LaunchView, seen: _Seen) -> list[Fact]:
    """What follows of a launch from all that was seen of it."""
    stated = {fact["name"]: fact["value"] for fact in launch.stated}
    shards = _agreed(
        {
            "est_global_batch_tokens / text_tokens, the same on every line": _whole(seen.estimated),
            "global batch / (micro-batch x accumulation)": _of_batches(stated),
        }
    )
    counted = {
        "approximate_total_consumed_tokens grows by so many text_tokens": _whole(seen.grown),
        "tokens of step 1 over all ranks / (e2e_tgs x its time)": _of_first_step(seen),
        "global batch / (micro-batch x accumulation) x sp x tp": _of_config(stated),
    }
    gpus = _agreed(counted) if any(counted.values()) else _printing(seen.ranks)
    highest = max(_numbers(seen.ranks), default=0)
    if gpus and (gpus[0] <= highest or (shards and gpus[0] % shards[0])):
        gpus = shards = None
    found = {"data_parallel": shards, "gpus": gpus, "seq_len": _length(seen, stated)}
    return [
        {"name": name, "value": str(fact[0]), "origin": f"inferred: {fact[1]}", "line": None}
        for name, fact in found.items()
        if fact is not None and name not in stated
    ]


def _agreed(found: Mapping[str, int | None]) -> tuple[int, str] | None:
    """The one value of all that are there, with the first reason for it."""
    values = {value: why for why, value in reversed(list(found.items())) if value is not None}
    return next(iter(values.items())) if len(values) == 1 else None


def _printed(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The rows with what they print of some of COUNT_KEYS: its text, null where it is not there.

    A tracker's names have a path before them; of two of one name the last one counts.
    """
    extra = frame["extra"]
    said: list[pl.Series] = []
    for name in names:
        key = f'{name}": "'
        around = _around(extra, key)
        if around is None:
            said.append(pl.Series(name, [None], pl.String).new_from_index(0, frame.height))
            continue
        before, behind = around
        again = behind.str.contains(key, literal=True).any()
        own = before.drop_nulls().is_in([b'"', b"/"]).all()  # not a part of another name
        if again or not own or extra.str.contains("\\", literal=True).any():
            return frame.with_columns(_each(extra))
        ends = pl.lit(behind.str.find('"', literal=True))
        value = pl.lit(behind.cast(pl.Binary)).bin.slice(0, ends).cast(pl.String)
        said.append(pl.select(value.alias(name)).to_series())
    return frame.with_columns(said)


def _around(extra: pl.Series, key: str) -> tuple[pl.Series, pl.Series] | None:
    """The byte before a key in each text, and all that follows it; None where it is in none.

    Mostly all texts begin alike up to it, and one tells what stands before it.
    """
    begins, there, _ = (extra[0] or "").partition(key)
    if there and extra.str.starts_with(begins + key).all():
        return pl.Series([begins[-1:].encode()]), extra.str.strip_prefix(begins + key)
    at = extra.str.find(key, literal=True)
    if not at.count():
        return None
    raw, begin = pl.lit(extra.cast(pl.Binary)), pl.lit(at)  # in half the time of splitn: no copies
    before, behind = raw.bin.slice(begin - 1, 1), raw.bin.slice(begin + len(key)).cast(pl.String)
    found = pl.select(before=before, behind=behind)
    return found["before"], found["behind"]


def _each(extras: pl.Series) -> list[pl.Series]:
    """The same of each row by itself."""
    said = [_counts(json.loads(extra or "{}")) for extra in extras]
    return [pl.Series(name, [one.get(name) for one in said], pl.String) for name in COUNT_KEYS]


def _counts(printed: Mapping[str, str]) -> dict[str, str]:
    short = ((key.rpartition("/")[2], text) for key, text in printed.items())
    return {name: text for name, text in short if name in COUNT_KEYS}


@dataclass(slots=True)
class _Seen:
    """What all steps of a launch say of the sizes; of values that have to be one, a few are kept.

    ranks: by rank, how many steps it prints; first: what each prints of step 1; estimated: by how
    much the estimate of the batch exceeds a rank's tokens (variants I to L print dp x this rank's
    tokens); grown: the same of the approximate total and its last step's (since P it grows by world
    size x this rank's tokens, resumed or not); slots: of each step, or NO_SLOTS.
    """

    ranks: dict[str | None, int] = field(default_factory=dict)
    first: dict[str | None, RankValues] = field(default_factory=dict)
    estimated: set[float] = field(default_factory=set)
    grown: set[float] = field(default_factory=set)
    slots: set[float] = field(default_factory=set)


@dataclass(slots=True)
class _Several:
    """The same of each launch; last: the last row of each rank, of the launch that goes on."""

    each: Sequence[_Seen]
    last: pl.DataFrame | None = None

    def add(self, frame: pl.DataFrame) -> None:
        """What the ranks print of steps behind those before; of several rows of both the last."""
        ranks = _Ranks.of(frame)
        if ranks.repeated:
            frame = frame.unique((*RANK_COLUMN_KEYS, "step"), keep="last", maintain_order=True)
            ranks = _Ranks.of(frame)
        counts = np.diff(np.append(ranks.begins, frame.height)).tolist()
        firsts = frame[ranks.places[ranks.begins]].select(RANK_COLUMN_KEYS).iter_rows()
        there = []
        for (launch, rank), count in zip(firsts, counts, strict=True):
            there.append(self.each[launch])
            there[-1].ranks[rank] = there[-1].ranks.get(rank, 0) + count
        first = frame[np.flatnonzero(frame["step"].to_numpy() == 1)]
        for row in _printed(first, COUNT_KEYS).iter_rows(named=True) if len(first) else ():
            said = {name: row[name] for name in (*RANK_COLUMNS, *COUNT_KEYS)}
            self.each[row[LAUNCH_COLUMN]].first[row["rank"]] = said
        launches = frame[LAUNCH_COLUMN].to_numpy()
        slots = column_values(frame["rank_slots"], NO_SLOTS)
        self._gather([seen.slots for seen in self.each], launches, slots)
        if any(len(seen.estimated) < MAX_KEPT_VALUES for seen in there):
            estimated = _ratios(_counted(frame, "est_global_batch_tokens"), _tokens(frame))
            self._gather([seen.estimated for seen in self.each], launches, estimated)
        telling = any(not seen.grown for seen in there)
        for some in (frame[:FIRST_LOOK_ROWS], frame[FIRST_LOOK_ROWS:]) if telling else (frame,):
            if len(some) and any(len(seen.grown) < MAX_KEPT_VALUES for seen in there):
                self._gather([seen.grown for seen in self.each], *self._grow(some))

    def _grow(self, mine: pl.DataFrame) -> tuple[Ints, Floats]:
        """By how many times a rank's tokens its approximate total grew, and in which launch."""
        counted = (TOTAL_TOKENS_KEY, _counted(mine, TOTAL_TOKENS_KEY)), ("tokens", _tokens(mine))
        mine = mine.select(*RANK_COLUMN_KEYS, "step").hstack(
            [pl.Series(*column) for column in counted]
        )
        both = mine if self.last is None else pl.concat([self.last, mine])
        ranks = _Ranks.of(both)
        step, total, tokens, launches = (
            both[name].to_numpy()[ranks.places]
            for name in ("step", TOTAL_TOKENS_KEY, "tokens", LAUNCH_COLUMN)
        )
        follows = np.append(False, step[1:] == step[:-1] + 1)
        follows[ranks.begins] = False
        before = np.where(follows, np.append(np.nan, total[:-1]), np.nan)
        grown = _ratios(total - np.where(step == 1, 0.0, before), tokens)
        own = ranks.places >= both.height - mine.height
        ends = both[ranks.places[np.append(ranks.begins[1:], both.height) - 1]]
        self.last = ends.filter(pl.col(LAUNCH_COLUMN) == both[LAUNCH_COLUMN][-1])
        return launches[own], grown[own]

    @staticmethod
    def _gather(found: Sequence[set[float]], launches: Ints, values: Floats) -> None:
        """Values of launches that have to be one; which others there are does not matter."""
        printed = ~np.isnan(values)
        launches, values = launches[printed], values[printed]
        begins = np.flatnonzero(np.diff(launches, prepend=-1))
        firsts = np.repeat(values[begins], np.diff(np.append(begins, len(values))))
        others = np.flatnonzero(values != firsts)
        _, some = np.unique(launches[others], return_index=True)
        for place in (*begins, *others[some]):
            if len(mine := found[launches[place]]) < MAX_KEPT_VALUES:
                mine.add(float(values[place]))


def _numbers(ranks: Iterable[str | None]) -> set[int]:
    """The ranks that are numbered over all nodes; `1:0` is one of a node, and does not tell."""
    return {int(rank) for rank in ranks if rank is not None and rank.isdecimal()}


def _printing(ranks: Iterable[str | None]) -> tuple[int, str] | None:
    """XTuner v1 merges the ranks into stderr, each with its global number.

    A log of rank 0 alone says nothing of the others.
    """
    numbers = _numbers(ranks)
    whole = len(numbers) > 1 and numbers == set(range(len(numbers)))
    return (len(numbers), f"{len(numbers)} {COUNTED_RANKS_SUFFIX}") if whole else None


def _of_first_step(seen: _Seen) -> int | None:
    """Variants K to O: e2e_tgs = tokens over all ranks / world size / time since the start.

    Only the first step of a run that was not resumed prints all three.
    """
    possible = [sizes for said in seen.first.values() if (sizes := _possible(said)) is not None]
    if not possible:
        return None
    least, most = max(one for one, _ in possible), min(other for _, other in possible)
    return least if least == most else None


def _possible(said: Mapping[str, Any]) -> tuple[int, int] | None:
    """The least and the largest world size within the rounding of what a first step prints.

    None where it prints none; there may be no size between them.
    """
    total, text, seconds = said.get("consumed_tokens"), said.get("e2e_tgs"), _since_start(said)
    rate = _number(text)
    if total is None or text is None or rate is None or seconds is None or "e" in text:
        return None
    rounding = 0.5 * 10.0 ** -len(text.partition(".")[2])
    most, least = (rate + rounding) * seconds[1], (rate - rounding) * seconds[0]
    if not 0 < least <= most < 2 * least or not 0 < total / least < math.inf:
        return None
    return math.ceil(total / most), math.floor(total / least)


def _since_start(said: Mapping[str, Any]) -> tuple[float, float] | None:
    """Bounds of the time since the start of training: a tracker prints it, a text log its parts."""
    if (time := _number(said.get("train_time"))) is not None:
        return time - MAX_TIME_ROUNDING_S, time + MAX_TIME_ROUNDING_S
    elapsed, data = said.get("elapsed_s"), said.get("data_s")
    if elapsed is not None and data is not None:
        parts: float = elapsed + data
        most = parts * (1 + MAX_UNTIMED_SHARE) + MAX_UNTIMED_S + 2 * MAX_TIME_ROUNDING_S
        return parts - 2 * MAX_TIME_ROUNDING_S, most
    return None


def _of_batches(stated: Mapping[str, str]) -> int | None:
    """Data-parallel ranks of a run whose config was printed."""
    sizes = _sizes(stated, "global_batch_size", "micro_batch_size", "gradient_accumulation")
    if sizes is None:
        return None
    batch, micro, accumulation = sizes
    ranks, rest = divmod(batch, micro * accumulation)
    return ranks if ranks and not rest else None


def _of_config(stated: Mapping[str, str]) -> int | None:
    """GPUs of such a run."""
    shards = _of_batches(stated)
    degrees = _sizes(stated, "context_parallel", "tensor_parallel")
    return None if shards is None or degrees is None else shards * math.prod(degrees)


def _sizes(stated: Mapping[str, str], *names: str) -> list[int] | None:
    """The facts of all of these names; None where one is not stated, or no size."""
    said = [number for name in names if (number := parse_size(stated.get(name, "")))]
    return said if len(said) == len(names) else None


def _length(seen: _Seen, stated: Mapping[str, str]) -> tuple[int, str] | None:
    """Length of a pack, where every step of every rank has as many slots (Q)."""
    sizes = _sizes(stated, "context_parallel", "micro_batch_size", "gradient_accumulation")
    several = max(seen.ranks.values(), default=0) > 1
    if len(seen.slots) != 1 or not several or sizes is None:
        return None
    shards, micro, accumulation = sizes
    (mine,) = seen.slots
    length = _whole({mine * shards / (micro * accumulation)})
    return None if length is None else (length, "seqlen_tokens x sp / packs of a step")


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _ratios(counts: Floats, tokens: Floats) -> Floats:
    """Counts by tokens; infinite where these are next to nothing, as no rank has them."""
    with np.errstate(over="ignore"):
        return counts / tokens


def _tokens(frame: pl.DataFrame) -> Floats:
    """Tokens that each rank prints, NaN where it prints none."""
    tokens = column_values(frame["rank_tokens"], math.nan)
    return np.where(tokens == 0, math.nan, tokens)


def _counted(frame: pl.DataFrame, name: str) -> Floats:
    """One of COUNT_KEYS as printed; NaN where it is not exact."""
    texts = _printed(frame.select("extra"), [name])[name]
    whole = texts.cast(pl.Int64, strict=False)
    if whole.null_count() == texts.null_count() and (whole >= 0).all():
        return column_values(whole.cast(pl.Float64), math.nan)
    numbers = texts.cast(pl.Float64, strict=False)
    digits = texts.str.contains(r"^[0-9]+$") & numbers.is_finite()
    exact = digits | (numbers.abs() < MAX_EXACT_FLOAT32)
    return column_values(pl.select(pl.when(exact).then(numbers)).to_series(), math.nan)


def _whole(ratios: set[float]) -> int | None:
    """The one whole number, if it is one."""
    if len(ratios) != 1:
        return None
    (ratio,) = ratios
    return int(ratio) if math.isfinite(ratio) and ratio >= 1 and ratio == int(ratio) else None
