"""Number of GPUs of an XTuner v1 run: never printed, but some counts imply it.

A wrong world size is worse than none, so a mean over ranks never counts as the tokens of the
printing rank (the first ranks of a sequence-parallel group have more). A size must follow from
every line alike, within the rounding of the print. There is no fact if two ways of counting differ,
or if ranks print that would not exist.
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
"""Values that a rank prints of a step: numbers or null for RANK_COLUMNS, texts for COUNT_KEYS."""

RANK_COLUMNS: Final = ("rank_tokens", "rank_slots", "elapsed_s", "data_s", "consumed_tokens")
TOTAL_TOKENS_KEY: Final = "approximate_total_consumed_tokens"
COUNT_KEYS: Final = ("e2e_tgs", "train_time", "est_global_batch_tokens", TOTAL_TOKENS_KEY)
NO_SLOTS: Final = 0.0

MAX_TIME_ROUNDING_S: Final = 0.5e-4
"""Times are printed to 4 decimals [s]."""

MAX_UNTIMED_S: Final = 1e-3
"""Upper bound of the time between the first step and its data, and before the print [s]."""

MAX_UNTIMED_SHARE: Final = 2e-3
"""The same bound for a long first step, as a share of the step."""

LAUNCH_COLUMN: Final = "launch"
RANK_COLUMN_KEYS: Final = (LAUNCH_COLUMN, "rank")
MAX_KEPT_VALUES: Final = 2
FIRST_LOOK_ROWS: Final = 512
"""Rows that usually show whether a total grows by one multiple of a rank's tokens."""
MAX_EXACT_FLOAT32: Final = 2**24
"""TensorBoard stores float32: counts beyond this are rounded."""


def infer_sizes(launches: Sequence[LaunchView]) -> list[list[Fact]]:
    """Return `gpus`, `data_parallel` and `seq_len` of the launches, if certain."""
    several = _Several([_Seen() for _ in launches])
    for frame in _in_order([launch.rows for launch in launches]):
        several.add(frame)
    return [_facts(launch, seen) for launch, seen in zip(launches, several.launches, strict=True)]


def _in_order(several: Iterable[RowsView]) -> Iterator[pl.DataFrame]:
    """Yield all rows with the index of their launch, ordered by launch, step and line.

    Short launches share a frame. In a long launch, a frame has all rows of its steps.
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
            launch = pl.Series(LAUNCH_COLUMN, [number]).new_from_index(0, frame.height)
            if long:
                yield frame.hstack([launch])
            else:
                short.append(frame.hstack([launch]))
                height += frame.height
    if short:
        yield pl.concat(short).sort(LAUNCH_COLUMN, "step", "line")


class _Ranks(NamedTuple):
    """Rows of a frame grouped by rank, in order within a rank.

    places: row indices; begins: positions in `places` where a rank of a launch begins; repeated: a
    rank has several rows of a step.
    """

    places: Ints
    begins: Ints
    repeated: bool

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Self:
        """Group the rows of a frame that is in order of launches and steps."""
        encoded = frame["rank"].to_arrow().dictionary_encode()
        fewest = np.min_scalar_type(len(encoded.dictionary))  # up to 16 bits: sorted by counting
        ranks = integers_of(encoded.indices, len(encoded.dictionary)).astype(fewest)
        places = np.argsort(ranks, kind="stable")
        columns = (ranks, frame[LAUNCH_COLUMN].to_numpy(), frame["step"].to_numpy())
        rank, launch, step = (np.diff(column[places]) != 0 for column in columns)
        others = rank | launch
        begins = np.flatnonzero(np.append(len(ranks) > 0, others))
        return cls(places, begins, not (others | step).all())


def _facts(launch: LaunchView, seen: _Seen) -> list[Fact]:
    """Return the facts of a launch that all its rows imply."""
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
    facts = {"data_parallel": shards, "gpus": gpus, "seq_len": _length(seen, stated)}
    return [
        {"name": name, "value": str(fact[0]), "origin": f"inferred: {fact[1]}", "line": None}
        for name, fact in facts.items()
        if fact is not None and name not in stated
    ]


def _agreed(candidates: Mapping[str, int | None]) -> tuple[int, str] | None:
    """Return the value with its first reason; None if the candidates differ."""
    values = {value: why for why, value in reversed(list(candidates.items())) if value is not None}
    return next(iter(values.items())) if len(values) == 1 else None


def _printed(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the rows with the printed texts of some COUNT_KEYS; null if not printed.

    A tracker's names have a path in front; of two keys with one name, the last counts.
    """
    extra = frame["extra"]
    columns: list[pl.Series] = []
    for name in names:
        key = f'{name}": "'
        around = _around(extra, key)
        if around is None:
            columns.append(pl.Series(name, [None], pl.String).new_from_index(0, frame.height))
            continue
        before, behind = around
        again = behind.str.contains(key, literal=True).any()
        whole = before.drop_nulls().is_in([b'"', b"/"]).all()  # not a part of another name
        if again or not whole or extra.str.contains("\\", literal=True).any():
            return frame.with_columns(_each(extra))
        ends = pl.lit(behind.str.find('"', literal=True))
        value = pl.lit(behind.cast(pl.Binary)).bin.slice(0, ends).cast(pl.String)
        columns.append(pl.select(value.alias(name)).to_series())
    return frame.with_columns(columns)


def _around(extra: pl.Series, key: str) -> tuple[pl.Series, pl.Series] | None:
    """Return the byte before a key, and the text after it, per row; None if in no row.

    Usually all texts begin alike up to the key, and a single byte covers all.
    """
    begins, there, _ = (extra[0] or "").partition(key)
    if there and extra.str.starts_with(begins + key).all():
        return pl.Series([begins[-1:].encode()]), extra.str.strip_prefix(begins + key)
    at = extra.str.find(key, literal=True)
    if not at.count():
        return None
    raw, begin = pl.lit(extra.cast(pl.Binary)), pl.lit(at)  # in half the time of splitn: no copies
    before, behind = raw.bin.slice(begin - 1, 1), raw.bin.slice(begin + len(key)).cast(pl.String)
    parts = pl.select(before=before, behind=behind)
    return parts["before"], parts["behind"]


def _each(extras: pl.Series) -> list[pl.Series]:
    """Return the columns of `_printed`, row by row."""
    rows = [_counts(json.loads(extra or "{}")) for extra in extras]
    return [pl.Series(name, [row.get(name) for row in rows], pl.String) for name in COUNT_KEYS]


def _counts(printed: Mapping[str, str]) -> dict[str, str]:
    short = ((key.rpartition("/")[2], text) for key, text in printed.items())
    return {name: text for name, text in short if name in COUNT_KEYS}


@dataclass(slots=True)
class _Seen:
    """Evidence of sizes from all steps of a launch.

    Of values that must agree, a few are kept. ranks: number of steps per printing rank. first:
    values of step 1 per rank. estimated: ratio of the estimated batch to a rank's tokens (variants
    I to L print dp x this rank's tokens). grown: ratio of the growth of the approximate total to
    the last step's tokens (since P the total grows by world size x this rank's tokens, resumed or
    not). slots: tokens with padding per step, or NO_SLOTS.
    """

    ranks: dict[str | None, int] = field(default_factory=dict)
    first: dict[str | None, RankValues] = field(default_factory=dict)
    estimated: set[float] = field(default_factory=set)
    grown: set[float] = field(default_factory=set)
    slots: set[float] = field(default_factory=set)


@dataclass(slots=True)
class _Several:
    """Evidence of several launches.

    last: the last row per rank, of the launch that continues.
    """

    launches: Sequence[_Seen]
    last: pl.DataFrame | None = None

    def add(self, frame: pl.DataFrame) -> None:
        """Add the rows of the next steps.

        Of several rows of a rank and step, the last counts.
        """
        ranks = _Ranks.of(frame)
        if ranks.repeated:
            frame = frame.unique((*RANK_COLUMN_KEYS, "step"), keep="last", maintain_order=True)
            ranks = _Ranks.of(frame)
        counts = np.diff(np.append(ranks.begins, frame.height)).tolist()
        firsts = frame[ranks.places[ranks.begins]].select(RANK_COLUMN_KEYS).iter_rows()
        present = []
        for (launch, rank), count in zip(firsts, counts, strict=True):
            present.append(self.launches[launch])
            present[-1].ranks[rank] = present[-1].ranks.get(rank, 0) + count
        first = frame[np.flatnonzero(frame["step"].to_numpy() == 1)]
        for row in _printed(first, COUNT_KEYS).iter_rows(named=True) if len(first) else ():
            values = {name: row[name] for name in (*RANK_COLUMNS, *COUNT_KEYS)}
            self.launches[row[LAUNCH_COLUMN]].first[row["rank"]] = values
        launches = frame[LAUNCH_COLUMN].to_numpy()
        slots = column_values(frame["rank_slots"], NO_SLOTS)
        self._gather([seen.slots for seen in self.launches], launches, slots)
        if any(len(seen.estimated) < MAX_KEPT_VALUES for seen in present):
            estimated = _ratios(_counted(frame, "est_global_batch_tokens"), _tokens(frame))
            self._gather([seen.estimated for seen in self.launches], launches, estimated)
        is_new = any(not seen.grown for seen in present)
        for some in (frame[:FIRST_LOOK_ROWS], frame[FIRST_LOOK_ROWS:]) if is_new else (frame,):
            if len(some) and any(len(seen.grown) < MAX_KEPT_VALUES for seen in present):
                self._gather([seen.grown for seen in self.launches], *self._grow(some))

    def _grow(self, frame: pl.DataFrame) -> tuple[Ints, Floats]:
        """Return launches, and growth of approximate totals per token of a rank's step."""
        counted = (TOTAL_TOKENS_KEY, _counted(frame, TOTAL_TOKENS_KEY)), ("tokens", _tokens(frame))
        rows = frame.select(*RANK_COLUMN_KEYS, "step").hstack(
            [pl.Series(*column) for column in counted]
        )
        both = rows if self.last is None else pl.concat([self.last, rows])
        ranks = _Ranks.of(both)
        step, total, tokens, launches = (
            both[name].to_numpy()[ranks.places]
            for name in ("step", TOTAL_TOKENS_KEY, "tokens", LAUNCH_COLUMN)
        )
        follows = np.append(False, step[1:] == step[:-1] + 1)
        follows[ranks.begins] = False
        before = np.where(follows, np.append(np.nan, total[:-1]), np.nan)
        grown = _ratios(total - np.where(step == 1, 0.0, before), tokens)
        new = ranks.places >= both.height - rows.height
        ends = both[ranks.places[np.append(ranks.begins[1:], both.height) - 1]]
        self.last = ends.filter(pl.col(LAUNCH_COLUMN) == both[LAUNCH_COLUMN][-1])
        return launches[new], grown[new]

    @staticmethod
    def _gather(kept: Sequence[set[float]], launches: Ints, values: Floats) -> None:
        """Add values of launches to sets: the first, and one that differs from it if any."""
        printed = ~np.isnan(values)
        launches, values = launches[printed], values[printed]
        begins = np.flatnonzero(np.diff(launches, prepend=-1))
        firsts = np.repeat(values[begins], np.diff(np.append(begins, len(values))))
        others = np.flatnonzero(values != firsts)
        _, some = np.unique(launches[others], return_index=True)
        for index in (*begins, *others[some]):
            if len(of_launch := kept[launches[index]]) < MAX_KEPT_VALUES:
                of_launch.add(float(values[index]))


def _numbers(ranks: Iterable[str | None]) -> set[int]:
    """Return the ranks that are global numbers; `1:0` is a rank of a node."""
    return {int(rank) for rank in ranks if rank is not None and rank.isdecimal()}


def _printing(ranks: Iterable[str | None]) -> tuple[int, str] | None:
    """Return the number of printing ranks, if they are 0 to n-1 and more than one.

    XTuner v1 merges all ranks into stderr, tagged with global numbers. A log of rank 0 alone proves
    nothing.
    """
    numbers = _numbers(ranks)
    whole = len(numbers) > 1 and numbers == set(range(len(numbers)))
    return (len(numbers), f"{len(numbers)} {COUNTED_RANKS_SUFFIX}") if whole else None


def _of_first_step(seen: _Seen) -> int | None:
    """Return the world size from the first step of a run that was not resumed.

    Variants K to O: e2e_tgs = tokens over all ranks / world size / time since the start. Only that
    step prints all three.
    """
    possible = [
        sizes for printed in seen.first.values() if (sizes := _possible(printed)) is not None
    ]
    if not possible:
        return None
    least, most = max(lowest for lowest, _ in possible), min(highest for _, highest in possible)
    return least if least == most else None


def _possible(printed: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the smallest and largest world size within the rounding of a first step.

    None if a value is missing. There may be no size between the bounds.
    """
    total, text = printed.get("consumed_tokens"), printed.get("e2e_tgs")
    seconds = _since_start(printed)
    rate = _number(text)
    if total is None or text is None or rate is None or seconds is None or "e" in text:
        return None
    rounding = 0.5 * 10.0 ** -len(text.partition(".")[2])
    most, least = (rate + rounding) * seconds[1], (rate - rounding) * seconds[0]
    if not 0 < least <= most < 2 * least or not 0 < total / least < math.inf:
        return None
    return math.ceil(total / most), math.floor(total / least)


def _since_start(printed: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return bounds of the time since the start of training [s].

    A tracker prints the time, a text log its parts.
    """
    if (time := _number(printed.get("train_time"))) is not None:
        return time - MAX_TIME_ROUNDING_S, time + MAX_TIME_ROUNDING_S
    elapsed, data = printed.get("elapsed_s"), printed.get("data_s")
    if elapsed is not None and data is not None:
        parts: float = elapsed + data
        most = parts * (1 + MAX_UNTIMED_SHARE) + MAX_UNTIMED_S + 2 * MAX_TIME_ROUNDING_S
        return parts - 2 * MAX_TIME_ROUNDING_S, most
    return None


def _of_batches(stated: Mapping[str, str]) -> int | None:
    """Return the data-parallel ranks that a printed config implies."""
    sizes = _sizes(stated, "global_batch_size", "micro_batch_size", "gradient_accumulation")
    if sizes is None:
        return None
    batch, micro, accumulation = sizes
    ranks, rest = divmod(batch, micro * accumulation)
    return ranks if ranks and not rest else None


def _of_config(stated: Mapping[str, str]) -> int | None:
    """Return the GPUs that a printed config implies."""
    shards = _of_batches(stated)
    degrees = _sizes(stated, "context_parallel", "tensor_parallel")
    return None if shards is None or degrees is None else shards * math.prod(degrees)


def _sizes(stated: Mapping[str, str], *names: str) -> list[int] | None:
    """Return the facts of these names; None if one is not stated, or is no size."""
    sizes = [number for name in names if (number := parse_size(stated.get(name, "")))]
    return sizes if len(sizes) == len(names) else None


def _length(seen: _Seen, stated: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the length of a pack, if all steps of all ranks have the same slots (Q)."""
    sizes = _sizes(stated, "context_parallel", "micro_batch_size", "gradient_accumulation")
    several = max(seen.ranks.values(), default=0) > 1
    if len(seen.slots) != 1 or not several or sizes is None:
        return None
    shards, micro, accumulation = sizes
    (slots,) = seen.slots
    length = _whole({slots * shards / (micro * accumulation)})
    return None if length is None else (length, "seqlen_tokens x sp / packs of a step")


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _ratios(counts: Floats, tokens: Floats) -> Floats:
    """Divide counts by tokens.

    Infinite if tokens are next to nothing, as for no real rank.
    """
    with np.errstate(over="ignore"):
        return counts / tokens


def _tokens(frame: pl.DataFrame) -> Floats:
    """Return the tokens that ranks print; NaN if none."""
    tokens = column_values(frame["rank_tokens"], math.nan)
    return np.where(tokens == 0, math.nan, tokens)


def _counted(frame: pl.DataFrame, name: str) -> Floats:
    """Return one of COUNT_KEYS as printed; NaN if not exact."""
    texts = _printed(frame.select("extra"), [name])[name]
    whole = texts.cast(pl.Int64, strict=False)
    if whole.null_count() == texts.null_count() and (whole >= 0).all():
        return column_values(whole.cast(pl.Float64), math.nan)
    numbers = texts.cast(pl.Float64, strict=False)
    digits = texts.str.contains(r"^[0-9]+$") & numbers.is_finite()
    exact = digits | (numbers.abs() < MAX_EXACT_FLOAT32)
    return column_values(pl.select(pl.when(exact).then(numbers)).to_series(), math.nan)


def _whole(ratios: set[float]) -> int | None:
    """Return the only ratio as a whole number; None if several, or not whole."""
    if len(ratios) != 1:
        return None
    (ratio,) = ratios
    return int(ratio) if math.isfinite(ratio) and ratio >= 1 and ratio == int(ratio) else None
