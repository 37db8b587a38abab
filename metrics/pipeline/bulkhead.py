"""Isolation of errors: an error while computing some runs fails these runs alone.

`compute_apart` computes many runs in a single call. After an error, `compute_apart` finds the runs
to blame and computes the others, as if the store did not have the bad runs. A numeric overflow
counts as an error, because the results would be wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol, Self, TypeVar

import polars as pl

from fairmfu.ingest.core.errors import ClusterError, StoreError, describe_fault
from fairmfu.ingest.core.faults import FAULTS
from fairmfu.ingest.core.schema import TEXT

Result = TypeVar("Result")
Source = TypeVar("Source", bound="Presented")

ENDS_ALL: Final = (StoreError, ClusterError, OSError, MemoryError)
"""Errors of the store, the disk or the machine, not of single runs."""


@dataclass(frozen=True, slots=True)
class Computed(Generic[Result]):
    """Results of runs. result: of runs without error; errors: messages by run_id."""

    result: Result
    errors: dict[str, str]


def compute_apart(
    run_ids: Sequence[str], compute: Callable[[Sequence[str]], Result]
) -> Computed[Result]:
    """Compute runs together, and isolate runs whose computation raises.

    compute: receives some of run_ids, in order; receives none if all of them raise.

    Raises the error of a computation without runs, and ENDS_ALL.
    """
    whole = _attempt(compute, run_ids)
    if not isinstance(whole, BaseException):
        return Computed(whole, {})
    errors: dict[str, BaseException] = {}
    good = frozenset(_sound(compute, run_ids, errors))
    with _overflow_as_error():
        result = compute([run_id for run_id in run_ids if run_id in good])
    return Computed(result, {run_id: describe_fault(error) for run_id, error in errors.items()})


def _sound(
    compute: Callable[[Sequence[str]], object],
    run_ids: Sequence[str],
    errors: dict[str, BaseException],
) -> list[str]:
    """Return runs that can be computed together; add the others to `errors`."""
    error = _attempt(compute, run_ids)
    if not isinstance(error, BaseException):
        return list(run_ids)
    if len(run_ids) == 1:
        errors[run_ids[0]] = error
        return []
    half = len(run_ids) // 2
    good = _sound(compute, run_ids[:half], errors)
    more = _sound(compute, run_ids[half:], errors)
    while more and isinstance(error := _attempt(compute, [*good, *more]), BaseException):
        errors[more.pop(_first_raising(compute, good, more))] = error
    return [*good, *more]


def _first_raising(
    compute: Callable[[Sequence[str]], object], good: Sequence[str], more: Sequence[str]
) -> int:
    """Bisect `more` for the first run to raise with all before; return the index.

    good: runs without error together; good and all of `more` together raise.
    """
    low, high = 1, len(more)
    while low < high:
        middle = (low + high) // 2
        if isinstance(_attempt(compute, [*good, *more[:middle]]), BaseException):
            high = middle
        else:
            low = middle + 1
    return low - 1


def _attempt(
    compute: Callable[[Sequence[str]], Result], run_ids: Sequence[str]
) -> Result | BaseException:
    """Return the result for some runs, or the error; errors of ENDS_ALL propagate."""
    with _overflow_as_error():
        try:
            return compute(run_ids)
        except ENDS_ALL:
            raise
        except FAULTS as error:
            return error


@contextmanager
def _overflow_as_error() -> Iterator[None]:
    """Turn numpy's warnings, such as overflow, into errors within the context."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


class Presented(Protocol):
    """Results of runs, from which failed runs can be taken."""

    @property
    def metrics(self) -> pl.DataFrame:
        """Metrics, one row per run."""

    def without(self, errors: Mapping[str, str]) -> Self:
        """Return the results with a row without figures per failed run."""


def present_apart(
    results: Source, metrics: pl.DataFrame, say: Callable[[Source, pl.DataFrame], Result]
) -> Result:
    """Return `say` of these runs, as Analysis.present."""
    ids = metrics["run_id"].to_list()

    def say_of(some: Sequence[str]) -> Result:
        chosen = pl.col("run_id").is_in(list(some))
        return say(results, metrics if len(some) == metrics.height else metrics.filter(chosen))

    done = compute_apart(ids, say_of)
    if not done.errors:
        return done.result
    failed = results.without(done.errors)
    order = pl.DataFrame({"run_id": ids}, schema={"run_id": TEXT})
    rows = order.join(failed.metrics, on="run_id", how="left", maintain_order="left")
    return say(failed, rows.select(metrics.columns))
