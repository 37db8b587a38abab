"""The bulkhead: an error raised while some runs are computed is the answer of these runs alone.

`compute_apart` calls one computation for many runs. Where it raises, it finds the runs that make it
raise, and computes the others without them: their answers are those of a store that does not hold
the bad ones. That a number overflows counts as an error, too: what comes of it would be wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
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
    errors: dict[str, BaseException] = {}

    def attempt(some: Sequence[str]) -> Result | BaseException:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # numpy's, of an overflow
            try:
                return compute(some)
            except ENDS_ALL:
                raise
            except FAULTS as error:
                return error

    def sound(some: Sequence[str]) -> Sequence[str]:
        """Those that can be computed together; fills errors."""
        error = attempt(some)
        if not isinstance(error, BaseException):
            return some
        if len(some) == 1:
            errors[some[0]] = error
            return []
        half = len(some) // 2
        good, more = list(sound(some[:half])), list(sound(some[half:]))
        while more and isinstance(error := attempt([*good, *more]), BaseException):
            low, high = 1, len(more)  # with so many of `more` it raises for certain
            while low < high:
                middle = (low + high) // 2
                fails = isinstance(attempt([*good, *more[:middle]]), BaseException)
                low, high = (low, middle) if fails else (middle + 1, high)
            errors[more.pop(low - 1)] = error
        return [*good, *more]

    done = attempt(run_ids)
    if not isinstance(done, BaseException):
        return Computed(done, {})
    good = sound(run_ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = compute([one for one in run_ids if one in frozenset(good)])
    return Computed(result, {run_id: describe_fault(error) for run_id, error in errors.items()})
