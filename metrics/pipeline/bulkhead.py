"""The bulkhead: an error raised while some runs are computed is the answer of these runs alone.

`compute_apart` calls one computation for many runs. Where it raises, it finds the runs that make it
raise, and computes the others without them: their answers are those of a store that does not hold
the bad ones. That a number overflows counts as an error, too: what comes of it would be wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fairmfu.ingest.core.errors import ClusterError, StoreError, describe_fault
from fairmfu.ingest.core.faults import FAULTS

Result = TypeVar("Result")

ENDS_ALL: Final = (StoreError, ClusterError, OSError, MemoryError)
"""Errors that are of no run: of the store, the disk, the machine."""


@dataclass(frozen=True, slots=True)
class Computed(Generic[Result]):
    """What came of runs. result: of those without an error; errors: by run_id, in words."""

    result: Result
    errors: dict[str, str]


def compute_apart(
    run_ids: Sequence[str], compute: Callable[[Sequence[str]], Result]
) -> Computed[Result]:
    """Compute runs together, those apart with which that raises.

    compute: gets some of run_ids, in their order, and none of them where each raises. Raises what
    it does with none, and ENDS_ALL.
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
    """Return runs that can be computed together; `errors` gets those that cannot, by run_id."""
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
    """Return the place in `more` of the first run that raises beside all before it; by bisection.

    good: runs that can be computed together; with all of `more` beside them it raises
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
    """Return what is computed of runs, or the error that it raises; those of ENDS_ALL go on."""
    with _overflow_as_error():
        try:
            return compute(run_ids)
        except ENDS_ALL:
            raise
        except FAULTS as error:
            return error


@contextmanager
def _overflow_as_error() -> Iterator[None]:
    """Raise what numpy warns of, such as an overflow, for as long as the context lasts."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield
