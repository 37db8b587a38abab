"""Everyday spellings of an accelerator: model, form, capacity, memory.

"A100-SXM4-80G" and "a100 80GB SXM" are one spelling. A row of the table answers to every
combination of the forms, capacities and memories in its own names, and to no other: an A100 of
64 GB is another chip than those of 40 and 80 GB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Spelling", "includes", "is_other_kind", "matches", "spelling"]

_FAMILIES: Final = (
    *("nvidia", "amd", "intel", "huawei", "google", "aws", "habana"),
    *("geforce", "rtx", "tesla", "instinct", "ascend", "gpu", "gpus", "npu", "accelerator"),
)
"""Words that name a vendor, a family or the kind of device, but no model."""

_FORM: Final = re.compile(r"sxm\d?|pcie|nvl|oam")
_CAPACITY: Final = re.compile(r"(\d{1,4})gi?b?")
_MEMORY: Final = re.compile(r"hbm\d?e?|gddr\d?x?")
_GLUED: Final = re.compile(r"(?<=\d)(?=sxm|pcie|nvl)|(?<=ascend)(?=\d)|(?<=rtx)(?=a?\d)")
"""Borders of words that are written without a blank: `H100SXM`, `Ascend910B2`, `rtx4090`."""
_MIN_PART: Final = 3
"""Fewest characters of a name that stands for several models: `910B`, but not `B2`."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Parts of an accelerator's name; a part that the name lacks is empty.

    model: letters and digits without family: a100, 4090, 910b2
    form: sxm4, sxm, pcie, nvl or oam
    capacity: memory [GB]
    memory: hbm2e, gddr6x, …
    """

    model: str
    form: str = ""
    capacity: str = ""
    memory: str = ""


def spelling(name: str) -> Spelling:
    """Return the parts of a name as a person types it or a framework prints it."""
    text = re.sub(r"\((?:r|tm)\)|[®™]", " ", name.lower())
    text = re.sub(r"pci[- ]?e(?:xpress)?\b", "pcie", text)
    text = _GLUED.sub(" ", re.sub(r"(\d)\s+(gi?b)\b", r"\1\2", text))
    parts = {"model": "", "form": "", "capacity": "", "memory": ""}
    for word in re.split(r"[\s\-_,()]+", text):
        if word in _FAMILIES:
            continue
        kind, value = _classified(word)
        parts[kind] += value
    return Spelling(**parts)


def _classified(word: str) -> tuple[str, str]:
    if _FORM.fullmatch(word):
        return "form", word
    if match := _CAPACITY.fullmatch(word):
        return "capacity", match[1]
    return ("memory" if _MEMORY.fullmatch(word) else "model"), word


def matches(typed: Spelling, names: Iterable[Spelling]) -> bool:
    """Return whether a row with these names answers to a spelling.

    Its names must have the model, form, capacity and memory that are typed, each in any of them.
    A part that is not typed must be optional: a bare H100 is no H100 PCIe. SXM is any SXM.
    """
    alike = [name for name in names if name.model == typed.model]
    forms = {name.form for name in alike}
    return bool(typed.model and alike) and (
        (typed.form in forms or (typed.form == "sxm" and any(form[:3] == "sxm" for form in forms)))
        and typed.capacity in {name.capacity for name in alike}
        and typed.memory in {name.memory for name in alike}
    )


def is_other_kind(typed: Spelling, names: Iterable[Spelling]) -> bool:
    """Return whether a row has the model of a spelling, in whatever form and capacity."""
    return any(name.model == typed.model for name in names)


def includes(typed: Spelling, names: Iterable[Spelling]) -> bool:
    """Return whether a spelling may mean a row with these names, among others.

    `RTX PRO 6000` may mean three rows, `910B` five. A slash separates alternatives, as in
    MI250X/MI250.
    """
    models = {name.model for name in names}
    return any(_is_part(wanted, model) for wanted in typed.model.split("/") for model in models)


def _is_part(wanted: str, model: str) -> bool:
    """Return whether a name contains another, cut between a letter and a digit only."""
    if len(wanted) < _MIN_PART:
        return False
    return any(
        _is_border(model, start) and _is_border(model, start + len(wanted))
        for start in _occurrences(wanted, model)
    )


def _occurrences(wanted: str, model: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(f"(?={re.escape(wanted)})", model))


def _is_border(model: str, index: int) -> bool:
    inside = 0 < index < len(model)
    return not inside or model[index - 1].isdigit() != model[index].isdigit()
