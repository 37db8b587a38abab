"""Thousands of small cases as a few tests: each test costs pytest milliseconds in each worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., None]


def each_case(
    names: str | Sequence[str],
    cases: Iterable[Any],
    ids: Callable[[Any], str] | Iterable[str] | None = None,
) -> Callable[[Test], Test]:
    """Stand for pytest.mark.parametrize, as one test that names all cases that fail.

    For tests that leave nothing behind: all cases have the same fixtures. None of them may skip.
    """
    wanted = [names] if isinstance(names, str) else list(names)
    named = list(_named(wanted, list(cases), ids))

    def of_all(test: Test) -> Test:
        @wraps(test)
        def checked(**fixtures: Any) -> None:
            if not named:
                pytest.skip(f"no case of {', '.join(wanted)}")
            failures = []
            for case, values in named:
                try:
                    test(**fixtures, **values)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001 - it is said
                    failures.append(f"[{case}] {type(error).__name__}: {error}")
            if failures:
                pytest.fail(f"{len(failures)} of {len(named)} cases\n" + "\n".join(failures))

        known = inspect.signature(test)
        left = [value for name, value in known.parameters.items() if name not in wanted]
        if len(left) + len(wanted) != len(known.parameters):
            raise TypeError(f"{test.__name__} does not take {wanted}")
        checked.__signature__ = known.replace(parameters=left)  # type: ignore[attr-defined]
        return checked

    return of_all


def _named(
    names: list[str], cases: list[Any], ids: Callable[[Any], str] | Iterable[str] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of each case, and its values."""
    given = None if ids is None or callable(ids) else list(ids)
    for number, case in enumerate(cases):
        set_ = case if isinstance(case, ParameterSet) else None
        values = set_.values if set_ else ((case,) if len(names) == 1 else tuple(case))
        if given is not None:
            called = given[number]
        elif set_ and set_.id:
            called = str(set_.id)
        else:
            called = "-".join((ids if callable(ids) else repr)(value)[:100] for value in values)
        yield called, dict(zip(names, values, strict=True))
